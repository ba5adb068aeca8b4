//! Merge operands in reads: the operator of a family, and the fold of a point read.

use crate::context::family_options::FamilyOptions;
use crate::context::options::Options;
use crate::read::fetch::Content;
use crate::read::read_path::Value;
use base::{Result, SeqNo};
use cache::BlockSlice;
use lsm::MergeOperator;
use lsm::operator::{Operands, fold, missing};
use std::sync::Arc;

/// Returns the operator for the reads of a family.
pub(crate) fn operator_of(store: &Options, family: &FamilyOptions) -> Option<Arc<dyn MergeOperator>> {
    store.expert.merge_operators.of_reads(family.merge_operator.as_ref())
}

/// Folds operands, the oldest first, into a base that the caller has read.
pub(crate) fn fold_into(
    operator: Option<Arc<dyn MergeOperator>>,
    key: &[u8],
    base: Option<&[u8]>,
    operands: &[&[u8]],
) -> Result<Value> {
    let mut found = Operands::default();
    operands.iter().rev().for_each(|operand| found.push_older(operand));
    folded(operator, key, base, &found).map(Value::from)
}

fn folded(
    operator: Option<Arc<dyn MergeOperator>>,
    key: &[u8],
    base: Option<&[u8]>,
    operands: &Operands,
) -> Result<Vec<u8>> {
    let (operator, mut value) = (operator.ok_or_else(missing)?, Vec::new());
    fold(&*operator, key, base, operands, &mut value)?;
    Ok(value)
}

/// The operands of a key that a point read has found so far. It looks on for older entries.
#[derive(Debug, Default)]
pub(crate) struct FoundOperands {
    operands: Operands,
    oldest_seq: SeqNo,
}

impl FoundOperands {
    /// Adds an operand that is older than all previous ones.
    pub fn push(&mut self, seq: SeqNo, operand: &[u8]) {
        self.operands.push_older(operand);
        self.oldest_seq = seq;
    }

    /// Returns the sequence up to which older entries are wanted.
    pub fn below(&self) -> SeqNo {
        self.oldest_seq.saturating_sub(1)
    }

    /// Folds the operands into the value below them. A large value is read for that.
    pub fn fold(
        &self,
        key: &[u8],
        base: Option<Content>,
        operator: Option<Arc<dyn MergeOperator>>,
    ) -> Result<Content> {
        let base = base.map(Content::into_bytes).transpose()?;
        let value = folded(operator, key, base.as_deref(), &self.operands)?;
        Ok(Content::Bytes(BlockSlice::from(value)))
    }
}
