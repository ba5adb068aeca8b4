//! Latency statistics of operations on logs. Operations that do not wait for durability are
//! sampled: see [`io::timing`].

use io::Env;
use io::timing::Timing;
use store::commit::Durability;

/// Latency of writes.
#[derive(Debug)]
pub(crate) struct WriteTimes {
    /// Written batches of any operations.
    pub append: Timing,
    /// Asynchronous batches, without the wait for durability.
    pub append_async: Timing,
}

impl WriteTimes {
    pub fn new(env: &Env) -> WriteTimes {
        WriteTimes { append: Timing::sampled(env), append_async: Timing::sampled(env) }
    }

    /// Times a write of a batch.
    pub fn write<T>(&self, durability: Durability, write: impl FnOnce() -> T) -> T {
        let is_long = durability.waits_for_device();
        let begun = if is_long { self.append.begin_long() } else { self.append.begin() };
        let out = write();
        self.append.end(begun);
        out
    }
}

/// Latency of reads.
#[derive(Debug)]
pub(crate) struct ReadTimes {
    /// Reads of single records.
    pub read: Timing,
    /// The next record of a scan.
    pub scan: Timing,
}

impl ReadTimes {
    pub fn new(env: &Env) -> ReadTimes {
        ReadTimes { read: Timing::sampled(env), scan: Timing::sampled(env) }
    }
}
