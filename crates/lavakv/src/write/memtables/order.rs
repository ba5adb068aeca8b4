//! Writes on their way into the memtables: several at once, visible in the order in which they were logged.
//!
//! **Numbers.** Under the writer's lock each write gets the next number ([`Order::begin`]), and with it a slot of a ring. It goes into the
//! memtables with no lock, and when it is there its slot says so ([`UnderWay::done`]). `ended` is the number up to which all are done; whoever
//! finds its slot done moves it on by one, and publishes the sequence that stands there. So what is visible is always the whole of a first run
//! of the log, whoever was faster, and one that has ended waits for nobody's turn: the last of a run publishes all of it.
//!
//! **Nothing is missed.** A write marks its slot and *then* asks `ended`, by an exchange that changes nothing; who moves `ended` on looks at the next
//! slot *after* that. Exchanges of one atomic have an order: either the write comes later and finds `ended` at its own number, or the other
//! finds the slot marked. Likewise who is about to sleep until a sequence is visible counts itself and then asks `visible` by an exchange; who
//! publishes exchanges `visible` and then asks how many sleep.
//!
//! **Slots are used again** once `ended` has passed them, so at most [`UNDER_WAY_MAX`] are under way: then the next waits, under the writer's lock,
//! for all of them. A slot holds the last sequence of the write and the lap of the ring, by which what is left of the lap before is told from it.
//!
//! **A write that panics** ends nothing: what came after it never becomes visible, and who waits for it is told ([`Order::wait_for`]). The store
//! is poisoned before.
//!
//! Who waits for a write waits for a thread that holds no lock and waits for nobody. After the commit of write groups in RocksDB
//! (`allow_concurrent_memtable_write`), without leaders.

use super::PAUSES;
use crate::tree::snapshot::Snapshots;
use base::SeqNo;
use base::sync::model::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use base::sync::model::{Condvar, Mutex, lock, wait};
use base::sync::rank;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// So many are under way at most.
#[cfg(not(all(test, loom)))]
pub(crate) const UNDER_WAY_MAX: usize = 16;
#[cfg(all(test, loom))]
pub(crate) const UNDER_WAY_MAX: usize = 2;

const LAP_BITS: u32 = 8;

/// On a cache line of its own.
#[repr(align(64))]
#[derive(Debug)]
struct Slot(AtomicU64);

/// See the module.
pub(crate) struct Order {
    snapshots: Arc<Snapshots>,
    /// Called before those that wait are told that a write will never end.
    on_panic: Box<dyn Fn() + Send + Sync>,
    slots: [Slot; UNDER_WAY_MAX],
    /// The number of the next write, and the last sequence of the one before. Changed under the writer's lock.
    next: AtomicU64,
    last: AtomicU64,
    /// All below it are in the memtables.
    ended: AtomicU64,
    /// One will never end.
    broken: AtomicBool,
    /// How many wait asleep.
    sleepers: AtomicUsize,
    /// Held between the last look and the sleep of who waits: so whoever wakes them after it wakes all.
    sleep: Mutex<(), rank::Inserting>,
    woken: Condvar,
}

/// What the slot of a write holds once it is in the memtables.
fn mark(number: u64, last: SeqNo) -> u64 {
    last << LAP_BITS | lap(number)
}

fn lap(number: u64) -> u64 {
    number / UNDER_WAY_MAX as u64 % (1 << LAP_BITS)
}

impl Order {
    /// `on_panic` is called when a thread panics between [`Order::begin`] and [`UnderWay::done`].
    pub fn new(snapshots: &Arc<Snapshots>, on_panic: impl Fn() + Send + Sync + 'static) -> Order {
        Order {
            snapshots: snapshots.clone(),
            on_panic: Box::new(on_panic),
            slots: std::array::from_fn(|_| Slot(AtomicU64::new(0))),
            next: AtomicU64::new(0),
            last: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            broken: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            woken: Condvar::new(),
        }
    }

    fn slot(&self, number: u64) -> &AtomicU64 {
        &self.slots[(number % UNDER_WAY_MAX as u64) as usize].0
    }

    /// Under the writer's lock: waits, if as many as can be are under way, until none is. False: it never will be otherwise.
    pub fn make_place(&self, looks: usize) -> bool {
        let next = self.next.load(Ordering::Relaxed);
        next - self.ended.load(Ordering::Acquire) < UNDER_WAY_MAX as u64 || self.settle(looks)
    }

    /// Under the writer's lock: the write with the sequences up to `last` is about to be put into the memtables. There is a place for it.
    pub fn begin(&self, last: SeqNo) -> UnderWay<'_> {
        let number = self.next.load(Ordering::Relaxed);
        debug_assert!(number - self.ended.load(Ordering::Acquire) < UNDER_WAY_MAX as u64);
        self.next.store(number + 1, Ordering::Relaxed);
        self.last.store(last, Ordering::Relaxed);
        UnderWay { order: self, number, last }
    }

    /// Under the writer's lock: waits until all that has begun is visible. False: it never will be.
    pub fn settle(&self, looks: usize) -> bool {
        self.wait_for(self.last.load(Ordering::Relaxed), looks)
    }

    /// Looks so often whether a sequence is visible.
    pub fn sees(&self, seq: SeqNo, looks: usize) -> bool {
        for _ in 0..looks {
            if self.snapshots.visible() >= seq {
                return true;
            }
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
        }
        self.snapshots.visible() >= seq
    }

    /// Waits until a sequence is visible that was given to a write that has begun; looks so often before it sleeps. False: it never will be.
    pub fn wait_for(&self, seq: SeqNo, looks: usize) -> bool {
        self.sees(seq, looks) || self.sleep_until(seq)
    }

    #[cold]
    fn sleep_until(&self, seq: SeqNo) -> bool {
        self.sleepers.fetch_add(1, Ordering::AcqRel);
        let mut guard = lock(&self.sleep);
        let is_visible = loop {
            if self.snapshots.visible_now() >= seq {
                break true;
            }
            if self.broken.load(Ordering::Acquire) {
                break false;
            }
            guard = wait(&self.woken, guard);
        };
        drop(guard);
        self.sleepers.fetch_sub(1, Ordering::AcqRel);
        is_visible
    }

    /// Publishes all that is done from this number on, without a gap.
    fn advance(&self, mut number: u64) {
        let mut upto = 0;
        loop {
            let slot = self.slot(number).load(Ordering::Acquire);
            if slot == 0 || slot != mark(number, slot >> LAP_BITS) {
                break;
            }
            match self.ended.compare_exchange(number, number + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => (upto, number) = (slot >> LAP_BITS, number + 1),
                Err(now) => number = now,
            }
        }
        if upto > 0 {
            self.publish(upto);
        }
    }

    fn publish(&self, seq: SeqNo) {
        self.snapshots.publish(seq);
        let sleeps = self.sleepers.load(Ordering::Acquire) > 0;
        if sleeps {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // Whoever sleeps has looked under the lock.
        drop(lock(&self.sleep));
        self.woken.notify_all();
    }
}

/// A write that is being put into the memtables. Dropped, it will never end.
pub(crate) struct UnderWay<'a> {
    order: &'a Order,
    number: u64,
    last: SeqNo,
}

impl UnderWay<'_> {
    /// It is in the memtables: visible when all before it are.
    pub fn done(self) {
        let UnderWay { order, number, last } = *ManuallyDrop::new(self);
        order.slot(number).store(mark(number, last), Ordering::Release);
        order.advance(order.ended.fetch_add(0, Ordering::AcqRel));
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        (self.order.on_panic)();
        self.order.broken.store(true, Ordering::Release);
        self.order.wake();
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
