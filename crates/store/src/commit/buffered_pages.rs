//! Length of the tail buffer, chosen so that pages superseded by a flush are never written.
//!
//! Pages with only buffered records stay in the tail buffer for a while ([`Aging`]). Once all their
//! records are flushed, one manifest edit releases the groups before them and records where the log
//! begins (tag 35). The pages are then never written. This edit follows the edits of the flushes,
//! so it confirms them. Pages that reuse a freed slot of the tail buffer name this edit, so its
//! loss is always noticed ([`wal`] has the other half of the argument, in `wal/overtaken`).
//!
//! # A manifest that loses its last record
//!
//! Recovery drops a damaged record that nothing confirms yet, since it cannot be distinguished from
//! a torn one. So each edit here may be lost:
//!
//! * *The edit of the flush is lost.* No page was skipped because of it: the edit with the
//!   beginning comes later and confirms it. The log still has every record.
//! * *The edit with the beginning is lost.* If no page was begun since, no slot was reused, and all
//!   pages are there. Otherwise a page that was begun since has a durable end above the pages that
//!   are missing or only staged. Recovery then refuses the log (`Corruption`), as for any durable
//!   page that is missing. A page that was written to its group file since has the same effect.
//! * *Both are lost, and the staging file too.* The data flushed last is lost. This takes a power
//!   loss together with damage at the end of the manifest, and was so before pages were skipped.
//!
//! So no further edit and no sync per flush is needed to confirm the beginning. For the same reason
//! the beginning is not recorded in the edit of the flush: a lost edit would then lose the flushed
//! data.
//!
//! **Groups without a first page.** A manifest that has lost the edit of a group is detected by the
//! first page of the group's file, or by any page of it in the staging file ([`super::read`]). A
//! group whose first page was skipped has only the latter. But the edit that skips it follows the
//! edit that lists the group. If both are lost, the staging file has a page of an unknown group.
//! Without the staging file, the group's file has a page with a durable end that the log before it
//! does not reach.

use super::tail_buffer_len;

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
    pub fn tail_buffer_len(self, group_len: u64, longest: u64) -> usize {
        if self.age_ms_max == 0 {
            return tail_buffer_len(group_len);
        }
        let whole = self.memtable_bytes.saturating_add(longest.saturating_mul(2));
        let part = u128::from(whole) * u128::from(group_len.min(longest)) / u128::from(longest.max(1));
        let page = io::PAGE as u64;
        let len = u64::try_from(part).unwrap_or(u64::MAX).clamp(RING_LEN_MIN, RING_LEN_MAX);
        (len.next_multiple_of(page).min(RING_LEN_MAX)).max(tail_buffer_len(group_len) as u64) as usize
    }
}
