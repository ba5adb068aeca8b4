//! Used and claimed bytes: files, memtables as tables, and the reserve.

use super::gauges::{Gauges, Memory};
use super::grant::Granted;
use super::sizes::Sizes;
use crate::volumes::Meter;
use base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

/// The used and claimed bytes: see the module.
#[derive(Debug)]
pub(super) struct Claims {
    pub meter: Arc<Meter>,
    pub memory: Arc<Memory>,
    pub gauges: Arc<Gauges>,
    pub jobs: Granted,
    pub sizes: Sizes,
    sums: DemandSums,
}

/// The parts of [`Demands`] that are read often.
#[derive(Debug, Default)]
struct DemandSums {
    pool_bytes: AtomicU64,
    table_share: AtomicU64,
    fixed_bytes: AtomicU64,
    collected_bytes: AtomicU64,
}

/// The demands of all families on the space, as sums.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demands {
    /// The widest compaction and one output of a collection, without the unflushed bytes.
    pub pool_bytes: u64,
    /// The part of the unflushed bytes by which these two may grow, in 1024ths.
    pub table_share: u64,
    /// Growth of the manifest, and the overhead of tables in the flushes of the families.
    pub fixed_bytes: u64,
    /// The longest output of a collection: space is freed in such pieces.
    pub collected_bytes: u64,
    /// Live data of tables and values.
    pub live_bytes: u64,
}

impl Claims {
    pub fn new(meter: &Arc<Meter>, memory: &Arc<Memory>, gauges: &Arc<Gauges>, sizes: Sizes) -> Claims {
        Claims {
            meter: meter.clone(),
            memory: memory.clone(),
            gauges: gauges.clone(),
            jobs: Granted::default(),
            sizes,
            sums: DemandSums::default(),
        }
    }

    pub fn take_in(&self, state: &Demands) {
        self.sums.pool_bytes.store(state.pool_bytes, Relaxed);
        self.sums.table_share.store(state.table_share, Relaxed);
        self.sums.fixed_bytes.store(state.fixed_bytes, Relaxed);
        self.sums.collected_bytes.store(state.collected_bytes, Relaxed);
    }

    /// Returns the bytes of the files, without the output of running jobs.
    fn settled_bytes(&self) -> u64 {
        self.meter.used_bytes().saturating_sub(self.jobs.written_bytes())
    }

    /// Returns the bytes by which the files may still grow beside the grants of running jobs. If
    /// deletes have used the reserve, this is less than the claims leave.
    pub fn free_bytes(&self, granted_bytes: u64) -> u64 {
        self.meter.ceiling().saturating_sub(self.settled_bytes().saturating_add(granted_bytes))
    }

    /// Returns the size of the memtables as tables, bytes.
    pub fn unflushed_bytes(&self) -> u64 {
        let bytes = self.memory.used();
        bytes + bytes / 8
    }

    /// Returns the bytes of all but the log, deletes and jobs.
    pub fn without_jobs_bytes(&self) -> u64 {
        self.settled_bytes() + self.unflushed_bytes() + self.sums.fixed_bytes.load(Relaxed)
    }

    /// Returns the bytes for jobs that free space.
    pub fn pool_bytes(&self) -> u64 {
        let share = self.unflushed_bytes() / 1024 * self.sums.table_share.load(Relaxed);
        let pool = self.sums.pool_bytes.load(Relaxed).saturating_add(share);
        pool.max(self.jobs.granted_bytes())
    }

    /// Returns the size of the pieces in which space comes and goes.
    pub fn piece_bytes(&self) -> u64 {
        self.sums.collected_bytes.load(Relaxed).max(self.sizes.memtable_bytes)
    }

    /// Returns the bytes by which the log may still grow below a limit.
    pub fn log_reserve_below(&self, limit_bytes: u64) -> u64 {
        self.sizes.log_bytes_max(limit_bytes).saturating_sub(self.gauges.log_bytes(wal::Lane::FIRST))
    }

    /// Returns the bytes that keep flush, compaction, collection and deletes going at a limit.
    pub fn reserve_below(&self, limit_bytes: u64) -> u64 {
        let fixed = self.sums.fixed_bytes.load(Relaxed);
        let log = self.log_reserve_below(limit_bytes);
        fixed + log + self.sizes.delete_bytes() + self.pool_bytes()
    }

    /// Returns the used and claimed bytes below a limit: the files, the memtables as tables, the
    /// reserve.
    pub fn needed_below(&self, limit_bytes: u64) -> u64 {
        self.settled_bytes() + self.unflushed_bytes() + self.reserve_below(limit_bytes)
    }
}
