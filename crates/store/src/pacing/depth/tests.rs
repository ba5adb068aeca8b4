use super::*;
use datadriven::TestCase;
use io::sim::SimEnv;
use io::sim::threads::Plan;
use io::{Priority, Rng};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const SECOND_NS: u64 = 1_000_000_000;
const COMPACTION: Traffic = Traffic::Compaction;
const FLUSH: Traffic = Traffic::Flush;

/// Two threads that always want more slots than they get, and a reader with a read every 300 us.
struct Device {
    alone_ns: u64,
    /// Latency of a read beside pieces in flight, and the addition for each of them.
    beside_ns: u64,
    piece_ns: u64,
}

/// Counts of the last seconds.
#[derive(Debug, Default)]
struct Seen {
    reads: u64,
    slow: u64,
    pieces: u64,
    depth_sum: u64,
}

const PIECE_NS: u64 = 100_000;

impl Device {
    /// Runs for 20 seconds; returns the counts of the last ten.
    fn run(&self) -> Seen {
        let depth = Depth::new();
        let mut seen = Seen::default();
        // For each thread: the time of its next step, and its pieces in flight. Initially the
        // device is idle.
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
                    let takes_ns = if there > 0 { self.beside_ns } else { self.alone_ns };
                    let ends_ns = now_ns + takes_ns + self.piece_ns * there;
                    read = Some((ends_ns, depth.read_begins(now_ns)));
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

/// Prints the counts of a device for each second.
fn device(case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    const US: u64 = 1000;
    let alone_ns = US * case.take_arg::<u64>("read-us")?;
    let beside_ns = case.try_take_arg::<u64>("beside-pieces-us")?.map_or(alone_ns, |us| US * us);
    let piece_ns = US * case.try_take_arg::<u64>("each-piece-us")?.unwrap_or(0);
    let seen = Device { alone_ns, beside_ns, piece_ns }.run();
    let (depth, slow) = (seen.depth_sum / seen.reads, seen.slow * 100 / seen.reads);
    let (reads, pieces) = (seen.reads / 10, seen.pieces / 10);
    Ok(format!("{pieces} pieces and {reads} reads a second, {slow} % of them slow; depth {depth}/{ONE}\n"))
}

struct Script {
    depth: Depth,
    read: Option<ReadBegun>,
}

fn traffic(case: &mut TestCase) -> Result<Traffic, Box<dyn Error>> {
    let name: String = case.take_arg("traffic")?;
    Traffic::ALL
        .into_iter()
        .find(|t| format!("{t:?}") == name)
        .ok_or_else(|| format!("no traffic is {name}").into())
}

impl Script {
    fn run(&mut self, case: &mut TestCase) -> Result<String, Box<dyn Error>> {
        let depth = &self.depth;
        let at_ns = case.try_take_arg::<f64>("at-ms")?.map_or(0, |ms| (ms * 1e6) as u64);
        let mut out = String::new();
        match &*case.directive {
            "device" => out = device(case)?,
            "new" => *self = Script { depth: Depth::new(), read: None },
            "slow-windows" => (0..case.take_arg("times")?).for_each(|_| depth.follow(Judgement::Slow)),
            "depth" => out = format!("{}/{ONE}\n", depth.get()),
            "begin" => {
                let (traffic, pieces) = (traffic(case)?, case.take_arg("pieces")?);
                for _ in 0..case.try_take_arg("times")?.unwrap_or(1) {
                    out = match depth.begin(traffic, pieces) {
                        Ok(pieces) => format!("pieces: {pieces}\n"),
                        Err(wait_ns) => format!("looks again in {} us\n", wait_ns / 1000),
                    };
                }
            }
            "end" => depth.end(traffic(case)?, case.take_arg("pieces")?),
            "writers-wait" => depth.writers_wait(at_ns),
            "hurried" => {
                let hurried = |ms: f64| format!("{ms} ms: {}\n", depth.is_hurried((ms * 1e6) as u64));
                out = case.take_args("at")?.into_iter().map(hurried).collect();
            }
            "works" => depth.works(at_ns),
            "read-begins" => self.read = Some(depth.read_begins(at_ns)),
            "read-ends" => depth.read_ends(self.read.take().ok_or("no read has begun")?, at_ns),
            "usual-read" => out = format!("{} ns\n", depth.foreground.usual_ns()),
            other => return Err(format!("no command is called {other}").into()),
        }
        case.expect_empty()?;
        Ok(out)
    }
}

#[test]
fn scripts() {
    datadriven::walk("src/pacing/depth/scripts", |file| {
        let mut script = Script { depth: Depth::new(), read: None };
        file.run(|case| script.run(case));
    });
}

/// Threads compete for a single slot under many schedules: it is never taken twice, nor lost. (The
/// loom test does the same for two threads, under all schedules.)
#[test]
fn no_schedule_takes_a_depth_slot_twice() {
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

/// Random operations: the depth keeps its bounds, pieces in flight never exceed the depth at their
/// start, waits are short, and in the end every slot is free.
#[test]
fn depth_stays_within_bounds_under_random_operations() {
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
