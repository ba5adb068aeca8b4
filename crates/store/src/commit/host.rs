//! What the log is told once, and what it asks of whoever holds it.

use base::Result;
use io::{Access, Env};
use std::path::PathBuf;

/// Where a log lives and how long its pieces may be.
#[derive(Clone, Debug)]
pub struct Place {
    /// The machine.
    pub env: Env,
    /// The directory of the store.
    pub dir: PathBuf,
    /// How group files are accessed.
    pub access: Access,
    /// Bytes of the longest group.
    pub group_bytes: u64,
    /// Under a limit of space, the most files of former groups that are kept to be used again.
    pub free_groups_max: usize,
}

impl Place {
    /// The path of a file of the store.
    pub fn path(&self, name: &str) -> PathBuf {
        io::fs::join(&self.dir, name)
    }
}

/// Whoever holds the log: the engine that drives its background work, or the store itself where no engine does.
pub trait Host: Send + Sync {
    /// Fails once something has failed on which an edit of the manifest may rest.
    ///
    /// # Errors
    /// That failure.
    fn check_sound(&self) -> Result<()> {
        Ok(())
    }

    /// True while nothing that takes room is tried, because there was none a moment ago.
    fn must_wait(&self) -> bool {
        false
    }

    /// True if so many bytes may be taken, as far as a limit of space says.
    fn fits(&self, _bytes: u64) -> bool {
        true
    }

    /// True if there is a limit of space.
    fn is_limited(&self) -> bool {
        false
    }

    /// The files of the log, free ones and ballast included, have so many bytes now. Called under a lock of the log: to be
    /// noted, and nothing else.
    fn occupied(&self, _bytes: u64) {}

    /// Removes a file that the manifest does not list. Fine if it is gone.
    ///
    /// # Errors
    /// Those of the file system.
    fn remove_file(&self, name: &str) -> Result<()>;

    /// Makes the names in the directory durable.
    ///
    /// # Errors
    /// Those of the file system; after one that is not `NoSpace`, the store must stop.
    fn sync_dir(&self) -> Result<()>;
}

impl std::fmt::Debug for dyn Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Host")
    }
}
