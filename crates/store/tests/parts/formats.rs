//! Formats of stores, and the features that each allows.

use base::ErrorKind;
use store::format::{Feature, StoreFormat};

#[test]
fn numbers_and_formats_agree_and_ascend() {
    assert!(StoreFormat::ALL.is_sorted_by(|a, b| a < b && a.number() + 1 == b.number()));
    assert_eq!(StoreFormat::ALL.first().copied(), Some(StoreFormat::OLDEST));
    assert_eq!(StoreFormat::ALL.last().copied(), Some(StoreFormat::NEWEST));
    for format in StoreFormat::ALL {
        assert_eq!(StoreFormat::from_number(format.number()).unwrap(), format);
    }
    for number in [0, StoreFormat::NEWEST.number() + 1, u32::MAX] {
        let e = StoreFormat::from_number(number).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unsupported);
        assert!(e.message().contains(&format!("format {number},")), "{e}");
    }
}

#[test]
fn a_feature_is_allowed_from_its_format_on() {
    assert!(!StoreFormat::V1.allows(Feature::ManifestCopies));
    assert!(StoreFormat::V2.allows(Feature::ManifestCopies));
    assert!(!StoreFormat::V1.allows(Feature::FormatNumber));
}
