//! The steps of the example, which its test runs too.

use crate::engine::{Replayed, Toy, ToyLog};
use base::Result;
use io::sim::{CrashKind, SimEnv};
use io::{Access, Env};
use std::path::Path;
use store::Store;
use store::commit::{Aging, Durability, LogTerms, Loggers};
use store::manifest::Engines;

/// Directory of a store with only this engine.
pub const DIR: &str = "/toy";
/// Lengths and access modes of its log.
pub const TERMS: LogTerms = LogTerms {
    access: Access::Direct,
    group_bytes: 256 << 10,
    free_groups_max: 2,
    loggers: Loggers::ONE,
    retained_open_max: 8,
    aging: Aging { age_ms_max: 0, memtable_bytes: 0, durable_wait_us_max: 0, expects_durable: false },
};

/// Opens the store and its engine.
pub fn open(env: Env) -> Result<(Store, ToyLog)> {
    let mut replayed = Replayed::default();
    let engines = Engines::of::<Toy>();
    let store = Store::open(&env, Path::new(DIR), TERMS, &engines, &mut |tenant, number, bytes| {
        replayed.take(tenant, number, bytes)
    })?;
    let toy = ToyLog::over(store.manifest(), store.log(), replayed)?;
    Ok((store, toy))
}

/// Appends, loses the process and then the power, replays, trims. Panics on any unexpected result.
pub fn tell(say: &mut dyn FnMut(&str)) {
    let sim = SimEnv::new(7);
    let (store, toy) = open(sim.env()).unwrap();
    for i in 0..100_u32 {
        toy.append(format!("entry {i}").as_bytes(), Durability::Buffered).unwrap();
    }
    let (last, ticket) = toy.append(b"the last durable one", Durability::Durable).unwrap();
    toy.sync(ticket).unwrap();
    // These share one device write.
    let tickets: Vec<_> = (0..10).map(|_| toy.append(&[1; 100], Durability::Durable).unwrap().1).collect();
    let before = store.log().wal().stats().durable_writes;
    tickets.into_iter().for_each(|ticket| toy.sync(ticket).unwrap());
    assert_eq!(store.log().wal().stats().durable_writes - before, 1);
    toy.append(b"buffered", Durability::Buffered).unwrap();
    say(&format!("{} entries, {last} and ten more of them durable", toy.range().end - 1));

    let killed = sim.crash(CrashKind::ProcessKill, 1);
    drop((store, toy));
    let (store, toy) = open(killed.env()).unwrap();
    assert_eq!(toy.range(), 1..113);
    assert_eq!(toy.read(112).as_deref(), Some(&b"buffered"[..]));
    say("the process was killed: all of them are back");

    toy.append(b"not durable", Durability::Buffered).unwrap();
    let without_power = killed.crash(CrashKind::PowerLoss, 2);
    drop((store, toy));
    let (store, toy) = open(without_power.env()).unwrap();
    assert_eq!((toy.range().start, toy.range().end >= 113), (1, true), "{:?}", toy.range());
    say(&format!("the power failed: {} entries are back", toy.range().end - 1));

    for _ in 0..400 {
        toy.append(&[2; 1000], Durability::Buffered).unwrap();
        store.tend().unwrap();
    }
    let long = store.log().wal().content().live_bytes();
    toy.trim(toy.range().end - 10).unwrap();
    store.tend().unwrap();
    let short = store.log().wal().content().live_bytes();
    assert!(short < long, "{short} of {long}");
    store.close().unwrap();
    drop((store, toy));
    let (_store, toy) = open(without_power.env()).unwrap();
    assert_eq!(toy.range().end - toy.range().start, 10);
    say(&format!("trimmed: of {long} bytes of log {short} are left, and ten entries"));
}
