//! Transfers of one thread in flight in a ring, which goes on with them while the thread does something else.
//!
//! What is in flight is owned here: file, buffer, whatever else it needs. Nobody sees it until the kernel is done with it, and dropping this
//! waits for that. Entries are handed to the kernel when completions are asked for, all at once.
//!
//! Who waits in the ring may be woken by others through an event ([`RingEvent`]): a read of it is in flight whenever he waits.
//!
//! A ring that polls ([`calls::ring_setup_polled`]) finds completions only while the kernel is asked for them, so a look is a call; nor does it take
//! the read of an event.
//!
//! A ring that the kernel refuses to enter is broken: it takes nothing more, what the kernel has is waited for, and what it did not take is done
//! by plain calls.

use super::calls;
use super::uring::{REFUSALS_MAX, is_transient, wait_for_one};
use base::process::Owned;
use io_uring::{IoUring, opcode, squeue, types};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use std::sync::Arc;

/// Transfers in flight in one ring at most.
pub(crate) const DEPTH: usize = 256;
/// The number of the entry that reads the event.
const EVENT: u64 = u64::MAX;

/// Wakes who waits in a ring.
#[derive(Clone, Debug)]
pub(crate) struct RingEvent(Arc<OwnedFd>);

impl RingEvent {
    fn new() -> rustix::io::Result<RingEvent> {
        Ok(RingEvent(Arc::new(calls::event()?)))
    }

    /// Wakes him, or him who waits next.
    pub(crate) fn signal(&self) {
        // Interrupted it is made again; it has no other way to fail but that it was signalled too often to count.
        while calls::signal(&*self.0) == Err(rustix::io::Errno::INTR) {}
    }
}

/// Something in flight.
pub(super) trait Flight {
    /// What it is when it is over.
    type Done;

    /// Of which file it is.
    fn fd(&self) -> BorrowedFd<'_>;

    /// It is over: what the ring says of it, or nothing if that never got to it.
    fn land(self, result: Option<i32>) -> Self::Done;
}

/// How a ring learns what is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// By interrupts; others may wake who waits.
    Woken,
    /// By interrupts.
    Alone,
    /// By looking at the device.
    Polled,
}

/// See the module.
pub(super) struct Flights<F: Flight> {
    ring: Owned<IoUring>,
    broken: bool,
    polled: bool,
    /// What is in flight, by the number of its entry.
    flying: Vec<Option<F>>,
    free: Vec<usize>,
    /// Entries that were pushed, oldest first, as far as the kernel may not have taken them.
    pushed: VecDeque<u64>,
    event: Option<RingEvent>,
    /// Where the event is read to. It is in use while `armed`.
    count: Box<[u8; 8]>,
    armed: bool,
}

impl<F: Flight> Flights<F> {
    pub(super) fn new(kind: Kind) -> std::io::Result<Flights<F>> {
        let event = if kind == Kind::Woken { Some(RingEvent::new()?) } else { None };
        let ring = match kind {
            Kind::Polled => calls::ring_setup_polled(DEPTH as u32),
            _ => calls::ring_setup(DEPTH as u32 + 1),
        };
        Ok(Flights {
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

    /// What wakes who waits here.
    pub(super) fn event(&self) -> Option<&RingEvent> {
        self.event.as_ref()
    }

    /// False in a child process, where the memory of the ring does not exist.
    fn is_here(&self) -> bool {
        Owned::process(&self.ring).is_here()
    }

    /// True if it takes one more.
    pub(super) fn has_room(&self) -> bool {
        self.is_here() && !self.broken && self.in_flight() < DEPTH
    }

    /// Takes a transfer, whose entry is this, unless as many are in flight as may be, or the ring is broken.
    ///
    /// # Safety
    /// What the entry names, file and memory, belongs to `flight`, does not move with it, and nobody else touches the memory as long as it lives.
    pub(super) unsafe fn push(&mut self, flight: F, entry: squeue::Entry) -> Result<(), F> {
        if !self.has_room() {
            return Err(flight);
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.flying.push(None);
            self.flying.len() - 1
        });
        // SAFETY: the caller's promise, and `flight` stays in `flying`, which only a completion empties; dropping this waits for all of them.
        // What the kernel did not take it never will, since a ring is not entered again once it is broken.
        if unsafe { self.ring.submission().push(&entry.user_data(number as u64)) }.is_err() {
            self.free.push(number);
            return Err(flight);
        }
        self.flying[number] = Some(flight);
        self.pushed.push_back(number as u64);
        Ok(())
    }

    /// True if it takes nothing more, and has nothing in flight.
    pub(super) fn is_broken(&self) -> bool {
        self.broken && self.in_flight() == 0
    }

    /// Transfers in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.flying.len() - self.free.len()
    }

    /// Adds what has completed to `done`. With `wait`: if that is nothing, waits until something has, or until the event is signalled.
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
        // Of which file a refusal is does not matter; that it is of one does, to who watches.
        let of = self.pushed.iter().find_map(|&n| self.flying.get(n as usize)?.as_ref());
        let of = of.or_else(|| self.flying.iter().flatten().next().filter(|_| self.event.is_none()));
        let event = self.event.as_ref().map(|event| event.0.as_fd());
        match of.map(Flight::fd).or(event) {
            Some(fd) => calls::ring_submit(&self.ring, fd, waits_for),
            None => Ok(0),
        }
    }

    /// Has a read of the event in flight.
    fn arm(&mut self) {
        let Some(event) = self.event.as_ref().filter(|_| !self.armed) else { return };
        let fd = types::Fd(event.0.as_raw_fd());
        let entry = opcode::Read::new(fd, self.count.as_mut_ptr(), 8).build().user_data(EVENT);
        // SAFETY: as in `push`: the box stays where it is, and nobody looks into it while `armed`.
        match unsafe { self.ring.submission().push(&entry) } {
            Ok(()) => {
                self.armed = true;
                self.pushed.push_back(EVENT);
            }
            Err(_) => self.broken = true,
        }
    }

    /// Forgets which entries the kernel has taken: all but the last, as many as are left in the ring.
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

    /// Of a ring that is broken: does what the kernel did not take, and waits for what it has.
    fn end(&mut self, done: &mut Vec<F::Done>) {
        let left = self.take_pushed();
        done.extend(left.into_iter().map(|one| one.land(None)));
        self.wait_for_all(done);
    }

    /// In a child: what is in flight is the parent's, and here each is refused by a plain call.
    fn give_up(&mut self, done: &mut Vec<F::Done>) {
        self.broken = true;
        self.armed = false;
        self.pushed.clear();
        self.free = (0..self.flying.len()).collect();
        done.extend(self.flying.iter_mut().filter_map(Option::take).map(|one| one.land(None)));
    }

    /// What the kernel did not take.
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

impl<F: Flight> Drop for Flights<F> {
    fn drop(&mut self) {
        if !self.is_here() {
            return;
        }
        self.take_pushed();
        self.wait_for_all(&mut Vec::new());
    }
}
