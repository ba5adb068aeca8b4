use super::*;
use crate::args::Workload;
use crate::host::WorkDir;
use crate::lava::Lava;
use clap::Parser;
use lavastore::Db;
use std::sync::atomic::AtomicU32;

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
fn a_policy_that_nobody_knows_is_refused() {
    let error = run(&args("--policy none-of-ours"), &Lava, fresh().path()).unwrap_err();
    assert!(error.to_string().contains("none-of-ours"), "{error}");
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
