//! The report of a repair of logs: saved and lost records.

use crate::entry::Lsn;
use base::{Error, SeqNo};
use std::fmt;
use store::repair::{LogGap, RepairDamage};

/// Records that a repair saved and lost of one log, so that a replica can fill the gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairedLog {
    /// Name in the new store.
    pub name: String,
    /// Whether the original name is unknown, or two logs had the same one.
    pub name_is_lost: bool,
    /// Number of saved records.
    pub records: u64,
    /// Bytes of the saved records.
    pub bytes: u64,
    /// Lowest untrimmed LSN, as far as known.
    pub trimmed_below: Lsn,
    /// Lost records, as runs of LSNs; empty if none is lost.
    pub gaps: Vec<RepairGap>,
}

/// Tells whether one record survived a repair; [`RepairReport::outcome`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordOutcome<'r> {
    /// The record is in the new store, or the log had none with this LSN. Nothing to do.
    NotLost,
    /// The log had a record with this LSN, and it is lost. Fetch it from a replica, or restore a
    /// checkpoint.
    Lost,
    /// It is unknown whether the log had such a record, or whether the saved one is the newest; the
    /// reason.
    Unknown(&'r str),
}

/// Names a run of records of a log that are lost, or may be, both ends inclusive. `{}` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairGap {
    /// Lowest LSN of the run, included.
    pub first: Lsn,
    /// Highest LSN of the run, included.
    pub last: Lsn,
    /// Whether an index lists each of these records. Otherwise it is unknown whether the log ever
    /// had them; the damaged part may have held them.
    pub is_certain: bool,
}

/// Names a part of the log that a repair could not read: records, trims and deletions in it may be
/// missing from the new store. `{}` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostBatches {
    /// Name of the file.
    pub file: String,
    /// Offset of the part in the file, bytes; `None` if unknown.
    pub offset: Option<u64>,
    /// First lost operation, and the last one if known, as sequence numbers.
    pub sequences: (SeqNo, Option<SeqNo>),
    /// Whether no checkpoint reflects these operations. A trim, truncation or deletion may have
    /// been among them, so the records that it removed may be back.
    pub may_come_back: bool,
}

/// Tells after `LogStore::repair` whether the new store may replace the damaged one: saved and lost
/// records of each log.
///
/// Begin with [`RepairReport::is_lossless`], then read the gaps of [`RepairReport::logs`], or ask
/// for one record with [`RepairReport::outcome`]. Damage is no error of the repair.
#[derive(Clone, Debug, Default)]
pub struct RepairReport {
    /// Whether the files came from an intact manifest.
    pub from_manifest: bool,
    /// Whether a checkpoint was readable.
    pub from_checkpoint: bool,
    /// Logs of the new store, in order of creation.
    pub logs: Vec<RepairedLog>,
    /// Number of files and groups read.
    pub files_used: u64,
    /// Bytes read from cold files and batches.
    pub bytes_read: u64,
    /// Number of batches with embedded key-value batches, which the new store lacks.
    pub carried: u64,
    /// Damaged or missing files and ranges, at most 10,000. Damage need not have cost a record.
    pub damaged: Vec<RepairDamage>,
    /// Parts of the log with lost operations.
    pub lost_batches: Vec<LostBatches>,
    /// Descriptions of trimmed, truncated or deleted data that may be back in the new store: remove
    /// it again.
    pub may_come_back: Vec<String>,
}

impl RepairReport {
    /// Returns true if all records are certainly saved, and nothing can have come back: the new
    /// store may replace the damaged one. It is true as well if nothing was found: see
    /// [`RepairReport::found_nothing`].
    pub fn is_lossless(&self) -> bool {
        self.losses() + self.unknowns() == 0
    }

    /// Returns the number of certain losses and of possible reappearances, for a summary: runs and
    /// batches, not records. It leaves out [`RepairReport::unknowns`], so 0 does not mean lossless.
    pub fn losses(&self) -> usize {
        self.gaps(true) + self.lost_batches.len() + self.may_come_back.len()
    }

    /// Returns the number of ranges whose records may never have existed, so that a loss is
    /// uncertain; [`RepairReport::losses`] counts the certain ones. A replica can tell.
    pub fn unknowns(&self) -> usize {
        self.gaps(false)
    }

    fn gaps(&self, is_certain: bool) -> usize {
        let gaps = self.logs.iter().flat_map(|log| &log.gaps);
        gaps.filter(|gap| gap.is_certain == is_certain).count()
    }

    /// Returns the fate of one record, to decide whether to fetch it from a replica. `log` is the
    /// name of its log in the new store; an unknown name has no losses, so check
    /// [`RepairReport::logs`] for it. The cost grows with the number of gaps.
    pub fn outcome(&self, log: &str, lsn: Lsn) -> RecordOutcome<'_> {
        let gaps = self.logs.iter().filter(|own| own.name == log).flat_map(|own| &own.gaps);
        let mut gaps = gaps.filter(|gap| (gap.first..=gap.last).contains(&lsn));
        match gaps.next() {
            Some(gap) if gap.is_certain => return RecordOutcome::Lost,
            Some(_) => {
                return RecordOutcome::Unknown("the damaged part may have held records with these LSNs");
            }
            None => {}
        }
        if self.lost_batches.iter().any(|lost| lost.may_come_back) {
            return RecordOutcome::Unknown(
                "operations are lost that may have appended or removed the record",
            );
        }
        self.may_come_back.first().map_or(RecordOutcome::NotLost, |why| RecordOutcome::Unknown(why))
    }

    /// Returns the number of saved records of all logs, for a summary: it counts records, not
    /// bytes. Of a dry run it is the number that a repair would save.
    pub fn records(&self) -> u64 {
        self.logs.iter().map(|log| log.records).sum()
    }

    /// Returns true if the directory had nothing of a store of logs: the path was probably wrong.
    /// Check it before [`RepairReport::is_lossless`], which is then true.
    pub fn found_nothing(&self) -> bool {
        !self.from_manifest && self.files_used == 0 && self.bytes_read == 0
    }

    pub(super) fn damage(&mut self, error: &Error) {
        RepairDamage::note(error, &mut self.damaged);
    }

    pub(super) fn lose(&mut self, gap: &LogGap, may_come_back: bool) {
        self.damage(&gap.error);
        let RepairDamage { file, offset, .. } = RepairDamage::of(&gap.error);
        let sequences = (gap.after_seq + 1, gap.before_seq.map(|before| before - 1));
        self.lost_batches.push(LostBatches { file, offset, sequences, may_come_back });
    }
}

impl fmt::Display for RepairGap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "record {}", self.first)?,
            false => write!(f, "records {} to {}", self.first, self.last)?,
        }
        if !self.is_certain {
            f.write_str(", if there were any")?;
        }
        Ok(())
    }
}

impl fmt::Display for LostBatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sequences {
            (first, Some(last)) => write!(f, "operations {first} to {last} ({}", self.file)?,
            (first, None) => write!(f, "operations from {first} on ({}", self.file)?,
        }
        if let Some(offset) = self.offset {
            write!(f, ", offset {offset}")?;
        }
        f.write_str(")")?;
        if self.may_come_back {
            f.write_str("; trimmed, truncated or deleted records may have come back")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
