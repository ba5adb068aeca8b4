//! The names of the files of a store.
//!
//! Numbers are written with at least twelve digits, so that a sorted listing is in order of age for
//! the first 10^12 files; larger numbers take more digits. [`parse`] accepts exactly the names that
//! this module prints. A similar name (`7.ksst`, `000000000007.KSST`), or a number that cannot be
//! allocated, is no file of the store, which never removes it.

use crate::numbers::{NUMBER_MAX, NUMBER_SEEN_MAX};
use std::fmt;

/// The name of the file that names the manifest.
pub const CURRENT: &str = "CURRENT";
/// The name under which a new `CURRENT` is written before it replaces the old one.
pub const CURRENT_TEMP: &str = "CURRENT.tmp";
/// The name of the copy of `CURRENT`, in stores whose format has copies
/// (`Feature::ManifestCopies`).
pub const CURRENT_COPY: &str = "CURRENT.copy";
/// The name under which a new copy of `CURRENT` is written.
pub const CURRENT_COPY_TEMP: &str = "CURRENT.copy.tmp";
/// The name of the mark of an unfinished checkpoint or repair.
pub const UNFINISHED: &str = "UNFINISHED";
/// The name of the lock file.
pub const LOCK: &str = "LOCK";
/// The name of the staging file. That of a lane other than the first has the lane's number
/// appended.
pub const STAGING: &str = "STAGING";

/// The name of the file that identifies the fast tier of a store. It is on the fast tier.
pub const SPEED: &str = "SPEED";
/// The name of the lock file of the fast tier.
pub const SPEED_LOCK: &str = "SPEED-LOCK";

/// The kind of a store file, from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// A table of keys and small values.
    Ksst(u64),
    /// A table on the fast tier.
    FastKsst(u64),
    /// A file of separated values.
    Vsst(u64),
    /// A file of separated values on the fast tier.
    FastVsst(u64),
    /// A log group.
    Log(u64),
    /// The last values of a vSST in order of arrival, until they are durable there.
    Tail(u64),
    /// A file that the manifest lists for an engine.
    Engine {
        /// The engine.
        engine: u32,
        /// The engine's own kind of file.
        kind: u8,
        /// The file number.
        number: u64,
    },
    /// A manifest.
    Manifest(u64),
    /// The file that names the manifest.
    Current,
    /// A new `CURRENT`, not yet in place. A crash may leave it behind.
    CurrentTemp,
    /// The copy of a manifest.
    ManifestCopy(u64),
    /// The copy of `CURRENT`.
    CurrentCopy,
    /// A new copy of `CURRENT`, not yet in place.
    CurrentCopyTemp,
    /// The mark of a checkpoint or repair that is in progress, or was cut off.
    Unfinished,
    /// The lock file.
    Lock,
    /// The staging file of the first lane.
    Staging,
    /// The staging file of another lane.
    LaneStaging(u8),
    /// A longer staging file of a lane, not yet in place. A crash may leave it behind.
    StagingTemp(u8),
    /// Space reserved for jobs, if the log is on a fast tier.
    Room(u64),
    /// The file that identifies the fast tier.
    FastTier,
    /// The lock file of the fast tier.
    FastLock,
}

impl FileKind {
    /// Returns the file number, for the kinds that have one. All kinds share one number sequence.
    pub fn number(self) -> Option<u64> {
        match self {
            FileKind::Ksst(n)
            | FileKind::FastKsst(n)
            | FileKind::Vsst(n)
            | FileKind::FastVsst(n)
            | FileKind::Log(n)
            | FileKind::Tail(n)
            | FileKind::Engine { number: n, .. }
            | FileKind::Room(n)
            | FileKind::Manifest(n)
            | FileKind::ManifestCopy(n) => Some(n),
            FileKind::Current
            | FileKind::CurrentTemp
            | FileKind::CurrentCopy
            | FileKind::CurrentCopyTemp
            | FileKind::Unfinished
            | FileKind::Lock
            | FileKind::Staging
            | FileKind::FastTier
            | FileKind::FastLock
            | FileKind::StagingTemp(_)
            | FileKind::LaneStaging(_) => None,
        }
    }

    /// Returns the kind of the table of this number, on the fast tier or in the directory.
    pub fn of_table(number: u64, on_speed_disk: bool) -> FileKind {
        if on_speed_disk { FileKind::FastKsst(number) } else { FileKind::Ksst(number) }
    }

    /// Returns the number of a table on either disk.
    pub fn table(self) -> Option<u64> {
        match self {
            FileKind::Ksst(n) | FileKind::FastKsst(n) => Some(n),
            _ => None,
        }
    }

    /// Returns the kind of the value file of this number, on the fast tier or in the directory.
    pub fn of_values(number: u64, on_speed_disk: bool) -> FileKind {
        if on_speed_disk { FileKind::FastVsst(number) } else { FileKind::Vsst(number) }
    }

    /// Returns the number of a value file on either disk.
    pub fn values(self) -> Option<u64> {
        match self {
            FileKind::Vsst(n) | FileKind::FastVsst(n) => Some(n),
            _ => None,
        }
    }

    /// Returns the number of a table or of a value file.
    pub fn data(self) -> Option<u64> {
        self.table().or(self.values())
    }

    /// Returns the kind of the same file in the store directory.
    pub fn in_directory(self) -> FileKind {
        match self {
            FileKind::FastKsst(n) => FileKind::Ksst(n),
            FileKind::FastVsst(n) => FileKind::Vsst(n),
            kind => kind,
        }
    }

    /// Returns true for all files on the fast tier, if the store has one.
    pub fn is_on_fast_tier(self) -> bool {
        self.is_kept_on_speed_disk() || matches!(self, FileKind::FastTier | FileKind::FastLock)
    }

    /// Returns true for the files that a store keeps on the fast tier, without those that identify
    /// it.
    pub fn is_kept_on_speed_disk(self) -> bool {
        self.is_of_log() || self.is_data_on_fast_tier()
    }

    /// Returns true for tables and value files on the fast tier.
    pub fn is_data_on_fast_tier(self) -> bool {
        matches!(self, FileKind::FastKsst(_) | FileKind::FastVsst(_))
    }

    /// Returns true for `CURRENT` and its copy: a directory with either is a store.
    pub fn is_current(self) -> bool {
        matches!(self, FileKind::Current | FileKind::CurrentCopy)
    }

    /// Returns true for temporary files of an atomic replacement, which a crash may leave behind.
    pub fn is_temporary(self) -> bool {
        matches!(self, FileKind::CurrentTemp | FileKind::CurrentCopyTemp | FileKind::StagingTemp(_))
    }

    /// Returns true for a manifest and its copy.
    pub fn is_manifest(self) -> bool {
        matches!(self, FileKind::Manifest(_) | FileKind::ManifestCopy(_))
    }

    /// Returns true for the files of the log.
    pub fn is_of_log(self) -> bool {
        matches!(
            self,
            FileKind::Log(_) | FileKind::Staging | FileKind::LaneStaging(_) | FileKind::StagingTemp(_)
        )
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileKind::Ksst(n) => write!(f, "{n:012}.ksst"),
            FileKind::FastKsst(n) => write!(f, "{n:012}.ksst-1"),
            FileKind::Vsst(n) => write!(f, "{n:012}.vsst"),
            FileKind::FastVsst(n) => write!(f, "{n:012}.vsst-1"),
            FileKind::Log(n) => write!(f, "{n:012}.log"),
            FileKind::Tail(n) => write!(f, "{n:012}.tail"),
            FileKind::Engine { engine, kind, number } => write!(f, "{number:012}.e{engine}-{kind}"),
            FileKind::Manifest(n) => write!(f, "MANIFEST-{n:012}"),
            FileKind::Current => f.write_str(CURRENT),
            FileKind::CurrentTemp => f.write_str(CURRENT_TEMP),
            FileKind::ManifestCopy(n) => write!(f, "MANIFEST-{n:012}.copy"),
            FileKind::CurrentCopy => f.write_str(CURRENT_COPY),
            FileKind::CurrentCopyTemp => f.write_str(CURRENT_COPY_TEMP),
            FileKind::Unfinished => f.write_str(UNFINISHED),
            FileKind::Lock => f.write_str(LOCK),
            FileKind::Staging => f.write_str(STAGING),
            FileKind::LaneStaging(lane) => write!(f, "{STAGING}-{lane}"),
            FileKind::StagingTemp(0) => f.write_str("STAGING.new"),
            FileKind::StagingTemp(lane) => write!(f, "{STAGING}-{lane}.new"),
            FileKind::Room(n) => write!(f, "{n:012}.room"),
            FileKind::FastTier => f.write_str(SPEED),
            FileKind::FastLock => f.write_str(SPEED_LOCK),
        }
    }
}

/// Returns the name of the kSST `number` in the store directory.
pub fn ksst(number: u64) -> String {
    FileKind::Ksst(number).to_string()
}

/// Returns the name of the vSST `number` in the store directory.
pub fn vsst(number: u64) -> String {
    FileKind::Vsst(number).to_string()
}

/// Returns the name of the log group file `number`.
pub fn log(number: u64) -> String {
    FileKind::Log(number).to_string()
}

/// Returns the name of the file of reserved space `number`.
pub fn room(number: u64) -> String {
    FileKind::Room(number).to_string()
}

/// Returns the name of the tail of values `number`.
pub fn tail(number: u64) -> String {
    FileKind::Tail(number).to_string()
}

/// Returns the name of the manifest `number`.
pub fn manifest(number: u64) -> String {
    FileKind::Manifest(number).to_string()
}

/// Returns the name of the copy of the manifest `number`.
pub fn manifest_copy(number: u64) -> String {
    FileKind::ManifestCopy(number).to_string()
}

/// Returns the kind of the file `name`; `None` if the store never uses that name.
pub fn parse(name: &str) -> Option<FileKind> {
    let kind = match name {
        CURRENT => FileKind::Current,
        CURRENT_TEMP => FileKind::CurrentTemp,
        CURRENT_COPY => FileKind::CurrentCopy,
        CURRENT_COPY_TEMP => FileKind::CurrentCopyTemp,
        UNFINISHED => FileKind::Unfinished,
        LOCK => FileKind::Lock,
        STAGING => FileKind::Staging,
        SPEED => FileKind::FastTier,
        SPEED_LOCK => FileKind::FastLock,
        "STAGING.new" => FileKind::StagingTemp(0),
        _ if name.starts_with("STAGING-") => {
            let lane = &name["STAGING-".len()..];
            match lane.strip_suffix(".new") {
                Some(lane) => FileKind::StagingTemp(lane.parse().ok().filter(|&lane| lane > 0)?),
                None => FileKind::LaneStaging(lane.parse().ok().filter(|&lane| lane > 0)?),
            }
        }
        _ => match name.strip_prefix("MANIFEST-") {
            Some(rest) => match rest.strip_suffix(".copy") {
                Some(digits) => FileKind::ManifestCopy(digits.parse().ok()?),
                None => FileKind::Manifest(rest.parse().ok()?),
            },
            None => {
                let (digits, extension) = name.split_once('.')?;
                let number = digits.parse().ok()?;
                match extension {
                    "ksst" => FileKind::Ksst(number),
                    "ksst-1" => FileKind::FastKsst(number),
                    "vsst" => FileKind::Vsst(number),
                    "vsst-1" => FileKind::FastVsst(number),
                    "log" => FileKind::Log(number),
                    "tail" => FileKind::Tail(number),
                    "room" => FileKind::Room(number),
                    _ => {
                        let (engine, kind) = extension.strip_prefix('e')?.split_once('-')?;
                        FileKind::Engine { engine: engine.parse().ok()?, kind: kind.parse().ok()?, number }
                    }
                }
            }
        },
    };
    // The number parser accepts "+7" and short forms, but a store only uses the canonical spelling.
    let possible = kind.number().is_none_or(|n| n <= NUMBER_MAX);
    (possible && kind.to_string() == name).then_some(kind)
}

/// Returns the largest file number among `kinds`, above which new numbers are allocated; 0 if there
/// is none. It ignores numbers that no store reaches: following such a stray file would use the
/// numbers up.
pub fn largest_number(kinds: impl IntoIterator<Item = FileKind>) -> u64 {
    kinds.into_iter().filter_map(FileKind::number).filter(|&n| n <= NUMBER_SEEN_MAX).max().unwrap_or(0)
}

#[cfg(test)]
mod tests;
