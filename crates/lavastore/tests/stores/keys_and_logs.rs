//! Keys and logs in one store: handles, batches of both, and a state made from a log.

use io::Rng;
use lavastore::testing::{CrashKind, Policy, SimEnv, store, store_with_logs};
use lavastore::{
    Db, Durability, Error, ErrorKind, KeyOutcome, LogBatch, LogOptions, LogRepairOptions, LogStore, Options,
    RepairOptions, RepairReport, Result, SpaceLimit, WriteBatch, WriteOptions,
};
use std::path::PathBuf;

fn options() -> Options {
    Options { memtable_bytes: 64 << 10, memory_bytes: 256 << 10, ..Default::default() }
}

fn log_options() -> LogOptions {
    LogOptions { group_bytes: Some(256 << 10), ..Default::default() }
}

fn open(machine: &SimEnv) -> Result<Db> {
    Db::open_with_logs_in(&machine.env(), "/store", &options(), &log_options())
}

fn one(key: &str, value: &str) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(key, value);
    batch
}

/// Writes of logs have no deadline: options with one are refused, and nothing is written.
#[test]
fn log_writes_refuse_options_with_a_deadline() {
    let db = lavastore::testing::store_with_logs();
    let (orders, bounded) = (db.logs().unwrap().log("orders").unwrap(), WriteOptions::buffered().no_wait());
    let (mut keys, mut logs) = (WriteBatch::new(), LogBatch::new());
    keys.put("a", "b");
    logs.append(&orders, 1, "x");
    let refused = [
        orders.writing(&bounded).append(1, "x"),
        orders.writing(&bounded).trim(1),
        orders.writing(&bounded).truncate_after(1),
        orders.writing(&bounded).set_metadata("x"),
        db.logs().unwrap().write_with(&logs, &bounded),
        db.writing(&bounded).write_with_logs(&keys, &logs),
    ];
    for e in refused.map(Result::unwrap_err) {
        assert_eq!(e.kind(), ErrorKind::InvalidArgument);
        assert!(e.message().contains("omit wait_at_most"), "{e}");
    }
    assert_eq!((db.get("a").unwrap(), orders.last_lsn().unwrap()), (None, None));
    db.writing(&bounded).put("a", "b").unwrap();
}

#[test]
fn log_handles_keep_the_store_open_until_the_last_drop() {
    let machine = SimEnv::new(1);
    let db = open(&machine).unwrap();
    let logs = db.logs().unwrap();
    let orders = logs.log("orders").unwrap();
    orders.append(1, "two apples").unwrap();
    drop(db);
    assert_eq!(open(&machine).unwrap_err().kind(), ErrorKind::Locked);
    drop(logs);
    assert_eq!(open(&machine).unwrap_err().kind(), ErrorKind::Locked);
    orders.append(2, "one pear").unwrap();
    drop(orders);
    let db = open(&machine).unwrap();
    let orders = db.logs().unwrap().log("orders").unwrap();
    let logs = db.logs().unwrap();
    logs.close().unwrap();
    // Closing the logs closes the store, whatever handles exist.
    for told in [db.put("a", "b"), orders.append(3, "a fig"), orders.read(1).map(drop)] {
        assert_eq!(told.unwrap_err().kind(), ErrorKind::Closed);
    }
    let db = open(&machine).unwrap();
    let logs = db.logs().unwrap();
    assert_eq!(logs.open_log("orders").unwrap().last_lsn().unwrap(), Some(2));
    drop(db);
    logs.close().unwrap();
    open(&machine).unwrap().close().unwrap();
}

#[test]
fn misuse_of_keys_and_logs_is_refused() {
    let kind = |told: Error| (told.kind(), told.message().to_owned());
    let db = store_with_logs();
    let other = LogStore::open_in(&SimEnv::new(9).env(), "/logs", &log_options()).unwrap();
    let foreign = other.log("orders").unwrap();
    let invalid = |told: Error, why: &str| {
        let (kind, message) = kind(told);
        assert!(kind == ErrorKind::InvalidArgument && message.contains(why), "{message}");
    };
    let mut batch = LogBatch::new();
    batch.append(&foreign, 1, "x");
    invalid(db.write_with_logs(&one("k", "v"), &batch).unwrap_err(), "a log of another store");
    invalid(db.applier(&foreign).unwrap_err(), "belongs to another store");
    invalid(store().logs().unwrap_err(), "opened without its logs");
    invalid(store().write_with_logs(&one("k", "v"), &LogBatch::new()).unwrap_err(), "without its logs");
    let orders = db.logs().unwrap().log("orders").unwrap();
    let mut batch = LogBatch::new();
    batch.append(&orders, 1, "x");
    let volatile = db.writing(&WriteOptions::volatile()).write_with_logs(&one("k", "v"), &batch);
    invalid(volatile.unwrap_err(), "a volatile write is not logged");
    let limited = LogOptions { space_limit: Some(1 << 40), ..log_options() };
    let machine = SimEnv::new(1);
    let opened = Db::open_with_logs_in(&machine.env(), "/store", &options(), &limited);
    invalid(opened.unwrap_err(), "no space limit of their own");
    let bounded = LogOptions { io_budget: 1 << 20, ..log_options() };
    let opened = Db::open_with_logs_in(&machine.env(), "/store", &options(), &bounded);
    invalid(opened.unwrap_err(), "no I/O budget of their own");
    // A batch with only one half is written like a plain batch of that engine.
    db.write_with_logs(&WriteBatch::new(), &batch).unwrap();
    db.write_with_logs(&one("k", "v"), &LogBatch::new()).unwrap();
    assert!(db.get("k").unwrap().is_some() && orders.read(1).unwrap().is_some());
    // An invalid position.
    let mut applier = db.applier(&orders).unwrap();
    let positions = db.family("lavastore.applied").unwrap();
    applier.apply(1, &WriteBatch::new()).unwrap();
    let (key, _) = positions.iter().next().unwrap().unwrap();
    positions.put(key, "what is this").unwrap();
    let told = applier.applied_lsn().unwrap_err();
    assert!(told.kind() == ErrorKind::Corruption && told.message().contains("not the 8 of an LSN"), "{told}");
}

#[test]
fn log_group_size_follows_the_space_limit() {
    let machine = SimEnv::new(3);
    let limited = Options { space_limit: Some(SpaceLimit::Bytes(1 << 30)), ..options() }
        .expert(|expert| expert.log_group_bytes = 64 << 10);
    let db = Db::open_with_logs_in(&machine.env(), "/store", &limited, &LogOptions::default()).unwrap();
    let orders = db.logs().unwrap().log("orders").unwrap();
    let mut longest = 0;
    for lsn in 1..=120 {
        orders.writing(&WriteOptions::buffered()).append(lsn, [7; 1 << 20]).unwrap();
        let files = machine.env().fs.list("/store".as_ref()).unwrap().into_iter();
        let groups = files.filter(|file| file.name.ends_with(".log"));
        longest = groups.map(|file| file.len).max().unwrap_or(0).max(longest);
    }
    // Without a limit, the default is at most 256 MiB.
    assert_eq!(longest, 32 << 20);
}

#[test]
fn a_batch_of_both_is_atomic_and_either_sync_covers_it() {
    let machine = SimEnv::new(2);
    let db = open(&machine).unwrap();
    let orders = db.logs().unwrap().log("orders").unwrap();
    let lose = |seed| machine.crash(CrashKind::PowerLossWith(Policy::Dropped), seed);
    let found = |left: &SimEnv| {
        let db = open(left).unwrap();
        let orders = db.logs().unwrap().log("orders").unwrap();
        let keys = ["a", "b", "c"].map(|key| db.get(key).unwrap().is_some());
        let records = [1, 2, 3].map(|lsn| orders.read(lsn).unwrap().is_some());
        (keys, records)
    };
    db.write_with_logs(&one("a", "1"), LogBatch::new().append(&orders, 1, "a")).unwrap();
    assert_eq!(found(&lose(1)), ([true, false, false], [true, false, false]));
    let mut batch = LogBatch::new();
    batch.append(&orders, 2, "b");
    db.writing(&WriteOptions::buffered()).write_with_logs(&one("b", "1"), &batch).unwrap();
    orders.writing(&WriteOptions::buffered()).append(3, "c").unwrap();
    for seed in 0..8 {
        let (keys, records) = found(&lose(seed));
        assert_eq!(keys[1], records[1], "both halves or neither");
    }
    // A crash keeps or loses each unsynced write by chance.
    assert!((0..64).any(|seed| !found(&lose(seed)).1[2]), "it was buffered");
    db.sync().unwrap();
    assert_eq!(found(&lose(1)), ([true, true, false], [true, true, true]));
}

/// A state in which a record applied twice shows: sums in several families.
struct Sums {
    db: Db,
}

const FAMILIES: [&str; 3] = ["default", "rare", "wide"];

impl Sums {
    fn get(&self, family: &str, key: &str) -> u64 {
        let value = self.db.family(family).unwrap().get(key).unwrap();
        value.map_or(0, |bytes| u64::from_le_bytes(bytes[..8].try_into().unwrap()))
    }

    /// Returns the changes of record `lsn`: a sum in one or more families, and padding that fills
    /// memtables.
    fn changes(&self, lsn: u64) -> WriteBatch {
        let mut batch = WriteBatch::new();
        for (at, name) in FAMILIES.into_iter().enumerate() {
            let family = self.db.family(name).unwrap();
            if lsn.is_multiple_of([1, 7, 2][at]) {
                let sum = self.get(name, "sum") + lsn;
                batch.family(&family).put("sum", sum.to_le_bytes());
                let mut long = sum.to_le_bytes().to_vec();
                long.resize(400, at as u8);
                batch.family(&family).put(format!("at {lsn}"), long);
            }
        }
        batch
    }

    /// Checks that the sums of all families are those after the last applied record.
    fn check(&self, applied: u64) {
        for (at, name) in FAMILIES.into_iter().enumerate() {
            let expected: u64 = (1..=applied).filter(|lsn| lsn.is_multiple_of([1, 7, 2][at])).sum();
            assert_eq!(self.get(name, "sum"), expected, "family {name} at record {applied}");
        }
    }
}

/// Opens the store after a crash, checks it, and applies the rest of the log; returns the last
/// record.
fn recover(left: &SimEnv, durable: u64) -> (Db, u64) {
    let db = open(left).unwrap();
    let orders = db.logs().unwrap().log("orders").unwrap();
    let mut applier = db.applier(&orders).unwrap();
    let state = Sums { db: db.clone() };
    let applied = applier.applied_lsn().unwrap().unwrap_or(0);
    assert_eq!(applier.flushed_lsn().unwrap().unwrap_or(0), applied, "what survived is in tables");
    state.check(applied);
    let mut last = applied;
    for record in orders.scan(applier.next_lsn().unwrap()..) {
        let (lsn, _) = record.unwrap();
        assert_eq!(lsn, last + 1, "no record is missing behind the state");
        applier.apply(lsn, &state.changes(lsn)).unwrap();
        last = lsn;
    }
    assert!(last >= durable, "record {durable} was durable, {last} is the last");
    state.check(last);
    (db, last)
}

#[test]
fn applied_state_matches_a_record_after_any_crash() {
    let (mut states, mut flushed, mut trimmed) = (0, 0, 0);
    for seed in 0..10 {
        let mut rng = Rng::new(seed);
        let machine = SimEnv::new(seed);
        let (db, mut last) = recover(&machine, 0);
        let orders = db.logs().unwrap().log("orders").unwrap();
        let mut applier = db.applier(&orders).unwrap();
        let state = Sums { db: db.clone() };
        let start = machine.record().op_count();
        // The last durable record at each moment.
        let mut durable = vec![(start, last)];
        for _ in 0..300 {
            last += 1;
            let how = if rng.one_in(3) { Durability::Durable } else { Durability::Buffered };
            orders
                .writing(&WriteOptions { durability: Some(how), ..WriteOptions::default() })
                .append(last, [7; 100])
                .unwrap();
            if how == Durability::Durable {
                durable.push((machine.record().op_count(), last));
            }
            applier.apply(last, &state.changes(last)).unwrap();
            match rng.below(60) {
                0 => db.flush().unwrap(),
                1 | 2 => trimmed += u64::from(applier.trim_log().unwrap().is_some()),
                3 => db.put("beside", "a write that is logged").unwrap(),
                _ => {}
            }
        }
        state.check(last);
        flushed += db.stats().flushes;
        let record = machine.record();
        for op in record.mutations().into_iter().filter(|op| *op >= start) {
            if !rng.one_in(12) {
                continue;
            }
            let kind = if rng.one_in(2) { CrashKind::PowerLoss } else { CrashKind::ProcessKill };
            let by_then = durable.iter().rev().find(|(at, _)| *at <= op).map_or(0, |(_, lsn)| *lsn);
            let left = record.crash_at(op, kind, seed);
            let (db, last) = recover(&left, by_then);
            // A second crash during recovery: reapplied changes are volatile and may be lost again.
            db.logs().unwrap().log("orders").unwrap().append(last + 1, "after the crash").unwrap();
            recover(&left.crash(kind, seed), last + 1);
            states += 1;
        }
    }
    assert!(
        states > 300 && flushed > 30 && trimmed > 5,
        "{states} states, {flushed} flushes, {trimmed} trims"
    );
}

#[test]
fn applied_lsn_survives_a_close_but_not_log_recreation() {
    let machine = SimEnv::new(3);
    let db = open(&machine).unwrap();
    let orders = db.logs().unwrap().log("orders").unwrap();
    let mut applier = db.applier(&orders).unwrap();
    orders.append(5, "five").unwrap();
    applier.apply(5, &one("k", "v")).unwrap();
    assert_eq!((applier.applied_lsn().unwrap(), applier.flushed_lsn().unwrap()), (Some(5), None));
    drop((orders, applier));
    db.close().unwrap();
    let db = open(&machine).unwrap();
    let logs = db.logs().unwrap();
    let applier = db.applier(&logs.log("orders").unwrap()).unwrap();
    assert_eq!((applier.next_lsn().unwrap(), applier.flushed_lsn().unwrap()), (6, Some(5)));
    logs.delete_log("orders").unwrap();
    let applier = db.applier(&logs.log("orders").unwrap()).unwrap();
    assert_eq!(applier.applied_lsn().unwrap(), None, "another log");
}

/// Two appliers of one log would apply records twice.
#[test]
fn a_log_has_one_applier_at_a_time() {
    let db = store_with_logs();
    let logs = db.logs().unwrap();
    let (orders, other) = (logs.log("orders").unwrap(), logs.log("other").unwrap());
    let mut first = db.applier(&orders).unwrap();
    first.apply(1, &one("k", "v")).unwrap();
    let told = db.applier(&logs.log("orders").unwrap()).unwrap_err();
    assert!(
        told.kind() == ErrorKind::Locked && told.message().contains("log orders already has an applier"),
        "{told}"
    );
    drop(db.applier(&other).unwrap());
    drop(first);
    assert_eq!(db.applier(&orders).unwrap().applied_lsn().unwrap(), Some(1));
    logs.delete_log("orders").unwrap();
    assert_eq!(db.applier(&orders).unwrap_err().kind(), ErrorKind::NotFound);
}

fn repair(machine: &SimEnv, dry_run: bool) -> Result<RepairReport> {
    let options =
        RepairOptions { options: options(), logs: log_options(), dry_run, ..RepairOptions::default() };
    Db::repair_in(&machine.env(), "/store", &machine.env(), "/repaired", &options)
}

fn open_repaired(machine: &SimEnv) -> Db {
    Db::open_with_logs_in(&machine.env(), "/repaired", &options(), &log_options()).unwrap()
}

/// Returns the files of the store whose names contain `like`.
fn files(machine: &SimEnv, like: &str) -> Vec<PathBuf> {
    let all = machine.files().into_iter().map(|(path, _)| path);
    all.filter(|path| path.starts_with("/store") && path.to_string_lossy().contains(like)).collect()
}

/// Writes batches of both engines from `first` on; `n` is in a key and in record `n` of the log.
fn write_both(db: &Db, first: u64, count: u64) {
    let orders = db.logs().unwrap().log("orders").unwrap();
    for n in first..first + count {
        let (key, value) = (format!("both {n:04}"), format!("{n} {}", "x".repeat(300)));
        db.write_with_logs(&one(&key, &value), LogBatch::new().append(&orders, n, &value)).unwrap();
        db.put(format!("alone {n:04}"), &value).unwrap();
    }
}

/// Counts the batches with both halves, with only the half in the log, and with only the half in
/// the keys.
fn halves(db: &Db, count: u64) -> [u64; 3] {
    let orders = db.logs().unwrap().open_log("orders").unwrap();
    let mut found = [0; 3];
    for n in 1..=count {
        let key = db.get(format!("both {n:04}")).unwrap();
        let record = orders.read(n).unwrap();
        if let (Some(key), Some(record)) = (&key, &record) {
            assert_eq!(key[..], record[..], "batch {n}");
        }
        let which = [(true, true), (false, true), (true, false)];
        if let Some(at) = which.iter().position(|is| *is == (key.is_some(), record.is_some())) {
            found[at] += 1;
        }
    }
    found
}

#[test]
fn repair_restores_keys_and_logs_with_or_without_manifest() {
    for lost in ["nothing", "CURRENT", "MANIFEST"] {
        for closes in [true, false] {
            let machine = SimEnv::new(4);
            let db = open(&machine).unwrap();
            db.family("other").unwrap().put("key", "value").unwrap();
            write_both(&db, 1, 100);
            db.flush().unwrap();
            write_both(&db, 101, 60);
            // Its name and last number must not be confused with those of other logs in the new
            // store.
            let logs = db.logs().unwrap();
            logs.log("gone").unwrap();
            logs.delete_log("gone").unwrap();
            logs.log("kept").unwrap().append(7, "seven").unwrap();
            drop(logs);
            let machine = match closes {
                true => {
                    db.close().unwrap();
                    machine
                }
                false => machine.crash(CrashKind::ProcessKill, 1),
            };
            files(&machine, lost).iter().for_each(|path| machine.erase(path).unwrap());
            let what = format!("without {lost}, closed: {closes}");
            let dry = repair(&machine, true).unwrap();
            assert!(!machine.env().fs.exists("/repaired".as_ref()).unwrap(), "a dry run wrote something");
            let report = repair(&machine, false).unwrap();
            assert!(report.is_lossless(), "{what}: {report:?}");
            let counts = |report: &RepairReport| {
                let logs = report.logs.as_ref().unwrap();
                (report.keys.records(), report.keys.families.clone(), logs.logs.clone(), report.losses())
            };
            assert_eq!(counts(&dry), counts(&report), "{what}");
            assert_eq!(
                (report.keys.families.len(), report.logs.as_ref().unwrap().records()),
                (2, 161),
                "{what}"
            );
            assert!(Db::has_logs_in(&machine.env(), "/repaired").unwrap());
            let db = open_repaired(&machine);
            assert_eq!(halves(&db, 170), [160, 0, 0], "{what}");
            assert!((1..=160).all(|n| db.get(format!("alone {n:04}")).unwrap().is_some()), "{what}");
            assert!(db.open_family("other").unwrap().get("key").unwrap().is_some());
            assert_eq!(
                db.logs().unwrap().open_log("kept").unwrap().read(7).unwrap().unwrap()[..],
                b"seven"[..]
            );
            // The store works and persists.
            write_both(&db, 161, 10);
            db.close().unwrap();
            let db = open_repaired(&machine);
            assert_eq!(halves(&db, 170), [170, 0, 0], "{what}");
            assert!(db.verify().unwrap().errors.is_empty() && db.logs().unwrap().verify().damages.is_empty());
        }
    }
}

/// A copy contains log groups of another store. Without the manifest, only the copy's own pages
/// identify it.
#[test]
fn a_copy_without_its_manifest_is_repaired() {
    for lives_on in [false, true] {
        let machine = SimEnv::new(14);
        let db = open(&machine).unwrap();
        write_both(&db, 1, 150);
        db.checkpoint("/copy").unwrap();
        write_both(&db, 151, 5);
        drop(db);
        let open = |machine: &SimEnv| {
            Db::open_with_logs_in(&machine.env(), "/copy", &options(), &log_options()).unwrap()
        };
        let count = if lives_on { 160 } else { 150 };
        let machine = match lives_on {
            true => {
                write_both(&open(&machine), 151, 10);
                machine.crash(CrashKind::ProcessKill, 1)
            }
            false => machine,
        };
        let manifests = machine.files().into_iter().filter(|(path, _)| path.starts_with("/copy"));
        for (path, _) in manifests.filter(|(path, _)| path.to_string_lossy().contains("MANIFEST")) {
            machine.erase(&path).unwrap();
        }
        let repair = RepairOptions {
            options: options(),
            logs: log_options(),
            dry_run: false,
            ..RepairOptions::default()
        };
        let report = Db::repair_in(&machine.env(), "/copy", &machine.env(), "/repaired", &repair).unwrap();
        assert!(!report.keys.from_manifest);
        assert!(report.is_lossless(), "lives on: {lives_on}: {report:?}");
        let db = open_repaired(&machine);
        assert_eq!(halves(&db, 160), [count, 0, 0], "lives on: {lives_on}");
        assert!((1..=count).all(|n| db.get(format!("alone {n:04}")).unwrap().is_some()), "{report:?}");
    }
}

/// A position in the keys belongs to the log with this number, which is the same log in the new
/// store.
#[test]
fn an_applier_resumes_after_a_repair() {
    for lost in ["nothing", "MANIFEST"] {
        let machine = SimEnv::new(5);
        let db = open(&machine).unwrap();
        let logs = db.logs().unwrap();
        for name in ["first", "second"] {
            logs.log(name).unwrap().append(1, "one").unwrap();
        }
        let orders = logs.log("orders").unwrap();
        let last = logs.log("last").unwrap();
        let (mut applier, mut of_last) = (db.applier(&orders).unwrap(), db.applier(&last).unwrap());
        for lsn in 1..=20 {
            orders.append(lsn, "an order").unwrap();
            applier.apply(lsn, &one("sum", &lsn.to_string())).unwrap();
        }
        of_last.apply(9, &WriteBatch::new()).unwrap();
        db.flush().unwrap();
        orders.append(21, "an order").unwrap();
        drop((applier, of_last, orders, last));
        for name in ["first", "last"] {
            logs.delete_log(name).unwrap();
        }
        drop(logs);
        db.close().unwrap();
        files(&machine, lost).iter().for_each(|path| machine.erase(path).unwrap());
        repair(&machine, false).unwrap();
        let db = open_repaired(&machine);
        let logs = db.logs().unwrap();
        let applier = db.applier(&logs.open_log("orders").unwrap()).unwrap();
        assert_eq!((applier.applied_lsn().unwrap(), applier.next_lsn().unwrap()), (Some(20), 21), "{lost}");
        assert_eq!(db.get("sum").unwrap().as_deref(), Some(&b"20"[..]));
        // A new log must not reuse the number of a deleted log, whose position still exists.
        let applier = db.applier(&logs.log("new").unwrap()).unwrap();
        assert_eq!(applier.applied_lsn().unwrap(), None, "{lost}");
    }
}

/// The loss of a page with batches of both engines is reported for both halves, and no batch keeps
/// only one.
#[test]
fn a_lost_page_is_reported_for_keys_and_logs() {
    let machine = SimEnv::new(6);
    // No data is in tables.
    let roomy = Options { memtable_bytes: 4 << 20, memory_bytes: 16 << 20, ..Default::default() };
    let db = Db::open_with_logs_in(&machine.env(), "/store", &roomy, &log_options()).unwrap();
    write_both(&db, 1, 200);
    let machine = machine.crash(CrashKind::ProcessKill, 1);
    let mut told = 0;
    for path in files(&machine, ".log") {
        for at in [8 << 10, 16 << 10, 24 << 10] {
            let damaged = machine.fork(at);
            damaged.overwrite(&path, at, &[0; 512]).unwrap();
            let report = repair(&damaged, false).unwrap();
            let found = halves(&open_repaired(&damaged), 200);
            let logs = report.logs.as_ref().unwrap();
            assert_eq!(found[1..], [0, 0], "half a batch: {report:?}");
            assert_eq!(found[0] < 200, !logs.is_lossless(), "{report:?}");
            assert!(
                found[0] == 200 || report.keys.lost.iter().any(|lost| lost.sequences.is_some()),
                "{report:?}"
            );
            told += u64::from(found[0] < 200);
        }
    }
    assert!(told > 1, "{told}");
}

#[test]
fn repairing_one_engine_names_the_repair_of_both() {
    let refused = |told: Error, why: &str| {
        assert!(told.kind() == ErrorKind::Unsupported && told.message().contains(why), "{told}");
    };
    let machine = SimEnv::new(7);
    let db = open(&machine).unwrap();
    write_both(&db, 1, 10);
    db.close().unwrap();
    let (env, logs_only) = (machine.env(), LogRepairOptions { leave_out_others: true, ..Default::default() });
    let told = LogStore::repair_in(&env, "/store", &env, "/logs", &LogRepairOptions::default());
    refused(told.unwrap_err(), "repair the store with that engine, which saves the logs as well");
    let report = LogStore::repair_in(&env, "/store", &env, "/logs", &logs_only).unwrap();
    assert_eq!((report.records(), report.is_lossless()), (10, true));
    // A store with only logs stays one after a repair.
    for lost in ["nothing", "MANIFEST"] {
        let logs = machine.fork(1);
        for (path, _) in logs.files() {
            if path.starts_with("/logs") && path.to_string_lossy().contains(lost) {
                logs.erase(&path).unwrap();
            }
        }
        let env = logs.env();
        let told = Db::repair_in(&env, "/logs", &env, "/repaired", &RepairOptions::default());
        refused(told.unwrap_err(), "the store has logs and no keys");
    }
    // A store without logs has none after a repair.
    let machine = SimEnv::new(8);
    let db = Db::open_in(&machine.env(), "/store", &options()).unwrap();
    db.put("key", "value").unwrap();
    db.close().unwrap();
    let report = repair(&machine, false).unwrap();
    assert!(report.is_lossless() && report.logs.is_none());
    assert!(!Db::has_logs_in(&machine.env(), "/repaired").unwrap());
    let limited = LogOptions { space_limit: Some(1 << 40), ..log_options() };
    let options = RepairOptions { logs: limited, ..RepairOptions::default() };
    let told = Db::repair_in(&machine.env(), "/store", &machine.env(), "/other", &options).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::InvalidArgument);
}

/// A killed store lacks its volatile writes, and nothing records that they were volatile: a repair
/// reports no damage for them.
#[test]
fn repair_reports_no_damage_for_lost_volatile_writes() {
    for volatile in [0, 3] {
        let machine = SimEnv::new(31);
        let db = open(&machine).unwrap();
        let orders = db.logs().unwrap().log("orders").unwrap();
        db.put("first", "durable").unwrap();
        let options = WriteOptions::volatile();
        (0..volatile).for_each(|n| db.writing(&options).put(format!("volatile {n}"), "x").unwrap());
        db.write_with_logs(&one("both", "x"), LogBatch::new().append(&orders, 1, "an order")).unwrap();
        let killed = machine.crash(CrashKind::ProcessKill, 1);
        let report = repair(&killed, false).unwrap();
        assert!(report.keys.damaged.is_empty(), "{:?}", report.keys.damaged);
        assert_eq!(report.is_lossless(), volatile == 0, "{report:?}");
        assert_eq!(report.keys.losses(), 0, "{report:?}");
        let is_unknown =
            matches!(report.keys.outcome(0, b"any"), KeyOutcome::Unknown(why) if why.contains("volatile"));
        assert_eq!(is_unknown, volatile > 0, "{report:?}");
        let sequences: Vec<_> = report.keys.lost.iter().map(|range| range.sequences).collect();
        assert_eq!(sequences, vec![Some((2, 4)); usize::from(volatile > 0)], "exact at both ends");
        drop(db);
        let db = open_repaired(&killed);
        assert_eq!(db.get("first").unwrap().as_deref(), Some(&b"durable"[..]));
        assert_eq!(db.get("both").unwrap().as_deref(), Some(&b"x"[..]));
    }
}

/// Keys written by batches of both engines are in tables once their log groups are sealed; for keys
/// deleted since then, tables may have no trace. Without a manifest those batches are not replayed,
/// and the report names the deletes that other batches may undo.
#[test]
fn repair_without_a_manifest_resurrects_no_deleted_key() {
    for (count, keeps_one) in [(300, false), (300, true), (20, false), (20, true)] {
        let machine = SimEnv::new(21);
        let mut db = open(&machine).unwrap();
        let (mut jobs, mut logs) = (db.family("jobs").unwrap(), db.logs().unwrap());
        let orders = logs.log("orders").unwrap();
        for n in 1..=count {
            let mut batch = WriteBatch::new();
            batch.family(&jobs).put(format!("job {n:04}"), "x".repeat(2000));
            db.write_with_logs(&batch, LogBatch::new().append(&orders, n, "a job")).unwrap();
        }
        db.flush().unwrap();
        drop(orders);
        if count > 20 {
            drop((jobs, logs));
            db.close().unwrap();
            db = open(&machine).unwrap();
            (jobs, logs) = (db.family("jobs").unwrap(), db.logs().unwrap());
            // All existing log groups are sealed then.
            logs.wait_idle().unwrap();
        }
        (u64::from(keeps_one) + 1..=count).for_each(|n| jobs.delete(format!("job {n:04}")).unwrap());
        db.flush().unwrap();
        jobs.compact_range(..).unwrap();
        drop((jobs, logs));
        db.close().unwrap();
        // The groups of LavaKV's own lane with the deletes are removed.
        for _ in 0..2 {
            let db = open(&machine).unwrap();
            db.put("another", "key").unwrap();
            db.flush().unwrap();
            db.close().unwrap();
        }
        files(&machine, "MANIFEST").iter().for_each(|path| machine.erase(path).unwrap());
        let report = repair(&machine, false).unwrap();
        let db = open_repaired(&machine);
        let found = db.family("jobs").unwrap().iter().count();
        let is_told = report.keys.lost.iter().any(|lost| lost.may_come_back);
        let what = format!("{count} jobs, one kept: {keeps_one}: {:?}", report.keys);
        assert!(found == usize::from(keeps_one) || is_told && count == 20, "{found}, {what}");
        assert_eq!(is_told, count == 20 && !keeps_one, "{what}");
        assert_eq!(db.get("another").unwrap().as_deref(), Some(&b"key"[..]));
        assert_eq!(db.logs().unwrap().open_log("orders").unwrap().scan(..).count(), count as usize);
    }
}

/// The end of LavaKV's own lane is torn or lost: only a later batch of both engines, in the other
/// lane, reveals it.
#[test]
fn a_lost_log_end_before_a_batch_of_both_is_reported() {
    let machine = SimEnv::new(22);
    let roomy = Options { memtable_bytes: 4 << 20, memory_bytes: 16 << 20, ..Default::default() };
    let db = Db::open_with_logs_in(&machine.env(), "/store", &roomy, &log_options()).unwrap();
    let orders = db.logs().unwrap().log("orders").unwrap();
    (0..20).for_each(|n| db.put(format!("alone {n:02}"), "x".repeat(3000)).unwrap());
    db.write_with_logs(&one("both", "value"), LogBatch::new().append(&orders, 1, "value")).unwrap();
    let machine = machine.crash(CrashKind::PowerLoss, 1);
    let report = repair(&machine.fork(1), false).unwrap();
    assert!(report.is_lossless(), "nothing is damaged: {report:?}");
    let mut told = 0;
    // The last page may exist twice.
    machine.erase("/store/STAGING").unwrap();
    for path in files(&machine, ".log") {
        for at in (0..64 << 10).step_by(4096) {
            let damaged = machine.fork(at);
            if damaged.overwrite(&path, at, &[0; 4096]).is_err() {
                continue;
            }
            let report = repair(&damaged, false).unwrap();
            let db = open_repaired(&damaged);
            if db.get("both").unwrap().is_none() {
                continue;
            }
            let missing = (0..20).filter(|n| db.get(format!("alone {n:02}")).unwrap().is_none()).count();
            let is_told = report.keys.lost.iter().any(|lost| lost.sequences.is_some());
            assert_eq!(missing > 0, is_told, "{missing} are missing, damage at {at} of {path:?}: {report:?}");
            told += u64::from(is_told);
        }
    }
    assert!(told > 5, "{told}");
}

/// A group whose successor was collected ends early: without a manifest, a repair must not report
/// the missing rest as lost.
#[test]
fn repair_without_manifest_reports_no_loss_of_collected_groups() {
    let machine = SimEnv::new(23);
    let db = open(&machine).unwrap();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    let logs = db.logs().unwrap();
    let (kept, gone) = (logs.log("kept").unwrap(), logs.log("gone").unwrap());
    for n in 1..=40u64 {
        kept.append(n, vec![1; 30_000]).unwrap();
        if n % 10 == 5 {
            (0..20).for_each(|i| gone.append(n * 100 + i, vec![2; 30_000]).unwrap());
        }
    }
    logs.wait_idle().unwrap();
    gone.trim(u64::MAX - 10).unwrap();
    logs.wait_idle().unwrap();
    assert!(logs.stats().collected_files > 0);
    drop((kept, gone, logs));
    db.close().unwrap();
    files(&machine, "MANIFEST").iter().for_each(|path| machine.erase(path).unwrap());
    let report = repair(&machine, false).unwrap();
    let of_logs = report.logs.as_ref().unwrap();
    assert_eq!(of_logs.logs.iter().map(|log| log.records).sum::<u64>(), 40, "{of_logs:?}");
    assert!(
        of_logs.lost_batches.is_empty() && of_logs.logs.iter().all(|log| log.gaps.is_empty()),
        "{of_logs:?}"
    );
}

/// Readers beside the process that has the store open: all read calls see both halves as of the
/// reader's open, and the reader cannot write.
#[test]
fn read_only_opens_of_keys_and_logs_work_beside_the_writer() {
    let machine = SimEnv::new(5);
    let db = open(&machine).unwrap();
    let logs = db.logs().unwrap();
    let orders = logs.log("orders").unwrap();
    let write = |lsn: u64| {
        let (mut batch, record) = (LogBatch::new(), format!("order {lsn}"));
        batch.append(&orders, lsn, &record);
        db.write_with_logs(&one(&lsn.to_string(), &record), &batch).unwrap();
    };
    (1..=200).for_each(write);
    logs.wait_idle().unwrap();
    orders.trim(20).unwrap();
    let keys = Db::open_read_only_in(&machine.env(), "/store", &options()).unwrap();
    let reader = LogStore::open_read_only_in(&machine.env(), "/store", &log_options()).unwrap();
    let seen = reader.open_log("orders").unwrap();
    write(201);
    assert_eq!(keys.get("200").unwrap().as_deref(), Some(&b"order 200"[..]));
    assert_eq!(seen.read(200).unwrap().as_deref(), Some(&b"order 200"[..]));
    assert_eq!(seen.read(19).unwrap_err().kind(), ErrorKind::Trimmed);
    assert_eq!((seen.first_lsn().unwrap(), seen.last_lsn().unwrap()), (Some(20), Some(200)));
    let mut scan = seen.scan(..);
    let lsns: Vec<u64> = scan.by_ref().map(|record| record.unwrap().0).collect();
    assert!(lsns.into_iter().eq(20..=200));
    // Only the next reader sees later records.
    assert_eq!(scan.wait_next(std::time::Duration::from_millis(5)).unwrap(), None);
    assert_eq!((reader.log_names(), reader.stats().logs), (vec!["orders".to_owned()], 1));
    assert!(reader.verify().is_sound() && reader.space().unwrap().total_bytes > 0);
    let refused = [seen.append(201, "x"), seen.trim(30), reader.delete_log("orders"), keys.put("a", "b")];
    assert!(refused.into_iter().all(|done| done.unwrap_err().kind() == ErrorKind::ReadOnly));
    drop((scan, seen));
    reader.close().unwrap();
    let next = LogStore::open_read_only_in(&machine.env(), "/store", &log_options()).unwrap();
    assert_eq!(next.open_log("orders").unwrap().last_lsn().unwrap(), Some(201));
}
