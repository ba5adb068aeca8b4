//! `bench log`: durable appends to many logs by several writers, with trims.
//!
//! Each writer owns some logs (log `n` belongs to writer `n` modulo writers), so that LSNs need no
//! lock in the benchmark. It appends to them in turn. An out-of-order record is skipped and
//! appended after its successor, as by page servers. An engine that accepts only consecutive
//! numbers ([`LogEngine::takes_gaps`]) gets them in order, which the report says. A log longer than
//! its target ([`LogArgs::keep`]) by half is trimmed to the target. The bytes of trims count for
//! the engine.
//!
//! The latency is that of a durable append; trims are excluded. Device bytes come from the device's
//! counter, from the first append of the measured part until shortly after the last one: so no
//! other program should use the device. Writes before that, while the logs grow to their target,
//! are reported separately (`growth_*`).
//!
//! In-place writes in the same place are measured just before and after ([`LogArgs::in_place`]):
//! they bound the rate of a log with one writer that waits for each record.
//!
//! After the run a sample of the remaining records is read and checked, and trimmed ones must be
//! gone. Then the store is reopened (`recovery_ms`), and the ends of all logs are checked.

mod beside;
pub mod keyed;
pub mod lavalog;
mod reads;

use crate::Result;
use crate::fs::{FsArgs, Ground, Operation, Sync as SyncAfter};
use crate::host::{self, now_ns};
use crate::record::{Merged, Recorder, SLOT_NS, merge};
use crate::report::{Latency, human_bytes, human_us};
use beside::Beside;
use clap::{Args, ValueEnum};
use io::{Env, PAGE, Rng};
use reads::{Ends, Reads};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Seed of out-of-order records.
const SEED: u64 = 1;
/// Size of the file for in-place writes in bytes.
const IN_PLACE_FILE: u64 = 32 << 20;
/// Maximum number of concurrent appends of a writer.
const IN_FLIGHT_MAX: u64 = 4096;
/// Number of records of each log read after the run.
const CHECKED_MAX: u64 = 4;

/// Options of `bench log`.
#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
pub struct LogArgs {
    /// Number of logs, at least --writers. Each has an equal share of --keep, so that more logs are
    /// shorter
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub logs: u64,
    /// Number of appending threads, 1 to --logs, each with its own logs. More of them share a
    /// device write, which raises the rate of durable appends
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub writers: u64,
    /// Number of records that each writer appends concurrently, at most 4096 (0 counts as 1),
    /// before it waits until all are durable. More share a device write. At most 1 with --put-size
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[serde(default)]
    pub in_flight: u64,
    /// Size of a record in bytes: a plain number, 16 to 1048576. Larger records give more bytes and
    /// fewer records per second
    #[arg(long, value_name = "BYTES", default_value_t = 1000)]
    pub record_size: usize,
    /// Share of records that arrive after their successor, 0 to 0.5. An engine that accepts only
    /// consecutive LSNs gets them in order, as the report says
    #[arg(long, value_name = "RATIO", default_value_t = 0.01)]
    pub out_of_order: f64,
    /// Duration of the measured part in seconds, above 0, fractions allowed. The warm-up
    /// (--warmup-seconds) comes before it. No effect with --recover
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    pub seconds: f64,
    /// Total bytes to keep in all logs, in equal shares of at least 16 records; older records are
    /// trimmed. A plain number of bytes, without a suffix. More takes more disk space (up to 1.5
    /// times the amount) and a longer warm-up
    #[arg(long, value_name = "BYTES", default_value_t = 512 << 20)]
    pub keep: u64,
    /// Seconds of appends before the measured part; 0: none. After a short warm-up the logs still
    /// grow while they are measured [default: until the logs reach their length of --keep, at most
    /// 60]
    #[arg(long, value_name = "S")]
    pub warmup_seconds: Option<f64>,
    /// Number of reference writes of 4 KiB in place, each data-synced, before and after the run; 0:
    /// none. They show the rate of the device for one writer, and need a file of 32 MiB for the
    /// time
    #[arg(long, value_name = "N", default_value_t = 2000)]
    pub in_place: u64,
    /// Number of threads that follow the logs during the appends and compare the records, at most
    /// --logs; 0: none. They take processor time from the writers. Not with an engine that cannot
    /// follow logs (lavakv)
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[serde(default)]
    pub tail_readers: u64,
    /// Number of logs that are never trimmed, the first ones; 0: none. They grow during the whole
    /// run, beyond --keep
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[serde(default)]
    pub never_trimmed: u64,
    /// LavaLog: size of a log group (a file of the write-ahead log) in bytes: a plain number,
    /// 262144 to 4 GiB. The steady state needs several reused ones [default: 256 MiB; with
    /// --space-limit at most a 24th of it]
    #[arg(long, value_name = "BYTES")]
    #[serde(default)]
    pub group_bytes: Option<u64>,
    /// LavaLog: space limit of the store in bytes: a plain number. At the limit appends wait or
    /// fail with `NoSpace`; a limit that holds too few log groups is refused. Not with --put-size
    /// [default: none]
    #[arg(long, value_name = "BYTES")]
    #[serde(default)]
    pub space_limit: Option<u64>,
    /// LavaLog: size in bytes of a value put with each record in one batch; 0: the store has keys,
    /// but none are put. It shows the cost of keys beside logs. Not with --space-limit, or
    /// --in-flight above 1 [default: no keys]
    #[arg(long, value_name = "BYTES", conflicts_with = "space_limit")]
    #[serde(default)]
    pub put_size: Option<usize>,
    /// Number of records read at random after the run: first from the older half of the logs, then
    /// from the newest 100 of each. About as many are then scanned. Each result is checked. 0: no
    /// such reads
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[serde(default)]
    pub reads: u64,
    /// Leave the store as if the process was killed, and write the expected contents to FILE, for
    /// --recover. Name the directory with --db, since others are removed. Not with --recover
    #[arg(long, value_name = "FILE", conflicts_with = "recover")]
    #[serde(default)]
    pub crash: Option<PathBuf>,
    /// Append nothing: open such a store in --db, time the open, and compare the last record of
    /// each log with FILE. Give the same --logs and --record-size as with --crash. Not with --crash
    #[arg(long, value_name = "FILE")]
    #[serde(default)]
    pub recover: Option<PathBuf>,
}

impl LogArgs {
    /// # Errors
    /// The first invalid option.
    pub fn check(&self) -> Result<()> {
        let complaint = if self.writers == 0 || self.logs < self.writers {
            "--writers must be at least 1 thread, and --logs at least --writers"
        } else if self.record_size < 16 || self.record_size > 1 << 20 {
            "--record-size must be 16 to 1048576 bytes"
        } else if self.in_flight > IN_FLIGHT_MAX || self.in_flight > 1 && self.put_size.is_some() {
            "--in-flight must be at most 4096 records, and at most 1 with --put-size"
        } else if !(0.0..=0.5).contains(&self.out_of_order) {
            "--out-of-order must be a ratio from 0 to 0.5"
        } else if self.tail_readers > self.logs {
            "--tail-readers must be at most --logs: each reader needs at least one log"
        } else if !(self.seconds > 0.0 && self.seconds.is_finite()) {
            "--seconds must be above 0 seconds"
        } else {
            return Ok(());
        };
        Err(complaint.into())
    }

    /// Returns the number of records that a log keeps.
    fn keep_records(&self) -> u64 {
        (self.keep / self.logs / self.record_size as u64).max(16)
    }

    fn warmup_ns(&self) -> u64 {
        (self.warmup_seconds.unwrap_or(60.0) * 1e9) as u64
    }
}

/// A record to append.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Number of its log.
    pub log: u64,
    /// Its LSN.
    pub lsn: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// A measured store of logs.
pub trait LogEngine: Sync {
    /// Appends a record durably.
    ///
    /// # Errors
    /// Errors of the engine.
    fn append(&self, log: u64, lsn: u64, record: &[u8]) -> Result<()>;
    /// Appends several records durably, with the engine's best method for one thread.
    ///
    /// # Errors
    /// Errors of the engine.
    fn append_all(&self, records: &[Record]) -> Result<()> {
        records.iter().try_for_each(|record| self.append(record.log, record.lsn, &record.bytes))
    }
    /// Removes all records below an LSN.
    ///
    /// # Errors
    /// Errors of the engine.
    fn trim(&self, log: u64, below: u64) -> Result<()>;
    /// Reads a record; returns false if it does not exist.
    ///
    /// # Errors
    /// Errors of the engine.
    fn read(&self, log: u64, lsn: u64, out: &mut Vec<u8>) -> Result<bool>;
    /// Returns true if a record may arrive after its successor.
    fn takes_gaps(&self) -> bool;
    /// Follows a log from its end; `None` if not supported.
    ///
    /// # Errors
    /// Errors of the engine.
    fn follow(&self, _log: u64) -> Result<Option<Box<dyn Follow + '_>>> {
        Ok(None)
    }
    /// Scans a log; returns its number of records, or `None` if not supported.
    ///
    /// # Errors
    /// Errors of the engine.
    fn scan(&self, _log: u64) -> Result<Option<u64>> {
        Ok(None)
    }
    /// Returns the engine's settings.
    fn settings(&self) -> Vec<(String, String)>;
    /// Returns the engine's counters.
    fn stats(&self) -> Vec<(String, Value)>;
    /// Closes the store.
    ///
    /// # Errors
    /// Errors of the engine.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Follows the records of a log.
pub trait Follow: Send {
    /// Returns the next record, and waits for it at most `patience`.
    ///
    /// # Errors
    /// Errors of the engine.
    fn next(&mut self, patience: Duration) -> Result<Option<(u64, Vec<u8>)>>;
}

/// Place of stores of logs.
#[derive(Clone, Debug)]
pub struct LogSite {
    /// Environment of the files.
    pub env: Env,
    /// The device or image, if it is not that of the directory.
    pub device: Option<PathBuf>,
}

impl LogSite {
    /// Returns the machine's file systems.
    pub fn machine() -> LogSite {
        LogSite { env: Env::kernel(), device: None }
    }
}

/// Opens stores of logs.
pub trait LogOpener {
    /// Returns engine and version.
    fn name(&self) -> String;
    /// Opens or creates a store with logs from 0 to `logs`.
    ///
    /// # Errors
    /// Errors of the engine.
    fn open(&self, dir: &Path, logs: u64) -> Result<Box<dyn LogEngine>>;
    /// Returns the place of the stores.
    fn site(&self) -> LogSite {
        LogSite::machine()
    }
}

/// Engines of this project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OwnEngine {
    /// LavaLog: the store of logs.
    Lavalog,
    /// LavaKV with a key per record, for comparison.
    Lavakv,
}

impl OwnEngine {
    /// Returns the opener of its stores.
    pub fn opener(self, site: LogSite, args: &LogArgs) -> Box<dyn LogOpener> {
        match self {
            OwnEngine::Lavalog => Box::new(lavalog::LavaLog { site, args: args.clone() }),
            OwnEngine::Lavakv => Box::new(keyed::Keyed { site }),
        }
    }
}

/// The report of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LogReport {
    /// Engine and version.
    pub engine: String,
    /// Options of the run.
    pub options: LogArgs,
    /// Actual share of records that arrived after their successor.
    pub out_of_order: f64,
    /// Appends in the measured part.
    pub appends: u64,
    /// Duration of the measured part.
    pub seconds: f64,
    /// Durable appends per second of all writers.
    pub appends_per_s: f64,
    /// Latency of a durable append.
    pub latency: Latency,
    /// Data-synced in-place writes of 4 KiB per second by one thread, before and after.
    pub in_place_writes_per_s: Option<(f64, f64)>,
    /// Appends per second over the mean of these.
    pub appends_per_in_place_write: Option<f64>,
    /// Bytes of records.
    pub user_bytes: u64,
    /// Bytes written by the device; `None` without a counter.
    pub device_bytes_written: Option<u64>,
    /// The same per byte of records.
    pub device_bytes_per_user_byte: Option<f64>,
    /// The same while the logs grew to their target.
    pub growth_device_bytes_per_user_byte: Option<f64>,
    /// Bytes of records of that part.
    pub growth_user_bytes: u64,
    /// Logical block size of the device in bytes, if known.
    pub block_size: Option<u64>,
    /// Windows of 100 ms in which an append waited and none completed.
    pub stall_windows_100ms: u64,
    /// Longest time without a completed append, milliseconds.
    pub longest_without_progress_ms: u64,
    /// Index memory over the bytes of the logs, if the engine reports it.
    pub index_bytes_ratio: Option<f64>,
    /// Appends per log write, if the engine counts them.
    pub records_per_device_write: Option<f64>,
    /// Time to open the store again in milliseconds; `None` if it was left open.
    pub recovery_ms: Option<f64>,
    /// Records per second received by readers that follow the logs.
    pub followed_per_s: Option<f64>,
    /// Maximum size of the files in bytes.
    pub bytes_max: u64,
    /// Reads after the run.
    pub reads: Vec<Reads>,
    /// Records read and compared after the run.
    pub checked: u64,
    /// CPU time, seconds.
    pub cpu_seconds: f64,
    /// Peak resident memory.
    pub rss_peak_bytes: u64,
    /// Cores, memory, kernel.
    pub machine: String,
    /// Settings of the engine.
    pub engine_settings: BTreeMap<String, String>,
    /// Counters of the engine at the end.
    pub engine_stats: BTreeMap<String, Value>,
}

impl LogReport {
    /// Formats the report as text.
    pub fn text(&self) -> String {
        let times = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{x:.3}"));
        let block = self.block_size.map_or("unknown".to_owned(), human_bytes);
        let Latency { p50_us, p99_us, p999_us, max_us, .. } = self.latency;
        let LogArgs { logs, writers, record_size, in_flight, .. } = self.options;
        format!(
            "engine                        {}\n\
             logs, writers, record         {logs}, {writers} ({} at once), {record_size} B, {:.1} % out of order\n\
             durable appends               {:.0}/s\n\
             P50, P99, P99.9, max          {}, {}, {}, {}\n\
             over writes in place          {}\n\
             device bytes per user byte    {} (while growing {}), blocks of {block}\n\
             appends per write of the log  {}\n\
             longest pause                 {} ms, {} windows of 100 ms without progress\n\
             index over log bytes          {}\n\
             opened again in               {}; {} records checked\n\
             most space                    {}\n\
             followed                      {}\n{}",
            self.engine,
            in_flight.max(1),
            self.out_of_order * 100.0,
            self.appends_per_s,
            human_us(p50_us),
            human_us(p99_us),
            human_us(p999_us),
            human_us(max_us),
            times(self.appends_per_in_place_write),
            times(self.device_bytes_per_user_byte),
            times(self.growth_device_bytes_per_user_byte),
            times(self.records_per_device_write),
            self.longest_without_progress_ms,
            self.stall_windows_100ms,
            self.index_bytes_ratio.map_or("-".to_owned(), |x| format!("{:.4} %", x * 100.0)),
            self.recovery_ms.map_or("-".to_owned(), |ms| format!("{ms:.0} ms")),
            self.checked,
            human_bytes(self.bytes_max),
            self.followed_per_s.map_or("-".to_owned(), |n| format!("{n:.0} records/s")),
            self.reads.iter().map(Reads::text).collect::<String>(),
        )
    }
}

/// Fills a record with bytes that identify it.
pub fn fill(log: u64, lsn: u64, record: &mut [u8]) {
    let mut rng = Rng::new(log << 40 ^ lsn);
    let (head, rest) = record.split_at_mut(16);
    head[..8].copy_from_slice(&log.to_le_bytes());
    head[8..].copy_from_slice(&lsn.to_le_bytes());
    for piece in rest.chunks_mut(8) {
        piece.copy_from_slice(&rng.next_u64().to_le_bytes()[..piece.len()]);
    }
}

/// A log of a writer.
struct OneLog {
    number: u64,
    /// The next LSN.
    next: u64,
    /// Skipped record, to be appended later.
    hole: Option<u64>,
    /// Lowest LSN that is not trimmed.
    first: u64,
}

/// A writer with its logs.
struct LogWriter<'a> {
    engine: &'a dyn LogEngine,
    args: &'a LogArgs,
    logs: Vec<OneLog>,
    rng: Rng,
    /// Records appended concurrently.
    records: Vec<Record>,
    late: u64,
}

impl LogWriter<'_> {
    fn new<'a>(engine: &'a dyn LogEngine, args: &'a LogArgs, writer: u64) -> LogWriter<'a> {
        let own = (writer..args.logs).step_by(args.writers as usize);
        let logs = own.map(|number| OneLog { number, next: 1, hole: None, first: 1 }).collect();
        let rng = Rng::new(SEED + writer);
        let record = Record { bytes: vec![0; args.record_size], ..Record::default() };
        let records = vec![record; args.in_flight.max(1) as usize];
        LogWriter { engine, args, logs, rng, records, late: 0 }
    }

    /// Appends until `end_ns`, or with `until_long` until every log has its target length.
    fn run(&mut self, end_ns: u64, until_long: bool, stop: &AtomicBool, start_ns: u64) -> Result<Recorder> {
        let mut record = Recorder::new(start_ns);
        let keep = self.args.keep_records();
        while !stop.load(Ordering::Relaxed) && now_ns() < end_ns {
            for at in (0..self.logs.len()).step_by(self.records.len()) {
                self.some(at, &mut record)?;
                if now_ns() >= end_ns {
                    break;
                }
            }
            if until_long && self.logs.iter().all(|log| log.next > keep) {
                break;
            }
        }
        Ok(record)
    }

    /// Chooses the next record of a log.
    fn next(&mut self, at: usize) -> (u64, u64) {
        let gaps = self.engine.takes_gaps();
        let log = &mut self.logs[at];
        if let Some(hole) = log.hole.take() {
            self.late += 1;
            return (log.number, hole);
        }
        if gaps && self.args.out_of_order > 0.0 && self.rng.unit() < self.args.out_of_order {
            log.hole = Some(log.next);
            log.next += 1;
        }
        log.next += 1;
        (log.number, log.next - 1)
    }

    /// Appends one record each to this log and the following ones.
    fn some(&mut self, from: usize, recorder: &mut Recorder) -> Result<()> {
        let ats = (from..from + self.records.len()).map(|at| at % self.logs.len()).collect::<Vec<_>>();
        for (i, at) in ats.iter().enumerate() {
            let (log, lsn) = self.next(*at);
            let record = &mut self.records[i];
            (record.log, record.lsn) = (log, lsn);
            fill(log, lsn, &mut record.bytes);
        }
        let begin_ns = now_ns();
        match &self.records[..] {
            [Record { log, lsn, bytes }] => self.engine.append(*log, *lsn, bytes)?,
            records => self.engine.append_all(records)?,
        }
        let count = ats.len() as u64;
        recorder.complete(begin_ns, now_ns(), count, count * self.args.record_size as u64);
        ats.into_iter().try_for_each(|at| self.trim(at))
    }

    fn trim(&mut self, at: usize) -> Result<()> {
        let keep = self.args.keep_records();
        let log = &mut self.logs[at];
        let is_trimmed = log.number >= self.args.never_trimmed;
        if is_trimmed && log.next - log.first > keep + keep / 2 && log.hole.is_none() {
            log.first = log.next - keep;
            self.engine.trim(log.number, log.first)?;
        }
        Ok(())
    }

    /// Appends the skipped records, and checks a sample of the logs.
    fn check(&mut self) -> Result<u64> {
        let mut checked = 0;
        let (mut found, mut expected) = (Vec::new(), vec![0; self.args.record_size]);
        for at in 0..self.logs.len() {
            if self.logs[at].hole.is_some() {
                let (log, lsn) = self.next(at);
                fill(log, lsn, &mut expected);
                self.engine.append(log, lsn, &expected)?;
            }
            let OneLog { number, next, first, .. } = self.logs[at];
            let each = ((next - first) / CHECKED_MAX).max(1);
            for lsn in (first..next).step_by(each as usize) {
                if !self.engine.read(number, lsn, &mut found)? {
                    return Err(format!("wrong answer: record {lsn} of log {number} is missing; the run has no result: report it").into());
                }
                fill(number, lsn, &mut expected);
                if found != expected {
                    return Err(format!(
                        "wrong answer: record {lsn} of log {number} has other bytes than were appended; the run has no result: report it"
                    )
                    .into());
                }
                checked += 1;
            }
            if first > 1 && self.engine.read(number, first - 1, &mut found)? {
                return Err(format!(
                    "wrong answer: record {} of log {number} is readable after its trim; the run has no result: report it",
                    first - 1
                )
                .into());
            }
        }
        Ok(checked)
    }
}

/// Runs a part: all writers until a time, and the concurrent observers.
fn part(
    writers: &mut [LogWriter<'_>],
    seconds_ns: u64,
    until_long: bool,
    beside: impl Fn(&AtomicBool) -> Result<()> + Sync,
) -> Result<(Merged, f64)> {
    let (start_ns, stop) = (now_ns(), AtomicBool::new(false));
    let end_ns = start_ns.saturating_add(seconds_ns);
    let (stop, done) = (&stop, &AtomicBool::new(false));
    let (records, seconds, beside) = std::thread::scope(|scope| {
        let beside = scope.spawn(|| beside(done));
        let run = |writer| -> std::thread::ScopedJoinHandle<'_, Result<Recorder>> {
            let writer: &mut LogWriter<'_> = writer;
            scope.spawn(move || {
                let outcome = writer.run(end_ns, until_long, stop, start_ns);
                outcome.inspect_err(|_| stop.store(true, Ordering::Relaxed))
            })
        };
        let threads: Vec<_> = writers.iter_mut().map(run).collect();
        let records: Vec<Result<Recorder>> = threads.into_iter().map(join).collect();
        let seconds = (now_ns() - start_ns) as f64 / 1e9;
        done.store(true, Ordering::Relaxed);
        (records, seconds, join(beside))
    });
    beside?;
    let records = records.into_iter().collect::<Result<Vec<_>>>()?;
    Ok((merge(&records), seconds))
}

fn join<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| {
        Err("a thread of the benchmark panicked, so the run has no result: report it".into())
    })
}

/// Runs the followers and the space sampler until `stop`.
fn watch(
    seen: &Beside,
    engine: &dyn LogEngine,
    args: &LogArgs,
    (site, dir): (&LogSite, &Path),
    stop: &AtomicBool,
) -> Result<()> {
    std::thread::scope(|scope| {
        let follow = |reader| scope.spawn(move || seen.follow(engine, args, reader, stop));
        let readers: Vec<_> = (0..args.tail_readers).map(follow).collect();
        seen.watch(site, dir, stop);
        readers.into_iter().try_for_each(join)
    })
}

/// Measurements of the appends.
struct LogMeasurements {
    growth: Merged,
    merged: Merged,
    seconds: f64,
    /// Bytes written by the device before the first append, before the measured part, and after it.
    written: [Option<u64>; 3],
    cpu_seconds: f64,
    late: u64,
}

impl LogMeasurements {
    /// Returns the device writes between two of these moments per byte of records.
    fn ratio(&self, from: usize, records: &Merged) -> Option<f64> {
        let bytes = self.written[from + 1]?.saturating_sub(self.written[from]?);
        Some(bytes as f64 / records.bytes.max(1) as f64)
    }
}

/// Appends until the logs have their target length, then runs the measured part.
fn measure(
    args: &LogArgs,
    (site, dir): (&LogSite, &Path),
    engine: &dyn LogEngine,
    writers: &mut [LogWriter<'_>],
    seen: &Beside,
) -> Result<LogMeasurements> {
    let counted = site.device.clone().unwrap_or_else(|| dir.to_owned());
    let written = || host::device_counters(&counted).map(|device| device.write_bytes);
    let start = written();
    let space_only = |stop: &AtomicBool| -> Result<()> {
        seen.watch(site, dir, stop);
        Ok(())
    };
    let (growth, _) = part(writers, args.warmup_ns(), args.warmup_seconds.is_none(), space_only)?;
    let grown = written();
    let cpu_ns = host::process_counters().cpu_ns;
    writers.iter_mut().for_each(|writer| writer.late = 0);
    let all = |stop: &AtomicBool| watch(seen, engine, args, (site, dir), stop);
    let (merged, seconds) = part(writers, (args.seconds * 1e9) as u64, false, all)?;
    let written = [start, grown, written()];
    let cpu_seconds = (host::process_counters().cpu_ns - cpu_ns) as f64 / 1e9;
    let late = writers.iter().map(|writer| writer.late).sum();
    Ok(LogMeasurements { growth, merged, seconds, written, cpu_seconds, late })
}

/// Runs the benchmark in a store in `dir`.
///
/// # Errors
/// Errors of the engine; wrong results.
pub fn run(args: &LogArgs, opener: &dyn LogOpener, dir: &Path) -> Result<LogReport> {
    args.check()?;
    let site = opener.site();
    if let Some(file) = &args.recover {
        return reads::recovered(args, opener, dir, file);
    }
    let in_place_before = in_place(args, &site, dir)?;
    let engine = opener.open(dir, args.logs)?;
    let mut writers: Vec<LogWriter<'_>> =
        (0..args.writers).map(|writer| LogWriter::new(&*engine, args, writer)).collect();
    let seen = Beside::default();
    let measured = measure(args, (&site, dir), &*engine, &mut writers, &seen)?;
    let checked = writers.iter_mut().map(LogWriter::check).sum::<Result<u64>>()?;
    let spans = writers.iter().flat_map(|w| w.logs.iter().map(|log| (log.number, log.first..log.next)));
    let ends = Ends(spans.collect());
    let reads = reads::after(args, &*engine, &ends)?;
    let engine_stats = engine.stats().into_iter().collect();
    let engine_settings = engine.settings().into_iter().collect();
    drop(writers);
    let recovery_ms = match &args.crash {
        Some(file) => {
            ends.write(file)?;
            // The process exits without a close.
            std::mem::forget(engine);
            None
        }
        None => {
            engine.close()?;
            Some(reads::reopened(args, opener, dir, &ends)?)
        }
    };
    let in_place_writes_per_s = in_place_before.zip(in_place(args, &site, dir)?);
    let followed_per_s = seen.followed.load(Ordering::Relaxed) as f64 / measured.seconds;
    Ok(LogReport {
        engine: opener.name(),
        options: args.clone(),
        in_place_writes_per_s,
        block_size: host::block_size(site.device.as_deref().unwrap_or(dir)),
        recovery_ms,
        followed_per_s: (args.tail_readers > 0).then_some(followed_per_s),
        bytes_max: seen.bytes_max.load(Ordering::Relaxed),
        reads,
        checked,
        rss_peak_bytes: host::process_counters().rss_peak_bytes,
        machine: host::machine(),
        engine_settings,
        engine_stats,
        ..LogReport::default()
    }
    .of(&measured))
}

impl LogReport {
    /// Adds the measurements.
    fn of(self, measured: &LogMeasurements) -> LogReport {
        let LogMeasurements { growth, merged, seconds, written, .. } = measured;
        let appends_per_s = merged.ops as f64 / seconds;
        let stat = |name: &str| self.engine_stats.get(name).and_then(Value::as_f64);
        let index_bytes_ratio = stat("index_bytes").zip(stat("record_bytes")).map(|(a, b)| a / b.max(1.0));
        let all = (growth.ops + merged.ops) as f64;
        let records_per_device_write = stat("log_writes").map(|writes| all / writes.max(1.0));
        LogReport {
            out_of_order: measured.late as f64 / merged.ops.max(1) as f64,
            appends: merged.ops,
            seconds: *seconds,
            appends_per_s,
            latency: Latency::of(&merged.latency_ns),
            appends_per_in_place_write: self
                .in_place_writes_per_s
                .map(|(a, b)| appends_per_s * 2.0 / (a + b)),
            user_bytes: merged.bytes,
            device_bytes_written: written[1].zip(written[2]).map(|(from, to)| to.saturating_sub(from)),
            device_bytes_per_user_byte: measured.ratio(1, merged),
            growth_device_bytes_per_user_byte: measured.ratio(0, growth),
            growth_user_bytes: growth.bytes,
            stall_windows_100ms: merged.stalls.windows,
            longest_without_progress_ms: merged.stalls.longest_slots * SLOT_NS / 1_000_000,
            index_bytes_ratio,
            records_per_device_write,
            cpu_seconds: measured.cpu_seconds,
            ..self
        }
    }
}

/// Measures data-synced in-place writes of a page per second, in a file next to the store.
fn in_place(args: &LogArgs, site: &LogSite, dir: &Path) -> Result<Option<f64>> {
    if args.in_place == 0 {
        return Ok(None);
    }
    let writes = FsArgs {
        op: Operation::InPlace,
        io_size: PAGE,
        sync: SyncAfter::Fdatasync,
        threads: 1,
        ops: Some(args.in_place),
        buffered: false,
        files: 0,
        compact: false,
    };
    let ground = Ground::Directory { env: &site.env, dir, volume: None };
    let counted = site.device.as_deref().unwrap_or(dir);
    Ok(Some(crate::fs::run(&ground, counted, &writes, IN_PLACE_FILE)?.ops_per_second))
}

#[cfg(test)]
mod tests;
