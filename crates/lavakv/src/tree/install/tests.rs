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

/// What was derived before the lock is of the version before: another edit came between, and what it brought must be in it.
#[test]
fn what_was_derived_of_an_older_version_is_brought_up_to_date() {
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

/// A change that drops a table, and with it references under many names, is worked out before others come in between. Whatever these do, what readers
/// see and what the manifest has are as if it had been worked out last.
#[test]
fn a_change_that_others_came_before_has_the_same_outcome() {
    type Between = fn(&Db);
    let others: [(&str, Between); 7] = [
        ("nothing", |_| {}),
        ("a flush", |db| {
            db.put(b"b", &[2; 9000]).unwrap();
            db.flush().unwrap();
        }),
        ("two flushes", |db| {
            for n in 0..2 {
                db.put(b"b", &[n; 9000]).unwrap();
                db.flush().unwrap();
            }
        }),
        ("other files of values", |db| {
            let (tree, family) = (&db.engine().tree, db.default_column_family());
            let number = family.0.read_state().version.vssts.keys().last().unwrap();
            tree.install_everywhere(|_| Ok(Edit(vec![Record::ShareFile { number }]))).map(drop).unwrap();
        }),
        ("other options", |db| {
            let family = db.default_column_family();
            db.set_family_options(family, family.options().expert(|expert| expert.gc_ratio_percent = 33))
                .unwrap();
        }),
        ("another family", |db| {
            let family = db.create_column_family("x", Default::default()).unwrap();
            db.put_cf(&family, b"a", &[3; 3000]).unwrap();
            db.flush().unwrap();
        }),
        ("a flush without values", |db| {
            db.put(b"c", b"short").unwrap();
            db.flush().unwrap();
        }),
    ];
    for (name, between) in others {
        let sim = SimEnv::new(3);
        let db = store(&sim);
        for n in 0..2u8 {
            db.put(format!("k{n}").as_bytes(), &[n; 4000]).unwrap();
            db.flush().unwrap();
        }
        let (tree, family) = (&db.engine().tree, &db.default_column_family().0);
        let gone = family.read_state().version.files(0).first().cloned().unwrap();
        let list = tree.files.tables.dependencies(&gone).unwrap();
        assert!(!list.is_empty(), "it references values");
        let sums = Record::references(family.id, &mut [], [&list[..]]);
        let calls = Cell::new(0);
        let records = |_: &State, _: usize| {
            calls.set(calls.get() + 1);
            if calls.get() == 1 {
                between(&db);
            }
            let remove = Record::RemoveFile { family: family.id, level: 0, number: gone.number };
            Some([remove].into_iter().chain(sums.clone()).collect())
        };
        let outcome = tree.install(vec![Part::new(family)], records, || {}).unwrap();
        assert_eq!((outcome, calls.get()), (vec![Installed::Whole], 2), "{name}");
        let (read_state, durable) = (family.read_state(), tree.files.manifest.state());
        let known = durable.families.get(&family.id).unwrap();
        assert!(Arc::ptr_eq(&read_state.version, &known.version), "{name}");
        assert_eq!(*read_state.ledger, Ledger::of(&known.version), "{name}");
        durable.verify().unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(read_state.ledger.has_unused(), "{name}: nothing references what the table did");
        let ratio_percent = family.options().expert.gc_ratio_percent;
        assert_eq!(read_state.options.expert.gc_ratio_percent, ratio_percent, "{name}: options of now");
        drop((read_state, durable));
        db.close().unwrap();
        Db::open_in(sim.env(), "/store", Options::default()).unwrap();
    }
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
