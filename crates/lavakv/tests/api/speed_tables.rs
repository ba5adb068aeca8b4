//! Tables on the fast tier: their placement, their moves, and the reports when they are missing.

use crate::common::{
    DIR, Model, because, contents, fill, key, refused, remove_manifest, settle, skipped_on_lavafs, small,
};
use crate::two_disks::{SPEED, both};
use lavastore_lavakv::fast_tier::{detach_fast_tier, joined};
use lavastore_lavakv::io::{Access, CreateOptions, SyncKind};
use lavastore_lavakv::sim::{CrashKind, FaultEffect, FaultPlan, OpKind, SimEnv};
use lavastore_lavakv::{DamagedFiles, Db, Env, ErrorKind, Options};
use repair::RepairOptions;
use std::path::{Path, PathBuf};

fn options(levels: usize) -> Options {
    Options { fast_tier: Some(PathBuf::from(SPEED)), ..small() }
        .expert(|expert| expert.fast_tier_levels = levels)
}

fn open(sim: &SimEnv, levels: usize) -> Db {
    Db::open_in(sim.env(), DIR, options(levels)).unwrap()
}

/// Returns the names of the tables in a directory.
fn tables(env: &Env, dir: &str) -> Vec<String> {
    let listed = env.fs.list(Path::new(dir)).unwrap_or_default();
    listed.into_iter().map(|entry| entry.name).filter(|name| name.contains(".ksst")).collect()
}

/// Tables of level 0 on the fast tier, of the levels below on the capacity tier.
fn store(seed: u64) -> (SimEnv, Model) {
    let (sim, mut model) = (SimEnv::new(seed), Model::new());
    let db = open(&sim, 1);
    fill(&db, &mut model, 0..2000, 0);
    settle(&db);
    db.flush().unwrap();
    fill(&db, &mut model, 100..200, 1);
    db.flush().unwrap();
    db.close().unwrap();
    assert!(!tables(&sim.env(), SPEED).is_empty() && !tables(&sim.env(), DIR).is_empty());
    (sim, model)
}

#[test]
fn speed_levels_option_selects_the_tier_of_a_level() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let (sim, mut model) = (SimEnv::new(1), Model::new());
    let db = open(&sim, 1);
    // In key order, where compactions would only move tables.
    fill(&db, &mut model, 0..3000, 0);
    fill(&db, &mut model, 500..1500, 1);
    while db.run_background_step() {}
    let levels: Vec<usize> =
        db.space().unwrap().families[0].levels.iter().map(|level| level.files as usize).collect();
    assert_eq!(tables(&sim.env(), SPEED).len(), levels[0], "{levels:?}");
    assert_eq!(tables(&sim.env(), DIR).len(), levels[1..].iter().sum::<usize>(), "{levels:?}");
    assert!(tables(&sim.env(), SPEED).iter().all(|name| name.ends_with(".ksst-1")));
    assert!(tables(&sim.env(), DIR).iter().all(|name| name.ends_with(".ksst")));
    let stats = db.stats();
    assert!(stats.fast_tier_tables > 5 && stats.fast_tier_tables_elsewhere == 0, "{stats:?}");
    fill(&db, &mut model, 0..50, 2);
    db.flush().unwrap();
    let speed = db.space().unwrap().speed.unwrap();
    let on_speed = || sim.env().fs.list(Path::new(SPEED)).unwrap().into_iter();
    let there: u64 = on_speed().filter(|e| e.name.contains(".ksst")).map(|e| e.allocated).sum();
    assert!(there > 0 && speed.table_bytes == there && speed.bytes > there, "{speed:?}");
    let listed = both(&sim).fs.list(Path::new(DIR)).unwrap();
    crate::common::ledger_adds_up(&db, listed.iter().map(|entry| entry.allocated).sum());
    assert!(db.verify().unwrap().errors.is_empty());
    let reader = Db::open_read_only_in(sim.env(), DIR, options(0)).unwrap();
    assert_eq!(contents(&reader), model);
    drop(reader);
    db.close().unwrap();
    // All levels, then none: a table stays in its place until it is compacted.
    let db = open(&sim, 7);
    fill(&db, &mut model, 0..3000, 3);
    db.compact_range(db.default_column_family(), None, None).unwrap();
    settle(&db);
    assert_eq!(tables(&sim.env(), DIR), Vec::<String>::new());
    db.close().unwrap();
    let db = open(&sim, 0);
    assert_eq!(contents(&db), model);
    assert!(!tables(&sim.env(), SPEED).is_empty());
    fill(&db, &mut model, 0..3000, 4);
    db.compact_range(db.default_column_family(), None, None).unwrap();
    settle(&db);
    assert_eq!((contents(&db), tables(&sim.env(), SPEED)), (model, Vec::new()));
}

#[test]
fn a_checkpoint_has_one_tier_and_a_detached_tier_is_empty() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let (sim, mut model) = store(2);
    let db = open(&sim, 1);
    db.checkpoint("/copy").unwrap();
    assert_eq!(contents(&db), model);
    db.close().unwrap();
    let copy = Db::open_in(sim.env(), "/copy", small()).unwrap();
    assert_eq!(contents(&copy), model);
    assert!(copy.verify().unwrap().errors.is_empty());
    let strict = store::fast_tier::detach_fast_tier(&both(&sim), Path::new(DIR));
    assert_eq!(strict.unwrap_err().kind(), ErrorKind::Unsupported, "nobody speaks for the tables");
    detach_fast_tier(&both(&sim), Path::new(DIR)).unwrap();
    assert_eq!(tables(&sim.env(), SPEED), Vec::<String>::new());
    let db = Db::open_in(sim.env(), DIR, small()).unwrap();
    assert_eq!(contents(&db), model);
    fill(&db, &mut model, 0..100, 3);
    db.close().unwrap();
    // Once more: tables on the capacity tier stay there.
    let before = tables(&sim.env(), DIR);
    let db = open(&sim, 1);
    assert_eq!(contents(&db), model);
    fill(&db, &mut model, 0..100, 4);
    db.flush().unwrap();
    assert!(!tables(&sim.env(), SPEED).is_empty());
    assert!(before.iter().any(|name| tables(&sim.env(), DIR).contains(name)));
    assert_eq!(contents(&db), model);
}

/// The fast tier has its log and lacks its tables: each is reported, and no older value is
/// returned.
#[test]
fn a_missing_table_is_damage_and_no_older_value_is_shown() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let (sim, model) = store(3);
    let lost = tables(&sim.env(), SPEED);
    lost.iter().for_each(|name| sim.env().fs.remove(&Path::new(SPEED).join(name)).unwrap());
    let strict = Options { damaged_files: DamagedFiles::Refuse, ..options(1) };
    let refusal = Db::open_in(sim.env(), DIR, strict).unwrap_err();
    let named = refusal.file().and_then(|file| file.file_name()?.to_str()).unwrap_or_default();
    assert!(refusal.is_corruption() && lost.iter().any(|name| name == named), "{refusal}");
    let db = open(&sim, 1);
    let mut told: Vec<String> = db.damaged_files().into_iter().map(|file| file.file).collect();
    told.sort();
    assert_eq!(told, lost);
    let mut refusals = 0;
    for (key, value) in &model {
        match db.get(key) {
            Ok(found) => assert_eq!(found.as_deref(), Some(&value[..]), "an older value is shown"),
            Err(e) => {
                assert!(e.to_string().contains(".ksst-1"), "{e}");
                refusals += 1;
            }
        }
    }
    assert!(refusals >= 100, "{refusals}");
    drop(db);
    // Without the fast tier the store is refused, and a repair names every table there.
    let (sim, model) = store(4);
    let lost = tables(&sim.env(), SPEED);
    sim.env().fs.rename(Path::new(SPEED), Path::new("/gone")).unwrap_or_default();
    refused(Db::open_in(sim.env(), DIR, small()), ErrorKind::InvalidArgument, DIR);
    let without = RepairOptions { without_fast_tier: true, ..RepairOptions::default() };
    let report = repair::repair_in(&sim.env(), DIR, &sim.env(), "/new", &without).unwrap();
    for name in &lost {
        let is_named = report.lost.iter().any(|range| range.file.ends_with(name) && range.from.is_some());
        assert!(is_named, "{name} is not named: {report:?}");
    }
    let kept = contents(&Db::open_in(sim.env(), "/new", small()).unwrap());
    assert!(!kept.is_empty() && kept.len() <= model.len());
    // The tier is back, and nothing is lost.
    sim.env().fs.rename(Path::new("/gone"), Path::new(SPEED)).unwrap_or_default();
    assert_eq!(contents(&open(&sim, 1)), model);
    let report =
        repair::repair_in(&both(&sim), DIR, &sim.env(), "/newer", &RepairOptions::default()).unwrap();
    assert!(report.lost.is_empty(), "{report:?}");
    assert_eq!(contents(&Db::open_in(sim.env(), "/newer", small()).unwrap()), model);
}

/// Without a manifest a repair finds the tables on both tiers.
#[test]
fn a_repair_without_a_manifest_has_the_tables_of_both_disks() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let (sim, model) = store(5);
    remove_manifest(&sim.env());
    repair::repair_in(&both(&sim), DIR, &sim.env(), "/new", &RepairOptions::default()).unwrap();
    let repaired = contents(&Db::open_in(sim.env(), "/new", small()).unwrap());
    assert_eq!(repaired, model);
}

/// Outputs of unfinished jobs and leftovers of moves are orphans on either tier: the manifest's
/// name of the table decides.
#[test]
fn the_manifest_decides_between_two_copies_of_a_table() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let (sim, model) = store(6);
    let (fast, slow) = (tables(&sim.env(), SPEED), tables(&sim.env(), DIR));
    let put = |path: PathBuf| {
        let mut file = sim.env().fs.create(&path, &CreateOptions::default()).unwrap();
        file.append(&[7; 5000]).unwrap();
        file.sync(SyncKind::Full).unwrap();
    };
    fast.iter().for_each(|name| put(Path::new(DIR).join(name.trim_end_matches("-1"))));
    slow.iter().for_each(|name| put(Path::new(SPEED).join(format!("{name}-1"))));
    put(Path::new(SPEED).join("000000777777.ksst-1"));
    put(Path::new(DIR).join("000000777778.ksst"));
    let reader = Db::open_read_only_in(sim.env(), DIR, options(1)).unwrap();
    assert_eq!(contents(&reader), model);
    drop(reader);
    let db = open(&sim, 1);
    assert_eq!(contents(&db), model);
    assert_eq!(
        (tables(&sim.env(), SPEED), tables(&sim.env(), DIR)),
        (fast, slow),
        "and nothing else is left"
    );
}

/// At every point of a session with both tiers, and of returning the fast one, the store keeps its
/// promises.
#[test]
fn a_crash_leaves_each_table_where_the_manifest_says() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let mut tried = 0;
    for (seed, gives) in [(7, false), (8, true)] {
        let (sim, mut model) = store(seed);
        let before = model.clone();
        let begun = sim.op_count();
        match gives {
            true => detach_fast_tier(&both(&sim), Path::new(DIR)).unwrap(),
            false => {
                let db = open(&sim, 2);
                fill(&db, &mut model, 0..150, 2);
                db.flush().unwrap();
                db.compact_range(db.default_column_family(), None, None).unwrap();
                db.close().unwrap();
            }
        }
        let record = sim.record();
        for op in record.mutations().into_iter().filter(|op| *op >= begun) {
            for (kind, salt) in
                [(CrashKind::ProcessKill, 0), (CrashKind::PowerLoss, 1), (CrashKind::PowerLoss, 2)]
            {
                let after = record.crash_at(op, kind, op * 3 + salt);
                let say = format!("seed {seed}, {kind:?} at operation {op}");
                let db = Db::open_in(after.env(), DIR, options(1)).unwrap_or_else(|e| panic!("{say}: {e}"));
                assert!(db.damaged_files().is_empty(), "{say}: {:?}", db.damaged_files());
                for (key, value) in contents(&db) {
                    let known = before.get(&key) == Some(&value) || model.get(&key) == Some(&value);
                    assert!(known, "{say}: key {key:?}");
                }
                assert!(before.keys().all(|key| db.get(key).unwrap().is_some()), "{say}");
                let report = db.verify().unwrap();
                assert!(report.errors.is_empty(), "{say}: {report:?}");
                db.close().unwrap();
                tried += 1;
            }
        }
    }
    assert!(tried > 300, "{tried}");
}

/// The fast tier has room for the log and little else: tables go to the capacity tier and are
/// counted. With more room they go to the fast tier again.
#[test]
fn tables_fall_over_from_a_full_fast_tier() {
    let (sim, fast, mut model) = (SimEnv::new(9), SimEnv::new(10), Model::new());
    let env = joined(&sim.env(), Path::new(DIR), &fast.env(), Path::new(SPEED));
    let options = || small().expert(|expert| expert.fast_tier_levels = 7);
    let log_bytes = small().expert.wal_bytes_max + small().expert.wal_bytes_max / 4;
    fast.set_capacity(Some(log_bytes + (64 << 10)));
    let db = Db::open_in(env.clone(), DIR, options()).unwrap();
    fill(&db, &mut model, 0..2000, 0);
    db.flush().unwrap();
    let stats = db.stats();
    assert!(stats.fast_tier_tables_elsewhere > 0 && stats.fast_tier_tables == 0, "{stats:?}");
    assert!(tables(&fast.env(), SPEED).is_empty() && !tables(&sim.env(), DIR).is_empty());
    fast.set_capacity(None);
    fill(&db, &mut model, 0..2000, 1);
    db.flush().unwrap();
    assert!(db.stats().fast_tier_tables > 0 && !tables(&fast.env(), SPEED).is_empty());
    assert_eq!(contents(&db), model);
    // Between two file systems a checkpoint copies files.
    db.checkpoint("/copy").unwrap();
    db.close().unwrap();
    assert_eq!(contents(&Db::open_in(sim.env(), "/copy", small()).unwrap()), model);
    detach_fast_tier(&env, Path::new(DIR)).unwrap();
    assert_eq!(contents(&Db::open_in(sim.env(), DIR, small()).unwrap()), model);
}

/// A store with all of its tables on the fast tier.
fn filled_on_two(sim: &SimEnv, fast: &SimEnv, model: &mut Model) -> (Env, Db) {
    let env = joined(&sim.env(), Path::new(DIR), &fast.env(), Path::new(SPEED));
    let db = Db::open_in(env.clone(), DIR, small().expert(|expert| expert.fast_tier_levels = 7)).unwrap();
    fill(&db, model, 0..500, 0);
    db.flush().unwrap();
    let stats = db.stats();
    assert!(stats.fast_tier_tables > 0 && stats.fast_tier_tables_elsewhere == 0, "{stats:?}");
    (env, db)
}

/// Another program fills the tier during a table write: the job fails, and is repeated on the
/// capacity tier.
#[test]
fn a_fast_tier_that_fills_up_fails_only_one_job() {
    let (sim, fast, mut model) = (SimEnv::new(12), SimEnv::new(13), Model::new());
    let (env, db) = filled_on_two(&sim, &fast, &mut model);
    let before = db.stats();
    fast.inject(FaultPlan::nth(0, FaultEffect::NoSpace).kinds(&[OpKind::Append]).path(".ksst-1").sticky());
    fill(&db, &mut model, 200..220, 1);
    // The device still reports free space.
    db.flush().unwrap();
    let stats = db.stats();
    assert!(stats.fast_tier_refusals == 1 && stats.fast_tier_tables_elsewhere > 0, "{stats:?}");
    assert_eq!((stats.background_errors, before.background_errors), (1, 0), "it is told");
    assert_eq!(contents(&db), model);
    fill(&db, &mut model, 0..100, 2);
    db.flush().unwrap();
    assert_eq!(contents(&db), model);
    assert_eq!(db.stats().fast_tier_refusals, 1, "it is not asked again");
    // The reserve for jobs on the capacity tier is untouched.
    assert!(sim.env().fs.list(Path::new(DIR)).unwrap().iter().any(|entry| entry.name.ends_with(".room")));
    // After a while the tier is tried again. It refuses once more; later it has room.
    sim.advance_ns(11_000_000_000);
    fill(&db, &mut model, 0..100, 3);
    db.flush().unwrap();
    assert_eq!(db.stats().fast_tier_refusals, 2);
    fast.clear_faults();
    sim.advance_ns(11_000_000_000);
    let tables = db.stats().fast_tier_tables;
    fill(&db, &mut model, 0..100, 4);
    db.flush().unwrap();
    assert!(db.stats().fast_tier_tables > tables && db.stats().fast_tier_refusals == 2);
    assert!(db.damaged_files().is_empty() && db.verify().unwrap().errors.is_empty());
    db.close().unwrap();
    let db = Db::open_in(env, DIR, small().expert(|expert| expert.fast_tier_levels = 7)).unwrap();
    assert_eq!(contents(&db), model);
}

/// If the tier refuses to create a table, the table is created on the capacity tier at once, and no
/// job fails.
#[test]
fn a_table_refused_by_the_fast_tier_goes_to_the_capacity_tier() {
    let (sim, fast, mut model) = (SimEnv::new(18), SimEnv::new(19), Model::new());
    let (env, db) = filled_on_two(&sim, &fast, &mut model);
    let before = db.stats();
    fast.inject(FaultPlan::nth(0, FaultEffect::NoSpace).kinds(&[OpKind::Create]).path(".ksst-1").sticky());
    for round in 1..4 {
        fill(&db, &mut model, 200..220, round);
        db.flush().unwrap();
    }
    let stats = db.stats();
    assert_eq!(
        (stats.fast_tier_refusals, stats.fast_tier_tables),
        (1, before.fast_tier_tables),
        "it is asked once"
    );
    assert!(stats.fast_tier_tables_elsewhere >= 3, "{stats:?}");
    assert_eq!((stats.background_errors, stats.stall_space_ns), (0, 0), "nobody fails, nobody waits");
    fast.clear_faults();
    sim.advance_ns(11_000_000_000);
    fill(&db, &mut model, 0..100, 4);
    db.flush().unwrap();
    assert!(db.stats().fast_tier_tables > before.fast_tier_tables);
    assert!(contents(&db) == model && db.verify().unwrap().errors.is_empty());
    db.close().unwrap();
    assert!(
        contents(&Db::open_in(env, DIR, small().expert(|expert| expert.fast_tier_levels = 7)).unwrap())
            == model
    );
}

/// A flush without room on either tier names the tier that refused it.
#[test]
fn a_flush_that_finds_no_room_names_the_disk() {
    let (sim, fast, mut model) = (SimEnv::new(14), SimEnv::new(15), Model::new());
    let env = joined(&sim.env(), Path::new(DIR), &fast.env(), Path::new(SPEED));
    let db = Db::open_in(env, DIR, small().expert(|expert| expert.fast_tier_levels = 7)).unwrap();
    let append = |part| FaultPlan::nth(0, FaultEffect::NoSpace).kinds(&[OpKind::Append]).path(part).sticky();
    fast.inject(append(".ksst-1"));
    sim.inject(append(".ksst"));
    fill(&db, &mut model, 0..20, 0);
    let refusal = db.flush().unwrap_err();
    assert_eq!(refusal.kind(), ErrorKind::NoSpace, "{refusal}");
    assert!(
        refusal.file().is_some_and(|file| file.starts_with(DIR) && file.extension().is_some()),
        "{refusal}"
    );
    assert!(refusal.cause().is_some(), "{refusal}");
    sim.clear_faults();
    sim.advance_ns(500_000_000);
    db.flush().unwrap();
    assert_eq!(contents(&db), model);
}

/// A table there that a job cannot read is set aside like any other, and the store continues.
#[test]
fn a_table_that_a_job_cannot_read_is_quarantined() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let (sim, _) = store(16);
    let name = tables(&sim.env(), SPEED).remove(0);
    let db = open(&sim, 1);
    sim.inject(FaultPlan::nth(0, FaultEffect::Eio).kinds(&[OpKind::Read]).path(&name).sticky());
    // The compaction of the range ends at the table that is set aside.
    let _ = db.compact_range(db.default_column_family(), None, None);
    let told: Vec<String> = db.damaged_files().into_iter().map(|file| file.file).collect();
    assert_eq!(told, [name]);
    db.put(b"key", b"value").unwrap();
    db.flush().unwrap();
}

/// The store becomes idle with an unreadable table there, on its proper tier or not: the table
/// moves down by name only.
#[test]
fn a_store_with_a_quarantined_table_becomes_idle() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    for (fast_tier_adaptive, levels) in [(false, 0), (false, 1), (false, 7), (true, 0), (true, 1), (true, 7)]
    {
        let (sim, _) = store(17);
        let name = tables(&sim.env(), SPEED).remove(0);
        let db = Db::open_in(
            sim.env(),
            DIR,
            options(levels).expert(|expert| expert.fast_tier_adaptive = fast_tier_adaptive),
        )
        .unwrap();
        sim.inject(FaultPlan::nth(0, FaultEffect::Eio).kinds(&[OpKind::Read]).path(&name).sticky());
        let rest = |what| {
            for second in 0..20 {
                let rests = db.wait_idle(std::time::Duration::from_secs(5));
                assert!(rests, "{what}, second {second}, {fast_tier_adaptive} {levels}: {}", db.describe());
                sim.advance_ns(1_000_000_000);
            }
        };
        rest("after the open");
        let _ = db.compact_range(db.default_column_family(), None, None);
        rest("after a compaction");
        let told: Vec<String> = db.damaged_files().into_iter().map(|file| file.file).collect();
        assert_eq!(told, [name], "{fast_tier_adaptive} {levels}");
        let errors = db.stats().background_errors;
        assert!((1..10).contains(&errors), "{errors} jobs have met it");
        db.put(&key(1), b"new").unwrap();
        db.flush().unwrap();
        rest("after a flush");
    }
}

/// A flipped bit in a table there is ordinary damage, reported with the table's path.
#[test]
fn a_damaged_table_is_named_with_its_disk() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let (sim, _) = store(11);
    let name = tables(&sim.env(), SPEED).remove(0);
    sim.flip_bit(Path::new(SPEED).join(&name), 100, 1).unwrap();
    let db = Db::open_in(sim.env(), DIR, Options { access: Access::Direct, ..options(1) }).unwrap();
    let report = db.verify().unwrap();
    assert!(report.errors.iter().any(|e| e.to_string().contains(&name)), "{report:?}");
    let refusals = (0..2000).filter_map(|i| db.get(&key(i)).err()).collect::<Vec<_>>();
    assert!(!refusals.is_empty() && refusals.iter().all(|e| e.is_corruption()), "{refusals:?}");
    // A job that finds it sets the table aside, and the store continues.
    let path = Path::new(SPEED).join(&name);
    let len = sim.env().fs.metadata(&path).unwrap().len;
    (0..len).step_by(50).for_each(|at| sim.flip_bit(&path, at, 1).unwrap());
    drop(db);
    let db = open(&sim, 1);
    db.compact_range(db.default_column_family(), None, None).unwrap();
    let told: Vec<String> = db.damaged_files().into_iter().map(|file| file.file).collect();
    assert_eq!(told, [name]);
    db.put(&key(0), b"new").unwrap();
    db.flush().unwrap();
}
