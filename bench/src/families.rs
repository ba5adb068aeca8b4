//! `bench families`: cost of a store by its number of column families.
//!
//! For each number, a new store runs these steps: create the families, write a record to each, and
//! flush. Write another record to each, and take a checkpoint, which flushes them. Write and flush
//! one family several times. Write a volatile record to each, which the close flushes, and reopen.
//! So the work of each step, except the flushes of one family, grows with the number of families.
//! Processor times are those of the process, including background threads.

use crate::Result;
use crate::host::{self, alone, now_ns};
use crate::report::{counted, human_us};
use crate::spread::Spread;
use clap::Args;
use io::kernel::usage;
use lavastore::{Db, Family, FamilyOptions, WriteOptions};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::Path;

/// Limit above the number of families of a store.
const FAMILIES_MAX: u64 = 60_000;
/// Number of reported creations at the beginning and at the end.
const CREATED: usize = 10;

/// Options of `bench families`.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct FamiliesArgs {
    /// Numbers of column families to measure, separated by commas, each 1 to 60000 and in a new
    /// store. Time and memory of a run grow with the number
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [10, 100, 1000, 10_000])]
    pub num: Vec<u64>,
    /// Number of flushes of one column family, 1 to 10000, each of one record. More give a steadier
    /// median
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub flushes: u64,
}

impl FamiliesArgs {
    /// Checks the options.
    ///
    /// # Errors
    /// An error for the user.
    pub fn check(&self) -> Result<()> {
        if !self.num.iter().all(|num| (1..=FAMILIES_MAX).contains(num)) {
            return Err("--num must be 1 to 60000 column families".into());
        }
        if !(1..=10_000).contains(&self.flushes) {
            return Err("--flushes must be 1 to 10000 flushes".into());
        }
        Ok(())
    }
}

/// Returns the spread of times in microseconds.
fn spread_us(ns: &[u64]) -> Option<Spread> {
    Spread::of(ns.iter().map(|ns| *ns as f64 / 1e3))
}

fn spread_text(us: Option<Spread>) -> String {
    us.map_or_else(String::new, |us| [us.min, us.median, us.max].map(human_us).join(" "))
}

/// A step over all families.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Step {
    /// Duration.
    pub seconds: f64,
    /// Processor time.
    pub cpu_seconds: f64,
}

/// Costs of a number of families.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FamiliesRow {
    /// Number of families.
    pub families: u64,
    /// Creation times of the first families.
    pub create_first_us: Option<Spread>,
    /// Creation times of the last families.
    pub create_last_us: Option<Spread>,
    /// Creation of all families.
    pub create: Step,
    /// Flush of one record per family.
    pub flush: Step,
    /// Checkpoint with another record per family.
    pub checkpoint: Step,
    /// Processor time of each flush of one family.
    pub one_flush_cpu_us: Option<Spread>,
    /// Duration of each flush of one family.
    pub one_flush_us: Option<Spread>,
    /// Close with a volatile record per family.
    pub close: Step,
    /// Reopen after the close.
    pub reopen: Step,
}

/// The report of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FamiliesReport {
    /// Rows by number of families.
    pub rows: Vec<FamiliesRow>,
    /// Ratio of the median processor time of a flush of one family, last row to first row.
    pub one_flush_cpu_ratio: f64,
    /// Description of the machine.
    pub machine: String,
    /// The options.
    pub options: FamiliesArgs,
}

fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Step)> {
    let (from_ns, cpu_ns) = (now_ns(), usage::process()?.cpu_ns);
    let done = work()?;
    let (to_ns, cpu_to_ns) = (now_ns(), usage::process()?.cpu_ns);
    let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9;
    Ok((done, Step { seconds: seconds(from_ns, to_ns), cpu_seconds: seconds(cpu_ns, cpu_to_ns) }))
}

fn put_all(families: &[Family], value: &[u8], options: &WriteOptions) -> Result<()> {
    families.iter().try_for_each(|family| Ok(family.writing(options).put("key", value)?))
}

fn create(db: &Db, num: u64) -> Result<(Vec<Family>, Vec<u64>)> {
    let (mut families, mut took_ns) = (Vec::new(), Vec::new());
    for nth in 0..num {
        let from_ns = now_ns();
        families.push(db.create_family(&format!("family-{nth:05}"), &FamilyOptions::default())?);
        took_ns.push(now_ns().saturating_sub(from_ns));
    }
    Ok((families, took_ns))
}

/// Puts and flushes one family repeatedly; returns processor times and durations.
fn flush_one(db: &Db, family: &Family, flushes: u64) -> Result<(Vec<u64>, Vec<u64>)> {
    let (mut cpu_ns, mut took_ns) = (Vec::new(), Vec::new());
    for nth in 0..flushes {
        family.put(format!("key-{nth}"), "value")?;
        let ((), step) = timed(|| Ok(db.flush()?))?;
        cpu_ns.push((step.cpu_seconds * 1e9) as u64);
        took_ns.push((step.seconds * 1e9) as u64);
    }
    Ok((cpu_ns, took_ns))
}

fn row(args: &FamiliesArgs, num: u64, dir: &Path) -> Result<FamiliesRow> {
    let (store, copy) = (dir.join("store"), dir.join("checkpoint"));
    let db = Db::open(&store)?;
    let ((families, took_ns), create) = timed(|| create(&db, num))?;
    let first = &took_ns[..CREATED.min(took_ns.len())];
    let last = &took_ns[took_ns.len().saturating_sub(CREATED)..];
    let (logged, volatile) = (WriteOptions::default(), WriteOptions::volatile());
    put_all(&families, b"first", &logged)?;
    let ((), flush) = timed(|| Ok(db.flush()?))?;
    put_all(&families, b"second", &logged)?;
    let ((), checkpoint) = timed(|| Ok(db.checkpoint(&copy)?))?;
    let (cpu_ns, one_ns) = flush_one(&db, &families[0], args.flushes)?;
    put_all(&families, b"third", &volatile)?;
    drop(families);
    let ((), close) = timed(|| Ok(db.close()?))?;
    let (db, reopen) = timed(|| Ok(Db::open(&store)?))?;
    let found = db.open_family(&format!("family-{:05}", num - 1))?.get("key")?;
    if found.as_deref() != Some(b"third") {
        return Err(
            "wrong answer: a record is missing or differs after the reopen; the run has no result: report it"
                .into(),
        );
    }
    db.close()?;
    Ok(FamiliesRow {
        families: num,
        create_first_us: spread_us(first),
        create_last_us: spread_us(last),
        create,
        flush,
        checkpoint,
        one_flush_cpu_us: spread_us(&cpu_ns),
        one_flush_us: spread_us(&one_ns),
        close,
        reopen,
    })
}

/// Makes a run; creates the stores below `dir` and removes them.
///
/// # Errors
/// Errors of the store.
pub fn run(args: &FamiliesArgs, dir: &Path) -> Result<FamiliesReport> {
    args.check()?;
    let mut rows = Vec::new();
    for num in &args.num {
        rows.push(alone(&dir.join(format!("families-{num}")), |dir| row(args, *num, dir))?);
    }
    let cpu_us =
        |row: Option<&FamiliesRow>| row.and_then(|row| row.one_flush_cpu_us).map_or(0.0, |us| us.median);
    let one_flush_cpu_ratio = cpu_us(rows.last()) / cpu_us(rows.first()).max(f64::MIN_POSITIVE);
    Ok(FamiliesReport { rows, one_flush_cpu_ratio, machine: host::machine(), options: args.clone() })
}

impl FamiliesReport {
    /// Formats the report as text.
    pub fn text(&self) -> String {
        let mut out = format!("One record in each family; {}\n", self.machine);
        for row in &self.rows {
            let _ = writeln!(out, "{}", counted(row.families, "family"));
            for (name, step) in [
                ("create", row.create),
                ("flush", row.flush),
                ("checkpoint", row.checkpoint),
                ("close", row.close),
                ("reopen", row.reopen),
            ] {
                let Step { seconds, cpu_seconds } = step;
                let _ = writeln!(out, "  {name:20} {seconds:8.3} s, processor {cpu_seconds:.3} s");
            }
            for (name, spread) in [
                ("create, first", row.create_first_us),
                ("create, last", row.create_last_us),
                ("flush of one", row.one_flush_us),
                ("  processor", row.one_flush_cpu_us),
            ] {
                let _ = writeln!(out, "  {name:20} {} (least, median, most)", spread_text(spread));
            }
        }
        let _ = writeln!(
            out,
            "processor time of a flush of one family, last over first: {:.2}",
            self.one_flush_cpu_ratio
        );
        out
    }
}
