//! What a thread reads and writes for. The scheduler says it of each step of a job; who says nothing is in the foreground.

use base::sync::rank;
use std::cell::Cell;
use std::marker::PhantomData;

/// What background work reads and writes for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// What is in memory becomes a file.
    Flush,
    /// Compaction, of all levels.
    Compaction,
    /// Garbage collection.
    Collection,
    /// Everything else: the scrub, clean-up.
    Other,
}

impl Traffic {
    /// All of them, in their order.
    pub const ALL: [Traffic; 4] = [Traffic::Flush, Traffic::Compaction, Traffic::Collection, Traffic::Other];
}

/// Work in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Background {
    /// What it is.
    pub traffic: Traffic,
    /// Writers wait for it.
    pub urgent: bool,
}

thread_local! {
    static NOW: Cell<Option<Background>> = const { Cell::new(None) };
    /// Locks that it held when it began.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// What the thread works for as long as this lives. See [`during`].
#[derive(Debug)]
pub struct During {
    before: (Option<Background>, usize),
    /// It is the thread's own.
    own: PhantomData<*const ()>,
}

/// From now on the thread works for this; what it worked for before it does again afterwards (in simulation who waits works himself).
#[must_use]
pub fn during(background: Option<Background>) -> During {
    During { before: (NOW.replace(background), HELD.replace(rank::held())), own: PhantomData }
}

impl Drop for During {
    fn drop(&mut self) {
        NOW.set(self.before.0);
        HELD.set(self.before.1);
    }
}

/// What the thread works for; `None`: somebody who reads or writes.
pub(super) fn now() -> Option<Background> {
    NOW.get()
}

/// True if the work has taken a lock that it still holds, as far as anybody keeps count. (In simulation who waits does the work of others
/// and holds what he held before.)
pub(super) fn holds_lock() -> bool {
    rank::held() > HELD.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_works_in_between_goes_on_as_before() {
        let background = |traffic| Some(Background { traffic, urgent: false });
        let outer = during(background(Traffic::Flush));
        {
            let _inner = during(background(Traffic::Other));
            assert_eq!(now(), background(Traffic::Other));
            let _reads = during(None);
            assert_eq!(now(), None);
        }
        assert_eq!(now(), background(Traffic::Flush));
        drop(outer);
        assert_eq!(now(), None);
    }
}
