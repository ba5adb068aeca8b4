//! Merge operands of damaged tables. The repair has no operator: it copies base and operands of a
//! key, and the new store folds them. If the base is lost, all operands up to the next put or delete
//! are lost too: alone they would be a wrong value.
//!
//! [`KeptOperands`] takes the place of the operator and of the reader of separated values under a
//! [`lsm::VisibleIterator`], which calls them for a key whose newest entry is an operand.

use base::sync::{Mutex, lock, rank};
use base::{Result, SeqNo, ValueKind};
use lavakv::MergeOperator;
use lsm::ReferenceResolver;

/// The base below the operands of a key.
#[derive(Debug, Default, PartialEq)]
pub(super) enum Base {
    #[default]
    Absent,
    Inline,
    /// Its sequence and reference.
    Separated(SeqNo, Vec<u8>),
}

/// Base and operands of a key, the oldest operand first.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub base: Base,
    pub operands: Vec<Vec<u8>>,
}

/// Keeps the arguments of its calls: see the module. One thread uses it; the lock is needed because an
/// operator is shared.
#[derive(Debug, Default)]
pub(super) struct KeptOperands(Mutex<Kept, rank::RepairOperands>);

impl KeptOperands {
    /// Returns the operands of the present key, if its newest entry is one.
    pub fn take(&self) -> Option<Kept> {
        let kept = std::mem::take(&mut *lock(&self.0));
        (!kept.operands.is_empty()).then_some(kept)
    }
}

impl MergeOperator for KeptOperands {
    fn full_merge(
        &self,
        _key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let mut kept = lock(&self.0);
        kept.operands = operands.iter().map(|operand| operand.to_vec()).collect();
        if base.is_some() && kept.base == Base::Absent {
            kept.base = Base::Inline;
        }
        out.extend_from_slice(base.unwrap_or_default());
        Ok(())
    }
}

impl ReferenceResolver for KeptOperands {
    fn resolve(
        &self,
        _user_key: &[u8],
        seq: SeqNo,
        _kind: ValueKind,
        reference: &[u8],
        _out: &mut Vec<u8>,
    ) -> Result<()> {
        lock(&self.0).base = Base::Separated(seq, reference.to_vec());
        Ok(())
    }
}

/// Name of the operator of a family whose stored options are lost. The next user of the store sets
/// the right one.
pub(super) const LOST_NAME: &str = "unknown";
