//! The work of two engines that share the threads of one store.
//!
//! What writers wait for comes first, whoever's it is: the log and what goes from memory to files, the host's before the guest's;
//! then all other work in the same order. So a guest that has groups to put away does not wait behind the host's compactions, and
//! neither engine has threads of its own.
//!
//! Invariant: a failed job is judged by the engine that started it. Jobs do not say whose they are, so those of the guest are
//! wrapped, and the wrapper tells the guest.
//!
//! The guest joins once, when it begins to serve. That is before there are workers; who asked meanwhile would find the host's work alone or
//! that of both, and from then on that of both.

use super::{Duty, Job, JobClass, Progress, Work};
use base::sync::OnceLock;
use base::{Error, Result};
use std::sync::Arc;

/// See the module.
pub struct Works {
    host: Arc<dyn Work>,
    guest: OnceLock<Arc<dyn Work>>,
}

/// The first class of work that nobody waits for.
const NOT_URGENT: JobClass = JobClass::Cleanup;

impl Works {
    /// Of a store without a guest.
    pub fn of(host: Arc<dyn Work>) -> Works {
        Works { host, guest: OnceLock::new() }
    }

    /// A guest has begun to serve. To be called once, before there are workers.
    pub fn join(&self, guest: Arc<dyn Work>) {
        self.guest.set(guest).unwrap_or_else(|_| unreachable!("a store has one guest"));
    }

    fn of_guest(&self, duty: Duty, below: JobClass) -> Option<Box<dyn Job>> {
        let work = self.guest.get()?;
        let job = work.clone().next(duty, below)?;
        Some(Box::new(GuestJob { work: work.clone(), job }))
    }
}

impl std::fmt::Debug for Works {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Works({})", if self.guest.get().is_some() { "host and guest" } else { "host" })
    }
}

impl Work for Works {
    fn next(self: Arc<Self>, duty: Duty, below: JobClass) -> Option<Box<dyn Job>> {
        if self.guest.get().is_none() {
            return self.host.clone().next(duty, below);
        }
        let urgent = below.min(NOT_URGENT);
        let job = self.host.clone().next(duty, urgent).or_else(|| self.of_guest(duty, urgent));
        if duty == Duty::Log || below <= NOT_URGENT {
            return job;
        }
        job.or_else(|| self.host.clone().next(duty, below)).or_else(|| self.of_guest(duty, below))
    }

    fn failed(&self, error: Error, inputs: &[u64]) {
        self.host.failed(error, inputs);
    }

    fn can_free(&self) -> bool {
        self.host.can_free() || self.guest.get().is_some_and(|guest| guest.can_free())
    }

    fn last_write(&self) -> u64 {
        self.host.last_write() + self.guest.get().map_or(0, |guest| guest.last_write())
    }
}

/// A job of the guest's.
struct GuestJob {
    work: Arc<dyn Work>,
    job: Box<dyn Job>,
}

impl Job for GuestJob {
    fn class(&self) -> JobClass {
        self.job.class()
    }

    fn step(&mut self) -> Result<Progress> {
        self.job.step().or_else(|e| {
            self.work.failed(e, &self.job.inputs());
            self.job.abandon();
            Ok(Progress::Done)
        })
    }

    fn inputs(&self) -> Vec<u64> {
        self.job.inputs()
    }

    fn abandon(&mut self) {
        self.job.abandon();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ErrorKind;
    use base::sync::{Mutex, lock, rank};
    use io::Priority;
    use io::sim::SimEnv;
    use io::sim::threads::Plan;

    /// An engine with a job of each of some classes, which notes what failed.
    #[derive(Default)]
    struct Engine {
        classes: Vec<JobClass>,
        fails: bool,
        /// Guards what failed.
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
        fn next(self: Arc<Self>, duty: Duty, below: JobClass) -> Option<Box<dyn Job>> {
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

    fn next(works: &Arc<Works>, duty: Duty, below: JobClass) -> Option<JobClass> {
        works.clone().next(duty, below).map(|job| job.class())
    }

    #[test]
    fn what_writers_wait_for_comes_first_whoevers_it_is() {
        let works = Arc::new(Works::of(engine(&[JobClass::Compaction], false)));
        assert_eq!(next(&works, Duty::All, JobClass::Idle), Some(JobClass::Compaction));
        works.join(engine(&[JobClass::Log, JobClass::Flush, JobClass::Gc], false));
        assert_eq!(next(&works, Duty::Log, JobClass::Idle), Some(JobClass::Log));
        assert_eq!(next(&works, Duty::AllButLog, JobClass::Idle), Some(JobClass::Flush));
        assert_eq!(next(&works, Duty::AllButLog, JobClass::Flush), None, "nothing above what is asked for");
        assert!(works.can_free());
        assert_eq!(works.last_write(), 2);
        let idle_guest = Arc::new(Works::of(engine(&[JobClass::Compaction], false)));
        idle_guest.join(engine(&[JobClass::Gc], false));
        assert_eq!(next(&idle_guest, Duty::All, JobClass::Idle), Some(JobClass::Compaction));
        let idle_host = Arc::new(Works::of(engine(&[], false)));
        idle_host.join(engine(&[JobClass::Gc], false));
        assert_eq!(next(&idle_host, Duty::All, JobClass::Idle), Some(JobClass::Gc));
    }

    /// Workers that ask while a guest joins get work of the host's alone, or of both, never again of the host's alone, and what fails of the
    /// guest's is the guest's affair from the first job on.
    #[test]
    fn a_guest_may_join_whoever_asks_for_work_meanwhile() {
        for seed in 1..=200 {
            let sim = SimEnv::new(seed);
            let ran = sim.run_threads(&Plan::new(seed), move |env| {
                let (host, guest) = (engine(&[JobClass::Idle], false), engine(&[JobClass::Gc], true));
                let works = Arc::new(Works::of(host.clone()));
                let spawner = env.spawner.clone().expect("threads under a schedule");
                let ask = |works: Arc<Works>| {
                    Box::new(move || {
                        let mut is_there = false;
                        for _ in 0..6 {
                            let mut job = works.clone().next(Duty::All, JobClass::Idle);
                            assert!(job.is_some() || !is_there, "the guest has gone");
                            is_there |= job.is_some();
                            assert!(job.iter_mut().all(|job| job.step().expect("judged") == Progress::Done));
                            assert!(!is_there || works.can_free() && works.last_write() == 2);
                        }
                    })
                };
                let spawn = |name: &str, body| spawner.spawn(name, Priority::Background, body);
                let mut threads = vec![spawn("before", ask(works.clone())).expect("a thread")];
                works.join(guest.clone());
                threads.push(spawn("after", ask(works.clone())).expect("a thread"));
                assert!(threads.into_iter().all(|thread| thread.join()));
                (lock(&host.failures).len(), lock(&guest.failures).len())
            });
            let (of_host, of_guest) = ran.unwrap_or_else(|why| panic!("seed {seed}: {why}")).value;
            assert!(of_host == 0 && (6..=12).contains(&of_guest), "seed {seed}: {of_host}, {of_guest}");
        }
    }

    #[test]
    fn a_failure_is_judged_by_the_engine_whose_job_it_was() {
        let (host, guest) = (engine(&[], false), engine(&[JobClass::Gc], true));
        let works = Arc::new(Works::of(host.clone()));
        works.join(guest.clone());
        let mut job = works.clone().next(Duty::All, JobClass::Idle).expect("a job");
        assert_eq!(job.step().expect("the guest has judged it"), Progress::Done);
        assert_eq!(
            (lock(&host.failures).len(), lock(&guest.failures).clone()),
            (0, vec![ErrorKind::NoSpace])
        );
    }
}
