//! Asynchronous requests to a device of the machine, through a ring ([`super::super::flights`]).
//!
//! A polling ring needs a request for it, direct access, a queue of the device that can be polled,
//! and a successful read through the ring; otherwise the ring uses interrupts. Where no ring is
//! available (the portable engine, a system-call filter) a request is done while the caller checks
//! for completions.
//!
//! A plain call finishes short, interrupted and refused requests, so all ways give the same bytes
//! and the same errors.

use super::super::calls;
use super::super::flights::{Kind, RingTransfer, RingTransfers};
use super::super::uring::READ_LEN_MAX;
use super::super::usage;
use super::KernelDevice;
use crate::AlignedBuf;
use crate::device::{BLOCK, BlockDevice, Completions, DeviceDone, DeviceQueue, DeviceRequest, Transfer};
use io_uring::{opcode, types};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::{major, minor};
use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A request in flight; keeps the device open.
struct InFlightRequest {
    device: Arc<KernelDevice>,
    request: DeviceRequest,
}

impl InFlightRequest {
    fn len(&self) -> usize {
        self.request.buf.len().min(READ_LEN_MAX)
    }

    /// Does the part of the request behind the first `done` bytes.
    fn finish(self, done: usize) -> DeviceDone {
        let InFlightRequest { device, mut request } = self;
        // A transfer can be resumed only after whole blocks.
        let done = done / BLOCK * BLOCK;
        let offset = request.offset + done as u64;
        let left = request.buf.as_mut_slice().get_mut(done..).unwrap_or_default();
        let result = match request.transfer {
            _ if left.is_empty() => Ok(()),
            Transfer::Read => device.read_at(left, offset),
            Transfer::Write => device.write_at(left, offset),
        };
        request.done(result)
    }
}

impl RingTransfer for InFlightRequest {
    type Done = DeviceDone;

    fn fd(&self) -> BorrowedFd<'_> {
        self.device.handle().fd.as_fd()
    }

    fn land(self, result: Option<i32>) -> DeviceDone {
        let (offset, len) = (self.request.offset, self.len());
        let done = |result| match self.request.transfer {
            Transfer::Read => calls::ring_read(self.fd(), offset, len, result),
            Transfer::Write => {
                calls::ring_write(self.fd(), offset, &self.request.buf.as_slice()[..len], result)
            }
        };
        let done = result.map_or(0, |result| done(result).unwrap_or(0));
        self.finish(done)
    }
}

/// Queue of requests to a device of the machine; see the module.
pub(super) struct KernelQueue {
    device: Arc<KernelDevice>,
    ring: Option<RingTransfers<InFlightRequest>>,
    completions: Completions,
    /// Requests that the ring has no room for.
    waiting: VecDeque<DeviceRequest>,
    in_flight: usize,
}

impl KernelQueue {
    pub(super) fn new(device: Arc<KernelDevice>, wanted: Completions) -> KernelQueue {
        let polled = (wanted == Completions::Polled && device.has_rings() && device.can_be_polled())
            .then(|| polled_ring(&device))
            .flatten();
        let (ring, completions) = match polled {
            Some(ring) => (Some(ring), Completions::Polled),
            None => match device.has_rings().then(|| RingTransfers::new(Kind::Alone).ok()).flatten() {
                Some(ring) => (Some(ring), Completions::Interrupts),
                None => (None, Completions::Caller),
            },
        };
        KernelQueue { device, ring, completions, waiting: VecDeque::new(), in_flight: 0 }
    }

    fn look(&mut self, wait: bool, done: &mut Vec<DeviceDone>) {
        let before = done.len();
        let device = self.device.clone();
        let fly = |request| InFlightRequest { device: device.clone(), request };
        while let Some(ring) = self.ring.as_mut().filter(|ring| ring.has_room())
            && let Some(request) = self.waiting.pop_front()
        {
            if let Err(flying) = push(ring, fly(request)) {
                self.waiting.push_front(flying.request);
                break;
            }
        }
        match &mut self.ring {
            Some(ring) if ring.in_flight() > 0 => {
                ring.complete(wait, done);
                if ring.is_broken() {
                    (self.ring, self.completions) = (None, Completions::Caller);
                }
            }
            // No ring takes the request.
            _ => done.extend(self.waiting.pop_front().map(|request| fly(request).finish(0))),
        }
        self.in_flight -= done.len() - before;
    }
}

/// Gives a request to a ring.
fn push(
    ring: &mut RingTransfers<InFlightRequest>,
    mut flying: InFlightRequest,
) -> std::result::Result<(), InFlightRequest> {
    let (len, offset) = (flying.len() as u32, flying.request.offset);
    let fd = types::Fd(flying.device.handle().fd.as_raw_fd());
    let at = flying.request.buf.as_mut_slice().as_mut_ptr();
    let entry = match flying.request.transfer {
        Transfer::Read => opcode::Read::new(fd, at, len).offset(offset).build(),
        Transfer::Write => opcode::Write::new(fd, at, len).offset(offset).build(),
    };
    // SAFETY: device and buffer belong to the moved value. The memory does not move with the
    // buffer, and nothing else has it.
    unsafe { ring.push(flying, entry) }
}

/// A read of the first block, which shows whether a ring works.
struct Probe {
    device: Arc<KernelDevice>,
    buf: AlignedBuf,
}

impl RingTransfer for Probe {
    type Done = bool;

    fn fd(&self) -> BorrowedFd<'_> {
        self.device.handle().fd.as_fd()
    }

    fn land(self, result: Option<i32>) -> bool {
        result.is_some_and(|result| calls::ring_read(self.fd(), 0, BLOCK, result) == Ok(BLOCK))
    }
}

/// Returns a polling ring, if a read through another one succeeds.
fn polled_ring(device: &Arc<KernelDevice>) -> Option<RingTransfers<InFlightRequest>> {
    let mut ring = RingTransfers::new(Kind::Polled).ok()?;
    let mut probe = Probe { device: device.clone(), buf: AlignedBuf::zeroed(BLOCK) };
    let fd = types::Fd(device.handle().fd.as_raw_fd());
    let entry = opcode::Read::new(fd, probe.buf.as_mut_slice().as_mut_ptr(), BLOCK as u32).build();
    // SAFETY: as in `push`.
    unsafe { ring.push(probe, entry) }.ok()?;
    let mut delivered = Vec::new();
    ring.complete(true, &mut delivered);
    (delivered == [true] && !ring.is_broken()).then(|| RingTransfers::new(Kind::Polled).ok()).flatten()
}

/// Interprets the `io_poll` attribute of a disk's queue: "1" if it can be polled.
fn is_polled(told: &str) -> bool {
    told.trim() == "1"
}

impl KernelDevice {
    fn has_rings(&self) -> bool {
        self.file.has_rings()
    }

    /// Returns true if direct transfers go to a disk whose queue can be polled.
    fn can_be_polled(&self) -> bool {
        let Ok(stat) = calls::fstat(&self.handle().fd) else { return false };
        let of = if stat.st_rdev != 0 { stat.st_rdev } else { stat.st_dev };
        let (major, minor) = (major(of), minor(of));
        // A partition has no queue of its own.
        let told = ["", "/.."].iter().find_map(|whole| {
            let source = format!("/sys/dev/block/{major}:{minor}{whole}/queue/io_poll");
            usage::read_text(Path::new(&source)).ok()
        });
        self.handle().is_direct() && self.len() >= BLOCK as u64 && told.is_some_and(|told| is_polled(&told))
    }
}

impl DeviceQueue for KernelQueue {
    fn submit(&mut self, request: DeviceRequest) {
        request.check(self.device.len());
        self.in_flight += 1;
        self.waiting.push_back(request);
    }

    fn poll(&mut self, done: &mut Vec<DeviceDone>) {
        self.look(false, done);
    }

    fn wait(&mut self, done: &mut Vec<DeviceDone>) {
        let before = done.len();
        while self.in_flight > 0 && done.len() == before {
            self.look(true, done);
        }
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn completions(&self) -> Completions {
        self.completions
    }
}

impl Drop for KernelQueue {
    fn drop(&mut self) {
        if self.device.handle().check_process().is_err() {
            return;
        }
        // Submitted requests are completed.
        let mut done = Vec::new();
        while self.in_flight > 0 {
            self.look(true, &mut done);
        }
    }
}

impl fmt::Debug for KernelQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KernelQueue({} in flight, {:?})", self.in_flight, self.completions)
    }
}

#[cfg(test)]
mod tests;
