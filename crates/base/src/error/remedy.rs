//! Remedies: one sentence for each kind of error, which one place of the sources may replace.
//!
//! A message states the failure. Its remedy is the same for most errors of a kind, so it stands
//! here once, and no message repeats it. Kinds without a sentence here have errors that differ in
//! their remedies: their messages contain them.

use super::{Error, ErrorKind};
use std::io;

/// `EIO` of Linux, which the standard library has no name for: the device failed.
const EIO: i32 = 5;

/// Remedy of a log or manifest that ends before a durable record.
pub const REMEDY_OF_A_LOST_END: &str = "open the store read-only for the data before the damage, run `lava repair`, or restore a checkpoint or backup";

impl ErrorKind {
    /// Returns the remedy that holds for every error of this kind, if there is one.
    fn remedy(self) -> Option<&'static str> {
        Some(match self {
            ErrorKind::Corruption => "restore a checkpoint or backup, or run `lava repair`",
            ErrorKind::InvalidArgument | ErrorKind::TooLarge => "the call had no effect",
            ErrorKind::Conflict => "nothing was written; begin the transaction again",
            ErrorKind::Poisoned => "reads go on; to write again, close and reopen the store",
            _ => return None,
        })
    }
}

impl Error {
    /// Returns the remedy, or else the effect of the failed call, as `{:#}` prints it behind the
    /// failure: show it to a person, and match on [`Error::kind`] in a program. `None` if
    /// [`Error::message`] contains the remedy.
    ///
    /// ```
    /// use lavastore_base::Error;
    /// let e = Error::invalid("option block_size is 512 to 1048576 bytes, not 7");
    /// assert_eq!(e.remedy(), Some("the call had no effect"));
    /// ```
    pub fn remedy(&self) -> Option<&str> {
        self.0.remedy.or_else(|| self.0.kind.remedy()).or_else(|| {
            match self.cause()?.downcast_ref::<Error>() {
                Some(cause) => cause.remedy(),
                None => of_system(super::system_error(self)?),
            }
        })
    }

    /// Sets the remedy, unless an inner call has set it.
    pub fn with_remedy(self, remedy: &'static str) -> Self {
        self.edit(|e| {
            e.remedy.get_or_insert(remedy);
        })
    }
}

/// Returns the remedy of a failure that the operating system reports.
fn of_system(error: &io::Error) -> Option<&'static str> {
    Some(match error.kind() {
        io::ErrorKind::PermissionDenied => "give this user access to the file and its directory",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free space on the volume",
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::AlreadyExists => "choose another name",
        io::ErrorKind::ReadOnlyFilesystem => "mount the file system for writing",
        _ if error.raw_os_error().is_some_and(|code| super::NO_DESCRIPTORS.contains(&code)) => {
            "raise the limit of open files (`ulimit -n`)"
        }
        _ if error.raw_os_error() == Some(EIO) => {
            "examine the device; after a failed write, reopen the store"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alternate_form_ends_with_the_remedy_once() {
        let inner = Error::corruption("no magic").at_file("f");
        let outer = Error::new(ErrorKind::Poisoned, "a sync failed").caused_by(inner);
        assert_eq!(outer.to_string(), "poisoned: a sync failed: corruption: no magic (file f)");
        assert_eq!(
            format!("{outer:#}"),
            format!("{outer}; reads go on; to write again, close and reopen the store")
        );
    }

    #[test]
    fn a_remedy_of_its_own_replaces_that_of_the_kind() {
        let own = Error::corruption("the journal has a gap").with_remedy("run `lava fs fsck --repair`");
        assert_eq!(own.clone().with_remedy("outer").remedy(), Some("run `lava fs fsck --repair`"));
        let wrapped = Error::new(ErrorKind::Io, "cannot mount").caused_by(own);
        assert_eq!(wrapped.remedy(), Some("run `lava fs fsck --repair`"));
    }

    #[test]
    fn the_systems_failures_have_remedies_and_unknown_ones_none() {
        let of = |code| {
            Error::from_io("cannot write", "f", io::Error::from_raw_os_error(code))
                .remedy()
                .map(str::to_owned)
        };
        let (enospc, eacces, einval) = (28, 13, 22);
        assert_eq!(of(enospc).as_deref(), Some("free space on the volume"));
        assert_eq!(of(eacces).as_deref(), Some("give this user access to the file and its directory"));
        assert!(of(EIO).is_some_and(|remedy| remedy.starts_with("examine the device")));
        assert_eq!(of(einval), None);
    }
}
