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

use crate::catalog::Catalog;
use crate::collect::Collector;
use crate::entry::LogId;
use crate::foundation::Foundation;
use crate::hold::Moves;
use crate::index::Found;
use crate::log_writer::{LogWriter, Tried};
use crate::ops::{self, Op};
use crate::options::never_volatile;
use crate::records::Records;
use crate::room::Room;
use crate::seal::Sealer;
use crate::space::Reserve;
use crate::tails::Tails;
use crate::times::WriteTimes;
use base::{Error, ErrorKind, Result};
use std::collections::BTreeSet;
use std::sync::Arc;
use store::commit::{Completion, Durability, Need, Ticket};
use store::guest::{BatchSink, Carried, HostWrite};

/// How long an append waits for collection.
const STALL_NS: u64 = 10_000_000_000;

/// See the module.
pub(crate) struct WritePath {
    store: Arc<Foundation>,
    catalog: Arc<Catalog>,
    records: Arc<Records>,
    log: Arc<LogWriter>,
    room: Arc<Room>,
    reserve: Arc<Reserve>,
    moves: Arc<Moves>,
    collector: Arc<Collector>,
    sealer: Arc<Sealer>,
    /// Readers that wait for records.
    tails: Tails,
    times: WriteTimes,
}

/// The parts that the write path works with.
pub(crate) struct WriteParts {
    pub records: Arc<Records>,
    pub log: Arc<LogWriter>,
    pub room: Arc<Room>,
    pub reserve: Arc<Reserve>,
    pub moves: Arc<Moves>,
    pub collector: Arc<Collector>,
    pub sealer: Arc<Sealer>,
}

/// The sink of a batch of the engine that opened the store: a batch of these operations carries it.
struct Carrier<'a> {
    log: &'a LogWriter,
    ops: &'a [Op<'a>],
    /// Operations that change nothing.
    done: &'a BTreeSet<usize>,
    /// The outcome of an attempt in which nothing was appended.
    refused: Option<Tried>,
}

impl BatchSink for Carrier<'_> {
    fn append(&mut self, batch: &Carried<'_>, durability: Durability) -> Result<Option<Ticket>> {
        match self.log.attempt(self.ops, self.done, Some(batch), durability)? {
            Tried::Written(ticket) => Ok(Some(ticket)),
            outcome => {
                self.refused = Some(outcome);
                Ok(None)
            }
        }
    }
}

impl WritePath {
    /// Into these logs, with these parts.
    pub fn new(store: &Arc<Foundation>, catalog: &Arc<Catalog>, parts: WriteParts) -> WritePath {
        let WriteParts { records, log, room, reserve, moves, collector, sealer } = parts;
        let (tails, times) = (Tails::default(), WriteTimes::new(&store.context().env));
        let (store, catalog) = (store.clone(), catalog.clone());
        WritePath { store, catalog, records, log, room, reserve, moves, collector, sealer, tails, times }
    }

    /// Returns the readers that wait for records.
    pub fn tails(&self) -> &Tails {
        &self.tails
    }

    /// How long writes take.
    pub fn times(&self) -> &WriteTimes {
        &self.times
    }

    /// Writes operations as one batch, which happens whole or not at all.
    ///
    /// # Errors
    /// `Trimmed`, `AlreadyExists`, `NotFound` and `InvalidArgument` of an operation; `TooLarge`; `NoSpace`: nothing happened. Those
    /// of the log.
    pub fn write(&self, ops: &[Op<'_>], durability: Durability) -> Result<()> {
        self.times.write(durability, || {
            let ticket = self.submit(ops, durability)?;
            self.log.sync_if(durability, ticket)
        })
    }

    /// As [`WritePath::write`] of a durable batch, without waiting: it is seen, and not durable yet.
    ///
    /// # Errors
    /// As there; those of a device that failed later are told by the completion.
    pub fn write_async(&self, ops: &[Op<'_>]) -> Result<Completion> {
        Ok(self
            .store
            .lane
            .when_durable(self.times.append_async.time(|| self.submit(ops, Durability::Durable))?))
    }

    /// Puts operations into the log, and applies them. What makes them durable; none if nothing was ever written.
    fn submit(&self, ops: &[Op<'_>], durability: Durability) -> Result<Option<Ticket>> {
        if !durability.is_logged() {
            return Err(never_volatile());
        }
        let mut done = BTreeSet::new();
        let frees = ops::frees(ops);
        self.room.admit(frees)?;
        loop {
            if done.len() == ops.len() {
                // What is there already may not be durable yet.
                return Ok(self.store.lane.wal().content().last_position());
            }
            match self.log.attempt(ops, &done, None, durability)? {
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

    /// As [`WritePath::write`], with a batch of the engine that opened the store. `host` assigns the sequences of that batch and
    /// appends it to the sink that it is given, once. That engine sees to its durability.
    ///
    /// # Errors
    /// As there, and those of `host`: nothing happened.
    pub fn write_carrying(&self, ops: &[Op<'_>], host: &mut HostWrite<'_>) -> Result<()> {
        self.room.admit(false)?;
        let mut done = BTreeSet::new();
        loop {
            let mut carrier = Carrier { log: &self.log, ops, done: &done, refused: None };
            let written = host(&mut carrier);
            match carrier.refused {
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
        self.room.admit(false)?;
        loop {
            match self.log.create(name, durability)? {
                (Tried::NoGroup(len), _) => self.make_room(len, false)?,
                (Tried::Written(ticket), log) => {
                    self.tell_written();
                    return self.log.sync_if(durability, Some(ticket)).map(|()| log);
                }
                (Tried::Taken(..), _) => {}
            }
        }
    }

    fn tell_written(&self) {
        self.store.context().signals.wake_dozing();
    }

    /// There is no group for a batch of so many bytes: makes one, as soon as there is room. `frees`: the batch has nothing but trims,
    /// truncations and deletes.
    ///
    /// # Errors
    /// `NoSpace`: nothing happened. Those of the log.
    fn make_room(&self, len: usize, frees: bool) -> Result<()> {
        self.reserve.refresh();
        if frees {
            return match self.store.lane.preparation().provide(len, Need::Deletes) {
                Err(e) if e.kind() == ErrorKind::NoSpace => self.room.provide_last(len),
                provided => provided,
            };
        }
        match self.store.lane.preparation().provide(len, Need::Usual) {
            Err(e) if e.kind() == ErrorKind::NoSpace && self.store.space.has_own_limit() => {
                self.wait_for_room(len, e)
            }
            provided => provided,
        }
    }

    fn wait_for_room(&self, len: usize, mut refused: Error) -> Result<()> {
        let context = self.store.context().clone();
        let space = &self.store.space;
        let end_ns = context.now_ns().saturating_add(STALL_NS);
        space.write_waits_for(self.store.lane.preparation().next_len());
        context.signals.notify_work();
        let outcome = context.wait_until(|| {
            if let Err(e) = context.health.check_sound().and_then(|()| context.check_open()) {
                return Some(Err(e));
            }
            self.reserve.refresh();
            // Asked first: what ends meanwhile has made room.
            let may_free = self.may_free();
            match self.store.lane.preparation().provide(len, Need::Usual) {
                Err(e) if e.kind() == ErrorKind::NoSpace => refused = e,
                provided => return Some(provided),
            }
            let patient = may_free && context.now_ns() < end_ns;
            (!patient).then(|| Err(refused.clone()))
        });
        space.write_waits_for(0);
        outcome
    }

    /// True if something is under way, or could be, that frees room.
    pub fn may_free(&self) -> bool {
        let is_moving = self.moves.is_moving();
        let can_move = !self.store.context().health.out_of_space();
        can_move && (is_moving || self.sealer.has_to_seal() || self.collector.to_collect().is_some())
    }

    /// Whether an append whose LSN is taken has been done already. False: look again.
    ///
    /// # Errors
    /// `AlreadyExists` if other bytes are there; those of reading.
    fn is_there(&self, op: &Op<'_>, found: (Found, u64)) -> Result<bool> {
        let Op::Append { log, lsn, bytes } = *op else { return Ok(false) };
        let mut there = Vec::new();
        let row = self.records.row_of(log, lsn, found);
        match row.and_then(|(source, row)| self.records.bytes_of(source, &row, &mut there)) {
            Ok(()) if there == bytes => Ok(true),
            Ok(()) => Err(self.catalog.view().log(log)?.exists(lsn)),
            // It was moved or has gone: the next try finds out.
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests;
