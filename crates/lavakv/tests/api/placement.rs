//! `value_placement = log`: values are written once while they are logged; what is read, and what a crash leaves, is as
//! without it.

use crate::common::*;
use crate::crashes::CrashRun;
use lavastore_lavakv::io::Rng;
use lavastore_lavakv::sim::{CrashKind, FaultEffect, FaultPlan, OpKind, Policy, SimEnv};
use lavastore_lavakv::{
    Compression, DamagedFiles, Db, ErrorKind, FamilyOptions, Options, RepairOptions, Result, ValuePlacement,
    WriteBatch, WriteOptions,
};

fn placed_family() -> FamilyOptions {
    FamilyOptions { value_placement: ValuePlacement::Log, ..small_family() }
}

fn placed() -> Options {
    Options { family: placed_family(), ..small() }
}

fn open_placed(sim: &SimEnv) -> Db {
    Db::open_in(env(sim), DIR, placed()).unwrap()
}

fn long(i: u64, round: u64, len: u64) -> Vec<u8> {
    let mut value = vec![0; len as usize];
    Rng::new(i << 32 | round).fill(&mut value);
    value
}

fn durability(rng: &mut Rng) -> WriteOptions {
    [WriteOptions::durable(), WriteOptions::buffered(), WriteOptions::volatile()][rng.below(3) as usize]
}

#[test]
fn a_placed_value_is_written_once() {
    let written = |options: Options| {
        let sim = SimEnv::new(1);
        let db = Db::open_in(env(&sim), DIR, options).unwrap();
        for i in 0..64 {
            db.put(&key(i), &long(i, 0, 4000)).unwrap();
        }
        db.flush().unwrap();
        settle(&db);
        let s = db.stats();
        assert_eq!(contents(&db).len(), 64);
        let values = 64.0 * 4000.0;
        (s.wal_bytes_written + s.flush_bytes_written + s.segment_bytes_written) as f64 / values
    };
    let (twice, once) = (written(small()), written(placed()));
    assert!(twice > 1.95 && once < 1.2, "{twice} and {once} bytes for each byte of a value");
}

/// Before any garbage is collected: what somebody waits for is written once less, and what nobody waits for is not, since flushes overtake
/// the log.
#[test]
fn it_saves_a_write_of_what_is_durable_and_none_of_what_is_buffered() {
    let written = |family: FamilyOptions, how: &WriteOptions, len: u64| {
        let sim = SimEnv::new(1);
        let options = Options {
            memtable_bytes: 256 << 10,
            memory_bytes: 2 << 20,
            buffered_age_ms_max: Some(60_000),
            family: FamilyOptions { gc_ratio_percent: 99, ..family },
            ..small()
        };
        let db = Db::open_in(env(&sim), DIR, options).unwrap();
        let overwrite = |rounds: std::ops::Range<u64>| {
            let mut rng = Rng::new(rounds.start);
            for round in rounds.clone() {
                let (i, family) = (rng.below(400), db.default_column_family());
                db.put_opt(family, &key(i), &long(i, round, len), how).unwrap();
                while db.run_background_step() {}
            }
            let s = db.stats();
            (s.wal_bytes_written + s.flush_bytes_written + s.segment_bytes_written, rounds.end - rounds.start)
        };
        // Groups and ring get as long as they get.
        let before = overwrite(0..200).0;
        let (after, count) = overwrite(200..600);
        (after - before) as f64 / (count * len) as f64
    };
    for len in [4000, 16_000] {
        let both =
            |how: WriteOptions| (written(small_family(), &how, len), written(placed_family(), &how, len));
        let (in_tables, in_log) = both(WriteOptions::durable());
        println!("{len} B durable: {in_tables:.2} bytes a byte in tables, {in_log:.2} in the log");
        // Each of them takes pages of its own in the log.
        assert!(in_tables > in_log + 0.75, "{len}: {in_tables} {in_log}");
        let (in_tables, in_log) = both(WriteOptions::buffered());
        println!("{len} B buffered: {in_tables:.2} bytes a byte in tables, {in_log:.2} in the log");
        assert!(in_tables < 1.1 && in_log > 0.98 * in_tables, "{len}: {in_tables} {in_log}");
    }
}

#[test]
fn whatever_is_done_to_it_it_holds_what_was_written() {
    for seed in 0..4 {
        let sim = SimEnv::new(10 + seed);
        let compression = [Compression::None, Compression::Lz4][seed as usize % 2];
        let options = || Options { family: FamilyOptions { compression, ..placed_family() }, ..small() };
        let mut db = Db::open_in(env(&sim), DIR, options()).unwrap();
        let other = db.create_column_family("other", placed_family()).unwrap();
        drop(other);
        let (mut model, mut other_model, mut rng) = (Model::new(), Model::new(), Rng::new(seed));
        for round in 0..600 {
            let i = rng.below(60);
            let other = db.column_family("other").unwrap();
            match rng.below(24) {
                0 => {
                    db.delete(&key(i)).unwrap();
                    model.remove(&key(i));
                }
                1 => db.flush().unwrap(),
                2 => {
                    // Volatile writes are flushed by a clean close.
                    drop((db, other));
                    db = Db::open_in(env(&sim), DIR, options()).unwrap();
                }
                3 => db.compact_range(db.default_column_family(), None, None).unwrap(),
                4..8 => {
                    let mut batch = WriteBatch::new();
                    for j in 0..rng.below(6) {
                        let v = long(j, round, [10, 900, 3000][rng.below(3) as usize]);
                        batch.put(&key(j), &v);
                        batch.put_cf(&other, &key(j), &v);
                        model.insert(key(j), v.clone());
                        other_model.insert(key(j), v);
                    }
                    batch.delete(&key(59));
                    model.remove(&key(59));
                    db.write_opt(&batch, &durability(&mut rng)).unwrap();
                }
                _ => {
                    let len = [rng.below(40), rng.below(5000), 600, 40_000][rng.below(4) as usize];
                    let v = long(i, round, len);
                    db.put_opt(db.default_column_family(), &key(i), &v, &durability(&mut rng)).unwrap();
                    model.insert(key(i), v);
                }
            }
        }
        for _ in 0..2 {
            assert!(contents(&db) == model);
            assert!(contents_cf(&db, &db.column_family("other").unwrap()) == other_model);
            db.compact_range(db.default_column_family(), None, None).unwrap();
            settle(&db);
            assert!(db.verify().unwrap().errors.is_empty());
        }
    }
}

/// A file that was in tables, and of which nothing was left, waits for a reader; then its family is dropped, and then the
/// reader goes. It waits on one list, once.
#[test]
fn files_of_a_dropped_family_go_with_the_last_reader() {
    // Placed values, and a value with a file of its own.
    for (len, family) in [(1000, placed_family()), (100_000, small_family())] {
        let sim = SimEnv::new(21);
        let db = open_placed(&sim);
        let gone = db.create_column_family("gone soon", family).unwrap();
        for i in 0..4 {
            db.put_cf(&gone, &key(i), &long(i, 0, len)).unwrap();
        }
        let mut reader = db.iter_cf(&gone, Default::default()).unwrap();
        reader.seek_to_first().unwrap();
        db.flush().unwrap();
        (0..4).for_each(|i| db.delete_cf(&gone, &key(i)).unwrap());
        db.flush().unwrap();
        db.compact_range(&gone, None, None).unwrap();
        settle(&db);
        assert!(reader.valid() && reader.value().unwrap() == long(0, 0, len));
        db.drop_column_family(&gone).unwrap();
        drop((reader, gone));
        settle(&db);
        let data = |name: &String| name.ends_with(".vsst") || name.ends_with(".ksst");
        let left: Vec<String> = files(&sim).into_iter().map(|(name, _)| name).filter(data).collect();
        assert!(left.is_empty(), "values of {len} bytes: {left:?}");
    }
}

#[test]
fn files_go_when_nothing_refers_to_them() {
    let sim = SimEnv::new(20);
    let mut db = open_placed(&sim);
    for round in 0..30 {
        for i in 0..10 {
            db.put(&key(i), &long(i, round, 1000)).unwrap();
        }
        if round % 10 == 9 {
            drop(db);
            db = open_placed(&sim);
        }
    }
    db.delete_range(&key(0), &key(100)).unwrap();
    db.compact_range(db.default_column_family(), None, None).unwrap();
    settle(&db);
    assert_eq!(files_like(&sim, ".vsst"), Vec::<String>::new());
    // A family that is dropped while its memtable has values.
    let family = db.create_column_family("f", placed_family()).unwrap();
    db.put_cf(&family, b"k", &long(1, 1, 2000)).unwrap();
    assert_eq!(files_like(&sim, ".vsst").len(), 1);
    db.drop_column_family(&family).unwrap();
    drop(family);
    settle(&db);
    assert_eq!(files_like(&sim, ".vsst"), Vec::<String>::new());
}

/// A value that was durable and is gone takes away its key and nothing else: now, in tables, and after another open; never is
/// an older one shown, nor nothing.
#[test]
fn a_lost_value_is_an_error_of_its_key_and_of_no_other() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    for is_gone in [false, true] {
        let sim = SimEnv::new(31);
        let db = open_placed(&sim);
        db.put(&key(2), b"old").unwrap();
        db.flush().unwrap();
        for i in 0..5 {
            db.put(&key(i), &long(i, 0, 2000)).unwrap();
        }
        db.put(&key(7), b"behind").unwrap();
        db.close().unwrap();
        let name = files_like(&sim, ".vsst").pop().unwrap();
        match is_gone {
            true => sim.erase(path(&name)).unwrap(),
            false => sim.flip_bit(path(&name), 5000, 3).unwrap(),
        }
        // A tail that still has a value is as good as the file.
        assert!(contents(&Db::open_read_only_in(env(&sim), DIR, placed()).unwrap()).len() == 6);
        files_like(&sim, ".tail").iter().for_each(|tail| sim.erase(path(tail)).unwrap());
        let lost = if is_gone { 0..5 } else { 2..3 };
        let check = |db: &Db, what: &str| {
            for i in (0..5).filter(|i| lost.contains(i)) {
                refused(db.get(&key(i)), ErrorKind::Corruption, &name);
            }
            for i in (0..5).filter(|i| !lost.contains(i)) {
                assert_eq!(db.get(&key(i)).unwrap().as_deref(), Some(&long(i, 0, 2000)[..]), "{what}");
            }
            assert_eq!(db.get(&key(7)).unwrap().as_deref(), Some(&b"behind"[..]), "{what}");
            let told: Vec<String> = db.damaged_files().into_iter().map(|f| f.file).collect();
            assert_eq!(told, std::slice::from_ref(&name), "{what}");
        };
        check(&Db::open_read_only_in(env(&sim), DIR, placed()).unwrap(), "read only");
        let db = Db::open_in(env(&sim), DIR, placed()).unwrap();
        check(&db, "opened");
        db.flush().unwrap();
        settle(&db);
        check(&db, "in tables");
        db.close().unwrap();
        let db = Db::open_in(env(&sim), DIR, placed()).unwrap();
        // A file of the right length is looked into by whoever needs it.
        db.verify().unwrap();
        check(&db, "opened again");
        for i in 0..5 {
            db.put(&key(i), b"new").unwrap();
        }
        let family = db.default_column_family().clone();
        db.compact_range(&family, None, None).unwrap();
        settle(&db);
        assert!((0..5).all(|i| db.get(&key(i)).unwrap().as_deref() == Some(&b"new"[..])));
        assert!(db.damaged_files().is_empty(), "nothing refers to it any more: {:?}", db.damaged_files());
    }
}

/// What a tail has replaces a file that is missing: no other file gets its name, or whoever misses it would find that one, and sound.
#[test]
fn the_name_of_a_missing_file_is_not_given_to_another() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = SimEnv::new(32);
    let db = open_placed(&sim);
    for i in 0..5 {
        db.put(&key(i), &long(i, 0, 2000)).unwrap();
    }
    db.close().unwrap();
    let name = files_like(&sim, ".vsst").pop().unwrap();
    sim.erase(path(&name)).unwrap();
    let db = open_placed(&sim);
    assert_eq!(contents(&db).len(), 5);
    let names = files_like(&sim, ".vsst");
    assert!(!names.is_empty() && !names.contains(&name), "{name} was written anew: {names:?}");
    assert!(db.verify().unwrap().errors.is_empty() && db.damaged_files().is_empty());
}

#[test]
fn a_lost_value_of_a_store_that_was_closed_is_corruption() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = SimEnv::new(30);
    let db = open_placed(&sim);
    for i in 0..5 {
        db.put(&key(i), &long(i, 0, 2000)).unwrap();
    }
    db.close().unwrap();
    let name = files_like(&sim, ".vsst").pop().unwrap();
    let whole = sim.read_file(path(&name)).unwrap();
    sim.flip_bit(path(&name), 5000, 3).unwrap();
    let strict = || Options { damaged_files: DamagedFiles::Refuse, ..placed() };
    refused(Db::open_in(env(&sim), DIR, strict()), ErrorKind::Corruption, &name);
    sim.flip_bit(path(&name), 5000, 3).unwrap();
    assert!(sim.read_file(path(&name)).unwrap() == whole);
    env(&sim).fs.rename(&path(&name), &path("aside")).unwrap();
    refused(Db::open_in(env(&sim), DIR, strict()), ErrorKind::Corruption, &name);
    let gone = sim.fork(0);
    let tails = files_like(&gone, ".tail");
    tails.iter().chain([&"aside".to_owned()]).for_each(|name| env(&gone).fs.remove(&path(name)).unwrap());
    let options = RepairOptions { options: placed(), dry_run: false, ..RepairOptions::default() };
    let report = Db::repair_in(&env(&gone), DIR, &env(&gone), "/repaired", &options).unwrap();
    let told = "a value that the log refers to was durable and is gone";
    assert!(report.damaged.iter().any(|damage| damage.why == told && damage.file == name), "{report:?}");
    assert!((0..5).all(|i| report.lost.iter().any(|lost| lost.covers(0, &key(i)))), "{report:?}");
    env(&sim).fs.rename(&path("aside"), &path(&name)).unwrap();
    assert_eq!(contents(&open_placed(&sim)).len(), 5);
}

#[test]
fn a_write_that_fails_leaves_the_store_as_it_was() {
    if skipped_on_lavafs(because::FAULTS) {
        return;
    }
    for nth in 0..8 {
        for kind in [OpKind::Create, OpKind::Append, OpKind::Sync] {
            let sim = SimEnv::new(40 + nth);
            let mut db = open_placed(&sim);
            let mut model = Model::new();
            sim.inject(FaultPlan::nth(nth, FaultEffect::NoSpace).kinds(&[kind]).path(".vsst"));
            for i in 0..40 {
                let v = long(i, nth, 1500);
                let options = if i % 5 == 0 { WriteOptions::durable() } else { WriteOptions::buffered() };
                match db.put_opt(db.default_column_family(), &key(i), &v, &options) {
                    Ok(()) => drop(model.insert(key(i), v)),
                    Err(e) if e.kind() == ErrorKind::NoSpace => {}
                    // Values that were logged could no longer be made durable: this write may be there after a restart,
                    // which `NoSpace` would deny, and those after it are refused.
                    Err(e) => {
                        assert!(matches!(e.kind(), ErrorKind::Io | ErrorKind::Poisoned), "{e}");
                        break;
                    }
                }
            }
            sim.clear_faults();
            let poisoned = db.put(b"x", b"y").is_err();
            let found = contents(&db);
            assert!(model.iter().all(|(k, v)| found.get(k) == Some(v)), "{kind:?} {nth}");
            drop(db);
            db = open_placed(&sim);
            let found = contents(&db);
            assert!(poisoned || model.iter().all(|(k, v)| found.get(k) == Some(v)), "{kind:?} {nth}");
            db.compact_range(db.default_column_family(), None, None).unwrap();
            assert!(db.verify().unwrap().errors.is_empty());
        }
    }
}

#[test]
fn crashes_lose_nothing_that_was_promised() {
    let seeds = std::env::var("LAVASTORE_PLACEMENT_SEEDS").map_or(3, |n| n.parse().unwrap());
    for seed in 0..seeds {
        let sim = SimEnv::new(100 + seed);
        let db = open_placed(&sim);
        let other = db.create_column_family("other", placed_family()).unwrap();
        let (mut run, mut rng) = (CrashRun::new(seed, &sim), Rng::new(seed));
        for round in 0..40 {
            let (i, durable) = (rng.below(6), rng.below(3) == 0);
            let v = long(i, round, [20, 700, 3000, 9000][rng.below(4) as usize]);
            run.put(durable, (key(i), v), |k, v, how| {
                let mut batch = WriteBatch::new();
                batch.put(k, v);
                // The same in both families: a crash must not tear them apart.
                batch.put_cf(&other, k, v);
                db.write_opt(&batch, how)
            });
            if rng.below(10) == 0 {
                db.flush().unwrap();
            }
            while rng.below(3) > 0 && db.run_background_step() {}
        }
        let kinds = [CrashKind::ProcessKill, CrashKind::PowerLoss, CrashKind::PowerLoss];
        run.crash_all_over(&kinds, 10, &mut rng, |after, at, kind, rng| {
            check_crash(&run, after, at, kind, rng)
        });
    }
}

fn check_crash(run: &CrashRun, after: &SimEnv, at: u64, kind: CrashKind, rng: &mut Rng) -> Result<()> {
    let mut after = after.clone();
    // Recovery is crashed too, now and then.
    if rng.below(3) == 0 {
        let start = after.op_count();
        drop(Db::open_in(env(&after), DIR, placed())?);
        let within = start + rng.below(after.op_count() - start + 1);
        let second = if kind == CrashKind::ProcessKill { kind } else { CrashKind::PowerLoss };
        after = after.record().crash_at(within, second, rng.next_u64());
    }
    let db = Db::open_in(env(&after), DIR, placed())?;
    let found = try_contents(&db, db.default_column_family())?;
    let other = db.column_family("other").expect("was durable before the first write");
    assert!(try_contents(&db, &other)? == found, "the families were torn apart");
    run.assert_explains(at, kind, &found);
    // What is written now must not be lost behind what was ignored.
    db.put_opt(db.default_column_family(), b"new", &long(7, 7, 2000), &WriteOptions::durable())?;
    let again = after.crash(CrashKind::PowerLoss, rng.next_u64());
    drop(db);
    let db = Db::open_in(env(&again), DIR, placed())?;
    assert!(db.get(b"new")?.is_some_and(|v| *v == *long(7, 7, 2000)));
    let mut now = try_contents(&db, db.default_column_family())?;
    now.remove(&b"new"[..]);
    assert!(now == found, "recovery kept something that the next one lost");
    db.compact_range(db.default_column_family(), None, None)?;
    settle(&db);
    assert!(db.verify()?.errors.is_empty());
    Ok(())
}

/// The store after a crash, which must hold what `acknowledged` says, now and after a power loss.
fn holds_after_a_crash(after: &SimEnv, options: &Options, acknowledged: &Model) {
    let db = Db::open_in(env(after), DIR, options.clone()).unwrap();
    let found = contents(&db);
    assert!(acknowledged.iter().all(|(k, v)| found.get(k) == Some(v)), "an acknowledged write is gone");
    let again = after.crash(CrashKind::PowerLoss, 1);
    drop(db);
    let db = Db::open_in(env(&again), DIR, options.clone()).unwrap();
    assert!(contents(&db) == found, "recovery kept something that the next one lost");
    assert!(db.verify().unwrap().errors.is_empty());
    assert_eq!(files_like(&again, ".tail").len(), 0, "what a crash left is removed");
}

#[test]
fn a_failed_sync_takes_nothing_that_survives_the_process() {
    if skipped_on_lavafs(because::FAULTS) {
        return;
    }
    for seed in 0..24 {
        let sim = SimEnv::new(300 + seed);
        let db = open_placed(&sim);
        let mut acknowledged = Model::new();
        for i in 0..8 {
            let v = long(i, seed, 1200 + 40 * seed);
            db.put_opt(db.default_column_family(), &key(i), &v, &WriteOptions::buffered()).unwrap();
            acknowledged.insert(key(i), v);
        }
        let fault = FaultPlan::nth(0, FaultEffect::Eio);
        // Once, or everything from then on.
        sim.inject(match seed % 3 {
            0 => fault.kinds(&[OpKind::Sync]).path(".vsst"),
            1 => fault.kinds(&OpKind::SYNCS).sticky(),
            _ => fault.sticky(),
        });
        let v = long(100, seed, 900);
        let failed = db.put_opt(db.default_column_family(), &key(100), &v, &WriteOptions::durable());
        failed.expect_err("its value could not be made durable");
        let after = sim.crash(CrashKind::ProcessKill, seed);
        drop(db);
        holds_after_a_crash(&after, &placed(), &acknowledged);
    }
}

#[test]
fn more_than_a_tail_holds_is_durable_before_it_is_overwritten() {
    if skipped_on_lavafs(because::FAULTS) {
        return;
    }
    for seed in 0..12 {
        let sim = SimEnv::new(400 + seed);
        // A memtable takes several times the 64 KB of a tail.
        let options = Options {
            memtable_bytes: 512 << 10,
            memory_bytes: 2 << 20,
            log_group_bytes: 256 << 10,
            ..placed()
        };
        let db = Db::open_in(env(&sim), DIR, options.clone()).unwrap();
        let mut acknowledged = Model::new();
        let fault = FaultPlan::nth(seed % 4, FaultEffect::Eio).kinds(&[OpKind::Sync]).path(".vsst");
        sim.inject(if seed < 6 { fault } else { fault.sticky() });
        for i in 0..60 {
            let v = long(i, seed, 5000);
            match db.put_opt(db.default_column_family(), &key(i), &v, &WriteOptions::buffered()) {
                Ok(()) => drop(acknowledged.insert(key(i), v)),
                Err(e) => assert!(matches!(e.kind(), ErrorKind::Io | ErrorKind::Poisoned), "{e}"),
            }
        }
        assert!(sim.faults_fired() > 0 || seed % 4 == 3, "no sync failed");
        let after = sim.crash(CrashKind::ProcessKill, seed);
        drop(db);
        holds_after_a_crash(&after, &options, &acknowledged);
    }
}

/// What is old enough, or was written before a pause, is durable with its values: without anybody's asking.
#[test]
fn what_is_old_survives_a_loss_of_power_with_its_values() {
    if on_lavafs() {
        return;
    }
    for (age_ms, after_ns) in [(100, 100_000_000), (60_000, 1_100_000_000), (0, 1_100_000_000)] {
        let sim = SimEnv::new(3);
        let options = Options { buffered_age_ms_max: Some(age_ms), memory_bytes: 512 << 10, ..placed() };
        let db = Db::open_in(env(&sim), DIR, options.clone()).unwrap();
        for i in 0..10 {
            db.put_opt(db.default_column_family(), &key(i), &long(i, 0, 1000), &WriteOptions::buffered())
                .unwrap();
            while db.run_background_step() {}
        }
        let placed = db.stats().values_placed;
        assert_eq!(placed, 10);
        sim.advance_ns(after_ns);
        while db.run_background_step() {}
        let after = sim.crash(CrashKind::PowerLossWith(Policy::Dropped), 1);
        drop(db);
        let again = Db::open_in(env(&after), DIR, options).unwrap();
        assert_eq!(contents(&again).len(), 10, "age {age_ms} ms");
    }
}

/// Many write placed values that are buffered: the log's thread makes room in the tail, so that hardly a write waits for a sync.
#[test]
fn half_a_tail_of_values_is_made_durable_in_the_background() {
    if skipped_on_lavafs(because::NAMES) {
        return;
    }
    let sim = SimEnv::new(5);
    let options = Options { memtable_bytes: 512 << 10, memory_bytes: 4 << 20, ..placed() };
    let db = Db::open_in(env(&sim), DIR, options).unwrap();
    let syncs = |sim: &SimEnv| sim.count_ops(Some(OpKind::Sync), ".vsst");
    for i in 0..100 {
        let before = syncs(&sim);
        db.put_opt(db.default_column_family(), &key(i), &long(i, 0, 2000), &WriteOptions::buffered())
            .unwrap();
        assert_eq!(syncs(&sim), before, "put {i} waited for a sync");
        while db.run_background_step() {}
    }
    assert!(syncs(&sim) > 4);
}

/// On a volume that fills up a write is refused before anything of it is placed, whatever it promises: nothing is poisoned,
/// what was refused is not there, and writes resume when room returns.
#[test]
fn a_full_volume_refuses_writes_and_poisons_nothing() {
    if skipped_on_lavafs(because::ROOM) {
        return;
    }
    for step in 0..24u64 {
        let (sim, mut rng, mut model) = (SimEnv::new(700 + step), Rng::new(step), Model::new());
        let db = open_placed(&sim);
        sim.set_capacity(Some((900 << 10) + step * 12_288));
        let mut refused = 0;
        for round in 0..3000 {
            let (i, len) = (rng.below(200), 600 + rng.below(5000));
            let durability = [WriteOptions::durable(), WriteOptions::buffered()][rng.below(2) as usize];
            match db.put_opt(db.default_column_family(), &key(i), &long(i, round, len), &durability) {
                Ok(()) => drop(model.insert(key(i), long(i, round, len))),
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::NoSpace, "step {step}: {e}");
                    refused += 1;
                    sim.advance_ns(10_000_000);
                    db.run_background_step();
                }
            }
            if refused > 30 {
                break;
            }
        }
        assert!(refused > 0, "step {step}: it never filled up");
        assert!(contents(&db) == model, "step {step}");
        let after = sim.crash(CrashKind::ProcessKill, step);
        assert!(contents(&open_placed(&after)) == model, "step {step}, killed");
        sim.set_capacity(None);
        sim.advance_ns(500_000_000);
        settle(&db);
        // A file whose only write was refused goes at once, not with the memtable it was made for.
        let live = db.live_files().files;
        let stray: Vec<_> =
            files_like(&sim, ".vsst").into_iter().filter(|name| !live.contains(name)).collect();
        assert!(stray.is_empty(), "step {step}: {stray:?}");
        for i in 0..100 {
            db.put(&key(i), &long(i, 9999, 3000)).unwrap_or_else(|e| panic!("step {step}: {e}"));
            model.insert(key(i), long(i, 9999, 3000));
        }
        db.flush().unwrap();
        settle(&db);
        assert!(contents(&db) == model && db.verify().unwrap().errors.is_empty(), "step {step}");
    }
}
