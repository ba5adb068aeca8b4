//! How long operations on logs take. What is not waited for until it is durable is sampled: see [`io::timing`].

use io::Env;
use io::timing::Timing;
use store::commit::Durability;

/// Of writes.
#[derive(Debug)]
pub(crate) struct WriteTimes {
    /// Batches that are written, of appends and whatever else.
    pub append: Timing,
    /// The same, but for the wait until they are durable.
    pub append_async: Timing,
}

impl WriteTimes {
    pub fn new(env: &Env) -> WriteTimes {
        WriteTimes { append: Timing::sampled(env), append_async: Timing::sampled(env) }
    }

    /// Writes a batch.
    pub fn write<T>(&self, durability: Durability, write: impl FnOnce() -> T) -> T {
        let is_long = durability.waits_for_device();
        let begun = if is_long { self.append.begin_long() } else { self.append.begin() };
        let out = write();
        self.append.end(begun);
        out
    }
}

/// Of reads.
#[derive(Debug)]
pub(crate) struct ReadTimes {
    /// Single records.
    pub read: Timing,
    /// The next record of a scan.
    pub scan: Timing,
}

impl ReadTimes {
    pub fn new(env: &Env) -> ReadTimes {
        ReadTimes { read: Timing::sampled(env), scan: Timing::sampled(env) }
    }
}
