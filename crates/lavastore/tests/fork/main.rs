//! A store and forked child processes: calls of the children are refused and change nothing.

// These tests are about processes, their files and their time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod calls;
mod child;

use child::{fork, kill};
use lavastore::{Db, Error, LogOptions, LogStore, Options, WriteOptions};
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// A directory that is removed at the end of the test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let dir = std::env::temp_dir().join(format!("lavastore-fork-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        Dir(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn open(dir: &Dir) -> Db {
    Db::open_with_logs(&dir.0, &Options::default(), &LogOptions::default()).expect("opens")
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

/// Checks that a call was refused as one of a forked child.
fn refused<T>(what: &str, outcome: Result<T, Error>) -> Result<(), String> {
    match outcome {
        Err(e) if e.kind().name() == "forked" => Ok(()),
        Err(e) => Err(format!("{what} was refused as something else: {e}")),
        Ok(_) => Err(format!("{what} was not refused")),
    }
}

#[test]
fn calls_in_a_forked_child_are_refused_without_parent_loss() {
    const WRITERS: u64 = 2;
    let dir = Dir::new("refused");
    let db = open(&dir);
    let log = db.logs().unwrap().log("orders").unwrap();
    let stop = AtomicBool::new(false);
    let acknowledged: [AtomicU64; WRITERS as usize] = Default::default();
    thread::scope(|scope| {
        for (n, count) in acknowledged.iter().enumerate() {
            let (db, log, stop) = (&db, &log, &stop);
            scope.spawn(move || {
                for i in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    db.writing(&WriteOptions::durable()).put(format!("{n}/{i}"), vec![n as u8; 900]).unwrap();
                    log.append(i * WRITERS + n as u64 + 1, format!("{n}/{i}")).unwrap();
                    count.store(i + 1, Ordering::Relaxed);
                }
            });
        }
        for round in 0..20 {
            thread::sleep(Duration::from_millis(10));
            let child = fork(|_| {
                refused("a put", db.put("child", "written"))?;
                refused("a durable put", db.writing(&WriteOptions::durable()).put("child", "written"))?;
                refused("an append", log.append(u64::MAX / 2, "written"))?;
                refused("a flush", db.flush())?;
                refused("a get", db.get("0/0"))?;
                if round % 2 == 0 {
                    // SAFETY: drops the child's copies; the child exits without using the originals
                    // again.
                    unsafe { std::ptr::drop_in_place(std::ptr::from_ref(&log).cast_mut()) };
                    let copy = std::ptr::from_ref(&db);
                    // SAFETY: as above.
                    unsafe { std::ptr::read(copy) }
                        .close()
                        .map_or(Ok(()), |()| Err("a close did something".to_owned()))?;
                }
                Ok(())
            });
            if let Err(why) = child.end() {
                stop.store(true, Ordering::Relaxed);
                panic!("round {round}: {why}");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    drop(log);
    db.close().unwrap();
    let db = open(&dir);
    let log = db.logs().unwrap().log("orders").unwrap();
    for (n, count) in acknowledged.iter().enumerate() {
        let count = count.load(Ordering::Relaxed);
        assert!(count > 0, "writer {n} wrote nothing");
        for i in 0..count {
            assert!(db.get(format!("{n}/{i}")).unwrap().is_some(), "{n}/{i} of {count} is lost");
            let record = log.read(i * WRITERS + n as u64 + 1).unwrap();
            assert_eq!(record, Some(format!("{n}/{i}").into_bytes()));
        }
    }
    assert!(db.get("child").unwrap().is_none());
    assert!(db.verify().unwrap().errors.is_empty());
}

#[test]
fn a_forked_child_drops_handles_without_effect() {
    let dir = Dir::new("drops");
    let db = open(&dir);
    let log = db.logs().unwrap().log("orders").unwrap();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    log.append(1, "one").unwrap();
    let requests = db.requests(&Default::default()).unwrap();
    let pending = requests.put("later", "value").unwrap();
    let mut queue = requests.queue();
    queue.submit(requests.get("key").unwrap(), 1);
    let mut cursor = db.iter().cursor().unwrap();
    cursor.seek_to_first().unwrap();
    let mut stream = db.put_stream("film").unwrap();
    stream.append(vec![1; 5 << 20]).unwrap();
    let reader = db.get_stream("key").unwrap();
    let (snapshot, iter, keys, scan) = (db.snapshot(), db.iter(), db.iter().keys(), log.scan(..));
    let (pause, value, family) = (db.pause_gc(), db.get("key").unwrap(), db.family("users").unwrap());
    let appended = log.append_async(2, "two").unwrap();
    let others = (
        (cursor, reader, snapshot, iter, keys, scan),
        (pause, value, family, appended, requests, pending, queue),
    );
    let kept = (stream, log, db);
    let before = names(&dir);
    let child = fork(|_| {
        let copies = (std::ptr::from_ref(&others), std::ptr::from_ref(&kept));
        // SAFETY: drops the child's copies; the child exits without using the originals again.
        unsafe { drop((std::ptr::read(copies.0), std::ptr::read(copies.1))) };
        Ok(())
    });
    child.end().unwrap();
    assert_eq!(names(&dir), before, "a child removes no file");
    drop(others);
    let (stream, log, db) = kept;
    stream.finish().unwrap();
    db.put("after", "value").unwrap();
    log.append(3, "three").unwrap();
    drop(log);
    drop(db);
    assert_eq!(open(&dir).get_range("film", 0, 8).unwrap(), Some(vec![1; 8]));
}

fn names(dir: &Dir) -> Vec<String> {
    let files = fs::read_dir(&dir.0).unwrap();
    let mut names: Vec<String> = files.map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_forked_child_can_open_only_other_stores() {
    let (dir, own) = (Dir::new("parents"), Dir::new("childs"));
    let db = open(&dir);
    let child = fork(|_| {
        let locked = Db::open(&dir.0).map(drop).err().ok_or("the store of the parent was opened")?;
        if locked.kind().name() != "locked" {
            return Err(format!("the store of the parent: {locked}"));
        }
        let store = Db::open(&own.0).map_err(text)?;
        store.writing(&WriteOptions::durable()).put("key", "value").map_err(text)?;
        store.flush().map_err(text)?;
        let grandchild = fork(|_| refused("a put of a grandchild", store.put("key", "other")));
        grandchild.end()?;
        store.put("key", "again").map_err(text)?;
        store.close().map_err(text)
    });
    child.end().unwrap();
    db.put("key", "value").unwrap();
    db.close().unwrap();
    assert_eq!(Db::open(&own.0).unwrap().get("key").unwrap().as_deref(), Some(&b"again"[..]));
}

/// A child shares the `flock` of its parent. A child that survives its parent must not prevent the
/// next open of the store.
#[test]
fn a_forked_child_does_not_keep_the_store_lock() {
    let dir = Dir::new("outlives");
    let mut parent = fork(|says| {
        let db = Db::open(&dir.0).map_err(text)?;
        db.writing(&WriteOptions::durable()).put("key", "value").map_err(text)?;
        let mut child = fork(|says| {
            writeln!(says, "alive").map_err(text)?;
            thread::sleep(Duration::from_secs(60));
            Ok(())
        });
        child.line();
        writeln!(says, "{}", child.pid()).map_err(text)?;
        thread::sleep(Duration::from_secs(60));
        Ok(())
    });
    let grandchild: libc::pid_t = parent.line().parse().unwrap();
    assert_eq!(Db::open(&dir.0).unwrap_err().kind(), lavastore::ErrorKind::Locked);
    parent.kill();
    let opened = Db::open(&dir.0);
    kill(grandchild);
    assert_eq!(opened.unwrap().get("key").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn a_spawned_program_inherits_no_file() {
    let dir = Dir::new("exec");
    let db = open(&dir);
    let log = db.logs().unwrap().log("orders").unwrap();
    let requests = db.requests(&Default::default()).unwrap();
    for i in 0..50u64 {
        db.put(i.to_le_bytes(), vec![0; 4000]).unwrap();
        log.append(i + 1, "record").unwrap();
    }
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    let mut cursor = db.iter().cursor().unwrap();
    cursor.seek_to_first().unwrap();
    let _pending = requests.get(7u64.to_le_bytes()).unwrap();
    for i in 50..70u64 {
        let out = Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
        let files = String::from_utf8_lossy(&out.stdout);
        let inherited = files.lines().find(|line| {
            [dir.0.to_str().unwrap(), "io_uring", "eventfd", "eventpoll"]
                .iter()
                .any(|ours| line.contains(ours))
        });
        assert_eq!(inherited, None);
        db.writing(&WriteOptions::durable()).put(i.to_le_bytes(), "still the parent").unwrap();
        log.append(i + 1, "record").unwrap();
    }
    drop((requests, cursor, log));
    db.close().unwrap();
}

/// A store with logs only has its own threads and locks.
#[test]
fn a_forked_child_is_refused_access_to_logs() {
    let dir = Dir::new("logs");
    let store = LogStore::open(&dir.0).unwrap();
    let log = store.log("orders").unwrap();
    log.append(1, "one").unwrap();
    let child = fork(|_| {
        refused("an append", log.append(2, "two"))?;
        refused("a read", log.read(1))?;
        refused("a sync", store.sync())?;
        refused("a log", store.log("others"))?;
        let copies = (std::ptr::from_ref(&log), std::ptr::from_ref(&store));
        // SAFETY: drops the child's copies; the child exits without using the originals again.
        unsafe { drop((std::ptr::read(copies.0), std::ptr::read(copies.1))) };
        Ok(())
    });
    child.end().unwrap();
    log.append(2, "two").unwrap();
    drop(log);
    store.close().unwrap();
    let log = LogStore::open(&dir.0).unwrap().log("orders").unwrap();
    assert_eq!(log.read(2).unwrap().as_deref(), Some(&b"two"[..]));
}
