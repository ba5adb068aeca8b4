//! `bench counters`: increments of counters by merge operands, on keys of a Zipf distribution.
//!
//! Each client adds one to a counter, without reading it; every tenth operation reads one. At the
//! end a scan reads all counters, and their sum must be the number of increments.

use crate::args::{BenchArgs, Distribution};
use crate::distribution::Picker;
use crate::engine::{Engine, EngineSettings, Opener};
use crate::host::{self, now_ns};
use crate::keys::{Keys, mix};
use crate::record::{self, Recorder};
use crate::report::{Latency, human_us};
use crate::{Error, Result};
use io::Rng;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Default duration of a run in seconds.
const SECONDS: f64 = 10.0;
/// One in this many operations reads a counter.
const READ_ONE_IN: u64 = 10;

/// The report of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CountersReport {
    /// Engine and version.
    pub engine: String,
    /// Number of client threads.
    pub threads: u64,
    /// Number of increments.
    pub increments: u64,
    /// Operations per second: nine increments for each read.
    pub operations_per_s: f64,
    /// Time of an increment.
    pub increment: Latency,
    /// Time of a read.
    pub read: Latency,
    /// Time of the scan of all counters at the end, in seconds.
    pub scan_s: f64,
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
/// Errors of the engine, or an engine without merges; a wrong sum of the counters.
pub fn run(args: &BenchArgs, opener: &dyn Opener, dir: &Path) -> Result<CountersReport> {
    args.check()?;
    let engine = opener.open(dir, &EngineSettings::of(args)?)?;
    let keys = Keys::new(args.key_size, args.seed);
    let begun_ns = now_ns();
    let end_ns = begun_ns + (args.seconds.unwrap_or(SECONDS) * 1e9) as u64;
    let clients: Result<Vec<Client>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.threads())
            .map(|thread| {
                let client = Client::new(engine.as_ref(), args, &keys, thread, begun_ns);
                scope.spawn(move || client.run_until(end_ns))
            })
            .collect();
        let panicked = || Error::from("a client thread panicked: report it");
        threads.into_iter().map(|thread| thread.join().map_err(|_| panicked())?).collect()
    });
    let clients = clients?;
    let seconds = (now_ns() - begun_ns) as f64 / 1e9;
    let increments = clients.iter().map(|client| client.increments).sum();
    let reads: u64 = clients.iter().map(|client| client.reads).sum();
    let scan_s = check_sum(engine.as_ref(), args.keys(), increments)?;
    let (increment, read): (Vec<Recorder>, Vec<Recorder>) =
        clients.into_iter().map(|client| (client.of_increments, client.of_reads)).unzip();
    let engine_settings = engine.settings().into_iter().collect();
    engine.close()?;
    Ok(CountersReport {
        engine: opener.name(),
        threads: args.threads(),
        increments,
        operations_per_s: (increments + reads) as f64 / seconds,
        increment: Latency::of(&record::merge(&increment).latency_ns),
        read: Latency::of(&record::merge(&read).latency_ns),
        scan_s,
        machine: host::machine(),
        options: args.clone(),
        engine_settings,
    })
}

fn counter(value: &[u8]) -> Result<i64> {
    let bytes = value.first_chunk().ok_or("wrong answer: a counter is too short: report it")?;
    Ok(i64::from_le_bytes(*bytes))
}

/// Compares the sum of all counters with the number of increments. Returns the seconds of the scan.
fn check_sum(engine: &dyn Engine, keys: u64, increments: u64) -> Result<f64> {
    let (begun_ns, mut sum, mut failed) = (now_ns(), 0, None);
    engine.scan(&[], keys + 1, &mut |_, value| match counter(value) {
        Ok(counter) => sum += counter,
        Err(e) => failed = Some(e),
    })?;
    if let Some(e) = failed {
        return Err(e);
    }
    if sum != increments as i64 {
        let why = format!("wrong answer: {increments} increments, and the counters are {sum}: report it");
        return Err(why.into());
    }
    Ok((now_ns() - begun_ns) as f64 / 1e9)
}

/// A client thread.
struct Client<'a> {
    engine: &'a dyn Engine,
    keys: &'a Keys,
    picker: Picker,
    rng: Rng,
    of_increments: Recorder,
    of_reads: Recorder,
    increments: u64,
    reads: u64,
}

impl<'a> Client<'a> {
    fn new(
        engine: &'a dyn Engine,
        args: &BenchArgs,
        keys: &'a Keys,
        thread: u64,
        begun_ns: u64,
    ) -> Client<'a> {
        Client {
            engine,
            keys,
            picker: Picker::new(Distribution::Zipf, args.keys(), args.seed),
            rng: Rng::new(mix(args.seed ^ mix(thread + 1))),
            of_increments: Recorder::new(begun_ns),
            of_reads: Recorder::new(begun_ns),
            increments: 0,
            reads: 0,
        }
    }

    fn run_until(mut self, end_ns: u64) -> Result<Client<'a>> {
        self.engine.thread_begin();
        let (mut key, mut value, one) = (Vec::new(), Vec::new(), 1i64.to_le_bytes());
        let mut now = now_ns();
        while now < end_ns {
            let begun_ns = now;
            self.keys.write(self.picker.next(&mut self.rng), &mut key);
            if self.rng.one_in(READ_ONE_IN) {
                self.engine.get(&key, &mut value)?;
                now = now_ns();
                self.of_reads.complete(begun_ns, now, 1, 0);
                self.reads += 1;
            } else {
                self.engine.merge(&key, &one)?;
                now = now_ns();
                self.of_increments.complete(begun_ns, now, 1, 0);
                self.increments += 1;
            }
        }
        self.engine.thread_end();
        Ok(self)
    }
}

impl CountersReport {
    /// Formats the report as text.
    pub fn text(&self) -> String {
        let mut out = format!("{}, counters, threads: {}\n", self.engine, self.threads);
        let _ = writeln!(
            out,
            "operations     {:10.0} /s  ({} increments, scan of all: {:.2} s)",
            self.operations_per_s, self.increments, self.scan_s
        );
        for (name, latency) in [("increment", &self.increment), ("read", &self.read)] {
            let _ = writeln!(
                out,
                "{name:<14} {} (99 %: {}, longest {})",
                human_us(latency.p50_us),
                human_us(latency.p99_us),
                human_us(latency.max_us)
            );
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
    fn a_small_run_counts_each_increment() {
        let dir = std::env::temp_dir().join(format!("bench-counters-test-{}", std::process::id()));
        let dir = WorkDir::fresh(&dir).unwrap();
        let args = crate::args::tests::args("counters --num 50 --threads 3 --seconds 0.2");
        let report = run(&args, &Lava, dir.path()).unwrap();
        assert!(report.increments > 0 && report.increment.count == report.increments, "{}", report.text());
        assert!(report.text().contains("threads: 3"), "{}", report.text());
    }
}
