//! The simulated environment: files in memory, a clock that moves by itself, seeded randomness, no
//! threads.
//!
//! The whole engine runs on it unchanged, and equal seeds give equal runs, byte for byte. It exists
//! for three things a kernel cannot give: **every legal state after a crash**
//! ([`Record::crash_at`]), **every fault at every operation** ([`SimEnv::inject`]) and **damage at
//! will** (`flip_bit` and its neighbours).
//!
//! # The crash model
//!
//! Every file has a *live* content, which processes see, and a *durable* one, which is on stable
//! media; between them lies the list of writes that no sync has covered. A directory has live and
//! durable names and a list of changes of names in the same way.
//!
//! ## Death of the process
//!
//! Survives: everything handed to the file system, including every write to a shared mapping,
//! synced or not. What was unsynced stays unsynced, so that a later loss of power may still take
//! it.
//!
//! Lost: the write buffer of every append file, and all locks.
//!
//! The operation under way may have happened in part: a prefix of the bytes of a write, an append
//! followed by zeros up to the end of the page (direct I/O writes whole pages and cuts the file
//! afterwards), a preallocated file that is shorter than asked for, a truncation without the growth
//! that follows it; or whole, or not at all.
//!
//! ## Loss of power
//!
//! Never lost, and never changed:
//!
//! * of an append file, what was appended before a sync that returned without an error;
//! * of an in-place file, the zeros it was created with, every durable write, and every plain write
//!   before a data sync that returned without an error. A durable write covers itself alone: an
//!   earlier plain write to other sectors may still be lost; one to the same sectors can no longer
//!   land on top of it;
//! * of a directory, the names as of its last sync that returned without an error.
//!
//! May be lost, each on its own:
//!
//! * **Names.** A created, linked, renamed or removed name is volatile until its *directory* is
//!   synced; syncing the file does not help. Of the unsynced changes of a directory a prefix
//!   survives. A rename is atomic, also between two directories: `to` names the old file or the new
//!   one. A new directory is a name in its parent: if it is lost, everything in it is.
//! * **Unsynced writes**, in units of 512 bytes: after the crash each such sector holds the durable
//!   version or that after any of the unsynced writes that touched it. Whole sectors, never a
//!   mixture within one. Which combinations come up is the [`Policy`]: a prefix in time, whole
//!   writes dropped, newer kept and older lost, torn writes, or any version of every sector.
//!   [`Policy::TornBytes`] tears inside a sector as well: of one sector of a write the bytes before
//!   a point are new, and the others old, or the other way round.
//! * **Readability.** Under [`Policy::Unreadable`] a few sectors under an unsynced write give EIO
//!   when they are read, until they are written whole. Sectors that hold durable bytes of an append
//!   file are spared, and so are those that the write leaves as they are: a device that loses these
//!   keeps no promise that a sync could make.
//! * **Lengths.** The length of a growing file is that of some moment since the sync (in the torn
//!   policies any sector in between, or rounded up to the page, with zeros), independent of which
//!   data landed. Below the length, sectors that did not land read as zeros, or, under
//!   [`Policy::Stale`], as bytes that another file held there before, as on file systems that
//!   journal metadata only.
//! * **Shared mappings**: never synced, so every sector shows some version of its history. Many
//!   versions in the middle are forgotten in time to bound memory; the oldest and the newest are
//!   always possible.
//! * **Holes punched** are writes of zeros like any other.
//!
//! The operation under way counts as an unsynced one, durable writes included.
//!
//! ## Failed syncs
//!
//! After a failed sync, each write that it should have covered is durable or lost, torn perhaps,
//! decided by the seed; and either way it counts as clean, as in a kernel: a second sync succeeds
//! and does nothing for it. What processes read back is the new or the durable content, also by
//! seed. Of a directory, a prefix of the changes is durable and the rest are lost although they
//! stay visible.
//!
//! # Records
//!
//! Each call that reaches the environment is an operation with a number ([`SimEnv::op_count`]). The
//! record holds the changes of every operation, and a copy-on-write copy of the volume every few
//! dozen, so that the state at any number costs a short replay: for a store of some MB about a
//! tenth of a millisecond. [`SimEnv::state_hash`] tells distinct images apart; the hashes of pages
//! are remembered in the pages that images share.
//!
//! # What it does not model
//!
//! Calls that overlap in time (each happens at once; threads under a schedule, `threads`, take
//! turns between them), permissions, symbolic links, and the order between changes of different
//! directories (all orders are tried).

mod clock;
mod content;
mod crash;
mod damage;
mod device;
mod disk;
mod disk_times;
mod fault;
mod file;
mod fs;
#[cfg(feature = "sched")]
pub mod threads;
mod world;

#[cfg(test)]
mod tests;

pub use clock::Costs;
pub use crash::{CrashKind, Policy};
pub use disk_times::{DeviceModel, Service};
pub use fault::{FaultEffect, FaultPlan, OpKind};
pub use world::Record;

use crate::{BlockDevice, Clock, Env, PAGE, Rng};
use base::Result;
use base::sync::leaf::Mutex;
use clock::{SimClock, SimEntropy};
use disk::Disk;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use world::{Shared, World, restarted};

/// What the media write atomically, bytes.
pub const SECTOR: usize = 512;
/// Simulated time from a crash to the environment after it.
const RESTART_NS: u64 = 1_000_000_000;

/// A simulated machine: a volume, a clock, randomness. Clones are handles to the same one.
///
/// ```
/// use io::sim::{CrashKind, Policy, SimEnv};
/// # use lavastore_io as io;
/// let sim = SimEnv::new(7);
/// let fs = sim.env().fs;
/// let mut file = fs.create("/a".as_ref(), &io::CreateOptions::default())?;
/// file.append(b"kept")?;
/// file.sync(io::SyncKind::Data)?;
/// fs.sync_dir("/".as_ref())?;
/// file.append(b", perhaps")?;
/// file.flush()?;
///
/// let after = sim.record().crash_at(sim.op_count(), CrashKind::PowerLossWith(Policy::Dropped), 1);
/// assert!(after.read_file("/a")?.starts_with(b"kept"));
/// # Ok::<(), base::Error>(())
/// ```
#[derive(Clone)]
pub struct SimEnv(Arc<Shared>);

impl fmt::Debug for SimEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let world = self.0.lock();
        write!(f, "SimEnv(seed {}, {} operations)", world.seed, world.op_count())
    }
}

impl SimEnv {
    /// A machine with an empty volume.
    pub fn new(seed: u64) -> SimEnv {
        SimEnv::on(seed, Disk::new(), 0)
    }

    /// A machine with this volume.
    fn on(seed: u64, disk: Disk, now_ns: u64) -> SimEnv {
        SimEnv(Arc::new(Shared {
            world: Mutex::new(World::new(seed, disk)),
            clock: Arc::new(SimClock::new(now_ns)),
            entropy: Arc::new(SimEntropy::new(seed)),
            descriptors: Arc::default(),
        }))
    }

    /// What the engine runs on. Without a spawner.
    pub fn env(&self) -> Env {
        Env {
            fs: Arc::new(fs::SimFs(self.0.clone())),
            clock: self.0.clock.clone(),
            spawner: None,
            entropy: self.0.entropy.clone(),
            descriptors: self.0.descriptors.clone(),
        }
    }

    /// True if both are handles to the same machine.
    pub fn is_same(&self, other: &SimEnv) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A block device of this machine, made (of durable zeros) if there is none of that name. It is
    /// a file like others: crashes, faults, records and damage treat it as one that is written in
    /// place.
    ///
    /// # Errors
    /// Those of making the file, or opening it.
    pub fn device(&self, name: &str, len: u64) -> Result<Arc<dyn BlockDevice>> {
        Ok(Arc::new(device::SimDevice::open(&self.0, name.as_ref(), len)?))
    }

    /// Makes a device longer, as an administrator does. Who has it open sees that when he measures
    /// it. A loss of power may take it back until the device was synced. One that is as long
    /// already stays as it is.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn lengthen_device(&self, name: &str, len: u64) -> Result<()> {
        device::SimDevice::lengthen(&self.0, name.as_ref(), len)
    }

    /// A device takes as long as a model of it says, whoever asks and in whichever way.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn set_device_model(&self, name: &str, model: DeviceModel) -> Result<()> {
        device::SimDevice::set_model(&self.0, name.as_ref(), model)
    }

    // Time.

    /// Simulated nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.0.clock.now_ns()
    }

    /// Lets time pass.
    pub fn advance_ns(&self, ns: u64) {
        self.0.clock.advance(ns);
    }

    /// Moves the wall clock alone, as an administrator does.
    pub fn jump_wall_clock(&self, seconds: i64) {
        self.0.clock.jump_wall_clock(seconds);
    }

    /// Changes what operations cost in time.
    pub fn set_costs(&self, costs: Costs) {
        self.0.lock().costs = costs;
    }

    // The record.

    /// Number of operations begun so far; the next one has this number.
    pub fn op_count(&self) -> u64 {
        self.0.lock().op_count()
    }

    /// Number of operations of a kind (`None`: all) on paths that end so (an empty suffix: all
    /// paths).
    pub fn count_ops(&self, kind: Option<OpKind>, path_suffix: &str) -> u64 {
        self.0.lock().count_ops(kind, path_suffix)
    }

    /// The last few thousand operations, one a line: number, kind, path, offset and length, error.
    pub fn trace(&self) -> String {
        self.0.lock().trace()
    }

    /// The history up to now.
    pub fn record(&self) -> Record {
        self.0.lock().record()
    }

    // Crashes.

    /// What a crash now, between two operations, leaves. This machine goes on undisturbed.
    pub fn crash(&self, kind: CrashKind, seed: u64) -> SimEnv {
        let world = self.0.lock();
        let mut rng = Rng::new(seed ^ world.op_count().wrapping_mul(0x9e37_79b9_7f4a_7c15));
        restarted(&world.disk, kind, world.seed, seed, self.now_ns(), &mut rng)
    }

    /// A copy of the machine for a try at something: the same files, no open handles, no locks, no
    /// faults.
    pub fn fork(&self, seed: u64) -> SimEnv {
        self.crash(CrashKind::ProcessKill, seed)
    }

    /// A hash of all names and contents as processes see them. Equal images have equal hashes.
    pub fn state_hash(&self) -> u64 {
        self.0.lock().disk.hash(false)
    }

    /// As [`SimEnv::state_hash`], of what is on stable media.
    pub fn durable_hash(&self) -> u64 {
        self.0.lock().disk.hash(true)
    }

    // Faults.

    /// Puts a fault in force.
    pub fn inject(&self, plan: FaultPlan) {
        self.0.lock().faults.push(plan);
    }

    /// Lifts all faults.
    pub fn clear_faults(&self) {
        self.0.lock().faults.clear();
    }

    /// Number of operations that faults have struck.
    pub fn faults_fired(&self) -> u64 {
        self.0.lock().faults_fired
    }

    /// Limits the volume. Writes that need more fail with `NoSpace` (an append after writing what
    /// fits).
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.0.lock().capacity = bytes.map(|b| b / PAGE as u64 * PAGE as u64);
    }

    /// Bytes of the volume in use, by files that have a name or are open.
    pub fn used(&self) -> u64 {
        self.0.lock().used()
    }

    /// From now on the most is kept that the files of a directory occupy together, after any
    /// change.
    pub fn watch(&self, dir: impl AsRef<Path>) {
        let mut world = self.0.lock();
        world.watched = Some((dir.as_ref().to_owned(), 0));
        world.look_at_watched();
    }

    /// The most bytes that the files of the watched directory occupied since then; 0 if none is
    /// watched.
    pub fn peak(&self) -> u64 {
        self.0.lock().watched.as_ref().map_or(0, |(_, pages)| pages * PAGE as u64)
    }

    /// From now on files that are written in place are opened with blocks of so many bytes; at
    /// first they are sectors. A machine that comes about by a crash begins with sectors again.
    pub fn set_block_len(&self, bytes: usize) {
        assert!(bytes.is_power_of_two() && (SECTOR..=PAGE).contains(&bytes), "a block of {bytes} bytes");
        self.0.lock().block_len = bytes;
    }

    /// Limits how many files may be open at once, locks among them: who opens one more is refused
    /// with EMFILE.
    pub fn set_open_max(&self, files: Option<u64>) {
        self.0.lock().handles.max = files;
    }

    /// How many files are open.
    pub fn open_now(&self) -> u64 {
        self.0.lock().handles.now
    }

    /// The most files that were open at once since this was asked before.
    pub fn take_open_peak(&self) -> u64 {
        let handles = &mut self.0.lock().handles;
        std::mem::replace(&mut handles.peak, handles.now)
    }

    /// Makes the medium read-only or writable.
    pub fn set_read_only(&self, read_only: bool) {
        self.0.lock().read_only = read_only;
    }
}
