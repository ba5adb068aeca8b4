//! Merge operators by name; each family stores the name of its operator.

use super::MergeOperator;
use super::ready_made::{Append, Counter, Max, SetUnion};
use base::{Error, ErrorKind, Result};
use std::sync::Arc;

/// Name of the operator that adds.
const COUNTER: &str = "counter";
/// Name of the operator that keeps the largest value.
const MAX: &str = "max";
/// Name of the operator that unites sets.
const SET_UNION: &str = "set_union";
/// Begin of the name of an operator that appends; the hexadecimal delimiter follows.
const APPEND: &str = "append:";

/// Maximum length of an operator's name, bytes.
pub const NAME_LEN_MAX: usize = 255;

/// Selects the merge operator of a column family: a ready-made one, or one of the program by its
/// name. The family stores the name.
///
/// ```
/// use lavastore_lsm::operator::named::MergeChoice;
/// assert_eq!(MergeChoice::counter().name(), "counter");
/// assert_eq!(MergeChoice::append(b", ").name(), "append:2c20");
/// assert_eq!(MergeChoice::custom("longest").name(), "longest");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeChoice(String);

impl MergeChoice {
    /// Adds operands to a counter. Value and operands are an `i64` in 8 bytes, little-endian; an
    /// absent key counts as 0, and an overflow wraps around.
    pub fn counter() -> MergeChoice {
        MergeChoice(COUNTER.into())
    }

    /// Appends operands to a list, with a delimiter of at most 64 bytes between two of them.
    pub fn append(delimiter: &[u8]) -> MergeChoice {
        MergeChoice(delimiter.iter().fold(APPEND.into(), |name, byte| format!("{name}{byte:02x}")))
    }

    /// Keeps the largest of value and operands, compared as bytes.
    pub fn max() -> MergeChoice {
        MergeChoice(MAX.into())
    }

    /// Unites sets of byte strings. [`super::set_of`] encodes a set, and [`super::set_members`]
    /// decodes it.
    pub fn set_union() -> MergeChoice {
        MergeChoice(SET_UNION.into())
    }

    /// Selects an operator of the program. The options of the store must have it under this name,
    /// of 1 to 255 bytes; names of ready-made operators select those.
    pub fn custom(name: impl Into<String>) -> MergeChoice {
        MergeChoice(name.into())
    }

    /// Returns the stored name.
    pub fn name(&self) -> &str {
        &self.0
    }

    fn ready_made(&self) -> Option<Arc<dyn MergeOperator>> {
        match self.name() {
            COUNTER => Some(Arc::new(Counter)),
            MAX => Some(Arc::new(Max)),
            SET_UNION => Some(Arc::new(SetUnion)),
            name => Some(Arc::new(Append { delimiter: bytes_of_hex(name.strip_prefix(APPEND)?)? })),
        }
    }
}

/// Maximum length of the delimiter of a list, bytes.
const DELIMITER_LEN_MAX: usize = 64;

fn bytes_of_hex(digits: &str) -> Option<Vec<u8>> {
    if digits.len() > 2 * DELIMITER_LEN_MAX || !digits.len().is_multiple_of(2) {
        return None;
    }
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()).collect()
}

/// The operators of a program, by name, beside the ready-made ones.
#[derive(Clone, Default)]
pub struct MergeOperators(Vec<(String, Arc<dyn MergeOperator>)>);

impl MergeOperators {
    /// Adds an operator. A later one of the same name replaces it; ready-made ones cannot be
    /// replaced.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, operator: Arc<dyn MergeOperator>) -> Self {
        let name = name.into();
        self.0.retain(|(other, _)| *other != name);
        self.0.push((name, operator));
        self
    }

    /// Returns the chosen operator.
    ///
    /// # Errors
    /// `Unsupported`: it is not ready-made, and the program has not added it.
    pub fn find(&self, choice: &MergeChoice) -> Result<Arc<dyn MergeOperator>> {
        let own = || self.0.iter().find(|(name, _)| name == choice.name()).map(|(_, own)| own.clone());
        choice.ready_made().or_else(own).ok_or_else(|| absent(choice.name()))
    }

    /// Returns the operator for the reads of a family. If the program has not added it, each fold
    /// fails and names it.
    pub fn of_reads(&self, choice: Option<&MergeChoice>) -> Option<Arc<dyn MergeOperator>> {
        let absent = |choice: &MergeChoice| Arc::new(Absent(choice.name().into()));
        choice.map(|choice| self.find(choice).unwrap_or_else(|_| absent(choice)))
    }

    /// Returns the operator for the flushes and compactions of a family. If the program has not
    /// added it, they copy the operands.
    pub fn of_jobs(&self, choice: Option<&MergeChoice>) -> Option<Arc<dyn MergeOperator>> {
        choice.and_then(|choice| self.find(choice).ok())
    }
}

impl std::fmt::Debug for MergeOperators {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// Stands for an operator that the program has not added.
struct Absent(String);

impl MergeOperator for Absent {
    fn full_merge(&self, _: &[u8], _: Option<&[u8]>, _: &[&[u8]], _: &mut Vec<u8>) -> Result<()> {
        Err(absent(&self.0))
    }
}

fn absent(name: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "the store was opened without the merge operator \"{name}\" of a column family: add it to the \
             options, and open the store again"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_select_ready_made_operators_and_those_of_the_program() {
        let own = MergeOperators::default().with("longest", Arc::new(Max));
        for choice in [
            MergeChoice::counter(),
            MergeChoice::max(),
            MergeChoice::set_union(),
            MergeChoice::append(b""),
            MergeChoice::append(&[0, 255]),
            MergeChoice::custom("longest"),
        ] {
            assert!(own.find(&choice).is_ok(), "{choice:?}");
        }
        for unknown in ["", "Counter", "append", "append:2", "append:zz", "append:é0", "other"] {
            let e = own.find(&MergeChoice::custom(unknown)).err().unwrap();
            assert_eq!(e.kind(), ErrorKind::Unsupported, "{unknown}");
        }
        assert!(MergeOperators::default().find(&MergeChoice::custom("longest")).is_err());
    }
}
