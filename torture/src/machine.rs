//! The machine of a row: the simulated file system, or LavaFS on one or two simulated devices.
//!
//! Rows ask for the environment of a simulation whenever they open a store. On LavaFS that is a
//! mounted volume, only one at a time: the present mount while it has users, otherwise a new mount.
//! [`damage`] and [`room`] manipulate it like the simulator's own files.

pub(crate) mod damage;
pub(crate) mod room;

use crate::check::{Check, Doing};
use io::{FileSystem, Rng};
use lavastore::Volumes;
use lavastore::lavafs::{Devices, FormatOptions, LavaFs, MountOptions, format_on, fsck_on, mount_on};
use lavastore::testing::SimEnv;
use lavastore::{Env, Result};
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};

/// Directory of the store.
pub(crate) const DIR: &str = "/db";
/// Directory of its log, in rows with two disks.
pub(crate) const SPEED_DIR: &str = "/speed";

const DEVICE: &str = "/volume";
const DEVICE_LEN: u64 = 256 << 20;
/// The capacity device of a volume on two devices.
const SECOND: &str = "/second";
/// Lengths of the speed device of two. It may be too short for its data; the rest is then on the
/// capacity device.
const SPEED_LENS: [u64; 2] = [4 << 20, 64 << 20];
/// File that fills the volume.
const BALLAST: &str = "/ballast";

thread_local! {
    static ON_LAVAFS: Cell<bool> = const { Cell::new(false) };
    static ON_TWO_DISKS: Cell<bool> = const { Cell::new(false) };
    /// Number of created volumes on two devices.
    static OF_TWO: Cell<u64> = const { Cell::new(0) };
    static MOUNTED: RefCell<Vec<(SimEnv, Weak<dyn FileSystem>)>> = const { RefCell::new(Vec::new()) };
}

/// Runs a case on LavaFS.
pub(crate) fn on_lavafs<T>(case: impl FnOnce() -> T) -> T {
    /// Restores the settings, even after a panic.
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

/// Runs a case with the store's log on a second disk. Both disks are directories of the simulated
/// volume, which keeps or loses unsynced data of each file and directory independently. So every
/// combination of two disks can occur.
pub(crate) fn on_two_disks<T>(case: impl FnOnce() -> T) -> T {
    /// Restores the settings, even after a panic.
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

/// Adds the second disk of the case to an environment, if it has one.
fn with_speed(env: Env) -> Env {
    match ON_TWO_DISKS.get() {
        true => Volumes::in_envs((&env, DIR.as_ref()), (&env, SPEED_DIR.as_ref())).env(),
        false => env,
    }
}

/// Returns true if the case has a second disk.
pub(crate) fn has_two_disks() -> bool {
    ON_TWO_DISKS.get()
}

/// Returns true if the case runs on LavaFS.
pub(crate) fn is_lavafs() -> bool {
    ON_LAVAFS.get()
}

/// Returns a new machine; its record begins after the creation of the volume.
pub(crate) fn new(seed: u64) -> SimEnv {
    let sim = SimEnv::new(seed);
    if !ON_LAVAFS.get() {
        return sim;
    }
    let options = FormatOptions { journal_len: 64 << 10, unit_len: 256 << 10, ..FormatOptions::default() };
    let device = |name, len| sim.device(name, len).expect("a device can be made");
    let mut drawn = Rng::new(seed ^ 0x7477_6f20_6f6e);
    let devices = match drawn.one_in(2) {
        true => {
            OF_TWO.set(OF_TWO.get() + 1);
            let speed_len = SPEED_LENS[drawn.below(2) as usize];
            Devices::two(device(DEVICE, speed_len), device(SECOND, DEVICE_LEN))
        }
        false => Devices::one(device(DEVICE, DEVICE_LEN)),
    };
    format_on(&sim.env(), &devices, &options).expect("new devices can be formatted");
    drop(devices);
    sim.fork(seed)
}

/// Returns the number of volumes on two devices since the last call.
pub(crate) fn take_volumes_of_two() -> u64 {
    OF_TWO.take()
}

/// Returns true if the volume of a machine has two devices.
fn has_second(sim: &SimEnv) -> Result<bool> {
    sim.env().fs.exists(SECOND.as_ref())
}

/// Returns the one or two devices of a machine's volume.
fn devices(sim: &SimEnv) -> Result<Devices> {
    let first = sim.device(DEVICE, 0)?;
    Ok(match has_second(sim)? {
        true => Devices::two(first, sim.device(SECOND, 0)?),
        false => Devices::one(first),
    })
}

/// Returns the mount options of a machine's volume. They vary with each mount, with and without a
/// page cache, but are not drawn.
fn mount_options(sim: &SimEnv) -> MountOptions {
    MountOptions {
        // A short journal, so that its compaction is hit often.
        compact_journal_at: 128 << 10,
        discard: true,
        page_cache_bytes: [0, 64 << 10, 1 << 20][(sim.op_count() % 3) as usize],
        ..MountOptions::default()
    }
}

/// Returns the environment of a machine.
pub(crate) fn env(sim: &SimEnv) -> Check<Env> {
    try_env(sim).doing(|| "mount".into())
}

/// Same as `env`, for a machine that may be damaged.
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
    let options = mount_options(sim);
    let env = mount_on(&sim.env(), devices(sim)?, options)?.into_env();
    MOUNTED.with(|mounted| {
        let mut mounted = mounted.borrow_mut();
        mounted.retain(|(_, fs)| fs.strong_count() > 0);
        mounted.push((sim.clone(), Arc::downgrade(&env.fs)));
    });
    Ok(with_speed(env))
}

/// Mounts LavaFS on a machine that runs threads, in their environment.
pub(crate) fn env_with_threads(sim: &SimEnv, env: &Env) -> Check<Env> {
    let devices = devices(sim).doing(|| "open the devices".into())?;
    Ok(mount_on(env, devices, mount_options(sim)).doing(|| "mount".into())?.into_env())
}

/// Mounts the volume of a machine that is not mounted.
fn mounted_by_hand(sim: &SimEnv, read_only: bool) -> Check<LavaFs> {
    let devices = devices(sim).doing(|| "open the devices".into())?;
    mount_on(&sim.env(), devices, MountOptions { read_only, ..MountOptions::default() })
        .doing(|| "mount".into())
}

/// Returns the findings of `fsck` on the machine's device; none without a device.
pub(crate) fn fsck(sim: &SimEnv) -> Check<Vec<String>> {
    if !ON_LAVAFS.get() {
        return Ok(Vec::new());
    }
    let devices = devices(sim).doing(|| "open the devices".into())?;
    let report = fsck_on(&sim.env(), &devices, false).doing(|| "fsck".into())?;
    Ok(report.findings.into_iter().map(|finding| finding.what).collect())
}
