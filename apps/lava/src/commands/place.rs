//! Where a store is: in a directory of the machine, or on a LavaFS volume.
//!
//! `lavafs:PATH` is the volume on the device or in the image PATH, with the store in its directory `/db`. An image that
//! is not there is made by commands that make stores, with its blocks reserved: others who fill the file system that it is on
//! must not take the room that a write in it has found.

use crate::Result;
use lavastore::Env;
use lavastore::io::BLOCK;
use lavastore::io::kernel::device::{self, DeviceOptions, ImageRoom};
use lavastore::lavafs::{FormatOptions, LavaFs, MountOptions, format, mount};
use std::path::{Path, PathBuf};

/// The size of an image that is made because there is none, but at most half of the room there is.
const IMAGE_LEN: u64 = 8 << 30;

/// An environment, and the directory in it.
pub struct Place {
    /// Where its files are.
    pub env: Env,
    /// The directory of the store.
    pub dir: PathBuf,
}

/// The device or image of `lavafs:PATH`.
pub fn volume_of(db: &Path) -> Option<&Path> {
    db.to_str()?.strip_prefix("lavafs:").map(Path::new)
}

impl Place {
    /// The directory of the store on a volume.
    pub const STORE_DIR: &str = "/db";

    /// For a command that only reads.
    pub fn to_read(db: &Path) -> Result<Place> {
        match volume_of(db) {
            None => Ok(Place::on_the_machine(db)),
            Some(path) => Place::on(open_volume(path, true)?),
        }
    }

    /// For a command that writes; `create`: a store may be made.
    pub fn to_write(db: &Path, create: bool) -> Result<Place> {
        let Some(path) = volume_of(db) else { return Ok(Place::on_the_machine(db)) };
        if create {
            make_volume(path)?;
        }
        Place::on(open_volume(path, false)?)
    }

    fn on_the_machine(db: &Path) -> Place {
        Place { env: Env::kernel(), dir: db.to_owned() }
    }

    fn on(volume: LavaFs) -> Result<Place> {
        Ok(Place { env: volume.into_env(), dir: Self::STORE_DIR.into() })
    }
}

/// Makes an image if there is nothing at the path.
pub fn make_volume(path: &Path) -> Result<()> {
    let env = Env::kernel();
    if !env.fs.exists(path)? {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let half = env.fs.space(dir)?.available / 2;
        let len = IMAGE_LEN.min(half) / BLOCK as u64 * BLOCK as u64;
        device::create_image(path, len.max(BLOCK as u64), ImageRoom::Reserved)?;
        let made = device::open(path, &DeviceOptions::default())
            .and_then(|device| format(&env, &*device, &FormatOptions::default()).map(drop));
        if made.is_err() {
            // An image without a volume in it would only be in the way; the first error is the one to report.
            let _ = env.fs.remove(path);
        }
        made?;
    }
    Ok(())
}

/// Mounts the volume on a device or in an image.
pub fn open_volume(path: &Path, read_only: bool) -> Result<LavaFs> {
    let device = device::open(path, &DeviceOptions { read_only, ..DeviceOptions::default() })?;
    Ok(mount(&Env::kernel(), device, MountOptions { read_only, ..MountOptions::default() })?)
}
