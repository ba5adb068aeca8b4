//! Cost of column families: memory, time to create and open, log space that idle families pin, and
//! the waits of writers.
//!
//! ```text
//! cargo run --release -p lavastore --example families -- [FAMILIES [MEGABYTES [DIRECTORY]]]
//! ```
//!
//! Creates a store with the given number of families (64) and writes one record to each. Then
//! writes the given number of megabytes (256) of 200 B values to one family while the others are
//! idle. Then writes as many records to all families in turn. A separate process opens the store
//! with its log. Memory is reported relative to the start of the process: run the program once for
//! each number of families.
#![allow(
    clippy::disallowed_methods,
    reason = "a program beside the engine: it reads the clock and /proc itself"
)]

use lavastore::{Db, Family, FamilyOptions, Options, Statistics};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const VALUE_LEN: usize = 200;
/// First argument of the process that opens the store.
const OPEN: &str = "open";
/// Number of writes between two samples of the log size.
const LOOK_EVERY: u64 = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let first = args.next();
    if first.as_deref() == Some(OPEN) {
        return open_again(&PathBuf::from(args.next().ok_or("which store?")?));
    }
    let count: usize = first.map_or(Ok(64), |n| n.parse())?;
    let megabytes: u64 = args.next().map_or(Ok(256), |n| n.parse())?;
    let dir = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = dir.join(format!("lavastore-families-{}", std::process::id()));
    let done = run(&dir, count.max(1), megabytes * 1_000_000 / VALUE_LEN as u64);
    std::fs::remove_dir_all(&dir)?;
    done
}

/// Resident memory of the process in kilobytes; 0 if unknown.
fn resident_kb() -> u64 {
    status_kb("VmRSS:")
}

/// Returns a field of `/proc/self/status` in kilobytes.
fn status_kb(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn run(dir: &Path, count: usize, writes: u64) -> Result<(), Box<dyn Error>> {
    let start_kb = resident_kb();
    let memory = |what: &str| {
        let kb = resident_kb().saturating_sub(start_kb);
        println!(
            "  memory, {what:<24} {:8.1} MB, {:7.1} kB a family",
            kb as f64 / 1e3,
            kb as f64 / count as f64
        );
    };
    println!("{count} families:");
    let options = Options::default();
    let db = Db::open_with(dir, &options)?;
    memory("no family more");
    let begun = Instant::now();
    let mut families = vec![db.default_family().clone()];
    for n in 1..count {
        families.push(db.create_family(&format!("family{n:05}"), &FamilyOptions::default())?);
    }
    println!("  to create one           {:8.1} us", begun.elapsed().as_micros() as f64 / count as f64);
    memory("empty");
    families.iter().try_for_each(|family| family.put("first", "record"))?;
    memory("a record in each");
    one_busy(&db, &families[count - 1], writes)?;
    memory("one of them busy");
    all_busy(&db, &families, writes)?;
    memory("all of them busy");
    drop(families);
    db.close()?;
    // A new process has no allocator memory to reuse.
    let opened = Command::new(std::env::current_exe()?).arg(OPEN).arg(dir).status()?;
    if opened.success() { Ok(()) } else { Err("it could not be opened again".into()) }
}

/// Entry point of the process that opens the store again.
fn open_again(dir: &Path) -> Result<(), Box<dyn Error>> {
    let start_kb = resident_kb();
    let begun = Instant::now();
    let db = Db::open_with(dir, &Options::default())?;
    println!("  to open                 {:8.1} ms", begun.elapsed().as_micros() as f64 / 1e3);
    let more = |kb: u64| kb.saturating_sub(start_kb) as f64 / 1e3;
    let (most, now) = (more(status_kb("VmHWM:")), more(resident_kb()));
    println!("  memory, opened again    {now:8.1} MB, {most:.1} MB at most");
    println!("  tables made             {:8}", db.stats().flushes);
    Ok(db.close()?)
}

/// Writes to one family while all others are idle.
fn one_busy(db: &Db, family: &Family, writes: u64) -> Result<(), Box<dyn Error>> {
    let (value, before) = (vec![7; VALUE_LEN], db.stats());
    let (mut pinned_max, mut log_max) = (0, 0);
    let begun = Instant::now();
    for n in 0..writes {
        family.put(n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes(), &value)?;
        if n % LOOK_EVERY == 0 {
            let space = db.space()?;
            log_max = log_max.max(space.wal_in_use_bytes);
            pinned_max = pinned_max.max(space.log_holder.map_or(0, |holder| holder.bytes));
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("  one busy                {:8.0} writes/s", writes as f64 / seconds);
    println!("  log in use, at most     {:8.1} MB", log_max as f64 / 1e6);
    println!(
        "  closed groups held by the one with the oldest entry, at most {:.1} MB",
        pinned_max as f64 / 1e6
    );
    waits(&before, &db.stats());
    Ok(())
}

/// Writes to all families in turn.
fn all_busy(db: &Db, families: &[Family], writes: u64) -> Result<(), Box<dyn Error>> {
    let (value, before) = (vec![7; VALUE_LEN], db.stats());
    let begun = Instant::now();
    for n in 0..writes {
        let family = &families[n as usize % families.len()];
        family.put(n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes(), &value)?;
    }
    println!("  all busy                {:8.0} writes/s", writes as f64 / begun.elapsed().as_secs_f64());
    println!("  log in use              {:8.1} MB", db.space()?.wal_in_use_bytes as f64 / 1e6);
    waits(&before, &db.stats());
    Ok(())
}

/// Prints the waits of writers between two statistics.
fn waits(before: &Statistics, after: &Statistics) {
    println!("  flushes                 {:8}", after.flushes - before.flushes);
    let both = before.histograms.waits.iter().zip(&after.histograms.waits);
    for ((cause, before), (_, after)) in both.filter(|(before, after)| after.1.count() > before.1.count()) {
        let (count, ns) = (after.count() - before.count(), after.sum() - before.sum());
        println!(
            "  waits for {cause:<13} {count:8}, {:.2} s, the longest so far {:.1} ms",
            ns as f64 / 1e9,
            after.max() as f64 / 1e6
        );
    }
}
