//! Catching up: a reader gets the present state of the store, and replays only the new part of the log.
//!
//! The later state is an engine of its own, and the earlier one keeps its reads, iterators and snapshots. One engine for both would not do:
//! the writer knows of no reader, and its compactions drop versions that an earlier snapshot needs. The two engines share everything
//! immutable: open files, the cache, and memtables.
//!
//! **Memtables.** The later engine takes the earlier memtables as frozen ones, and replays the new part of the log into fresh ones
//! ([`wal::read_on`]). A flush of the writer may have taken a part of the earlier memtables: all entries below the log floor of the family.
//! These entries have to go. A compaction may have dropped a tombstone above an entry, and with it in a memtable the deleted key would come
//! back. So a memtable with such entries is copied without them. Small memtables are copied together, so that a read meets few
//! memtables after any number of calls ([`piles`]).
//!
//! **Replay of the whole log.** It is needed if the writer has dropped the log group at the end of the earlier reading, if a guest
//! carries changes, or if memtables refer to segments. A damaged store, or another store in the same place, is opened anew.

use super::{open_after, replay_lanes};
use crate::context::options::Options;
use crate::engine::Engine;
use crate::open::replay_on;
use base::{Result, SeqNo};
use io::Env;
use memtable::MemTable;
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use version::Manifest;
use wal::{Lane, RecoveryReport, Staging};

/// A memtable is copied together with newer ones unless it has so many times their bytes: then each entry is copied a number of times that
/// grows with the logarithm of the bytes.
const PILE_FACTOR: usize = 2;

/// The terms of an open for reading, and the report of its replay.
pub(crate) struct Reading {
    pub env: Env,
    pub dir: PathBuf,
    pub options: Options,
    /// `None`: the store is damaged.
    pub log: Option<RecoveryReport>,
}

/// A later state of the store that was opened as `reading` says.
pub(crate) fn catch_up(engine: &Arc<Engine>, reading: &Reading) -> Result<(Arc<Engine>, Reading)> {
    let Reading { env, dir, options, log } = reading;
    let is_sound =
        engine.files.tables.quarantine.damage().is_empty() && engine.files.tables.quarantine.all().is_empty();
    let log = log.as_ref().filter(|_| is_sound);
    let earlier = log.map(|log| Earlier { engine, log: Cell::new(Some(log)) });
    open_after(earlier.as_ref(), env.clone(), dir, options.clone())
}

/// An earlier state of the store.
pub(super) struct Earlier<'e> {
    pub engine: &'e Arc<Engine>,
    /// The report of its replay; `None`: the whole log is replayed.
    log: Cell<Option<&'e RecoveryReport>>,
}

impl Earlier<'_> {
    /// True if this manifest continues its own: not where another store, or an older copy of this one, is in the place by now.
    pub fn is_of(&self, manifest: &Manifest) -> bool {
        let (then, now) = (self.engine.files.manifest.state(), manifest.state());
        let is_later = then.store.edit_number <= now.store.edit_number;
        is_later && then.store.uid == now.store.uid && then.store.speed == now.store.speed
    }

    /// The report of its replay, if the replay can go on from there.
    pub fn log(&self) -> Option<&RecoveryReport> {
        self.log.get()
    }

    /// Replays the log into an engine of a later state. `None`: the writer has dropped or cut the log at the end of the earlier replay, so the
    /// whole log has to be replayed, into another engine.
    pub fn replay_into(&self, engine: &Engine, staging: &Staging) -> Result<Option<RecoveryReport>> {
        let Some(log) = self.log.get().filter(|_| self.can_share(engine)) else {
            return replay_lanes(engine).map(Some);
        };
        self.hand_on_memtables(engine);
        if let Some(report) = replay_on(engine, staging, log)? {
            engine
                .tree
                .snapshots
                .publish(engine.tree.snapshots.visible().max(self.engine.tree.snapshots.visible()));
            return Ok(Some(report));
        }
        self.log.set(None);
        Ok(None)
    }

    /// True if the memtables may be shared: everything in them comes from LavaKV's lane, and is held by them alone.
    fn can_share(&self, engine: &Engine) -> bool {
        let has_guest = |engine: &Engine| {
            engine.files.manifest.state().store.log_groups.chain(Lane::LOG).next().is_some()
        };
        !has_guest(self.engine) && !has_guest(engine) && self.engine.writes.large.segments.live().is_empty()
    }

    fn hand_on_memtables(&self, engine: &Engine) {
        for family in engine.tree.families.all() {
            let Some(earlier) = self.engine.tree.families.get(family.id) else { continue };
            let read_state = earlier.read_state();
            let newest_first = [&read_state.active].into_iter().chain(&read_state.frozen).cloned();
            let floor = family.read_state().version.log_floor;
            let piles = piles(newest_first, floor).into_iter().map(|pile| one_of(pile, floor));
            let frozen: Vec<Arc<MemTable>> = piles.collect();
            engine.space.memory.grew(frozen.iter().map(|table| table.bytes()).sum());
            family.take_frozen(frozen);
        }
    }
}

/// The memtables that become one, newest first, without those that a flush has taken.
fn piles(newest_first: impl Iterator<Item = Arc<MemTable>>, floor: SeqNo) -> Vec<Vec<Arc<MemTable>>> {
    let mut piles: Vec<Vec<Arc<MemTable>>> = Vec::new();
    for table in newest_first.filter(|table| table.seq_range().is_some_and(|(_, last)| last >= floor)) {
        let of_pile = |pile: &Vec<Arc<MemTable>>| pile.iter().map(|table| table.bytes()).sum::<usize>();
        match piles.last_mut() {
            Some(pile) if table.bytes() < PILE_FACTOR * of_pile(pile) => pile.push(table),
            _ => piles.push(vec![table]),
        }
    }
    piles
}

/// A pile as one memtable, without the entries below the floor.
fn one_of(pile: Vec<Arc<MemTable>>, floor: SeqNo) -> Arc<MemTable> {
    match &pile[..] {
        [table] if table.seq_range().is_some_and(|(first, _)| first >= floor) => table.clone(),
        tables => MemTable::merged(tables.first().map_or(0, |table| table.id()), tables, floor),
    }
}
