//! Moving placement: tables move between two tiers while the store is open, according to
//! measurements.

use crate::common::{
    DIR, Model, because, contents, fill, key, put_twice, remove_manifest, settle, skipped_on_lavafs, small,
};
use crate::two_disks::SPEED;
use lavastore_lavakv::fast_tier::joined;
use lavastore_lavakv::io::Access;
use lavastore_lavakv::sim::{Costs, CrashKind, FaultEffect, FaultPlan, OpKind, SimEnv};
use lavastore_lavakv::{Db, DbIterator, Env, Options, ReadOptions, Statistics};
use repair::RepairOptions;
use std::path::{Path, PathBuf};

fn options(levels: usize) -> Options {
    Options { fast_tier: Some(PathBuf::from(SPEED)), ..small() }.expert(|expert| {
        expert.fast_tier_levels = levels;
        expert.fast_tier_adaptive = true;
    })
}

/// Returns the names of the tables in a directory.
fn tables(env: &Env, dir: &str) -> Vec<String> {
    let listed = env.fs.list(Path::new(dir)).unwrap_or_default();
    listed.into_iter().map(|entry| entry.name).filter(|name| name.contains(".ksst")).collect()
}

/// Tables on both tiers, by the fixed rule.
fn store(seed: u64) -> (SimEnv, Model) {
    let (sim, mut model) = (SimEnv::new(seed), Model::new());
    let db =
        Db::open_in(sim.env(), DIR, options(7).expert(|expert| expert.fast_tier_adaptive = false)).unwrap();
    fill(&db, &mut model, 0..1500, 0);
    settle(&db);
    db.close().unwrap();
    let db =
        Db::open_in(sim.env(), DIR, options(0).expert(|expert| expert.fast_tier_adaptive = false)).unwrap();
    fill(&db, &mut model, 100..400, 1);
    db.flush().unwrap();
    db.close().unwrap();
    assert!(!tables(&sim.env(), SPEED).is_empty() && !tables(&sim.env(), DIR).is_empty());
    (sim, model)
}

/// Formats the statistics of the tiers.
fn told(stats: &Statistics) -> String {
    let fields = stats.fields().into_iter();
    format!("{:?}", fields.filter(|(name, _)| name.starts_with("speed")).collect::<Vec<_>>())
}

/// Lets `seconds` pass while jobs run.
fn pass(db: &Db, sim: &SimEnv, seconds: u64) {
    for _ in 0..seconds {
        sim.advance_ns(1_000_000_000);
        settle(db);
    }
}

/// Checks that the iterator returns the model from its present entry on.
fn reads_all(mut iterator: DbIterator, model: &Model) {
    let mut seen = 0;
    while iterator.valid() {
        assert_eq!(model.get(iterator.key()).map(|v| &v[..]), Some(iterator.value().unwrap()));
        iterator.next().unwrap();
        seen += 1;
    }
    assert_eq!(seen, model.len());
}

/// With no level on the fast tier all of its tables move down, one at a time, and readers keep
/// their data.
#[test]
fn tables_move_down_while_they_are_read() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let (sim, model) = store(1);
    let there = tables(&sim.env(), SPEED);
    let db = Db::open_in(sim.env(), DIR, options(0)).unwrap();
    let mut iterator = db.iter(ReadOptions::default()).unwrap();
    iterator.seek_to_first().unwrap();
    pass(&db, &sim, 20);
    let stats = db.stats();
    assert!(stats.fast_tier_tables_moved_down >= there.len() as u64, "{}", told(&stats));
    assert_eq!(stats.fast_tier_tables_moved_up, 0);
    assert!(contents(&db) == model);
    assert!(!tables(&sim.env(), SPEED).is_empty(), "the iterator holds them");
    reads_all(iterator, &model);
    settle(&db);
    assert_eq!(tables(&sim.env(), SPEED), Vec::<String>::new());
    let files: usize = [SPEED, DIR].iter().map(|dir| sim.env().fs.list(Path::new(dir)).unwrap().len()).sum();
    let open = sim.open_now();
    assert!(open as usize <= files, "{open} files are open, and {files} exist");
    assert!(db.verify().unwrap().errors.is_empty());
    let listed = crate::two_disks::both(&sim).fs.list(Path::new(DIR)).unwrap();
    crate::common::ledger_adds_up(&db, listed.iter().map(|entry| entry.allocated).sum());
    db.close().unwrap();
    let db = Db::open_in(sim.env(), DIR, options(0)).unwrap();
    assert!(contents(&db) == model && tables(&sim.env(), SPEED).is_empty());
}

/// At every operation of a session with moves the store is complete, and each table is on one tier.
#[test]
fn a_crash_leaves_a_moved_table_on_one_disk() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let (sim, model) = store(2);
    let begun = sim.op_count();
    let db = Db::open_in(sim.env(), DIR, options(0)).unwrap();
    pass(&db, &sim, 8);
    assert!(db.stats().fast_tier_tables_moved_down > 0);
    db.close().unwrap();
    let record = sim.record();
    let mut tried = 0;
    for op in record.mutations().into_iter().filter(|op| *op >= begun) {
        for (kind, salt) in
            [(CrashKind::ProcessKill, 0), (CrashKind::PowerLoss, 1), (CrashKind::PowerLoss, 2)]
        {
            let after = record.crash_at(op, kind, op * 3 + salt);
            let say = format!("{kind:?} at operation {op}");
            let db = Db::open_in(after.env(), DIR, options(7)).unwrap_or_else(|e| panic!("{say}: {e}"));
            assert!(db.damaged_files().is_empty(), "{say}: {:?}", db.damaged_files());
            assert!(contents(&db) == model, "{say}");
            assert!(db.verify().unwrap().errors.is_empty(), "{say}");
            let [fast, slow] = [SPEED, DIR].map(|dir| tables(&after.env(), dir));
            let twice =
                fast.iter().filter(|name| slow.iter().any(|other| other == name.trim_end_matches("-1")));
            assert_eq!(twice.count(), 0, "{say}: {fast:?} {slow:?}");
            tried += 1;
        }
    }
    assert!(tried > 100, "{tried}");
}

/// Two machines with a clock each: work on the second takes no time on the first, except for the
/// costs set here.
fn two(slow: Costs) -> (SimEnv, SimEnv, Env) {
    let (sim, fast) = (SimEnv::new(3), SimEnv::new(4));
    sim.set_costs(slow);
    let env = joined(&sim.env(), Path::new(DIR), &fast.env(), Path::new(SPEED));
    (sim, fast, env)
}

/// A slow capacity tier: flushes go to the fast tier, then deeper levels, and misplaced tables
/// follow. Without room there, all go back.
#[test]
fn levels_move_up_from_a_slow_disk_and_down_without_space() {
    let (sim, fast, env) =
        two(Costs { read_ns: 4_000_000, sync_ns: 10_000_000, kib_ns: 400_000, ..Costs::default() });
    let mut model = Model::new();
    let db = Db::open_in(env.clone(), DIR, Options { fast_tier: None, ..options(7) }).unwrap();
    fill(&db, &mut model, 0..300, 0);
    db.flush().unwrap();
    assert_eq!(db.stats().fast_tier_tables, 0, "it begins with the log alone");
    for round in 1..12 {
        fill(&db, &mut model, 0..2000, round);
        settle(&db);
    }
    let stats = db.stats();
    assert!(stats.fast_tier_pointer_moves > 0 && stats.fast_tier_levels_milli >= 1000, "{}", told(&stats));
    assert!(stats.fast_tier_tables > 0 && !tables(&fast.env(), SPEED).is_empty(), "{}", told(&stats));
    pass(&db, &sim, 30);
    assert!(contents(&db) == model);
    // Another program has filled the fast tier up to the log's reserve.
    let before = db.stats().fast_tier_tables_moved_down;
    fast.set_capacity(Some(small().expert.wal_bytes_max));
    pass(&db, &sim, 60);
    let stats = db.stats();
    assert!(stats.fast_tier_tables_moved_down > before, "{}", told(&stats));
    assert!(tables(&fast.env(), SPEED).is_empty(), "{:?}", tables(&fast.env(), SPEED));
    assert_eq!(stats.fast_tier_levels_milli, 0);
    assert!(contents(&db) == model);
    assert!(db.verify().unwrap().errors.is_empty() && db.damaged_files().is_empty());
    db.close().unwrap();
    let db = Db::open_in(env, DIR, Options { fast_tier: None, ..options(7) }).unwrap();
    assert!(contents(&db) == model);
}

/// A failed move, for want of room or for a read error, disturbs no other work.
#[test]
fn a_failed_table_move_is_abandoned() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let (sim, model) = store(5);
    let db = Db::open_in(sim.env(), DIR, options(0)).unwrap();
    sim.inject(FaultPlan::nth(1, FaultEffect::NoSpace).kinds(&[OpKind::Append]).path(".ksst"));
    sim.inject(FaultPlan::nth(2, FaultEffect::NoSpace).kinds(&[OpKind::Create]).path(".ksst"));
    pass(&db, &sim, 20);
    assert!(contents(&db) == model && tables(&sim.env(), SPEED).is_empty());
    db.put(&key(1), b"value").unwrap();
    db.flush().unwrap();
}

/// Existing tables move up in a store that is only read, and leave the log its room.
#[test]
fn a_read_store_moves_tables_up_while_space_allows() {
    for room in [true, false] {
        let (sim, fast, env) = two(Costs { read_ns: 4_000_000, ..Costs::default() });
        let mut model = Model::new();
        let options = || Options { fast_tier: None, cache_bytes: 0, access: Access::Direct, ..options(7) };
        let db = Db::open_in(
            env.clone(),
            DIR,
            options().expert(|expert| {
                expert.fast_tier_adaptive = false;
                expert.fast_tier_levels = 0;
            }),
        )
        .unwrap();
        fill(&db, &mut model, 0..1500, 0);
        settle(&db);
        db.close().unwrap();
        if !room {
            // Room for the log only.
            fast.set_capacity(Some(small().expert.wal_bytes_max + small().expert.wal_bytes_max / 4));
        }
        let db = Db::open_in(env, DIR, options()).unwrap();
        for round in 0..30 {
            for i in 0..300 {
                assert_eq!(
                    db.get(&key(i * 5 + round % 5)).unwrap().as_deref(),
                    model.get(&key(i * 5 + round % 5)).map(|v| &v[..])
                );
            }
            pass(&db, &sim, 1);
        }
        let stats = db.stats();
        assert_eq!(stats.fast_tier_tables_moved_up > 0, room, "{}", told(&stats));
        assert_eq!(tables(&fast.env(), SPEED).is_empty(), !room);
        assert!(contents(&db) == model);
    }
}

/// A table returns to the fast tier while an iterator still reads its former file there. That file
/// goes with its reader, and the table stays.
#[test]
fn a_table_returns_to_the_fast_tier_while_its_old_file_is_read() {
    let (sim, fast, env) = two(Costs { read_ns: 4_000_000, ..Costs::default() });
    let mut model = Model::new();
    let options = || Options { fast_tier: None, cache_bytes: 0, access: Access::Direct, ..options(7) };
    let db = Db::open_in(env.clone(), DIR, options()).unwrap();
    fill(&db, &mut model, 0..1500, 0);
    settle(&db);
    let read = |rounds: u64| {
        for round in 0..rounds {
            for i in (round % 5..1500).step_by(5) {
                let found = db.get(&key(i)).unwrap();
                assert_eq!(found.as_deref(), model.get(&key(i)).map(|v| &v[..]), "round {round}");
            }
            pass(&db, &sim, 1);
        }
        db.stats()
    };
    let up = read(30).fast_tier_tables_moved_up;
    assert!(up > 0, "{}", told(&db.stats()));
    let mut iterator = db.iter(ReadOptions::default()).unwrap();
    iterator.seek_to_first().unwrap();
    // Another program takes the room, and returns it.
    fast.set_capacity(Some(small().expert.wal_bytes_max));
    pass(&db, &sim, 60);
    let down = db.stats().fast_tier_tables_moved_down;
    assert!(down > 0 && db.stats().fast_tier_levels_milli == 0, "{}", told(&db.stats()));
    fast.set_capacity(None);
    let again = read(60);
    assert!(again.fast_tier_levels_milli > 0, "{}", told(&again));
    reads_all(iterator, &model);
    settle(&db);
    assert!(contents(&db) == model && db.damaged_files().is_empty());
    let back = read(20);
    assert!(back.fast_tier_tables_moved_up > up && db.verify().unwrap().errors.is_empty(), "{}", told(&back));
    db.close().unwrap();
    assert!(contents(&Db::open_in(env, DIR, options()).unwrap()) == model);
}

/// After a crash some moved tables are on both tiers, and one copy may be torn in the middle. A
/// repair takes each table once: the copy named by the manifest, or without a manifest the intact
/// one.
#[test]
fn a_repair_counts_a_table_on_both_disks_once() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    for (has_manifest, torn) in [(true, DIR), (false, ""), (false, DIR), (false, SPEED)] {
        let (sim, model) = store(6);
        put_twice(&sim, SPEED, &tables(&sim.env(), SPEED), torn);
        if !has_manifest {
            remove_manifest(&sim.env());
        }
        let both = crate::two_disks::both(&sim);
        let report = repair::repair_in(&both, DIR, &sim.env(), "/new", &RepairOptions::default()).unwrap();
        let mut of_tables = report.lost.iter().filter(|range| range.file.contains(".ksst"));
        assert!(of_tables.next().is_none(), "{torn}: {report:?}");
        assert!(contents(&Db::open_in(sim.env(), "/new", small()).unwrap()) == model, "{torn}");
    }
}

/// The placement pointer is in the ledger, in the statistics and in the metrics, and in none of
/// them without a second tier.
#[test]
fn placement_pointer_is_reported() {
    let milli = |db: &Db| (db.space().unwrap().fast_tier_levels_milli, db.stats().fast_tier_levels_milli);
    let gauge = |db: &Db| {
        let page = db.metrics().unwrap();
        assert!(page.contains("# TYPE lavastore_fast_tier_levels_milli gauge"), "it goes down, too");
        let line = page.lines().find(|line| line.starts_with("lavastore_fast_tier_levels_milli{")).unwrap();
        line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()
    };
    let slow = Costs { read_ns: 4_000_000, sync_ns: 10_000_000, kib_ns: 400_000, ..Costs::default() };
    let (sim, _, env) = two(slow);
    let fixed =
        || Options { fast_tier: None, ..options(2) }.expert(|expert| expert.fast_tier_adaptive = false);
    let db = Db::open_in(env.clone(), DIR, fixed()).unwrap();
    assert_eq!((milli(&db), gauge(&db)), ((Some(2000), 2000), 2000), "the fixed rule");
    db.close().unwrap();
    let db =
        Db::open_in(env.clone(), DIR, fixed().expert(|expert| expert.fast_tier_adaptive = true)).unwrap();
    assert_eq!((milli(&db), gauge(&db)), ((Some(0), 0), 0), "it begins with the log alone");
    for round in 0..12 {
        fill(&db, &mut Model::new(), 0..2000, round);
        settle(&db);
    }
    let (space, stats) = milli(&db);
    assert!(stats > 0 && space == Some(stats as u32) && gauge(&db) == stats, "{}", told(&db.stats()));
    db.close().unwrap();
    let reader = Db::open_read_only_in(env, DIR, fixed()).unwrap();
    assert_eq!(milli(&reader).0, None, "whoever writes it knows");
    drop((reader, sim));
    let alone = SimEnv::new(9);
    let db = Db::open_in(alone.env(), DIR, small()).unwrap();
    assert_eq!(milli(&db), (None, 0));
}
