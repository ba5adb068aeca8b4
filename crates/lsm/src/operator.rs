//! The merge operator: a user's function that folds operands into a value.
//!
//! An operand is written without reading what it changes; readers and compactions fold it later. The engine calls the
//! operator through [`fold`] only, which turns a panic into an error of kind `UserCallback`: user code must not take
//! down a background thread, and the entries it failed on stay as they are.

use base::{Error, ErrorKind, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Folds operands into a value. Must be deterministic: the same fold happens on reads and in compactions.
pub trait MergeOperator: Send + Sync {
    /// Writes to `out` (empty on entry) what `operands` (oldest first, at least one) make of `base`, the value below
    /// them, `None` if the key did not exist.
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
    /// Forgets all operands, keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds an operand that is older than all before.
    pub fn push_older(&mut self, operand: &[u8]) {
        self.bytes.extend_from_slice(operand);
        self.ends.push(self.bytes.len());
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Operand `i`, 0 the newest.
    pub fn get(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.bytes[start..self.ends[i]]
    }
}

/// Calls `operator` on `operands`; `out` is replaced.
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
    // Unwind safety: `out` is cleared before its next use, and nothing else is shared with the operator.
    let call = AssertUnwindSafe(|| operator.full_merge(key, base, &oldest_first, out));
    catch_unwind(call).unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::UserCallback, "the merge operator panicked: repair it and read again"))
    })
}
