use super::*;
use io::sim::SimEnv;
use io::sim::threads::Plan;
use io::{Priority, Rng};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const SECOND_NS: u64 = 1_000_000_000;
const COMPACTION: Traffic = Traffic::Compaction;
const FLUSH: Traffic = Traffic::Flush;

/// Two threads that always want more than they get, and one that reads every 300 us.
struct Device {
    /// What a read takes beside so many pieces.
    read_ns: fn(u64) -> u64,
}

/// What happened in the last seconds.
#[derive(Debug, Default)]
struct Seen {
    reads: u64,
    slow: u64,
    pieces: u64,
    depth_sum: u64,
}

/// A piece takes 100 us.
const PIECE_NS: u64 = 100_000;

impl Device {
    /// Runs for 20 seconds; what was seen in the last ten.
    fn run(&self) -> Seen {
        let depth = Depth::new();
        let mut seen = Seen::default();
        // Of each thread: when it looks again, and what it has at the device.
        // Before there is work the device is idle.
        let mut threads = [(SECOND_NS, None), (SECOND_NS, None)];
        let mut read: Option<(u64, ReadBegun)> = None;
        let mut next_read_ns = SECOND_NS / 2;
        let mut now_ns = SECOND_NS / 2;
        while now_ns < 20 * SECOND_NS {
            for (until_ns, at_device) in &mut threads {
                if now_ns < *until_ns {
                    continue;
                }
                if let Some(pieces) = at_device.take() {
                    depth.end(COMPACTION, pieces);
                    seen.pieces += u64::from(pieces);
                }
                *until_ns = match depth.begin(COMPACTION, 16) {
                    Ok(pieces) => {
                        depth.works(now_ns);
                        *at_device = Some(pieces);
                        now_ns + PIECE_NS
                    }
                    Err(wait_ns) => now_ns + wait_ns,
                };
            }
            let there = u64::from(threads.iter().filter_map(|(_, pieces)| *pieces).sum::<u32>());
            match read {
                Some((until_ns, begun)) if until_ns <= now_ns => {
                    depth.read_ends(begun, now_ns);
                    read = None;
                    next_read_ns = now_ns + 300_000;
                    seen.reads += 1;
                    seen.slow += u64::from(now_ns - begun.at_ns > 180_000);
                    seen.depth_sum += u64::from(depth.get());
                }
                None if next_read_ns <= now_ns => {
                    read = Some((now_ns + (self.read_ns)(there), depth.read_begins(now_ns)));
                }
                _ => {}
            }
            let reader_ns = read.map_or(next_read_ns, |(until_ns, _)| until_ns);
            let next_ns = threads.iter().map(|(until_ns, _)| *until_ns).min().unwrap_or(0).min(reader_ns);
            if now_ns < 10 * SECOND_NS && next_ns >= 10 * SECOND_NS {
                seen = Seen::default();
            }
            now_ns = next_ns.max(now_ns + 1);
        }
        seen
    }
}

#[test]
fn background_work_takes_what_reads_can_spare() {
    let shared = Device { read_ns: |pieces| 80_000 + 30_000 * pieces }.run();
    let depth = shared.depth_sum / shared.reads;
    assert!((2_000..5_000).contains(&depth), "four pieces make a read slow: {shared:?}");
    assert!(shared.slow * 20 < shared.reads, "{shared:?}");
    assert!(shared.pieces > 10 * SECOND_NS / PIECE_NS, "{shared:?}");
    let indifferent = Device { read_ns: |_| 80_000 }.run();
    assert_eq!(indifferent.depth_sum / indifferent.reads, u64::from(DEPTH_MAX * ONE), "{indifferent:?}");
}

#[test]
fn a_burst_is_held_back_and_goes_on_at_the_floor() {
    let slow = |pieces: u64| if pieces > 0 { 1_000_000 } else { 80_000 };
    let seen = Device { read_ns: slow }.run();
    let all = 10 * SECOND_NS / PIECE_NS;
    // A piece at a time, where 16 would go, and a look at the end of each.
    assert!((all / 2..all * 3 / 2).contains(&seen.pieces), "{seen:?} of {all}");
}

#[test]
fn a_flush_waits_for_nothing() {
    let depth = Depth::new();
    (0..20).for_each(|_| depth.follow(Judgement::Slow));
    assert_eq!(depth.get(), DEPTH_MIN);
    assert_eq!(depth.begin(COMPACTION, 4), Ok(1));
    assert_eq!(depth.begin(COMPACTION, 4), Err(LOOK_AGAIN_NS));
    for _ in 0..100 {
        assert_eq!(depth.begin(FLUSH, 4), Ok(1));
    }
    depth.end(COMPACTION, 1);
    assert_eq!(depth.begin(Traffic::Collection, 4), Ok(1), "what a flush has there takes no place");
}

#[test]
fn a_hurry_ends_a_moment_after_the_last_wait() {
    let depth = Depth::new();
    assert!(!depth.is_hurried(1_000));
    depth.writers_wait(1_000);
    assert!(depth.is_hurried(1_500) && !depth.is_hurried(1_000 + HURRY_NS));
}

#[test]
fn a_read_is_alone_where_nothing_was_begun_for_a_while() {
    let (depth, ms) = (Depth::new(), 1_000_000);
    let read = |at_ns: u64, took_ns: u64| {
        depth.read_ends(depth.read_begins(at_ns), at_ns + took_ns);
        depth.foreground.usual_ns()
    };
    let usual_ns = read(100 * ms, 80_000);
    depth.works(110 * ms);
    assert_eq!(read(112 * ms, 900_000), usual_ns, "what is written behind is still on its way");
    let during = depth.read_begins(120 * ms);
    depth.works(120 * ms + 1);
    depth.read_ends(during, 121 * ms);
    assert_eq!(depth.foreground.usual_ns(), usual_ns);
    depth.begin(COMPACTION, 1).unwrap();
    assert_eq!(read(150 * ms, 900_000), usual_ns);
    depth.end(COMPACTION, 1);
    assert!(read(160 * ms, 900_000) > usual_ns);
}

/// Threads that look for the one place there is, under many schedules: it is never taken twice, nor lost. (In loom it is the same for two, under all.)
#[test]
fn under_every_schedule_no_place_is_taken_twice() {
    for seed in 1..=200 {
        let sim = SimEnv::new(seed);
        let ran = sim.run_threads(&Plan::new(seed), |env| {
            let (depth, there) = (Arc::new(Depth::new()), Arc::new(AtomicU32::new(0)));
            (0..4).for_each(|_| depth.follow(Judgement::Slow));
            let spawner = env.spawner.clone().expect("threads under a schedule");
            let works = |_| {
                let (depth, there, clock) = (depth.clone(), there.clone(), env.clock.clone());
                let body = Box::new(move || {
                    for _ in 0..5 {
                        match depth.begin(COMPACTION, 2) {
                            Ok(pieces) => {
                                let others = there.fetch_add(pieces, Ordering::SeqCst);
                                assert_eq!((pieces, others), (1, 0));
                                clock.sleep_ns(1_000);
                                there.fetch_sub(pieces, Ordering::SeqCst);
                                depth.end(COMPACTION, pieces);
                            }
                            Err(wait_ns) => clock.sleep_ns(wait_ns),
                        }
                    }
                });
                spawner.spawn("works", Priority::Background, body).unwrap()
            };
            let threads: Vec<_> = (0..3).map(works).collect();
            depth.follow(Judgement::Slow);
            threads.into_iter().for_each(|thread| assert!(thread.join(), "a thread panicked"));
            assert!(depth.is_unused());
        });
        ran.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

/// Whatever happens in whatever order: the depth keeps its bounds, no more pieces are there than it allowed when they came, nobody waits
/// long, and in the end every place is free.
#[test]
fn whatever_happens_the_bounds_are_kept() {
    for seed in 0..300 {
        let (mut rng, depth) = (Rng::new(seed), Depth::new());
        let (mut there, mut now_ns) = (Vec::new(), 1);
        for _ in 0..400 {
            now_ns += rng.below(1_000_000);
            let traffic = Traffic::ALL[rng.below(4) as usize];
            match rng.below(5) {
                0 | 1 => {
                    let allowed = depth.get() / ONE;
                    let wanted = 1 + rng.below(20) as u32;
                    match depth.begin(traffic, wanted) {
                        Ok(pieces) => {
                            there.push((traffic, pieces));
                            let others = there.iter().filter(|(traffic, _)| *traffic != FLUSH);
                            let others: u32 = others.map(|(_, pieces)| *pieces).sum();
                            let bound = if traffic == FLUSH { u32::MAX } else { allowed };
                            assert!(pieces >= 1 && pieces <= wanted && others <= bound, "seed {seed}");
                        }
                        Err(wait_ns) => {
                            assert!(traffic != FLUSH && wait_ns == LOOK_AGAIN_NS, "seed {seed}");
                        }
                    }
                }
                2 if !there.is_empty() => {
                    let (traffic, pieces) = there.swap_remove(rng.below(there.len() as u64) as usize);
                    depth.end(traffic, pieces);
                }
                3 if rng.one_in(8) => depth.writers_wait(now_ns),
                _ => {
                    let before = depth.get();
                    let judgement =
                        [Judgement::Slow, Judgement::Between, Judgement::Fine][rng.below(3) as usize];
                    depth.follow(judgement);
                    let now = depth.get();
                    assert!((DEPTH_MIN..=DEPTH_MAX * ONE).contains(&now), "seed {seed}");
                    assert!(
                        match judgement {
                            Judgement::Slow => now < before || now == DEPTH_MIN,
                            Judgement::Between => now == before,
                            Judgement::Fine => now > before || now == DEPTH_MAX * ONE,
                        },
                        "seed {seed}"
                    );
                }
            }
        }
        there.drain(..).for_each(|(traffic, pieces)| depth.end(traffic, pieces));
        assert_eq!(lock(&depth.state).in_flight, 0);
        assert_eq!(depth.begun.load(Relaxed), depth.ended.load(Relaxed));
    }
}
