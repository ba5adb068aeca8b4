//! How often families are asked while all writers wait.

use base::sync::rank;

thread_local! {
    /// How often this thread asked a family for its read state while it held the writer's lock.
    pub(crate) static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A family is asked.
pub(super) fn count_step() {
    if rank::holds::<rank::Writer>() {
        STEPS.set(STEPS.get() + 1);
    }
}
