//! Statistics of a volume.

use crate::geometry::{Role, role_of};
use crate::layout::{BLOCK, Extent};
use crate::volume::Volume;
use base::sync::lock;
use base::sync::statistic::{AtomicU64, Ordering};

/// Shows the current contents of a volume, and counters since the mount, for monitoring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Size of the volume, in bytes.
    pub total_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Free bytes that files may get.
    pub available_bytes: u64,
    /// Bytes that become free when the journal is durable and their readers have ended.
    pub freeing_bytes: u64,
    /// Size of the file blocks, in bytes.
    pub file_bytes: u64,
    /// Size of the journal, in bytes.
    pub journal_bytes: u64,
    /// Number of files.
    pub files: u64,
    /// Number of runs of free blocks.
    pub free_runs: u64,
    /// Length of the longest free run, in bytes.
    pub longest_free_run_bytes: u64,
    /// Bytes written to files, in whole blocks.
    pub data_bytes_written: u64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Number of device syncs for file data.
    pub data_syncs: u64,
    /// Number of journal commits.
    pub journal_commits: u64,
    /// Number of written transactions.
    pub journal_transactions: u64,
    /// Bytes of written transactions.
    pub journal_bytes_written: u64,
    /// Number of journal compactions.
    pub journal_compactions: u64,
    /// Bytes of written dumps.
    pub dump_bytes_written: u64,
    /// Bytes of discarded blocks.
    pub discarded_bytes: u64,
}

/// Shows how full one device of a volume is, to see whether files fall over to the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceStatistics {
    /// Role of the device; [`Role::Fast`] on a one-device volume.
    pub role: Role,
    /// Bytes of the device that belong to the volume.
    pub total_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Free bytes that files may get.
    pub available_bytes: u64,
    /// Size of the file blocks, in bytes.
    pub file_bytes: u64,
    /// Bytes of files allocated here because the other, preferred device had too little space.
    pub fallen_over_bytes: u64,
}

impl DeviceStatistics {
    pub(crate) fn of(volume: &Volume) -> Vec<DeviceStatistics> {
        let core = lock(&volume.core);
        let (geometry, reserve) = (core.meta.geometry(), core.reserve());
        let mut file_blocks = [0; 2];
        let of_files = core.meta.nodes().iter().flat_map(|(_, node)| node.extents.as_slice());
        for &extent in of_files.filter(|e: &&Extent| !e.is_hole()) {
            file_blocks[role_of(geometry.is_two(), extent) as usize] += u64::from(extent.blocks);
        }
        let of = |role: Role| DeviceStatistics {
            role,
            total_bytes: geometry.blocks_of(role) * BLOCK,
            free_bytes: core.free.blocks_of(role) * BLOCK,
            available_bytes: core.free.available(role, reserve) * BLOCK,
            file_bytes: file_blocks[role as usize] * BLOCK,
            fallen_over_bytes: core.fallen_over[role as usize] * BLOCK,
        };
        volume.device.roles().map(of).collect()
    }
}

impl Statistics {
    pub(crate) fn of(volume: &Volume) -> Statistics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &volume.counters;
        let (journal_blocks, (transactions, blocks_written)) = {
            let journal = lock(&volume.journal);
            (journal.blocks(), journal.written)
        };
        let core = lock(&volume.core);
        Statistics {
            total_bytes: core.meta.volume_blocks() * BLOCK,
            free_bytes: core.free.blocks() * BLOCK,
            available_bytes: core.available() * BLOCK,
            freeing_bytes: core.freeing_blocks() * BLOCK,
            file_bytes: core.meta.nodes().blocks() * BLOCK,
            journal_bytes: journal_blocks * BLOCK,
            files: core.meta.nodes().count(),
            free_runs: core.free.runs() as u64,
            longest_free_run_bytes: u64::from(core.free.longest()) * BLOCK,
            data_bytes_written: read(&counters.data_bytes),
            bytes_read: read(&counters.read_bytes),
            data_syncs: volume.durability.data_syncs(),
            journal_commits: read(&counters.journal_commits),
            journal_transactions: transactions,
            journal_bytes_written: blocks_written * BLOCK,
            journal_compactions: read(&counters.compactions),
            dump_bytes_written: read(&counters.dump_bytes),
            discarded_bytes: read(&counters.discarded_bytes),
        }
    }
}
