//! Missing and damaged files of each kind.

use crate::common::*;
use lavastore_lavakv::sim::{CrashKind, FaultEffect, FaultPlan, OpKind, SimEnv};
use lavastore_lavakv::{DamagedFiles, Db, Error, ErrorKind, Options, ReadOptions};

/// A cleanly closed store with several tables and a log, and its contents.
fn store(seed: u64) -> (SimEnv, Model) {
    let sim = SimEnv::new(seed);
    let (db, mut model) = (open(&sim), Model::new());
    fill(&db, &mut model, 0..2000, 0);
    db.flush().unwrap();
    settle(&db);
    fill(&db, &mut model, 2000..2100, 0);
    settle(&db);
    db.close().unwrap();
    (sim, model)
}

fn refused_both_ways(sim: &SimEnv, file: &str) {
    refused(try_open(sim), ErrorKind::Corruption, file);
    let strict = Options { damaged_files: DamagedFiles::Refuse, ..small() };
    refused(Db::open_read_only_in(env(sim), DIR, strict), ErrorKind::Corruption, file);
    // A read-only store shows the state before the damage, if there is any, and reports it.
    match Db::open_read_only_in(env(sim), DIR, small()) {
        Ok(db) => {
            let names = |e: &lavastore_lavakv::Error| e.file().is_some_and(|f| f.ends_with(file));
            assert!(db.damage().iter().any(names), "{file}: {:?}", db.damage());
        }
        refusal => refused(refusal, ErrorKind::Corruption, file),
    }
}

/// Returns the log groups with pages.
fn written_groups(sim: &SimEnv) -> Vec<String> {
    let mut names = files_like(sim, ".log");
    names.retain(|n| sim.read_file(path(n)).unwrap().starts_with(b"LWAL"));
    names
}

#[test]
fn a_missing_current_refuses_writing_and_allows_reading() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let (sim, model) = store(1);
    let bytes = sim.read_file(path("CURRENT")).unwrap();
    sim.erase(path("CURRENT")).unwrap();
    let before = sim.state_hash();
    refused(try_open(&sim), ErrorKind::Corruption, "CURRENT");
    // The newest manifest has all data.
    let db = Db::open_read_only_in(env(&sim), DIR, small()).unwrap();
    assert!(contents(&db) == model && db.damage().len() == 1, "{:?}", db.damage());
    drop(db);
    assert_eq!(sim.state_hash(), before, "nothing was changed");
    sim.write_file(path("CURRENT"), &bytes).unwrap();
    assert!(contents(&open(&sim)) == model);
}

/// Another program appended bytes: the log's pages are in place.
#[test]
fn bytes_appended_to_a_log_group_are_no_damage() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    for more in [1, 4096, 5000] {
        let (sim, mut model) = store(1);
        for name in files_like(&sim, ".log") {
            let len = sim.read_file(path(&name)).unwrap().len() as u64;
            sim.set_file_len(path(&name), len + more).unwrap();
        }
        let reader = Db::open_read_only_in(env(&sim), DIR, small()).unwrap();
        assert!(contents(&reader) == model && reader.damage().is_empty(), "{more}: {:?}", reader.damage());
        drop(reader);
        for round in 1..3 {
            let db = open(&sim);
            assert!(contents(&db) == model, "{more}");
            fill(&db, &mut model, 1000..3000, round);
            assert!(db.verify().unwrap().errors.is_empty(), "{more}");
            db.close().unwrap();
        }
        let sim = sim.crash(CrashKind::ProcessKill, more);
        assert!(contents(&open(&sim)) == model, "{more}");
    }
}

/// Also without a table: the log is data too.
#[test]
fn a_missing_current_with_only_a_log_is_refused() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = SimEnv::new(2);
    let (db, mut model) = (open(&sim), Model::new());
    fill(&db, &mut model, 0..10, 0);
    db.close().unwrap();
    assert!(files_like(&sim, ".ksst").is_empty());
    sim.erase(path("CURRENT")).unwrap();
    fails(try_open(&sim), ErrorKind::Corruption);
}

#[test]
fn any_damaged_byte_of_current_is_detected() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let (sim, _) = store(3);
    let len = sim.read_file(path("CURRENT")).unwrap().len() as u64;
    for at in 0..len {
        let damaged = sim.fork(at);
        damaged.flip_bit(path("CURRENT"), at, (at % 7) as u32).unwrap();
        refused(try_open(&damaged), ErrorKind::Corruption, "CURRENT");
    }
    for cut in [0, 1, len - 1] {
        let damaged = sim.fork(cut);
        damaged.set_file_len(path("CURRENT"), cut).unwrap();
        refused_both_ways(&damaged, "CURRENT");
    }
}

#[test]
fn a_missing_or_damaged_manifest_is_refused() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let (sim, _) = store(4);
    let name = files_like(&sim, "MANIFEST-").remove(0);
    let missing = sim.fork(1);
    missing.erase(path(&name)).unwrap();
    refused_both_ways(&missing, &name);
    let len = sim.read_file(path(&name)).unwrap().len() as u64;
    // After a clean close every byte is confirmed, except for the last, empty edit.
    for at in (0..len - 24).step_by(61) {
        let damaged = sim.fork(at);
        damaged.flip_bit(path(&name), at, (at % 8) as u32).unwrap();
        refused(try_open(&damaged), ErrorKind::Corruption, &name);
    }
    for cut in [0, 10, 64, len / 2] {
        let damaged = sim.fork(cut);
        damaged.set_file_len(path(&name), cut).unwrap();
        // A shorter history may be detected by the files it lists; the message then names both.
        let error = try_open(&damaged).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        assert!(error.to_string().contains(&name), "{error}");
    }
}

/// The log shows that the manifest has lost its end. If the log exceeds the memory, recovery must
/// not overwrite the lost edits before it reaches the page that shows it.
#[test]
fn a_truncated_manifest_is_detected_before_recovery_flushes() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = SimEnv::new(7);
    let roomy = Options { memtable_bytes: 1 << 20, memory_bytes: 8 << 20, ..small() }
        .expert(|expert| expert.wal_bytes_max = 8 << 20);
    let db = Db::open_in(env(&sim), DIR, roomy).unwrap();
    let mut model = Model::new();
    fill(&db, &mut model, 0..2000, 0);
    let manifest = files_like(&sim, "MANIFEST").pop().unwrap();
    let bytes = || sim.read_file(path(&manifest)).unwrap();
    let cut = bytes();
    db.create_column_family("lost", small_family()).unwrap();
    let whole = bytes();
    // Enough for a page that was begun after the edit.
    db.put(b"last", &[1; 8000]).unwrap();
    assert!(bytes() == whole, "the family is in the last edit");
    let killed = sim.crash(CrashKind::ProcessKill, 1);
    killed.write_file(path(&manifest), &cut).unwrap();
    let before = killed.state_hash();
    for _ in 0..3 {
        refused(try_open(&killed), ErrorKind::Corruption, &manifest);
    }
    assert_eq!(killed.state_hash(), before, "nothing was changed");
    killed.write_file(path(&manifest), &whole).unwrap();
    let db = open(&killed);
    assert!(db.column_family("lost").is_some() && contents(&db).len() == model.len() + 1);
}

#[test]
fn a_missing_or_truncated_table_is_reported() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let (sim, model) = store(5);
    for name in files_like(&sim, ".ksst") {
        let missing = sim.fork(1);
        missing.erase(path(&name)).unwrap();
        serves_the_rest(&missing, &model, &name);
        let cut = sim.fork(2);
        cut.set_file_len(path(&name), 100).unwrap();
        serves_the_rest(&cut, &model, &name);
        let longer = sim.fork(3);
        let bytes = [sim.read_file(path(&name)).unwrap(), vec![0; 100]].concat();
        longer.write_file(path(&name), &bytes).unwrap();
        serves_the_rest(&longer, &model, &name);
    }
}

/// A store with a damaged data file opens in both modes unless forbidden, and names the file. Each
/// key yields the right value or an error that names the file. Afterwards the store accepts writes,
/// flushes and compactions.
fn serves_the_rest(sim: &SimEnv, model: &Model, name: &str) {
    let refuse = || Options { damaged_files: DamagedFiles::Refuse, ..small() };
    refused(Db::open_in(env(sim), DIR, refuse()), ErrorKind::Corruption, name);
    refused(Db::open_read_only_in(env(sim), DIR, refuse()), ErrorKind::Corruption, name);
    for read_only in [true, false] {
        let db = if read_only { Db::open_read_only_in(env(sim), DIR, small()) } else { try_open(sim) };
        let db = db.unwrap();
        let damaged = db.damaged_files();
        assert!(damaged.len() == 1 && damaged[0].file == name, "{damaged:?}");
        let lost = damaged[0].first_key.clone()..=damaged[0].last_key.clone();
        for (key, value) in model {
            match db.get(key) {
                Ok(got) => assert_eq!(got.as_deref(), Some(&value[..])),
                Err(e) => {
                    assert!(lost.contains(key), "{e}");
                    refused::<()>(Err(e), ErrorKind::Corruption, name);
                }
            }
        }
        if !read_only {
            let mut written = Model::new();
            fill(&db, &mut written, 0..1000, 1);
            db.flush().unwrap();
            settle(&db);
            db.compact_range(db.default_column_family(), None, None).unwrap();
            assert!(written.iter().all(|(key, value)| db.get(key).unwrap().as_deref() == Some(&value[..])));
            db.close().unwrap();
        }
    }
}

/// Descriptors run out while jobs run: the jobs are retried, and nothing is damaged.
#[test]
fn transient_errors_are_retried() {
    if skipped_on_lavafs(because::FAULTS) {
        return;
    }
    for (kind, part) in [(OpKind::Open, ".ksst"), (OpKind::Create, ".ksst"), (OpKind::SyncDir, "")] {
        let (sim, mut model) = store(12);
        let db = open(&sim);
        fill(&db, &mut model, 0..500, 1);
        let plan = FaultPlan::nth(0, FaultEffect::NoDescriptor).kinds(&[kind]).path(part).sticky();
        if kind == OpKind::Create {
            db.flush().unwrap();
        }
        sim.inject(plan);
        fill(&db, &mut model, 0..150, 4);
        for _ in 0..300 {
            db.run_background_step();
        }
        assert!(db.stats().background_errors > 0, "{kind:?}: {:?}", db.stats());
        sim.clear_faults();
        db.flush().unwrap();
        db.compact_range(db.default_column_family(), None, None).unwrap();
        assert!(db.damaged_files().is_empty(), "{kind:?}");
        assert!(contents(&db) == model, "{kind:?}");
    }
}

/// Descriptors do not come back: no call waits for ever. Calls return the cause, and no
/// acknowledged data is lost.
#[test]
fn permanent_errors_end_every_wait() {
    if skipped_on_lavafs(because::FAULTS) {
        return;
    }
    for kind in [OpKind::Create, OpKind::Open] {
        let (sim, mut model) = store(12);
        let db = open(&sim);
        sim.inject(FaultPlan::nth(0, FaultEffect::NoDescriptor).kinds(&[kind]).path(".ksst").sticky());
        let is_told = |e: &Error| e.is_passing() && e.file().is_some();
        let refused = (0..100_000u32).find_map(|n| {
            let (key, value) = (format!("full{n:06}").into_bytes(), vec![n as u8; 100]);
            match db.put(&key, &value) {
                Ok(()) => {
                    model.insert(key, value);
                    None
                }
                Err(e) => Some(e),
            }
        });
        assert!(refused.as_ref().is_some_and(is_told), "{kind:?}: a put: {refused:?}");
        let flushed = db.flush().unwrap_err();
        assert!(is_told(&flushed), "{kind:?}: a flush: {flushed}");
        sim.clear_faults();
        sim.env().clock.sleep_ns(1_000_000_000);
        db.put(b"after", b"it has passed").unwrap();
        model.insert(b"after".to_vec(), b"it has passed".to_vec());
        db.flush().unwrap();
        assert!(db.damaged_files().is_empty() && contents(&db) == model, "{kind:?}");
    }
}

/// Background work that finds damage inside a table continues with the rest, and so do writers.
#[test]
fn background_work_quarantines_a_damaged_table() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let (sim, model) = store(13);
    for name in files_like(&sim, ".ksst") {
        let damaged = sim.fork(1);
        damaged.flip_bit(path(&name), 700, 3).unwrap();
        let db = open(&damaged);
        assert!(db.damaged_files().is_empty());
        let mut written = Model::new();
        for generation in 1..5 {
            fill(&db, &mut written, 0..700, generation);
        }
        db.flush().unwrap();
        db.compact_range(db.default_column_family(), None, None).unwrap();
        settle(&db);
        let told = db.damaged_files();
        assert!(told.len() == 1 && told[0].file == name && told[0].is_table, "{told:?}");
        assert_eq!(db.stats().files_set_aside, 1);
        db.put(b"still", b"writable").unwrap();
        for (key, value) in &model {
            match db.get(key) {
                Ok(got) => assert_eq!(got.as_deref(), Some(&written.get(key).unwrap_or(value)[..])),
                Err(e) => {
                    assert!(!written.contains_key(key), "{e}");
                    refused::<()>(Err(e), ErrorKind::Corruption, &name);
                }
            }
        }
        assert_eq!(db.verify().unwrap().errors.len(), 1);
    }
}

/// A damaged table is found by a read of it and by `verify`; everything else stays readable.
#[test]
fn a_damaged_table_is_reported() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let (sim, model) = store(6);
    let tables = files_like(&sim, ".ksst");
    assert!(tables.len() > 3, "{tables:?}");
    let name = &tables[1];
    let len = sim.read_file(path(name)).unwrap().len() as u64;
    let (mut in_part, mut without_filter) = (0, 0);
    for at in (0..len).step_by(397) {
        let damaged = sim.fork(at);
        damaged.flip_bit(path(name), at, (at % 8) as u32).unwrap();
        let db = open(&damaged);
        let report = db.verify().unwrap();
        assert_eq!(report.errors.len(), 1, "flip at {at}: {:?}", report.errors);
        assert_eq!(report.files as usize, tables.len());
        assert!(report.errors[0].is_corruption(), "{}", report.errors[0]);
        assert!(report.errors[0].file().unwrap().ends_with(name), "{}", report.errors[0]);
        let mut unreadable = Vec::new();
        for (key, value) in &model {
            match db.get(key) {
                Ok(got) => assert_eq!(got.as_deref(), Some(&value[..])),
                Err(e) => {
                    unreadable.push(key.clone());
                    assert!(e.is_corruption() && e.file().unwrap().ends_with(name), "{e}");
                }
            }
        }
        assert!(unreadable.len() < model.len() / 2, "{} keys of {}", unreadable.len(), model.len());
        // A scan omits exactly these: it returns the keys in other blocks of the table.
        for forward in [true, false] {
            let found = scan_behind_damage(&db, forward);
            let left_out: Vec<_> = model.keys().filter(|key| !found.contains_key(*key)).cloned().collect();
            assert_eq!(left_out, unreadable, "flip at {at}, forward: {forward}");
            assert!(found.iter().all(|(key, value)| model.get(key) == Some(value)));
        }
        let told = &db.damaged_files()[0];
        let of_table = model.range(told.first_key.clone()..=told.last_key.clone()).count();
        in_part += u64::from(!unreadable.is_empty() && unreadable.len() < of_table);
        without_filter += u64::from(db.stats().get_filters_unreadable > 0);
        drop(db);
    }
    assert!(in_part > 3 && without_filter > 0, "{in_part} in part, {without_filter} without a filter");
}

/// Returns the entries of a scan that continues after unreadable parts.
fn scan_behind_damage(db: &Db, forward: bool) -> Model {
    let mut iter = db.iter(ReadOptions::default()).unwrap();
    let mut found = Model::new();
    let mut moved = if forward { iter.seek_to_first() } else { iter.seek_to_last() };
    loop {
        while moved.is_err() {
            moved = iter.skip_damaged();
        }
        if !iter.valid() {
            return found;
        }
        assert!(found.insert(iter.key().to_vec(), iter.value().unwrap().to_vec()).is_none());
        moved = if forward { iter.next() } else { iter.prev() };
    }
}

#[test]
fn swapped_tables_are_detected() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let (sim, _) = store(7);
    let tables = files_like(&sim, ".ksst");
    let lengths: Vec<u64> = tables.iter().map(|n| sim.read_file(path(n)).unwrap().len() as u64).collect();
    let twin = lengths
        .iter()
        .enumerate()
        .find_map(|(i, l)| lengths[i + 1..].iter().position(|m| m == l).map(|j| (i, i + 1 + j)));
    let (a, b) = twin.unwrap_or((0, 1));
    sim.swap_files(path(&tables[a]), path(&tables[b])).unwrap();
    match try_open(&sim) {
        Ok(db) => assert_eq!(db.verify().unwrap().errors.len(), 2),
        Err(e) => assert!(e.is_corruption(), "{e}"),
    }
}

#[test]
fn a_missing_or_truncated_log_group_is_refused() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let (sim, model) = store(8);
    let mut needed = Vec::new();
    for name in written_groups(&sim) {
        let missing = sim.fork(1);
        missing.erase(path(&name)).unwrap();
        match try_open(&missing) {
            // A file about to be reused has no data that the store needs.
            Ok(db) => assert!(contents(&db) == model, "{name}"),
            Err(e) => {
                refused::<()>(Err(e), ErrorKind::Corruption, &name);
                let cut = sim.fork(2);
                cut.set_file_len(path(&name), 4096).unwrap();
                refused(try_open(&cut), ErrorKind::Corruption, &name);
                needed.push(name);
            }
        }
    }
    sim.erase(path(&needed[0])).unwrap();
    refused_both_ways(&sim, &needed[0]);
}

/// After a clean close the watermark confirms every page with data.
#[test]
fn damaged_log_pages_refuse_the_open() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let (sim, model) = store(9);
    let mut refusals = 0;
    for name in written_groups(&sim) {
        let bytes = sim.read_file(path(&name)).unwrap();
        let used = bytes.chunks(4096).take_while(|page| page.starts_with(b"LWAL")).count() as u64;
        for page in 0..used {
            let damaged = sim.fork(page);
            damaged.flip_bit(path(&name), page * 4096 + 100 + page * 31 % 900, 3).unwrap();
            match try_open(&damaged) {
                Err(e) => {
                    refusals += 1;
                    assert!(e.is_corruption(), "{e}");
                    assert!(e.file().unwrap().ends_with(&name), "{name}: {e}");
                }
                // The page with the watermark has no data, and staging may hold the last page.
                Ok(db) => assert!(contents(&db) == model, "{name} page {page}: silently lost"),
            }
        }
    }
    assert!(refusals > 0);
}

/// After a clean close the log's files have all data: the staging file may be lost.
#[test]
fn a_missing_staging_file_after_a_clean_close_has_no_effect() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let (sim, model) = store(10);
    let staging = files_like(&sim, "STAGING");
    assert_eq!(staging.len(), 1);
    let lost = sim.fork(1);
    lost.erase(path("STAGING")).unwrap();
    assert!(contents(&open(&lost)) == model);
    let damaged = sim.fork(2);
    let len = damaged.read_file(path("STAGING")).unwrap().len() as u64;
    for at in (0..len).step_by(509) {
        damaged.flip_bit(path("STAGING"), at, 1).unwrap();
    }
    assert!(contents(&open(&damaged)) == model);
    let cut = sim.fork(3);
    cut.set_file_len(path("STAGING"), 1000).unwrap();
    assert!(contents(&open(&cut)) == model);
}

/// The lock file is not data.
#[test]
fn a_missing_lock_file_has_no_effect() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let (sim, model) = store(11);
    sim.erase(path("LOCK")).unwrap();
    assert!(contents(&open(&sim)) == model);
}

/// Leftovers of unfinished jobs are removed; unknown files are left alone.
#[test]
fn foreign_files_in_a_store_are_left_unchanged() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let (sim, model) = store(12);
    sim.write_file("/store/notes.txt", b"mine").unwrap();
    sim.write_file("/store/000000009999.ksst", b"half a table").unwrap();
    sim.write_file("/store/000000009998.log", &[0; 4096]).unwrap();
    let db = open(&sim);
    assert!(contents(&db) == model);
    assert_eq!(sim.read_file("/store/notes.txt").unwrap(), b"mine");
    assert!(sim.read_file("/store/000000009999.ksst").is_err());
    assert!(sim.read_file("/store/000000009998.log").is_err());
    assert!(db.space().unwrap().other_bytes >= 4096);
}
