//! Names of the files of a store.

use store::names::{
    CURRENT, CURRENT_COPY, CURRENT_COPY_TEMP, CURRENT_TEMP, FileKind, LOCK, SPEED, SPEED_LOCK, STAGING,
    UNFINISHED, parse,
};
use store::numbers::NUMBER_MAX;

#[test]
fn file_names_round_trip_for_any_number() {
    for n in [0, 1, 999_999_999_999, 1_000_000_000_000, (1 << 32) - 10, NUMBER_MAX] {
        for kind in [
            FileKind::Ksst(n),
            FileKind::FastKsst(n),
            FileKind::Vsst(n),
            FileKind::FastVsst(n),
            FileKind::Log(n),
            FileKind::Tail(n),
            FileKind::Room(n),
            FileKind::Engine { engine: 3, kind: 0, number: n },
            FileKind::Engine { engine: u32::MAX, kind: 255, number: n },
            FileKind::Manifest(n),
            FileKind::ManifestCopy(n),
        ] {
            assert_eq!(parse(&kind.to_string()), Some(kind));
            assert_eq!(kind.number(), Some(n));
        }
    }
    let texts =
        ["CURRENT", "LOCK", "STAGING", "STAGING-1", "STAGING-255", "STAGING.new", "STAGING-1.new", "SPEED"];
    let others = [
        CURRENT,
        CURRENT_TEMP,
        CURRENT_COPY,
        CURRENT_COPY_TEMP,
        UNFINISHED,
        LOCK,
        STAGING,
        SPEED,
        SPEED_LOCK,
    ];
    for name in texts.into_iter().chain(others) {
        assert_eq!(parse(name).map(|k| k.to_string()).as_deref(), Some(name));
    }
    assert_eq!(parse(""), None);
    assert_eq!(parse(wal::Lane::FIRST.staging_name()), Some(FileKind::Staging));
    assert_eq!(parse(wal::Lane::LOG.staging_name()), Some(FileKind::LaneStaging(wal::Lane::LOG.0)));
    for lane in wal::Lane::ALL {
        assert_eq!(parse(&lane.staging_temp_name()), Some(FileKind::StagingTemp(lane.0)));
    }
}
