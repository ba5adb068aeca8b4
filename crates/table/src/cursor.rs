//! What the cursors of both kinds of blocks have in common.

use base::{Result, SeqNo};
use cache::Block;

/// Bytes that a cursor reserves for its key with the first block: most keys fit, and a short scan grows it no further.
pub(crate) const KEY_BYTES: usize = 64;

/// A position in one block. It owns the block, and the key of the entry it stands on, whole.
///
/// A cursor never panics on hostile bytes: what does not decode is `Corruption`, after which it is not valid.
pub trait BlockCursor: Default + Send {
    /// Takes over a block. Not valid until positioned. With `global_seq`, every entry is reported with that sequence.
    fn load(&mut self, block: Block, global_seq: Option<SeqNo>) -> Result<()>;
    /// Lets go of the block; not valid.
    fn clear(&mut self);
    /// True while it stands on an entry.
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
    /// The encoded internal key; empty if not valid.
    fn key(&self) -> &[u8];
    /// The value; empty if not valid.
    fn value(&self) -> &[u8];
    /// The second since 1970 at which the entry expires; 0: never.
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

/// The entries of a run before the present one, each with what the cursor needs to stand on it again: keys are decoded
/// forward only, so moving backward decodes a run once and then goes back through these.
#[derive(Default)]
pub(crate) struct Passed<T> {
    /// Where the key of each begins in `keys`.
    entries: Vec<(T, usize)>,
    keys: Vec<u8>,
}

impl<T> Passed<T> {
    /// Remembers an entry on the way to the next.
    pub(crate) fn push(&mut self, entry: T, key: &[u8]) {
        self.entries.push((entry, self.keys.len()));
        self.keys.extend_from_slice(key);
    }

    /// The last entry; its key replaces `key`.
    pub(crate) fn pop_into(&mut self, key: &mut Vec<u8>) -> Option<T> {
        let (entry, start) = self.entries.pop()?;
        key.clear();
        key.extend_from_slice(self.keys.get(start..).unwrap_or_default());
        self.keys.truncate(start);
        Some(entry)
    }

    /// Forgets all of them, because the cursor moves otherwise than backward.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if !self.entries.is_empty() {
            self.entries.clear();
            self.keys.clear();
        }
    }
}

/// True if the internal key (`user`, `trailer`) sorts before (`target_user`, `target_trailer`).
#[inline]
pub(crate) fn before(user: &[u8], trailer: u64, target_user: &[u8], target_trailer: u64) -> bool {
    match user.cmp(target_user) {
        std::cmp::Ordering::Less => true,
        std::cmp::Ordering::Equal => trailer > target_trailer,
        std::cmp::Ordering::Greater => false,
    }
}

/// The first `i` in `0..count` for which `before` is false; `before` must be true up to some point and false after.
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

/// The trailer to report for a stored one.
#[inline(always)]
pub(crate) fn reported_trailer(stored: u64, global_seq: Option<SeqNo>) -> u64 {
    match global_seq {
        None => stored,
        Some(seq) => seq << 8 | (stored & 0xff),
    }
}

/// How a key compares with the target of a search (see [`extend_match`]).
pub(crate) enum Step {
    /// The user key sorts before the target's.
    Before,
    /// It is the target's.
    Equal,
    /// It sorts after: no later entry can match.
    After,
}

/// One step of a search through prefix-compressed user keys without building them.
///
/// `matched` is what the previous key, which sorts before `target`, shares with it. The present key shares `shared`
/// bytes with the previous one, **and no more** unless `shared` is 0, and goes on with `suffix`.
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
