use super::*;

#[test]
fn malformed_records_are_refused() {
    let bytes = encode(&(7u64, "text")).unwrap();
    assert_eq!(decode::<(u64, String)>(&bytes).unwrap(), (7, "text".to_owned()));
    for cut in 0..bytes.len() {
        assert_eq!(
            decode::<(u64, String)>(&bytes[..cut]).unwrap_err().kind(),
            ErrorKind::Corruption,
            "{cut}"
        );
    }
    let mut newer = bytes;
    newer[0] = VERSION + 1;
    assert_eq!(decode::<(u64, String)>(&newer).unwrap_err().kind(), ErrorKind::Unsupported);
    let unknown = std::collections::BTreeMap::from([(f64::NAN.to_bits(), Refuses)]);
    assert_eq!(encode(&unknown).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

/// A value that cannot be encoded.
struct Refuses;

impl Serialize for Refuses {
    fn serialize<S: serde::Serializer>(&self, _: S) -> std::result::Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("no"))
    }
}
