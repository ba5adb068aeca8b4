//! Rows `sched` and `sched-crash`: the real engine with its real threads, under schedules.
//!
//! A few threads write, read, hold snapshots, flush, compact, collect, take checkpoints, create and
//! drop families. At last one closes the store. The store's own threads work in the background.
//! [`io`]'s simulated machine runs one thread at a time; a seed chooses which at every lock,
//! condition, atomic and file system call.
//!
//! [`story`] defines the requirements. Every reader sees a prefix of the batches of each writer,
//! equal in both families, that covers all batches returned before its begin. If a batch is there,
//! so are all batches that returned before it began. Snapshots do not change. At the end no data is
//! lost, at rest every file is accounted for, and a reopen finds the same data.
//!
//! In `sched-crash` the machine dies at any operation of the schedule, which is every point of it
//! (see `io::sim::threads`). The store must open with all data promised by then. Some stores are
//! reopened under a schedule. Some runs also have a failing sync.

mod story;
mod work;

use crate::case::{Context, Outcome, guarded};
use crate::check::{Check, Doing, ensure};
use crate::crash::{TRACE, check_verify, kind, loss};
use crate::driver::scan;
use crate::files::check_opened;
use crate::history::Loss;
use crate::machine;
use crate::machine::DIR;
use crate::plan;
use crate::tally::REOPENED;
use crate::wide::Image;
use io::Rng;
use io::sim::threads::{Plan, Stuck};
use lavastore::inspect::log_contents;
use lavastore::testing::{CrashKind, Record, SimEnv};
use lavastore::{Db, Durability, Env, Options, SeqNo};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use story::Story;
use work::Shape;

/// Crash states tested per run.
const STATES: u64 = 12;

/// A completed run with its machine.
struct Told {
    seed: u64,
    sim: SimEnv,
    story: Story,
    described: String,
}

/// Runs a schedule. Fails on a wrong observation or a stuck run.
fn tell(seed: u64, outcome: &mut Outcome) -> Check<Arc<Told>> {
    let mut rng = Rng::new(seed ^ 0x0073_6368_6564);
    let sim = machine::new(seed);
    let shape = Shape::drawn(&mut rng, machine::is_lavafs());
    let machine = sim.clone();
    let described = shape.describe();
    outcome.note("runs without a log", u64::from(shape.volatile));
    let ran = sim.run_threads(&Plan::new(seed), move |env| work::run(env, &machine, shape, rng));
    let ran = ran.map_err(|Stuck(why)| format!("{why}{described}"))?;
    outcome.note("steps", ran.steps);
    outcome.note("switches", ran.switches);
    outcome.note("threads", ran.threads as u64);
    let story = ran.value.map_err(|why| format!("{why}; {described}"))?;
    outcome.note("batches", story.batches().count() as u64);
    outcome.note("faults met", u64::from(story.faulted));
    story.counts.iter().for_each(|(what, count)| outcome.note(what, *count));
    Ok(Arc::new(Told { seed, sim, story, described }))
}

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let told = tell(seed, &mut outcome);
    let checked = told.and_then(|told| reopen(&told.sim.clone(), &told, u64::MAX, None, &mut outcome));
    outcome.take(checked);
    outcome
}

pub(crate) fn case_crash(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let told = match tell(seed, &mut outcome) {
        Ok(told) => told,
        Err(why) => {
            outcome.failures.push(why);
            return outcome;
        }
    };
    let record = told.sim.record();
    if let Err(why) = watch_log(&record, &mut outcome) {
        outcome.take(Err(format!("{why}; {}", told.described)));
        return outcome;
    }
    let ops = record.mutations();
    let mut rng = Rng::new(seed ^ 0x7363_6873_7461_7465);
    for state in 0..STATES {
        let mut rng = rng.fork();
        let kind = kind(&mut rng);
        // After a failed call, its consequences are in the last part of the run.
        let from = if told.story.faulted { ops.len() / 2 } else { 0 };
        let op = match rng.below(12) {
            0 => record.op_count(),
            _ => ops[rng.range(from as u64, ops.len() as u64) as usize],
        };
        let after = record.crash_at(op, kind, rng.next_u64());
        outcome.images.push(Image { hash: after.state_hash(), is_wide: told.story.is_wide });
        let checked =
            guarded(|| reopen(&after, &told, op, Some(loss(kind)), &mut outcome)).and_then(|check| check);
        if checked.is_err() && std::env::var_os(TRACE).is_some() {
            println!("the run:\n{}\nafter the crash:\n{}", told.sim.trace(), after.trace());
        }
        let (op, described) = (format!("operation {op} of {}", record.op_count()), &told.described);
        outcome.take(checked.map_err(|why| format!("state {state}, {kind:?} at {op}: {why}; {described}")));
        if outcome.failures.len() > 2 {
            break;
        }
    }
    outcome
}

/// Checks before each manifest edit that data in no table is still in the log, since data leaves
/// the log only with an edit. (On LavaFS these operations cannot be recognized.)
fn watch_log(record: &Record, outcome: &mut Outcome) -> Check {
    if machine::is_lavafs() {
        return Ok(());
    }
    let mut unflushed: BTreeMap<SeqNo, u32> = BTreeMap::new();
    for op in record.changes_of("MANIFEST") {
        let sim = record.crash_before(op, CrashKind::ProcessKill, 0);
        let log = match log_contents(&machine::env(&sim)?, Path::new(DIR)) {
            Ok(log) => log,
            // The store is being created.
            Err(_) if unflushed.is_empty() => continue,
            Err(e) => return Err(format!("before operation {op} manifest and log cannot be read: {e}")),
        };
        for (seq, family) in &unflushed {
            ensure!(
                log.holds(*seq, *family),
                "before operation {op} sequence {seq} of family {family} has left the log, and the floor of its family is {:?}",
                log.floors.get(family)
            );
        }
        outcome.note("looks at the log", 1);
        unflushed.extend(log.entries);
        unflushed.retain(|seq, family| log.floors.get(family).is_some_and(|floor| seq >= floor));
    }
    Ok(())
}

/// Opens the store after the schedule, or after a crash in it, and compares: without threads, or
/// one time in four under a schedule, so that replay, initial jobs and readers interleave.
fn reopen(sim: &SimEnv, told: &Arc<Told>, op: u64, loss: Option<Loss>, outcome: &mut Outcome) -> Check {
    if told.story.created_op > op {
        return Ok(());
    }
    let again = Again { sim: sim.clone(), told: told.clone(), op, loss };
    // Drawn from a separate generator, so that recorded seeds keep their draws.
    if !Rng::new(told.seed ^ op ^ 0x7468_7265_6164).one_in(4) {
        return again.check(&machine::env(sim)?, false);
    }
    let lavafs = machine::is_lavafs();
    let ran = sim.run_threads(&Plan::new(told.seed ^ op), move |env| {
        let env = if lavafs { machine::env_with_threads(&again.sim, env)? } else { env.clone() };
        again.check(&env, true)
    });
    outcome.note(REOPENED, 1);
    ran.map_err(|Stuck(why)| format!("reopened: {why}"))?.value
}

/// A reopen of a store.
struct Again {
    sim: SimEnv,
    told: Arc<Told>,
    op: u64,
    loss: Option<Loss>,
}

impl Again {
    fn check(&self, env: &Env, has_threads: bool) -> Check {
        let (story, op) = (&self.told.story, self.op);
        let mut rng = Rng::new(self.told.seed ^ op);
        let drawn = plan::options(&mut rng);
        // Under a schedule, time passes only when all threads are idle.
        let io_budget = if has_threads { 0 } else { drawn.io_budget };
        let options =
            Options { durability: Durability::Durable, ..plan::roomy(Options { io_budget, ..drawn }) };
        let db = Db::open_in(env, DIR, &options)
            .doing(|| format!("refused to open with {}", plan::describe(&options)))?;
        if !has_threads {
            // With threads, jobs create and remove files during the check.
            check_opened(&db, env, DIR.as_ref())?;
        }
        let found = scan(&db)?;
        story.check_reopened(&db, &found, op, self.loss)?;
        check_verify(&db)?;
        for copy in story.checkpoints.iter().filter(|copy| copy.end_op <= op) {
            let copied = Db::open_in(env, &copy.dir, &Options::default())
                .doing(|| format!("open of checkpoint {}", copy.dir))?;
            let found = scan(&copied)?;
            story.check_checkpoint(copy, &found).map_err(|why| format!("checkpoint {}: {why}", copy.dir))?;
        }
        db.put(b"~", b"afterwards").doing(|| "write after recovery".into())?;
        ensure!(db.get(b"~").doing(|| "get".into())?.is_some(), "a write after recovery is not there");
        db.close().doing(|| "close after recovery".into())
    }
}
