//! LavaStore for C: the functions of `include/lavastore.h`, which is their documentation.
//!
//! Each function is a thin coat around a call of the facade `lavastore`: it turns pointers into references, calls, and turns the answer into a
//! status and handles. What is the same for all stands in `ffi`:
//!
//! * A *handle* is a box that the caller owns. NULL is an error or, where the header says so, a default; what was freed cannot be
//!   recognized.
//! * No panic leaves: it becomes `LAVA_BUG`.
//! * An answer is written only where the call succeeded; an error only where somebody wants it.
//!
//! `unsafe` is all that this crate is about, and the proofs are the rules of the header: pointers come from the function that makes such handles, were
//! not freed, and live as long as the call. A program in C goes through every function, under the address sanitizer where there is one.

// The header says what each function does, and what a caller has to see to.
#![allow(missing_docs, clippy::missing_safety_doc)]

mod batch;
mod completions;
mod error;
mod ffi;
mod iter;
mod options;
mod queue;
mod read;
mod store;
mod write;

pub use batch::*;
pub use completions::*;
pub use error::*;
pub use ffi::Slice;
pub use iter::*;
pub use options::*;
pub use queue::*;
pub use read::*;
pub use store::*;
pub use write::*;
