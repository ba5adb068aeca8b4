use super::*;
use crate::ops::Op;
use crate::options::Options;
use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use io::Priority;
use io::sim::SimEnv;
use io::sim::threads::Plan;
use std::path::Path;
use store::commit::Durability;

/// Even in an endless series of jobs, a waiting hold precedes the next job.
#[test]
fn a_waiting_hold_precedes_the_next_job() {
    let mut waited = 0;
    for seed in 0..60 {
        let ran = SimEnv::new(seed).run_threads(&Plan::new(seed), |env| {
            let options = Options { group_bytes: Some(256 << 10), ..Options::default() };
            let core = crate::open::open(env, Path::new("/logs"), &options, None).unwrap();
            let log = core.writes.create("log", Durability::Durable).unwrap();
            let background = Background(core.clone());
            core.writes.write(&[Op::Append { log, lsn: 1, bytes: b"record" }], Durability::Durable).unwrap();
            core.sealer.seal_active().unwrap();
            assert!(core.sealer.has_to_seal(), "there is a job");
            let first = core.moves.hold().unwrap();
            let is_held = Arc::new(AtomicBool::new(false));
            let (own, of_waiter) = (is_held.clone(), core.clone());
            let body = Box::new(move || {
                let hold = of_waiter.moves.hold().unwrap();
                own.store(true, Ordering::SeqCst);
                drop(hold);
            });
            let spawner = env.spawner.clone().unwrap();
            let waiter = spawner.spawn("waits", Priority::Foreground, body).unwrap();
            while core.moves.waiting_holds() == 0 {
                env.clock.sleep_ns(1_000);
            }
            drop(first);
            let job = background.moving_job(JobClass::Idle);
            let waits = !is_held.load(Ordering::SeqCst);
            assert!(!waits || job.is_none(), "a job came first");
            drop(job);
            assert!(waiter.join());
            assert!(background.moving_job(JobClass::Idle).is_some(), "jobs go on");
            waits
        });
        waited += u64::from(ran.unwrap_or_else(|why| panic!("seed {seed}: {why}")).value);
    }
    assert!(waited > 5, "{waited} waited");
}

/// A waiter looks again by itself after 50 ms, but the end of a hold wakes it at once.
#[test]
fn the_end_of_a_hold_wakes_the_next_one() {
    for seed in 0..20 {
        let ran = SimEnv::new(seed).run_threads(&Plan::new(seed), |env| {
            let options = Options { group_bytes: Some(256 << 10), ..Options::default() };
            let core = crate::open::open(env, Path::new("/logs"), &options, None).unwrap();
            let first = core.moves.hold().unwrap();
            let (of_waiter, clock) = (core.clone(), env.clock.clone());
            let held_ns = Arc::new(AtomicU64::new(0));
            let own = held_ns.clone();
            let body = Box::new(move || {
                let hold = of_waiter.moves.hold().unwrap();
                own.store(clock.now_ns(), Ordering::SeqCst);
                drop(hold);
            });
            let waiter = env.spawner.clone().unwrap().spawn("waits", Priority::Foreground, body).unwrap();
            while core.moves.waiting_holds() == 0 {
                env.clock.sleep_ns(1_000);
            }
            // The waiter sleeps by then.
            env.clock.sleep_ns(1_000_000);
            let dropped_ns = env.clock.now_ns();
            drop(first);
            assert!(waiter.join());
            held_ns.load(Ordering::SeqCst) - dropped_ns
        });
        let waited_ns = ran.unwrap_or_else(|why| panic!("seed {seed}: {why}")).value;
        assert!(waited_ns < 10_000_000, "seed {seed}: it waited {waited_ns} ns");
    }
}
