//! Where a store is: in a directory of the machine, or on a LavaFS volume.
//!
//! `lavafs:PATH` is the volume on the device or in the image PATH, with the store in its directory `/db`;
//! `lavafs:PATH:/DIR` is a store in another directory of it, as a checkpoint or a repair makes it. A volume is made by
//! `lava fs mkfs` and by nothing else: how large it is to be, and whether it takes its room at once, only its user knows.

use crate::status::{Status, failure};
use crate::{Error, Result};
use io::kernel::device::{self, DeviceOptions};
use lavastore::lavafs::{LavaFs, MountOptions, mount};
use lavastore::{Env, ErrorKind};
use std::path::{Path, PathBuf};

/// An environment, and the directory in it.
pub struct Place {
    /// Where its files are.
    pub env: Env,
    /// The directory of the store.
    pub dir: PathBuf,
}

/// A directory on a volume.
#[derive(Debug, PartialEq, Eq)]
pub struct OnVolume<'a> {
    /// The device or image.
    pub path: &'a Path,
    /// The directory, if it was named.
    pub dir: Option<PathBuf>,
}

/// What `lavafs:PATH` or `lavafs:PATH:/DIR` means.
pub fn on_volume(db: &Path) -> Option<OnVolume<'_>> {
    let all = db.to_str()?.strip_prefix("lavafs:")?;
    // A path may hold the separator itself: then it is one that is there.
    if !Path::new(all).exists()
        && let Some((path, dir)) = all.rsplit_once(":/")
    {
        return Some(OnVolume { path: Path::new(path), dir: Some(Path::new("/").join(dir)) });
    }
    Some(OnVolume { path: Path::new(all), dir: None })
}

/// The device or image of `lavafs:PATH`.
pub fn volume_of(db: &Path) -> Option<&Path> {
    on_volume(db).map(|place| place.path)
}

impl Place {
    /// The directory of the store on a volume.
    pub const STORE_DIR: &str = "/db";

    /// For a command that only reads.
    pub fn to_read(db: &Path) -> Result<Place> {
        Place::open(db, true)
    }

    /// For a command that writes.
    pub fn to_write(db: &Path) -> Result<Place> {
        Place::open(db, false)
    }

    fn open(db: &Path, read_only: bool) -> Result<Place> {
        let Some(OnVolume { path, dir }) = on_volume(db) else {
            return Ok(Place { env: Env::kernel(), dir: db.to_owned() });
        };
        let env = open_volume(path, read_only)?.into_env();
        Ok(Place { env, dir: dir.unwrap_or_else(|| Self::STORE_DIR.into()) })
    }
}

/// Mounts the volume on a device or in an image.
pub fn open_volume(path: &Path, read_only: bool) -> Result<LavaFs> {
    let device = device::open(path, &DeviceOptions { read_only, ..DeviceOptions::default() });
    let device = device.map_err(|e| absent(path, e))?;
    Ok(mount(&Env::kernel(), device, MountOptions { read_only, ..MountOptions::default() })?)
}

/// The error, with what to do if there is no volume.
fn absent(path: &Path, error: lavastore::Error) -> Error {
    if error.kind() != ErrorKind::NotFound {
        return error.into();
    }
    let path = path.display();
    let what = format!("there is no volume at {path}: lava fs mkfs {path} --size 4G makes one of that size");
    failure(Status::NotFound, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_a_volume_has_a_name() {
        let of = |text: &'static str| on_volume(Path::new(text)).map(|p| (p.path, p.dir));
        assert_eq!(of("dir"), None);
        assert_eq!(of("lavafs:image"), Some((Path::new("image"), None)));
        assert_eq!(of("lavafs:image:/copy/of"), Some((Path::new("image"), Some("/copy/of".into()))));
        assert_eq!(of("lavafs:a:b:/c"), Some((Path::new("a:b"), Some("/c".into()))));
    }
}
