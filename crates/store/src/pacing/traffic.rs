//! The purpose of a thread's I/O. The scheduler sets it for each step of a job; without one the
//! thread is in the foreground.

use base::sync::rank;
use std::cell::Cell;
use std::marker::PhantomData;

/// Purpose of background I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Flush of memtables.
    Flush,
    /// Compaction, of all levels.
    Compaction,
    /// Garbage collection.
    Collection,
    /// All other work: the scrub, clean-up.
    Other,
}

impl Traffic {
    /// All purposes in their order.
    pub const ALL: [Traffic; 4] = [Traffic::Flush, Traffic::Compaction, Traffic::Collection, Traffic::Other];
}

thread_local! {
    static NOW: Cell<Option<Traffic>> = const { Cell::new(None) };
    /// Number of locks held when the purpose was set.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// The purpose of the thread while this lives: see [`during`].
#[derive(Debug)]
pub struct During {
    before: (Option<Traffic>, usize),
    /// Not `Send`: the purpose belongs to the thread.
    own: PhantomData<*const ()>,
}

/// Sets the purpose of the thread until the result is dropped, then restores the previous one. (In
/// simulation a waiting call runs other work on its own thread.)
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

/// Returns the purpose of the thread; `None`: foreground.
pub(super) fn now() -> Option<Traffic> {
    NOW.get()
}

/// Returns true if the thread has taken a lock since its purpose was set and still holds it. (In
/// simulation a waiting call runs the work of others while it holds its own locks.) Locks are
/// counted in debug builds.
pub(super) fn holds_lock() -> bool {
    rank::held() > HELD.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_traffic_scopes_restore_the_outer_one() {
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
