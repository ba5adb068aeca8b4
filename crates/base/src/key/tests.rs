use super::*;

#[test]
fn internal_keys_sort_by_user_key_and_newest_first() {
    let k = |u: &[u8], s, t| encode(u, s, t);
    assert_eq!(compare(&k(b"a", 9, ValueKind::Value), &k(b"a", 8, ValueKind::Value)), Ordering::Less);
    assert_eq!(compare(&k(b"a", 1, ValueKind::Value), &k(b"b", 9, ValueKind::Value)), Ordering::Less);
    assert_eq!(compare(&k(b"a", 1, ValueKind::Value), &k(b"a\0", 9, ValueKind::Value)), Ordering::Less);
    assert_eq!(compare(&seek_target(b"a", 8), &k(b"a", 8, ValueKind::RangeDeletion)), Ordering::Less);
    assert_eq!(compare(&seek_target(b"a", 8), &k(b"a", 9, ValueKind::Deletion)), Ordering::Greater);
}

#[test]
fn decode_round_trips_and_refuses_hostile_bytes() {
    let e = encode(b"key", MAX_SEQ, ValueKind::Merge);
    let d = InternalKey::decode(&e).unwrap();
    assert_eq!((d.user_key, d.seq, d.kind), (&b"key"[..], MAX_SEQ, ValueKind::Merge));
    assert!(InternalKey::decode(b"short").unwrap_err().is_corruption());
    assert!(InternalKey::decode(&[7; 8]).unwrap_err().is_corruption());
    for n in 0..=254u8 {
        if let Some(kind) = ValueKind::from_u8(n) {
            assert_eq!(kind as u8, n);
        }
    }
}
