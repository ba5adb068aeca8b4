//! The benchmark driver of LavaLog.

use super::keyed::key;
use super::{Follow, LogArgs, LogEngine, LogOpener, LogSite, Record};
use crate::Result;
use lavastore::{Db, Log, LogBatch, LogOptions, LogScan, LogStore, Options, WriteBatch};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// Opens LavaLog.
pub struct LavaLog {
    /// Place of the stores.
    pub site: LogSite,
    /// Options of the run.
    pub args: LogArgs,
}

impl LogOpener for LavaLog {
    fn name(&self) -> String {
        format!("LavaLog {}", env!("CARGO_PKG_VERSION"))
    }

    fn open(&self, dir: &Path, logs: u64) -> Result<Box<dyn LogEngine>> {
        // Appends are durable by default.
        let mut options = LogOptions { space_limit: self.args.space_limit, ..LogOptions::default() };
        options.group_bytes = self.args.group_bytes;
        let env = &self.site.env;
        let (store, keys) = match self.args.put_size {
            Some(put_size) => {
                let db = Db::open_with_logs_in(env, dir, &Options::default(), &options)?;
                (db.logs()?, Some(KeyEngine { db, put_size }))
            }
            None => (LogStore::open_in(env, dir, &options)?, None),
        };
        let handles = (0..logs).map(|log| Ok(store.log(&log.to_string())?)).collect::<Result<_>>()?;
        Ok(Box::new(Logs { store, keys, handles, options }))
    }

    fn site(&self) -> LogSite {
        self.site.clone()
    }
}

/// Keys of each log that are overwritten in turn.
const KEYS: u64 = 1000;

/// The key-value engine of the store.
struct KeyEngine {
    db: Db,
    put_size: usize,
}

impl KeyEngine {
    fn append(&self, log: &Log, (number, lsn): (u64, u64), record: &[u8]) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.put(key(number, lsn % KEYS), vec![lsn as u8; self.put_size]);
        Ok(self.db.write_with_logs(&batch, LogBatch::new().append(log, lsn, record))?)
    }
}

struct Logs {
    store: LogStore,
    /// Set if the store has keys too.
    keys: Option<KeyEngine>,
    /// Handles by log number.
    handles: Vec<Log>,
    options: LogOptions,
}

impl LogEngine for Logs {
    fn append(&self, log: u64, lsn: u64, record: &[u8]) -> Result<()> {
        let handle = &self.handles[log as usize];
        match &self.keys {
            Some(keys) if keys.put_size > 0 => keys.append(handle, (log, lsn), record),
            _ => Ok(handle.append(lsn, record)?),
        }
    }

    fn append_all(&self, records: &[Record]) -> Result<()> {
        let append = |record: &Record| {
            let handle = &self.handles[record.log as usize];
            handle.append_async(record.lsn, &record.bytes)
        };
        let all = records.iter().map(append).collect::<lavastore::Result<Vec<_>>>()?;
        Ok(all.into_iter().try_for_each(lavastore::Completion::wait)?)
    }

    fn trim(&self, log: u64, below: u64) -> Result<()> {
        Ok(self.handles[log as usize].trim(below)?)
    }

    fn read(&self, log: u64, lsn: u64, out: &mut Vec<u8>) -> Result<bool> {
        out.clear();
        match self.handles[log as usize].read_into(lsn, out) {
            Err(e) if e.kind() == lavastore::ErrorKind::Trimmed => Ok(false),
            read => Ok(read?),
        }
    }

    fn takes_gaps(&self) -> bool {
        true
    }

    fn follow(&self, log: u64) -> Result<Option<Box<dyn Follow + '_>>> {
        let log = &self.handles[log as usize];
        let next = log.last_lsn()?.map_or(0, |last| last + 1);
        Ok(Some(Box::new(Tail(log.scan(next..)))))
    }

    fn scan(&self, log: u64) -> Result<Option<u64>> {
        let mut count = 0;
        for record in self.handles[log as usize].scan(..) {
            record?;
            count += 1;
        }
        Ok(Some(count))
    }

    fn settings(&self) -> Vec<(String, String)> {
        let LogOptions { access, background_threads, garbage_percent, .. } = &self.options;
        let all = [
            ("group_bytes", self.options.longest_group().to_string()),
            ("access", format!("{access:?}").to_lowercase()),
            ("background_threads", background_threads.to_string()),
            ("garbage_percent", garbage_percent.to_string()),
        ];
        all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn stats(&self) -> Vec<(String, Value)> {
        let s = self.store.stats();
        let all = [
            ("logs", s.logs),
            ("appends", s.appends),
            ("append_bytes", s.append_bytes),
            ("record_bytes", s.record_bytes),
            ("index_bytes", s.index_bytes),
            ("sealed_groups", s.sealed_groups),
            ("collected_files", s.collected_files),
            ("copied_bytes", s.copied_bytes),
            ("log_writes", s.log_writes),
            ("log_written_bytes", s.log_written_bytes),
        ];
        all.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self.handles);
        match self.keys {
            Some(keys) => {
                drop(self.store);
                Ok(keys.db.close()?)
            }
            None => Ok(self.store.close()?),
        }
    }
}

struct Tail(LogScan);

impl Follow for Tail {
    fn next(&mut self, patience: Duration) -> Result<Option<(u64, Vec<u8>)>> {
        match patience.is_zero() {
            true => Ok(self.0.next().transpose()?),
            false => Ok(self.0.wait_next(patience)?),
        }
    }
}
