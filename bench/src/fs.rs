//! `bench fs`: performance of a file system for appends, in-place writes and reads, with or without
//! syncs.
//!
//! Each thread has its own file and bypasses the page cache by default. *append* writes it
//! sequentially. *in-place* overwrites an existing file sequentially (fully written before the
//! clock starts). *read* reads pages of an existing file in random order. The latency is that of an
//! operation with its sync. Device bytes come from the device's counter, from before the first
//! operation until after a final sync; so no other program should use the device.
//!
//! On a bare device *in-place* is an upper bound for any file system: each thread writes its part
//! of the device.
//!
//! `--files` creates more files beforehand, which the journal of a LavaFS must hold; `--compact`
//! compacts that journal continuously.

use crate::Result;
use crate::host::now_ns;
use crate::report::{Latency, human_bytes, human_count, human_us};
use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;
use io::kernel::usage;
use io::{
    Access, AlignedBuf, AppendFile, BlockDevice, CreateOptions, Env, InPlaceFile, PAGE, Priority, Rng,
    SyncKind, ThreadHandle,
};
use lavastore::lavafs::LavaFs;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes per write when a file is created.
const FILL_LEN: usize = 1 << 20;
/// Seed of the order of reads.
const SEED: u64 = 1;

/// Measured operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Append to a new file.
    Append,
    /// Overwrite pages of an existing file sequentially.
    InPlace,
    /// Read pages of a file in random order.
    Read,
}

/// Sync after a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sync {
    /// Full sync: data and size.
    Fsync,
    /// Data sync.
    Fdatasync,
    /// No sync.
    None,
}

/// Options of `bench fs`.
#[derive(Args, Clone, Debug)]
pub struct FsArgs {
    /// Operation to measure: append to new files, overwrite files in place, or read them at random.
    /// A bare device takes only `in-place` and `read`
    #[arg(long, value_enum, default_value = "append")]
    pub op: Operation,
    /// Size of an operation in bytes: a plain number, 1 to --file-size; for reads and in-place
    /// writes a multiple of 4096. Larger ones give more bytes and fewer operations per second
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    pub io_size: usize,
    /// Sync call after each write, which is part of its latency: fsync (data and size), fdatasync
    /// (data), or none. Not `fsync` with --op in-place; no effect on reads
    #[arg(long, value_enum, default_value = "fdatasync")]
    pub sync: Sync,
    /// Number of threads, at least 1, each with its own file of --file-size. On a bare device each
    /// has its own part
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// Number of operations per thread. Appends end at --file-size at the latest; reads and
    /// in-place writes may repeat [default: as many as the file holds]
    #[arg(long, value_name = "N")]
    pub ops: Option<u64>,
    /// Use the page cache of the system instead of direct I/O, so that reads and writes without
    /// sync may only reach memory. No effect on a LavaFS volume (which has --page-cache) and on a
    /// bare device
    #[arg(long)]
    pub buffered: bool,
    /// Number of other empty files created beforehand and removed afterwards; 0: none. They
    /// lengthen the directory, or the journal of a LavaFS. Not with a bare device
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub files: u64,
    /// LavaFS: compact the journal continuously during the operations, to measure how much that
    /// delays them. Only with --db lavafs:PATH
    #[arg(long)]
    pub compact: bool,
}

/// Place of the measurement.
pub enum Ground<'a> {
    /// A directory.
    Directory {
        /// File system of the directory.
        env: &'a Env,
        /// The directory.
        dir: &'a Path,
        /// The volume, if it is a LavaFS.
        volume: Option<&'a Arc<LavaFs>>,
    },
    /// A device without a file system, whose contents are destroyed.
    Device(&'a dyn BlockDevice),
}

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct FsReport {
    /// Measured operation.
    pub op: Operation,
    /// Size of an operation in bytes.
    pub io_size: usize,
    /// Sync after each write.
    pub sync: Sync,
    /// Number of threads.
    pub threads: usize,
    /// Size of each file in bytes.
    pub file_size: u64,
    /// Number of other files.
    pub files: u64,
    /// Bytes written or read in total.
    pub user_bytes: u64,
    /// Bytes written by the device; `None` without a counter.
    pub device_bytes_written: Option<u64>,
    /// Bytes read by the device.
    pub device_bytes_read: Option<u64>,
    /// Ratio of device writes to user bytes; `None` for reads.
    pub device_write_amplification: Option<f64>,
    /// Time from the first operation to the end of the last sync.
    pub seconds: f64,
    /// Operations per second.
    pub ops_per_second: f64,
    /// Millions of user bytes per second.
    pub mb_per_second: f64,
    /// Number of journal compactions, with `--compact`.
    pub journal_compactions: Option<u64>,
    /// Latency of an operation with its sync.
    pub latency: Latency,
}

/// Runs the measurement; `counted` is on the device, or is the device, whose counter is read.
///
/// # Errors
/// Errors of the file system; incompatible options.
pub fn run(ground: &Ground<'_>, counted: &Path, args: &FsArgs, file_size: u64) -> Result<FsReport> {
    args.check(ground, file_size)?;
    let bench = Bench { ground, args, file_size };
    bench.prepare()?;
    let before = usage::device(counted).ok();
    let start_ns = now_ns();
    let (latency, compactions) = bench.measure()?;
    bench.settle()?;
    let seconds = (now_ns() - start_ns) as f64 / 1e9;
    let after = usage::device(counted).ok();
    bench.clean_up()?;
    let grown = |of: fn(&usage::DeviceCounters) -> u64| {
        before.as_ref().zip(after.as_ref()).map(|(before, after)| of(after).saturating_sub(of(before)))
    };
    let written = grown(|c| c.write_bytes);
    let user_bytes = latency.len() * args.io_size as u64;
    let times = |bytes: u64| bytes as f64 / user_bytes.max(1) as f64;
    Ok(FsReport {
        op: args.op,
        io_size: args.io_size,
        sync: args.sync,
        threads: args.threads,
        file_size,
        files: args.files,
        user_bytes,
        device_bytes_written: written,
        device_bytes_read: grown(|c| c.read_bytes),
        device_write_amplification: written.filter(|_| args.op != Operation::Read).map(times),
        seconds,
        ops_per_second: latency.len() as f64 / seconds,
        mb_per_second: user_bytes as f64 / 1e6 / seconds,
        journal_compactions: compactions,
        latency: Latency::of(&latency),
    })
}

impl FsArgs {
    fn check(&self, ground: &Ground<'_>, file_size: u64) -> Result<()> {
        let lavafs = matches!(ground, Ground::Directory { volume: Some(_), .. });
        let device = matches!(ground, Ground::Device(_));
        let complaint = if self.io_size == 0 || self.threads == 0 || file_size < self.io_size as u64 {
            "--io-size must be at least 1 byte and at most --file-size, --threads at least 1; nothing was run"
        } else if self.op != Operation::Append && !self.io_size.is_multiple_of(PAGE) {
            "--io-size must be a multiple of 4096 bytes for --op read and in-place; nothing was run"
        } else if self.op == Operation::InPlace && self.sync == Sync::Fsync {
            "--op in-place changes no file size: pass --sync fdatasync or none; nothing was run"
        } else if device && (self.op == Operation::Append || self.files > 0) {
            "a bare device has no files: pass --op in-place or read, and omit --files; nothing was run"
        } else if self.compact && !lavafs {
            "--compact needs a LavaFS volume: pass --db lavafs:PATH; nothing was run"
        } else {
            return Ok(());
        };
        Err(complaint.into())
    }

    fn access(&self) -> Access {
        if self.buffered { Access::Buffered } else { Access::Direct }
    }
}

fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 600_000_000_000, 3)?)
}

/// Returns bytes that do not compress to nothing.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 131 + n / 256) as u8).collect()
}

fn aligned(len: usize) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(len);
    buf.as_mut_slice().copy_from_slice(&pattern(len));
    buf
}

/// The compacting thread; dropping it stops the thread.
struct Compactor {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    thread: Option<Box<dyn ThreadHandle>>,
}

impl Compactor {
    /// Stops the thread; returns the number of compactions.
    fn stop(self) -> u64 {
        let count = self.count.clone();
        drop(self);
        count.load(Ordering::Relaxed)
    }
}

impl Drop for Compactor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

/// A run.
struct Bench<'a> {
    ground: &'a Ground<'a>,
    args: &'a FsArgs,
    file_size: u64,
}

impl Bench<'_> {
    /// Number of offsets in units of the operation size.
    fn places(&self) -> u64 {
        self.file_size / self.args.io_size as u64
    }

    fn ops(&self) -> u64 {
        match self.args.op {
            Operation::Append => self.args.ops.unwrap_or(u64::MAX).min(self.places()),
            Operation::InPlace | Operation::Read => self.args.ops.unwrap_or(self.places()),
        }
    }

    fn file(&self, dir: &Path, thread: usize) -> PathBuf {
        dir.join(format!("bench-fs-{thread}"))
    }

    fn other(&self, dir: &Path, n: u64) -> PathBuf {
        dir.join(format!("bench-fs-other-{n:09}"))
    }

    /// Creates the files for the operations.
    fn prepare(&self) -> Result<()> {
        let Ground::Directory { env, dir, .. } = self.ground else { return Ok(()) };
        env.fs.create_dir_all(dir)?;
        for n in 0..self.args.files {
            drop(env.fs.create(&self.other(dir, n), &CreateOptions::default())?);
        }
        let len = self.file_size.next_multiple_of(PAGE as u64);
        for thread in 0..self.args.threads {
            let path = self.file(dir, thread);
            match self.args.op {
                Operation::Append => {}
                Operation::InPlace => drop(env.fs.create_in_place(&path, len, self.args.access())?),
                Operation::Read => self.fill(env, &path)?,
            }
        }
        Ok(env.fs.sync_dir(dir)?)
    }

    fn fill(&self, env: &Env, path: &Path) -> Result<()> {
        let options =
            CreateOptions { access: Access::Direct, write_buffer_len: FILL_LEN, ..CreateOptions::default() };
        let mut file = env.fs.create(path, &options)?;
        let data = pattern(FILL_LEN);
        let mut left = self.file_size;
        while left > 0 {
            let n = left.min(FILL_LEN as u64);
            file.append(&data[..n as usize])?;
            left -= n;
        }
        Ok(file.sync(SyncKind::Full)?)
    }

    /// Runs all threads; returns their latencies, and the number of journal compactions.
    fn measure(&self) -> Result<(Histogram<u64>, Option<u64>)> {
        let compactor = self.start_compactor()?;
        let results: Vec<Result<Histogram<u64>>> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..self.args.threads).map(|thread| scope.spawn(move || self.operate(thread))).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|_| {
                    Err("a thread of the benchmark panicked, so the run has no result: report it".into())
                })
            };
            threads.into_iter().map(join).collect()
        });
        let mut all = histogram()?;
        for result in results {
            all.add(result?)?;
        }
        Ok((all, compactor.map(Compactor::stop)))
    }

    /// Compacts the journal until stopped, in a thread with the priority of a volume's own thread.
    fn start_compactor(&self) -> Result<Option<Compactor>> {
        let (true, Ground::Directory { env, volume: Some(volume), .. }) = (self.args.compact, self.ground)
        else {
            return Ok(None);
        };
        let spawner =
            env.spawner.as_ref().ok_or("this environment has no threads for the journal: omit --compact")?;
        let volume = Arc::clone(volume);
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (stop.clone(), count.clone());
        let body = move || {
            // A failure poisons the volume, so the operations report it.
            while !stopped.load(Ordering::Relaxed) && volume.compact_journal().is_ok() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        };
        let thread = spawner.spawn("compactor", Priority::Background, Box::new(body))?;
        Ok(Some(Compactor { stop, count, thread: Some(thread) }))
    }

    fn operate(&self, thread: usize) -> Result<Histogram<u64>> {
        let path = |dir: &Path| self.file(dir, thread);
        match (self.ground, self.args.op) {
            (Ground::Directory { env, dir, .. }, Operation::Append) => self.append(env, &path(dir)),
            (Ground::Directory { env, dir, .. }, Operation::InPlace) => {
                let file = env.fs.open_in_place(&path(dir), self.args.access())?;
                self.write_in_place(&*file)
            }
            (Ground::Directory { env, dir, .. }, Operation::Read) => {
                let file = env.fs.open(&path(dir), self.args.access())?;
                self.read(thread, |buf, offset| Ok(file.read_at(buf, offset)?))
            }
            (Ground::Device(device), op) => {
                let start = self.file_size.next_multiple_of(PAGE as u64) * thread as u64;
                match op {
                    Operation::Read => {
                        self.read(thread, |buf, offset| Ok(device.read_at(buf, start + offset)?))
                    }
                    _ => self.write_device(*device, start),
                }
            }
        }
    }

    fn append(&self, env: &Env, path: &Path) -> Result<Histogram<u64>> {
        let mut latency = histogram()?;
        let options = CreateOptions { access: self.args.access(), ..CreateOptions::default() };
        let mut file: Box<dyn AppendFile> = env.fs.create(path, &options)?;
        let data = pattern(self.args.io_size);
        for _ in 0..self.ops() {
            let start_ns = now_ns();
            file.append(&data)?;
            match self.args.sync {
                Sync::Fsync => file.sync(SyncKind::Full)?,
                Sync::Fdatasync => file.sync(SyncKind::Data)?,
                Sync::None => {}
            }
            latency.record((now_ns() - start_ns).max(1))?;
        }
        file.sync(SyncKind::Full)?;
        Ok(latency)
    }

    fn write_in_place(&self, file: &dyn InPlaceFile) -> Result<Histogram<u64>> {
        let data = aligned(self.args.io_size);
        let latency = self.in_turn(|offset| match self.args.sync {
            Sync::None => Ok(file.write_at(&data, offset)?),
            _ => Ok(file.write_durable(&data, offset)?),
        })?;
        file.sync_data()?;
        Ok(latency)
    }

    fn write_device(&self, device: &dyn BlockDevice, start: u64) -> Result<Histogram<u64>> {
        let data = aligned(self.args.io_size);
        let latency = self.in_turn(|offset| match self.args.sync {
            Sync::None => Ok(device.write_at(data.as_slice(), start + offset)?),
            _ => Ok(device.write_durable(data.as_slice(), start + offset)?),
        })?;
        device.sync()?;
        Ok(latency)
    }

    /// Runs operations sequentially over the file, and restarts at its beginning if there are more.
    fn in_turn(&self, op: impl Fn(u64) -> Result<()>) -> Result<Histogram<u64>> {
        let mut latency = histogram()?;
        for n in 0..self.ops() {
            let start_ns = now_ns();
            op(n % self.places() * self.args.io_size as u64)?;
            latency.record((now_ns() - start_ns).max(1))?;
        }
        Ok(latency)
    }

    fn read(&self, thread: usize, op: impl Fn(&mut [u8], u64) -> Result<()>) -> Result<Histogram<u64>> {
        let mut latency = histogram()?;
        let mut order = Rng::new(SEED + thread as u64);
        let mut buf = AlignedBuf::zeroed(self.args.io_size);
        for _ in 0..self.ops() {
            let offset = order.below(self.places()) * self.args.io_size as u64;
            let start_ns = now_ns();
            op(buf.as_mut_slice(), offset)?;
            latency.record((now_ns() - start_ns).max(1))?;
        }
        Ok(latency)
    }

    /// Waits until everything is on the device.
    fn settle(&self) -> Result<()> {
        match self.ground {
            Ground::Directory { env, dir, .. } => Ok(env.fs.sync_dir(dir)?),
            Ground::Device(_) => Ok(()),
        }
    }

    fn clean_up(&self) -> Result<()> {
        let Ground::Directory { env, dir, .. } = self.ground else { return Ok(()) };
        (0..self.args.threads).try_for_each(|thread| env.fs.remove(&self.file(dir, thread)))?;
        (0..self.args.files).try_for_each(|n| env.fs.remove(&self.other(dir, n)))?;
        Ok(env.fs.sync_dir(dir)?)
    }
}

/// Returns an environment on a volume that the caller also uses directly.
pub fn env_of(volume: &Arc<LavaFs>) -> Env {
    Env { fs: volume.clone(), ..Env::kernel() }
}

impl FsReport {
    /// Formats the report in a few lines.
    pub fn text(&self) -> String {
        let l = &self.latency;
        let device = match (self.device_bytes_written, self.device_write_amplification) {
            (Some(bytes), Some(times)) => format!("{} on the device, {times:.3} times", human_bytes(bytes)),
            _ => "the device does not count".to_owned(),
        };
        let (done, moved) = match self.op {
            Operation::Append => {
                (format!("appends with {}", crate::args::name(self.sync)), format!("appended, {device}"))
            }
            Operation::InPlace => (
                format!("writes in place with {}", crate::args::name(self.sync)),
                format!("written, {device}"),
            ),
            Operation::Read => ("random reads".to_owned(), "read".to_owned()),
        };
        let compacted = self.journal_compactions.map_or(String::new(), |n| {
            format!(
                "\n{} compactions of the journal with {} more files",
                human_count(n),
                human_count(self.files)
            )
        });
        format!(
            "{} {done} of {} B, {} threads, {:.2} s, {:.0} a second, {:.1} MB/s\n\
             {} {moved}\nP50 {}   P99 {}   P99.9 {}   max {}{compacted}\n",
            human_count(l.count),
            self.io_size,
            self.threads,
            self.seconds,
            self.ops_per_second,
            self.mb_per_second,
            human_bytes(self.user_bytes),
            human_us(l.p50_us),
            human_us(l.p99_us),
            human_us(l.p999_us),
            human_us(l.max_us)
        )
    }
}
