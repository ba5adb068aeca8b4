//! Catch-up of a read-only store: opens the present state and replays only the new part of the log.
//!
//! The later state is an engine of its own, and the earlier one keeps its reads, iterators and
//! snapshots. One engine for both is impossible: the writer knows of no reader, and its compactions
//! drop versions that an earlier snapshot needs. The two engines share everything immutable: open
//! files, the cache, and memtables.
//!
//! **Memtables.** The later engine takes the earlier memtables as frozen ones, and replays the new
//! part of the log into fresh ones ([`wal::read_on`]). A flush of the writer may have put part of
//! the earlier memtables into tables: all entries below the log floor of the family. These entries
//! must be removed. A compaction may have dropped a tombstone above such an entry, and the deleted
//! key would reappear from the memtable. So a memtable with such entries is copied without them.
//! Small memtables are merged by the copy, so that a read searches few memtables after any number
//! of catch-ups ([`piles`]).
//!
//! **Replay of the whole log.** This is needed with a secondary lane, or if memtables reference
//! segments. It is also needed if the writer has dropped the last log group of the earlier replay.
//! A damaged store, or another store in the same place, is opened anew.

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

/// A memtable is merged with newer ones unless it has this many times their bytes. So each entry is
/// copied a number of times logarithmic in the bytes.
const PILE_FACTOR: usize = 2;

/// The parameters of a read-only open, and the report of its replay.
pub(crate) struct ReadOnlyOpen {
    pub env: Env,
    pub dir: PathBuf,
    pub options: Options,
    /// `None`: the store is damaged.
    pub log: Option<RecoveryReport>,
}

/// Opens a later state of the store that was opened with `reading`.
pub(crate) fn catch_up(engine: &Arc<Engine>, reading: &ReadOnlyOpen) -> Result<(Arc<Engine>, ReadOnlyOpen)> {
    let ReadOnlyOpen { env, dir, options, log } = reading;
    let is_sound =
        engine.files.tables.quarantine.damage().is_empty() && engine.files.tables.quarantine.all().is_empty();
    let log = log.as_ref().filter(|_| is_sound);
    let earlier = log.map(|log| Earlier { engine, log: Cell::new(Some(log)) });
    open_after(earlier.as_ref(), env.clone(), dir, options.clone())
}

/// The state before a catch-up.
pub(super) struct Earlier<'e> {
    pub engine: &'e Arc<Engine>,
    /// The report of its replay; `None`: the whole log must be replayed.
    log: Cell<Option<&'e RecoveryReport>>,
}

impl Earlier<'_> {
    /// True if `manifest` continues the earlier one: not if another store, or an older copy, is in
    /// the same place now.
    pub fn is_of(&self, manifest: &Manifest) -> bool {
        let (then, now) = (self.engine.files.manifest.state(), manifest.state());
        let is_later = then.store.edit_number <= now.store.edit_number;
        is_later && then.store.uid == now.store.uid && then.store.speed == now.store.speed
    }

    /// Returns the report of its replay, if the next replay can continue there.
    pub fn log(&self) -> Option<&RecoveryReport> {
        self.log.get()
    }

    /// Replays the log into the engine of a later state. `None`: the writer has dropped or cut the
    /// log at the end of the earlier replay. Then the whole log must be replayed into another
    /// engine.
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

    /// True if the memtables may be shared: all their entries come from LavaKV's lane and contain
    /// their values.
    fn can_share(&self, engine: &Engine) -> bool {
        let has_secondary = |engine: &Engine| {
            engine.files.manifest.state().store.log_groups.chain(Lane::LOG).next().is_some()
        };
        !has_secondary(self.engine)
            && !has_secondary(engine)
            && self.engine.writes.large.segments.live().is_empty()
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

/// Groups the memtables to merge, newest first, without those that were flushed.
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

/// Merges a group into one memtable, without the entries below the floor.
fn one_of(pile: Vec<Arc<MemTable>>, floor: SeqNo) -> Arc<MemTable> {
    match &pile[..] {
        [table] if table.seq_range().is_some_and(|(first, _)| first >= floor) => table.clone(),
        tables => MemTable::merged(tables.first().map_or(0, |table| table.id()), tables, floor),
    }
}
