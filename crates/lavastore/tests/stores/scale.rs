//! A store much larger than its memory, compared with the checksum of a model. `LAVASTORE_SCALE`
//! sets the number of keys; the example `scale` does the same with 20 million.
#![allow(clippy::disallowed_methods, reason = "removes the directory it has made")]

#[path = "../../examples/scale/workload.rs"]
#[allow(dead_code, reason = "the example prints more than the test asks for")]
mod workload;

use lavastore::{FamilyOptions, Options};

const KEYS: u64 = 300_000;

#[test]
fn load_overwrite_reopen_and_scan_both_ways() {
    let keys = std::env::var("LAVASTORE_SCALE").map_or(KEYS, |text| text.parse().unwrap());
    let dir = std::env::temp_dir().join(format!("lavastore-scale-test-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    // Budgets scaled down from 20 million keys with default options, so that the tree has the same
    // depth.
    let options = Options {
        cache_bytes: 2 << 20,
        memtable_bytes: 1 << 20,
        memory_bytes: 4 << 20,
        family: FamilyOptions::default().expert(|expert| {
            expert.file_bytes = 1 << 20;
            expert.level_base_bytes = 4 << 20;
        }),
        ..Default::default()
    }
    .expert(|expert| {
        expert.log_group_bytes = 2 << 20;
        expert.wal_bytes_max = 16 << 20;
    });
    let outcome =
        workload::run(&dir, workload::Work { keys, value_len: workload::VALUE_LEN }, &options, |phase| {
            eprintln!("{:16} {:8.2} s", phase.name, phase.elapsed_ns as f64 / 1e9);
        });
    std::fs::remove_dir_all(&dir).unwrap();
    let outcome = outcome.unwrap();
    let data = keys * (workload::KEY_LEN + workload::VALUE_LEN) as u64;
    assert!(outcome.file_bytes < 2 * data, "{} bytes of tables for {data} bytes", outcome.file_bytes);
}
