//! The inner cursor of a view, and how it passes versions of keys.

use super::RESEEK_AFTER;
use crate::gap;
use base::key::{self, encode_into};
use base::{Error, InternalIterator, MAX_SEQ, Result, SeqNo, ValueKind};

/// A cursor over internal keys that counts the entries it passes.
pub(super) struct Versions<I> {
    inner: I,
    /// Buffer of the keys to seek.
    target: Vec<u8>,
    hidden: u64,
    /// The failure of a move that met a gap beyond the key that is shown.
    deferred: Option<Error>,
}

impl<I: InternalIterator> Versions<I> {
    pub fn new(inner: I) -> Self {
        Versions { inner, target: Vec::new(), hidden: 0, deferred: None }
    }

    /// The cursor itself.
    #[inline]
    pub fn inner(&self) -> &I {
        &self.inner
    }

    /// The cursor itself. Its moves count nothing.
    #[inline]
    pub fn inner_mut(&mut self) -> &mut I {
        &mut self.inner
    }

    /// Entries that were passed and not shown.
    pub fn hidden(&self) -> u64 {
        self.hidden
    }

    /// An entry that was passed is shown nevertheless.
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

    /// True while it stands on a version of `user_key`.
    #[inline]
    pub fn is_on(&self, user_key: &[u8]) -> bool {
        self.inner.valid() && key::user_key(self.inner.key()) == user_key
    }

    /// Passes the entry that it stands on.
    #[inline]
    pub fn pass(&mut self) -> Result<()> {
        self.hidden += 1;
        self.inner.next()
    }

    /// Passes the versions above `snapshot` of the key that it stands on.
    pub fn pass_newer(&mut self, snapshot: SeqNo) -> Result<()> {
        self.hidden += 1;
        fill(&mut self.target, key::user_key(self.inner.key()), snapshot, ValueKind::Seek);
        self.inner.seek(&self.target)
    }

    /// Passes, forward, the versions of `user_key` that it stands on.
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

    /// Moves to the next entry. A gap that begins behind the versions of `user_key` stops the next move, not this one.
    pub fn next_of(&mut self, user_key: &[u8]) -> Result<()> {
        match self.inner.next() {
            Err(e) if self.inner.gap().is_some_and(|gap| gap::begins_behind(&gap, user_key)) => {
                self.deferred = Some(e);
                Ok(())
            }
            other => other,
        }
    }

    /// Passes, backward, the version of `user_key` that it stands on. A gap that ends before them stops the next move, not
    /// this one.
    pub fn pass_back(&mut self, user_key: &[u8]) -> Result<()> {
        self.hidden += 1;
        let moved = self.inner.prev();
        self.before(user_key, moved)
    }

    /// Passes the versions of `user_key` that are newer than the one that it stands on, to the newest up to `snapshot`.
    pub fn pass_to_newest(&mut self, user_key: &[u8], snapshot: SeqNo) -> Result<()> {
        self.hidden += 1;
        self.seek(user_key, snapshot, ValueKind::Seek)
    }

    /// Moves to the last entry before every version of `user_key`.
    pub fn leave_backward(&mut self, user_key: &[u8]) -> Result<()> {
        self.seek_for_prev(user_key, MAX_SEQ, ValueKind::Seek)
    }

    /// The same. A gap that ends before the key stops the next move, not this one.
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

    /// The failure that an earlier move left for this one.
    pub fn take_deferred(&mut self) -> Result<()> {
        self.deferred.take().map_or(Ok(()), Err)
    }

    /// The cursor goes elsewhere: a gap beyond the key that was shown does not matter.
    pub fn forget_deferred(&mut self) {
        self.deferred = None;
    }
}

/// Makes `target` an internal key.
pub(super) fn fill(target: &mut Vec<u8>, user_key: &[u8], seq: SeqNo, kind: ValueKind) {
    target.clear();
    encode_into(target, user_key, seq, kind);
}
