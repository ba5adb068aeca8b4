use super::*;
use crate::host::WorkDir;
use crate::lava::Lava;
use crate::space::allocated;
use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: RecoveryArgs,
}

fn args(line: &str) -> RecoveryArgs {
    Cli::parse_from(std::iter::once("recovery").chain(line.split_whitespace())).args
}

fn work_dir(name: &str) -> WorkDir {
    let name = format!("bench-recovery-{name}-{}", std::process::id());
    WorkDir::fresh(&std::env::temp_dir().join(name)).unwrap()
}

/// `lava bench recovery` kills a separate process; this test closes the store instead.
fn filled(args: &RecoveryArgs, dir: &Path) {
    let engine = Lava.open(dir, &args.settings()).unwrap();
    Work::new(args).write_all(&families(&*engine)).unwrap();
    engine.close().unwrap();
}

const FILLED: Filled =
    Filled { seconds: 1.0, bytes_written: 3_000_000, cpu_seconds: 0.5, wait_seconds: BTreeMap::new() };

fn recovered(args: &RecoveryArgs, dir: &Path) -> Result<RecoveryReport> {
    recover(args, &FILLED, &Lava, dir, &|| allocated(dir))
}

#[test]
fn recovery_finds_all_records_and_reports_its_cost() {
    let dir = work_dir("all");
    let args = args("--log-size 300000 --families 3 --threads 2 --batch 7 --value-size 100 --memory 4000000");
    assert_eq!(args.records(), 300_000_u64.div_ceil(124));
    filled(&args, dir.path());
    let report = recovered(&args, dir.path()).unwrap();
    assert_eq!((report.records, report.user_bytes), (args.records(), args.records() * 124));
    assert!(report.open_ms > 0.0 && report.mb_per_s > 0.0 && report.rss_peak_bytes > 0, "{report:?}");
    assert!(report.threads_max > 0 && report.log_bytes > 0, "{report:?}");
    assert!(report.engine_settings.contains_key("wal_bytes_max"), "{:?}", report.engine_settings);
    let text = report.text();
    assert!(text.contains("3 MB/s; 0.5 s of processor; waits of writers: none"), "{text}");
    assert!(text.contains("opened in") && text.contains("2,420 keys, all there"), "{text}");
    assert!(serde_json::to_string(&report).unwrap().contains("\"open_ms\""));
}

#[test]
fn a_lost_key_is_reported() {
    let dir = work_dir("lost");
    let fewer = args("--log-size 10000 --value-size 100");
    filled(&fewer, dir.path());
    let lost = recovered(&args("--log-size 10200 --value-size 100"), dir.path()).unwrap_err();
    assert!(lost.to_string().contains("key 81 of 83 keys is missing"), "{lost}");
    let other = recovered(&args("--log-size 10000 --value-size 101"), dir.path()).unwrap_err();
    assert!(other.to_string().contains("key 0 of 80 keys is missing"), "{other}");
}

#[test]
fn a_failed_fill_process_is_reported() {
    let failed = fill_and_kill(&mut Command::new("false")).unwrap_err();
    assert!(failed.to_string().contains("the process that fills the store failed"), "{failed}");
    let mut says = Command::new("echo");
    assert_eq!(fill_and_kill(says.arg(r#"{"seconds":2.5}"#)).unwrap().seconds, 2.5);
}

#[test]
fn invalid_options_are_refused() {
    for (line, why) in [
        ("--value-size 7", "--value-size must be 8"),
        ("--families 0", "--families must be 1"),
        ("--threads 0", "--threads 1 to 1024"),
        ("--batch 0", "--batch must be 1"),
        ("--families 1000 --memory 1000000", "--memory at least 65536 bytes for each column family"),
    ] {
        let refused = args(line).check().unwrap_err();
        assert!(refused.to_string().contains(why), "{line}: {refused}");
    }
}
