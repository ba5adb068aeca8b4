//! A minimal engine whose records stay in the log, with an index of their positions.
//!
//! Its state in the manifest is the list of its retained groups, each with the positions of its
//! records: the index. Retaining a group adds it, in the same edit as the store's own record;
//! freeing removes it. The floor follows from the retained groups.

use base::codec::{Reader, put_bytes, put_varint};
use base::{Error, Result, SeqNo};
use io::{Access, Env};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use store::Store;
use store::commit::{
    Aging, Durability, GroupState, Lane, Log, LogAddress, LogTerms, LoggedBatch, Loggers, TenantId, Ticket,
};
use store::manifest::{
    Commit, Engine, EngineId, Engines, Handle, ManifestState, Record, StateBuilder, refuse,
};
use store::open::StoreTerms;

pub const DIR: &str = "/store";
pub const GROUP_BYTES: u64 = 128 << 10;
pub const TENANT: TenantId = TenantId(9);
/// The engine of the first lane, which only reports floors.
pub const OTHER: TenantId = TenantId(7);

pub enum Keeper {}

/// A record: its number, its position, its length.
pub type Entry = (SeqNo, LogAddress, u32);

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept {
    pub groups: BTreeMap<u64, Vec<Entry>>,
    pub floor: SeqNo,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    pub keep: Vec<(u64, Vec<Entry>)>,
    pub free: Vec<u64>,
    pub floor: SeqNo,
}

impl Engine for Keeper {
    const ID: EngineId = EngineId(9);
    const NAME: &'static str = "keeper";
    const FORMAT: u32 = 1;
    type State = Kept;
    type Edit = Change;

    fn empty() -> Kept {
        Kept { floor: 1, ..Kept::default() }
    }

    fn encode(edit: &Change) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, edit.floor);
        put_varint(&mut out, edit.free.len() as u64);
        edit.free.iter().for_each(|&ltn| put_varint(&mut out, ltn));
        for (ltn, entries) in &edit.keep {
            let mut body = Vec::new();
            put_varint(&mut body, *ltn);
            for (seq, place, len) in entries {
                let numbers = [*seq, u64::from(place.block), u64::from(place.pos), u64::from(*len)];
                numbers.into_iter().for_each(|n| put_varint(&mut body, n));
            }
            put_bytes(&mut out, &body);
        }
        out
    }

    fn decode(bytes: &[u8]) -> Result<Change> {
        let mut r = Reader::new(bytes);
        let mut edit = Change { floor: r.varint()?, ..Change::default() };
        for _ in 0..r.varint()? {
            edit.free.push(r.varint()?);
        }
        while !r.is_empty() {
            let mut r = Reader::new(r.bytes()?);
            let (ltn, mut entries) = (r.varint()?, Vec::new());
            while !r.is_empty() {
                let (seq, block, pos, len) = (r.varint()?, r.varint()?, r.varint()?, r.varint()?);
                entries.push((seq, LogAddress { ltn, block: block as u32, pos: pos as u16 }, len as u32));
            }
            edit.keep.push((ltn, entries));
        }
        Ok(edit)
    }

    fn apply(state: &Kept, edit: &Change, _: &mut StateBuilder<'_>) -> Result<Kept> {
        let mut next = state.clone();
        next.floor = next.floor.max(edit.floor);
        for ltn in &edit.free {
            if next.groups.remove(ltn).is_none() {
                return refuse(format!("group {ltn} is not kept"));
            }
        }
        next.groups.extend(edit.keep.iter().cloned());
        Ok(next)
    }

    fn snapshot(state: &Kept) -> Change {
        let keep = state.groups.iter().map(|(ltn, entries)| (*ltn, entries.clone())).collect();
        Change { keep, free: Vec::new(), floor: state.floor }
    }

    fn verify(state: &Kept, store: &ManifestState) -> Result<()> {
        let listed: Vec<u64> = store.log_groups.retained(Lane::LOG).map(|group| group.ltn).collect();
        let kept: Vec<u64> = state.groups.keys().copied().collect();
        match listed == kept {
            true => Ok(()),
            false => Err(Error::corruption(format!("{kept:?} are kept, and {listed:?} retained"))),
        }
    }

    fn floor(state: &Kept) -> SeqNo {
        state.floor
    }

    fn describe(state: &Kept) -> String {
        format!("keeper of {:?} from {}\n", state.groups.keys().collect::<Vec<_>>(), state.floor)
    }

    fn list(bytes: &[u8]) -> Result<Vec<String>> {
        Ok(vec![format!("{:?}", Self::decode(bytes)?)])
    }
}

/// A store with the engine in the record lane, and batches of another tenant in the first lane.
pub struct Machine {
    pub store: Store,
    pub manifest: Handle<Keeper>,
    pub log: Arc<Log>,
    /// Every existing record, by number.
    pub index: BTreeMap<SeqNo, (LogAddress, u32)>,
    pub next_seq: SeqNo,
    /// The records of the first lane.
    pub first: BTreeMap<SeqNo, Vec<u8>>,
}

pub fn terms() -> LogTerms {
    LogTerms {
        access: Access::Direct,
        group_bytes: GROUP_BYTES,
        free_groups_max: 2,
        loggers: Loggers { writes_max: 3, threads_min: 0 },
        retained_open_max: 2,
        aging: Aging::default(),
    }
}

impl Machine {
    pub fn open(env: Env) -> Result<Machine> {
        let terms = StoreTerms { log: terms(), records: Some(terms()) };
        let engines = Engines::of::<Keeper>();
        let (mut first, mut replayed) = (BTreeMap::new(), BTreeMap::new());
        let mut take = |lane: Lane, batch: &LoggedBatch<'_>| {
            match lane {
                Lane::FIRST => drop(first.insert(batch.first_seq, batch.bytes.to_vec())),
                _ => drop(replayed.insert(batch.first_seq, (batch.place, batch.bytes.len() as u32))),
            }
            Ok(())
        };
        let store = Store::open_lanes(&env, Path::new(DIR), terms, &engines, &mut take)?;
        let manifest = Handle::<Keeper>::of(store.manifest())?;
        let state = manifest.state();
        if !state.store.engines.iter().any(|engine| engine.id == Keeper::ID) {
            manifest.commit(Commit::own(Change::default()))?;
        }
        let mut index = BTreeMap::new();
        for (seq, place, len) in state.groups.values().flatten() {
            index.insert(*seq, (*place, *len));
        }
        let next_seq = index.keys().chain(replayed.keys()).max().map_or(1, |last| last + 1);
        // A replayed record may belong to a group that was retained or freed since; the floor
        // decides.
        index.extend(replayed.into_iter().filter(|(seq, _)| *seq >= state.floor));
        let log = store.lane(Lane::LOG).unwrap().clone();
        log.floors().tell(TENANT, state.floor);
        let next_seq = next_seq.max(state.floor);
        Ok(Machine { store, manifest, log, index, next_seq, first })
    }

    pub fn append(&mut self, bytes: &[u8], durability: Durability) -> Result<Ticket> {
        let seq = self.next_seq;
        let (ticket, place) = self.log.put_placed(TENANT, &[bytes], (seq, seq), durability)?;
        self.next_seq += 1;
        self.index.insert(seq, (place, bytes.len() as u32));
        Ok(ticket)
    }

    pub fn append_first(&mut self, bytes: &[u8], durability: Durability) -> Result<Ticket> {
        let seq = self.first.keys().next_back().map_or(1, |last| last + 1);
        let ticket = self.store.log().put(OTHER, &[bytes], (seq, seq), durability)?;
        self.first.insert(seq, bytes.to_vec());
        Ok(ticket)
    }

    pub fn read(&self, seq: SeqNo) -> Result<Vec<u8>> {
        let Some((place, len)) = self.index.get(&seq) else { return Err(Error::not_found("no such record")) };
        let mut out = Vec::new();
        self.log.reader().read(*place, *len as usize, &mut out)?;
        Ok(out)
    }

    /// Returns the records of a group.
    pub fn entries(&self, ltn: u64) -> Vec<Entry> {
        let of = self.index.iter().filter(|(_, (place, _))| place.ltn == ltn);
        of.map(|(seq, (place, len))| (*seq, *place, *len)).collect()
    }

    /// Raises the floor above all records: their index goes into the manifest when the groups are
    /// retained.
    pub fn pass(&mut self) -> Result<()> {
        self.log.floors().tell(TENANT, self.next_seq);
        self.log.floors().hint();
        self.store.tend().map(drop)
    }

    /// Retains the oldest groups, at most `most` of them.
    pub fn retain(&mut self, most: usize) -> Result<Vec<u64>> {
        let passed = self.log.reader().groups().into_iter().filter(|g| g.state == GroupState::Passed);
        let passed = passed.filter(|g| g.seqs.as_ref().is_some_and(|seqs| !seqs.is_empty()));
        let ltns: Vec<u64> = passed.map(|group| group.ltn).take(most).collect();
        let Some(last) = ltns.last() else { return Ok(ltns) };
        let floor = self.entries(*last).last().map_or(0, |(seq, ..)| seq + 1);
        let keep = ltns.iter().map(|&ltn| (ltn, self.entries(ltn))).collect();
        let own = Change { keep, free: Vec::new(), floor };
        let commit = |store: Vec<Record>| self.manifest.commit(Commit { store, own }).map(drop);
        self.log.stored().retain(&ltns, commit)?;
        Ok(ltns)
    }

    /// Frees a retained group, and drops its records from the index.
    pub fn free(&mut self, ltn: u64) -> Result<()> {
        let own = Change { free: vec![ltn], ..Change::default() };
        self.log.stored().free(&[ltn], |store| self.manifest.commit(Commit { store, own }).map(drop))?;
        self.index.retain(|_, (place, _)| place.ltn != ltn);
        Ok(())
    }

    pub fn retained(&self) -> Vec<u64> {
        let groups = self.log.reader().groups().into_iter();
        groups.filter(|group| group.state == GroupState::Retained).map(|group| group.ltn).collect()
    }
}
