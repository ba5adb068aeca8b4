//! Asynchronous requests: the reactor that runs them beside their callers. It knows no engine.
//!
//! An engine takes the first steps of a request in the call that submits it. The rest, which would
//! wait, is given to the [`Reactor`], in one of two forms:
//!
//! * An [`Operation`] (`operation`) runs until it would wait, and names the time of its next step:
//!   writes that wait, flushes. A few threads run operations. `queues` chooses the class that a
//!   free thread serves, `tasks` keeps the operations and puts idle threads to sleep.
//! * A [`ResumableRead`] (`resumable`) names the bytes that it wants from the device, receives
//!   them, and finally resolves its request: point reads and scans. One thread, the *driver*
//!   (`reads`), has the device reads of all of them in flight. A step that would block, and each
//!   step of a scan, is an operation (`blocking`). `scans` bounds the number of running scans.
//!
//! So no request has its own thread, and without requests in flight no thread has work. A request
//! owns its bytes and everything that it has pinned. In simulation there are no threads: a waiting
//! caller runs a step that the seed chooses ([`store::run::AsyncRequests`]).
//!
//! **Close.** [`Reactor::stop`] lets each running step end and abandons the rest. A dropped
//! operation or read resolves its request with `Closed`.
//!
//! **Panic.** A step that panics, which is a bug, poisons the store (`guard`). Its thread
//! continues, since other requests wait for it.

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
