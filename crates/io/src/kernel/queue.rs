//! Asynchronous reads of one thread in a ring, of any files ([`super::flights`]).
//!
//! The queue owns file and buffer. With direct access, whole pages are read into an aligned buffer
//! of the pool, and the requested bytes are copied out of it on completion; so no separate buffer
//! is zeroed in advance. Plain reads finish incomplete reads of the ring.

use super::calls;
use super::flights::{Kind, RingEvent, RingTransfer, RingTransfers};
use super::read::{Bounce, KernelReadFile};
use super::uring::READ_LEN_MAX;
use crate::read_queue::{Completed, QueuedRead};
use crate::{ReadBegun, ReadFile};
use io_uring::{opcode, types};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Queue of reads in a ring; see the module.
pub(crate) struct RingQueue(RingTransfers<InFlightRead>);

/// A read in flight.
struct InFlightRead {
    asked: QueuedRead,
    into: ReadBuffer,
    timed: Option<Timed>,
}

/// Target buffer of a read.
enum ReadBuffer {
    /// Whole pages that contain the requested bytes.
    Pages(Bounce),
    /// The requested bytes.
    Own(Arc<[u8]>),
}

/// A timed read. It ends when this is dropped, even after a failure.
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

impl InFlightRead {
    fn file(&self) -> &KernelReadFile {
        as_kernel_file(&*self.asked.file).unwrap_or_else(|| unreachable!("a ring takes files of the kernel"))
    }

    /// Returns the offset and the length of the transfer.
    fn range(&self) -> (u64, usize) {
        let (offset, len) = match &self.into {
            ReadBuffer::Pages(b) => (b.start, b.buf.len()),
            ReadBuffer::Own(buf) => (self.asked.offset, buf.len()),
        };
        (offset, len.min(READ_LEN_MAX))
    }
}

impl RingTransfer for InFlightRead {
    type Done = Completed;

    fn fd(&self) -> BorrowedFd<'_> {
        self.file().handle().fd.as_fd()
    }

    fn land(self, result: Option<i32>) -> Completed {
        let (offset, len) = self.range();
        // A plain read repeats a refused one, and gives the error.
        let read = |result| calls::ring_read(self.fd(), offset, len, result).unwrap_or(0);
        let done = result.map_or(0, read);
        let QueuedRead { file, offset, len, token, .. } = &self.asked;
        let file = as_kernel_file(&**file).unwrap_or_else(|| unreachable!("it was one when it was taken"));
        let read = match self.into {
            ReadBuffer::Pages(bounce) => file.finish_pages((*offset, *len), bounce, done),
            ReadBuffer::Own(mut buf) => {
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
        Ok(RingQueue(RingTransfers::new(Kind::Woken)?))
    }

    /// Returns the event that wakes a waiter of the ring.
    pub(crate) fn event(&self) -> Option<RingEvent> {
        self.0.event().cloned()
    }

    /// Takes a read, unless the ring is full or broken.
    pub(crate) fn push(&mut self, asked: QueuedRead) -> Result<(), QueuedRead> {
        if !self.0.has_room() {
            return Err(asked);
        }
        let Some(file) = as_kernel_file(&*asked.file) else { return Err(asked) };
        let fd = types::Fd(file.handle().fd.as_raw_fd());
        if file.handle().check_range(asked.offset, asked.len).is_err() {
            // A plain read gives the error.
            return Err(asked);
        }
        let mut into = match file.pages(asked.offset, asked.len) {
            Some(pages) => ReadBuffer::Pages(pages),
            None => ReadBuffer::Own(asked.buf()),
        };
        let (to, offset) = match &mut into {
            ReadBuffer::Pages(b) => (b.buf.as_mut_slice(), b.start),
            ReadBuffer::Own(buf) => (Arc::get_mut(buf).unwrap_or_default(), asked.offset),
        };
        let (at, len) = (to.as_mut_ptr(), to.len());
        let entry = opcode::Read::new(fd, at, len.min(READ_LEN_MAX) as u32).offset(offset).build();
        let timed = asked.paced.as_ref().and_then(|file| Timed::begin(file, asked.len));
        // SAFETY: the moved value keeps the file open and owns the buffer, which does not move with
        // it. Nothing else has the buffer.
        unsafe { self.0.push(InFlightRead { asked, into, timed }, entry) }.map_err(|flying| flying.asked)
    }

    /// Returns true if the ring takes no more reads, and has none in flight.
    pub(crate) fn is_broken(&self) -> bool {
        self.0.is_broken()
    }

    /// Returns the number of reads in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.0.in_flight()
    }

    /// Adds the completed reads to `done`. With `wait`: if there are none, waits for one, or for a
    /// signal of the event.
    pub(crate) fn complete(&mut self, wait: bool, done: &mut Vec<Completed>) {
        self.0.complete(wait, done);
    }
}

impl fmt::Debug for RingQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RingQueue({} in flight)", self.in_flight())
    }
}
