//! Asynchronous requests: the reactor that runs them beside their callers. It knows no engine.
//!
//! An engine takes the first steps of a request in the call that submits it. The rest, whatever
//! would wait, is given to the [`Reactor`], in one of two forms:
//!
//! * An [`Operation`] (`operation`) goes on as far as it can and names the time of its next step:
//!   writes that wait, flushes. A few threads run operations. `queues` chooses the class that a
//!   free thread serves, `tasks` keeps the operations and puts idle threads to sleep.
//! * A [`ResumableRead`] (`resumable`) states the bytes that it wants of the device, receives them,
//!   and in the end resolves its request: point reads and scans. One thread, the *driver*
//!   (`reads`), has the device reads of all of them in flight. A step that would block, and each
//!   step of a scan, is an operation (`blocking`). `scans` bounds the scans under way.
//!
//! So no request has a thread of its own, and without requests in flight no thread has work. A
//! request owns its bytes and all that it has pinned. In simulation there are no threads: a caller
//! that waits runs a step that the seed chooses ([`store::run::Foreground`]).
//!
//! **Close.** [`Reactor::stop`] lets each step under way end and abandons the rest. A dropped
//! operation or read resolves its request with `Closed`.
//!
//! **Panic.** A step that panics, which is a bug, poisons the store (`guard`). Its thread goes on,
//! since other requests wait for it.

mod blocking;
mod guard;
mod operation;
mod queues;
mod reactor;
mod reads;
mod resumable;
mod scans;
mod tasks;

pub use operation::{Next, Operation};
pub use queues::OperationClass;
pub use reactor::Reactor;
pub use resumable::{ReadStep, ResumableRead};
