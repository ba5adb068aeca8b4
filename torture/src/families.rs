//! Row `families`: a store of many families, whose short memtables share flushes.
//!
//! Each write puts its number into some families, in one batch. Flushes, compactions and
//! syncs run in between, an operation of the file system may fail, and the machine crashes.
//! After the open, with the largest number found as `last`:
//!
//! * every write up to `last` is there as a whole, and no later one in any part;
//! * `last` is at least the last durable write;
//! * every family is there.
//!
//! The store then continues: every family takes a write, and all are flushed and read again.

use crate::case::{Context, Outcome};
use crate::check::{Check, Doing, ensure};
use crate::crash::check_verify;
use crate::machine::{self, DIR};
use crate::plan::pick;
use crate::tally;
use io::Rng;
use lavastore::testing::{CrashKind, FaultEffect, FaultPlan, SimEnv};
use lavastore::{Db, Family, Options, WriteBatch, WriteOptions};

/// Maximum number of families of one batch.
const BATCH_FAMILIES_MAX: u64 = 8;

/// A store of many families.
struct ManyFamilies {
    sim: SimEnv,
    options: Options,
    db: Db,
    families: Vec<Family>,
    /// The families of each write, by number; write 0 is none.
    writes: Vec<Vec<usize>>,
    durable: usize,
}

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut rng = Rng::new(seed ^ 0x6661_6d69_6c79);
    outcome.take(run(seed, &mut rng));
    outcome
}

fn run(seed: u64, rng: &mut Rng) -> Check {
    let mut store = ManyFamilies::new(seed, rng)?;
    let steps = pick(rng, &[50, 200, 600]);
    if rng.one_in(3) {
        let effect = pick(rng, &[FaultEffect::Eio, FaultEffect::NoSpace]);
        let plan = FaultPlan::nth(rng.below(60), effect);
        store.sim.inject(if rng.one_in(2) { plan.sticky() } else { plan });
    }
    for _ in 0..steps {
        if let Err(e) = store.step(rng) {
            ensure!(store.sim.faults_fired() > 0, "an operation failed without a fault: {e}");
            break;
        }
    }
    let kind = pick(rng, &[CrashKind::ProcessKill, CrashKind::PowerLoss]);
    let after = store.sim.crash(kind, rng.next_u64());
    store.sim.clear_faults();
    tally::add(&store.db);
    let ManyFamilies { options, writes, durable, families, .. } = store;
    let count = families.len();
    drop((families, store.db));
    let db = Db::open_in(&machine::env(&after)?, DIR, &options).doing(|| "refused to open".into())?;
    check(&db, &writes, durable, count)?;
    go_on(&db, count)?;
    check_verify(&db)?;
    tally::add(&db);
    db.close().doing(|| "close".into())
}

impl ManyFamilies {
    fn new(seed: u64, rng: &mut Rng) -> Check<ManyFamilies> {
        let sim = machine::new(seed);
        let options = Options {
            memtable_bytes: pick(rng, &[64 << 10, 1 << 20]),
            background_threads: pick(rng, &[1, 2]),
            ..Options::default()
        };
        let options = options.expert(|expert| expert.log_group_bytes = 256 << 10);
        let db = Db::open_in(&machine::env(&sim)?, DIR, &options).doing(|| "open".into())?;
        let mut families = Vec::new();
        for nth in 0..pick(rng, &[20, 100, 400]) {
            let family = db.create_family(&name(nth), &options.family).doing(|| "create".into())?;
            families.push(family);
        }
        Ok(ManyFamilies { sim, options, db, families, writes: vec![Vec::new()], durable: 0 })
    }

    fn step(&mut self, rng: &mut Rng) -> Result<(), lavastore::Error> {
        match rng.below(40) {
            0 => self.db.flush()?,
            1 => self.db.compact_range(..)?,
            2 => {
                self.db.sync()?;
                self.durable = self.writes.len() - 1;
            }
            3..10 => drop(self.db.engine().run_background_step()),
            _ => self.write(rng)?,
        }
        Ok(())
    }

    fn write(&mut self, rng: &mut Rng) -> Result<(), lavastore::Error> {
        let number = self.writes.len();
        let mut families: Vec<usize> = (0..rng.range(1, BATCH_FAMILIES_MAX + 1))
            .map(|_| rng.below(self.families.len() as u64) as usize)
            .collect();
        families.sort_unstable();
        families.dedup();
        let mut batch = WriteBatch::new();
        for nth in &families {
            batch.family(&self.families[*nth]).put(KEY, value(number, rng));
        }
        // A failed write may be there after a crash.
        self.writes.push(families);
        let is_durable = rng.one_in(6);
        let options = if is_durable { WriteOptions::durable() } else { WriteOptions::default() };
        self.db.writing(&options).write(&batch)?;
        if is_durable {
            self.durable = number;
        }
        Ok(())
    }
}

const KEY: &str = "last write";

/// Returns the number of a write with a padding, so that some values are separated.
fn value(number: usize, rng: &mut Rng) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    value.resize(value.len() + pick(rng, &[0, 0, 100, 1_000]), b'.');
    value
}

fn number_in(value: &[u8]) -> Option<usize> {
    value.first_chunk().map(|bytes| usize::from_le_bytes(*bytes))
}

fn name(nth: usize) -> String {
    format!("family {nth}")
}

/// Compares the families with the writes up to the last one that is found.
fn check(db: &Db, writes: &[Vec<usize>], durable: usize, count: usize) -> Check {
    let mut found = Vec::with_capacity(count);
    for nth in 0..count {
        let family = db.open_family(&name(nth)).doing(|| name(nth))?;
        let value = family.get(KEY).doing(|| name(nth))?;
        found.push(value.as_deref().and_then(number_in));
    }
    let last = found.iter().flatten().max().copied().unwrap_or(0);
    ensure!(last >= durable, "write {durable} was durable, and the last one found is {last}");
    let mut expected = vec![None; count];
    for (number, families) in writes.iter().enumerate().take(last + 1) {
        families.iter().for_each(|nth| expected[*nth] = Some(number));
    }
    let differs = (0..count).find(|nth| found[*nth] != expected[*nth]);
    ensure!(
        differs.is_none(),
        "up to write {last}, {} has {:?} of {:?}",
        name(differs.unwrap_or(0)),
        found[differs.unwrap_or(0)],
        expected[differs.unwrap_or(0)]
    );
    Ok(())
}

/// Every family takes a write, and all are flushed and read again.
fn go_on(db: &Db, count: usize) -> Check {
    for nth in 0..count {
        let family = db.open_family(&name(nth)).doing(|| name(nth))?;
        family.put(KEY, usize::MAX.to_le_bytes()).doing(|| name(nth))?;
    }
    db.flush().doing(|| "flush".into())?;
    for nth in 0..count {
        let value = db.open_family(&name(nth)).and_then(|family| family.get(KEY)).doing(|| name(nth))?;
        ensure!(value.as_deref() == Some(&usize::MAX.to_le_bytes()[..]), "{} lost a write", name(nth));
    }
    Ok(())
}
