//! Place of a store on the real disk: a directory, or LavaFS in one or two image files.

use crate::check::{Check, Doing, ensure};
use io::kernel::device::{self, DeviceOptions};
use lavastore::Env;
use lavastore::lavafs::{Devices, FormatOptions, MountOptions, format_on, fsck_on, mount_on};
use std::path::PathBuf;

/// Image file in the directory of a case.
const IMAGE: &str = "volume";
/// Image file of the capacity device of a volume on two devices.
const SECOND: &str = "volume-of-capacity";

/// Place of the store of a case.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub dir: PathBuf,
    pub on_lavafs: bool,
    /// Seed of the case: it determines the number of devices and the mount options.
    pub seed: u64,
}

impl Place {
    fn has_two_devices(&self) -> bool {
        self.seed.is_multiple_of(2)
    }

    fn devices(&self, options: &DeviceOptions) -> lavastore::Result<Devices> {
        let first = device::open(&self.dir.join(IMAGE), options)?;
        Ok(match self.has_two_devices() {
            true => Devices::two(first, device::open(&self.dir.join(SECOND), options)?),
            false => Devices::one(first),
        })
    }

    /// Creates the volume for a store on LavaFS, in one or two images.
    pub fn make(&self, image_len: u64) -> Check {
        if !self.on_lavafs {
            return Ok(());
        }
        let make = || -> lavastore::Result<()> {
            let env = Env::kernel();
            env.fs.create_dir_all(&self.dir)?;
            device::create_image(&self.dir.join(IMAGE), image_len, device::ImageRoom::Sparse)?;
            if self.has_two_devices() {
                device::create_image(&self.dir.join(SECOND), image_len, device::ImageRoom::Sparse)?;
            }
            let devices = self.devices(&DeviceOptions::default())?;
            // Short, so that kills hit its compaction.
            let options = FormatOptions { journal_len: 64 << 10, unit_len: 256 << 10, ..Default::default() };
            format_on(&env, &devices, &FormatOptions { sparse: true, ..options })
        };
        make().doing(|| "make a volume".into())
    }

    /// Returns the environment, and the directory of the store in it.
    pub fn open(&self) -> Check<(Env, PathBuf)> {
        if !self.on_lavafs {
            return Ok((Env::kernel(), self.dir.clone()));
        }
        let devices = self.devices(&DeviceOptions::default());
        let page_cache_bytes = [0, 64 << 10, 1 << 20][(self.seed % 3) as usize];
        let options =
            MountOptions { compact_journal_at: 128 << 10, page_cache_bytes, ..MountOptions::default() };
        let mounted = devices.and_then(|devices| mount_on(&Env::kernel(), devices, options));
        Ok((mounted.doing(|| "mount".into())?.into_env(), "/db".into()))
    }

    /// Checks an unmounted volume; a kill may have hit between the two slots of the superblock.
    pub fn check(&self, killed: bool) -> Check {
        if !self.on_lavafs {
            return Ok(());
        }
        let options = DeviceOptions { read_only: true, ..DeviceOptions::default() };
        let devices = self.devices(&options).doing(|| "open the images".into())?;
        let report = fsck_on(&Env::kernel(), &devices, false).doing(|| "fsck".into())?;
        let wrong: Vec<_> = report.findings.iter().filter(|f| !killed || !f.what.contains("slots")).collect();
        ensure!(wrong.is_empty(), "fsck found {wrong:?}");
        Ok(())
    }
}
