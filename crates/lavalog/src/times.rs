//! How long operations on logs take. What is not waited for until it is durable is sampled: see [`io::timing`].

use crate::core::Core;
use base::histogram::Distribution;
use io::Env;
use io::timing::Timing;
use store::commit::Durability;

/// See the module.
#[derive(Debug)]
pub(crate) struct Times {
    /// Batches that are written, of appends and whatever else.
    append: Timing,
    /// The same, but for the wait until they are durable.
    pub append_async: Timing,
    /// Single records.
    pub read: Timing,
    /// The next record of a scan.
    pub scan: Timing,
}

impl Times {
    pub fn new(env: &Env) -> Times {
        let short = || Timing::sampled(env);
        Times { append: short(), append_async: short(), read: short(), scan: short() }
    }

    /// Writes a batch.
    pub fn write<T>(&self, durability: Durability, write: impl FnOnce() -> T) -> T {
        let is_long = durability == Durability::Durable;
        let begun = if is_long { self.append.begin_long() } else { self.append.begin() };
        let out = write();
        self.append.end(begun);
        out
    }
}

impl Core {
    /// How long operations took since the store was opened, nanoseconds by kind.
    pub fn operations(&self) -> Vec<(&'static str, Distribution)> {
        let times = &self.counters.times;
        let mut all = vec![
            ("record_append", times.append.read()),
            ("record_append_async", times.append_async.read()),
            ("record_read", times.read.read()),
            ("record_scan", times.scan.read()),
        ];
        if let Some(wal) = self.lane.begun() {
            let log = wal.times();
            all.extend([
                ("record_log_append", log.append.read()),
                ("record_log_sync", log.sync.read()),
                // Of those that append, where the log's buffer is full.
                ("record_log_wait", log.ring_full.read()),
            ]);
        }
        all
    }
}
