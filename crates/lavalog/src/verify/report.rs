//! What a verification says.

use crate::entry::{LogId, Lsn};
use base::Error;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Damages that are told one by one; of a store that is nothing but rubble the rest is counted.
const DAMAGES_MAX: usize = 10_000;

/// How many of something were checked, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckedCount {
    /// How many.
    pub count: u64,
    /// Bytes of them, as they are stored.
    pub bytes: u64,
}

impl CheckedCount {
    pub(super) fn add(&mut self, count: u64, bytes: u64) {
        self.count += count;
        self.bytes += bytes;
    }
}

/// How much was checked of what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Edits of the manifest, its snapshot among them.
    pub manifest_edits: CheckedCount,
    /// Copies of the checkpoint.
    pub checkpoints: CheckedCount,
    /// Index files.
    pub index_files: CheckedCount,
    /// Cold files.
    pub cold_files: CheckedCount,
    /// Groups of the log, with the bytes of their files that count.
    pub groups: CheckedCount,
    /// Records that are alive and were found where the index leads, with the bytes of the records themselves.
    pub records: CheckedCount,
}

impl Checked {
    /// Every count with a name for people, in the order of the struct.
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

/// Records of a log that cannot be read, both ends inclusive. Not all LSNs in between need have had one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LostRecords {
    /// The log.
    pub log: String,
    /// The first LSN.
    pub first: Lsn,
    /// The last one.
    pub last: Lsn,
}

/// Something that is damaged, missing, or too much.
#[derive(Clone, Debug)]
pub struct Damage {
    /// What, with file and offset.
    pub error: Error,
    /// The records that are lost with it; none, if what is damaged holds nothing that is alive, or there is another copy of it.
    pub lost: Vec<LostRecords>,
}

/// What [`crate::LogStore::verify`] found.
#[derive(Clone, Debug, Default)]
pub struct VerifyReport {
    /// How much was checked of what.
    pub checked: Checked,
    /// Logs that there are.
    pub logs: u64,
    /// What is alive of each file was counted again and held against the ledger. Not, if operations went on all the time.
    pub ledger_checked: bool,
    /// What is wrong; empty if the store is sound.
    pub damages: Vec<Damage>,
    /// Damages beyond those that are told.
    pub more_damages: u64,
}

impl VerifyReport {
    /// True if nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.damages.is_empty()
    }

    /// Takes back those of the damages behind the first `told` that are of what `has_gone`.
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

/// Lost records, sorted out by where the damage is that they are lost with.
#[derive(Debug, Default)]
pub(super) struct Losses(BTreeMap<(Option<PathBuf>, Option<u64>), Loss>);

#[derive(Debug)]
struct Loss {
    error: Error,
    runs: Vec<(LogId, Lsn, Lsn)>,
}

impl Losses {
    fn at(&mut self, error: &Error) -> &mut Loss {
        let place = (error.file().map(PathBuf::from), error.offset());
        self.0.entry(place).or_insert_with(|| Loss { error: error.clone(), runs: Vec::new() })
    }

    /// A damage with which nothing need be lost.
    pub fn note(&mut self, error: &Error) {
        self.at(error);
    }

    /// Records of a log are lost with a damage. Those of one damage come by log, and by LSN.
    pub fn lose(&mut self, error: &Error, log: LogId, first: Lsn, last: Lsn) {
        let runs = &mut self.at(error).runs;
        match runs.last_mut() {
            Some(run) if run.0 == log && run.2.checked_add(1) == Some(first) => run.2 = last,
            _ => runs.push((log, first, last)),
        }
    }

    /// Tells all of it; `name` knows what logs are called, as long as they are there.
    pub fn tell(self, report: &mut VerifyReport, name: impl Fn(LogId) -> Option<String>) {
        for Loss { error, runs } in self.0.into_values() {
            let lost = runs
                .into_iter()
                .filter_map(|(log, first, last)| Some(LostRecords { log: name(log)?, first, last }));
            report.damaged(error, lost.collect());
        }
    }
}
