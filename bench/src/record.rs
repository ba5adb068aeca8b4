//! The record of a client thread: latencies, progress by window, and the hash of its operations.
//!
//! Progress is exact, not sampled. Each completed operation marks its slot of 10 ms as progress,
//! and marks whole slots during which it was pending. A slot is a stall if an operation was pending
//! throughout and no thread completed one; a window of 100 ms is one if its ten slots are. In an
//! open loop a slot without due operations is no stall.

use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use xxhash_rust::xxh3::Xxh3;

/// Length of a progress slot.
pub const SLOT_NS: u64 = 10_000_000;
/// Slots of a window of 100 ms.
pub const WINDOW_SLOTS: usize = 10;
/// Slots of a second.
const SECOND_SLOTS: usize = 100;

/// Maximum latency of the histograms.
pub const LATENCY_MAX_NS: u64 = 600_000_000_000;

/// Minimum latency of the histograms per second. There are many of them, so they have only two
/// digits.
const SECOND_MIN_NS: u64 = 1_000;

/// The kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A put, or a batch of them.
    Put,
    /// A point read.
    Get,
    /// A seek with its nexts.
    Scan,
    /// A put of a new key.
    Insert,
    /// A point read followed by a put of the same key.
    ReadModifyWrite,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 5] = [Kind::Put, Kind::Get, Kind::Scan, Kind::Insert, Kind::ReadModifyWrite];

    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Put => "put",
            Kind::Get => "get",
            Kind::Scan => "scan",
            Kind::Insert => "insert",
            Kind::ReadModifyWrite => "rmw",
        }
    }

    /// Returns true if the operation needs a value to put.
    pub fn puts(self) -> bool {
        matches!(self, Kind::Put | Kind::Insert | Kind::ReadModifyWrite)
    }
}

/// Measurements of the operations of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct OfKind {
    /// Latencies in nanoseconds.
    pub latency_ns: Histogram<u64>,
    /// Bytes written or read.
    pub bytes: u64,
}

fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("the bounds are constant and valid")
}

impl Default for OfKind {
    fn default() -> Self {
        OfKind { latency_ns: latencies(), bytes: 0 }
    }
}

/// The record of a thread; records are merged at the end.
pub struct Recorder {
    /// Latencies in nanoseconds.
    pub latency_ns: Histogram<u64>,
    /// Measurements by kind, for operations that state their kind.
    pub kinds: BTreeMap<Kind, OfKind>,
    /// Number of completed operations.
    pub ops: u64,
    /// Bytes of keys and values written or read.
    pub bytes: u64,
    /// Read system calls of the thread.
    pub read_calls: u64,
    start_ns: u64,
    done: Vec<u32>,
    pending: Vec<(u64, u64)>,
    /// Latencies by the second of completion, if enabled.
    seconds: Option<Vec<Histogram<u32>>>,
    hash: Xxh3,
}

fn of_a_second() -> Histogram<u32> {
    Histogram::new_with_bounds(SECOND_MIN_NS, LATENCY_MAX_NS, 2).expect("the bounds are constant and valid")
}

impl Recorder {
    /// Returns an empty record of a phase that starts at `start_ns`.
    pub fn new(start_ns: u64) -> Self {
        Recorder {
            latency_ns: latencies(),
            kinds: BTreeMap::new(),
            ops: 0,
            bytes: 0,
            read_calls: 0,
            start_ns,
            done: Vec::new(),
            pending: Vec::new(),
            seconds: None,
            hash: Xxh3::new(),
        }
    }

    /// Returns a record that also keeps latencies by second.
    pub fn by_second(start_ns: u64) -> Self {
        Recorder { seconds: Some(Vec::new()), ..Recorder::new(start_ns) }
    }

    /// Adds an operation to the hash before it runs.
    pub fn plan(&mut self, kind: Kind, key: &[u8], value_len: u64) {
        self.hash.update(&[kind as u8]);
        self.hash.update(key);
        self.hash.update(&value_len.to_le_bytes());
    }

    /// Records that `ops` operations of `bytes` bytes, due at `due_ns`, completed together at
    /// `end_ns`.
    pub fn complete(&mut self, due_ns: u64, end_ns: u64, ops: u64, bytes: u64) {
        self.latency_ns.saturating_record_n(end_ns.saturating_sub(due_ns).max(1), ops);
        self.ops += ops;
        self.bytes += bytes;
        let from = due_ns.saturating_sub(self.start_ns) / SLOT_NS;
        let to = end_ns.saturating_sub(self.start_ns) / SLOT_NS;
        if self.done.len() <= to as usize {
            self.done.resize(to as usize + 1, 0);
        }
        self.done[to as usize] += ops as u32;
        if to > from + 1 {
            self.waited(from + 1, to);
        }
        if let Some(seconds) = &mut self.seconds {
            let second = to as usize / SECOND_SLOTS;
            seconds.resize_with(seconds.len().max(second + 1), of_a_second);
            seconds[second].saturating_record_n(end_ns.saturating_sub(due_ns), ops as u32);
        }
    }

    /// Same as [`Recorder::complete`], for operations of one kind.
    pub fn complete_of(&mut self, kind: Kind, due_ns: u64, end_ns: u64, ops: u64, bytes: u64) {
        let of_kind = self.kinds.entry(kind).or_default();
        of_kind.latency_ns.saturating_record_n(end_ns.saturating_sub(due_ns).max(1), ops);
        of_kind.bytes += bytes;
        self.complete(due_ns, end_ns, ops, bytes);
    }

    /// Marks slots with a pending operation. Overlapping ranges are merged, which behind a backlog
    /// is the rule.
    fn waited(&mut self, from: u64, to: u64) {
        match self.pending.last_mut().filter(|last| from <= last.1) {
            Some(last) => *last = (last.0.min(from), last.1.max(to)),
            None => self.pending.push((from, to)),
        }
    }

    /// Records an operation, due at `due_ns`, that was still waiting at the end: a lower bound of
    /// its latency.
    pub fn leave(&mut self, due_ns: u64, end_ns: u64) {
        self.latency_ns.saturating_record(end_ns.saturating_sub(due_ns).max(1));
    }

    /// Returns the hash of the operations.
    pub fn hash(&self) -> u64 {
        self.hash.digest()
    }
}

/// Stalls of a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// Windows of 100 ms without progress.
    pub windows: u64,
    /// The longest time without progress, in slots.
    pub longest_slots: u64,
}

/// The merged records of several threads.
pub struct Merged {
    /// Latencies in nanoseconds.
    pub latency_ns: Histogram<u64>,
    /// Measurements by kind, for operations that state their kind.
    pub kinds: BTreeMap<Kind, OfKind>,
    /// Number of completed operations.
    pub ops: u64,
    /// Bytes written or read.
    pub bytes: u64,
    /// Read system calls of the threads.
    pub read_calls: u64,
    /// Operations completed in each second.
    pub by_second: Vec<u64>,
    /// Their latencies, if enabled.
    pub latency_by_second: Vec<Histogram<u32>>,
    /// Time without progress.
    pub stalls: Stalls,
    /// Hash over the hashes of the threads, in order.
    pub hash: u64,
}

/// Merges the records of the threads of one phase.
pub fn merge(records: &[Recorder]) -> Merged {
    let mut merged = Recorder::new(0);
    for record in records {
        merged.latency_ns += &record.latency_ns;
        for (kind, own) in &record.kinds {
            let all = merged.kinds.entry(*kind).or_default();
            all.latency_ns += &own.latency_ns;
            all.bytes += own.bytes;
        }
        merged.ops += record.ops;
        merged.bytes += record.bytes;
        merged.read_calls += record.read_calls;
        merged.hash.update(&record.hash().to_le_bytes());
    }
    Merged {
        ops: merged.ops,
        bytes: merged.bytes,
        read_calls: merged.read_calls,
        by_second: by_second(records),
        latency_by_second: latency_by_second(records),
        stalls: stalls(records.iter()),
        hash: merged.hash.digest(),
        latency_ns: merged.latency_ns,
        kinds: merged.kinds,
    }
}

fn by_second(records: &[Recorder]) -> Vec<u64> {
    let mut seconds = Vec::new();
    for record in records {
        for (second, slots) in record.done.chunks(SECOND_SLOTS).enumerate() {
            seconds.resize(seconds.len().max(second + 1), 0);
            seconds[second] += slots.iter().map(|n| u64::from(*n)).sum::<u64>();
        }
    }
    seconds
}

fn latency_by_second(records: &[Recorder]) -> Vec<Histogram<u32>> {
    let mut seconds = Vec::new();
    for record in records {
        let own = record.seconds.as_deref().unwrap_or_default();
        seconds.resize_with(seconds.len().max(own.len()), of_a_second);
        seconds.iter_mut().zip(own).for_each(|(all, own)| *all += own);
    }
    seconds
}

/// Computes the time without progress over all records.
pub fn stalls<'a>(records: impl Iterator<Item = &'a Recorder> + Clone) -> Stalls {
    let slots = records.clone().map(|r| r.done.len()).max().unwrap_or(0);
    let mut stalled = vec![false; slots];
    for (from, to) in records.clone().flat_map(|r| &r.pending) {
        stalled[*from as usize..*to as usize].fill(true);
    }
    for (slot, stalled) in stalled.iter_mut().enumerate() {
        let progress = records.clone().any(|r| r.done.get(slot).is_some_and(|n| *n > 0));
        *stalled &= !progress;
    }
    let windows = stalled.chunks_exact(WINDOW_SLOTS).filter(|window| window.iter().all(|s| *s)).count();
    let longest = stalled.split(|s| !s).map(<[bool]>::len).max().unwrap_or(0);
    Stalls { windows: windows as u64, longest_slots: longest as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_long_wait_is_a_stall_unless_another_thread_goes_on() {
        let mut slow = Recorder::new(0);
        slow.complete(10 * MS, 20 * MS, 1, 1);
        slow.complete(20 * MS, 450 * MS, 1, 1);
        assert_eq!(merge(std::slice::from_ref(&slow)).stalls, Stalls { windows: 3, longest_slots: 42 });
        let mut busy = Recorder::new(0);
        busy.complete(205 * MS, 210 * MS, 1, 1);
        assert_eq!(merge(&[slow, busy]).stalls, Stalls { windows: 2, longest_slots: 23 });
    }

    #[test]
    fn merging_backlogged_requests_takes_constant_memory() {
        let mut late = Recorder::new(0);
        (0..1000).for_each(|n| late.complete(n * MS, 500 * MS + n * MS, 1, 1));
        assert_eq!(late.pending.len(), 1);
        // No operation completed in the first half of the second.
        assert_eq!(merge(&[late]).stalls, Stalls { windows: 4, longest_slots: 49 });
        let mut two = Recorder::new(0);
        two.complete(0, 100 * MS, 1, 1);
        two.complete(300 * MS, 400 * MS, 1, 1);
        assert_eq!(two.pending, [(1, 10), (31, 40)]);
    }

    #[test]
    fn an_idle_open_loop_does_not_stall() {
        let mut idle = Recorder::new(0);
        idle.complete(10 * MS, 11 * MS, 1, 1);
        idle.complete(900 * MS, 901 * MS, 1, 1);
        assert_eq!(merge(&[idle]).stalls, Stalls::default());
    }

    #[test]
    fn latencies_are_kept_by_the_second_of_their_end() {
        let (mut one, mut other) = (Recorder::by_second(1000 * MS), Recorder::by_second(1000 * MS));
        one.complete(1000 * MS, 1005 * MS, 1, 1);
        one.complete(1900 * MS, 3100 * MS, 1, 1);
        other.complete(3000 * MS, 3001 * MS, 1, 1);
        other.leave(3000 * MS, 9000 * MS);
        let merged = merge(&[one, other]);
        let counts: Vec<u64> = merged.latency_by_second.iter().map(Histogram::len).collect();
        assert_eq!(counts, [1, 0, 2]);
        let slowest = merged.latency_by_second[2].max() as f64 / MS as f64;
        assert!((slowest / 1200.0 - 1.0).abs() < 0.01, "{slowest} ms");
        // A remaining operation counts with its age, but not as completed.
        assert_eq!((merged.ops, merged.latency_ns.len()), (3, 4));
        assert!(merged.latency_ns.max() >= 6000 * MS);
    }

    #[test]
    fn the_hash_depends_on_kind_key_and_length() {
        let hash = |kind, key: &[u8], len| {
            let mut r = Recorder::new(0);
            r.plan(kind, key, len);
            r.hash()
        };
        let one = hash(Kind::Put, b"a", 1);
        assert_eq!(one, hash(Kind::Put, b"a", 1));
        assert_ne!(one, hash(Kind::Get, b"a", 1));
        assert_ne!(one, hash(Kind::Put, b"b", 1));
        assert_ne!(one, hash(Kind::Put, b"a", 2));
    }
}
