use super::*;
use crate::{Db, Options};
use io::sim::SimEnv;
use std::cell::Cell;
use values::Ledger;

fn store(sim: &SimEnv) -> Db {
    let db = Db::open_in(sim.env(), "/store", Options::default()).unwrap();
    db.put(b"a", &[1; 4000]).unwrap();
    db.flush().unwrap();
    db
}

/// What was derived before the lock is of the version before: another edit came between, and it must not be shown.
#[test]
fn what_was_derived_of_an_older_version_is_thrown_away() {
    let sim = SimEnv::new(1);
    let db = store(&sim);
    let (tree, family) = (&db.engine().tree, &db.default_column_family().0);
    let calls = Cell::new(0);
    let records = |_: &State, _: usize| {
        calls.set(calls.get() + 1);
        if calls.get() == 1 {
            db.put(b"b", &[2; 9000]).unwrap();
            db.flush().unwrap();
        }
        Some(Vec::new())
    };
    let outcome = tree.install(vec![Part::new(family)], records, || {}).unwrap();
    assert_eq!((outcome, calls.get()), (vec![Installed::Whole], 2));
    let read_state = family.read_state();
    let durable = tree.files.manifest.state();
    assert!(Arc::ptr_eq(&read_state.version, &durable.families.get(&family.id).unwrap().version));
    assert_eq!(read_state.ledger.record_bytes(), Ledger::of(&read_state.version).record_bytes());
    assert!(read_state.ledger.record_bytes() > 13_000, "both values are in it");
}

#[test]
fn outputs_of_what_was_overtaken_or_dropped_are_removed() {
    let sim = SimEnv::new(2);
    let db = store(&sim);
    let (tree, env) = (&db.engine().tree, sim.env());
    let make = |name: &str| {
        let path = tree.context.path(name);
        drop(env.fs.create(&path, &io::CreateOptions::default()).unwrap());
        path
    };
    let family = db.create_column_family("x", Default::default()).unwrap();
    let kept = make("000000900001.ksst");
    let part = Part { created: vec![(900_001, kept.clone())], ..Part::new(&family.0) };
    let outcome = tree.install(vec![part], |_, _| None, || {}).unwrap();
    assert_eq!((outcome, env.fs.exists(&kept).unwrap()), (vec![Installed::Overtaken], false));
    db.drop_column_family(&family).unwrap();
    let kept = make("000000900002.ksst");
    let part = Part { created: vec![(900_002, kept.clone())], ..Part::new(&family.0) };
    let outcome = tree.install(vec![part], |_, _| Some(Vec::new()), || {}).unwrap();
    assert_eq!((outcome, env.fs.exists(&kept).unwrap()), (vec![Installed::Dropped], false));
}
