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
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;
    const GROUP_BYTES: u64 = 16 << 20;

    /// The lengths of groups that each last for so long.
    fn lengths(group_bytes: u64, lasts_ns: &[u64]) -> Vec<u64> {
        let (mut pace, mut now_ns, mut lens) = (Pace::default(), 1 << 40, Vec::new());
        for lasts in lasts_ns {
            let len = pace.next_len(group_bytes, now_ns, 0);
            pace.made(len, now_ns);
            lens.push(len >> 10);
            now_ns += lasts;
        }
        lens
    }

    #[test]
    fn groups_follow_the_rate_of_writes() {
        let fast = lengths(GROUP_BYTES, &[SECOND_NS / 2; 7]);
        assert_eq!(fast, [64, 256, 1024, 4096, 16 << 10, 16 << 10, 16 << 10]);
        assert_eq!(lengths(GROUP_BYTES, &[5 * SECOND_NS; 4]), [64; 4]);
        let burst = [1, 1, 1, 100 * SECOND_NS, 100 * SECOND_NS, 5 * SECOND_NS, 0];
        assert_eq!(lengths(GROUP_BYTES, &burst), [64, 256, 1024, 4096, 1024, 256, 256]);
    }

    #[test]
    fn a_long_log_has_few_groups() {
        let (mut pace, mut now_ns) = (Pace::default(), 1 << 40);
        let (mut live_bytes, mut groups) = (0, 0);
        while live_bytes < 256 << 20 {
            let len = pace.next_len(GROUP_BYTES, now_ns, live_bytes);
            pace.made(len, now_ns);
            (live_bytes, groups, now_ns) = (live_bytes + len, groups + 1, now_ns + 5 * SECOND_NS);
        }
        assert!(groups < 120, "{groups}");
    }

    #[test]
    fn lengths_are_whole_pages_within_what_is_allowed() {
        for log_group_bytes in [64 << 10, 68 << 10, 128 << 10, 5 << 20, 4 << 30] {
            for len in lengths(log_group_bytes, &[1; 12]) {
                assert!(len.is_multiple_of(PAGE as u64 >> 10) && len << 10 <= log_group_bytes, "{len}");
            }
            assert_eq!(lengths(log_group_bytes, &[1; 12])[11], log_group_bytes >> 10);
        }
    }
}
