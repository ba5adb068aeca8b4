//! Changes of the reference sums by an edit, as one shared object.
//!
//! A compaction that drops entries changes the sums under every blob id of these entries: in a
//! store of ten terabytes possibly under all 150,000. So all work proportional to the number of
//! blob ids is done before the manifest lock is taken. The changes are encoded when they are made,
//! and the sums of the next version are computed with them.
//!
//! Other edits may be installed meanwhile. The computed sums stay useful: together with the version
//! from which they started, they form a *footing* ([`crate::Edit::rest_on`]). The sums after the
//! edit are those of the footing plus the later changes by other edits. The later changes are found
//! without visiting the rest, since versions share unchanged data ([`IdMap::changes`]):
//!
//! ```text
//! now + changes = (before + changes) + (now - before)
//! ```
//!
//! Invariant: a footing leads from its first version to its second by these changes and nothing
//! else that changes sums. So with it or without it an edit has the same result; tests and debug
//! builds compare them.

use crate::meta::BlobId;
use crate::uses::{ReferenceChange, ReferenceTotals, SumChange, decode_changes, encode_changes};
use crate::version::Version;
use base::Result;
use base::codec::Reader;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use store::IdMap;

/// Changes of the reference sums: see the module. A clone costs a few reference counts; two are
/// equal if their changes are equal.
#[derive(Clone)]
pub struct ReferenceChanges {
    told: Arc<Told>,
    footing: Option<Footing>,
}

struct Told {
    /// Changes, by ascending blob id.
    changes: Vec<ReferenceChange>,
    /// Sum over all blob ids.
    net: SumChange,
    /// Encoded changes; `None`: they are encoded when they are written.
    encoded: Option<Vec<u8>>,
}

/// A version before and after the changes.
#[derive(Clone)]
struct Footing {
    before: Arc<Version>,
    after: Arc<Version>,
}

impl ReferenceChanges {
    fn told(changes: Vec<ReferenceChange>, encoded: Option<Vec<u8>>) -> ReferenceChanges {
        let net = changes.iter().fold(SumChange::default(), |sum, change| sum.plus(&SumChange::from(change)));
        ReferenceChanges { told: Arc::new(Told { changes, net, encoded }), footing: None }
    }

    /// Returns encoded changes for an edit that is about to be written.
    pub(crate) fn ready(changes: Vec<ReferenceChange>) -> ReferenceChanges {
        let mut encoded = Vec::new();
        encode_changes(&changes, &mut encoded);
        Self::told(changes, Some(encoded))
    }

    /// Returns true if both share the same object, and are not only equal.
    pub(crate) fn is_of(&self, others: &ReferenceChanges) -> bool {
        Arc::ptr_eq(&self.told, &others.told)
    }

    /// Sets the footing: the changes lead from `before` to `after`.
    pub(crate) fn rest_on(&mut self, before: &Arc<Version>, after: &Arc<Version>) {
        self.footing = Some(Footing { before: before.clone(), after: after.clone() });
    }

    /// Returns the sum over all blob ids.
    pub(crate) fn net(&self) -> &SumChange {
        &self.told.net
    }

    /// Applies the changes to the sums of `now`, using the footing. Also returns the blob ids that
    /// must be checked again, because other edits have changed their targets. Returns `None`
    /// without a footing, or if a sum would be out of range.
    pub(crate) fn on_footing(&self, now: &Version) -> Option<(IdMap<BlobId, ReferenceTotals>, Vec<BlobId>)> {
        let Footing { before, after } = self.footing.as_ref()?;
        let mut sums = after.references.clone();
        let mut names = Vec::new();
        let by_others = now.references.changes(&before.references);
        for (name, old, new) in by_others {
            let [old, new] = [old, new].map(|totals| totals.map(SumChange::of_totals).unwrap_or_default());
            let own = after.references.get(&name).copied().unwrap_or_default();
            let totals = new.minus(&old).applied(&own)?;
            if totals == ReferenceTotals::default() {
                sums.remove(&name);
            } else {
                sums.insert(name, totals);
            }
            names.push(name);
        }
        names.extend(now.vssts.changes(&after.vssts).into_iter().map(|(name, ..)| name));
        names.extend(now.aliases.changes(&after.aliases).into_iter().map(|(name, ..)| name));
        Some((sums, names))
    }

    pub(crate) fn encode_into(&self, out: &mut Vec<u8>) {
        match &self.told.encoded {
            Some(encoded) => out.extend_from_slice(encoded),
            None => encode_changes(self, out),
        }
    }

    /// Decodes the output of [`ReferenceChanges::encode_into`].
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<ReferenceChanges> {
        decode_changes(r).map(ReferenceChanges::from)
    }
}

impl Deref for ReferenceChanges {
    type Target = [ReferenceChange];
    fn deref(&self) -> &[ReferenceChange] {
        &self.told.changes
    }
}

impl From<Vec<ReferenceChange>> for ReferenceChanges {
    fn from(changes: Vec<ReferenceChange>) -> Self {
        Self::told(changes, None)
    }
}

impl FromIterator<ReferenceChange> for ReferenceChanges {
    fn from_iter<I: IntoIterator<Item = ReferenceChange>>(changes: I) -> Self {
        Self::from(changes.into_iter().collect::<Vec<_>>())
    }
}

impl PartialEq for ReferenceChanges {
    fn eq(&self, other: &Self) -> bool {
        self.is_of(other) || self.told.changes == other.told.changes
    }
}

impl Eq for ReferenceChanges {}

impl fmt::Debug for ReferenceChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.told.changes.fmt(f)
    }
}
