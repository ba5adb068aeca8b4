//! A write that nobody's stack holds: it owns what it writes, and goes on whenever somebody takes a step of it.
//!
//! The steps are those of every write ([`WriteOp`]). What a blocking call sleeps for is here a moment at which it is worth looking again:
//! the price of a write is a time, and for all else it looks every millisecond, as long as there is somebody who waits.

use super::WritePath;
use super::admission::need::Need;
use super::admission::patience::{Begun, Patience, busy};
use super::commit::{Logged, WriteOp, WriteState, WriteStep};
use super::large_value;
use crate::batch::payload::OwnedPayload;
use crate::context::event::StallCause;
use crate::context::options::Durability;
use crate::large::segments::threshold;
use base::{Error, ErrorKind, Result};
use std::sync::Arc;
use wal::{Lane, Position};

/// Who waits for what jobs bring about looks after so long.
const LOOK_NS: u64 = 1_000_000;

/// Where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    /// It is visible, and promises no more.
    Done,
    /// It is visible; it is durable when this lane of the log is, up to here.
    Logged(Lane, Position),
    /// It may go on then, in clock nanoseconds.
    Waits(u64),
    /// It would wait for the device now, or for another write, which this caller may not.
    Device,
}

/// See the module.
pub(crate) struct OwnedWrite {
    writes: Arc<WritePath>,
    payload: OwnedPayload,
    durability: Durability,
    patience: Patience,
    /// None: its long values have no files yet.
    state: Option<WriteState>,
    wait: Option<(Need, Begun)>,
}

impl OwnedWrite {
    /// `patience` began with the call that submits it.
    pub fn new(
        writes: &Arc<WritePath>,
        payload: OwnedPayload,
        durability: Durability,
        patience: Patience,
    ) -> OwnedWrite {
        let is_long = payload.longest_value() >= threshold(&writes.context.options);
        let state = (!is_long).then(|| WriteState::new(&payload.borrowed(), durability, Vec::new()));
        OwnedWrite { writes: writes.clone(), payload, durability, patience, state, wait: None }
    }

    /// It is in the log, or in memtables at least: whatever happens to it, it was written.
    fn logged(&self) -> Option<Logged> {
        self.state.as_ref().and_then(WriteState::logged)
    }

    /// The error of a write that nobody goes on with.
    pub fn given_up(&self, why: Error) -> Error {
        if self.logged().is_some() { why.with_kind(ErrorKind::Io) } else { why }
    }

    /// What a write is refused with that may wait no longer, before anything of it is logged: `None`, it may.
    pub fn expired(&self, now_ns: u64) -> Option<Error> {
        let cause = self.wait.as_ref().map_or(StallCause::Memory, |(_, begun)| begun.cause);
        (now_ns >= self.until_ns()).then(|| busy(cause))
    }

    /// When it may wait no longer, in clock nanoseconds.
    pub fn until_ns(&self) -> u64 {
        if self.logged().is_some() { u64::MAX } else { self.patience.until_ns() }
    }

    /// Takes steps until it is visible, or has to wait. `may_block`: also for the device, as every blocking write does.
    ///
    /// # Errors
    /// Those of a write, to which it came.
    pub fn advance(&mut self, may_block: bool) -> Result<Stand> {
        loop {
            if let Some(logged) = self.logged() {
                return self.shown(logged, may_block);
            }
            if let Some(at_ns) = self.waits() {
                return Ok(Stand::Waits(at_ns));
            }
            if !may_block && !self.is_quick() {
                return Ok(Stand::Device);
            }
            let state = match self.state.take() {
                Some(state) => state,
                None => self.place()?,
            };
            let mut op = WriteOp::resumed(&self.writes, self.payload.borrowed(), state);
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
                // Those before it in the other lane, or values whose tail is full: the next step waits for the device itself.
                (Ok(WriteStep::Needs(_)), None) if may_block || is_logged => {}
                (Ok(WriteStep::Needs(_)), None) => return Ok(Stand::Device),
                _ => return Ok(Stand::Done),
            }
        }
    }

    /// It is logged: where it stands once it is visible. Those before it are put into the memtables at this moment by other threads, for which a
    /// caller looks but does not sleep.
    fn shown(&self, logged: Logged, may_block: bool) -> Result<Stand> {
        if !self.writes.memtables.sees(logged.last_seq) {
            if !may_block {
                return Ok(Stand::Device);
            }
            self.writes.memtables.wait_visible(logged.last_seq)?;
        }
        Ok(logged.to_be_durable.map_or(Stand::Done, |(lane, position)| Stand::Logged(lane, position)))
    }

    /// True if the next step waits neither for a file of its own nor for room in the log's buffer.
    fn is_quick(&self) -> bool {
        let log = || self.writes.log.get().is_some_and(|wal| wal.takes_at_once(self.log_len()));
        self.state.is_some() && (self.durability == Durability::Volatile || log())
    }

    /// Bytes in the log, or a few more.
    fn log_len(&self) -> usize {
        self.payload.borrowed().weight()
    }

    /// Its long values get files of their own.
    fn place(&mut self) -> Result<WriteState> {
        let empty = OwnedPayload::Batch(crate::batch::WriteBatch::new());
        let payload = std::mem::replace(&mut self.payload, empty);
        let (payload, drafts) = large_value::place(&self.writes, payload, &mut self.patience)?;
        self.payload = payload;
        Ok(WriteState::new(&self.payload.borrowed(), self.durability, drafts))
    }

    fn begin_wait(&mut self, need: Need, begun: Begun) {
        if !matches!(need, Need::Time(..)) {
            self.writes.context.signals.notify_work();
        }
        self.wait = Some((need, begun));
    }

    /// When to look again, in clock nanoseconds, if what it waits for is not there.
    fn waits(&mut self) -> Option<u64> {
        let (need, begun) = self.wait.as_ref()?;
        let (writes, now_ns) = (self.writes.clone(), self.writes.context.now_ns());
        let again_ns = match need {
            Need::Time(ns, _) => Some(begun.ns.saturating_add(*ns)).filter(|until_ns| now_ns < *until_ns),
            need => {
                let over = now_ns >= self.patience.until_ns() || writes.admission.is_met(need);
                (!over).then(|| now_ns.saturating_add(LOOK_NS).min(self.patience.until_ns()))
            }
        };
        if again_ns.is_none()
            && let Some((need, begun)) = self.wait.take()
        {
            let waited_ns = self.patience.end(&writes.admission, begun);
            // The price is booked by who pays it, as one wait.
            if !matches!(need, Need::Time(..)) {
                writes.context.record_stall(begun.cause, waited_ns);
            }
        }
        again_ns
    }
}

impl Drop for OwnedWrite {
    fn drop(&mut self) {
        // Given up while it waited: it owes nothing, and those behind it need not wait.
        if let Some(state) = self.state.take() {
            let mut op = WriteOp::resumed(&self.writes, self.payload.borrowed(), state);
            op.refund();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
