//! How far a scan looks ahead: how many entries, and how many bytes of values, its windows have.
//!
//! Windows grow: a scan that stops early has read for nothing about as much as it has used. From where on longer ones are no better
//! says how the values lay in the last one, its [`Spread`]. A file of values is in the order of keys. Of a window of few keys it has one record or
//! none, and each record is a request of its own; of a window of many it has several, side by side, and one request brings them. So where requests cost much beside the bytes that they
//! bring, by what reads of the disk were measured to cost ([`io::ReadCosts`]), windows are *scattered* and become longer, up to [`LONG_MAX`] entries
//! and [`LONG_BYTES_MAX`]. Where values lie in order that is never so, and windows stay as short as the device allows.
//!
//! Long windows hold memory that is in no budget, so few iterators have them at a time ([`LONG_SCANS_MAX`]); others do with the usual ones.

use crate::read::options::ReadOptions;
use crate::read::runs::GAP_UNKNOWN;
use io::ReadCosts;

/// Entries of the first window.
pub(super) const WINDOW_MIN: usize = 4;
/// Entries of the longest that is not scattered. The longer a window, the more of its values lie side by side in their files: with values of
/// 1 KiB in 22 files, windows of 256 made a third more entries a second than windows of 64.
pub(crate) const WINDOW_MAX: usize = 256;
/// Bytes of values in a window, of which there are two at most.
pub(crate) const BYTES_MAX: u64 = 1 << 20;
/// The same of an iterator where the device moves more than that while a read is waited for.
const BYTES_LIMIT: u64 = 2 << 20;
/// Entries and bytes of the longest window of scattered values.
pub(super) const LONG_MAX: usize = 2048;
/// See [`LONG_MAX`].
pub(super) const LONG_BYTES_MAX: u64 = 8 << 20;
/// Iterators that may have such windows at the same time: 64 MiB in all.
pub(super) const LONG_SCANS_MAX: usize = 4;
/// Requests cost much if they cost more than this part of the bytes that they bring.
const DEAR_PART: u64 = 4;

/// How far to look ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    /// Entries of the first window; 0: do not look ahead.
    pub first: usize,
    /// Bytes of values in a window.
    pub bytes_max: u64,
    /// The same where values are scattered.
    pub long_bytes_max: u64,
    /// How many bytes cost as much as a request.
    pub request_bytes: u64,
    /// How many entries will be looked at from a seek on; 0: nobody knows.
    pub expected: usize,
}

impl Reach {
    /// What [`crate::ReadOptions::readahead_bytes`] and [`crate::ReadOptions::expected_entries`] mean here: whoever states a length wants
    /// all of it at once, and who wants keys only looks at no value.
    /// Where more has to be in flight so that the device is busy, windows are longer, up to twice.
    pub fn of(options: &ReadOptions, costs: ReadCosts) -> Self {
        let expected = if options.keys_only { 0 } else { options.expected_entries };
        let request_bytes = costs.gap_bytes.unwrap_or(GAP_UNKNOWN);
        match options.readahead_bytes as u64 {
            0 => {
                let bytes_max = costs.window_bytes.unwrap_or(0).clamp(BYTES_MAX, BYTES_LIMIT);
                let long_bytes_max = LONG_BYTES_MAX;
                Reach { first: WINDOW_MIN, bytes_max, long_bytes_max, request_bytes, expected }
            }
            bytes => {
                let bytes_max = bytes.min(BYTES_MAX);
                Reach { first: WINDOW_MAX, bytes_max, long_bytes_max: bytes_max, request_bytes, expected }
            }
        }
    }
}

/// How the values of a window lay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spread {
    /// Requests that bring those which no cache has.
    pub requests: u64,
    /// The bytes of these.
    pub bytes: u64,
}

impl Spread {
    /// True if it takes many requests, which cost so many bytes each, for few bytes.
    fn is_dear(self, request_bytes: u64) -> bool {
        self.requests > 1
            && self.requests.saturating_mul(request_bytes).saturating_mul(DEAR_PART) > self.bytes
    }
}

/// How long the next window is. See the module.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    reach: Reach,
    entries: usize,
    bytes: u64,
    is_scattered: std::cell::Cell<bool>,
    may_be_long: bool,
}

impl Windows {
    pub fn new(reach: Reach) -> Windows {
        let (entries, bytes) = (reach.first, reach.bytes_max);
        Windows { reach, entries, bytes, is_scattered: false.into(), may_be_long: false }
    }

    /// Entries of the next window.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// Bytes of values in it, unless it is a single one.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Windows become no longer if values lie in order.
    pub fn are_full(&self) -> bool {
        self.entries >= WINDOW_MAX
    }

    /// So many entries will be looked at.
    pub fn expect(&mut self, entries: usize) {
        self.entries = entries.min(WINDOW_MAX);
    }

    /// How the values of the last window lay.
    pub fn see(&self, spread: Spread) {
        self.is_scattered.set(spread.is_dear(self.reach.request_bytes));
    }

    /// Before a window that is read ahead: whether it may be long, and how many entries are expected. What will be looked at anyway is read together at
    /// once.
    pub fn allow(&mut self, may_be_long: bool, expected: Option<usize>) {
        self.may_be_long = may_be_long;
        if may_be_long && self.is_scattered.get() && expected.is_some_and(|left| left > 0) {
            (self.entries, self.bytes) = (LONG_MAX, self.reach.long_bytes_max);
        }
    }

    /// A window was worth it.
    pub fn grow(&mut self) {
        if self.entries < WINDOW_MAX {
            self.entries = (self.entries * 2).min(WINDOW_MAX);
        } else if self.may_be_long && self.is_scattered.get() {
            self.entries = (self.entries * 2).min(LONG_MAX);
            self.bytes = (self.bytes * 2).min(self.reach.long_bytes_max);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const UNKNOWN: ReadCosts = ReadCosts { gap_bytes: None, window_bytes: None };

    #[test]
    fn what_options_and_costs_mean() {
        let usual = Reach::of(&ReadOptions::default(), UNKNOWN);
        assert_eq!((usual.first, usual.bytes_max, usual.expected), (WINDOW_MIN, BYTES_MAX, 0));
        assert_eq!((usual.long_bytes_max, usual.request_bytes), (LONG_BYTES_MAX, GAP_UNKNOWN));
        let options = ReadOptions { readahead_bytes: usize::MAX, expected_entries: 7, ..Default::default() };
        let given = Reach::of(&options, UNKNOWN);
        // Who says how much to read ahead gets no more.
        assert_eq!((given.bytes_max, given.long_bytes_max, given.expected), (BYTES_MAX, BYTES_MAX, 7));
        assert_eq!(Reach::of(&ReadOptions { keys_only: true, ..options }, UNKNOWN).expected, 0);
        // Where the device moves more than a window while one read is waited for, windows are longer, within bounds.
        let window = |bytes| {
            let costs = ReadCosts { window_bytes: Some(bytes), gap_bytes: Some(5000) };
            let reach = Reach::of(&ReadOptions::default(), costs);
            assert_eq!(reach.request_bytes, 5000);
            reach.bytes_max
        };
        assert_eq!([1, 3 << 19, u64::MAX].map(window), [BYTES_MAX, 3 << 19, 2 * BYTES_MAX]);
    }

    /// Lengths of windows of a scan whose values lie so.
    fn lengths(costs: ReadCosts, spread: Spread, expected: Option<usize>) -> Vec<(usize, u64)> {
        let mut windows = Windows::new(Reach::of(&ReadOptions::default(), costs));
        expected.into_iter().for_each(|n| windows.expect(n));
        let next = |_| {
            windows.see(spread);
            windows.allow(true, expected);
            windows.grow();
            (windows.entries(), windows.bytes() >> 20)
        };
        (0..12).map(next).collect()
    }

    #[test]
    fn windows_of_scattered_values_become_longer_where_requests_cost_much() {
        let apart = Spread { requests: 64, bytes: 1 << 20 };
        let flash = ReadCosts { gap_bytes: Some(4000), ..UNKNOWN };
        let arm = ReadCosts { gap_bytes: Some(256 << 10), ..UNKNOWN };
        let last = |costs, spread| *lengths(costs, spread, None).last().unwrap();
        assert_eq!(last(UNKNOWN, apart), (LONG_MAX, 8));
        assert_eq!(last(flash, apart), (WINDOW_MAX, 1), "a request is worth less than a quarter of a record");
        assert_eq!(last(flash, Spread { requests: 256, ..apart }), (LONG_MAX, 8));
        assert_eq!(last(arm, apart), (LONG_MAX, 8));
        for in_order in [Spread { requests: 4, ..apart }, Spread { requests: 1, bytes: 9 }, Spread::default()]
        {
            assert_eq!(last(UNKNOWN, in_order), (WINDOW_MAX, 1));
        }
        // None is much longer than all before it together.
        let all = lengths(UNKNOWN, apart, None);
        for (nth, (entries, mib)) in all.iter().enumerate() {
            let before = &all[..nth];
            assert!(*entries <= 2 * WINDOW_MIN + 2 * before.iter().map(|(n, _)| n).sum::<usize>());
            assert!(*mib <= 1 + before.iter().map(|(_, mib)| mib).sum::<u64>());
        }
        // What is known to be looked at is read at once.
        assert_eq!(lengths(UNKNOWN, apart, Some(1000))[0], (LONG_MAX, 8));
    }

    #[test]
    fn few_may_be_long() {
        let mut windows = Windows::new(Reach::of(&ReadOptions::default(), UNKNOWN));
        for _ in 0..12 {
            windows.see(Spread { requests: 64, bytes: 1 << 20 });
            windows.allow(false, Some(5000));
            windows.grow();
        }
        assert_eq!((windows.entries(), windows.bytes()), (WINDOW_MAX, BYTES_MAX));
    }
}
