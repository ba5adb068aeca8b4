use super::*;
use crate::args::tests::args;
use crate::host::WorkDir;
use crate::lava::Lava;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

const SMALL: &str = "ablation --policy --num 4000 --value-size 100 --read-share 0.2 --seconds 0.2 --load 50";

fn measured(line: &str) -> (PolicyReport, Vec<String>) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("bench-policy-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let dir = WorkDir::fresh(&std::env::temp_dir().join(name)).unwrap();
    let steps = Mutex::new(Vec::new());
    let tell = |step: &str| steps.lock().unwrap().push(step.to_owned());
    let report = compare(&args(line), &Lava, dir.path(), &tell).unwrap();
    assert!(io::Env::kernel().fs.list(dir.path()).unwrap().is_empty(), "stores are removed");
    (report, steps.into_inner().unwrap())
}

#[test]
fn rows_differ_only_in_policy_and_sizes() {
    let plain = rows(&args("ablation --policy --value-size 200"));
    let told = |at: usize| {
        let args = &plain[at].1;
        (
            args.policy,
            args.file_len() >> 20,
            args.memtable_len() >> 20,
            args.level_base_bytes,
            args.level_multiplier,
        )
    };
    assert_eq!(told(0), (Policy::Leveled, 16, 16, None, None));
    assert_eq!(told(1), (Policy::Leveled, 64, 64, Some(256 << 20), Some(8)));
    assert_eq!(told(2), (Policy::Leveled, 8, 8, Some(64 << 20), None));
    assert_eq!(told(3), (Policy::Vlsm, 8, 8, None, None));
    assert!(plain.iter().all(|(_, args)| args.check().is_ok() && args.keys() == plain[0].1.keys()));

    let growth = rows(&args("ablation --policy --sweep growth=8,64"));
    assert_eq!(growth.iter().map(|(_, args)| args.growth_max).collect::<Vec<_>>(), [Some(8), Some(64)]);
    let tables = rows(&args("ablation --policy --sweep table=2M,64M"));
    let lens = tables.iter().map(|(_, args)| (args.file_len() >> 20, args.memtable_len() >> 20));
    assert_eq!(lens.collect::<Vec<_>>(), [(2, 2), (64, 64)]);
    assert!(growth.iter().chain(&tables).all(|(_, args)| args.policy == Policy::Vlsm));
}

#[test]
fn every_row_has_the_same_requests_and_its_own_settings() {
    let (report, steps) = measured(&format!("{SMALL} --rate 2000 --pairs 2"));
    assert_eq!((report.rounds, report.sustained_per_s, report.rate_per_s), (2, 2000.0, 1000.0));
    assert_eq!((steps[0].as_str(), steps[7].as_str()), ("round 1 of 2: leveled", "round 2 of 2: leveled"));
    assert_eq!(steps.len(), 8);
    for row in &report.rows {
        for run in &row.runs {
            assert_eq!(run.ops + run.ops_left, 200, "{}", row.row);
            assert_eq!(run.engine_settings["policy"].starts_with("vlsm"), row.row == "vlsm");
        }
    }
    let rocksdb = &report.rows[1].runs[0].engine_settings;
    assert_eq!(
        (rocksdb["level_multiplier"].as_str(), rocksdb["level_base_bytes"].as_str()),
        ("8", "268435456")
    );
    let text = report.text();
    for (_, title, ..) in &FIGURES[..8] {
        assert!(text.contains(&format!("\n{title}\n  leveled ")), "{title}: {text}");
    }
}

#[test]
fn json_has_every_documented_field() {
    // Small enough to be compacted, with small tables.
    let (report, steps) = measured(&format!(
        "{SMALL} --pairs 1 --find-seconds 0.1 --sweep growth=4,8 --file-bytes 65536 --memtable-bytes 65536"
    ));
    assert_eq!(
        steps,
        ["the rate that leveled sustains", "round 1 of 1: vlsm, F = 4", "round 1 of 1: vlsm, F = 8"]
    );
    let json = serde_json::to_value(&report).unwrap();
    assert!(json["rate_per_s"].as_f64().unwrap() > 0.0);
    for row in json["rows"].as_array().unwrap() {
        assert_eq!((row["runs"].as_array().unwrap().len(), row["suspended_runs"].is_u64()), (1, true));
        assert!(row["fell_behind"].is_u64());
        for (name, ..) in FIGURES {
            // Such a small tree has no spills and may have no second level; some directories are on
            // no device.
            let may_be_missing = ["good_tables_share", "fallbacks_share", "device_bytes_per_user_byte"];
            assert!(row[name]["median"].is_f64() || may_be_missing.contains(&name), "{name}: {}", row[name]);
        }
        assert!(
            row["width_max_bytes"]["median"].as_f64().unwrap()
                >= row["width_mean_bytes"]["median"].as_f64().unwrap()
        );
    }
    let again: PolicyReport = serde_json::from_value(json).unwrap();
    assert_eq!(again.text(), report.text());
}

#[test]
fn ratios_compare_with_the_first_row() {
    let row = |values: &[f64]| vec![values.to_vec(); FIGURES.len()];
    let all = [row(&[10.0, 20.0, 40.0]), row(&[20.0, 20.0, 20.0])];
    assert_eq!(figures(&all, 1)["ops_per_s"].over_first, Some(Spread { median: 1.0, min: 0.5, max: 2.0 }));
    assert_eq!(figures(&all, 0)["ops_per_s"].over_first, None);
}

#[test]
fn invalid_options_are_refused() {
    for (line, told) in [
        ("ablation --sweep growth=8", "--sweep works only with ablation --policy"),
        ("ablation --policy --sweep growth=1", "--sweep values must be growth ratios of 2 to 1000"),
        ("ablation --policy --growth-max 1", "--growth-max must be"),
        ("ablation --policy --load 20,80", "the workload ablation takes one --load value"),
        ("ablation --policy --burst", "--burst works only with the workload tail"),
        ("ablation --policy --closed 8", "--closed works only with the workload tail"),
    ] {
        let args = args(line);
        let outcome = args.check().and_then(|()| {
            let dir =
                WorkDir::fresh(&std::env::temp_dir().join(format!("bench-refused-{}", std::process::id())))?;
            compare(&args, &Lava, dir.path(), &|_| ()).map(|_| ())
        });
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(told), "{line}: {error}");
    }
}
