//! The report of a repair: saved records and losses.

use base::{Error, SeqNo};
use std::fmt;
pub use store::repair::RepairDamage;

/// Entries that a repair saved of one column family, with doubts about its name or existence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairedFamily {
    /// Id of the family in the damaged store.
    pub id: u32,
    /// Name of the family in the new store.
    pub name: String,
    /// True if the original name is unknown: `name` is made up. Move the data to the right family.
    pub name_is_lost: bool,
    /// True if no manifest tells whether the family was dropped: it may have come back. Drop it
    /// again in that case.
    pub may_have_been_dropped: bool,
    /// Number of keys saved from tables.
    pub records: u64,
    /// Bytes of these keys and their values.
    pub bytes: u64,
    /// Number of changes replayed from the log.
    pub log_changes: u64,
}

/// Tells whether one key survived a repair; [`RepairReport::outcome`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOutcome<'r> {
    /// The new store has the newest version of the key in the damaged store, or the key did not
    /// exist. Nothing to do.
    NotLost,
    /// The newest version may be lost, or an older version may have taken its place. Restore the
    /// key from a backup.
    Lost,
    /// Unknown whether a version is lost, with the reason.
    Unknown(&'r str),
}

/// Names a range of keys that a repair lost, or may have lost, to restore it from a backup. Both
/// ends are inclusive. `{}` prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostRange {
    /// Id of the family, as in [`RepairedFamily::id`]; `None`: any family.
    pub family: Option<u32>,
    /// First user key; `None`: no lower bound.
    pub from: Option<Vec<u8>>,
    /// Last user key; `None`: no upper bound.
    pub to: Option<Vec<u8>>,
    /// Number of keys; `None`: unknown.
    pub keys: Option<u64>,
    /// First and last sequence of the changes that the log lost. The last is the largest possible
    /// sequence if it is unknown.
    pub sequences: Option<(SeqNo, SeqNo)>,
    /// Name of the damaged file.
    pub file: String,
    /// Offset of the damage in the file, bytes; `None` if it has no single place.
    pub offset: Option<u64>,
    /// Older versions of keys in the range, and deleted keys, may be in the new store.
    pub may_come_back: bool,
    /// Nothing in the range is lost; older versions or deleted keys may have come back.
    pub only_come_back: bool,
    /// Reason why it is unknown whether the range lost anything. Nothing is damaged there.
    pub unknown: Option<String>,
}

/// Tells after a repair what became of the keys: saved families, lost ranges and damaged files.
///
/// Begin with [`RepairReport::is_lossless`], then list `lost`, or ask for one key with
/// [`RepairReport::outcome`]. Damage is no error of the repair.
#[derive(Clone, Debug, Default)]
pub struct RepairReport {
    /// True if the state was taken from an intact manifest.
    pub from_manifest: bool,
    /// Families of the new store.
    pub families: Vec<RepairedFamily>,
    /// Number of tables, value files and log groups that were read.
    pub files_used: u64,
    /// Number of data files that no longer belong, or do not yet belong, to the store.
    pub files_ignored: u64,
    /// Bytes read from tables, value files and log batches.
    pub bytes_read: u64,
    /// Damaged or missing files and parts of files, at most 10,000. Damage need not have cost a
    /// key.
    pub damaged: Vec<RepairDamage>,
    /// Key ranges and sequences lost through the damage, or possibly lost. Empty if the repair is
    /// lossless.
    pub lost: Vec<LostRange>,
}

/// Number of lost ranges above which further ranges of a file are merged.
const RANGES_OF_A_FILE_MAX: usize = 1000;

impl RepairReport {
    /// Returns true if every record is known to be saved, and no older version has taken the place
    /// of a newer one: the new store may replace the damaged one. It is true as well if nothing was
    /// found: see [`RepairReport::found_nothing`].
    pub fn is_lossless(&self) -> bool {
        self.lost.is_empty()
    }

    /// Returns the outcome for one key of the family with this id (0 is `default`), to decide
    /// whether to restore it. The cost grows with the number of lost ranges.
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

    /// Returns the number of lost ranges, for a summary. It leaves out those with an unknown
    /// outcome, so 0 does not mean lossless: see [`RepairReport::is_lossless`]. It counts ranges,
    /// not keys.
    pub fn losses(&self) -> usize {
        self.lost.iter().filter(|range| range.unknown.is_none()).count()
    }

    /// Returns true if repair found no data of keys: the path was probably wrong, or the store has
    /// logs only.
    pub fn found_nothing(&self) -> bool {
        !self.from_manifest && self.files_used + self.files_ignored + self.bytes_read == 0
    }

    /// Returns the number of keys saved from tables, over all families, for a summary. Changes
    /// replayed from the log do not count: [`RepairedFamily::log_changes`] has them.
    pub fn records(&self) -> u64 {
        self.families.iter().map(|family| family.records).sum()
    }

    pub(super) fn damage(&mut self, error: &Error) {
        RepairDamage::note(error, &mut self.damaged);
    }

    /// Records a loss. Once there are many, further losses of a file widen its last range.
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
    /// Starts a loss at the file name and offset of an error.
    pub(super) fn at(error: &Error) -> LostRange {
        let file = error.file().and_then(|path| path.file_name()).unwrap_or_default();
        LostRange {
            file: file.to_string_lossy().into_owned(),
            offset: error.offset(),
            ..LostRange::default()
        }
    }

    /// Returns true if the range contains a key of a family, to select the ranges that concern it;
    /// both ends belong to the range. For the outcome of one key use [`RepairReport::outcome`].
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

    /// Both ends belong to a range; the keys next to them do not.
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
