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

thread_local! {
    static NOW: Cell<Option<Traffic>> = const { Cell::new(None) };
    /// Locks that it held when it began.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// What the thread works for as long as this lives. See [`during`].
#[derive(Debug)]
pub struct During {
    before: (Option<Traffic>, usize),
    /// It is the thread's own.
    own: PhantomData<*const ()>,
}

/// From now on the thread works for this; what it worked for before it does again afterwards (in simulation who waits works himself).
#[must_use]
pub fn during(traffic: Option<Traffic>) -> During {
    During { before: (NOW.replace(traffic), HELD.replace(rank::held())), own: PhantomData }
}

impl Drop for During {
    fn drop(&mut self) {
        NOW.set(self.before.0);
        HELD.set(self.before.1);
    }
}

/// What the thread works for; `None`: somebody who reads or writes.
pub(super) fn now() -> Option<Traffic> {
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
        let outer = during(Some(Traffic::Flush));
        {
            let _inner = during(Some(Traffic::Other));
            assert_eq!(now(), Some(Traffic::Other));
            let _reads = during(None);
            assert_eq!(now(), None);
        }
        assert_eq!(now(), Some(Traffic::Flush));
        drop(outer);
        assert_eq!(now(), None);
    }
}
