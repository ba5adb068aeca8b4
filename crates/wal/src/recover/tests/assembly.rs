//! Fragments with valid checksums that form no batch: a bug, or a forgery.

use super::super::{Assembly, LogAddress};
use crate::page::{BatchHeader, Fragment, FragmentKind};
use crate::tenant::TenantId;
use base::limits::BATCH_LEN_MAX;

/// Returns a fragment of `len` bytes of a batch of 8.
fn fragment(kind: FragmentKind, tenant: u8, first_seq: u64, len: usize) -> Fragment<'static> {
    let tenant = TenantId(tenant);
    let begins = matches!(kind, FragmentKind::Full | FragmentKind::First);
    let batch = begins.then_some(BatchHeader { tenant, first_seq, seq_span: 1, len: 8 });
    Fragment { kind, tenant, batch, payload: &[7; 16][..len], pos: 40 }
}

#[test]
fn invalid_fragment_sequences_are_refused() {
    use FragmentKind::{First, Full, Last, Middle};
    let first = || fragment(First, 1, 5, 4);
    let misfit = |have: usize| {
        format!(
            "has {have} bytes up to this page, which do not fit the 8 bytes in its header (at most {BATCH_LEN_MAX})"
        )
    };
    let (nine, eight) = (misfit(9), misfit(8));
    let cases = [
        ("has a last sequence number over 64 bits", vec![fragment(Full, 1, u64::MAX, 8)]),
        ("begins before the end of the batch before it", vec![first(), fragment(Full, 1, 6, 8)]),
        ("continues without its first part", vec![fragment(Middle, 1, 5, 4)]),
        (&*nine, vec![first(), fragment(Last, 1, 5, 5)]),
        (&*eight, vec![first(), fragment(Middle, 1, 5, 4)]),
        ("has parts of two engines of the store", vec![first(), fragment(Last, 2, 5, 4)]),
    ];
    for (told, fragments) in cases {
        let mut assembly = Assembly::default();
        let found = fragments.iter().map(|f| assembly.add(f, LogAddress::default()).map(drop));
        let found: Vec<_> = found.collect();
        let (last, before) = found.split_last().unwrap();
        assert!(before.iter().all(Result::is_ok), "{told}: {before:?}");
        let e = last.as_ref().unwrap_err();
        assert!(e.is_corruption() && e.message() == format!("a batch in the log {told}"), "{e}");
        assert!(!assembly.has_begun(), "nothing of it is kept");
    }
}
