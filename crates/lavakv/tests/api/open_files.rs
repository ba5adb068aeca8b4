//! Stores with more files than the process may have open: every operation works.

use crate::common::*;
use lavastore_lavakv::sim::{CrashKind, SimEnv};
use lavastore_lavakv::{Compression, Db, ErrorKind, Event, EventListener, FamilyOptions, Options};
use repair::RepairOptions;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Most open files.
const OPEN_MAX: u64 = 100;
/// Fewest files of either kind.
const FILES_MIN: usize = 110;

fn few() -> Options {
    let family = FamilyOptions { min_blob_size: 64, compression: Compression::None, ..small_family() }
        .expert(|expert| {
            expert.file_bytes = 8 << 10;
            expert.vsst_bytes = 8 << 10;
        });
    Options { open_files_max: 16, family, ..small() }
}

fn made(sim: &SimEnv) -> Model {
    let db = Db::open_in(env(sim), DIR, few()).unwrap();
    let mut model = Model::new();
    for i in 0..40_000 {
        let value = if i % 2 == 0 { value(i, 1) } else { vec![b'k'; 60] };
        db.put(&key(i), &value).unwrap();
        model.insert(key(i), value);
    }
    db.flush().unwrap();
    db.close().unwrap();
    let count = |end: &str| files(sim).iter().filter(|(name, _)| name.ends_with(end)).count();
    let counts = [".ksst", ".vsst"].map(count);
    assert!(counts.iter().all(|n| *n > FILES_MIN), "{counts:?}");
    model
}

#[test]
fn a_store_larger_than_the_descriptor_limit_is_usable() {
    let sim = SimEnv::new(3);
    sim.set_open_max(Some(OPEN_MAX));
    let model = made(&sim);
    let db = Db::open_in(env(&sim), DIR, few()).unwrap();
    assert!(contents(&db) == model);
    assert!(db.verify().unwrap().errors.is_empty());
    db.checkpoint("/copy").unwrap();
    db.compact_range(db.default_column_family(), None, None).unwrap();
    db.close().unwrap();
    let copy = Db::open_in(env(&sim), "/copy", few()).unwrap();
    assert!(contents(&copy) == model);
}

#[test]
fn a_store_larger_than_the_descriptor_limit_is_repaired() {
    let sim = SimEnv::new(4);
    let model = made(&sim);
    for lost in [None, Some("CURRENT"), Some("MANIFEST")] {
        for dry_run in [true, false] {
            let sim = sim.crash(CrashKind::ProcessKill, 1);
            for (name, _) in files(&sim) {
                if lost.is_some_and(|lost| name.starts_with(lost)) {
                    env(&sim).fs.remove(&Path::new(DIR).join(&name)).unwrap();
                }
            }
            sim.set_open_max(Some(OPEN_MAX));
            let options = RepairOptions { options: few(), dry_run, ..Default::default() };
            let report = repair::repair_in(&env(&sim), DIR, &env(&sim), "/new", &options).unwrap();
            assert!(report.lost.is_empty(), "{lost:?}: {report:?}");
            assert_eq!(sim.open_now(), 0);
            if !dry_run {
                assert!(contents(&Db::open_in(env(&sim), "/new", few()).unwrap()) == model);
            }
        }
    }
}

/// The default number of open files, which exceeds the process's limit.
fn many() -> Options {
    let family = FamilyOptions { min_blob_size: 512, compression: Compression::None, ..small_family() }
        .expert(|expert| {
            expert.file_bytes = 8 << 10;
            expert.vsst_bytes = 8 << 10;
        });
    let open_files_max = Options::default().open_files_max;
    Options { open_files_max, family, ..small() }
}

/// Writes a store of about 2,000 files.
fn made_of_two_thousand_files(sim: &SimEnv) -> Model {
    let db = Db::open_in(env(sim), DIR, many()).unwrap();
    let mut model = Model::new();
    for i in 0..24_000 {
        let len = if i % 9 == 0 { 4000 } else { 460 };
        let value = vec![i as u8; len];
        db.put(&key(i), &value).unwrap();
        model.insert(key(i), value);
    }
    db.flush().unwrap();
    db.close().unwrap();
    let is_data = |name: &str| name.ends_with(".ksst") || name.ends_with(".vsst");
    let count = files(sim).iter().filter(|(name, _)| is_data(name)).count();
    assert!(count >= 1_800, "{count} files");
    model
}

fn work(sim: &SimEnv, model: &mut Model) {
    let db = Db::open_in(env(sim), DIR, many()).unwrap();
    assert!(contents(&db) == *model);
    for i in (0..24_000).step_by(7) {
        assert_eq!(db.get(&key(i)).unwrap().as_deref(), model.get(&key(i)).map(Vec::as_slice));
    }
    for i in (0..24_000).step_by(31) {
        db.put(&key(i), b"again").unwrap();
        model.insert(key(i), b"again".to_vec());
    }
    assert!(db.verify().unwrap().errors.is_empty());
    db.checkpoint("/copy").unwrap();
    db.compact_range(db.default_column_family(), None, None).unwrap();
    db.close().unwrap();
    for dir in [DIR, "/copy"] {
        assert!(contents(&Db::open_in(env(sim), dir, many()).unwrap()) == *model);
        assert!(contents(&Db::open_read_only_in(env(sim), dir, many()).unwrap()) == *model);
    }
}

#[test]
fn a_store_of_2000_files_works_with_64_descriptors() {
    let sim = SimEnv::new(5);
    sim.set_open_max(Some(64));
    let mut model = made_of_two_thousand_files(&sim);
    work(&sim, &mut model);
}

#[test]
fn half_of_the_descriptors_are_left_to_the_process() {
    let sim = SimEnv::new(6);
    sim.set_open_max(Some(1024));
    let mut model = made_of_two_thousand_files(&sim);
    work(&sim, &mut model);
    let peak = sim.take_open_peak();
    assert!(peak <= 512, "{peak} files were open");
}

#[test]
fn idle_files_are_closed_when_descriptors_run_out() {
    if skipped_on_lavafs(because::DESCRIPTORS) {
        return;
    }
    let sim = SimEnv::new(7);
    let model = made_of_two_thousand_files(&sim);
    sim.set_open_max(Some(1024));
    let db = Db::open_in(env(&sim), DIR, many()).unwrap();
    assert!(contents(&db) == model);
    // The program takes all remaining descriptors.
    let fs = sim.env().fs;
    let open = || fs.open(&Path::new(DIR).join("CURRENT"), lavastore_lavakv::Access::Buffered).ok();
    let taken: Vec<Arc<_>> = std::iter::from_fn(open).collect();
    assert!(taken.len() >= 512, "{}", taken.len());
    assert!(contents(&db) == model);
    db.put(b"key", b"value").unwrap();
    db.flush().unwrap();
    assert!(db.verify().unwrap().errors.is_empty());
    db.close().unwrap();
}

/// Records the events that report a lower bound on open files.
#[derive(Debug, Default)]
struct Bounds(Mutex<Vec<(usize, usize, u64)>>);

impl EventListener for Bounds {
    fn event(&self, event: &Event) {
        if let Event::OpenFilesBounded { asked, allowed, limit } = event {
            self.0.lock().unwrap().push((*asked, *allowed, *limit));
        }
    }
}

#[test]
fn a_reduced_open_file_limit_is_reported_once() {
    if skipped_on_lavafs(because::DESCRIPTORS) {
        return;
    }
    for (limit, told) in [(None, vec![]), (Some(10_000), vec![]), (Some(1024), vec![(4096, 496, 1024)])] {
        let (sim, bounds) = (SimEnv::new(8), Arc::<Bounds>::default());
        sim.set_open_max(limit);
        let db = Db::open_in(env(&sim), DIR, Options { listener: Some(bounds.clone()), ..many() }).unwrap();
        db.put(b"key", b"value").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        assert_eq!(*bounds.0.lock().unwrap(), told, "{limit:?}");
    }
}

/// The writer may remove a file that a reader without enough descriptors has closed.
#[test]
fn a_reader_short_of_descriptors_reports_a_removed_file() {
    if skipped_on_lavafs(because::DESCRIPTORS) {
        return;
    }
    let sim = SimEnv::new(9);
    let model = made_of_two_thousand_files(&sim);
    sim.set_open_max(Some(64));
    let bounds = Arc::<Bounds>::default();
    let reader =
        Db::open_read_only_in(env(&sim), DIR, Options { listener: Some(bounds.clone()), ..many() }).unwrap();
    assert_eq!(bounds.0.lock().unwrap().len(), 1);
    assert!(contents(&reader) == model);
    let writer = Db::open_in(env(&sim), DIR, many()).unwrap();
    writer.delete_range(&key(0), &key(24_000)).unwrap();
    writer.flush().unwrap();
    writer.compact_range(writer.default_column_family(), None, None).unwrap();
    settle(&writer);
    let e = (0..24_000).find_map(|i| reader.get(&key(i)).err()).unwrap();
    assert_eq!(e.kind(), ErrorKind::Busy, "{e}");
    assert!(e.to_string().contains("ulimit -n") && e.file().is_some(), "{e}");
}
