//! The merge operator: a user's function that folds operands into a value.
//!
//! An operand is written without reading its base; readers and compactions fold it later. The
//! engine calls the operator only through [`fold`], which turns a panic into an error of kind
//! `UserCallback`. User code must not take down a background thread, and the entries on which it
//! failed stay unchanged.

use base::{Error, ErrorKind, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Folds operands into a value. Must be deterministic: the same fold happens on reads and in
/// compactions.
pub trait MergeOperator: Send + Sync {
    /// Folds `operands` (oldest first, at least one) into `base`, and writes the result to `out`
    /// (empty on entry). `base` is the value below the operands, or `None` if the key did not
    /// exist.
    ///
    /// # Errors
    /// Any error is returned to the reader; a compaction then keeps the operands.
    fn full_merge(
        &self,
        key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<()>;
}

/// Operands of one key, collected from the newest to the oldest.
#[derive(Debug, Default)]
pub struct Operands {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Operands {
    /// Removes all operands, but keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds an operand that is older than all previous ones.
    pub fn push_older(&mut self, operand: &[u8]) {
        self.bytes.extend_from_slice(operand);
        self.ends.push(self.bytes.len());
    }

    /// Returns the number of operands.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns true if there are no operands.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the total length of the operands, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns operand `i`; operand 0 is the newest.
    pub fn get(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.bytes[start..self.ends[i]]
    }
}

/// Calls `operator` on `operands`, and replaces the content of `out`.
///
/// # Errors
/// The operator's own error, or `UserCallback` if it panicked.
pub fn fold(
    operator: &dyn MergeOperator,
    key: &[u8],
    base: Option<&[u8]>,
    operands: &Operands,
    out: &mut Vec<u8>,
) -> Result<()> {
    let oldest_first: Vec<&[u8]> = (0..operands.len()).rev().map(|i| operands.get(i)).collect();
    out.clear();
    // Unwind safety: `out` is cleared before its next use, and nothing else is shared with the
    // operator.
    let call = AssertUnwindSafe(|| operator.full_merge(key, base, &oldest_first, out));
    catch_unwind(call).unwrap_or_else(|_| {
        Err(Error::new(
            ErrorKind::UserCallback,
            "the merge operator panicked, and no stored data changed: repair the operator and read again",
        ))
    })
}
