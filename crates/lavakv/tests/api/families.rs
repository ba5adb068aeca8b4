//! Column families: created and dropped under writes, across reopen, and the cost of an idle one.

use crate::common::*;
use lavastore_lavakv::{
    Compression, Db, ErrorKind, FamilyOptions, Options, ReadOptions, WriteBatch, WriteOptions,
    sim::{CrashKind, OpKind, SimEnv},
};

#[test]
fn families_are_created_listed_dropped_and_recreated() {
    let sim = SimEnv::new(1);
    let db = open(&sim);
    assert_eq!(db.column_families(), ["default"]);
    let options = FamilyOptions { filter_bits_per_key: 5, ..small_family() }
        .expert(|expert| expert.block_bytes = 1024)
        .derived();
    let a = db.create_column_family("a", options.clone()).unwrap();
    let b = db.create_column_family("b", small_family()).unwrap();
    assert_eq!((a.name(), a.options()), ("a", options.clone()));
    fails(db.create_column_family("a", small_family()), ErrorKind::AlreadyExists);
    for i in 0..2000 {
        db.put_cf(&a, &key(i), b"a").unwrap();
        db.put_cf(&b, &key(i), &value(i, 0)).unwrap();
    }
    db.drop_column_family(&b).unwrap();
    assert_eq!(db.column_families(), ["default", "a"]);
    settle(&db);
    drop((db, a, b));
    let db = open(&sim);
    assert_eq!(db.column_families(), ["default", "a"]);
    let a = db.column_family("a").unwrap();
    assert_eq!(a.options(), options, "options are kept with the family");
    assert_eq!(contents_cf(&db, &a).len(), 2000);
    let b = db.create_column_family("b", small_family()).unwrap();
    assert!(contents_cf(&db, &b).is_empty());
    db.put_cf(&b, b"k", b"v").unwrap();
    drop((db, a, b));
    let db = open(&sim);
    assert_eq!(contents_cf(&db, &db.column_family("b").unwrap()).len(), 1);
}

/// The tables of many families share one edit and one directory sync per flush. A power loss in the
/// middle loses nothing durable.
#[test]
fn flush_of_many_families_shares_syncs() {
    const FAMILIES: u64 = 500;
    let sim = SimEnv::new(5);
    let open = |sim: &SimEnv| Db::open_in(sim.env(), "/db", Options::default()).unwrap();
    let db = open(&sim);
    let make = |i| db.create_column_family(&format!("f{i}"), FamilyOptions::default()).unwrap();
    let families: Vec<_> = (0..FAMILIES).map(make).collect();
    families.iter().for_each(|family| db.put_cf(family, b"k", b"v").unwrap());
    let counts = || {
        let [tables, all] = [".ksst", ""].map(|end| sim.count_ops(Some(OpKind::Sync), end));
        (tables, all - tables, sim.count_ops(Some(OpKind::SyncDir), ""))
    };
    let before = counts();
    db.flush().unwrap();
    let after = counts();
    assert_eq!(after.0 - before.0, FAMILIES, "each table is synced once");
    let (others, directories) = (after.1 - before.1, after.2 - before.2);
    assert!((1..=8).contains(&others), "{others} syncs of log and manifest");
    assert!((1..=4).contains(&directories), "{directories} syncs of the directory");
    families.iter().for_each(|family| db.put_cf(family, b"k", b"w").unwrap());
    db.sync().unwrap();
    drop((db, families));
    let db = open(&sim.crash(CrashKind::PowerLoss, 6));
    for i in 0..FAMILIES {
        let family = db.column_family(&format!("f{i}")).unwrap();
        assert_eq!(db.get_cf(&family, b"k").unwrap().as_deref(), Some(&b"w"[..]), "family {i}");
    }
}

/// A flush records the last sequence of the store, including sequences of families dropped before.
#[test]
fn sequences_of_a_dropped_family_are_not_reused() {
    let sim = SimEnv::new(4);
    let db = open(&sim);
    let f = db.create_column_family("f", small_family()).unwrap();
    db.put(b"k", b"v").unwrap();
    (0..3).for_each(|i| db.put_cf(&f, &key(i), b"f").unwrap());
    let last = db.snapshot().sequence();
    db.drop_column_family(&f).unwrap();
    db.flush().unwrap();
    let ends: Vec<SimEnv> = (0..16).map(|seed| sim.crash(CrashKind::PowerLoss, seed)).collect();
    drop((db, f));
    for end in ends {
        let db = open(&end);
        assert_eq!(db.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
        assert!(db.snapshot().sequence() >= last, "{} after {last}", db.snapshot().sequence());
    }
}

/// The space of a dropped family is freed, unless an iterator still reads it.
#[test]
fn a_drop_frees_space_after_the_last_reader() {
    let sim = SimEnv::new(2);
    let db = open(&sim);
    let f = db.create_column_family("f", small_family()).unwrap();
    let mut model = Model::new();
    for i in 0..3000 {
        db.put_cf(&f, &key(i), &value(i, 0)).unwrap();
        model.insert(key(i), value(i, 0));
    }
    settle(&db);
    let i = db.iter_cf(&f, ReadOptions::default()).unwrap();
    db.drop_column_family(&f).unwrap();
    settle(&db);
    assert!(db.space().unwrap().pinned_bytes > 100_000, "{:?}", db.space());
    assert!(i.entries().map(|e| e.unwrap()).collect::<Model>() == model);
    settle(&db);
    let space = db.space().unwrap();
    assert_eq!((space.table_bytes, space.pinned_bytes), (0, 0), "{space:?}");
    assert_eq!(space.memtable_bytes, 0, "{space:?}");
}

/// An idle family must not retain the log without bound.
#[test]
fn an_idle_family_does_not_hold_the_log() {
    let sim = SimEnv::new(3);
    let db = open(&sim);
    let idle = db.create_column_family("idle", small_family()).unwrap();
    db.put_cf(&idle, b"once", b"1").unwrap();
    let mut model = Model::new();
    let mut most = 0;
    for round in 0..12 {
        fill(&db, &mut model, 0..1000, round);
        most = most.max(db.space().unwrap().wal_bytes);
    }
    let bound = small().expert.wal_bytes_max + 4 * small().expert.log_group_bytes + (64 << 10);
    assert!(most <= bound, "{most} bytes of log, {bound} allowed");
    assert_eq!(db.get_cf(&idle, b"once").unwrap().as_deref(), Some(&b"1"[..]));
    settle(&db);
    drop((db, idle));
    let db = open(&sim);
    assert!(contents(&db) == model);
    assert_eq!(contents_cf(&db, &db.column_family("idle").unwrap()).len(), 1);
}

#[test]
fn families_are_created_and_dropped_during_writes() {
    let tmp = TempDir::new("families");
    let db = Db::open_with(tmp.path(), small()).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        let writers: Vec<_> = (0..2u64)
            .map(|t| {
                let (db, stop) = (&db, &stop);
                s.spawn(move || {
                    let mut n = 0;
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        let mut batch = WriteBatch::new();
                        batch.put(&key(n % 5000 * 2 + t), &value(n, t));
                        if let Some(family) = db.column_family(&format!("f{}", n % 3)) {
                            batch.put_cf(&family, &key(n), &value(n, t));
                        }
                        match db.write(&batch) {
                            Ok(()) => {}
                            Err(e) => assert_eq!(e.kind(), ErrorKind::NotFound, "{e}"),
                        }
                        n += 1;
                    }
                    n
                })
            })
            .collect();
        for round in 0..12 {
            let families: Vec<_> =
                (0..3).map(|n| db.create_column_family(&format!("f{n}"), small_family()).unwrap()).collect();
            if round % 3 == 0 {
                db.flush().unwrap();
            }
            std::thread::sleep(std::time::Duration::from_millis(15));
            families.iter().for_each(|f| db.drop_column_family(f).unwrap());
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(writers.into_iter().all(|w| w.join().unwrap() > 10));
    });
    assert_eq!(db.column_families(), ["default"]);
    let before = contents(&db);
    db.close().unwrap();
    assert!(contents(&Db::open_with(tmp.path(), small()).unwrap()) == before);
}

/// Many small families share one memtable budget.
#[test]
fn many_families_keep_one_memory_budget() {
    let sim = SimEnv::new(4);
    let db = open(&sim);
    let families: Vec<_> =
        (0..30).map(|n| db.create_column_family(&format!("f{n}"), small_family()).unwrap()).collect();
    let mut most = 0;
    for i in 0..6000u64 {
        db.put_cf(&families[(i % 30) as usize], &key(i), &value(i, 0)).unwrap();
        most = most.max(db.space().unwrap().memtable_bytes);
    }
    let budget = small().memory_bytes as u64;
    assert!(most <= budget + budget / 8, "{most} bytes in memtables, {budget} allowed");
    let total: usize = families.iter().map(|f| contents_cf(&db, f).len()).sum();
    assert_eq!(total, 6000);
}

/// Each open sets the options of the default family; they apply to later writes.
#[test]
fn options_of_the_default_family_change_at_open() {
    let sim = SimEnv::new(5);
    let mut model = Model::new();
    for (round, compression) in
        [Compression::None, Compression::Lz4, Compression::Zstd].into_iter().enumerate()
    {
        let family =
            FamilyOptions { compression, ..small_family() }.expert(|expert| expert.levels = 5 + round % 2);
        let db = Db::open_in(env(&sim), DIR, Options { family: family.clone(), ..small() }).unwrap();
        assert_eq!(db.default_column_family().options(), family.derived());
        fill(&db, &mut model, 0..1000, round as u64);
        db.flush().unwrap();
        settle(&db);
        assert!(contents(&db) == model);
    }
}

/// A volatile batch is in no log. If it spans families, only one flush of all of them keeps it
/// atomic.
#[test]
fn a_volatile_batch_over_families_is_flushed_atomically() {
    let sim = SimEnv::new(7);
    let db = open(&sim);
    let other = db.create_column_family("other", small_family()).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(b"here", b"1");
    batch.put_cf(&other, b"there", b"1");
    db.write_opt(&batch, &WriteOptions::volatile()).unwrap();
    // Only the default family's memtable fills up.
    let flushes = db.stats().flushes;
    for n in 0.. {
        db.put_opt(db.default_column_family(), &key(n), &value(n, 0), &WriteOptions::volatile()).unwrap();
        db.run_background_step();
        if db.stats().flushes > flushes {
            break;
        }
    }
    let after = sim.crash(CrashKind::ProcessKill, 1);
    let db = open(&after);
    let other = db.column_family("other").unwrap();
    assert_eq!(db.get(b"here").unwrap().as_deref(), Some(&b"1"[..]), "it was flushed");
    assert_eq!(db.get_cf(&other, b"there").unwrap().as_deref(), Some(&b"1"[..]), "and so was its other half");
}

/// A batch fills the memtable of one family. Its last change is the first in another family's
/// memtable, and the last sequence before the flush. The log must be durable up to it before the
/// first family's table is installed.
#[test]
fn a_flush_waits_until_the_log_covers_a_cross_family_batch() {
    let sim = SimEnv::new(8);
    let db = open(&sim);
    let other = db.create_column_family("other", small_family()).unwrap();
    let mut batch = WriteBatch::new();
    let count = small().memtable_bytes as u64 / 500;
    (0..count).for_each(|n| batch.put(&key(n), &[1; 500]));
    batch.put_cf(&other, b"end", b"1");
    db.write_opt(&batch, &WriteOptions::buffered()).unwrap();
    let flushes = db.stats().flushes;
    db.put_opt(db.default_column_family(), b"more", b"1", &WriteOptions::buffered()).unwrap();
    while db.stats().flushes == flushes {
        assert!(db.run_background_step(), "the full memtable is to be flushed");
    }
    let after = sim.crash(CrashKind::PowerLoss, 1);
    let db = open(&after);
    let other = db.column_family("other").unwrap();
    assert!(db.get(&key(0)).unwrap().is_some(), "it was flushed");
    assert_eq!(db.get_cf(&other, b"end").unwrap().as_deref(), Some(&b"1"[..]));
}
