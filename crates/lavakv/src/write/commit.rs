//! The write path: admission, sequence, log append, insert, publication, durability.
//!
//! A write is a state machine ([`WriteOp`]), so blocking and asynchronous calls drive the same steps.
//! A step that cannot go on releases its locks and returns a wait condition ([`Need`]); the next step
//! evaluates everything anew.
//!
//! | | part of a write | lock | function |
//! |---|---|---|---|
//! | 1 | pay the throttle charge | none | [`Payment::pay`] |
//! | 2 | find space, memory and room in level 0 and the log; rotate full memtables | writer | [`WriteOp::enter`] |
//! | 3 | assign sequences | writer | [`WriteOp::log_and_insert`] |
//! | 4 | append the batch to the log; a volatile batch is in no log | writer | [`WriteOp::append`] |
//! | 5 | register the insert in the visibility ring | writer | `Memtables::begin_insert` |
//! | 6 | insert into the memtables, beside other inserts | none | `Memtables::insert` |
//! | 7 | publish, as soon as all earlier inserts are done | none | `UnderWay::done` |
//! | 8 | if durable: wait until the log is durable up to this batch | none | [`WritePath::sync_lane`] |
//! | 9 | wait until the batch is visible; acknowledge | none | [`WriteOp::acknowledge`] |
//!
//! **Invariants**
//!
//! * *One order.* Parts 3 to 5 happen under one hold of the writer's lock. So the orders of sequences, of
//!   batches in the log and of publication are the same, and a reader sees a prefix of the writes.
//! * *No gap.* `next_seq` advances after the append. An append that fails leaves nothing in the log
//!   ([`Unlogged::Certain`]), or its outcome is unknown and the store is poisoned ([`Unlogged::Perhaps`]).
//! * *Whole batches.* Rotation holds the writer's lock and waits for all registered inserts. So a frozen
//!   memtable holds whole, visible batches, and an insert keeps the memtables that were active at part 5.
//! * *Acknowledged last.* A durable batch may be visible before it is durable, but the call returns only
//!   when it is both. A failed sync poisons the store, and no later write is acknowledged.
//! * *Refused means unwritten.* Nothing is logged before part 2 has succeeded. `Busy`, `NoSpace` and the
//!   other kinds named at [`WriteOp::step`] promise that the batch is not in the store.
//!
//! Long batches, batches with segments and all batches under a space limit keep the writer's lock during
//! part 6 ([`WriteOp::lets_next_in`]). Under the lock a step waits for inserts in flight and, after a
//! change of lane, for a sync ([`carry`]); it never waits there for admission.
//!
//! **Several families.** Tables hold a prefix of all writes, whatever a loss of power takes. A flush syncs
//! the log first if another family has earlier changes, or a part of the same batch, in the log alone.
//! Otherwise a table could keep one half of a batch, and the log lose the other. Where log pages wait to be
//! superseded by flushes, all families flush in one edit instead ([`super::memtables`]). A volatile batch
//! is in no log: if it spans families, the next flush takes all of them in one edit.

mod carry;

use super::WritePath;
use super::admission::need::Need;
use super::admission::patience::{Patience, busy};
use super::admission::payment::{Paid, Payment};
use super::admission::room::{Tried, UNDER_WAY_BYTES_MAX};
use super::fate::of_unknown_fate;
use super::memtables::Writer;
use crate::batch::payload::Payload;
use crate::batch::{self, frame::Frame};
use crate::context::options::Durability;
use crate::files::log::TENANT;
use crate::large::draft::Draft;
use crate::tree::family::Family;
use base::sync::MutexGuard;
use base::sync::atomic::Ordering;
use base::{Error, ErrorKind, Result, SeqNo};
use std::borrow::Cow;
use std::sync::Arc;
use store::commit::{Ballast, Need as GroupNeed};
use store::guest::Carry;
use wal::{Lane, Position};

/// The outcome of a step.
pub(crate) enum WriteStep {
    /// The next step can be taken when this is met.
    Needs(Need),
    /// It is acknowledged.
    Done,
}

enum Stage {
    /// Before the append: charges are due, or room is missing.
    Start(Payment),
    Logged(Logged),
    Done,
}

/// A write that is in the log, if it is to be there, and in the memtables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logged {
    /// It is visible when this sequence is.
    pub last_seq: SeqNo,
    /// Up to where which lane is to be durable, if that was promised.
    pub to_be_durable: Option<(Lane, Position)>,
}

/// The state of a write between two steps.
pub(crate) struct WriteState {
    durability: Durability,
    stage: Stage,
    /// The segments that the payload refers to; kept from the moment in which it may be in the log.
    drafts: Vec<Draft>,
    tried: Tried,
    resort: Option<LastResort>,
    /// The end of the other lane, which must be durable before it is logged, and whether that was waited for already.
    behind: Option<(Lane, Position)>,
    waited: bool,
}

impl WriteState {
    /// Of a write that has not begun. It refers to these segments, which are finished; if it is not logged they are removed.
    pub fn new(payload: &Payload<'_>, durability: Durability, drafts: Vec<Draft>) -> WriteState {
        let payment = Payment::of_write(payload.weight() as u64, payload.is_delete_only());
        Self::at(Stage::Start(payment), durability, drafts)
    }

    fn at(stage: Stage, durability: Durability, drafts: Vec<Draft>) -> WriteState {
        WriteState {
            durability,
            stage,
            drafts,
            tried: Tried::default(),
            resort: None,
            behind: None,
            waited: false,
        }
    }

    /// The wait after the write is logged and inserted.
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
    /// Of a payload of one change: made before any lock is taken.
    frame: Frame,
    state: WriteState,
    /// Who appends it to the lane of records, as a part of a guest's batch.
    carrier: Option<&'a mut Carry<'a>>,
}

/// The outcome of the checks under the writer's lock.
enum Entered<'a> {
    /// It may be logged.
    Open(MutexGuard<'a, Writer>),
    Needs(Need),
}

impl<'a> WriteOp<'a> {
    pub fn new(writes: &'a WritePath, payload: Payload<'a>, durability: Durability) -> Self {
        Self::with_drafts(writes, payload, durability, Vec::new())
    }

    /// A write that refers to these segments, which are finished. If it is not logged they are removed.
    pub fn with_drafts(
        writes: &'a WritePath,
        payload: Payload<'a>,
        durability: Durability,
        drafts: Vec<Draft>,
    ) -> Self {
        let state = WriteState::new(&payload, durability, drafts);
        Self::resumed(writes, payload, state)
    }

    /// A write that goes on where it was paused.
    pub fn resumed(writes: &'a WritePath, payload: Payload<'a>, state: WriteState) -> Self {
        let frame = match &payload {
            Payload::One(_, change) => Frame::of(change),
            Payload::Batch(_) => Frame::default(),
        };
        WriteOp { writes, payload, frame, state, carrier: None }
    }

    /// Returns the state from which [`WriteOp::resumed`] goes on.
    pub fn paused(mut self) -> WriteState {
        std::mem::replace(&mut self.state, WriteState::at(Stage::Done, Durability::Buffered, Vec::new()))
    }

    /// A write whose batch a guest's carries. If that does not take it now it ends, and nothing was written.
    pub fn carried(
        writes: &'a WritePath,
        payload: Payload<'a>,
        durability: Durability,
        carrier: &'a mut Carry<'a>,
    ) -> Self {
        let mut op = Self::new(writes, payload, durability);
        op.carrier = Some(carrier);
        op
    }

    /// The lane it goes to.
    fn lane(&self) -> Lane {
        if self.carrier.is_some() { Lane::LOG } else { Lane::FIRST }
    }

    /// Advances, if its throttle charge can be paid before `until_ns`.
    ///
    /// # Errors
    /// After an error the fate of the write is unknown until the store is reopened, except for the kinds that
    /// are returned before anything is logged (`InvalidArgument`, `TooLarge`, `NotFound`, `NoSpace`, `Busy`, `Closed`, `Poisoned`).
    pub fn step(&mut self, until_ns: u64) -> Result<WriteStep> {
        if let Some((lane, position)) = self.state.behind.take() {
            self.writes.sync_lane(lane, position)?;
        }
        match &mut self.state.stage {
            Stage::Start(_) => self.log_and_insert(until_ns),
            Stage::Logged(logged) => {
                let Logged { last_seq, to_be_durable } = *logged;
                if let Some((lane, position)) = to_be_durable {
                    self.writes.sync_lane(lane, position)?;
                }
                self.writes.memtables.wait_visible(last_seq)?;
                self.acknowledge()
            }
            Stage::Done => Ok(WriteStep::Done),
        }
    }

    /// Drives the steps to the end, with waits between them.
    pub fn run(mut self, mut patience: Patience) -> Result<()> {
        let outcome = self.run_with(&mut patience);
        if outcome.is_err() {
            self.refund();
        }
        outcome
    }

    /// Refunds the throttle charge of a write that failed before it was logged.
    pub fn refund(&mut self) {
        if let Stage::Start(payment) = &mut self.state.stage {
            payment.refund();
        }
    }

    fn run_with(&mut self, patience: &mut Patience) -> Result<()> {
        while let WriteStep::Needs(need) = self.step(patience.until_ns())? {
            patience.wait(&self.writes.admission, &need)?;
        }
        Ok(())
    }

    fn log_and_insert(&mut self, until_ns: u64) -> Result<WriteStep> {
        let count = self.payload.count();
        if let Payload::Batch(batch) = &self.payload {
            batch.check(0)?;
        }
        if self.payload.has_empty_key() {
            self.writes.check_empty_key()?;
        }
        if count == 0 {
            return self.log_nothing();
        }
        let families = self.families()?;
        if let Stage::Start(payment) = &mut self.state.stage {
            match payment.pay(&self.writes.admission, &families, until_ns)? {
                Paid::All => {}
                Paid::Needs(need) => return Ok(WriteStep::Needs(need)),
                Paid::NotInTime(cause) => return Err(busy(cause)),
            }
        }
        self.state.tried.forget_found();
        let mut writer = loop {
            match self.enter(&families)? {
                Entered::Open(writer) => break writer,
                Entered::Needs(Need::Look(what)) => self.state.tried.look(&self.writes.tree, what),
                Entered::Needs(need) => return Ok(WriteStep::Needs(need)),
            }
        };
        let (first_seq, last_seq) = (writer.next_seq, writer.next_seq + u64::from(count) - 1);
        if last_seq > base::MAX_SEQ {
            return Err(Error::new(ErrorKind::TooLarge, "the store has used up its sequence numbers"));
        }
        let position = match self.state.durability {
            Durability::Volatile => {
                self.leave_unlogged(&mut writer, last_seq, families.len() > 1);
                None
            }
            _ => match self.append(&mut writer, (first_seq, last_seq)) {
                Ok(Some(position)) => Some(position),
                Ok(None) => {
                    self.state.stage = Stage::Done;
                    return Ok(WriteStep::Done);
                }
                Err(Unlogged::Behind) => return Ok(WriteStep::Needs(Need::Durable)),
                Err(Unlogged::NotYet(need, resort)) => {
                    self.state.resort = Some(resort);
                    return Ok(WriteStep::Needs(need));
                }
                Err(Unlogged::Certain(e) | Unlogged::Perhaps(e)) => return Err(e),
            },
        };
        self.state.drafts.iter_mut().for_each(Draft::keep);
        writer.next_seq = last_seq + 1;
        // After the append, which may have frozen them.
        writer.changes(&families);
        self.insert(writer, &families, (first_seq, last_seq));
        let is_durable = self.state.durability == Durability::Durable;
        let to_be_durable = position.filter(|_| is_durable).map(|position| (self.lane(), position));
        self.wait_for(Logged { last_seq, to_be_durable })
    }

    /// Returns the wait condition of a write that is logged and inserted.
    fn wait_for(&mut self, logged: Logged) -> Result<WriteStep> {
        self.state.stage = Stage::Logged(logged);
        if logged.to_be_durable.is_some() {
            return Ok(WriteStep::Needs(Need::Durable));
        }
        if self.writes.tree.snapshots.visible() < logged.last_seq {
            return Ok(WriteStep::Needs(Need::Visible));
        }
        self.acknowledge()
    }

    /// The last step. A store that failed meanwhile acknowledges no write, whatever its durability.
    fn acknowledge(&mut self) -> Result<WriteStep> {
        self.state.stage = Stage::Done;
        self.writes.context.health.check_sound().map_err(of_unknown_fate)?;
        Ok(WriteStep::Done)
    }

    /// An empty batch. A durable one waits for all writes that were logged before it.
    fn log_nothing(&mut self) -> Result<WriteStep> {
        let writes = self.writes;
        self.state.stage = Stage::Done;
        if self.state.durability != Durability::Durable {
            return Ok(WriteStep::Done);
        }
        writes.context.health.check()?;
        // With the last that was logged all before it is durable, in both lanes.
        let last = writes.memtables.lock().last_logged.filter(|(lane, _)| *lane != Lane::FIRST);
        let last = last.or_else(|| Some((Lane::FIRST, writes.log.wal().last_position()?)));
        self.wait_for(Logged { last_seq: 0, to_be_durable: last })
    }

    /// Notes a volatile write, which is in no log.
    fn leave_unlogged(&self, writer: &mut Writer, last_seq: SeqNo, over_families: bool) {
        writer.volatile_seq = last_seq;
        if over_families {
            writer.volatile_over_families = true;
            self.writes.tree.together.flush_in_one_edit_to(last_seq);
        }
    }

    /// Logs the write in its lane, once all earlier batches of the other lane are durable (see [`carry`]). `None`: the
    /// guest does not take it now.
    fn append(&mut self, writer: &mut Writer, seqs: (SeqNo, SeqNo)) -> Result<Option<Position>, Unlogged> {
        let (writes, lane) = (self.writes, self.lane());
        if let Some((other, position)) = writes.other_lane(writer, lane) {
            if !std::mem::replace(&mut self.state.waited, true) {
                self.state.behind = Some((other, position));
                return Err(Unlogged::Behind);
            }
            writes.sync_lane(other, position).map_err(Unlogged::Certain)?;
        }
        let position = match &mut self.carrier {
            Some(carrier) => writes.carry(&self.payload, seqs, self.state.durability, carrier)?,
            None => Some(self.log(writer, seqs)?),
        };
        if let Some(position) = position {
            writer.last_logged = Some((lane, position));
            if lane == Lane::LOG {
                writer.carried_seq = seqs.1;
            }
        }
        Ok(position)
    }

    /// Appends the write to the log, which is given a group where it asks for one.
    fn log(
        &mut self,
        writer: &mut Writer,
        (first_seq, last_seq): (SeqNo, SeqNo),
    ) -> Result<Position, Unlogged> {
        let WriteOp { writes, payload, frame, state, .. } = self;
        let header = batch::header(first_seq, payload.count());
        let [head, key, between, value] = match payload {
            Payload::Batch(batch) => [batch.body(), &[], &[], &[]],
            Payload::One(_, change) => frame.around(change),
        };
        let pieces = [&header[..], head, key, between, value];
        let logged = loop {
            match writes.log.append(TENANT, &pieces, (first_seq, last_seq), state.durability) {
                Ok(position) => break Ok(position),
                Err(e) if e.kind() == ErrorKind::Busy => {
                    let len = pieces.iter().map(|piece| piece.len()).sum();
                    writes.provide_group(writer, len, payload.is_delete_only(), &mut state.resort)?;
                }
                Err(e) if e.is_refusal() || e.kind() == ErrorKind::TooLarge => {
                    return Err(Unlogged::Certain(e));
                }
                Err(e) => {
                    writes.context.health.poison(&e);
                    break Err(Unlogged::Perhaps(of_unknown_fate(e)));
                }
            }
        };
        // A restart may find the batch in the log, with its references.
        state.drafts.iter_mut().for_each(Draft::keep);
        logged
    }

    /// Inserts into the memtables. Earlier writes may still be inserting; visibility advances in log order.
    fn insert(
        &mut self,
        writer: MutexGuard<'_, Writer>,
        families: &[Arc<Family>],
        (first_seq, last_seq): (SeqNo, SeqNo),
    ) {
        let writes = self.writes;
        let is_alone = !self.lets_next_in();
        if is_alone {
            writes.memtables.settle();
        }
        let inserting = writes.memtables.begin_insert(last_seq);
        // The next write may be logged and inserted from here on.
        let writer = is_alone.then_some(writer);
        let bytes = writes.memtables.insert(&self.payload, families, first_seq);
        inserting.done();
        if let Some(mut writer) = writer
            && writes.large.segments.over_bound.swap(false, Ordering::AcqRel)
        {
            families.iter().for_each(|family| writes.memtables.freeze(&mut writer, family));
        }
        let stats = &writes.context.stats;
        writes.context.signals.wake_dozing();
        stats.write_batches.add(1);
        stats.write_entries.add(u64::from(self.payload.count()));
        stats.user_bytes_written.add(bytes);
    }

    /// True if other writes may be logged and inserted during this insert. A batch with segments inserts
    /// alone, and so does every batch under a space limit. A long batch does, too: the memory of inserts in
    /// flight is not booked yet.
    fn lets_next_in(&self) -> bool {
        self.state.drafts.is_empty()
            && self.payload.weight() <= UNDER_WAY_BYTES_MAX
            && !self.writes.space.is_limited()
    }

    /// Takes the writer's lock, and keeps it if there is room for the write on disk, in memory, in level 0
    /// and in the log.
    fn enter(&mut self, families: &[Arc<Family>]) -> Result<Entered<'a>> {
        let writes = self.writes;
        let mut writer = writes.memtables.enter();
        // Families are dropped under this lock.
        if let Some(family) = families.iter().find(|family| family.is_dropped()) {
            return Err(gone(&family.name));
        }
        let asked = (&self.payload, self.state.durability != Durability::Volatile);
        if let Some(need) = writes.admission.make_room(&mut writer, families, asked, &mut self.state.tried)? {
            return Ok(Entered::Needs(need));
        }
        writes.memtables.make_place()?;
        Ok(Entered::Open(writer))
    }

    fn families(&self) -> Result<Cow<'a, [Arc<Family>]>> {
        match &self.payload {
            Payload::One(family, _) if family.is_dropped() => Err(gone(&family.name)),
            Payload::One(family, _) => Ok(Cow::Borrowed(std::slice::from_ref(*family))),
            Payload::Batch(batch) => {
                let found = self.writes.tree.find_all(batch.families());
                found.map(Cow::Owned).map_err(|id| gone(&format!("with id {id}")))
            }
        }
    }
}

impl Drop for WriteOp<'_> {
    fn drop(&mut self) {
        // Given up, or failed, during a wait for memory: the writes behind it need not wait for it.
        if self.state.tried.ticket.is_some() {
            self.writes.admission.leave_queue(&mut self.writes.memtables.lock(), &mut self.state.tried);
        }
    }
}

/// Why a batch was not logged.
pub(crate) enum Unlogged {
    /// Nothing of it is in the log.
    Certain(Error),
    /// It may be found there after a restart.
    Perhaps(Error),
    /// Nothing of it is, and it may be tried again when this is met: its deletes wait for the room that a flush of
    /// everything frees.
    NotYet(Need, LastResort),
    /// Nothing of it is, and it may be tried again when the other lane, or its values in files, are durable.
    Behind,
}

/// A wait for a group, after a flush of everything.
#[derive(Debug)]
pub(crate) struct LastResort {
    /// The error to give if there is none.
    refusal: Error,
    /// Bytes of the log when it began.
    live_bytes: u64,
}

impl WritePath {
    /// Gives the log a group for a batch. Where there is no room for one, deletes wait for the room that a flush of everything frees.
    fn provide_group(
        &self,
        writer: &mut Writer,
        batch_len: usize,
        frees: bool,
        resort: &mut Option<LastResort>,
    ) -> Result<(), Unlogged> {
        if let Some(LastResort { refusal, live_bytes }) = resort.take() {
            // Everything was flushed, or something was found: or else the log must not have the room that a later flush needs.
            let found = self.log.files().has_fitting(wal::group_len_needed(batch_len))
                || self.log.wal().live_bytes() < live_bytes;
            return match found || self.space.memory.backlog() == 0 {
                true => self.log.provide(batch_len, GroupNeed::Last).map_err(Unlogged::Certain),
                false => Err(Unlogged::Certain(refusal)),
            };
        }
        let need = if frees { GroupNeed::Deletes } else { GroupNeed::Usual };
        match self.log.provide(batch_len, need) {
            Err(e) if frees && e.kind() == ErrorKind::NoSpace => {
                let live_bytes = self.log.wal().live_bytes();
                let need = Need::Group { least: wal::group_len_needed(batch_len), live_bytes };
                self.flush_for_room(writer);
                Err(Unlogged::NotYet(need, LastResort { refusal: e, live_bytes }))
            }
            provided => provided.map_err(Unlogged::Certain),
        }
    }

    /// There is no room for another group, not even for deletes: everything is flushed, so that groups of the log that are full
    /// come back. A flush leaves out entries that deletes hide, so it may find room where nothing else does.
    fn flush_for_room(&self, writer: &mut Writer) {
        self.memtables.freeze_all(writer);
        if self.log.files().give_ballast(Ballast::Jobs) {
            self.context.health.space_found();
        }
    }
}

fn gone(family: &str) -> Error {
    Error::not_found(format!("column family {family} does not exist: it was dropped"))
}

#[cfg(all(test, not(loom)))]
pub(crate) mod tests;
