//! Large values: each in a segment of its own, written and read in pieces, removed with the last
//! reference.

use crate::common::*;
use crate::crashes::CrashRun;
use lavastore_lavakv::sim::{CrashKind, FaultEffect, FaultPlan, OpKind, SimEnv};
use lavastore_lavakv::{
    ColumnFamily, DamagedFiles, Db, ErrorKind, FamilyOptions, Options, ReadOptions, WriteBatch, WriteOptions,
};
use std::io::{Read, Seek, SeekFrom, Write};

/// The longest value that goes through log and memtable with [`small`] options: a quarter of a log
/// group.
const ORDINARY_MAX: usize = 32 << 10;

/// A value in which every part depends on key and round.
fn large(i: u64, round: u64, len: usize) -> Vec<u8> {
    let mut rng = lavastore_lavakv::io::Rng::new(i << 20 | round);
    let mut value = vec![0; len];
    rng.fill(&mut value);
    value
}

fn segments(sim: &SimEnv) -> Vec<String> {
    files_like(sim, ".vsst")
}

fn whole(db: &Db, family: &ColumnFamily, key: &[u8]) -> Option<Vec<u8>> {
    let mut reader = db.get_stream(family, key, ReadOptions::default().at()).unwrap()?;
    let mut bytes = Vec::new();
    assert_eq!(reader.read_to_end(&mut bytes).unwrap() as u64, reader.len());
    Some(bytes)
}

fn stream(db: &Db, key: &[u8], value: &[u8], piece: usize) {
    let mut writer = db.put_stream(db.default_column_family(), key, WriteOptions::default()).unwrap();
    value.chunks(piece).for_each(|p| writer.write_all(p).unwrap());
    assert_eq!(writer.len(), value.len() as u64);
    writer.finish().unwrap();
}

#[test]
fn values_around_the_large_threshold_round_trip() {
    let sim = SimEnv::new(1);
    let mut db = open(&sim);
    let mut model = Model::new();
    for (i, len) in [0, 1, 511, 513, ORDINARY_MAX - 1, ORDINARY_MAX, ORDINARY_MAX + 1, 300_000, 1 << 20]
        .into_iter()
        .enumerate()
    {
        let (i, v) = (i as u64, large(i as u64, 0, len));
        let before = segments(&sim).len();
        db.put(&key(i), &v).unwrap();
        assert_eq!(segments(&sim).len() - before, usize::from(len > ORDINARY_MAX), "{len}");
        stream(&db, &key(100 + i), &v, 10_000);
        let mut batch = WriteBatch::new();
        batch.put(&key(200 + i), &v);
        batch.delete(&key(300));
        batch.put(&key(400 + i), b"small");
        db.write(&batch).unwrap();
        model.extend([(key(i), v.clone()), (key(100 + i), v.clone()), (key(200 + i), v)]);
        model.insert(key(400 + i), b"small".to_vec());
    }
    for round in 0..4 {
        assert!(contents(&db) == model, "round {round}");
        let family = db.default_column_family().clone();
        for (k, v) in &model {
            assert!(db.get(k).unwrap().is_some_and(|got| &*got == v.as_slice()));
            assert!(whole(&db, &family, k).is_some_and(|got| got == *v));
            for (offset, len) in [(0, 10), (v.len() / 2, 300_000), (v.len(), 5), (v.len() + 9, 5), (0, 0)] {
                let expected = &v[offset.min(v.len())..(offset + len).min(v.len())];
                let got = db
                    .get_range(&family, k, offset as u64, len, ReadOptions::default().at())
                    .unwrap()
                    .unwrap();
                assert!(got == expected, "{offset} {len} of {}", v.len());
            }
        }
        assert!(db.get_range(&family, b"none", 0, 1, ReadOptions::default().at()).unwrap().is_none());
        assert!(db.get_stream(&family, b"none", ReadOptions::default().at()).unwrap().is_none());
        match round {
            0 => {
                drop(db);
                db = open(&sim);
            }
            1 => db.flush().unwrap(),
            _ => db.compact_range(&family, None, None).unwrap(),
        }
    }
    let report = db.verify().unwrap();
    assert!(report.errors.is_empty() && report.files as usize > segments(&sim).len(), "{report:?}");
}

#[test]
fn a_reader_seeks_and_outlives_its_value() {
    let sim = SimEnv::new(2);
    let db = open(&sim);
    let v = large(1, 1, 700_000);
    db.put(b"k", &v).unwrap();
    let family = db.default_column_family().clone();
    let snapshot = db.snapshot();
    let mut reader = db.get_stream(&family, b"k", ReadOptions::default().at()).unwrap().unwrap();
    let mut part = vec![0; 1000];
    reader.seek(SeekFrom::Start(500_000)).unwrap();
    reader.read_exact(&mut part).unwrap();
    assert!(part == v[500_000..501_000]);
    reader.seek(SeekFrom::Current(-200_500)).unwrap();
    reader.read_exact(&mut part).unwrap();
    assert!(part == v[300_500..301_500]);
    reader.seek(SeekFrom::End(-5)).unwrap();
    assert_eq!(reader.read(&mut part).unwrap(), 5);
    assert_eq!(reader.read(&mut part).unwrap(), 0);
    reader.seek(SeekFrom::Start(1 << 40)).unwrap();
    assert_eq!(reader.read(&mut part).unwrap(), 0);
    assert!(reader.seek(SeekFrom::Current(-(1 << 41))).is_err());
    assert!(reader.read_range(699_990, 100).unwrap() == v[699_990..]);

    db.put(b"k", b"new").unwrap();
    let then = ReadOptions { snapshot: Some(snapshot), ..Default::default() };
    let old = db.get_opt(&family, b"k", &then).unwrap().unwrap();
    assert!(*old == *v);
    drop(then);
    db.flush().unwrap();
    settle(&db);
    assert_eq!(segments(&sim).len(), 0, "the file is gone, its reader is not");
    reader.seek(SeekFrom::Start(0)).unwrap();
    let mut all = Vec::new();
    reader.read_to_end(&mut all).unwrap();
    assert!(all == v);
}

#[test]
fn overwritten_or_deleted_large_values_free_their_files() {
    let sim = SimEnv::new(3);
    let db = open(&sim);
    let family = db.default_column_family().clone();
    // In the same memtable: the flush drops the older one, and no edit names its file.
    for round in 0..5 {
        db.put(b"same", &large(0, round, 40_000)).unwrap();
    }
    assert_eq!(segments(&sim).len(), 5);
    db.flush().unwrap();
    settle(&db);
    assert_eq!(segments(&sim).len(), 1);
    // In different tables: compaction drops the reference and the file.
    for round in 5..9 {
        db.put(b"same", &large(0, round, 40_000)).unwrap();
        db.flush().unwrap();
    }
    db.compact_range(&family, None, None).unwrap();
    settle(&db);
    assert_eq!(segments(&sim).len(), 1);
    assert!(*db.get(b"same").unwrap().unwrap() == *large(0, 8, 40_000));
    db.delete(b"same").unwrap();
    db.put(b"a", &large(1, 0, 40_000)).unwrap();
    db.put(b"b", &large(2, 0, 40_000)).unwrap();
    db.delete_range(b"a", b"c").unwrap();
    db.compact_range(&family, None, None).unwrap();
    settle(&db);
    assert_eq!(segments(&sim), Vec::<String>::new());
    assert_eq!(contents(&db), Model::new());
}

#[test]
fn a_view_pins_the_segments_of_its_memtables() {
    let sim = SimEnv::new(4);
    let db = open(&sim);
    let (old, new) = (large(0, 1, 40_000), large(0, 2, 50_000));
    db.put(b"k", &old).unwrap();
    let mut before = db.iter(ReadOptions::default()).unwrap();
    db.put(b"k", &new).unwrap();
    db.put(b"kk", &new).unwrap();
    let mut after = db.iter(ReadOptions::default()).unwrap();
    db.flush().unwrap();
    db.delete(b"k").unwrap();
    db.delete(b"kk").unwrap();
    db.compact_range(db.default_column_family(), None, None).unwrap();
    settle(&db);
    assert_eq!(
        segments(&sim).len(),
        3,
        "two in a version that is gone but for a view, one in no version at all"
    );
    let space = db.space().unwrap();
    assert!(space.pinned_bytes >= 140_000, "{space:?}");
    before.seek_to_first().unwrap();
    assert!(before.value().unwrap() == old);
    after.seek(b"kk").unwrap();
    assert!(after.value().unwrap() == new);
    drop(before);
    drop(after);
    settle(&db);
    assert_eq!(segments(&sim), Vec::<String>::new());
}

#[test]
fn an_unfinished_large_value_leaves_no_files() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = SimEnv::new(5);
    let db = open(&sim);
    let family = db.create_column_family("f", small_family()).unwrap();
    let mut writer = db.put_stream(&family, b"k", WriteOptions::default()).unwrap();
    writer.write_all(&large(1, 1, 900_000)).unwrap();
    assert_eq!(segments(&sim).len(), 1);
    drop(writer);
    assert_eq!(segments(&sim).len(), 0);
    assert!(db.get_cf(&family, b"k").unwrap().is_none());

    // The family is dropped while a value is being written, and others are in its memtable and
    // tables.
    db.put_cf(&family, b"table", &large(1, 2, 40_000)).unwrap();
    db.put_cf(&family, b"gone", &large(1, 2, 40_000)).unwrap();
    db.put_cf(&family, b"gone", &large(1, 3, 40_000)).unwrap();
    db.flush().unwrap();
    db.put_cf(&family, b"memtable", &large(1, 2, 40_000)).unwrap();
    let mut writer = db.put_stream(&family, b"k", WriteOptions::default()).unwrap();
    writer.write_all(&large(1, 1, 900_000)).unwrap();
    db.drop_column_family(&family).unwrap();
    fails(writer.finish(), ErrorKind::NotFound);
    fails(db.put_cf(&family, b"k", &large(1, 1, 90_000)), ErrorKind::NotFound);
    let mut batch = WriteBatch::new();
    batch.put(b"k", &large(1, 1, 90_000));
    batch.put_cf(&family, b"k", &large(1, 1, 90_000));
    fails(db.write(&batch), ErrorKind::NotFound);
    settle(&db);
    assert_eq!(segments(&sim), Vec::<String>::new());
    ledger_adds_up(&db, sim.files().iter().map(|(p, _)| env(&sim).fs.metadata(p).unwrap().allocated).sum());
}

#[test]
fn large_value_limits_and_misuse_are_refused() {
    let sim = SimEnv::new(6);
    let db = open(&sim);
    let family = db.default_column_family().clone();
    fails(db.put_stream(&family, b"", WriteOptions::default()), ErrorKind::InvalidArgument);
    fails(db.put(b"", &large(1, 1, 90_000)), ErrorKind::InvalidArgument);
    fails(db.put_stream(&family, &[1; 70_000], WriteOptions::default()), ErrorKind::TooLarge);
    fails(db.put(&[1; 70_000], &large(1, 1, 90_000)), ErrorKind::TooLarge);
    let longer = large(1, 1, (16 << 20) + 1);
    let mut batch = WriteBatch::new();
    batch.put(b"k", &longer);
    db.write(&batch).unwrap();
    assert!(*db.get(b"k").unwrap().unwrap() == *longer);
    db.put(b"k", &longer).unwrap();
    assert!(*db.get(b"k").unwrap().unwrap() == *longer);
    let other = Db::open_in(env(&sim), "/other", small()).unwrap();
    fails(other.put_stream(&family, b"k", WriteOptions::default()), ErrorKind::InvalidArgument);
    let mut writer = db.put_stream(&family, b"w", WriteOptions::default()).unwrap();
    writer.write_all(&longer[..400_000]).unwrap();
    db.close().unwrap();
    fails(writer.finish(), ErrorKind::Closed);
    let reading = Db::open_read_only_in(env(&sim), DIR, small()).unwrap();
    fails(reading.put(b"k", &longer), ErrorKind::ReadOnly);
    fails(
        reading.put_stream(reading.default_column_family(), b"k", WriteOptions::default()),
        ErrorKind::ReadOnly,
    );
    assert!(*reading.get(b"k").unwrap().unwrap() == *longer);
}

#[test]
fn a_value_of_more_than_a_gigabyte_is_refused() {
    let sim = SimEnv::new(7);
    let db = open(&sim);
    let mut writer = db.put_stream(db.default_column_family(), b"k", WriteOptions::default()).unwrap();
    // The limit is checked before the first write.
    let gigabyte = vec![0; (1 << 30) + 1];
    fails(writer.append(&gigabyte), ErrorKind::TooLarge);
    fails(writer.append(b"x"), ErrorKind::TooLarge);
    fails(writer.finish(), ErrorKind::TooLarge);
    fails(db.put(b"k", &gigabyte), ErrorKind::TooLarge);
    assert_eq!(segments(&sim), Vec::<String>::new());
}

#[test]
fn values_of_all_lengths_work_with_any_separation_threshold() {
    for (seed, min_blob_size) in [(8, 0), (9, 32), (10, 1 << 20)] {
        let sim = SimEnv::new(seed);
        let options = || Options { family: FamilyOptions { min_blob_size, ..small_family() }, ..small() };
        let mut db = Db::open_in(env(&sim), DIR, options()).unwrap();
        let mut model = Model::new();
        let mut rng = lavastore_lavakv::io::Rng::new(seed);
        for round in 0..150 {
            let i = rng.below(12);
            match rng.below(10) {
                0 => {
                    db.delete(&key(i)).unwrap();
                    model.remove(&key(i));
                }
                1 if round % 30 == 0 => {
                    drop(db);
                    db = Db::open_in(env(&sim), DIR, options()).unwrap();
                }
                2 => db.flush().unwrap(),
                n => {
                    let len = if n < 6 { rng.below(2000) } else { rng.below(100_000) };
                    let durability =
                        [WriteOptions::durable(), WriteOptions::buffered(), WriteOptions::volatile()]
                            [rng.below(3) as usize];
                    let v = large(i, round, len as usize);
                    db.put_opt(db.default_column_family(), &key(i), &v, &durability).unwrap();
                    model.insert(key(i), v);
                }
            }
        }
        assert!(contents(&db) == model);
        db.compact_range(db.default_column_family(), None, None).unwrap();
        settle(&db);
        assert!(contents(&db) == model);
        let over = model.values().filter(|v| v.len() > ORDINARY_MAX).count();
        assert!(segments(&sim).len() >= over);
        assert!(db.verify().unwrap().errors.is_empty());
    }
}

#[test]
fn a_checkpoint_has_the_segments_and_keeps_them() {
    let sim = SimEnv::new(11);
    let db = open(&sim);
    let (a, b) = (large(1, 1, 90_000), large(2, 1, 90_000));
    db.put(b"a", &a).unwrap();
    db.flush().unwrap();
    db.put(b"b", &b).unwrap();
    db.checkpoint("/copy").unwrap();
    db.delete(b"a").unwrap();
    db.delete(b"b").unwrap();
    db.compact_range(db.default_column_family(), None, None).unwrap();
    settle(&db);
    assert_eq!(segments(&sim), Vec::<String>::new());
    let copy = Db::open_in(env(&sim), "/copy", small()).unwrap();
    assert_eq!(contents(&copy), Model::from([(b"a".to_vec(), a), (b"b".to_vec(), b)]));
    assert!(copy.verify().unwrap().errors.is_empty());
}

#[test]
fn a_read_only_open_works_beside_the_writer() {
    let sim = SimEnv::new(12);
    let db = open(&sim);
    let (old, new) = (large(1, 1, 90_000), large(1, 2, 90_000));
    db.put(b"flushed", &old).unwrap();
    db.flush().unwrap();
    db.put(b"logged", &old).unwrap();
    let reading = Db::open_read_only_in(env(&sim), DIR, small()).unwrap();
    db.put(b"flushed", &new).unwrap();
    db.put(b"logged", &new).unwrap();
    db.compact_range(db.default_column_family(), None, None).unwrap();
    settle(&db);
    for k in [b"flushed", &b"logged"[..]] {
        assert!(*reading.get(k).unwrap().unwrap() == *old, "its files are removed, but open");
        assert!(*db.get(k).unwrap().unwrap() == *new);
    }
}

#[test]
fn segments_waiting_for_a_flush_are_bounded() {
    let sim = SimEnv::new(13);
    let db = open(&sim);
    for round in 0..40 {
        db.put(b"k", &large(0, round, 60_000)).unwrap();
        db.wait_idle(std::time::Duration::from_millis(100));
    }
    // 512 KB of log bound the unflushed segments; 2.4 MB were written.
    assert!(segments(&sim).len() < 20, "{}", segments(&sim).len());
    assert!(db.stats().flushes > 2);
}

#[test]
fn recovery_names_a_segment_that_is_missing_or_damaged() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = SimEnv::new(14);
    let db = open(&sim);
    db.put(b"a", &large(1, 1, 90_000)).unwrap();
    drop(db);
    let name = segments(&sim).pop().unwrap();
    let whole = sim.read_file(path(&name)).unwrap();
    let replace = |bytes: Option<&[u8]>| {
        let fs = env(&sim).fs;
        let _ = fs.remove(&path(&name));
        if let Some(bytes) = bytes {
            let mut file = fs.create(&path(&name), &Default::default()).unwrap();
            file.append(bytes).unwrap();
            file.sync(lavastore_lavakv::io::SyncKind::Full).unwrap();
        }
    };
    let len = whole.len();
    let (mut header, mut footer, mut chunk) = (whole.clone(), whole.clone(), whole.clone());
    (header[2], footer[len - 40], chunk[50_000]) = (header[2] ^ 1, footer[len - 40] ^ 1, chunk[50_000] ^ 1);
    let other = {
        let sim = SimEnv::new(15);
        let db = open(&sim);
        db.put(b"a", &large(1, 1, 90_000)).unwrap();
        sim.read_file(path(&segments(&sim)[0])).unwrap()
    };
    for damaged in [None, Some(&whole[..len - 1]), Some(&[][..]), Some(&header), Some(&footer), Some(&other)]
    {
        replace(damaged);
        let refuse = Options { damaged_files: DamagedFiles::Refuse, ..small() };
        refused(Db::open_in(env(&sim), DIR, refuse), ErrorKind::Corruption, &name);
        let copy = sim.fork(1);
        let db = open(&copy);
        assert_eq!(db.damaged_files()[0].file, name);
        db.put(b"b", &large(1, 2, 90_000)).unwrap();
        // Also in a table, and after a merge.
        for _ in 0..2 {
            refused(db.get(b"a"), ErrorKind::Corruption, &name);
            assert!(*db.get(b"b").unwrap().unwrap() == *large(1, 2, 90_000));
            db.compact_range(db.default_column_family(), None, None).unwrap();
        }
        db.put(b"a", b"short").unwrap();
        assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&b"short"[..]));
        assert!(db.close().is_ok());
    }
    replace(Some(&chunk));
    let db = open(&sim);
    refused(db.get(b"a"), ErrorKind::Corruption, &name);
    drop(db);
    replace(Some(&whole));
    let db = open(&sim);
    assert!(*db.get(b"a").unwrap().unwrap() == *large(1, 1, 90_000));
}

#[test]
fn a_full_disk_fails_the_write_and_leaves_nothing() {
    if skipped_on_lavafs(because::FAULTS) {
        return;
    }
    let sim = SimEnv::new(16);
    let db = open(&sim);
    db.put(b"a", b"before").unwrap();
    for nth in 0..6 {
        sim.inject(FaultPlan::nth(nth, FaultEffect::NoSpace).kinds(&[OpKind::Append]).path(".vsst"));
        let result = db.put(b"a", &large(1, 1, 400_000));
        sim.clear_faults();
        match result {
            Ok(()) => assert!(*db.get(b"a").unwrap().unwrap() == *large(1, 1, 400_000)),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
                assert_eq!(segments(&sim).len(), 0);
                assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&b"before"[..]));
            }
        }
    }
}

/// Crashes all over a run with large values: the store opens, acknowledged values exist, existing
/// values are complete, and no file is left over.
#[test]
fn crashes_lose_no_large_value_and_leave_no_files() {
    for seed in 0..3 {
        let sim = SimEnv::new(20 + seed);
        let db = open(&sim);
        let mut rng = lavastore_lavakv::io::Rng::new(seed);
        let mut run = CrashRun::new(seed, &sim);
        for round in 0..24 {
            let (i, durable) = (rng.below(4), rng.below(2) == 0);
            let v = large(i, round, if rng.below(4) == 0 { 300 } else { 35_000 + 10_000 * i as usize });
            run.put(durable, (key(i), v), |k, v, how| db.put_opt(db.default_column_family(), k, v, how));
            if rng.below(6) == 0 {
                db.flush().unwrap();
            }
            while rng.below(3) > 0 && db.run_background_step() {}
        }
        let kinds = [CrashKind::ProcessKill, CrashKind::PowerLoss];
        run.crash_all_over(&kinds, 12, &mut rng, |after, at, kind, _| check_crash(&run, after, at, kind));
    }
}

fn check_crash(run: &CrashRun, after: &SimEnv, at: u64, kind: CrashKind) -> lavastore_lavakv::Result<()> {
    let db = try_open(after)?;
    let found = try_contents(&db, db.default_column_family())?;
    run.assert_explains(at, kind, &found);
    db.compact_range(db.default_column_family(), None, None)?;
    settle(&db);
    let over = found.values().filter(|v| v.len() > ORDINARY_MAX).count();
    assert_eq!(segments(after).len(), over, "files left over");
    assert!(db.verify()?.errors.is_empty());
    Ok(())
}

/// Values in files of their own do not count towards the limit of a batch: 20 MB of them are one
/// atomic batch. Logged bytes do count, and a refused batch leaves nothing.
#[test]
fn only_logged_bytes_count_toward_the_batch_limit() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let mut batch = WriteBatch::new();
    for i in 0..40 {
        batch.put(&key(i), &large(i, 1, 500_000));
        batch.put(&key(100 + i), b"short");
    }
    let sim = SimEnv::new(3);
    let db = open(&sim);
    let begun = sim.op_count();
    db.write_opt(&batch, &WriteOptions::durable()).unwrap();
    let (acknowledged, record) = (sim.op_count(), sim.record());
    for nth in 0..=12 {
        // The power fails during the write, and at its acknowledgement.
        let after = record.crash_at(begun + (acknowledged - begun) * nth / 12, CrashKind::PowerLoss, nth);
        let db = open(&after);
        let found = (0..40)
            .filter(|i| db.get(&key(*i)).unwrap().is_some_and(|v| *v == *large(*i, 1, 500_000)))
            .count();
        let short = (100..140).filter(|i| db.get(&key(*i)).unwrap().is_some()).count();
        assert!(found == short && (found == 40 || found == 0 && nth < 12), "{nth}: {found}, {short}");
        assert_eq!(segments(&after).len(), found, "{nth}: nothing is left of what was not logged");
    }
    let sim = SimEnv::new(99);
    let db = open(&sim);
    batch.clear();
    batch.put(b"long", &large(1, 1, 500_000));
    for i in 0..700 {
        batch.put(&key(i), &large(i, 2, 30_000));
    }
    let before = sim.op_count();
    fails(db.write(&batch), ErrorKind::TooLarge);
    assert_eq!((sim.op_count(), segments(&sim).len()), (before, 0));
}

/// A batch accepts values of any length that a put accepts, and stays atomic.
#[test]
fn a_batch_takes_values_as_long_as_a_put_does() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let value = large(1, 1, (16 << 20) + 1);
    let mut batch = WriteBatch::new();
    batch.put(b"before", b"short");
    batch.put(b"long", &value);
    batch.put(b"after", b"short");
    let sim = SimEnv::new(31);
    let db = open(&sim);
    let begun = sim.op_count();
    db.write_opt(&batch, &WriteOptions::durable()).unwrap();
    let (acknowledged, record) = (sim.op_count(), sim.record());
    for nth in 0..=6 {
        let after = record.crash_at(begun + (acknowledged - begun) * nth / 6, CrashKind::PowerLoss, nth);
        let db = open(&after);
        let there = |key: &[u8]| db.get(key).unwrap().is_some();
        let all = [there(b"before"), db.get(b"long").unwrap().is_some_and(|v| *v == *value), there(b"after")];
        assert!(all == [true; 3] || all == [false; 3] && nth < 6, "{nth}: {all:?}");
        assert_eq!(segments(&after).len(), usize::from(all[1]), "{nth}");
    }
    let gigabyte = vec![0; (1 << 30) + 1];
    batch.put(b"too long", &gigabyte);
    fails(db.write(&batch), ErrorKind::TooLarge);
}
