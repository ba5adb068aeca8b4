//! Reads of one thread in flight in a ring, which goes on with them while the thread does something else.
//!
//! The queue owns what is in flight: file, buffer, and the aligned buffer where direct access needs one. Nobody sees them until the
//! kernel is done with them, and dropping the queue waits for that. Entries are handed to the kernel when completions are asked for, all
//! at once.
//!
//! Who waits in the ring is woken by others through an event ([`RingEvent`]): a read of it is in flight whenever the queue waits.
//!
//! A ring that the kernel refuses to enter is broken: it takes nothing more, what the kernel has is waited for, and what it did not take is read
//! by plain reads.

use super::calls;
use super::read::{Bounce, KernelReadFile};
use super::uring::{READ_LEN_MAX, REFUSALS_MAX, is_transient, wait_for_one};
use crate::ReadBegun;
use crate::read_queue::{Asked, Completed};
use io_uring::{IoUring, opcode, types};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// Reads in flight in one ring at most.
pub(crate) const DEPTH: usize = 256;
/// The number of the entry that reads the event.
const EVENT: u64 = u64::MAX;

/// Wakes who waits in a ring.
#[derive(Clone, Debug)]
pub(crate) struct RingEvent(Arc<OwnedFd>);

impl RingEvent {
    /// Wakes him, or him who waits next.
    pub(crate) fn signal(&self) {
        // Interrupted it is made again; it has no other way to fail but that it was signalled too often to count.
        while calls::signal(&*self.0) == Err(rustix::io::Errno::INTR) {}
    }
}

/// See the module.
pub(crate) struct RingQueue {
    ring: IoUring,
    broken: bool,
    /// What is in flight, by the number of its entry.
    flying: Vec<Option<Flying>>,
    free: Vec<usize>,
    /// Entries that were pushed, oldest first, as far as the kernel may not have taken them.
    pushed: VecDeque<u64>,
    event: RingEvent,
    /// Where the event is read to. It is in use while `armed`.
    count: Box<[u8; 8]>,
    armed: bool,
}

/// A read in flight.
struct Flying {
    asked: Asked,
    bounce: Option<Bounce>,
    /// As what times reads saw it begin.
    begun: Option<ReadBegun>,
}

impl Flying {
    fn file(&self) -> Option<&KernelReadFile> {
        as_kernel(&self.asked)
    }

    /// Says what became of it: the ring read the first `done` bytes.
    fn finish(mut self, done: usize) -> Completed {
        let bounce = self.bounce.take();
        let Asked { file, offset, mut buf, token, paced } = self.asked;
        let timed = paced.as_ref().and_then(|file| Some((file.paced()?.pace, self.begun?)));
        let filled = match (as_kernel_file(&*file), Arc::get_mut(&mut buf)) {
            (Some(file), Some(buf)) => file.finish(buf, offset, bounce, done),
            _ => unreachable!("a ring takes files of the kernel, with buffers of their own"),
        };
        if let Some((pace, begun)) = timed {
            pace.read_ends(begun);
        }
        Completed { token, read: filled.map(|()| buf) }
    }
}

fn as_kernel_file(file: &dyn crate::ReadFile) -> Option<&KernelReadFile> {
    (file as &dyn Any).downcast_ref()
}

fn as_kernel(asked: &Asked) -> Option<&KernelReadFile> {
    as_kernel_file(&*asked.file)
}

impl RingQueue {
    pub(super) fn new() -> std::io::Result<RingQueue> {
        let event = calls::event()?;
        Ok(RingQueue {
            ring: calls::ring_setup(DEPTH as u32 + 1)?,
            broken: false,
            flying: Vec::new(),
            free: Vec::new(),
            pushed: VecDeque::new(),
            event: RingEvent(Arc::new(event)),
            count: Box::new([0; 8]),
            armed: false,
        })
    }

    /// What wakes who waits here.
    pub(crate) fn event(&self) -> RingEvent {
        self.event.clone()
    }

    /// Takes a read, unless as many are in flight as may be, or the ring is broken.
    pub(crate) fn push(&mut self, mut asked: Asked) -> Result<(), Asked> {
        if self.broken || self.flying.len() - self.free.len() >= DEPTH {
            return Err(asked);
        }
        let Some(file) = as_kernel_file(&*asked.file) else { return Err(asked) };
        let fd = types::Fd(file.handle().fd.as_raw_fd());
        if file.handle().check_range(asked.offset, asked.buf.len()).is_err() {
            // A plain read says why.
            return Err(asked);
        }
        let mut bounce = file.bounce(&asked.buf, asked.offset);
        let Some(buf) = Arc::get_mut(&mut asked.buf) else { return Err(asked) };
        let (at, len, offset) = match &mut bounce {
            Some(b) => (b.buf.as_mut_slice().as_mut_ptr(), b.buf.len(), b.start),
            None => (buf.as_mut_ptr(), buf.len(), asked.offset),
        };
        let number = self.free.pop().unwrap_or_else(|| {
            self.flying.push(None);
            self.flying.len() - 1
        });
        let entry = opcode::Read::new(fd, at, len.min(READ_LEN_MAX) as u32).offset(offset).build();
        let entry = entry.user_data(number as u64);
        // SAFETY: the file stays open and the buffer, which does not move with what owns it, is not touched until the read has completed:
        // both are in `flying`, which only a completion empties, and dropping the queue waits for all of them. What the kernel did not
        // take it never will, since a ring is not entered again once it is broken.
        let taken = unsafe { self.ring.submission().push(&entry) }.is_ok();
        let begun = asked.paced.as_ref().and_then(|file| file.paced()?.pace.read_begins());
        self.flying[number] = Some(Flying { asked, bounce, begun });
        if !taken {
            self.free.push(number);
            return match self.flying[number].take() {
                Some(flying) => Err(flying.asked),
                None => unreachable!("it was put there"),
            };
        }
        self.pushed.push_back(number as u64);
        Ok(())
    }

    /// True if it takes nothing more, and has nothing in flight.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken && self.in_flight() == 0
    }

    /// Reads in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.flying.len() - self.free.len()
    }

    /// Adds what has completed to `done`. With `wait`: if that is nothing, waits until something has, or until the event is signalled.
    pub(crate) fn complete(&mut self, wait: bool, done: &mut Vec<Completed>) {
        let before = done.len();
        self.reap(done);
        let mut wait = wait && done.len() == before && !self.broken;
        if wait {
            self.arm();
        }
        let mut refusals = 0;
        while !self.broken && (wait || !self.pushed.is_empty()) {
            let waits_for = usize::from(wait);
            // Of which file a refusal is does not matter; that it is of one does, to who watches.
            let of = self
                .pushed
                .iter()
                .chain(&[EVENT])
                .find_map(|&n| self.flying.get(n as usize)?.as_ref()?.file());
            let fd = of.map_or(self.event.0.as_fd(), |file| file.handle().fd.as_fd());
            match calls::ring_submit(&self.ring, fd, waits_for) {
                Ok(_) => refusals = 0,
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

    /// Has a read of the event in flight.
    fn arm(&mut self) {
        if self.armed {
            return;
        }
        let fd = types::Fd(self.event.0.as_raw_fd());
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

    fn reap(&mut self, done: &mut Vec<Completed>) {
        let (flying, free) = (&mut self.flying, &mut self.free);
        for entry in self.ring.completion() {
            if entry.user_data() == EVENT {
                self.armed = false;
                continue;
            }
            let number = entry.user_data() as usize;
            let Some(one) = flying.get_mut(number).and_then(Option::take) else { continue };
            free.push(number);
            let read = one.file().map_or(0, |file| {
                let (offset, len) = match &one.bounce {
                    Some(b) => (b.start, b.buf.len()),
                    None => (one.asked.offset, one.asked.buf.len()),
                };
                let len = len.min(READ_LEN_MAX);
                // What it refused a plain read is refused as well, in words.
                calls::ring_read(file.handle().fd.as_fd(), offset, len, entry.result()).unwrap_or(0)
            });
            done.push(one.finish(read));
        }
    }

    /// Of a ring that is broken: reads what the kernel did not take, and waits for what it has.
    fn end(&mut self, done: &mut Vec<Completed>) {
        let left = self.take_pushed();
        done.extend(left.into_iter().map(|one| one.finish(0)));
        self.wait_for_all(done);
    }

    /// What the kernel did not take.
    fn take_pushed(&mut self) -> Vec<Flying> {
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

    fn wait_for_all(&mut self, done: &mut Vec<Completed>) {
        self.event.signal();
        self.reap(done);
        while self.in_flight() > 0 || self.armed {
            wait_for_one(&self.ring);
            self.reap(done);
        }
    }
}

impl Drop for RingQueue {
    fn drop(&mut self) {
        self.take_pushed();
        self.wait_for_all(&mut Vec::new());
    }
}

impl fmt::Debug for RingQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RingQueue({} in flight)", self.in_flight())
    }
}
