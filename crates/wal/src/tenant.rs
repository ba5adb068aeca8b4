//! Whose batches are: several engines write to one log, each with sequences of its own.
//!
//! The log orders all batches and knows of each whose it is and which sequences it has. Sequences of one tenant ascend;
//! those of different tenants are not compared. A group of the log is needed as long as any tenant needs a batch in it, so
//! the log keeps for each group the sequences of each tenant ([`Spans`]).

use base::{Result, SeqNo};

/// An engine, as the log knows it: the number under which the manifest lists it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u8);

impl TenantId {
    /// The only one that there was before there were others. What it writes alone looks as it did then.
    pub const FIRST: TenantId = TenantId(0);
}

/// The sequences of one tenant's batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Whose.
    pub tenant: TenantId,
    /// The lowest.
    pub first: SeqNo,
    /// The highest.
    pub last: SeqNo,
}

impl Span {
    /// True if the tenant needs any of them: they are not all below its floor. One that states none needs all it has.
    pub(crate) fn is_needed(&self, floors: &[(TenantId, SeqNo)]) -> bool {
        let floor = floors.iter().find(|(tenant, _)| *tenant == self.tenant);
        floor.is_none_or(|(_, floor)| self.last >= *floor)
    }
}

/// The sequences of batches, by tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans(Vec<Span>);

impl Spans {
    /// Adds those of a batch.
    #[inline]
    pub fn add(&mut self, tenant: TenantId, first: SeqNo, last: SeqNo) {
        // Mostly there is one tenant, and what it adds comes after what it has.
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

    /// The lowest and the highest of a tenant; `None`: it has none.
    pub fn of(&self, tenant: TenantId) -> Option<(SeqNo, SeqNo)> {
        self.iter().find(|span| span.tenant == tenant).map(|span| (span.first, span.last))
    }

    /// The highest of a tenant.
    pub fn last(&self, tenant: TenantId) -> Option<SeqNo> {
        self.of(tenant).map(|(_, last)| last)
    }

    /// Of every tenant that has any.
    pub fn iter(&self) -> impl Iterator<Item = Span> {
        self.0.iter().copied()
    }

    /// True if there are no batches.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tenants that have some at or above their floor. One that states none needs all it has.
    pub fn needed_by<'a>(&'a self, floors: &'a [(TenantId, SeqNo)]) -> impl Iterator<Item = TenantId> + 'a {
        self.iter().filter(|span| span.is_needed(floors)).map(|span| span.tenant)
    }

    /// True if any tenant needs some of them.
    pub(crate) fn are_needed(&self, floors: &[(TenantId, SeqNo)]) -> bool {
        self.needed_by(floors).next().is_some()
    }
}

/// Gets a batch: whose it is, its first sequence, its bytes.
pub type OnReplay<'a> = dyn FnMut(TenantId, SeqNo, &[u8]) -> Result<()> + 'a;

/// Passes on one tenant's batches and ignores all others'.
pub fn only<F>(tenant: TenantId, mut take: F) -> impl FnMut(TenantId, SeqNo, &[u8]) -> Result<()>
where
    F: FnMut(SeqNo, &[u8]) -> Result<()>,
{
    move |of, seq, payload| if of == tenant { take(seq, payload) } else { Ok(()) }
}
