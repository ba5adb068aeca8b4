//! Errors of edits and states that contradict the store.

use base::{Error, Result};

/// Refuses an edit that contradicts the state.
///
/// # Errors
/// Always: `InvalidArgument`.
pub fn refuse<T>(why: impl std::fmt::Display) -> Result<T> {
    Err(Error::invalid(format!("the manifest edit contradicts the state of the store before it: {why}")))
}

/// Reports a state that contradicts itself.
///
/// # Errors
/// Always: `Corruption`.
pub(super) fn fault<T>(why: impl std::fmt::Display) -> Result<T> {
    Err(Error::corruption(format!("the manifest contradicts itself: {why}")))
}
