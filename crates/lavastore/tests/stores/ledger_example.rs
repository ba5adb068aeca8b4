//! The ledger of `examples/ledger.rs` keeps every cent, also after crashes.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the example is a program of its own"
)]

#[path = "../../examples/ledger.rs"]
mod ledger;

use io::Rng;
use lavastore::testing::{CrashKind, SimEnv, store};
use lavastore::{Db, Options};
use ledger::{Ledger, Outcome};
use std::collections::BTreeSet;

const NAMES: [&str; 3] = ["ada", "ben", "cleo"];

fn open_at(sim: &SimEnv, dir: &str) -> Ledger {
    Ledger::open(Db::open_in(&sim.env(), dir, &Options::default()).unwrap()).unwrap()
}

fn open(sim: &SimEnv) -> Ledger {
    open_at(sim, "/ledger")
}

fn both(sim: &SimEnv) -> [Ledger; 2] {
    ["/one", "/two"].map(|dir| open_at(sim, dir))
}

fn names(rng: &mut Rng) -> (&'static str, &'static str) {
    (NAMES[rng.below(3) as usize], NAMES[rng.below(3) as usize])
}

#[test]
fn a_transfer_happens_once_and_only_with_enough_money() {
    let ledger = Ledger::open(store()).unwrap();
    assert!(ledger.create("ada", 100).unwrap() && !ledger.create("ada", 900).unwrap());
    for _ in 0..3 {
        assert_eq!(ledger.transfer(1, ("ada", "ben"), 60).unwrap(), Outcome::Done);
    }
    assert_eq!(ledger.transfer(2, ("ada", "ben"), 60).unwrap(), Outcome::TooLittle);
    assert_eq!(ledger.transfer(3, ("ben", "ben"), 60).unwrap(), Outcome::Done);
    assert_eq!((ledger.balance("ada").unwrap(), ledger.balance("ben").unwrap()), (40, 60));
}

/// A store of a machine after a crash at some operation of its record.
fn crashed(sim: &SimEnv, rng: &mut Rng) -> SimEnv {
    let kind = if rng.one_in(2) { CrashKind::PowerLoss } else { CrashKind::ProcessKill };
    sim.crash(kind, rng.next_u64())
}

#[test]
fn twenty_crashes_lose_no_transfer_and_no_cent() {
    let (mut rng, mut sim) = (Rng::new(7), SimEnv::new(7));
    NAMES.iter().for_each(|name| assert!(open(&sim).create(name, 1_000).unwrap()));
    let (mut done, mut number) = (BTreeSet::new(), 0);
    for _ in 0..20 {
        let ledger = open(&sim);
        assert_eq!(ledger.total().unwrap(), 3_000);
        assert!(done.iter().all(|number| ledger.is_done(*number).unwrap()));
        for _ in 0..rng.below(20) {
            number += 1;
            if ledger.transfer(number, names(&mut rng), rng.below(400) as i64).unwrap() == Outcome::Done {
                done.insert(number);
            }
        }
        sim = crashed(&sim, &mut rng);
    }
    assert!(done.len() > 100, "{}", done.len());
}

/// The machine of two ledgers stops at any moment of transfers between them: before a settlement an
/// amount may be under way, and after it no cent is missing.
#[test]
fn crashes_between_the_phases_lose_no_cent_of_two_ledgers() {
    let mut under_way = 0;
    for seed in 0..6 {
        let (mut rng, sim) = (Rng::new(seed), SimEnv::new(seed));
        let [one, two] = both(&sim);
        assert!(one.create("ada", 1_000).unwrap() && two.create("ben", 1_000).unwrap());
        let begun = sim.op_count();
        let mut ends = Vec::new();
        for number in 1..5 {
            let sent = one.send(number, ("ada", "ben", &two), rng.range(1, 200) as i64).unwrap();
            assert_eq!(sent, Outcome::Done);
            ends.push((number, sim.op_count()));
        }
        let record = sim.record();
        for op in record.mutations().into_iter().filter(|op| *op >= begun) {
            let [one, two] = both(&record.crash_before(op, CrashKind::PowerLoss, seed));
            let total = || one.total().unwrap() + two.total().unwrap();
            under_way += u32::from(total() != 2_000);
            two.settle(&one).unwrap();
            assert_eq!(total(), 2_000, "seed {seed}, operation {op}");
            for (number, _) in ends.iter().filter(|(_, end)| *end <= op) {
                assert!(one.is_done(*number).unwrap(), "seed {seed}, operation {op}: transfer {number}");
            }
            assert_eq!(one.send(9, ("ada", "ben", &two), 7).unwrap(), Outcome::Done);
            assert_eq!(total(), 2_000, "seed {seed}, operation {op}");
        }
    }
    assert!(under_way > 5, "{under_way}");
}
