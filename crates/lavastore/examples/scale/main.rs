//! Loads, overwrites, reopens and scans a store of a given size, and compares everything with a model.
//!
//! ```text
//! cargo run --release -p lavastore --example scale -- [KEYS] [DIR]
//! ```
//!
//! `KEYS` is 20000000 unless given. `DIR` must not exist yet; without it a temporary directory is used. Either is
//! removed at the end.
#![allow(clippy::disallowed_methods, reason = "removes the directory it has made")]

mod workload;

use lavastore::Options;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let keys: u64 = args.next().map_or(Ok(20_000_000), |text| text.parse())?;
    let default = || std::env::temp_dir().join(format!("lavastore-scale-{}", std::process::id()));
    let dir = args.next().map_or_else(default, PathBuf::from);
    if dir.exists() {
        return Err(format!("{} exists: name a directory that does not", dir.display()).into());
    }
    println!("{keys} keys of {} B with values of {} B", workload::KEY_LEN, workload::VALUE_LEN);
    let outcome = workload::run(&dir, keys, &Options::default(), |phase| {
        let seconds = phase.elapsed_ns as f64 / 1e9;
        println!("{:16} {seconds:8.2} s {:12.0} op/s", phase.name, phase.ops as f64 / seconds);
    });
    std::fs::remove_dir_all(&dir)?;
    let outcome = outcome?;
    println!("tables           {:8.2} GB", outcome.table_bytes as f64 / 1e9);
    println!("write amplification {:5.2}", outcome.write_amplification);
    println!("scale: {keys} keys agree with the model");
    Ok(())
}
