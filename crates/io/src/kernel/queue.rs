//! Reads of one thread in flight in a ring, of any files ([`super::flights`]).
//!
//! The queue owns file and buffer. Direct access brings whole pages to an aligned buffer of the pool, and what was asked for is copied out of it when it has come: no
//! buffer of its own is filled with zeros before. What the ring left undone is read by plain reads.

use super::calls;
use super::flights::{Flight, Flights, Kind, RingEvent};
use super::read::{Bounce, KernelReadFile};
use super::uring::READ_LEN_MAX;
use crate::read_queue::{Asked, Completed};
use crate::{ReadBegun, ReadFile};
use io_uring::{opcode, types};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// See the module.
pub(crate) struct RingQueue(Flights<Flying>);

/// A read in flight.
struct Flying {
    asked: Asked,
    into: Target,
    timed: Option<Timed>,
}

/// Where a read goes.
enum Target {
    /// Whole pages, what was asked for among them.
    Pages(Bounce),
    /// What was asked for.
    Own(Arc<[u8]>),
}

/// A read that is timed. It ends when this is dropped, also where nothing came of it.
struct Timed {
    file: Arc<dyn ReadFile>,
    begun: ReadBegun,
}

impl Timed {
    fn begin(file: &Arc<dyn ReadFile>, len: usize) -> Option<Timed> {
        let begun = file.paced()?.pace.read_begins(len)?;
        Some(Timed { file: file.clone(), begun })
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        if let Some(paced) = self.file.paced() {
            paced.pace.read_ends(self.begun);
        }
    }
}

impl Flying {
    fn file(&self) -> &KernelReadFile {
        as_kernel_file(&*self.asked.file).unwrap_or_else(|| unreachable!("a ring takes files of the kernel"))
    }

    /// Where it reads, and how much.
    fn range(&self) -> (u64, usize) {
        let (offset, len) = match &self.into {
            Target::Pages(b) => (b.start, b.buf.len()),
            Target::Own(buf) => (self.asked.offset, buf.len()),
        };
        (offset, len.min(READ_LEN_MAX))
    }
}

impl Flight for Flying {
    type Done = Completed;

    fn fd(&self) -> BorrowedFd<'_> {
        self.file().handle().fd.as_fd()
    }

    fn land(self, result: Option<i32>) -> Completed {
        let (offset, len) = self.range();
        // What it refused a plain read is refused as well, in words.
        let read = |result| calls::ring_read(self.fd(), offset, len, result).unwrap_or(0);
        let done = result.map_or(0, read);
        let Asked { file, offset, len, token, .. } = &self.asked;
        let file = as_kernel_file(&**file).unwrap_or_else(|| unreachable!("it was one when it was taken"));
        let read = match self.into {
            Target::Pages(bounce) => file.finish_pages((*offset, *len), bounce, done),
            Target::Own(mut buf) => {
                let own =
                    Arc::get_mut(&mut buf).unwrap_or_else(|| unreachable!("the buffer is the read's own"));
                file.finish(own, *offset, None, done).map(|()| buf)
            }
        };
        drop(self.timed);
        Completed { token: *token, read }
    }
}

fn as_kernel_file(file: &dyn crate::ReadFile) -> Option<&KernelReadFile> {
    (file as &dyn Any).downcast_ref()
}

impl RingQueue {
    pub(super) fn new() -> std::io::Result<RingQueue> {
        Ok(RingQueue(Flights::new(Kind::Woken)?))
    }

    /// What wakes who waits here.
    pub(crate) fn event(&self) -> Option<RingEvent> {
        self.0.event().cloned()
    }

    /// Takes a read, unless as many are in flight as may be, or the ring is broken.
    pub(crate) fn push(&mut self, asked: Asked) -> Result<(), Asked> {
        if !self.0.has_room() {
            return Err(asked);
        }
        let Some(file) = as_kernel_file(&*asked.file) else { return Err(asked) };
        let fd = types::Fd(file.handle().fd.as_raw_fd());
        if file.handle().check_range(asked.offset, asked.len).is_err() {
            // A plain read says why.
            return Err(asked);
        }
        let mut into = match file.pages(asked.offset, asked.len) {
            Some(pages) => Target::Pages(pages),
            None => Target::Own(asked.buf()),
        };
        let (to, offset) = match &mut into {
            Target::Pages(b) => (b.buf.as_mut_slice(), b.start),
            Target::Own(buf) => (Arc::get_mut(buf).unwrap_or_default(), asked.offset),
        };
        let (at, len) = (to.as_mut_ptr(), to.len());
        let entry = opcode::Read::new(fd, at, len.min(READ_LEN_MAX) as u32).offset(offset).build();
        let timed = asked.paced.as_ref().and_then(|file| Timed::begin(file, asked.len));
        // SAFETY: the file is kept open by what is given away here, as is the buffer, which nobody else has and which does not move with it.
        unsafe { self.0.push(Flying { asked, into, timed }, entry) }.map_err(|flying| flying.asked)
    }

    /// True if it takes nothing more, and has nothing in flight.
    pub(crate) fn is_broken(&self) -> bool {
        self.0.is_broken()
    }

    /// Reads in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.0.in_flight()
    }

    /// Adds what has completed to `done`. With `wait`: if that is nothing, waits until something has, or until the event is signalled.
    pub(crate) fn complete(&mut self, wait: bool, done: &mut Vec<Completed>) {
        self.0.complete(wait, done);
    }
}

impl fmt::Debug for RingQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RingQueue({} in flight)", self.in_flight())
    }
}
