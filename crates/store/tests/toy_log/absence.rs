//! A store opened without the toy log keeps the toy log's data.

use crate::engine::Toy;
use crate::story::{DIR, TERMS, open};
use base::ErrorKind;
use io::sim::{CrashKind, SimEnv};
use std::path::Path;
use store::Store;
use store::commit::{Durability, TenantId};
use store::files::unfinished;
use store::manifest::{Engine, Engines};

/// Opens the store without engines, lets another tenant write, and returns the open store.
pub fn without_the_toy(sim: &SimEnv, batches: u64) -> Store {
    let mut next = 0;
    let store = Store::open(&sim.env(), Path::new(DIR), TERMS, &Engines::default(), &mut |tenant, seq, _| {
        next = if tenant == TenantId(9) { seq } else { next };
        Ok(())
    });
    let store = store.unwrap();
    for seq in next + 1..=next + batches {
        let ticket = store.log().put(TenantId(9), &[&[3; 3000]], (seq, seq), Durability::Durable).unwrap();
        store.log().sync(ticket).unwrap();
        store.log().floors().tell(TenantId(9), seq);
        store.log().floors().hint();
        store.tend().unwrap();
    }
    store
}

#[test]
fn data_of_an_absent_engine_survives_log_and_manifest_rolls() {
    let sim = SimEnv::new(3);
    let (store, toy) = open(sim.env()).unwrap();
    for i in 0..50_u8 {
        toy.append(&[i; 2000], Durability::Buffered).unwrap();
    }
    toy.trim(11).unwrap();
    store.close().unwrap();
    drop((store, toy));
    for round in 0..3 {
        let store = without_the_toy(&sim, 200);
        store.manifest().commits().roll().unwrap();
        let floors = store.log().floors().all(&store.manifest().state());
        assert!(floors.contains(&(TenantId(7), 11)), "round {round}: {floors:?}");
        assert!(store.log().reader().held_by_others(TenantId(9)) > 0);
        store.close().unwrap();
    }
    let (store, toy) = open(sim.env()).unwrap();
    assert_eq!(toy.range(), 11..51);
    assert!((11..51).all(|n| toy.read(n) == Some(vec![n as u8 - 1; 2000])));
    // Once the toy log raises its floor, all that is released.
    let before = store.log().wal().content().live_bytes();
    toy.trim(51).unwrap();
    store.log().floors().tell(TenantId(9), u64::MAX);
    store.tend().unwrap();
    assert!(store.log().wal().content().live_bytes() < before / 2);
}

#[test]
fn an_engine_absent_at_the_log_end_is_notified() {
    let sim = SimEnv::new(4);
    let (store, toy) = open(sim.env()).unwrap();
    let missed = |store: &Store| store.manifest().state().engines.has_missed(Toy::ID);
    toy.append(b"one", Durability::Buffered).unwrap();
    store.close().unwrap();
    drop((store, toy));
    let store = without_the_toy(&sim, 1);
    assert!(!missed(&store), "the log had been closed");
    store.close().unwrap();
    drop(store);

    let (store, toy) = open(sim.env()).unwrap();
    toy.append(b"two", Durability::Buffered).unwrap();
    let killed = sim.crash(CrashKind::ProcessKill, 1);
    drop((store, toy));
    for _ in 0..2 {
        let store = without_the_toy(&killed, 1);
        assert!(missed(&store), "also after a close, and a roll");
        store.close().unwrap();
    }
    let (store, toy) = open(killed.env()).unwrap();
    assert_eq!((missed(&store), toy.range()), (false, 1..3));
    toy.append(b"three", Durability::Buffered).unwrap();
    let killed = killed.crash(CrashKind::ProcessKill, 2);
    drop((store, toy));
    assert!(missed(&without_the_toy(&killed, 1)));
    let (store, _toy) = open(killed.env()).unwrap();
    assert!(!missed(&store), "it has been here");
}

/// An interrupted repair leaves `CURRENT`, but no store: no open succeeds, with any engines.
#[test]
fn an_interrupted_repair_is_refused_by_every_open() {
    let sim = SimEnv::new(3);
    drop(open(sim.env()).unwrap());
    let mark = unfinished::Mark::set(&sim.env().fs, Path::new(DIR), unfinished::MarkKind::Repair).unwrap();
    let refusal = open(sim.env()).err().unwrap();
    assert_eq!(refusal.kind(), ErrorKind::NotFound);
    assert!(refusal.to_string().contains("repair"), "{refusal}");
    mark.finish().unwrap();
    open(sim.env()).unwrap();
}
