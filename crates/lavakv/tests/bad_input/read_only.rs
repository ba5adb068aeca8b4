//! Read-only media, and read-only opens.

use crate::common::*;
use lavastore_lavakv::{
    DamagedFiles, Db, ErrorKind, FamilyOptions, Options, WriteBatch, WriteOptions, sim::SimEnv,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn store(seed: u64) -> (SimEnv, Model) {
    let sim = SimEnv::new(seed);
    let (db, mut model) = (open(&sim), Model::new());
    fill(&db, &mut model, 0..1000, 0);
    db.flush().unwrap();
    fill(&db, &mut model, 900..1100, 1);
    db.close().unwrap();
    (sim, model)
}

#[test]
fn a_read_only_medium_can_be_read() {
    if skipped_on_lavafs(because::MEDIUM) {
        return;
    }
    let (sim, model) = store(1);
    sim.set_read_only(true);
    let before = sim.state_hash();
    fails(try_open(&sim), ErrorKind::ReadOnly);
    let db = Db::open_read_only_in(env(&sim), DIR, small()).unwrap();
    assert!(contents(&db) == model);
    assert!(db.verify().unwrap().errors.is_empty());
    drop(db);
    assert_eq!(sim.state_hash(), before);
    sim.set_read_only(false);
    assert!(contents(&open(&sim)) == model);
}

#[test]
fn no_store_can_be_made_on_a_read_only_medium() {
    if skipped_on_lavafs(because::MEDIUM) {
        return;
    }
    let sim = SimEnv::new(2);
    sim.set_read_only(true);
    fails(try_open(&sim), ErrorKind::ReadOnly);
}

/// The medium becomes read-only under an open store: no write is acknowledged, reads work, nothing
/// is lost.
#[test]
fn a_medium_that_turns_read_only_stops_writes() {
    if skipped_on_lavafs(because::MEDIUM) {
        return;
    }
    let (sim, mut model) = store(3);
    let db = open(&sim);
    sim.set_read_only(true);
    let mut refused = 0;
    for i in 0..3000 {
        match db.put(&key(i), &value(i, 9)) {
            Ok(()) => drop(model.insert(key(i), value(i, 9))),
            Err(e) => {
                assert!(matches!(e.kind(), ErrorKind::ReadOnly | ErrorKind::Poisoned), "{e}");
                refused += 1;
            }
        }
        if refused > 10 {
            break;
        }
    }
    assert!(refused > 10, "writes were stopped");
    for (key, value) in model.iter().step_by(7) {
        assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..]));
    }
    drop(db);
    sim.set_read_only(false);
    let found = contents(&open(&sim));
    for (key, value) in &model {
        // The one write of unknown fate may have succeeded.
        assert!(found.get(key).is_some_and(|v| v == value || v.len() == value.len()), "{key:?}");
    }
}

#[test]
fn a_store_opened_for_reading_refuses_every_change() {
    let (sim, model) = store(4);
    let db = Db::open_read_only_in(env(&sim), DIR, small()).unwrap();
    let before = sim.state_hash();
    let family = db.default_column_family().clone();
    let mut batch = WriteBatch::new();
    batch.put(b"k", b"v");
    fails(db.put(b"k", b"v"), ErrorKind::ReadOnly);
    fails(db.delete(b"k"), ErrorKind::ReadOnly);
    fails(db.delete_range(b"a", b"z"), ErrorKind::ReadOnly);
    fails(db.write(&batch), ErrorKind::ReadOnly);
    fails(db.flush(), ErrorKind::ReadOnly);
    fails(db.compact_range(&family, None, None), ErrorKind::ReadOnly);
    fails(db.checkpoint("/copy"), ErrorKind::ReadOnly);
    fails(db.create_column_family("x", FamilyOptions::default()), ErrorKind::ReadOnly);
    fails(db.drop_column_family(&family), ErrorKind::InvalidArgument);
    settle(&db);
    assert!(contents(&db) == model);
    let snapshot = db.snapshot();
    assert!(snapshot.sequence() >= 1200);
    assert!(db.space().unwrap().table_bytes > 0 && db.stats().user_bytes_written == 0);
    db.close().unwrap();
    assert_eq!(sim.state_hash(), before, "nothing was changed");
}

/// On the machine: a directory without write permission (root ignores permissions, so the test is
/// skipped).
#[test]
fn a_directory_without_write_permission_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let tmp = TempDir::new("read-only");
    let dir = tmp.join("store");
    let db = Db::open_with(&dir, small()).unwrap();
    db.put(b"k", b"v").unwrap();
    db.close().unwrap();
    let set = |mode| std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode)).unwrap();
    set(0o555);
    let is_root = std::fs::write(dir.join("probe"), b"").is_ok();
    let opened = Db::open_with(&dir, small());
    let read = Db::open_read_only(&dir, small()).map(|db| contents(&db).len());
    set(0o755);
    assert_eq!(read.unwrap(), 1);
    if is_root {
        eprintln!("skipped: this user may write everywhere");
    } else {
        assert!(opened.is_err());
    }
}

/// A store with a damaged log is read up to the damage, while its writer continues without
/// noticing. The apparent damage may have been a concurrent write, so the open starts again.
#[test]
fn a_reader_stops_at_log_damage_and_the_writer_continues() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let store = || {
        let sim = SimEnv::new(5);
        let options = small().expert(|expert| expert.buffered_age_ms_max = Some(0));
        let (db, mut model) = (Db::open_in(env(&sim), DIR, options).unwrap(), Model::new());
        fill(&db, &mut model, 0..300, 0);
        db.flush().unwrap();
        settle(&db);
        let flushed = model.clone();
        for i in 300..340 {
            db.put_opt(db.default_column_family(), &key(i), &value(i, 0), &WriteOptions::durable()).unwrap();
            model.insert(key(i), value(i, 0));
        }
        // A later page confirmed all but the last page of a group.
        for group in files_like(&sim, ".log") {
            let bytes = sim.read_file(path(&group)).unwrap();
            let used = bytes.chunks(4096).take_while(|page| page.starts_with(b"LWAL")).count() as u64;
            for page in 0..used.saturating_sub(1) {
                sim.flip_bit(path(&group), page * 4096 + 100, 1).unwrap();
            }
        }
        (sim, db, flushed, model)
    };
    let opens = |damaged_files| {
        let (sim, _db, flushed, _) = store();
        let (env, opened) = before_each_open(env(&sim), |_| ());
        let opened_as = Db::open_read_only_in(env, path(""), Options { damaged_files, ..small() });
        (opened_as.map(|db| assert!(contents(&db).len() >= flushed.len())), opened.load(Ordering::Relaxed))
    };
    let (refusal, before) = opens(DamagedFiles::Refuse);
    assert!(refusal.unwrap_err().is_corruption());
    let (served, alone) = opens(DamagedFiles::Serve);
    served.unwrap();
    assert!(alone > before, "{alone} {before}: it is read up to the damage after it was refused");
    let mut anew = 0;
    for nth in before..alone {
        let (sim, db, flushed, model) = store();
        let db = Arc::new(db);
        let beside = db.clone();
        let (env, opened) = before_each_open(env(&sim), move |at| {
            if at == nth {
                beside.flush().unwrap();
            }
        });
        let reader = Db::open_read_only_in(env, path(""), small()).unwrap();
        let found = contents(&reader);
        let is_part = found.iter().all(|(key, value)| model.get(key) == Some(value));
        assert!(is_part && found.len() >= flushed.len(), "at file {nth}: {} of {}", found.len(), model.len());
        anew += u64::from(opened.load(Ordering::Relaxed) > alone);
    }
    assert!(anew > 0, "nobody was told to try again");
}
