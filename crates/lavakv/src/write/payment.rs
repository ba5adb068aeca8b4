//! The price of a write where a limit is near: paid a piece at a time, at the price of the moment, before anything is locked,
//! so that whoever does not write waits for nothing. See `throttle`.

use super::WritePath;
use super::need::Need;
use super::patience::{Patience, busy};
use super::throttle::{Charged, Pressure};
use crate::context::event::StallCause;
use crate::tree::family::{Family, ReadState};
use base::Result;
use std::sync::Arc;

/// What a write still owes.
#[derive(Debug)]
pub(crate) struct Payment {
    left_bytes: u64,
    /// It only deletes: it does not pay for space.
    frees: bool,
    /// It goes neither through memory nor through level 0.
    aside: bool,
    /// What it was charged, nanoseconds.
    charged_ns: u64,
    /// What it waited for, and how long.
    slept: Option<(StallCause, u64)>,
}

/// What a payment can do now.
pub(crate) enum Paid {
    /// All is paid, or nothing is asked any more.
    All,
    /// It needs this for the next piece.
    Needs(Need),
    /// What others owe takes longer than it may wait.
    NotInTime(StallCause),
}

impl Payment {
    /// For so many bytes of a write.
    pub fn of_write(bytes: u64, frees: bool) -> Payment {
        Payment { left_bytes: bytes, frees, aside: false, charged_ns: 0, slept: None }
    }

    /// For bytes of a value in a file of its own, which pay for the garbage and the space alone.
    fn of_segment(bytes: u64) -> Payment {
        let bytes = if base::canary::is("segments-pay-nothing") { 0 } else { bytes };
        Payment { left_bytes: bytes, frees: false, aside: true, charged_ns: 0, slept: None }
    }

    /// Pays what it can, if what others owe is paid before `until_ns` (see [`super::throttle::Pacer::charge`]).
    pub fn pay(&mut self, writes: &WritePath, families: &[Arc<Family>], until_ns: u64) -> Result<Paid> {
        if self.slept.is_some() {
            writes.context.health.check().inspect_err(|_| self.book(writes))?;
        }
        while self.left_bytes > 0 {
            let pressure = pressure(writes, families);
            let pressure = if self.aside { pressure.of_space() } else { pressure };
            let Some((rate, cause)) = pressure.allowed_rate() else { break };
            if cause == StallCause::Space && self.frees {
                break;
            }
            let charged = writes.pacer.charge(writes.context.now_ns(), self.left_bytes, rate, until_ns);
            let Some(Charged { bytes: paid, cost_ns, sleep_ns }) = charged else {
                self.book(writes);
                return Ok(Paid::NotInTime(cause));
            };
            self.charged_ns += cost_ns;
            let first_only = base::canary::is("writes-pay-for-their-first-piece");
            self.left_bytes = if first_only { 0 } else { self.left_bytes - paid };
            if sleep_ns > 0 {
                let total_ns = self.slept.map_or(0, |(_, ns)| ns) + sleep_ns;
                self.slept = Some((cause, total_ns));
                return Ok(Paid::Needs(Need::Time(sleep_ns, cause)));
            }
        }
        self.book(writes);
        Ok(Paid::All)
    }

    /// The write came to nothing: it owes nothing.
    pub fn refund(&mut self, writes: &WritePath) {
        writes.pacer.refund(std::mem::take(&mut self.charged_ns));
    }

    fn book(&mut self, writes: &WritePath) {
        self.left_bytes = 0;
        if let Some((cause, total_ns)) = self.slept.take() {
            writes.context.record_stall(cause, total_ns);
        }
    }
}

impl WritePath {
    /// Pays for bytes of a value in a file of its own, and waits meanwhile.
    pub fn pay_for_segment(&self, family: &Arc<Family>, bytes: u64, patience: &mut Patience) -> Result<()> {
        family.check_served()?;
        let mut payment = Payment::of_segment(bytes);
        loop {
            match payment.pay(self, std::slice::from_ref(family), patience.until_ns())? {
                Paid::All => return Ok(()),
                Paid::Needs(need) => patience.wait(self, &need)?,
                Paid::NotInTime(cause) => {
                    payment.refund(self);
                    return Err(busy(cause));
                }
            }
        }
    }
}

fn pressure(writes: &WritePath, families: &[Arc<Family>]) -> Pressure {
    let (memory, options) = (&writes.space.memory, &writes.context.options);
    let mut p = Pressure {
        memory_used: memory.used(),
        // Memtables grow in pieces of up to a megabyte: near the limit writers must be slow before the last one.
        memory_max: (options.memory_bytes - options.memtable_bytes / 8) as u64,
        backlog: writes.drain.left_to_flush(memory.backlog()),
        flush_bytes_per_s: writes.drain.flush.get(),
        l0_bytes_per_s: writes.drain.l0_bytes_per_s(),
        gc_bytes_per_s: writes.drain.gc.get(),
        ..Default::default()
    };
    if let Some((room, margin)) = writes.space.room() {
        (p.space_room, p.space_margin) = (room, margin);
    }
    let limited = writes.space.has_own_limit();
    families.iter().for_each(|family| family.look(|read_state| add(&mut p, read_state, limited)));
    // Where compactions cannot go on nobody sorts anything, however slowly writers go: memory, level 0 and space bound what comes.
    if p.is_slow_for_levels() && writes.context.health.is_stuck(writes.context.now_ns()) {
        p.excess_percent = 0;
    }
    // While the user holds collection off nobody takes garbage away, however slowly writers go; nor what damaged files
    // keep.
    if p.garbage_over_percent > 0 && writes.drain.gc_is_paused() {
        p.garbage_over_percent = 0;
    }
    p
}

/// What one family adds.
fn add(p: &mut Pressure, read_state: &ReadState, limited: bool) {
    if !read_state.is_damaged {
        p.garbage_over_percent = p.garbage_over_percent.max(read_state.summary.garbage_over_percent(limited));
    }
    if !read_state.is_damaged && read_state.chain.excess_percent > p.excess_percent {
        p.excess_percent = read_state.chain.excess_percent;
        p.absorbed_bytes_per_s = read_state.chain.absorbed_bytes_per_s;
    }
    let files = read_state.chain.l0_depth as u64;
    if files > p.l0_files {
        p.l0_files = files;
        p.l0_slowdown = read_state.options.l0_slowdown_files as u64;
        p.l0_stop = read_state.options.l0_stop_files as u64;
    }
}
