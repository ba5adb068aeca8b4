use super::*;
use crate::args::tests::args;
use crate::engine::{Engine, EngineSettings};
use crate::host::WorkDir;
use crate::lava::Lava;
use lavastore::testing::Ablation;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Opens LavaStore and remembers the mechanisms of each open, and whether the store existed.
#[derive(Default)]
struct Remembers(Mutex<Vec<(Ablation, bool)>>);

impl Opener for Remembers {
    fn name(&self) -> String {
        Lava.name()
    }
    fn open(&self, dir: &Path, settings: &EngineSettings) -> Result<Box<dyn Engine>> {
        self.0.lock().unwrap().push((settings.ablation, dir.exists()));
        Lava.open(dir, settings)
    }
}

fn measured(line: &str) -> (AblationReport, Vec<(Ablation, bool)>, Vec<String>) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("bench-ablation-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let dir = WorkDir::fresh(&std::env::temp_dir().join(name)).unwrap();
    let (opener, steps) = (Remembers::default(), Mutex::new(Vec::new()));
    let tell = |step: &str| steps.lock().unwrap().push(step.to_owned());
    let report = ablation(&args(line), &opener, dir.path(), &tell).unwrap();
    assert!(io::Env::kernel().fs.list(dir.path()).unwrap().is_empty(), "stores are removed");
    (report, opener.0.into_inner().unwrap(), steps.into_inner().unwrap())
}

#[test]
fn every_switch_belongs_to_one_row_or_to_other_switches() {
    let in_rows = ROWS.iter().flat_map(|(_, adds)| adds.iter().copied());
    let all: Vec<&str> = in_rows.chain(OTHER_SWITCHES).collect();
    let distinct: BTreeSet<&str> = all.iter().copied().collect();
    assert_eq!(distinct.len(), all.len());
    assert_eq!(distinct, Ablation::names().into_iter().collect());
}

#[test]
fn each_row_adds_a_mechanism_up_to_the_full_engine() {
    let plain = args("ablation");
    let first = Ablation::without(without(&plain, 0).iter().map(String::as_str)).unwrap();
    let only_others = Ablation {
        correlated: true,
        quiet_compaction: true,
        io_pacing: true,
        subcompactions: true,
        log_first: true,
        measured_reads: true,
        pipelined_collection: true,
        least_overlap: true,
        exposing_first: true,
        lazy_with_room: true,
        space_first: true,
        warm_survivors: true,
        joined_lookups: false,
        readahead: false,
        compensated_size: false,
        gc_threads: false,
        gc_threshold: false,
        gc_pace: false,
        lazy_read: false,
        hot_cold: false,
    };
    assert_eq!(first, only_others);
    for (at, (_, adds)) in ROWS.iter().enumerate().skip(1) {
        let (before, now) = (without(&plain, at - 1), without(&plain, at));
        let added: BTreeSet<&str> =
            before.iter().filter(|name| !now.contains(name)).map(String::as_str).collect();
        let expected: BTreeSet<&str> = adds.iter().copied().collect();
        assert_eq!((added, now.len()), (expected, before.len() - adds.len()));
    }
    assert_eq!(without(&plain, ROWS.len() - 1), Vec::<String>::new());
    let fewer = args("ablation --without quiet_compaction,hot_cold");
    assert_eq!(without(&fewer, ROWS.len() - 1), ["hot_cold", "quiet_compaction"]);
}

#[test]
fn rows_run_in_fresh_directories_and_alternating_order() {
    let line = "ablation --num 300 --value-size 600 --updates 600 --pairs 2 --distribution zipf \
        --space-limit 200000000 --memtable-bytes 65536 --file-bytes 65536";
    let (report, opened, steps) = measured(line);
    assert_eq!((report.rounds, report.rows.len(), opened.len(), steps.len()), (2, 7, 14, 14));
    let forward = (0..7).map(|at| without(&report.options, at));
    let expected = forward
        .clone()
        .chain(forward.rev())
        .map(|off| (Ablation::without(off.iter().map(String::as_str)).unwrap(), false));
    assert_eq!(opened, expected.collect::<Vec<_>>());
    assert_eq!((steps[0].as_str(), steps[13].as_str()), ("round 1 of 2: TDB", "round 2 of 2: TDB"));
    let hashes: BTreeSet<&String> = report.rows.iter().flat_map(|r| &r.runs).map(|r| &r.ops_hash).collect();
    assert_eq!(hashes.len(), 1, "all did the same work");
    assert!(report.rows.iter().all(|row| row.limit_breaches == Some(0)));
    let text = report.text();
    for (row, adds) in ROWS {
        assert!(
            text.contains(&format!(
                "\n{row:<4} {}",
                if adds.is_empty() { "all".to_owned() } else { adds.join(", ") }
            )),
            "{text}"
        );
    }
}

#[test]
fn json_has_every_documented_field() {
    let (report, ..) = measured("ablation --num 200 --values mixed-8k --updates 300 --pairs 1");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!((&json["workload"], &json["rounds"]), (&"ablation".into(), &1.into()));
    assert_eq!(json["other_switches"], serde_json::json!(OTHER_SWITCHES));
    assert!(OTHER_SWITCHES.contains(&"subcompactions"));
    for (at, (row, adds)) in ROWS.iter().enumerate() {
        let found = &json["rows"][at];
        assert_eq!((&found["row"], &found["adds"]), (&(*row).into(), &serde_json::json!(adds)));
        let later: usize = ROWS.iter().skip(at + 1).map(|(_, adds)| adds.len()).sum();
        assert_eq!(found["without"].as_array().unwrap().len(), later);
        assert_eq!(found["runs"].as_array().unwrap().len(), 1);
        assert_eq!((found["suspended_runs"].is_u64(), found["limit_breaches"].is_null()), (true, true));
        for (name, ..) in FIGURES {
            let figure = &found[name];
            for part in ["median", "min", "max"] {
                assert!(figure[part].is_f64(), "{row}: {name}: {figure}");
            }
            // A figure of 0 in the first row has no ratio.
            let ratio = at > 0 && json["rows"][0][name]["median"].as_f64() > Some(0.0);
            assert_eq!(figure["over_tdb"]["median"].is_f64(), ratio, "{row}: {name}: {figure}");
            assert_eq!(figure["over_row_before"].is_object(), figure["over_row_before"]["median"].is_f64());
        }
    }
    let again: AblationReport = serde_json::from_value(json).unwrap();
    assert_eq!(again.text(), report.text());
}

#[test]
fn ratios_are_computed_within_a_round() {
    let row = |mb_per_s: &[f64]| vec![mb_per_s.to_vec(); FIGURES.len()];
    let values = [row(&[10.0, 20.0, 40.0]), row(&[20.0, 20.0, 20.0]), row(&[30.0, 40.0, 60.0])];
    let figure = &figures(&values, 2)["mb_per_s"];
    assert_eq!(figure.spread, Spread { median: 40.0, min: 30.0, max: 60.0 });
    assert_eq!(figure.over_row_before, Some(Spread { median: 2.0, min: 1.5, max: 3.0 }));
    assert_eq!(figure.over_tdb, Some(Spread { median: 2.0, min: 1.5, max: 3.0 }));
    assert_eq!(figures(&values, 0)["mb_per_s"].over_tdb, None);
}
