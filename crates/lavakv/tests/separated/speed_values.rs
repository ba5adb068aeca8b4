//! Hot values on the fast tier: their placement, their moves, and the reports when they are
//! missing.

use crate::common::*;
use crate::*;
use lavastore_lavakv::fast_tier::{detach_fast_tier, joined};
use lavastore_lavakv::io::{CreateOptions, SyncKind};
use lavastore_lavakv::sim::{CrashKind, FaultEffect, FaultPlan, OpKind};
use lavastore_lavakv::{DamagedFiles, Env, ErrorKind, ReadOptions};
use repair::RepairOptions;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const SPEED: &str = "/speed";
const KEYS: u64 = 600;
/// Three quarters of the writes go to these keys.
const HOT_KEYS: u64 = KEYS / 20;
const VALUE_LEN: usize = 300;
const NO_BOUND: u64 = 1 << 40;

fn with_bound(bytes: u64) -> Options {
    Options { fast_tier: Some(PathBuf::from(SPEED)), ..apart(100) }
        .expert(|expert| expert.fast_tier_values_bytes_max = bytes)
}

fn open(sim: &SimEnv, bytes: u64) -> Db {
    Db::open_in(sim.env(), DIR, with_bound(bytes)).unwrap()
}

fn both(sim: &SimEnv) -> Env {
    joined(&sim.env(), Path::new(DIR), &sim.env(), Path::new(SPEED))
}

/// Returns the value files in a directory by name, with their allocated bytes.
fn values(env: &Env, dir: &str) -> Vec<(String, u64)> {
    let listed = env.fs.list(Path::new(dir)).unwrap_or_default().into_iter();
    listed.filter(|e| e.name.contains(".vsst")).map(|e| (e.name, e.allocated)).collect()
}

fn bytes_of(speed: &SimEnv) -> u64 {
    values(&speed.env(), SPEED).iter().map(|(_, bytes)| bytes).sum()
}

fn names(env: &Env, dir: &str) -> Vec<String> {
    values(env, dir).into_iter().map(|(name, _)| name).collect()
}

/// True if a flush wrote it for hot keys: outputs of collections have inputs.
fn is_hot(env: &Env, dir: &str, name: &str) -> bool {
    let mut text = String::new();
    lavastore_lavakv::dump::dump(env, &Path::new(dir).join(name), false, &mut text).unwrap();
    text.split("class ").nth(1).unwrap().starts_with('1') && text.contains("inputs []")
}

/// A key with a skewed distribution.
fn any_key(rng: &mut Rng) -> u64 {
    let among = if rng.one_in(4) { KEYS } else { HOT_KEYS };
    rng.below(among)
}

/// Overwrites keys with a skewed distribution; calls `each` after every step of background work.
fn churn(db: &Db, model: &mut Model, (seed, writes): (u64, u64), mut each: impl FnMut(&Db)) {
    let mut rng = Rng::new(seed);
    for round in 0..writes {
        let i = any_key(&mut rng);
        fill_long(db, model, std::iter::once(i), seed * 1_000_000 + round, VALUE_LEN);
        while db.run_background_step() {
            each(db);
        }
    }
}

/// A closed store with hot values on the fast tier.
fn store(seed: u64) -> (SimEnv, Model) {
    let (sim, mut model) = (SimEnv::new(seed), Model::new());
    let db = open(&sim, NO_BOUND);
    fill_long(&db, &mut model, 0..KEYS, 0, VALUE_LEN);
    churn(&db, &mut model, (seed, KEYS * 5), |_| {});
    db.flush().unwrap();
    db.close().unwrap();
    assert!(!values(&sim.env(), SPEED).is_empty() && !values(&sim.env(), DIR).is_empty());
    (sim, model)
}

#[test]
fn hot_values_live_on_the_fast_tier_and_survivors_move_down() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let (sim, mut model) = (SimEnv::new(1), Model::new());
    let db = open(&sim, NO_BOUND);
    fill_long(&db, &mut model, 0..KEYS, 0, VALUE_LEN);
    let (mut hot, mut most) = (0, 0);
    churn(&db, &mut model, (1, KEYS * 6), |db| {
        if db.stats().flushes == hot {
            return;
        }
        hot = db.stats().flushes;
        most = most.max(values(&sim.env(), SPEED).len());
        for dir in [DIR, SPEED] {
            for file in names(&sim.env(), dir) {
                // A file that a job has begun has no footer yet.
                if !db.live_files().files.contains(&file) {
                    continue;
                }
                assert_eq!(is_hot(&sim.env(), dir, &file), dir == SPEED, "{dir} {file}");
                assert_eq!(file.ends_with(".vsst-1"), dir == SPEED, "{dir} {file}");
            }
        }
    });
    let stats = db.stats();
    assert!(
        stats.fast_tier_values > 20 && stats.fast_tier_values_elsewhere == 0 && most > 3,
        "{most} {stats:?}"
    );
    assert!(stats.gc_runs > 5, "{stats:?}");
    settle(&db);
    let space = db.space().unwrap().speed.unwrap();
    let there: u64 = values(&sim.env(), SPEED).iter().map(|(_, bytes)| bytes).sum();
    assert!(there > 0 && space.value_bytes == there && space.bytes > there, "{space:?}");
    let listed = both(&sim).fs.list(Path::new(DIR)).unwrap();
    ledger_adds_up(&db, listed.iter().map(|entry| entry.allocated).sum());
    let mut found: Vec<String> = listed.into_iter().map(|entry| entry.name).collect();
    found.retain(|name| name.contains(".vsst") || name.contains(".ksst"));
    assert_eq!(found, db.live_files().files);
    assert!(db.verify().unwrap().errors.is_empty());
    let reader = Db::open_read_only_in(sim.env(), DIR, with_bound(0)).unwrap();
    reads_back(&reader, &model);
    drop(reader);
    db.close().unwrap();
    // None is created there from now on; existing files go with their values.
    let db = open(&sim, 0);
    reads_back(&db, &model);
    assert!(!values(&sim.env(), SPEED).is_empty());
    fill_long(&db, &mut model, 0..KEYS, 9_000_000_000, VALUE_LEN);
    compact(&db);
    settle(&db);
    assert_eq!(names(&sim.env(), SPEED), Vec::<String>::new());
    reads_back(&db, &model);
}

/// The purpose of the tier: a small part of the stored bytes, and a large part of the written
/// bytes.
#[test]
fn a_small_fast_tier_absorbs_a_large_share_of_writes() {
    let (sim, fast, mut model) = (SimEnv::new(20), SimEnv::new(21), Model::new());
    let env = joined(&sim.env(), Path::new(DIR), &fast.env(), Path::new(SPEED));
    let db = Db::open_in(env, DIR, Options { fast_tier: None, ..with_bound(NO_BOUND) }).unwrap();
    fill_long(&db, &mut model, 0..KEYS, 0, VALUE_LEN);
    // The largest size of each file that ever existed.
    let mut written = [BTreeMap::new(), BTreeMap::new()];
    let mut rooms = [0, 0];
    churn(&db, &mut model, (20, KEYS * 12), |_| {
        for (at, (env, dir)) in [(sim.env(), DIR), (fast.env(), SPEED)].into_iter().enumerate() {
            for (name, bytes) in values(&env, dir) {
                let most = written[at].entry(name).or_insert(0);
                *most = bytes.max(*most);
                rooms[at] += bytes;
            }
        }
    });
    let [slow_bytes, fast_bytes] = written.map(|files| files.values().sum::<u64>());
    let (of_written, of_room) =
        (fast_bytes * 100 / (slow_bytes + fast_bytes), rooms[1] * 100 / (rooms[0] + rooms[1]));
    println!("{of_written} % of what is written, {of_room} % of what is stored");
    assert!(of_written >= 3 * of_room && of_written >= 25, "{of_written} {of_room}");
}

/// The bound covers all files there, including those of running jobs; the surplus is on the
/// capacity tier.
#[test]
fn hot_values_keep_their_bound_and_leave_space_for_the_log() {
    let (sim, fast, mut model) = (SimEnv::new(2), SimEnv::new(3), Model::new());
    let env = joined(&sim.env(), Path::new(DIR), &fast.env(), Path::new(SPEED));
    let own = |bytes| Options { fast_tier: None, ..with_bound(bytes) };
    let log_bytes = small().expert.wal_bytes_max + small().expert.wal_bytes_max / 4;
    fast.set_capacity(Some(log_bytes + (8 << 10)));
    let db = Db::open_in(env.clone(), DIR, own(NO_BOUND)).unwrap();
    fill_long(&db, &mut model, 0..KEYS, 0, VALUE_LEN);
    churn(&db, &mut model, (4, KEYS * 4), |_| {});
    let stats = db.stats();
    assert!(stats.fast_tier_values_elsewhere > 5 && stats.fast_tier_values == 0, "{stats:?}");
    db.close().unwrap();
    fast.set_capacity(None);
    let bound = 40 << 10;
    let db = Db::open_in(env, DIR, own(bound)).unwrap();
    let mut most = 0;
    churn(&db, &mut model, (5, KEYS * 4), |_| most = most.max(bytes_of(&fast)));
    let stats = db.stats();
    assert!(stats.fast_tier_values > 0 && stats.fast_tier_values_elsewhere > 0, "{stats:?}");
    // A file ends with the record that reaches its size.
    assert!(most > bound / 2 && most <= bound + (8 << 10), "{most}");
    reads_back(&db, &model);
}

/// Placement needs no listing of the existing files, which would cost a call for each of them.
#[test]
fn creating_a_value_file_lists_no_directory() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let (sim, fast, mut model) = (SimEnv::new(31), SimEnv::new(32), Model::new());
    let env = joined(&sim.env(), Path::new(DIR), &fast.env(), Path::new(SPEED));
    let fresh = Options { fast_tier: None, ..with_bound(80 << 10) }
        .expert(|expert| expert.fast_tier_values_flushed = true);
    let db = Db::open_in(env, DIR, fresh).unwrap();
    let lists = || fast.count_ops(Some(OpKind::List), "");
    let before = lists();
    fill_long(&db, &mut model, 0..KEYS, 0, VALUE_LEN);
    churn(&db, &mut model, (33, KEYS * 2), |_| {});
    let stats = db.stats();
    assert!(stats.fast_tier_values > 5 && stats.fast_tier_values_elsewhere > 5, "{stats:?}");
    assert_eq!(lists(), before);
}

/// Values overwritten before the collection of their file are never written to the capacity tier.
#[test]
fn fresh_values_start_on_the_fast_tier_beside_hot_ones() {
    let (sim, fast, mut model) = (SimEnv::new(11), SimEnv::new(12), Model::new());
    let env = joined(&sim.env(), Path::new(DIR), &fast.env(), Path::new(SPEED));
    let fresh = |bytes| {
        Options { fast_tier: None, ..with_bound(bytes) }
            .expert(|expert| expert.fast_tier_values_flushed = true)
    };
    let refusal = Db::open_in(env.clone(), DIR, fresh(0)).unwrap_err();
    assert!(
        refusal.kind() == ErrorKind::InvalidArgument
            && refusal.to_string().contains("fast_tier_values_flushed"),
        "{refusal}"
    );
    let db = Db::open_in(env.clone(), DIR, fresh(NO_BOUND)).unwrap();
    fill_long(&db, &mut model, 0..KEYS, 0, VALUE_LEN);
    db.flush().unwrap();
    assert!(values(&sim.env(), DIR).is_empty() && !values(&fast.env(), SPEED).is_empty());
    // There is room for all: none moves down.
    churn(&db, &mut model, (13, KEYS * 4), |_| {});
    let stats = db.stats();
    assert!(stats.fast_tier_values_elsewhere == 0 && stats.gc_runs > 3, "{stats:?}");
    assert!(values(&sim.env(), DIR).is_empty());
    assert!(db.verify().unwrap().errors.is_empty());
    reads_back(&db, &model);
    db.close().unwrap();
    // With a bound too small for all: three quarters of it, while no key is known to be hot.
    let (sim, fast, mut model) = (SimEnv::new(14), SimEnv::new(15), Model::new());
    let env = joined(&sim.env(), Path::new(DIR), &fast.env(), Path::new(SPEED));
    let bound = 80 << 10;
    let db = Db::open_in(env, DIR, fresh(bound)).unwrap();
    fill_long(&db, &mut model, 0..KEYS, 0, VALUE_LEN);
    db.flush().unwrap();
    let there = bytes_of(&fast);
    assert!(there > bound / 2 && there <= bound - bound / 4 + (8 << 10), "{there}");
    assert!(db.stats().fast_tier_values_elsewhere > 0);
    let mut most = 0;
    churn(&db, &mut model, (16, KEYS * 4), |_| most = most.max(bytes_of(&fast)));
    assert!(most > bound - bound / 4 && most <= bound + (8 << 10), "{most}");
    assert!(!values(&sim.env(), DIR).is_empty());
    reads_back(&db, &model);
}

/// Old values make room on the tier for new ones, and none is lost.
#[test]
fn long_lived_values_move_down_from_a_full_fast_tier() {
    let (sim, fast, mut model) = (SimEnv::new(41), SimEnv::new(42), Model::new());
    let env = joined(&sim.env(), Path::new(DIR), &fast.env(), Path::new(SPEED));
    let bound = 320 << 10;
    let fresh = || {
        Options { fast_tier: None, ..with_bound(bound) }
            .expert(|expert| expert.fast_tier_values_flushed = true)
    };
    let db = Db::open_in(env.clone(), DIR, fresh()).unwrap();
    // The store checks once a second.
    let look = |db: &Db| {
        sim.advance_ns(2_000_000_000);
        settle(db);
    };
    let mut written = 0;
    for round in 0..8 {
        let keys = round * KEYS..(round + 1) * KEYS;
        let before = db.stats().fast_tier_values;
        fill_long(&db, &mut model, keys, 0, VALUE_LEN);
        db.flush().unwrap();
        assert!(db.stats().fast_tier_values > before, "round {round}: nothing new is on the disk");
        look(&db);
        let there = bytes_of(&fast);
        assert!(there <= bound / 8 * 5 && there > bound / 4, "round {round}: {there}");
        written += KEYS * VALUE_LEN as u64;
    }
    let stats = db.stats();
    assert!(stats.fast_tier_values_moved_down > 20 && written > 4 * bound, "{stats:?}");
    assert!(stats.gc_bytes_written < 2 * written, "each goes down once: {stats:?}");
    reads_back(&db, &model);
    assert!(db.verify().unwrap().errors.is_empty());
    // No work while they are within their part.
    let before = db.stats().fast_tier_values_moved_down;
    (0..5).for_each(|_| look(&db));
    assert_eq!(db.stats().fast_tier_values_moved_down, before);
    db.close().unwrap();
    reads_back(&Db::open_in(env, DIR, fresh()).unwrap(), &model);
}

/// A store with fresh values on the fast tier, within this bound.
fn fresh_on(sim: &SimEnv, fast: &SimEnv, bound: u64) -> Db {
    let env = joined(&sim.env(), Path::new(DIR), &fast.env(), Path::new(SPEED));
    let fresh = Options { fast_tier: None, ..with_bound(bound) }
        .expert(|expert| expert.fast_tier_values_flushed = true);
    Db::open_in(env, DIR, fresh).unwrap()
}

/// When the tier is for hot values only, earlier files there make room for them.
#[test]
fn fresh_values_move_down_if_only_hot_ones_are_allowed() {
    let (sim, fast, mut model) = (SimEnv::new(43), SimEnv::new(44), Model::new());
    let bound = 320 << 10;
    let db = fresh_on(&sim, &fast, bound);
    fill_long(&db, &mut model, 0..KEYS, 0, VALUE_LEN);
    db.flush().unwrap();
    let there = bytes_of(&fast);
    assert!(there > bound / 4, "{there}");
    db.close().unwrap();
    let env = joined(&sim.env(), Path::new(DIR), &fast.env(), Path::new(SPEED));
    let db = Db::open_in(env, DIR, Options { fast_tier: None, ..with_bound(bound) }).unwrap();
    for _ in 0..5 {
        sim.advance_ns(2_000_000_000);
        settle(&db);
    }
    let left: Vec<_> = names(&fast.env(), SPEED);
    assert!(left.iter().all(|name| is_hot(&fast.env(), SPEED, name)), "{left:?}");
    assert!(db.stats().fast_tier_values_moved_down > 0 && bytes_of(&fast) < there / 4);
    reads_back(&db, &model);
    assert!(db.verify().unwrap().errors.is_empty());
}

/// Files held only by a reader are removed with it: nothing else moves down because of them,
/// however long it takes.
#[test]
fn files_pinned_by_readers_move_no_other_values_down() {
    let (sim, fast, mut model) = (SimEnv::new(51), SimEnv::new(52), Model::new());
    let bound = 320 << 10;
    let db = fresh_on(&sim, &fast, bound);
    fill_long(&db, &mut model, 0..KEYS, 0, VALUE_LEN);
    db.flush().unwrap();
    let mut reader = db.iter(ReadOptions::default()).unwrap();
    reader.seek_to_first().unwrap();
    fill_long(&db, &mut model, 0..KEYS, 1, VALUE_LEN);
    compact(&db);
    settle(&db);
    let held = bytes_of(&fast);
    assert!(held > bound / 8 * 5, "{held}: the files that were overwritten are there still");
    let before = db.stats().fast_tier_values_moved_down;
    for _ in 0..5 {
        sim.advance_ns(2_000_000_000);
        settle(&db);
    }
    assert_eq!(db.stats().fast_tier_values_moved_down, before);
    drop(reader);
    settle(&db);
    assert!(bytes_of(&fast) < held);
    reads_back(&db, &model);
}

/// Files excluded from collection by damage stay in their place, and the others still move down.
#[test]
fn a_damaged_file_does_not_block_other_moves() {
    let (sim, fast, mut model) = (SimEnv::new(53), SimEnv::new(54), Model::new());
    let bound = 320 << 10;
    let db = fresh_on(&sim, &fast, bound);
    fill_long(&db, &mut model, 0..KEYS, 0, VALUE_LEN);
    db.flush().unwrap();
    let (mut damaged, mut oldest) = (0, values(&fast.env(), SPEED));
    oldest.sort();
    for (name, bytes) in oldest {
        let path = Path::new(SPEED).join(&name);
        let len = fast.env().fs.metadata(&path).unwrap().len;
        (0..len).step_by(50).for_each(|at| fast.flip_bit(&path, at, 1).unwrap());
        damaged += bytes;
        // More than ever has to move at once.
        if damaged > bound / 4 {
            break;
        }
    }
    for round in 1..7 {
        fill_long(&db, &mut model, round * KEYS..(round + 1) * KEYS, 0, VALUE_LEN);
        db.flush().unwrap();
        for _ in 0..10 {
            sim.advance_ns(2_000_000_000);
            settle(&db);
        }
        let (there, stats) = (bytes_of(&fast), db.stats());
        assert!(there <= bound / 8 * 5, "round {round}: {there}, {} down", stats.fast_tier_values_moved_down);
    }
    assert!(db.stats().fast_tier_values_moved_down > 10 && !db.damaged_files().is_empty());
    let is_there = |(key, value): &(&Vec<u8>, &Vec<u8>)| {
        db.get(key).is_ok_and(|found| found.as_deref() == Some(&value[..]))
    };
    assert!(model.iter().filter(is_there).count() as u64 > KEYS * 6);
}

/// A requested collection waits for a file with garbage that a job is moving down.
#[test]
fn a_requested_collection_waits_for_files_moving_down() {
    let (sim, fast, mut model) = (SimEnv::new(55), SimEnv::new(56), Model::new());
    let db = fresh_on(&sim, &fast, 240 << 10);
    fill_long(&db, &mut model, 0..KEYS, 0, VALUE_LEN);
    db.flush().unwrap();
    // Some of the oldest file is garbage, too little for an automatic collection.
    fill_long(&db, &mut model, [3, 13, 23].into_iter(), 1, VALUE_LEN);
    compact(&db);
    assert_eq!((db.stats().gc_runs, db.stats().fast_tier_values_moved_down), (0, 0));
    sim.advance_ns(2_000_000_000);
    let read = || db.stats().gc_bytes_read;
    let begun = (0..500).any(|_| db.run_background_step() && db.jobs_under_way() == 1 && read() > 0);
    assert!(begun && db.stats().fast_tier_values_moved_down == 0);
    let all = lavastore_lavakv::GcRequest { until_percent: Some(0), ..Default::default() };
    let report = db.collect_garbage(all).unwrap();
    assert!(report.garbage_bytes_before > 0 && report.garbage_bytes == 0, "{report:?}");
    assert!(db.stats().fast_tier_values_moved_down > 0);
    reads_back(&db, &model);
}

#[test]
fn a_checkpoint_has_one_tier_and_a_detached_tier_is_empty() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let (sim, mut model) = store(6);
    let db = open(&sim, NO_BOUND);
    db.checkpoint("/copy").unwrap();
    reads_back(&db, &model);
    db.close().unwrap();
    let copy = Db::open_in(sim.env(), "/copy", apart(100)).unwrap();
    reads_back(&copy, &model);
    assert!(copy.verify().unwrap().errors.is_empty());
    assert!(names(&sim.env(), "/copy").iter().all(|name| name.ends_with(".vsst")));
    let strict = store::fast_tier::detach_fast_tier(&both(&sim), Path::new(DIR));
    assert_eq!(strict.unwrap_err().kind(), ErrorKind::Unsupported, "nobody speaks for the values");
    detach_fast_tier(&both(&sim), Path::new(DIR)).unwrap();
    assert_eq!(names(&sim.env(), SPEED), Vec::<String>::new());
    let db = Db::open_in(sim.env(), DIR, apart(100)).unwrap();
    reads_back(&db, &model);
    churn(&db, &mut model, (7, KEYS), |_| {});
    assert!(db.verify().unwrap().errors.is_empty());
    db.close().unwrap();
    let db = open(&sim, NO_BOUND);
    churn(&db, &mut model, (8, KEYS * 3), |_| {});
    assert!(!values(&sim.env(), SPEED).is_empty());
    reads_back(&db, &model);
}

/// Missing values are reported with the name of their file, and no older version is returned.
#[test]
fn missing_values_are_damage_and_no_older_value_is_shown() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let (sim, model) = store(9);
    let lost = names(&sim.env(), SPEED);
    let fork = sim.fork(1);
    lost.iter().for_each(|name| fork.env().fs.remove(&Path::new(SPEED).join(name)).unwrap());
    let strict = Options { damaged_files: DamagedFiles::Refuse, ..with_bound(NO_BOUND) };
    let refusal = Db::open_in(fork.env(), DIR, strict).unwrap_err();
    let named = refusal.file().and_then(|file| file.file_name()?.to_str()).unwrap_or_default();
    assert!(refusal.is_corruption() && lost.iter().any(|name| name == named), "{refusal}");
    let db = open(&fork, NO_BOUND);
    let mut told: Vec<String> = db.damaged_files().into_iter().map(|file| file.file).collect();
    told.sort();
    assert_eq!(told, lost);
    let mut refusals = 0;
    for (key, value) in &model {
        match db.get(key) {
            Ok(found) => assert_eq!(found.as_deref(), Some(&value[..]), "an older value is shown"),
            Err(e) => {
                assert!(e.to_string().contains(".vsst-1"), "{e}");
                refusals += 1;
            }
        }
    }
    assert!(refusals >= 10, "{refusals}");
    assert!(try_contents(&db, db.default_column_family()).is_err());
    drop(db);
    // Without the fast tier the store is refused, and a repair names each lost key.
    let fork = sim.fork(2);
    fork.env().fs.rename(Path::new(SPEED), Path::new("/gone")).unwrap_or_default();
    refused(Db::open_in(fork.env(), DIR, apart(100)), ErrorKind::InvalidArgument, DIR);
    let options = RepairOptions { options: with_bound(NO_BOUND), ..RepairOptions::default() };
    let without = RepairOptions { without_fast_tier: true, ..options.clone() };
    let report = repair::repair_in(&fork.env(), DIR, &fork.env(), "/new", &without).unwrap();
    for name in &lost {
        assert!(report.damaged.iter().any(|it| it.file.ends_with(name)), "{name}: {:?}", report.damaged);
    }
    let kept = contents(&Db::open_in(fork.env(), "/new", apart(100)).unwrap());
    let mut gone = 0;
    for (key, value) in &model {
        match kept.get(key) {
            Some(found) => assert_eq!(found, value, "an older value is saved"),
            None => {
                let mut of_values = report.lost.iter().filter(|range| range.file.ends_with(".vsst-1"));
                assert!(of_values.any(|range| range.covers(0, key)), "{key:?} is lost and not told");
                gone += 1;
            }
        }
    }
    assert_eq!(gone, refusals);
    // With the tier nothing is lost, with or without the manifest.
    let report = repair::repair_in(&both(&sim), DIR, &sim.env(), "/newer", &options).unwrap();
    assert!(report.lost.is_empty(), "{report:?}");
    reads_back(&Db::open_in(sim.env(), "/newer", apart(100)).unwrap(), &model);
    remove_manifest(&sim.env());
    repair::repair_in(&both(&sim), DIR, &sim.env(), "/newest", &options).unwrap();
    reads_back(&Db::open_in(sim.env(), "/newest", apart(100)).unwrap(), &model);
}

/// After a crash while the store returns its fast tier, some value files are on both tiers, and one
/// copy may be torn in the middle. A repair without a manifest takes the intact one.
#[test]
fn a_repair_prefers_the_complete_copy() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    for torn in [DIR, SPEED] {
        let (sim, model) = store(19);
        put_twice(&sim, SPEED, &names(&sim.env(), SPEED), torn);
        remove_manifest(&sim.env());
        let options = RepairOptions { options: with_bound(NO_BOUND), ..RepairOptions::default() };
        repair::repair_in(&both(&sim), DIR, &sim.env(), "/new", &options).unwrap();
        reads_back(&Db::open_in(sim.env(), "/new", apart(100)).unwrap(), &model);
    }
}

/// Outputs of unfinished jobs and leftovers of moves are orphans on either tier: the manifest's
/// name of the file decides.
#[test]
fn the_manifest_decides_between_two_copies_of_a_value_file() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let (sim, model) = store(10);
    let (fast, slow) = (names(&sim.env(), SPEED), names(&sim.env(), DIR));
    let put = |path: PathBuf| {
        let mut file = sim.env().fs.create(&path, &CreateOptions::default()).unwrap();
        file.append(&[7; 5000]).unwrap();
        file.sync(SyncKind::Full).unwrap();
    };
    fast.iter().for_each(|name| put(Path::new(DIR).join(name.trim_end_matches("-1"))));
    slow.iter().for_each(|name| put(Path::new(SPEED).join(format!("{name}-1"))));
    put(Path::new(SPEED).join("000000777777.vsst-1"));
    put(Path::new(DIR).join("000000777778.vsst"));
    let reader = Db::open_read_only_in(sim.env(), DIR, with_bound(0)).unwrap();
    reads_back(&reader, &model);
    drop(reader);
    let db = open(&sim, NO_BOUND);
    reads_back(&db, &model);
    assert_eq!((names(&sim.env(), SPEED), names(&sim.env(), DIR)), (fast, slow), "and nothing else is left");
}

/// At every point of a session with both tiers, and of returning the fast one, the store keeps its
/// promises.
#[test]
fn a_crash_leaves_each_value_where_the_manifest_says() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let mut tried = 0;
    for (seed, gives) in [(11, false), (12, true)] {
        let (sim, model) = store(seed);
        let begun = sim.op_count();
        match gives {
            true => detach_fast_tier(&both(&sim), Path::new(DIR)).unwrap(),
            false => {
                let db = open(&sim, NO_BOUND);
                let mut rng = Rng::new(seed);
                for _ in 0..400 {
                    // The same values again: any surviving version equals the model's.
                    let i = any_key(&mut rng);
                    db.put(&key(i), &model[&key(i)]).unwrap();
                    db.run_background_step();
                }
                compact(&db);
                settle(&db);
                db.close().unwrap();
            }
        }
        let record = sim.record();
        let ops: Vec<u64> = record.mutations().into_iter().filter(|op| *op >= begun).collect();
        for (n, &op) in ops.iter().enumerate().step_by(ops.len().div_ceil(120)) {
            for (kind, salt) in [(CrashKind::ProcessKill, 0), (CrashKind::PowerLoss, n as u64)] {
                let after = record.crash_at(op, kind, op * 3 + salt);
                let say = format!("seed {seed}, {kind:?} at operation {op}");
                let db = Db::open_in(after.env(), DIR, with_bound(NO_BOUND))
                    .unwrap_or_else(|e| panic!("{say}: {e}"));
                assert!(db.damaged_files().is_empty(), "{say}: {:?}", db.damaged_files());
                assert!(contents(&db) == model, "{say}");
                let report = db.verify().unwrap();
                assert!(report.errors.is_empty(), "{say}: {report:?}");
                db.close().unwrap();
                tried += 1;
            }
        }
    }
    assert!(tried > 200, "{tried}");
}

/// The tier refuses a file in spite of its reported free space: the flush is repeated, and writes
/// to the capacity tier.
#[test]
fn a_fast_tier_refusal_stops_no_flush() {
    for kind in [OpKind::Append, OpKind::Create] {
        let (sim, fast, mut model) = (SimEnv::new(13), SimEnv::new(14), Model::new());
        let env = joined(&sim.env(), Path::new(DIR), &fast.env(), Path::new(SPEED));
        let own = || Options { fast_tier: None, ..with_bound(NO_BOUND) };
        let db = Db::open_in(env.clone(), DIR, own()).unwrap();
        fill_long(&db, &mut model, 0..KEYS, 0, VALUE_LEN);
        churn(&db, &mut model, (13, KEYS * 4), |_| {});
        let before = db.stats();
        assert!(before.fast_tier_values > 0 && before.fast_tier_values_elsewhere == 0, "{before:?}");
        let kinds: &[OpKind] = &[kind];
        fast.inject(FaultPlan::nth(0, FaultEffect::NoSpace).kinds(kinds).path(".vsst-1").sticky());
        churn(&db, &mut model, (15, KEYS), |_| {});
        db.flush().unwrap();
        let after = db.stats();
        assert!(
            after.fast_tier_values_elsewhere > 0 && after.stall_space_ns == before.stall_space_ns,
            "{after:?}"
        );
        let failed = after.background_errors - before.background_errors;
        assert_eq!(failed, u64::from(kind == OpKind::Append), "one job meets it, and no other");
        reads_back(&db, &model);
        assert!(db.damaged_files().is_empty() && db.verify().unwrap().errors.is_empty());
        // It has room again, and is tried again after a while.
        fast.clear_faults();
        sim.advance_ns(60_000_000_000);
        churn(&db, &mut model, (16, KEYS), |_| {});
        assert!(db.stats().fast_tier_values > after.fast_tier_values);
        db.close().unwrap();
        reads_back(&Db::open_in(env, DIR, own()).unwrap(), &model);
    }
}

/// Damage that a job finds in a file on the fast tier concerns that file, and the store continues.
#[test]
fn a_damaged_fast_tier_file_is_quarantined_by_its_path() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let (sim, mut model) = store(17);
    let name = names(&sim.env(), SPEED).remove(0);
    let len = sim.env().fs.metadata(&Path::new(SPEED).join(&name)).unwrap().len;
    (0..len).step_by(50).for_each(|at| sim.flip_bit(Path::new(SPEED).join(&name), at, 1).unwrap());
    let db = open(&sim, 0);
    // Half of it is garbage now, so that a requested collection includes it. Unreadable records
    // stay.
    fill_long(&db, &mut model, (0..KEYS).step_by(2), 9_000_000_000, VALUE_LEN);
    compact(&db);
    let _ = db.collect_garbage(lavastore_lavakv::GcRequest::default());
    settle(&db);
    let told: Vec<String> = db.damaged_files().into_iter().map(|file| file.file).collect();
    assert_eq!(told, [name]);
    fill_long(&db, &mut model, (0..KEYS).step_by(2), 9_000_000_001, VALUE_LEN);
    db.flush().unwrap();
    for (key, value) in &model {
        assert!(db.get(key).is_ok_and(|found| found.as_deref() == Some(value)) || db.get(key).is_err());
    }
}

#[test]
fn values_on_an_unknown_disk_are_refused() {
    let sim = SimEnv::new(18);
    let options = Options { fast_tier: None, ..with_bound(1 << 20) };
    let e = Db::open_in(env(&sim), DIR, options).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    assert!(e.message().contains("fast_tier_values_bytes_max needs a fast tier"), "{e}");
    assert!(files(&sim).is_empty());
}
