//! Asynchronous transfers of one thread in a ring, which proceed while the thread does other work.
//!
//! Transfers in flight are owned here, with file and buffer. Nothing else accesses them until the
//! kernel is done with them, and dropping this waits for that. Entries are handed to the kernel
//! together, when completions are requested.
//!
//! A thread that waits in the ring can be woken through an event ([`RingEvent`]): a read of the
//! event is in flight during each wait.
//!
//! A polling ring ([`calls::ring_setup_polled`]) finds completions only during a call, so every
//! check is a call. It does not accept the read of an event.
//!
//! A ring that the kernel refuses to enter is broken: it takes no more transfers. The queue waits
//! for the transfers that the kernel has, and runs the others by plain calls.

use super::calls;
use super::uring::{REFUSALS_MAX, is_transient, wait_for_one};
use base::process::Owned;
use io_uring::{IoUring, opcode, squeue, types};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use std::sync::Arc;

/// Most transfers in flight in one ring.
pub(crate) const DEPTH: usize = 256;
/// Number of the entry that reads the event.
const EVENT: u64 = u64::MAX;

/// Wakes a thread that waits in a ring.
#[derive(Clone, Debug)]
pub(crate) struct RingEvent(Arc<OwnedFd>);

impl RingEvent {
    fn new() -> rustix::io::Result<RingEvent> {
        Ok(RingEvent(Arc::new(calls::event()?)))
    }

    /// Wakes the present waiter, or the next one.
    pub(crate) fn signal(&self) {
        // Repeated if interrupted. The only other error is a counter overflow, and then the event
        // is already signaled.
        while calls::signal(&*self.0) == Err(rustix::io::Errno::INTR) {}
    }
}

/// A transfer in flight.
pub(super) trait RingTransfer {
    /// The completed transfer.
    type Done;

    /// Returns the file of the transfer.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Completes the transfer: with the result of the ring, or none if it never got there.
    fn land(self, result: Option<i32>) -> Self::Done;
}

/// How a ring learns of completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// By interrupts; an event can wake the waiter.
    Woken,
    /// By interrupts.
    Alone,
    /// By polling the device.
    Polled,
}

/// Transfers in flight; see the module.
pub(super) struct RingTransfers<F: RingTransfer> {
    ring: Owned<IoUring>,
    broken: bool,
    polled: bool,
    /// Transfers in flight, by the number of their entry.
    flying: Vec<Option<F>>,
    free: Vec<usize>,
    /// Pushed entries, oldest first, that the kernel may not have taken yet.
    pushed: VecDeque<u64>,
    event: Option<RingEvent>,
    /// Buffer for the read of the event. In use while `armed`.
    count: Box<[u8; 8]>,
    armed: bool,
}

impl<F: RingTransfer> RingTransfers<F> {
    pub(super) fn new(kind: Kind) -> std::io::Result<RingTransfers<F>> {
        let event = if kind == Kind::Woken { Some(RingEvent::new()?) } else { None };
        let ring = match kind {
            Kind::Polled => calls::ring_setup_polled(DEPTH as u32),
            _ => calls::ring_setup(DEPTH as u32 + 1),
        };
        Ok(RingTransfers {
            ring: Owned::new(ring?),
            broken: false,
            polled: kind == Kind::Polled,
            flying: Vec::new(),
            free: Vec::new(),
            pushed: VecDeque::new(),
            event,
            count: Box::new([0; 8]),
            armed: false,
        })
    }

    /// Returns the event that wakes a waiter of this ring.
    pub(super) fn event(&self) -> Option<&RingEvent> {
        self.event.as_ref()
    }

    /// Returns false in a child process, which does not have the memory of the ring.
    fn is_here(&self) -> bool {
        Owned::process(&self.ring).is_here()
    }

    /// Returns true if one more transfer fits.
    pub(super) fn has_room(&self) -> bool {
        self.is_here() && !self.broken && self.in_flight() < DEPTH
    }

    /// Takes a transfer with its entry, unless the ring is full or broken.
    ///
    /// # Safety
    ///
    /// The file and the memory that the entry names belong to `flight`, and do not move with it.
    /// Nothing else accesses the memory while `flight` exists.
    pub(super) unsafe fn push(&mut self, flight: F, entry: squeue::Entry) -> Result<(), F> {
        if !self.has_room() {
            return Err(flight);
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.flying.push(None);
            self.flying.len() - 1
        });
        // SAFETY: the caller's promise, and `flight` stays in `flying`, which only a completion
        // empties; dropping this waits for all of them. The kernel never takes the entries left
        // behind in a broken ring, since it is not entered again.
        if unsafe { self.ring.submission().push(&entry.user_data(number as u64)) }.is_err() {
            self.free.push(number);
            return Err(flight);
        }
        self.flying[number] = Some(flight);
        self.pushed.push_back(number as u64);
        Ok(())
    }

    /// Returns true if the ring takes no more transfers, and has none in flight.
    pub(super) fn is_broken(&self) -> bool {
        self.broken && self.in_flight() == 0
    }

    /// Returns the number of transfers in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.flying.len() - self.free.len()
    }

    /// Adds the completed transfers to `done`. With `wait`: if there are none, waits for one, or
    /// for a signal of the event.
    pub(super) fn complete(&mut self, wait: bool, done: &mut Vec<F::Done>) {
        if !self.is_here() {
            return self.give_up(done);
        }
        let before = done.len();
        self.reap(done);
        let mut wait = wait && done.len() == before && !self.broken;
        if wait {
            self.arm();
        }
        let mut looks = self.polled && self.in_flight() > 0;
        let mut refusals = 0;
        while !self.broken && (wait || looks || !self.pushed.is_empty()) {
            match self.enter(usize::from(wait)) {
                Ok(_) => (refusals, looks) = (0, false),
                Err(e) if is_transient(&e) && refusals < REFUSALS_MAX => refusals += 1,
                Err(_) => self.broken = true,
            }
            self.note_taken();
            let was_armed = self.armed;
            self.reap(done);
            if done.len() > before || was_armed && !self.armed {
                wait = false;
            }
        }
        if self.broken {
            self.end(done);
        }
    }

    fn enter(&self, waits_for: usize) -> std::io::Result<usize> {
        // A watch of the calls needs some file of a transfer; it does not matter which.
        let of = self.pushed.iter().find_map(|&n| self.flying.get(n as usize)?.as_ref());
        let of = of.or_else(|| self.flying.iter().flatten().next().filter(|_| self.event.is_none()));
        let event = self.event.as_ref().map(|event| event.0.as_fd());
        match of.map(RingTransfer::fd).or(event) {
            Some(fd) => calls::ring_submit(&self.ring, fd, waits_for),
            None => Ok(0),
        }
    }

    /// Puts a read of the event in flight.
    fn arm(&mut self) {
        let Some(event) = self.event.as_ref().filter(|_| !self.armed) else { return };
        let fd = types::Fd(event.0.as_raw_fd());
        let entry = opcode::Read::new(fd, self.count.as_mut_ptr(), 8).build().user_data(EVENT);
        // SAFETY: as in `push`: the box does not move, and nothing else accesses it while `armed`.
        match unsafe { self.ring.submission().push(&entry) } {
            Ok(()) => {
                self.armed = true;
                self.pushed.push_back(EVENT);
            }
            Err(_) => self.broken = true,
        }
    }

    /// Drops the entries that the kernel has taken: all but the last, as many as are left in the
    /// ring.
    fn note_taken(&mut self) {
        let left = self.ring.submission().len();
        while self.pushed.len() > left {
            self.pushed.pop_front();
        }
    }

    fn reap(&mut self, done: &mut Vec<F::Done>) {
        let (flying, free) = (&mut self.flying, &mut self.free);
        for entry in self.ring.completion() {
            if entry.user_data() == EVENT {
                self.armed = false;
                continue;
            }
            let number = entry.user_data() as usize;
            let Some(one) = flying.get_mut(number).and_then(Option::take) else { continue };
            free.push(number);
            done.push(one.land(Some(entry.result())));
        }
    }

    /// For a broken ring: runs the transfers that the kernel did not take, and waits for the
    /// others.
    fn end(&mut self, done: &mut Vec<F::Done>) {
        let left = self.take_pushed();
        done.extend(left.into_iter().map(|one| one.land(None)));
        self.wait_for_all(done);
    }

    /// In a child: the transfers in flight belong to the parent, and each is refused here by a
    /// plain call.
    fn give_up(&mut self, done: &mut Vec<F::Done>) {
        self.broken = true;
        self.armed = false;
        self.pushed.clear();
        self.free = (0..self.flying.len()).collect();
        done.extend(self.flying.iter_mut().filter_map(Option::take).map(|one| one.land(None)));
    }

    /// Removes the transfers that the kernel did not take.
    fn take_pushed(&mut self) -> Vec<F> {
        let mut left = Vec::new();
        for number in std::mem::take(&mut self.pushed) {
            if number == EVENT {
                self.armed = false;
            } else if let Some(one) = self.flying.get_mut(number as usize).and_then(Option::take) {
                self.free.push(number as usize);
                left.push(one);
            }
        }
        left
    }

    fn wait_for_all(&mut self, done: &mut Vec<F::Done>) {
        if let Some(event) = &self.event {
            event.signal();
        }
        self.reap(done);
        while self.in_flight() > 0 || self.armed {
            wait_for_one(&self.ring);
            self.reap(done);
        }
    }
}

impl<F: RingTransfer> Drop for RingTransfers<F> {
    fn drop(&mut self) {
        if !self.is_here() {
            return;
        }
        self.take_pushed();
        self.wait_for_all(&mut Vec::new());
    }
}
