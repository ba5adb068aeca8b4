//! Memtables that outgrow their budget while the log is replayed.
//!
//! # Algorithm
//!
//! The rule is that of a store at work (`write::room`): who has most in its memtable goes first. There it is one family, since a writer
//! waits for it; here nobody is served before the end, so it is as many as hold a part of the budget ([`round_bytes`]), in one edit. A
//! round costs a sync of each of its tables, one of the directory and one of the manifest. Families that did not take part grow on until it
//! is their turn: of a thousand that are equally busy none is flushed every time, and tables are longer and fewer. What is in
//! memory when the log ends stays there.
//!
//! # Invariants
//!
//! * Before the first round the whole log was read, is sound, bears the manifest out, **and is durable**. So a family may be flushed without
//!   the others: if a batch spans several, the half of those that were not flushed is in the log, whatever happens.
//! * Where the log refers to values in files that may not be durable ([`Replayed::is_any`]) that is not true of these. Then all families
//!   go into tables in one edit.

use super::inserts::Inserts;
use super::{keep_number, must_know};
use crate::batch;
use crate::engine::Engine;
use crate::files::log::TENANT;
use crate::large::placement::Replayed;
use crate::work::jobs::flush;
use base::sync::atomic::Ordering;
use base::{ErrorKind, Result, SeqNo};
use version::State;
use wal::{LogGroup, RecoveryMode};

/// See the module.
pub(super) struct Overflow<'a> {
    engine: &'a Engine,
    /// Of the manifest, before the log was read.
    state: &'a State,
    groups: &'a [LogGroup],
    /// The whole log was judged.
    judged: bool,
}

impl<'a> Overflow<'a> {
    pub fn new(engine: &'a Engine, state: &'a State, groups: &'a [LogGroup]) -> Overflow<'a> {
        Overflow { engine, state, groups, judged: false }
    }

    /// After each batch: flushes some of what was replayed if there is too much of it, and room for tables. What the log holds was in
    /// memory once.
    pub fn relieve(&mut self, placed: &Replayed, inserts: &mut Inserts<'_>) -> Result<()> {
        let engine = self.engine;
        let over_bound = engine.writes.large.segments.over_bound.swap(false, Ordering::AcqRel);
        let is_large = over_bound || engine.space.memory.used() >= memory_bytes_max(engine);
        if !is_large || engine.context.health.must_wait(engine.context.env.clock.now_ns()) {
            return Ok(());
        }
        inserts.settle();
        if !std::mem::replace(&mut self.judged, true) && !base::canary::is("recovery-flushes-unjudged") {
            self.judge_log()?;
        }
        engine.space.bound_recovery(engine.log.records().is_some());
        let all = over_bound || placed.is_any() || base::canary::is("recovery-flushes-all-families");
        match flush_round(engine, if all { u64::MAX } else { round_bytes(engine) }) {
            Err(e) if e.kind() == ErrorKind::NoSpace => Ok(()),
            flushed => flushed.map(drop),
        }
    }

    /// Looks whether the whole log is sound and bears the manifest out, before anything of it is flushed: the edits of a flush
    /// would take the place of those that a manifest has lost at its end, and nobody would ever miss them. Its files get no number of
    /// one that the log comes to later. Then it is durable.
    fn judge_log(&self) -> Result<()> {
        let (engine, state) = (self.engine, self.state);
        let mut check = wal::only(TENANT, |_: SeqNo, payload: &[u8]| {
            let (_, _, mut entries) = batch::decode(payload)?;
            entries.try_for_each(|change| {
                let change = change?;
                keep_number(engine, &change)?;
                must_know(engine, state, change.family)
            })
        });
        let mode = if base::canary::is("recovery-flushes-before-the-log-is-durable") {
            RecoveryMode::ReadOnly
        } else {
            RecoveryMode::ReadWrite
        };
        let (env, dir) = (&engine.context.env, &engine.context.dir);
        let report = wal::recover(env, dir, state.store.uid, self.groups, mode, &mut check)?;
        engine.files.manifest.require_edit(report.witness_edit)
    }
}

/// With so much in memory something of it is flushed: writers are to find room when the store serves.
fn memory_bytes_max(engine: &Engine) -> u64 {
    engine.context.options.memory_bytes as u64 / 2
}

/// What a round takes at least: much less than there is, so that the others grow meanwhile.
fn round_bytes(engine: &Engine) -> u64 {
    memory_bytes_max(engine) / 4
}

/// Flushes those that have most in their memtables, so many bytes in all, in one edit. False if nothing is left.
fn flush_round(engine: &Engine, bytes: u64) -> Result<bool> {
    let largest = engine.tree.largest_memtables(bytes);
    {
        let mut writer = engine.writes.lock();
        largest.iter().for_each(|family| engine.writes.freeze(&mut writer, family));
    }
    flush::run_inline(&engine.jobs)
}

/// Flushes all that was replayed, before there are workers.
pub(crate) fn flush_all(engine: &Engine) -> Result<()> {
    while flush_round(engine, round_bytes(engine))? {}
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests;
