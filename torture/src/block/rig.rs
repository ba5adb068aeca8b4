//! A block device that logs its writes, and file systems on it.
//!
//! The device is a loop device (through the page cache: `--direct-io=off`) over a file that
//! `qemu-storage-daemon` exports through FUSE. Below it, the driver `blklogwrites` logs requests as
//! they complete. A write to the loop device becomes a write to the export, and a flush becomes an
//! `fsync`, which the daemon logs as a flush. `blkdebug` refuses discards and zero writes, so that
//! callers write zeros instead: `blklogwrites` before QEMU 9 logs their data at a wrong place.
//!
//! All this runs in its own namespaces of processes and mounts, on a private `tmpfs`. When the
//! process that created them ends in any way, the kernel ends the daemon and the writer and
//! unmounts everything. It also frees the loop devices, which are all marked for autoclear. No
//! cleanup is needed, and any number of runs can share the machine.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "images and logs are files of the campaign, not of the engine"
)]

use super::log::{DeviceImage, Log};
use crate::check::{Check, Doing, ensure};
use lavastore::Env;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Space for an image, a log, and a state of the image.
const SCRATCH_OPTIONS: &str = "size=2g,mode=700";

/// The file system on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Below {
    Ext4,
    Xfs,
    Btrfs,
    LavaFs,
}

impl Below {
    pub const ALL: [Below; 4] = [Below::Ext4, Below::Xfs, Below::Btrfs, Below::LavaFs];

    /// Returns its name for the counts.
    pub fn count_name(self) -> &'static str {
        match self {
            Below::Ext4 => "images of ext4",
            Below::Xfs => "images of XFS",
            Below::Btrfs => "images of btrfs",
            Below::LavaFs => "images of LavaFS",
        }
    }

    /// Returns its mkfs program and arguments.
    pub fn maker(self) -> Option<&'static [&'static str]> {
        match self {
            Below::Ext4 => Some(&["mkfs.ext4", "-q", "-E", "nodiscard"]),
            Below::Xfs => Some(&["mkfs.xfs", "-q", "-K"]),
            Below::Btrfs => Some(&["mkfs.btrfs", "-q", "-K"]),
            Below::LavaFs => None,
        }
    }

    /// Returns the size of the device in bytes.
    pub fn device_len(self) -> u64 {
        match self {
            Below::Ext4 | Below::LavaFs => 128 << 20,
            // Minimum of mkfs.xfs.
            Below::Xfs => 300 << 20,
            Below::Btrfs => 256 << 20,
        }
    }

    /// Returns the unit of atomic device writes in bytes. Btrfs requires whole blocks for its
    /// superblock and ext4 the 1,024 bytes of its own. XFS, when it replays its log, requires whole
    /// directory blocks: a torn one has a wrong checksum, and the mount fails.
    pub fn atom(self) -> usize {
        match self {
            Below::Btrfs | Below::Xfs => 4096,
            Below::Ext4 => 1024,
            Below::LavaFs => 512,
        }
    }

    fn mount_options(self) -> &'static str {
        match self {
            Below::Xfs => "loop,nouuid,nodiscard",
            _ => "loop,nodiscard",
        }
    }
}

/// Runs a program to completion.
pub(super) fn run(program: &str, arguments: &[&str]) -> Check<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.doing(|| format!("start of {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {}", arguments.join(" "), said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

/// Mounts the scratch directory of this namespace.
pub(super) fn mount_scratch(at: &Path) -> Check {
    fs::create_dir_all(at).doing(|| "make the scratch directory".into())?;
    run("mount", &["-t", "tmpfs", "-o", SCRATCH_OPTIONS, "lavastore-block", text(at)]).map(drop)
}

/// A mounted file system; unmounted on drop.
#[derive(Debug)]
pub(super) struct Mounted {
    pub at: PathBuf,
}

impl Mounted {
    /// Mounts an image file, or the export in its place.
    pub fn new(fs: Below, image: &Path, at: PathBuf) -> Check<Mounted> {
        fs::create_dir_all(&at).doing(|| "make a directory".into())?;
        if fs == Below::Btrfs {
            // The kernel remembers a newer state of this file system, and would refuse an older
            // one.
            run("btrfs", &["device", "scan", "--forget"])?;
        }
        let kind = text(Path::new(fs.maker().map_or("", |maker| maker[0]))).trim_start_matches("mkfs.");
        run("mount", &["-t", kind, "-o", fs.mount_options(), text(image), text(&at)])?;
        Ok(Mounted { at })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(why) = run("umount", &[text(&self.at)]) {
            eprintln!("torture: {why}");
            let _ = run("umount", &["--lazy", text(&self.at)]);
        }
    }
}

/// A loop device over a file with autoclear.
#[derive(Debug)]
pub(super) struct Loop {
    pub path: PathBuf,
    _user: File,
}

impl Loop {
    pub fn new(file: &Path) -> Check<Loop> {
        let path = run("losetup", &["--find", "--show", "--direct-io=off", text(file)])?;
        let user = File::open(&path);
        // The device is in use, so this only marks it for autoclear.
        run("losetup", &["--detach", &path])?;
        Ok(Loop { path: path.into(), _user: user.doing(|| "open a loop device".into())? })
    }
}

/// Same as [`Loop::new`], with a link to the device.
pub(super) fn loop_at(file: &Path, link: &Path) -> Check<Loop> {
    let device = Loop::new(file)?;
    let _ = fs::remove_file(link);
    std::os::unix::fs::symlink(&device.path, link).doing(|| "make a link".into())?;
    Ok(device)
}

/// Returns true if a file can be opened for reading and writing.
pub(super) fn can_write(path: &str) -> bool {
    File::options().read(true).write(true).open(path).is_ok()
}

/// The logging device.
#[derive(Debug)]
pub(super) struct Rig {
    daemon: Child,
    dir: PathBuf,
    running: bool,
}

impl Rig {
    /// Starts the daemon over an existing image.
    pub fn start(dir: &Path) -> Check<Rig> {
        let rig_dir = dir.to_owned();
        for name in ["log", "export"] {
            File::create(dir.join(name)).doing(|| "make a file".into())?;
        }
        let file = |node: &str, name: &str| {
            format!("driver=file,node-name={node},filename={}", text(&dir.join(name)))
        };
        let refuse = |what| format!(r#"{{"event":"none","iotype":"{what}","errno":95,"once":false}}"#);
        let filter = format!(
            r#"{{"driver":"blkdebug","node-name":"top","image":"logged","inject-error":[{},{}]}}"#,
            refuse("write-zeroes"),
            refuse("discard")
        );
        let export =
            format!("type=fuse,id=export,node-name=top,writable=on,mountpoint={}", text(&dir.join("export")));
        let daemon = Command::new("qemu-storage-daemon")
            .args(["--blockdev", &file("image", "image"), "--blockdev", &file("log", "log")])
            .args([
                "--blockdev",
                "driver=blklogwrites,node-name=logged,file=image,log=log,log-sector-size=512",
            ])
            .args(["--blockdev", &filter, "--export", &export])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(dir.join("daemon")).doing(|| "make a file".into())?)
            .spawn()
            .doing(|| "start of qemu-storage-daemon".into())?;
        let mut rig = Rig { daemon, dir: rig_dir, running: true };
        rig.wait_for_export()?;
        Ok(rig)
    }

    /// Waits for the export, which is ready once it has the length of the image.
    fn wait_for_export(&mut self) -> Check {
        let clock = Env::kernel().clock;
        for _ in 0..1000 {
            if fs::metadata(self.export()).is_ok_and(|m| m.len() > 0) {
                return Ok(());
            }
            if self.daemon.try_wait().doing(|| "wait for qemu-storage-daemon".into())?.is_some() {
                break;
            }
            clock.sleep_ns(5_000_000);
        }
        let said = fs::read_to_string(self.dir.join("daemon")).unwrap_or_default();
        Err(format!("qemu-storage-daemon exports nothing through FUSE: {}", said.trim()))
    }

    pub fn export(&self) -> PathBuf {
        self.dir.join("export")
    }

    /// Ends the daemon after the last use of the device, and returns its log.
    pub fn end(mut self) -> Check<Log> {
        self.stop();
        Log::parse(fs::read(self.dir.join("log")).doing(|| "read the log of the device".into())?)
    }

    fn stop(&mut self) {
        if !std::mem::take(&mut self.running) {
            return;
        }
        // All logged requests are written.
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        // The export stays mounted without the daemon; unmounting it reveals the file below.
        if let Err(why) = run("umount", &["--lazy", text(&self.export())]) {
            eprintln!("torture: {why}");
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Returns the length of the log in bytes.
pub(super) fn log_len(dir: &Path) -> Check<u64> {
    Ok(fs::metadata(dir.join("log")).doing(|| "length of the log of the device".into())?.len())
}

/// Creates a file of zeros.
pub(super) fn create(path: &Path, len: u64) -> Check {
    File::create(path).and_then(|file| file.set_len(len)).doing(|| "make an image".into())
}

/// Reads an image file.
pub(super) fn load(path: &Path) -> Check<DeviceImage> {
    let mut file = File::open(path).doing(|| "open an image".into())?;
    let (mut image, mut offset, mut chunk) = (DeviceImage::default(), 0, vec![0; 1 << 20]);
    loop {
        let n = file.read(&mut chunk).doing(|| "read an image".into())?;
        if n == 0 {
            return Ok(image);
        }
        for (at, block) in (offset..).step_by(4096).zip(chunk[..n].chunks(4096)) {
            if block.iter().any(|b| *b != 0) {
                image.write(at, block);
            }
        }
        offset += n as u64;
    }
}

/// Writes an image to a new file.
pub(super) fn store(image: &DeviceImage, path: &Path, len: u64) -> Check {
    let _ = fs::remove_file(path);
    create(path, len)?;
    let file = File::options().write(true).open(path).doing(|| "open an image".into())?;
    image
        .runs()
        .try_for_each(|(offset, bytes)| file.write_all_at(bytes, offset))
        .doing(|| "write an image".into())
}

/// Keeps a failing image for inspection.
pub(super) fn keep(image: &DeviceImage, path: &Path, len: u64) -> String {
    match store(image, path, len) {
        Ok(()) => format!("the image is kept at {}", path.display()),
        Err(why) => format!("the image is lost: {why}"),
    }
}
