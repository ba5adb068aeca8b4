//! Compaction policies of families: another policy than `leveled` gives the tree another shape, and
//! a store with an unknown policy opens.

mod short_chains;
mod tiered;

use crate::common::*;
use lavastore_lavakv::sim::{CrashKind, SimEnv};
use lavastore_lavakv::{
    ColumnFamily, Db, ErrorKind, FamilyOptions, Options, PolicyChoice, ReadOptions, WriteBatch,
};
use repair::RepairOptions;

fn with_tiered() -> Options {
    small().expert(|expert| expert.policies = expert.policies.clone().with(tiered::NAME, tiered::make))
}

fn tiered_family(runs: u8) -> FamilyOptions {
    FamilyOptions { policy: tiered::chosen(runs), min_blob_size: 0, ..small_family() }
}

fn fill_cf(db: &Db, family: &ColumnFamily, model: &mut Model, keys: std::ops::Range<u64>, round: u64) {
    for i in keys {
        db.put_cf(family, &key(i), &value(i, round)).unwrap();
        model.insert(key(i), value(i, round));
    }
}

/// Returns the lines of the levels in which a family has tables.
fn levels(db: &Db, family: &str) -> Vec<String> {
    let text = db.describe();
    let mut lines = text.lines().skip_while(|line| !line.starts_with(&format!("family {family} ")));
    lines.next();
    let own = lines.take_while(|line| line.starts_with("  L"));
    own.map(|line| line.trim_start().split(',').next().unwrap().to_owned()).collect()
}

/// No table is ever between level 0 and the deepest level, and the tree of another family in the
/// same store is unaffected.
#[test]
fn policy_determines_the_tree_shape() {
    for seed in 0..6 {
        let mut sim = SimEnv::new(seed);
        let options = Options {
            family: small_family().expert(|expert| {
                expert.level_base_bytes = 16 << 10;
                expert.level_multiplier = 2;
            }),
            ..with_tiered()
        };
        let runs = 2 + (seed % 3) as u8;
        let db = Db::open_in(env(&sim), DIR, options.clone()).unwrap();
        db.create_column_family("runs", tiered_family(runs)).unwrap();
        drop(db);
        let (mut model, mut other) = (Model::new(), Model::new());
        let mut runs_seen = 0;
        for round in 0..6 {
            let db = Db::open_in(env(&sim), DIR, options.clone()).unwrap();
            let family = db.column_family("runs").unwrap();
            assert_eq!(family.options().policy, tiered::chosen(runs));
            assert!(contents_cf(&db, &family) == model && contents(&db) == other, "seed {seed}");
            let from = round * 300 % 1000;
            fill_cf(&db, &family, &mut model, from..from + 700, round);
            fill(&db, &mut other, from..from + 700, round);
            for i in (from..from + 700).step_by(3) {
                db.delete_cf(&family, &key(i)).unwrap();
                model.remove(&key(i));
            }
            db.flush().unwrap();
            runs_seen = runs_seen.max(levels(&db, "runs").len());
            let wrong = levels(&db, "runs").iter().any(|l| !l.starts_with("L0") && !l.starts_with("L6"));
            assert!(!wrong, "seed {seed}: {}", db.describe());
            if round == 4 {
                settle(&db);
                db.compact_range(&family, None, None).unwrap();
                assert_eq!(levels(&db, "runs").len(), 1, "{}", db.describe());
                assert!(db.verify().unwrap().errors.is_empty());
            }
            assert!(contents_cf(&db, &family) == model && contents(&db) == other, "seed {seed}");
            if round % 2 == 1 {
                sim = sim.crash(CrashKind::ProcessKill, seed);
            }
        }
        assert_eq!(runs_seen, 2, "level 0 and the deepest one");
    }
}

/// Creates a store with a family "strange", whose policy the next open does not know, and half of
/// whose data is in the log. Returns its contents.
fn strange(sim: &SimEnv) -> Model {
    let db = Db::open_in(env(sim), DIR, with_tiered()).unwrap();
    let family = db.create_column_family("strange", tiered_family(9)).unwrap();
    let mut model = Model::new();
    for round in 0..5 {
        fill_cf(&db, &family, &mut model, 0..200, round);
        db.flush().unwrap();
    }
    fill_cf(&db, &family, &mut model, 100..300, 9);
    model
}

#[test]
fn a_family_of_an_unknown_policy_is_read_and_not_written() {
    let sim = SimEnv::new(3);
    let mut model = strange(&sim);
    let db = open(&sim);
    let family = db.column_family("strange").unwrap();
    assert_eq!(family.options().policy, tiered::chosen(9));
    assert!(contents_cf(&db, &family) == model);
    assert_eq!(db.get_cf(&family, &key(250)).unwrap().as_deref(), Some(&value(250, 9)[..]));
    let refused = |result: lavastore_lavakv::Result<()>| {
        let e = result.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unsupported);
        let told = e.to_string();
        assert!(told.contains("strange") && told.contains("\"tiered\" version 1"), "{told}");
    };
    refused(db.put_cf(&family, b"a", b"b"));
    refused(db.delete_cf(&family, &key(1)));
    refused(db.compact_range(&family, None, None));
    refused(db.set_family_options(&family, FamilyOptions { filter_bits_per_key: 8, ..family.options() }));
    let mut both = WriteBatch::new();
    both.put(b"a", b"b");
    both.put_cf(&family, b"a", b"b");
    refused(db.write(&both));
    assert!(db.get(b"a").unwrap().is_none(), "all of a batch or nothing");
    refused(db.put_stream(&family, b"a", Default::default()).and_then(|mut stream| {
        use std::io::Write;
        stream
            .write_all(&[1; 1 << 20])
            .map_err(|e| lavastore_lavakv::Error::new(ErrorKind::Unsupported, e.to_string()))?;
        stream.finish()
    }));
    // Other families work as usual, and the log's changes are flushed.
    let mut other = Model::new();
    for round in 0..5 {
        fill(&db, &mut other, 0..500, round);
    }
    db.flush().unwrap();
    settle(&db);
    let before = levels(&db, "strange");
    assert_eq!(before.len(), 1, "{}", db.describe());
    assert!(before[0].starts_with("L0: ") && *before[0] >= *"L0: 5 files", "not compacted: {before:?}");
    assert!(contents(&db) == other && contents_cf(&db, &family) == model);
    drop(db);
    // An open that knows the policy continues.
    let db = Db::open_in(env(&sim), DIR, with_tiered()).unwrap();
    let family = db.column_family("strange").unwrap();
    fill_cf(&db, &family, &mut model, 0..50, 10);
    drop(db);
    // So does an open that sets another policy.
    let db = open(&sim);
    let family = db.column_family("strange").unwrap();
    db.set_family_options(&family, small_family()).unwrap();
    fill_cf(&db, &family, &mut model, 50..700, 11);
    db.flush().unwrap();
    settle(&db);
    assert!(levels(&db, "strange").iter().any(|l| l.starts_with("L6")), "{}", db.describe());
    assert!(contents_cf(&db, &family) == model);
}

/// Each open sets the options of the default family. That does not remove an unknown policy.
#[test]
fn the_default_family_keeps_an_unknown_policy() {
    let sim = SimEnv::new(4);
    let mut model = Model::new();
    let db = Db::open_in(env(&sim), DIR, Options { family: tiered_family(4), ..with_tiered() }).unwrap();
    fill(&db, &mut model, 0..300, 0);
    drop(db);
    let db = open(&sim);
    assert!(contents(&db) == model);
    fails(db.put(b"a", b"b"), ErrorKind::Unsupported);
    db.create_column_family("new", small_family()).unwrap();
    drop(db);
    let db = Db::open_read_only_in(env(&sim), DIR, small()).unwrap();
    assert!(contents(&db) == model);
    assert_eq!(db.default_column_family().options().policy, tiered::chosen(4));
    assert_eq!(db.iter(ReadOptions::default()).unwrap().entries().count(), model.len());
    drop(db);
    let db = Db::open_in(env(&sim), DIR, Options { family: tiered_family(4), ..with_tiered() }).unwrap();
    fill(&db, &mut model, 100..400, 1);
    assert!(contents(&db) == model);
}

/// A repair rewrites all tables, so it needs every policy. It names the missing one.
#[test]
fn a_repair_needs_the_policy() {
    let sim = SimEnv::new(6);
    let model = strange(&sim);
    let env = env(&sim);
    let repair = |options, into: &str| {
        let dry_run = false;
        repair::repair_in(
            &env,
            DIR,
            &env,
            into,
            &RepairOptions { options, dry_run, ..RepairOptions::default() },
        )
    };
    let e = repair(small(), "/here").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unsupported, "{e}");
    assert!(e.to_string().contains("strange") && e.to_string().contains("\"tiered\" version 1"), "{e}");
    repair(with_tiered(), "/there").unwrap();
    let db = Db::open_in(env.clone(), "/there", with_tiered()).unwrap();
    let family = db.column_family("strange").unwrap();
    assert_eq!(family.options().policy, tiered::chosen(9));
    assert!(contents_cf(&db, &family) == model);
}

#[test]
fn an_unregistered_policy_cannot_be_chosen() {
    let unknown = |name: &str, version| {
        let policy = PolicyChoice { name: name.into(), version, parameters: Vec::new() };
        FamilyOptions { policy, ..small_family() }
    };
    let sim = SimEnv::new(5);
    let open = |family| Db::open_in(env(&sim), DIR, Options { family, ..small() });
    for family in [unknown("tiered", 1), unknown("leveled", 2)] {
        fails(open(family), ErrorKind::Unsupported);
        assert!(sim.files().is_empty() || on_lavafs());
    }
    let db = open(small_family()).unwrap();
    fails(db.create_column_family("x", unknown("tiered", 1)), ErrorKind::Unsupported);
    fails(db.create_column_family("x", unknown("leveled", 7)), ErrorKind::Unsupported);
    fails(db.create_column_family("x", unknown("", 1)), ErrorKind::InvalidArgument);
    let spoilt = PolicyChoice { parameters: vec![1], ..PolicyChoice::default() };
    let spoilt = FamilyOptions { policy: spoilt, ..small_family() };
    fails(db.create_column_family("x", spoilt), ErrorKind::InvalidArgument);
    drop(db);
    fails(open(unknown("tiered", 1)), ErrorKind::Unsupported);
    open(small_family()).unwrap();
}
