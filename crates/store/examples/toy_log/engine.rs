//! A log of entries, numbered from 1: a minimal engine, beside other engines in a store or alone.
//!
//! Entries are only in the store's log, with a copy in memory for reads. An entry is durable when
//! the log is durable up to it, with all earlier batches of other engines. `trim` raises the
//! *floor*. The manifest holds the floor durably, so that the store knows it even when this engine
//! is absent. The log gets it afterwards.
//!
//! The number of an entry is the sequence of its batch. Invariant: numbers at and above the floor
//! are in the log, in order.

use base::codec::{Reader, put_varint};
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind, Result, SeqNo};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::commit::{Durability, Log, TenantId, Ticket};
use store::manifest::{Commit, Engine, EngineId, Handle, Manifest, ManifestState, StateBuilder};

/// The engine's part of the manifest, as functions.
pub enum Toy {}

/// The engine's state in the manifest: entries below the floor are trimmed.
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

    fn apply(state: &Floor, edit: &Option<SeqNo>, _: &mut StateBuilder<'_>) -> Result<Floor> {
        match *edit {
            Some(floor) if floor < state.0 => Err(Error::invalid("the floor of the toy log cannot fall")),
            floor => Ok(Floor(floor.unwrap_or(state.0))),
        }
    }

    fn snapshot(state: &Floor) -> Option<SeqNo> {
        Some(state.0)
    }

    fn verify(_: &Floor, _: &ManifestState) -> Result<()> {
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

/// The tenant number of the engine's batches in the log.
pub const TENANT: TenantId = TenantId(7);

/// The replayed entries.
#[derive(Debug, Default)]
pub struct Replayed(BTreeMap<SeqNo, Vec<u8>>);

impl Replayed {
    /// Takes a batch of any tenant.
    ///
    /// # Errors
    /// None: any bytes are a valid entry.
    pub fn take(&mut self, tenant: TenantId, number: SeqNo, bytes: &[u8]) -> Result<()> {
        if tenant == TENANT {
            self.0.insert(number, bytes.to_vec());
        }
        Ok(())
    }
}

/// The open engine.
pub struct ToyLog {
    manifest: Handle<Toy>,
    log: Arc<Log>,
    /// Also guards the order of appends.
    entries: Mutex<Entries, rank::Outside>,
}

#[derive(Debug)]
struct Entries {
    by_number: BTreeMap<SeqNo, Vec<u8>>,
    next: SeqNo,
}

impl ToyLog {
    /// Creates the engine over a store that was opened with it, with its replayed entries.
    ///
    /// # Errors
    /// `Unsupported` if the store has a newer format of it; manifest errors.
    pub fn over(manifest: &Arc<Manifest>, log: &Arc<Log>, replayed: Replayed) -> Result<ToyLog> {
        let manifest = Handle::<Toy>::of(manifest)?;
        let state = manifest.state();
        let floor = state.0;
        // The manifest lists the engine before the log has any batch of it.
        if !state.store.engines.iter().any(|engine| engine.id == Toy::ID) {
            manifest.commit(Commit::own(Some(floor)))?;
        }
        let mut by_number = replayed.0;
        by_number.retain(|number, _| *number >= floor);
        let next = by_number.keys().next_back().map_or(floor, |last| last + 1);
        log.floors().tell(TENANT, floor);
        Ok(ToyLog { manifest, log: log.clone(), entries: Mutex::new(Entries { by_number, next }) })
    }

    /// Appends an entry. A durable entry is safe once [`ToyLog::sync`] has returned, a buffered one
    /// survives the process at once.
    ///
    /// # Errors
    /// `NoSpace`: nothing happened. Errors of the log.
    pub fn append(&self, bytes: &[u8], durability: Durability) -> Result<(SeqNo, Ticket)> {
        let mut entries = lock(&self.entries);
        let number = entries.next;
        let ticket = self.log.put(TENANT, &[bytes], (number, number), durability)?;
        entries.next += 1;
        entries.by_number.insert(number, bytes.to_vec());
        Ok((number, ticket))
    }

    /// Waits until an entry and all before it are durable. Concurrent callers share the device
    /// write.
    ///
    /// # Errors
    /// Errors of the log.
    pub fn sync(&self, ticket: Ticket) -> Result<()> {
        self.log.sync(ticket)
    }

    /// Returns an entry, unless it was trimmed.
    pub fn read(&self, number: SeqNo) -> Option<Vec<u8>> {
        lock(&self.entries).by_number.get(&number).cloned()
    }

    /// Returns the range of entry numbers.
    pub fn range(&self) -> std::ops::Range<SeqNo> {
        let entries = lock(&self.entries);
        entries.by_number.keys().next().copied().unwrap_or(entries.next)..entries.next
    }

    /// Drops the entries below a number for good; the log may release them.
    ///
    /// # Errors
    /// `InvalidArgument` above the end. Manifest errors: either nothing happened, or the outcome is
    /// unknown until a restart.
    pub fn trim(&self, below: SeqNo) -> Result<()> {
        let end = self.range().end;
        if below > end {
            return Err(Error::invalid(format!("there is no entry {below} yet: the next is {end}")));
        }
        let floor = below.max(self.manifest.state().0);
        // Durable first: entries released by the log must not be needed after a crash.
        self.manifest.commit(Commit::own(Some(floor)))?;
        lock(&self.entries).by_number.retain(|number, _| *number >= floor);
        self.log.floors().tell(TENANT, floor);
        self.log.floors().hint();
        Ok(())
    }
}
