//! Cleanup: removes unreferenced files, and rolls a long manifest.
//!
//! Pruning decides in the order of manifest edits, not under the mutex of the work in progress.
//! Between its decision to drop a vSST and the publication of that edit, a collection may pick the
//! same file from the earlier view. The install of that collection finds the file gone and removes
//! its own outputs (`tree::install`). Nothing is lost, because the file held no live record.

use super::claim::Claim;
use super::{ClaimedJob, Jobs};
use crate::files::data_file::DataFile;
use crate::plan::in_progress::InProgressSet;
use base::Result;
use std::sync::Arc;
use store::run::{Job, JobClass, Progress};
use version::Edit;

pub(crate) struct CleanupJob {
    jobs: Arc<Jobs>,
    /// True if names or vSSTs can be pruned.
    prune: bool,
    /// Dropped last.
    _claim: Claim,
}

/// Claims the cleanup.
pub(super) fn claim(jobs: &Arc<Jobs>, set: &mut InProgressSet, prune: bool) -> ClaimedJob {
    set.running.cleanup = true;
    let claim = Claim::new(jobs, |set| set.running.cleanup = false);
    let jobs = jobs.clone();
    Box::new(move || Box::new(CleanupJob { jobs, prune, _claim: claim }))
}

/// Returns whether names or vSSTs can be pruned; `None`: there is nothing to clean up.
pub(super) fn is_wanted(jobs: &Jobs) -> Option<bool> {
    jobs.large.segments.sweep();
    let prune = has_unreferenced(jobs);
    let wanted = prune || jobs.files.obsolete.has_ready() || jobs.files.manifest.should_roll();
    wanted.then_some(prune)
}

/// Returns whether names or vSSTs could be pruned.
fn has_unreferenced(jobs: &Jobs) -> bool {
    jobs.tree.families.with_work().0.iter().any(|f| {
        let read_state = f.read_state();
        read_state.may_prune
            && !values::prune(&read_state.version, &read_state.ledger, &jobs.files.pins).0.is_empty()
    })
}

impl Job for CleanupJob {
    fn class(&self) -> JobClass {
        JobClass::Cleanup
    }

    fn step(&mut self) -> Result<Progress> {
        let jobs = &self.jobs.clone();
        if self.prune {
            prune(jobs)?;
        }
        remove_unread(jobs)?;
        jobs.tree.refresh_space();
        // While the store shrinks to a lower limit, not every step is logged.
        if !jobs.space.ceiling.is_above_limit() {
            jobs.tree.tell_ceiling(jobs.log.records().is_some())?;
        }
        if jobs.files.manifest.should_roll() {
            jobs.files.manifest.commits().roll()?;
        }
        Ok(Progress::Done)
    }

    fn abandon(&mut self) {}
}

/// Removes files without remaining references: from readers, or from memtables with values in
/// separate files.
///
/// # Errors
/// Those of [`crate::tree::Tree::remove_obsolete`].
pub(crate) fn remove_unread(jobs: &Jobs) -> Result<()> {
    jobs.large.segments.sweep();
    jobs.tree.remove_obsolete()
}

/// Prunes names and vSSTs that no table references and no running job has pinned.
fn prune(jobs: &Jobs) -> Result<()> {
    let (mut removed, mut dropped) = (Vec::new(), 0);
    jobs.tree.install_everywhere(|state| {
        let mut records = Vec::new();
        for family in state.families.values() {
            // The few changes since the last published state are covered incrementally.
            let Some(own) = jobs.tree.families.get(family.id) else { continue };
            let seen = own.read_state();
            let ledger = seen.ledger.after(&seen.version, &family.version);
            let (drops, files) = values::prune(&family.version, &ledger, &jobs.files.pins);
            dropped += (drops.len() - files.len()) as u64;
            records.extend(drops);
            removed.extend(files.into_iter().map(DataFile::Vsst));
        }
        Ok(Edit(records))
    })?;
    jobs.context.stats.vssts_pruned.add(removed.len() as u64);
    jobs.context.stats.aliases_pruned.add(dropped);
    jobs.files.obsolete.add(removed);
    Ok(())
}
