//! Counts reads of read states under the writer's lock.

use base::sync::rank;

thread_local! {
    /// Reads of read states by this thread while it held the writer's lock.
    pub(crate) static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts a read of a read state.
pub(super) fn count_step() {
    if rank::holds::<rank::Writer>() {
        STEPS.set(STEPS.get() + 1);
    }
}
