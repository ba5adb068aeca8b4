//! The script: a store of keys and logs on a simulated machine, and rounds of writes by every kind
//! of writer.

use io::sim::SimEnv;
use lavastore::lavafs::{Devices, FormatOptions, MountOptions, format_on, mount_on};
use lavastore::testing::block_on;
use lavastore::{
    Db, Env, ErrorKind, FamilyOptions, LogBatch, LogOptions, LogStore, Options, RequestOptions, Result,
    Volumes, WriteBatch, WriteOptions,
};
use std::path::Path;
use std::time::Duration;

const DIR: &str = "/store";
const DEVICE: &str = "/volume";
const DEVICE_LEN: u64 = 64 << 20;

/// The disks under the store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Machine {
    Directory,
    TwoDisks,
    LavaFs,
}

impl Machine {
    /// Returns a new machine. A LavaFS volume is formatted.
    pub fn start(self) -> SimEnv {
        let sim = SimEnv::new(7);
        if self == Machine::LavaFs {
            let options =
                FormatOptions { journal_len: 64 << 10, unit_len: 256 << 10, ..FormatOptions::default() };
            let devices = Devices::one(sim.device(DEVICE, DEVICE_LEN).unwrap());
            format_on(&sim.env(), &devices, &options).unwrap();
        }
        sim
    }

    fn env(self, sim: &SimEnv) -> Env {
        match self {
            Machine::Directory => sim.env(),
            Machine::TwoDisks => {
                let (env, speed) = (sim.env(), Path::new("/speed"));
                Volumes::in_envs((&env, DIR.as_ref()), (&env, speed)).env()
            }
            Machine::LavaFs => {
                let devices = Devices::one(sim.device(DEVICE, 0).unwrap());
                let options = MountOptions { compact_journal_at: 128 << 10, ..MountOptions::default() };
                mount_on(&sim.env(), devices, options).unwrap().into_env()
            }
        }
    }

    pub fn open(self, sim: &SimEnv) -> Result<Db> {
        let options = Options { memtable_bytes: 16 << 10, memory_bytes: 64 << 10, ..Default::default() }
            .expert(|expert| {
                expert.log_group_bytes = 64 << 10;
                expert.wal_bytes_max = 256 << 10;
            });
        let logs = LogOptions { group_bytes: Some(256 << 10), ..Default::default() };
        Db::open_with_logs_in(&self.env(sim), DIR, &options, &logs)
    }
}

/// The names of the logs.
pub const LOGS: [&str; 2] = ["log", "other"];

/// A new store with its logs.
pub fn new_store(machine: Machine, sim: &SimEnv) -> (Db, LogStore) {
    let db = machine.open(sim).unwrap();
    let logs = db.logs().unwrap();
    for name in LOGS {
        logs.create_log(name).unwrap().append(0, "first").unwrap();
    }
    (db, logs)
}

/// A key, or a record of a log, and its value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    Key(String),
    Record(&'static str, u64),
}

/// The answers to the calls of the script so far.
#[derive(Default)]
pub struct Told {
    /// The first call that reported the poisoned store.
    pub poisoned_at: Option<String>,
    /// Writes that were acknowledged afterwards.
    pub acknowledged_after: Vec<String>,
    /// Failed calls with their errors.
    pub failures: Vec<String>,
    /// Acknowledged writes of this store.
    pub acknowledged: Vec<Item>,
    /// Writes refused for lack of space: they had no effect.
    pub refused: Vec<Item>,
}

impl Told {
    /// Records the outcome of a write of these items.
    fn write(&mut self, call: &str, items: &[Item], outcome: Result<()>) {
        match outcome {
            Ok(()) => {
                self.acknowledged_after.extend(self.poisoned_at.is_some().then(|| call.to_owned()));
                self.acknowledged.extend_from_slice(items);
            }
            Err(e) => {
                if e.kind() == ErrorKind::NoSpace {
                    self.refused.extend_from_slice(items);
                }
                self.failed(call, &e);
            }
        }
    }

    /// Records the outcome of a call that acknowledges no write.
    pub fn other(&mut self, call: &str, outcome: Result<()>) {
        if let Err(e) = outcome {
            self.failed(call, &e);
        }
    }

    fn failed(&mut self, call: &str, e: &lavastore::Error) {
        self.failures.push(format!("{call}: {e}"));
        if e.kind() == ErrorKind::Poisoned {
            self.poisoned_at.get_or_insert_with(|| call.to_owned());
        }
    }
}

fn key(letter: char, nth: u64) -> (String, Item) {
    (format!("{letter}{nth}"), Item::Key(format!("{letter}{nth}")))
}

/// One round of writes by every kind of writer.
pub fn round(db: &Db, logs: &LogStore, nth: u64, told: &mut Told) -> Result<()> {
    let (durable, buffered) = (WriteOptions::durable(), WriteOptions::buffered());
    let value = vec![nth as u8; 6000];
    let (name, item) = key('a', nth);
    told.write("durable put", &[item], db.writing(&durable).put(name, &value));
    let (name, item) = key('b', nth);
    told.write("buffered put", &[item], db.writing(&buffered).put(name, &value));
    let (name, item) = key('c', nth);
    let requests = db.requests(&RequestOptions::default()).map(|all| all.writing(&durable));
    let put = requests.and_then(|all| all.put(name, value.clone()));
    told.write("asynchronous put", &[item], put.and_then(|put| block_on(db, put)));
    let log = logs.open_log("log")?;
    let record = |lsn| Item::Record("log", lsn);
    let lsn = 3 * nth;
    told.write("durable append", &[record(lsn)], log.writing(&durable).append(lsn, &value));
    told.write("buffered append", &[record(lsn + 1)], log.writing(&buffered).append(lsn + 1, &value));
    let append = log.append_async(lsn + 2, &value).and_then(|done| done.wait());
    told.write("asynchronous append", &[record(lsn + 2)], append);
    let (mut keys, mut records) = (WriteBatch::new(), LogBatch::new());
    let (name, item) = key('d', nth);
    keys.put(name, "joint");
    let other = logs.open_log("other")?;
    records.append(&other, nth + 1, "joint");
    let joint = db.writing(&durable).write_with_logs(&keys, &records);
    told.write("joint batch", &[item, Item::Record("other", nth + 1)], joint);
    told.write("sync of keys", &[], db.sync());
    told.write("sync of logs", &[], logs.sync());
    match nth % 4 {
        0 => told.other("flush", db.flush()),
        1 => told.other("family", db.create_family(&format!("{nth}"), &FamilyOptions::default()).map(drop)),
        2 => told.other("trim", log.trim(3 * nth)),
        _ => drop(db.wait_idle(Duration::from_millis(1))),
    }
    Ok(())
}
