//! One durability domain: once it is poisoned, no writer of either engine gets an acknowledgement.
//!
//! A script of writes of keys and logs, blocking and asynchronous, runs in simulation as often as it has fault points: each input or
//! output operation fails once, or it and all later ones do.

use io::sim::{FaultEffect, FaultPlan, SimEnv};
use lavastore::testing::block_on;
use lavastore::{
    Db, ErrorKind, FamilyOptions, LogBatch, LogOptions, LogStore, Options, RequestOptions, Result,
    WriteBatch, WriteOptions,
};
use std::time::Duration;

fn open(sim: &SimEnv) -> Result<Db> {
    let options = Options {
        memtable_bytes: 16 << 10,
        memory_bytes: 64 << 10,
        log_group_bytes: 64 << 10,
        wal_bytes_max: 256 << 10,
        ..Default::default()
    };
    let logs = LogOptions { group_bytes: Some(256 << 10), ..Default::default() };
    Db::open_with_logs_in(&sim.env(), "/store", &options, &logs)
}

/// The calls of the script so far, and whether one of them said that the store is poisoned.
#[derive(Default)]
struct Told {
    poisoned_at: Option<String>,
    acknowledged_after: Vec<String>,
    failures: u64,
}

impl Told {
    /// An acknowledgement, or why there is none.
    fn write(&mut self, call: &str, outcome: Result<()>) {
        match outcome {
            Ok(()) => self.acknowledged_after.extend(self.poisoned_at.is_some().then(|| call.to_owned())),
            Err(e) => self.failed(call, e.kind()),
        }
    }

    /// A call that acknowledges no write.
    fn other(&mut self, call: &str, outcome: Result<()>) {
        if let Err(e) = outcome {
            self.failed(call, e.kind());
        }
    }

    fn failed(&mut self, call: &str, kind: ErrorKind) {
        self.failures += 1;
        if kind == ErrorKind::Poisoned {
            self.poisoned_at.get_or_insert_with(|| call.to_owned());
        }
    }
}

/// One round of writes by every kind of writer.
fn round(db: &Db, logs: &LogStore, nth: u64, told: &mut Told) -> Result<()> {
    let (durable, buffered) = (WriteOptions::durable(), WriteOptions::buffered());
    let value = vec![nth as u8; 6000];
    told.write("durable put", db.writing(&durable).put(format!("a{nth}"), &value));
    told.write("buffered put", db.writing(&buffered).put(format!("b{nth}"), &value));
    let requests = db.requests(&RequestOptions::default()).map(|all| all.writing(&durable));
    let put = requests.and_then(|all| all.put(format!("c{nth}"), value.clone()));
    told.write("asynchronous put", put.and_then(|put| block_on(db, put)));
    let log = logs.open_log("log")?;
    told.write("durable append", log.writing(&durable).append(3 * nth, &value));
    told.write("buffered append", log.writing(&buffered).append(3 * nth + 1, &value));
    told.write("asynchronous append", log.append_async(3 * nth + 2, &value).and_then(|done| done.wait()));
    let (mut keys, mut records) = (WriteBatch::new(), LogBatch::new());
    keys.put(format!("d{nth}"), "joint");
    let other = logs.open_log("other")?;
    records.append(&other, nth + 1, "joint");
    told.write("joint batch", db.writing(&durable).write_with_logs(&keys, &records));
    told.write("sync of keys", db.sync());
    told.write("sync of logs", logs.sync());
    match nth % 4 {
        0 => told.other("flush", db.flush()),
        1 => told.other("family", db.create_family(&format!("{nth}"), &FamilyOptions::default()).map(drop)),
        2 => told.other("trim", log.trim(3 * nth)),
        _ => drop(db.wait_idle(Duration::from_millis(1))),
    }
    Ok(())
}

/// The operations that the script makes where nothing fails.
fn run(fault: Option<FaultPlan>) -> (u64, Told) {
    let sim = SimEnv::new(7);
    let db = open(&sim).unwrap();
    let logs = db.logs().unwrap();
    for name in ["log", "other"] {
        logs.create_log(name).unwrap().append(0, "first").unwrap();
    }
    let begun = sim.op_count();
    if let Some(fault) = fault {
        sim.inject(fault);
    }
    let mut told = Told::default();
    for nth in 1..16 {
        round(&db, &logs, nth, &mut told).unwrap();
    }
    sim.clear_faults();
    let ops = sim.op_count() - begun;
    // What failed stays failed where the device is sound again.
    round(&db, &logs, 16, &mut told).unwrap();
    (ops, told)
}

#[test]
fn no_writer_of_either_engine_is_acknowledged_once_the_store_is_poisoned() {
    let (ops, told) = run(None);
    assert!(ops > 300 && told.failures == 0, "{ops} operations, {} failures", told.failures);
    let (mut poisoned, mut wrong) = (0, Vec::new());
    for nth in 0..ops {
        for is_sticky in [false, true] {
            let fault = FaultPlan::nth(nth, FaultEffect::Eio);
            let (_, told) = run(Some(if is_sticky { fault.sticky() } else { fault }));
            poisoned += u64::from(told.poisoned_at.is_some());
            if !told.acknowledged_after.is_empty() {
                let (by, after) = (told.poisoned_at.unwrap(), told.acknowledged_after);
                wrong.push(format!("fault {nth}, sticky {is_sticky}: poisoned for {by}, and then {after:?}"));
            }
        }
    }
    assert!(poisoned > 100, "{poisoned} runs were poisoned");
    assert!(wrong.is_empty(), "{} runs: {}", wrong.len(), wrong.join("\n"));
}
