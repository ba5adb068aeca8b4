//! `bench rest`: space that a store frees on its own after deletes, and the time that it takes.
//!
//! 1. **Load**: `--num` keys, each with a value of `--value-size` bytes, and a flush.
//! 2. **Delete**: each key with a probability of `--deleted` percent; two thirds of the keys one by
//!    one, the last third by one range delete of the same share.
//! 3. **Rest**: no calls except `Db::space` each second, until the process has written nothing for
//!    `--ended` seconds and the store reports that it is at rest.
//! 4. **Still**: `--still` seconds, in which the process must not write.
//! 5. **Check**: the space report against the directory, and every key against its expected state.

use crate::Result;
use crate::host::{self, now_ns, wait_until};
use crate::report::human_bytes;
use crate::space;
use clap::Args;
use io::Rng;
use lavastore::{Db, RestState, WriteBatch};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::Path;

const SECOND_NS: u64 = 1_000_000_000;
/// Timeout of rest work in seconds.
const REST_MAX_S: u64 = 4 * 3600;
/// Bytes per batch of the load.
const BATCH_BYTES: usize = 1 << 20;
/// Time allowed before and after rest work in seconds, independent of the store's size.
const REST_FIXED_S: f64 = 60.0;

/// Options of `bench rest`.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct RestArgs {
    /// Number of keys in the store, 3 to 10000000000. More keys take more space and time
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub num: u64,
    /// Length of a value in bytes: a plain number, 16 to 16777216. Values cannot be compressed
    #[arg(long, value_name = "BYTES", default_value_t = 16_000)]
    pub value_size: u64,
    /// Percentage of deleted keys, 0 to 100, a whole number: of the last third of the keys by one
    /// range, of the others one by one
    #[arg(long, value_name = "PERCENT", default_value_t = 50)]
    pub deleted: u64,
    /// Whole seconds in which the idle store must not write, after it came to rest; 0: no such
    /// check. They lengthen the run
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub still: u64,
    /// Whole seconds without a written byte after which rest work has ended, if the store reports
    /// so too. Too few may take a pause for the end
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub ended: u64,
    /// Seed of keys and values, any number below 2^64: the same seed gives the same data and
    /// deletes
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl RestArgs {
    /// Checks the options.
    ///
    /// # Errors
    /// An error that names the option and its range.
    pub fn check(&self) -> Result<()> {
        if !(16..=16 << 20).contains(&self.value_size) {
            return Err("--value-size must be 16 to 16777216 bytes".into());
        }
        if !(3..=10_000_000_000).contains(&self.num) || self.deleted > 100 {
            return Err("--num must be 3 to 10000000000 keys, --deleted at most 100 percent".into());
        }
        Ok(())
    }
}

/// The report of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RestRun {
    /// Bytes of the directory after the load.
    pub loaded_bytes: u64,
    /// Seconds of the load.
    pub load_seconds: f64,
    /// Bytes of keys and values that were not deleted.
    pub live_bytes: u64,
    /// Bytes of the idle directory.
    pub rest_bytes: u64,
    /// Bytes of exposed garbage in value files at rest.
    pub garbage_bytes: u64,
    /// Seconds from the last delete to the last byte of rest work.
    pub rest_seconds: f64,
    /// Bytes written by the process in that time.
    pub written_bytes: u64,
    /// Maximum time of rest work: 60 s, plus the written bytes over half of the load rate.
    pub rest_seconds_max: f64,
    /// Bytes written by the process during the idle check.
    pub still_bytes: u64,
    /// Bytes of the directory minus those of the space report.
    pub ledger_difference_bytes: i64,
    /// Description of the machine.
    pub machine: String,
    /// Options of the run.
    pub options: RestArgs,
}

/// Makes a run in `dir`.
///
/// # Errors
/// Errors of the store; a wrong result; a timeout of rest work.
pub fn run(args: &RestArgs, dir: &Path) -> Result<RestRun> {
    args.check()?;
    let db = Db::open(dir)?;
    let begun_ns = now_ns();
    load(args, &db)?;
    let load_seconds = since_s(begun_ns);
    let loaded_bytes = space::allocated(dir).bytes;
    delete(args, &db)?;
    let before = host::process_counters();
    let (rest_seconds, after) = rest(args, &db)?;
    wait_until(now_ns() + args.still * SECOND_NS);
    let still_bytes = host::process_counters().write_bytes - after;
    let report = db.space()?;
    let rest_bytes = space::allocated(dir).bytes;
    check_contents(args, &db)?;
    db.close()?;
    let written_bytes = after - before.write_bytes;
    let rate = loaded_bytes as f64 / load_seconds.max(f64::MIN_POSITIVE) / 2.0;
    Ok(RestRun {
        loaded_bytes,
        load_seconds,
        live_bytes: (0..args.num).filter(|nth| !is_deleted(args, *nth)).count() as u64
            * (args.value_size + key(0).len() as u64),
        rest_bytes,
        garbage_bytes: report.garbage_bytes,
        rest_seconds,
        written_bytes,
        rest_seconds_max: REST_FIXED_S + written_bytes as f64 / rate,
        still_bytes,
        ledger_difference_bytes: rest_bytes as i64 - report.total_bytes as i64,
        machine: host::machine(),
        options: args.clone(),
    })
}

fn since_s(begun_ns: u64) -> f64 {
    (now_ns() - begun_ns) as f64 / SECOND_NS as f64
}

fn key(nth: u64) -> Vec<u8> {
    format!("key-{nth:016}").into_bytes()
}

/// Returns whether a key is deleted, from its number and the seed. The last third of the keys has
/// one range delete.
fn is_deleted(args: &RestArgs, nth: u64) -> bool {
    let ranged = ranged(args);
    if nth >= ranged.0 {
        return nth < ranged.1;
    }
    Rng::new(args.seed ^ nth.wrapping_mul(0x9e37_79b9_7f4a_7c15)).below(100) < args.deleted
}

/// Returns the range delete: from the first key to before the second.
fn ranged(args: &RestArgs) -> (u64, u64) {
    let from = args.num - args.num / 3;
    (from, from + args.num / 3 * args.deleted / 100)
}

/// Generates an incompressible value for each key.
struct Contents {
    random: Vec<u8>,
    len: usize,
}

impl Contents {
    fn new(args: &RestArgs) -> Contents {
        let len = args.value_size as usize;
        let mut random = vec![0; len + (1 << 20)];
        Rng::new(args.seed).fill(&mut random);
        Contents { random, len }
    }

    fn of(&self, nth: u64) -> &[u8] {
        let at = (nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44) as usize;
        &self.random[at..at + self.len]
    }
}

/// Writes the keys in a widely scattered order.
fn load(args: &RestArgs, db: &Db) -> Result<()> {
    let contents = Contents::new(args);
    let step = stride(args.num);
    let (mut batch, mut nth) = (WriteBatch::new(), 0);
    for _ in 0..args.num {
        batch.put(key(nth), contents.of(nth));
        nth = (nth + step) % args.num;
        if batch.byte_len() >= BATCH_BYTES {
            db.write(&std::mem::take(&mut batch))?;
        }
    }
    db.write(&batch)?;
    Ok(db.flush()?)
}

/// Returns a step that visits each number below `num`.
fn stride(num: u64) -> u64 {
    let is_prime_to = |step: u64| {
        let (mut a, mut b) = (step, num);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a == 1
    };
    (num * 618 / 1000 + 1..).find(|step| is_prime_to(*step)).unwrap_or(1)
}

fn delete(args: &RestArgs, db: &Db) -> Result<()> {
    let (from, to) = ranged(args);
    for nth in (0..from).filter(|nth| is_deleted(args, *nth)) {
        db.delete(key(nth))?;
    }
    if from < to {
        db.delete_range(key(from)..key(to))?;
    }
    Ok(())
}

/// Waits for the end of rest work. Returns the seconds until its last byte, and the bytes written
/// by the process.
fn rest(args: &RestArgs, db: &Db) -> Result<(f64, u64)> {
    let begun_ns = now_ns();
    let (mut last_ns, mut written) = (begun_ns, host::process_counters().write_bytes);
    while now_ns() - begun_ns < REST_MAX_S * SECOND_NS {
        wait_until(now_ns() + SECOND_NS);
        let now = host::process_counters().write_bytes;
        if now != written {
            (last_ns, written) = (now_ns(), now);
        }
        let is_still = now_ns() - last_ns >= args.ended * SECOND_NS;
        if is_still && db.space()?.rest.state == RestState::AtRest {
            return Ok(((last_ns - begun_ns) as f64 / SECOND_NS as f64, written));
        }
    }
    Err(format!("the background work after the deletes did not end within 4 hours: {}", db.describe()).into())
}

fn check_contents(args: &RestArgs, db: &Db) -> Result<()> {
    let contents = Contents::new(args);
    let mut left = db.iter();
    for nth in (0..args.num).filter(|nth| !is_deleted(args, *nth)) {
        let (at, value) = left
            .next()
            .ok_or("wrong answer: a scan lacks keys after the deletes; the run has no result: report it")??;
        if at.as_ref() != key(nth) || value != contents.of(nth) {
            return Err(format!("wrong answer: key {nth} has another key or value than was written; the run has no result: report it").into());
        }
    }
    if left.next().is_some() {
        Err("wrong answer: a scan has a deleted key; the run has no result: report it".into())
    } else {
        Ok(())
    }
}

impl RestRun {
    /// Returns true if rest work ended in time, the store was idle after it, and the space report
    /// has every byte.
    pub fn is_kept(&self) -> bool {
        self.rest_seconds <= self.rest_seconds_max
            && self.still_bytes == 0
            && self.ledger_difference_bytes == 0
    }

    /// Formats the report as text.
    pub fn text(&self) -> String {
        let mut out = format!("{}\n", self.machine);
        let over_live = |bytes: u64| bytes as f64 / self.live_bytes.max(1) as f64;
        let _ =
            writeln!(out, "loaded         {} in {:.0} s", human_bytes(self.loaded_bytes), self.load_seconds);
        let _ = writeln!(
            out,
            "at rest        {}, {:.2} of the {} that live; garbage {}",
            human_bytes(self.rest_bytes),
            over_live(self.rest_bytes),
            human_bytes(self.live_bytes),
            human_bytes(self.garbage_bytes)
        );
        let _ = writeln!(
            out,
            "rest work      {:.0} s of {:.0} s at most, wrote {}",
            self.rest_seconds,
            self.rest_seconds_max,
            human_bytes(self.written_bytes)
        );
        let _ = writeln!(
            out,
            "afterwards     {} written in {} s; the directory has {} bytes more than the ledger",
            human_bytes(self.still_bytes),
            self.options.still,
            self.ledger_difference_bytes
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::WorkDir;

    #[test]
    #[ignore = "waits for 20 s: every night"]
    fn a_small_store_frees_the_space_of_deletes() {
        let dir = std::env::temp_dir().join(format!("bench-rest-test-{}", std::process::id()));
        let dir = WorkDir::fresh(&dir).unwrap();
        let args = RestArgs { num: 3_000, value_size: 1_000, deleted: 50, still: 1, ended: 2, seed: 7 };
        let report = run(&args, dir.path()).unwrap();
        // Other tests of this process write at the same time, so only the space is compared.
        assert_eq!(report.ledger_difference_bytes, 0, "{}", report.text());
        assert!(report.garbage_bytes < report.live_bytes / 10, "{}", report.text());
    }

    #[test]
    fn a_stride_visits_every_number() {
        for num in [3, 10, 618, 1_000, 4_096] {
            let mut seen: Vec<u64> = (0..num).map(|i| i * stride(num) % num).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..num).collect::<Vec<_>>());
        }
    }
}
