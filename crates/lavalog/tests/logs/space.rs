//! The space limit is exceeded at no operation of the file system, and operations that free space
//! always succeed.

use base::ErrorKind;
use io::Rng;
use io::sim::{CrashKind, SimEnv};
use lavalog::{Durability, LogHandle, LogStore, Options};
use std::path::Path;

const DIR: &str = "/logs";
const LIMIT: u64 = 4 << 20;
const LEN: usize = 1000;

fn options() -> Options {
    Options { group_bytes: Some(256 << 10), space_limit: Some(LIMIT), ..Options::default() }
}

fn open(sim: &SimEnv) -> LogStore {
    sim.watch(DIR);
    LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap()
}

fn kept(sim: &SimEnv) {
    let peak = sim.peak();
    assert!(peak <= LIMIT, "{peak} bytes were occupied of {LIMIT}");
}

fn append(log: &LogHandle, lsn: u64) -> base::Result<()> {
    log.append(lsn, &[lsn as u8; LEN], Durability::Buffered)
}

/// Appends `rounds` records to each log and trims all but the first `kept_logs` logs. Returns the
/// appended and the copied bytes.
fn append_and_trim(sim: &SimEnv, logs: u64, kept_logs: u64, rounds: u64, lag: u64) -> (u64, u64) {
    let store = open(sim);
    let logs: Vec<LogHandle> = (0..logs).map(|n| store.create_log(&format!("log {n}")).unwrap()).collect();
    for lsn in 1..=rounds {
        for (n, log) in logs.iter().enumerate() {
            append(log, lsn).unwrap_or_else(|e| panic!("record {lsn} of log {n}: {e}"));
            if n as u64 >= kept_logs && lsn > lag {
                log.trim(lsn - lag).unwrap();
            }
        }
        kept(sim);
    }
    store.wait_idle().unwrap();
    for (n, log) in logs.iter().enumerate() {
        let first = if (n as u64) < kept_logs { 1 } else { rounds - lag };
        assert_eq!(log.scan(0).map(|record| record.unwrap().0).collect::<Vec<_>>().first(), Some(&first));
    }
    let statistics = store.statistics();
    drop(logs);
    store.close().unwrap();
    kept(sim);
    (statistics.append_bytes, statistics.copied_bytes)
}

#[test]
fn ten_times_the_limit_is_appended_and_trimmed_below_it() {
    let (appended, copied) = append_and_trim(&SimEnv::new(1), 8, 0, 5_000, 100);
    assert!(appended > 9 * LIMIT && copied * 20 < appended, "{copied} of {appended} bytes were copied");
}

#[test]
fn an_untrimmed_log_does_not_pin_space_of_other_logs() {
    let (appended, copied) = append_and_trim(&SimEnv::new(2), 100, 1, 400, 4);
    assert!(appended > 9 * LIMIT && copied * 20 < appended, "{copied} of {appended} bytes were copied");
    assert!(copied > appended / 100, "what is kept was copied: {copied}");
}

#[test]
fn appends_at_the_limit_resume_after_trims() {
    let sim = SimEnv::new(3);
    let store = open(&sim);
    let logs: Vec<LogHandle> = (0..4).map(|n| store.create_log(&format!("log {n}")).unwrap()).collect();
    let mut next = 1;
    for round in 0..6 {
        let begun = next;
        let refused = loop {
            match logs.iter().try_for_each(|log| append(log, next)) {
                Ok(()) => next += 1,
                Err(e) => break e,
            }
        };
        assert_eq!(refused.kind(), ErrorKind::NoSpace);
        assert!(refused.to_string().contains("trim or delete logs"), "{refused}");
        assert!(next > begun + 20, "round {round}: {begun} to {next}");
        kept(&sim);
        // Many small trims, each of which frees a little.
        for lsn in begun..next {
            logs.iter().for_each(|log| log.trim(lsn).unwrap());
        }
        kept(&sim);
        store.wait_idle().unwrap();
        kept(&sim);
    }
}

#[test]
fn deleting_a_log_frees_space() {
    let sim = SimEnv::new(6);
    let store = open(&sim);
    for round in 0..4 {
        let log = store.create_log("log").unwrap();
        let refused = (1..).find_map(|lsn| append(&log, lsn).err()).unwrap();
        assert_eq!(refused.kind(), ErrorKind::NoSpace, "round {round}");
        store.delete_log("log").unwrap();
        store.wait_idle().unwrap();
        kept(&sim);
    }
}

#[test]
fn a_full_store_reopens_below_its_limit() {
    let mut rng = Rng::new(4);
    let sim = SimEnv::new(4);
    let store = open(&sim);
    let log = store.create_log("log").unwrap();
    let mut next = 1;
    while append(&log, next).is_ok() {
        next += 1;
    }
    store.sync().unwrap();
    let record = sim.record();
    for _ in 0..10 {
        let op = record.op_count() - rng.below(40);
        let again = record.crash_at(op, CrashKind::PowerLoss, rng.next_u64());
        let store = open(&again);
        let log = store.open_log("log").unwrap();
        let last = log.last_lsn().unwrap().unwrap();
        log.trim(last).unwrap();
        store.wait_idle().unwrap();
        for lsn in last + 1..last + 500 {
            append(&log, lsn).unwrap();
        }
        drop(log);
        store.close().unwrap();
        kept(&again);
    }
}

/// Each open begins a group for each lane, however little space is left, and a process that dies at
/// once leaves them to the next.
#[test]
fn a_store_at_its_limit_reopens_repeatedly_below_it() {
    for seed in 0..12 {
        let (mut rng, mut sim) = (Rng::new(seed), SimEnv::new(seed));
        let limit = 2_179_072 + rng.below(256) * 4096;
        let options = Options { space_limit: Some(limit), ..options() };
        let open = |sim: &SimEnv| {
            sim.watch(DIR);
            LogStore::open(&sim.env(), Path::new(DIR), &options).unwrap()
        };
        let store = open(&sim);
        let log = store.create_log("log").unwrap();
        let refused = (1..).find_map(|lsn| append(&log, lsn).err()).unwrap();
        assert_eq!(refused.kind(), ErrorKind::NoSpace);
        // Trims that free almost nothing use up the reserve.
        for _ in 0..rng.below(8_000) {
            log.trim(1).unwrap();
        }
        assert!(sim.peak() <= limit, "seed {seed}: {} bytes were occupied of {limit}", sim.peak());
        drop((log, store));
        for life in 0..30 {
            sim = sim.crash(CrashKind::ProcessKill, rng.next_u64());
            let store = open(&sim);
            let log = store.open_log("log").unwrap();
            if rng.one_in(3) {
                log.trim(2).unwrap();
            }
            let peak = sim.peak();
            assert!(peak <= limit, "seed {seed}, life {life}: {peak} bytes were occupied of {limit}");
        }
        let store = open(&sim);
        let log = store.open_log("log").unwrap();
        let last = log.last_lsn().unwrap().unwrap();
        log.trim(last).unwrap();
        store.wait_idle().unwrap();
        append(&log, last + 1).unwrap();
    }
}

/// After a power failure the files of open pages may be shorter, or missing. They are recreated
/// after the initial groups of the logs, and never refused.
#[test]
fn a_store_near_its_limit_reopens_below_it_without_open_pages() {
    let sim = SimEnv::new(9);
    let store = open(&sim);
    let log = store.create_log("log").unwrap();
    let refused = (1..).find_map(|lsn| append(&log, lsn).err()).unwrap();
    assert_eq!(refused.kind(), ErrorKind::NoSpace);
    let last = log.last_lsn().unwrap().unwrap();
    drop(log);
    store.close().unwrap();
    let listing = || sim.env().fs.list(Path::new(DIR)).unwrap().into_iter();
    let (gone, left): (Vec<_>, Vec<_>) = listing().partition(|entry| entry.name.starts_with("STAGING"));
    gone.iter().for_each(|entry| sim.env().fs.remove(&Path::new(DIR).join(&entry.name)).unwrap());
    let open_pages: u64 = gone.iter().map(|entry| entry.allocated).sum();
    let used: u64 = left.iter().map(|entry| entry.allocated).sum();
    assert!(gone.len() == 2 && open_pages >= 128 << 10, "{gone:?}");
    // There is space for open pages and for edits, and for a varying part of the groups.
    for room in (16..160).step_by(8).map(|kib| kib << 10) {
        let limit = used + (128 << 10) + room;
        let options = Options { space_limit: Some(limit), ..options() };
        let again = sim.fork(room);
        again.watch(DIR);
        let store = LogStore::open(&again.env(), Path::new(DIR), &options).unwrap();
        let peak = again.peak();
        assert!(peak <= limit, "room for {room} bytes: {peak} bytes were occupied of {limit}");
        let log = store.open_log("log").unwrap();
        assert_eq!(log.last_lsn().unwrap(), Some(last));
        log.trim(last).unwrap();
        store.wait_idle().unwrap();
        append(&log, last + 1).unwrap();
    }
}

/// Without reserved space and without dead files there is no space for the initial groups of the
/// logs. They are created above the limit, as short as possible; otherwise nothing could free
/// space. The next open finds them and creates no more.
#[test]
fn a_store_at_its_limit_without_reserve_reopens_above_it() {
    let sim = SimEnv::new(8);
    let store = open(&sim);
    let log = store.create_log("log").unwrap();
    let refused = (1..).find_map(|lsn| append(&log, lsn).err()).unwrap();
    assert_eq!(refused.kind(), ErrorKind::NoSpace);
    drop((log, store));
    let mut sim = sim.crash(CrashKind::ProcessKill, 1);
    // Among the group files, those that the manifest does not list: spare groups, and the reserved
    // space.
    for entry in sim.env().fs.list(Path::new(DIR)).unwrap() {
        let path = Path::new(DIR).join(&entry.name);
        let without = sim.fork(1);
        without.env().fs.remove(&path).unwrap();
        let found = LogStore::open(&without.env(), Path::new(DIR), &options()).map(|store| store.verify());
        if entry.name.ends_with(".log") && found.is_ok_and(|found| found.damages.is_empty()) {
            sim.env().fs.remove(&path).unwrap();
        }
    }
    sim.watch(DIR);
    let limit = sim.peak();
    let options = Options { space_limit: Some(limit), ..options() };
    for life in 0..30 {
        sim.watch(DIR);
        let store = LogStore::open(&sim.env(), Path::new(DIR), &options).unwrap();
        let log = store.open_log("log").unwrap();
        assert_eq!(
            append(&log, log.last_lsn().unwrap().unwrap() + 1).unwrap_err().kind(),
            ErrorKind::NoSpace
        );
        let above = sim.peak().saturating_sub(limit);
        assert!(above <= 96 << 10, "life {life}: {above} bytes above the limit");
        sim = sim.crash(CrashKind::ProcessKill, life);
    }
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options).unwrap();
    let log = store.open_log("log").unwrap();
    let last = log.last_lsn().unwrap().unwrap();
    log.trim(last).unwrap();
    store.wait_idle().unwrap();
    append(&log, last + 1).unwrap();
    assert!(store.space().unwrap().total_bytes <= limit);
}

/// Checks the space report against the file system and against the written records.
fn told(sim: &SimEnv, store: &LogStore) -> lavalog::Space {
    let space = store.space().unwrap();
    let entries = sim.env().fs.list(Path::new(DIR)).unwrap();
    assert_eq!(space.total_bytes, entries.iter().map(|entry| entry.allocated).sum::<u64>());
    assert_eq!(space.total_bytes, space.parts().iter().map(|(_, bytes)| bytes).sum::<u64>());
    assert_eq!(space.owners.live_bytes, space.logs.iter().map(|log| log.live_bytes).sum::<u64>());
    assert_eq!(space.owners.live_bytes, store.statistics().record_bytes);
    space
}

#[test]
fn every_byte_is_attributed_in_the_space_report() {
    let sim = SimEnv::new(7);
    let store = open(&sim);
    assert_eq!(told(&sim, &store).owners.live_bytes, 0);
    let logs: Vec<LogHandle> = (0..5).map(|n| store.create_log(&format!("log {n}")).unwrap()).collect();
    for lsn in 1..=800 {
        logs.iter().for_each(|log| append(log, lsn).unwrap());
        logs.iter().skip(1).filter(|_| lsn > 50).for_each(|log| log.trim(lsn - 50).unwrap());
        if lsn % 100 == 0 {
            told(&sim, &store);
        }
    }
    store.seal().unwrap();
    store.wait_idle().unwrap();
    let space = told(&sim, &store);
    let live: Vec<_> = space.logs.iter().map(|log| (&*log.name, log.records, log.live_bytes)).collect();
    assert_eq!(live[..2], [("log 0", 800, 800 * LEN as u64), ("log 1", 51, 51 * LEN as u64)]);
    let owners = space.owners;
    assert!(owners.index_bytes > 0 && owners.checkpoint_bytes > 0 && owners.free_bytes > 0, "{space:?}");
    assert!(owners.garbage_bytes > 0 && owners.open_bytes > 0 && owners.wal_bytes > 0, "{space:?}");
    assert!(space.stored.groups > 0 && space.stored.cold_files > 0, "{space:?}");
    assert_eq!((owners.engines_bytes, owners.job_bytes, space.limit_bytes), (0, 0, LIMIT), "{space:?}");
    assert!(space.reserve_bytes > 500 << 10, "{space:?}");
    drop(logs);
    store.close().unwrap();
    let again = told(&sim, &open(&sim));
    assert_eq!(again.owners.live_bytes, space.owners.live_bytes);
}

#[test]
fn a_limit_without_room_for_anything_is_refused() {
    let options = Options { space_limit: Some(1 << 20), ..options() };
    let e = LogStore::open(&SimEnv::new(5).env(), Path::new(DIR), &options).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    assert!(e.to_string().contains("space_limit = 1048576 is out of range"), "{e}");
}
