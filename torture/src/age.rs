//! Row `age-after-power-loss`: a loss of power takes no buffered write that is older than
//! `ExpertOptions::buffered_age_ms_max`.
//!
//! Buffered writes come in bursts that fill the ring of the log, in trickles and in flows, beside a
//! few durable writes and flushes. Time passes in steps, and background work has its turn after
//! each. The power fails at random moments. Every write that is older than the bound must be there,
//! and no write without all before it.
//!
//! A flow is the hard case: all pages are written long before they are old, so only their age in
//! files that no sync reached makes a sync due. A log that compares the age with the end of the
//! written pages loses such writes in one loss of twenty.

use crate::case::{Context, Outcome, guarded};
use crate::check::{Check, Doing, ensure};
use crate::machine::DIR;
use crate::plan::pick;
use crate::tally::{self, AGE_TAKEN, OLD_WRITES};
use io::Rng;
use lavastore::testing::{CrashKind, Policy, SimEnv};
use lavastore::{Db, Durability, Options, WriteOptions};

/// Delay that the bound allows, nanoseconds. A store with threads may be a second late; here
/// background work has its turn every [`STEP_NS`].
const SLACK_NS: u64 = 5 * STEP_NS;
/// Time between two turns of background work, nanoseconds.
const STEP_NS: u64 = 20_000_000;
/// Losses of power in one case.
const LOSSES: u64 = 6;

/// A store, and the times of its writes.
struct AgeWorkload {
    sim: SimEnv,
    db: Db,
    options: Options,
    age_ns: u64,
    /// When each write was acknowledged.
    written_ns: Vec<u64>,
    /// Number of writes that a durable write or a flush covers.
    durable: usize,
}

fn options(rng: &mut Rng) -> Options {
    let options = Options {
        memtable_bytes: 4 << 20,
        memory_bytes: 16 << 20,
        durability: Durability::Buffered,
        ..Options::default()
    }
    .expert(|expert| {
        expert.log_group_bytes = pick(rng, &[256 << 10, 4 << 20, 4 << 20]);
        expert.wal_bytes_max = 16 << 20;
        expert.buffered_age_ms_max = Some(pick(rng, &[100, 1000, 5000]));
    });
    Options { memory_bytes: options.memory_bytes + options.waiting_log_bytes(), ..options }
}

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut rng = Rng::new(seed ^ 0x6167_6500);
    let sim = SimEnv::new(seed);
    let options = options(&mut rng);
    let age_ns = options.expert.buffered_age_ms_max.unwrap_or_default() * 1_000_000;
    let made = outcome.made(|| Db::open_in(&sim.env(), DIR, &options).doing(|| "open".into()));
    let Some(db) = made else { return outcome };
    let mut life = AgeWorkload { sim, db, options, age_ns, written_ns: Vec::new(), durable: 0 };
    for nth in 0..LOSSES {
        let lived = guarded(|| life.go_on(&mut rng)).and_then(|lived| lived);
        let policy = pick(&mut rng, &Policy::ALL);
        let after = life.sim.crash(CrashKind::PowerLossWith(policy), rng.next_u64());
        let checked = lived.and_then(|()| guarded(|| life.check(&after)).and_then(|check| check));
        match checked {
            Ok((taken, old)) => {
                outcome.note(AGE_TAKEN, u64::from(taken));
                outcome.note(OLD_WRITES, u64::from(old));
                outcome.take(Ok(()));
            }
            Err(why) => {
                outcome.take(Err(format!("loss {nth}, {policy:?}, bound {} ms: {why}", age_ns / 1_000_000)));
                break;
            }
        }
    }
    tally::add(&life.db);
    outcome
}

impl AgeWorkload {
    /// Runs some bursts, pauses and trickles, and sometimes a flow.
    fn go_on(&mut self, rng: &mut Rng) -> Check {
        for _ in 0..rng.range(2, 6) {
            match rng.below(8) {
                0 => self.write(rng, &WriteOptions::durable())?,
                1 if rng.one_in(3) => {
                    self.db.flush().doing(|| "flush".into())?;
                    self.durable = self.written_ns.len();
                }
                2..=4 => {
                    for _ in 0..rng.below(120) {
                        self.write(rng, &WriteOptions::buffered())?;
                    }
                }
                _ => {
                    for _ in 0..rng.below(8) {
                        self.write(rng, &WriteOptions::buffered())?;
                        self.pass(rng.below(self.age_ns / 2));
                    }
                }
            }
            if rng.one_in(2) {
                self.pass(rng.below(3 * self.age_ns));
            }
        }
        if rng.one_in(2) { self.flow(rng) } else { Ok(()) }
    }

    /// A flow of buffered writes behind a durable one. Each page is written long before the bound,
    /// because durable writes are expected; the bound, or the end of a group, syncs it.
    fn flow(&mut self, rng: &mut Rng) -> Check {
        self.write(rng, &WriteOptions::durable())?;
        let step_ns = self.age_ns / rng.range(120, 300);
        let end_ns = self.sim.now_ns() + self.age_ns + SLACK_NS + rng.below(self.age_ns / 2);
        while self.sim.now_ns() < end_ns {
            self.write(rng, &WriteOptions::buffered())?;
            self.pass(step_ns);
        }
        Ok(())
    }

    fn write(&mut self, rng: &mut Rng, options: &WriteOptions) -> Check {
        let nth = self.written_ns.len() as u64;
        let value = vec![nth as u8; rng.range(10, 6000) as usize];
        self.db.writing(options).put(nth.to_be_bytes(), &value).doing(|| format!("write {nth}"))?;
        self.written_ns.push(self.sim.now_ns());
        if options.durability == Some(Durability::Durable) {
            self.durable = self.written_ns.len();
        }
        Ok(())
    }

    /// Lets time pass, with all background work that is due after each step.
    fn pass(&self, ns: u64) {
        let end_ns = self.sim.now_ns() + ns;
        while self.sim.now_ns() < end_ns {
            self.sim.advance_ns(STEP_NS.min(end_ns - self.sim.now_ns()));
            while self.db.engine().run_background_step() {}
        }
    }

    /// Returns whether the loss took writes, and whether buffered ones were above the bound.
    fn check(&self, after: &SimEnv) -> Check<(bool, bool)> {
        let now_ns = self.sim.now_ns();
        let is_old = |written_ns: &u64| written_ns + self.age_ns + SLACK_NS <= now_ns;
        let old = self.written_ns.iter().take_while(|ns| is_old(ns)).count();
        let db = Db::open_in(&after.env(), DIR, &self.options).doing(|| "open after the loss".into())?;
        let found = db.iter().collect::<lavastore::Result<Vec<_>>>().doing(|| "scan".into())?;
        let is_prefix = (0u64..).zip(&found).all(|(nth, (key, _))| **key == nth.to_be_bytes());
        ensure!(is_prefix, "of {} writes there are {}, with a hole", self.written_ns.len(), found.len());
        let required = old.max(self.durable);
        ensure!(
            found.len() >= required,
            "of {} writes {} are there; {} are durable and {old} are older than the bound",
            self.written_ns.len(),
            found.len(),
            self.durable
        );
        Ok((found.len() < self.written_ns.len(), old > self.durable))
    }
}
