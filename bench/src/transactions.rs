//! `bench transactions`: transactions of four reads and two writes, on keys of a Zipf distribution.
//!
//! Each transaction reads two keys, and adds one to the counters of two others, which it reads for
//! update. After a conflict it begins again. At the end the sum of all counters must be twice the
//! number of committed transactions.

use crate::args::{BenchArgs, Distribution};
use crate::distribution::Picker;
use crate::engine::{Batch, Engine, EngineSettings, Opener};
use crate::host::{self, now_ns};
use crate::keys::{Keys, mix};
use crate::record::{self, Recorder};
use crate::report::{Latency, human_us};
use crate::run::LOAD_BATCH;
use crate::{Error, Result};
use io::Rng;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Default duration of a run in seconds.
const SECONDS: f64 = 10.0;
/// Bytes of the counter at the begin of a value.
const COUNTER_LEN: usize = 8;
/// Keys of a transaction: the first ones are written.
const KEYS: usize = 4;
const WRITTEN: usize = 2;

/// The report of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TransactionsReport {
    /// Engine and version.
    pub engine: String,
    /// Whether the transactions had row locks; otherwise they were optimistic.
    pub locks: bool,
    /// Number of client threads.
    pub threads: u64,
    /// Number of committed transactions.
    pub committed: u64,
    /// Number of transactions that began again: conflicts, deadlocks, waits that were too long.
    pub repeated: u64,
    /// Committed transactions per second.
    pub transactions_per_s: f64,
    /// Time of a transaction with its repetitions.
    pub latency: Latency,
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
/// Errors of the engine, or an engine without transactions; a wrong sum of the counters.
pub fn run(args: &BenchArgs, opener: &dyn Opener, dir: &Path) -> Result<TransactionsReport> {
    args.check()?;
    let engine = opener.open(dir, &EngineSettings::of(args)?)?;
    let keys = Keys::new(args.key_size, args.seed);
    load(engine.as_ref(), args, &keys)?;
    let begun_ns = now_ns();
    let end_ns = begun_ns + (args.seconds.unwrap_or(SECONDS) * 1e9) as u64;
    let clients: Result<Vec<Client>> = std::thread::scope(|scope| {
        let client = |thread| Client::new(engine.as_ref(), args, &keys, thread, begun_ns);
        let threads: Vec<_> = (0..args.threads())
            .map(|thread| {
                let client = client(thread);
                scope.spawn(move || client.run_until(end_ns))
            })
            .collect();
        let panicked = || Error::from("a client thread panicked: report it");
        threads.into_iter().map(|thread| thread.join().map_err(|_| panicked())?).collect()
    });
    let clients = clients?;
    let seconds = (now_ns() - begun_ns) as f64 / 1e9;
    let committed = clients.iter().map(|client| client.committed).sum();
    check_sum(engine.as_ref(), args.keys(), committed)?;
    let repeated = clients.iter().map(|client| client.repeated).sum();
    let records: Vec<Recorder> = clients.into_iter().map(|client| client.record).collect();
    let engine_settings = engine.settings().into_iter().collect();
    engine.close()?;
    Ok(TransactionsReport {
        engine: opener.name(),
        locks: args.locks,
        threads: args.threads(),
        committed,
        repeated,
        transactions_per_s: committed as f64 / seconds,
        latency: Latency::of(&record::merge(&records).latency_ns),
        machine: host::machine(),
        options: args.clone(),
        engine_settings,
    })
}

fn load(engine: &dyn Engine, args: &BenchArgs, keys: &Keys) -> Result<()> {
    let value = vec![0; (args.sizes().mean() as usize).max(COUNTER_LEN)];
    let (mut batch, mut key) = (Batch::default(), Vec::new());
    for nth in 0..args.keys() {
        keys.write(nth, &mut key);
        batch.put(&key, &value);
        if batch.len() as u64 == LOAD_BATCH || nth + 1 == args.keys() {
            engine.write(&batch, false)?;
            batch.clear();
        }
    }
    Ok(())
}

fn counter(value: &[u8]) -> Result<u64> {
    let bytes = value.first_chunk::<COUNTER_LEN>().ok_or("wrong answer: a value is too short: report it")?;
    Ok(u64::from_le_bytes(*bytes))
}

/// Compares the sum of all counters with the number of committed transactions.
fn check_sum(engine: &dyn Engine, keys: u64, committed: u64) -> Result<()> {
    let (mut sum, mut failed) = (0, None);
    engine.scan(&[], keys + 1, &mut |_, value| match counter(value) {
        Ok(counter) => sum += counter,
        Err(e) => failed = Some(e),
    })?;
    if let Some(e) = failed {
        return Err(e);
    }
    if sum != committed * WRITTEN as u64 {
        return Err(format!(
            "wrong answer: {committed} transactions were committed, and the sum of the counters is {sum}: report it"
        )
        .into());
    }
    Ok(())
}

/// A client thread.
struct Client<'a> {
    engine: &'a dyn Engine,
    keys: &'a Keys,
    picker: Picker,
    rng: Rng,
    locks: bool,
    record: Recorder,
    committed: u64,
    repeated: u64,
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
            locks: args.locks,
            record: Recorder::new(begun_ns),
            committed: 0,
            repeated: 0,
        }
    }

    fn run_until(mut self, end_ns: u64) -> Result<Client<'a>> {
        self.engine.thread_begin();
        let (mut keys, mut value) = (vec![Vec::new(); KEYS], Vec::new());
        while now_ns() < end_ns {
            self.draw(&mut keys);
            let begun_ns = now_ns();
            loop {
                match self.transact(&keys, &mut value) {
                    Ok(()) => break,
                    Err(e) if self.engine.is_conflict(&e) => self.repeated += 1,
                    Err(e) => return Err(e),
                }
            }
            self.record.complete(begun_ns, now_ns(), 1, 0);
            self.committed += 1;
        }
        self.engine.thread_end();
        Ok(self)
    }

    /// Draws distinct keys.
    fn draw(&mut self, keys: &mut [Vec<u8>]) {
        let mut drawn = Vec::with_capacity(KEYS);
        for key in keys {
            let mut index = self.picker.next(&mut self.rng);
            while drawn.contains(&index) {
                index = self.picker.next(&mut self.rng);
            }
            drawn.push(index);
            self.keys.write(index, key);
        }
    }

    fn transact(&self, keys: &[Vec<u8>], value: &mut Vec<u8>) -> Result<()> {
        let without = "the engine has no transactions";
        let mut transaction = self.engine.transaction(self.locks)?.ok_or(without)?;
        for (nth, key) in keys.iter().enumerate() {
            let found = match nth < WRITTEN {
                true => transaction.get_for_update(key, value)?,
                false => transaction.get(key, value)?,
            };
            if !found {
                return Err("wrong answer: a key of the load is missing: report it".into());
            }
            if nth < WRITTEN {
                let next = counter(value)? + 1;
                value[..COUNTER_LEN].copy_from_slice(&next.to_le_bytes());
                transaction.put(key, value)?;
            }
        }
        transaction.commit()
    }
}

impl TransactionsReport {
    /// Formats the report as text.
    pub fn text(&self) -> String {
        let kind = if self.locks { "with row locks" } else { "optimistic" };
        let mut out = format!("{}, transactions {kind}, threads: {}\n", self.engine, self.threads);
        let _ = writeln!(
            out,
            "committed      {:10.0} /s  ({} in all, {} repeated)",
            self.transactions_per_s, self.committed, self.repeated
        );
        let _ = writeln!(
            out,
            "latency        {} (99 %: {}, longest {})",
            human_us(self.latency.p50_us),
            human_us(self.latency.p99_us),
            human_us(self.latency.max_us)
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::WorkDir;
    use crate::lava::Lava;

    #[test]
    fn a_small_run_commits_and_keeps_the_sum() {
        for locks in ["", " --locks"] {
            let dir = std::env::temp_dir().join(format!("bench-transactions-test-{}", std::process::id()));
            let dir = WorkDir::fresh(&dir).unwrap();
            let line = format!("transactions --num 20 --value-size 100 --threads 3 --seconds 0.2{locks}");
            let report = run(&crate::args::tests::args(&line), &Lava, dir.path()).unwrap();
            assert!(report.committed > 0 && report.latency.count == report.committed, "{}", report.text());
            assert!(report.text().contains("threads: 3"), "{}", report.text());
        }
    }
}
