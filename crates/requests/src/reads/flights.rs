//! Which reads of the device are in flight, for which requests, and which are in line.
//!
//! What a step of a request wants becomes *flights*: a read of the device each, neighbours joined ([`table::runs`]). They wait in
//! line for room, those of point reads in one and those of scans in another ([`lines`]), first come, first served, so that one who wants much, a wave at a
//! time, lets others in between: at most [`FLYING_MAX`] are in
//! flight, and what was read for requests that are not over, flights included, is at most [`BYTES_MAX`], of which scans have a half. The oldest request goes on beyond that,
//! with [`OLDEST_BYTES_MAX`] in flight or a single read that is longer: it comes to its end whatever the others hold, and so does the next. So
//! buffers are bounded however many requests there are; of several keys those that are answered count no more, since their values are what was
//! asked for.
//!
//! That holds for files as well, and for blocks of the cache that a request has met: a flight keeps its file open, whatever was closed since. So
//! no request begins while [`BEGUN_MAX`] flights are in line or in the air: it waits in the *room*, holds nothing, and looks again when it is
//! its turn.
//!
//! Scans stand in line elsewhere before they begin ([`crate::scans`]), so they go past the room, and their flights do not keep others in it.
//!
//! A request that wants what is wanted already, by itself or an older one, waits for that flight: what a cold index is read for is
//! read once. Not for a younger one's, which might be behind it in line. A flight of a scan that a point read waits for as well stands in line as one of
//! point reads from then on.
//!
//! Invariant: each request here lacks at least one want, and each want that is lacking is part of a flight of the same request or of an older one.
//! So the oldest has a flight of its own in the air or in line, where there is room for it.
//!
//! A flight that fails tells the error to who wanted it; if it was for several wants each is read alone first.

pub(super) mod lines;

use crate::resumable::ResumableRead;
use base::{HashMap, Result};
use cache::Block;
use io::ReadQueue;
use lines::{Charged, Flying, Line, SCANS_FLYING_MAX, Side, Turns};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use table::runs::{Wanted, join};
use table::{Extent, FetchCost, Role, Want};

/// Reads of the device in flight at most: as many as a ring takes.
pub(crate) const FLYING_MAX: usize = 256;
/// Bytes that are in flight or were read for requests that are not over, at most.
pub(crate) const BYTES_MAX: u64 = 32 << 20;
/// Bytes that the oldest request has in flight beyond that, at most.
const OLDEST_BYTES_MAX: u64 = 8 << 20;

/// Flights, in line or in the air, with which no further request begins.
const BEGUN_MAX: usize = 2 * FLYING_MAX;

/// Bytes that were read for a request, out of those that all may have. It counts them until it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    of_all: Arc<Charged>,
    side: Side,
    bytes: u64,
}

impl Charge {
    fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.of_all.add(self.side, bytes);
    }

    fn clear(&mut self) {
        self.of_all.sub(self.side, std::mem::take(&mut self.bytes));
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A request with what was read for it.
pub(crate) struct Ticket {
    pub read: Box<dyn ResumableRead>,
    charge: Charge,
    /// Its number, once it has begun: it keeps its age where it comes back.
    number: Option<u64>,
    /// Of a scan: what lets in the next when this is dropped.
    pub pass: Option<Box<dyn Send>>,
}

impl Ticket {
    /// Of a request for which nothing was read yet.
    pub fn new(read: Box<dyn ResumableRead>, of_all: &Arc<Charged>) -> Ticket {
        let charge = Charge { of_all: of_all.clone(), side: Side::Points, bytes: 0 };
        Ticket { read, charge, number: None, pass: None }
    }

    /// It is of a scan, which begins with this.
    pub fn of_scan(mut self, pass: Box<dyn Send>) -> Ticket {
        debug_assert_eq!(self.charge.bytes, 0, "nothing was read for it yet");
        self.charge.side = Side::Scans;
        self.pass = Some(pass);
        self
    }

    /// Whose its flights are.
    fn side(&self) -> Side {
        self.charge.side
    }

    /// After a step that needs reads, with none in flight: what it let go of counts no more.
    pub fn settle(&mut self) {
        if let Some(held) = self.read.held_bytes() {
            self.charge.clear();
            self.charge.add(held);
        }
    }

    /// True if it may have to wait before it begins.
    pub fn has_line(&self) -> bool {
        self.pass.is_none()
    }

    /// Tells what it came to.
    pub fn tell(self) {
        // Who hears of it may look how much is charged.
        drop(self.charge);
        drop(self.pass);
        self.read.resolve();
    }
}

/// A request that waits for flights.
struct Waiting {
    ticket: Ticket,
    /// Wants that were not handed over.
    missing: usize,
}

/// A read of the device.
struct Flight {
    /// The request that began it, which it is charged to.
    of: u64,
    bytes: Range<u64>,
    parts: Vec<Part>,
    /// It was charged already.
    is_charged: bool,
    side: Side,
}

impl Flight {
    fn len(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }

    /// What it adds to what is held.
    fn to_charge(&self) -> u64 {
        if self.is_charged { 0 } else { self.len() }
    }

    /// What it costs its request.
    fn cost(&self) -> FetchCost {
        let is_counted = self.parts.iter().any(|part| part.want.role != Role::Tail);
        if is_counted { FetchCost::Request(self.len()) } else { FetchCost::Along }
    }
}

/// What a flight is for.
struct Part {
    want: Want,
    /// The requests that want it beside the one that began the flight.
    others: Vec<u64>,
}

/// Of flights, how many there are.
#[derive(Debug, Default)]
struct Begun {
    /// At the device, of point reads and of scans.
    flying: [Flying; 2],
    /// Those of scans, at the device or in line.
    of_scans: usize,
}

impl Begun {
    fn flying(&self) -> usize {
        self.flying.iter().map(|of| of.flights).sum()
    }
}

/// See the module.
pub(crate) struct Flights {
    /// Requests that have not begun, the first to begin first.
    room: VecDeque<Ticket>,
    /// The requests that wait, the oldest first.
    waiting: BTreeMap<u64, Waiting>,
    flights: HashMap<u64, Flight>,
    /// Flights that have not begun, of point reads and of scans.
    lines: [Line; 2],
    turns: Turns,
    /// The flight by which each want comes.
    wanted: HashMap<Extent, u64>,
    /// Requests to which something was handed over since they last went on.
    touched: BTreeSet<u64>,
    begun: Begun,
    charged: Arc<Charged>,
    last_request: u64,
    last_flight: u64,
}

impl Flights {
    /// Of requests that are charged to `charged`.
    pub fn new(charged: &Arc<Charged>) -> Flights {
        Flights {
            room: VecDeque::new(),
            waiting: BTreeMap::new(),
            flights: HashMap::default(),
            lines: Default::default(),
            turns: Turns::default(),
            wanted: HashMap::default(),
            touched: BTreeSet::new(),
            begun: Begun::default(),
            charged: charged.clone(),
            last_request: 0,
            last_flight: 0,
        }
    }

    /// True if nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.room.is_empty()
    }

    /// A request that wants this; nothing: it is to look again.
    pub fn add(&mut self, mut ticket: Ticket, wants: Vec<Want>) {
        if ticket.has_line() && (wants.is_empty() || self.is_full() || !self.room.is_empty()) {
            ticket.read.forget();
            return self.room.push_back(ticket);
        }
        self.begin_request(ticket, wants);
    }

    fn is_full(&self) -> bool {
        self.flights.len() - self.begun.of_scans >= BEGUN_MAX
    }

    fn begin_request(&mut self, mut ticket: Ticket, wants: Vec<Want>) {
        let number = *ticket.number.get_or_insert_with(|| {
            self.last_request += 1;
            self.last_request
        });
        self.waiting.insert(number, Waiting { ticket, missing: 0 });
        self.want(number, wants);
    }

    /// Those in the room begin, as many as may, by `step`: `None` if they are over. Those that want nothing come back.
    pub fn admit(&mut self, mut step: impl FnMut(Ticket) -> Option<(Ticket, Vec<Want>)>) -> Vec<Ticket> {
        let mut back = Vec::new();
        while !self.is_full()
            && let Some(ticket) = self.room.pop_front()
        {
            match step(ticket) {
                None => {}
                Some((ticket, wants)) if wants.is_empty() => back.push(ticket),
                Some((ticket, wants)) => self.begin_request(ticket, wants),
            }
        }
        back
    }

    fn want(&mut self, of: u64, wants: Vec<Want>) {
        let Some(waiting) = self.waiting.get_mut(&of) else { return };
        waiting.missing += wants.len();
        let side = waiting.ticket.side();
        let mut fresh = Vec::new();
        for want in wants {
            let number = self.wanted.get(&want.extent);
            let flight = number.and_then(|number| self.flights.get_mut(number)).filter(|f| f.of <= of);
            let part =
                flight.and_then(|flight| flight.parts.iter_mut().find(|p| p.want.extent == want.extent));
            match (part, number) {
                (Some(part), Some(&number)) => {
                    part.others.push(of);
                    if side == Side::Points {
                        self.prefer(number);
                    }
                }
                _ => fresh.push(want),
            }
        }
        // Wants of several steps come together where a step had to wait, and neighbours are looked for in the order of places.
        fresh.sort_unstable_by_key(|want: &Want| want.extent);
        let runs = join(fresh.iter().map(Wanted::from));
        let mut fresh = fresh.into_iter().map(|want| Part { want, others: Vec::new() });
        for run in runs {
            let parts = fresh.by_ref().take(run.places.len()).collect();
            self.line_up(Flight { of, bytes: run.bytes, parts, is_charged: false, side });
        }
    }

    /// A point read waits for this flight.
    fn prefer(&mut self, number: u64) {
        let Some(flight) = self.flights.get_mut(&number).filter(|flight| flight.side == Side::Scans) else {
            return;
        };
        if self.lines[Side::Scans as usize].remove(flight.of, number) {
            self.lines[Side::Points as usize].insert(flight.of, number);
            flight.side = Side::Points;
            self.begun.of_scans -= 1;
        }
    }

    fn line_up(&mut self, flight: Flight) {
        self.last_flight += 1;
        self.begun.of_scans += usize::from(flight.side == Side::Scans);
        let number = self.last_flight;
        self.wanted.extend(flight.parts.iter().map(|part| (part.want.extent, number)));
        self.lines[flight.side as usize].insert(flight.of, number);
        self.flights.insert(number, flight);
    }

    /// Begins what there is room for.
    pub fn begin(&mut self, queue: &mut ReadQueue) {
        while let Some(number) = self.next()
            && let Some(flight) = self.flights.get(&number)
        {
            self.lines[flight.side as usize].remove(flight.of, number);
            let flying = &mut self.begun.flying[flight.side as usize];
            flying.flights += 1;
            flying.bytes += flight.len();
            if let Some(waiting) = self.waiting.get_mut(&flight.of).filter(|_| !flight.is_charged) {
                waiting.ticket.charge.add(flight.len());
            }
            if let Some(part) = flight.parts.first() {
                queue.submit(&part.want.file, flight.bytes.start, flight.len() as usize, number);
            }
        }
    }

    /// The flight for which there is room next.
    fn next(&mut self) -> Option<u64> {
        if self.begun.flying() >= FLYING_MAX {
            return None;
        }
        let (of_points, of_scans) = (self.next_of(Side::Points), self.next_of(Side::Scans));
        self.turns.next(of_points, of_scans)
    }

    fn next_of(&self, side: Side) -> Option<u64> {
        let (line, flying) = (&self.lines[side as usize], self.begun.flying[side as usize]);
        let first = line.first()?;
        if side == Side::Scans && flying.flights >= SCANS_FLYING_MAX {
            return None;
        }
        let flight = self.flights.get(&first)?;
        if self.charged.have_room(side, flight.to_charge()) {
            return Some(first);
        }
        let (of, number) = line.of_oldest()?;
        let is_oldest = self.waiting.first_key_value().is_none_or(|(&oldest, _)| of <= oldest);
        let len = self.flights.get(&number)?.len();
        (is_oldest && (flying.flights == 0 || flying.bytes + len <= OLDEST_BYTES_MAX)).then_some(number)
    }

    /// A flight is over.
    pub fn land(&mut self, number: u64, read: Result<Block>) {
        let Some(flight) = self.flights.remove(&number) else { return };
        let flying = &mut self.begun.flying[flight.side as usize];
        flying.flights -= 1;
        flying.bytes -= flight.len();
        self.begun.of_scans -= usize::from(flight.side == Side::Scans);
        for part in &flight.parts {
            if self.wanted.get(&part.want.extent) == Some(&number) {
                self.wanted.remove(&part.want.extent);
            }
        }
        if read.is_err() && flight.parts.len() > 1 {
            return self.part(flight);
        }
        let mut cost = flight.cost();
        for part in flight.parts {
            let bytes = read.as_ref().map_err(Clone::clone).map(|read| cut(read, &flight.bytes, &part.want));
            self.hand_over(flight.of, &part.want, bytes.clone(), cost);
            cost = FetchCost::Along;
            for other in part.others {
                self.hand_over(other, &part.want, bytes.clone(), FetchCost::Shared);
            }
        }
    }

    /// Each of what a flight was for is read alone.
    fn part(&mut self, flight: Flight) {
        let of = flight.of;
        for part in flight.parts {
            // Who else waits for it may be a point read.
            let side = if part.others.is_empty() { flight.side } else { Side::Points };
            let bytes = bytes_of(&part.want.extent);
            self.line_up(Flight { of, bytes, parts: vec![part], is_charged: true, side });
        }
    }

    fn hand_over(&mut self, to: u64, want: &Want, read: Result<Block>, cost: FetchCost) {
        if let Some(waiting) = self.waiting.get_mut(&to) {
            waiting.ticket.read.deliver(want, read, cost);
            waiting.missing -= 1;
            self.touched.insert(to);
        }
    }

    /// Those to which something was handed over go on, by `step`: `None` if they are over. Those that want nothing and lack nothing come back.
    pub fn go_on(&mut self, mut step: impl FnMut(Ticket) -> Option<(Ticket, Vec<Want>)>) -> Vec<Ticket> {
        let mut back = Vec::new();
        for of in std::mem::take(&mut self.touched) {
            let Some(Waiting { ticket, missing }) = self.waiting.remove(&of) else { continue };
            if missing > 0 && ticket.read.needs_all() {
                self.waiting.insert(of, Waiting { ticket, missing });
                continue;
            }
            let phase = ticket.read.phase();
            let Some((mut ticket, wants)) = step(ticket) else { continue };
            if ticket.read.phase() != phase {
                ticket.charge.clear();
            }
            if wants.is_empty() && missing == 0 {
                back.push(ticket);
            } else {
                self.waiting.insert(of, Waiting { ticket, missing });
                self.want(of, wants);
            }
        }
        back
    }
}

fn bytes_of(extent: &Extent) -> Range<u64> {
    extent.offset..extent.offset.saturating_add(extent.len)
}

/// Its own of the bytes of a flight.
fn cut(read: &Block, bytes: &Range<u64>, want: &Want) -> Block {
    if want.extent.len == bytes.end - bytes.start {
        return read.clone();
    }
    let from = want.extent.offset.saturating_sub(bytes.start) as usize;
    debug_assert!(bytes.start <= want.extent.offset, "a flight brings what it is for");
    let own = read.get(from..).and_then(|rest| rest.get(..want.extent.len as usize));
    own.unwrap_or_default().into()
}

#[cfg(all(test, not(loom)))]
mod tests;
