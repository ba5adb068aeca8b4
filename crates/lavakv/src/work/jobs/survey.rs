//! A survey: estimates the unknown unexposed garbage of tables from key samples in their files.
//!
//! The manifest holds no samples. So all entries of a table written before the open count as
//! overwrites, for the throttle and for limits relative to the live data. The same holds for tables
//! written above such a table. A survey reads the samples of these tables and of those below them
//! ([`table::Ksst::notes`]), one table per step. Of short tables, and of tables in formats without
//! samples, it reads all entries.
//!
//! A version edit adds the estimates to the table descriptions, so that all values derived from a
//! version stay consistent. The encoded descriptions do not change. Compactions may replace the
//! tables meanwhile: the edit leaves out deleted tables.
//!
//! An unreadable table stays unknown in this version of the family. Its readers report the damage.

use super::claim::Claim;
use super::{ClaimedJob, Jobs};
use crate::plan::facts::FamilyFacts;
use crate::plan::in_progress::InProgressSet;
use crate::tree::family::{Family, ReadState};
use crate::tree::install::FamilyEdit;
use crate::tree::overwrites::OlderTables;
use crate::tree::unexposed_garbage::UnexposedGarbage;
use base::sync::lock;
use base::{HashSet, Result};
use lsm::TableSource;
use std::sync::Arc;
use store::run::{Job, JobClass, Progress};
use version::{FileMeta, Hides, Record, State, Version};

/// Maximum number of estimates per version edit.
const EDIT_TABLES_MAX: usize = 256;

/// The survey of one family. See the module.
pub(crate) struct SurveyJob {
    jobs: Arc<Jobs>,
    family: Arc<Family>,
    read_state: Arc<ReadState>,
    /// `None`: not listed yet.
    tables: Option<Tables>,
    estimates: Vec<Estimate>,
    /// True if a table stays unknown.
    is_incomplete: bool,
    /// Dropped last.
    _claim: Claim,
}

/// Tables of a version, with their levels.
struct Tables {
    /// Tables whose samples are not read yet.
    unread: Vec<Arc<FileMeta>>,
    /// Tables without an estimate.
    unknown: Vec<(usize, Arc<FileMeta>)>,
}

struct Estimate {
    level: usize,
    number: u64,
    hides: Hides,
}

/// Returns whether a survey of this family is due.
pub(super) fn is_wanted(family: &FamilyFacts, set: &InProgressSet) -> bool {
    let tried = set.learned.surveyed.get(&family.family.id);
    let is_tried = tried.is_some_and(|tried| tried.as_ptr() == Arc::as_ptr(&family.read_state.version));
    family.read_state.has_unknown_tables() && !is_tried
}

/// Claims a survey.
pub(super) fn claim(jobs: &Arc<Jobs>, set: &mut InProgressSet, family: Arc<Family>) -> ClaimedJob {
    set.running.survey = true;
    let claim = Claim::new(jobs, |set| set.running.survey = false);
    let (jobs, read_state) = (jobs.clone(), family.read_state());
    let (estimates, is_incomplete) = (Vec::new(), false);
    Box::new(move || {
        Box::new(SurveyJob {
            jobs,
            family,
            read_state,
            tables: None,
            estimates,
            is_incomplete,
            _claim: claim,
        })
    })
}

impl Tables {
    fn of(version: &Version) -> Tables {
        let mut unknown = Vec::new();
        for (level, files) in version.levels.iter().enumerate() {
            let may_hide = |nth: usize| UnexposedGarbage::likely_bytes_of(version, level, nth, None) > 0;
            let of_level = files.iter().enumerate().filter(|(_, file)| file.known.hides().is_none());
            unknown.extend(of_level.filter(|(nth, _)| may_hide(*nth)).map(|(_, file)| (level, file.clone())));
        }
        let (mut unread, mut seen) = (Vec::new(), HashSet::default());
        for (level, file) in &unknown {
            let below =
                older(version, *level, file).tables((file.smallest_user_key(), file.largest_user_key()));
            let own = below.into_iter().chain([file]).filter(|file| file.known.notes().is_none());
            unread.extend(own.filter(|file| seen.insert(file.number)).cloned());
        }
        Tables { unread, unknown }
    }
}

fn older<'v>(version: &'v Version, level: usize, file: &FileMeta) -> OlderTables<'v> {
    OlderTables::than_table(version, level, file, |_| false)
}

impl SurveyJob {
    /// Reads the sample of a table, or estimates the garbage below one. Returns false when the
    /// survey is complete.
    fn advance(&mut self) -> bool {
        let version = &self.read_state.version;
        let tables = self.tables.get_or_insert_with(|| Tables::of(version));
        if let Some(file) = tables.unread.pop() {
            match self.jobs.files.tables.table(&file).and_then(|table| table.notes()) {
                Ok(notes) => file.known.note(notes),
                Err(_) => self.is_incomplete = true,
            }
            return true;
        }
        let Some((level, file)) = tables.unknown.pop() else { return false };
        let notes = file.known.notes();
        match notes.and_then(|notes| older(version, level, &file).hidden_by(&file, notes)) {
            Some(hides) => self.estimates.push(Estimate { level, number: file.number, hides }),
            None => self.is_incomplete = true,
        }
        true
    }

    fn install(&mut self) -> Result<()> {
        let estimates = std::mem::take(&mut self.estimates);
        if estimates.is_empty() {
            return Ok(());
        }
        let id = self.family.id;
        let records = |state: &State, _| {
            let version = &state.families.get(&id)?.version;
            let again = |estimate: &Estimate| described(id, version, estimate);
            let records: Vec<Record> = estimates.iter().filter_map(again).flatten().collect();
            (!records.is_empty()).then_some(records)
        };
        self.jobs.tree.install(vec![FamilyEdit::new(&self.family)], records, || ())?;
        self.jobs.tree.refresh_space();
        Ok(())
    }
}

/// Returns the records that add the estimate to a table, if the table still exists without one.
fn described(family: u32, version: &Version, estimate: &Estimate) -> Option<[Record; 2]> {
    let Estimate { level, number, hides } = *estimate;
    let file = version.files(level).iter().find(|file| file.number == number)?;
    let known = file.known.clone().with_hides(Some(hides));
    let meta = FileMeta { known, ..FileMeta::clone(file) };
    let is_unknown = file.known.hides().is_none();
    let level = u32::try_from(level).ok().filter(|_| is_unknown)?;
    Some([Record::RemoveFile { family, level, number }, Record::AddFile { family, level, meta }])
}

impl Job for SurveyJob {
    fn class(&self) -> JobClass {
        // Level 0 and urgent collections preempt it between steps, and the I/O budget of background
        // work applies.
        JobClass::Compaction
    }

    fn step(&mut self) -> Result<Progress> {
        if self.advance() && self.estimates.len() < EDIT_TABLES_MAX {
            return Ok(Progress::More);
        }
        let is_done = self.tables.as_ref().is_none_or(|t| t.unread.is_empty() && t.unknown.is_empty());
        self.install()?;
        if !is_done {
            return Ok(Progress::More);
        }
        let version = self.family.read_state().version.clone();
        if self.is_incomplete || Arc::ptr_eq(&version, &self.read_state.version) {
            let version = Arc::downgrade(&version);
            lock(&self.jobs.in_progress).learned.surveyed.insert(self.family.id, version);
        }
        Ok(Progress::Done)
    }

    fn abandon(&mut self) {}
}

#[cfg(all(test, not(loom)))]
mod tests;
