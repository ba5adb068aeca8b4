//! `bench recovery`: time to open a store whose process was killed with a long log.
//!
//! 1. **Fill**, in a separate process: several threads put unique keys in random order without
//!    syncs. The last batch is durable, and so are all earlier ones. By default memory is large
//!    enough that no flush is needed, so the data is in the log. The process reports the end and is
//!    killed: no engine can close its files.
//! 2. **Forget**: the files are synced and dropped from the page cache (unless `--warm`). So the
//!    open reads the log from the device, with the engine's access method.
//! 3. **Open**, the timed part: until the engine serves requests. Its reads, writes, processor time
//!    and memory are counted; the process has done nothing else before.
//! 4. **Check**: every key is read, and its value verified.
//!
//! The rate is the bytes of keys and values over the time of the open. If some data was in tables
//! before the kill, the log is shorter; the bytes of logs and tables before and after show that.

mod report;
#[cfg(test)]
mod tests;

pub use report::RecoveryReport;

use crate::Result;
use crate::engine::{Batch, Engine, EngineSettings, LEVEL_BASE_MEMTABLES, Opener};
use crate::host::{self, ProcessCounters, StopOnDrop, now_ns, wait_until};
use crate::keys::Keys;
use crate::report::human_bytes;
use crate::space::Space;
use crate::values::{ValueSizes, Values};
use clap::Args;
use io::Rng;
use lavastore::PolicyChoice;
use lavastore::testing::Ablation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum memtable size of any compared engine.
const MEMTABLE_LEN_MAX: u64 = 4 << 30;
/// Compressible share of each value.
const COMPRESSIBLE: f64 = 0.5;
/// Sampling interval of the number of threads.
const LOOK_NS: u64 = 5_000_000;
/// Size of tables, value files and the cache in bytes.
const FILE_LEN: u64 = 64 << 20;

/// Options of `bench recovery`.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct RecoveryArgs {
    /// Bytes of keys and values written to the log: a plain number, above 0. The open must read
    /// about as many, so that its time grows with them; keep it below --memory
    #[arg(long, value_name = "BYTES", default_value_t = 1_000_000_000)]
    pub log_size: u64,
    /// Length of a value in bytes: a plain number, 8 to 1048576; keys have 24. Shorter values mean
    /// more records for the same --log-size
    #[arg(long, value_name = "BYTES", default_value_t = 1000)]
    pub value_size: u64,
    /// Number of column families, 1 to 1000, with equal numbers of keys. They share --memory
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub families: u64,
    /// Number of threads that fill the store, 1 to 1024. No effect on the open, which is measured
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub threads: u64,
    /// Number of puts per batch, 1 to 65536, all to one column family. Larger batches fill the
    /// store faster
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub batch: u64,
    /// Memory for memtables in bytes, for the fill and the open: a plain number; at least 65536 per
    /// column family. With less than --log-size the store flushes, and the log gets shorter
    #[arg(long, value_name = "BYTES", default_value_t = 6_000_000_000)]
    pub memory: u64,
    /// Minimum length in bytes of values that are separated from keys, in engines that support it;
    /// 0: none, LavaStore: otherwise 32 to 16777216. It matters only for data that is flushed
    #[arg(long, value_name = "BYTES", default_value_t = 512)]
    pub min_blob_size: u64,
    /// Number of background threads of the store; LavaStore: 1 to 64. At the open as many threads,
    /// but at most three, insert the records of the log
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub background_threads: u64,
    /// Use the page cache of the system for data instead of direct I/O
    #[arg(long)]
    pub buffered_io: bool,
    /// Keep the files in the page cache before the open, so that it may read from memory. Without
    /// it the open reads from the device
    #[arg(long)]
    pub warm: bool,
    /// Seed of keys and values, any number below 2^64: the same seed gives the same data
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl RecoveryArgs {
    /// # Errors
    /// The first invalid option.
    pub fn check(&self) -> Result<()> {
        let complaint = if self.value_size < 8 || self.value_size > 1 << 20 {
            "--value-size must be 8 to 1048576 bytes"
        } else if self.families == 0 || self.families > 1000 || self.threads == 0 || self.threads > 1024 {
            "--families must be 1 to 1000 column families, --threads 1 to 1024 writing threads"
        } else if self.batch == 0 || self.batch > 1 << 16 {
            "--batch must be 1 to 65536 puts"
        } else if self.log_size == 0 || self.memory / self.families < 1 << 16 {
            "--log-size must be above 0 bytes, --memory at least 65536 bytes for each column family"
        } else {
            return Ok(());
        };
        Err(complaint.into())
    }

    /// Returns the number of written keys.
    pub fn records(&self) -> u64 {
        self.log_size.div_ceil(self.value_size + KEY_LEN as u64)
    }

    /// Returns the common settings of all engines.
    pub fn settings(&self) -> EngineSettings {
        let memtable_bytes = (self.memory / self.families).min(MEMTABLE_LEN_MAX);
        EngineSettings {
            volatile: false,
            sync: true,
            cache_bytes: FILE_LEN,
            memtable_bytes,
            file_bytes: FILE_LEN.min(memtable_bytes),
            level_base_bytes: memtable_bytes * LEVEL_BASE_MEMTABLES,
            level_multiplier: None,
            min_blob_size: self.min_blob_size,
            blob_file_bytes: FILE_LEN,
            policy: PolicyChoice::default(),
            gc_ratio_percent: None,
            read_gap: None,
            families: self.families,
            counters: false,
            ablation: Ablation::default(),
            space_limit_bytes: None,
            background_threads: self.background_threads,
            filter_bits_per_key: 10,
            direct_io: !self.buffered_io,
            compression: crate::args::Codec::None,
            loggers: 1,
            buffered_age: Some(0),
            log_dir: None,
            speed_values: 0,
            speed_fresh: false,
            speed_levels: crate::args::SpeedLevels::default(),
            // Memory bounds the log, not its length.
            log_bytes_max: Some(2 * self.memory.max(self.log_size) + (1 << 30)),
        }
    }
}

/// Length of a key in bytes.
const KEY_LEN: usize = 24;
/// Maximum number of keys per call of the final check, and approximate bytes of their values.
const CHECKED_AT_ONCE: u64 = 256;
const CHECKED_AT_ONCE_BYTES: u64 = 16 << 20;

/// The keys and values of a run, and their distribution over threads.
struct Work<'a> {
    args: &'a RecoveryArgs,
    keys: Keys,
    values: Values,
}

impl<'a> Work<'a> {
    fn new(args: &'a RecoveryArgs) -> Work<'a> {
        let sizes = ValueSizes::Fixed(args.value_size);
        Work {
            args,
            keys: Keys::new(KEY_LEN, args.seed),
            values: Values::new(sizes, COMPRESSIBLE, args.seed),
        }
    }

    fn batches(&self) -> u64 {
        self.args.records().div_ceil(self.args.batch)
    }

    /// Returns the family of a batch.
    fn family<'e>(&self, families: &[&'e dyn Engine], batch: u64) -> &'e dyn Engine {
        families[(batch % self.args.families) as usize]
    }

    fn write(&self, engine: &dyn Engine, number: u64, durable: bool, batch: &mut Batch) -> Result<()> {
        batch.clear();
        let first = number * self.args.batch;
        let mut rng = Rng::new(self.args.seed ^ number);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for index in first..(first + self.args.batch).min(self.args.records()) {
            self.keys.write(index, &mut key);
            self.values.write(index, self.args.value_size, &mut rng, &mut value);
            batch.put(&key, &value);
        }
        engine.write(batch, durable)
    }

    /// Writes all batches with several threads, and the last batch at the end.
    fn write_all(&self, families: &[&dyn Engine]) -> Result<()> {
        let last = self.batches() - 1;
        let own = |thread: u64| -> Result<()> {
            let mut batch = Batch::default();
            (thread..last)
                .step_by(self.args.threads as usize)
                .try_for_each(|number| self.write(self.family(families, number), number, false, &mut batch))
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..self.args.threads).map(|thread| scope.spawn(move || own(thread))).collect();
            let outcome = |thread: std::thread::ScopedJoinHandle<'_, Result<()>>| {
                thread.join().unwrap_or_else(|_| {
                    Err("a thread that fills the store panicked, so nothing was measured: report it".into())
                })
            };
            threads.into_iter().try_for_each(outcome)
        })?;
        self.write(self.family(families, last), last, true, &mut Batch::default())
    }

    /// Checks the value of every key, with many keys per call: replayed data may be in tables, and
    /// single reads of some millions take minutes.
    fn check_all(&self, families: &[&dyn Engine]) -> Result<u64> {
        let at_once = (CHECKED_AT_ONCE_BYTES / self.args.value_size.max(1)).clamp(1, CHECKED_AT_ONCE);
        let family_of = |index: u64| (index / self.args.batch % self.args.families) as usize;
        for (nth, family) in families.iter().enumerate() {
            let mut indexes = (0..self.args.records()).filter(|index| family_of(*index) == nth).peekable();
            while indexes.peek().is_some() {
                let asked: Vec<u64> = indexes.by_ref().take(at_once as usize).collect();
                self.check(*family, &asked)?;
            }
        }
        Ok(self.args.records())
    }

    /// Checks the values of these keys.
    fn check(&self, family: &dyn Engine, asked: &[u64]) -> Result<()> {
        let key_of = |index: &u64| {
            let mut key = Vec::new();
            self.keys.write(*index, &mut key);
            key
        };
        let keys: Vec<Vec<u8>> = asked.iter().map(key_of).collect();
        let mut right = vec![false; asked.len()];
        family.multi_get(&keys, &mut |nth, value| {
            right[nth] = Values::check(asked[nth], self.args.value_size, value);
        })?;
        match asked.iter().zip(&right).find(|(_, right)| !**right) {
            Some((index, _)) => Err(format!(
                "wrong answer: key {index} of {} keys is missing or has another value after the open; the run has no result: report it",
                self.args.records()
            )
            .into()),
            None => Ok(()),
        }
    }
}

/// Returns an engine and its further families.
fn families(engine: &dyn Engine) -> Vec<&dyn Engine> {
    std::iter::once(engine).chain(engine.families()).collect()
}

/// The result of the fill, printed as a line by its process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Filled {
    /// Duration.
    pub seconds: f64,
    /// Bytes written by the process, including preallocated log groups.
    #[serde(default)]
    pub bytes_written: u64,
    /// Processor time in seconds.
    #[serde(default)]
    pub cpu_seconds: f64,
    /// Waits of writers by cause, in seconds over all threads.
    #[serde(default)]
    pub wait_seconds: BTreeMap<String, f64>,
}

impl Filled {
    fn of(engine: &dyn Engine, before: &ProcessCounters, start_ns: u64) -> Filled {
        let (seconds, after) = ((now_ns() - start_ns) as f64 / 1e9, host::process_counters());
        let waits = engine.waits_ns().into_iter().filter(|(_, ns)| *ns > 0);
        Filled {
            seconds,
            bytes_written: after.write_bytes - before.write_bytes,
            cpu_seconds: (after.cpu_ns - before.cpu_ns) as f64 / 1e9,
            wait_seconds: waits.map(|(cause, ns)| (cause, ns as f64 / 1e9)).collect(),
        }
    }

    /// Formats the result as text.
    fn text(&self) -> String {
        let waits: Vec<String> =
            self.wait_seconds.iter().map(|(cause, seconds)| format!("{cause} {seconds:.1} s")).collect();
        let waits = if waits.is_empty() { "none".to_owned() } else { waits.join(", ") };
        let rate = self.bytes_written as f64 / 1e6 / self.seconds.max(1e-9);
        format!(
            "{} written, {rate:.0} MB/s; {:.1} s of processor; waits of writers: {waits}",
            human_bytes(self.bytes_written),
            self.cpu_seconds
        )
    }
}

/// Fills a store, reports it on standard output, and waits to be killed, or for the end of standard
/// input if the parent is gone. The store is never closed.
///
/// # Errors
/// Errors of the engine.
pub fn fill(args: &RecoveryArgs, opener: &dyn Opener, dir: &Path) -> Result<()> {
    args.check()?;
    let engine = opener.open(dir, &args.settings())?;
    let (before, start_ns) = (host::process_counters(), now_ns());
    let written = Work::new(args).write_all(&families(&*engine));
    let filled = Filled::of(&*engine, &before, start_ns);
    // Also after an error, since the store may be unable to close.
    std::mem::forget(engine);
    written?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(&filled)?)?;
    out.flush()?;
    std::io::stdin().lock().read_line(&mut String::new())?;
    Ok(())
}

/// A process that fills a store, killed on drop.
struct Filler(Child);

impl Drop for Filler {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `command`, which calls [`fill`], and kills it afterwards.
///
/// # Errors
/// The command cannot be run, or failed with its own message.
pub fn fill_and_kill(command: &mut Command) -> Result<Filled> {
    let mut filler = Filler(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
    let mut line = String::new();
    if let Some(out) = filler.0.stdout.take() {
        BufReader::new(out).read_line(&mut line)?;
    }
    if line.is_empty() {
        return Err(format!(
            "the process that fills the store failed ({}): nothing was measured",
            filler.0.wait()?
        )
        .into());
    }
    Ok(serde_json::from_str(&line)?)
}

/// Drops the files of a store, or its device, from the page cache.
fn forget(dir: &Path) -> Result<()> {
    for entry in io::Env::kernel().fs.list(dir)? {
        let path = dir.join(&entry.name);
        if !io::Env::kernel().fs.metadata(&path)?.is_dir {
            io::kernel::page_cache::forget(&path)?;
        }
    }
    Ok(())
}

/// The result of an open.
struct Opened {
    engine: Box<dyn Engine>,
    ns: u64,
    threads_max: u64,
    before: ProcessCounters,
    after: ProcessCounters,
}

/// Opens a store and samples the number of threads meanwhile.
fn open(args: &RecoveryArgs, opener: &dyn Opener, dir: &Path) -> Result<Opened> {
    let (is_over, settings) = (AtomicBool::new(false), args.settings());
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                // Excludes this thread.
                most = host::threads().saturating_sub(1).max(most);
                wait_until(now_ns() + LOOK_NS);
            }
            most
        });
        let stop = StopOnDrop(&is_over);
        let before = host::process_counters();
        let start_ns = now_ns();
        let opened = opener.open(dir, &settings);
        let ns = now_ns() - start_ns;
        let after = host::process_counters();
        drop(stop);
        let threads_max = looks.join().unwrap_or(0);
        Ok(Opened { engine: opened?, ns, threads_max, before, after })
    })
}

/// Opens the store of a killed process, and checks its contents.
///
/// # Errors
/// Errors of the engine; missing data.
pub fn recover(
    args: &RecoveryArgs,
    filled: &Filled,
    opener: &dyn Opener,
    dir: &Path,
    allocated: &dyn Fn() -> Space,
) -> Result<RecoveryReport> {
    let before = allocated();
    let opened = open(args, opener, dir)?;
    let after = allocated();
    let work = Work::new(args);
    let checked = work.check_all(&families(&*opened.engine))?;
    let report = RecoveryReport::of(args, filled, opener.name(), &opened, [&before, &after], checked);
    opened.engine.close()?;
    Ok(report)
}

/// Makes a run in a directory of the machine: fills by `command`, forgets, opens, checks.
///
/// # Errors
/// Errors of the engine; missing data.
pub fn run(
    args: &RecoveryArgs,
    command: &mut Command,
    opener: &dyn Opener,
    dir: &Path,
) -> Result<RecoveryReport> {
    args.check()?;
    let filled = fill_and_kill(command)?;
    if !args.warm {
        forget(dir)?;
    }
    recover(args, &filled, opener, dir, &|| crate::space::allocated(dir))
}
