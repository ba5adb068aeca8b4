//! `bench fs`: what a file system makes of appends, each followed by a sync or by none.
//!
//! Each thread writes a file of its own from front to back, in appends of one size, around the page cache. The latency is
//! that of an append with its sync. Device bytes are those of the device's own counter, from before the first append to
//! after a last sync; so nothing else should use the device.

use crate::Result;
use crate::host::now_ns;
use crate::report::{Latency, human_bytes, human_count, human_us};
use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;
use lavastore::io::kernel::usage;
use lavastore::io::{Access, AppendFile, CreateOptions, Env, SyncKind};
use serde::Serialize;
use std::path::Path;

/// What follows an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sync {
    /// A full sync: bytes and size.
    Fsync,
    /// A data sync: bytes.
    Fdatasync,
    /// Nothing.
    None,
}

/// Options of `bench fs`.
#[derive(Args, Clone, Debug)]
pub struct FsArgs {
    /// Bytes of an append
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    pub io_size: usize,
    /// What follows it
    #[arg(long, value_enum, default_value = "fdatasync")]
    pub sync: Sync,
    /// Threads, each with a file of its own
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct FsReport {
    /// Bytes of an append.
    pub io_size: usize,
    /// What followed it.
    pub sync: Sync,
    /// Threads.
    pub threads: usize,
    /// Bytes of each file.
    pub file_size: u64,
    /// Bytes appended, all together.
    pub user_bytes: u64,
    /// Bytes that the device wrote; nothing if it does not count.
    pub device_bytes_written: Option<u64>,
    /// The one over the other.
    pub device_write_amplification: Option<f64>,
    /// From the first append to the end of the last sync.
    pub seconds: f64,
    /// Appends a second.
    pub appends_per_second: f64,
    /// Of an append with its sync.
    pub latency: Latency,
}

/// Measures in the directory `dir` of `env`; `counted` is on the device, or is the device, whose counter is read.
///
/// # Errors
/// Those of the file system.
pub fn run(env: &Env, dir: &Path, counted: &Path, args: &FsArgs, file_size: u64) -> Result<FsReport> {
    let device_bytes = || usage::device(counted).ok().map(|c| c.write_bytes);
    env.fs.create_dir_all(dir)?;
    let name = |thread: usize| dir.join(format!("bench-fs-{thread}"));
    let before = device_bytes();
    let start_ns = now_ns();
    let results: Vec<Result<Histogram<u64>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.threads)
            .map(|thread| scope.spawn(move || append_all(env, &name(thread), args, file_size)))
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err("a thread panicked".into()))
        };
        threads.into_iter().map(join).collect()
    });
    env.fs.sync_dir(dir)?;
    let seconds = (now_ns() - start_ns) as f64 / 1e9;
    let written = before.zip(device_bytes()).map(|(before, after)| after.saturating_sub(before));
    let mut latency: Histogram<u64> = Histogram::new_with_bounds(1, 600_000_000_000, 3)?;
    for result in results {
        latency.add(result?)?;
    }
    (0..args.threads).try_for_each(|thread| env.fs.remove(&name(thread)))?;
    env.fs.sync_dir(dir)?;
    let user_bytes = latency.len() * args.io_size as u64;
    Ok(FsReport {
        io_size: args.io_size,
        sync: args.sync,
        threads: args.threads,
        file_size,
        user_bytes,
        device_bytes_written: written,
        device_write_amplification: written.map(|bytes| bytes as f64 / user_bytes.max(1) as f64),
        seconds,
        appends_per_second: latency.len() as f64 / seconds,
        latency: Latency::of(&latency),
    })
}

fn append_all(env: &Env, path: &Path, args: &FsArgs, file_size: u64) -> Result<Histogram<u64>> {
    let mut latency = Histogram::new_with_bounds(1, 600_000_000_000, 3)?;
    let options = CreateOptions { access: Access::Direct, ..CreateOptions::default() };
    let mut file: Box<dyn AppendFile> = env.fs.create(path, &options)?;
    let data: Vec<u8> = (0..args.io_size).map(|n| (n * 131 + n / 256) as u8).collect();
    for _ in 0..file_size / args.io_size as u64 {
        let start_ns = now_ns();
        file.append(&data)?;
        match args.sync {
            Sync::Fsync => file.sync(SyncKind::Full)?,
            Sync::Fdatasync => file.sync(SyncKind::Data)?,
            Sync::None => {}
        }
        latency.record((now_ns() - start_ns).max(1))?;
    }
    file.sync(SyncKind::Full)?;
    Ok(latency)
}

impl FsReport {
    /// A few lines for people.
    pub fn text(&self) -> String {
        let l = &self.latency;
        let device = match (self.device_bytes_written, self.device_write_amplification) {
            (Some(bytes), Some(times)) => format!("{} on the device, {times:.3} times", human_bytes(bytes)),
            _ => "the device does not count".to_owned(),
        };
        format!(
            "{} appends of {} B with {:?}, {} threads, {:.2} s, {:.0} a second\n\
             {} appended, {device}\nP50 {}   P99 {}   P99.9 {}   max {}\n",
            human_count(l.count),
            self.io_size,
            self.sync,
            self.threads,
            self.seconds,
            self.appends_per_second,
            human_bytes(self.user_bytes),
            human_us(l.p50_us),
            human_us(l.p99_us),
            human_us(l.p999_us),
            human_us(l.max_us)
        )
    }
}
