//! The write path: how operations reach the log and are applied.
//!
//! 1. Under the order lock, the writer checks each operation against the state and the earlier
//!    operations of the batch. If the LSN of a record is taken, the writer releases the lock and
//!    compares the bytes. It leaves the append out if they are equal.
//! 2. The batch is appended to the log and applied. From then on readers see it, and it survives a
//!    process crash.
//! 3. A durable write waits for the sync of its commit group.
//!
//! A write that fails with `NoSpace`, `Busy` or an error of an operation changes nothing.
//!
//! After any failure, in the foreground or the background, no write is acknowledged. Written data
//! may be lost then, and the index may disagree with the log. Reads continue. Writes fail with the
//! first error until the store is opened again.
//!
//! Trims, truncations and deletes free space, so they can use reserved space: see `room`.

use crate::catalog::Catalog;
use crate::collect::Collector;
use crate::entry::LogId;
use crate::full_volume::FullVolume;
use crate::hold::MoveLock;
use crate::index::RecordLocation;
use crate::log_writer::{AppendOutcome, LogWriter};
use crate::ops::{self, Op};
use crate::options::never_volatile;
use crate::records::RecordReader;
use crate::seal::Sealer;
use crate::space::Reserve;
use crate::store_handles::StoreHandles;
use crate::tails::RecordWaiters;
use crate::times::WriteTimes;
use base::{Error, ErrorKind, Result};
use std::collections::BTreeSet;
use std::sync::Arc;
use store::commit::{Completion, Durability, LogGroupPurpose, Ticket};
use store::secondary_engine::{BatchSink, EmbeddedPrimaryBatch, PrimaryWrite};

/// Maximum time that an append waits for garbage collection.
const STALL_NS: u64 = 10_000_000_000;

pub(crate) struct WritePath {
    store: Arc<StoreHandles>,
    catalog: Arc<Catalog>,
    records: Arc<RecordReader>,
    log: Arc<LogWriter>,
    room: Arc<FullVolume>,
    reserve: Arc<Reserve>,
    moves: Arc<MoveLock>,
    collector: Arc<Collector>,
    sealer: Arc<Sealer>,
    /// Readers waiting for records.
    tails: RecordWaiters,
    times: WriteTimes,
}

pub(crate) struct WriteParts {
    pub records: Arc<RecordReader>,
    pub log: Arc<LogWriter>,
    pub room: Arc<FullVolume>,
    pub reserve: Arc<Reserve>,
    pub moves: Arc<MoveLock>,
    pub collector: Arc<Collector>,
    pub sealer: Arc<Sealer>,
}

/// Sink for a batch of the host engine, which becomes an embedded batch of these operations.
struct Carrier<'a> {
    log: &'a LogWriter,
    ops: &'a [Op<'a>],
    /// Operations that are already done and change nothing.
    done: &'a BTreeSet<usize>,
    /// Outcome of an attempt that appended nothing.
    refused: Option<AppendOutcome>,
}

impl BatchSink for Carrier<'_> {
    fn append(&mut self, batch: &EmbeddedPrimaryBatch<'_>, durability: Durability) -> Result<Option<Ticket>> {
        match self.log.attempt(self.ops, self.done, Some(batch), durability)? {
            AppendOutcome::Written(ticket) => Ok(Some(ticket)),
            outcome => {
                self.refused = Some(outcome);
                Ok(None)
            }
        }
    }
}

impl WritePath {
    pub fn new(store: &Arc<StoreHandles>, catalog: &Arc<Catalog>, parts: WriteParts) -> WritePath {
        let WriteParts { records, log, room, reserve, moves, collector, sealer } = parts;
        let (tails, times) = (RecordWaiters::default(), WriteTimes::new(&store.context().env));
        let (store, catalog) = (store.clone(), catalog.clone());
        WritePath { store, catalog, records, log, room, reserve, moves, collector, sealer, tails, times }
    }

    pub fn tails(&self) -> &RecordWaiters {
        &self.tails
    }

    pub fn times(&self) -> &WriteTimes {
        &self.times
    }

    /// Writes operations as one atomic batch.
    ///
    /// # Errors
    /// `Trimmed`, `AlreadyExists`, `NotFound` and `InvalidArgument` of an operation, `TooLarge` and
    /// `NoSpace`: nothing was written. Errors of writing the log.
    pub fn write(&self, ops: &[Op<'_>], durability: Durability) -> Result<()> {
        self.times.write(durability, || {
            let ticket = self.submit(ops, durability)?;
            self.log.sync_if(durability, ticket)
        })
    }

    /// Writes a durable batch as [`WritePath::write`] does, without waiting for durability. Readers
    /// see the batch at once.
    ///
    /// # Errors
    /// The errors of [`WritePath::write`]. The completion reports a later device failure.
    pub fn write_async(&self, ops: &[Op<'_>]) -> Result<Completion> {
        Ok(self
            .store
            .lane
            .when_durable(self.times.append_async.time(|| self.submit(ops, Durability::Durable))?))
    }

    /// Appends operations to the log and applies them. Returns the ticket to sync, or `None` if the
    /// log is empty.
    fn submit(&self, ops: &[Op<'_>], durability: Durability) -> Result<Option<Ticket>> {
        if !durability.is_logged() {
            return Err(never_volatile());
        }
        let mut done = BTreeSet::new();
        let frees = ops::frees(ops);
        self.room.admit(frees)?;
        loop {
            if done.len() == ops.len() {
                // The existing records may not be durable yet.
                return Ok(self.store.lane.wal().content().last_position());
            }
            match self.log.attempt(ops, &done, None, durability)? {
                AppendOutcome::Written(ticket) => {
                    self.tails.changed(ops.iter().map(Op::log));
                    self.tell_written();
                    self.catalog.cut_trimmed(ops);
                    return Ok(Some(ticket));
                }
                AppendOutcome::NoGroup(len) => self.make_room(len, frees)?,
                AppendOutcome::Taken(i, found) => {
                    if self.is_there(&ops[i], found)? {
                        done.insert(i);
                    }
                }
            }
        }
    }

    /// Writes a batch as [`WritePath::write`] does, with an embedded batch of the host engine.
    /// `host` assigns the sequence numbers of that batch and appends it to the given sink once. The
    /// host engine provides for its durability.
    ///
    /// # Errors
    /// The errors of [`WritePath::write`], and those of `host`: nothing was written.
    pub fn write_with_primary(&self, ops: &[Op<'_>], host: &mut PrimaryWrite<'_>) -> Result<()> {
        self.room.admit(false)?;
        let mut done = BTreeSet::new();
        loop {
            let mut carrier = Carrier { log: &self.log, ops, done: &done, refused: None };
            let written = host(&mut carrier);
            match carrier.refused {
                Some(AppendOutcome::NoGroup(len)) => self.make_room(len, false)?,
                Some(AppendOutcome::Taken(i, found)) => {
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
    /// `AlreadyExists`, `InvalidArgument` and `TooLarge` for the name, and `NoSpace`: nothing was
    /// written. Errors of writing the log.
    pub fn create(&self, name: &str, durability: Durability) -> Result<LogId> {
        self.room.admit(false)?;
        loop {
            match self.log.create(name, durability)? {
                (AppendOutcome::NoGroup(len), _) => self.make_room(len, false)?,
                (AppendOutcome::Written(ticket), log) => {
                    self.tell_written();
                    return self.log.sync_if(durability, Some(ticket)).map(|()| log);
                }
                (AppendOutcome::Taken(..), _) => {}
            }
        }
    }

    fn tell_written(&self) {
        self.store.context().signals.wake_dozing();
    }

    /// Provides a log group for a batch of `len` bytes, waiting for space if necessary. `frees`:
    /// the batch consists of trims, truncations and deletes.
    ///
    /// # Errors
    /// `NoSpace`: nothing was written. Errors of writing the log.
    fn make_room(&self, len: usize, frees: bool) -> Result<()> {
        self.reserve.refresh();
        if frees {
            return match self.store.lane.preparation().provide(len, LogGroupPurpose::Deletes) {
                Err(e) if e.kind() == ErrorKind::NoSpace => self.room.provide_last(len),
                provided => provided,
            };
        }
        match self.store.lane.preparation().provide(len, LogGroupPurpose::Usual) {
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
            // Check before `provide`: a job that ends in between has made space for `provide`.
            let may_free = self.may_free();
            match self.store.lane.preparation().provide(len, LogGroupPurpose::Usual) {
                Err(e) if e.kind() == ErrorKind::NoSpace => refused = e,
                provided => return Some(provided),
            }
            let patient = may_free && context.now_ns() < end_ns;
            (!patient).then(|| Err(refused.clone()))
        });
        space.write_waits_for(0);
        outcome
    }

    /// Returns true if a running or possible job can free space.
    pub fn may_free(&self) -> bool {
        let is_moving = self.moves.is_moving();
        let can_move = !self.store.context().health.out_of_space();
        can_move && (is_moving || self.sealer.has_to_seal() || self.collector.to_collect().is_some())
    }

    /// Returns whether an append whose LSN is taken repeats the existing record. False: the record
    /// has moved; try again.
    ///
    /// # Errors
    /// `AlreadyExists` if the record has other bytes; I/O errors.
    fn is_there(&self, op: &Op<'_>, found: (RecordLocation, u64)) -> Result<bool> {
        let Op::Append { log, lsn, bytes } = *op else { return Ok(false) };
        let mut there = Vec::new();
        let row = self.records.row_of(log, lsn, found);
        match row.and_then(|(source, row)| self.records.bytes_of(source, &row, &mut there)) {
            Ok(()) if there == bytes => Ok(true),
            Ok(()) => Err(self.catalog.view().log(log)?.exists(lsn)),
            // The record was moved or removed; the next attempt decides.
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests;
