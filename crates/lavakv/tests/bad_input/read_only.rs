//! Read-only media, and stores opened for reading.

use crate::common::*;
use lavastore_lavakv::{Db, ErrorKind, FamilyOptions, WriteBatch, sim::SimEnv};

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

/// The medium becomes read-only under a running store: no write is acknowledged, reads go on, nothing is lost.
#[test]
fn the_medium_becomes_read_only() {
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
        // The one write whose fate was unknown may have come through.
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

/// On the machine: a directory without write permission (as root this proves nothing, and is skipped).
#[test]
fn a_directory_without_write_permission() {
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
