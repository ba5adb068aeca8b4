//! The amount and the pace of garbage collection: it yields to flushes, unless space is short.

use crate::common::*;
use crate::*;
use lavastore_lavakv::io::{CreateOptions, SyncKind};
use lavastore_lavakv::sim::Costs;
use lavastore_lavakv::{Ablation, GcRequest};

const LEN: usize = 1000;

fn scheduled(sim: &SimEnv, ablation: Ablation) -> Db {
    // One level and no small files, so that mainly collection is measured.
    let family = apart_family(200).expert(|expert| expert.vsst_bytes = 32 << 10);
    let options = Options { family, ..apart(200) }.expert(|expert| expert.ablation = ablation);
    Db::open_in(env(sim), DIR, options).unwrap()
}

/// A device with this bandwidth, KiB per millisecond.
fn device(sim: &SimEnv, kib_per_ms: u64) {
    sim.set_costs(Costs { kib_ns: 1_000_000 / kib_per_ms, ..Costs::default() });
}

/// Three in four writes overwrite one of a few keys, and one adds a new key: every value file soon
/// is mostly garbage, which is little compared with the live data. Jobs run a step after every few
/// writes, so that writers wait for flushes.
struct Churn {
    rng: Rng,
    next: u64,
    round: u64,
}

impl Churn {
    fn new() -> Churn {
        Churn { rng: Rng::new(7), next: 1000, round: 0 }
    }

    fn run(&mut self, db: &Db, writes: u64) {
        for _ in 0..writes {
            self.round += 1;
            let cold = self.rng.one_in(4);
            self.next += u64::from(cold);
            let i = if cold { self.next } else { self.rng.below(100) };
            db.put(&key(i), &long(i, self.round, LEN)).unwrap();
            if self.rng.one_in(8) {
                db.run_background_step();
            }
        }
    }
}

fn gc_bytes(db: &Db) -> u64 {
    let stats = db.stats();
    stats.gc_bytes_read + stats.gc_bytes_written
}

/// A store whose device has become slow, after enough writes that collections have delayed flushes.
fn slowed(sim: &SimEnv, ablation: Ablation) -> (Db, Churn) {
    let (db, mut churn) = (scheduled(sim, ablation), Churn::new());
    device(sim, 64);
    fill_long(&db, &mut Model::new(), 0..3000, 0, LEN);
    settle(&db);
    churn.run(&db, 500);
    device(sim, 8);
    churn.run(&db, 6000);
    for _ in 0..300 {
        if db.stats().gc_pace_bytes_per_s > 0 || !ablation.gc_pace {
            break;
        }
        churn.run(&db, 10);
    }
    // No flush during the measurement.
    db.flush().unwrap();
    (db, churn)
}

/// Collects all garbage on a device that is fast again. Returns the bytes read and written, and the
/// time.
fn collect_all(sim: &SimEnv, db: &Db) -> (u64, u64) {
    device(sim, 1024);
    let (start_ns, before) = (sim.now_ns(), gc_bytes(db));
    db.collect_garbage(GcRequest { until_percent: Some(0), ..Default::default() }).unwrap();
    (gc_bytes(db) - before, sim.now_ns() - start_ns)
}

#[test]
fn collections_keep_the_pace_while_flushes_are_slow() {
    let sim = SimEnv::new(1);
    let (db, _) = slowed(&sim, Ablation::default());
    let before = db.stats();
    assert!(before.gc_pace_bytes_per_s > 0, "{before:?}");
    let (bytes, took_ns) = collect_all(&sim, &db);
    let after = db.stats();
    // The pace rises, since flushes are no longer slow: its final value is its maximum.
    let bound = after.gc_pace_bytes_per_s;
    assert!(bound > before.gc_pace_bytes_per_s && after.gc_paced_ns > before.gc_paced_ns, "{after:?}");
    let allowed = (u128::from(bound) * u128::from(took_ns) / 1_000_000_000) as u64;
    // A step is charged when it is done; two run at once.
    let slack = 512 << 10;
    assert!(bytes <= allowed + slack, "{bytes} bytes in {took_ns} ns: {after:?}");
    assert!(bytes > 3 * slack, "there was something to bound: {bytes}");
    assert!(db.verify().unwrap().errors.is_empty());

    let off = Ablation::without(["gc_pace"]).unwrap();
    let sim = SimEnv::new(1);
    let (db, _) = slowed(&sim, off);
    let (unbounded_bytes, unbounded_ns) = collect_all(&sim, &db);
    let rate = |bytes: u64, ns: u64| bytes as f64 / ns as f64;
    assert!(
        rate(unbounded_bytes, unbounded_ns) > 2.0 * rate(bytes, took_ns),
        "{unbounded_bytes} {unbounded_ns}"
    );
    assert_eq!(db.stats().gc_paced_ns, 0, "switched off");
}

#[test]
fn low_space_raises_the_collection_rate() {
    let sim = SimEnv::new(2);
    let (db, _) = slowed(&sim, Ablation::default());
    let calm = db.stats().gc_pace_bytes_per_s;
    assert!(calm > 0, "{:?}", db.stats());
    // Everything is overwritten: garbage reaches the bound for throttling.
    let mut model = Model::new();
    let mut lifted = false;
    for i in (0..3000).chain(0..3000) {
        fill_long(&db, &mut model, i..i + 1, 99, LEN);
        lifted |= db.stats().gc_pace_bytes_per_s == 0;
    }
    assert!(lifted, "{calm}: {}", db.describe());
}

/// Flushes do not wait for collections, however many of these are paced.
#[test]
fn flushes_go_on_while_collections_wait() {
    let sim = SimEnv::new(3);
    let (db, mut churn) = slowed(&sim, Ablation::default());
    for _ in 0..50 {
        churn.run(&db, 20);
        let (start_ns, paced_ns) = (sim.now_ns(), db.stats().gc_paced_ns);
        db.flush().unwrap();
        let took_ns = sim.now_ns() - start_ns;
        // At most three memtables at 8 MiB/s, beside other work.
        assert!(took_ns < 200_000_000, "{took_ns} ns, held back {} ns", db.stats().gc_paced_ns - paced_ns);
    }
}

/// On one, two and eight threads, with every mechanism and without: the store ends up equally
/// small.
#[test]
fn a_store_settles_with_any_number_of_threads() {
    for (seed, threads) in [1, 2, 8].into_iter().enumerate() {
        for ablation in
            [Ablation::default(), Ablation::without(["gc_threads", "gc_threshold", "gc_pace"]).unwrap()]
        {
            let sim = SimEnv::new(seed as u64);
            let options = Options { background_threads: threads, ..apart(200) }
                .expert(|expert| expert.ablation = ablation);
            let (db, mut model) = (Db::open_in(env(&sim), DIR, options).unwrap(), Model::new());
            for round in 0..6 {
                fill_long(&db, &mut model, (0..600).filter(|i| (i + round) % 3 != 0), round, LEN);
            }
            fill_long(&db, &mut model, 0..600, 9, LEN);
            compact(&db);
            nothing_left_over(&db, &sim);
            reads_back(&db, &model);
            let space = db.space().unwrap();
            assert!(space.garbage_bytes * 4 <= space.value_bytes + (64 << 10), "{threads}: {space:?}");
        }
    }
}

/// Garbage not worth collecting on a roomy volume is collected on a full one.
#[test]
fn a_full_volume_makes_collection_eager() {
    if skipped_on_lavafs(because::ROOM) {
        return;
    }
    let mut garbage = Vec::new();
    for (ablation, full) in [
        (Ablation::default(), false),
        (Ablation::default(), true),
        (Ablation::without(["gc_threshold"]).unwrap(), true),
    ] {
        let sim = SimEnv::new(5);
        let (db, mut model) = (scheduled(&sim, ablation), Model::new());
        fill_long(&db, &mut model, 0..1200, 0, LEN);
        fill_long(&db, &mut model, (0..1200).step_by(8), 1, LEN);
        compact(&db);
        settle(&db);
        if full {
            // Another program takes most of the room, and the rest exceeds the store's own reserve,
            // which would trigger collection too.
            let path = std::path::Path::new("/ballast");
            let mut ballast = env(&sim).fs.create(path, &CreateOptions::default()).unwrap();
            ballast.append(&vec![1; 48 << 20]).unwrap();
            ballast.sync(SyncKind::Full).unwrap();
            sim.set_capacity(Some(sim.used() * 100 / 96));
        }
        // The volume's free space is read when files are created or removed, at limited rate.
        sim.advance_ns(10_000_000_000);
        fill_long(&db, &mut model, 0..1, 2, 10);
        db.flush().unwrap();
        settle(&db);
        reads_back(&db, &model);
        garbage.push(db.space().unwrap().garbage_bytes);
    }
    assert!(garbage[0] > 50 * LEN as u64, "an eighth was overwritten: {garbage:?}");
    assert!(garbage[1] * 4 < garbage[0], "{garbage:?}");
    assert_eq!(garbage[2], garbage[0], "switched off");
}
