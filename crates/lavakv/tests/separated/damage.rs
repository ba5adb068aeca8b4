//! Damaged and missing value files.

use crate::common::*;
use crate::*;
use lavastore_lavakv::{DamagedFiles, Error, ErrorKind, Options};

/// A closed store with several value files, and short values between the long ones.
fn store(seed: u64) -> (SimEnv, Model) {
    let sim = SimEnv::new(seed);
    let (db, mut model) = (open_apart(&sim, 200), Model::new());
    fill_long(&db, &mut model, 0..150, 0, 600);
    fill_long(&db, &mut model, (0..150).step_by(3), 1, 50);
    db.flush().unwrap();
    settle(&db);
    db.close().unwrap();
    assert!(files_like(&sim, ".vsst").len() > 2);
    (sim, model)
}

/// True for damage, or for an unknown format where the damage is in the format number.
fn tells_damage(error: &Error, name: &str) -> bool {
    let kinds = [ErrorKind::Corruption, ErrorKind::Unsupported];
    kinds.contains(&error.kind()) && error.file().is_some_and(|file| file.ends_with(name))
}

/// Reads everything: each answer is right, or an error that names the file. Returns the number of
/// unreadable keys.
fn unreadable(db: &Db, model: &Model, name: &str) -> usize {
    let mut bad = 0;
    for (key, value) in model {
        match db.get(key) {
            Ok(got) => assert_eq!(got.as_deref(), Some(&value[..])),
            Err(e) => {
                bad += 1;
                assert!(tells_damage(&e, name), "{e}");
            }
        }
    }
    bad
}

#[test]
fn every_bit_flip_is_detected_and_other_values_are_readable() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let (sim, model) = store(1);
    let vssts = files_like(&sim, ".vsst");
    let files = vssts.len() + files_like(&sim, ".ksst").len();
    let name = &vssts[1];
    let len = sim.read_file(path(name)).unwrap().len() as u64;
    for at in (0..len).step_by(397).chain(len - 200..len) {
        let damaged = sim.fork(at);
        damaged.flip_bit(path(name), at, (at % 8) as u32).unwrap();
        let db = match Db::open_in(env(&damaged), DIR, apart(200)) {
            Ok(db) => db,
            Err(e) => {
                assert!(tells_damage(&e, name), "{e}");
                continue;
            }
        };
        let report = db.verify().unwrap();
        assert_eq!(report.errors.len(), 1, "flip at {at} of {len}: {:?}", report.errors);
        assert_eq!(report.files as usize, files);
        let error = &report.errors[0];
        assert!(tells_damage(error, name), "{error}");
        let bad = unreadable(&db, &model, name);
        assert!(bad < model.len() / 2, "flip at {at} of {len}: {bad} of {} keys", model.len());
        if let Err(e) = try_contents(&db, db.default_column_family()) {
            assert!(tells_damage(&e, name), "{e}");
        } else {
            assert_eq!(bad, 0, "flip at {at} of {len}: scans and gets disagree");
        }
    }
}

#[test]
fn a_missing_or_truncated_vsst_loses_only_its_values() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let (sim, model) = store(2);
    for name in files_like(&sim, ".vsst") {
        for (cut, open_len) in [(true, 100), (true, 0), (false, 0)] {
            let damaged = sim.fork(1);
            if cut {
                damaged.set_file_len(path(&name), open_len).unwrap();
            } else {
                damaged.erase(path(&name)).unwrap();
            }
            let refuse = |options| Options { damaged_files: DamagedFiles::Refuse, ..options };
            refused(Db::open_in(env(&damaged), DIR, refuse(apart(200))), ErrorKind::Corruption, &name);
            let open = Db::open_read_only_in(env(&damaged), DIR, refuse(apart(0)));
            refused(open, ErrorKind::Corruption, &name);
            let db = Db::open_read_only_in(env(&damaged), DIR, apart(0)).unwrap();
            let bad = unreadable(&db, &model, &name);
            assert!(bad > 0 && bad < model.len() / 2 && db.damaged_files()[0].file == name, "{bad}");
            drop(db);
            let db = Db::open_in(env(&damaged), DIR, apart(200)).unwrap();
            assert_eq!(unreadable(&db, &model, &name), bad);
            // Overwritten values disappear from the damaged file, and then the file does.
            let mut over = model.clone();
            fill_long(&db, &mut over, 0..150, 2, 600);
            db.compact_range(db.default_column_family(), None, None).unwrap();
            settle(&db);
            assert!(contents(&db) == over && db.damaged_files().is_empty(), "{:?}", db.damaged_files());
            assert!(!files_like(&damaged, ".vsst").contains(&name));
        }
    }
}

#[test]
fn exchanged_vssts_are_detected() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let (sim, model) = store(3);
    let vssts = files_like(&sim, ".vsst");
    sim.swap_files(path(&vssts[0]), path(&vssts[1])).unwrap();
    match Db::open_in(env(&sim), DIR, apart(200)) {
        Err(e) => assert!(e.is_corruption(), "{e}"),
        Ok(db) => {
            assert_eq!(db.verify().unwrap().errors.len(), 2);
            for (key, value) in &model {
                match db.get(key) {
                    Ok(got) => assert_eq!(got.as_deref(), Some(&value[..])),
                    Err(e) => assert!(e.is_corruption(), "{e}"),
                }
            }
        }
    }
}

/// A damaged record is not copied into a new file, where its checksum would be valid again.
#[test]
fn collection_never_copies_a_damaged_record() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let mut stopped = 0;
    for seed in 0..40 {
        let (sim, mut model) = store(10 + seed);
        let vssts = files_like(&sim, ".vsst");
        let name = &vssts[seed as usize % vssts.len()];
        let len = sim.read_file(path(name)).unwrap().len() as u64;
        sim.flip_bit(path(name), seed * 409 % (len * 3 / 4), 2).unwrap();
        let Ok(db) = Db::open_in(env(&sim), DIR, apart(200)) else { continue };
        // Most of every file becomes garbage, and collection has to read the rest.
        for i in (0..150).filter(|i| i % 4 != 0) {
            if db.put(&key(i), b"short").is_ok() {
                model.insert(key(i), b"short".to_vec());
            }
        }
        let compacted = db.compact_range(db.default_column_family(), None, None);
        db.wait_idle(std::time::Duration::from_secs(60));
        let bad = unreadable(&db, &model, name);
        let report = db.verify().unwrap();
        assert!(report.errors.iter().all(|e| e.file().unwrap().ends_with(name)), "{:?}", report.errors);
        if let Err(e) = compacted {
            assert!(matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Poisoned), "{e}");
        }
        let failed = db.stats().background_errors > 0;
        stopped += usize::from(failed);
        // Either the collection stopped at the damage, which is still visible, or the damage was in
        // garbage and is gone.
        assert_eq!(failed || bad > 0, !report.errors.is_empty(), "seed {seed}: {bad}, {:?}", report.errors);
        drop(db);
        match Db::open_in(env(&sim), DIR, apart(200)) {
            Ok(db) => assert_eq!(unreadable(&db, &model, name), bad),
            Err(e) => assert!(e.file().unwrap().ends_with(name), "{e}"),
        }
    }
    assert!(stopped > 3, "collection met the damage {stopped} times");
}

/// A collection queries each table that may use a name of its inputs, by the range of the table's
/// names. Files in the range of a damaged table are not collected, even unreferenced ones:
/// collecting them would fail again and again.
#[test]
fn collections_terminate_beside_a_damaged_table() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let family = apart_family(200).expert(|expert| {
        expert.vsst_bytes = 16 << 10;
        expert.file_bytes = 4 << 10;
        expert.level_base_bytes = 4 << 10;
    });
    let options = Options { family, ..apart(200) };
    let (mut kept, mut collected) = (0, 0);
    for seed in 0..6u64 {
        let (sim, mut rng, mut model) = (SimEnv::new(seed), Rng::new(seed), Model::new());
        let db = Db::open_in(env(&sim), DIR, options.clone()).unwrap();
        fill_long(&db, &mut model, 0..600, 0, 400);
        for round in 1..600 {
            let i = rng.below(600);
            fill_long(&db, &mut model, i..i + 1, round, 400);
        }
        db.flush().unwrap();
        settle(&db);
        db.close().unwrap();
        let tables = files_like(&sim, ".ksst");
        let name = &tables[seed as usize % tables.len()];
        sim.flip_bit(path(name), 100, 2).unwrap();
        let db = Db::open_in(env(&sim), DIR, options.clone()).unwrap();
        db.verify().unwrap();
        assert_eq!(db.damaged_files().len(), 1, "seed {seed}");
        for round in 600..1500 {
            let i = rng.below(600);
            fill_long(&db, &mut model, i..i + 1, round, 400);
        }
        db.flush().unwrap();
        let mut steps = 0;
        while db.run_background_step() {
            steps += 1;
            assert!(steps < 100_000, "seed {seed}: {}", db.describe());
        }
        let stats = db.stats();
        kept += u64::from(db.space().unwrap().garbage_bytes > 0);
        collected += u64::from(stats.gc_runs > 0);
        unreadable(&db, &model, name);
        db.close().unwrap();
    }
    assert!(kept > 0 && collected > 0, "{kept} {collected}");
}
