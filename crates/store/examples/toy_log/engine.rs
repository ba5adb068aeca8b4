//! A log of entries, numbered from 1: the smallest engine that a store can have beside others, or alone.
//!
//! Entries are in the store's log and nowhere else; in memory there is a copy to read from. An entry is durable when the
//! log is up to it, with whatever other engines wrote before it. `trim` moves the *floor*: the manifest has it durably,
//! so that the store knows what this engine needs even when it is not there, and the log is told of it afterwards.
//!
//! The number of an entry is the sequence of its batch. Invariant: numbers at and above the floor are in the log, in order.

use base::codec::{Reader, put_varint};
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind, Result, SeqNo};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::commit::{Durability, Log, TenantId, Ticket};
use store::manifest::{Commit, Engine, EngineId, Ground, Handle, Manifest, State as StoreState};

/// The engine's part of the manifest, as functions.
pub enum Toy {}

/// What the manifest knows of it: entries below are not wanted any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor(pub SeqNo);

impl Engine for Toy {
    const ID: EngineId = EngineId(7);
    const NAME: &'static str = "toy log";
    const FORMAT: u32 = 1;
    type State = Floor;
    /// The new floor.
    type Edit = Option<SeqNo>;

    fn empty() -> Floor {
        Floor(1)
    }

    fn encode(edit: &Option<SeqNo>) -> Vec<u8> {
        let mut out = Vec::new();
        edit.iter().for_each(|floor| put_varint(&mut out, *floor));
        out
    }

    fn decode(bytes: &[u8]) -> Result<Option<SeqNo>> {
        let mut r = Reader::new(bytes);
        let floor = if r.is_empty() { None } else { Some(r.varint()?) };
        match r.is_empty() {
            true => Ok(floor),
            false => Err(Error::new(ErrorKind::Unsupported, "a floor of the toy log with more behind it")),
        }
    }

    fn apply(state: &Floor, edit: &Option<SeqNo>, _: &mut Ground<'_>) -> Result<Floor> {
        match *edit {
            Some(floor) if floor < state.0 => Err(Error::invalid("the floor of the toy log cannot fall")),
            floor => Ok(Floor(floor.unwrap_or(state.0))),
        }
    }

    fn snapshot(state: &Floor) -> Option<SeqNo> {
        Some(state.0)
    }

    fn verify(_: &Floor, _: &StoreState) -> Result<()> {
        Ok(())
    }

    fn floor(state: &Floor) -> SeqNo {
        state.0
    }

    fn describe(state: &Floor) -> String {
        format!("toy log from {}\n", state.0)
    }

    fn list(bytes: &[u8]) -> Result<Vec<String>> {
        Ok(Self::decode(bytes)?.map(|floor| format!("trim below {floor}")).into_iter().collect())
    }
}

/// Under this number the engine's batches are in the log.
pub const TENANT: TenantId = TenantId(7);

/// What recovery hands out of the log.
#[derive(Debug, Default)]
pub struct Replayed(BTreeMap<SeqNo, Vec<u8>>);

impl Replayed {
    /// Takes a batch of whatever tenant.
    ///
    /// # Errors
    /// None: an entry may be anything.
    pub fn take(&mut self, tenant: TenantId, number: SeqNo, bytes: &[u8]) -> Result<()> {
        if tenant == TENANT {
            self.0.insert(number, bytes.to_vec());
        }
        Ok(())
    }
}

/// The engine, open.
pub struct ToyLog {
    manifest: Handle<Toy>,
    log: Arc<Log>,
    /// Guards the order of appends as well.
    entries: Mutex<Entries, rank::Outside>,
}

#[derive(Debug)]
struct Entries {
    by_number: BTreeMap<SeqNo, Vec<u8>>,
    next: SeqNo,
}

impl ToyLog {
    /// The engine over a store that was opened with it, with what was replayed of its log.
    ///
    /// # Errors
    /// `Unsupported` if the store has a newer format of it; those of the manifest.
    pub fn over(manifest: &Arc<Manifest>, log: &Arc<Log>, replayed: Replayed) -> Result<ToyLog> {
        let manifest = Handle::<Toy>::of(manifest)?;
        let state = manifest.state();
        let floor = state.0;
        // The manifest knows the engine before the log has anything of it.
        if !state.store.engines.iter().any(|engine| engine.id == Toy::ID) {
            manifest.commit(Commit::own(Some(floor)))?;
        }
        let mut by_number = replayed.0;
        by_number.retain(|number, _| *number >= floor);
        let next = by_number.keys().next_back().map_or(floor, |last| last + 1);
        log.floors().tell(TENANT, floor);
        Ok(ToyLog { manifest, log: log.clone(), entries: Mutex::new(Entries { by_number, next }) })
    }

    /// Appends an entry. It survives what `durability` says once [`ToyLog::sync`] has returned for a durable one, at once for a
    /// buffered one.
    ///
    /// # Errors
    /// `NoSpace`: nothing happened. Those of the log.
    pub fn append(&self, bytes: &[u8], durability: Durability) -> Result<(SeqNo, Ticket)> {
        let mut entries = lock(&self.entries);
        let number = entries.next;
        let ticket = self.log.put(TENANT, &[bytes], (number, number), durability)?;
        entries.next += 1;
        entries.by_number.insert(number, bytes.to_vec());
        Ok((number, ticket))
    }

    /// Waits until an entry, and all before it, are durable. Whoever waits at the same time shares the write.
    ///
    /// # Errors
    /// Those of the log.
    pub fn sync(&self, ticket: Ticket) -> Result<()> {
        self.log.sync(ticket)
    }

    /// An entry, if it is there and was not trimmed.
    pub fn read(&self, number: SeqNo) -> Option<Vec<u8>> {
        lock(&self.entries).by_number.get(&number).cloned()
    }

    /// The numbers that are there, the end exclusive.
    pub fn range(&self) -> std::ops::Range<SeqNo> {
        let entries = lock(&self.entries);
        entries.by_number.keys().next().copied().unwrap_or(entries.next)..entries.next
    }

    /// Forgets the entries below a number, for good; the log may let go of them.
    ///
    /// # Errors
    /// `InvalidArgument` above the end; those of the manifest: then all is as it was, or nobody knows before a restart.
    pub fn trim(&self, below: SeqNo) -> Result<()> {
        let end = self.range().end;
        if below > end {
            return Err(Error::invalid(format!("there is no entry {below} yet: the next is {end}")));
        }
        let floor = below.max(self.manifest.state().0);
        // Durable before the log is told: what is gone from there must not be wanted after a crash.
        self.manifest.commit(Commit::own(Some(floor)))?;
        lock(&self.entries).by_number.retain(|number, _| *number >= floor);
        self.log.floors().tell(TENANT, floor);
        self.log.floors().hint();
        Ok(())
    }
}
