//! Loads, overwrites, reopens and scans a store of a given size, and compares all data with a
//! model.
//!
//! ```text
//! cargo run --release -p lavastore --example scale -- [KEYS] [VALUE_LEN] [DIR]
//! ```
//!
//! `KEYS` defaults to 20000000 and `VALUE_LEN` to 100 bytes; 300000 values of 16000 bytes exercise
//! separated values. `DIR` must not exist yet; the default is a temporary directory. Either one is
//! removed at the end.
#![allow(clippy::disallowed_methods, reason = "removes the directory it has made")]

mod workload;

use lavastore::Options;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let keys: u64 = args.next().map_or(Ok(20_000_000), |text| text.parse())?;
    let value_len = args.next().map_or(Ok(workload::VALUE_LEN), |text| text.parse())?;
    let default = || std::env::temp_dir().join(format!("lavastore-scale-{}", std::process::id()));
    let dir = args.next().map_or_else(default, PathBuf::from);
    if dir.exists() {
        return Err(format!("{} exists: name a directory that does not", dir.display()).into());
    }
    println!("{keys} keys of {} B with values of {value_len} B", workload::KEY_LEN);
    let outcome = workload::run(&dir, workload::Work { keys, value_len }, &Options::default(), |phase| {
        let seconds = phase.elapsed_ns as f64 / 1e9;
        println!("{:16} {seconds:8.2} s {:12.0} op/s", phase.name, phase.ops as f64 / seconds);
    });
    std::fs::remove_dir_all(&dir)?;
    let outcome = outcome?;
    println!("files            {:8.2} GB", outcome.file_bytes as f64 / 1e9);
    println!("write amplification {:5.2}", outcome.write_amplification);
    println!("scale: {keys} keys agree with the model");
    Ok(())
}
