//! Garbage collection on request: predictions, the bound on garbage, and pauses.

use crate::common::*;
use lavastore_lavakv::io::Rng;
use lavastore_lavakv::{
    Compression, Db, ErrorKind, FamilyOptions, GcProgress, GcReport, GcRequest, Options, PlannedGc,
    sim::SimEnv,
};
use std::sync::atomic::Ordering::Relaxed;

/// Values of about 100 bytes, separated into value files of a few hundred.
fn separated() -> Options {
    let family =
        FamilyOptions { min_blob_size: 32, ..small_family() }.expert(|expert| expert.vsst_bytes = 32 << 10);
    Options { family, ..small() }
}

/// Creates overwritten keys, the more the higher they are: value files with no garbage up to seven
/// eighths. Idle except for garbage collection.
fn with_garbage(sim: &SimEnv) -> (Db, Model) {
    let (db, mut model) = (Db::open_in(env(sim), DIR, separated()).unwrap(), Model::new());
    let pause = db.pause_gc();
    fill(&db, &mut model, 0..2000, 0);
    db.flush().unwrap();
    for i in (0..2000).filter(|i| i % 8 < i / 250) {
        fill(&db, &mut model, i..i + 1, 1);
    }
    db.compact_range(db.default_column_family(), None, None).unwrap();
    settle(&db);
    assert_eq!(db.stats().gc_runs, 0, "garbage collection was paused");
    drop(pause);
    (db, model)
}

#[test]
fn gc_plan_matches_the_collection() {
    if skipped_on_lavafs(because::READS) {
        return;
    }
    let sim = SimEnv::new(1);
    let (db, model) = with_garbage(&sim);
    let ask = GcRequest::default();
    let plan = db.gc_plan(ask.clone()).unwrap();
    let total = plan.total();
    assert!(total.exact && total.freed_bytes > plan.garbage_bytes / 2, "{plan:?}");
    assert_eq!(db.gc_plan(ask.clone()).unwrap(), plan, "a plan changes nothing");
    let read_only = Db::open_read_only_in(env(&sim), DIR, separated()).unwrap();
    // The reader has its own cache and open files, which changes its predicted reads.
    let mut of_reader = read_only.gc_plan(ask.clone()).unwrap();
    for (own, other) in of_reader.collections.iter_mut().zip(&plan.collections) {
        own.read_bytes = other.read_bytes;
    }
    assert_eq!(of_reader, plan);
    assert_eq!(read_only.collect_garbage(ask.clone()).unwrap_err().kind(), ErrorKind::ReadOnly);
    drop(read_only);

    let mut told: Vec<GcProgress> = Vec::new();
    let mut tell = |progress: &GcProgress| {
        assert!(db.gc_plan(ask.clone()).is_ok(), "it may call into the store");
        told.push(*progress);
    };
    let report = db.collect_garbage_with(ask.clone(), &mut tell).unwrap();
    assert_eq!(report.collections, plan.collections.len() as u64);
    comes_nearer(&told, &total, &report);
    assert_eq!(report.garbage_bytes_before, plan.garbage_bytes);
    let near = |is: u64, said: u64| is.abs_diff(said) <= said / 20 + (1 << 10) * report.collections;
    assert!(near(report.freed_bytes, total.freed_bytes), "{report:?} {total:?}");
    assert!(near(report.written_bytes, total.written_bytes), "{report:?} {total:?}");
    // A collection also reads the keys in the tables.
    let most = total.input_bytes + db.space().unwrap().table_bytes * report.collections;
    let least = total.read_bytes - total.read_bytes / 5;
    assert!((least..=most).contains(&report.read_bytes), "{report:?} {total:?}");
    assert!(db.gc_plan(ask.clone()).unwrap().collections.is_empty());
    assert_eq!(db.collect_garbage(ask.clone()).unwrap().collections, 0);
    let family = &db.space().unwrap().families[0];
    assert!(family.garbage_percent_max < 20 && family.garbage_bytes == report.garbage_bytes, "{family:?}");
    assert_eq!(contents(&db), model);
    assert!(db.verify().unwrap().errors.is_empty());
}

/// With values much longer than their references, reads are predicted to a fifth, with a cold or a
/// warm cache.
#[test]
fn predicted_gc_reads_are_within_a_fifth() {
    if skipped_on_lavafs(because::READS) {
        return;
    }
    for is_cold in [false, true] {
        let (sim, family) = (SimEnv::new(6), small_family().expert(|expert| expert.vsst_bytes = 256 << 10));
        let options = Options { family: FamilyOptions { min_blob_size: 512, ..family }, ..small() };
        let mut db = Db::open_in(env(&sim), DIR, options.clone()).unwrap();
        let pause = db.pause_gc();
        let put = |db: &Db, i: u64, round: u8| db.put(&key(i), &[i as u8 ^ round; 1500]).unwrap();
        (0..2000).for_each(|i| put(&db, i, 0));
        db.flush().unwrap();
        // Three in five values become garbage, scattered.
        (0..2000).filter(|i| i * 7919 % 2003 % 5 < 3).for_each(|i| put(&db, i, 1));
        db.compact_range(db.default_column_family(), None, None).unwrap();
        settle(&db);
        drop(pause);
        if is_cold {
            db.close().unwrap();
            db = Db::open_in(env(&sim), DIR, options).unwrap();
        }
        let total = db.gc_plan(GcRequest::default()).unwrap().total();
        let report = db.collect_garbage(GcRequest::default()).unwrap();
        let (is, said) = (report.read_bytes, total.read_bytes);
        assert!(
            is > 1 << 20 && is.abs_diff(said) <= is / 5,
            "cold: {is_cold}, {said} for {report:?} {total:?}"
        );
    }
}

/// With values hardly longer than their references, table reads are a large part. All device reads
/// are predicted to a fifth.
#[test]
fn predicted_table_reads_are_within_a_fifth() {
    if skipped_on_lavafs(because::READS) {
        return;
    }
    // Files with keys of the whole range, of parts of it, and of the whole range with few keys.
    let sizes = [(256 << 10, 4 << 20), (16 << 10, 4 << 20), (16 << 10, 48 << 10)];
    let cases = sizes.into_iter().flat_map(|sizes| [(sizes, false), (sizes, true)]);
    for ((flushed_bytes, memory_bytes), is_cold) in cases {
        let sim = SimEnv::new(7);
        let (env, read_bytes) = counting_reads(env(&sim));
        let options = Options {
            memtable_bytes: flushed_bytes,
            memory_bytes,
            cache_bytes: 8 << 20,
            family: FamilyOptions { min_blob_size: 128, compression: Compression::None, ..small_family() }
                .expert(|expert| {
                    expert.vsst_bytes = flushed_bytes as u64;
                    expert.file_bytes = 256 << 10;
                    expert.level_base_bytes = 1 << 20;
                }),
            ..small()
        };
        let mut db = Db::open_in(env.clone(), DIR, options.clone()).unwrap();
        let pause = db.pause_gc();
        let mut rng = Rng::new(7);
        let mut put = |i: u64| {
            let mut value = vec![0; 170];
            rng.fill(&mut value);
            db.put(&key(i), &value).unwrap();
        };
        (0..30_000).for_each(|i| put(i * 7919 % 30_000));
        (0..15_000).for_each(|i| put(i * 104_729 % 30_000));
        db.flush().unwrap();
        db.compact_range(db.default_column_family(), None, None).unwrap();
        settle(&db);
        drop(pause);
        if is_cold {
            db.close().unwrap();
            db = Db::open_in(env, DIR, options).unwrap();
        }
        let total = db.gc_plan(GcRequest::default()).unwrap().total();
        let before = read_bytes.load(Relaxed);
        let report = db.collect_garbage(GcRequest::default()).unwrap();
        let (is, said) = (read_bytes.load(Relaxed) - before, total.read_bytes);
        let what = format!(
            "cold: {is_cold}, files of {flushed_bytes}, {memory_bytes} of memory: {said} for {is}, {report:?} {total:?}"
        );
        assert!(report.collections > 2 && is.abs_diff(report.read_bytes) <= is / 100, "{what}");
        assert!(is > 1 << 20 && is.abs_diff(said) <= is / 5, "{what}");
    }
}

/// The progress reports begin with the prediction and end with the result.
fn comes_nearer(told: &[GcProgress], planned: &PlannedGc, report: &GcReport) {
    let (first, last) = (told.first().unwrap(), told.last().unwrap());
    assert_eq!((first.freed_bytes, first.remaining_bytes, first.eta_ns()), (0, planned.freed_bytes, None));
    assert_eq!((last.remaining_bytes, last.eta_ns()), (0, Some(0)), "{last:?}");
    assert_eq!((last.collections, last.freed_bytes), (report.collections, report.freed_bytes));
    assert_eq!(last.garbage_bytes, report.garbage_bytes);
    assert!(told.len() as u64 > report.collections, "{told:?}");
    assert!(told.is_sorted_by_key(|p| (p.freed_bytes, p.elapsed_ns)), "{told:?}");
    for p in told {
        // Freed and remaining bytes always sum to about the prediction.
        let sum = p.freed_bytes + p.remaining_bytes;
        assert!(
            sum.abs_diff(planned.freed_bytes) <= planned.freed_bytes / 10 + (4 << 10),
            "{p:?} {planned:?}"
        );
    }
}

/// Collections of collection outputs: predictions stay close, closer where the ledger is exact.
#[test]
fn gc_plans_stay_accurate_over_many_rounds() {
    let sim = SimEnv::new(4);
    let (db, mut model) = with_garbage(&sim);
    for round in 2..6 {
        db.collect_garbage(GcRequest::default()).unwrap();
        let pause = db.pause_gc();
        for i in (0..2000).filter(|i| i % 8 < (i / 250 + round) % 8) {
            fill(&db, &mut model, i..i + 1, round);
        }
        db.compact_range(db.default_column_family(), None, None).unwrap();
        // Files without live records are dropped in between, without a collection.
        settle(&db);
        drop(pause);
        let plan = db.gc_plan(GcRequest::default()).unwrap();
        let (total, report) = (plan.total(), db.collect_garbage(GcRequest::default()).unwrap());
        let part = if total.exact { 20 } else { 4 };
        for (done, said) in
            [(report.freed_bytes, total.freed_bytes), (report.written_bytes, total.written_bytes)]
        {
            let tolerance = said / part + (1 << 10) * report.collections;
            assert!(done.abs_diff(said) <= tolerance && said > 0, "{report:?} {total:?}");
        }
    }
    assert_eq!(contents(&db), model);
}

/// During a pause, garbage does not slow writes down, since no collection would reduce it.
#[test]
fn a_pause_does_not_slow_writers_down() {
    let sim = SimEnv::new(5);
    let (db, mut model) = (Db::open_in(env(&sim), DIR, separated()).unwrap(), Model::new());
    let pause = db.pause_gc();
    fill(&db, &mut model, 0..4000, 0);
    db.flush().unwrap();
    for i in (0..4000).filter(|i| i % 8 != 0) {
        fill(&db, &mut model, i..i + 1, 1);
    }
    db.compact_range(db.default_column_family(), None, None).unwrap();
    let space = db.space().unwrap();
    assert!(space.garbage_bytes * 2 > space.live_bytes_min, "garbage enough to slow writers: {space:?}");
    fill(&db, &mut model, 0..1000, 2);
    assert_eq!(db.stats().stall_garbage_ns, 0);
    drop(pause);
    fill(&db, &mut model, 0..1000, 3);
    assert!(db.stats().stall_garbage_ns > 0, "now it is worth it");
    settle(&db);
    assert!(db.stats().gc_runs > 0);
    assert_eq!(contents(&db), model);
}

#[test]
fn gc_until_percent_reaches_the_bound_with_minimal_work() {
    let sim = SimEnv::new(2);
    let (db, model) = with_garbage(&sim);
    let mut runs = 0;
    for percent in [25, 10, 3, 0] {
        let ask = GcRequest { until_percent: Some(percent), ..Default::default() };
        let planned = db.gc_plan(ask.clone()).unwrap().collections.len() as u64;
        let report = db.collect_garbage(ask.clone()).unwrap();
        assert!(report.collections >= planned, "{report:?}");
        let bound = report.record_bytes * u64::from(percent) / 100;
        assert!(report.garbage_bytes <= bound, "{percent} %: {report:?}");
        runs += report.collections;
    }
    assert!(runs > 2, "{runs}");
    assert_eq!(contents(&db), model);
    let out_of_range = GcRequest { until_percent: Some(101), ..Default::default() };
    assert_eq!(db.collect_garbage(out_of_range).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_pause_refuses_requests_and_does_not_keep_the_store_open() {
    let sim = SimEnv::new(3);
    let (db, _) = with_garbage(&sim);
    let (pause, another) = (db.pause_gc(), db.pause_gc());
    assert_eq!(db.collect_garbage(GcRequest::default()).unwrap_err().kind(), ErrorKind::Busy);
    drop(another);
    settle(&db);
    assert_eq!(db.stats().gc_runs, 0);
    drop(db);
    let db = Db::open_in(env(&sim), DIR, separated()).unwrap();
    drop(pause);
    settle(&db);
    assert!(db.stats().gc_runs > 0, "a quiet store collects by itself");
}

#[test]
fn changed_family_options_are_stored_and_reported() {
    let dir = TempDir::new("family-options");
    let absent = Db::stored_family_options(dir.path()).unwrap_err();
    assert_eq!(absent.kind(), ErrorKind::NotFound);
    let db = Db::open(dir.path()).unwrap();
    let other = db.create_column_family("other", separated().family).unwrap();
    let changed = FamilyOptions { min_blob_size: 0, ..other.options() };
    db.set_family_options(&other, changed.clone()).unwrap();
    let absurd = other.options().expert(|expert| expert.levels = 0);
    assert_eq!(db.set_family_options(&other, absurd).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let expected =
        vec![("default".to_owned(), FamilyOptions::default().derived()), ("other".to_owned(), changed)];
    assert_eq!(Db::stored_family_options(dir.path()).unwrap(), expected, "beside the writer");
    db.close().unwrap();
    assert_eq!(Db::stored_family_options(dir.path()).unwrap(), expected);
}
