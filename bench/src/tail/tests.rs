use super::*;
use crate::engine::Batch;
use crate::host::{WorkDir, wait_until};
use crate::lava::Lava;
use lavastore::Db;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

/// Parses options, with additions that make a run small.
fn args(line: &str) -> BenchArgs {
    let small = [
        ("--value-size", "100"),
        ("--num", "2000"),
        ("--memtable-bytes", "65536"),
        ("--find-seconds", "0.05"),
        ("--seconds", "0.2"),
    ];
    let untold = small.into_iter().filter(|(name, _)| !line.split(' ').any(|word| word == *name));
    let small: Vec<String> = untold.map(|(name, value)| format!("{name} {value}")).collect();
    crate::args::tests::args(&format!("tail {} {line}", small.join(" ")))
}

fn fresh() -> WorkDir {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("bench-tail-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    WorkDir::fresh(&std::env::temp_dir().join(name)).unwrap()
}

fn runs(line: &str) -> TailRuns {
    run(&args(line), &Lava, fresh().path()).unwrap()
}

fn report(line: &str) -> TailReport {
    only(runs(line))
}

fn only(runs: TailRuns) -> TailReport {
    assert_eq!(runs.points.len(), 1);
    runs.points.into_iter().next().unwrap()
}

#[test]
fn all_requests_of_a_rate_are_executed() {
    for (line, count) in [
        ("--rate 2000 --load 50", 200),
        ("--rate 2000 --load 50 --clients separate --read-share 0.5", 200),
        ("--rate 2000 --load 50 --distribution pareto --values pareto-1k --burst 3x10s", 600),
        ("--rate 2000 --load 50 --read-share 1", 200),
        ("--rate 2000 --load 50 --read-share 0 --threads 1 --policy leveled", 200),
        ("--rate 2000 --load 50 --families 4 --distribution zipf", 200),
    ] {
        let report = report(line);
        assert_eq!((report.sustained_per_s, report.rate_per_s), (2000.0, 1000.0), "{line}");
        assert!(report.found_by_second.is_empty(), "{line}");
        assert_eq!(report.ops + report.ops_left, count, "{line}");
        assert_eq!(report.write.count + report.read.count, count, "{line}");
        assert_eq!(report.timeline.iter().map(|second| second.ops).sum::<u64>(), report.ops, "{line}");
        let table = report.table();
        assert!(table.contains("1,000/s due") && table.contains("% of 2,000/s (told)"), "{line}: {table}");
        let again: TailReport = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
        assert_eq!(again.table(), table, "{line}");
    }
}

#[test]
fn load_is_a_fraction_of_the_found_rate() {
    let report = report("--load 20 --read-share 0.5");
    assert!(report.sustained_per_s > 0.0 && !report.found_by_second.is_empty());
    assert!((report.rate_per_s / report.sustained_per_s - 0.2).abs() < 1e-9);
    assert!(report.read.count > 0 && report.write.count > 0 && report.costs.user_bytes > 0);
    assert!(report.wait_seconds.is_some() && report.waits_seconds.contains_key("l0"));
    assert!(report.table().contains("(found)"));
    let options = report.options.unwrap();
    assert_eq!((options.threads, options.tail.loads()), (Some(4), words::Loads::one(20.0)));
}

#[test]
fn finding_the_rate_alone_measures_no_load() {
    let mut args = args("");
    args.tail.only_find = true;
    let report = only(run(&args, &Lava, fresh().path()).unwrap());
    assert!(report.sustained_per_s > 0.0);
    assert_eq!((report.ops, report.rate_per_s), (0, 0.0));
}

#[test]
fn each_family_has_its_part_of_keys_and_memory() {
    let dir = fresh();
    let args = args("--rate 2000 --families 3 --policy leveled --memtable-bytes 6291456");
    let report = only(run(&args, &Lava, dir.path()).unwrap());
    assert_eq!(report.engine_settings["memtable_bytes"], (2 << 20).to_string());
    // Twice the common size, and a memtable and two log groups that wait for flushes.
    assert_eq!(report.engine_settings["memory_bytes"], ((12 + 2 + 32) << 20).to_string());
    assert_eq!(report.engine_settings["policy"], "leveled");
    let db = Db::open(dir.path()).unwrap();
    assert_eq!(db.iter().count(), 667);
    let counts = ["family-1", "family-2"].map(|name| db.open_family(name).unwrap().iter().count());
    assert_eq!(counts, [667, 666]);
}

#[test]
fn several_loads_are_measured_in_one_store_one_after_the_other() {
    let told = runs("--rate 2000 --load 20,50,95 --seconds 0.1 --read-share 0.5");
    let due: Vec<(f64, u64)> = told.points.iter().map(|r| (r.rate_per_s, r.ops + r.ops_left)).collect();
    assert_eq!(due, [(400.0, 40), (1000.0, 100), (1900.0, 190)]);
    let loads: Vec<f64> = told.points.iter().map(TailReport::load_percent).collect();
    assert_eq!(loads, [20.0, 50.0, 95.0]);
    assert!(told.points.iter().all(|r| r.load_seconds == told.points[0].load_seconds), "loaded once");
    let stats = |r: &TailReport, name: &str| r.costs.engine_stats[name].as_u64().unwrap();
    // The counters of a load begin where those of the previous one ended.
    for pair in told.points.windows(2) {
        let begun = pair[1].costs.engine_stats_before["write_entries"].as_u64().unwrap();
        assert_eq!(begun, stats(&pair[0], "write_entries"));
    }
    let json = serde_json::to_value(&told).unwrap();
    assert_eq!((&json["sustained_per_s"], json["points"].as_array().unwrap().len()), (&2000.0.into(), 3));
    assert_eq!(json["points"][2]["options"]["tail"]["load"], 95.0);
    let table = told.table();
    assert!(table.contains("  95 %     1,900") && table.contains("sustained 2,000/s"), "{table}");
}

#[test]
fn the_rate_is_found_once_for_all_loads() {
    let told = runs("--load 10,20 --seconds 0.1");
    let [one, two] = told.points.as_slice() else { panic!("{}", told.points.len()) };
    assert!(one.sustained_per_s > 0.0 && one.sustained_per_s == two.sustained_per_s);
    assert!(
        (two.rate_per_s / one.rate_per_s - 2.0).abs() < 1e-9 && one.found_by_second == two.found_by_second
    );
}

#[test]
fn each_burst_is_reported() {
    let line = "--rate 1000 --burst 3x100ms --idle 0.2s --seconds 0.55 --read-share 0.5";
    for line in [line.to_owned(), format!("{line} --clients separate")] {
        let report = report(&line);
        assert_eq!(report.rate_per_s, 1000.0, "in bursts 100 % unless told otherwise");
        let offered: Vec<u64> = report.bursts.iter().map(|burst| burst.offered).collect();
        assert_eq!(offered, [300, 300], "{line}");
        for burst in &report.bursts {
            assert_eq!(burst.offered_per_s.round(), 3000.0, "{line}: {burst:?}");
            assert!(burst.achieved_per_s <= burst.offered_per_s && burst.longest_wait_ms > 0.0);
        }
        let left: u64 = report.bursts.iter().map(|burst| burst.left).sum();
        assert_eq!((left, report.ops + left), (report.ops_left, 600), "{line}");
        let last = &report.bursts[1];
        assert!(last.memory_peak_bytes > Some(0) && last.level_0_peak_files.is_some(), "{last:?}");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(
            (&json["options"]["tail"]["burst"], &json["options"]["tail"]["idle"]),
            (&"3x0.1s".into(), &"0.2s".into())
        );
        assert!(
            json["bursts"][1]["done_after_seconds"].is_f64() && json["bursts"][1]["waits_ms"].is_object()
        );
        let table = report.table();
        assert!(
            table.contains("in bursts of 3x0.1s with 0.2 s between them")
                && table.contains("/s of 3,000/s offered"),
            "{table}"
        );
    }
    let args = args("--burst");
    assert_eq!((args.tail.burst.unwrap().to_string().as_str(), args.tail.idle_seconds()), ("3x10s", 20.0));
}

#[test]
fn a_closed_loop_has_clients_and_no_rate() {
    let report = report("--rate 1000 --closed 8 --seconds 0.2");
    assert_eq!((report.rate_per_s, report.ops_left, report.kept_up), (0.0, 0, true));
    assert!(report.ops > 0 && (report.ops_over_sustained - report.ops_per_s / 1000.0).abs() < 1e-9);
    assert_eq!(report.write.count + report.read.count, report.ops);
    let table = report.table();
    assert!(
        table.contains("8 clients, each as fast as it can") && table.contains("times the 1,000/s"),
        "{table}"
    );
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(
        (&json["options"]["tail"]["closed"], &json["options"]["tail"]["load"]),
        (&8.into(), &serde_json::Value::Null)
    );
}

#[test]
fn report_includes_engine_waits_and_device_probes() {
    let report = report("--rate 1000 --load 95 --seconds 0.5 --read-share 0");
    let times = report.engine_times.as_ref().unwrap();
    assert_eq!(times.stall_budget_us, Some(10_000.0));
    assert_eq!(report.engine_settings["stall_budget_us"], "10000");
    // The log has its own histogram, which includes a full ring.
    assert!(times.waits.contains_key("log"));
    for cause in ["memory", "l0", "levels", "garbage", "space"] {
        let wait = &times.waits[cause];
        assert!(wait.over_budget.unwrap() <= wait.times.count, "{cause}: {wait:?}");
        let counted = report.costs.growth(&format!("stall_{cause}_ns")).unwrap();
        assert_eq!(counted > 0, wait.times.count > 0, "{cause}: {wait:?}");
    }
    // 475 were due; the engine samples a part of them.
    let puts = times.operations["put"].count;
    assert!((100..=900).contains(&puts), "{puts}");
    assert!(report.ops_over_budget.is_some());
    for probe in [&report.device_write, &report.device_sync] {
        assert!(probe.is_some());
    }
    assert!(report.timeline[0].device_sync_max_us.is_some());
    let table = report.table();
    assert!(table.contains("synced write") && table.contains("over the budget"), "{table}");
}

#[test]
fn threads_are_split_by_read_share() {
    let parted: Vec<u64> = [0.1, 0.5, 0.9].map(|share| readers(4, share)).into();
    assert_eq!(parted, [1, 2, 3]);
    assert_eq!((readers(2, 0.99), readers(8, 0.01)), (1, 1));
}

#[test]
fn invalid_options_are_refused() {
    for (line, told) in [
        ("--load 0", "--load must be"),
        ("--load NaN", "--load must be"),
        ("--families 0", "--families must be"),
        ("--families 9 --num 8", "each column family needs at least one key"),
        ("--read-share 1.5", "--read-share must be"),
        ("--clients separate --threads 1", "--clients separate needs"),
        ("--find-seconds 0", "--find-seconds must be"),
        ("--batch 2", "the workload tail runs single operations"),
        ("--load 20,0", "--load must be"),
        ("--load 20,1001", "--load must be"),
        ("--idle 5s", "--idle is the pause between two bursts"),
        ("--burst 0x10s", "--burst must be"),
        ("--burst 3x0s", "--burst must be"),
        ("--burst 3x1s --idle=-1", "--idle must be at least 0 seconds"),
        ("--closed 0", "--closed must be"),
        ("--closed 8 --load 80", "--closed runs without a fixed rate"),
        ("--closed 8 --burst", "--closed runs without a fixed rate"),
        ("--closed 8 --clients separate", "--closed has one queue"),
        ("--threads 0", "--threads must be"),
    ] {
        let error = args(line).check().unwrap_err().to_string();
        assert!(error.contains(told), "{line}: {error}");
        let of_run = run(&args(line), &Lava, Path::new("nowhere")).unwrap_err().to_string();
        assert_eq!(of_run, error, "{line}: before anything is made");
    }
    let load = BenchArgs { workload: Workload::Load, ..args("--families 2") };
    assert!(load.check().unwrap_err().to_string().contains("--families works only with the workload tail"));
}

/// Fate of a put.
enum Becomes {
    Failed,
    /// Takes this many nanoseconds.
    Slow(u64),
}

/// LavaStore with one odd put; gets find nothing if there is none.
struct Odd {
    put: Option<(u64, Becomes)>,
    puts: AtomicU64,
}

struct OddEngine {
    store: Box<dyn Engine>,
    odd: &'static Odd,
}

impl Opener for &'static Odd {
    fn name(&self) -> String {
        "an odd one".to_owned()
    }
    fn open(&self, dir: &Path, settings: &EngineSettings) -> Result<Box<dyn Engine>> {
        Ok(Box::new(OddEngine { store: Lava.open(dir, settings)?, odd: self }))
    }
}

impl Engine for OddEngine {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let number = self.odd.puts.fetch_add(1, Ordering::Relaxed);
        match &self.odd.put {
            Some((odd, Becomes::Failed)) if *odd == number => return Err("no more puts".into()),
            Some((odd, Becomes::Slow(ns))) if *odd == number => wait_until(now_ns() + ns),
            _ => {}
        }
        self.store.put(key, value)
    }
    fn write(&self, batch: &Batch, durable: bool) -> Result<()> {
        self.store.write(batch, durable)
    }
    fn delete(&self, key: &[u8]) -> Result<()> {
        self.store.delete(key)
    }
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        Ok(self.odd.put.is_some() && self.store.get(key, value)?)
    }
    fn scan(&self, start: &[u8], limit: u64, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        self.store.scan(start, limit, visit)
    }
    fn flush(&self) -> Result<()> {
        self.store.flush()
    }
    fn settle(&self, timeout: Duration) -> Result<bool> {
        self.store.settle(timeout)
    }
    fn settings(&self) -> Vec<(String, String)> {
        self.store.settings()
    }
    fn close(self: Box<Self>) -> Result<()> {
        self.store.close()
    }
}

/// Puts before the measured phase: an eighth of the 2,000 keys.
const FILLED: u64 = 250;

#[test]
fn a_failing_client_ends_the_whole_run() {
    static ODD: Odd = Odd { put: Some((FILLED + 20, Becomes::Failed)), puts: AtomicU64::new(0) };
    let args = args("--read-share 0 --rate 1000 --load 100 --seconds 20");
    assert_eq!(run(&args, &&ODD, fresh().path()).unwrap_err().to_string(), "no more puts");
    let puts = ODD.puts.load(Ordering::Relaxed);
    assert!((FILLED + 21..15_000).contains(&puts), "{puts} of 20,000");
}

#[test]
fn requests_due_during_a_slow_one_count_as_late() {
    static ODD: Odd = Odd { put: Some((FILLED + 20, Becomes::Slow(300_000_000))), puts: AtomicU64::new(0) };
    let args = args("--read-share 0 --threads 1 --rate 100 --load 100 --seconds 1");
    let report = only(run(&args, &&ODD, fresh().path()).unwrap());
    // 20 of 100 were due in the first 200 of 300 ms, and so waited for 100 ms or more.
    assert!(report.write.p90_us >= 100_000.0, "{:?}", report.write);
    assert!(report.longest_without_progress_ms >= 250 && report.write_stall_windows_100ms >= 1);
}

#[test]
fn a_wrong_answer_ends_the_run() {
    static ODD: Odd = Odd { put: None, puts: AtomicU64::new(0) };
    let error = run(&args("--read-share 1 --rate 1000"), &&ODD, fresh().path()).unwrap_err().to_string();
    assert!(error.starts_with("wrong answer: key user") && error.contains("is missing;"), "{error}");
    let puts = ODD.puts.load(Ordering::Relaxed);
    assert_eq!(puts, 0, "a store that is only read is not written after loading");
}

#[test]
fn an_engine_without_families_or_limits_says_so() {
    static ODD: Odd = Odd { put: None, puts: AtomicU64::new(0) };
    let error = |line| run(&args(line), &&ODD, fresh().path()).unwrap_err().to_string();
    assert_eq!(error("--families 2"), "this engine created 1 of 2 column families: lower --families");
    assert_eq!(error("--space-limit 4000000000"), "an odd one knows no space limit: omit --space-limit");
}
