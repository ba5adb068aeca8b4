//! What a volume holds and has done.

use crate::geometry::{Role, role_of};
use crate::layout::{BLOCK, Extent};
use crate::volume::Volume;
use base::sync::lock;
use base::sync::statistic::{AtomicU64, Ordering};

/// What a volume holds now, and counters since it was mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes of the volume.
    pub total_bytes: u64,
    /// Bytes that belong to nobody.
    pub free_bytes: u64,
    /// Bytes of those that files may get.
    pub available_bytes: u64,
    /// Bytes that are free as soon as the journal is durable and nobody reads them.
    pub freeing_bytes: u64,
    /// Bytes of files.
    pub file_bytes: u64,
    /// Bytes of the journal.
    pub journal_bytes: u64,
    /// Number of files.
    pub files: u64,
    /// Runs of free blocks.
    pub free_runs: u64,
    /// The longest of them, bytes.
    pub longest_free_run_bytes: u64,
    /// Bytes written to files, whole blocks.
    pub data_bytes_written: u64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Syncs of the device for the sake of files.
    pub data_syncs: u64,
    /// Commits of the journal.
    pub journal_commits: u64,
    /// Transactions written.
    pub journal_transactions: u64,
    /// Bytes of transactions written.
    pub journal_bytes_written: u64,
    /// Compactions of the journal.
    pub journal_compactions: u64,
    /// Bytes of dumps written.
    pub dump_bytes_written: u64,
    /// Bytes of free blocks of which the device was told.
    pub discarded_bytes: u64,
}

/// What one device of a volume holds now, and a counter since the volume was mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceStatistics {
    /// What it is for; of a volume of one device [`Role::Speed`].
    pub role: Role,
    /// Bytes of the device that the volume has.
    pub total_bytes: u64,
    /// Bytes that belong to nobody.
    pub free_bytes: u64,
    /// Bytes of those that files may get.
    pub available_bytes: u64,
    /// Bytes of files.
    pub file_bytes: u64,
    /// Bytes that files got here which should be on the other device, but had too little room there.
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
