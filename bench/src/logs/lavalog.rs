//! LavaLog, the log engine.

use super::{LogEngine, LogOpener, LogSite};
use crate::Result;
use lavastore::{Log, LogOptions, LogStore};
use serde_json::Value;
use std::path::Path;

/// Opens it.
pub struct LavaLog {
    /// Where.
    pub site: LogSite,
}

impl LogOpener for LavaLog {
    fn name(&self) -> String {
        format!("LavaLog {}", env!("CARGO_PKG_VERSION"))
    }

    fn open(&self, dir: &Path, logs: u64) -> Result<Box<dyn LogEngine>> {
        // An append is durable by default.
        let options = LogOptions::default();
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
