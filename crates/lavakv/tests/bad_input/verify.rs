//! `verify` and the scrub check all files that are read, and report the checked amounts. Damage in
//! an open store is reported, and repaired from memory where possible.

use crate::common::*;
use lavastore_lavakv::io::Rng;
use lavastore_lavakv::sim::SimEnv;
use lavastore_lavakv::{
    CheckedCount, Db, Event, EventListener, FamilyOptions, Options, VerifyReport, WriteOptions,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

#[derive(Default)]
struct Events(Mutex<Vec<Event>>);

impl EventListener for Events {
    fn event(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Events {
    fn of_the_log(&self) -> usize {
        self.0.lock().unwrap().iter().filter(|event| matches!(event, Event::LogDamaged { .. })).count()
    }

    fn set_aside(&self) -> Vec<String> {
        let all = self.0.lock().unwrap();
        let name = |event: &Event| match event {
            Event::FileSetAside { file } => Some(file.file.clone()),
            _ => None,
        };
        all.iter().filter_map(name).collect()
    }
}

fn options(events: &Arc<Events>) -> Options {
    Options {
        family: FamilyOptions { min_blob_size: 200, ..small_family() },
        memtable_bytes: 1 << 20,
        memory_bytes: 3 << 20,
        listener: Some(events.clone()),
        ..small()
    }
}

fn long(i: u64, len: usize) -> Vec<u8> {
    let mut value = vec![0; len];
    Rng::new(i).fill(&mut value);
    value
}

/// A store with tables, value files, and in the log alone values of all lengths and a segment.
fn store(seed: u64) -> (SimEnv, Db, Model, Arc<Events>) {
    let (sim, events) = (SimEnv::new(seed), Arc::new(Events::default()));
    let db = Db::open_in(env(&sim), DIR, options(&events)).unwrap();
    let mut model = Model::new();
    fill(&db, &mut model, 0..300, 0);
    let mut put = |i: u64, len: usize, durable: bool| {
        let value = long(i, len);
        let options = if durable { WriteOptions::durable() } else { WriteOptions::buffered() };
        db.put_opt(db.default_column_family(), &key(i), &value, &options).unwrap();
        model.insert(key(i), value);
    };
    (300..350).for_each(|i| put(i, 700, false));
    db.flush().unwrap();
    settle(&db);
    (350..390).for_each(|i| put(i, 900, i % 2 == 0));
    put(390, 100_000, true);
    (391..400).for_each(|i| put(i, 40, true));
    (400..405).for_each(|i| put(i, 40, false));
    (sim, db, model, events)
}

fn is_sound(db: &Db) -> VerifyReport {
    let report = db.verify().unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    report
}

#[test]
fn verify_reports_counts_and_bytes_by_file_kind() {
    let (sim, db, _, _) = store(1);
    let report = is_sound(&db);
    let len_of =
        |part: &str| files(&sim).iter().filter(|(n, _)| n.ends_with(part)).map(|(_, len)| len).sum::<u64>();
    let tables = files_like(&sim, ".ksst").len() as u64;
    assert_eq!(report.checked.tables, CheckedCount { count: tables, bytes: len_of(".ksst") });
    assert!(report.checked.blocks.count > 10 && report.checked.records.count >= 50, "{report:?}");
    // One in a version, and a segment.
    assert_eq!(files_like(&sim, ".vsst").len(), 2);
    assert_eq!(report.checked.value_files.count, 1);
    assert_eq!(report.files, report.checked.tables.count + report.checked.value_files.count);
    assert_eq!(report.checked.log_values.count, 1, "{report:?}");
    assert!(report.checked.log_values.bytes > 100_000);
    assert!(report.checked.log_pages.count > 5 && report.checked.log_batches.count >= 55, "{report:?}");
    assert_eq!(report.checked.staged_pages.count, 1, "{report:?}");
    assert!(report.checked.manifest_edits.count > 1 && report.checked.manifest_edits.bytes > 100);
    db.close().unwrap();
    let copy = Db::open_read_only_in(env(&sim), DIR, small()).unwrap();
    let closed = is_sound(&copy).checked;
    assert_eq!(closed.staged_pages, CheckedCount::default(), "it was closed");
    assert!(closed.log_pages.count >= report.checked.log_pages.count, "{closed:?}");
    assert_eq!(closed.log_values, report.checked.log_values);
}

#[test]
fn verify_covers_staged_pages_of_a_killed_store() {
    let (sim, db, model, _) = store(2);
    let killed = sim.crash(lavastore_lavakv::sim::CrashKind::ProcessKill, 1);
    std::mem::forget(db);
    let copy = Db::open_read_only_in(env(&killed), DIR, small()).unwrap();
    let report = is_sound(&copy);
    assert!(report.checked.staged_pages.count > 0 && report.checked.log_values.count == 1, "{report:?}");
    assert!(contents(&copy) == model);
}

#[test]
fn log_damage_in_a_running_store_triggers_a_flush() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let mut found = 0;
    for (nth, page) in (0..3).flat_map(|nth| (0..6).map(move |page| (nth, page))) {
        let (sim, db, model, events) = store(3);
        let Some(log) = files_like(&sim, ".log").get(nth).cloned() else { continue };
        sim.flip_bit(path(&log), page * 4096 + 100 + page, 1).unwrap();
        let report = db.verify().unwrap();
        // Not every page of every file is in use.
        let [error] = &report.errors[..] else { continue };
        found += 1;
        assert!(error.is_corruption() && error.file() == Some(&*path(&log)), "{error}");
        assert_eq!(error.offset(), Some(page * 4096));
        assert_eq!((events.of_the_log(), db.stats().log_damages), (1, 1));
        settle(&db);
        assert!(contents(&db) == model);
        assert!(db.stats().flushes >= 2, "what the page held is in tables");
    }
    assert!(found >= 5, "{found}");
}

#[test]
fn a_damaged_segment_referenced_by_the_log_is_quarantined() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let (sim, db, model, events) = store(5);
    let segment = files_like(&sim, ".vsst")[1].clone();
    sim.flip_bit(path(&segment), 50_000, 1).unwrap();
    let report = db.verify().unwrap();
    assert_eq!(report.errors.len(), 1, "{:?}", report.errors);
    assert_eq!(events.set_aside(), [segment]);
    assert!(db.get(&key(390)).unwrap_err().is_corruption());
    let others = model.iter().filter(|(k, _)| **k != key(390));
    assert!(others.into_iter().all(|(k, v)| db.get(k).unwrap().as_deref() == Some(v)));
}

#[test]
fn a_damaged_manifest_is_rewritten() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let (sim, db, model, events) = store(6);
    let manifest = files_like(&sim, "MANIFEST").pop().unwrap();
    sim.flip_bit(path(&manifest), 100, 1).unwrap();
    let report = db.verify().unwrap();
    assert_eq!((report.errors.len(), events.of_the_log()), (1, 1), "{:?}", report.errors);
    is_sound(&db);
    db.close().unwrap();
    let db = Db::open_in(env(&sim), DIR, small()).unwrap();
    assert!(contents(&db) == model);
}

/// Runs background work for `seconds` of simulated time.
fn pass(sim: &SimEnv, db: &Db, seconds: u64) {
    let end_ns = sim.now_ns() + seconds * 1_000_000_000;
    while sim.now_ns() < end_ns {
        if !db.run_background_step() {
            sim.advance_ns(100_000_000);
        }
    }
}

#[test]
fn a_scrub_reads_every_file_at_its_rate() {
    let (sim, events) = (SimEnv::new(7), Arc::new(Events::default()));
    let rate = 64 << 10;
    let scrubbed = || options(&events).expert(|expert| expert.scrub_bytes_per_s = rate);
    let db = Db::open_in(env(&sim), DIR, scrubbed().expert(|expert| expert.scrub_bytes_per_s = 0)).unwrap();
    let mut model = Model::new();
    fill(&db, &mut model, 0..6000, 0);
    db.flush().unwrap();
    settle(&db);
    pass(&sim, &db, 100);
    assert_eq!((db.stats().scrub_bytes, db.stats().scrub_passes), (0, 0), "it is off by default");
    let bytes: u64 = db.verify().unwrap().bytes;
    assert!(bytes > 5 * rate, "{bytes}");
    db.close().unwrap();

    let db = Db::open_in(env(&sim), DIR, scrubbed()).unwrap();
    let start_ns = sim.now_ns();
    let mut left = 0;
    while db.stats().scrub_passes == 0 {
        pass(&sim, &db, 1);
        let seconds = (sim.now_ns() - start_ns) as f64 / 1e9;
        let read = db.stats().scrub_bytes as f64;
        // The pause for the last read is still to come.
        assert!(read <= rate as f64 * seconds + (600 << 10) as f64, "{read} bytes in {seconds} s");
        left = left.max(db.stats().scrub_files_left);
        assert!(seconds < 600.0);
    }
    assert!(left > 0 && db.stats().scrub_bytes >= bytes, "{:?}", db.stats());
    settle(&db);
    let after = db.stats().scrub_bytes;
    assert!(!db.run_background_step(), "a pass ends, and nothing is left to do");
    pass(&sim, &db, 50);
    assert_eq!(db.stats().scrub_bytes, after, "a pause");
    pass(&sim, &db, 300);
    assert!(db.stats().scrub_passes >= 2, "and the next one");
    db.close().unwrap();
    let db = Db::open_in(env(&sim), DIR, scrubbed()).unwrap();
    pass(&sim, &db, 2);
    assert!(db.stats().scrub_files_left > 0, "a restart begins anew");
}

#[test]
fn a_scrub_reports_damage_and_stops_no_work() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let (sim, events) = (SimEnv::new(8), Arc::new(Events::default()));
    let scrubbed = options(&events).expert(|expert| expert.scrub_bytes_per_s = 1 << 30);
    let db = Db::open_in(env(&sim), DIR, scrubbed).unwrap();
    let mut model = Model::new();
    fill(&db, &mut model, 0..6000, 0);
    db.flush().unwrap();
    settle(&db);
    pass(&sim, &db, 1);
    assert_eq!((db.stats().scrub_passes, db.stats().scrub_damages), (1, 0));
    let table = files_like(&sim, ".ksst")[0].clone();
    sim.flip_bit(path(&table), 777, 2).unwrap();
    pass(&sim, &db, 70);
    assert_eq!(events.set_aside(), std::slice::from_ref(&table));
    assert!(db.stats().scrub_damages >= 1 && db.damaged_files()[0].file == table);
    assert!(db.metrics().unwrap().contains("lavastore_scrub_damages_total"));
    fill(&db, &mut model, 6000..7000, 1);
    db.flush().unwrap();
}

/// With threads: a scrub runs beside other work in a store with one background thread.
#[test]
fn a_scrub_runs_beside_other_work_on_one_thread() {
    let tmp = TempDir::new("scrub");
    let options =
        Options { background_threads: 1, ..small() }.expert(|expert| expert.scrub_bytes_per_s = 64 << 10);
    let (db, mut model) = (Db::open_with(tmp.path(), options).unwrap(), Model::new());
    for round in 0..5 {
        fill(&db, &mut model, 0..3000, round);
        db.flush().unwrap();
    }
    settle(&db);
    assert!(db.stats().compactions > 0 && contents(&db) == model);
    db.close().unwrap();
}

/// Blocks the scrub at the damage of the log until it is released.
#[derive(Default)]
struct Stop(Mutex<(bool, bool)>, Condvar);

impl EventListener for Stop {
    fn event(&self, event: &Event) {
        if matches!(event, Event::LogDamaged { .. }) {
            let mut state = self.0.lock().unwrap();
            state.0 = true;
            self.1.notify_all();
            drop(self.1.wait_while(state, |(_, may_go)| !*may_go).unwrap());
        }
    }
}

/// A scrub that finds the log damaged rotates the memtables, for which it needs the writer's lock.
/// A writer waits for memory, and so for the only background thread, which is scrubbing. The writer
/// must not hold the lock meanwhile.
#[test]
#[allow(clippy::disallowed_types, reason = "a hand outside damages a file that the engine has open")]
fn a_scrub_does_not_wait_for_a_writer_that_waits_for_its_thread() {
    let (tmp, stop) = (TempDir::new("scrub-waits"), Arc::new(Stop::default()));
    let dir = tmp.join("store");
    let options = Options { memtable_bytes: 256 << 10, memory_bytes: 1 << 20, ..small() };
    let db = Db::open_with(&dir, options.clone()).unwrap();
    (0..400).for_each(|i| db.put(&key(i), &long(i, 1000)).unwrap());
    db.flush().unwrap();
    db.close().unwrap();
    // The tables take the scrub two seconds, so that the log can be damaged before its turn.
    let db = Db::open_with(
        &dir,
        Options { background_threads: 1, listener: Some(stop.clone()), ..options }
            .expert(|expert| expert.scrub_bytes_per_s = 200_000),
    )
    .unwrap();
    db.put_opt(db.default_column_family(), b"logged", b"1", &WriteOptions::durable()).unwrap();
    for entry in std::fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        let is_log = path.extension().is_some_and(|e| e == "log");
        // Unneeded groups are removed meanwhile.
        let Ok(bytes) = std::fs::read(&path) else { continue };
        if let Ok(file) = std::fs::OpenOptions::new().write(true).open(&path)
            && is_log
            && bytes.starts_with(b"LWAL")
        {
            std::os::unix::fs::FileExt::write_all_at(&file, &[7; 4096], 0).unwrap();
        }
    }
    drop(stop.1.wait_while(stop.0.lock().unwrap(), |(met, _)| !*met).unwrap());
    let written = Arc::new(AtomicU64::new(0));
    let (done, ended) = mpsc::channel();
    let (writer, count) = (db.clone(), written.clone());
    std::thread::spawn(move || {
        for i in 0..4000 {
            let volatile = WriteOptions::volatile();
            writer.put_opt(writer.default_column_family(), &key(i), &long(i, 1000), &volatile).unwrap();
            count.fetch_add(1, Ordering::Relaxed);
        }
        drop(writer);
        done.send(()).unwrap();
    });
    // A writer that has stopped is waiting for memory. (If it is only slow, the test checks
    // nothing.)
    let mut last = 0;
    loop {
        std::thread::sleep(Duration::from_millis(500));
        if std::mem::replace(&mut last, written.load(Ordering::Relaxed)) == last {
            break;
        }
    }
    stop.0.lock().unwrap().1 = true;
    stop.1.notify_all();
    ended.recv_timeout(Duration::from_secs(60)).expect("the writer and the scrub wait for each other");
    assert_eq!(db.get(b"logged").unwrap().as_deref(), Some(&b"1"[..]));
}
