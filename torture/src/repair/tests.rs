use super::{KeyVersion, is_explained};

fn put(seq: u64, value: &[u8]) -> KeyVersion {
    (seq, Some(value.to_vec()))
}

fn explains(gaps: &[(u64, u64)], versions: &[KeyVersion], got: Option<&[u8]>) -> bool {
    is_explained(gaps, versions, got.map(<[u8]>::to_vec).as_ref())
}

#[test]
fn a_key_changed_in_two_gaps_is_explained_by_both() {
    let gaps = [(14, 28), (78, 87)];
    let versions = [put(14, b"old"), put(80, b"new")];
    assert!(explains(&gaps, &versions, None));
    assert!(explains(&gaps, &versions, Some(b"old")));
    assert!(!explains(&gaps, &versions, Some(b"never")));
    for alone in gaps {
        assert!(!explains(&[alone], &versions, None), "{alone:?}");
    }
}

#[test]
fn a_change_between_gaps_is_kept() {
    let gaps = [(14, 28), (78, 87)];
    let versions = [put(14, b"old"), put(29, b"kept"), put(80, b"new")];
    assert!(explains(&gaps, &versions, Some(b"kept")));
    assert!(!explains(&gaps, &versions, Some(b"old")));
    assert!(!explains(&gaps, &versions, None));
}

#[test]
fn a_change_after_all_gaps_explains_nothing() {
    let versions = [put(14, b"old"), (90, None)];
    assert!(!explains(&[(14, 28)], &versions, Some(b"old")));
    assert!(!explains(&[(14, 28)], &[], None));
}
