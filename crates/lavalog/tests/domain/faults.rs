//! Failing operations of the file system and full volumes, with both engines.

use crate::life::{DIR, Found, InLog, Life, find, open_with};
use crate::simulated;
use crate::strikes::{Past, Room, Struck, limited};
use io::Rng;
use io::sim::{CrashKind, FaultEffect, FaultPlan, OpKind, SimEnv};

/// The calls that need a descriptor.
const OPENS: [OpKind; 6] = [
    OpKind::Open,
    OpKind::Create,
    OpKind::CreateInPlace,
    OpKind::OpenInPlace,
    OpKind::CreateScratch,
    OpKind::List,
];

fn past(seed: u64) -> Past {
    let mut life = Life::new(SimEnv::new(seed), simulated, seed, Found::NOTHING);
    life.live(60);
    life.live(60);
    Past { sim: life.sim.clone(), found: life.now, env: simulated }
}

/// Fails every seventh operation. Returns the number of stores that continued, and of those that
/// stopped.
fn fails_everywhere(plan: impl Fn(u64) -> FaultPlan, passes: bool) -> (u64, u64) {
    let (past, mut went_on, mut stopped) = (past(1), 0, 0);
    for nth in (0..).step_by(7) {
        match past.strikes(nth, plan(nth), passes, &|_| false) {
            Struck::Nothing => break,
            Struck::WentOn => went_on += 1,
            Struck::Stopped => stopped += 1,
        }
    }
    (went_on, stopped)
}

#[test]
fn no_acknowledged_write_is_lost_after_a_failed_operation() {
    let (went_on, stopped) = fails_everywhere(|nth| FaultPlan::nth(nth, FaultEffect::Eio), false);
    assert!(went_on > 3 && stopped > 20, "{went_on} {stopped}");
}

#[test]
fn no_acknowledged_write_is_lost_after_permanent_failures() {
    let (_, stopped) = fails_everywhere(|nth| FaultPlan::nth(nth + 1, FaultEffect::Eio).sticky(), false);
    assert!(stopped > 20, "{stopped}");
}

#[test]
fn both_engines_survive_a_lack_of_descriptors() {
    let plan = |nth| FaultPlan::nth(nth, FaultEffect::NoDescriptor).kinds(&OPENS);
    let (once, stopped) = fails_everywhere(plan, true);
    assert!(once > 3 && stopped == 0, "{once} {stopped}");
    let (lasting, stopped) = fails_everywhere(|nth| plan(nth).sticky(), true);
    assert!(lasting > 3 && stopped == 0, "{lasting} {stopped}");
}

struct Simulated;

impl Room for Simulated {
    fn set(&self, sim: &SimEnv, more: Option<u64>) {
        sim.set_capacity(more.map(|more| sim.used() + more));
    }

    fn watch(&self, sim: &SimEnv) {
        sim.watch(DIR);
    }

    fn peak(&self, sim: &SimEnv) -> u64 {
        sim.peak()
    }

    fn trims_pass(&self) -> bool {
        true
    }
}

#[test]
fn a_full_volume_refuses_batches_of_both_atomically() {
    let (mut refused, mut of_both) = (0, 0);
    for seed in 0..8 {
        let more = [0, 100 << 10, 400 << 10, 900 << 10][seed as usize % 4];
        let counts = past(seed).fills_up(seed, &Simulated, more);
        (refused, of_both) = (refused + counts.0, of_both + counts.1);
    }
    assert!(of_both > 8 && refused > of_both, "{refused} {of_both}");
}

#[test]
fn a_reached_limit_refuses_batches_of_both_atomically() {
    let mut of_both = 0;
    for seed in 0..8 {
        of_both += past(seed).reaches_limit(seed, &Simulated, (seed % 3) * (200 << 10), 0).1;
    }
    assert!(of_both > 4, "{of_both}");
}

#[test]
fn a_store_at_its_limit_reopens_repeatedly_below_it() {
    for seed in 0..8 {
        past(seed).reaches_limit(seed, &Simulated, (seed % 3) * (200 << 10), 20);
    }
}

/// Makes the past of the row `log-joint-full` of the fault campaigns: longer, and ending with a
/// close.
fn long_past(seed: u64) -> (Past, u64) {
    let mut rng = Rng::new(seed ^ 0x6a6f_696e_7466);
    let mut life = Life::new(SimEnv::new(seed), simulated, seed, Found::NOTHING);
    life.live(rng.range(20, 100));
    life.live_on(rng.range(20, 100), true);
    let past = Past { sim: life.sim.clone(), found: life.now, env: simulated };
    (past, [0, 30 << 10, 100 << 10, 300 << 10, 900 << 10][rng.below(5) as usize])
}

/// The trims of these stores used the space of LavaKV's flushes and jobs before a reopen. The
/// stores once exceeded their limits: at the first open by flushing the memory, and at a later one
/// because the ceiling included the needs of the jobs.
#[test]
fn a_store_that_used_its_reserve_reopens_below_its_limit() {
    for seed in [771_500_006, 771_500_100] {
        let (past, more) = long_past(seed);
        past.reaches_limit(seed, &Simulated, more, 8);
    }
}

/// Above the lower limit the store can free space; once below it, the store never exceeds it again.
#[test]
fn a_lowered_limit_is_reached_and_then_kept() {
    for (seed, less) in (0..6).zip([4 << 10, 40 << 10, 100 << 10].into_iter().cycle()) {
        let (past, _) = long_past(seed);
        let (sim, life, limit) = past.at_limit(seed, &Simulated, 900 << 10);
        let (sim, lower) = (sim.crash(CrashKind::ProcessKill, seed), limit - less);
        sim.watch(DIR);
        {
            let (db, logs) = open_with(&sim.env(), DIR, limited(lower)).unwrap();
            assert_eq!(find(&db, &logs), life.now);
            logs.log("log").unwrap().trim(life.now.log.last).unwrap();
            logs.wait_idle().unwrap();
            db.flush().unwrap();
            while db.run_background_step() {}
            let (most, used) = (sim.peak(), logs.space().unwrap().total_bytes);
            assert!(most <= limit && used < lower, "{used} bytes, {most} before, of {lower}, {limit} before");
        }
        let sim = sim.crash(CrashKind::ProcessKill, seed + 1);
        let last = life.now.log.last;
        let found = Found { keys: life.now.keys, log: InLog { first: last, last } };
        let mut life = Life::new(sim.clone(), simulated, seed, found);
        sim.watch(DIR);
        past.comes_to_limit(&mut life, &Simulated, lower);
        past.lives_on_at_limit(seed, &Simulated, (&sim, life.now, lower), 8);
    }
}
