//! The part of `bench log` after the appends: reads, and the reopen of the store.

use super::{LogArgs, LogEngine, LogOpener, LogReport, fill};
use crate::Result;
use crate::host::{self, now_ns, thread_read_calls};
use crate::record::LATENCY_MAX_NS;
use crate::report::{Latency, human_us};
use hdrhistogram::Histogram;
use io::Rng;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::Path;

/// Recent reads choose among this many newest records of a log.
const RECENT: u64 = 100;
/// Seed of the reads.
const SEED: u64 = 7;

/// The LSNs of each log.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ends(pub Vec<(u64, Range<u64>)>);

impl Ends {
    /// Writes them to a file.
    ///
    /// # Errors
    /// Errors of the file.
    #[allow(clippy::disallowed_methods, reason = "a file of the user's, beside no store")]
    pub fn write(&self, file: &Path) -> Result<()> {
        Ok(std::fs::write(file, serde_json::to_string(self)?)?)
    }

    fn read(file: &Path) -> Result<Ends> {
        Ok(serde_json::from_str(&std::fs::read_to_string(file)?)?)
    }

    /// Returns the non-empty logs.
    fn filled(&self) -> impl Iterator<Item = (u64, Range<u64>)> + '_ {
        self.0.iter().filter(|(_, lsns)| !lsns.is_empty()).cloned()
    }
}

/// Reads of one kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reads {
    /// `old`, `recent` or `scan`.
    pub kind: String,
    /// Number of records.
    pub records: u64,
    /// Records per second.
    pub per_s: f64,
    /// Latency of a read, or of the scan of a whole log.
    pub latency: Latency,
    /// Read system calls per record.
    pub read_calls_per_record: f64,
}

impl Reads {
    /// Formats the reads as text.
    pub fn text(&self) -> String {
        let Latency { p50_us, p99_us, .. } = self.latency;
        format!(
            "{:<29} {} records, {:.0}/s, P50 {}, P99 {}, {:.3} reads a record\n",
            format!("reads, {}", self.kind),
            self.records,
            self.per_s,
            human_us(p50_us),
            human_us(p99_us),
            self.read_calls_per_record,
        )
    }
}

/// Counts and times reads.
struct Timer {
    kind: &'static str,
    start_ns: u64,
    calls: u64,
    latency_ns: Histogram<u64>,
    records: u64,
}

impl Timer {
    fn new(kind: &'static str) -> Result<Timer> {
        let latency_ns = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3)?;
        Ok(Timer { kind, start_ns: now_ns(), calls: thread_read_calls(), latency_ns, records: 0 })
    }

    fn one<T>(&mut self, read: impl FnOnce() -> Result<T>) -> Result<T> {
        let begin_ns = now_ns();
        let out = read()?;
        self.latency_ns.saturating_record(now_ns() - begin_ns);
        Ok(out)
    }

    fn end(self) -> Reads {
        let calls = thread_read_calls().saturating_sub(self.calls) as f64;
        Reads {
            kind: self.kind.to_owned(),
            records: self.records,
            per_s: self.records as f64 * 1e9 / (now_ns() - self.start_ns).max(1) as f64,
            latency: Latency::of(&self.latency_ns),
            read_calls_per_record: calls / self.records.max(1) as f64,
        }
    }
}

/// Reads old and recent records at random, and scans logs with that number of records in total.
pub fn after(args: &LogArgs, engine: &dyn LogEngine, ends: &Ends) -> Result<Vec<Reads>> {
    let logs: Vec<(u64, Range<u64>)> = ends.filled().collect();
    if args.reads == 0 || logs.is_empty() {
        return Ok(Vec::new());
    }
    let mut rng = Rng::new(SEED);
    let mut reads = Vec::new();
    for kind in ["old", "recent"] {
        let mut timer = Timer::new(kind)?;
        let (mut found, mut expected) = (Vec::new(), vec![0; args.record_size]);
        for _ in 0..args.reads {
            let (log, lsns) = &logs[rng.below(logs.len() as u64) as usize];
            let len = lsns.end - lsns.start;
            let lsn = match kind {
                "old" => lsns.start + rng.below(len.div_ceil(2)),
                _ => lsns.end - 1 - rng.below(len.min(RECENT)),
            };
            let is_there = timer.one(|| engine.read(*log, lsn, &mut found))?;
            timer.records += 1;
            fill(*log, lsn, &mut expected);
            if !is_there || found != expected {
                return Err(format!(
                    "wrong answer: record {lsn} of log {log} has other bytes than were appended; the run has no result: report it"
                )
                .into());
            }
        }
        reads.push(timer.end());
    }
    let mut timer = Timer::new("scan")?;
    for (log, lsns) in &logs {
        let Some(count) = timer.one(|| engine.scan(*log))? else { return Ok(reads) };
        if count != lsns.end - lsns.start {
            let len = lsns.end - lsns.start;
            return Err(format!("wrong answer: a scan of log {log} returned {count} of {len} records; the run has no result: report it").into());
        }
        timer.records += count;
        if timer.records >= args.reads {
            break;
        }
    }
    reads.push(timer.end());
    Ok(reads)
}

/// Opens the store again and checks the end of every log; returns the time of the open in
/// milliseconds.
pub fn reopened(args: &LogArgs, opener: &dyn LogOpener, dir: &Path, ends: &Ends) -> Result<f64> {
    let start_ns = now_ns();
    let engine = opener.open(dir, args.logs)?;
    let took_ns = now_ns() - start_ns;
    check(args, &*engine, ends)?;
    engine.close()?;
    Ok(took_ns as f64 / 1e6)
}

fn check(args: &LogArgs, engine: &dyn LogEngine, ends: &Ends) -> Result<()> {
    let (mut found, mut expected) = (Vec::new(), vec![0; args.record_size]);
    for (log, lsns) in ends.filled() {
        let last = lsns.end - 1;
        fill(log, last, &mut expected);
        if !engine.read(log, last, &mut found)? || found != expected {
            return Err(format!(
                "wrong answer: record {last} of log {log} is missing or differs after the reopen; the run has no result: report it"
            )
            .into());
        }
    }
    Ok(())
}

/// Opens the store of a killed process, and reads from it.
pub fn recovered(args: &LogArgs, opener: &dyn LogOpener, dir: &Path, file: &Path) -> Result<LogReport> {
    let ends = Ends::read(file)?;
    let start_ns = now_ns();
    let engine = opener.open(dir, args.logs)?;
    let took_ns = now_ns() - start_ns;
    check(args, &*engine, &ends)?;
    let reads = after(args, &*engine, &ends)?;
    let report = LogReport {
        engine: opener.name(),
        options: args.clone(),
        recovery_ms: Some(took_ns as f64 / 1e6),
        reads,
        checked: ends.filled().count() as u64,
        rss_peak_bytes: host::process_counters().rss_peak_bytes,
        machine: host::machine(),
        engine_settings: engine.settings().into_iter().collect(),
        engine_stats: engine.stats().into_iter().collect(),
        ..LogReport::default()
    };
    engine.close()?;
    Ok(report)
}
