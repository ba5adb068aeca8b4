//! Memtables that outgrow their budget while the log is replayed.
//!
//! # Algorithm
//!
//! The rule is that of a store at work (`write::admission::room`): the family with the largest memtable goes first. There it is one family, since a writer
//! waits for it; here nobody is served before the end, so it is as many as hold a part of the budget ([`round_bytes`]), in one edit. A
//! round costs a sync of each of its tables, one of the directory and one of the manifest. Families that did not take part grow on until it
//! is their turn: of a thousand that are equally busy none is flushed every time, and tables are longer and fewer. What is in
//! memory when the log ends stays there.
//!
//! # Invariants
//!
//! * Before the first round the whole log was read, is sound, bears the manifest out, **and is durable**. So a family may be flushed without
//!   the others: if a batch spans several, the half of those that were not flushed is in the log, whatever happens.
//! * Where the log refers to values in files that may not be durable ([`PlacedValues::is_any`]) that is not true of these. Then all families
//!   go into tables in one edit.

use super::inserts::Inserts;
use crate::large::placed::PlacedValues;
use crate::work::jobs::{Jobs, flush};
use base::sync::atomic::Ordering;
use base::{ErrorKind, Result};
use std::sync::Arc;

/// See the module.
pub(super) struct Overflow<'a> {
    jobs: &'a Arc<Jobs>,
    /// The whole log was judged, and is durable.
    judged: bool,
}

impl<'a> Overflow<'a> {
    pub fn new(jobs: &'a Arc<Jobs>) -> Overflow<'a> {
        Overflow { jobs, judged: false }
    }

    /// After each batch: flushes some of what was replayed if there is too much of it, and room for tables. What the log holds was in
    /// memory once. `judge`: judges the whole log, and makes it durable.
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

/// With so much in memory something of it is flushed: writers are to find room when the store serves.
fn memory_bytes_max(jobs: &Arc<Jobs>) -> u64 {
    jobs.context.memtables_bytes_max / 2
}

/// What a round takes at least: much less than there is, so that the others grow meanwhile.
fn round_bytes(jobs: &Arc<Jobs>) -> u64 {
    memory_bytes_max(jobs) / 4
}

/// Flushes those that have most in their memtables, so many bytes in all, in one edit. False if nothing is left.
fn flush_round(jobs: &Arc<Jobs>, bytes: u64) -> Result<bool> {
    let largest = jobs.tree.families.largest_memtables(bytes);
    {
        let mut writer = jobs.writes.memtables.lock();
        largest.iter().for_each(|family| jobs.writes.memtables.freeze(&mut writer, family));
    }
    flush::run_inline(jobs)
}

/// Flushes all that was replayed, before there are workers.
pub(crate) fn flush_all(jobs: &Arc<Jobs>) -> Result<()> {
    while flush_round(jobs, round_bytes(jobs))? {}
    Ok(())
}
