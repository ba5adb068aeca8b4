//! LavaKV as a log, with a key per record and a range delete per trim: the baseline of log engines.

use super::{LogEngine, LogOpener, LogSite, Record};
use crate::Result;
use lavastore::{Db, Durability, Options, WriteBatch, WriteOptions};
use serde_json::Value;
use std::path::Path;

/// Opens LavaKV as a log.
pub struct Keyed {
    /// Place of the stores.
    pub site: LogSite,
}

impl LogOpener for Keyed {
    fn name(&self) -> String {
        format!("LavaKV {} with a key a record", env!("CARGO_PKG_VERSION"))
    }

    fn open(&self, dir: &Path, _logs: u64) -> Result<Box<dyn LogEngine>> {
        let options = Options { durability: Durability::Durable, ..Options::default() };
        Ok(Box::new(KeyedLogs { db: Db::open_in(&self.site.env, dir, &options)? }))
    }

    fn site(&self) -> LogSite {
        self.site.clone()
    }
}

struct KeyedLogs {
    db: Db,
}

/// Returns the key of a record: log and LSN, so that the keys of a log are in record order.
pub fn key(log: u64, lsn: u64) -> [u8; 16] {
    (u128::from(log) << 64 | u128::from(lsn)).to_be_bytes()
}

impl LogEngine for KeyedLogs {
    fn append(&self, log: u64, lsn: u64, record: &[u8]) -> Result<()> {
        Ok(self.db.put(key(log, lsn), record)?)
    }

    fn append_all(&self, records: &[Record]) -> Result<()> {
        let mut batch = WriteBatch::new();
        for Record { log, lsn, bytes } in records {
            batch.put(key(*log, *lsn), bytes);
        }
        Ok(self.db.write(&batch)?)
    }

    fn trim(&self, log: u64, below: u64) -> Result<()> {
        let options = WriteOptions { durability: Some(Durability::Buffered), ..WriteOptions::default() };
        Ok(self.db.writing(&options).delete_range(key(log, 0)..key(log, below))?)
    }

    fn read(&self, log: u64, lsn: u64, out: &mut Vec<u8>) -> Result<bool> {
        let found = self.db.get(key(log, lsn))?;
        out.clear();
        found.iter().for_each(|value| out.extend_from_slice(value.as_ref()));
        Ok(found.is_some())
    }

    fn takes_gaps(&self) -> bool {
        true
    }

    fn settings(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn stats(&self) -> Vec<(String, Value)> {
        Vec::new()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.db.close()?)
    }
}
