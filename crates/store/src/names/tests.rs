use super::*;
use datadriven::TestCase;

/// What a name means, and whether that makes the same name.
fn run(case: &mut TestCase) -> Result<String, String> {
    let names = || case.input.lines().map(str::trim);
    let kind =
        |name: &str| parse(name).map_or_else(|| "no file of a store".into(), |kind| format!("{kind:?}"));
    Ok(match &*case.directive {
        "parse" => names().map(|name| format!("{name}: {}\n", kind(name))).collect(),
        "largest-number" => format!("{}\n", largest_number(names().map(|name| parse(name).unwrap()))),
        other => return Err(format!("no command is called {other}")),
    })
}

#[test]
fn scripts() {
    datadriven::walk("src/names/scripts", |file| file.run(run));
}

#[test]
fn names_of_any_number_lead_back_to_it() {
    for n in [0, 1, 999_999_999_999, 1_000_000_000_000, (1 << 32) - 10, NUMBER_MAX] {
        for kind in [
            FileKind::Ksst(n),
            FileKind::SpeedKsst(n),
            FileKind::Vsst(n),
            FileKind::SpeedVsst(n),
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
