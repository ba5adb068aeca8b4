//! The merge operator: a user's function that folds operands into a value.
//!
//! An operand is written without reading its base; readers and compactions fold it later. The
//! engine calls the operator only through [`fold`] and [`combine`], which turn a panic or an error
//! into an error of kind `UserCallback` that names the key. User code must not take down a
//! background thread, and the entries on which it failed stay unchanged.
//!
//! A family stores the name of its operator ([`named`]). Without the code of that name the store
//! opens, and compactions copy operands; only reads of keys with operands fail.

pub mod named;
mod ready_made;

pub use ready_made::{set_members, set_of};

use base::{Error, ErrorKind, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Folds operands into a value, for families whose values change by small deltas: counters, lists,
/// sets. [`named::MergeChoice`] has ready-made ones.
///
/// The engine folds on reads, in flushes and in compactions, in groups of any size. So the result
/// must depend only on base and operands, and a partial merge must not change it: folding `a`, then
/// `b` gives the same value as folding the combination of `a` and `b`. A panic or an error fails the
/// read with `UserCallback`; background work keeps the operands and goes on.
///
/// ```
/// use base::Result;
/// use lavastore_lsm::MergeOperator;
///
/// /// Keeps the longest value.
/// struct Longest;
///
/// impl MergeOperator for Longest {
///     fn full_merge(
///         &self,
///         _key: &[u8],
///         base: Option<&[u8]>,
///         operands: &[&[u8]],
///         out: &mut Vec<u8>,
///     ) -> Result<()> {
///         let longest = base.iter().chain(operands).max_by_key(|value| value.len());
///         out.extend_from_slice(longest.copied().unwrap_or_default());
///         Ok(())
///     }
/// }
/// ```
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

    /// Combines `operands` (oldest first, at least two) into one operand in `out` (empty on entry),
    /// so that compactions shorten long runs whose base they do not have. Returns false if that is
    /// not possible, as the default does: the operands then stay separate.
    ///
    /// # Errors
    /// With an error the operands stay separate.
    fn partial_merge(&self, _key: &[u8], _operands: &[&[u8]], _out: &mut Vec<u8>) -> Result<bool> {
        Ok(false)
    }

    /// Checks an operand before it is written, so that a wrong one fails its write and not all later
    /// reads of the key. The default accepts all.
    ///
    /// # Errors
    /// The write fails with it, and has no effect.
    fn check_operand(&self, _operand: &[u8]) -> Result<()> {
        Ok(())
    }
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

    /// Returns the operands, the oldest first.
    fn oldest_first(&self) -> Vec<&[u8]> {
        (0..self.len()).rev().map(|i| self.get(i)).collect()
    }

    /// Returns operand `i`; operand 0 is the newest.
    pub fn get(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.bytes[start..self.ends[i]]
    }
}

/// Folds `operands` into `base`, and replaces the content of `out`.
///
/// # Errors
/// `UserCallback` if the operator failed or panicked; `Unsupported` if it is absent.
pub fn fold(
    operator: &dyn MergeOperator,
    key: &[u8],
    base: Option<&[u8]>,
    operands: &Operands,
    out: &mut Vec<u8>,
) -> Result<()> {
    call(key, || {
        out.clear();
        operator.full_merge(key, base, &operands.oldest_first(), out)
    })
}

/// Combines `operands` into one, which replaces the content of `out`. Returns false if the operator
/// cannot.
///
/// # Errors
/// As [`fold`].
pub fn combine(
    operator: &dyn MergeOperator,
    key: &[u8],
    operands: &Operands,
    out: &mut Vec<u8>,
) -> Result<bool> {
    if operands.len() < 2 {
        return Ok(false);
    }
    call(key, || {
        out.clear();
        operator.partial_merge(key, &operands.oldest_first(), out)
    })
}

/// Checks an operand before it is written.
///
/// # Errors
/// The operator's; `UserCallback` if it panicked.
pub fn check(operator: &dyn MergeOperator, operand: &[u8]) -> Result<()> {
    catch_unwind(AssertUnwindSafe(|| operator.check_operand(operand))).unwrap_or_else(|_| Err(panicked()))
}

/// Calls user code, and names the key if it fails.
fn call<R>(key: &[u8], user_code: impl FnOnce() -> Result<R>) -> Result<R> {
    // Unwind safety: the output is cleared before its next use, and nothing else is shared with the
    // operator.
    catch_unwind(AssertUnwindSafe(user_code)).unwrap_or_else(|_| Err(panicked())).map_err(|e| {
        let key = key.get(..64).unwrap_or(key).escape_ascii();
        // `Unsupported`: the program has not added the operator.
        let is_absent = e.kind() == ErrorKind::Unsupported;
        let e = if is_absent { e } else { e.with_kind(ErrorKind::UserCallback) };
        e.context(format!("merge operator on key \"{key}\""))
    })
}

/// Returns the error of a read that found an operand in a family without a merge operator.
pub fn missing() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "a merge operand was found, but the column family has no merge operator: set the one that it was \
         written with in the options of the family",
    )
}

fn panicked() -> Error {
    Error::new(
        ErrorKind::UserCallback,
        "the merge operator panicked, and no stored data changed: repair the operator and read again",
    )
}
