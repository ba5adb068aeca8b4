//! One writer for each store.

use crate::common::*;
use lavastore_lavakv::{Db, ErrorKind, ReadOptions, sim::SimEnv};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

#[test]
fn the_second_opening_in_this_process_is_refused() {
    let tmp = TempDir::new("locked");
    let db = Db::open_with(tmp.path(), small()).unwrap();
    let e = Db::open_with(tmp.path(), small()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Locked);
    assert!(e.message().contains(&format!("process {}", std::process::id())), "{e}");
    assert!(e.file().unwrap().ends_with("LOCK"), "{e}");
    db.put(b"a", b"1").unwrap();
    let clone = db.clone();
    drop(db);
    fails(Db::open_with(tmp.path(), small()), ErrorKind::Locked);
    clone.put(b"b", b"2").unwrap();
    let other = clone.clone();
    clone.close().unwrap();
    fails(other.put(b"c", b"3"), ErrorKind::Closed);
    assert_eq!(contents(&Db::open_with(tmp.path(), small()).unwrap()).len(), 2);
}

/// An iterator pins files, so it holds the lock; it works after the last handle is dropped.
#[test]
fn an_iterator_holds_the_lock() {
    let sim = SimEnv::new(1);
    let (db, mut model) = (open(&sim), Model::new());
    fill(&db, &mut model, 0..300, 0);
    let mut iterator = db.iter(ReadOptions::default()).unwrap();
    iterator.seek(&key(100)).unwrap();
    drop(db);
    let e = try_open(&sim).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Locked);
    assert!(e.message().contains("simulation"), "{e}");
    assert_eq!(iterator.entries().count(), 200);
    assert!(contents(&open(&sim)) == model);
}

/// The child process of the next test: holds the store until its input ends.
#[test]
#[ignore = "run by `a_lock_of_another_process_is_named` as a child process"]
fn child_process_holds_a_store() {
    let Ok(dir) = std::env::var("LAVASTORE_TEST_HOLD") else { return };
    let db = Db::open_with(dir, small()).unwrap();
    db.put(b"from", b"child").unwrap();
    println!("\nheld");
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read_line(&mut String::new());
    db.close().unwrap();
}

#[test]
fn a_lock_of_another_process_is_named() {
    let tmp = TempDir::new("locked-by-another");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "locked::child_process_holds_a_store",
            "--nocapture",
            "--test-threads=1",
        ])
        .env("LAVASTORE_TEST_HOLD", tmp.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(out.any(|line| line.unwrap() == "held"), "the child opened the store");
    let e = Db::open_with(tmp.path(), small()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Locked);
    assert!(e.message().contains(&format!("process {}", child.id())), "{e}");
    // Reading beside it works.
    let reader = Db::open_read_only(tmp.path(), small()).unwrap();
    assert_eq!(reader.get(b"from").unwrap().as_deref(), Some(&b"child"[..]));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    Db::open_with(tmp.path(), small()).unwrap();
}

/// A lock ends with its process, even after a kill.
#[test]
fn a_dead_process_holds_no_lock() {
    let tmp = TempDir::new("locked-by-the-dead");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "locked::child_process_holds_a_store",
            "--nocapture",
            "--test-threads=1",
        ])
        .env("LAVASTORE_TEST_HOLD", tmp.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(out.any(|line| line.unwrap() == "held"), "the child opened the store");
    child.kill().unwrap();
    child.wait().unwrap();
    let db = Db::open_with(tmp.path(), small()).unwrap();
    assert_eq!(db.get(b"from").unwrap().as_deref(), Some(&b"child"[..]), "a buffered write survives");
}
