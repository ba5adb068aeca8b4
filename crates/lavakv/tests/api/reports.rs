//! Statistics, the space ledger, verify and describe.

use crate::common::*;
use lavastore_lavakv::{Db, ReadOptions, sim::SimEnv};

#[test]
fn statistics_agree_with_the_workload() {
    let sim = SimEnv::new(1);
    let (db, mut model) = (open(&sim), Model::new());
    fill(&db, &mut model, 0..2000, 0);
    fill(&db, &mut model, 0..1000, 1);
    db.flush().unwrap();
    settle(&db);
    let user: u64 = (0..2000).chain(0..1000).map(|i| (key(i).len() + value(i, 0).len()) as u64).sum();
    let s = db.stats();
    assert_eq!((s.write_batches, s.write_entries, s.user_bytes_written), (3000, 3000, user));
    assert!(s.wal_bytes_written > user && s.wal_bytes_written < 3 * user, "{s:?}");
    assert!(s.flushes > 3 && s.flush_bytes_written > user / 2 && s.flush_bytes_written < 2 * user, "{s:?}");
    assert!(s.compactions > 0 && s.compaction_moves <= s.compactions, "{s:?}");
    assert!(s.compaction_bytes_read >= s.compaction_bytes_written / 2, "{s:?}");
    assert!(s.manifest_bytes_written > 0 && s.files_removed > 0, "{s:?}");
    assert_eq!((s.gets, s.iterators, s.background_errors, s.listener_panics), (0, 0, 0, 0), "{s:?}");
    for i in 0..2000 {
        assert!(db.get(&key(i)).unwrap().is_some());
    }
    for i in 0..500 {
        assert!(db.get(&[&key(i)[..], b"x"].concat()).unwrap().is_none());
    }
    drop(db.iter(ReadOptions::default()).unwrap());
    db.put(b"fresh", b"1").unwrap();
    db.get(b"fresh").unwrap();
    let s = db.stats();
    assert_eq!((s.gets, s.gets_found, s.gets_memtable, s.iterators), (2501, 2001, 1, 1));
    let kinds = s.get_index_reads + s.get_filter_reads + s.get_data_reads;
    assert!(s.get_device_reads > 0 && kinds <= s.get_device_reads, "{s:?}");
    assert!(s.get_device_bytes > 0 && s.get_filter_negatives > 0, "{s:?}");
    drop(db);
    assert_eq!(open(&sim).stats().write_batches, 0, "counted since the store was opened");
}

#[test]
fn the_ledger_adds_up() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = SimEnv::new(2);
    let (db, mut model) = (open(&sim), Model::new());
    let listed = || env(&sim).fs.list(DIR.as_ref()).unwrap().iter().map(|e| e.allocated).sum();
    ledger_adds_up(&db, listed());
    let mut iterator = None;
    for round in 0..6 {
        for part in 0..10 {
            fill(&db, &mut model, part * 150..part * 150 + 150, round);
            ledger_adds_up(&db, listed());
            db.run_background_step();
            ledger_adds_up(&db, listed());
        }
        if round == 2 {
            iterator = Some(db.iter(ReadOptions::default()).unwrap());
        }
    }
    sim.write_file("/store/stranger", &[1; 5000]).unwrap();
    let space = ledger_adds_up(&db, listed());
    assert!(space.pinned_bytes > 0 && space.other_bytes >= 5000 && space.wal_bytes > 0, "{space:?}");
    drop(iterator);
    settle(&db);
    let space = ledger_adds_up(&db, listed());
    assert_eq!((space.pinned_bytes, space.job_bytes), (0, 0), "{space:?}");
    assert!(space.live_bytes_min > 0 && space.live_bytes_min <= 2 * space.table_bytes, "{space:?}");
}

#[test]
fn the_ledger_adds_up_on_the_machine() {
    let tmp = TempDir::new("ledger");
    let (db, mut model) = (Db::open_with(tmp.path(), small()).unwrap(), Model::new());
    for round in 0..3 {
        fill(&db, &mut model, 0..2000, round);
    }
    db.flush().unwrap();
    settle(&db);
    use std::os::unix::fs::MetadataExt;
    let blocks = |e: std::io::Result<std::fs::DirEntry>| e.unwrap().metadata().unwrap().blocks() * 512;
    let listed = std::fs::read_dir(tmp.path()).unwrap().map(blocks).sum();
    let space = ledger_adds_up(&db, listed);
    assert!(space.available_bytes > 0);
}

/// Damage during operation: `verify` names the table, and everything else stays readable.
#[test]
fn verify_finds_damage_under_a_running_store() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = SimEnv::new(3);
    let (db, mut model) = (open(&sim), Model::new());
    fill(&db, &mut model, 0..3000, 0);
    db.flush().unwrap();
    settle(&db);
    let sound = db.verify().unwrap();
    assert!(sound.errors.is_empty() && sound.entries == 3000, "{sound:?}");
    assert_eq!(sound.files as usize, files_like(&sim, ".ksst").len());
    let on_disk: u64 = files(&sim).iter().filter(|(n, _)| n.ends_with(".ksst")).map(|(_, len)| len).sum();
    assert_eq!(sound.bytes, on_disk, "every byte is checked");
    let tables = files_like(&sim, ".ksst");
    let victims = [&tables[0], &tables[tables.len() / 2]];
    for name in victims {
        sim.flip_bit(path(name), 777, 2).unwrap();
    }
    let report = db.verify().unwrap();
    let mut named: Vec<String> = report
        .errors
        .iter()
        .map(|e| e.file().unwrap().file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    named.sort();
    assert_eq!(named, victims.map(|v| v.to_string()), "{:?}", report.errors);
    assert!(report.errors.iter().all(|e| e.is_corruption() && e.offset().is_some()), "{:?}", report.errors);
    let readable = model.iter().filter(|(k, v)| match db.get(k) {
        Ok(got) => {
            assert_eq!(got.as_deref(), Some(&v[..]));
            true
        }
        Err(e) => {
            assert!(e.is_corruption());
            false
        }
    });
    let readable = readable.count();
    assert!(readable >= model.len() - 400, "{readable}");
}

#[test]
fn describe_and_debug_list_families_and_files() {
    let sim = SimEnv::new(4);
    let (db, mut model) = (open(&sim), Model::new());
    fill(&db, &mut model, 0..500, 0);
    db.create_column_family("other", small_family()).unwrap();
    db.flush().unwrap();
    let text = db.describe();
    assert!(
        text.contains("family default") && text.contains("family other") && text.contains("files"),
        "{text}"
    );
    assert!(format!("{db:?}").contains("/store"));
    assert!(format!("{:?}", db.snapshot()).contains("500"));
    let _: &Db = &db.clone();
}

/// `dump` describes each kind of file.
#[test]
fn every_file_can_be_dumped() {
    let sim = SimEnv::new(5);
    let (db, mut model) = (open(&sim), Model::new());
    fill(&db, &mut model, 0..500, 0);
    db.flush().unwrap();
    fill(&db, &mut model, 500..510, 0);
    db.close().unwrap();
    for (name, _) in files(&sim) {
        let mut text = String::new();
        let dumped = lavastore_lavakv::dump::dump(&env(&sim), &path(&name), true, &mut text);
        if name == "LOCK" || name == "STAGING" {
            assert!(dumped.is_err());
        } else {
            dumped.unwrap();
            assert!(text.len() > 20, "{name}: {text}");
        }
    }
}

/// `verify` continues after each damage: it lists every damaged block, and counts the rest as
/// checked.
#[test]
fn verify_lists_all_damage_of_a_file() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    for kind in [".ksst", ".vsst"] {
        let sim = SimEnv::new(5);
        let db = open(&sim);
        (0..400u32).for_each(|n| {
            let long = vec![n as u8; if kind == ".vsst" { 3000 } else { 90 }];
            db.put(format!("key {n:05}").as_bytes(), &long).unwrap();
        });
        db.flush().unwrap();
        db.compact_range(db.default_column_family(), None, None).unwrap();
        settle(&db);
        let sound = db.verify().unwrap();
        let parts = |report: &lavastore_lavakv::VerifyReport| match kind {
            ".vsst" => report.checked.records.count,
            _ => report.checked.blocks.count,
        };
        let longest = |names: Vec<String>| {
            let len = |name: &String| files(&sim).iter().find(|(n, _)| n == name).map(|(_, len)| *len);
            names.into_iter().max_by_key(len).unwrap()
        };
        let victim = longest(files_like(&sim, kind));
        // Far enough apart to be in different blocks.
        let places = [1000, 12_000, 23_000];
        places.iter().for_each(|at| sim.flip_bit(path(&victim), *at, 1).unwrap());
        let report = db.verify().unwrap();
        let found: Vec<_> = report.errors.iter().map(|e| e.offset().unwrap()).collect();
        assert_eq!(found.len(), places.len(), "{kind}: {:?}", report.errors);
        assert!(found.iter().zip(places).all(|(found, at)| *found <= at && at - found < 8192), "{found:?}");
        assert_eq!(parts(&report), parts(&sound) - places.len() as u64, "{kind}: the rest is checked");
    }
}
