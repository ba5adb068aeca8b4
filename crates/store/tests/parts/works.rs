//! Work of two engines on one store.

use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind, Result};
use io::Priority;
use io::sim::SimEnv;
use io::sim::threads::Plan;
use std::sync::Arc;
use store::run::{EngineWork, Job, JobClass, Progress, Work, WorkerRole};

/// An engine with one job for each of some classes, which records failures.
#[derive(Default)]
struct Engine {
    classes: Vec<JobClass>,
    fails: bool,
    /// Failures reported to the engine.
    failures: Mutex<Vec<ErrorKind>, rank::Outside>,
}

struct OneStep(JobClass, bool);

impl Job for OneStep {
    fn class(&self) -> JobClass {
        self.0
    }
    fn step(&mut self) -> Result<Progress> {
        if self.1 { Err(Error::new(ErrorKind::NoSpace, "full")) } else { Ok(Progress::Done) }
    }
    fn abandon(&mut self) {}
}

impl Work for Engine {
    fn next(self: Arc<Self>, duty: WorkerRole, below: JobClass) -> Option<Box<dyn Job>> {
        let class = self.classes.iter().copied().find(|class| duty.includes(*class) && *class < below)?;
        Some(Box::new(OneStep(class, self.fails)))
    }
    fn failed(&self, error: Error, _: &[u64]) {
        lock(&self.failures).push(error.kind());
    }
    fn can_free(&self) -> bool {
        self.classes.contains(&JobClass::Gc)
    }
    fn last_write(&self) -> u64 {
        1
    }
}

fn engine(classes: &[JobClass], fails: bool) -> Arc<Engine> {
    Arc::new(Engine { classes: classes.to_vec(), fails, ..Engine::default() })
}

fn next(works: &Arc<EngineWork>, duty: WorkerRole, below: JobClass) -> Option<JobClass> {
    works.clone().next(duty, below).map(|job| job.class())
}

#[test]
fn the_most_urgent_class_of_both_engines_comes_first() {
    let works = Arc::new(EngineWork::of(engine(&[JobClass::Compaction], false)));
    assert_eq!(next(&works, WorkerRole::All, JobClass::Idle), Some(JobClass::Compaction));
    works.join(engine(&[JobClass::Log, JobClass::Flush, JobClass::Gc], false));
    assert_eq!(next(&works, WorkerRole::Log, JobClass::Idle), Some(JobClass::Log));
    assert_eq!(next(&works, WorkerRole::AllButLog, JobClass::Idle), Some(JobClass::Flush));
    assert_eq!(next(&works, WorkerRole::AllButLog, JobClass::Flush), None, "nothing above what is asked for");
    assert!(works.can_free());
    assert_eq!(works.last_write(), 2);
    let idle_guest = Arc::new(EngineWork::of(engine(&[JobClass::Compaction], false)));
    idle_guest.join(engine(&[JobClass::Gc], false));
    assert_eq!(next(&idle_guest, WorkerRole::All, JobClass::Idle), Some(JobClass::Compaction));
    let idle_host = Arc::new(EngineWork::of(engine(&[], false)));
    idle_host.join(engine(&[JobClass::Gc], false));
    assert_eq!(next(&idle_host, WorkerRole::All, JobClass::Idle), Some(JobClass::Gc));
}

/// Workers that ask for work while a secondary engine joins get work of the primary engine alone,
/// and then of both. Failures of the secondary engine's jobs are reported to the secondary engine
/// from its first job on.
#[test]
fn a_secondary_engine_may_join_running_workers() {
    for seed in 1..=200 {
        let sim = SimEnv::new(seed);
        let ran = sim.run_threads(&Plan::new(seed), move |env| {
            let (host, secondary) = (engine(&[JobClass::Idle], false), engine(&[JobClass::Gc], true));
            let works = Arc::new(EngineWork::of(host.clone()));
            let spawner = env.spawner.clone().expect("threads under a schedule");
            let ask = |works: Arc<EngineWork>| {
                Box::new(move || {
                    let mut is_there = false;
                    for _ in 0..6 {
                        let mut job = works.clone().next(WorkerRole::All, JobClass::Idle);
                        assert!(job.is_some() || !is_there, "the guest has gone");
                        is_there |= job.is_some();
                        assert!(job.iter_mut().all(|job| job.step().expect("judged") == Progress::Done));
                        assert!(!is_there || works.can_free() && works.last_write() == 2);
                    }
                })
            };
            let spawn = |name: &str, body| spawner.spawn(name, Priority::Background, body);
            let mut threads = vec![spawn("before", ask(works.clone())).expect("a thread")];
            works.join(secondary.clone());
            threads.push(spawn("after", ask(works.clone())).expect("a thread"));
            assert!(threads.into_iter().all(|thread| thread.join()));
            (lock(&host.failures).len(), lock(&secondary.failures).len())
        });
        let (of_host, of_secondary) = ran.unwrap_or_else(|why| panic!("seed {seed}: {why}")).value;
        assert!(of_host == 0 && (6..=12).contains(&of_secondary), "seed {seed}: {of_host}, {of_secondary}");
    }
}

#[test]
fn a_failure_is_judged_by_the_engine_whose_job_it_was() {
    let (host, secondary) = (engine(&[], false), engine(&[JobClass::Gc], true));
    let works = Arc::new(EngineWork::of(host.clone()));
    works.join(secondary.clone());
    let mut job = works.clone().next(WorkerRole::All, JobClass::Idle).expect("a job");
    assert_eq!(job.step().expect("the guest has judged it"), Progress::Done);
    assert_eq!(
        (lock(&host.failures).len(), lock(&secondary.failures).clone()),
        (0, vec![ErrorKind::NoSpace])
    );
}
