//! How operations get into the log and are applied.
//!
//! 1. Under the lock of the order each operation is checked against the state and those before it in the batch. A record whose
//!    LSN is taken is compared with the one that has it, without the lock, and left out if they are the same.
//! 2. The batch is appended to the log, and applied: from then on it is seen, and survives the death of the process.
//! 3. A durable one waits for its sync, which it shares with all who wait at the same time.
//!
//! Who is told `NoSpace`, `Busy` or that something is wrong with an operation has done nothing at all.
//!
//! Nothing is acknowledged once something failed, in the background or here: what was written may be lost then, and the index may
//! say what the log does not. Reads go on; writes are refused with what failed first, until the store is opened again.
//!
//! What frees room (trims, truncations, deletes) is written where there is no room for anything else: see `room`.

use crate::core::{Core, Order};
use crate::entry::{self, LogId, Lsn};
use crate::index::Found;
use crate::logs::{GroupPlace, Logs};
use crate::manifest::TENANT;
use crate::ops::{self, Batch, Op};
use crate::options::never_volatile;
use base::sync::lock;
use base::{Error, ErrorKind, HashMap, Result};
use std::collections::BTreeSet;
use store::commit::{Completion, Durability, Place, Ticket};
use store::guest::{Carried, HostWrite};

/// What a check of a batch says.
enum Admitted {
    /// All of it may be written.
    Yes,
    /// The LSN of this operation is taken, by what was found there, with [`Logs::taken_in`].
    Taken(usize, (Found, u64)),
}

/// What the operations before one have done to a log.
#[derive(Default)]
struct Before {
    trimmed_below: Lsn,
    truncated_after: Option<Lsn>,
    appended: BTreeSet<Lsn>,
}

/// Checks a batch, without those operations that are known to have been done.
fn admit(logs: &Logs, ops: &[Op<'_>], done: &BTreeSet<usize>) -> Result<Admitted> {
    let mut before: HashMap<LogId, Before> = HashMap::default();
    for (i, op) in ops.iter().enumerate().filter(|(i, _)| !done.contains(i)) {
        if let Op::Create { name, .. } = op {
            logs.check_create(name)?;
            continue;
        }
        let log = logs.log(op.log())?;
        let before = before.entry(op.log()).or_default();
        match *op {
            Op::Append { lsn, .. } => {
                if lsn < before.trimmed_below || before.appended.contains(&lsn) {
                    let why = format!(
                        "a batch that appends record {lsn} of log {} twice, or trims it first",
                        log.name()
                    );
                    return Err(Error::invalid(why));
                }
                let found = log.admit(lsn)?;
                before.appended.insert(lsn);
                if let Some(found) = found.filter(|_| before.truncated_after.is_none_or(|after| lsn <= after))
                {
                    return Ok(Admitted::Taken(i, (found, logs.taken_in())));
                }
            }
            Op::Trim { below, .. } => before.trimmed_below = before.trimmed_below.max(below),
            Op::TruncateAfter { lsn, .. } => {
                before.truncated_after = Some(before.truncated_after.map_or(lsn, |after| after.min(lsn)));
                drop(before.appended.split_off(&lsn.saturating_add(1)));
            }
            _ => {}
        }
    }
    Ok(Admitted::Yes)
}

/// What became of a try.
enum Tried {
    /// It is in the log, and applied.
    Written(Ticket),
    /// The LSN of this operation is taken.
    Taken(usize, (Found, u64)),
    /// There is no group for a batch of so many bytes.
    NoGroup(usize),
}

impl Core {
    /// Writes operations as one batch, which happens whole or not at all.
    ///
    /// # Errors
    /// `Trimmed`, `AlreadyExists`, `NotFound` and `InvalidArgument` of an operation; `TooLarge`; `NoSpace`: nothing happened. Those
    /// of the log.
    pub fn write(&self, ops: &[Op<'_>], durability: Durability) -> Result<()> {
        self.counters.times.write(durability, || {
            let ticket = self.submit(ops, durability)?;
            self.sync_if(durability, ticket)
        })
    }

    /// As [`Core::write`] of a durable batch, without waiting: it is seen, and not durable yet.
    ///
    /// # Errors
    /// As there; those of a device that failed later are told by the completion.
    pub fn write_async(&self, ops: &[Op<'_>]) -> Result<Completion> {
        let times = &self.counters.times;
        Ok(self.lane.when_durable(times.append_async.time(|| self.submit(ops, Durability::Durable))?))
    }

    /// Puts operations into the log, and applies them. What makes them durable; none if nothing was ever written.
    fn submit(&self, ops: &[Op<'_>], durability: Durability) -> Result<Option<Ticket>> {
        if durability == Durability::Volatile {
            return Err(never_volatile());
        }
        let mut done = BTreeSet::new();
        let frees = ops::frees(ops);
        self.admit_room(frees)?;
        loop {
            if done.len() == ops.len() {
                // What is there already may not be durable yet.
                return Ok(self.lane.wal().last_position());
            }
            match self.attempt(ops, &done, None, durability)? {
                Tried::Written(ticket) => {
                    self.tails.changed(ops.iter().map(Op::log));
                    self.tell_written();
                    self.catalog.cut_trimmed(ops);
                    return Ok(Some(ticket));
                }
                Tried::NoGroup(len) => self.make_room(len, frees)?,
                Tried::Taken(i, found) => {
                    if self.is_there(&ops[i], found)? {
                        done.insert(i);
                    }
                }
            }
        }
    }

    /// One try: the operations that are not known to be done are checked, and appended if all may be.
    fn attempt(
        &self,
        ops: &[Op<'_>],
        done: &BTreeSet<usize>,
        carried: Option<&Carried<'_>>,
        durability: Durability,
    ) -> Result<Tried> {
        let mut order = lock(&self.order);
        let admitted = admit(&self.catalog.view(), ops, done)?;
        match admitted {
            Admitted::Taken(i, found) => Ok(Tried::Taken(i, found)),
            Admitted::Yes => {
                let left = ops.iter().enumerate().filter(|(i, _)| !done.contains(i));
                self.append(&mut order, left.map(|(_, op)| *op), carried, durability)
            }
        }
    }

    /// As [`Core::write`], with a batch of the engine that opened the store. `host` takes the sequences of that batch and calls the
    /// function that it is given, once, with it; then the batch is appended. That engine sees to its durability.
    ///
    /// # Errors
    /// As there, and those of `host`: nothing happened.
    pub fn write_carrying(&self, ops: &[Op<'_>], host: &mut HostWrite<'_>) -> Result<()> {
        self.admit_room(false)?;
        let mut done = BTreeSet::new();
        loop {
            let mut tried = None;
            let written =
                host(&mut |carried, durability| match self.attempt(ops, &done, Some(carried), durability)? {
                    Tried::Written(ticket) => Ok(Some(ticket)),
                    outcome => {
                        tried = Some(outcome);
                        Ok(None)
                    }
                });
            match tried {
                Some(Tried::NoGroup(len)) => self.make_room(len, false)?,
                Some(Tried::Taken(i, found)) => {
                    if self.is_there(&ops[i], found)? {
                        done.insert(i);
                    }
                }
                _ => {
                    self.tails.changed(ops.iter().map(Op::log));
                    self.tell_written();
                    self.catalog.cut_trimmed(ops);
                    return written;
                }
            }
        }
    }

    /// Creates a log.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` and `TooLarge` for the name; `NoSpace`: nothing happened. Those of the log.
    pub fn create(&self, name: &str, durability: Durability) -> Result<LogId> {
        self.admit_room(false)?;
        loop {
            let (tried, log) = {
                let mut order = lock(&self.order);
                let log = {
                    let logs = self.catalog.view();
                    logs.check_create(name)?;
                    logs.next_id()
                };
                (self.append(&mut order, [Op::Create { log, name }].into_iter(), None, durability)?, log)
            };
            match tried {
                Tried::NoGroup(len) => self.make_room(len, false)?,
                Tried::Written(ticket) => {
                    self.tell_written();
                    return self.sync_if(durability, Some(ticket)).map(|()| log);
                }
                Tried::Taken(..) => {}
            }
        }
    }

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// Those of the log.
    pub fn sync(&self) -> Result<()> {
        self.check_writable()?;
        self.sync_if(Durability::Durable, self.lane.wal().last_position())
    }

    fn tell_written(&self) {
        self.context().signals.wake_dozing();
    }

    fn sync_if(&self, durability: Durability, ticket: Option<Ticket>) -> Result<()> {
        let health = &self.context().health;
        if let Some(ticket) = ticket.filter(|_| durability == Durability::Durable) {
            // The operations are in the log and may survive: a failed sync stops the store and refuses nothing.
            self.lane.sync(ticket).or_else(|e| {
                health.poison(&e);
                health.check()
            })?;
        }
        // A store that failed meanwhile acknowledges nothing, at any durability.
        health.check_sound()
    }

    /// Appends operations that were checked, and applies them.
    fn append<'a>(
        &self,
        order: &mut Order,
        ops: impl Iterator<Item = Op<'a>> + Clone,
        carried: Option<&Carried<'a>>,
        durability: Durability,
    ) -> Result<Tried> {
        let (mut batch, mut offsets) =
            (carried.map_or_else(|| Ok(Batch::new()), Batch::carrying)?, Vec::new());
        // What is carried takes a sequence.
        let own = batch.count() as u64;
        for op in ops.clone() {
            offsets.push(batch.push(op)?);
        }
        let first_seq = order.next_seq;
        let last_seq = first_seq + batch.count() as u64 - 1;
        let health = &self.context().health;
        health.check()?;
        let appended = self.lane.append_placed(TENANT, &batch.pieces(), (first_seq, last_seq), durability);
        let (ticket, place) = match appended {
            Err(e) if e.kind() == ErrorKind::Busy => return Ok(Tried::NoGroup(batch.len())),
            Err(e) if e.is_refusal() || e.kind() == ErrorKind::TooLarge => return Err(e),
            // Nobody knows whether it is in the log.
            appended => appended.inspect_err(|e| health.poison(e))?,
        };
        order.next_seq = last_seq + 1;
        let (mut records, mut record_bytes) = (0, 0);
        self.recent.push_all(ops.clone().zip(&offsets).filter_map(|(op, offset)| {
            let Op::Append { bytes, .. } = op else { return None };
            (records, record_bytes) = (records + 1, record_bytes + bytes.len() as u64);
            Some((place_of(place.at(*offset)), bytes))
        }));
        if let Some(carried) = carried {
            let mut under_way = lock(&self.under_way);
            let last = under_way.carried.entry(place.ltn).or_default();
            *last = carried.seqs.1.max(*last);
        }
        let placed = (first_seq + own..).zip(ops).zip(offsets);
        let placed = placed.map(|((seq, op), offset)| (seq, op, place_of(place.at(offset))));
        self.catalog.apply(placed).inspect_err(|e| health.poison(e))?;
        self.counters.appends.add(records);
        self.counters.append_bytes.add(record_bytes);
        Ok(Tried::Written(ticket))
    }

    /// Whether an append whose LSN is taken has been done already. False: look again.
    ///
    /// # Errors
    /// `AlreadyExists` if other bytes are there; those of reading.
    fn is_there(&self, op: &Op<'_>, found: (Found, u64)) -> Result<bool> {
        let Op::Append { log, lsn, bytes } = *op else { return Ok(false) };
        let mut there = Vec::new();
        let row = self.row_of(log, lsn, found);
        match row.and_then(|(source, row)| self.bytes_of(source, &row, &mut there)) {
            Ok(()) if there == bytes => Ok(true),
            Ok(()) => Err(self.catalog.view().log(log)?.exists(lsn)),
            // It was moved or has gone: the next try finds out.
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }
}

/// A place, as the index writes it down.
pub(crate) fn place_of(place: Place) -> GroupPlace {
    GroupPlace { ltn: place.ltn, at: entry::at(place.block, place.pos) }
}

#[cfg(test)]
mod tests;
