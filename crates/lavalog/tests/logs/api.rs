use crate::model::{Driver, contents, options, seen};
use base::ErrorKind;
use io::sim::{OpKind, SimEnv};
use io::{Access, CreateOptions};
use lavalog::{Durability, LogBatch, LogStore, Options};
use std::path::Path;
use std::time::Duration;
use store::Store;
use store::commit::{Aging, LogTerms, Loggers};
use store::manifest::Engines;

const DIR: &str = "/logs";

fn open(sim: &SimEnv) -> LogStore {
    LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap()
}

#[test]
fn records_survive_append_trim_truncate_and_reopen() {
    let sim = SimEnv::new(1);
    let store = open(&sim);
    let log = store.create_log("orders").unwrap();
    assert_eq!(store.create_log("orders").unwrap_err().kind(), ErrorKind::AlreadyExists);
    for lsn in 1..=10 {
        log.append(lsn, &[lsn as u8; 100], Durability::Durable).unwrap();
    }
    log.append(12, b"out of order", Durability::Buffered).unwrap();
    assert_eq!(log.gaps(1, 20, 10).unwrap(), [(11, 11), (13, 20)]);
    // Repeating the same record succeeds; other bytes are refused.
    log.append(12, b"out of order", Durability::Durable).unwrap();
    assert_eq!(log.append(12, b"other", Durability::Durable).unwrap_err().kind(), ErrorKind::AlreadyExists);
    log.trim(4).unwrap();
    assert_eq!(log.append(3, b"late", Durability::Durable).unwrap_err().kind(), ErrorKind::Trimmed);
    assert_eq!(log.read(3).unwrap_err().kind(), ErrorKind::Trimmed);
    log.truncate_after(8, Durability::Durable).unwrap();
    assert_eq!(log.read(12).unwrap(), None);
    log.append(9, b"another nine", Durability::Durable).unwrap();
    log.set_metadata(b"vote", Durability::Durable).unwrap();
    let lsns = |log: &lavalog::LogHandle| log.scan(0).map(|r| r.unwrap().0).collect::<Vec<_>>();
    assert_eq!(lsns(&log), [4, 5, 6, 7, 8, 9]);
    drop(log);
    store.close().unwrap();
    let store = open(&sim);
    let log = store.open_log("orders").unwrap();
    assert_eq!(lsns(&log), [4, 5, 6, 7, 8, 9]);
    assert_eq!(log.read(9).unwrap().as_deref(), Some(&b"another nine"[..]));
    assert_eq!(log.metadata().unwrap().as_deref(), Some(&b"vote"[..]));
    store.delete_log("orders").unwrap();
    assert_eq!(log.read(9).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(store.open_log("orders").unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn an_invalid_batch_is_refused_atomically() {
    let sim = SimEnv::new(2);
    let store = open(&sim);
    let (a, b) = (store.log("a").unwrap(), store.log("b").unwrap());
    b.append(1, b"there", Durability::Durable).unwrap();
    let refused = |batch: &LogBatch<'_>, kind| {
        assert_eq!(store.write(batch, Durability::Durable).unwrap_err().kind(), kind);
        assert_eq!(a.read(1).unwrap(), None);
    };
    refused(LogBatch::new().append(&a, 1, b"x").append(&b, 1, b"other"), ErrorKind::AlreadyExists);
    refused(LogBatch::new().append(&a, 1, b"x").append(&a, 1, b"y"), ErrorKind::InvalidArgument);
    store.write(LogBatch::new().append(&a, 1, b"x").append(&b, 1, b"there"), Durability::Durable).unwrap();
    assert_eq!(a.read(1).unwrap().as_deref(), Some(&b"x"[..]));
    // Records that a truncation in the same batch removes may be written anew.
    store.write(LogBatch::new().truncate_after(&b, 0).append(&b, 1, b"other"), Durability::Durable).unwrap();
    assert_eq!(b.read(1).unwrap().as_deref(), Some(&b"other"[..]));
    // A record that the truncation keeps is not replaced.
    let kept =
        store.write(LogBatch::new().truncate_after(&b, 1).append(&b, 1, b"third"), Durability::Durable);
    assert_eq!(kept.unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(b.read(1).unwrap().as_deref(), Some(&b"other"[..]));
    for wrong in [
        Options { group_bytes: Some(1), ..options() },
        Options { garbage_percent: 0, ..options() },
        Options { background_threads: 0, ..options() },
        Options { durability: Durability::Volatile, ..options() },
    ] {
        let e = LogStore::open(&sim.env(), Path::new("/other"), &wrong).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn a_store_is_created_only_if_allowed() {
    let sim = SimEnv::new(7);
    let (env, dir) = (sim.env(), Path::new(DIR));
    let present = Options { create_if_missing: false, ..options() };
    let missing = |what: &str| {
        let e = LogStore::open(&env, dir, &present).unwrap_err();
        assert!(e.kind() == ErrorKind::NotFound && e.message().contains(what), "{e}");
    };
    missing("no store of logs");
    assert!(env.fs.list(dir).is_err(), "nothing was made");
    // A store without logs does not get them.
    let terms = LogTerms {
        access: Access::Buffered,
        group_bytes: 1 << 20,
        free_groups_max: 1,
        loggers: Loggers::default(),
        retained_open_max: 8,
        aging: Aging::default(),
    };
    let engines = Engines::default();
    Store::open(&env, dir, terms, &engines, &mut |_, _, _| Ok(())).unwrap().close().unwrap();
    missing("no logs in this store");
    open(&sim).log("a").unwrap();
    assert_eq!(LogStore::open(&env, dir, &present).unwrap().list_logs("", 9), ["a"]);
    env.fs.create_dir_all(Path::new("/home")).unwrap();
    drop(env.fs.create(Path::new("/home/letter"), &CreateOptions::default()).unwrap());
    let refused = LogStore::open(&env, Path::new("/home"), &options()).unwrap_err();
    assert!(
        refused.kind() == ErrorKind::InvalidArgument && refused.message().contains("letter"),
        "{refused}"
    );
    // A store that lost its CURRENT is not overwritten.
    env.fs.remove(&dir.join("CURRENT")).unwrap();
    for options in [&present, &options()] {
        let refused = LogStore::open(&env, dir, options).unwrap_err();
        assert!(
            refused.kind() == ErrorKind::Corruption && refused.message().contains("CURRENT"),
            "{refused}"
        );
    }
}

#[test]
fn volatile_appends_are_refused() {
    let sim = SimEnv::new(5);
    let store = open(&sim);
    let log = store.log("a").unwrap();
    let refused = log.append(1, b"x", Durability::Volatile).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    assert_eq!(log.read(1).unwrap(), None);
}

#[test]
fn a_scan_ends_at_the_last_lsn_of_its_range() {
    let sim = SimEnv::new(6);
    let store = open(&sim);
    let log = store.log("a").unwrap();
    let lsns: Vec<u64> = (1..=3000).filter(|lsn| lsn % 7 != 0).collect();
    for in_files in [false, true] {
        for &lsn in &lsns {
            log.append(lsn, &[lsn as u8; 30], Durability::Buffered).unwrap();
        }
        if in_files {
            store.seal().unwrap();
            store.wait_idle().unwrap();
            assert!(store.statistics().sealed_groups > 0);
        }
        for (first, last) in
            [(0, 0), (1, 1), (7, 7), (5, 9), (255, 258), (700, 2100), (2999, 9000), (9, 3), (0, u64::MAX)]
        {
            let found: Vec<u64> = log.scan_range(first..=last).map(|record| record.unwrap().0).collect();
            let wanted: Vec<u64> = lsns.iter().copied().filter(|lsn| (first..=last).contains(lsn)).collect();
            assert_eq!(found, wanted, "{first} to {last}, in files: {in_files}");
        }
    }
    // Past its last LSN a scan does not wait, even if it has read nothing.
    assert_eq!(log.scan_range(7..=7).wait_next(Duration::from_millis(1)).unwrap(), None);
    let before = sim.env().clock.now_ns();
    let mut one = log.scan_range(8..=8);
    assert!(one.wait_next(Duration::MAX).unwrap().is_some());
    assert_eq!(one.wait_next(Duration::MAX).unwrap(), None);
    assert!(sim.env().clock.now_ns() - before < 1_000_000_000);
}

#[test]
fn a_waiting_tail_returns_records_or_times_out() {
    let sim = SimEnv::new(3);
    let store = open(&sim);
    let log = store.log("a").unwrap();
    let mut tail = log.scan(1);
    assert_eq!(tail.wait_next(Duration::from_millis(20)).unwrap(), None);
    log.append(5, b"five", Durability::Buffered).unwrap();
    assert_eq!(tail.wait_next(Duration::from_millis(20)).unwrap(), Some((5, b"five".to_vec())));
    assert_eq!(tail.read_next().unwrap(), None);
}

#[test]
fn groups_are_retained_and_trims_free_space() {
    let sim = SimEnv::new(4);
    // Records copied early die soon.
    let options = Options { garbage_percent: 90, ..options() };
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options).unwrap();
    let logs: Vec<_> = (0..10).map(|n| store.log(&format!("log {n}")).unwrap()).collect();
    let kept = store.log("kept").unwrap();
    let mut most = 0;
    for lsn in 1..=3000_u64 {
        for log in &logs {
            log.append(lsn, &[lsn as u8; 300], Durability::Buffered).unwrap();
        }
        kept.append(lsn, &[7; 30], Durability::Buffered).unwrap();
        if lsn % 100 == 0 {
            logs.iter().for_each(|log| log.trim(lsn - 50).unwrap());
            store.wait_idle().unwrap();
            most = most.max(sim.env().fs.list(Path::new(DIR)).unwrap().iter().map(|e| e.len).sum::<u64>());
        }
    }
    let found = store.statistics();
    assert!(found.sealed_groups > 20 && found.collected_files > 20, "{found:?}");
    // Nine megabytes were appended.
    assert!(most < 4 << 20, "{most} bytes");
    // The records of the untrimmed log were copied at most twice.
    assert!(found.copied_bytes <= 2 * 3000 * 30 + found.append_bytes / 10, "{found:?}");
    let all: Vec<u64> = kept.scan(0).map(|record| record.unwrap().0).collect();
    assert_eq!(all, (1..=3000).collect::<Vec<u64>>());
    drop((logs, kept));
    store.close().unwrap();
    let store = open(&sim);
    assert_eq!(store.open_log("kept").unwrap().scan(0).count(), 3000);
    assert_eq!(store.open_log("log 3").unwrap().first_lsn().unwrap(), Some(2950));
}

#[test]
fn random_operations_agree_with_a_model() {
    for seed in 0..20 {
        let sim = SimEnv::new(seed);
        let mut store = open(&sim);
        let mut driver = Driver::new(seed);
        for n in 0..1200 {
            driver.one(&store, Durability::Buffered).unwrap();
            if n % 97 == 0 {
                store.wait_idle().unwrap();
                assert_eq!(contents(&store), seen(&driver.model), "seed {seed}, after {n}");
            }
            if n % 401 == 400 {
                store.close().unwrap();
                store = open(&sim);
                assert_eq!(contents(&store), seen(&driver.model), "seed {seed}, opened after {n}");
            }
        }
    }
}

#[test]
fn an_option_out_of_its_range_is_refused_by_its_name() {
    let wrong = [
        Options { recent_bytes: 65 << 30, ..Options::default() },
        Options { open_files_max: 1, ..Options::default() },
        Options { background_threads: 0, ..Options::default() },
        Options { garbage_percent: 101, ..Options::default() },
        Options { group_bytes: Some(1), ..Options::default() },
    ];
    for (options, name) in wrong.iter().zip(["recent_bytes", "open_files", "background", "garbage", "group"])
    {
        let refused = options.check().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        assert!(refused.to_string().contains(name), "{refused}");
    }
}

#[test]
fn handles_of_a_closed_store_are_refused() {
    let sim = SimEnv::new(9);
    let store = open(&sim);
    let (other, log) = (store.clone(), store.create_log("log").unwrap());
    log.append(1, b"x", Durability::Durable).unwrap();
    let mut scan = log.scan(1);
    store.close().unwrap();
    other.close().unwrap();
    let told = [
        log.append(2, b"y", Durability::Durable),
        log.read(1).map(drop),
        scan.read_next().map(drop),
        scan.wait_next(std::time::Duration::MAX).map(drop),
        log.store().checkpoint(Path::new("/copy")),
        log.store().verify_unless(None).map(drop),
        log.store().wait_idle(),
        log.store().create_log("other").map(drop),
    ];
    for told in told {
        assert_eq!(told.unwrap_err().kind(), ErrorKind::Closed);
    }
    let next = open(&sim);
    drop((log, scan));
    assert_eq!(next.open_log("log").unwrap().read(1).unwrap().as_deref(), Some(&b"x"[..]));
    next.close().unwrap();
}

#[test]
fn an_open_reads_each_file_once() {
    let sim = SimEnv::new(11);
    let options = || Options { group_bytes: Some(256 << 10), garbage_percent: 100, ..Options::default() };
    let open = || LogStore::open(&sim.env(), Path::new("/logs"), &options()).unwrap();
    let reads_at_open = |groups: u64| {
        let store = open();
        let log = store.log("log").unwrap();
        for _ in 0..groups {
            let next = log.last_lsn().unwrap().map_or(1, |last| last + 1);
            log.append(next, b"record", Durability::Buffered).unwrap();
            store.seal().unwrap();
            store.wait_idle().unwrap();
        }
        drop(log);
        store.close().unwrap();
        let before = sim.count_ops(Some(OpKind::Read), "");
        open().close().unwrap();
        sim.count_ops(Some(OpKind::Read), "") - before
    };
    let (few, many) = (reads_at_open(10), reads_at_open(100));
    assert!((200..210).contains(&(many - few)), "{few} reads with 10 files, {many} with 110");
}
