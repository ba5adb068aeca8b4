//! `bench pauses`: device writes caused by pauses between phases of work.
//!
//! In a pause an idle store flushes, compacts and frees deleted data. Work that recurs after each
//! pause repeats this cost. Two stores get the same load and the same overwrites at the same rate:
//!
//! 1. without a pause between the rounds;
//! 2. with a pause of `--pause` seconds after each round.
//!
//! The report has the bytes that the process wrote for each store, from the first overwrite until
//! settled, and their ratio.

use crate::Result;
use crate::costs::SETTLE_MAX;
use crate::host::{self, alone, now_ns, wait_until};
use crate::report::human_bytes;
use crate::space;
use clap::Args;
use io::Rng;
use lavastore::Db;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::Path;

const SECOND_NS: u64 = 1_000_000_000;

/// Options of `bench pauses`.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct PausesArgs {
    /// Number of keys in the store, at least 1. More keys take more space and time
    #[arg(long, value_name = "N", default_value_t = 400_000)]
    pub num: u64,
    /// Length of a value in bytes: a plain number, 8 to 1048576. Longer values mean more bytes per
    /// overwrite
    #[arg(long, value_name = "BYTES", default_value_t = 1_000)]
    pub value_size: u64,
    /// Number of rounds of work, at least 1, in each of the two stores. The run lasts for all
    /// rounds of both stores, with the pauses
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub rounds: u64,
    /// Duration of a round in whole seconds, at least 1, in which the store gets --rate overwrites
    /// per second
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub work: u64,
    /// Pause after each round of the second store in whole seconds; 0: both stores get the same. A
    /// longer pause lets more background work finish
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub pause: u64,
    /// Number of overwrites per second of work, at least 1. At a rate above that of the store the
    /// rounds last longer
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    pub rate: u64,
    /// Seed of keys and values, any number below 2^64: the same seed gives the same overwrites
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl PausesArgs {
    /// Checks the options.
    ///
    /// # Errors
    /// An error that names the option and its range.
    pub fn check(&self) -> Result<()> {
        if !(8..=1 << 20).contains(&self.value_size) {
            return Err("--value-size must be 8 to 1048576 bytes".into());
        }
        if [self.num, self.rounds, self.work, self.rate].contains(&0) {
            return Err("--num (keys), --rounds, --work (seconds) and --rate (overwrites per second) must be at least 1 each".into());
        }
        Ok(())
    }
}

/// Measurements of a store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PausesStore {
    /// Bytes of keys and values written after the load.
    pub user_bytes: u64,
    /// Bytes written by the process after the load, until settled.
    pub written_bytes: u64,
    /// Bytes of the directory at the end.
    pub end_bytes: u64,
    /// Longest put in milliseconds.
    pub put_ms_max: f64,
}

/// The report of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PausesReport {
    /// The store without pauses.
    pub steady: PausesStore,
    /// The store with pauses.
    pub paused: PausesStore,
    /// Ratio of the bytes written with and without pauses.
    pub written_ratio: f64,
    /// Description of the machine.
    pub machine: String,
    /// Options of the run.
    pub options: PausesArgs,
}

/// Makes a run with both stores below `dir`, and removes them.
///
/// # Errors
/// Errors of the store.
pub fn run(args: &PausesArgs, dir: &Path) -> Result<PausesReport> {
    args.check()?;
    let steady = alone(&dir.join("steady"), |dir| store(args, 0, dir))?;
    let paused = alone(&dir.join("paused"), |dir| store(args, args.pause, dir))?;
    Ok(PausesReport {
        written_ratio: paused.written_bytes as f64 / steady.written_bytes.max(1) as f64,
        steady,
        paused,
        machine: host::machine(),
        options: args.clone(),
    })
}

fn store(args: &PausesArgs, pause_s: u64, dir: &Path) -> Result<PausesStore> {
    let db = Db::open(dir)?;
    let (mut rng, mut value) = (Rng::new(args.seed), vec![b'p'; args.value_size as usize]);
    let key = |nth: u64| format!("key-{nth:012}");
    for nth in 0..args.num {
        db.put(key(nth), fill(&mut value, &mut rng))?;
    }
    db.flush()?;
    db.wait_idle(SETTLE_MAX);
    let before = host::process_counters().write_bytes;
    let mut longest_ns = 0;
    for _ in 0..args.rounds {
        let begun_ns = now_ns();
        for put in 0..args.work * args.rate {
            let due_ns = begun_ns + put * SECOND_NS / args.rate;
            if put % args.rate.div_ceil(1_000) == 0 {
                wait_until(due_ns);
            }
            let put_ns = now_ns();
            db.put(key(rng.below(args.num)), fill(&mut value, &mut rng))?;
            longest_ns = longest_ns.max(now_ns() - put_ns);
        }
        wait_until(now_ns() + pause_s * SECOND_NS);
    }
    db.flush()?;
    db.wait_idle(SETTLE_MAX);
    let written_bytes = host::process_counters().write_bytes - before;
    db.close()?;
    Ok(PausesStore {
        user_bytes: args.rounds * args.work * args.rate * (args.value_size + key(0).len() as u64),
        written_bytes,
        end_bytes: space::allocated(dir).bytes,
        put_ms_max: longest_ns as f64 / 1e6,
    })
}

/// Changes the value; half of it stays compressible.
fn fill<'a>(value: &'a mut [u8], rng: &mut Rng) -> &'a [u8] {
    let half = value.len() / 2;
    rng.fill(&mut value[..half]);
    value
}

impl PausesReport {
    /// Formats the report as text.
    pub fn text(&self) -> String {
        let mut out = format!("{}\n", self.machine);
        for (name, store) in [("without pauses", &self.steady), ("with pauses", &self.paused)] {
            let _ = writeln!(
                out,
                "{name:15}  {} written for {} of overwrites ({:.2}); {} at the end; longest put {:.1} ms",
                human_bytes(store.written_bytes),
                human_bytes(store.user_bytes),
                store.written_bytes as f64 / store.user_bytes as f64,
                human_bytes(store.end_bytes),
                store.put_ms_max
            );
        }
        let _ = writeln!(out, "bytes written with pauses over those without: {:.2}", self.written_ratio);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::WorkDir;

    #[test]
    fn both_stores_get_the_same_work() {
        let dir = std::env::temp_dir().join(format!("bench-pauses-test-{}", std::process::id()));
        let dir = WorkDir::fresh(&dir).unwrap();
        let args = PausesArgs { num: 100, value_size: 100, rounds: 2, work: 1, pause: 1, rate: 200, seed: 7 };
        let report = run(&args, dir.path()).unwrap();
        assert_eq!(report.steady.user_bytes, report.paused.user_bytes);
        assert!(report.written_ratio > 0.0, "{}", report.text());
    }
}
