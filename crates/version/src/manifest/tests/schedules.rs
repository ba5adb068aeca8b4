//! The manifest under schedules: several threads commit, one rolls and confirms, and the power
//! fails anywhere.
//!
//! Every schedule ends. Edits are published once, in the order of their numbers. A commit that
//! returned is durable. After a crash at any operation the recovered history is an accepted one,
//! and includes every commit that had returned.

use super::*;
use base::sync::{lock as take, rank::Noted};
use io::sim::threads::{Plan, Ran, Stuck};
use io::sim::{CrashKind, Policy};
use io::{Priority, Rng};

type Lock<T> = Mutex<T, Noted>;

/// Number of seeds with which every change is tested.
const SEEDS: u64 = 2_000;

/// Number of crashes tried for one run.
const STATES: u64 = 12;

/// State shared by the threads of a run.
struct Shared {
    manifest: Manifest,
    sim: SimEnv,
    /// Edits in the order of their publication.
    published: Lock<Vec<u64>>,
    returned: Lock<Returned>,
}

/// Returns an edit that adds a file. `filler` bytes make it longer, so that the edits of one group
/// commit span several sectors and pages.
fn add(tip: &State, number: u64, filler: usize) -> Edit {
    let seq = tip.store.last_seq + 1;
    let meta = FileMeta {
        number,
        smallest: key::encode(&user_key(number % 100), seq, ValueKind::Value),
        largest: key::encode(&user_key(number % 100 + 10), seq, ValueKind::Value),
        min_seq: seq,
        max_seq: seq,
        ..FileMeta::default()
    };
    let options = Record::UpdateFamily { id: 0, options: vec![7; filler] };
    Edit(vec![Record::AddFile { family: 0, level: 0, meta }, options])
}

fn commits(shared: &Shared, mut rng: Rng) {
    for _ in 0..rng.range(1, 5) {
        let number = shared.manifest.allocate_file_number();
        let publish = |state: &State| take(&shared.published).push(state.store.edit_number);
        let filler = if rng.one_in(2) { rng.below(6_000) } else { 0 } as usize;
        let state = shared.manifest.commit_with(|tip| Ok(add(tip, number, filler)), publish).unwrap();
        let op = shared.sim.op_count();
        assert!(shared.manifest.state().place_of(number).is_some(), "what was committed is published");
        assert!(shared.manifest.durable_edit() >= state.store.edit_number, "and durable");
        assert!(shared.manifest.format() >= state.store.format, "a format is never lowered");
        take(&shared.returned).push((state.store.edit_number, op));
    }
}

fn rolls(shared: &Shared, mut rng: Rng) {
    for _ in 0..rng.below(4) {
        match rng.below(4) {
            3 => assert!(shared.manifest.shared().read_again().unwrap().damaged.is_empty()),
            0 => shared.manifest.commits().roll().unwrap(),
            1 => shared.manifest.commits().upgrade(StoreFormat::NEWEST).unwrap(),
            _ => shared.manifest.commits().confirm().unwrap(),
        }
    }
}

/// Commits that returned: the edit, and the operation by which it had returned.
type Returned = Vec<(u64, u64)>;

fn run(seed: u64) -> (SimEnv, Result<Ran<Returned>, Stuck>) {
    let sim = SimEnv::new(seed);
    let machine = sim.clone();
    let ran = sim.run_threads(&Plan { patience_ns: 200_000_000, ..Plan::new(seed) }, move |env| {
        let mut rng = Rng::new(seed);
        let manifest = Manifest::create(env, DIR.as_ref(), InitialState::default()).unwrap();
        let create = Record::CreateFamily { id: 0, name: "default".into(), options: vec![] };
        let first = manifest.commit(Edit(vec![create])).unwrap().store.edit_number;
        let op = machine.op_count();
        let shared = Arc::new(Shared {
            manifest,
            sim: machine,
            published: Lock::default(),
            returned: Lock::new(vec![(first, op)]),
        });
        let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
        for _ in 0..rng.range(2, 5) {
            let (shared, rng) = (shared.clone(), rng.fork());
            bodies.push(Box::new(move || commits(&shared, rng)));
        }
        let (other, fork) = (shared.clone(), rng.fork());
        bodies.push(Box::new(move || rolls(&other, fork)));
        let spawner = env.spawner.clone().unwrap();
        let spawn = |body| spawner.spawn("client", Priority::Foreground, body).unwrap();
        let threads: Vec<_> = bodies.into_iter().map(spawn).collect();
        assert!(threads.into_iter().all(|thread| thread.join()));
        let published = std::mem::take(&mut *take(&shared.published));
        assert!(published.iter().copied().eq(first + 1..=first + published.len() as u64), "{published:?}");
        std::mem::take(&mut *take(&shared.returned))
    });
    (sim, ran)
}

#[test]
fn no_schedule_loses_a_wake_up_or_an_edit() {
    let first = std::env::var("SCHEDULE_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let seeds = first.map_or(1..SEEDS + 1, |seed| seed..seed + 1);
    for seed in seeds {
        let (sim, ran) = run(seed);
        let returned = ran.unwrap_or_else(|why| panic!("seed {seed}: {why}")).value;
        let record = sim.record();
        let ops = record.mutations();
        let mut rng = Rng::new(seed ^ 0x6372_6173_6800);
        for _ in 0..STATES {
            let op = ops[rng.below(ops.len() as u64) as usize];
            let policy = Policy::ALL[rng.below(5) as usize];
            let kind = if rng.one_in(3) { CrashKind::ProcessKill } else { CrashKind::PowerLossWith(policy) };
            let least = returned.iter().filter(|(_, at)| *at <= op).map(|(edit, _)| *edit).max();
            let after = record.crash_at(op, kind, rng.next_u64());
            match (recover(&after), least) {
                (Ok(manifest), least) => {
                    let edit = manifest.durable_edit();
                    assert!(
                        edit >= least.unwrap_or(0),
                        "seed {seed}, {kind:?} at {op}: edit {edit}, not {least:?}"
                    );
                }
                // The crash came before the manifest existed.
                (Err(_), None) => {}
                (Err(e), Some(_)) => panic!("seed {seed}, {kind:?} at {op}: {e}"),
            }
        }
    }
}
