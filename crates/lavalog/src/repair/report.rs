//! What a repair of logs did, and what it could not save.

use crate::entry::Lsn;
use base::{Error, SeqNo};
use std::fmt;
use store::repair::{LogGap, RepairDamage};

/// A log in the new store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairedLog {
    /// Its name in the new store.
    pub name: String,
    /// The name it had is not known, or two logs had the same.
    pub name_is_lost: bool,
    /// Records that were saved.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The first LSN that was not trimmed, as far as it is known.
    pub trimmed_below: Lsn,
    /// What is lost.
    pub gaps: Vec<RepairGap>,
}

/// The fate of a record in a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordOutcome<'r> {
    /// The record is in the new store, or the log had none with this LSN.
    NotLost,
    /// The log had a record with this LSN, and it is lost.
    Lost,
    /// It is unknown whether the log had such a record, or whether the saved one is the newest; the reason.
    Unknown(&'r str),
}

/// Records of a log that are lost, or may be, first and last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairGap {
    /// The lowest LSN.
    pub first: Lsn,
    /// The highest.
    pub last: Lsn,
    /// An index says that each of them was there. Otherwise it is unknown whether the log ever had records with these LSNs; the damaged part
    /// may have held them.
    pub is_certain: bool,
}

/// A part of the log in which batches are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostBatches {
    /// The name of the file.
    pub file: String,
    /// Where it begins there.
    pub offset: Option<u64>,
    /// The sequences of the operations that are lost: the first, and the last if it is known.
    pub sequences: (SeqNo, Option<SeqNo>),
    /// No checkpoint knows what these operations did: a trim, truncation or deletion may have been among them, and what it took may have
    /// come back.
    pub may_come_back: bool,
}

/// What a repair did.
#[derive(Clone, Debug, Default)]
pub struct RepairReport {
    /// The files were those of a manifest that is whole.
    pub from_manifest: bool,
    /// A checkpoint was read.
    pub from_checkpoint: bool,
    /// The logs of the new store, in the order of their creation.
    pub logs: Vec<RepairedLog>,
    /// Files and groups that were read.
    pub files_used: u64,
    /// Bytes read from cold files, and of batches.
    pub bytes_read: u64,
    /// Batches that carried keys of another engine, which are not in the new store.
    pub carried: u64,
    /// What is damaged or missing.
    pub damaged: Vec<RepairDamage>,
    /// Where operations are lost.
    pub lost_batches: Vec<LostBatches>,
    /// What may be in the new store although it had been trimmed, truncated or deleted.
    pub may_come_back: Vec<String>,
}

impl RepairReport {
    /// True if it is known that every record was saved, and that nothing can have come back.
    pub fn is_lossless(&self) -> bool {
        self.losses() + self.unknowns() == 0
    }

    /// How many things are lost, or may have come back; without those of [`RepairReport::unknowns`].
    pub fn losses(&self) -> usize {
        self.gaps(true) + self.lost_batches.len() + self.may_come_back.len()
    }

    /// Ranges of records of which it is unknown whether anything is lost.
    pub fn unknowns(&self) -> usize {
        self.gaps(false)
    }

    fn gaps(&self, is_certain: bool) -> usize {
        let gaps = self.logs.iter().flat_map(|log| &log.gaps);
        gaps.filter(|gap| gap.is_certain == is_certain).count()
    }

    /// The fate of a record. `log` is the name of its log in the new store.
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

    /// Records that were saved.
    pub fn records(&self) -> u64 {
        self.logs.iter().map(|log| log.records).sum()
    }

    /// True if there was nothing of a store of logs.
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
            f.write_str("; what was trimmed, truncated or deleted there may have come back")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
