//! Insertion of replayed changes into memtables, by several threads.
//!
//! One thread verifies the log and distributes batches. Copying changes into memtables takes as
//! long as that. A memtable accepts any number of concurrent inserts in any order, because keys
//! contain sequence numbers. So changes are collected in *lots*, and each thread inserts whole
//! lots.
//!
//! Searching the position of each change would take many times as long, mostly in cache misses. The
//! memtables are not read before the end, so changes are *held* ([`HeldEntries`]). At the end, or
//! when many are held, they are sorted and linked in one walk through their memtable.
//!
//! Everything that depends on the order of the log stays with the distributing thread: the accepted
//! pages, floors, repeated sequences, segments of memtables, embedded batches of the other lane,
//! and the end of the log.
//!
//! A lot is a copy, because the log page is not kept. The queue of waiting lots is short: if it is
//! full, the distributing thread inserts the oldest lot itself. Before it returns from
//! [`Inserts::settle`] it inserts all waiting lots, then waits only for lots that threads have
//! begun. So progress never depends on a thread that has not begun. Without threads, and in
//! simulation, it does all the work.
//!
//! Invariants: between two calls of [`Inserts::settle`] the memtables are neither read nor frozen.
//! When it returns, all changes are visible in them, and their memory is accounted. At most
//! [`WAITING_MAX`] lots wait. The mutex is not held during inserts, links or waits. Only the
//! distributing thread links. When the [`Inserts`] are dropped their threads have ended.

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

/// Maximum number of replay threads, within the number of background threads. More would wait for
/// the thread that verifies the log.
const THREADS_MAX: usize = 3;
/// Maximum number of waiting lots.
const WAITING_MAX: usize = 4;
/// Maximum bytes of a lot.
const LOT_BYTES_MAX: usize = 256 << 10;
/// Divisor: the part of the memtable budget that a lot takes at most, because waiting lots are not
/// accounted.
const LOT_PART: usize = 64;
/// Divisor: the part of the memtable budget for holding and sorting changes, which is not accounted
/// either.
const HELD_PART: usize = 16;
/// Bytes of that per change: an address, and during the sort another one with eight bytes of the
/// key.
const HELD_BYTES: usize = 24;

/// A change whose bytes are in a lot.
#[derive(Clone, Copy)]
struct Insertion {
    /// Index of its memtable in the lot.
    table: u32,
    kind: ValueKind,
    seq: SeqNo,
    key_len: usize,
    value_len: usize,
}

/// Changes that one thread inserts.
#[derive(Default)]
struct Lot {
    tables: Vec<Arc<MemTable>>,
    changes: Vec<Insertion>,
    /// Keys and values, concatenated.
    bytes: Vec<u8>,
}

impl Lot {
    fn push(&mut self, table: u32, seq: SeqNo, change: &Change<'_>) {
        let (key_len, value_len) = (change.key.len(), change.value.len());
        self.changes.push(Insertion { table, kind: change.kind, seq, key_len, value_len });
        self.bytes.extend_from_slice(change.key);
        self.bytes.extend_from_slice(change.value);
    }

    /// Copies all changes into their memtables. Returns the held entries of each memtable, and
    /// keeps the lot's memory.
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
    /// Waiting lots, oldest first.
    waiting: VecDeque<Lot>,
    /// Number of threads that insert a lot.
    at_work: usize,
    /// True if one of them has panicked.
    has_failed: bool,
    /// True after the last lot.
    is_over: bool,
    /// Empty lots for reuse.
    spare: Vec<Lot>,
    /// Held entries of each inserted lot.
    held: Vec<Vec<HeldEntries>>,
}

#[derive(Default)]
struct Shared {
    /// Guards waiting and running lots. Locked only briefly, never during an insert.
    shelf: Mutex<Shelf, rank::ReplayLots>,
    /// Wakes threads: a lot is waiting, or no more will come.
    came: Condvar,
    /// Wakes the settling thread: a lot is inserted.
    done: Condvar,
}

/// A lot taken by a thread. Its drop reports the end, also after a panic.
struct AtWork<'s> {
    shared: &'s Shared,
    lot: Lot,
    /// Set once the lot is inserted.
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
    /// Takes the oldest lot, waiting for one. `None`: no more will come.
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

/// The threads that insert lots.
struct Crew {
    shared: Arc<Shared>,
    threads: Vec<Box<dyn ThreadHandle>>,
}

impl Crew {
    /// Starts up to `count` threads.
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

    /// Queues a lot for the threads, and returns an empty one. If the queue is full, inserts the
    /// oldest lot here.
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

    /// Returns the held entries so far.
    fn take_held(&self) -> Vec<Vec<HeldEntries>> {
        std::mem::take(&mut lock(&self.shared.shelf).held)
    }

    /// Inserts waiting lots, waits for running ones, and returns the held entries.
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

/// Links the held entries of each memtable in one walk.
fn link(held: impl IntoIterator<Item = HeldEntries>) {
    // By address, which is unique while entries are held for the memtable.
    let mut tables: HashMap<usize, HeldEntries> = HashMap::default();
    for own in held.into_iter().filter(|own| !own.is_empty()) {
        match tables.entry(Arc::as_ptr(own.table()) as usize) {
            Entry::Occupied(mut all) => all.get_mut().append(own),
            Entry::Vacant(none) => drop(none.insert(own)),
        }
    }
    tables.into_values().for_each(HeldEntries::link);
}

/// A memtable with inserts.
struct Filled {
    table: Arc<MemTable>,
    /// Its index in the current lot, if it has one.
    in_lot: Option<u32>,
}

/// Inserts the changes of a log into memtables. See the module.
pub(crate) struct Inserts<'e> {
    writes: &'e WritePath,
    /// Creates threads, where the environment has them.
    spawner: Option<Arc<dyn Spawner>>,
    /// Number of threads, which start with the first full lot.
    threads: usize,
    /// Bytes of a full lot; 0: each change is inserted at once.
    lot_bytes: usize,
    lot: Lot,
    /// Upper bound of the changes that are held and not linked.
    unlinked: usize,
    /// Number of held changes at which they are linked.
    unlinked_max: usize,
    filled: HashMap<FamilyId, Filled>,
    crew: Option<Crew>,
}

impl<'e> Inserts<'e> {
    /// Inserts each change at once.
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

    /// Inserts in lots, by threads where available.
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

    /// Inserts a change into the active memtable of its family, at the latest by the next
    /// [`Inserts::settle`].
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
        // The memtable also registers segments of these changes.
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

    /// Queues the current lot, and updates the accounting of the previous ones.
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

    /// Completes all inserts: afterwards the memtables may be read and frozen.
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
