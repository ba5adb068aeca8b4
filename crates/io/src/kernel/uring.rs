//! Concurrent reads, and asynchronous writes of a file, through io_uring.
//!
//! A ring belongs to one caller at a time: it is taken out of a pool, used, and returned. (One ring
//! for all threads would need a lock around every submission; one per thread would need
//! thread-locals that outlive their environment.) The pool grows with the number of concurrent
//! batch reads, and keeps at most [`RINGS_KEPT_MAX`].
//!
//! **Soundness rule**: while a read is in flight, the kernel writes into memory of the caller. So
//! [`Ring::read_many`] does not return, not even by a panic, before every read it submitted has
//! completed. `RingTransfer` is the guard: dropping it waits. If the kernel refuses the wait, the
//! guard aborts the process, because otherwise the kernel could write into memory that has been
//! reused. A ring that failed is closed, never reused: entries that it holds but did not submit
//! would point into the memory of an earlier caller.
//!
//! A [`Writer`] owns the buffers of its writes in flight, returns each only when the write has
//! completed, and waits for all of them when it is dropped.
//!
//! Reads that come back short, interrupted or refused are reported as they are; the caller finishes
//! them with plain reads, which give the exact error.

use super::calls;
use crate::AlignedBuf;
use base::process::{Owned, Process};
use base::sync::leaf::Mutex;
use base::sync::rank;
use io_uring::{IoUring, opcode, types};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;

/// Reads in flight in one ring.
const DEPTH: usize = 64;
const RINGS_KEPT_MAX: usize = 8;
/// Writes of one file in flight.
pub(super) const WRITES_MAX: usize = 4;
/// Largest transfer of the kernel.
pub(super) const READ_LEN_MAX: usize = 1 << 30;
/// How often the kernel may report a lack of memory before the rest is left to plain reads.
pub(super) const REFUSALS_MAX: u32 = 1000;

/// Result of one read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferOutcome {
    /// The ring did not run it.
    NotRun,
    /// Bytes read or written.
    Done(usize),
    /// Error of the kernel.
    Failed(Errno),
}

/// A read: the file, the offset, and the buffer to fill.
pub(super) struct Read<'a> {
    pub(super) fd: BorrowedFd<'a>,
    pub(super) offset: u64,
    pub(super) buf: &'a mut [u8],
}

/// Pool of free rings.
pub(super) struct RingPool {
    /// Free rings. A ring in use belongs to its thread alone.
    free: Mutex<Vec<Ring>, rank::KernelRings>,
    /// The owner process: the memory of a ring does not exist in a child.
    process: Process,
}

impl RingPool {
    /// Sets up a ring and reads through it. The error names the refused step.
    pub(super) fn probe() -> io::Result<RingPool> {
        let mut ring = Ring::new()?;
        let zero = calls::open(
            std::path::Path::new("/dev/zero"),
            rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )?;
        let mut buf = [0xFFu8; 64];
        let outcome = ring.read_many(&mut [Read { fd: zero.as_fd(), offset: 0, buf: &mut buf }]);
        match outcome[..] {
            [TransferOutcome::Done(64)] if buf == [0; 64] && !ring.broken => {}
            [TransferOutcome::Failed(e)] => return Err(e.into()),
            _ => return Err(io::Error::other("a read through a ring did not deliver")),
        }
        Ok(RingPool { free: Mutex::new(vec![ring]), process: Process::here() })
    }

    /// Runs all reads; see [`Ring::read_many`]. All are `NotRun` if no ring is available.
    pub(super) fn read_many(&self, reads: &mut [Read<'_>]) -> Vec<TransferOutcome> {
        let Some(mut ring) = self.take() else {
            return vec![TransferOutcome::NotRun; reads.len()];
        };
        let outcomes = ring.read_many(reads);
        self.put(ring);
        outcomes
    }

    /// Returns a ring for writes, if one is available.
    pub(super) fn writer(&self) -> Option<Writer> {
        self.take().map(|ring| Writer { ring: Some(ring), flights: VecDeque::new(), next: 0 })
    }

    /// Takes back the ring of a writer, which must have nothing in flight.
    pub(super) fn put_writer(&self, mut writer: Writer) {
        assert!(writer.flights.is_empty(), "a writer was given back with a write in flight");
        if let Some(ring) = writer.ring.take() {
            self.put(ring);
        }
    }

    fn take(&self) -> Option<Ring> {
        if !self.process.is_here() {
            return None;
        }
        let found = base::sync::leaf::lock(&self.free).pop();
        found.or_else(|| Ring::new().ok())
    }

    fn put(&self, ring: Ring) {
        let mut free = base::sync::leaf::lock(&self.free);
        if !ring.broken && free.len() < RINGS_KEPT_MAX {
            free.push(ring);
        }
    }
}

/// A ring with nothing in flight.
struct Ring {
    ring: Owned<IoUring>,
    broken: bool,
}

impl Ring {
    fn new() -> io::Result<Ring> {
        Ok(Ring { ring: Owned::new(calls::ring_setup(DEPTH as u32)?), broken: false })
    }

    /// Reads into every buffer, up to [`DEPTH`] at once, and returns when none is in flight any
    /// more.
    fn read_many(&mut self, reads: &mut [Read<'_>]) -> Vec<TransferOutcome> {
        let mut outcomes = vec![TransferOutcome::NotRun; reads.len()];
        let mut flight = Flight { ring: self, pushed: 0, completed: 0 };
        let mut refusals = 0;
        while flight.completed < reads.len() {
            while flight.pushed < reads.len() && flight.in_flight() < DEPTH {
                let Read { fd, offset, buf } = &mut reads[flight.pushed];
                let len = buf.len().min(READ_LEN_MAX) as u32;
                let entry = opcode::Read::new(types::Fd(fd.as_raw_fd()), buf.as_mut_ptr(), len)
                    .offset(*offset)
                    .build()
                    .user_data(flight.pushed as u64);
                // SAFETY: the file and the buffer are borrowed by this call, the buffer exclusively
                // and for at least `len` bytes. `flight` keeps the call from ending, by return or
                // panic, before the read has completed or its entry can no longer be submitted.
                // Nothing else accesses the buffer meanwhile.
                if unsafe { flight.ring.ring.submission().push(&entry) }.is_err() {
                    break;
                }
                flight.pushed += 1;
            }
            match calls::ring_submit(&flight.ring.ring, reads[0].fd, 1) {
                Ok(_) => refusals = 0,
                Err(e) if is_transient(&e) && refusals < REFUSALS_MAX => refusals += 1,
                Err(_) => {
                    flight.ring.broken = true;
                    break;
                }
            }
            flight.reap(&mut outcomes, reads);
        }
        flight.finish(&mut outcomes, reads);
        outcomes
    }
}

pub(super) fn is_transient(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

/// Reads handed to a ring. When this ends, all of them have ended.
struct Flight<'r> {
    ring: &'r mut Ring,
    pushed: usize,
    completed: usize,
}

impl Flight<'_> {
    fn in_flight(&self) -> usize {
        self.pushed - self.completed
    }

    /// Collects the completed reads.
    fn reap(&mut self, outcomes: &mut [TransferOutcome], reads: &[Read<'_>]) {
        for entry in self.ring.ring.completion() {
            self.completed += 1;
            let nth = entry.user_data() as usize;
            if let (Some(slot), Some(read)) = (outcomes.get_mut(nth), reads.get(nth)) {
                let len = read.buf.len().min(READ_LEN_MAX);
                *slot = outcome_of(calls::ring_read(read.fd, read.offset, len, entry.result()));
            }
        }
    }

    /// Waits until the kernel is done with every entry it took. After a failure the other entries
    /// stay in the ring, which is then broken and closed.
    fn finish(&mut self, outcomes: &mut [TransferOutcome], reads: &[Read<'_>]) {
        loop {
            self.reap(outcomes, reads);
            let unsubmitted = self.ring.ring.submission().len();
            assert!(unsubmitted == 0 || self.ring.broken, "entries left behind in a working ring");
            if self.in_flight() <= unsubmitted {
                return;
            }
            wait_for_one(&self.ring.ring);
        }
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if self.in_flight() > 0 {
            self.ring.broken = true;
            self.finish(&mut [], &[]);
        }
    }
}

/// A ring with a few writes in flight, whose buffers it owns.
pub(super) struct Writer {
    /// Present until it is returned to the pool.
    ring: Option<Ring>,
    /// The writes in flight, in the order of their start.
    flights: VecDeque<InFlightWrite>,
    /// Number of the next write.
    next: u64,
}

/// A write in flight, or one that has ended before an older one.
struct InFlightWrite {
    number: u64,
    buf: AlignedBuf,
    /// File that the owner of the writer keeps open.
    fd: RawFd,
    len: usize,
    offset: u64,
    ended: Option<TransferOutcome>,
}

/// A write that has ended.
pub(super) struct Ended {
    /// Buffer of the write.
    pub(super) buf: AlignedBuf,
    /// Offset of the write.
    pub(super) offset: u64,
    pub(super) outcome: TransferOutcome,
}

impl Writer {
    /// Returns how many writes are in flight, or have ended and were not collected.
    pub(super) fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Begins to write the first `len` bytes of `buf` at `offset`. Returns the buffer if the ring
    /// does not take it; nothing of it is written then.
    ///
    /// # Panics
    /// If [`WRITES_MAX`] writes are in flight, or the buffer is shorter.
    pub(super) fn start(
        &mut self,
        fd: BorrowedFd<'_>,
        buf: AlignedBuf,
        len: usize,
        offset: u64,
    ) -> Result<(), AlignedBuf> {
        assert!(
            self.flights.len() < WRITES_MAX && len <= buf.len() && len <= READ_LEN_MAX,
            "too much at a time"
        );
        let Some(ring) = self.ring.as_mut().filter(|ring| !ring.broken) else { return Err(buf) };
        let number = self.next;
        let entry = opcode::Write::new(types::Fd(fd.as_raw_fd()), buf.as_slice().as_ptr(), len as u32)
            .offset(offset)
            .build()
            .user_data(number);
        // SAFETY: the buffer's memory does not move with `buf`, which stays in `flights`,
        // untouched, until the write has completed. If the ring does not take the entry, it is
        // broken and nothing is submitted to it ever again: a wait for earlier writes enters the
        // ring with nothing to submit.
        if unsafe { ring.ring.submission().push(&entry) }.is_err() {
            ring.broken = true;
            return Err(buf);
        }
        for _ in 0..REFUSALS_MAX {
            match calls::ring_submit(&ring.ring, fd, 0) {
                Ok(1) => {
                    self.next += 1;
                    self.flights.push_back(InFlightWrite {
                        number,
                        buf,
                        fd: fd.as_raw_fd(),
                        len,
                        offset,
                        ended: None,
                    });
                    return Ok(());
                }
                Err(e) if is_transient(&e) => {}
                _ => break,
            }
        }
        ring.broken = true;
        Err(buf)
    }

    /// Waits for the oldest write in flight; returns its buffer and result. Later ones may have
    /// ended before.
    pub(super) fn finish(&mut self) -> Option<Ended> {
        loop {
            self.reap();
            if let Some(outcome) = self.flights.front()?.ended {
                let InFlightWrite { buf, offset, .. } = self.flights.pop_front()?;
                return Some(Ended { buf, offset, outcome });
            }
            wait_for_one(&self.ring.as_ref()?.ring);
        }
    }

    /// Records the writes that have ended.
    fn reap(&mut self) {
        let Some(ring) = &mut self.ring else { return };
        for entry in ring.ring.completion() {
            let flight = self.flights.iter_mut().find(|flight| flight.number == entry.user_data());
            let Some(flight) = flight.filter(|flight| flight.ended.is_none()) else { continue };
            // SAFETY: the caller of `start` keeps its file open until the write is finished.
            let fd = unsafe { BorrowedFd::borrow_raw(flight.fd) };
            let bytes = &flight.buf.as_slice()[..flight.len];
            flight.ended = Some(outcome_of(calls::ring_write(fd, flight.offset, bytes, entry.result())));
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.ring.as_ref().is_some_and(|ring| !Owned::process(&ring.ring).is_here()) {
            // The kernel writes from the memory of the parent, which waits for the write.
            return;
        }
        while self.finish().is_some() {}
    }
}

fn outcome_of(result: rustix::io::Result<usize>) -> TransferOutcome {
    result.map_or_else(TransferOutcome::Failed, TransferOutcome::Done)
}

/// Waits until the kernel is done with an entry that it took.
pub(super) fn wait_for_one(ring: &IoUring) {
    const GETEVENTS: u32 = 1;
    // SAFETY: no argument structure is passed, and nothing new is submitted.
    let waited = unsafe { ring.submitter().enter::<libc::sigset_t>(0, 1, GETEVENTS, None) };
    if let Err(e) = waited
        && !is_transient(&e)
    {
        // See the module: the kernel could still access memory that is about to be reused.
        std::process::abort();
    }
}
