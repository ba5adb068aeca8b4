use super::*;

#[test]
fn family_options_round_trip() {
    let o = FamilyOptions { compression: Compression::None, ..Default::default() }.expert(|expert| {
        expert.file_bytes = 1 << 20;
        expert.levels = 3;
    });
    assert_eq!(FamilyOptions::decode(&o.encode()).unwrap(), o.clone().derived());
    for cut in 0..o.encode().len() {
        assert!(FamilyOptions::decode(&o.encode()[..cut]).is_err());
    }
    // A policy is written only where it is another one, and nothing of it is looked at.
    assert_eq!(o.encode()[0], 2);
    let policy = PolicyChoice { name: "none of ours".into(), version: 300, parameters: vec![7, 8] };
    let other = FamilyOptions { policy, ..o.clone() };
    let bytes = other.encode();
    assert_eq!(bytes[1..o.encode().len()], o.encode()[1..]);
    let more = b"\x00\x0cnone of ours\xac\x02\x02\x07\x08";
    assert_eq!((bytes[0], &bytes[o.encode().len()..]), (4, &more[..]));
    assert_eq!(FamilyOptions::decode(&bytes).unwrap(), other.derived());
    for cut in 0..bytes.len() {
        assert!(FamilyOptions::decode(&bytes[..cut]).is_err());
    }
    let newer = FamilyOptions::decode(&[&[5], &bytes[1..]].concat()).unwrap_err();
    assert_eq!(newer.kind(), ErrorKind::Unsupported);
}

#[test]
fn family_options_that_no_release_writes_are_told() {
    let policy = PolicyChoice { name: "x".into(), ..PolicyChoice::default() };
    let named = FamilyOptions { policy, ..FamilyOptions::default() }.encode();
    let at = named.len() - 3;
    assert_eq!(named[at - 1..at + 1], [1, b'x'], "the name, and its length before it");
    let changed = |at: usize, to: u8| {
        let mut bytes = named.clone();
        bytes[at] = to;
        bytes
    };
    let long = [&named[..at + 1], &[0xff, 0xff, 0xff, 0xff, 0x7f, 0]].concat();
    let absurd =
        FamilyOptions { ..FamilyOptions::default() }.expert(|expert| expert.levels = 100).derived().encode();
    let cases = [
        (changed(1, 99), "unknown compression in family options"),
        (changed(at - 2, 9), "value placement 9 in family options"),
        (changed(at, 0xff), "the name of a compaction policy in family options is no UTF-8"),
        (long, "version of a compaction policy in family options"),
        (absurd, "family options in the manifest: option levels = 100 is out of range"),
    ];
    for (bytes, told) in cases {
        let e = FamilyOptions::decode(&bytes).expect_err(told);
        assert!(e.message().starts_with(told), "{told}: {e}");
    }
}
