//! Every call of every handle in a child process is refused or returns no answer, and takes no
//! lock. A thread that the child does not have may hold a lock for ever.
//!
//! `every_handle_method_is_covered` reads the sources: a new call must be tested here, or be listed
//! as one that needs no store.

use super::child::fork;
use super::{Dir, open, refused, text};
use lavastore::{
    Applier, CompactRequest, Db, Durability, Family, FamilyOptions, GcRequest, Iter, Log, LogBatch, LogScan,
    LogStore, Reader, Requests, Result, Snapshot, StoreFormat, WriteBatch, WriteOptions, Writer,
};
use std::collections::BTreeSet;
use std::future::Future;
use std::io::{Read, Write};
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

type Tried = std::result::Result<(), String>;

/// Asserts that each call is refused.
macro_rules! refuse {
    ($($call:expr),* $(,)?) => { $(refused(stringify!($call), $call)?;)* };
}

/// Asserts that each condition is true.
macro_rules! hold {
    ($($what:expr),* $(,)?) => { $(if !$what { return Err(stringify!($what).to_owned()); })* };
}

fn durable() -> WriteOptions {
    WriteOptions { durability: Some(Durability::Durable), ..WriteOptions::default() }
}

/// Tries the read methods of a handle.
fn reader(reader: Reader<'_>) -> Tried {
    refuse!(reader.get("key"), reader.get_range("key", 0, 1), reader.get_stream("key"));
    refuse!(reader.multi_get(["key"]).remove(0), reader.contains_key("key"));
    iter(reader.iter())?;
    iter(reader.range("a"..))?;
    iter(reader.prefix("a"))?;
    let options = Default::default();
    refuse!(reader.reading(&options).get("key"));
    Ok(())
}

fn writer(db: &Db, writer: Writer<'_>, log: &Log) -> Tried {
    let mut batch = WriteBatch::new();
    batch.put("key", "value").family(db.default_family()).put("other", "value");
    let mut logs = LogBatch::new();
    logs.append(log, 9, "record").trim(log, 0).truncate_after(log, 9).set_metadata(log, "metadata");
    refuse!(writer.put("key", "value"), writer.delete("key"), writer.delete_range("a".."b"));
    refuse!(writer.merge("key", "operand"), writer.single_delete("key"));
    refuse!(writer.put_stream("key"), writer.write(&batch), writer.write_with_logs(&batch, &logs));
    refuse!(writer.write_with_logs(&WriteBatch::new(), &logs));
    refuse!(writer.put("key", vec![0; 2 << 20]));
    Ok(())
}

fn iter(mut iter: Iter) -> Tried {
    refuse!(iter.next().ok_or("an end")?);
    Ok(())
}

fn db_calls(db: &Db, log: &Log, family: &Family) -> Tried {
    writer(db, db.writing(&WriteOptions::default()), log)?;
    writer(db, db.writing(&durable()), log)?;
    refuse!(db.put("key", "value"), db.delete("key"), db.delete_range("a".."b"), db.put_stream("key"));
    let mut batch = WriteBatch::new();
    batch.put("key", "value");
    let mut logs = LogBatch::new();
    logs.append(log, 9, "record");
    refuse!(db.write(&batch), db.write_with_logs(&batch, &logs), db.sync(), db.flush(), db.catch_up());
    refuse!(db.set_space_limit(None));
    refuse!(db.get("key"), db.get_range("key", 0, 1), db.get_stream("key"), db.multi_get(["key"]).remove(0));
    reader(db.reading(&Default::default()))?;
    for made in [db.iter(), db.range("a"..), db.prefix("a"), db.iter().within("b"..)] {
        iter(made)?;
    }
    refuse!(db.iter().keys().next().ok_or("an end")?, db.iter().cursor());
    refuse!(db.requests(&Default::default()), db.compact_range(..));
    refuse!(db.compact_range_with(.., &CompactRequest::default(), &mut |_| {}));
    refuse!(db.family("users"), db.family("new"), db.open_family("users"), db.drop_family(family));
    refuse!(db.create_family("new", &FamilyOptions::default()));
    refuse!(db.checkpoint("/nowhere"), db.collect_garbage(&GcRequest::default()));
    refuse!(db.collect_garbage_with(&GcRequest::default(), &mut |_| {}), db.gc_plan(&GcRequest::default()));
    refuse!(db.verify_with(&Default::default()), db.checkpoint_with("/nowhere", &Default::default()));
    refuse!(db.verify(), db.metrics(), db.space(), db.engines(), db.remove_engine("toy"), db.applier(log));
    refuse!(db.upgrade(StoreFormat::NEWEST));
    hold!(db.format() == StoreFormat::V1);
    refuse!(db.damage().pop().map_or(Ok(()), Err));
    hold!(db.family_names().is_empty(), db.damaged_files().is_empty(), !db.wait_idle(Duration::MAX));
    hold!(
        db.stats().write_batches == 0,
        db.cache_stats() == Default::default(),
        db.describe().contains("forked")
    );
    hold!(format!("{db:?}").contains("Db("));
    drop((db.pause_gc(), db.clone(), db.logs().map_err(text)?));
    snapshot(&db.snapshot(), family)?;
    snapshot(&db.snapshot_named("a child's"), family)
}

fn family_calls(db: &Db, family: &Family, log: &Log) -> Tried {
    writer(db, family.writing(&WriteOptions::default()), log)?;
    reader(family.reading(&Default::default()))?;
    refuse!(family.put("key", "value"), family.delete("key"), family.delete_range("a".."b"));
    refuse!(family.merge("key", "operand"), db.merge("key", "operand"), db.flush_families([family]));
    refuse!(family.get("key"), family.get_range("key", 0, 1), family.multi_get(["key"]).remove(0));
    refuse!(family.get_stream("key"), family.put_stream("key"), family.compact_range(..));
    refuse!(family.compact_range_with(.., &CompactRequest::default(), &mut |_| {}));
    refuse!(family.set_options(&FamilyOptions::default()));
    for made in [family.iter(), family.range("a"..), family.prefix("a")] {
        iter(made)?;
    }
    hold!(family.name() == "users", family.id() > 0, family.options() == FamilyOptions::default());
    Ok(())
}

fn snapshot(snapshot: &Snapshot, family: &Family) -> Tried {
    refuse!(snapshot.get("key"), snapshot.get_range("key", 0, 1), snapshot.multi_get(["key"]).remove(0));
    refuse!(snapshot.get_stream("key"));
    reader(snapshot.family(family))?;
    reader(snapshot.reading(&Default::default()))?;
    for made in [snapshot.iter(), snapshot.range("a"..), snapshot.prefix("a")] {
        iter(made)?;
    }
    hold!(snapshot.id() > 0, snapshot.name().len() < 100, snapshot.sequence() > 0);
    drop(snapshot.clone());
    Ok(())
}

fn polled<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("a future of a child waits for ever"),
    }
}

fn requests_calls(requests: &Requests, family: &Family, before: &Snapshot) -> Tried {
    for requests in
        [requests.family(family), requests.writing(&durable()), requests.reading_at(before), requests.clone()]
    {
        refuse!(requests.put("key", "value"), requests.delete("key"), requests.write(WriteBatch::new()));
        refuse!(requests.merge("key", "operand"));
        refuse!(requests.get("key"), requests.multi_get(["key"]), requests.scan("a".., 1), requests.flush());
        requests.resume();
        hold!(requests.queue().wait(None).is_none(), requests.in_flight() < 100);
    }
    Ok(())
}

fn logs_calls(store: &LogStore, log: &Log) -> Tried {
    let mut batch = LogBatch::new();
    batch.append(log, 9, "record");
    hold!(batch.len() == 1, !batch.is_empty());
    refuse!(
        store.log("orders"),
        store.open_log("orders"),
        store.create_log("new"),
        store.delete_log("orders")
    );
    refuse!(
        store.write(&batch),
        store.write_with(&batch, &durable()),
        store.write_async(&batch),
        store.sync()
    );
    refuse!(store.space(), store.engines(), store.wait_idle(), store.checkpoint("/nowhere"));
    refuse!(store.verify_with(&Default::default()), store.checkpoint_with("/nowhere", &Default::default()));
    refuse!(store.upgrade(StoreFormat::NEWEST), store.damage().pop().map_or(Ok(()), Err));
    hold!(store.format() == StoreFormat::V1);
    refuse!(store.verify().damages.pop().map_or(Ok(()), |damage| Err(damage.error)));
    hold!(store.log_names().is_empty(), store.log_names_from("", 9).is_empty(), store.stats().logs == 0);
    let writer = log.writing(&durable());
    refuse!(writer.append(9, "record"), writer.trim(1), writer.truncate_after(9), writer.set_metadata("m"));
    refuse!(log.append(9, "record"), log.append_async(9, "record"), log.trim(1), log.truncate_after(9));
    refuse!(log.set_metadata("m"), log.metadata(), log.read(1), log.read_into(1, &mut Vec::new()));
    refuse!(log.first_lsn(), log.last_lsn(), log.gaps(.., 9), log.name());
    refuse!(log.scan(..).next().ok_or("an end")?, log.scan(..).wait_next(Duration::MAX));
    hold!(log.id() < u64::MAX);
    Ok(())
}

fn scan_calls(mut scan: LogScan) -> Tried {
    refuse!(scan.next().ok_or("an end")?, scan.wait_next(Duration::MAX));
    scan.skip_to(2);
    refuse!(scan.next().ok_or("an end")?);
    Ok(())
}

fn applier_calls(mut applier: Applier) -> Tried {
    refuse!(applier.apply(1, &WriteBatch::new()), applier.applied_lsn(), applier.next_lsn());
    refuse!(applier.flushed_lsn(), applier.trim_log());
    Ok(())
}

/// Tries the objects made before the fork.
fn made_before(db: &Db, log: &Log, family: &Family) -> Tried {
    let requests = db.requests(&Default::default()).map_err(text)?;
    let before = db.snapshot();
    let mut cursor = db.iter().cursor().map_err(text)?;
    cursor.seek_to_first().map_err(text)?;
    let (mut iterator, mut keys) = (db.iter(), db.iter().keys());
    iterator.next().ok_or("a key")?.map_err(text)?;
    let mut stream = db.put_stream("film").map_err(text)?;
    stream.append(vec![1; 1 << 20]).map_err(text)?;
    let mut value = db.get_stream("long").map_err(text)?.ok_or("a value")?;
    let (pending, mut slow) = (requests.get("key").map_err(text)?, requests.put("k", "v").map_err(text)?);
    let durable = requests.writing(&durable()).put("k", "v").map_err(text)?;
    let mut queue = requests.queue();
    queue.submit(requests.flush().map_err(text)?, 7);
    let (scan, other) = (log.scan(..), log.scan(2..));
    let (waited, awaited) =
        (log.append_async(7, "seven").map_err(text)?, log.append_async(8, "eight").map_err(text)?);
    let (applier, store) = (db.applier(log).map_err(text)?, db.logs().map_err(text)?);
    let child = fork(move |_| {
        base::sync::rank::forbid_locks();
        db_calls(db, log, family)?;
        family_calls(db, family, log)?;
        snapshot(&before, family)?;
        requests_calls(&requests, family, &before)?;
        logs_calls(&store, log)?;
        scan_calls(scan)?;
        scan_calls(other)?;
        applier_calls(applier)?;
        hold!(cursor.valid(), !cursor.key().is_empty());
        refuse!(cursor.next(), cursor.prev(), cursor.seek("a"), cursor.seek_for_prev("a"), cursor.value());
        refuse!(cursor.seek_to_first(), cursor.seek_to_last(), cursor.skip_damaged());
        refuse!(iterator.next().ok_or("an end")?, keys.next().ok_or("an end")?);
        hold!(stream.len() == 1 << 20, !stream.is_empty(), value.len() == 2 << 20, !value.is_empty());
        hold!(stream.write(b"more").is_err(), value.read(&mut [0; 9]).is_err());
        refuse!(stream.append("more"), stream.finish());
        refuse!(value.read_range(0, 9), value.read_some(&mut [0; 9]));
        // These may have completed before the fork: then their answers are in memory.
        hold!(polled(pending).is_ok_and(|found| found.is_some()), polled(slow.visible()).is_ok());
        let _ = polled(durable);
        let _ = (waited.wait(), polled(awaited));
        hold!(
            queue.wait(None).is_some_and(|(token, _)| token == 7),
            queue.poll().is_none(),
            queue.is_empty()
        );
        refuse!(db.clone().close(), store.close());
        Ok(())
    });
    child.end().map(drop)
}

#[test]
fn every_call_in_a_forked_child_is_refused_without_locking() {
    let dir = Dir::new("calls");
    let db = open(&dir);
    let family = db.family("users").unwrap();
    let log = db.logs().unwrap().log("orders").unwrap();
    db.put("key", "value").unwrap();
    db.put("long", vec![7; 2 << 20]).unwrap();
    log.append(1, "one").unwrap();
    db.flush().unwrap();
    made_before(&db, &log, &family).unwrap();
    db.put("key", "the parent goes on").unwrap();
    assert_eq!(db.get("long").unwrap().unwrap().len(), 2 << 20);
}

/// A read-only store has no writing threads, but the same locks.
#[test]
fn a_read_only_store_is_refused_in_a_forked_child() {
    let dir = Dir::new("read-only");
    let db = Db::open(&dir.0).unwrap();
    db.put("key", "value").unwrap();
    db.close().unwrap();
    let db = Db::open_read_only(&dir.0, &Default::default()).unwrap();
    let child = fork(|_| {
        base::sync::rank::forbid_locks();
        refuse!(db.get("key"), db.put("key", "value"), db.verify(), db.clone().close());
        Ok(())
    });
    child.end().unwrap();
    assert!(db.get("key").unwrap().is_some());
}

/// Calls that involve no open store, or only make an object that is tested here.
const WITHOUT: &[&str] = &[
    "new",
    "open",
    "open_with",
    "open_in",
    "open_read_only",
    "open_read_only_in",
    "open_with_logs",
    "open_with_logs_in",
    "has_logs",
    "has_logs_in",
    "over",
    "engine",
    "repair",
    "repair_in",
    "stored_family_options",
    "stored_family_options_in",
    "clear",
    "byte_len",
    "in_envs",
    "env",
    "detach_fast_tier",
    "request_checkpoint",
    "request_checkpoint_in",
];

#[test]
fn every_handle_method_is_covered() {
    let here = include_str!("calls.rs");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut missing = BTreeSet::new();
    let files = [
        "applier",
        "db",
        "db/logs",
        "db/operate",
        "family",
        "iter",
        "merge",
        "log",
        "log/batch",
        "log/completion",
        "log/handle",
        "log/operate",
        "log/scan",
        "read",
        "requests",
        "snapshot",
        "stream",
        "write",
    ];
    let mut count = 0;
    for file in files {
        let source = std::fs::read_to_string(sources.join(format!("{file}.rs"))).unwrap();
        for call in source.split("\n    pub fn ").skip(1) {
            let name: String = call.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            count += 1;
            if !WITHOUT.contains(&&*name) && !here.contains(&format!(".{name}(")) {
                missing.insert(format!("{file}: {name}"));
            }
        }
    }
    assert!(count > 150, "the calls were found: {count}");
    assert!(missing.is_empty(), "no child tries {missing:?}");
}
