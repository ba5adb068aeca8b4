//! The simulated environment: files in memory, simulated time, seeded randomness, no threads.
//!
//! The whole engine runs on it unchanged, and equal seeds give equal runs, byte for byte. It
//! provides three things that a kernel cannot: **every legal state after a crash**
//! ([`Record::crash_at`]), **every fault at every operation** ([`SimEnv::inject`]) and **arbitrary
//! damage** (`flip_bit` and similar functions).
//!
//! # The crash model
//!
//! Every file has a *live* content, which processes see, and a *durable* one, which is on stable
//! media. Between them is the list of writes that no sync has covered. A directory likewise has
//! live and durable names and a list of changes of names.
//!
//! ## Process crash
//!
//! Survives: everything handed to the file system, including every write to a scratch file, synced
//! or not. Unsynced changes stay unsynced, so that a later power loss may still take them.
//!
//! Lost: the write buffer of every append file, and all locks.
//!
//! The interrupted operation may have happened in full, not at all, or in part. A write may leave a
//! prefix of its bytes. An append may be followed by zeros up to the end of the page, since direct
//! I/O writes whole pages and truncates the file afterwards. A preallocated file may be shorter
//! than requested, and a truncation may lack the subsequent growth.
//!
//! ## Power loss
//!
//! Never lost, and never changed:
//!
//! * of an append file, the bytes appended before a sync that returned without an error;
//! * of an in-place file, its initial zeros, every durable write, and every plain write before a
//!   data sync that returned without an error. A durable write covers only itself: an earlier plain
//!   write to other sectors may still be lost; one to the same sectors can no longer overwrite it;
//! * of a directory, the names as of its last sync that returned without an error.
//!
//! May be lost, independently:
//!
//! * **Names.** A created, linked, renamed or removed name is volatile until its *directory* is
//!   synced; syncing the file does not help. Of the unsynced changes of a directory a prefix
//!   survives, or, except under [`Policy::Prefix`], any subset. A rename is atomic, even between
//!   two directories: `to` names the old file or the new one. A new directory is a name in its
//!   parent: if it is lost, everything in it is.
//! * **Unsynced writes**, in units of 512 bytes: after the crash each such sector holds the durable
//!   version or that after any of the unsynced writes that touched it. Whole sectors, never a
//!   mixture within one. The [`Policy`] chooses the combinations: a prefix in time, whole writes
//!   dropped, newer kept and older lost, torn writes, or any version of every sector.
//!   [`Policy::TornBytes`] tears inside a sector as well: in one sector of a write the bytes before
//!   a point are new, and the others old, or the reverse.
//! * **Readability.** Under [`Policy::Unreadable`] a few sectors under an unsynced write give EIO
//!   when they are read, until they are written whole. Sectors that hold durable bytes of an append
//!   file are spared, and so are sectors that the write does not change: a device that loses these
//!   breaks every guarantee of a sync.
//! * **Lengths.** The length of a growing file is that of some moment since the sync, independent
//!   of which data reached the media. In the torn policies it may be any sector in between, or be
//!   rounded up to the page, with zeros. Below the length, sectors that did not reach the media
//!   read as zeros. Under [`Policy::Stale`] they read as bytes that another file held there before,
//!   as on file systems that journal only metadata.
//! * **Scratch files**: never synced, so every sector shows some version of its history. Many
//!   middle versions are merged in time to bound memory; the oldest and the newest are always
//!   possible.
//! * **Punched holes** are writes of zeros like any other.
//!
//! The interrupted operation counts as an unsynced one, even a durable write.
//!
//! ## Failed syncs
//!
//! After a failed sync, the seed decides for each write that it should have covered: durable or
//! lost, perhaps torn. Either way the write counts as clean, as in a kernel: a second sync succeeds
//! and does nothing for it. Processes read back the new or the durable content, also by seed. Of a
//! directory, a prefix of the changes is durable. The rest are lost although they stay visible.
//!
//! # Records
//!
//! Each call that reaches the environment is an operation with a number ([`SimEnv::op_count`]). The
//! record holds the changes of every operation, and a copy-on-write copy of the volume every few
//! dozen changes. So the state at any number costs a short replay: about a tenth of a millisecond
//! for a store of some MB. [`SimEnv::state_hash`] distinguishes images; the hashes of pages are
//! cached in the pages that images share.
//!
//! # Limits of the model
//!
//! Not modeled: calls that overlap in time (each is instantaneous; threads under a schedule,
//! `threads`, alternate between calls), permissions, symbolic links, and the order between changes
//! of different directories (all orders are tried).

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
use world::{SharedWorld, World, restarted};

/// Atomic unit of the media's writes, bytes.
pub const SECTOR: usize = 512;
/// Simulated time between a crash and the restart.
const RESTART_NS: u64 = 1_000_000_000;

/// Runs a store in a test on a simulated machine, to lose power or to fail operations at any point:
/// a volume in memory, a clock, randomness. Clones are handles to the same machine.
///
/// The same seed gives the same run. There are no threads but the caller's.
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
pub struct SimEnv(Arc<SharedWorld>);

impl fmt::Debug for SimEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let world = self.0.lock();
        write!(f, "SimEnv(seed {}, {} operations)", world.seed, world.op_count())
    }
}

impl SimEnv {
    /// Returns a machine with an empty volume. Equal seeds and equal calls give equal runs; use
    /// several seeds to vary a test. Its disk has no size limit ([`SimEnv::set_capacity`] sets
    /// one), and lives in memory until the last handle is dropped. [`SimEnv::env`] opens stores on
    /// it.
    pub fn new(seed: u64) -> SimEnv {
        SimEnv::on(seed, Disk::new(), 0)
    }

    /// Returns a machine with this volume.
    fn on(seed: u64, disk: Disk, now_ns: u64) -> SimEnv {
        SimEnv(Arc::new(SharedWorld {
            world: Mutex::new(World::new(seed, disk)),
            clock: Arc::new(SimClock::new(now_ns)),
            entropy: Arc::new(SimEntropy::new(seed)),
            descriptors: Arc::default(),
        }))
    }

    /// Returns the environment of the machine, to open a store on it (`Db::open_in`). It has no
    /// threads: background work runs within the calls of the store. Each call returns the same
    /// machine.
    pub fn env(&self) -> Env {
        Env {
            fs: Arc::new(fs::SimFs(self.0.clone())),
            clock: self.0.clock.clone(),
            spawner: None,
            entropy: self.0.entropy.clone(),
            descriptors: self.0.descriptors.clone(),
        }
    }

    /// Returns true if both are handles to the same machine; a machine after a crash is another
    /// one. To compare contents use [`SimEnv::state_hash`].
    pub fn is_same(&self, other: &SimEnv) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns a block device of this machine, which is created (of durable zeros) if the name does
    /// not exist. The device is a file of the volume: crashes, faults, records and damage treat it
    /// as one that is written in place.
    ///
    /// # Errors
    /// Those of creating or opening the file.
    pub fn device(&self, name: &str, len: u64) -> Result<Arc<dyn BlockDevice>> {
        Ok(Arc::new(device::SimDevice::open(&self.0, name.as_ref(), len)?))
    }

    /// Makes a device longer, as an administrator does. An open device shows this at its next
    /// measurement. A power loss may revert the length until the device is synced. A device that
    /// already has this length is unchanged.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn lengthen_device(&self, name: &str, len: u64) -> Result<()> {
        device::SimDevice::lengthen(&self.0, name.as_ref(), len)
    }

    /// Gives a device a timing model, which applies to all kinds of requests.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn set_device_model(&self, name: &str, model: DeviceModel) -> Result<()> {
        device::SimDevice::set_model(&self.0, name.as_ref(), model)
    }

    // Time.

    /// Returns the simulated time, nanoseconds. It moves only by operations and by
    /// [`SimEnv::advance_ns`]. It begins at 0, and is no wall clock.
    pub fn now_ns(&self) -> u64 {
        self.0.clock.now_ns()
    }

    /// Advances the time, nanoseconds, to let deadlines and intervals pass without work. Background
    /// work does not run by itself: it runs within later calls.
    pub fn advance_ns(&self, ns: u64) {
        self.0.clock.advance(ns);
    }

    /// Moves only the wall clock, as an administrator does, to test that a program does not depend
    /// on it. Negative: back. [`SimEnv::advance_ns`] moves the time that deadlines use.
    pub fn jump_wall_clock(&self, seconds: i64) {
        self.0.clock.jump_wall_clock(seconds);
    }

    /// Sets the costs of later operations in time, to simulate a slower or faster disk. They change
    /// times only: for failures use [`SimEnv::inject`].
    pub fn set_costs(&self, costs: Costs) {
        self.0.lock().costs = costs;
    }

    // The record.

    /// Returns the number of operations begun so far, to crash at each of them later
    /// ([`Record::crash_at`]). It is the number of the next operation.
    pub fn op_count(&self) -> u64 {
        self.0.lock().op_count()
    }

    /// Returns the number of operations of a kind (`None`: all) on paths with this suffix (empty:
    /// all paths), to check the I/O of a call.
    pub fn count_ops(&self, kind: Option<OpKind>, path_suffix: &str) -> u64 {
        self.0.lock().count_ops(kind, path_suffix)
    }

    /// Returns the last few thousand operations, one per line, to understand a failed test: number,
    /// kind, path, offset and length, error. Its form may change.
    pub fn trace(&self) -> String {
        self.0.lock().trace()
    }

    /// Stops the record, which holds every byte ever written: for long runs that will not be
    /// replayed. [`SimEnv::record`] ends here; [`SimEnv::crash`] still works.
    pub fn keep_no_record(&self) {
        self.0.lock().keeps_record = false;
    }

    /// Returns the history up to now, to try crashes at many moments of one run. For a crash at the
    /// present moment use [`SimEnv::crash`].
    pub fn record(&self) -> Record {
        self.0.lock().record()
    }

    // Crashes.

    /// Returns the machine after a crash at this moment, between two operations, to open the store
    /// on its remains. This machine is unchanged. The seed selects one of the possible states; its
    /// faults, locks and open files are gone.
    pub fn crash(&self, kind: CrashKind, seed: u64) -> SimEnv {
        let world = self.0.lock();
        let mut rng = Rng::new(seed ^ world.op_count().wrapping_mul(0x9e37_79b9_7f4a_7c15));
        restarted(&world.disk, kind, world.seed, seed, self.now_ns(), &mut rng)
    }

    /// Returns a copy of the machine for experiments: the same files, no open handles, no locks, no
    /// faults. It is a [`CrashKind::ProcessKill`]: unwritten buffers of the process are lost. This
    /// machine is unchanged; for a loss of power use [`SimEnv::crash`].
    pub fn fork(&self, seed: u64) -> SimEnv {
        self.crash(CrashKind::ProcessKill, seed)
    }

    /// Returns a hash of all names and contents as processes see them. Equal images have equal
    /// hashes.
    pub fn state_hash(&self) -> u64 {
        self.0.lock().disk.hash(false)
    }

    /// As [`SimEnv::state_hash`], for the contents of the stable media.
    pub fn durable_hash(&self) -> u64 {
        self.0.lock().disk.hash(true)
    }

    // Faults.

    /// Activates a fault for later operations; several may be active, and each counts operations
    /// for itself from now on. [`SimEnv::clear_faults`] ends them.
    pub fn inject(&self, plan: FaultPlan) {
        self.0.lock().faults.push(plan);
    }

    /// Removes all faults, to test that a program recovers once the disk works again. Effects of
    /// struck operations stay. The count of [`SimEnv::faults_fired`] stays too.
    pub fn clear_faults(&self) {
        self.0.lock().faults.clear();
    }

    /// Returns the number of operations that faults have struck, to check that a test met its
    /// fault. It counts since the machine was made, over all faults.
    pub fn faults_fired(&self) -> u64 {
        self.0.lock().faults_fired
    }

    /// Limits the volume, to test a full disk (`None`: no limit). Writes that need more fail with
    /// `NoSpace` (an append first writes the part that fits). Rounded down to 4096 bytes.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.0.lock().capacity = bytes.map(|b| b / PAGE as u64 * PAGE as u64);
    }

    /// Returns the bytes of the volume in use, by files that have a name or are open, as
    /// [`SimEnv::set_capacity`] counts them: in steps of 4096.
    pub fn used(&self) -> u64 {
        self.0.lock().used()
    }

    /// Begins to track the peak of the bytes that the files of a directory occupy together, after
    /// any change; [`SimEnv::peak`] returns it. One directory at a time: a second call replaces the
    /// first.
    pub fn watch(&self, dir: impl AsRef<Path>) {
        let mut world = self.0.lock();
        world.watched = Some((dir.as_ref().to_owned(), 0));
        world.look_at_watched();
    }

    /// Returns the peak of the watched directory since then; 0 if none is watched
    /// ([`SimEnv::watch`]). Bytes, in steps of 4096.
    pub fn peak(&self) -> u64 {
        self.0.lock().watched.as_ref().map_or(0, |(_, pages)| pages * PAGE as u64)
    }

    /// Sets the block length of files opened in place from now on; the initial value is a sector. A
    /// machine that results from a crash begins with sectors again.
    pub fn set_block_len(&self, bytes: usize) {
        assert!(bytes.is_power_of_two() && (SECTOR..=PAGE).contains(&bytes), "a block of {bytes} bytes");
        self.0.lock().block_len = bytes;
    }

    /// Limits how many files and locks may be open at once, to test a process without descriptors.
    /// Opening one more fails with EMFILE.
    pub fn set_open_max(&self, files: Option<u64>) {
        self.0.lock().handles.max = files;
    }

    /// Returns how many files are open now, locks included, to find a leak;
    /// [`SimEnv::set_open_max`] limits them.
    pub fn open_now(&self) -> u64 {
        self.0.lock().handles.now
    }

    /// Returns the peak of open files since the last call, and begins anew at the present number.
    pub fn take_open_peak(&self) -> u64 {
        let handles = &mut self.0.lock().handles;
        std::mem::replace(&mut handles.peak, handles.now)
    }

    /// Makes the medium read-only or writable again, to test a remount: changes then fail with
    /// `ReadOnly`; reads work, and earlier changes stay.
    pub fn set_read_only(&self, read_only: bool) {
        self.0.lock().read_only = read_only;
    }
}
