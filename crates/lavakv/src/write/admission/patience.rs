//! How long a write waits for the engine: what the call allows, and what the store's budget is.
//!
//! A write waits for memory, levels, log, garbage or space ([`super::need`]); the device, which makes it durable, is not the engine. Such waits
//! end in one of three ways:
//!
//! * The call says how long it may wait ([`crate::WriteOptions::wait_at_most`], at once with `no_wait`): a write that would have to
//!   wait longer fails with `Busy`, and nothing of it is written or placed. Where the engine knows beforehand how long it would take (the
//!   price of a write: [`super::price`]) the write fails at once; a write that fails owes nothing.
//! * It says nothing: the write waits. When it has waited for [`crate::Options::stall_budget`], that is counted and told, once for each
//!   operation.
//! * An operation is one call of the API: of a stream, each piece.

use super::Admission;
use super::need::Need;
use crate::context::Context;
use crate::context::event::StallCause;
use base::{Error, ErrorKind, Result};
use std::time::Duration;

/// See the module.
#[derive(Debug)]
pub(crate) struct Patience {
    at_most: Option<Duration>,
    /// In clock nanoseconds; `None`: as long as it takes.
    until_ns: Option<u64>,
    /// What it has waited, and for what longest.
    waited_ns: u64,
    longest: Option<(StallCause, u64)>,
}

impl Patience {
    /// Of an operation that begins now. (The clock is asked only if that matters.)
    pub fn new(context: &Context, at_most: Option<Duration>) -> Patience {
        let until = |at_most: Duration| {
            let ns = u64::try_from(at_most.as_nanos()).unwrap_or(u64::MAX);
            context.now_ns().saturating_add(ns)
        };
        Patience { at_most, until_ns: at_most.map(until), waited_ns: 0, longest: None }
    }

    /// The next operation of the same kind begins now: another piece of a stream.
    pub fn renew(&mut self, context: &Context) {
        *self = Patience::new(context, self.at_most);
    }

    /// Until when it may wait, in clock nanoseconds.
    pub fn until_ns(&self) -> u64 {
        self.until_ns.unwrap_or(u64::MAX)
    }

    /// Waits for what a step needs, as long as it may. An error: not that long, and nothing of the write was logged.
    pub fn wait(&mut self, admission: &Admission, need: &Need) -> Result<()> {
        if let Some(begun) = self.begin(admission, need)? {
            admission.wait(need, self.until_ns());
            self.end(admission, begun);
        }
        Ok(())
    }

    /// A wait for what a step needs begins. `None`: the next step waits itself. An error: it may not wait so long, and nothing of the write
    /// was logged.
    pub fn begin(&self, admission: &Admission, need: &Need) -> Result<Option<Begun>> {
        let Some(cause) = need.cause() else {
            return Ok(None);
        };
        let begun_ns = admission.context.now_ns();
        // What is paid for was granted: see `Payment`.
        let is_price = matches!(need, Need::Time(..));
        if !is_price && begun_ns >= self.until_ns() {
            if matches!(need, Need::Space { .. }) {
                // Nobody waits for it any more.
                admission.space.write_waits_for(0);
            }
            return Err(busy(cause));
        }
        Ok(Some(Begun { cause, ns: begun_ns }))
    }

    /// It is over. How long it took, nanoseconds.
    pub fn end(&mut self, admission: &Admission, begun: Begun) -> u64 {
        let ns = admission.context.now_ns().saturating_sub(begun.ns);
        let budget_ns = u64::try_from(admission.context.options.stall_budget.as_nanos()).unwrap_or(u64::MAX);
        let was_within = self.waited_ns <= budget_ns;
        self.waited_ns = self.waited_ns.saturating_add(ns);
        if self.longest.is_none_or(|(_, longest)| ns > longest) {
            self.longest = Some((begun.cause, ns));
        }
        if let Some((cause, _)) = self.longest.filter(|_| was_within && self.waited_ns > budget_ns) {
            admission.context.record_over_budget(cause, self.waited_ns);
        }
        ns
    }
}

/// A wait under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    /// For what.
    pub cause: StallCause,
    /// Since when, in clock nanoseconds.
    pub ns: u64,
}

/// Why a write that may not wait was refused.
pub(crate) fn busy(cause: StallCause) -> Error {
    let what = cause.waits_for();
    let why = format!(
        "the write would wait longer than it may, for {what}: try again later, or let it wait longer"
    );
    Error::new(ErrorKind::Busy, why)
}
