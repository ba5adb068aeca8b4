//! Checks every byte that a store would be read from, and says how much that was.
//!
//! Of tables and value files: checksums, order, properties. Of the log: every page that recovery would read, and what only
//! the log refers to, which are values placed in it and segments. Of the manifest: every edit. The work is a [`walk`] in
//! steps, which the background scrub (`jobs::scrub`) takes as well. At the end what versions carry along of references is held against the
//! tables ([`sums`]).

use crate::work::jobs::Jobs;
use base::{Error, Result};
use io::Cancel;
use std::sync::Arc;

mod sums;
pub(crate) mod walk;

/// How many of something were checked, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckedCount {
    /// How many.
    pub count: u64,
    /// Bytes of them, as they are stored.
    pub bytes: u64,
}

impl CheckedCount {
    pub(crate) fn add(&mut self, count: u64, bytes: u64) {
        self.count += count;
        self.bytes += bytes;
    }
}

/// How much was checked of what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Tables.
    pub tables: CheckedCount,
    /// Blocks in them: data, index, filter, properties.
    pub blocks: CheckedCount,
    /// vSSTs and segments.
    pub value_files: CheckedCount,
    /// Records in them; a segment counts in chunks.
    pub records: CheckedCount,
    /// Pages of the log in the files of its groups.
    pub log_pages: CheckedCount,
    /// Pages of the log that are in the staging file only.
    pub staged_pages: CheckedCount,
    /// Batches put together from all of these.
    pub log_batches: CheckedCount,
    /// Values that only the log refers to: placed in it, or in segments.
    pub log_values: CheckedCount,
    /// Edits of the manifest, its snapshot among them.
    pub manifest_edits: CheckedCount,
}

impl Checked {
    /// Every count with a name for people, in the order of the struct.
    pub fn fields(&self) -> [(&'static str, CheckedCount); 9] {
        [
            ("tables", self.tables),
            ("blocks", self.blocks),
            ("value files", self.value_files),
            ("records", self.records),
            ("log pages", self.log_pages),
            ("staged log pages", self.staged_pages),
            ("log batches", self.log_batches),
            ("values that only the log refers to", self.log_values),
            ("manifest edits", self.manifest_edits),
        ]
    }
}

/// What [`crate::Db::verify`] found.
#[derive(Clone, Debug, Default)]
pub struct VerifyReport {
    /// Tables and vSSTs read.
    pub files: u64,
    /// Bytes of these that were read and checked.
    pub bytes: u64,
    /// Entries in them: a separated value counts in its table and in its vSST.
    pub entries: u64,
    /// How much was checked of what, the log and the manifest among it.
    pub checked: Checked,
    /// One error for each damaged block, record or chunk of a file, each damaged page of the log, each value that only the log refers to,
    /// each family whose sums of references are wrong; empty if the store is sound.
    pub errors: Vec<Error>,
    /// Errors beyond the first 10,000.
    pub more_errors: u64,
}

/// Errors that are listed one by one; the rest is counted.
const ERRORS_MAX: usize = 10_000;

impl VerifyReport {
    pub(crate) fn damaged(&mut self, error: Error) {
        match self.errors.len() < ERRORS_MAX {
            true => self.errors.push(error),
            false => self.more_errors += 1,
        }
    }

    /// All damages, the listed ones and the others.
    pub fn damages(&self) -> u64 {
        self.errors.len() as u64 + self.more_errors
    }
}

pub(crate) fn verify(jobs: &Arc<Jobs>, cancel: Option<&Cancel>) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let mut walk = walk::Walk::noting(jobs);
    jobs.tree.reads.check().and_then(|()| jobs.context.check_call(cancel))?;
    while walk.step(jobs, &mut report).is_some() {
        jobs.tree.reads.check().and_then(|()| jobs.context.check_call(cancel))?;
    }
    sums::check(jobs, walk.noted()).into_iter().for_each(|e| report.damaged(e));
    Ok(report)
}
