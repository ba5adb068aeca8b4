//! What a flush overtakes is never written: when the log begins further on, and how long its ring is for that.
//!
//! Pages that hold buffered records alone stay in the ring for a while ([`Aging`]). When all that is in them has been flushed, one edit of the manifest
//! lets go of the groups before them and says where the log begins (tag 35), and they are never written. The edit comes after those of the flushes, so it
//! confirms them; a ring's slot that it frees is used by pages that say so, so nobody misses this edit unnoticed
//! (`docs/decisions/0098-what-a-flush-overtakes.md`).

use super::{Log, Task, staging_len};
use crate::manifest::Record;
use base::{Result, SeqNo};
use wal::{Overtaken, TenantId};

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

impl Log {
    /// Bytes of the ring that groups of the present length ask for. Where nothing waits in it that is buffered, or where a longer one would take what the
    /// jobs need that make room, no more than if pages were written at once.
    pub(super) fn ring_wanted(&self) -> usize {
        let (wal, group_len) = (self.wal(), self.files.len());
        let whole = self.base.terms.aging.ring_len(group_len, self.base.terms.group_bytes);
        let (short, useful) = (staging_len(group_len), wal.deferred().useful_ring_bytes() / io::PAGE as u64);
        let useful = usize::try_from(useful).unwrap_or(usize::MAX).saturating_mul(io::PAGE);
        let wanted = whole.min(useful).max(short);
        let more = wanted.saturating_sub(wal.content().staging_len().max(short)) as u64;
        if more == 0 || self.base.space.grants.fits_file(more) { wanted } else { short }
    }

    /// A flush may have overtaken pages that would be written otherwise: that is found out first.
    pub(super) fn looks_for_overtaken(&self) -> Option<Task> {
        let wal = self.wal();
        (wal.keeps_pages() && self.may_release() && !wal.syncer().is_wanted()).then_some(Task::Release)
    }

    /// Lets the log begin behind what nobody needs, if that saves any page from being written. True if it does.
    ///
    /// # Errors
    /// Those of the manifest and of the file system. After `NoSpace` nothing happened.
    pub(super) fn skip_overtaken(&self, floors: &[(TenantId, SeqNo)]) -> Result<bool> {
        let Some(overtaken) = self.wal().deferred().overtaken(floors) else { return Ok(false) };
        let Overtaken { ltn, begin, released } = &overtaken;
        let record = Record::BeginLogGroup { ltn: *ltn, begin: *begin };
        self.files.release_with(released, vec![record], || self.wal().deferred().skip_to(&overtaken))?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_holds_a_memtable_and_two_groups_where_pages_wait() {
        const MB: u64 = 1 << 20;
        let aging = Aging { age_ms_max: 1000, memtable_bytes: 16 * MB, ..Aging::default() };
        assert_eq!(aging.ring_len(16 * MB, 16 * MB), 48 << 20);
        assert_eq!(aging.ring_len(4 * MB, 16 * MB), 12 << 20);
        assert_eq!(aging.ring_len(64 << 10, 16 * MB), 192 << 10);
        assert_eq!(Aging { memtable_bytes: 1 << 40, ..aging }.ring_len(16 * MB, 16 * MB), 64 << 20);
        assert_eq!(Aging { memtable_bytes: 16 << 10, ..aging }.ring_len(64 << 10, 64 << 10), 144 << 10);
        for len in [64 << 10, MB, 16 * MB, 1 << 32] {
            assert_eq!(Aging::default().ring_len(len, 1 << 32), staging_len(len), "as ever");
            assert!(aging.ring_len(len, 1 << 32) >= staging_len(len));
        }
    }
}
