//! Memtables that exceed their budget during the replay of the log.
//!
//! # Algorithm
//!
//! The rule is the one of a running store (`write::admission::room`): the family with the largest
//! memtable is flushed first. A running store flushes one family, because a writer waits for it.
//! Recovery serves no request before its end, so a round flushes as many families as hold a part of
//! the budget ([`round_bytes`]), in one edit. A round costs a sync of each of its tables, one of
//! the directory and one of the manifest. The other families grow on until it is their turn. So of
//! a thousand equally busy families none is flushed every time, and tables are fewer and longer.
//! Memtables at the end of the log stay in memory.
//!
//! # Invariants
//!
//! * Before the first round the whole log was read, is sound, agrees with the manifest, **and is
//!   durable**. So a family may be flushed without the others: if a batch spans several families,
//!   the log durably holds the changes of the others.
//! * If the log references values in files that may not be durable ([`PlacedValues::is_any`]), that
//!   does not hold for them. All families are then flushed in one edit.

use super::inserts::Inserts;
use crate::large::placed::PlacedValues;
use crate::work::jobs::{Jobs, flush};
use base::sync::atomic::Ordering;
use base::{ErrorKind, Result};
use std::sync::Arc;

/// The state of flushes during replay. See the module.
pub(super) struct Overflow<'a> {
    jobs: &'a Arc<Jobs>,
    /// True if the whole log was checked, and is durable.
    judged: bool,
}

impl<'a> Overflow<'a> {
    pub fn new(jobs: &'a Arc<Jobs>) -> Overflow<'a> {
        Overflow { jobs, judged: false }
    }

    /// Flushes some memtables if they exceed their budget and tables fit. Called after each batch.
    /// Replay may exceed the budget, because the log's content once was in memory. `judge`: checks
    /// the whole log, and makes it durable.
    pub fn relieve(
        &mut self,
        placed: &PlacedValues,
        inserts: &mut Inserts<'_>,
        judge: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let jobs = self.jobs;
        let over_bound = jobs.large.segments.over_bound.swap(false, Ordering::AcqRel);
        let is_large = over_bound || jobs.space.memory.used() >= memory_bytes_max(jobs);
        if !is_large || jobs.context.health.must_wait(jobs.context.env.clock.now_ns()) {
            return Ok(());
        }
        inserts.settle();
        if !std::mem::replace(&mut self.judged, true) {
            judge()?;
        }
        jobs.space.ceiling.bound_recovery(jobs.log.records().is_some());
        let all = over_bound || placed.is_any();
        match flush_round(jobs, if all { u64::MAX } else { round_bytes(jobs) }) {
            Err(e) if e.kind() == ErrorKind::NoSpace => Ok(()),
            flushed => flushed.map(drop),
        }
    }
}

/// Returns the budget during replay: less than the store's, so that writers find room once it
/// serves.
fn memory_bytes_max(jobs: &Arc<Jobs>) -> u64 {
    jobs.context.memtables_bytes_max / 2
}

/// Returns the minimum bytes of a round: much less than the budget, so that the other families can
/// grow meanwhile.
fn round_bytes(jobs: &Arc<Jobs>) -> u64 {
    memory_bytes_max(jobs) / 4
}

/// Flushes the largest memtables, `bytes` in total, in one edit. Returns false if nothing is left.
fn flush_round(jobs: &Arc<Jobs>, bytes: u64) -> Result<bool> {
    let largest = jobs.tree.families.largest_memtables(bytes);
    {
        let mut writer = jobs.writes.memtables.lock();
        largest.iter().for_each(|family| jobs.writes.memtables.rotate(&mut writer, family));
    }
    flush::run_inline(jobs)
}

/// Flushes all recovered memtables, before the workers start.
pub(crate) fn flush_all(jobs: &Arc<Jobs>) -> Result<()> {
    while flush_round(jobs, round_bytes(jobs))? {}
    Ok(())
}
