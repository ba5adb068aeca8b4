use super::*;
use crate::engine::Batch;
use clap::Parser;
use std::sync::Mutex;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: BenchArgs,
}

fn args(line: &str) -> BenchArgs {
    Cli::parse_from(std::iter::once("bench").chain(line.split(' '))).args
}

/// An engine of the simplest kind.
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

/// Opens the same map again and again; `loses` forgets everything in between.
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

fn run_once(line: &str) -> Report {
    run(&args(line), &Maps::default(), &std::env::temp_dir()).unwrap()
}

#[test]
fn every_workload_reports() {
    for line in [
        "load --num 500 --value-size 20",
        "overwrite --num 500 --value-size 20 --batch 7 --threads 2",
        "overwrite --num 500 --value-size 20 --distribution zipf",
        "read --num 500 --value-size 20 --threads 3",
        "readwhilewriting --num 500 --value-size 20 --write-mb-per-s 1",
        "scan --num 500 --value-size 20 --reads 50",
    ] {
        let report = run_once(line);
        assert_eq!(report.ops, report.options.ops(), "{line}");
        assert!(report.p50_us > 0.0 && report.p50_us <= report.max_us, "{line}");
        assert!(report.table().contains("operations"));
    }
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
    assert_eq!(report.user_bytes, 200 * 100);
}

#[test]
fn a_store_that_loses_data_fails_the_run() {
    let maps = Maps { loses: true, ..Maps::default() };
    let error = run(&args("read --num 10 --value-size 20"), &maps, &std::env::temp_dir()).unwrap_err();
    assert!(error.to_string().contains("is missing"), "{error}");
}

#[test]
fn the_json_has_every_promised_field() {
    let json = serde_json::to_value(run_once("overwrite --num 50 --value-size 20")).unwrap();
    let promised = "workload ops seconds ops_per_s mb_per_s mb_per_s_settled p50_us p99_us p999_us max_us user_bytes \
        device_bytes_written device_bytes_read write_amplification space_peak_ratio space_settled_ratio reads_per_get \
        stall_windows_100ms cpu_seconds rss_peak_bytes options";
    for field in promised.split_whitespace() {
        assert!(json.get(field).is_some(), "{field} is missing");
    }
}
