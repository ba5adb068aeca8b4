//! Changes of the log on their way into memtables, by several threads.
//!
//! One thread judges the log and hands out batches. To find the place of a change in its memtable takes longer than that, most of
//! it waits for memory, and a memtable takes any number of inserts at once, in any order: sequences are in the keys. So
//! changes are gathered in *lots*; threads put in whole lots.
//!
//! A lot is copied, since the page that it comes from is not kept. A few lots may wait: who gathers one more puts in the
//! oldest of these himself. He does the same before he settles, and then waits only for lots that threads have begun. So nobody
//! depends on a thread that has not begun; where none can be started, and in simulation, each change goes in at once.
//!
//! Invariants: between two calls of [`Inserts::settle`] nobody reads the memtables and none is frozen. When it returns,
//! all that was put is in them, and their memory is booked. No more than [`WAITING_MAX`] lots wait. Nothing is put in,
//! and nobody waits for a thread, under the lock. When the [`Inserts`] are dropped their threads have ended.

use crate::batch::Change;
use crate::context::options::Options;
use crate::tree::family::Family;
use crate::write::WritePath;
use base::sync::{Condvar, Mutex, lock, rank, wait};
use base::{HashMap, SeqNo, ValueKind};
use io::{Priority, Spawner, ThreadHandle};
use memtable::MemTable;
use std::collections::VecDeque;
use std::sync::Arc;
use version::FamilyId;

/// Threads of a replay, as long as the store may have as many in the background. More would wait for the one who judges.
const THREADS_MAX: usize = 3;
/// Lots that wait for a thread.
const WAITING_MAX: usize = 4;
/// Bytes of a lot.
const LOT_BYTES_MAX: usize = 256 << 10;
/// Of what memtables may have, a lot has one part in so many: lots that wait are not booked.
const LOT_PART: usize = 64;

/// A change whose bytes are in a lot.
#[derive(Clone, Copy)]
struct Insertion {
    /// Its memtable, among those of the lot.
    table: u32,
    kind: ValueKind,
    seq: SeqNo,
    key_len: usize,
    value_len: usize,
}

/// Changes that one thread puts in.
#[derive(Default)]
struct Lot {
    tables: Vec<Arc<MemTable>>,
    changes: Vec<Insertion>,
    /// Keys and values, one behind the other.
    bytes: Vec<u8>,
}

impl Lot {
    fn push(&mut self, table: u32, seq: SeqNo, change: &Change<'_>) {
        let (key_len, value_len) = (change.key.len(), change.value.len());
        self.changes.push(Insertion { table, kind: change.kind, seq, key_len, value_len });
        self.bytes.extend_from_slice(change.key);
        self.bytes.extend_from_slice(change.value);
    }

    /// Puts all of it where it belongs, and keeps the memory.
    fn put_in(&mut self) {
        let mut rest = &self.bytes[..];
        for change in &self.changes {
            let (key, behind) = rest.split_at(change.key_len);
            let (value, behind) = behind.split_at(change.value_len);
            rest = behind;
            self.tables[change.table as usize].insert(change.seq, change.kind, key, value);
        }
        self.tables.clear();
        self.changes.clear();
        self.bytes.clear();
    }
}

#[derive(Default)]
struct Shelf {
    /// In the order in which they came.
    waiting: VecDeque<Lot>,
    /// Threads that put one in.
    at_work: usize,
    /// One of them has panicked.
    has_failed: bool,
    /// There are no more lots.
    is_over: bool,
    /// Lots to be used again.
    spare: Vec<Lot>,
}

#[derive(Default)]
struct Shared {
    /// Which lots wait, and how many are put in. Held for a moment, never while one is put in.
    shelf: Mutex<Shelf, rank::ReplayLots>,
    /// A lot has come, or it is over: for the threads.
    came: Condvar,
    /// A thread has put one in: for who settles.
    done: Condvar,
}

/// A thread that has taken a lot. It is done with it when this ends, however it ends.
struct AtWork<'s> {
    shared: &'s Shared,
    lot: Lot,
    is_in: bool,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        let mut shelf = lock(&self.shared.shelf);
        shelf.at_work -= 1;
        shelf.has_failed |= !self.is_in;
        shelf.spare.push(std::mem::take(&mut self.lot));
        self.shared.done.notify_one();
    }
}

impl Shared {
    /// Takes the oldest lot as soon as there is one. `None`: there are no more.
    fn take(&self) -> Option<AtWork<'_>> {
        let mut shelf = lock(&self.shelf);
        loop {
            if shelf.is_over {
                return None;
            }
            if let Some(lot) = shelf.waiting.pop_front() {
                shelf.at_work += 1;
                return Some(AtWork { shared: self, lot, is_in: false });
            }
            shelf = wait(&self.came, shelf);
        }
    }

    fn run(&self) {
        while let Some(mut at_work) = self.take() {
            at_work.lot.put_in();
            at_work.is_in = true;
        }
    }
}

/// Threads that put in lots.
struct Crew {
    shared: Arc<Shared>,
    threads: Vec<Box<dyn ThreadHandle>>,
}

impl Crew {
    /// Starts as many threads as can be had, at most so many.
    fn start(spawner: &dyn Spawner, count: usize) -> Crew {
        let shared: Arc<Shared> = Arc::default();
        let start = |n: usize| {
            let shared = shared.clone();
            spawner
                .spawn(&format!("lava-insert-{n}"), Priority::Foreground, Box::new(move || shared.run()))
                .ok()
        };
        let threads = (0..count).map_while(start).collect();
        Crew { shared, threads }
    }

    /// Leaves a lot to the threads, and returns an empty one. If enough of them wait the oldest goes in here.
    fn hand(&self, lot: Lot) -> Lot {
        let mut shelf = lock(&self.shared.shelf);
        shelf.waiting.push_back(lot);
        let too_many = shelf.waiting.len() > WAITING_MAX || self.threads.is_empty();
        if let Some(mut oldest) = too_many.then(|| shelf.waiting.pop_front()).flatten() {
            drop(shelf);
            oldest.put_in();
            return oldest;
        }
        let empty = shelf.spare.pop().unwrap_or_default();
        drop(shelf);
        self.shared.came.notify_one();
        empty
    }

    /// Puts in what waits, and waits for what threads have begun.
    fn settle(&self) {
        let mut shelf = lock(&self.shared.shelf);
        while let Some(mut lot) = shelf.waiting.pop_front() {
            drop(shelf);
            lot.put_in();
            shelf = lock(&self.shared.shelf);
            shelf.spare.push(lot);
        }
        while shelf.at_work > 0 && !base::canary::is("replay-settles-while-inserts-run") {
            shelf = wait(&self.shared.done, shelf);
        }
        assert!(!shelf.has_failed, "a thread that replays the log has panicked");
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        lock(&self.shared.shelf).is_over = true;
        self.shared.came.notify_all();
        for thread in self.threads.drain(..) {
            thread.join();
        }
    }
}

/// A memtable that has got something.
struct Filled {
    table: Arc<MemTable>,
    /// Its place in the lot that is gathered, if it is in that.
    in_lot: Option<u32>,
}

/// What puts the changes of a log into memtables. See the module.
pub(crate) struct Inserts<'e> {
    writes: &'e WritePath,
    /// `None`: each change goes in at once.
    spawner: Option<Arc<dyn Spawner>>,
    /// That many are started when the first lot is full.
    threads: usize,
    lot_bytes: usize,
    lot: Lot,
    filled: HashMap<FamilyId, Filled>,
    crew: Option<Crew>,
}

impl<'e> Inserts<'e> {
    /// Each change goes in at once.
    pub fn at_once(writes: &'e WritePath) -> Inserts<'e> {
        let (lot, filled) = (Lot::default(), HashMap::default());
        Inserts { writes, spawner: None, threads: 0, lot_bytes: 0, lot, filled, crew: None }
    }

    /// By threads, where there are some.
    pub fn by_threads(
        writes: &'e WritePath,
        spawner: Option<Arc<dyn Spawner>>,
        options: &Options,
    ) -> Inserts<'e> {
        let lot_bytes = (options.memory_bytes / LOT_PART).min(LOT_BYTES_MAX);
        let threads = options.background_threads.min(THREADS_MAX);
        Inserts { spawner, threads, lot_bytes, ..Inserts::at_once(writes) }
    }

    /// Puts a change into the active memtable of its family, now or until the next [`Inserts::settle`].
    pub fn put(&mut self, family: &Arc<Family>, seq: SeqNo, change: &Change<'_>) {
        if self.spawner.is_none() {
            self.writes.insert_one(family, seq, change);
            return;
        }
        let filled = self.filled.entry(family.id).or_insert_with(|| {
            let table = family.read_state().active.clone();
            Filled { table, in_lot: None }
        });
        // These are held by their memtable, too.
        if change.is_placed() || change.kind == ValueKind::PlacedReference {
            self.writes.insert_into(&filled.table, family.id, seq, change);
            return;
        }
        let lot = &mut self.lot;
        let table = *filled.in_lot.get_or_insert_with(|| {
            lot.tables.push(filled.table.clone());
            lot.tables.len() as u32 - 1
        });
        lot.push(table, seq, change);
        if lot.bytes.len() >= self.lot_bytes {
            self.hand();
        }
    }

    /// Hands the lot on, and books what has become of those before it.
    fn hand(&mut self) {
        if self.crew.is_none() {
            self.crew = self.spawner.as_deref().map(|spawner| Crew::start(spawner, self.threads));
        }
        if let Some(crew) = &self.crew {
            self.lot = crew.hand(std::mem::take(&mut self.lot));
        }
        self.book();
    }

    fn book(&mut self) {
        for filled in self.filled.values_mut() {
            self.writes.book(&filled.table);
            filled.in_lot = None;
        }
    }

    /// All that was put is in the memtables when this returns, and these may be read and frozen.
    pub fn settle(&mut self) {
        self.lot.put_in();
        if let Some(crew) = &self.crew {
            crew.settle();
        }
        self.book();
        self.filled.clear();
    }
}

#[cfg(test)]
mod tests;
