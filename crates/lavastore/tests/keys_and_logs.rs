//! Keys and logs in one store: handles, batches of both, and a state that is made from a log.

use io::Rng;
use lavastore::testing::{CrashKind, Policy, SimEnv, store, store_with_logs};
use lavastore::{
    Db, Durability, Error, ErrorKind, LogBatch, LogOptions, LogStore, Options, Result, WriteBatch,
    WriteOptions,
};

fn options() -> Options {
    Options { memtable_bytes: 64 << 10, memory_bytes: 256 << 10, ..Default::default() }
}

fn log_options() -> LogOptions {
    LogOptions { group_bytes: 256 << 10, ..Default::default() }
}

fn open(machine: &SimEnv) -> Result<Db> {
    Db::open_with_logs_in(&machine.env(), "/store", &options(), &log_options())
}

fn one(key: &str, value: &str) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(key, value);
    batch
}

/// Writes of logs have no bound on their wait: an option that says one is refused, and nothing is written.
#[test]
fn options_that_bound_the_wait_are_refused_where_logs_are_written() {
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
        assert!(e.message().contains("leave wait_at_most out"), "{e}");
    }
    assert_eq!((db.get("a").unwrap(), orders.last_lsn().unwrap()), (None, None));
    db.writing(&bounded).put("a", "b").unwrap();
}

#[test]
fn handles_of_logs_keep_the_store_open_and_the_last_one_closes_it() {
    let machine = SimEnv::new(1);
    let db = open(&machine).unwrap();
    let logs = db.logs().unwrap();
    let orders = logs.log("orders").unwrap();
    orders.append(1, "two apples").unwrap();
    let told = db.close().unwrap_err();
    assert!(told.kind() == ErrorKind::Busy && told.message().contains("2 handles"), "{told}");
    assert_eq!(open(&machine).unwrap_err().kind(), ErrorKind::Locked);
    let told = logs.close().unwrap_err();
    assert!(told.kind() == ErrorKind::Busy && told.message().contains("1 handle "), "{told}");
    drop(orders);
    let db = open(&machine).unwrap();
    let logs = db.logs().unwrap();
    assert_eq!(logs.open_log("orders").unwrap().last_lsn().unwrap(), Some(1));
    drop(db);
    logs.close().unwrap();
    open(&machine).unwrap().close().unwrap();
}

#[test]
fn misuse_is_refused() {
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
    invalid(db.applier(&foreign).unwrap_err(), "of another store");
    invalid(store().logs().unwrap_err(), "opened without its logs");
    invalid(store().write_with_logs(&one("k", "v"), &LogBatch::new()).unwrap_err(), "without its logs");
    let orders = db.logs().unwrap().log("orders").unwrap();
    let mut batch = LogBatch::new();
    batch.append(&orders, 1, "x");
    let volatile = db.writing(&WriteOptions::volatile()).write_with_logs(&one("k", "v"), &batch);
    invalid(volatile.unwrap_err(), "a volatile write is in no log");
    let limited = LogOptions { space_limit: Some(1 << 40), ..log_options() };
    let machine = SimEnv::new(1);
    let opened = Db::open_with_logs_in(&machine.env(), "/store", &options(), &limited);
    invalid(opened.unwrap_err(), "no space limit of their own");
    // One half alone is written as it would be without the other.
    db.write_with_logs(&WriteBatch::new(), &batch).unwrap();
    db.write_with_logs(&one("k", "v"), &LogBatch::new()).unwrap();
    assert!(db.get("k").unwrap().is_some() && orders.read(1).unwrap().is_some());
    // A position that is none.
    let mut applier = db.applier(&orders).unwrap();
    let positions = db.family("lavastore.applied").unwrap();
    applier.apply(1, &WriteBatch::new()).unwrap();
    let (key, _) = positions.iter().next().unwrap().unwrap();
    positions.put(key, "what is this").unwrap();
    let told = applier.applied_lsn().unwrap_err();
    assert!(told.kind() == ErrorKind::Corruption && told.message().contains("no LSN"), "{told}");
}

#[test]
fn a_batch_of_both_survives_whole_and_what_is_buffered_waits_for_a_sync_of_either() {
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
    assert!((0..8).any(|seed| !found(&lose(seed)).1[2]), "it was buffered");
    db.sync().unwrap();
    assert_eq!(found(&lose(1)), ([true, true, false], [true, true, true]));
}

/// A state that no record may be applied to twice: sums in several families.
struct Sums {
    db: Db,
}

const FAMILIES: [&str; 3] = ["default", "rare", "wide"];

impl Sums {
    fn get(&self, family: &str, key: &str) -> u64 {
        let value = self.db.family(family).unwrap().get(key).unwrap();
        value.map_or(0, |bytes| u64::from_le_bytes(bytes[..8].try_into().unwrap()))
    }

    /// What record `lsn` changes: a sum in one or more families, with some bytes that fill memtables.
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

    /// The sums of all families are those after the record that was applied last.
    fn check(&self, applied: u64) {
        for (at, name) in FAMILIES.into_iter().enumerate() {
            let expected: u64 = (1..=applied).filter(|lsn| lsn.is_multiple_of([1, 7, 2][at])).sum();
            assert_eq!(self.get(name, "sum"), expected, "family {name} at record {applied}");
        }
    }
}

/// Opens what is left, judges it, and applies what the log has more; the last record.
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
fn a_state_without_a_log_is_as_one_record_left_it_after_any_crash() {
    let (mut states, mut flushed, mut trimmed) = (0, 0, 0);
    for seed in 0..10 {
        let mut rng = Rng::new(seed);
        let machine = SimEnv::new(seed);
        let (db, mut last) = recover(&machine, 0);
        let orders = db.logs().unwrap().log("orders").unwrap();
        let mut applier = db.applier(&orders).unwrap();
        let state = Sums { db: db.clone() };
        let start = machine.record().op_count();
        // Of every moment: the last record that was durable by then.
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
            // And once more, while that is at work: what was applied again is volatile, and may be lost again.
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
fn a_close_keeps_what_was_applied_and_a_log_that_is_made_again_begins_anew() {
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
