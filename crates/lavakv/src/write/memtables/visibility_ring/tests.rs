use super::*;
use base::sync::atomic::{AtomicBool as Flag, AtomicU64 as Count};
use io::Priority;
use io::sim::SimEnv;
use io::sim::threads::Plan;

fn order() -> (Arc<Snapshots>, VisibilityRing) {
    let snapshots = Arc::new(Snapshots::default());
    let order = VisibilityRing::new(&snapshots, || ());
    (snapshots, order)
}

/// The first insert, done last, publishes all.
#[test]
fn writes_become_visible_in_sequence_order() {
    let (snapshots, order) = order();
    let first = order.begin(2);
    let second = order.begin(3);
    let third = order.begin(7);
    third.done();
    assert_eq!(snapshots.visible(), 0);
    assert!(!order.sees(3, 2));
    first.done();
    assert_eq!(snapshots.visible(), 2);
    second.done();
    assert!(snapshots.visible() == 7 && order.wait_for_inserts(0));
}

/// Wraps around the ring, and around the distinguishable laps of a slot.
#[test]
fn visibility_slots_are_reused() {
    let (snapshots, order) = order();
    let mut under_way = Vec::new();
    for seq in 1..=(3 << LAP_BITS) * UNDER_WAY_MAX as u64 {
        under_way.push(order.begin(seq));
        if seq % 3 == 0 || under_way.len() == UNDER_WAY_MAX {
            let seen = snapshots.visible();
            let first = under_way.remove(0);
            under_way.drain(..).for_each(InFlightInsert::done);
            assert_eq!(snapshots.visible(), seen);
            first.done();
            assert_eq!(snapshots.visible(), seq);
        }
        assert!(order.make_place(0));
    }
}

/// Sequences published by a replay are not waited for.
#[test]
fn replayed_sequences_are_visible() {
    let (snapshots, order) = order();
    snapshots.publish(100);
    assert!(order.wait_for_inserts(0) && order.wait_for(100, 0));
    let next = order.begin(101);
    assert!(!order.sees(101, 0));
    next.done();
    assert!(order.wait_for_inserts(0) && snapshots.visible() == 101);
}

#[test]
fn an_abandoned_insert_is_reported() {
    let (snapshots, order) = order();
    let first = order.begin(1);
    let second = order.begin(2);
    first.done();
    drop(second);
    order.begin(3).done();
    assert!(
        order.wait_for(1, 0) && !order.wait_for(2, 0) && !order.wait_for(3, 0) && !order.wait_for_inserts(0)
    );
    assert_eq!(snapshots.visible(), 1);
}

const WRITERS: u64 = 5;
const WRITES: u64 = 60;

/// More writers than the machine runs at a time, with rotations now and then, and a reader, under a
/// schedule.
fn run(seed: u64) {
    let sim = SimEnv::new(seed);
    let ran = sim.run_threads(&Plan::new(seed), move |env| {
        let (snapshots, order) = order();
        let (snapshots, order) = (snapshots, Arc::new(order));
        let last = Arc::new(Mutex::<SeqNo, rank::Writer>::new(0));
        let memtable: Arc<Vec<Flag>> = Arc::new((0..=WRITERS * WRITES).map(|_| Flag::default()).collect());
        let begun = Arc::new(Count::default());
        let has = |memtable: &[Flag], seq: SeqNo| memtable[seq as usize].load(Ordering::Relaxed);
        let writer = || {
            let (order, last, memtable, begun) =
                (order.clone(), last.clone(), memtable.clone(), begun.clone());
            let write = move || {
                for nth in 0..WRITES {
                    let mut last = lock(&last);
                    if nth % 16 == 15 {
                        assert!(order.wait_for_inserts(1));
                        assert!(
                            (1..=*last).all(|seq| has(&memtable, seq)),
                            "frozen with an insert under way"
                        );
                    }
                    assert!(order.make_place(1));
                    *last += 1;
                    let seq = *last;
                    let under_way = order.begin(seq);
                    drop(last);
                    begun.fetch_add(1, Ordering::Relaxed);
                    memtable[seq as usize].store(true, Ordering::Relaxed);
                    under_way.done();
                    assert!(order.wait_for(seq, 1));
                }
            };
            env.spawner.as_ref().unwrap().spawn("writer", Priority::Foreground, Box::new(write)).unwrap()
        };
        let threads: Vec<_> = (0..WRITERS).map(|_| writer()).collect();
        while begun.load(Ordering::Relaxed) < WRITERS * WRITES / 2 {
            let seq = snapshots.visible();
            assert!(
                (1..=seq).all(|seq| has(&memtable, seq)),
                "{seq} is visible, and not all before it is there"
            );
        }
        threads.into_iter().for_each(|thread| assert!(thread.join(), "a thread panicked"));
        assert_eq!(snapshots.visible(), WRITERS * WRITES);
    });
    if let Err(stuck) = ran {
        panic!("seed {seed}: {}", stuck.0);
    }
}

#[test]
fn no_schedule_hangs_or_shows_a_gap() {
    (0..40).for_each(run);
}
