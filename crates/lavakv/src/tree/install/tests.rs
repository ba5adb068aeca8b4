//! Edits that are derived before another edit is installed, and committed after it.

use super::*;
use crate::{Db, Options};
use datadriven::TestCase;
use io::sim::SimEnv;
use std::cell::Cell;
use std::error::Error;
use values::Ledger;

/// Creates a store with a table and a value in a file.
fn store(sim: &SimEnv) -> Db {
    let db = Db::open_in(sim.env(), "/store", Options::default()).unwrap();
    db.put(b"a", &[1; 4000]).unwrap();
    db.flush().unwrap();
    db
}

/// Makes a concurrent change.
fn meanwhile(db: &Db, what: &str) -> Result<()> {
    let flush = |key: &[u8], value: &[u8]| db.put(key, value).and_then(|()| db.flush());
    let family = db.default_column_family();
    match what {
        "nothing" => Ok(()),
        "flush" => flush(b"b", &[2; 9000]),
        "two-flushes" => (0..2).try_for_each(|n| flush(b"b", &[n; 9000])),
        "flush-without-values" => flush(b"c", b"short"),
        "other-value-files" => {
            let number = family.0.read_state().version.vssts.keys().last().unwrap();
            db.engine().tree.install_everywhere(|_| Ok(Edit(vec![Record::ShareFile { number }]))).map(drop)
        }
        "other-options" => {
            db.set_family_options(family, family.options().expert(|expert| expert.gc_ratio_percent = 33))
        }
        "another-family" => {
            let family = db.create_column_family("x", Default::default())?;
            db.put_cf(&family, b"a", &[3; 3000])?;
            db.flush()
        }
        other => panic!("nothing is called {other}"),
    }
}

/// Installs records of the default family that are derived twice, before and after another edit.
/// Checks that readers and manifest have the later state.
fn install(db: &Db, what: &str, records: impl Fn() -> Vec<Record>) -> String {
    let (tree, family) = (&db.engine().tree, &db.default_column_family().0);
    let calls = Cell::new(0);
    let derive = |_: &State, _: usize| {
        calls.set(calls.get() + 1);
        if calls.get() == 1 {
            meanwhile(db, what).unwrap();
        }
        Some(records())
    };
    let outcome = tree.install(vec![FamilyEdit::new(family)], derive, || {}).unwrap();
    let (read_state, durable) = (family.read_state(), tree.files.manifest.state());
    let known = durable.families.get(&family.id).unwrap();
    assert!(Arc::ptr_eq(&read_state.version, &known.version));
    assert_eq!(*read_state.ledger, Ledger::of(&known.version));
    durable.verify().unwrap();
    let ratio_percent = family.options().expert.gc_ratio_percent;
    assert_eq!(read_state.options.expert.gc_ratio_percent, ratio_percent);
    let (bytes, has_unused) = (read_state.ledger.record_bytes(), read_state.ledger.has_unused());
    format!(
        "{outcome:?}, derived {} times; values of {bytes} B, unused ones: {has_unused}, gc ratio {ratio_percent} %\n",
        calls.get()
    )
}

/// Drops the oldest table, which references a value, and reopens the store.
fn drop_table(what: &str) -> String {
    let sim = SimEnv::new(3);
    let db = store(&sim);
    for n in 0..2u8 {
        db.put(format!("k{n}").as_bytes(), &[n; 4000]).unwrap();
        db.flush().unwrap();
    }
    let (tree, family) = (&db.engine().tree, &db.default_column_family().0);
    let gone = family.read_state().version.files(0).first().cloned().unwrap();
    let list = tree.files.tables.dependencies(&gone).unwrap();
    assert!(!list.is_empty());
    let sums = Record::references(family.id, &mut [], [&list[..]]);
    let remove = || Record::RemoveFile { family: family.id, level: 0, number: gone.number };
    let out = install(&db, what, || [remove()].into_iter().chain(sums.clone()).collect());
    db.close().unwrap();
    Db::open_in(sim.env(), "/store", Options::default()).unwrap();
    out
}

/// Installs a part with an output that is superseded, or whose family is dropped.
fn output(what: &str) -> String {
    let sim = SimEnv::new(2);
    let db = store(&sim);
    let (tree, env) = (&db.engine().tree, sim.env());
    let family = db.create_column_family("x", Default::default()).unwrap();
    if what == "dropped" {
        db.drop_column_family(&family).unwrap();
    }
    let path = tree.context.path("000000900001.ksst");
    drop(env.fs.create(&path, &io::CreateOptions::default()).unwrap());
    let part = FamilyEdit { created: vec![(900_001, path.clone())], ..FamilyEdit::new(&family.0) };
    let outcome = tree.install(vec![part], |_, _| (what != "overtaken").then(Vec::new), || {}).unwrap();
    format!("{outcome:?}; the output exists: {}\n", env.fs.exists(&path).unwrap())
}

fn run(case: &mut TestCase) -> std::result::Result<String, Box<dyn Error>> {
    let out = match &*case.directive {
        "change-nothing" => {
            let sim = SimEnv::new(1);
            install(&store(&sim), &case.take_arg::<String>("meanwhile")?, Vec::new)
        }
        "drop-table" => drop_table(&case.take_arg::<String>("meanwhile")?),
        "output" => output(&case.take_arg::<String>("of")?),
        other => return Err(format!("no command is called {other}").into()),
    };
    case.expect_empty()?;
    Ok(out)
}

#[test]
fn scripts() {
    datadriven::walk("src/tree/install/scripts", |file| file.run(run));
}
