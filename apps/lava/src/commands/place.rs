//! Places of stores: in a directory of the machine, or on a LavaFS volume.
//!
//! `lavafs:PATH` is the volume on the device or in the image PATH, with the store in its directory
//! `/db`. `lavafs:PATH:/DIR` is a store in another directory of the volume, such as a checkpoint. A
//! volume on two devices is named by both in any order with a plus: `lavafs:LARGE+FAST`. Only `lava
//! fs mkfs` creates a volume, since its user must choose the size and the allocation. The store of
//! the command line may have its log on a fast tier (`--fast-tier`), also a directory or a volume.

use super::create::check_parent;
use crate::status::{Status, failure};
use crate::{Error, Result};
use io::BlockDevice;
use io::kernel::device::{self, DeviceOptions};
use lavastore::lavafs::{Devices, LavaFs, MountOptions, mount_on};
use lavastore::{Env, ErrorKind, Volumes};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The store of the command line and its fast tier, for the life of the process.
static SPEED: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();

/// Sets the fast tier of the store in `db`. Other stores of a command (a checkpoint, a repaired
/// store) have none.
pub fn set_speed(db: Option<&Path>, speed: Option<PathBuf>) {
    if let Some((db, speed)) = db.zip(speed) {
        let _ = SPEED.set((db.to_owned(), speed));
    }
}

/// Page cache of volumes in bytes.
static PAGE_CACHE_BYTES: OnceLock<u64> = OnceLock::new();

/// Sets the page cache of volumes.
pub fn set_page_cache(bytes: Option<u64>) {
    if let Some(bytes) = bytes {
        let _ = PAGE_CACHE_BYTES.set(bytes);
    }
}

/// Returns the fast tier of the store in `db`, as named by the user.
pub fn speed_of(db: &Path) -> Option<&'static Path> {
    SPEED.get().filter(|(of, _)| of == db).map(|(_, speed)| &**speed)
}

/// An environment and a directory in it.
pub struct StoreLocation {
    /// Environment of the files.
    pub env: Env,
    /// Directory of the store.
    pub dir: PathBuf,
}

/// A directory on a volume.
#[derive(Debug, PartialEq, Eq)]
pub struct OnVolume<'a> {
    /// Device or image.
    pub path: &'a Path,
    /// Directory, if named.
    pub dir: Option<PathBuf>,
}

/// Parses `lavafs:PATH` or `lavafs:PATH:/DIR`.
pub fn on_volume(db: &Path) -> Option<OnVolume<'_>> {
    let all = db.to_str()?.strip_prefix("lavafs:")?;
    // A path may contain the separator itself if such a file exists.
    if !Path::new(all).exists()
        && let Some((path, dir)) = all.rsplit_once(":/")
    {
        return Some(OnVolume { path: Path::new(path), dir: Some(Path::new("/").join(dir)) });
    }
    Some(OnVolume { path: Path::new(all), dir: None })
}

/// Returns the device or image of `lavafs:PATH`.
pub fn volume_of(db: &Path) -> Option<&Path> {
    on_volume(db).map(|place| place.path)
}

impl StoreLocation {
    /// Default directory of the store on a volume.
    pub const STORE_DIR: &str = "/db";

    /// Returns the place for a command that only reads.
    pub fn to_read(db: &Path) -> Result<StoreLocation> {
        StoreLocation::open(db, true)
    }

    /// Returns the place for a command that writes.
    pub fn to_write(db: &Path) -> Result<StoreLocation> {
        StoreLocation::open(db, false)
    }

    fn open(db: &Path, read_only: bool) -> Result<StoreLocation> {
        match StoreLocation::both(db, read_only)? {
            Some((volumes, StoreLocation { dir, .. }, _)) => Ok(StoreLocation { env: volumes.env(), dir }),
            None => StoreLocation::alone(db, read_only),
        }
    }

    /// Returns the two disks of the store in `db` and the place of the fast tier; `None` without
    /// one.
    pub fn volumes(db: &Path) -> Result<Option<(Volumes, PathBuf)>> {
        Ok(StoreLocation::both(db, false)?.map(|(volumes, _, speed)| (volumes, speed)))
    }

    fn both(db: &Path, read_only: bool) -> Result<Option<(Volumes, StoreLocation, PathBuf)>> {
        let Some((_, speed)) = SPEED.get().filter(|(of, _)| of == db) else { return Ok(None) };
        if !read_only && volume_of(speed).is_none() {
            check_parent(&Env::kernel(), speed, "create it first")?;
        }
        let (place, other) = (StoreLocation::alone(db, read_only)?, StoreLocation::alone(speed, read_only)?);
        let volumes = Volumes::in_envs((&place.env, &place.dir), (&other.env, &other.dir));
        Ok(Some((volumes, place, speed.clone())))
    }

    fn alone(db: &Path, read_only: bool) -> Result<StoreLocation> {
        let Some(OnVolume { path, dir }) = on_volume(db) else {
            return Ok(StoreLocation { env: Env::kernel(), dir: db.to_owned() });
        };
        let env = open_volume(path, read_only)?.into_env();
        Ok(StoreLocation { env, dir: dir.unwrap_or_else(|| Self::STORE_DIR.into()) })
    }
}

/// Mounts the volume on one device or image, or on two.
pub fn open_volume(path: &Path, read_only: bool) -> Result<LavaFs> {
    let devices = open_devices(path, read_only)?;
    let page_cache_bytes = PAGE_CACHE_BYTES.get().copied().unwrap_or(0);
    let options = MountOptions { read_only, page_cache_bytes, ..MountOptions::default() };
    Ok(mount_on(&Env::kernel(), devices, options)?)
}

/// Splits `LARGE+FAST` into its devices or images. A path may contain a plus itself if such a file
/// exists.
pub fn parts(path: &Path) -> Vec<&Path> {
    let Some(all) = path.to_str().filter(|_| !path.exists()) else { return vec![path] };
    let halves = || all.match_indices('+').map(|(at, _)| [&all[..at], &all[at + 1..]].map(Path::new));
    let there = |least: usize| halves().find(|two| two.iter().filter(|path| path.exists()).count() >= least);
    match there(2).or_else(|| there(1)) {
        Some(two) => two.to_vec(),
        None => vec![path],
    }
}

/// Opens the device or image of a volume, or its two.
pub fn open_devices(path: &Path, read_only: bool) -> Result<Devices> {
    let open = |path: &Path, other: Option<&Path>| -> Result<Arc<dyn BlockDevice>> {
        let device = device::open(path, &DeviceOptions { read_only, ..DeviceOptions::default() });
        device.map_err(|e| absent(path, other, e))
    };
    Ok(match parts(path)[..] {
        [large, fast] => Devices::two(open(fast, Some(large))?, open(large, Some(fast))?),
        _ => Devices::one(open(path, None)?),
    })
}

/// Adds the remedy to the error of a missing volume.
fn absent(path: &Path, other: Option<&Path>, error: lavastore::Error) -> Error {
    if error.kind() != ErrorKind::NotFound {
        return error.into();
    }
    let path = path.display();
    let what = match other.map(Path::display) {
        Some(other) => format!(
            "there is no device at {path}, and the volume on {other} needs both of its devices: connect it, or name its path"
        ),
        None => format!("there is no volume at {path}: create one with lava fs mkfs {path} --size 4G"),
    };
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
        assert_eq!(of("lavafs:a+b:/c"), Some((Path::new("a+b"), Some("/c".into()))));
    }

    #[test]
    fn a_plus_separates_devices_if_one_part_exists() {
        let dir = env!("CARGO_MANIFEST_DIR");
        let two = |a: &str, b: &str| format!("{dir}/{a}+{dir}/{b}");
        let names = |path: &str| parts(Path::new(path)).len();
        assert_eq!(names(&two("Cargo.toml", "src")), 2);
        assert_eq!(names(&two("Cargo.toml", "missing")), 2, "one is there");
        assert_eq!(names(&two("missing", "missing-too")), 1, "nothing says that it is two");
        assert_eq!((names("image"), names("a+b")), (1, 1));
    }
}
