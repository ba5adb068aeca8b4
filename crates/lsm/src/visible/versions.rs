//! The inner cursor of a view, with moves over the versions of a key.

use super::RESEEK_AFTER;
use crate::gap;
use base::key::{self, encode_into};
use base::{Error, InternalIterator, MAX_SEQ, Result, SeqNo, ValueKind};

/// A cursor over internal keys that counts the entries it passes.
pub(super) struct Versions<I> {
    inner: I,
    /// Buffer for seek targets.
    target: Vec<u8>,
    hidden: u64,
    /// Error of a move that met a gap beyond the key shown.
    deferred: Option<Error>,
}

impl<I: InternalIterator> Versions<I> {
    pub fn new(inner: I) -> Self {
        Versions { inner, target: Vec::new(), hidden: 0, deferred: None }
    }

    /// Returns the cursor itself.
    #[inline]
    pub fn inner(&self) -> &I {
        &self.inner
    }

    /// Returns the cursor itself. Its moves are not counted.
    #[inline]
    pub fn inner_mut(&mut self) -> &mut I {
        &mut self.inner
    }

    /// Returns the number of entries passed and not shown.
    pub fn hidden(&self) -> u64 {
        self.hidden
    }

    /// Uncounts a passed entry that is shown nevertheless.
    pub fn show(&mut self) {
        self.hidden -= 1;
    }

    /// Moves to the first entry at or after an internal key.
    pub fn seek(&mut self, user_key: &[u8], seq: SeqNo, kind: ValueKind) -> Result<()> {
        fill(&mut self.target, user_key, seq, kind);
        self.inner.seek(&self.target)
    }

    /// Moves to the last entry at or before an internal key.
    pub fn seek_for_prev(&mut self, user_key: &[u8], seq: SeqNo, kind: ValueKind) -> Result<()> {
        fill(&mut self.target, user_key, seq, kind);
        self.inner.seek_for_prev(&self.target)
    }

    /// Returns true while the cursor is on a version of `user_key`.
    #[inline]
    pub fn is_on(&self, user_key: &[u8]) -> bool {
        self.inner.valid() && key::user_key(self.inner.key()) == user_key
    }

    /// Passes the current entry.
    #[inline]
    pub fn pass(&mut self) -> Result<()> {
        self.hidden += 1;
        self.inner.next()
    }

    /// Passes the versions above `snapshot` of the current key.
    pub fn pass_newer(&mut self, snapshot: SeqNo) -> Result<()> {
        self.hidden += 1;
        fill(&mut self.target, key::user_key(self.inner.key()), snapshot, ValueKind::Seek);
        self.inner.seek(&self.target)
    }

    /// Passes the remaining versions of `user_key` forward.
    #[inline]
    pub fn pass_older(&mut self, user_key: &[u8]) -> Result<()> {
        let mut steps = 0;
        while self.is_on(user_key) {
            steps += 1;
            if steps == RESEEK_AFTER {
                self.hidden += 1;
                self.seek(user_key, 0, ValueKind::Deletion)?;
            } else {
                self.pass()?;
            }
        }
        Ok(())
    }

    /// Moves to the next entry. A gap that begins after the versions of `user_key` stops the next
    /// move, not this one.
    pub fn next_of(&mut self, user_key: &[u8]) -> Result<()> {
        match self.inner.next() {
            Err(e) if self.inner.gap().is_some_and(|gap| gap::begins_behind(&gap, user_key)) => {
                self.deferred = Some(e);
                Ok(())
            }
            other => other,
        }
    }

    /// Passes the current version of `user_key` backward. A gap that ends before the key stops the
    /// next move, not this one.
    pub fn pass_back(&mut self, user_key: &[u8]) -> Result<()> {
        self.hidden += 1;
        let moved = self.inner.prev();
        self.before(user_key, moved)
    }

    /// Passes versions of `user_key` that are newer than the current one, to the newest up to
    /// `snapshot`.
    pub fn pass_to_newest(&mut self, user_key: &[u8], snapshot: SeqNo) -> Result<()> {
        self.hidden += 1;
        self.seek(user_key, snapshot, ValueKind::Seek)
    }

    /// Moves to the last entry before every version of `user_key`.
    pub fn leave_backward(&mut self, user_key: &[u8]) -> Result<()> {
        self.seek_for_prev(user_key, MAX_SEQ, ValueKind::Seek)
    }

    /// As [`Versions::leave_backward`], but a gap that ends before the key stops the next move, not
    /// this one.
    pub fn leave_shown(&mut self, user_key: &[u8]) -> Result<()> {
        let moved = self.leave_backward(user_key);
        self.before(user_key, moved)
    }

    fn before(&mut self, user_key: &[u8], moved: Result<()>) -> Result<()> {
        match moved {
            Err(e) if self.inner.gap().is_some_and(|gap| gap::ends_before(&gap, user_key)) => {
                self.deferred = Some(e);
                Ok(())
            }
            other => other,
        }
    }

    /// Returns the error that an earlier move deferred to this one.
    pub fn take_deferred(&mut self) -> Result<()> {
        self.deferred.take().map_or(Ok(()), Err)
    }

    /// Drops the deferred error: the cursor goes elsewhere, so a gap beyond the key shown does not
    /// matter.
    pub fn forget_deferred(&mut self) {
        self.deferred = None;
    }
}

/// Sets `target` to an internal key.
pub(super) fn fill(target: &mut Vec<u8>, user_key: &[u8], seq: SeqNo, kind: ValueKind) {
    target.clear();
    encode_into(target, user_key, seq, kind);
}
