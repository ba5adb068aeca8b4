//! The report of a verification.

use crate::entry::{LogId, Lsn};
use base::Error;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Maximum number of damages reported singly; the rest is only counted.
const DAMAGES_MAX: usize = 10_000;

/// Shows how much of one kind a verification has checked: a count and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckedCount {
    /// Number of items.
    pub count: u64,
    /// Stored bytes of the items.
    pub bytes: u64,
}

impl CheckedCount {
    pub(super) fn add(&mut self, count: u64, bytes: u64) {
        self.count += count;
        self.bytes += bytes;
    }
}

/// Coverage of a verification, by kind of object: shows whether an empty list of damage can be
/// trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Edits of the manifest, including its snapshot.
    pub manifest_edits: CheckedCount,
    /// Copies of the checkpoint.
    pub checkpoints: CheckedCount,
    /// Index files.
    pub index_files: CheckedCount,
    /// Cold files.
    pub cold_files: CheckedCount,
    /// Log groups, with the bytes of the pages read.
    pub groups: CheckedCount,
    /// Live records found at the position in the index, with their own bytes.
    pub records: CheckedCount,
}

impl Checked {
    /// Returns each count with a display name, in field order, to print all of them. 0 is normal
    /// for a kind that the store does not have.
    pub fn fields(&self) -> [(&'static str, CheckedCount); 6] {
        [
            ("manifest edits", self.manifest_edits),
            ("checkpoints", self.checkpoints),
            ("index files", self.index_files),
            ("cold files", self.cold_files),
            ("log groups", self.groups),
            ("records", self.records),
        ]
    }
}

/// Names a run of unreadable records of a log, both ends inclusive, to fetch them from a replica.
/// Some LSNs in between may never have had a record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LostRecords {
    /// Name of the log.
    pub log: String,
    /// First LSN of the run, included.
    pub first: Lsn,
    /// Last LSN of the run, included.
    pub last: Lsn,
}

/// Reports a damaged, missing or superfluous file or part, and the records that it costs. The store
/// stays open; reads of the lost records fail with `Corruption`.
#[derive(Clone, Debug)]
pub struct Damage {
    /// Description, with file and offset.
    pub error: Error,
    /// The records lost with it. Empty if the damage affects no live record, or another copy
    /// exists.
    pub lost: Vec<LostRecords>,
}

/// Tells whether a store of logs is sound: the damage that [`crate::LogStore::verify`] found, and
/// the amount of checked data.
///
/// Damage is no error of the call. After damage fetch the lost records from a replica, restore a
/// checkpoint, or repair the store.
#[derive(Clone, Debug, Default)]
pub struct VerifyReport {
    /// Number and size of the checked items.
    pub checked: Checked,
    /// Number of logs in the store.
    pub logs: u64,
    /// Whether the space accounting was compared with a recount of live bytes. False if writers
    /// intervened in every attempt; that is no damage.
    pub ledger_checked: bool,
    /// Defects found, at most 10,000; empty for a sound store.
    pub damages: Vec<Damage>,
    /// Number of further defects, beyond `damages`.
    pub more_damages: u64,
}

impl VerifyReport {
    /// Returns true if no defect was found: no lost records and no damaged file of any kind. It is
    /// false also for the report of a closed store, whose only damage is the error `Closed`.
    /// [`VerifyReport::damages`] lists the defects.
    pub fn is_sound(&self) -> bool {
        self.damages.is_empty()
    }

    /// Removes the damages after the first `told` for which `has_gone` returns true.
    pub(super) fn let_go_of(&mut self, told: usize, has_gone: impl Fn(&Error) -> bool) {
        let kept: Vec<Damage> =
            self.damages.drain(told..).filter(|damage| !has_gone(&damage.error)).collect();
        self.damages.extend(kept);
    }

    pub(super) fn damaged(&mut self, error: Error, lost: Vec<LostRecords>) {
        match self.damages.len() < DAMAGES_MAX {
            true => self.damages.push(Damage { error, lost }),
            false => self.more_damages += 1,
        }
    }
}

/// Lost records, grouped by the position of the damage.
#[derive(Debug, Default)]
pub(super) struct LossesByPosition(BTreeMap<(Option<PathBuf>, Option<u64>), Loss>);

#[derive(Debug)]
struct Loss {
    error: Error,
    runs: Vec<(LogId, Lsn, Lsn)>,
}

impl LossesByPosition {
    fn at(&mut self, error: &Error) -> &mut Loss {
        let place = (error.file().map(PathBuf::from), error.offset());
        self.0.entry(place).or_insert_with(|| Loss { error: error.clone(), runs: Vec::new() })
    }

    /// Adds a damage, at first without lost records.
    pub fn note(&mut self, error: &Error) {
        self.at(error);
    }

    /// Adds records lost with a damage. For each damage, in order of log and LSN.
    pub fn lose(&mut self, error: &Error, log: LogId, first: Lsn, last: Lsn) {
        let runs = &mut self.at(error).runs;
        match runs.last_mut() {
            Some(run) if run.0 == log && run.2.checked_add(1) == Some(first) => run.2 = last,
            _ => runs.push((log, first, last)),
        }
    }

    /// Writes all damages to the report. `name` returns the name of an existing log.
    pub fn tell(self, report: &mut VerifyReport, name: impl Fn(LogId) -> Option<String>) {
        for Loss { error, runs } in self.0.into_values() {
            let lost = runs
                .into_iter()
                .filter_map(|(log, first, last)| Some(LostRecords { log: name(log)?, first, last }));
            report.damaged(error, lost.collect());
        }
    }
}
