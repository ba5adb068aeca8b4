//! `bench multi-get`: many keys per call, compared with single gets and with the device.
//!
//! The store is loaded, reopened and warmed up. Each round has three parts: random reads of the
//! store's data files with as many in flight as a call has keys, each of record size; calls of
//! `multi_get`; single gets of one thread. All reads bypass the page cache (unless
//! `--buffered-io`), keys follow the distribution of the options, and every result is checked. So
//! compared figures come from the same minute and the same files.

use crate::args::BenchArgs;
use crate::engine::{Engine, Opener};
use crate::host::{self, now_ns};
use crate::record::{Kind, Recorder};
use crate::report::{Latency, human_us};
use crate::run::loaded;
use crate::values::Values;
use crate::workload::{KeySpace, Role, Stream};
use crate::{Error, Result};
use io::{Access, Env, ReadFile, ReadQueue, Rng};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

/// Default number of rounds.
const ROUNDS: u64 = 3;
/// Default duration of each part of a round in seconds.
const SECONDS: f64 = 2.0;
/// Device reads between two checks of the clock.
const DEVICE_READS: u64 = 1000;
/// Approximate bytes of a record beyond key and value.
const RECORD_OVERHEAD: u64 = 20;

/// Results of a part.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Part {
    /// Device reads or keys per second in each round.
    pub per_s: Vec<f64>,
    /// Median of the rounds.
    pub median_per_s: f64,
    /// Latency of a call (of the device: of a batch).
    pub calls: Latency,
}

/// The report of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MultiGetReport {
    /// The engine.
    pub engine: String,
    /// Keys per call.
    pub keys_per_call: usize,
    /// Size of a device read in bytes; reads begin at any byte, like records.
    pub read_bytes: u64,
    /// Random reads of the device.
    pub device: Part,
    /// Calls of `multi_get`.
    pub multi_get: Part,
    /// Single gets.
    pub get: Part,
    /// Ratio of medians: the time of a call to that of as many device reads.
    pub call_over_device: f64,
    /// Ratio of keys per second in calls to single gets.
    pub multi_get_over_get: f64,
    /// Device reads per key in calls, if the engine counts them.
    pub requests_per_key: Option<f64>,
    /// Description of the machine.
    pub machine: String,
    /// Options of the run.
    pub options: BenchArgs,
    /// Settings of the engine.
    pub engine_settings: BTreeMap<String, String>,
}

/// Makes a run in `dir`.
///
/// # Errors
/// Errors of the engine; wrong results.
pub fn run(args: &BenchArgs, opener: &dyn Opener, dir: &Path) -> Result<MultiGetReport> {
    args.check()?;
    let space = KeySpace::new(args);
    let engine = loaded(args, &space, opener, dir)?;
    let read_bytes = space.sizes.mean() as u64 + args.key_size as u64 + RECORD_OVERHEAD;
    let mut device = Device::open(args, dir, read_bytes)?;
    let mut calls = Stream::new(&space, Role::Client, Kind::Get, u64::MAX, 0, 2);
    let mut singles = Stream::new(&space, Role::Client, Kind::Get, u64::MAX, 1, 2);
    let mut parts: [Timed; 3] = Default::default();
    let mut requests = Some(0);
    for _ in 0..args.pairs.unwrap_or(ROUNDS) {
        parts[0].round(args, || device.read())?;
        let before = requests_of(engine.as_ref());
        parts[1].round(args, || call(engine.as_ref(), &mut calls, args.keys_per_call))?;
        requests =
            requests.zip(requests_of(engine.as_ref()).zip(before)).map(|(sum, (now, old))| sum + now - old);
        let mut value = Vec::new();
        parts[2].round(args, || get(engine.as_ref(), &mut singles, &mut value))?;
    }
    let engine_settings = engine.settings().into_iter().collect();
    engine.close()?;
    let keys: u64 = parts[1].units;
    let [device, multi_get, get] = parts.map(Timed::part);
    let keys_per_call = args.keys_per_call;
    Ok(MultiGetReport {
        engine: opener.name(),
        keys_per_call,
        read_bytes,
        call_over_device: multi_get.calls.p50_us * device.median_per_s / (keys_per_call as f64 * 1e6),
        multi_get_over_get: multi_get.median_per_s / get.median_per_s,
        requests_per_key: requests.map(|requests| requests as f64 / keys as f64),
        device,
        multi_get,
        get,
        machine: host::machine(),
        options: args.clone(),
        engine_settings,
    })
}

/// Returns the engine's count of reads for gets.
fn requests_of(engine: &dyn Engine) -> Option<u64> {
    engine.stats().iter().find(|(name, _)| name == "get_device_reads").and_then(|(_, n)| n.as_u64())
}

/// A call: its number of keys or reads, and its start in nanoseconds.
type Call = (u64, u64);

fn call(engine: &dyn Engine, stream: &mut Stream, count: usize) -> Result<Call> {
    let (mut keys, mut asked) = (Vec::with_capacity(count), Vec::with_capacity(count));
    while keys.len() < count && stream.advance() {
        keys.push(stream.key.clone());
        asked.push((stream.index, stream.value_len()));
    }
    let begun_ns = now_ns();
    let mut right = 0;
    engine.multi_get(&keys, &mut |nth, value| {
        let (index, len) = asked[nth];
        right += usize::from(Values::check(index, len, value));
    })?;
    if right < keys.len() {
        return Err(wrong());
    }
    Ok((count as u64, begun_ns))
}

fn get(engine: &dyn Engine, stream: &mut Stream, value: &mut Vec<u8>) -> Result<Call> {
    stream.advance();
    let begun_ns = now_ns();
    if !engine.get(&stream.key, value)? || !stream.check(value) {
        return Err(wrong());
    }
    Ok((1, begun_ns))
}

fn wrong() -> Error {
    "wrong answer: a key is missing, or has a value that was never written for it; the run has no result: report it".into()
}

/// The data files of a store, read directly.
struct Device {
    files: Vec<(Arc<dyn ReadFile>, u64)>,
    read_bytes: u64,
    depth: usize,
    rng: Rng,
    reads: ReadQueue,
}

impl Device {
    fn open(args: &BenchArgs, dir: &Path, read_bytes: u64) -> Result<Device> {
        let env = Env::kernel();
        let access = if args.buffered_io { Access::Buffered } else { Access::Direct };
        let listed = env.fs.list(dir)?;
        let is_data = |file: &&io::DirEntry| !file.name.ends_with(".log") && file.len > read_bytes;
        // If values are separated, the largest files hold them.
        let longest = listed.iter().filter(is_data).map(|file| file.len).max().unwrap_or(0);
        let large = listed.iter().filter(is_data).filter(|file| file.len >= longest / 2);
        let open = |file: &io::DirEntry| Ok((env.fs.open(&dir.join(&file.name), access)?, file.len));
        let files = large.map(open).collect::<Result<Vec<_>>>()?;
        if files.is_empty() {
            return Err(
                "the store has no files for the reference reads of the device: load more keys (--num)".into(),
            );
        }
        let (depth, reads) = (args.keys_per_call, ReadQueue::new(&env));
        Ok(Device { files, read_bytes, depth, rng: Rng::new(args.seed), reads })
    }

    /// Makes a number of reads with as many in flight as a call has keys.
    fn read(&mut self) -> Result<Call> {
        let begun_ns = now_ns();
        let mut done = 0;
        while done < DEVICE_READS {
            while self.reads.in_flight() < self.depth {
                let (file, len) = &self.files[self.rng.below(self.files.len() as u64) as usize];
                let offset = self.rng.below(len - self.read_bytes) / 8 * 8;
                self.reads.submit(file, offset, self.read_bytes as usize, 0);
            }
            for read in self.reads.complete(true) {
                read.read?;
                done += 1;
            }
        }
        Ok((done, begun_ns))
    }
}

/// Measurements of a part.
#[derive(Default)]
struct Timed {
    record: Option<Recorder>,
    per_s: Vec<f64>,
    units: u64,
}

impl Timed {
    fn round(&mut self, args: &BenchArgs, mut one: impl FnMut() -> Result<Call>) -> Result<()> {
        let start_ns = now_ns();
        let end_ns = start_ns + (args.seconds.unwrap_or(SECONDS) * 1e9) as u64;
        let record = self.record.get_or_insert_with(|| Recorder::new(start_ns));
        let (mut units, mut busy_ns) = (0, 0);
        while now_ns() < end_ns {
            let (done, begun_ns) = one()?;
            let ended_ns = now_ns();
            record.complete(begun_ns, ended_ns, 1, 0);
            units += done;
            busy_ns += ended_ns - begun_ns;
        }
        self.per_s.push(units as f64 * 1e9 / busy_ns as f64);
        self.units += units;
        Ok(())
    }

    fn part(self) -> Part {
        let mut sorted = self.per_s.clone();
        sorted.sort_by(f64::total_cmp);
        let median_per_s = sorted.get(sorted.len() / 2).copied().unwrap_or(0.0);
        let calls = self.record.map(|record| Latency::of(&record.latency_ns)).unwrap_or_default();
        Part { per_s: self.per_s, median_per_s, calls }
    }
}

impl MultiGetReport {
    /// Formats the report as text.
    pub fn text(&self) -> String {
        let mut out = format!("{}, {} keys in a call\n", self.engine, self.keys_per_call);
        let parts = [
            ("device, random reads", &self.device),
            ("multi_get", &self.multi_get),
            ("get, one thread", &self.get),
        ];
        for (name, part) in parts {
            let (median, all) = (part.median_per_s, &part.per_s);
            let _ = write!(out, "{name:22} {median:10.0} /s  ({:.0?})", all);
            let _ = writeln!(
                out,
                ", a call {} (99 %: {})",
                human_us(part.calls.p50_us),
                human_us(part.calls.p99_us)
            );
        }
        let _ = writeln!(
            out,
            "a call takes {:.2} x {} / (the device's rate)",
            self.call_over_device, self.keys_per_call
        );
        let _ = writeln!(out, "multi_get over get: {:.1}", self.multi_get_over_get);
        if let Some(requests) = self.requests_per_key {
            let _ = writeln!(out, "requests to the device for a key: {requests:.2}");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::WorkDir;
    use crate::lava::Lava;

    #[test]
    fn a_small_run_reads_everything_right() {
        let dir = std::env::temp_dir().join(format!("bench-multi-get-test-{}", std::process::id()));
        let dir = WorkDir::fresh(&dir).unwrap();
        let line = "multi-get --num 3000 --value-size 1000 --keys-per-call 16 --seconds 0.1 --pairs 1";
        let report = run(&crate::args::tests::args(line), &Lava, dir.path()).unwrap();
        let parts = [&report.device, &report.multi_get, &report.get];
        assert!(parts.iter().all(|part| part.median_per_s > 0.0 && part.calls.count > 0));
        assert!(report.call_over_device > 0.0 && report.requests_per_key.is_some_and(|n| n <= 2.0));
        assert!(report.text().contains("16 keys in a call"), "{}", report.text());
    }
}
