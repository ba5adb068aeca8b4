//! A read-only store of logs whose writer continues.
//!
//! The writer may collect a record after the read-only open, so that the reader looks for it in the
//! wrong place. Before a reader reports damage, it reads the manifest again. A file that the
//! manifest no longer lists, or lists in another role, was only replaced
//! ([`crate::records::RecordReader::judge`]). The error is then `Busy`, and reopening the store
//! finds the record.

use base::{Error, ErrorKind};
use std::path::Path;
use store::manifest::ManifestState;

/// State of a read-only store.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// Damage of the record lane and the manifest; data after the damage is not shown.
    pub damage: Vec<Error>,
}

/// Returns the error for a read that conflicts with changes of the writer.
pub(crate) fn changed(dir: &Path) -> Error {
    let why = "the process that writes the logs replaced their files during the read: open the store again";
    Error::new(ErrorKind::Busy, why).at_file(dir)
}

/// Returns true if a group still has the same file.
pub(crate) fn is_same_group(then: &ManifestState, now: &ManifestState, ltn: u64) -> bool {
    let of = |state: &ManifestState| state.log_groups.get(&ltn).map(|group| (group.file, group.uid));
    of(then) == of(now)
}
