//! What a repair did, and what it could not save.

use base::{Error, SeqNo};
use std::fmt;
pub use store::repair::RepairDamage;

/// A column family in the new store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairedFamily {
    /// Its id in the damaged store.
    pub id: u32,
    /// Its name in the new store.
    pub name: String,
    /// The name it had is not known.
    pub name_is_lost: bool,
    /// No manifest tells whether it was dropped: it may have come back.
    pub may_have_been_dropped: bool,
    /// Keys saved from tables.
    pub records: u64,
    /// Bytes of these keys and their values.
    pub bytes: u64,
    /// Changes replayed from the log.
    pub log_changes: u64,
}

/// What a repair knows of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOutcome<'r> {
    /// The newest version that the damaged store had is in the new one, or the key was not there.
    NotLost,
    /// The newest version may be lost, or something older stands in its place.
    Lost,
    /// It is unknown whether something is lost; the reason.
    Unknown(&'r str),
}

/// What is lost, or may be. Both ends of a range of keys are inclusive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostRange {
    /// The id of the family; `None`: any.
    pub family: Option<u32>,
    /// The first user key; `None`: no border.
    pub from: Option<Vec<u8>>,
    /// The last; `None`: no border.
    pub to: Option<Vec<u8>>,
    /// How many keys; `None`: it is not known.
    pub keys: Option<u64>,
    /// Sequences of the changes that are lost, first and last (the last is the largest possible, if it is not known), where
    /// it is the log that lost them.
    pub sequences: Option<(SeqNo, SeqNo)>,
    /// The file.
    pub file: String,
    /// Where in it.
    pub offset: Option<u64>,
    /// Older versions of keys in the range, and keys that had been deleted, may be in the new store.
    pub may_come_back: bool,
    /// Nothing of the range itself is lost; it only may have come back.
    pub only_come_back: bool,
    /// It is unknown whether anything is lost, and why. Nothing is damaged there.
    pub unknown: Option<String>,
}

/// What a repair did.
#[derive(Clone, Debug, Default)]
pub struct RepairReport {
    /// The state was taken from a manifest that is whole.
    pub from_manifest: bool,
    /// The families of the new store.
    pub families: Vec<RepairedFamily>,
    /// Tables, files of values and log groups that were read.
    pub files_used: u64,
    /// Files of data that do not belong to the store any more, or not yet.
    pub files_ignored: u64,
    /// Bytes read from tables and files of values, and of log batches.
    pub bytes_read: u64,
    /// What is damaged or missing.
    pub damaged: Vec<RepairDamage>,
    /// What is lost with it.
    pub lost: Vec<LostRange>,
}

/// Ranges told apart for one file before they become one.
const RANGES_OF_A_FILE_MAX: usize = 1000;

impl RepairReport {
    /// True if it is known that every record was saved, and that nothing older stands in the place of anything.
    pub fn is_lossless(&self) -> bool {
        self.lost.is_empty()
    }

    /// What is known of a key of a family, by its id.
    pub fn outcome(&self, family: u32, key: &[u8]) -> KeyOutcome<'_> {
        let mut outcome = KeyOutcome::NotLost;
        for range in self.lost.iter().filter(|range| range.covers(family, key)) {
            match &range.unknown {
                None => return KeyOutcome::Lost,
                Some(why) => outcome = KeyOutcome::Unknown(why),
            }
        }
        outcome
    }

    /// Ranges that are lost, without those of which it is unknown.
    pub fn losses(&self) -> usize {
        self.lost.iter().filter(|range| range.unknown.is_none()).count()
    }

    /// True if there was nothing of a store of keys.
    pub fn found_nothing(&self) -> bool {
        !self.from_manifest && self.files_used + self.files_ignored + self.bytes_read == 0
    }

    /// Keys saved from tables, over all families.
    pub fn records(&self) -> u64 {
        self.families.iter().map(|family| family.records).sum()
    }

    pub(super) fn damage(&mut self, error: &Error) {
        RepairDamage::note(error, &mut self.damaged);
    }

    /// Notes a loss. Of a file with very many, all that follow become one range.
    pub(super) fn lose(&mut self, lost: LostRange) {
        let same_file = |l: &&mut LostRange| l.file == lost.file && l.family == lost.family;
        if self.lost.len() >= RANGES_OF_A_FILE_MAX
            && lost.sequences.is_none()
            && lost.unknown.is_none()
            && let Some(last) = self.lost.iter_mut().rev().find(same_file)
            && last.sequences.is_none()
        {
            last.from = last.from.take().zip(lost.from).map(|(a, b)| a.min(b));
            last.to = last.to.take().zip(lost.to).map(|(a, b)| a.max(b));
            last.keys = last.keys.zip(lost.keys).map(|(a, b)| a.saturating_add(b));
            last.may_come_back |= lost.may_come_back;
            last.only_come_back &= lost.only_come_back;
            last.offset = None;
            return;
        }
        self.lost.push(lost);
    }
}

impl LostRange {
    /// The name of the file that an error names, and its offset.
    pub(super) fn at(error: &Error) -> LostRange {
        let file = error.file().and_then(|path| path.file_name()).unwrap_or_default();
        LostRange {
            file: file.to_string_lossy().into_owned(),
            offset: error.offset(),
            ..LostRange::default()
        }
    }

    /// True if a key of a family lies in the range.
    pub fn covers(&self, family: u32, key: &[u8]) -> bool {
        self.family.is_none_or(|own| own == family)
            && self.from.as_deref().is_none_or(|from| from <= key)
            && self.to.as_deref().is_none_or(|to| key <= to)
    }
}

impl fmt::Display for LostRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.family {
            Some(id) => write!(f, "family {id}, ")?,
            None => f.write_str("any family, ")?,
        }
        match (&self.from, &self.to) {
            (None, None) => f.write_str("any key")?,
            (Some(from), Some(to)) if from == to => write!(f, "key \"{}\"", from.escape_ascii())?,
            (from, to) => {
                let show = |key: &Option<Vec<u8>>| {
                    key.as_ref().map_or("no border".into(), |k| format!("\"{}\"", k.escape_ascii()))
                };
                write!(f, "keys {} to {}", show(from), show(to))?;
            }
        }
        if let Some((first, last)) = self.sequences {
            match last {
                base::MAX_SEQ => write!(f, ", changes from sequence {first} on")?,
                _ => write!(f, ", changes with sequences {first} to {last}")?,
            }
        }
        write!(f, " ({}", self.file)?;
        if let Some(offset) = self.offset {
            write!(f, ", offset {offset}")?;
        }
        f.write_str(")")?;
        if self.may_come_back {
            f.write_str("; older versions or deleted keys may have come back")?;
        }
        match &self.unknown {
            Some(why) => write!(f, ": {why}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(
        family: Option<u32>,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
        unknown: Option<&str>,
    ) -> LostRange {
        let unknown = unknown.map(str::to_owned);
        LostRange {
            family,
            from: from.map(Into::into),
            to: to.map(Into::into),
            unknown,
            ..LostRange::default()
        }
    }

    /// Both ends of a range belong to it, and no neighbor of an end does.
    #[test]
    fn outcomes_are_exact_at_the_ends_of_ranges() {
        let report = RepairReport {
            lost: vec![
                range(Some(1), Some(b"b"), Some(b"d"), None),
                range(Some(1), Some(b"d"), Some(b"f"), Some("why")),
                range(Some(2), None, Some(b"c"), None),
                range(Some(3), Some(b"c"), None, Some("why")),
            ],
            ..RepairReport::default()
        };
        let unknown = KeyOutcome::Unknown("why");
        for (family, key, expected) in [
            (1, &b"a\xff"[..], KeyOutcome::NotLost),
            (1, b"b", KeyOutcome::Lost),
            (1, b"c", KeyOutcome::Lost),
            (1, b"d", KeyOutcome::Lost),
            (1, b"d\0", unknown),
            (1, b"f", unknown),
            (1, b"f\0", KeyOutcome::NotLost),
            (2, b"", KeyOutcome::Lost),
            (2, b"c", KeyOutcome::Lost),
            (2, b"c\0", KeyOutcome::NotLost),
            (3, b"b\xff", KeyOutcome::NotLost),
            (3, b"c", unknown),
            (3, b"\xff\xff", unknown),
            (4, b"c", KeyOutcome::NotLost),
        ] {
            assert_eq!(report.outcome(family, key), expected, "family {family}, {}", key.escape_ascii());
        }
        assert_eq!(report.losses(), 2);
        assert!(!report.is_lossless());
        let only_unknown = RepairReport { lost: vec![range(None, None, None, Some("why"))], ..report };
        assert_eq!(only_unknown.outcome(7, b"any"), unknown);
        assert!(!only_unknown.is_lossless() && only_unknown.losses() == 0);
    }
}
