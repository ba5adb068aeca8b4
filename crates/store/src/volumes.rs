//! Locations of files: the volumes of a store.
//!
//! Every file in the manifest has one byte for its volume. A [`Location`] is such a volume: a file
//! system, a directory in it, and the meter of its files. A file is opened through the volume that
//! the manifest names ([`Volumes::at`]). So a store can spread over several disks without a change
//! of the format or of its readers.
//!
//! A store may have a fast tier for its log, tables and values ([`crate::fast_tier`]). Then the
//! store directory is a name space over two disks ([`TwoDisks`]), with one place for every kind of
//! file, and both volumes have the same location. A table or value file on the fast tier has
//! another kind of name ([`crate::names::FileKind::FastKsst`],
//! [`crate::names::FileKind::FastVsst`]), which follows from its volume in the manifest. An open
//! refuses a history with an unknown volume (see [`crate::manifest`]).

pub mod identity;
mod metered_fs;
mod two_disks;

pub use identity::FastTier;
pub use metered_fs::{Meter, MeteredFs, pages};
pub use two_disks::TwoDisks;

use crate::descriptors::Descriptors;
use crate::pacing::{IoLimiter, PacedFs};
use base::{Error, ErrorKind, Result};
use io::{Env, FileSystem};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The volume of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Volume(pub u8);

impl Volume {
    /// The store directory.
    pub const DIRECTORY: Volume = Volume(0);
    /// The fast tier, for the log, tables and values.
    pub const FAST: Volume = Volume(1);
}

impl std::fmt::Display for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The location of a volume.
#[derive(Clone, Debug)]
pub struct Location {
    /// The file system, which counts the files in the directory and limits background I/O.
    pub fs: Arc<dyn FileSystem>,
    /// The directory.
    pub dir: PathBuf,
    /// Space used in the directory.
    pub meter: Arc<Meter>,
    /// The limiter of background I/O.
    pub pace: Arc<IoLimiter>,
    /// Caches of open files, which release descriptors.
    pub descriptors: Arc<Descriptors>,
}

impl Location {
    /// Returns the location of a directory whose files are counted from now on; all must be created
    /// through `fs`.
    pub fn metered(env: &Env, dir: &Path) -> Location {
        let meter = Arc::new(Meter::new(dir));
        let metered = Arc::new(MeteredFs { inner: env.fs.clone(), meter: meter.clone() });
        let on_two = env.fs.disks(dir).is_some();
        let pace = Arc::new(if on_two { IoLimiter::of_two(&env.clock) } else { IoLimiter::new(&env.clock) });
        let descriptors = Descriptors::join(env);
        let fs = Arc::new(PacedFs { inner: metered, pace: pace.clone(), descriptors: descriptors.clone() });
        Location { fs, dir: dir.to_owned(), meter, pace, descriptors }
    }

    /// Returns the location of a directory that does not change: without counts and background
    /// work.
    pub fn unmetered(env: &Env, dir: &Path) -> Location {
        let (meter, pace) = (Arc::new(Meter::new(dir)), Arc::new(IoLimiter::new(&env.clock)));
        Location { fs: env.fs.clone(), dir: dir.to_owned(), meter, pace, descriptors: Descriptors::join(env) }
    }

    /// Returns the environment with this file system.
    pub fn env(&self, env: &Env) -> Env {
        Env { fs: self.fs.clone(), ..env.clone() }
    }

    /// Returns the path of a file.
    pub fn path(&self, name: &str) -> PathBuf {
        io::fs::join(&self.dir, name)
    }
}

/// The volumes of a store.
#[derive(Debug)]
pub struct Volumes {
    directory: Location,
}

impl Volumes {
    /// Creates the volumes of a store in one directory.
    pub fn new(directory: Location) -> Volumes {
        Volumes { directory }
    }

    /// Returns the store directory, which holds the log and the manifest.
    pub fn directory(&self) -> &Location {
        &self.directory
    }

    /// Returns the directory on the disk of the log, for errors about its space.
    pub fn log_dir(&self) -> PathBuf {
        let Location { fs, dir, .. } = &self.directory;
        fs.disks(dir).map_or_else(|| dir.clone(), |disks| disks.speed_dir)
    }

    /// Returns the location of a volume.
    ///
    /// # Errors
    /// `Unsupported` if the store was opened without it.
    pub fn at(&self, volume: Volume) -> Result<&Location> {
        let Location { fs, dir, .. } = &self.directory;
        if volume == Volume::DIRECTORY || (volume == Volume::FAST && fs.disks(dir).is_some()) {
            return Ok(&self.directory);
        }
        let why = format!(
            "a file is on volume {volume}, and the store was opened without it: open it with \
             that volume"
        );
        Err(Error::new(ErrorKind::Unsupported, why).at_file(&self.directory.dir))
    }
}
