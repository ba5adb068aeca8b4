//! RocksDB as a store of logs: a key a record, range deletes for trims, recycled write-ahead logs.

use bench::Result;
use bench::logs::keyed::key;
use bench::logs::{LogEngine, LogOpener, Record};
use rocksdb::{DB, Options, WriteBatch, WriteOptions};
use serde_json::Value;
use std::path::Path;

/// Opens it.
pub struct Rocks;

impl LogOpener for Rocks {
    fn name(&self) -> String {
        format!("RocksDB {} with a key a record", crate::rocks::VERSION)
    }

    fn open(&self, dir: &Path, _logs: u64) -> Result<Box<dyn LogEngine>> {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_recycle_log_file_num(4);
        options.set_write_buffer_size(64 << 20);
        options.set_max_background_jobs(2);
        Ok(Box::new(RocksLogs { db: DB::open(&options, dir)? }))
    }
}

struct RocksLogs {
    db: DB,
}

fn durable() -> WriteOptions {
    let mut durable = WriteOptions::default();
    durable.set_sync(true);
    durable
}

impl LogEngine for RocksLogs {
    fn append(&self, log: u64, lsn: u64, record: &[u8]) -> Result<()> {
        Ok(self.db.put_opt(key(log, lsn), record, &durable())?)
    }

    fn append_all(&self, records: &[Record]) -> Result<()> {
        let mut batch = WriteBatch::default();
        records.iter().for_each(|record| batch.put(key(record.log, record.lsn), &record.bytes));
        Ok(self.db.write_opt(batch, &durable())?)
    }

    fn trim(&self, log: u64, below: u64) -> Result<()> {
        let mut batch = WriteBatch::default();
        batch.delete_range(key(log, 0), key(log, below));
        Ok(self.db.write(batch)?)
    }

    fn read(&self, log: u64, lsn: u64, out: &mut Vec<u8>) -> Result<bool> {
        let found = self.db.get_pinned(key(log, lsn))?;
        out.clear();
        found.iter().for_each(|value| out.extend_from_slice(value));
        Ok(found.is_some())
    }

    fn takes_gaps(&self) -> bool {
        true
    }

    fn settings(&self) -> Vec<(String, String)> {
        let all =
            [("recycle_log_file_num", "4"), ("write_buffer_size", "67108864"), ("max_background_jobs", "2")];
        all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn stats(&self) -> Vec<(String, Value)> {
        Vec::new()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
