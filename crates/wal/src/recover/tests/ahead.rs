//! Replay with read-ahead threads: for any state of the log the result equals that of a replay
//! without them.

use super::*;
use crate::store_model::{dir, groups, path_of, store};
use crate::walk::tests::Flawed;
use io::sim::threads::{Plan, Ran, Stuck, with_few};

/// Seeds of a regular run.
const SEEDS: u64 = 600;

/// Result of a replay: each batch with its place, and the report or the error.
#[derive(Debug, PartialEq)]
struct Outcome {
    batches: Vec<(TenantId, SeqNo, SeqNo, LogAddress, Vec<u8>)>,
    end: std::result::Result<RecoveryReport, String>,
    damage: Option<String>,
}

fn told(e: &Error) -> String {
    format!("{:?} {:?} {:?} {e}", e.kind(), e.file(), e.offset())
}

/// Replays without writing anything. The callback refuses batch number `refused` (0: none).
fn replayed(env: &Env, lane: Lane, groups: &[LogGroup], refused: usize) -> Outcome {
    let mut batches = Vec::new();
    let mut take = |batch: &LoggedBatch<'_>| {
        let LoggedBatch { tenant, first_seq, last_seq, place, bytes } = *batch;
        batches.push((tenant, first_seq, last_seq, place, bytes.to_vec()));
        if batches.len() == refused { Err(Error::new(ErrorKind::Busy, "on purpose")) } else { Ok(()) }
    };
    let mode = RecoveryMode::ReadOnly;
    let end = recover_lane(env, dir(), (store(), lane), groups, mode, &mut take).map_err(|e| told(&e));
    Outcome { batches, end, damage: None }
}

/// Replays the first lane up to the first damage.
fn up_to_damage(env: &Env, groups: &[LogGroup]) -> Outcome {
    let mut batches = Vec::new();
    let mut take = |tenant: TenantId, seq: SeqNo, bytes: &[u8]| {
        batches.push((tenant, seq, 0, LogAddress::of_page(0, 0), bytes.to_vec()));
        Ok(())
    };
    let (end, damage) = match recover_up_to_damage(env, dir(), store(), groups, &mut take) {
        Ok((report, damage)) => (Ok(report), damage.map(|e| told(&e))),
        Err(e) => (Err(told(&e)), None),
    };
    Outcome { batches, end, damage }
}

/// A log at a random moment, after a crash, a kill or neither, and perhaps damaged or truncated.
fn any_log(lane: Lane, seed: u64, rng: &mut Rng) -> (SimEnv, crate::store_model::Manifest) {
    let mut caller = Caller::on(lane, seed, STARTS[rng.below(2) as usize]);
    for _ in 0..rng.range(5, 60) {
        caller.step().unwrap();
    }
    let record = caller.sim.record();
    let op = rng.range(caller.manifests[0].0, record.op_count() + 1);
    let kind = any_kind(rng);
    let manifest = caller.expectation(op, kind).manifest;
    let sim = record.crash_at(op, kind, rng.next_u64());
    sim.set_block_len(any_block_len(rng.next_u64()));
    for &ltn in manifest.groups.keys() {
        let path = path_of(ltn);
        let mut bytes = sim.read_file(&path).unwrap();
        let at = rng.below(bytes.len() as u64);
        match rng.below(12) {
            0 => sim.flip_bit(&path, at, 3).unwrap(),
            1 => {
                let from = at as usize / 512 * 512;
                bytes[from..].iter_mut().take(PAGE).for_each(|byte| *byte = 0);
                sim.write_file(&path, &bytes).unwrap();
            }
            2 => sim.write_file(&path, &bytes[..at as usize / PAGE * PAGE]).unwrap(),
            _ => {}
        }
    }
    (sim, manifest)
}

/// Returns whether the replay failed, and its number of batches.
fn run(seed: u64) -> Result<Ran<(bool, usize)>, Stuck> {
    let mut rng = Rng::new(seed ^ 0x61_6865_6164);
    let lane = Lane::ALL[(seed % 2) as usize];
    let (sim, manifest) = any_log(lane, seed, &mut rng);
    let machine = sim.clone();
    sim.run_threads(&Plan::new(seed), move |env| {
        let flawed = |mut group: LogGroup| {
            if !group.file.is_empty() && rng.one_in(3) {
                group.file = Arc::new(Flawed::any(group.file.clone(), &mut rng));
            }
            group
        };
        let groups: Vec<LogGroup> = groups(&machine, &manifest).into_iter().map(flawed).collect();
        let (threads, refused) = (rng.range(1, 9), [0, 0, rng.below(60) as usize][rng.below(3) as usize]);
        let alone = Env { spawner: None, ..env.clone() };
        let expected = replayed(&alone, lane, &groups, refused);
        assert_eq!(replayed(&with_few(env, threads), lane, &groups, refused), expected, "seed {seed}");
        if lane == Lane::FIRST {
            assert_eq!(up_to_damage(env, &groups), up_to_damage(&alone, &groups), "seed {seed}");
        }
        (expected.end.is_err(), expected.batches.len())
    })
}

#[test]
fn replay_with_threads_gives_the_same() {
    let first = std::env::var("SCHEDULE_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let count = std::env::var("SCHEDULE_COUNT").ok().and_then(|n| n.parse::<u64>().ok());
    let (mut refused, mut batches, mut with_threads) = (0, 0, 0);
    for seed in first.unwrap_or(1)..first.unwrap_or(1) + count.unwrap_or(SEEDS) {
        let ran = run(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        refused += u64::from(ran.value.0);
        batches += ran.value.1;
        with_threads += u64::from(ran.threads > 1);
    }
    println!("{refused} refused, {batches} batches, {with_threads} with threads");
    let all_kinds = refused > SEEDS / 10 && refused < SEEDS * 9 / 10 && with_threads > SEEDS * 9 / 10;
    assert!(count.is_some() || (all_kinds && batches as u64 > SEEDS * 5));
}

/// A part in the middle is unreadable for a reason other than the medium: reported unchanged, with
/// file and offset.
#[test]
fn an_error_in_the_middle_ends_the_replay_as_without_threads() {
    const EACCES: i32 = 13;
    for lane in Lane::ALL {
        let mut caller = Caller::on(lane, 3, 1);
        for _ in 0..40 {
            caller.put(1500).unwrap();
        }
        let manifest = caller.manifests.last().unwrap().1.clone();
        let sim = caller.sim.fork(0);
        let machine = sim.clone();
        let ran = sim.run_threads(&Plan::new(1), move |env| {
            let mut groups = groups(&machine, &manifest);
            let len = groups[0].file.len();
            let bad = vec![(len / 2 + 512..len / 2 + 1024, EACCES)];
            groups[0].file = Arc::new(Flawed::new(groups[0].file.clone(), bad));
            let alone = Env { spawner: None, ..env.clone() };
            (replayed(env, lane, &groups, 0), replayed(&alone, lane, &groups, 0), path_of(groups[0].ltn))
        });
        let ran = ran.unwrap_or_else(|why| panic!("{why}"));
        let (found, expected, path) = ran.value;
        assert_eq!(found, expected);
        let e = found.end.unwrap_err();
        assert!(e.contains(path.to_str().unwrap()) && e.contains("Some("), "{e}");
        assert!(!found.batches.is_empty() && ran.threads > 1, "{} batches", found.batches.len());
    }
}
