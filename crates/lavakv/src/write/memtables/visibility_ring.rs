//! The visibility ring: inserts in flight, several at once, which become visible in the order of
//! the log.
//!
//! **Numbers.** Under the writer's lock each write gets the next number and the ring slot of that
//! number ([`VisibilityRing::begin`]). It inserts without a lock, then marks its slot
//! ([`InFlightInsert::done`]). `ended` is the number below which all inserts are done. A thread
//! that finds the slot of `ended` marked advances `ended` by one and publishes the sequence in the
//! slot. So the visible writes are always a prefix of the log. A fast insert waits for no other:
//! the last insert of a run publishes the whole run.
//!
//! **No lost publication.** A write marks its slot and *then* reads `ended`, by an exchange that
//! changes nothing. A thread that advances `ended` reads the next slot *afterwards*. Exchanges of
//! one atomic have a total order: either the write reads `ended` at its own number, or the other
//! thread reads the marked slot. The same argument covers sleepers. A thread counts itself as a
//! sleeper and then reads `visible` by an exchange; a publisher exchanges `visible` and then reads
//! the count.
//!
//! **Slot reuse.** A slot is free once `ended` has passed it, so at most [`UNDER_WAY_MAX`] inserts
//! are in flight. The next write then waits, under the writer's lock, for all of them. A slot holds
//! the last sequence of its write and the lap of the ring; the lap tells it from the mark of an
//! earlier lap.
//!
//! **A panic in an insert** ends the advance: later writes never become visible, and their callers
//! get an error ([`VisibilityRing::wait_for`]). The store is poisoned before.
//!
//! An insert in flight holds no lock and waits for nothing, so a wait for it ends. The design
//! follows the concurrent memtable writes of RocksDB (`allow_concurrent_memtable_write`), without
//! leaders.

use super::PAUSES;
use crate::tree::snapshot::Snapshots;
use base::SeqNo;
use base::sync::model::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use base::sync::model::{Condvar, Mutex, lock, wait};
use base::sync::rank;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// Most inserts in flight.
#[cfg(not(all(test, loom)))]
pub(crate) const UNDER_WAY_MAX: usize = 16;
#[cfg(all(test, loom))]
pub(crate) const UNDER_WAY_MAX: usize = 2;

const LAP_BITS: u32 = 8;

/// A slot of the ring, on a cache line of its own.
#[repr(align(64))]
#[derive(Debug)]
struct RingSlot(AtomicU64);

/// The visibility ring: see the module.
pub(crate) struct VisibilityRing {
    snapshots: Arc<Snapshots>,
    /// Called before waiting threads get the error of an insert that panicked.
    on_panic: Box<dyn Fn() + Send + Sync>,
    slots: [RingSlot; UNDER_WAY_MAX],
    /// The number of the next write. Changed under the writer's lock.
    next: AtomicU64,
    /// The number below which all inserts are done.
    ended: AtomicU64,
    /// True if an insert has panicked.
    broken: AtomicBool,
    /// Number of sleeping threads.
    sleepers: AtomicUsize,
    /// Held by a sleeper between its last check and its sleep, so that a later wake-up reaches it.
    sleep: Mutex<(), rank::Inserting>,
    woken: Condvar,
}

/// Returns the mark of a finished insert.
fn mark(number: u64, last: SeqNo) -> u64 {
    last << LAP_BITS | lap(number)
}

fn lap(number: u64) -> u64 {
    number / UNDER_WAY_MAX as u64 % (1 << LAP_BITS)
}

impl VisibilityRing {
    /// `on_panic` is called when a thread panics between [`VisibilityRing::begin`] and
    /// [`InFlightInsert::done`].
    pub fn new(snapshots: &Arc<Snapshots>, on_panic: impl Fn() + Send + Sync + 'static) -> VisibilityRing {
        VisibilityRing {
            snapshots: snapshots.clone(),
            on_panic: Box::new(on_panic),
            slots: std::array::from_fn(|_| RingSlot(AtomicU64::new(0))),
            next: AtomicU64::new(0),
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

    /// Waits, under the writer's lock, for the inserts in flight if the ring is full. False: one of
    /// them never ends.
    pub fn make_place(&self, looks: usize) -> bool {
        let next = self.next.load(Ordering::Relaxed);
        next - self.ended.load(Ordering::Acquire) < UNDER_WAY_MAX as u64 || self.wait_for_inserts(looks)
    }

    /// Registers, under the writer's lock, the insert of the write with sequences up to `last`.
    /// The ring has a slot.
    pub fn begin(&self, last: SeqNo) -> InFlightInsert<'_> {
        let number = self.next.load(Ordering::Relaxed);
        debug_assert!(number - self.ended.load(Ordering::Acquire) < UNDER_WAY_MAX as u64);
        self.next.store(number + 1, Ordering::Relaxed);
        self.snapshots.register(last);
        InFlightInsert { order: self, number, last }
    }

    /// Waits, under the writer's lock, for the inserts in flight. False: one of them never ends.
    pub fn wait_for_inserts(&self, looks: usize) -> bool {
        self.wait_for(self.snapshots.registered(), looks)
    }

    /// Checks `looks` times whether a sequence is visible.
    pub fn sees(&self, seq: SeqNo, looks: usize) -> bool {
        for _ in 0..looks {
            if self.snapshots.visible() >= seq {
                return true;
            }
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
        }
        self.snapshots.visible() >= seq
    }

    /// Waits until the sequence of a registered write is visible; checks `looks` times before it
    /// sleeps. False: it never will be.
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

    #[cold]
    fn wake(&self) {
        // A sleeper made its last check under the lock.
        drop(lock(&self.sleep));
        self.woken.notify_all();
    }
}

/// An insert in flight. A drop before [`InFlightInsert::done`] means a panic.
pub(crate) struct InFlightInsert<'a> {
    order: &'a VisibilityRing,
    number: u64,
    last: SeqNo,
}

impl InFlightInsert<'_> {
    /// Ends the insert, and publishes the finished inserts from the first unfinished one on, up to
    /// the next gap.
    pub fn done(self) {
        let InFlightInsert { order, number, last } = *ManuallyDrop::new(self);
        order.slot(number).store(mark(number, last), Ordering::Release);
        let (mut number, mut upto) = (order.ended.fetch_add(0, Ordering::AcqRel), 0);
        loop {
            let slot = order.slot(number).load(Ordering::Acquire);
            if slot == 0 || slot != mark(number, slot >> LAP_BITS) {
                break;
            }
            match order.ended.compare_exchange(number, number + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => (upto, number) = (slot >> LAP_BITS, number + 1),
                Err(now) => number = now,
            }
        }
        if upto > 0 {
            order.snapshots.publish(upto);
            if order.sleepers.load(Ordering::Acquire) > 0 {
                order.wake();
            }
        }
    }
}

impl Drop for InFlightInsert<'_> {
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
