//! Length of the next log group: short under slow writes, up to the maximum under fast writes.
//!
//! An open group costs disk space; a new group costs a file, a manifest commit and a directory
//! sync. A group that lasts a second makes both cheap. So after a group that filled faster the next
//! one is four times as long. After a group that lasted for minutes it is a quarter as long. The
//! first group after an open is the shortest, so a store opened for a few writes never has a longer
//! one. A long log has longer groups to bound their number. Otherwise a family that is never
//! flushed would cost a file for each 64 KB of other writes.

use io::PAGE;

/// A group that filled faster is followed by a longer one.
const FAST_NS: u64 = 1_000_000_000;
/// A group that lasted longer is followed by a shorter one.
const SLOW_NS: u64 = 60_000_000_000;
/// Ratio of the lengths of successive groups.
const FACTOR: u64 = 4;
/// No group is shorter than this fraction of the log.
const LOG_PART: u64 = 16;
/// The shortest group is this fraction of the longest, within bounds in bytes.
const SHORTEST_PART: u64 = 8;
const SHORTEST_BYTES: (u64, u64) = (4 * PAGE as u64, 64 << 10);

/// Returns the length of the shortest group if the longest has `group_bytes`.
pub fn shortest_bytes(group_bytes: u64) -> u64 {
    let (least, most) = SHORTEST_BYTES;
    (group_bytes / SHORTEST_PART / PAGE as u64 * PAGE as u64).clamp(least, most)
}

/// Length and creation time of the last group; all zero before the first.
#[derive(Debug, Default)]
pub(super) struct Pace {
    len: u64,
    since_ns: u64,
}

impl Pace {
    /// Returns the current group length.
    pub fn len(&self, group_bytes: u64) -> u64 {
        self.len.max(shortest_bytes(group_bytes))
    }

    /// Returns the length of the next group of a log of `live_bytes`, if it were made now.
    pub fn next_len(&self, group_bytes: u64, now_ns: u64, live_bytes: u64) -> u64 {
        let (len, lasted_ns) = (self.len(group_bytes), now_ns.saturating_sub(self.since_ns));
        let next = match () {
            () if self.len == 0 => len,
            () if lasted_ns < FAST_NS => len.saturating_mul(FACTOR),
            () if lasted_ns > SLOW_NS => len / FACTOR / PAGE as u64 * PAGE as u64,
            () => len,
        };
        let part = (live_bytes / LOG_PART / PAGE as u64).next_power_of_two() * PAGE as u64;
        next.max(part).clamp(shortest_bytes(group_bytes), group_bytes)
    }

    /// Records that a group of this length was made.
    pub fn made(&mut self, len: u64, now_ns: u64) {
        (self.len, self.since_ns) = (len, now_ns);
    }
}

#[cfg(test)]
mod tests;
