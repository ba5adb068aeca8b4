//! Write stalls stay within the stall budget as long as the waiting bytes can be drained in that
//! time. This holds for any limiting stage and any number of writers.
//!
//! The simulated machine has a device of given bandwidth; apart from it only the writers' own work
//! takes time. Background work runs one step whenever no writer can continue. Writers are state
//! machines ([`WriteOp`]), so that any number of them can be in flight. Each continues when its
//! time has come or its condition is met. A step takes as long as the device needs for its bytes.
//! Writers that could have continued meanwhile do so right after it, in the order of their times.
//!
//! So the exact length of a throttle charge counts. Any other wait may be longer by one step, since
//! no more urgent step begins before the current one ends here. So may a charge for memory, which
//! rises while a flush waits for such a step.

use super::admission::wait_condition::WaitCondition;
use super::commit::{WriteOp, WriteStep};
use crate::batch::Change;
use crate::batch::payload::Payload;
use crate::context::event::StallCause;
use crate::{Db, Durability, FamilyOptions, Options, PolicyChoice};
use base::ValueKind;
use io::Rng;
use io::sim::{Costs, SimEnv};
use std::ops::RangeInclusive;
use std::time::Duration;

const MS: u64 = 1_000_000;
/// Seeds of machine and writers; each load runs once. All loads with many seeds run every night.
const SEEDS: RangeInclusive<u64> = 1..=6;
/// Seeds of the nightly run.
const MANY_SEEDS: RangeInclusive<u64> = 1..=64;
/// Bytes of a full store.
const DATA: u64 = 12 << 20;
const BUDGET_NS: u64 = 10 * MS;
/// Cost of the device: 500 MB/s.
const KIB_NS: u64 = 2_000;
/// CPU time of a put.
const PUT_NS: u64 = 2_000;

/// The load of a test.
#[derive(Clone, Copy, Debug)]
struct Load {
    writers: u64,
    value_len: usize,
    keys: u64,
    /// Simulated duration, milliseconds.
    ms: u64,
    /// Puts come in bursts: each writer runs for this long at full speed, then pauses for twice as
    /// long; 0: no pauses.
    burst_ms: u64,
    keys_in: Keys,
}

/// Order in which keys are overwritten.
#[derive(Clone, Copy, Debug)]
enum Keys {
    AtRandom,
    /// Sequential: a flush overlaps few tables, and keys of one flush are not in the next.
    InOrder,
}

/// The store of a test, and the order of its keys.
#[derive(Clone, Copy, Debug)]
struct Of {
    policy: &'static str,
    min_blob_size: usize,
    keys_in: Keys,
}

impl Load {
    fn key(&self, rng: &mut Rng, nth: &mut u64) -> u64 {
        *nth += 1;
        match self.keys_in {
            Keys::AtRandom => rng.below(self.keys),
            Keys::InOrder => *nth % self.keys,
        }
    }
}

/// Results of a run.
#[derive(Debug, Default)]
struct Told {
    bytes: u64,
    puts: u64,
    /// The longest wait by cause, and the longest excess over the allowed wait.
    longest_ns: [u64; StallCause::ALL.len()],
    over_ns: [u64; StallCause::ALL.len()],
    waited_ns: [u64; StallCause::ALL.len()],
    /// The longest time without progress of any writer.
    still_ns: u64,
    /// The longest step of a job.
    step_ns: u64,
    ns: u64,
}

impl Told {
    /// Adds a completed put that waited; `is_for_time`: for throttle charges only.
    fn add(&mut self, cause: Option<StallCause>, ns: u64, is_for_time: bool) {
        self.puts += 1;
        let Some(cause) = cause else { return };
        let i = cause as usize;
        let is_exact = is_for_time && cause != StallCause::Memory;
        let at_most_ns = if is_exact { BUDGET_NS } else { BUDGET_NS + self.step_ns };
        self.waited_ns[i] += ns;
        self.longest_ns[i] = self.longest_ns[i].max(ns);
        self.over_ns[i] = self.over_ns[i].max(ns.saturating_sub(at_most_ns));
    }
}

struct Client<'a> {
    op: Option<WriteOp<'a>>,
    /// The time at which it can continue, without a condition.
    at_ns: u64,
    need: Option<WaitCondition>,
    /// Time waited by its operation, the kind of the waits, and the last cause.
    waited_ns: u64,
    is_for_time: bool,
    cause: Option<StallCause>,
}

/// Creates a store that is full and idle.
fn filled(sim: &SimEnv, options: Options, load: &Load) -> Db {
    sim.set_costs(Costs { kib_ns: KIB_NS, ..Costs::default() });
    let db = Db::open_in(sim.env(), "/store", options).unwrap();
    let noise = noise();
    for n in 0..load.keys {
        db.put(&n.to_be_bytes(), value(&noise, n, load.value_len)).unwrap();
    }
    db.flush().unwrap();
    while db.run_background_step() {}
    db
}

/// Incompressible bytes.
fn noise() -> Vec<u8> {
    let mut rng = Rng::new(1);
    (0..1 << 17).flat_map(|_| rng.next_u64().to_le_bytes()).collect()
}

fn value(noise: &[u8], nth: u64, len: usize) -> &[u8] {
    let at = (nth.wrapping_mul(7919) % (noise.len() - len) as u64) as usize;
    &noise[at..at + len]
}

fn run(db: &Db, sim: &SimEnv, load: &Load, seed: u64) -> Told {
    let mut rng = Rng::new(seed);
    let keys: Vec<_> = (0..load.keys).map(u64::to_be_bytes).collect();
    let noise = noise();
    let (writes, family) = (&db.engine().writes, &db.default_column_family().0);
    let begun_ns = sim.now_ns();
    let client =
        |_| Client { op: None, at_ns: begun_ns, need: None, waited_ns: 0, is_for_time: true, cause: None };
    let mut clients: Vec<Client<'_>> = (0..load.writers).map(client).collect();
    let mut told = Told::default();
    let (mut last_ns, mut nth_key) = (begun_ns, 0);
    while sim.now_ns() - begun_ns < load.ms * MS {
        let now_ns = sim.now_ns();
        for client in &mut clients {
            while client.at_ns <= now_ns
                && client.need.as_ref().is_none_or(|need| writes.admission.is_met(need))
            {
                if client.need.take().is_some() {
                    client.waited_ns += now_ns - client.at_ns;
                    client.at_ns = now_ns;
                }
                let pause_ns = (client.at_ns - begun_ns) / MS % (3 * load.burst_ms).max(1);
                if client.op.is_none() && load.burst_ms > 0 && pause_ns >= load.burst_ms {
                    client.at_ns += MS;
                    last_ns = now_ns;
                    continue;
                }
                let op = client.op.get_or_insert_with(|| {
                    (client.waited_ns, client.is_for_time, client.cause) = (0, true, None);
                    let key = &keys[load.key(&mut rng, &mut nth_key) as usize];
                    let value = value(&noise, rng.next_u64(), load.value_len);
                    let change = Change { kind: ValueKind::Value, family: family.id, key, value };
                    WriteOp::new(writes, Payload::of_test(family, change), Durability::Buffered)
                });
                match op.step(u64::MAX).unwrap() {
                    WriteStep::Done => {
                        told.add(client.cause, client.waited_ns, client.is_for_time);
                        told.bytes += load.value_len as u64;
                        told.still_ns = told.still_ns.max(now_ns - last_ns);
                        last_ns = now_ns;
                        client.op = None;
                        client.at_ns += PUT_NS * load.writers;
                    }
                    WriteStep::Needs(WaitCondition::Time(ns, cause)) => {
                        client.at_ns = now_ns + ns;
                        client.waited_ns += ns;
                        client.cause = Some(cause);
                    }
                    WriteStep::Needs(need) => {
                        client.cause = need.cause().or(client.cause);
                        (client.at_ns, client.is_for_time) = (now_ns, false);
                        client.need = Some(need);
                    }
                }
            }
        }
        let stepped = db.run_background_step();
        told.step_ns = told.step_ns.max(sim.now_ns() - now_ns);
        if sim.now_ns() == now_ns {
            let waits = clients.iter().filter(|client| client.need.is_none());
            let next_ns = waits.map(|client| client.at_ns).min().unwrap_or(u64::MAX);
            let next_ns = if stepped { now_ns + 1_000 } else { next_ns.min(now_ns + MS) };
            sim.env().clock.sleep_ns(next_ns.saturating_sub(now_ns).max(1));
        }
    }
    told.ns = sim.now_ns() - begun_ns;
    drop(clients);
    told
}

fn options(family: FamilyOptions) -> Options {
    Options {
        memtable_bytes: 512 << 10,
        memory_bytes: 2 << 20,
        cache_bytes: 2 << 20,
        stall_budget: Duration::from_nanos(BUDGET_NS),
        family: family.expert(|expert| {
            expert.file_bytes = 128 << 10;
            expert.vsst_bytes = 128 << 10;
            expert.level_base_bytes = 1 << 20;
        }),
        ..Options::default()
    }
    .expert(|expert| {
        expert.log_group_bytes = 512 << 10;
        expert.wal_bytes_max = 16 << 20;
    })
}

/// Loads: one writer and many, at full speed and in bursts.
fn loads(of: Of) -> impl Iterator<Item = Load> {
    let load = move |writers, value_len: usize, burst_ms| {
        let value_len = value_len.max(2 * of.min_blob_size);
        let keys = DATA / value_len as u64;
        Load { writers, value_len, keys, ms: 1000, burst_ms, keys_in: of.keys_in }
    };
    let writers = [(1, 16 << 10), (16, 1 << 10), (64, 200)].into_iter();
    writers.flat_map(move |(writers, len)| [0, 300].map(|burst_ms| load(writers, len, burst_ms)))
}

/// Runs some of the loads with each seed. At most 16 KB wait, which every stage drains within the
/// budget.
fn within_the_budget(
    of: Of,
    causes: &[StallCause],
    seeds: RangeInclusive<u64>,
    is_drawn: impl Fn(u64, usize) -> bool,
) {
    let mut met = [false; StallCause::ALL.len()];
    for seed in seeds {
        for (_, load) in loads(of).enumerate().filter(|(nth, _)| is_drawn(seed, *nth)) {
            let (policy, min_blob_size) = (PolicyChoice::named(of.policy).unwrap(), of.min_blob_size);
            let options = options(FamilyOptions { min_blob_size, policy, ..FamilyOptions::default() });
            let sim = SimEnv::new(seed);
            let db = filled(&sim, options, &load);
            let told = run(&db, &sim, &load, seed);
            println!("{} seed {seed}, {load:?}: {told:?}", of.policy);
            for cause in StallCause::ALL {
                met[cause as usize] |= told.longest_ns[cause as usize] > 0;
                let (over_ns, name) = (told.over_ns[cause as usize], cause.name());
                assert_eq!(over_ns, 0, "ns over the budget for {name}, seed {seed}, {load:?}: {told:?}");
            }
        }
    }
    causes.iter().for_each(|cause| assert!(met[*cause as usize], "nobody waited for {}", cause.name()));
}

/// One load after the other.
fn in_turn(seed: u64, nth: usize) -> bool {
    seed as usize % 6 == nth
}

const LEVELED: [StallCause; 2] = [StallCause::Memory, StallCause::Levels];
const VLSM: [StallCause; 3] = [StallCause::Memory, StallCause::L0, StallCause::Levels];
const SEPARATED: [StallCause; 2] = [StallCause::Memory, StallCause::Garbage];

const fn inline(policy: &'static str) -> Of {
    Of { policy, min_blob_size: 0, keys_in: Keys::AtRandom }
}

const fn separated(policy: &'static str) -> Of {
    Of { min_blob_size: 128, ..inline(policy) }
}

#[test]
fn leveled_stalls_stay_within_the_budget() {
    within_the_budget(inline("leveled"), &LEVELED, SEEDS, in_turn);
}

#[test]
fn vlsm_stalls_stay_within_the_budget() {
    within_the_budget(inline("vlsm"), &VLSM, SEEDS, in_turn);
}

#[test]
fn separated_leveled_stalls_stay_within_the_budget() {
    within_the_budget(separated("leveled"), &SEPARATED, SEEDS, in_turn);
}

#[test]
fn separated_vlsm_stalls_stay_within_the_budget() {
    within_the_budget(separated("vlsm"), &SEPARATED, SEEDS, in_turn);
}

/// Level 0 hides garbage in many columns, none of which is worth a merge.
#[test]
fn ascending_keys_stalls_stay_within_the_budget() {
    for policy in ["leveled", "vlsm"] {
        let of = Of { keys_in: Keys::InOrder, ..separated(policy) };
        within_the_budget(of, &[StallCause::Memory], 1..=2, in_turn);
    }
}

#[test]
#[ignore = "minutes: every night"]
fn many_seeds_of_leveled() {
    within_the_budget(inline("leveled"), &LEVELED, MANY_SEEDS, |_, _| true);
}

#[test]
#[ignore = "minutes: every night"]
fn many_seeds_of_garbage() {
    within_the_budget(separated("leveled"), &SEPARATED, MANY_SEEDS, |_, _| true);
}

#[test]
#[ignore = "minutes: every night"]
fn many_seeds_of_garbage_below_a_queue() {
    within_the_budget(separated("vlsm"), &SEPARATED, MANY_SEEDS, |_, _| true);
}

#[test]
#[ignore = "minutes: every night"]
fn many_seeds_of_vlsm() {
    within_the_budget(inline("vlsm"), &VLSM, MANY_SEEDS, |_, _| true);
}

#[test]
#[ignore = "minutes: every night"]
fn many_seeds_of_ascending_keys() {
    for policy in ["leveled", "vlsm"] {
        let of = Of { keys_in: Keys::InOrder, ..separated(policy) };
        within_the_budget(of, &[StallCause::Memory], MANY_SEEDS, in_turn);
    }
}
