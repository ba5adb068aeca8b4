//! The names of the files of a store.
//!
//! Numbers are written with at least twelve digits, so that a sorted listing is in order of age for the first 10^12
//! files; larger numbers take more digits. [`parse`] accepts exactly what the functions here print: a name that only
//! looks similar (`7.ksst`, `000000000007.KSST`) is not a file of the store and is never removed by it. Nor is one with a
//! number that cannot be allocated.

use crate::numbers::{NUMBER_MAX, NUMBER_SEEN_MAX};
use std::fmt;

/// The name of the file that names the manifest.
pub const CURRENT: &str = "CURRENT";
/// The name under which a new `CURRENT` is written before it replaces the old one.
pub const CURRENT_TEMP: &str = "CURRENT.tmp";
/// The name of its copy, in stores whose format has copies (`Feature::ManifestCopies`).
pub const CURRENT_COPY: &str = "CURRENT.copy";
/// The name under which a new copy of `CURRENT` is written.
pub const CURRENT_COPY_TEMP: &str = "CURRENT.copy.tmp";
/// The name of the empty file that says that a checkpoint into its directory has not been finished.
pub const UNFINISHED: &str = "UNFINISHED";
/// The name of the lock file.
pub const LOCK: &str = "LOCK";
/// The name of the file of the log's open pages; that of another lane than the first has the lane's number behind it.
pub const STAGING: &str = "STAGING";

/// The name of the file by which the second disk of a store is known; it lies there.
pub const SPEED: &str = "SPEED";
/// The name of the lock file of that disk, beside it.
pub const SPEED_LOCK: &str = "SPEED-LOCK";

/// What a file of a store is, from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// A table of keys and small values.
    Ksst(u64),
    /// One that lies on the second disk of its store.
    SpeedKsst(u64),
    /// A file of separated values.
    Vsst(u64),
    /// One that lies on the second disk of its store.
    SpeedVsst(u64),
    /// A log group.
    Log(u64),
    /// The last values of a vSST in order of arrival, until they are durable there.
    Tail(u64),
    /// A file that the manifest lists for an engine.
    Engine {
        /// The engine.
        engine: u32,
        /// What kind of file it is to its engine.
        kind: u8,
        /// The file number.
        number: u64,
    },
    /// A manifest.
    Manifest(u64),
    /// The file that names the manifest.
    Current,
    /// A new `CURRENT`, not yet in place: left behind by a crash.
    CurrentTemp,
    /// The copy of a manifest.
    ManifestCopy(u64),
    /// The copy of `CURRENT`.
    CurrentCopy,
    /// A new copy of `CURRENT`, not yet in place.
    CurrentCopyTemp,
    /// The mark of a checkpoint that is being taken, or was cut off.
    Unfinished,
    /// The lock file.
    Lock,
    /// The open pages of the log.
    Staging,
    /// The open pages of another lane of the log than the first.
    LaneStaging(u8),
    /// A longer file of open pages of a lane, not yet in place: left behind by a crash.
    StagingTemp(u8),
    /// Room that is kept for jobs, where the log has a disk of its own.
    Room(u64),
    /// What the second disk of a store is known by.
    Speed,
    /// Its lock file.
    SpeedLock,
}

impl FileKind {
    /// The file number, for the kinds that have one. All kinds share one sequence of numbers.
    pub fn number(self) -> Option<u64> {
        match self {
            FileKind::Ksst(n)
            | FileKind::SpeedKsst(n)
            | FileKind::Vsst(n)
            | FileKind::SpeedVsst(n)
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
            | FileKind::Speed
            | FileKind::SpeedLock
            | FileKind::StagingTemp(_)
            | FileKind::LaneStaging(_) => None,
        }
    }

    /// The table of this number: on the second disk, or in the directory.
    pub fn of_table(number: u64, on_speed_disk: bool) -> FileKind {
        if on_speed_disk { FileKind::SpeedKsst(number) } else { FileKind::Ksst(number) }
    }

    /// The number of a table, on whichever disk.
    pub fn table(self) -> Option<u64> {
        match self {
            FileKind::Ksst(n) | FileKind::SpeedKsst(n) => Some(n),
            _ => None,
        }
    }

    /// The file of values of this number: on the second disk, or in the directory.
    pub fn of_values(number: u64, on_speed_disk: bool) -> FileKind {
        if on_speed_disk { FileKind::SpeedVsst(number) } else { FileKind::Vsst(number) }
    }

    /// The number of a file of values, on whichever disk.
    pub fn values(self) -> Option<u64> {
        match self {
            FileKind::Vsst(n) | FileKind::SpeedVsst(n) => Some(n),
            _ => None,
        }
    }

    /// The number of a table or of a file of values.
    pub fn data(self) -> Option<u64> {
        self.table().or(self.values())
    }

    /// The same file as it is called in the directory of its store.
    pub fn in_directory(self) -> FileKind {
        match self {
            FileKind::SpeedKsst(n) => FileKind::Ksst(n),
            FileKind::SpeedVsst(n) => FileKind::Vsst(n),
            kind => kind,
        }
    }

    /// True for what lies on the second disk of a store that has one.
    pub fn is_of_speed_disk(self) -> bool {
        self.is_kept_on_speed_disk() || matches!(self, FileKind::Speed | FileKind::SpeedLock)
    }

    /// True for what the store keeps there: that, without what the disk is known by.
    pub fn is_kept_on_speed_disk(self) -> bool {
        self.is_of_log() || self.is_data_of_speed_disk()
    }

    /// True for tables and files of values that lie there.
    pub fn is_data_of_speed_disk(self) -> bool {
        matches!(self, FileKind::SpeedKsst(_) | FileKind::SpeedVsst(_))
    }

    /// True for `CURRENT` and its copy: a directory with either is a store.
    pub fn is_current(self) -> bool {
        matches!(self, FileKind::Current | FileKind::CurrentCopy)
    }

    /// True for a file that takes the place of another one, and was left behind by a crash before that.
    pub fn is_temporary(self) -> bool {
        matches!(self, FileKind::CurrentTemp | FileKind::CurrentCopyTemp | FileKind::StagingTemp(_))
    }

    /// True for a manifest and its copy.
    pub fn is_manifest(self) -> bool {
        matches!(self, FileKind::Manifest(_) | FileKind::ManifestCopy(_))
    }

    /// True for the files of the log.
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
            FileKind::SpeedKsst(n) => write!(f, "{n:012}.ksst-1"),
            FileKind::Vsst(n) => write!(f, "{n:012}.vsst"),
            FileKind::SpeedVsst(n) => write!(f, "{n:012}.vsst-1"),
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
            FileKind::Speed => f.write_str(SPEED),
            FileKind::SpeedLock => f.write_str(SPEED_LOCK),
        }
    }
}

/// The name of the kSST `number` in the store's directory.
pub fn ksst(number: u64) -> String {
    FileKind::Ksst(number).to_string()
}

/// The name of the vSST `number` in the store's directory.
pub fn vsst(number: u64) -> String {
    FileKind::Vsst(number).to_string()
}

/// The name of the log group file `number`.
pub fn log(number: u64) -> String {
    FileKind::Log(number).to_string()
}

/// The name of the room `number`.
pub fn room(number: u64) -> String {
    FileKind::Room(number).to_string()
}

/// The name of the tail of values `number`.
pub fn tail(number: u64) -> String {
    FileKind::Tail(number).to_string()
}

/// The name of the manifest `number`.
pub fn manifest(number: u64) -> String {
    FileKind::Manifest(number).to_string()
}

/// The name of the copy of the manifest `number`.
pub fn manifest_copy(number: u64) -> String {
    FileKind::ManifestCopy(number).to_string()
}

/// What the file `name` is; `None` if the store never gives a file that name.
pub fn parse(name: &str) -> Option<FileKind> {
    let kind = match name {
        CURRENT => FileKind::Current,
        CURRENT_TEMP => FileKind::CurrentTemp,
        CURRENT_COPY => FileKind::CurrentCopy,
        CURRENT_COPY_TEMP => FileKind::CurrentCopyTemp,
        UNFINISHED => FileKind::Unfinished,
        LOCK => FileKind::Lock,
        STAGING => FileKind::Staging,
        SPEED => FileKind::Speed,
        SPEED_LOCK => FileKind::SpeedLock,
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
                    "ksst-1" => FileKind::SpeedKsst(number),
                    "vsst" => FileKind::Vsst(number),
                    "vsst-1" => FileKind::SpeedVsst(number),
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
    // The number's parser accepts "+7" and short forms: only the canonical spelling is ours.
    let possible = kind.number().is_none_or(|n| n <= NUMBER_MAX);
    (possible && kind.to_string() == name).then_some(kind)
}

/// The largest file number among `kinds`, above which new files get theirs; 0 if there is none. Numbers that no store
/// reaches are passed over: somebody put them there, and following them would use the numbers up.
pub fn largest_number(kinds: impl IntoIterator<Item = FileKind>) -> u64 {
    kinds.into_iter().filter_map(FileKind::number).filter(|&n| n <= NUMBER_SEEN_MAX).max().unwrap_or(0)
}

#[cfg(test)]
mod tests;
