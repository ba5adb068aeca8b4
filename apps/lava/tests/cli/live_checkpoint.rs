//! `lava checkpoint` of a store that another process has open.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "looks at the program from outside")]

use crate::common::*;
use lavastore::{Db, LogOptions, LogStore, Options, WriteOptions};
use std::io::Write;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn options() -> Options {
    Options::default()
}

#[test]
fn the_store_owner_makes_checkpoints_with_all_durable_writes() {
    let s = Scratch::new("live-checkpoint");
    let db = Db::open(s.path("db")).unwrap();
    let (acknowledged, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let durable = WriteOptions::durable();
            for n in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                db.writing(&durable).put(format!("{n:08}"), format!("value {n}")).unwrap();
                acknowledged.store(n + 1, Ordering::Release);
            }
        });
        while acknowledged.load(Ordering::Acquire) < 20 {
            std::thread::yield_now();
        }
        for name in ["one", "two"] {
            let before = acknowledged.load(Ordering::Acquire);
            // A path relative to the client's working directory.
            let told = json(&s.ok(&["checkpoint", name, "--json"]));
            assert!(told["requested"] == true && told["target"] == name, "{told}");
            let copy = Db::open(s.path(name)).unwrap();
            let count = copy.iter().count() as u64;
            assert!(count >= before, "{count} of {before}");
            assert_eq!(
                copy.get(format!("{:08}", before - 1)).unwrap().unwrap(),
                format!("value {}", before - 1).as_bytes()[..]
            );
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(s.ok(&["checkpoint", "three"]).contains("by the process that has the store open"));
    assert!(
        s.fails(9, &["checkpoint", "three"])
            .contains("the directory of the checkpoint is not empty: name a new or empty one")
    );
    assert!(s.fails(8, &["checkpoint", "no/such/copy"]).contains("no"));
    // The requests are removed.
    assert!(!s.path("db/REQUESTS").exists());
    db.close().unwrap();
    assert_eq!(json(&s.ok(&["checkpoint", "four", "--json"]))["requested"], false);
}

#[test]
fn keys_and_logs_are_copied_at_one_moment() {
    let s = Scratch::new("live-checkpoint-logs");
    let db = Db::open_with_logs(s.path("db"), &options(), &LogOptions::default()).unwrap();
    let log = db.logs().unwrap().log("orders").unwrap();
    db.put("key", "value").unwrap();
    log.append(1, "two apples").unwrap();
    s.ok(&["checkpoint", "copy"]);
    drop((log, db));
    assert_eq!(run(&s.path("copy"), &["get", "key"], &s.0).stdout, b"value\n");
    assert_eq!(run(&s.path("copy"), &["log", "tail", "orders"], &s.0).stdout, b"1\ttwo apples\n");
}

#[test]
fn a_store_of_logs_alone_is_copied_as_well() {
    let s = Scratch::new("live-checkpoint-log");
    let store = LogStore::open(s.path("db")).unwrap();
    store.log("orders").unwrap().append(1, "two apples").unwrap();
    assert!(s.ok(&["log", "checkpoint", "copy"]).contains("by the process"));
    drop(store);
    assert_eq!(run(&s.path("copy"), &["log", "tail", "orders"], &s.0).stdout, b"1\ttwo apples\n");
}

#[test]
fn a_store_that_serves_no_requests_is_in_use() {
    let s = Scratch::new("live-checkpoint-off");
    let options = options().expert(|expert| expert.checkpoint_requests = false);
    let db = Db::open_with(s.path("db"), &options).unwrap();
    let begun = Instant::now();
    let why = s.fails(7, &["checkpoint", "copy", "--wait", "1"]);
    assert!(why.contains("within 1 s") && why.contains("checkpoint_requests"), "{why}");
    assert!(begun.elapsed() < Duration::from_secs(10) && !s.path("copy").exists());
    drop(db);
}

/// Starts a process that has the store open until its standard input is closed.
fn holder(s: &Scratch) -> Child {
    s.ok(&["log", "append", "orders", "first"]);
    let mut child = lava(&s.0)
        .args(["log", "append", "orders", "--db", "db"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.as_mut().unwrap().write_all(b"apples\n").unwrap();
    let begun = Instant::now();
    while std::fs::read_to_string(s.path("db/LOCK")).unwrap_or_default().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: signals a child that has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

#[test]
fn checkpoint_waits_for_a_stopped_owner_and_replaces_a_dead_one() {
    let s = Scratch::new("live-checkpoint-killed");
    let mut child = holder(&s);
    signal(&child, libc::SIGSTOP);
    s.fails(7, &["log", "checkpoint", "copy", "--wait", "1"]);
    // The process dies while the command waits.
    let waits = lava(&s.0)
        .args(["log", "checkpoint", "copy", "--json", "--db", "db"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(500));
    child.kill().unwrap();
    child.wait().unwrap();
    let output = waits.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(json(&String::from_utf8(output.stdout).unwrap())["requested"], false);
    assert!(!s.path("db/REQUESTS").exists());
}

/// The request of a killed command is not served later.
#[test]
fn the_request_of_a_killed_command_is_removed() {
    let s = Scratch::new("live-checkpoint-stale");
    let mut child = holder(&s);
    signal(&child, libc::SIGSTOP);
    let mut waits = lava(&s.0).args(["log", "checkpoint", "copy", "--db", "db"]).spawn().unwrap();
    let begun = Instant::now();
    while !s.path("db/REQUESTS").exists() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    waits.kill().unwrap();
    waits.wait().unwrap();
    assert!(std::fs::read_dir(s.path("db/REQUESTS")).unwrap().count() > 0);
    signal(&child, libc::SIGCONT);
    let begun = Instant::now();
    while s.path("db/REQUESTS").exists() {
        assert!(begun.elapsed() < Duration::from_secs(20), "nobody removed it");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!s.path("copy").exists());
    drop(child.stdin.take());
    child.wait().unwrap();
}
