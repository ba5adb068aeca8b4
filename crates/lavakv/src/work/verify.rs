//! Verification of every byte that reads may use, with counts of the checked items.
//!
//! Tables and value files: checksums, order, properties. The log: every page that recovery would
//! read, and the values and segments that only the log references. The manifest: every edit. The
//! work is a [`walk`] in steps, shared with the background scrub (`jobs::scrub`). At the end the
//! reference sums of versions are compared with the tables ([`sums`]).

use crate::work::jobs::Jobs;
use base::{Error, Result};
use io::Cancel;
use std::sync::Arc;

mod sums;
pub(crate) mod walk;

/// Shows how much of one kind a verification has checked, damaged items included: a count and
/// bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckedCount {
    /// Number of items.
    pub count: u64,
    /// Their bytes, as stored.
    pub bytes: u64,
}

impl CheckedCount {
    pub(crate) fn add(&mut self, count: u64, bytes: u64) {
        self.count += count;
        self.bytes += bytes;
    }
}

/// Coverage of a verification, by kind of object: shows whether an empty list of damage can be
/// trusted. 0 is normal for a kind that the store does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Tables, the files of keys and small values.
    pub tables: CheckedCount,
    /// Blocks in them: data, index, filter, properties.
    pub blocks: CheckedCount,
    /// Value files (vSSTs) and segments, the files of single large values.
    pub value_files: CheckedCount,
    /// Records in value files; a segment counts in chunks.
    pub records: CheckedCount,
    /// Pages of the log in the files of its groups.
    pub log_pages: CheckedCount,
    /// Log pages that only the buffer for buffered writes has.
    pub staged_pages: CheckedCount,
    /// Batches assembled from these pages.
    pub log_batches: CheckedCount,
    /// Values referenced only by the log: placed in it, or in segments.
    pub log_values: CheckedCount,
    /// Edits of the manifest, including its snapshot.
    pub manifest_edits: CheckedCount,
}

impl Checked {
    /// Returns every count with a readable name, in the order of the struct, to print all of them,
    /// damaged items included.
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

/// Tells whether a store is sound: the damage that [`crate::Db::verify`] found, and the amount of
/// checked data.
///
/// The store is sound if `errors` is empty. After damage restore a checkpoint or repair the store.
#[derive(Clone, Debug, Default)]
pub struct VerifyReport {
    /// Number of tables and value files read.
    pub files: u64,
    /// Verified bytes of these files.
    pub bytes: u64,
    /// Entries of these files: a separated value counts in its table and in its value file.
    pub entries: u64,
    /// Counts by kind, including the log and the manifest.
    pub checked: Checked,
    /// One error per damaged block, record or chunk of a file, per damaged log page, per damaged
    /// value referenced only by the log, and per family with wrong reference sums. Empty if the
    /// store is sound.
    pub errors: Vec<Error>,
    /// Errors beyond the first 10,000, which are only counted.
    pub more_errors: u64,
}

/// Maximum number of listed errors; further ones are only counted.
const ERRORS_MAX: usize = 10_000;

impl VerifyReport {
    pub(crate) fn damaged(&mut self, error: Error) {
        match self.errors.len() < ERRORS_MAX {
            true => self.errors.push(error),
            false => self.more_errors += 1,
        }
    }

    /// Returns the number of all errors, listed or not; 0 for a sound store.
    /// [`VerifyReport::errors`] lists at most 10,000 of them, with file and offset.
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
