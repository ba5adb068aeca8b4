//! Simulated time, costs of operations, and seeded randomness.

use super::fault::OpKind;
use crate::env::Entropy;
use crate::{Clock, Rng};
use base::sync::leaf::Mutex;
use base::sync::rank;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Wall-clock seconds at simulated time zero.
const EPOCH_UNIX_SECONDS: u64 = 1_750_000_000;
const NS_PER_SECOND: u64 = 1_000_000_000;

/// A clock that moves only by sleeps and by the cost of operations.
#[derive(Debug)]
pub(super) struct SimClock {
    /// The time, which never goes back.
    now_ns: AtomicU64,
    wall_jump_seconds: AtomicI64,
}

impl SimClock {
    pub(super) fn new(now_ns: u64) -> Self {
        SimClock { now_ns: AtomicU64::new(now_ns), wall_jump_seconds: AtomicI64::new(0) }
    }

    pub(super) fn advance(&self, ns: u64) {
        self.now_ns.fetch_add(ns, Relaxed);
    }

    pub(super) fn jump_wall_clock(&self, seconds: i64) {
        self.wall_jump_seconds.fetch_add(seconds, Relaxed);
    }
}

impl Clock for SimClock {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Relaxed)
    }
    fn unix_seconds(&self) -> u64 {
        let straight = EPOCH_UNIX_SECONDS + self.now_ns() / NS_PER_SECOND;
        straight.saturating_add_signed(self.wall_jump_seconds.load(Relaxed))
    }
    fn sleep_ns(&self, ns: u64) {
        // Under a schedule time passes when no thread can run.
        #[cfg(feature = "sched")]
        if let Some(schedule) = base::sync::schedule::current() {
            let on = (base::sync::schedule::Act::Sleep, std::ptr::from_ref(self) as usize);
            let for_ns = Some(std::time::Duration::from_nanos(ns));
            return schedule.wait(on, for_ns, std::panic::Location::caller());
        }
        self.advance(ns);
    }
}

/// Sets the costs of operations in simulated time, to model a disk
/// ([`crate::sim::SimEnv::set_costs`]). Nanoseconds. The defaults are those of a fast SSD.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// A read or a batch of reads, without its bytes.
    pub read_ns: u64,
    /// Each further read of a batch (0: all of them at once).
    pub further_read_ns: u64,
    /// A write into the page cache, without its bytes.
    pub write_ns: u64,
    /// A sync or a durable write, without its bytes.
    pub sync_ns: u64,
    /// Any other operation.
    pub other_ns: u64,
    /// Each KiB read or written (1,000 means about 1 GB/s).
    pub kib_ns: u64,
}

impl Default for Costs {
    fn default() -> Self {
        Costs {
            read_ns: 80_000,
            further_read_ns: 0,
            write_ns: 2_000,
            sync_ns: 100_000,
            other_ns: 5_000,
            kib_ns: 1_000,
        }
    }
}

impl Costs {
    pub(super) fn of(&self, kind: OpKind, len: u64) -> u64 {
        let fixed_ns = match kind {
            OpKind::Read => self.read_ns,
            OpKind::Append | OpKind::WriteAt => self.write_ns,
            OpKind::Sync | OpKind::SyncData | OpKind::SyncDir | OpKind::WriteDurable => self.sync_ns,
            OpKind::ScratchWrite | OpKind::Damage => 0,
            OpKind::CreateInPlace => self.sync_ns + self.other_ns,
            _ => self.other_ns,
        };
        fixed_ns + len * self.kib_ns / 1024
    }
}

/// Seeds derived from one seed.
#[derive(Debug)]
pub(super) struct SimEntropy(Mutex<Rng, rank::SimEntropy>);

impl SimEntropy {
    pub(super) fn new(seed: u64) -> Self {
        SimEntropy(Mutex::new(Rng::new(seed)))
    }
}

impl Entropy for SimEntropy {
    fn next_u64(&self) -> u64 {
        base::sync::leaf::lock(&self.0).next_u64()
    }
}
