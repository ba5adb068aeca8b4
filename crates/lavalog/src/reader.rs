//! A store of logs that is only read, beside its writer, who goes on.
//!
//! A record that the writer has collected since is not where this store looks for it. So before something counts as damaged the
//! manifest is read anew: what it names no more, or as something else, has only gone ([`Core::judge`]). That is `Busy`: who opens
//! the store again finds it.

use crate::core::{Core, Roof};
use crate::manifest::LavaLog;
use base::{Error, ErrorKind, Result};
use std::path::Path;
use store::manifest::{Engines, Manifest, State};
use store::names::{self, FileKind};
use store::read_only::attempt;

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

impl Core {
    /// The store, if it is only read.
    pub fn reader(&self) -> Option<&Reader> {
        match &self.roof {
            Roof::Reader(reader) => Some(reader),
            _ => None,
        }
    }

    /// Refuses whatever would change something in a store that is only read.
    ///
    /// # Errors
    /// `ReadOnly`.
    pub fn check_writable(&self) -> Result<()> {
        match self.reader() {
            None => Ok(()),
            Some(_) => {
                let why = "the store was opened read-only";
                Err(Error::new(ErrorKind::ReadOnly, why).at_file(&self.context().dir))
            }
        }
    }

    /// In a store that is only read: what looks like damage and is of a file that its writer let go of since is `Busy`.
    pub fn judge(&self, e: Error) -> Error {
        if self.reader().is_some() && self.has_gone(&e) {
            changed(&self.context().dir).caused_by(e)
        } else {
            e
        }
    }

    /// True for an error of a file that the manifest does not name any more, or as something else.
    pub fn has_gone(&self, e: &Error) -> bool {
        let name = e.file().and_then(|path| path.file_name()?.to_str());
        let Some(kind) = name.and_then(names::parse).filter(|_| e.is_corruption()) else { return false };
        let (env, dir) = (&self.context().env, &self.context().dir);
        let now = attempt(env, || Manifest::recover(env, dir, true, &Engines::of::<LavaLog>()));
        let Ok(now) = now else { return false };
        let (then, now) = (self.manifest.state(), now.state());
        match kind {
            FileKind::Log(number) => {
                then.store.log_group_in(number).is_some_and(|ltn| !is_same_group(&then.store, &now, ltn))
            }
            FileKind::Engine { number, .. } => {
                then.files.contains_key(&number) && !now.engine_files().any(|(_, _, file)| file == kind)
            }
            FileKind::Manifest(_) | FileKind::ManifestCopy(_) => then.store.edit_number != now.edit_number,
            _ => false,
        }
    }
}
