use super::*;
use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use base::sync::{
    Condvar as Condition, OnceLock, RwLock, lock as take, rank::Outside, read, wait, wait_timeout, write,
};

type Lock<T> = base::sync::Mutex<T, Outside>;

/// Result of a run.
type Verdict = Result<Ran<()>, Stuck>;

fn run(seed: u64, body: impl FnOnce(&Env) + Send + 'static) -> Verdict {
    SimEnv::new(seed).run_threads(&Plan { steps_max: 100_000, ..Plan::new(seed) }, body)
}

/// Runs each body in a thread, and returns when all have ended.
fn together(env: &Env, bodies: Vec<Box<dyn FnOnce() + Send>>) {
    let spawner = env.spawner.clone().unwrap();
    let spawn = |(i, body)| spawner.spawn(&format!("thread-{i}"), Priority::Foreground, body).unwrap();
    let handles: Vec<_> = bodies.into_iter().enumerate().map(spawn).collect();
    assert!(handles.into_iter().all(|handle| handle.join()));
}

fn pair(env: &Env, a: impl FnOnce() + Send + 'static, b: impl FnOnce() + Send + 'static) {
    together(env, vec![Box::new(a), Box::new(b)]);
}

/// Returns the first seed of 500 whose schedule gets stuck, and the reason.
fn found(trial: impl Fn(u64) -> Verdict) -> Option<(u64, String)> {
    (0..500).find_map(|seed| trial(seed).err().map(|Stuck(why)| (seed, why)))
}

/// Reads a counter, and then writes the value plus one, in two threads.
fn race(seed: u64) -> Verdict {
    run(seed, |env| {
        let count = Arc::new(AtomicU64::new(0));
        let (a, b) = (count.clone(), count.clone());
        let add = |count: &AtomicU64| {
            let seen = count.load(Ordering::SeqCst);
            count.store(seen + 1, Ordering::SeqCst);
        };
        pair(env, move || add(&a), move || add(&b));
        assert_eq!(count.load(Ordering::SeqCst), 2, "an increment was lost");
    })
}

#[test]
fn a_planted_race_is_found_and_its_seed_repeats_it() {
    let (seed, why) = found(race).expect("some schedule loses an increment");
    assert!(why.contains("an increment was lost"), "{why}");
    assert_eq!(race(seed).unwrap_err().0, why, "the same, word for word");
    assert!((0..100).any(|seed| race(seed).is_ok()), "and others do not");
}

/// Two locks, taken in both orders.
#[test]
fn a_planted_deadlock_is_found() {
    let trial = |seed| {
        run(seed, |env| {
            let locks = Arc::new((Lock::new(()), Lock::new(())));
            let others = locks.clone();
            pair(
                env,
                move || {
                    let _first = take(&locks.0);
                    let _second = take(&locks.1);
                },
                move || {
                    let _first = take(&others.1);
                    let _second = take(&others.0);
                },
            );
        })
    };
    let (_, why) = found(trial).expect("some schedule deadlocks");
    assert!(why.starts_with("deadlock") && why.matches("waits (Lock)").count() == 2, "{why}");
    assert!(why.contains("threads/tests.rs:"), "it says where: {why}");
}

/// The flag is set without the lock: between the check of it and the sleep.
fn forgotten(seed: u64, with_lock: bool, idler: bool) -> Verdict {
    run(seed, move |env| {
        let shared = Arc::new((AtomicBool::new(false), Lock::new(()), Condition::new()));
        let waiter = shared.clone();
        let clock = env.clock.clone();
        let ended = Arc::new(AtomicBool::new(false));
        let end = ended.clone();
        let waits = move || {
            let (raised, lock, condition) = &*waiter;
            let mut guard = take(lock);
            while !raised.load(Ordering::SeqCst) {
                guard = wait(condition, guard);
            }
            end.store(true, Ordering::SeqCst);
        };
        let wakes = move || {
            let (raised, lock, condition) = &*shared;
            let guard = with_lock.then(|| take(lock));
            raised.store(true, Ordering::SeqCst);
            drop(guard);
            condition.notify_one();
        };
        let idles = move || {
            while idler && !ended.load(Ordering::SeqCst) {
                clock.sleep_ns(10_000_000);
            }
        };
        together(env, vec![Box::new(waits), Box::new(wakes), Box::new(idles)]);
    })
}

#[test]
fn a_planted_lost_wake_up_is_found() {
    let (_, why) = found(|seed| forgotten(seed, false, false)).expect("some schedule loses it");
    assert!(why.starts_with("deadlock") && why.contains("waits (Wait)"), "{why}");
    let (_, why) = found(|seed| forgotten(seed, false, true)).expect("also beside a thread that idles");
    assert!(why.starts_with("lost wake-up"), "{why}");
    for idler in [false, true] {
        assert_eq!(found(|seed| forgotten(seed, true, idler)), None, "with the lock nothing is lost");
    }
}

#[test]
fn a_planted_livelock_is_found() {
    let trial = |seed| {
        run(seed, |env| {
            let never = Arc::new(AtomicBool::new(false));
            let other = never.clone();
            pair(
                env,
                move || while !never.load(Ordering::SeqCst) {},
                move || while !other.load(Ordering::SeqCst) {},
            );
        })
    };
    let (_, why) = found(trial).unwrap();
    assert!(why.starts_with("livelock"), "{why}");
}

#[test]
fn a_polling_thread_does_not_starve_others() {
    for seed in 0..50 {
        let outcome = run(seed, |env| {
            let done = Arc::new(AtomicBool::new(false));
            let other = done.clone();
            pair(
                env,
                move || while !done.load(Ordering::SeqCst) {},
                move || other.store(true, Ordering::SeqCst),
            );
        });
        assert!(outcome.is_ok(), "seed {seed}: {}", outcome.unwrap_err());
    }
}

#[test]
fn equal_seeds_give_equal_schedules_and_others_differ() {
    let trial = |seed| {
        run(seed, |env| {
            let sum = Arc::new(Lock::new(0u64));
            let bodies = (0..4u64).map(|n| {
                let (sum, fs) = (sum.clone(), env.fs.clone());
                let body = move || {
                    let path = format!("/{n}");
                    let mut file = fs.create(path.as_ref(), &crate::CreateOptions::default()).unwrap();
                    file.append(&n.to_le_bytes()).unwrap();
                    file.sync(crate::SyncKind::Data).unwrap();
                    *take(&sum) += n;
                };
                Box::new(body) as Box<dyn FnOnce() + Send>
            });
            together(env, bodies.collect());
            assert_eq!(*take(&sum), 6);
        })
        .unwrap()
    };
    let hashes: Vec<u64> = (0..40).map(|seed| trial(seed).hash).collect();
    assert_eq!(hashes, (0..40).map(|seed| trial(seed).hash).collect::<Vec<_>>());
    let distinct: std::collections::BTreeSet<&u64> = hashes.iter().collect();
    assert!(distinct.len() > 30, "{} of 40 schedules are distinct", distinct.len());
}

#[test]
fn time_advances_while_all_threads_wait() {
    for seed in 0..50 {
        let sim = SimEnv::new(seed);
        let machine = sim.clone();
        let ran = sim.run_threads(&Plan::new(seed), move |env| {
            let (one, other) = (env.clock.clone(), env.clock.clone());
            let (lock, condition) = (Lock::new(()), Condition::new());
            pair(
                env,
                move || one.sleep_ns(5_000_000),
                move || {
                    other.sleep_ns(2_000_000);
                    drop(wait_timeout(&condition, take(&lock), Duration::from_millis(4)));
                },
            );
            machine.now_ns()
        });
        assert_eq!(ran.unwrap().value, 6_000_000, "seed {seed}: 2 ms and then 4, beside 5");
    }
}

#[test]
fn read_locks_are_shared_and_write_locks_exclusive() {
    for seed in 0..200 {
        let outcome = run(seed, |env| {
            let shared =
                Arc::new((RwLock::<_, Outside>::new((0u64, 0u64)), OnceLock::new(), AtomicU64::new(0)));
            let bodies = (0..4u64).map(|n| {
                let shared = shared.clone();
                let body = move || {
                    let (both, cell, filled) = &*shared;
                    if n % 2 == 0 {
                        let mut both = write(both);
                        both.0 += 1;
                        filled.load(Ordering::SeqCst);
                        both.1 += 1;
                    } else {
                        let both = read(both);
                        filled.load(Ordering::SeqCst);
                        assert_eq!(both.0, both.1, "half a change is seen");
                    }
                    cell.get_or_init(|| filled.fetch_add(1, Ordering::SeqCst));
                };
                Box::new(body) as Box<dyn FnOnce() + Send>
            });
            together(env, bodies.collect());
            assert_eq!(shared.2.load(Ordering::SeqCst), 1, "filled once");
            assert_eq!(*read(&shared.0), (2, 2));
        });
        assert!(outcome.is_ok(), "seed {seed}: {}", outcome.unwrap_err());
    }
}

/// Behavior of the types for threads without a schedule, beside one with a schedule.
#[test]
fn threads_without_a_schedule_run_freely() {
    let counted = Arc::new((Lock::new(0u64), Condition::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let counted = counted.clone();
            scope.spawn(move || {
                for _ in 0..1_000 {
                    *take(&counted.0) += 1;
                    counted.1.notify_all();
                }
            });
        }
        (0..20).for_each(|seed| drop(race(seed)));
        let mut count = take(&counted.0);
        while *count < 4_000 {
            count = wait(&counted.1, count);
        }
    });
}

/// A thread that sees the new length of a device can use it, even if another one measured it.
#[test]
fn a_device_length_measured_by_another_thread_is_usable() {
    const LEN: u64 = 4 * crate::BLOCK as u64;
    for seed in 0..200 {
        let sim = SimEnv::new(seed);
        let device = sim.device("/device", LEN).unwrap();
        let machine = sim.clone();
        let ran = sim.run_threads(&Plan { steps_max: 100_000, ..Plan::new(seed) }, move |env| {
            let (other, lengthens) = (device.clone(), machine.clone());
            let measure = move || {
                lengthens.lengthen_device("/device", 2 * LEN).unwrap();
                assert_eq!(other.measure().unwrap(), 2 * LEN);
            };
            let write = move || {
                let len = device.len();
                assert!(len == LEN || len == 2 * LEN, "{len}");
                let block = crate::AlignedBuf::zeroed(crate::BLOCK);
                device.write_durable(block.as_slice(), len - crate::BLOCK as u64).unwrap();
                assert!(device.measure().unwrap() >= len && device.len() >= len);
            };
            pair(env, measure, write);
        });
        assert!(ran.is_ok(), "seed {seed}: {ran:?}");
        assert_eq!(sim.device("/device", 0).unwrap().len(), 2 * LEN);
    }
}
