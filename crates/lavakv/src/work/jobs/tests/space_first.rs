//! Tests that space precedes level 0 without starving either, on one thread and on several. A store
//! far above its garbage bound returns to it, beside families whose level 0 always needs
//! compaction. No level 0 reaches its stop, levels keep up, and garbage that cannot be freed has no
//! effect.
//!
//! Jobs run on stacks like those of the scheduler's threads, which share the device evenly.

use super::*;
use crate::context::ablation::Ablation;
use crate::{ColumnFamily, PolicyChoice, WriteBatch};
use io::Rng;
use io::sim::Costs;
use store::run::Progress;

/// Number of separated values in the family with the garbage; the default family has a quarter as
/// many.
const KEYS: u64 = 800;
const LEN: usize = 1000;
const DATA_LEN: u64 = KEYS * LEN as u64;
/// Number of keys in each family of short values, and the length of a value.
const SHORT_KEYS: u64 = 10_000;
const SHORT_LEN: usize = 100;
const BATCH: u64 = 128;
/// Maximum of short values to write, in percent of the separated values.
const WRITTEN_PERCENT_MAX: u64 = 600;
/// A writer with 500 MB/s on a device with 80 MB/s.
const WRITER_NS_PER_BYTE: u64 = 2;
const KIB_NS: u64 = 12_000;
/// Garbage that counts as far above the bound, in percent of it.
const FAR_PERCENT: u64 = 130;

/// The parameters of one test run.
#[derive(Clone, Copy, Debug)]
struct Attack {
    policy: &'static str,
    threads: usize,
    /// Depths of level 0 at which writers are slowed down, and stopped.
    slowdown: usize,
    stop: usize,
    /// Whether another family, earlier in order, always has a little garbage to collect.
    others_collect: bool,
    /// Whether the garbage of the family far above its bound cannot be freed.
    is_kept: bool,
    written_percent_max: u64,
    without: Option<&'static str>,
}

/// Returns the garbage pressure in percent.
fn pressure(jobs: &Jobs) -> u64 {
    let of = |family: &Arc<Family>| family.read_state().summary.garbage_pressure_percent(false);
    jobs.tree.families.all().iter().map(of).max().unwrap_or(0)
}

fn deepest(jobs: &Jobs) -> usize {
    let of = |family: &Arc<Family>| family.read_state().chain.l0_depth;
    jobs.tree.families.all().iter().map(of).max().unwrap_or(0)
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
struct Outcome {
    /// Short values written until garbage was no longer far above its bound, in percent of the
    /// separated values.
    written_percent: Option<u64>,
    /// Maximum depth of a level 0, and maximum distance of levels above their targets, in percent.
    deepest: usize,
    excess_percent: u64,
    /// Total delay of writers for level 0 and levels, milliseconds.
    slowed_ms: u64,
    compacted: u64,
}

/// A thread of the scheduler: a stack of jobs, the most urgent on top.
struct Worker {
    duty: WorkerRole,
    stack: Vec<Box<dyn Job>>,
    /// Device time used so far.
    had_ns: u64,
}

impl Worker {
    fn new(duty: WorkerRole) -> Worker {
        Worker { duty, stack: Vec::new(), had_ns: 0 }
    }

    /// Runs a step. Returns false if the thread has no work.
    fn step(&mut self, jobs: &Arc<Jobs>) -> bool {
        let (start_ns, below) = (jobs.context.now_ns(), self.stack.last().map(|job| job.class()));
        self.stack.extend(next_job(jobs, self.duty, below.unwrap_or(JobClass::Idle)));
        let Some(mut job) = self.stack.pop() else { return false };
        let progress = job.step().unwrap();
        if let Progress::Wait(ns) = progress {
            jobs.context.env.clock.sleep_ns(ns.min(100_000));
        }
        if progress != Progress::Done {
            self.stack.push(job);
        }
        self.had_ns += jobs.context.now_ns() - start_ns;
        true
    }
}

/// All threads; those with work share the device evenly.
struct Workers(Vec<Worker>);

impl Workers {
    fn new(threads: usize) -> Workers {
        let duties = [WorkerRole::Log].into_iter().chain((0..threads).map(|_| WorkerRole::AllButLog));
        Workers(duties.map(Worker::new).collect())
    }

    /// Runs a step of the thread with the least device time. Returns false if no thread has work.
    fn step(&mut self, jobs: &Arc<Jobs>) -> bool {
        self.0.sort_by_key(|worker| worker.had_ns);
        let Some(at) = self.0.iter_mut().position(|worker| worker.step(jobs)) else { return false };
        let had_ns = self.0[at].had_ns;
        self.0[..at].iter_mut().for_each(|idle| idle.had_ns = idle.had_ns.max(had_ns));
        true
    }

    /// Runs the threads for this device time, while they have work.
    fn work(&mut self, jobs: &Arc<Jobs>, budget_ns: &mut u64) {
        while *budget_ns > 0 {
            let start_ns = jobs.context.now_ns();
            let worked = self.step(jobs);
            let took_ns = jobs.context.now_ns() - start_ns;
            *budget_ns = if worked { budget_ns.saturating_sub(took_ns) } else { 0 };
        }
    }
}

impl Attack {
    fn options(&self) -> Options {
        let policy = PolicyChoice::named(self.policy).unwrap();
        let family = FamilyOptions { policy, ..options().family }.expert(|expert| {
            expert.vsst_bytes = 16 << 10;
            expert.l0_slowdown_files = self.slowdown;
            expert.l0_stop_files = self.stop;
        });
        Options {
            memtable_bytes: 32 << 10,
            memory_bytes: 256 << 10,
            background_threads: self.threads,
            family,
            ..options()
        }
        .expert(|expert| expert.ablation = Ablation::without(self.without).unwrap())
    }

    fn run(&self) -> Outcome {
        let sim = SimEnv::new(1);
        let options = self.options();
        let db = Db::open_in(sim.env(), "/store", options.clone()).unwrap();
        let short = FamilyOptions { min_blob_size: 0, ..options.family.clone() };
        let others = ["a", "b"].map(|name| db.create_column_family(name, short.clone()).unwrap());
        let far = db.create_column_family("far", options.family.clone()).unwrap();
        let mut rng = Rng::new(1);
        (0..KEYS / 4).for_each(|at| db.put(&key(at), &[1; LEN]).unwrap());
        self.fill(&db, &far, &mut rng);
        let jobs = &db.engine().jobs;
        let mut workers = Workers::new(self.threads);
        sim.set_costs(Costs { kib_ns: KIB_NS, ..Costs::default() });
        let outcome = self.attack(&db, &others, &mut workers, &mut rng);
        workers
            .0
            .iter_mut()
            .flat_map(|worker| worker.stack.drain(..).rev())
            .for_each(|mut job| job.abandon());
        assert!(jobs.context.health.check().is_ok() && db.verify().unwrap().errors.is_empty());
        outcome
    }

    /// Writes and randomly overwrites values, with collection paused.
    fn fill(&self, db: &Db, far: &ColumnFamily, rng: &mut Rng) {
        let pause = db.pause_gc();
        (0..KEYS).for_each(|at| db.put_cf(far, &key(at), &[1; LEN]).unwrap());
        for nth in 0..2 * KEYS {
            db.put_cf(far, &key(rng.below(KEYS)), &[nth as u8; LEN]).unwrap();
        }
        db.compact_range(far, None, None).unwrap();
        while db.run_background_step() {}
        drop(pause);
        if self.is_kept {
            let jobs = &db.engine().jobs;
            let family = jobs.tree.families.all().into_iter().find(|family| family.name == "far").unwrap();
            let given_up = |number| (number, u64::MAX);
            let vssts: Vec<_> = family.read_state().version.vssts.keys().map(given_up).collect();
            lock(&jobs.in_progress).learned.abandoned.extend(vssts);
        }
    }

    fn attack(&self, db: &Db, others: &[ColumnFamily; 2], workers: &mut Workers, rng: &mut Rng) -> Outcome {
        let (jobs, mut budget_ns, mut written) = (&db.engine().jobs, 0, 0);
        let slowed_ns = || {
            let stats = db.stats();
            stats.stall_l0_ns + stats.stall_levels_ns + stats.stall_garbage_ns
        };
        let mut outcome =
            Outcome { written_percent: None, deepest: 0, excess_percent: 0, slowed_ms: 0, compacted: 0 };
        while written * 100 < self.written_percent_max * DATA_LEN {
            let mut writes = WriteBatch::new();
            let family = &others[rng.below(2) as usize];
            (0..BATCH)
                .for_each(|n| writes.put_cf(family, &key(rng.below(SHORT_KEYS)), &[n as u8; SHORT_LEN]));
            if self.others_collect {
                (0..4).for_each(|n| writes.put(&key(rng.below(KEYS / 4)), &[n; LEN]));
            }
            // A writer without memory waits for a flush, and at the stop for level 0.
            let waits = || jobs.space.memory.backlog() > 0 || deepest(jobs) >= self.stop;
            while waits() && workers.step(jobs) {}
            let before_ns = slowed_ns();
            db.write(&writes).unwrap();
            written += BATCH * SHORT_LEN as u64;
            budget_ns += slowed_ns() - before_ns + BATCH * SHORT_LEN as u64 * WRITER_NS_PER_BYTE;
            workers.work(jobs, &mut budget_ns);
            for family in jobs.tree.families.all() {
                let chain = family.read_state().chain;
                outcome.deepest = outcome.deepest.max(chain.l0_depth);
                outcome.excess_percent = outcome.excess_percent.max(chain.excess_percent);
            }
            if pressure(jobs) < FAR_PERCENT {
                outcome.written_percent = Some(written * 100 / DATA_LEN);
                break;
            }
        }
        outcome.slowed_ms = slowed_ns() / 1_000_000;
        outcome.compacted = db.stats().compaction_bytes_written;
        outcome
    }
}

/// Runs each policy, on one thread and on several, with deep and with shallow bounds for level 0.
fn each(of: impl Fn(Attack)) {
    for policy in ["leveled", "vlsm"] {
        for (threads, slowdown, stop) in
            [(1, 16, 32), (1, 4, 8), (2, 16, 32), (2, 4, 8), (4, 16, 32), (4, 4, 8)]
        {
            of(Attack {
                policy,
                threads,
                slowdown,
                stop,
                others_collect: false,
                is_kept: false,
                written_percent_max: WRITTEN_PERCENT_MAX,
                without: None,
            });
        }
    }
}

#[test]
fn garbage_is_freed_while_level_0_is_busy() {
    each(|attack| {
        let on = attack.run();
        println!("{attack:?}\n{on:?}");
        let written = on.written_percent.unwrap_or(u64::MAX);
        assert!(written < 400 && on.excess_percent < 65, "{attack:?}: {on:?}");
        // Without the mechanism the garbage stays, or is freed much later. With low bounds level 0
        // comes just as near to its stop.
        let written_percent_max = written + written / 2;
        let off = Attack { without: Some("space_first"), written_percent_max, ..attack }.run();
        assert!(on.deepest < attack.stop.max(off.deepest + 1), "{attack:?}: {on:?}, without {off:?}");
        if attack.slowdown == 16 {
            assert_eq!(off.written_percent, None, "{attack:?}: {on:?}, without {off:?}");
        }
    });
}

/// Among families with work for collections, the one with the most garbage goes first.
#[test]
fn garbage_is_freed_while_other_families_collect() {
    each(|attack| {
        let on = Attack { others_collect: true, ..attack }.run();
        println!("{attack:?}\n{on:?}");
        let written = on.written_percent.unwrap_or(u64::MAX);
        assert!(written < 100 && on.deepest < attack.stop && on.excess_percent < 65, "{attack:?}: {on:?}");
    });
}

/// Garbage that cannot be freed has no effect.
#[test]
fn unfreeable_garbage_does_not_affect_scheduling() {
    each(|attack| {
        let attack = Attack { is_kept: true, written_percent_max: 200, ..attack };
        let [on, off] = [None, Some("space_first")].map(|without| Attack { without, ..attack }.run());
        assert_eq!(on, off, "{attack:?}");
        assert_eq!(on.written_percent, None, "{attack:?}");
    });
}
