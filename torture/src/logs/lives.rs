//! Row `log-model`: long workloads on a store of logs with its model: reopens, closes, kills, and
//! single background steps.
//!
//! A third of the stores have a small limit. There an operation may be refused for lack of space;
//! then trims, which are never refused, free space, and the next appends succeed. The limit is
//! never exceeded, checked at each file system operation.

use super::model::{Driver, contents, options as model_options, seen};
use super::{Watch, driver, open, options};
use crate::case::{Context, Outcome, guarded};
use crate::check::{Check, Doing, ensure};
use crate::machine::{self, room};
use crate::plan::pick;
use io::Rng;
use lavalog::{Durability, LogStore, Lsn, Options};
use lavastore::ErrorKind;
use lavastore::testing::{CrashKind, SimEnv};

/// Returns the lowest limit that a store may have.
fn limit_min() -> u64 {
    let is_allowed = |limit: &u64| {
        let options = Options { space_limit: Some(*limit), ..model_options() };
        options.check().is_ok()
    };
    (1..).map(|n| n * (64 << 10)).find(is_allowed).expect("some limit is allowed")
}

struct LogWorkload {
    sim: SimEnv,
    driver: Driver,
    rng: Rng,
    watch: Watch,
    limit: Option<u64>,
}

impl LogWorkload {
    fn new(seed: u64) -> LogWorkload {
        let (sim, mut rng) = (machine::new(seed), Rng::new(seed ^ 0x6c6f_672d_6d6f));
        let limit = rng.one_in(3).then(|| limit_min() + pick(&mut rng, &[0, 300 << 10, 1 << 20]));
        let driver = driver(&sim, seed);
        LogWorkload { sim, driver, rng, watch: Watch::default(), limit }
    }

    fn live(&mut self) -> Check {
        for nth in 0..self.rng.range(2, 6) {
            self.session().map_err(|why| format!("session {nth}: {why}"))?;
        }
        let store = self.open()?;
        self.compare(&store, "at the end")?;
        store.close().doing(|| "the last close".into())
    }

    fn open(&mut self) -> Check<LogStore> {
        let mut options = options(&mut self.rng);
        options.space_limit = self.limit;
        if self.limit.is_none() && self.rng.one_in(4) {
            options.group_bytes = Some(512 << 10);
        }
        room::watch(&self.sim);
        open(&self.sim, &options)
    }

    fn session(&mut self) -> Check {
        let store = self.open()?;
        self.compare(&store, "opened")?;
        let (steps_max, rest_one_in) =
            (pick(&mut self.rng, &[1, 2, 5]), pick(&mut self.rng, &[20, 100, 1000]));
        for n in 0..self.rng.range(50, 500) {
            let done = if self.limit.is_some() && self.rng.one_in(30) {
                self.fill(&store)
            } else {
                let durability = self.durability();
                self.one(&store, |driver| driver.one(&store, durability))
            };
            done.map_err(|why| format!("operation {n}: {why}"))?;
            let steps = self.rng.below(steps_max);
            self.watch.steps(&store, &self.driver, steps);
            if self.rng.one_in(rest_one_in) {
                store.wait_idle().doing(|| format!("settle after operation {n}"))?;
            }
            if self.rng.one_in(60) {
                self.compare(&store, "meanwhile")?;
            }
            if let Some(limit) = self.limit {
                let peak = room::peak(&self.sim)?;
                ensure!(peak <= limit, "operation {n}: {peak} bytes were occupied of {limit}");
            }
        }
        self.watch.gone(&store);
        self.end(store)
    }

    fn durability(&mut self) -> Durability {
        if self.rng.one_in(3) { Durability::Durable } else { Durability::Buffered }
    }

    /// Appends until the store is full.
    fn fill(&mut self, store: &LogStore) -> Check {
        for _ in 0..self.rng.range(50, 500) {
            let durability = self.durability();
            let nth = self.rng.below(self.driver.model.len().max(1) as u64) as usize;
            let Some(name) = self.driver.model.keys().nth(nth).cloned() else { return Ok(()) };
            let log = store.open_log(&name).doing(|| format!("open {name}"))?;
            self.one(store, |driver| driver.append(&name, &log, durability))?;
        }
        Ok(())
    }

    /// Runs an operation. If it finds no space, frees space and checks that others succeed.
    fn one(
        &mut self,
        store: &LogStore,
        operation: impl FnOnce(&mut Driver) -> lavastore::Result<()>,
    ) -> Check {
        match operation(&mut self.driver) {
            Err(e) if e.kind() == ErrorKind::NoSpace && self.limit.is_some() => {}
            done => return done.doing(|| "an operation".into()),
        }
        let names: Vec<String> = self.driver.model.keys().cloned().collect();
        for name in &names {
            let log = store.open_log(name).doing(|| format!("open {name}"))?;
            self.driver.trim(name, &log, 3).doing(|| format!("a trim of {name} where room is short"))?;
        }
        self.sim.advance_ns(1_000_000_000);
        store.wait_idle().doing(|| "settle where trims made room".into())?;
        for name in &names {
            let (log, durability) =
                (store.open_log(name).doing(|| format!("open {name}"))?, self.durability());
            self.driver.append(name, &log, durability).doing(|| "an append where trims made room".into())?;
        }
        Ok(())
    }

    /// Ends the process in some way, or by a loss of power.
    fn end(&mut self, store: LogStore) -> Check {
        let seed = self.rng.next_u64();
        match self.rng.below(4) {
            0 => drop(store),
            1 => store.close().doing(|| "close".into())?,
            2 => self.dies(CrashKind::ProcessKill, seed, store),
            _ => {
                self.driver.sync(&store).doing(|| "sync".into())?;
                self.dies(CrashKind::PowerLoss, seed, store);
            }
        }
        Ok(())
    }

    fn dies(&mut self, kind: CrashKind, seed: u64, store: LogStore) {
        self.sim = self.sim.crash(kind, seed);
        drop(store);
    }

    /// Compares all observable state of every log with the model.
    fn compare(&mut self, store: &LogStore, when: &str) -> Check {
        ensure!(contents(store) == seen(&self.driver.model), "{when} it holds something else");
        for (name, own) in &self.driver.model {
            let log = store.open_log(name).doing(|| format!("open {name}"))?;
            let last = own.records.keys().next_back().copied();
            ensure!(log.last_lsn().doing(|| "last".into())? >= last, "{when} the last of {name} is another");
            let trimmed = own.trimmed_below.checked_sub(1).map(|lsn| log.read(lsn));
            let is_told = |read: lavastore::Result<_>| read.is_err_and(|e| e.kind() == ErrorKind::Trimmed);
            ensure!(trimmed.is_none_or(is_told), "{when} what was trimmed of {name} is read");
            let from = self.rng.below(last.unwrap_or(0) + 2);
            let to = from + self.rng.below(40);
            let has = |lsn: &Lsn| own.records.contains_key(lsn);
            let wanted: Vec<Lsn> = (from.max(own.trimmed_below)..=to).filter(|lsn| !has(lsn)).collect();
            let gaps = log.gaps(from, to, usize::MAX).doing(|| format!("gaps of {name}"))?;
            let gaps: Vec<Lsn> = gaps.into_iter().flat_map(|(first, last)| first..=last).collect();
            ensure!(
                gaps == wanted,
                "{when} the gaps of {name} from {from} to {to} are {gaps:?}, not {wanted:?}"
            );
            let scanned = log.scan_range(from..=to).map(|record| record.map(|(lsn, _)| lsn));
            let scanned: Vec<Lsn> = scanned.collect::<Result<_, _>>().doing(|| format!("scan of {name}"))?;
            let there: Vec<Lsn> = own.records.range(from..=to).map(|(lsn, _)| *lsn).collect();
            ensure!(
                scanned == there,
                "{when} a scan of {name} from {from} to {to} has {scanned:?}, not {there:?}"
            );
        }
        Ok(())
    }
}

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut life = LogWorkload::new(seed);
    let lived = guarded(|| life.live()).and_then(|lived| lived);
    life.watch.note(&life.driver, &mut outcome);
    outcome.take(lived);
    outcome
}
