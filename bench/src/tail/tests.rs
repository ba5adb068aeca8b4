use super::*;
use crate::args::Workload;
use crate::engine::Batch;
use crate::host::{WorkDir, wait_until};
use crate::lava::Lava;
use clap::Parser;
use lavastore::Db;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: BenchArgs,
}

/// What is told, and beside it what makes a run small.
fn args(line: &str) -> BenchArgs {
    let small = [
        ("--value-size", "100"),
        ("--num", "2000"),
        ("--memtable-bytes", "65536"),
        ("--find-seconds", "0.05"),
        ("--seconds", "0.2"),
    ];
    let untold = small.into_iter().filter(|(name, _)| !line.split(' ').any(|word| word == *name));
    let words = ["bench", "tail"].into_iter().chain(untold.flat_map(|(name, value)| [name, value]));
    Cli::parse_from(words.chain(line.split(' ').filter(|word| !word.is_empty()))).args
}

fn fresh() -> WorkDir {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("bench-tail-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    WorkDir::fresh(&std::env::temp_dir().join(name)).unwrap()
}

fn report(line: &str) -> TailReport {
    run(&args(line), &Lava, fresh().path()).unwrap()
}

#[test]
fn what_is_due_at_a_rate_is_done() {
    for (line, count) in [
        ("--rate 2000 --load 50", 200),
        ("--rate 2000 --load 50 --clients separate --read-share 0.5", 200),
        ("--rate 2000 --load 50 --distribution pareto --values pareto-1k --burst", 600),
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
fn the_rate_is_found_and_the_load_is_a_part_of_it() {
    let report = report("--load 20 --read-share 0.5");
    assert!(report.sustained_per_s > 0.0 && !report.found_by_second.is_empty());
    assert!((report.rate_per_s / report.sustained_per_s - 0.2).abs() < 1e-9);
    assert!(report.read.count > 0 && report.write.count > 0 && report.user_bytes > 0);
    assert!(report.wait_seconds.is_some() && report.waits_seconds.contains_key("l0"));
    assert!(report.table().contains("(found)"));
    let options = report.options.unwrap();
    assert_eq!((options.threads, options.tail.load), (Some(4), 20.0));
}

#[test]
fn finding_alone_measures_nothing() {
    let mut args = args("");
    args.tail.only_find = true;
    let report = run(&args, &Lava, fresh().path()).unwrap();
    assert!(report.sustained_per_s > 0.0);
    assert_eq!((report.ops, report.rate_per_s), (0, 0.0));
}

#[test]
fn each_family_has_its_part_of_keys_and_memory() {
    let dir = fresh();
    let args = args("--rate 2000 --families 3 --policy leveled --memtable-bytes 6291456");
    let report = run(&args, &Lava, dir.path()).unwrap();
    assert_eq!(report.engine_settings["memtable_bytes"], (2 << 20).to_string());
    assert_eq!(report.engine_settings["memory_bytes"], (12 << 20).to_string());
    assert_eq!(report.engine_settings["policy"], "leveled");
    let db = Db::open(dir.path()).unwrap();
    assert_eq!(db.iter().count(), 667);
    let counts = ["family-1", "family-2"].map(|name| db.open_family(name).unwrap().iter().count());
    assert_eq!(counts, [667, 666]);
}

#[test]
fn threads_are_parted_as_the_operations_are() {
    let parted: Vec<u64> = [0.1, 0.5, 0.9].map(|share| readers(4, share)).into();
    assert_eq!(parted, [1, 2, 3]);
    assert_eq!((readers(2, 0.99), readers(8, 0.01)), (1, 1));
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (line, told) in [
        ("--load 0", "--load must be"),
        ("--load NaN", "--load must be"),
        ("--families 0", "--families must be"),
        ("--families 9 --num 8", "each family has at least one key"),
        ("--read-share 1.5", "--read-share must be"),
        ("--clients separate --threads 1", "--clients separate needs"),
        ("--find-seconds 0", "--find-seconds must be"),
        ("--batch 2", "tail has no batches"),
        ("--threads 0", "--threads must be"),
    ] {
        let error = args(line).check().unwrap_err().to_string();
        assert!(error.contains(told), "{line}: {error}");
    }
    let load = BenchArgs { workload: Workload::Load, ..args("--families 2") };
    assert!(load.check().unwrap_err().to_string().contains("--families is of tail alone"));
}

/// What becomes of one put.
enum Becomes {
    Failed,
    /// It takes so long, nanoseconds.
    Slow(u64),
}

/// LavaStore, but for one put, by its number; gets find nothing if there is none that is odd.
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
fn a_client_that_fails_ends_the_run_of_all() {
    static ODD: Odd = Odd { put: Some((FILLED + 20, Becomes::Failed)), puts: AtomicU64::new(0) };
    let args = args("--read-share 0 --rate 1000 --load 100 --seconds 20");
    assert_eq!(run(&args, &&ODD, fresh().path()).unwrap_err().to_string(), "no more puts");
    let puts = ODD.puts.load(Ordering::Relaxed);
    assert!((FILLED + 21..15_000).contains(&puts), "{puts} of 20,000");
}

#[test]
fn all_that_was_due_while_one_was_slow_is_late() {
    static ODD: Odd = Odd { put: Some((FILLED + 20, Becomes::Slow(300_000_000))), puts: AtomicU64::new(0) };
    let args = args("--read-share 0 --threads 1 --rate 100 --load 100 --seconds 1");
    let report = run(&args, &&ODD, fresh().path()).unwrap();
    // 20 of 100 were due in the first 200 of 300 ms, and so waited for 100 ms or more.
    assert!(report.write.p90_us >= 100_000.0, "{:?}", report.write);
    assert!(report.longest_without_progress_ms >= 250 && report.write_stall_windows_100ms >= 1);
}

#[test]
fn a_wrong_answer_ends_the_run() {
    static ODD: Odd = Odd { put: None, puts: AtomicU64::new(0) };
    let error = run(&args("--read-share 1 --rate 1000"), &&ODD, fresh().path()).unwrap_err().to_string();
    assert!(error.starts_with("wrong answer: key user") && error.ends_with("is missing"), "{error}");
    let puts = ODD.puts.load(Ordering::Relaxed);
    assert_eq!(puts, 0, "a store that is only read is not written after loading");
}

#[test]
fn an_engine_without_families_or_limits_says_so() {
    static ODD: Odd = Odd { put: None, puts: AtomicU64::new(0) };
    let error = |line| run(&args(line), &&ODD, fresh().path()).unwrap_err().to_string();
    assert_eq!(error("--families 2"), "this engine has 1 of 2 families");
    assert_eq!(error("--space-limit 4000000000"), "an odd one knows no space limit");
}
