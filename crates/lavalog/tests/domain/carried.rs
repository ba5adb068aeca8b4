//! Batches of both engines: guarantees and refusals.

use crate::life::{DIR, kv_options, log_options, open, write_both};
use base::ErrorKind;
use io::sim::{CrashKind, OpKind, SimEnv};
use lavakv::multi_engine::write_embedded_in_secondary;
use lavakv::{Db, Durability, WriteBatch, WriteOptions};
use lavalog::{LogBatch, LogStore};
use std::path::Path;

fn put(key: &[u8], value: &[u8]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(key, value);
    batch
}

#[test]
fn an_embedded_batch_costs_one_write_and_survives_power_loss() {
    let sim = SimEnv::new(1);
    let (db, logs) = open(&sim.env()).unwrap();
    let log = logs.create_log("raft").unwrap();
    log.append(1, b"first", Durability::Durable).unwrap();
    let ops = sim.op_count();
    log.append(2, b"alone", Durability::Durable).unwrap();
    let alone = sim.op_count() - ops;
    write_both(&db, &put(b"key", b"value"), &log, 3, b"record", Durability::Durable).unwrap();
    assert_eq!(sim.op_count() - ops - alone, alone, "operations of the file system");
    assert_eq!(db.get(b"key").unwrap().unwrap().to_vec(), b"value");
    assert_eq!(log.read(3).unwrap().unwrap(), b"record");
    let sim = sim.crash(CrashKind::PowerLoss, 1);
    let (db, logs) = open(&sim.env()).unwrap();
    assert_eq!(db.get(b"key").unwrap().unwrap().to_vec(), b"value");
    let log = logs.open_log("raft").unwrap();
    assert_eq!(log.read(3).unwrap().unwrap(), b"record");
    // The record exists already and is not written again; the change is.
    write_both(&db, &put(b"key", b"again"), &log, 3, b"record", Durability::Durable).unwrap();
    let error = write_both(&db, &put(b"key", b"never"), &log, 3, b"other", Durability::Durable).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(db.get(b"key").unwrap().unwrap().to_vec(), b"again");
}

#[test]
fn keys_embedded_in_records_need_the_log_engine_until_close() {
    let sim = SimEnv::new(2);
    let (db, logs) = open(&sim.env()).unwrap();
    let log = logs.create_log("raft").unwrap();
    write_both(&db, &put(b"key", b"value"), &log, 1, b"record", Durability::Durable).unwrap();
    let sim = sim.crash(CrashKind::PowerLoss, 1);
    let error = Db::open_in(sim.env(), DIR, kv_options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("changes that are in no table"), "{error}");
    // A read-only open makes the end of no lane final.
    let reader = Db::open_read_only_in(sim.env(), DIR, kv_options()).unwrap();
    assert_eq!(reader.get(b"key").unwrap().unwrap().to_vec(), b"value");
    // The store of logs has its records, and keeps the embedded changes.
    let logs = LogStore::open(&sim.env(), Path::new(DIR), &log_options()).unwrap();
    assert_eq!(logs.open_log("raft").unwrap().read(1).unwrap().unwrap(), b"record");
    logs.seal().unwrap();
    logs.wait_idle().unwrap();
    assert_eq!(logs.statistics().sealed_groups, 0, "the group is replayed still");
    logs.close().unwrap();
    let (db, logs) = open(&sim.env()).unwrap();
    assert_eq!(db.get(b"key").unwrap().unwrap().to_vec(), b"value");
    logs.close().unwrap();
    db.close().unwrap();
    let db = Db::open_in(sim.env(), DIR, kv_options()).unwrap();
    assert_eq!(db.get(b"key").unwrap().unwrap().to_vec(), b"value");
}

#[test]
fn a_reader_reports_record_lane_damage_and_shows_the_rest() {
    let sim = SimEnv::new(6);
    let (db, logs) = open(&sim.env()).unwrap();
    let log = logs.create_log("raft").unwrap();
    db.put(b"before", b"value").unwrap();
    write_both(&db, &put(b"carried", b"value"), &log, 1, b"to be damaged", Durability::Durable).unwrap();
    log.append(2, b"confirms what is before it", Durability::Durable).unwrap();
    let sim = sim.crash(CrashKind::PowerLoss, 1);
    let wanted = b"to be damaged";
    let place = |path: &std::path::PathBuf| {
        let bytes = sim.read_file(path).unwrap();
        bytes.windows(wanted.len()).position(|found| found == wanted).map(|at| (path.clone(), at as u64))
    };
    let is_group = |path: &std::path::PathBuf| path.extension().is_some_and(|e| e == "log");
    let groups = sim.files().into_iter().map(|(path, _)| path).filter(is_group);
    let (path, at) = groups.filter_map(|path| place(&path)).next().unwrap();
    sim.flip_bit(&path, at, 3).unwrap();
    let reader = Db::open_read_only_in(sim.env(), DIR, kv_options()).unwrap();
    assert!(reader.get(b"before").unwrap().is_some() && reader.get(b"carried").unwrap().is_none());
    let told = reader.damage();
    assert!(told.iter().any(|e| e.is_corruption() && e.file() == Some(&*path)), "{told:?}");
}

#[test]
fn a_group_is_retained_after_its_embedded_batches_are_flushed() {
    let sim = SimEnv::new(3);
    let (db, logs) = open(&sim.env()).unwrap();
    let log = logs.create_log("raft").unwrap();
    write_both(&db, &put(b"key", b"value"), &log, 1, b"record", Durability::Durable).unwrap();
    logs.seal().unwrap();
    // The key-value engine is asked to flush its few changes.
    for _ in 0..3 {
        logs.wait_idle().unwrap();
        while db.run_background_step() {}
    }
    assert_eq!(logs.statistics().sealed_groups, 1);
    let sim = sim.crash(CrashKind::PowerLoss, 1);
    let db = Db::open_in(sim.env(), DIR, kv_options()).unwrap();
    assert_eq!(db.get(b"key").unwrap().unwrap().to_vec(), b"value");
}

#[test]
fn a_write_follows_the_other_lane_only_when_that_is_durable() {
    let sim = SimEnv::new(4);
    let (db, logs) = open(&sim.env()).unwrap();
    let log = logs.create_log("raft").unwrap();
    let writes = |sim: &SimEnv| sim.count_ops(Some(OpKind::WriteDurable), "");
    db.put(b"a", b"buffered").unwrap();
    write_both(&db, &put(b"b", b"v"), &log, 1, b"r", Durability::Buffered).unwrap();
    // Earlier writes in the other lane are durable, although they did not ask for it; the batch
    // itself is not.
    let record = sim.record();
    let left = record.crash_at(record.op_count(), CrashKind::PowerLoss, 1);
    let (left_db, _) = open(&left.env()).unwrap();
    assert!(left_db.get(b"a").unwrap().is_some());
    // Another batch in the same lane waits for nothing.
    let before = writes(&sim);
    write_both(&db, &put(b"c", b"v"), &log, 2, b"r", Durability::Buffered).unwrap();
    assert_eq!(writes(&sim), before);
}

#[test]
fn invalid_embedded_batches_are_refused() {
    let sim = SimEnv::new(5);
    let (db, logs) = open(&sim.env()).unwrap();
    let log = logs.create_log("raft").unwrap();
    let error = write_both(&db, &put(b"k", b"v"), &log, 1, b"r", Durability::Volatile).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("cannot be part of a batch of logs"), "{error}");
    let error = write_both(&db, &WriteBatch::new(), &log, 1, b"r", Durability::Durable).unwrap_err();
    assert!(error.message().contains("empty embedded batch"), "{error}");
    let long = put(b"k", &vec![1; 60 << 10]);
    let error = write_both(&db, &long, &log, 1, b"r", Durability::Durable).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.message().contains("a value with its own file cannot"), "{error}");
    assert_eq!(log.last_lsn().unwrap(), None);
    // Embedded changes alone, in the record lane.
    let options = WriteOptions { durability: Some(Durability::Durable), ..WriteOptions::default() };
    logs.write_with_primary(&LogBatch::new(), &mut |sink| {
        write_embedded_in_secondary(&db, (&put(b"k", b"v"), None), &options, sink)
    })
    .unwrap();
    assert!(db.get(b"k").unwrap().is_some());
}
