//! What an edit changes of the sums under names, as one thing that is handed on by reference.
//!
//! A compaction that drops entries changes the sums under each name that these led to: of a store of ten terabytes that may be all
//! 150,000. So what costs as much as there are such names is done before the lock of the manifest is taken: the changes are encoded
//! when they are made, and the sums of the version that is published then are worked out with them.
//!
//! Others may install meanwhile. What was worked out is not thrown away for that: with the version that it began with, it is a
//! *footing* ([`crate::Edit::rest_on`]). The sums after the edit are those of the footing, with what others have changed since, which is
//! found without a look at the rest, since versions share what they have in common ([`IdMap::changes`]):
//!
//! ```text
//! now + changes = (before + changes) + (now - before)
//! ```
//!
//! Invariant: a footing leads from its first version to its second by these changes and nothing else that changes sums. So with it or
//! without it an edit has the same outcome, which tests and debug builds hold against each other.

use crate::meta::BlobId;
use crate::uses::{Net, ReferenceChange, ReferenceTotals, decode_changes, encode_changes};
use crate::version::Version;
use base::Result;
use base::codec::Reader;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use store::IdMap;

/// See the module. A clone costs a few reference counts; two are the same if they change the same.
#[derive(Clone)]
pub struct ReferenceChanges {
    told: Arc<Told>,
    footing: Option<Footing>,
}

struct Told {
    /// By ascending name.
    changes: Vec<ReferenceChange>,
    /// Of all names together.
    net: Net,
    /// `None`: it is encoded when it is written.
    encoded: Option<Vec<u8>>,
}

/// A version, and the same with the changes.
#[derive(Clone)]
struct Footing {
    before: Arc<Version>,
    after: Arc<Version>,
}

impl ReferenceChanges {
    fn told(changes: Vec<ReferenceChange>, encoded: Option<Vec<u8>>) -> ReferenceChanges {
        let net = changes.iter().fold(Net::default(), |sum, change| sum.plus(&Net::from(change)));
        ReferenceChanges { told: Arc::new(Told { changes, net, encoded }), footing: None }
    }

    /// For an edit that is about to be written.
    pub(crate) fn ready(changes: Vec<ReferenceChange>) -> ReferenceChanges {
        let mut encoded = Vec::new();
        encode_changes(&changes, &mut encoded);
        Self::told(changes, Some(encoded))
    }

    /// True if these are the very changes that others are, and not only the same ones.
    pub(crate) fn is_of(&self, others: &ReferenceChanges) -> bool {
        Arc::ptr_eq(&self.told, &others.told)
    }

    /// They lead from the one version to the other.
    pub(crate) fn rest_on(&mut self, before: &Arc<Version>, after: &Arc<Version>) {
        self.footing = Some(Footing { before: before.clone(), after: after.clone() });
    }

    /// Of all names together.
    pub(crate) fn net(&self) -> &Net {
        &self.told.net
    }

    /// What they make of the sums of `now`, by what is known of an earlier version; and the names that are to be looked at all the same, for
    /// others have changed what they stand for. `None`: nothing is known, or a sum would be out of range.
    pub(crate) fn on_footing(&self, now: &Version) -> Option<(IdMap<BlobId, ReferenceTotals>, Vec<BlobId>)> {
        let Footing { before, after } = self.footing.as_ref()?;
        let mut sums = after.references.clone();
        let mut names = Vec::new();
        let by_others = now.references.changes(&before.references);
        for (name, old, new) in by_others {
            let [old, new] = [old, new].map(|totals| totals.map(Net::of_totals).unwrap_or_default());
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

    /// Reads what [`ReferenceChanges::encode_into`] wrote.
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
