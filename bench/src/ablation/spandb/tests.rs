use super::*;
use crate::args::tests::args;
use crate::host::WorkDir;
use crate::lava::Lava;
use std::sync::Mutex;

fn names(line: &str) -> Vec<String> {
    rows(&args(line)).into_iter().map(|(name, _)| name).collect()
}

#[test]
fn a_row_differs_only_in_its_mechanism() {
    let part = "one at a time; blocking, 4 wait; blocking, 16 wait; blocking; blocking, 2 loggers; blocking, 3 loggers; \
                blocking, loggers found; asynchronous; asynchronous, 2 loggers; asynchronous, 3 loggers; \
                asynchronous, loggers found";
    assert_eq!(names("ablation --spandb").join("; "), part);
    assert_eq!(names("ablation --spandb --log-dir /elsewhere").len(), 17);
    for (name, args) in rows(&args("ablation --spandb --writers 8 --log-dir /elsewhere --fast-tier-levels 5"))
    {
        let requests = &args.requests;
        assert!(args.check().is_ok() && args.is_durable(), "{name}");
        let writers = match &name[..] {
            "one at a time" => 1,
            "blocking, 4 wait" => 4,
            _ => 8,
        };
        assert_eq!(requests.writers, writers, "{name}");
        assert_eq!(args.in_flight().is_some(), name.starts_with("asynchronous"), "{name}");
        let placement = PLACEMENTS.iter().find(|(placement, _)| name.ends_with(placement));
        assert_eq!(requests.log_dir.is_some(), placement.is_some(), "{name}");
        let levels = placement.map_or(SpeedLevels::default(), |(_, levels)| *levels);
        assert_eq!(requests.speed_levels, levels, "{name}");
        assert_eq!(requests.loggers != 1, name.contains("loggers"), "{name}");
    }
}

#[test]
fn invalid_options_are_refused() {
    for line in [
        "sync --spandb",
        "ablation --spandb --policy",
        "sync --loggers 4",
        "load --log-dir /elsewhere",
        "sync --fast-tier-levels 1",
        "sync --fast-tier-values 1000",
    ] {
        assert!(args(line).check().is_err(), "{line}");
    }
}

#[test]
fn every_row_is_measured_and_its_directories_are_removed() {
    let parent = std::env::temp_dir().join(format!("bench-spandb-test-{}", std::process::id()));
    let (dir, logs) =
        (WorkDir::fresh(&parent.join("stores")).unwrap(), WorkDir::fresh(&parent.join("logs")).unwrap());
    let mut args = args("ablation --spandb --num 2000 --value-size 100 --seconds 0.3 --writers 4 --pairs 1");
    args.requests.log_dir = Some(logs.path().to_owned());
    let steps = Mutex::new(Vec::new());
    let report =
        compare(&args, &Lava, dir.path(), &|step| steps.lock().unwrap().push(step.to_owned())).unwrap();
    assert_eq!((report.rounds, report.writers, report.rows.len()), (1, 4, 15));
    assert_eq!(steps.into_inner().unwrap()[1], "round 1 of 1: blocking");
    for row in &report.rows {
        let settings = &row.runs[0].engine_settings;
        assert!(row.runs[0].ops > 0 && row.figures["ops_per_s"].spread.median > 0.0, "{}", row.row);
        let is_on_two = PLACEMENTS.iter().any(|(placement, _)| row.row.ends_with(placement));
        assert_eq!(settings["log_dir"].is_empty(), !is_on_two, "{}", row.row);
        assert_eq!(settings["speed_moving"] == "true", row.row.ends_with("tables move"), "{}", row.row);
        assert_eq!(row.figures["ops_per_s"].over_blocking.is_none(), row.row == BASE, "{}", row.row);
    }
    let text = report.text();
    assert!(text.contains("asynchronous, 3 loggers") && text.contains("to blocking"), "{text}");
    for dir in [dir.path(), logs.path()] {
        assert!(io::Env::kernel().fs.list(dir).unwrap().is_empty(), "stores are removed");
    }
    assert!(report.skipped.is_none() && !text.contains("not measured"), "{text}");
    let skipped = SpanReport { skipped: Some(SKIPPED.to_owned()), ..report.clone() };
    assert!(skipped.text().contains("not measured: placement"), "{}", skipped.text());
    let json = serde_json::to_string(&report).unwrap();
    let back: SpanReport = serde_json::from_str(&json).unwrap();
    assert_eq!(back.rows[1].row, BASE);
}
