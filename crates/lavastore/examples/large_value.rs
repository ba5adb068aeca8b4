//! Writes one large value and reads it back in constant memory; prints times and memory.
//!
//! ```text
//! cargo run --release --example large_value [MEGABYTES [DIRECTORY]]
//! ```
//!
//! Fails if the value changed, or if the process used 64 MB of memory at any time.
#![allow(
    clippy::disallowed_methods,
    reason = "a program beside the engine: it reads the clock and /proc itself"
)]

use lavastore::{Db, Options, Result, WriteOptions};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Instant;

/// Bytes per append.
const PIECE: usize = 1 << 20;
/// Memory limit of the process.
const MEMORY_MAX_KB: u64 = 64 << 10;

/// Fills a piece with incompressible bytes that depend on its position, so that mixed-up pieces
/// show.
fn fill(piece: &mut [u8], nth: u64) {
    let mut state = nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for word in piece.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
}

/// Returns the peak resident memory of the process in KB, if known.
fn peak_memory_kb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn report(what: &str, bytes: u64, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    let memory = peak_memory_kb().map_or("unknown".into(), |kb| format!("{:.1} MB", kb as f64 / 1024.0));
    println!("{what:<14} {:>7.0} MB/s, peak memory {memory}", bytes as f64 / 1e6 / seconds);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let megabytes: u64 = args.next().map_or(Ok(1024), |n| n.parse())?;
    let dir = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = dir.join(format!("lavastore-large-value-{}", std::process::id()));
    let done = run(&dir, megabytes);
    std::fs::remove_dir_all(&dir)?;
    done
}

fn run(dir: &std::path::Path, megabytes: u64) -> Result<(), Box<dyn std::error::Error>> {
    let db = Db::open_with(dir, &Options::default())?;
    let family = db.default_family().clone();
    let (mut piece, mut expected) = (vec![0; PIECE], vec![0; PIECE]);
    let bytes = megabytes * PIECE as u64;
    println!("one value of {bytes} bytes");

    let start = Instant::now();
    let mut value = family.writing(&WriteOptions::durable()).put_stream(b"large")?;
    for nth in 0..megabytes {
        fill(&mut piece, nth);
        value.write_all(&piece)?;
    }
    value.finish()?;
    report("in, durable", bytes, start);

    let check = |piece: &mut Vec<u8>, expected: &mut Vec<u8>| -> Result<(), Box<dyn std::error::Error>> {
        let mut value = family.get_stream(b"large")?.ok_or("the value is lost")?;
        for nth in 0..megabytes {
            value.read_exact(piece)?;
            fill(expected, nth);
            if piece != expected {
                return Err(format!("megabyte {nth} came back changed").into());
            }
        }
        Ok(())
    };
    let start = Instant::now();
    check(&mut piece, &mut expected)?;
    report("out", bytes, start);

    let start = Instant::now();
    db.flush()?;
    family.compact_range(..)?;
    report("flush, compact", 0, start);
    let start = Instant::now();
    check(&mut piece, &mut expected)?;
    report("out again", bytes, start);

    let start = Instant::now();
    let tail = family.get_range(b"large", bytes - 100, 4096)?.ok_or("the value is lost")?;
    fill(&mut expected, megabytes - 1);
    if tail != expected[PIECE - 100..] {
        return Err("the last bytes came back changed".into());
    }
    println!("the last 100 B in {:.1} ms", start.elapsed().as_secs_f64() * 1e3);

    let stats = db.stats();
    let written = stats.segment_bytes_written
        + stats.wal_bytes_written
        + stats.flush_bytes_written
        + stats.compaction_bytes_written
        + stats.manifest_bytes_written;
    println!("device bytes written per byte of the value: {:.4}", written as f64 / bytes as f64);
    db.close()?;
    match peak_memory_kb() {
        Some(kb) if kb >= MEMORY_MAX_KB => Err(format!("{kb} KB of memory, over {MEMORY_MAX_KB}").into()),
        _ => Ok(()),
    }
}
