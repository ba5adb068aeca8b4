//! Changes of the log on their way into memtables, by several threads.
//!
//! One thread judges the log and hands out batches. To copy changes into memtables takes as long, and a memtable takes any number
//! at once, in any order: sequences are in the keys. So changes are gathered in *lots*; threads put in whole lots.
//!
//! To find the place of each change would take many times as long, and all of it would be waiting for memory. Nobody reads before the end: so
//! changes are *held* ([`HeldEntries`]), and when many are, or the end has come, they are sorted and linked in one walk through their memtable.
//!
//! A lot is copied, since the page that it comes from is not kept. A few lots may wait: who gathers one more puts in the
//! oldest of these himself. He does the same before he settles, and then waits only for lots that threads have begun. So nobody
//! depends on a thread that has not begun; where none can be started, and in simulation, he does it all.
//!
//! Invariants: between two calls of [`Inserts::settle`] nobody reads the memtables and none is frozen. When it returns,
//! all that was put is found in them, and their memory is booked. No more than [`WAITING_MAX`] lots wait. Nothing is put in or linked,
//! and nobody waits for a thread, under the lock. Only the one who hands out lots links. When the [`Inserts`] are dropped their threads have ended.

use crate::batch::Change;
use crate::context::options::Options;
use crate::tree::family::Family;
use crate::write::WritePath;
use base::sync::{Condvar, Mutex, lock, rank, wait};
use base::{HashMap, SeqNo, ValueKind};
use io::{Priority, Spawner, ThreadHandle};
use memtable::{HeldEntries, MemTable};
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
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
/// Of what memtables may have, what it takes to hold and to sort changes has one part in so many: it is not booked either.
const HELD_PART: usize = 16;
/// Bytes of that for a change: an address, and when they are sorted another one with eight bytes of the key.
const HELD_BYTES: usize = 24;

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

    /// Writes all of it to where it belongs, where it is held for each memtable, and keeps the memory of the lot.
    fn put_in(&mut self) -> Vec<HeldEntries> {
        let mut held: Vec<HeldEntries> = self.tables.drain(..).map(|table| table.hold()).collect();
        let mut rest = &self.bytes[..];
        for change in &self.changes {
            let (key, behind) = rest.split_at(change.key_len);
            let (value, behind) = behind.split_at(change.value_len);
            rest = behind;
            held[change.table as usize].push(change.seq, change.kind, key, value);
        }
        self.changes.clear();
        self.bytes.clear();
        held
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
    /// Of each lot that is in, what is held.
    held: Vec<Vec<HeldEntries>>,
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
    /// Once it is in.
    held: Option<Vec<HeldEntries>>,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        let mut shelf = lock(&self.shared.shelf);
        shelf.at_work -= 1;
        match self.held.take() {
            Some(held) => shelf.held.push(held),
            None => shelf.has_failed = true,
        }
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
                return Some(AtWork { shared: self, lot, held: None });
            }
            shelf = wait(&self.came, shelf);
        }
    }

    fn run(&self) {
        while let Some(mut at_work) = self.take() {
            at_work.held = Some(at_work.lot.put_in());
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
    fn start(spawner: Option<&dyn Spawner>, count: usize) -> Crew {
        let shared: Arc<Shared> = Arc::default();
        let start = |n: usize| {
            let shared = shared.clone();
            spawner?
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
            let held = oldest.put_in();
            lock(&self.shared.shelf).held.push(held);
            return oldest;
        }
        let empty = shelf.spare.pop().unwrap_or_default();
        drop(shelf);
        self.shared.came.notify_one();
        empty
    }

    /// What is held by now.
    fn take_held(&self) -> Vec<Vec<HeldEntries>> {
        std::mem::take(&mut lock(&self.shared.shelf).held)
    }

    /// Puts in what waits, waits for what threads have begun, and returns what is held.
    fn settle(&self) -> Vec<Vec<HeldEntries>> {
        let mut shelf = lock(&self.shared.shelf);
        while let Some(mut lot) = shelf.waiting.pop_front() {
            drop(shelf);
            let held = lot.put_in();
            shelf = lock(&self.shared.shelf);
            shelf.held.push(held);
            shelf.spare.push(lot);
        }
        while shelf.at_work > 0 {
            shelf = wait(&self.shared.done, shelf);
        }
        assert!(!shelf.has_failed, "a thread that replays the log has panicked");
        std::mem::take(&mut shelf.held)
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

/// Links what is held for each memtable, all of it together.
fn link(held: impl IntoIterator<Item = HeldEntries>) {
    // By their addresses, which are theirs as long as something is held for them.
    let mut tables: HashMap<usize, HeldEntries> = HashMap::default();
    for own in held.into_iter().filter(|own| !own.is_empty()) {
        match tables.entry(Arc::as_ptr(own.table()) as usize) {
            Entry::Occupied(mut all) => all.get_mut().append(own),
            Entry::Vacant(none) => drop(none.insert(own)),
        }
    }
    tables.into_values().for_each(HeldEntries::link);
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
    /// Of threads, where some may be had.
    spawner: Option<Arc<dyn Spawner>>,
    /// That many are started when the first lot is full.
    threads: usize,
    /// 0: each change goes in at once.
    lot_bytes: usize,
    lot: Lot,
    /// Changes that may have been handed on and are not linked.
    unlinked: usize,
    /// With so many they are linked.
    unlinked_max: usize,
    filled: HashMap<FamilyId, Filled>,
    crew: Option<Crew>,
}

impl<'e> Inserts<'e> {
    /// Each change goes in at once.
    pub fn at_once(writes: &'e WritePath) -> Inserts<'e> {
        let (lot, filled) = (Lot::default(), HashMap::default());
        let (unlinked, unlinked_max) = (0, 0);
        Inserts {
            writes,
            spawner: None,
            threads: 0,
            lot_bytes: 0,
            lot,
            unlinked,
            unlinked_max,
            filled,
            crew: None,
        }
    }

    /// In lots, by threads where there are some.
    pub fn by_threads(
        writes: &'e WritePath,
        spawner: Option<Arc<dyn Spawner>>,
        options: &Options,
    ) -> Inserts<'e> {
        let lot_bytes = (options.memory_bytes / LOT_PART).clamp(1, LOT_BYTES_MAX);
        let unlinked_max = options.memory_bytes / HELD_PART / HELD_BYTES;
        let threads = options.background_threads.min(THREADS_MAX);
        Inserts { spawner, threads, lot_bytes, unlinked_max, ..Inserts::at_once(writes) }
    }

    /// Puts a change into the active memtable of its family, now or until the next [`Inserts::settle`].
    pub fn put(&mut self, family: &Arc<Family>, seq: SeqNo, change: &Change<'_>) {
        if self.lot_bytes == 0 {
            self.writes.memtables.insert_one(family, seq, change);
            self.writes.memtables.book(family);
            return;
        }
        let filled = self.filled.entry(family.id).or_insert_with(|| {
            let table = family.read_state().active.clone();
            Filled { table, in_lot: None }
        });
        // These are held by their memtable, too.
        if change.kind == ValueKind::PlacedReference {
            self.writes.memtables.insert_into(&filled.table, family.id, seq, change);
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
        let crew = self.crew.get_or_insert_with(|| Crew::start(self.spawner.as_deref(), self.threads));
        self.unlinked += self.lot.changes.len();
        self.lot = crew.hand(std::mem::take(&mut self.lot));
        if self.unlinked >= self.unlinked_max {
            link(crew.take_held().into_iter().flatten());
            self.unlinked = 0;
        }
        self.book();
    }

    fn book(&mut self) {
        for filled in self.filled.values_mut() {
            self.writes.memtables.book_memtable(&filled.table);
            filled.in_lot = None;
        }
    }

    /// All that was put is found in the memtables when this returns, and these may be read and frozen.
    pub fn settle(&mut self) {
        let mut held = vec![self.lot.put_in()];
        if let Some(crew) = &self.crew {
            held.append(&mut crew.settle());
        }
        link(held.into_iter().flatten());
        self.unlinked = 0;
        self.book();
        self.filled.clear();
    }
}

#[cfg(test)]
mod tests;
