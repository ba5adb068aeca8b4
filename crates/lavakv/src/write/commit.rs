//! The write path: admission, sequence, log append, insert, publication, durability.
//!
//! A write is a state machine ([`WriteOp`]), so blocking and asynchronous calls drive the same
//! steps. A step that cannot go on releases its locks and returns a wait condition
//! ([`WaitCondition`]); the next step evaluates everything anew.
//!
//! | | part of a write | lock | function |
//! |---|---|---|---|
//! | 1 | pay the throttle charge | none | [`Admission::enter`] |
//! | 2 | find space, memory and room in level 0 and the log; rotate full memtables | writer | [`Admission::enter`] |
//! | | only of a transaction: check that the keys that it has read are unchanged | writer | [`super::validation`] |
//! | | only where rows are locked: find those of other owners | writer | [`super::row_locks`] |
//! | 3 | assign sequences | writer | [`WriteOp::commit`] |
//! | 4 | append the batch to the log; a volatile batch is in no log | writer | [`WriteOp::append`] |
//! | 5 | register the insert in the visibility ring | writer | [`Memtables::insert`] |
//! | 6 | insert into the memtables, beside other inserts | none | [`Memtables::insert`] |
//! | 7 | publish, as soon as all earlier inserts are done | none | [`Memtables::insert`] |
//! | 8 | if durable: wait until the log is durable up to this batch | none | [`WriteOp::step`] |
//! | 9 | wait until the batch is visible; acknowledge | none | [`WriteOp::step`] |
//!
//! A buffered write leaves this file three times: for admission, for the log and for the memtables.
//!
//! **Invariants**
//!
//! * *One order.* Parts 3 to 5 happen under one hold of the writer's lock. So the orders of
//!   sequences, of batches in the log and of publication are the same, and a reader sees a prefix
//!   of the writes.
//! * *No gap.* `next_seq` advances after the append. An append that fails leaves nothing in the log
//!   ([`AppendFailure::Certain`]), or its outcome is unknown and the store is poisoned
//!   ([`AppendFailure::Perhaps`]).
//! * *Whole batches.* Rotation holds the writer's lock and waits for all registered inserts. So a
//!   frozen memtable holds whole, visible batches, and an insert keeps the memtables that were
//!   active at part 5.
//! * *Acknowledged last.* A durable batch may be visible before it is durable, but the call returns
//!   only when it is both. A failed sync poisons the store. Batches that are in the log by then
//!   become visible. Their calls fail with `Io` at any durability, since their fate is unknown
//!   until the next open. Later writes are refused.
//! * *Refused means unwritten.* Nothing is logged before part 2 has succeeded. `Busy`, `NoSpace`
//!   and the other kinds named at [`WriteOp::step`] promise that the batch is not in the store.
//!
//! Long batches, batches with segments and all batches under a space limit keep the writer's lock
//! during part 6 ([`WriteOp::inserts_alone`]). A step never waits for admission under the lock. The
//! table in [`super::memtables`] lists its waits there.
//!
//! **Several families.** Tables hold a prefix of all writes, whatever a loss of power takes. A
//! flush syncs the log first if another family has earlier changes, or a part of the same batch, in
//! the log alone. Otherwise a table could keep one half of a batch, and the log lose the other.
//! Where log pages wait to be superseded by flushes, all families flush in one edit instead
//! ([`super::memtables`]). A volatile batch is in no log: if it spans families, the next flush
//! takes all of them in one edit.

mod embedded_batch;

use super::WritePath;
use super::admission::room::UNDER_WAY_BYTES_MAX;
use super::admission::wait_condition::WaitCondition;
use super::admission::write_deadline::WriteDeadline;
use super::admission::{Entered, Entry};
use super::conditions::Conditions;
use super::fate::of_unknown_fate;
use super::memtables::Writer;
use super::operands;
use super::row_locks::LockOwner;
use crate::batch;
use crate::batch::payload::{Body, Payload};
use crate::context::options::Durability;
use crate::files::log::TENANT;
use crate::large::pending_segment::PendingSegment;
use base::{Error, ErrorKind, Result, SeqNo};
use std::borrow::Cow;
use store::commit::{LogGroupPurpose, ReservePurpose};
use store::secondary_engine::{BatchSink, EmbeddedPrimaryBatch};
use wal::{Lane, Position};

/// The outcome of a step.
pub(crate) enum WriteStep {
    /// The next step can be taken when this is met.
    Needs(WaitCondition),
    /// The write is acknowledged.
    Done,
}

enum Stage {
    /// Before the append: charges are due, or room is missing.
    Start,
    Logged(Logged),
    Done,
}

/// A write in the log, unless it is volatile, and in the memtables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logged {
    /// Its last sequence, at which it is visible.
    pub last_seq: SeqNo,
    /// The lane and position that must be durable first, if the write promised durability.
    pub to_be_durable: Option<(Lane, Position)>,
}

/// The state of a write between two steps.
pub(crate) struct WriteState {
    durability: Durability,
    stage: Stage,
    /// The segments that the payload references; kept from the moment at which the payload may be
    /// in the log.
    drafts: Vec<PendingSegment>,
    /// Its charge, and its attempts to find room.
    entry: Entry,
    waits: Waits,
}

/// The waits of a write.
#[derive(Default)]
struct Waits {
    resort: Option<LastResort>,
    /// The end of its wait for row locks, in clock nanoseconds, once it has begun.
    locked_until_ns: Option<u64>,
    /// The end of the other lane, which must be durable before the append.
    behind: Option<(Lane, Position)>,
    /// The write has waited for the other lane already.
    was_behind: bool,
}

impl WriteState {
    /// Creates the state of a new write. `drafts`: the finished segments that it references,
    /// removed if it is not logged.
    pub fn new(payload: &Payload<'_>, durability: Durability, drafts: Vec<PendingSegment>) -> WriteState {
        let entry = Entry::of_write(payload);
        WriteState { durability, stage: Stage::Start, drafts, entry, waits: Waits::default() }
    }

    /// Sets the end of its wait for row locks, in clock nanoseconds.
    pub fn waits_for_rows_until(&mut self, until_ns: Option<u64>) {
        self.waits.locked_until_ns = until_ns;
    }

    /// Returns the remaining wait of a write that is logged and inserted.
    pub fn logged(&self) -> Option<Logged> {
        match self.stage {
            Stage::Logged(logged) => Some(logged),
            _ => None,
        }
    }
}

/// A write as resumable steps.
pub(crate) struct WriteOp<'a> {
    writes: &'a WritePath,
    payload: Payload<'a>,
    state: WriteState,
    /// The destination of the batch, if it is not the first lane: the batch of a secondary engine
    /// that embeds it.
    sink: Option<&'a mut dyn BatchSink>,
    /// The conditions of a write of a transaction.
    conditions: Option<&'a Conditions>,
}

impl<'a> WriteOp<'a> {
    pub fn new(writes: &'a WritePath, payload: Payload<'a>, durability: Durability) -> Self {
        Self::with_drafts(writes, payload, durability, Vec::new())
    }

    /// Creates a write that references finished segments. They are removed if it is not logged.
    pub fn with_drafts(
        writes: &'a WritePath,
        payload: Payload<'a>,
        durability: Durability,
        drafts: Vec<PendingSegment>,
    ) -> Self {
        let state = WriteState::new(&payload, durability, drafts);
        Self::resumed(writes, payload, state)
    }

    /// Continues a paused write.
    pub fn resumed(writes: &'a WritePath, payload: Payload<'a>, state: WriteState) -> Self {
        WriteOp { writes, payload, state, sink: None, conditions: None }
    }

    /// Returns the state from which [`WriteOp::resumed`] continues.
    pub fn paused(mut self) -> WriteState {
        let done = WriteState::new(&self.payload, Durability::Buffered, Vec::new());
        std::mem::replace(&mut self.state, WriteState { stage: Stage::Done, ..done })
    }

    /// Creates a write whose batch goes to a sink. If the sink cannot take it now, the write ends
    /// unwritten.
    pub fn into_sink(
        writes: &'a WritePath,
        payload: Payload<'a>,
        durability: Durability,
        sink: &'a mut dyn BatchSink,
    ) -> Self {
        let mut op = Self::new(writes, payload, durability);
        op.sink = Some(sink);
        op
    }

    /// Makes the write fail with `Conflict` if one of these conditions does not hold.
    pub fn under(mut self, conditions: Option<&'a Conditions>) -> Self {
        self.conditions = conditions;
        self
    }

    /// Returns the destination lane.
    fn lane(&self) -> Lane {
        if self.sink.is_some() { Lane::LOG } else { Lane::FIRST }
    }

    /// Takes a step, if the throttle charge can be paid before `until_ns`.
    ///
    /// # Errors
    /// After an error the fate of the write is unknown until the store is reopened, with these
    /// exceptions. `InvalidArgument`, `TooLarge`, `NotFound`, `NoSpace`, `Busy`, `Conflict`, `Closed`
    /// and `Poisoned` are returned before anything is logged.
    pub fn step(&mut self, until_ns: u64) -> Result<WriteStep> {
        if let Some((lane, position)) = self.state.waits.behind.take() {
            self.writes.sync_lane(lane, position)?;
        }
        match self.state.stage {
            Stage::Start => self.commit(until_ns),
            Stage::Logged(Logged { last_seq, to_be_durable }) => {
                if let Some((lane, position)) = to_be_durable {
                    self.writes.sync_lane(lane, position)?;
                }
                self.writes.memtables.wait_visible(last_seq)?;
                self.wait_for(Logged { last_seq, to_be_durable: None })
            }
            Stage::Done => Ok(WriteStep::Done),
        }
    }

    /// Drives the steps to the end, with waits between them.
    pub fn run(mut self, mut patience: WriteDeadline) -> Result<()> {
        loop {
            let stepped = match self.step(patience.until_ns()) {
                Ok(WriteStep::Done) => return Ok(()),
                Ok(WriteStep::Needs(need)) => patience.wait(&self.writes.admission, &need),
                Err(e) => Err(e),
            };
            stepped.inspect_err(|_| self.refund())?;
        }
    }

    /// Refunds the throttle charge of a write that failed before it was logged.
    pub fn refund(&mut self) {
        if matches!(self.state.stage, Stage::Start) {
            self.state.entry.payment.refund();
            if self.conditions.is_some() {
                // After a conflict it waits for space no longer.
                self.writes.space.write_waits_for(0);
            }
        }
    }

    /// Parts 1 to 7.
    fn commit(&mut self, until_ns: u64) -> Result<WriteStep> {
        let writes = self.writes;
        if self.payload.has_empty_key {
            writes.check_empty_key()?;
        }
        if self.payload.has_operands {
            operands::check(writes, &self.payload.body, self.state.durability.is_logged())?;
        }
        let families = match &self.payload.body {
            Body::One(family, ..) => Cow::Borrowed(std::slice::from_ref(*family)),
            Body::Batch(batch) => {
                batch.check(0)?;
                Cow::Owned(writes.tree.families.find_all(batch.families())?)
            }
        };
        if self.payload.count == 0 {
            return self.log_nothing();
        }
        let is_logged = self.state.durability.is_logged();
        let (entry, payload) = (&mut self.state.entry, &self.payload);
        // The pins are dropped after the lock.
        let (entered, _pins) = match self.conditions.and_then(|conditions| conditions.reads.as_ref()) {
            None => (writes.admission.enter(entry, payload, &families, is_logged, until_ns)?, None),
            Some(reads) => {
                let enter = || writes.admission.enter(entry, payload, &families, is_logged, until_ns);
                let (entered, pins) = reads.enter_unchanged(writes, enter)?;
                (entered, Some(pins))
            }
        };
        let mut writer = match entered {
            Entered::Open(writer) => writer,
            Entered::Needs(need) => {
                self.state.waits.locked_until_ns = None;
                return Ok(WriteStep::Needs(need));
            }
        };
        if (self.conditions.is_some() || writes.row_locks.is_any())
            && let Some(need) = self.row_lock_obstacle(until_ns)?
        {
            return Ok(WriteStep::Needs(need));
        }
        let (first_seq, last_seq) = writer.sequences_of(self.payload.count)?;
        let mut position = None;
        if !is_logged {
            self.leave_unlogged(&mut writer, last_seq, families.len() > 1);
        } else {
            match self.append(&mut writer, (first_seq, last_seq)) {
                Ok(Some(end)) => position = Some((self.lane(), end)),
                Ok(None) => {
                    self.state.stage = Stage::Done;
                    return Ok(WriteStep::Done);
                }
                Err(AppendFailure::Behind) => return Ok(WriteStep::Needs(WaitCondition::Durable)),
                Err(AppendFailure::NotYet(need, resort)) => {
                    self.state.waits.resort = Some(resort);
                    return Ok(WriteStep::Needs(need));
                }
                Err(AppendFailure::Certain(e) | AppendFailure::Perhaps(e)) => return Err(e),
            }
        }
        self.state.drafts.iter_mut().for_each(PendingSegment::keep);
        writer.next_seq = last_seq + 1;
        let is_alone = self.inserts_alone();
        writes.memtables.insert(writer, &self.payload, &families, (first_seq, last_seq), is_alone);
        if let Some(owner) = self.owner() {
            owner.release();
        }
        let to_be_durable = position.filter(|_| self.state.durability.waits_for_device());
        self.wait_for(Logged { last_seq, to_be_durable })
    }

    /// Returns the owner of the row locks under which it writes.
    fn owner(&self) -> Option<&'a LockOwner> {
        self.conditions.and_then(|conditions| conditions.owner.as_ref())
    }

    /// Returns the wait condition of a write of rows that others have locked.
    fn row_lock_obstacle(&mut self, deadline_ns: u64) -> Result<Option<WaitCondition>> {
        let (owner, until_ns) = (self.owner(), &mut self.state.waits.locked_until_ns);
        let wait = self.writes.row_locks.obstacle(&self.payload, owner, (until_ns, deadline_ns))?;
        if wait.is_none() {
            self.state.waits.locked_until_ns = None;
        }
        Ok(wait.map(WaitCondition::RowLock))
    }

    /// Returns the wait condition of a write that is logged and inserted, or acknowledges it. A
    /// store that failed meanwhile acknowledges no write, whatever its durability.
    fn wait_for(&mut self, logged: Logged) -> Result<WriteStep> {
        self.state.stage = Stage::Logged(logged);
        if logged.to_be_durable.is_some() {
            return Ok(WriteStep::Needs(WaitCondition::Durable));
        }
        if self.writes.tree.snapshots.visible() < logged.last_seq {
            return Ok(WriteStep::Needs(WaitCondition::Visible));
        }
        self.state.stage = Stage::Done;
        self.writes.context.health.check_sound().map_err(of_unknown_fate)?;
        Ok(WriteStep::Done)
    }

    /// Handles an empty batch. A durable one waits for all writes that were logged before it: a
    /// transaction may have read some of them.
    fn log_nothing(&mut self) -> Result<WriteStep> {
        let writes = self.writes;
        self.state.stage = Stage::Done;
        if let Some(conditions) = self.conditions {
            conditions.reads.as_ref().map_or(Ok(()), |reads| reads.check_now(writes))?;
            conditions.owner.as_ref().map_or(Ok(()), LockOwner::check)?;
        }
        if !self.state.durability.waits_for_device() {
            return Ok(WriteStep::Done);
        }
        writes.context.health.check()?;
        // When the last logged batch is durable, all earlier ones are, in both lanes.
        let last = writes.memtables.lock().last_logged.filter(|(lane, _)| *lane != Lane::FIRST);
        let last = last.or_else(|| Some((Lane::FIRST, writes.log.wal().content().last_position()?)));
        self.wait_for(Logged { last_seq: 0, to_be_durable: last })
    }

    /// Records a volatile write, which is in no log.
    fn leave_unlogged(&self, writer: &mut Writer, last_seq: SeqNo, over_families: bool) {
        writer.volatile_seq = last_seq;
        if over_families {
            writer.volatile_over_families = true;
            self.writes.tree.together.flush_in_one_edit_to(last_seq);
        }
    }

    /// Appends the write to its lane, once all earlier batches of the other lane are durable (see
    /// [`embedded_batch`]). Provides a log group if the log asks for one. `None`: the secondary
    /// engine cannot take it now.
    fn append(
        &mut self,
        writer: &mut Writer,
        seqs: (SeqNo, SeqNo),
    ) -> Result<Option<Position>, AppendFailure> {
        let (writes, lane) = (self.writes, self.lane());
        let WriteOp { payload, state, sink, .. } = self;
        if let Some((other, position)) = writes.other_lane(writer, lane) {
            if !std::mem::replace(&mut state.waits.was_behind, true) {
                state.waits.behind = Some((other, position));
                return Err(AppendFailure::Behind);
            }
            writes.sync_lane(other, position).map_err(AppendFailure::Certain)?;
        }
        let header = batch::header(seqs.0, payload.count);
        let [head, key, between, value] = payload.pieces;
        let pieces = [&header[..], head, key, between, value];
        if let Some(sink) = sink {
            let position = writes.append_to(
                &mut **sink,
                EmbeddedPrimaryBatch { seqs, pieces: &pieces },
                state.durability,
            )?;
            if let Some(position) = position {
                (writer.last_logged, writer.embedded_seq) = (Some((lane, position)), seqs.1);
            }
            return Ok(position);
        }
        loop {
            match writes.log.append(TENANT, &pieces, seqs, state.durability) {
                Ok(position) => {
                    writer.last_logged = Some((lane, position));
                    return Ok(Some(position));
                }
                Err(e) if e.kind() == ErrorKind::Busy => {
                    let len = pieces.iter().map(|piece| piece.len()).sum();
                    writes.provide_group(writer, len, payload.is_delete_only(), &mut state.waits.resort)?;
                }
                Err(e) if e.is_refusal() || e.kind() == ErrorKind::TooLarge => {
                    return Err(AppendFailure::Certain(e));
                }
                Err(e) => {
                    writes.context.health.poison(&e);
                    // A restart may find the batch in the log, with its references.
                    state.drafts.iter_mut().for_each(PendingSegment::keep);
                    return Err(AppendFailure::Perhaps(of_unknown_fate(e)));
                }
            }
        }
    }

    /// True if no other write may be logged and inserted during this insert. A batch with segments
    /// inserts alone, and so does every batch under a space limit. A long batch does, too: the
    /// memory of inserts in flight is not booked yet.
    fn inserts_alone(&self) -> bool {
        let is_short = self.state.drafts.is_empty() && self.payload.weight <= UNDER_WAY_BYTES_MAX;
        !is_short || self.writes.space.is_limited()
    }
}

impl Drop for WriteOp<'_> {
    fn drop(&mut self) {
        // The write was abandoned or failed during a wait for memory: later writes need not wait
        // for it.
        if self.state.entry.tried.ticket.is_some() {
            self.writes.admission.leave_queue(&mut self.writes.memtables.lock(), &mut self.state.entry.tried);
        }
    }
}

/// The reason why a batch was not logged.
pub(crate) enum AppendFailure {
    /// The batch is not in the log. (After a failed sync of the other lane the caller still gets
    /// `Io`.)
    Certain(Error),
    /// A restart may find the batch in the log.
    Perhaps(Error),
    /// The batch is not in the log and may be retried when the condition is met. Its deletes wait
    /// for the room that a flush of all memtables frees.
    NotYet(WaitCondition, LastResort),
    /// The batch is not in the log and may be retried when the other lane is durable.
    Behind,
}

/// A wait for a log group, after a flush of all memtables.
#[derive(Debug)]
pub(crate) struct LastResort {
    /// The error if no group becomes available.
    refusal: Error,
    /// Bytes of the log at its beginning.
    live_bytes: u64,
}

impl WritePath {
    /// Provides a log group for a batch. If there is no room, deletes wait for the room that a
    /// flush of all memtables frees.
    fn provide_group(
        &self,
        writer: &mut Writer,
        batch_len: usize,
        frees: bool,
        resort: &mut Option<LastResort>,
    ) -> Result<(), AppendFailure> {
        if let Some(LastResort { refusal, live_bytes }) = resort.take() {
            // The log takes from the reserve only if no flush is left to need it, or if flushes
            // have freed a group.
            let found = self.log.spares().has_fitting(wal::group_len_needed(batch_len))
                || self.log.wal().content().live_bytes() < live_bytes;
            return match found || self.space.memory.backlog() == 0 {
                true => self.log.provide(batch_len, LogGroupPurpose::Last).map_err(AppendFailure::Certain),
                false => Err(AppendFailure::Certain(refusal)),
            };
        }
        let need = if frees { LogGroupPurpose::Deletes } else { LogGroupPurpose::Usual };
        match self.log.provide(batch_len, need) {
            Err(e) if frees && e.kind() == ErrorKind::NoSpace => {
                let live_bytes = self.log.wal().content().live_bytes();
                let need = WaitCondition::Group { least: wal::group_len_needed(batch_len), live_bytes };
                self.flush_for_room(writer);
                Err(AppendFailure::NotYet(need, LastResort { refusal: e, live_bytes }))
            }
            provided => provided.map_err(AppendFailure::Certain),
        }
    }

    /// Flushes all memtables if there is no room for another log group, even for deletes: this
    /// releases full groups. A flush omits entries hidden by deletes, so it may fit where nothing
    /// else does.
    fn flush_for_room(&self, writer: &mut Writer) {
        self.memtables.freeze_all(writer);
        if self.log.spares().release_reserved(ReservePurpose::Jobs) {
            self.context.health.space_found();
        }
    }
}

#[cfg(all(test, not(loom)))]
pub(crate) mod tests;
