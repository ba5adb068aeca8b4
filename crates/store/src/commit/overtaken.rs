//! Length of the tail buffer, chosen so that pages superseded by a flush are never written.
//!
//! Pages with only buffered records stay in the tail buffer for a while ([`Aging`]). Once all their
//! records are flushed, one manifest edit releases the groups before them and records where the log
//! begins (tag 35). The pages are then never written. This edit follows the edits of the flushes,
//! so it confirms them. Pages that reuse a freed slot of the tail buffer name this edit, so its
//! loss is always noticed (`docs/decisions/0098-what-a-flush-overtakes.md`).

use super::staging_len;

/// Maximum length: the most that this release and earlier ones read back from a staging file.
const RING_LEN_MAX: u64 = 64 << 20;
const RING_LEN_MIN: u64 = 64 << 10;

/// Time that pages of the first lane wait for a flush to supersede them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aging {
    /// Maximum age of a buffered record in the tail buffer, milliseconds. 0: pages are written as
    /// soon as they are worth a write.
    pub age_ms_max: u64,
    /// Size of a memtable, bytes. Records stay there until their flush.
    pub memtable_bytes: u64,
    /// Maximum time that a durable write may wait for earlier buffered pages, microseconds. It
    /// applies once there are durable writes.
    pub durable_wait_us_max: u64,
    /// Durable writes are expected: they are the default of the store.
    pub expects_durable: bool,
}

impl Aging {
    /// Returns the tail buffer's length for groups of `group_len` bytes, up to `longest`. With
    /// aging it is a memtable and two groups of the longest length, scaled down while groups are
    /// short.
    pub fn ring_len(self, group_len: u64, longest: u64) -> usize {
        if self.age_ms_max == 0 {
            return staging_len(group_len);
        }
        let whole = self.memtable_bytes.saturating_add(longest.saturating_mul(2));
        let part = u128::from(whole) * u128::from(group_len.min(longest)) / u128::from(longest.max(1));
        let page = io::PAGE as u64;
        let len = u64::try_from(part).unwrap_or(u64::MAX).clamp(RING_LEN_MIN, RING_LEN_MAX);
        (len.next_multiple_of(page).min(RING_LEN_MAX)).max(staging_len(group_len) as u64) as usize
    }
}
