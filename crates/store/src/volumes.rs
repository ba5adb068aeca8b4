//! Where files are: the volumes of a store.
//!
//! Every file that the manifest lists says in one byte on which volume it is. A [`Location`] is such a volume: a file system,
//! a directory in it, and the count of what is there. Whoever opens a file asks by the volume that the manifest names
//! ([`Volumes::at`]), so that a store can spread over several disks without a change of the format or of its readers.
//!
//! A store may have a second disk for its log, for tables and for values ([`crate::speed`]). Then the store's directory is a name space over two disks
//! ([`TwoDisks`]), in which every kind of file has one place, and the location of both is the directory: a table or a file of values on the second disk has
//! another kind of name ([`crate::names::FileKind::SpeedKsst`], [`crate::names::FileKind::SpeedVsst`]), which follows from the volume that the manifest has for it. A history that names a volume
//! which is not here is refused when it is opened (see [`crate::manifest`]) instead of being looked for where it is not.

pub mod identity;
mod metered_fs;
mod two_disks;

pub use identity::SpeedDisk;
pub use metered_fs::{Meter, MeteredFs, pages};
pub use two_disks::TwoDisks;

use crate::descriptors::Descriptors;
use crate::pacing::{Pace, PacedFs};
use base::{Error, ErrorKind, Result};
use io::{Env, FileSystem};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which volume holds a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Volume(pub u8);

impl Volume {
    /// The store's own directory.
    pub const DIRECTORY: Volume = Volume(0);
    /// The second disk, for the log, for tables and for values.
    pub const SPEED: Volume = Volume(1);
}

impl std::fmt::Display for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Where the files of a volume are.
#[derive(Clone, Debug)]
pub struct Location {
    /// The file system, which counts what is made in the directory, and has background work go slowly where it disturbs reads.
    pub fs: Arc<dyn FileSystem>,
    /// The directory.
    pub dir: PathBuf,
    /// What the directory occupies.
    pub meter: Arc<Meter>,
    /// How much of the device background work may use.
    pub pace: Arc<Pace>,
    /// Caches of open files, which give descriptors back.
    pub descriptors: Arc<Descriptors>,
}

impl Location {
    /// A directory, whose files are counted from now on: all of them must be made through `fs`.
    pub fn metered(env: &Env, dir: &Path) -> Location {
        let meter = Arc::new(Meter::new(dir));
        let metered = Arc::new(MeteredFs { inner: env.fs.clone(), meter: meter.clone() });
        let on_two = env.fs.disks(dir).is_some();
        let pace = Arc::new(if on_two { Pace::of_two(&env.clock) } else { Pace::new(&env.clock) });
        let descriptors = Descriptors::join(env);
        let fs = Arc::new(PacedFs { inner: metered, pace: pace.clone(), descriptors: descriptors.clone() });
        Location { fs, dir: dir.to_owned(), meter, pace, descriptors }
    }

    /// A directory that nobody changes: nothing is counted, and there is no background work.
    pub fn unmetered(env: &Env, dir: &Path) -> Location {
        let (meter, pace) = (Arc::new(Meter::new(dir)), Arc::new(Pace::new(&env.clock)));
        Location { fs: env.fs.clone(), dir: dir.to_owned(), meter, pace, descriptors: Descriptors::join(env) }
    }

    /// The same machine with this file system.
    pub fn env(&self, env: &Env) -> Env {
        Env { fs: self.fs.clone(), ..env.clone() }
    }

    /// The path of a file.
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
    /// Of a store in one directory.
    pub fn new(directory: Location) -> Volumes {
        Volumes { directory }
    }

    /// The store's own directory, where log and manifest are.
    pub fn directory(&self) -> &Location {
        &self.directory
    }

    /// The directory on the disk of the log: errors about the room there name it.
    pub fn log_dir(&self) -> PathBuf {
        let Location { fs, dir, .. } = &self.directory;
        fs.disks(dir).map_or_else(|| dir.clone(), |disks| disks.speed_dir)
    }

    /// Where a volume is.
    ///
    /// # Errors
    /// `Unsupported` if the store was opened without it.
    pub fn at(&self, volume: Volume) -> Result<&Location> {
        let Location { fs, dir, .. } = &self.directory;
        if volume == Volume::DIRECTORY || (volume == Volume::SPEED && fs.disks(dir).is_some()) {
            return Ok(&self.directory);
        }
        let why = format!("a file is on volume {volume}, and the store was opened without it");
        Err(Error::new(ErrorKind::Unsupported, why).at_file(&self.directory.dir))
    }
}
