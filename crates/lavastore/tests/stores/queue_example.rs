//! Guarantees of the queue of `examples/queue.rs`, also after crashes.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the example is a program of its own"
)]

#[path = "../../examples/queue.rs"]
mod queue;

use io::Rng;
use lavastore::testing::{CrashKind, SimEnv, store};
use lavastore::{Db, Options};
use queue::{Claim, Counts, Policy, Queue};
use std::collections::{BTreeMap, BTreeSet};

const POLICY: Policy = Policy { lease_ms: 100, attempts_max: 3, retry_ms: 10 };

#[test]
fn jobs_are_claimed_by_priority_and_then_age() {
    let queue = Queue::open(store(), POLICY).unwrap();
    for (priority, payload) in [(1, "a"), (9, "b"), (1, "c"), (9, "d"), (255, "e"), (0, "f")] {
        queue.enqueue(priority, payload).unwrap();
    }
    let claimed = std::iter::from_fn(|| queue.claim("w", 0).unwrap());
    let order: Vec<Vec<u8>> = claimed.map(|claim| claim.payload).collect();
    assert_eq!(order, [b"e", b"b", b"d", b"a", b"c", b"f"]);
    assert_eq!(queue.counts().unwrap(), Counts { leased: 6, ..Counts::default() });
}

#[test]
fn failed_jobs_are_retried_and_then_abandoned() {
    let queue = Queue::open(store(), POLICY).unwrap();
    let id = queue.enqueue(1, "hard").unwrap();
    let first = queue.claim("w", 0).unwrap().unwrap();
    assert!(queue.failed(&first, "bad luck", 0).unwrap());
    assert!(!queue.failed(&first, "bad luck", 0).unwrap() && !queue.done(&first).unwrap(), "it is not ours");
    assert_eq!(queue.claim("w", 9).unwrap(), None, "too early");
    let second = queue.claim("w", 10).unwrap().unwrap();
    assert_eq!((second.id, second.attempt), (id, 2));
    // Its lease ends without an answer of the worker.
    assert_eq!(queue.claim("w", 110).unwrap(), None);
    assert!(!queue.done(&second).unwrap(), "too late");
    let third = queue.claim("w", 130).unwrap().unwrap();
    assert!(queue.failed(&third, "no more luck", 130).unwrap());
    assert_eq!(queue.counts().unwrap(), Counts { dead: 1, ..Counts::default() });
    let dead: Vec<_> = queue.dead_letters().map(|letter| letter.unwrap()).collect();
    assert_eq!(dead, [(id, "no more luck".to_owned())]);
    assert!(queue.revive(id).unwrap() && !queue.revive(id).unwrap());
    let again = queue.claim("w", 130).unwrap().unwrap();
    assert_eq!((again.attempt, &again.payload[..]), (1, &b"hard"[..]));
    assert!(queue.done(&again).unwrap());
    assert_eq!(queue.counts().unwrap(), Counts::default());
    queue.close().unwrap();
}

/// The calls of a run that have returned.
#[derive(Clone, Default)]
struct Known {
    enqueued: BTreeSet<u64>,
    done: BTreeSet<u64>,
}

/// Power fails at every point of a run. Enqueued jobs are present or done, done jobs do not come
/// back, and all remaining jobs can be processed.
#[test]
fn a_crash_loses_and_resurrects_no_job() {
    for seed in 0..6 {
        let sim = SimEnv::new(seed);
        let open = |sim: &SimEnv| {
            Queue::open(Db::open_in(&sim.env(), "/queue", &Options::default()).unwrap(), POLICY).unwrap()
        };
        let mut rng = Rng::new(seed);
        let queue = open(&sim);
        let (mut known, mut held) = (Known::default(), Vec::<Claim>::new());
        // The known state at each operation count of the machine.
        let mut story = BTreeMap::from([(sim.op_count(), known.clone())]);
        for step in 0..60u64 {
            match rng.below(5) {
                0 | 1 => {
                    known.enqueued.insert(queue.enqueue(rng.below(3) as u8, format!("job {step}")).unwrap());
                }
                2 | 3 => held.extend(queue.claim("w", step).unwrap()),
                _ if held.is_empty() => {}
                _ => {
                    let claim = held.swap_remove(rng.below(held.len() as u64) as usize);
                    if rng.one_in(3) {
                        queue.failed(&claim, "test", step).unwrap();
                    } else if queue.done(&claim).unwrap() {
                        known.done.insert(claim.id);
                    }
                }
            }
            story.insert(sim.op_count(), known.clone());
        }
        let (record, end) = (sim.record(), sim.op_count());
        for nth in 0..20 {
            let at = rng.range(*story.keys().next().unwrap(), end + 1).min(end);
            let kind = if rng.one_in(2) { CrashKind::PowerLoss } else { CrashKind::ProcessKill };
            let queue = open(&record.crash_at(at, kind, nth));
            let known = story.range(..=at).next_back().unwrap().1;
            // The operation in flight may have completed, and with it the call.
            let soon = story.range(at + 1..).next().map_or(known, |(_, after)| after);
            let left = work_off(&queue);
            for id in &known.enqueued {
                assert!(soon.done.contains(id) || left.contains(id), "seed {seed}, {at}: job {id} is lost");
            }
            let back: Vec<_> = known.done.intersection(&left).collect();
            assert!(back.is_empty(), "seed {seed}, {at}: {back:?} were done");
            assert_eq!(queue.counts().unwrap(), Counts::default());
        }
    }
}

/// Processes all jobs, including dead ones. Returns their ids.
fn work_off(queue: &Queue) -> BTreeSet<u64> {
    let dead: Vec<u64> = queue.dead_letters().map(|letter| letter.unwrap().0).collect();
    for id in dead {
        assert!(queue.revive(id).unwrap());
    }
    let mut ids = BTreeSet::new();
    for now_ms in (1_000..100_000).step_by(1_000) {
        while let Some(claim) = queue.claim("w", now_ms).unwrap() {
            assert!(queue.done(&claim).unwrap());
            assert!(ids.insert(claim.id), "job {} came twice", claim.id);
        }
    }
    ids
}
