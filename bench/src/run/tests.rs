use super::*;
use crate::args::tests::args;
use crate::engine::Batch;
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// A minimal engine.
#[derive(Default)]
struct Map(std::sync::Arc<Mutex<BTreeMap<Vec<u8>, Vec<u8>>>>);

impl Engine for Map {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.lock().unwrap().insert(key.to_vec(), value.to_vec());
        Ok(())
    }
    fn write(&self, batch: &Batch, _durable: bool) -> Result<()> {
        batch.iter().try_for_each(|(key, value)| self.put(key, value))
    }
    fn delete(&self, key: &[u8]) -> Result<()> {
        self.0.lock().unwrap().remove(key);
        Ok(())
    }
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let map = self.0.lock().unwrap();
        Ok(map.get(key).inspect(|found| value.extend_from_slice(found)).is_some())
    }
    fn scan(&self, start: &[u8], limit: u64, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let map = self.0.lock().unwrap();
        let found = map.range(start.to_vec()..).take(limit as usize);
        Ok(found.inspect(|(key, value)| visit(key, value)).count() as u64)
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
    fn settle(&self, _timeout: Duration) -> Result<bool> {
        Ok(true)
    }
    fn settings(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// Opens the same map repeatedly; `loses` drops all data in between.
#[derive(Default)]
struct Maps {
    map: std::sync::Arc<Mutex<BTreeMap<Vec<u8>, Vec<u8>>>>,
    loses: bool,
}

impl Opener for Maps {
    fn name(&self) -> String {
        "map".to_owned()
    }
    fn open(&self, _dir: &Path, _settings: &EngineSettings) -> Result<Box<dyn Engine>> {
        if self.loses {
            self.map.lock().unwrap().clear();
        }
        Ok(Box::new(Map(self.map.clone())))
    }
}

fn run_in_fresh(line: &str, maps: &Maps) -> Result<Report> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("bench-run-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let dir = host::WorkDir::fresh(&std::env::temp_dir().join(name))?;
    run(&args(line), maps, dir.path())
}

fn run_once(line: &str) -> Report {
    run_in_fresh(line, &Maps::default()).unwrap()
}

/// The kinds of operations are reported separately, and only written bytes count as written.
#[test]
fn latencies_are_reported_per_operation_kind() {
    let kinds = |line: &str| {
        let report = run_once(line);
        let kinds: Vec<_> = report.latency.keys().cloned().collect();
        (kinds.join(" "), report.costs.user_bytes)
    };
    assert_eq!(kinds("ycsb --num 500 --value-size 76 --workload c"), ("get".into(), 0));
    assert_eq!(kinds("ycsb --num 500 --value-size 76 --workload e").0, "insert scan");
    let (both, bytes) = kinds("ycsb --num 500 --value-size 76 --workload f");
    assert_eq!((&*both, bytes % 100), ("get rmw", 0));
    assert!((15_000..35_000).contains(&bytes), "half of 500 operations of 100 B: {bytes}");
}

#[test]
fn every_workload_reports() {
    for line in [
        "load --num 500 --value-size 20",
        "overwrite --num 500 --value-size 20 --batch 7 --threads 2",
        "overwrite --num 500 --value-size 20 --distribution zipf",
        "read --num 500 --value-size 20 --threads 3",
        "readwhilewriting --num 500 --value-size 20 --write-mb-per-s 1",
        "read --num 500 --values mixed-8k --warmup 10",
        "overwrite --num 500 --values pareto-1k",
        "scan --num 500 --value-size 20 --reads 50",
        "scanwhilewriting --num 500 --value-size 20 --reads 50 --scan-len 20 --write-mb-per-s 1",
        "ycsb --num 500 --value-size 20 --distribution zipf",
        "ycsb --num 500 --value-size 20 --workload c --rate 20000",
        "ycsb --num 500 --value-size 20 --workload d --distribution zipf --threads 3",
        "ycsb --num 500 --value-size 20 --workload e --updates 300",
        "ycsb --num 500 --value-size 20 --workload f --distribution zipf",
    ] {
        let report = run_once(line);
        assert_eq!(report.ops, report.options.ops(), "{line}");
        assert_eq!(report.timeline.iter().map(|s| s.ops).sum::<u64>(), report.ops, "{line}");
        assert!(report.p50_us > 0.0 && report.p50_us <= report.max_us, "{line}");
        assert!(report.table().contains("operations"));
    }
}

#[test]
fn each_phase_of_a_changing_load_is_reported() {
    let line = "ycsb --num 200 --value-size 76 --phases mixed,write,c --seconds 0.2 --threads 2";
    let report = run_once(line);
    let mixes: Vec<_> = report.phases.iter().map(|phase| phase.mix.name()).collect();
    assert_eq!(mixes, ["mixed", "write", "c"]);
    assert!(report.phases.iter().all(|phase| phase.ops > 0 && phase.seconds >= 0.05 && phase.p50_us > 0.0));
    assert_eq!(report.phases.iter().map(|phase| phase.ops).sum::<u64>(), report.ops);
    assert_eq!(report.timeline.iter().map(|s| s.ops).sum::<u64>(), report.ops);
    let puts = report.latency["put"].count;
    assert!(report.phases[1].ops < puts && puts < report.phases[0].ops + report.phases[1].ops);
    assert!(report.table().lines().filter(|line| line.starts_with("phase")).count() == 3);
    // A single mix is no phase.
    assert!(run_once("ycsb --num 200 --value-size 76 --workload a").phases.is_empty());
}

#[test]
fn invalid_phases_are_refused() {
    for (line, why) in [
        ("ycsb --phases a,b", "--seconds"),
        ("ycsb --phases a,b --seconds 1 --workload c", "omit --workload"),
        ("overwrite --phases write --seconds 1", "the workload ycsb"),
        ("ycsb --phases a,d --seconds 1", "insert"),
        ("ycsb --phases a,b --seconds 1 --rate 5", "--rate"),
    ] {
        let error = args(line).check().unwrap_err().to_string();
        assert!(error.contains(why), "{line}: {error}");
    }
    assert!(args("ycsb --phases a,write,b --seconds 1 --sync").check().is_ok());
}

#[test]
fn the_same_seed_does_the_same_work() {
    let line = "overwrite --num 300 --value-size 20 --threads 2";
    assert_eq!(run_once(line).ops_hash, run_once(line).ops_hash);
    assert_ne!(run_once(line).ops_hash, run_once(&format!("{line} --seed 2")).ops_hash);
}

#[test]
fn the_open_loop_keeps_its_rate_and_user_bytes_are_exact() {
    let report = run_once("overwrite --num 100 --updates 200 --value-size 76 --rate 4000");
    assert!(report.seconds >= 199.0 / 4000.0);
    assert_eq!(report.costs.user_bytes, 200 * 100);
}

#[test]
fn the_number_of_keys_follows_the_length_of_values() {
    assert_eq!(args("overwrite --value-size 16000").keys(), 131_072);
    assert_eq!(args("overwrite --value-size 16000").resolved().updates, Some(393_216));
    assert_eq!(args("overwrite --value-size 1000").keys(), 1_000_000);
}

#[test]
fn a_store_that_loses_data_fails_the_run() {
    let maps = Maps { loses: true, ..Maps::default() };
    let error = run_in_fresh("read --num 10 --value-size 20", &maps).unwrap_err();
    assert!(error.to_string().contains("is missing"), "{error}");
}

#[test]
fn json_has_every_documented_field() {
    let json = serde_json::to_value(run_once("overwrite --num 50 --value-size 20")).unwrap();
    let promised = "workload ops seconds ops_per_s mb_per_s mb_per_s_settled p50_us p99_us p999_us max_us user_bytes \
        device_bytes_written device_bytes_read write_amplification space_peak_ratio space_settled_ratio reads_per_get \
        reads_per_get_causes kernel_reads_per_get stall_windows_100ms longest_without_progress_ms seconds_stalled space_peak timeline cpu_seconds cpu_us_per_op rss_peak_bytes options";
    for field in promised.split_whitespace() {
        assert!(json.get(field).is_some(), "{field} is missing");
    }
}

#[test]
fn unknown_mechanisms_are_refused_with_the_list() {
    let known = lavastore::testing::Ablation::names();
    assert!(args(&format!("overwrite --without {}", known.join(","))).check().is_ok());
    let error = args("overwrite --without magic").check().unwrap_err().to_string();
    assert!(error.contains("magic") && known.iter().all(|name| error.contains(name)), "{error}");
}

#[test]
fn a_relative_limit_multiplies_the_loaded_bytes() {
    assert_eq!(args("overwrite --num 1000 --value-size 76 --space-limit 1.5x").limit_bytes(), Some(150_000));
    assert_eq!(args("overwrite --num 1000 --space-limit 77777").limit_bytes(), Some(77_777));
    assert_eq!(args("overwrite --num 1000").limit_bytes(), None);
}

#[test]
fn an_idle_time_is_reported() {
    let json =
        serde_json::to_value(run_once("overwrite --num 50 --value-size 20 --idle-seconds 0.01")).unwrap();
    assert_eq!(json["idle_seconds"], 0.01);
    assert!(json["idle_bytes_written"].is_u64() && json["idle_bytes_read"].is_u64());
}

mod limited;
