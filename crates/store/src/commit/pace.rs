//! How long the next log group is: short in a store that is written slowly, up to the longest that is allowed in one that is written
//! fast.
//!
//! A group costs disk space for as long as it is open, and time when it is made: a file, a commit of the manifest, a sync
//! of the directory. Where it lasts for a second both are cheap, so a group that was used up faster is followed by one
//! four times as long, and one that lasted for minutes by one of a quarter. The first group of each opening is the
//! shortest: a store that is opened for a few writes never has a longer one. A long log has longer groups, so that their
//! number stays small: a family that is never flushed does not open a file for each 64 KB that others write.

use io::PAGE;

/// A group that was used up faster is followed by a longer one.
const FAST_NS: u64 = 1_000_000_000;
/// One that lasted longer is followed by a shorter one.
const SLOW_NS: u64 = 60_000_000_000;
/// The change from one group to the next.
const FACTOR: u64 = 4;
/// No group is shorter than this part of the log.
const LOG_PART: u64 = 16;
/// The shortest groups, bytes: a part of the longest, within bounds.
const SHORTEST_PART: u64 = 8;
const SHORTEST_BYTES: (u64, u64) = (4 * PAGE as u64, 64 << 10);

/// Bytes of the shortest group where the longest has `group_bytes`.
pub fn shortest_bytes(group_bytes: u64) -> u64 {
    let (least, most) = SHORTEST_BYTES;
    (group_bytes / SHORTEST_PART / PAGE as u64 * PAGE as u64).clamp(least, most)
}

/// The length of the last group, and when it was made. All zero: there was none.
#[derive(Debug, Default)]
pub(super) struct Pace {
    len: u64,
    since_ns: u64,
}

impl Pace {
    /// The length of groups now.
    pub fn len(&self, group_bytes: u64) -> u64 {
        self.len.max(shortest_bytes(group_bytes))
    }

    /// What the next group of a log of `live_bytes` should have if it were made now.
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

    /// A group of this length was made.
    pub fn made(&mut self, len: u64, now_ns: u64) {
        (self.len, self.since_ns) = (len, now_ns);
    }
}

#[cfg(test)]
mod tests;
