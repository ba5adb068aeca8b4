//! Reordering of values by key: only where scans justify it beyond the disorder from writes, and
//! without losses.

use crate::common::*;
use crate::*;
use lavastore_lavakv::sim::CrashKind;
use lavastore_lavakv::{Ablation, ErrorKind, ReadOptions};

const KEYS: u64 = 3000;
const LEN: usize = 500;

fn options() -> Options {
    let family = apart_family(200).expert(|expert| expert.vsst_bytes = 32 << 10);
    Options { family, memory_bytes: 128 << 10, ..apart(200) }
}

fn open_with(sim: &SimEnv, ablation: Ablation) -> Db {
    Db::open_in(env(sim), DIR, options().expert(|expert| expert.ablation = ablation)).unwrap()
}

fn open_scanned(sim: &SimEnv) -> Db {
    open_with(sim, Ablation::default())
}

/// Overwrites `writes` random keys.
fn overwrite(db: &Db, model: &mut Model, rng: &mut Rng, writes: u64, round: u64) {
    for _ in 0..writes {
        let i = rng.below(KEYS);
        fill_long(db, model, i..i + 1, round, LEN);
    }
}

/// A store whose values are in the order of random writes.
fn scattered(sim: &SimEnv, ablation: Ablation) -> (Db, Model) {
    scattered_in(open_with(sim, ablation))
}

fn scattered_in(db: Db) -> (Db, Model) {
    let (mut model, mut rng) = (Model::new(), Rng::new(5));
    let mut keys: Vec<u64> = (0..KEYS).collect();
    for i in (1..keys.len()).rev() {
        keys.swap(i, rng.below(i as u64 + 1) as usize);
    }
    fill_long(&db, &mut model, keys.into_iter(), 0, LEN);
    overwrite(&db, &mut model, &mut rng, KEYS, 1);
    db.flush().unwrap();
    settle(&db);
    (db, model)
}

fn uncached() -> ReadOptions {
    ReadOptions { fill_cache: false, ..Default::default() }
}

/// Scans everything. Returns the number of requests.
#[track_caller]
fn scan(db: &Db, model: &Model) -> u64 {
    let before = db.stats().iter_value_reads;
    let found: Model = db.iter(uncached()).unwrap().entries().map(Result::unwrap).collect();
    assert!(found == *model);
    db.stats().iter_value_reads - before
}

/// Lets time pass while jobs run, without calls.
fn pass_seconds(db: &Db, sim: &SimEnv, seconds: u64) {
    for _ in 0..seconds {
        sim.advance_ns(1_000_000_000);
        while db.run_background_step() {}
    }
}

#[test]
fn scans_trigger_reordering_until_the_store_is_idle() {
    let sim = SimEnv::new(1);
    let (db, model) = scattered(&sim, Ablation::default());
    assert_eq!(db.stats().relocations, 0, "nobody scans");
    let before = scan(&db, &model);
    pass_seconds(&db, &sim, 10);
    let stats = db.stats();
    assert!(stats.relocations > 0 && stats.relocation_bytes_read > 0, "{}", db.describe());
    assert!(
        stats.relocation_bytes_written < 2 * KEYS * LEN as u64,
        "each value is moved about once: {stats:?}"
    );
    let after = scan(&db, &model);
    assert!(after * 2 < before, "{before} requests before, {after} after");
    reads_back(&db, &model);
    nothing_left_over(&db, &sim);
    // Scans of the new order cause no further reorder.
    let (rest, state) = (db.stats().relocations, sim.state_hash());
    for _ in 0..5 {
        scan(&db, &model);
        pass_seconds(&db, &sim, 5);
    }
    assert_eq!(db.stats().relocations, rest);
    assert_eq!(sim.state_hash(), state, "nothing was written");
    db.close().unwrap();
    reads_back(&open_scanned(&sim), &model);
}

#[test]
fn without_reordering_no_value_moves() {
    let sim = SimEnv::new(1);
    let (db, model) = scattered(&sim, Ablation::without(["correlated"]).unwrap());
    let before = scan(&db, &model);
    pass_seconds(&db, &sim, 10);
    assert!(db.stats().relocations == 0 && scan(&db, &model) * 3 > before * 2);
}

/// The peak of space during reorders: their parts, and no second copy of the store.
#[test]
fn reordering_needs_space_for_one_part_only() {
    let sim = SimEnv::new(2);
    let (db, model) = scattered(&sim, Ablation::default());
    let settled = db.space().unwrap().total_bytes;
    scan(&db, &model);
    sim.advance_ns(2_000_000_000);
    let mut peak = settled;
    while db.run_background_step() {
        peak = peak.max(db.space().unwrap().total_bytes);
    }
    assert!(db.stats().relocations > 0);
    let live = KEYS * LEN as u64;
    assert!(peak < settled + live / 3, "{settled} B settled, {peak} B at most, {live} B live");
}

/// Iterators and snapshots from before read their state, beside writes, deletes and garbage
/// collection. (Two jobs on one value file would panic.)
#[test]
fn reordering_runs_beside_readers_and_writers() {
    let mut relocated = 0;
    for seed in 0..6 {
        let sim = SimEnv::new(20 + seed);
        let (db, mut model) = scattered(&sim, Ablation::default());
        let mut rng = Rng::new(seed);
        let (snapshot, then) = (db.snapshot(), model.clone());
        let mut iter = db.iter(uncached()).unwrap();
        iter.seek_to_first().unwrap();
        for round in 2..8 {
            scan(&db, &model);
            sim.advance_ns(2_000_000_000);
            for _ in 0..rng.below(400) {
                db.run_background_step();
            }
            overwrite(&db, &mut model, &mut rng, 150, round);
            for _ in 0..20 {
                let i = rng.below(KEYS);
                db.delete(&key(i)).unwrap();
                model.remove(&key(i));
            }
        }
        for (key, value) in &then {
            assert!(iter.valid() && iter.key() == key && iter.value().unwrap() == value);
            iter.next().unwrap();
        }
        drop(iter);
        let options = ReadOptions { snapshot: Some(snapshot), ..uncached() };
        let found: Model = db.iter(options).unwrap().entries().map(Result::unwrap).collect();
        assert!(found == then);
        scan(&db, &model);
        relocated += db.stats().relocations;
        nothing_left_over(&db, &sim);
        reads_back(&db, &model);
    }
    assert!(relocated > 20, "{relocated}");
}

/// Scans and writes in turn, a tenth of a second apart, so that the store is never quiet: for each
/// scan of `entries` entries `writes` puts, all among the first `hot` keys.
struct Mixed {
    writes: u64,
    hot: u64,
    entries: u64,
}

impl Mixed {
    /// Returns the requests of each scan.
    fn run(&self, sim: &SimEnv, db: &Db, model: &mut Model, rounds: u64) -> Vec<u64> {
        let (mut rng, mut requests) = (Rng::new(9), Vec::new());
        for round in 0..rounds {
            for _ in 0..self.writes {
                let i = rng.below(self.hot);
                fill_long(db, model, i..i + 1, 10 + round, LEN);
            }
            let before = db.stats().iter_value_reads;
            let from = key(rng.below(self.hot.saturating_sub(self.entries).max(1)));
            let entries = self.entries as usize;
            let mut iter = db.iter(ReadOptions { expected_entries: entries, ..uncached() }).unwrap();
            iter.seek(&from).unwrap();
            for (key, value) in model.range(from..).take(entries) {
                assert!(iter.key() == key && iter.value().unwrap() == value);
                iter.next().unwrap();
            }
            drop(iter);
            requests.push(db.stats().iter_value_reads - before);
            sim.advance_ns(100_000_000);
            for _ in 0..200 {
                db.run_background_step();
            }
        }
        requests
    }
}

#[test]
fn a_mostly_scanned_store_is_reordered_during_writes() {
    let sim = SimEnv::new(3);
    let (db, mut model) = scattered(&sim, Ablation::default());
    // Garbage is collected first: a reorder finds no room beside it.
    pass_seconds(&db, &sim, 5);
    let used = db.space().unwrap().total_bytes;
    let requests = Mixed { writes: 4, hot: KEYS, entries: 500 }.run(&sim, &db, &mut model, 120);
    assert!(db.stats().relocations > 0, "{}", db.describe());
    let (before, after) = (requests[0], &requests[60..]);
    let mean = after.iter().sum::<u64>() / after.len() as u64;
    assert!(mean * 4 < before * 3, "{requests:?}");
    assert!(db.space().unwrap().total_bytes < used * 13 / 10);
    reads_back(&db, &model);
    nothing_left_over(&db, &sim);
}

#[test]
fn a_mostly_written_store_is_not_reordered() {
    for (seed, writes, entries) in [(4, 150, 10), (5, 600, 30)] {
        let sim = SimEnv::new(seed);
        let (db, mut model) = scattered(&sim, Ablation::default());
        Mixed { writes, hot: KEYS, entries }.run(&sim, &db, &mut model, 60);
        assert_eq!(db.stats().relocations, 0, "{writes} puts for {entries} entries");
        reads_back(&db, &model);
    }
}

/// A few keys are overwritten and scanned continuously. The scan cost alone would pay for endless
/// reorders. Their other values are already in the order of the previous reorder.
#[test]
fn reordering_for_a_few_hot_keys_is_bounded_by_their_writes() {
    let sim = SimEnv::new(6);
    let (db, mut model) = scattered(&sim, Ablation::default());
    pass_seconds(&db, &sim, 5);
    let before = db.stats();
    let (rounds, writes) = (600, 2);
    Mixed { writes, hot: 150, entries: 140 }.run(&sim, &db, &mut model, rounds);
    let stats = db.stats();
    let rewritten = stats.relocation_bytes_written - before.relocation_bytes_written;
    let (all, written) = (KEYS * (LEN as u64 + 100), rounds * writes * (LEN as u64 + 100));
    println!("{rewritten} rewritten, {all} there, {written} written, {} walks", stats.relocations);
    assert!(rewritten <= all + written, "{rewritten} B rewritten, {written} B written");
    reads_back(&db, &model);
    nothing_left_over(&db, &sim);
}

/// Power fails at any moment of a reorder: no synced data is lost, and the reorder's files do not
/// stay.
#[test]
fn crashes_during_reordering_lose_nothing() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let sim = SimEnv::new(40);
    let (db, model) = scattered(&sim, Ablation::default());
    scan(&db, &model);
    let from = sim.op_count();
    pass_seconds(&db, &sim, 5);
    assert!(db.stats().relocations > 2);
    drop(db);
    let record = sim.record();
    let moments: Vec<u64> = record.barriers().into_iter().filter(|&op| op >= from).collect();
    assert!(moments.len() > 10);
    for (n, &op) in moments.iter().enumerate().step_by(moments.len().div_ceil(40)) {
        for after in [
            record.crash_before(op, CrashKind::PowerLoss, n as u64),
            record.crash_at(op, CrashKind::PowerLoss, n as u64),
        ] {
            let db = open_scanned(&after);
            reads_back(&db, &model);
            nothing_left_over(&db, &after);
        }
    }
}

/// Returns the keys with unreadable values.
fn unreadable(db: &Db) -> Vec<Vec<u8>> {
    let mut bad = Vec::new();
    let mut iter = db.iter(uncached()).unwrap();
    iter.seek_to_first().unwrap();
    while iter.valid() {
        if iter.value().is_err() {
            bad.push(iter.key().to_vec());
        }
        iter.next().unwrap();
    }
    bad
}

/// A damaged record stays in its place with the same error; all others are moved, and the store
/// continues.
#[test]
fn a_damaged_record_is_not_relocated() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = SimEnv::new(61);
    let (db, model) = scattered(&sim, Ablation::default());
    db.close().unwrap();
    // Only the leftovers of reorders are worth collecting.
    let family = options().family.expert(|expert| expert.gc_ratio_percent = 90);
    // A reorder does not read garbage: this needs a file in which the damage is in a live record.
    let damaged = files_like(&sim, ".vsst").into_iter().find_map(|name| {
        sim.flip_bit(path(&name), 2000, 3).unwrap();
        let db = Db::open_in(env(&sim), DIR, Options { family: family.clone(), ..options() }).unwrap();
        let bad = unreadable(&db);
        if !bad.is_empty() {
            return Some((name, db, bad));
        }
        db.close().unwrap();
        sim.flip_bit(path(&name), 2000, 3).unwrap();
        None
    });
    let (name, db, bad) = damaged.expect("some file has a live record there");
    assert_eq!(bad.len(), 1);
    pass_seconds(&db, &sim, 10);
    let stats = db.stats();
    assert!(stats.relocations > 0 && stats.files_set_aside == 1, "{stats:?}");
    assert!(files_like(&sim, ".vsst").contains(&name));
    for (key, value) in &model {
        match db.get(key) {
            Ok(got) => assert_eq!(got.as_deref(), Some(&value[..])),
            Err(e) => assert!(*key == bad[0] && e.kind() == ErrorKind::Corruption, "{e}"),
        }
    }
    db.put(b"still", b"writable").unwrap();
    let report = db.verify().unwrap();
    assert!(
        report.errors.len() == 1 && report.errors[0].file().unwrap().ends_with(&name),
        "{:?}",
        report.errors
    );
}

/// A reorder without room is abandoned: the store works, and the reorder's files are removed.
#[test]
fn a_full_disk_ends_only_the_reordering() {
    if skipped_on_lavafs(because::ROOM) {
        return;
    }
    let sim = SimEnv::new(70);
    let (db, model) = scattered(&sim, Ablation::default());
    scan(&db, &model);
    sim.set_capacity(Some(sim.used() + (20 << 10)));
    pass_seconds(&db, &sim, 5);
    // The reserve for jobs may have allowed one step.
    let steps = db.stats().relocations;
    assert!(db.stats().background_errors > 0 && steps < 2);
    assert!(scan(&db, &model) > 0);
    sim.set_capacity(None);
    pass_seconds(&db, &sim, 5);
    assert!(db.stats().relocations > steps + 1);
    reads_back(&db, &model);
    nothing_left_over(&db, &sim);
}
