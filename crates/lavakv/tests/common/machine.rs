//! Places of simulated stores: the simulated file system, or with `LAVASTORE_TEST_FS=lavafs` in the
//! environment a LavaFS volume on a simulated device.
//!
//! A machine has one volume, which stays mounted while it is in use, and is then mounted anew.

use lavafs::{FormatOptions, MountOptions, format, mount};
use lavastore_lavakv::Env;
use lavastore_lavakv::io::FileSystem;
use lavastore_lavakv::sim::SimEnv;
use std::cell::RefCell;
use std::sync::{Arc, Weak};

const DEVICE: &str = "/volume";
const DEVICE_LEN: u64 = 1 << 30;

thread_local! {
    static MOUNTED: RefCell<Vec<(SimEnv, Weak<dyn FileSystem>)>> = const { RefCell::new(Vec::new()) };
}

/// True if stores are on LavaFS.
pub fn on_lavafs() -> bool {
    std::env::var("LAVASTORE_TEST_FS").is_ok_and(|name| name == "lavafs")
}

/// True, with the reason printed, for a test of the simulated file system alone.
pub fn skipped_on_lavafs(why: &str) -> bool {
    if on_lavafs() {
        println!("skipped on LavaFS: {why}");
    }
    on_lavafs()
}

/// The environment of a machine.
pub fn env(sim: &SimEnv) -> Env {
    if on_lavafs() { lavafs_env(sim) } else { sim.env() }
}

/// The environment of a machine with a volume, whatever the environment variable says.
pub fn lavafs_env(sim: &SimEnv) -> Env {
    let mounted = MOUNTED.with(|all| {
        let all = all.borrow();
        all.iter().find(|(of, _)| of.is_same(sim)).and_then(|(_, fs)| fs.upgrade())
    });
    if let Some(fs) = mounted {
        return Env { fs, ..sim.env() };
    }
    let made = sim.files().iter().any(|(path, _)| path.as_os_str() == DEVICE);
    let device = sim.device(DEVICE, DEVICE_LEN).unwrap();
    if !made {
        let options = FormatOptions { journal_len: 64 << 10, unit_len: 256 << 10, ..Default::default() };
        format(&sim.env(), &*device, &options).unwrap();
    }
    let options = MountOptions { compact_journal_at: 128 << 10, ..MountOptions::default() };
    let env = mount(&sim.env(), device, options).unwrap().into_env();
    MOUNTED.with(|all| {
        let mut all = all.borrow_mut();
        all.retain(|(_, fs)| fs.strong_count() > 0);
        all.push((sim.clone(), Arc::downgrade(&env.fs)));
    });
    env
}

/// Reasons to test only the simulated file system, with the substitutes on LavaFS.
pub mod because {
    /// It looks at or damages files of the simulator by name.
    pub const DAMAGE: &str = "it changes files around the file system: see torture flip-on-lavafs";
    /// It bounds the simulated file system.
    pub const ROOM: &str = "it bounds the simulated file system: see torture full-on-lavafs";
    /// It takes the last bytes of the volume.
    pub const END: &str = "at the very end of a volume deletes may be refused there: see RELIABILITY.md";
    /// It makes calls of the simulated file system fail.
    pub const FAULTS: &str =
        "it makes certain calls of the file system fail: see torture io-errors-on-lavafs";
    /// It makes the medium read-only.
    pub const MEDIUM: &str = "a volume on a read-only medium has to be mounted for reading only";
    /// It compares bytes read with a plan.
    pub const READS: &str = "not understood yet: a collection reads twice as much as planned there";
    /// It counts calls about files of the simulator by name.
    pub const NAMES: &str = "the medium of a volume has one file, whatever is synced";
    /// It bounds the descriptors of the simulated process.
    pub const DESCRIPTORS: &str = "the files of a volume take no descriptors";
    /// It goes through the record of the simulated file system.
    pub const RECORD: &str =
        "its record would begin with the making of a volume: see torture crash-on-lavafs";
}
