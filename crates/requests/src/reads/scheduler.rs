//! Scheduling of device reads: which are in flight, for which requests, and which are queued.
//!
//! The wants of a step become *device reads*, neighbors joined ([`table::runs`]). Device reads wait
//! in two queues, one for point reads and one for scans ([`fairness`]), first in, first out. So a
//! request that wants much, a wave at a time, lets other requests in between.
//!
//! **Bounds.** At most [`DEVICE_READS_MAX`] are in flight. The buffers of unfinished requests,
//! reads in flight included, have at most [`BUFFER_BYTES_MAX`], of which scans have a half. The
//! oldest request may exceed that by [`OLDEST_BYTES_MAX`] in flight, or by a single longer read: it
//! finishes whatever the other requests hold, and so does the next. So buffers are bounded for any
//! number of requests. In a read of several keys the answered ones no longer count: their values
//! are the result.
//!
//! The bound holds for files as well, and for cache blocks that a request holds: a device read
//! keeps its file open, also after the cache of open files has closed it. So no request is admitted
//! while [`ADMITTED_READS_MAX`] device reads are queued or in flight. It waits in the *backlog*,
//! holds nothing, and repeats its step in its turn. Scans have a queue of their own
//! before they begin ([`crate::scans`]): they bypass the backlog, and their device reads keep no
//! request in it.
//!
//! **Joining.** A request that wants bytes which it or an older request wants already waits for
//! that device read: the index of a cold table is read once. It does not join a younger request's
//! read, which may be queued behind it. A scan's read that a point read joins moves to the queue of
//! point reads.
//!
//! **Invariant.** Each request here lacks at least one want, and each lacking want is part of a
//! device read of the same request or of an older one. So the oldest request has a read of its own
//! in flight, or queued with room for it.
//!
//! **Failure.** A device read that fails reports the error to all its requests. One for several
//! wants is split first, and each want is read alone.

pub(super) mod fairness;

use crate::resumable::ResumableRead;
use base::{HashMap, Result};
use cache::Block;
use fairness::{Alternation, AtDevice, BufferBytes, QueuedReads, ReadKind, SCAN_READS_MAX};
use io::ReadQueue;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use table::runs::{WantedExtent, join};
use table::{BlockKind, BlockRequest, Extent, FetchCost};

/// Bound on device reads in flight: as many as a ring takes.
pub(crate) const DEVICE_READS_MAX: usize = 256;
/// Bound on the buffers of unfinished requests, reads in flight included, bytes.
pub(crate) const BUFFER_BYTES_MAX: u64 = 32 << 20;
/// Bytes that the oldest request has in flight beyond that bound, at most.
const OLDEST_BYTES_MAX: u64 = 8 << 20;

/// Device reads, queued or in flight, above which no request is admitted.
const ADMITTED_READS_MAX: usize = 2 * DEVICE_READS_MAX;

/// Buffers of one request, as its share of the total. Dropped, it gives them back.
#[derive(Debug)]
pub(crate) struct BufferCharge {
    total: Arc<BufferBytes>,
    kind: ReadKind,
    bytes: u64,
}

impl BufferCharge {
    fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.total.add(self.kind, bytes);
    }

    fn clear(&mut self) {
        self.total.sub(self.kind, std::mem::take(&mut self.bytes));
    }
}

impl Drop for BufferCharge {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A request with the charge for its buffers.
pub(crate) struct Ticket {
    read: Box<dyn ResumableRead>,
    charge: BufferCharge,
    /// Its number, which is its age, from admission on; kept between blocking steps.
    number: Option<u64>,
    /// Of a scan: dropped, it lets the next scan begin.
    permit: Option<Box<dyn Send>>,
}

impl Ticket {
    /// Returns a request without buffers.
    pub fn new(read: Box<dyn ResumableRead>, total: &Arc<BufferBytes>) -> Ticket {
        let charge = BufferCharge { total: total.clone(), kind: ReadKind::Point, bytes: 0 };
        Ticket { read, charge, number: None, permit: None }
    }

    /// Makes it a scan, which begins with this permit.
    pub fn of_scan(mut self, permit: Box<dyn Send>) -> Ticket {
        debug_assert_eq!(self.charge.bytes, 0, "a scan begins without buffers");
        self.charge.kind = ReadKind::Scan;
        self.permit = Some(permit);
        self
    }

    /// Returns true for a running scan.
    pub fn is_scan(&self) -> bool {
        self.permit.is_some()
    }

    pub fn read(&mut self) -> &mut dyn ResumableRead {
        &mut *self.read
    }

    /// Updates the charge after a blocking step, with no read in flight: released buffers count no
    /// more.
    pub fn settle(&mut self) {
        if let Some(held) = self.read.held_bytes() {
            self.charge.clear();
            self.charge.add(held);
        }
    }

    /// Ends the request with its answer.
    pub fn resolve(self) {
        // The completion may lead to a check of the charges.
        drop(self.charge);
        drop(self.permit);
        self.read.resolve();
    }
}

/// A request that waits for device reads.
struct WaitingRequest {
    ticket: Ticket,
    /// Number of wants that are not delivered.
    missing: usize,
}

/// One read of the device.
struct DeviceRead {
    /// The request that began it, which is charged.
    of: u64,
    bytes: Range<u64>,
    parts: Vec<ReadPart>,
    /// True if it was charged before.
    is_charged: bool,
    kind: ReadKind,
}

impl DeviceRead {
    fn len(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }

    /// Returns the bytes that its start adds to the charge.
    fn to_charge(&self) -> u64 {
        if self.is_charged { 0 } else { self.len() }
    }

    /// Returns its cost for the request that began it.
    fn cost(&self) -> FetchCost {
        let is_counted = self.parts.iter().any(|part| part.want.role != BlockKind::Tail);
        if is_counted { FetchCost::Request(self.len()) } else { FetchCost::Along }
    }
}

/// A want that a device read serves.
struct ReadPart {
    want: BlockRequest,
    /// Requests that joined, beside the one that began the read.
    joined: Vec<u64>,
}

/// Numbers of device reads.
#[derive(Debug, Default)]
struct DeviceLoad {
    /// In flight, by kind.
    at_device: [AtDevice; 2],
    /// Of scans, queued or in flight.
    of_scans: usize,
}

impl DeviceLoad {
    fn in_flight(&self) -> usize {
        self.at_device.iter().map(|of| of.reads).sum()
    }
}

/// Scheduler of device reads; see the module.
pub(crate) struct ReadScheduler {
    /// Requests that are not admitted, oldest first.
    backlog: VecDeque<Ticket>,
    /// Admitted requests, by number: oldest first.
    waiting: BTreeMap<u64, WaitingRequest>,
    reads: HashMap<u64, DeviceRead>,
    /// Device reads that have not begun, by kind.
    queued: [QueuedReads; 2],
    alternation: Alternation,
    /// The device read that brings each wanted extent.
    by_extent: HashMap<Extent, u64>,
    /// Requests with deliveries since their last step.
    runnable: BTreeSet<u64>,
    load: DeviceLoad,
    buffers: Arc<BufferBytes>,
    last_request: u64,
    last_read: u64,
}

impl ReadScheduler {
    /// Returns a scheduler of requests that are charged to `buffers`.
    pub fn new(buffers: &Arc<BufferBytes>) -> ReadScheduler {
        ReadScheduler {
            backlog: VecDeque::new(),
            waiting: BTreeMap::new(),
            reads: HashMap::default(),
            queued: Default::default(),
            alternation: Alternation::default(),
            by_extent: HashMap::default(),
            runnable: BTreeSet::new(),
            load: DeviceLoad::default(),
            buffers: buffers.clone(),
            last_request: 0,
            last_read: 0,
        }
    }

    /// Returns true without requests.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.backlog.is_empty()
    }

    /// Takes a request with its wants; without wants it takes its step again after admission.
    pub fn add(&mut self, mut ticket: Ticket, wants: Vec<BlockRequest>) {
        if !ticket.is_scan() && (wants.is_empty() || self.is_full() || !self.backlog.is_empty()) {
            ticket.read.forget();
            return self.backlog.push_back(ticket);
        }
        self.begin(ticket, wants);
    }

    fn is_full(&self) -> bool {
        self.reads.len() - self.load.of_scans >= ADMITTED_READS_MAX
    }

    fn begin(&mut self, mut ticket: Ticket, wants: Vec<BlockRequest>) {
        let number = *ticket.number.get_or_insert_with(|| {
            self.last_request += 1;
            self.last_request
        });
        self.waiting.insert(number, WaitingRequest { ticket, missing: 0 });
        self.want(number, wants);
    }

    /// Admits requests of the backlog as far as the bound allows. `step` takes a step of each, and
    /// returns `None` for a finished one. Returns those that need a step which may block.
    pub fn admit(
        &mut self,
        mut step: impl FnMut(Ticket) -> Option<(Ticket, Vec<BlockRequest>)>,
    ) -> Vec<Ticket> {
        let mut blocked = Vec::new();
        while !self.is_full()
            && let Some(ticket) = self.backlog.pop_front()
        {
            match step(ticket) {
                None => {}
                Some((ticket, wants)) if wants.is_empty() => blocked.push(ticket),
                Some((ticket, wants)) => self.begin(ticket, wants),
            }
        }
        blocked
    }

    /// Adds wants of a request: each joins a device read or becomes part of a new one.
    fn want(&mut self, of: u64, wants: Vec<BlockRequest>) {
        let Some(waiting) = self.waiting.get_mut(&of) else { return };
        waiting.missing += wants.len();
        let kind = waiting.ticket.charge.kind;
        let mut fresh = Vec::new();
        for want in wants {
            let number = self.by_extent.get(&want.extent);
            let read = number.and_then(|number| self.reads.get_mut(number)).filter(|read| read.of <= of);
            let part = read.and_then(|read| read.parts.iter_mut().find(|p| p.want.extent == want.extent));
            match (part, number) {
                (Some(part), Some(&number)) => {
                    part.joined.push(of);
                    if kind == ReadKind::Point {
                        self.promote(number);
                    }
                }
                _ => fresh.push(want),
            }
        }
        // Wants of several steps may come together, and joining goes by the order of extents.
        fresh.sort_unstable_by_key(|want: &BlockRequest| want.extent);
        let runs = join(fresh.iter().map(WantedExtent::from));
        let mut fresh = fresh.into_iter().map(|want| ReadPart { want, joined: Vec::new() });
        for run in runs {
            let parts = fresh.by_ref().take(run.places.len()).collect();
            self.enqueue(DeviceRead { of, bytes: run.bytes, parts, is_charged: false, kind });
        }
    }

    /// Moves a queued read of a scan to the queue of point reads: a point read has joined it.
    fn promote(&mut self, number: u64) {
        let Some(read) = self.reads.get_mut(&number).filter(|read| read.kind == ReadKind::Scan) else {
            return;
        };
        if self.queued[ReadKind::Scan as usize].remove(read.of, number) {
            self.queued[ReadKind::Point as usize].insert(read.of, number);
            read.kind = ReadKind::Point;
            self.load.of_scans -= 1;
        }
    }

    fn enqueue(&mut self, read: DeviceRead) {
        self.last_read += 1;
        self.load.of_scans += usize::from(read.kind == ReadKind::Scan);
        let number = self.last_read;
        self.by_extent.extend(read.parts.iter().map(|part| (part.want.extent, number)));
        self.queued[read.kind as usize].insert(read.of, number);
        self.reads.insert(number, read);
    }

    /// Starts queued reads as far as the bounds allow.
    pub fn dispatch(&mut self, queue: &mut ReadQueue) {
        while let Some(number) = self.next()
            && let Some(read) = self.reads.get(&number)
        {
            self.queued[read.kind as usize].remove(read.of, number);
            let at_device = &mut self.load.at_device[read.kind as usize];
            at_device.reads += 1;
            at_device.bytes += read.len();
            if let Some(waiting) = self.waiting.get_mut(&read.of).filter(|_| !read.is_charged) {
                waiting.ticket.charge.add(read.len());
            }
            if let Some(part) = read.parts.first() {
                queue.submit(&part.want.file, read.bytes.start, read.len() as usize, number);
            }
        }
    }

    /// Returns the next queued read that the bounds allow.
    fn next(&mut self) -> Option<u64> {
        if self.load.in_flight() >= DEVICE_READS_MAX {
            return None;
        }
        let (point, scan) = (self.next_of(ReadKind::Point), self.next_of(ReadKind::Scan));
        self.alternation.next(point, scan)
    }

    fn next_of(&self, kind: ReadKind) -> Option<u64> {
        let (queued, at_device) = (&self.queued[kind as usize], self.load.at_device[kind as usize]);
        let first = queued.first()?;
        if kind == ReadKind::Scan && at_device.reads >= SCAN_READS_MAX {
            return None;
        }
        let read = self.reads.get(&first)?;
        if self.buffers.have_room(kind, read.to_charge()) {
            return Some(first);
        }
        let (of, number) = queued.of_oldest()?;
        let is_oldest = self.waiting.first_key_value().is_none_or(|(&oldest, _)| of <= oldest);
        let len = self.reads.get(&number)?.len();
        (is_oldest && (at_device.reads == 0 || at_device.bytes + len <= OLDEST_BYTES_MAX)).then_some(number)
    }

    /// Ends a device read: delivers its bytes, or its error.
    pub fn complete(&mut self, number: u64, outcome: Result<Block>) {
        let Some(read) = self.reads.remove(&number) else { return };
        let at_device = &mut self.load.at_device[read.kind as usize];
        at_device.reads -= 1;
        at_device.bytes -= read.len();
        self.load.of_scans -= usize::from(read.kind == ReadKind::Scan);
        for part in &read.parts {
            if self.by_extent.get(&part.want.extent) == Some(&number) {
                self.by_extent.remove(&part.want.extent);
            }
        }
        if outcome.is_err() && read.parts.len() > 1 {
            return self.split(read);
        }
        let mut cost = read.cost();
        for part in read.parts {
            let bytes =
                outcome.as_ref().map_err(Clone::clone).map(|block| cut(block, &read.bytes, &part.want));
            self.deliver(read.of, &part.want, bytes.clone(), cost);
            cost = FetchCost::Along;
            for joined in part.joined {
                self.deliver(joined, &part.want, bytes.clone(), FetchCost::Shared);
            }
        }
    }

    /// Splits a failed device read: each of its wants is read alone.
    fn split(&mut self, read: DeviceRead) {
        let of = read.of;
        for part in read.parts {
            // A request that joined may be a point read.
            let kind = if part.joined.is_empty() { read.kind } else { ReadKind::Point };
            let bytes = bytes_of(&part.want.extent);
            self.enqueue(DeviceRead { of, bytes, parts: vec![part], is_charged: true, kind });
        }
    }

    fn deliver(&mut self, to: u64, want: &BlockRequest, bytes: Result<Block>, cost: FetchCost) {
        if let Some(waiting) = self.waiting.get_mut(&to) {
            waiting.ticket.read.deliver(want, bytes, cost);
            waiting.missing -= 1;
            self.runnable.insert(to);
        }
    }

    /// Resumes the requests that got deliveries. `step` takes a step of each, and returns `None`
    /// for a finished one. Returns those that need a step which may block: they want nothing and
    /// lack nothing.
    pub fn resume(
        &mut self,
        mut step: impl FnMut(Ticket) -> Option<(Ticket, Vec<BlockRequest>)>,
    ) -> Vec<Ticket> {
        let mut blocked = Vec::new();
        for of in std::mem::take(&mut self.runnable) {
            let Some(WaitingRequest { ticket, missing }) = self.waiting.remove(&of) else { continue };
            if missing > 0 && ticket.read.needs_all() {
                self.waiting.insert(of, WaitingRequest { ticket, missing });
                continue;
            }
            let phase = ticket.read.phase();
            let Some((mut ticket, wants)) = step(ticket) else { continue };
            if ticket.read.phase() != phase {
                ticket.charge.clear();
            }
            if wants.is_empty() && missing == 0 {
                blocked.push(ticket);
            } else {
                self.waiting.insert(of, WaitingRequest { ticket, missing });
                self.want(of, wants);
            }
        }
        blocked
    }
}

fn bytes_of(extent: &Extent) -> Range<u64> {
    extent.offset..extent.offset.saturating_add(extent.len)
}

/// Cuts the bytes of a want out of those of its device read.
fn cut(read: &Block, bytes: &Range<u64>, want: &BlockRequest) -> Block {
    if want.extent.len == bytes.end - bytes.start {
        return read.clone();
    }
    let from = want.extent.offset.saturating_sub(bytes.start) as usize;
    debug_assert!(bytes.start <= want.extent.offset, "a device read covers its wants");
    let own = read.get(from..).and_then(|rest| rest.get(..want.extent.len as usize));
    own.unwrap_or_default().into()
}

#[cfg(all(test, not(loom)))]
mod tests;
