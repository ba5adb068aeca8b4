//! A store of logs that is only read, beside its writer, who goes on.
//!
//! A record that the writer has collected since is not where this store looks for it. So before something counts as damaged the
//! manifest is read anew: what it names no more, or as something else, has only gone ([`crate::records::Records::judge`]). That is `Busy`: who opens
//! the store again finds it.

use base::{Error, ErrorKind};
use std::path::Path;
use store::manifest::State;

/// A store that is only read.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// What is wrong with lane and manifest; what is behind it is not shown.
    pub damage: Vec<Error>,
}

/// What a reader is told that met its writer at work.
pub(crate) fn changed(dir: &Path) -> Error {
    let why = "the process that writes the logs changed them meanwhile: open the store again";
    Error::new(ErrorKind::Busy, why).at_file(dir)
}

/// True if a group has the file that it had.
pub(crate) fn is_same_group(then: &State, now: &State, ltn: u64) -> bool {
    let of = |state: &State| state.log_groups.get(&ltn).map(|group| (group.file, group.uid));
    of(then) == of(now)
}
