//! Removal of an engine, with all its data, from a store.

use crate::absence::without_the_toy;
use crate::engine::Toy;
use crate::story::{DIR, open};
use base::ErrorKind;
use io::sim::{CrashKind, SimEnv};
use io::{CreateOptions, SyncKind};
use std::path::{Path, PathBuf};
use store::Store;
use store::commit::{Durability, TenantId};
use store::manifest::{Engine, EngineFile, EngineId, Record};
use store::names::FileKind;
use store::volumes::Volume;

const ENTRIES: u64 = 30;

fn path(number: u64) -> PathBuf {
    Path::new(DIR).join(FileKind::Engine { engine: Toy::ID.0, kind: 0, number }.to_string())
}

/// Makes a closed store with entries and two files of the toy log, one of them listed. Returns the
/// numbers of the files.
fn made(sim: &SimEnv) -> [u64; 2] {
    let (store, toy) = open(sim.env()).unwrap();
    for i in 0..ENTRIES {
        toy.append(&[i as u8; 2000], Durability::Buffered).unwrap();
    }
    let numbers = [(); 2].map(|()| store.manifest().allocate_file_number());
    for number in numbers {
        let mut file = sim.env().fs.create(&path(number), &CreateOptions::default()).unwrap();
        file.append(b"of the toy log").unwrap();
        file.sync(SyncKind::Full).unwrap();
    }
    store.manifest().files().sync_dir().unwrap();
    let file = EngineFile { number: numbers[0], kind: 0, volume: Volume::DIRECTORY };
    let add = vec![Record::AddEngineFile { engine: Toy::ID, file }];
    store.manifest().commit_store(|_| Ok(add), |_| {}).unwrap();
    store.close().unwrap();
    numbers
}

fn has_toy(store: &Store) -> bool {
    store.manifest().state().engines.iter().any(|engine| engine.id == Toy::ID)
}

fn exist(sim: &SimEnv, numbers: [u64; 2]) -> [bool; 2] {
    numbers.map(|number| sim.env().fs.exists(&path(number)).unwrap())
}

/// Returns true if the toy log cannot be added again yet.
fn must_wait(sim: &SimEnv) -> bool {
    let Err(e) = open(sim.env()) else { return false };
    assert!(e.kind() == ErrorKind::Busy && e.to_string().contains("removed"), "{e}");
    true
}

/// Checks that the toy log can be added as new once its old groups are gone.
fn comes_back(sim: &SimEnv) {
    // Other tenants write, and the log releases its old groups.
    for _ in 0..2 {
        let store = without_the_toy(sim, 100);
        assert!(
            !has_toy(&store)
                && store.log().floors().all(&store.manifest().state()).contains(&(TenantId(7), u64::MAX))
        );
        store.close().unwrap();
    }
    let (store, toy) = open(sim.env()).unwrap();
    assert_eq!(toy.range(), 1..1);
    assert_eq!(toy.append(b"anew", Durability::Durable).unwrap().0, 1);
    store.close().unwrap();
    drop((store, toy));
    let (_store, toy) = open(sim.env()).unwrap();
    assert_eq!((toy.range(), toy.read(1).as_deref()), (1..2, Some(&b"anew"[..])));
}

#[test]
fn removing_an_engine_deletes_its_files_and_log_groups() {
    let sim = SimEnv::new(1);
    let numbers = made(&sim);
    let (store, toy) = open(sim.env()).unwrap();
    let e = store.remove_engine(Toy::NAME).unwrap_err();
    assert!(e.kind() == ErrorKind::InvalidArgument && e.to_string().contains("is open"), "{e}");
    store.close().unwrap();
    drop((store, toy));
    let store = without_the_toy(&sim, 1);
    assert_eq!(store.remove_engine("another").unwrap_err().kind(), ErrorKind::NotFound);
    assert!(has_toy(&store) && exist(&sim, numbers) == [true; 2]);
    store.remove_engine(Toy::NAME).unwrap();
    assert!(!has_toy(&store) && exist(&sim, numbers) == [false; 2]);
    assert_eq!(store.remove_engine(Toy::NAME).unwrap_err().kind(), ErrorKind::NotFound);
    store.manifest().commits().roll().unwrap();
    store.close().unwrap();
    drop(store);
    assert!(must_wait(&sim), "its batches are still in the log");
    comes_back(&sim);
}

#[test]
fn a_crash_during_engine_removal_leaves_all_or_nothing() {
    let sim = SimEnv::new(2);
    let numbers = made(&sim);
    let store = without_the_toy(&sim, 1);
    let begun = sim.op_count();
    store.remove_engine(Toy::NAME).unwrap();
    let returned = sim.op_count();
    store.close().unwrap();
    let record = sim.record();
    let (mut kept, mut gone) = (0, 0);
    for op in record.mutations().into_iter().filter(|op| *op >= begun) {
        // The seed decides the outcome of the interrupted operation.
        let tries =
            (0..4).flat_map(|seed| [CrashKind::ProcessKill, CrashKind::PowerLoss].map(|kind| (kind, seed)));
        for (kind, seed) in tries {
            let after = record.crash_at(op, kind, seed);
            let store = without_the_toy(&after, 1);
            let is_there = has_toy(&store);
            assert!(!is_there || op < returned, "operation {op}: it had been removed");
            assert_eq!(exist(&after, numbers), [is_there; 2], "operation {op} {kind:?}");
            store.close().unwrap();
            drop(store);
            if is_there {
                let (_store, toy) = open(after.env()).unwrap();
                assert_eq!(toy.range(), 1..ENTRIES + 1);
                kept += 1;
            } else {
                if must_wait(&after) {
                    comes_back(&after);
                }
                gone += 1;
            }
        }
    }
    assert!(kept > 0 && gone > 3, "{kept} kept, {gone} gone");
}

/// The log has one byte for the tenant of a batch.
#[test]
fn an_engine_of_a_larger_id_is_refused() {
    let sim = SimEnv::new(3);
    let store = without_the_toy(&sim, 1);
    let add = |id: u32| {
        let record = Record::AddEngine { engine: EngineId(id), name: "x".into(), format: 1 };
        store.manifest().commit_store(|_| Ok(vec![record]), |_| {}).map(drop)
    };
    add(255).unwrap();
    let e = add(256).unwrap_err();
    assert!(e.kind() == ErrorKind::Unsupported && e.to_string().contains("255"), "{e}");
}
