//! The throttle charge of a write where a limit is near. It is paid in pieces, each at the rate of
//! its moment, before any lock, so that the other writes do not wait for it. See [`super::price`].

use super::Admission;
use super::price::{Level0, WritePressure};
use super::wait_condition::WaitCondition;
use super::write_deadline::{WriteDeadline, busy};
use crate::context::event::StallCause;
use crate::context::saturating_ns;
use crate::context::write_rate_limiter::{ChargeDeadline, cost_ns, piece};
use crate::context::write_throttle::{CREDIT_PARTS, ChargedKind, Evaluation, WriteThrottle};
use crate::tree::family::{Family, ReadState};
use base::Result;
use std::sync::Arc;

/// The unpaid rest of a write's charge.
#[derive(Debug)]
pub(crate) struct ThrottleCharge {
    left_bytes: u64,
    payer: ChargedKind,
    /// Charges so far, nanoseconds, for a refund.
    charged: Vec<(Arc<WriteThrottle>, u64)>,
    /// The sleep so far, nanoseconds, and its last cause.
    slept: Option<(StallCause, u64)>,
}

/// The outcome of a step of a payment.
pub(crate) enum ChargeStep {
    /// All is paid, or no limit applies any more.
    All,
    /// The next piece can be charged when this is met.
    Needs(WaitCondition),
    /// The charges of earlier writes end after the deadline.
    NotInTime(StallCause),
}

impl ThrottleCharge {
    /// Creates the charge of a write of `bytes`.
    pub fn of_write(bytes: u64, frees: bool) -> ThrottleCharge {
        let payer = if frees { ChargedKind::Deletes } else { ChargedKind::Write };
        ThrottleCharge { left_bytes: bytes, payer, charged: Vec::new(), slept: None }
    }

    /// Creates the charge for bytes of a value in a file of its own: for garbage and space only.
    fn of_segment(bytes: u64) -> ThrottleCharge {
        ThrottleCharge { left_bytes: bytes, payer: ChargedKind::Segment, charged: Vec::new(), slept: None }
    }

    /// Charges the next pieces, if the charges of earlier writes end before `until_ns` (see
    /// [`crate::context::write_rate_limiter::WriteRateLimiter::charge`]).
    pub fn pay(
        &mut self,
        admission: &Admission,
        families: &[Arc<Family>],
        until_ns: u64,
    ) -> Result<ChargeStep> {
        let epoch = admission.context.signals.state_epoch();
        let admits = |gate: &WriteThrottle| gate.verdict(self.payer).admits(self.left_bytes, epoch);
        // The usual case: there is no limit, as far as the kept verdicts say.
        if self.slept.is_none()
            && admits(&admission.gate)
            && families.iter().all(|family| admits(&family.gate))
        {
            self.left_bytes = 0;
            return Ok(ChargeStep::All);
        }
        if self.slept.is_some() {
            admission.context.health.check().inspect_err(|_| self.book(admission))?;
        }
        while self.left_bytes > 0 {
            let limits = self.limits(admission, families);
            let Some(lowest) = limits.iter().min_by_key(|limit| limit.rate) else { break };
            let (now_ns, piece) = (admission.context.now_ns(), piece(self.left_bytes, lowest.rate));
            // A write with a deadline is charged in full, but waits at most until the deadline.
            let in_time =
                |l: &Limit<'_>| l.gate.pacer.is_paid_by(now_ns, cost_ns(self.left_bytes, l.rate), until_ns);
            let piece = if limits.iter().all(in_time) { piece } else { self.left_bytes };
            let Ok((sleep_ns, cause)) = self.charge(admission, &limits, now_ns, piece, until_ns) else {
                self.book(admission);
                return Ok(ChargeStep::NotInTime(lowest.cause));
            };
            self.left_bytes -= piece;
            if sleep_ns > 0 {
                let total_ns = self.slept.map_or(0, |(_, ns)| ns) + sleep_ns;
                self.slept = Some((cause, total_ns));
                return Ok(ChargeStep::Needs(WaitCondition::Time(sleep_ns, cause)));
            }
        }
        self.book(admission);
        Ok(ChargeStep::All)
    }

    /// Returns the limits of the store and of each family of the write. Empty: there is no charge.
    fn limits<'a>(&self, admission: &'a Admission, families: &'a [Arc<Family>]) -> Vec<Limit<'a>> {
        let epoch = admission.context.signals.state_epoch();
        let credit_bytes_max = admission.context.options.memtable_bytes as u64 / CREDIT_PARTS;
        let mut limits = Vec::new();
        let mut add = |gate: &'a Arc<WriteThrottle>, pressure: &dyn Fn() -> WritePressure| {
            let evaluate = || {
                let pressure = pressure().on(self.payer);
                let credit_bytes = pressure.credit_bytes().min(credit_bytes_max);
                Evaluation { allowed: pressure.allowed_rate(), credit_bytes }
            };
            let verdict = gate.verdict(self.payer);
            let allowed = verdict.allowed(self.left_bytes, epoch, || admission.context.now_ns(), evaluate);
            limits.extend(allowed.map(|(rate, cause)| Limit { gate, rate, cause }));
        };
        add(&admission.gate, &|| of_all(admission));
        families.iter().for_each(|family| add(&family.gate, &|| of_family(admission, family)));
        limits
    }

    /// Charges a piece at each limit. Returns the longest sleep and its cause; an error if it ends
    /// too late.
    fn charge(
        &mut self,
        admission: &Admission,
        limits: &[Limit<'_>],
        now_ns: u64,
        piece: u64,
        until_ns: u64,
    ) -> std::result::Result<(u64, StallCause), ()> {
        let budget_ns = saturating_ns(admission.context.options.stall_budget);
        let until = ChargeDeadline { ns: until_ns, debt_ns_max: budget_ns };
        let mut longest = (0, StallCause::Memory);
        for Limit { gate, rate, cause } in limits {
            let mut cost_ns = cost_ns(piece, *rate);
            if *cause == StallCause::L0 {
                // The stop bounds level 0 in any case. So the total debt of all writers stays
                // within the stall budget.
                cost_ns = cost_ns.min(budget_ns.saturating_sub(gate.pacer.owed_ns(now_ns)));
            }
            let sleep_ns = gate.pacer.charge(now_ns, cost_ns, until).ok_or(())?;
            match self.charged.iter_mut().find(|(of, _)| Arc::ptr_eq(of, gate)) {
                Some((_, charged_ns)) => *charged_ns += cost_ns,
                None => self.charged.push((Arc::clone(gate), cost_ns)),
            }
            if sleep_ns > longest.0 {
                longest = (sleep_ns, *cause);
            }
        }
        Ok(longest)
    }

    /// Refunds the charges of a write that failed before it was logged.
    pub fn refund(&mut self) {
        self.charged.drain(..).for_each(|(gate, cost_ns)| gate.pacer.refund(cost_ns));
    }

    fn book(&mut self, admission: &Admission) {
        self.left_bytes = 0;
        if let Some((cause, total_ns)) = self.slept.take() {
            admission.context.record_stall(cause, total_ns);
        }
    }
}

/// A limit on the rate of a write, and the gate that charges for it.
struct Limit<'a> {
    gate: &'a Arc<WriteThrottle>,
    /// Bytes per second.
    rate: u64,
    cause: StallCause,
}

impl Admission {
    /// Pays for bytes of a value in a file of its own, with the waits. Returns the payment, for a
    /// refund.
    pub fn pay_for_segment(
        &self,
        family: &Arc<Family>,
        bytes: u64,
        patience: &mut WriteDeadline,
    ) -> Result<ThrottleCharge> {
        family.check_served()?;
        let mut payment = ThrottleCharge::of_segment(bytes);
        let paid = self.pay_all_of(&mut payment, family, patience);
        paid.inspect_err(|_| payment.refund()).map(|()| payment)
    }

    fn pay_all_of(
        &self,
        payment: &mut ThrottleCharge,
        family: &Arc<Family>,
        patience: &mut WriteDeadline,
    ) -> Result<()> {
        loop {
            match payment.pay(self, std::slice::from_ref(family), patience.until_ns())? {
                ChargeStep::All => return Ok(()),
                ChargeStep::Needs(need) => patience.wait(self, &need)?,
                ChargeStep::NotInTime(cause) => return Err(busy(Some(cause))),
            }
        }
    }
}

/// Returns the pressure of memory and space, which all families share.
fn of_all(admission: &Admission) -> WritePressure {
    let (memory, context) = (&admission.space.memory, &admission.context);
    let (space_room, space_margin) = admission.space.room().unwrap_or_default();
    let backlog = memory.backlog();
    let now_ns = if backlog > 0 { context.now_ns() } else { 0 };
    WritePressure {
        memory_used: memory.used(),
        // Memtables grow in pieces of up to a megabyte, so writes must be slow before the last
        // piece.
        memory_max: context.memtables_bytes_max - context.options.memtable_bytes as u64 / 8,
        backlog: admission.drain.left_to_flush(backlog),
        flush_bytes_per_s: admission.drain.flush_bytes_per_s(now_ns),
        gc_bytes_per_s: admission.drain.gc.get(),
        space_room,
        space_margin,
        ..Default::default()
    }
}

/// Returns the pressure of one family: level 0, the levels below, and garbage.
fn of_family(admission: &Admission, family: &Family) -> WritePressure {
    let limited = admission.space.has_own_limit();
    let mut p = WritePressure {
        flush_bytes_per_s: admission.drain.flush.get(),
        gc_bytes_per_s: admission.drain.gc.get(),
        ..family.look(|read_state| seen_of(read_state, limited, admission.context.options.memtable_bytes))
    };
    if let Some(l0) = &mut p.l0 {
        l0.draining = family.level_0.draining();
        l0.bytes_per_s = family.level_0.bytes_per_s(admission.context.now_ns());
    }
    // Where compactions are stuck, slower writes do not help: memory, level 0 and space bound them.
    if p.is_slow_for_levels() && admission.context.health.is_stuck(admission.context.now_ns()) {
        p.excess_percent = 0;
    }
    // While collection is paused, slower writes do not help.
    if p.garbage_over_percent > 0 && admission.drain.gc_is_paused() {
        p.garbage_over_percent = 0;
    }
    p
}

/// Returns the part of the pressure that follows from the read state.
fn seen_of(read_state: &ReadState, limited: bool, memtable_bytes: usize) -> WritePressure {
    let (chain, options) = (&read_state.chain, &read_state.options);
    let mut p = WritePressure::default();
    if !read_state.is_damaged {
        p.garbage_over_percent = read_state.summary.garbage_over_percent(limited);
        (p.excess_percent, p.absorbed_bytes_per_s) = (chain.excess_percent, chain.absorbed_bytes_per_s);
    }
    if chain.l0_depth > options.expert.l0_slowdown_files {
        let active = (read_state.active.bytes() as f64 / memtable_bytes as f64).min(1.0);
        let coming = read_state.frozen.len() as f64 + active;
        p.l0 = Some(Level0 {
            depth: chain.l0_depth as f64 + coming,
            slowdown: options.expert.l0_slowdown_files as f64,
            stop: options.expert.l0_stop_files as f64,
            ..Default::default()
        });
    }
    p
}

#[cfg(all(test, not(loom)))]
mod tests;
