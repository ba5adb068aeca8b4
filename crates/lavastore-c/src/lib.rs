//! C interface of LavaStore. `include/lavastore.h` documents its functions.
//!
//! Each function wraps one call of the facade `lavastore`: it converts pointers to references,
//! calls, and converts the result to a status and handles. `ffi` has the common rules:
//!
//! * A *handle* is a box owned by the caller. NULL is an error or, where the header says so, a
//!   default. A freed handle cannot be detected.
//! * No panic crosses the boundary: it becomes `LAVA_BUG`.
//! * A result is written only on success; an error only if the caller passes a place for it.
//!
//! The `unsafe` code relies on the rules of the header: a pointer comes from the function that
//! makes such handles, is not freed, and stays valid during the call. A C program tests every
//! function, with the address sanitizer where available.

// The header documents each function and the obligations of the caller.
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
