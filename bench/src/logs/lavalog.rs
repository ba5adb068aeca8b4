//! LavaLog, the log engine.

use super::{Follow, LogArgs, LogEngine, LogOpener, LogSite};
use crate::Result;
use lavastore::{Log, LogOptions, LogScan, LogStore};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// Opens it.
pub struct LavaLog {
    /// Where.
    pub site: LogSite,
    /// What was asked for.
    pub args: LogArgs,
}

impl LogOpener for LavaLog {
    fn name(&self) -> String {
        format!("LavaLog {}", env!("CARGO_PKG_VERSION"))
    }

    fn open(&self, dir: &Path, logs: u64) -> Result<Box<dyn LogEngine>> {
        // An append is durable by default.
        let mut options = LogOptions { space_limit: self.args.space_limit, ..LogOptions::default() };
        options.group_bytes = self.args.group_bytes.unwrap_or(options.group_bytes);
        let store = LogStore::open_in(&self.site.env, dir, &options)?;
        let handles = (0..logs).map(|log| Ok(store.log(&log.to_string())?)).collect::<Result<_>>()?;
        Ok(Box::new(Logs { store, handles, options }))
    }

    fn site(&self) -> LogSite {
        self.site.clone()
    }
}

struct Logs {
    store: LogStore,
    /// By their numbers.
    handles: Vec<Log>,
    options: LogOptions,
}

impl LogEngine for Logs {
    fn append(&self, log: u64, lsn: u64, record: &[u8]) -> Result<()> {
        Ok(self.handles[log as usize].append(lsn, record)?)
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
        let LogOptions { group_bytes, access, background_threads, garbage_percent, .. } = &self.options;
        let all = [
            ("group_bytes", group_bytes.to_string()),
            ("access", format!("{access:?}")),
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
        Ok(self.store.close()?)
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
