//! Load of a disk: counters since the store was opened. The difference of two readings is the load
//! in between.
//!
//! The counters cover requests with a waiting thread. A background request counts until it is
//! handed over, a foreground read until its end, and a log write by its delay compared with an
//! undisturbed one. Read-ahead of background work that completes before it is needed counts neither
//! bytes nor time. Otherwise a byte would look cheaper than it is for a waiting thread.

use base::sync::statistic::{AtomicU64, Ordering::Relaxed};

/// Load of a disk since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskLoad {
    /// Bytes of background requests with a waiting thread.
    pub bytes: u64,
    /// Waiting time for these bytes, nanoseconds.
    pub bytes_ns: u64,
    /// Foreground reads.
    pub reads: u64,
    /// Total latency of these reads, nanoseconds.
    pub reads_ns: u64,
    /// Bytes of log writes.
    pub log_bytes: u64,
    /// Total delay of log writes compared with undisturbed ones, nanoseconds.
    pub log_late_ns: u64,
}

impl DiskLoad {
    /// Returns the load since `before`.
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

/// Counters of a disk: see the module.
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
    /// Records a background request that a thread waited for.
    pub fn worked(&self, bytes: u64, ns: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
        self.bytes_ns.fetch_add(ns, Relaxed);
    }

    /// Records a foreground read.
    pub fn read(&self, ns: u64) {
        self.reads.fetch_add(1, Relaxed);
        self.reads_ns.fetch_add(ns, Relaxed);
    }

    /// Records a log write.
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
