//! Reads the properties of tables written before the open, to find those with versions kept for
//! snapshots.
//!
//! A store at rest reads one table per step; a `compact_range` reads those of its family at once.
//! Tables whose entries have no sequence numbers hold one version of each key. An unreadable table
//! is skipped: its readers report the damage.

use super::claim::Claim;
use super::{ClaimedJob, Jobs};
use crate::plan::in_progress::InProgressSet;
use crate::tree::family::Family;
use base::Result;
use io::Cancel;
use lsm::TableSource;
use std::sync::Arc;
use store::run::{Job, JobClass, Progress};
use version::{FileMeta, Version};

/// The read job. See the module.
pub(crate) struct ReadRetainedJob {
    jobs: Arc<Jobs>,
    family: Arc<Family>,
    /// `None`: not listed yet.
    tables: Option<Vec<Arc<FileMeta>>>,
    /// Dropped last.
    _claim: Claim,
}

/// Claims the read, in place of a survey.
pub(super) fn claim(jobs: &Arc<Jobs>, set: &mut InProgressSet, family: Arc<Family>) -> ClaimedJob {
    set.running.survey = true;
    let claim = Claim::new(jobs, |set| set.running.survey = false);
    let jobs = jobs.clone();
    Box::new(move || Box::new(ReadRetainedJob { jobs, family, tables: None, _claim: claim }))
}

/// Reads all tables of the family, unless they are known.
///
/// # Errors
/// `Cancelled`.
pub(crate) fn read_all(jobs: &Jobs, family: &Family, cancel: Option<&Cancel>) -> Result<()> {
    if jobs.tree.kept.is_read(family.id) {
        return Ok(());
    }
    for file in tables_of(&family.read_state().version) {
        jobs.context.check_call(cancel)?;
        read(jobs, &file);
    }
    jobs.tree.kept.set_read(family.id);
    Ok(())
}

fn tables_of(version: &Version) -> Vec<Arc<FileMeta>> {
    let tables = version.levels.iter().flat_map(|level| level.iter());
    tables.filter(|file| file.seq_range().1 > 0).cloned().collect()
}

fn read(jobs: &Jobs, file: &Arc<FileMeta>) {
    if let Ok(table) = jobs.files.tables.table(file) {
        jobs.tree.kept.note(file.number, table.properties().retained.clone());
    }
}

impl Job for ReadRetainedJob {
    fn class(&self) -> JobClass {
        JobClass::Compaction
    }

    fn step(&mut self) -> Result<Progress> {
        let version = || tables_of(&self.family.read_state().version);
        match self.tables.get_or_insert_with(version).pop() {
            Some(file) => {
                read(&self.jobs, &file);
                Ok(Progress::More)
            }
            None => {
                self.jobs.tree.kept.set_read(self.family.id);
                Ok(Progress::Done)
            }
        }
    }

    fn rests(&self) -> bool {
        self.jobs.works_at_rest()
    }

    fn abandon(&mut self) {}
}
