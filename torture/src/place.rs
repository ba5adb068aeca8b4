//! Where a row that needs the real disk has its store: in a directory, or on LavaFS in an image file.

use crate::check::{Check, Doing, ensure};
use io::kernel::device::{self, DeviceOptions};
use lavastore::Env;
use lavastore::lavafs::{FormatOptions, MountOptions, format, fsck, mount};
use std::path::PathBuf;

/// The image in the directory of a case.
const IMAGE: &str = "volume";

/// Where the store of a case is.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub dir: PathBuf,
    pub on_lavafs: bool,
}

impl Place {
    /// Makes what a store needs that is not there by itself: a volume in an image of so many bytes.
    pub fn make(&self, image_len: u64) -> Check {
        if !self.on_lavafs {
            return Ok(());
        }
        let make = || -> lavastore::Result<()> {
            let env = Env::kernel();
            env.fs.create_dir_all(&self.dir)?;
            device::create_image(&self.dir.join(IMAGE), image_len, device::ImageRoom::Sparse)?;
            let device = device::open(&self.dir.join(IMAGE), &DeviceOptions::default())?;
            // Short, so that kills come during its compaction.
            let options = FormatOptions { journal_len: 64 << 10, unit_len: 256 << 10, ..Default::default() };
            format(&env, &*device, &FormatOptions { sparse: true, ..options })
        };
        make().doing(|| "make a volume".into())
    }

    /// The environment, and the directory of the store in it.
    pub fn open(&self) -> Check<(Env, PathBuf)> {
        if !self.on_lavafs {
            return Ok((Env::kernel(), self.dir.clone()));
        }
        let device = device::open(&self.dir.join(IMAGE), &DeviceOptions::default());
        let options = MountOptions { compact_journal_at: 128 << 10, ..MountOptions::default() };
        let mounted = device.and_then(|device| mount(&Env::kernel(), device, options));
        Ok((mounted.doing(|| "mount".into())?.into_env(), "/db".into()))
    }

    /// Nothing is wrong with the volume, which nobody has mounted; a kill may have come between the two slots of the superblock.
    pub fn check(&self, killed: bool) -> Check {
        if !self.on_lavafs {
            return Ok(());
        }
        let options = DeviceOptions { read_only: true, ..DeviceOptions::default() };
        let device = device::open(&self.dir.join(IMAGE), &options).doing(|| "open the image".into())?;
        let report = fsck(&Env::kernel(), &*device, false).doing(|| "fsck".into())?;
        let wrong: Vec<_> = report.findings.iter().filter(|f| !killed || !f.what.contains("slots")).collect();
        ensure!(wrong.is_empty(), "fsck found {wrong:?}");
        Ok(())
    }
}
