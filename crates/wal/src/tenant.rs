//! Tenants: several engines write to one log, each with its own sequences.
//!
//! The log orders all batches, and keeps the tenant and the sequences of each. Sequences of one
//! tenant ascend; those of different tenants are not compared. A group of the log is needed as long
//! as any tenant needs a batch in it, so the log keeps the sequences of each tenant for each group
//! ([`Spans`]).

use base::{Result, SeqNo};

/// An engine in the log: the number under which the manifest lists it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u8);

impl TenantId {
    /// The only tenant of earlier releases. A log that only this tenant writes keeps their format.
    pub const FIRST: TenantId = TenantId(0);
}

/// The range of sequences of one tenant's batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The owner of the batches.
    pub tenant: TenantId,
    /// The lowest sequence.
    pub first: SeqNo,
    /// The highest sequence.
    pub last: SeqNo,
}

impl Span {
    /// Returns true if the tenant needs any of the sequences: they are not all below its floor. A
    /// tenant without a floor needs all of its batches.
    pub(crate) fn is_needed(&self, floors: &[(TenantId, SeqNo)]) -> bool {
        let floor = floors.iter().find(|(tenant, _)| *tenant == self.tenant);
        floor.is_none_or(|(_, floor)| self.last >= *floor)
    }
}

/// The sequences of batches, by tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans(Vec<Span>);

impl Spans {
    /// Adds the sequences of a batch.
    #[inline]
    pub fn add(&mut self, tenant: TenantId, first: SeqNo, last: SeqNo) {
        // Usually there is one tenant, and its sequences ascend.
        if let Some(span) = self.0.first_mut()
            && span.tenant == tenant
            && span.last < first
        {
            span.last = last;
            return;
        }
        self.add_any(Span { tenant, first, last });
    }

    fn add_any(&mut self, new: Span) {
        match self.0.iter_mut().find(|span| span.tenant == new.tenant) {
            Some(span) => (span.first, span.last) = (span.first.min(new.first), span.last.max(new.last)),
            None => self.0.push(new),
        }
    }

    /// Returns the lowest and the highest sequence of a tenant; `None` if it has no batches.
    pub fn of(&self, tenant: TenantId) -> Option<(SeqNo, SeqNo)> {
        self.iter().find(|span| span.tenant == tenant).map(|span| (span.first, span.last))
    }

    /// Returns the highest sequence of a tenant.
    pub fn last(&self, tenant: TenantId) -> Option<SeqNo> {
        self.of(tenant).map(|(_, last)| last)
    }

    /// Iterates over the tenants that have batches.
    pub fn iter(&self) -> impl Iterator<Item = Span> {
        self.0.iter().copied()
    }

    /// Returns true if there are no batches.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the tenants with batches at or above their floor. A tenant without a floor needs all
    /// of its batches.
    pub fn needed_by<'a>(&'a self, floors: &'a [(TenantId, SeqNo)]) -> impl Iterator<Item = TenantId> + 'a {
        self.iter().filter(|span| span.is_needed(floors)).map(|span| span.tenant)
    }

    /// Returns true if any tenant needs some of the batches.
    pub(crate) fn are_needed(&self, floors: &[(TenantId, SeqNo)]) -> bool {
        self.needed_by(floors).next().is_some()
    }
}

/// Callback for a replayed batch: its tenant, its first sequence, its bytes.
pub type OnReplay<'a> = dyn FnMut(TenantId, SeqNo, &[u8]) -> Result<()> + 'a;

/// Passes on one tenant's batches and ignores the others.
pub fn only<F>(tenant: TenantId, mut take: F) -> impl FnMut(TenantId, SeqNo, &[u8]) -> Result<()>
where
    F: FnMut(SeqNo, &[u8]) -> Result<()>,
{
    move |of, seq, payload| if of == tenant { take(seq, payload) } else { Ok(()) }
}
