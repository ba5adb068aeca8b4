//! Operations: requests, or parts of them, that run on the threads of the reactor.

use crate::queues::OperationClass;

/// Work under way. It owns all that it uses, and resolves its request. Dropped, it resolves the
/// request with `Closed`.
pub trait Operation: Send {
    /// Continues until it would wait.
    fn step(self: Box<Self>) -> Next;
    /// Returns the class, by which free threads choose it.
    fn class(&self) -> OperationClass;
    /// Ends it without a further step: the store is closed.
    fn abandon(self: Box<Self>) {}
}

/// Continuation after a step of an operation.
pub enum Next {
    /// Nothing: the operation is over.
    Done,
    /// A further step, not before this time in clock nanoseconds; 0: as soon as a thread is free.
    At(u64, Box<dyn Operation>),
}
