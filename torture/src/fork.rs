//! Row `fork`: a process with an open store calls `fork` while its threads write, and then is
//! killed with SIGKILL or closes the store.
//!
//! The row `forks` is about copies of a store.
//!
//! The process writes keys and log records on several threads and reports each acknowledgement
//! through a pipe. Meanwhile it forks children at random moments. Each child makes calls of the
//! parent, asynchronous ones too, and must be refused as `Forked`. Then the child drops its
//! handles, exits, runs another program, or outlives its parent. The case kills the process at a
//! random moment and opens the store at once: all acknowledged writes are there, none of a child
//! is, and everything verifies. Then the next process continues. A variant runs on LavaFS in an
//! image file.

use crate::case::{Context, Outcome};
use crate::check::{Check, Doing, ensure};
use crate::kill::{killed, report};
use crate::place::Place;
use crate::tally;
use io::Rng;
use lavastore::{
    Db, Durability, Env, Error, ErrorKind, Log, LogOptions, Options, Requests, WriteBatch, WriteOptions,
};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};

/// Hidden row: the process.
pub(crate) const PARENT: &str = "fork-parent";
/// The same on LavaFS.
pub(crate) const PARENT_ON_LAVAFS: &str = "fork-parent-on-lavafs";

const IMAGE_LEN: u64 = 192 << 20;
/// Number of consecutive processes per store.
const ROUNDS: u64 = 4;
/// Maximum lifetime of a process in nanoseconds.
const LIFE_NS_MAX: u64 = 200_000_000;
/// Number of writing threads.
const WRITERS: u64 = 3;
/// Timeout of a child in nanoseconds.
const CHILD_NS_MAX: u64 = 20_000_000_000;
/// Lifetime of a child that outlives its parent, in nanoseconds.
const OUTLIVES_NS: u64 = 400_000_000;
const NAME: &str = "orders";

/// A message of the process is one number: a kind above a count of this many bits.
const NUMBER_BITS: u32 = 48;
/// Number of the last acknowledged write of a thread; the thread is in the kind.
const WRITTEN: u64 = 1;
/// Number of successful children.
const ENDED: u64 = 2;
/// Exit status of a failed child.
const FAILED: u64 = 3;

pub(crate) fn case(context: &Context, seed: u64) -> Outcome {
    run(context, Place { dir: context.dir.join(format!("fork-{seed}")), on_lavafs: false, seed }, seed)
}

pub(crate) fn case_on_lavafs(context: &Context, seed: u64) -> Outcome {
    run(
        context,
        Place { dir: context.dir.join(format!("fork-on-lavafs-{seed}")), on_lavafs: true, seed },
        seed,
    )
}

fn run(context: &Context, place: Place, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let made = place.make(IMAGE_LEN);
    if made.is_err() {
        outcome.take(made);
        return outcome;
    }
    let (mut rng, mut written, mut children) = (Rng::new(seed), BTreeMap::new(), 0);
    for number in 0..ROUNDS {
        let checked = round(&place, (seed, number), &mut rng, &mut written);
        let failed = checked.is_err();
        outcome.take(checked.map(|ended| children += ended).map_err(|why| format!("round {number}: {why}")));
        if failed {
            // The store of a failed case stays on disk.
            return outcome;
        }
    }
    outcome.note(tally::WRITTEN_BESIDE, written.values().sum());
    outcome.note(tally::CHILDREN, children);
    let _ = std::fs::remove_dir_all(&place.dir);
    let _ = std::fs::remove_dir(&context.dir);
    outcome
}

/// Runs a process; returns the number of successful children.
fn round(
    place: &Place,
    (seed, number): (u64, u64),
    rng: &mut Rng,
    written: &mut BTreeMap<u64, u64>,
) -> Check<u64> {
    let row = if place.on_lavafs { PARENT_ON_LAVAFS } else { PARENT };
    let mut ended = 0;
    for word in killed(row, place, (seed, number), LIFE_NS_MAX, rng)? {
        let (head, count) = (word >> NUMBER_BITS, word & ((1 << NUMBER_BITS) - 1));
        match (head >> 8, head & 0xff) {
            (WRITTEN, thread) => _ = written.insert(thread, count),
            (ENDED, _) => ended += 1,
            (FAILED, _) => return Err(format!("a child ended with status {count:#x}")),
            _ => {}
        }
    }
    place.check(true).map_err(|why| format!("after the kill: {why}"))?;
    look(place, written)?;
    place.check(false).map_err(|why| format!("after a clean end: {why}"))?;
    Ok(ended)
}

fn open(place: &Place) -> Check<(Env, Db)> {
    let (env, dir) = place.open()?;
    let options = Options { memtable_bytes: 256 << 10, memory_bytes: 4 << 20, ..Options::default() };
    let logs = LogOptions { group_bytes: Some(256 << 10), ..LogOptions::default() };
    let db = Db::open_with_logs_in(&env, dir, &options, &logs).doing(|| "open".into())?;
    Ok((env, db))
}

fn key(thread: u64, number: u64) -> Vec<u8> {
    format!("{thread}/{number:08}").into_bytes()
}

fn value(thread: u64, number: u64) -> Vec<u8> {
    let mut rng = Rng::new(thread << 32 ^ number);
    let mut out = vec![0; rng.below(6000) as usize];
    rng.fill(&mut out);
    out
}

fn lsn(thread: u64, number: u64) -> u64 {
    1 + number * WRITERS + thread
}

/// Checks that all acknowledged writes and none of a child are in the store.
fn look(place: &Place, written: &BTreeMap<u64, u64>) -> Check {
    let (_env, db) = open(place)?;
    let log = db.logs().and_then(|logs| logs.log(NAME)).doing(|| "the log".into())?;
    for (&thread, &count) in written {
        for number in 0..count {
            let found = db.get(key(thread, number)).doing(|| "get".into())?;
            let is_there = found.is_some_and(|found| *found == *value(thread, number));
            ensure!(is_there, "write {number} of {count} of thread {thread} is lost");
            let record = log.read(lsn(thread, number)).doing(|| "read".into())?;
            ensure!(record == Some(value(thread, number)), "record {number} of thread {thread} is lost");
        }
    }
    let childs = db.prefix("child").count();
    ensure!(childs == 0, "{childs} writes of children are there");
    let damage = db.verify().doing(|| "verify".into())?;
    ensure!(damage.errors.is_empty(), "verify: {}", damage.errors[0]);
    let damage = db.logs().doing(|| "logs".into())?.verify();
    ensure!(damage.damages.is_empty(), "verify of logs: {}", damage.damages[0].error);
    Ok(())
}

/// Main function of the process.
pub(crate) fn parent(dir: PathBuf, on_lavafs: bool, seed: u64, number: u64) -> ExitCode {
    match write_and_fork(&Place { dir, on_lavafs, seed }, Rng::new(seed ^ number.wrapping_mul(31))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("torture: process of seed {seed}: {why}");
            ExitCode::FAILURE
        }
    }
}

fn write_and_fork(place: &Place, mut rng: Rng) -> Check {
    let (_env, db) = open(place)?;
    let log = db.logs().and_then(|logs| logs.log(NAME)).doing(|| "the log".into())?;
    let requests = db.requests(&Default::default()).doing(|| "requests".into())?;
    report(0)?;
    // Some processes close the store before they are killed.
    let forks = if rng.one_in(3) { rng.below(10) } else { u64::MAX };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|thread| {
                let (db, log, stop, rng) = (&db, &log, &stop, rng.fork());
                scope.spawn(move || write(db, log, thread, stop, rng))
            })
            .collect();
        let forked = fork_children(&Handles { db: &db, log: &log, requests: &requests }, forks, rng);
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().try_for_each(|writer| writer.join().map_err(|_| "a panic".to_owned())?)?;
        forked
    })?;
    drop((requests, log));
    db.close().doing(|| "close".into())
}

fn write(db: &Db, log: &Log, thread: u64, stop: &AtomicBool, mut rng: Rng) -> Check {
    let last =
        db.prefix(format!("{thread}/")).keys().next_back().transpose().doing(|| "the last key".into())?;
    let first = last.and_then(|key| String::from_utf8(key).ok()?.split('/').nth(1)?.parse::<u64>().ok());
    let mut number = first.map_or(0, |last| last + 1);
    if number > 0 && log.read(lsn(thread, number - 1)).doing(|| "read".into())?.is_none() {
        number -= 1;
    }
    while !stop.load(Ordering::Relaxed) {
        let durability = if rng.one_in(3) { Durability::Durable } else { Durability::Buffered };
        let options = WriteOptions { durability: Some(durability), ..WriteOptions::default() };
        let bytes = value(thread, number);
        db.writing(&options).put(key(thread, number), &bytes).doing(|| "put".into())?;
        log.writing(&options).append(lsn(thread, number), &bytes).doing(|| "append".into())?;
        number += 1;
        report((WRITTEN << 8 | thread) << NUMBER_BITS | number)?;
        if rng.one_in(200) {
            db.flush().doing(|| "flush".into())?;
        }
    }
    Ok(())
}

/// The handles inherited by a child.
struct Handles<'a> {
    db: &'a Db,
    log: &'a Log,
    requests: &'a Requests,
}

fn fork_children(handles: &Handles<'_>, forks: u64, mut rng: Rng) -> Check {
    let clock = Env::kernel().clock;
    let mut running: Vec<(libc::pid_t, u64)> = Vec::new();
    let mut made = 0;
    while made < forks || !running.is_empty() {
        clock.sleep_ns(rng.below(4_000_000));
        let failed = |status: i32| report(FAILED << 8 << NUMBER_BITS | u64::from(status.cast_unsigned()));
        let mut left = Vec::new();
        for (pid, begun_ns) in std::mem::take(&mut running) {
            let mut status = 0;
            // SAFETY: a child of this process that has not been waited for, and a valid place for
            // its status.
            match unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } {
                0 if clock.now_ns() - begun_ns > CHILD_NS_MAX => failed(libc::ETIME)?,
                0 => left.push((pid, begun_ns)),
                _ if status == 0 => report(ENDED << 8 << NUMBER_BITS)?,
                _ => failed(status)?,
            }
        }
        running = left;
        if made < forks && running.len() < 4 {
            made += 1;
            let script = rng.next_u64();
            // SAFETY: of the vanished threads the child uses only state that the store itself
            // refuses, and the allocator, which supports fork.
            match unsafe { libc::fork() } {
                0 => child(handles, Rng::new(script)),
                pid if pid > 0 => running.push((pid, clock.now_ns())),
                _ => return Err(format!("fork: {}", std::io::Error::last_os_error())),
            }
        }
    }
    Ok(())
}

/// Main function of a child: calls, then an exit of some kind. Its status is 0 on success,
/// otherwise the number of the call.
fn child(handles: &Handles<'_>, mut rng: Rng) -> ! {
    // SAFETY: closes the child's copy, because the killer of its parent reads the pipe to its end.
    unsafe { libc::close(1) };
    for _ in 0..rng.below(12) {
        let call = rng.below(CALLS.len() as u64) as usize;
        match CALLS[call](handles) {
            Err(e) if e.kind() == ErrorKind::Forked => {}
            _ => exit(10 + call as i32),
        }
    }
    match rng.below(5) {
        0 => {
            let Handles { db, log, requests } = *handles;
            let copies = (std::ptr::from_ref(db), std::ptr::from_ref(log), std::ptr::from_ref(requests));
            // SAFETY: drops the child's copies; the child exits without using the originals again.
            let (db, log, requests) =
                unsafe { (std::ptr::read(copies.0), std::ptr::read(copies.1), std::ptr::read(copies.2)) };
            drop((log, requests));
            exit(if db.close().is_err_and(|e| e.kind() == ErrorKind::Forked) { 0 } else { 9 })
        }
        1 => {
            let _ = Command::new("true").exec();
            exit(8)
        }
        2 => {
            Env::kernel().clock.sleep_ns(OUTLIVES_NS);
            exit(0)
        }
        _ => exit(0),
    }
}

fn exit(status: i32) -> ! {
    // SAFETY: ends the process without running the exit handlers of its parent.
    unsafe { libc::_exit(status) }
}

type Call = fn(&Handles<'_>) -> Result<(), Error>;

/// The calls of a child, each of which the engine must refuse.
const CALLS: &[Call] = &[
    |h| h.db.put("child", "value"),
    |h| h.db.writing(&WriteOptions::durable()).put("child", vec![0; 5000]),
    |h| h.db.put("child", vec![0; 2 << 20]),
    |h| h.db.delete(key(0, 0)),
    |h| h.db.delete_range("0".."9"),
    |h| h.db.write(WriteBatch::new().put("child", "value")),
    |h| h.db.get(key(0, 0)).map(drop),
    |h| h.db.iter().next().transpose().map(drop),
    |h| h.db.snapshot().get("child").map(drop),
    |h| h.db.sync(),
    |h| h.db.flush(),
    |h| h.db.verify().map(drop),
    |h| h.db.compact_range(..),
    |h| h.db.family("child").map(drop),
    |h| h.db.put_stream("child").map(drop),
    |h| h.log.append(u64::MAX / 4, "child"),
    |h| h.log.append_async(u64::MAX / 4, "child").map(drop),
    |h| h.log.trim(u64::MAX / 4),
    |h| h.log.read(1).map(drop),
    |h| h.log.scan(..).next().transpose().map(drop),
    |h| h.requests.put("child", "value").map(drop),
    |h| h.requests.get("child").map(drop),
    |h| h.requests.flush().map(drop),
];
