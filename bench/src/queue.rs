//! `bench queue`: a queue on keys in order of arrival. One thread repeatedly inserts an element at
//! the end, reads the first one and deletes it.
//!
//! The queue always has `--num` elements. Every element read is compared with the expected one. The
//! tombstones of removed elements lie where the next read begins, so the report has the rate of
//! each second: it falls steadily in a store whose reads pass all tombstones.

use crate::args::BenchArgs;
use crate::engine::{Batch, Engine, EngineSettings, Opener};
use crate::host::{self, now_ns};
use crate::record::Recorder;
use crate::report::{Latency, human_us};
use crate::run::LOAD_BATCH;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Default duration of a run in seconds.
const SECONDS: f64 = 10.0;
const SECOND_NS: u64 = 1_000_000_000;

/// The report of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QueueReport {
    /// Engine and version.
    pub engine: String,
    /// Number of elements in the queue.
    pub depth: u64,
    /// Number of removed elements.
    pub pops: u64,
    /// Removed elements per second, each with an insert and a delete: the mean, and the slowest,
    /// median and fastest second.
    pub pops_per_s: f64,
    /// See [`QueueReport::pops_per_s`].
    pub pops_per_s_min: f64,
    /// See [`QueueReport::pops_per_s`].
    pub pops_per_s_median: f64,
    /// See [`QueueReport::pops_per_s`].
    pub pops_per_s_max: f64,
    /// Latency of reads of the first element.
    pub first: Latency,
    /// Bytes of the files at the end of the run.
    pub file_bytes: u64,
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
/// Errors of the engine; a wrong first element.
pub fn run(args: &BenchArgs, opener: &dyn Opener, dir: &Path) -> Result<QueueReport> {
    args.check()?;
    let engine = opener.open(dir, &EngineSettings::of(args)?)?;
    let mut queue = Queue::filled(engine.as_ref(), args)?;
    let begun_ns = now_ns();
    let end_ns = begun_ns + (args.seconds.unwrap_or(SECONDS) * 1e9) as u64;
    let mut record = Recorder::new(begun_ns);
    let (mut of_seconds, mut second) = (Vec::new(), (begun_ns, 0));
    while now_ns() < end_ns {
        queue.turn(&mut record)?;
        let now_ns = now_ns();
        if now_ns - second.0 >= SECOND_NS {
            of_seconds.push((queue.first - second.1) as f64 * 1e9 / (now_ns - second.0) as f64);
            second = (now_ns, queue.first);
        }
    }
    let pops = queue.first;
    let pops_per_s = pops as f64 * 1e9 / (now_ns() - begun_ns) as f64;
    let file_bytes = engine.allocated(dir).bytes;
    let engine_settings = engine.settings().into_iter().collect();
    engine.close()?;
    of_seconds.sort_by(f64::total_cmp);
    let at = |nth: usize| of_seconds.get(nth).copied().unwrap_or(pops_per_s);
    Ok(QueueReport {
        engine: opener.name(),
        depth: args.keys(),
        pops,
        pops_per_s,
        pops_per_s_min: at(0),
        pops_per_s_median: at(of_seconds.len() / 2),
        pops_per_s_max: at(of_seconds.len().saturating_sub(1)),
        first: Latency::of(&record.latency_ns),
        file_bytes,
        machine: host::machine(),
        options: args.clone(),
        engine_settings,
    })
}

/// A queue of elements from `first` up to but excluding `next`.
struct Queue<'a> {
    engine: &'a dyn Engine,
    first: u64,
    next: u64,
    value: Vec<u8>,
}

impl<'a> Queue<'a> {
    fn filled(engine: &'a dyn Engine, args: &BenchArgs) -> Result<Queue<'a>> {
        let value = vec![b'q'; args.sizes().mean() as usize];
        let mut batch = Batch::default();
        for nth in 0..args.keys() {
            batch.put(&key(nth), &value);
            if batch.len() as u64 == LOAD_BATCH || nth + 1 == args.keys() {
                engine.write(&batch, false)?;
                batch.clear();
            }
        }
        Ok(Queue { engine, first: 0, next: args.keys(), value })
    }

    /// Inserts an element and removes the first one.
    fn turn(&mut self, record: &mut Recorder) -> Result<()> {
        self.engine.put(&key(self.next), &self.value)?;
        self.next += 1;
        let due = key(self.first);
        let begun_ns = now_ns();
        let mut is_due = false;
        self.engine.scan(&[], 1, &mut |key, value| is_due = *key == due && *value == *self.value)?;
        record.complete(begun_ns, now_ns(), 1, 0);
        if !is_due {
            return Err(Error::from(format!(
                "wrong answer: the first element of the queue is not element {}; the run has no result: report it",
                self.first
            )));
        }
        self.engine.delete(&due)?;
        self.first += 1;
        Ok(())
    }
}

fn key(nth: u64) -> [u8; 8] {
    nth.to_be_bytes()
}

impl QueueReport {
    /// Formats the report as text.
    pub fn text(&self) -> String {
        let mut out = format!("{}, a queue of {} elements\n", self.engine, self.depth);
        let _ = writeln!(
            out,
            "elements taken {:10.0} /s  (a second: {:.0} to {:.0}, median {:.0}), {} in all",
            self.pops_per_s, self.pops_per_s_min, self.pops_per_s_max, self.pops_per_s_median, self.pops
        );
        let _ = writeln!(
            out,
            "first element  {} (99 %: {}, longest {})",
            human_us(self.first.p50_us),
            human_us(self.first.p99_us),
            human_us(self.first.max_us)
        );
        let _ = writeln!(out, "files          {} bytes", self.file_bytes);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::WorkDir;
    use crate::lava::Lava;

    #[test]
    fn a_small_run_takes_every_element_in_order() {
        let dir = std::env::temp_dir().join(format!("bench-queue-test-{}", std::process::id()));
        let dir = WorkDir::fresh(&dir).unwrap();
        let line = "queue --num 500 --value-size 100 --seconds 0.2";
        let report = run(&crate::args::tests::args(line), &Lava, dir.path()).unwrap();
        assert!(report.pops > 0 && report.first.count == report.pops, "{}", report.text());
        assert!(report.text().contains("a queue of 500 elements"), "{}", report.text());
    }
}
