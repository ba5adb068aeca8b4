use crate::args::tests::args;
use crate::host::WorkDir;
use crate::lava::Lava;

fn run(line: &str) -> crate::Report {
    let name = format!("bench-flight-test-{}-{}", std::process::id(), line.len());
    let dir = WorkDir::fresh(&std::env::temp_dir().join(name)).unwrap();
    crate::run(&args(line), &Lava, dir.path()).unwrap()
}

/// Scans in flight do the same work as threads with iterators, and their results are checked.
#[test]
fn asynchronous_scans_read_the_same_as_iterators() {
    let line = "async --workload scan --num 3000 --value-size 100 --reads 400 --scan-length 7 --depth 1";
    let (one, threads) = (run(line), run(&format!("{line} --blocking")));
    assert_eq!((one.ops, &one.ops_hash), (400, &threads.ops_hash));
    assert_eq!(one.mb_per_s > 0.0, threads.mb_per_s > 0.0);
    let kinds: Vec<_> = one.latency.keys().map(String::as_str).collect();
    assert_eq!(kinds, ["scan"]);
    let many = run("async --workload scan --num 3000 --value-size 600 --reads 2000 --depth 1024");
    assert_eq!((many.ops, many.options.threads), (2000, Some(1)));
    assert_eq!(many.costs.user_bytes, 0);
    let json = serde_json::to_value(&many).unwrap();
    assert_eq!(json["options"]["requests"]["mix"], "scan");
}

#[test]
fn each_mix_runs_its_operation_kinds() {
    for (mix, kinds) in [("read", "get"), ("write", "put"), ("mixed", "get put")] {
        let report = run(&format!(
            "async --workload {mix} --num 500 --value-size 50 --reads 300 --updates 300 --depth 9"
        ));
        assert_eq!(report.latency.keys().cloned().collect::<Vec<_>>().join(" "), kinds);
    }
}

#[test]
fn invalid_scan_options_are_refused() {
    assert!(args("async --workload scan --depth 1024 --scan-length 100").check().is_ok());
    for line in ["ycsb --workload scan", "async --workload e", "async --workload scan --depth 5000"] {
        assert!(args(line).check().is_err(), "{line}");
    }
}
