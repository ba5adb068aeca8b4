//! What a flush overtakes is never written: how long the ring of open pages is for that.
//!
//! Pages that hold buffered records alone stay in the ring for a while ([`Aging`]). When all that is in them has been flushed, one edit of the manifest
//! lets go of the groups before them and says where the log begins (tag 35), and they are never written. The edit comes after those of the flushes, so it
//! confirms them; a ring's slot that it frees is used by pages that say so, so nobody misses this edit unnoticed
//! (`docs/decisions/0098-what-a-flush-overtakes.md`).

use super::staging_len;

/// The longest ring: what recovery reads back of a staging file, in this release and in those before.
const RING_LEN_MAX: u64 = 64 << 20;
/// The shortest.
const RING_LEN_MIN: u64 = 64 << 10;

/// How long pages of the first lane wait to be overtaken by a flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aging {
    /// Until one of their records is so old, milliseconds. 0: they are written as soon as they are worth a write.
    pub age_ms_max: u64,
    /// Bytes of a memtable, in which records are until they are flushed.
    pub memtable_bytes: u64,
    /// For no more than this, microseconds, a durable write is to wait for what others buffered, once there are any.
    pub durable_wait_us_max: u64,
    /// There are: writes are durable unless they say otherwise.
    pub expects_durable: bool,
}

impl Aging {
    /// Bytes of the ring of open pages for groups of `group_len` bytes where the longest have `longest`: where pages wait, a memtable and two
    /// groups. While groups are short the ring is in the same proportion.
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
