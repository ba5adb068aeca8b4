//! Short calls: point reads, scans of ten entries, the open of a killed store, and bursts of
//! batches.
//!
//! ```text
//! short_calls fill DIR VALUE_BYTES      makes a store with several levels
//! short_calls get|scan|seek DIR CALLS   reads it, everything cached; 0 calls warm it up only
//! short_calls kill DIR VALUE_BYTES      makes a store with 50 MB of log, and ends without closing it
//! short_calls open DIR                  opens a copy of that and prints the time
//! short_calls catch-up DIR VALUE_BYTES  beside a writer with 50 MB of log: a reader catches up with 100 writes, and one is opened
//! short_calls bursts DIR SECONDS        writes four batches of 32,768 rows a second
//! short_calls flush DIR ROUNDS          flushes 20 families of 1 MB in one edit, the writes in no log
//! ```
//!
//! Times of a busy machine are unreliable: count the instructions of two numbers of calls with
//! `perf stat -e instructions:u`.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a program beside the engine: it reads the clock and copies a directory"
)]

use lavastore::{Cursor, Db, FamilyOptions, Options, WriteBatch, WriteOptions};
use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Number of keys in a filled store.
const KEYS: u64 = 200_000;
/// Entries per scan.
const ENTRIES: usize = 10;
/// Bytes of keys and values in the log of a killed store.
const LOG_BYTES: usize = 50 << 20;
/// Rows per batch, and batches per second.
const ROWS: u64 = 32_768;
const BATCHES_PER_S: u64 = 4;

fn key(n: u64) -> [u8; 16] {
    let mut key = *b"key:....________";
    key[4..12].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

fn value(n: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (n.wrapping_add(i / 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Small files, so that there are several levels, and a cache that holds all data.
fn options() -> Options {
    let mut options = Options { cache_bytes: 1 << 30, memory_bytes: 16 << 20, ..Options::default() };
    options.memtable_bytes = 2 << 20;
    options.family.expert.file_bytes = 2 << 20;
    options.family.expert.level_base_bytes = 4 << 20;
    options.family.expert.level_multiplier = 4;
    options
}

fn fill(dir: &Path, len: usize) -> Result<()> {
    let db = Db::open_with(dir, &options())?;
    for n in 0..KEYS {
        db.writing(&WriteOptions::volatile()).put(key(n), value(n, len))?;
    }
    db.flush()?;
    if !db.wait_idle(Duration::from_secs(300)) {
        return Err("the background does not come to rest".into());
    }
    for tables in 0..2 {
        (0..KEYS).skip(tables).step_by(97).try_for_each(|n| db.put(key(n), value(n, len)))?;
        db.flush()?;
    }
    (0..KEYS).step_by(101).try_for_each(|n| db.put(key(n), value(n, len)))?;
    db.close()?;
    Ok(())
}

/// The measured call; returns the bytes of its value or its number of entries. `callgrind
/// --toggle-collect` finds it by its name.
#[inline(never)]
fn measured_call(db: &Db, cursor: &mut Cursor, operation: &str, key: [u8; 16]) -> Result<usize> {
    match operation {
        "get" => Ok(db.get(key)?.map_or(0, |value| value.len())),
        "seek" => {
            cursor.seek(key)?;
            Ok(cursor.key().len())
        }
        _ => {
            let mut bytes = 0;
            for entry in db.range(key.as_slice()..).take(ENTRIES) {
                bytes += entry?.1.len();
            }
            Ok(bytes)
        }
    }
}

/// Repeats one operation.
fn read(dir: &Path, operation: &str, calls: u64) -> Result<()> {
    let db = Db::open_with(dir, &options())?;
    let mut bytes = 0;
    for n in 0..KEYS {
        bytes += db.get(key(n))?.map_or(0, |value| value.len());
    }
    bytes += db.iter().map(|entry| entry.map_or(0, |(_, value)| value.len())).sum::<usize>();
    let mut cursor = db.iter().cursor()?;
    let begun = Instant::now();
    for n in 0..calls {
        bytes += black_box(measured_call(&db, &mut cursor, operation, key(n.wrapping_mul(7919) % KEYS))?);
    }
    let ns = begun.elapsed().as_nanos() as f64 / calls.max(1) as f64;
    println!("{operation}: {ns:.0} ns a call ({bytes} bytes read)");
    Ok(())
}

fn kill(dir: &Path, len: usize) -> Result<()> {
    let db = Db::open(dir)?;
    let count = (LOG_BYTES / (len + 16)) as u64;
    (0..count).try_for_each(|n| db.put(key(n), value(n, len)))?;
    db.writing(&WriteOptions::durable()).put("last", "")?;
    std::process::exit(0)
}

fn open(dir: &Path) -> Result<()> {
    let copy = dir.with_extension("copy");
    std::fs::remove_dir_all(&copy).ok();
    std::fs::create_dir_all(&copy)?;
    for file in std::fs::read_dir(dir)? {
        let file = file?;
        let to = copy.join(file.file_name());
        std::fs::copy(file.path(), &to)?;
        // Reads that bypass the page cache would otherwise write dirty pages first.
        std::fs::File::open(to)?.sync_all()?;
    }
    let begun = Instant::now();
    let db = Db::open(&copy)?;
    println!("open: {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    if db.get("last")?.is_none() {
        return Err("what was durable is not there".into());
    }
    db.close()?;
    std::fs::remove_dir_all(&copy)?;
    Ok(())
}

fn catch_up(dir: &Path, len: usize) -> Result<()> {
    const WRITES: u64 = 100;
    let db = Db::open(dir)?;
    let count = (LOG_BYTES / (len + 16)) as u64;
    (0..count).try_for_each(|n| db.put(key(n), value(n, len)))?;
    let mut reader = Db::open_read_only(dir, &Options::default())?;
    let (mut caught_up, mut opened) = (Vec::new(), Vec::new());
    for round in 1..=20 {
        for n in 0..WRITES {
            db.put(key(n), value(round, len))?;
        }
        let begun = Instant::now();
        reader = reader.catch_up()?;
        caught_up.push(begun.elapsed().as_secs_f64() * 1e3);
        let begun = Instant::now();
        let other = Db::open_read_only(dir, &Options::default())?;
        opened.push(begun.elapsed().as_secs_f64() * 1e3);
        let newest = Some(value(round, len));
        if [&reader, &other]
            .into_iter()
            .any(|db| db.get(key(7)).ok().flatten().as_deref() != newest.as_deref())
        {
            return Err("a reader does not see the last write".into());
        }
    }
    for (what, mut times) in [("catch up", caught_up), ("open", opened)] {
        times.sort_by(f64::total_cmp);
        println!(
            "{what}: {:.1} ms (P50), {:.1} ms (at most)",
            times[times.len() / 2],
            times[times.len() - 1]
        );
    }
    db.close()?;
    Ok(())
}

fn flush(dir: &Path, rounds: u64) -> Result<()> {
    let db = Db::open(dir)?;
    let named = |n| db.create_family(&format!("family{n}"), &FamilyOptions::default());
    let families = (0..20).map(named).collect::<std::result::Result<Vec<_>, _>>()?;
    let (volatile, value) = (WriteOptions::volatile(), value(7, 200));
    let mut took = Vec::new();
    for _ in 0..rounds {
        for family in &families {
            let writer = family.writing(&volatile);
            (0..5_000).try_for_each(|row| writer.put(key(row), &value))?;
        }
        let begun = Instant::now();
        db.flush_families(&families)?;
        took.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    took.sort_by(f64::total_cmp);
    println!(
        "flush of 20 families: {:.1} ms (P50 of {rounds}), at most {:.1}",
        took[took.len() / 2],
        took[took.len() - 1]
    );
    Ok(db.close()?)
}

fn bursts(dir: &Path, seconds: u64) -> Result<()> {
    let db = Db::open(dir)?;
    let begun = Instant::now();
    let mut late = Vec::new();
    let value = value(7, 100);
    for n in 0..seconds * BATCHES_PER_S {
        let due = begun + Duration::from_millis(n * 1000 / BATCHES_PER_S);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let mut batch = WriteBatch::new();
        for row in n * ROWS..(n + 1) * ROWS {
            batch.put(key(row), &value);
        }
        db.write(&batch)?;
        late.push(due.elapsed().as_secs_f64() * 1e3);
    }
    late.sort_by(f64::total_cmp);
    let at = |part: f64| late[(late.len() as f64 * part) as usize];
    println!("batches: P50 {:.0} ms, P90 {:.0} ms, P99 {:.0} ms", at(0.5), at(0.9), at(0.99));
    db.close()?;
    Ok(())
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (Some(operation), Some(dir)) = (args.first(), args.get(1).map(Path::new)) else {
        return Err("name an operation and a directory".into());
    };
    let number = || args.get(2).map_or(Ok(0), |number| number.parse::<u64>());
    match operation.as_str() {
        "fill" => fill(dir, number()? as usize),
        "kill" => kill(dir, number()? as usize),
        "open" => open(dir),
        "catch-up" => catch_up(dir, number()? as usize),
        "bursts" => bursts(dir, number()?),
        "flush" => flush(dir, number()?.max(1)),
        _ => read(dir, operation, number()?),
    }
}
