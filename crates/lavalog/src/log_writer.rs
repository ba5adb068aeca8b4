//! The log writer: checks operations, appends them to the log and applies them under one lock.
//!
//! The writer holds the order lock from the check of a batch until the batch is applied. So
//! operations are applied in log order, and the result of the check still holds. The catalog of
//! logs changes only under this lock, except for changes of files, which are invisible to readers.
//!
//! The writer also tracks the groups with embedded batches of the host engine. Such a group must
//! remain replayable until that engine has flushed the batches.

use crate::catalog::Catalog;
use crate::entry::{self, LogId, Lsn};
use crate::index::RecordLocation;
use crate::logs::{GroupPosition, Logs};
use crate::manifest::TENANT;
use crate::ops::{Batch, Op};
use crate::recent::RecentRecords;
use crate::store_handles::StoreHandles;
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind, HashMap, Result, SeqNo};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::commit::{Durability, LogAddress, TenantId, Ticket};
use store::context::Counter;
use store::secondary_engine::EmbeddedPrimaryBatch;

/// Result of checking a batch.
enum Admitted {
    /// All operations may be written.
    Yes,
    /// The LSN of this operation is taken. With the look-up result and the value of
    /// [`crate::logs::GroupLogs::taken_in`].
    Taken(usize, (RecordLocation, u64)),
}

/// Effects of the earlier operations of a batch on one log.
#[derive(Default)]
struct EarlierOps {
    trimmed_below: Lsn,
    truncated_after: Option<Lsn>,
    appended: BTreeSet<Lsn>,
}

/// Checks a batch, except for the operations in `done`.
fn admit(logs: &Logs, ops: &[Op<'_>], done: &BTreeSet<usize>) -> Result<Admitted> {
    let mut before: HashMap<LogId, EarlierOps> = HashMap::default();
    for (i, op) in ops.iter().enumerate().filter(|(i, _)| !done.contains(i)) {
        if let Op::Create { name, .. } = op {
            logs.registry().check_create(name)?;
            continue;
        }
        let log = logs.log(op.log())?;
        let before = before.entry(op.log()).or_default();
        match *op {
            Op::Append { lsn, .. } => {
                if lsn < before.trimmed_below || before.appended.contains(&lsn) {
                    let why = format!(
                        "the batch appends record {lsn} of log {} twice, or after trimming it: split the batch",
                        log.name()
                    );
                    return Err(Error::invalid(why));
                }
                let found = log.admit(lsn)?;
                before.appended.insert(lsn);
                if let Some(found) = found.filter(|_| before.truncated_after.is_none_or(|after| lsn <= after))
                {
                    return Ok(Admitted::Taken(i, (found, logs.groups().taken_in())));
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

/// Outcome of an attempt to write a batch.
pub(crate) enum AppendOutcome {
    /// The batch is in the log and applied.
    Written(Ticket),
    /// The LSN of this operation is taken.
    Taken(usize, (RecordLocation, u64)),
    /// No log group has space for a batch of this many bytes.
    NoGroup(usize),
}

/// State under the order lock.
#[derive(Debug)]
struct Order {
    /// Sequence number of the next operation.
    next_seq: SeqNo,
}

pub(crate) struct LogWriter {
    store: Arc<StoreHandles>,
    catalog: Arc<Catalog>,
    recent: Arc<RecentRecords>,
    /// Guards the order of operations.
    order: Mutex<Order, rank::RecordOrder>,
    /// Guards the groups with embedded batches, each with its highest embedded sequence number.
    embedded: Mutex<BTreeMap<u64, SeqNo>, rank::RecordCarried>,
    appends: Counter,
    append_bytes: Counter,
}

impl LogWriter {
    /// Continues after replay. `embedded`: the groups with embedded batches.
    pub fn new(
        store: &Arc<StoreHandles>,
        catalog: &Arc<Catalog>,
        recent: &Arc<RecentRecords>,
        next_seq: SeqNo,
        embedded: BTreeMap<u64, SeqNo>,
    ) -> LogWriter {
        LogWriter {
            store: store.clone(),
            catalog: catalog.clone(),
            recent: recent.clone(),
            order: Mutex::new(Order { next_seq }),
            embedded: Mutex::new(embedded),
            appends: Counter::default(),
            append_bytes: Counter::default(),
        }
    }

    /// Returns the number of records appended since the store was opened.
    pub fn appends(&self) -> u64 {
        self.appends.get()
    }

    /// Returns the bytes of the records appended since the store was opened.
    pub fn append_bytes(&self) -> u64 {
        self.append_bytes.get()
    }

    /// Returns the sequence number of the next operation. All lower operations are applied.
    pub fn next_seq(&self) -> SeqNo {
        lock(&self.order).next_seq
    }

    /// Returns the next sequence number and the next log number, read atomically.
    pub fn next(&self) -> (SeqNo, LogId) {
        let order = lock(&self.order);
        (order.next_seq, self.catalog.view().registry().next_id())
    }

    /// Waits until every operation in the log is applied and its embedded batch is tracked.
    pub fn wait_applied(&self) {
        drop(lock(&self.order));
    }

    /// Returns the first group with an embedded batch that the host engine has not flushed. This
    /// group and all later ones must remain replayable.
    pub fn held_from(&self) -> Option<u64> {
        if lock(&self.embedded).is_empty() {
            return None;
        }
        let floors = self.store.lane.floors().all(&self.store.manifest.state().store);
        let floor =
            floors.iter().find(|(tenant, _)| *tenant == TenantId::FIRST).map_or(0, |(_, floor)| *floor);
        let mut embedded = lock(&self.embedded);
        embedded.retain(|_, last| *last >= floor);
        embedded.first_key_value().map(|(ltn, _)| *ltn)
    }

    /// Attempts to write a batch once: checks the operations that are not in `done` and appends
    /// them if all pass.
    ///
    /// # Errors
    /// Errors of an operation: nothing was written. Errors of writing the log.
    pub fn attempt(
        &self,
        ops: &[Op<'_>],
        done: &BTreeSet<usize>,
        embedded: Option<&EmbeddedPrimaryBatch<'_>>,
        durability: Durability,
    ) -> Result<AppendOutcome> {
        let mut order = lock(&self.order);
        let admitted = admit(&self.catalog.view(), ops, done)?;
        match admitted {
            Admitted::Taken(i, found) => Ok(AppendOutcome::Taken(i, found)),
            Admitted::Yes => {
                let left = ops.iter().enumerate().filter(|(i, _)| !done.contains(i));
                self.append(&mut order, left.map(|(_, op)| *op), embedded, durability)
            }
        }
    }

    /// Attempts once to create a log. Returns the outcome and the number of the new log.
    ///
    /// # Errors
    /// `AlreadyExists`, `InvalidArgument` and `TooLarge` for the name: nothing was written. Errors
    /// of writing the log.
    pub fn create(&self, name: &str, durability: Durability) -> Result<(AppendOutcome, LogId)> {
        let mut order = lock(&self.order);
        let log = {
            let logs = self.catalog.view();
            logs.registry().check_create(name)?;
            logs.registry().next_id()
        };
        Ok((self.append(&mut order, [Op::Create { log, name }].into_iter(), None, durability)?, log))
    }

    /// Makes all earlier writes durable.
    ///
    /// # Errors
    /// Errors of writing the log.
    pub fn sync(&self) -> Result<()> {
        self.store.check_writable()?;
        self.sync_if(Durability::Durable, self.store.lane.wal().content().last_position())
    }

    /// Waits for durability, if the write asks for it.
    ///
    /// # Errors
    /// The error that stopped the store.
    pub fn sync_if(&self, durability: Durability, ticket: Option<Ticket>) -> Result<()> {
        let health = &self.store.context().health;
        if let Some(ticket) = ticket.filter(|_| durability.waits_for_device()) {
            // The operations are in the log and may survive: a failed sync stops the store instead
            // of refusing the write.
            self.store.lane.sync(ticket).or_else(|e| {
                health.poison(&e);
                health.check()
            })?;
        }
        // A store that failed meanwhile acknowledges nothing, at any durability.
        health.check_sound()
    }

    /// Appends checked operations and applies them.
    fn append<'a>(
        &self,
        order: &mut Order,
        ops: impl Iterator<Item = Op<'a>> + Clone,
        embedded: Option<&EmbeddedPrimaryBatch<'a>>,
        durability: Durability,
    ) -> Result<AppendOutcome> {
        let (mut batch, mut offsets) =
            (embedded.map_or_else(|| Ok(Batch::new()), Batch::carrying)?, Vec::new());
        // The embedded batch takes a sequence number.
        let own = batch.count() as u64;
        for op in ops.clone() {
            offsets.push(batch.push(op)?);
        }
        let first_seq = order.next_seq;
        let last_seq = first_seq + batch.count() as u64 - 1;
        let health = &self.store.context().health;
        health.check()?;
        let appended =
            self.store.lane.append_placed(TENANT, &batch.pieces(), (first_seq, last_seq), durability);
        let (ticket, place) = match appended {
            Err(e) if e.kind() == ErrorKind::Busy => return Ok(AppendOutcome::NoGroup(batch.len())),
            Err(e) if e.is_refusal() || e.kind() == ErrorKind::TooLarge => return Err(e),
            // It is unknown whether the batch is in the log.
            appended => appended.inspect_err(|e| health.poison(e))?,
        };
        order.next_seq = last_seq + 1;
        let (mut records, mut record_bytes) = (0, 0);
        self.recent.push_all(ops.clone().zip(&offsets).filter_map(|(op, offset)| {
            let Op::Append { bytes, .. } = op else { return None };
            (records, record_bytes) = (records + 1, record_bytes + bytes.len() as u64);
            Some((place_of(place.at(*offset)), bytes))
        }));
        if let Some(embedded) = embedded {
            let mut groups = lock(&self.embedded);
            let last = groups.entry(place.ltn).or_default();
            *last = embedded.seqs.1.max(*last);
        }
        let placed = (first_seq + own..).zip(ops).zip(offsets);
        let placed = placed.map(|((seq, op), offset)| (seq, op, place_of(place.at(offset))));
        self.catalog.apply(placed).inspect_err(|e| health.poison(e))?;
        self.appends.add(records);
        self.append_bytes.add(record_bytes);
        Ok(AppendOutcome::Written(ticket))
    }
}

/// Converts a position of the log into a position of the index.
pub(crate) fn place_of(place: LogAddress) -> GroupPosition {
    GroupPosition { ltn: place.ltn, at: entry::at(place.block, place.pos) }
}
