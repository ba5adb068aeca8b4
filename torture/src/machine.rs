//! The machine that a row runs on: the simulated file system, or LavaFS on a simulated device.
//!
//! Rows ask for the environment of a simulation whenever they open a store. On LavaFS that is a mounted volume, of which
//! there is one at a time: the one that is mounted as long as anybody uses it, else a new mount. [`damage`] and [`room`]
//! do to it what the simulator does to its own files.

pub(crate) mod damage;
pub(crate) mod room;

use crate::check::{Check, Doing};
use io::FileSystem;
use lavastore::Volumes;
use lavastore::lavafs::{FormatOptions, LavaFs, MountOptions, format, mount};
use lavastore::testing::SimEnv;
use lavastore::{Env, Result};
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};

/// Where the store is.
pub(crate) const DIR: &str = "/db";
/// Where its log is, in rows with two disks.
pub(crate) const SPEED_DIR: &str = "/speed";

const DEVICE: &str = "/volume";
const DEVICE_LEN: u64 = 256 << 20;
/// The file that takes room.
const BALLAST: &str = "/ballast";

thread_local! {
    static ON_LAVAFS: Cell<bool> = const { Cell::new(false) };
    static ON_TWO_DISKS: Cell<bool> = const { Cell::new(false) };
    static MOUNTED: RefCell<Vec<(SimEnv, Weak<dyn FileSystem>)>> = const { RefCell::new(Vec::new()) };
}

/// Runs a case on LavaFS.
pub(crate) fn on_lavafs<T>(case: impl FnOnce() -> T) -> T {
    /// Puts things back, also after a panic.
    struct Back;
    impl Drop for Back {
        fn drop(&mut self) {
            ON_LAVAFS.set(false);
            room::clear();
            MOUNTED.with(|mounted| mounted.borrow_mut().clear());
        }
    }
    let _back = Back;
    ON_LAVAFS.set(true);
    case()
}

/// Runs a case with the log of the store on a disk of its own. Both disks are directories of the simulated volume, which keeps and loses what
/// is not synced of each file and of each directory by itself: whatever two disks may leave together.
pub(crate) fn on_two_disks<T>(case: impl FnOnce() -> T) -> T {
    /// Puts things back, also after a panic.
    struct Back;
    impl Drop for Back {
        fn drop(&mut self) {
            ON_TWO_DISKS.set(false);
        }
    }
    let _back = Back;
    ON_TWO_DISKS.set(true);
    case()
}

/// A directory of one file system, in which a store has its log on the second disk of the case, if that has one.
fn with_speed(env: Env) -> Env {
    match ON_TWO_DISKS.get() {
        true => Volumes::in_envs((&env, DIR.as_ref()), (&env, SPEED_DIR.as_ref())).env(),
        false => env,
    }
}

/// True if the case has a second disk.
pub(crate) fn has_two_disks() -> bool {
    ON_TWO_DISKS.get()
}

/// True if the case runs on LavaFS.
pub(crate) fn is_lavafs() -> bool {
    ON_LAVAFS.get()
}

/// A new machine; its record begins behind the making of the volume.
pub(crate) fn new(seed: u64) -> SimEnv {
    let sim = SimEnv::new(seed);
    if !ON_LAVAFS.get() {
        return sim;
    }
    let options = FormatOptions { journal_len: 64 << 10, unit_len: 256 << 10, ..FormatOptions::default() };
    let device = sim.device(DEVICE, DEVICE_LEN).expect("a device can be made");
    format(&sim.env(), &*device, &options).expect("a new device can be formatted");
    drop(device);
    sim.fork(seed)
}

/// The environment of a machine.
pub(crate) fn env(sim: &SimEnv) -> Check<Env> {
    try_env(sim).doing(|| "mount".into())
}

/// The same where it may be damaged.
pub(crate) fn try_env(sim: &SimEnv) -> Result<Env> {
    if !ON_LAVAFS.get() {
        return Ok(with_speed(sim.env()));
    }
    let found = MOUNTED.with(|mounted| {
        let mounted = mounted.borrow();
        mounted.iter().find(|(of, _)| of.is_same(sim)).and_then(|(_, fs)| fs.upgrade())
    });
    if let Some(fs) = found {
        return Ok(with_speed(Env { fs, ..sim.env() }));
    }
    // A short journal: its compaction is met as often as possible.
    let options = MountOptions { compact_journal_at: 128 << 10, discard: true, ..MountOptions::default() };
    let env = mount(&sim.env(), sim.device(DEVICE, 0)?, options)?.into_env();
    MOUNTED.with(|mounted| {
        let mut mounted = mounted.borrow_mut();
        mounted.retain(|(_, fs)| fs.strong_count() > 0);
        mounted.push((sim.clone(), Arc::downgrade(&env.fs)));
    });
    Ok(with_speed(env))
}

/// LavaFS on a machine that runs threads, with the environment of those.
pub(crate) fn env_with_threads(sim: &SimEnv, env: &Env) -> Check<Env> {
    let device = sim.device(DEVICE, 0).doing(|| "open the device".into())?;
    let options = MountOptions { compact_journal_at: 128 << 10, discard: true, ..MountOptions::default() };
    Ok(mount(env, device, options).doing(|| "mount".into())?.into_env())
}

/// The volume of a machine that nobody has mounted.
fn mounted_by_hand(sim: &SimEnv, read_only: bool) -> Check<LavaFs> {
    let device = sim.device(DEVICE, 0).doing(|| "open the device".into())?;
    mount(&sim.env(), device, MountOptions { read_only, ..MountOptions::default() }).doing(|| "mount".into())
}

/// What `fsck` says about the device of a machine; nothing where there is none.
pub(crate) fn fsck(sim: &SimEnv) -> Check<Vec<String>> {
    if !ON_LAVAFS.get() {
        return Ok(Vec::new());
    }
    let device = sim.device(DEVICE, 0).doing(|| "open the device".into())?;
    let report = lavastore::lavafs::fsck(&sim.env(), &*device, false).doing(|| "fsck".into())?;
    Ok(report.findings.into_iter().map(|finding| finding.what).collect())
}
