//! Code shared by the cursors over both kinds of blocks.

use base::{Result, SeqNo};
use cache::Block;

/// Bytes that a cursor reserves for its key with the first block. Most keys fit, so that a short
/// scan does not grow the buffer.
pub(crate) const KEY_BYTES: usize = 64;

/// A position in one block. It owns the block, and the complete key of its present entry.
///
/// A cursor never panics on hostile bytes: bytes that do not decode are `Corruption`, after which
/// it is not valid.
pub trait BlockCursor: Default + Send {
    /// Takes over a block. Not valid until positioned. With `global_seq`, every entry is reported
    /// with that sequence.
    fn load(&mut self, block: Block, global_seq: Option<SeqNo>) -> Result<()>;
    /// Releases the block; not valid afterward.
    fn clear(&mut self);
    /// Returns true while the cursor is on an entry.
    fn valid(&self) -> bool;
    /// Moves to the first entry.
    fn seek_to_first(&mut self) -> Result<()>;
    /// Moves to the last entry.
    fn seek_to_last(&mut self) -> Result<()>;
    /// Moves to the first entry at or after an encoded internal key; not valid if there is none.
    fn seek(&mut self, target: &[u8]) -> Result<()>;
    /// Moves forward; not valid after the last entry.
    fn next(&mut self) -> Result<()>;
    /// Moves backward; not valid before the first entry.
    fn prev(&mut self) -> Result<()>;
    /// Returns the encoded internal key; empty if not valid.
    fn key(&self) -> &[u8];
    /// Returns the value; empty if not valid.
    fn value(&self) -> &[u8];
    /// Returns the expiry time of the entry, in seconds since 1970; 0: never.
    fn expiry(&self) -> u64;

    /// Moves to the last entry at or before an encoded internal key; not valid if there is none.
    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        self.seek(target)?;
        if !self.valid() {
            self.seek_to_last()
        } else if base::key::compare(self.key(), target).is_gt() {
            self.prev()
        } else {
            Ok(())
        }
    }
}

/// Entries of a run before the current one, each with the data to position the cursor on it again.
/// Keys are decoded forward only, so a backward move decodes a run once and then steps back through
/// these entries.
#[derive(Default)]
pub(crate) struct Passed<T> {
    /// Entries with the start of their key in `keys`.
    entries: Vec<(T, usize)>,
    keys: Vec<u8>,
}

impl<T> Passed<T> {
    /// Adds an entry on the way to the next.
    pub(crate) fn push(&mut self, entry: T, key: &[u8]) {
        self.entries.push((entry, self.keys.len()));
        self.keys.extend_from_slice(key);
    }

    /// Removes the last entry; its key replaces `key`.
    pub(crate) fn pop_into(&mut self, key: &mut Vec<u8>) -> Option<T> {
        let (entry, start) = self.entries.pop()?;
        key.clear();
        key.extend_from_slice(self.keys.get(start..).unwrap_or_default());
        self.keys.truncate(start);
        Some(entry)
    }

    /// Removes all entries, because the cursor makes a move other than backward.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if !self.entries.is_empty() {
            self.entries.clear();
            self.keys.clear();
        }
    }
}

/// Returns true if the internal key (`user`, `trailer`) sorts before (`target_user`,
/// `target_trailer`).
#[inline]
pub(crate) fn before(user: &[u8], trailer: u64, target_user: &[u8], target_trailer: u64) -> bool {
    match user.cmp(target_user) {
        std::cmp::Ordering::Less => true,
        std::cmp::Ordering::Equal => trailer > target_trailer,
        std::cmp::Ordering::Greater => false,
    }
}

/// Returns the first `i` in `0..count` for which `before` is false; `before` must be true up to
/// some point and false after.
#[inline]
pub(crate) fn partition_point(count: usize, mut before: impl FnMut(usize) -> Result<bool>) -> Result<usize> {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle)? {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

/// Returns the trailer to report for a stored one.
#[inline(always)]
pub(crate) fn reported_trailer(stored: u64, global_seq: Option<SeqNo>) -> u64 {
    match global_seq {
        None => stored,
        Some(seq) => seq << 8 | (stored & 0xff),
    }
}

/// Comparison of a key with the target of a search (see [`extend_match`]).
pub(crate) enum Step {
    /// The user key sorts before the target's.
    Before,
    /// The user key equals the target's.
    Equal,
    /// The user key sorts after the target's: no later entry can match.
    After,
}

/// Makes one step of a search through prefix-compressed user keys without building them.
///
/// `matched` is the length of the prefix that the previous key, which sorts before `target`, shares
/// with the target. The current key shares `shared` bytes with the previous one, **and no more**
/// unless `shared` is 0, and continues with `suffix`.
#[inline]
pub(crate) fn extend_match(target: &[u8], matched: &mut usize, shared: usize, suffix: &[u8]) -> Step {
    let from = if shared == 0 {
        0
    } else if shared > *matched {
        return Step::Before;
    } else if shared < *matched {
        return Step::After;
    } else {
        shared
    };
    let rest = target.get(from..).unwrap_or_default();
    let common = crate::prefix::shared_len(suffix, rest);
    *matched = from + common;
    match (suffix.get(common), rest.get(common)) {
        (None, None) => Step::Equal,
        (None, Some(_)) => Step::Before,
        (Some(_), None) => Step::After,
        (Some(a), Some(b)) if a < b => Step::Before,
        _ => Step::After,
    }
}
