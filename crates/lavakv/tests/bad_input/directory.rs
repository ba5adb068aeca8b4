//! Paths that are not a store's directory.

use crate::common::*;
use lavastore_lavakv::sim::{CrashKind, FaultEffect, FaultPlan, OpKind, SimEnv};
use lavastore_lavakv::{Db, ErrorKind, Options};

#[test]
fn a_file_is_refused_as_a_store() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = SimEnv::new(1);
    sim.write_file("/plain", b"text").unwrap();
    refused(Db::open_in(env(&sim), "/plain", small()), ErrorKind::InvalidArgument, "/plain");
    assert!(Db::open_read_only_in(env(&sim), "/plain", small()).is_err());
    assert_eq!(sim.read_file("/plain").unwrap(), b"text");
}

#[test]
fn a_file_is_refused_as_a_store_on_a_real_file_system() {
    let tmp = TempDir::new("a-file");
    std::fs::write(tmp.join("plain"), b"text").unwrap();
    refused(Db::open_with(tmp.join("plain"), small()), ErrorKind::InvalidArgument, "plain");
    assert!(Db::open_read_only(tmp.join("plain"), small()).is_err());
    assert!(Db::open_with(tmp.join("plain/below"), small()).is_err());
}

#[test]
fn a_directory_with_other_files_is_left_alone() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = SimEnv::new(2);
    env(&sim).fs.create_dir_all(DIR.as_ref()).unwrap();
    sim.write_file("/store/letter.txt", b"dear").unwrap();
    refused(try_open(&sim), ErrorKind::InvalidArgument, "/store");
    assert_eq!(files(&sim), [("letter.txt".to_owned(), 4)]);
}

/// Without a durable name of the directory above, a new store could be lost as a whole.
#[test]
fn a_failed_sync_of_the_parent_directory_is_an_error() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    for nth in 0..4 {
        let sim = SimEnv::new(5);
        let fault = FaultPlan::nth(nth, FaultEffect::Eio).kinds(&[OpKind::SyncDir]);
        sim.inject(fault);
        fails(Db::open_in(env(&sim), "/a/b/c/store", small()), ErrorKind::Io);
        drop(Db::open_in(env(&sim), "/a/b/c/store", small()).unwrap());
        let after = sim.crash(CrashKind::PowerLoss, nth);
        let there = Options { create_if_missing: false, ..small() };
        drop(Db::open_in(env(&after), "/a/b/c/store", there).unwrap());
    }
}

#[test]
fn open_without_create_if_missing_creates_nothing() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = SimEnv::new(3);
    let options = Options { create_if_missing: false, ..small() };
    refused(Db::open_in(env(&sim), DIR, options.clone()), ErrorKind::NotFound, "/store");
    refused(Db::open_read_only_in(env(&sim), DIR, options.clone()), ErrorKind::NotFound, "/store");
    assert!(sim.files().is_empty(), "a refused open leaves nothing behind");
    env(&sim).fs.create_dir_all(DIR.as_ref()).unwrap();
    refused(Db::open_in(env(&sim), DIR, options.clone()), ErrorKind::NotFound, "/store");
    refused(Db::open_read_only_in(env(&sim), DIR, options.clone()), ErrorKind::NotFound, "/store");
    assert!(sim.files().is_empty(), "a refused open leaves nothing behind");
    open(&sim).close().unwrap();
    Db::open_in(env(&sim), DIR, options).unwrap();
}

#[test]
fn an_existing_store_is_refused_with_error_if_exists() {
    let sim = SimEnv::new(4);
    let db = open(&sim);
    db.put(b"a", b"1").unwrap();
    db.close().unwrap();
    let options = Options { error_if_exists: true, ..small() };
    refused(Db::open_in(env(&sim), DIR, options.clone()), ErrorKind::AlreadyExists, "/store");
    assert_eq!(open(&sim).get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    Db::open_in(env(&sim), "/fresh", options).unwrap();
}

#[test]
fn directories_are_made_with_their_parents() {
    let sim = SimEnv::new(5);
    let db = Db::open_in(env(&sim), "/a/b/c", small()).unwrap();
    db.put(b"k", b"v").unwrap();
    drop(db);
    assert!(Db::open_in(env(&sim), "/a/b/c", small()).unwrap().get(b"k").unwrap().is_some());
}

/// A crash at any operation of the creation leaves a directory that opens as a new store.
#[test]
fn a_crash_during_creation_can_be_recovered() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    use lavastore_lavakv::sim::{CrashKind, Policy};
    let sim = SimEnv::new(6);
    drop(open(&sim));
    let record = sim.record();
    for op in 0..sim.op_count() {
        for kind in [CrashKind::ProcessKill, CrashKind::PowerLossWith(Policy::Dropped)] {
            let after = record.crash_at(op, kind, op);
            let db = try_open(&after).unwrap_or_else(|e| panic!("operation {op}, {kind:?}: {e}"));
            assert!(contents(&db).is_empty());
            db.put(b"k", b"v").unwrap();
        }
    }
}
