//! Asynchronous writes: a write that owns its payload, and advances whenever a thread takes a step
//! of it.
//!
//! The steps are those of every write ([`WriteOp`]). Where a blocking call sleeps, this write
//! returns the time of its next check. That is the end of its throttle charge, or a millisecond
//! later for all other conditions.

use super::WritePath;
use super::admission::wait_condition::WaitCondition;
use super::admission::write_deadline::{BegunWait, WriteDeadline, WriteTerms, busy};
use super::commit::{Logged, WriteOp, WriteState, WriteStep};
use super::conditions::Conditions;
use super::fate::of_unknown_fate;
use super::large_value;
use crate::batch::payload::OwnedPayload;
use crate::context::event::StallCause;
use crate::context::options::Durability;
use crate::large::segments::threshold;
use base::{Error, ErrorKind, Result};
use std::sync::Arc;
use wal::{Lane, Position};

/// Interval between two checks of a condition that jobs bring about.
const LOOK_NS: u64 = 1_000_000;

/// The state after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteProgress {
    /// Visible, and complete.
    Done,
    /// Visible. Complete when this lane of the log is durable up to the position.
    Logged(Lane, Position),
    /// Waits until this time, in clock nanoseconds.
    Waits(u64),
    /// The next step waits for the device or for another write, and this caller must not block.
    Device,
}

/// An asynchronous write: see the module.
pub(crate) struct PendingWrite {
    writes: Arc<WritePath>,
    payload: OwnedPayload,
    durability: Durability,
    patience: WriteDeadline,
    /// `None`: its long values are not in files yet.
    state: Option<WriteState>,
    wait: Option<(WaitCondition, BegunWait)>,
    conditions: Option<Conditions>,
}

impl PendingWrite {
    /// Creates a write under the conditions of a transaction, if it is of one.
    pub fn new(
        writes: &Arc<WritePath>,
        payload: OwnedPayload,
        terms: WriteTerms,
        conditions: Option<Conditions>,
    ) -> PendingWrite {
        // `patience` begins with the call that submits the write.
        let WriteTerms { durability, patience } = terms;
        let is_long = payload.longest_value() >= threshold(&writes.context.options);
        let state = (!is_long).then(|| {
            let mut state = WriteState::new(&payload.borrowed(), durability, Vec::new());
            // A wait for row locks begins here: many writes in one queue wait at the same time.
            if patience.until_ns() == u64::MAX {
                state.waits_for_rows_until(writes.row_locks.write_wait_end());
            }
            state
        });
        PendingWrite { writes: writes.clone(), payload, durability, patience, state, wait: None, conditions }
    }

    /// Returns the position of a write that was logged, or inserted if it is volatile.
    fn logged(&self) -> Option<Logged> {
        self.state.as_ref().and_then(WriteState::logged)
    }

    /// Returns the error of a write that is abandoned.
    pub fn given_up(&self, why: Error) -> Error {
        if self.logged().is_some() { why.with_kind(ErrorKind::Io) } else { why }
    }

    /// Returns the error of a write whose deadline has passed. `None`: it may wait longer.
    pub fn expired(&self, now_ns: u64) -> Option<Error> {
        let cause = self.wait.as_ref().map_or(Some(StallCause::Memory), |(_, begun)| begun.cause);
        (now_ns >= self.until_ns()).then(|| busy(cause))
    }

    /// Returns the deadline, in clock nanoseconds.
    pub fn until_ns(&self) -> u64 {
        if self.logged().is_some() { u64::MAX } else { self.patience.until_ns() }
    }

    /// Takes steps until the write is visible or has to wait. `may_block`: the steps may wait for
    /// the device.
    ///
    /// # Errors
    /// Those of [`WriteOp::step`], and `Busy` after the deadline.
    pub fn advance(&mut self, may_block: bool) -> Result<WriteProgress> {
        loop {
            if let Some(logged) = self.logged() {
                return self.shown(logged, may_block);
            }
            if let Some(at_ns) = self.waits() {
                return Ok(WriteProgress::Waits(at_ns));
            }
            if !may_block && !self.is_quick() {
                return Ok(WriteProgress::Device);
            }
            let state = match self.state.take() {
                Some(state) => state,
                None => self.place()?,
            };
            let op = WriteOp::resumed(&self.writes, self.payload.borrowed(), state);
            let mut op = op.under(self.conditions.as_ref());
            let stepped = op.step(self.patience.until_ns());
            let begun = match &stepped {
                Ok(WriteStep::Needs(need)) => self.patience.begin(&self.writes.admission, need),
                Ok(WriteStep::Done) => Ok(None),
                Err(e) => Err(e.clone()),
            };
            let begun = begun.inspect_err(|_| op.refund())?;
            let state = op.paused();
            let is_logged = state.logged().is_some();
            self.state = Some(state);
            match (stepped, begun) {
                (Ok(WriteStep::Needs(need)), Some(begun)) => self.begin_wait(need, begun),
                // The next step itself waits for the device.
                (Ok(WriteStep::Needs(_)), None) if may_block || is_logged => {}
                (Ok(WriteStep::Needs(_)), None) => return Ok(WriteProgress::Device),
                _ => return Ok(WriteProgress::Done),
            }
        }
    }

    /// Returns the state of a logged write. Other threads may be inserting earlier writes: a caller
    /// that must not block checks a few times and does not sleep.
    fn shown(&self, logged: Logged, may_block: bool) -> Result<WriteProgress> {
        if !self.writes.memtables.sees(logged.last_seq) {
            if !may_block {
                return Ok(WriteProgress::Device);
            }
            self.writes.memtables.wait_visible(logged.last_seq)?;
        }
        if let Some((lane, position)) = logged.to_be_durable {
            return Ok(WriteProgress::Logged(lane, position));
        }
        self.writes.context.health.check_sound().map_err(of_unknown_fate)?;
        Ok(WriteProgress::Done)
    }

    /// Returns true if the next step waits neither for a file of a long value nor for room in the
    /// log's buffer, and reads no table.
    fn is_quick(&self) -> bool {
        if self.conditions.as_ref().is_some_and(|conditions| conditions.reads.is_some()) {
            return false;
        }
        let log = || self.writes.log.get().is_some_and(|wal| wal.takes_at_once(self.log_len()));
        self.state.is_some() && (!self.durability.is_logged() || log())
    }

    /// Returns an upper bound of the bytes in the log.
    fn log_len(&self) -> usize {
        self.payload.borrowed().weight
    }

    /// Writes the long values to files of their own.
    fn place(&mut self) -> Result<WriteState> {
        let empty = OwnedPayload::Batch(crate::batch::WriteBatch::new());
        let payload = std::mem::replace(&mut self.payload, empty);
        let (payload, drafts) = large_value::place(&self.writes, payload, &mut self.patience)?;
        self.payload = payload;
        Ok(WriteState::new(&self.payload.borrowed(), self.durability, drafts))
    }

    fn begin_wait(&mut self, need: WaitCondition, begun: BegunWait) {
        if !matches!(need, WaitCondition::Time(..)) {
            self.writes.context.signals.notify_work();
        }
        self.wait = Some((need, begun));
    }

    /// Returns the time of the next check, in clock nanoseconds, if the write has to wait.
    fn waits(&mut self) -> Option<u64> {
        let (need, begun) = self.wait.as_ref()?;
        let (writes, now_ns) = (self.writes.clone(), self.writes.context.now_ns());
        let again_ns = match need {
            WaitCondition::Time(ns, _) => {
                Some(begun.ns.saturating_add(*ns)).filter(|until_ns| now_ns < *until_ns)
            }
            need => {
                let over = now_ns >= self.patience.until_ns() || writes.admission.is_met(need);
                (!over).then(|| now_ns.saturating_add(LOOK_NS).min(self.patience.until_ns()))
            }
        };
        if again_ns.is_none()
            && let Some((need, begun)) = self.wait.take()
        {
            let waited_ns = self.patience.end(&writes.admission, begun);
            // `ThrottleCharge` records the charge as one stall.
            if let Some(cause) = begun.cause.filter(|_| !matches!(need, WaitCondition::Time(..))) {
                writes.context.record_stall(cause, waited_ns);
            }
        }
        again_ns
    }
}

impl Drop for PendingWrite {
    fn drop(&mut self) {
        // Abandoned during a wait: it owes no charge, and later writes need not wait for it.
        if let Some(state) = self.state.take() {
            let mut op = WriteOp::resumed(&self.writes, self.payload.borrowed(), state);
            op.refund();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
