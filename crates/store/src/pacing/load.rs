//! What was done on a disk, and how long it was waited for: sums since the store was opened. Who asks twice knows what was done between.
//!
//! What is counted is what others wait for: a piece of background work until it is handed over, a read of the foreground until it is there, a
//! write of the log by how much it is later than one that has the disk for itself. What background work reads ahead and finds there when it wants it was waited for by nobody,
//! so neither its bytes are counted nor any time: they would make a byte look cheaper than it is for who waits.

use base::sync::statistic::{AtomicU64, Ordering::Relaxed};

/// What was done on a disk since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskLoad {
    /// Bytes that background work waited for, of what it wrote and read, and how long, nanoseconds.
    pub bytes: u64,
    /// See there.
    pub bytes_ns: u64,
    /// Reads of the foreground, and how long they took, nanoseconds.
    pub reads: u64,
    /// See there.
    pub reads_ns: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// By how much its writes were later than they are alone, nanoseconds.
    pub log_late_ns: u64,
}

impl DiskLoad {
    /// What was done since.
    #[must_use]
    pub fn since(&self, before: &DiskLoad) -> DiskLoad {
        DiskLoad {
            bytes: self.bytes.saturating_sub(before.bytes),
            bytes_ns: self.bytes_ns.saturating_sub(before.bytes_ns),
            reads: self.reads.saturating_sub(before.reads),
            reads_ns: self.reads_ns.saturating_sub(before.reads_ns),
            log_bytes: self.log_bytes.saturating_sub(before.log_bytes),
            log_late_ns: self.log_late_ns.saturating_sub(before.log_late_ns),
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Load {
    bytes: AtomicU64,
    bytes_ns: AtomicU64,
    reads: AtomicU64,
    reads_ns: AtomicU64,
    log_bytes: AtomicU64,
    log_late_ns: AtomicU64,
}

impl Load {
    /// Background work has waited for so many bytes.
    pub fn worked(&self, bytes: u64, ns: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
        self.bytes_ns.fetch_add(ns, Relaxed);
    }

    /// Somebody has read.
    pub fn read(&self, ns: u64) {
        self.reads.fetch_add(1, Relaxed);
        self.reads_ns.fetch_add(ns, Relaxed);
    }

    /// The log was written.
    pub fn logged(&self, bytes: u64, late_ns: u64) {
        self.log_bytes.fetch_add(bytes, Relaxed);
        self.log_late_ns.fetch_add(late_ns, Relaxed);
    }

    pub fn get(&self) -> DiskLoad {
        DiskLoad {
            bytes: self.bytes.load(Relaxed),
            bytes_ns: self.bytes_ns.load(Relaxed),
            reads: self.reads.load(Relaxed),
            reads_ns: self.reads_ns.load(Relaxed),
            log_bytes: self.log_bytes.load(Relaxed),
            log_late_ns: self.log_late_ns.load(Relaxed),
        }
    }
}
