//! The deadline of a write, and the stall budget of the store.
//!
//! A write waits for memory, levels, log, garbage or space ([`super::wait_condition`]). The wait
//! for durability does not count: the device causes it.
//!
//! * **With a deadline** ([`crate::WriteOptions::wait_at_most`], or `no_wait`), a write that would
//!   wait longer fails with `Busy`, and nothing of it is written. A throttle charge
//!   ([`super::price`]) is known beforehand, so the write fails at once. A write that fails owes no
//!   charge; otherwise writes that retry again and again would delay all others.
//! * **Without a deadline** the write waits. A wait longer than [`crate::Options::stall_budget`] is
//!   counted and reported, once for each operation.
//!
//! An operation is one call of the API, or one piece of a stream.

use super::Admission;
use super::wait_condition::WaitCondition;
use crate::context::event::StallCause;
use crate::context::options::{Durability, WriteOptions};
use crate::context::{Context, saturating_ns};
use base::{Error, ErrorKind, Result};
use std::time::Duration;

/// The terms of a write: the promise of its acknowledgement, and its deadline.
#[derive(Debug)]
pub(crate) struct WriteTerms {
    pub durability: Durability,
    pub patience: WriteDeadline,
}

impl WriteTerms {
    /// Returns the terms of an operation that begins now.
    pub fn of(context: &Context, options: &WriteOptions) -> WriteTerms {
        let durability = options.durability.unwrap_or(context.options.durability);
        WriteTerms { durability, patience: WriteDeadline::new(context, options.wait_at_most) }
    }
}

/// The deadline of an operation and its waits so far: see the module.
#[derive(Debug)]
pub(crate) struct WriteDeadline {
    at_most: Option<Duration>,
    /// Deadline in clock nanoseconds; `None`: none.
    until_ns: Option<u64>,
    /// The sum of all waits; the longest wait and its cause.
    waited_ns: u64,
    longest: Option<(StallCause, u64)>,
}

impl WriteDeadline {
    /// Creates the deadline of an operation that begins now. Reads the clock only if there is one.
    pub fn new(context: &Context, at_most: Option<Duration>) -> WriteDeadline {
        let until_ns = at_most.map(|at_most| context.now_ns().saturating_add(saturating_ns(at_most)));
        WriteDeadline { at_most, until_ns, waited_ns: 0, longest: None }
    }

    /// Begins the next operation with the same terms: another piece of a stream.
    pub fn renew(&mut self, context: &Context) {
        *self = WriteDeadline::new(context, self.at_most);
    }

    /// Returns the deadline, in clock nanoseconds.
    pub fn until_ns(&self) -> u64 {
        self.until_ns.unwrap_or(u64::MAX)
    }

    /// Waits for a condition, up to the deadline.
    ///
    /// # Errors
    /// `Busy`: the deadline has passed, and nothing of the write was logged.
    pub fn wait(&mut self, admission: &Admission, need: &WaitCondition) -> Result<()> {
        if let Some(begun) = self.begin(admission, need)? {
            admission.wait(need, self.until_ns());
            self.end(admission, begun);
        }
        Ok(())
    }

    /// Begins a wait. `None`: the next step itself waits.
    ///
    /// # Errors
    /// `Busy`: the deadline has passed, and nothing of the write was logged.
    pub fn begin(&self, admission: &Admission, need: &WaitCondition) -> Result<Option<BegunWait>> {
        if need.is_of_next_step() {
            return Ok(None);
        }
        let cause = need.cause();
        let begun_ns = admission.context.now_ns();
        // `ThrottleCharge` has checked the deadline of a charge.
        let is_price = matches!(need, WaitCondition::Time(..));
        if !is_price && begun_ns >= self.until_ns() {
            if matches!(need, WaitCondition::Space { .. }) {
                // The write waits for space no longer.
                admission.space.write_waits_for(0);
            }
            return Err(busy(cause));
        }
        Ok(Some(BegunWait { cause, ns: begun_ns }))
    }

    /// Ends a wait. Returns its length, nanoseconds.
    pub fn end(&mut self, admission: &Admission, begun: BegunWait) -> u64 {
        let ns = admission.context.now_ns().saturating_sub(begun.ns);
        let budget_ns = saturating_ns(admission.context.options.stall_budget);
        let Some(cause) = begun.cause else { return ns };
        let was_within = self.waited_ns <= budget_ns;
        self.waited_ns = self.waited_ns.saturating_add(ns);
        if self.longest.is_none_or(|(_, longest)| ns > longest) {
            self.longest = Some((cause, ns));
        }
        if let Some((cause, _)) = self.longest.filter(|_| was_within && self.waited_ns > budget_ns) {
            admission.context.record_over_budget(cause, self.waited_ns);
        }
        ns
    }
}

/// A wait that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BegunWait {
    /// Its cause; `None`: a row lock, which is no stall.
    pub cause: Option<StallCause>,
    /// Its beginning, in clock nanoseconds.
    pub ns: u64,
}

/// Returns the error of a write whose deadline is too early.
pub(crate) fn busy(cause: Option<StallCause>) -> Error {
    let what = cause.map_or("a row lock of a transaction", StallCause::waits_for);
    let why = format!(
        "the write would exceed its deadline while it waits for {what}: try again later, or \
         extend the deadline"
    );
    Error::new(ErrorKind::Busy, why)
}
