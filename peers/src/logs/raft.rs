//! raft-engine: the log store of TiKV. Numbers of a log must be consecutive.

use bench::Result;
use bench::host::StopOnDrop;
use bench::logs::{LogEngine, LogOpener, Record};
use raft_engine::{Config, Engine, LogBatch, MessageExt, ReadableSize, RecoveryMode};
use raft_proto::eraftpb::Entry;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Opens it.
pub struct Raft {
    /// Bytes of records that are kept.
    pub keep: u64,
}

/// How the engine reads an entry.
#[derive(Clone)]
struct Typed;

impl MessageExt for Typed {
    type Entry = Entry;

    fn index(entry: &Entry) -> u64 {
        entry.index
    }
}

impl LogOpener for Raft {
    fn name(&self) -> String {
        "raft-engine 0.4.2".to_owned()
    }

    fn open(&self, dir: &Path, _logs: u64) -> Result<Box<dyn LogEngine>> {
        let config = Config {
            dir: dir.to_string_lossy().into_owned(),
            recovery_mode: RecoveryMode::TolerateTailCorruption,
            // What is trimmed goes when twice of what is kept is there.
            purge_threshold: ReadableSize(2 * self.keep),
            target_file_size: ReadableSize((self.keep / 4).clamp(1 << 20, 128 << 20)),
            enable_log_recycle: true,
            ..Config::default()
        };
        let engine = Arc::new(Engine::open(config)?);
        let stop = Arc::new(AtomicBool::new(false));
        let purger = std::thread::spawn({
            let (engine, stop) = (engine.clone(), stop.clone());
            // TiKV does so every ten seconds; more often, since runs are short.
            move || {
                while !stop.load(Ordering::Relaxed) {
                    let _ = engine.purge_expired_files();
                    std::thread::sleep(Duration::from_millis(200));
                }
            }
        });
        Ok(Box::new(RaftLogs { engine, stop, purger: Some(purger), purge_threshold: 2 * self.keep }))
    }
}

fn entry(index: u64, record: &[u8]) -> Entry {
    let mut entry = Entry::default();
    entry.index = index;
    entry.data = record.to_vec().into();
    entry
}

struct RaftLogs {
    engine: Arc<Engine>,
    stop: Arc<AtomicBool>,
    purger: Option<std::thread::JoinHandle<()>>,
    purge_threshold: u64,
}

impl Drop for RaftLogs {
    fn drop(&mut self) {
        drop(StopOnDrop(&self.stop));
        if let Some(purger) = self.purger.take() {
            let _ = purger.join();
        }
    }
}

impl LogEngine for RaftLogs {
    fn append(&self, log: u64, lsn: u64, record: &[u8]) -> Result<()> {
        let mut batch = LogBatch::with_capacity(1);
        batch.add_entries::<Typed>(log + 1, &[entry(lsn, record)])?;
        self.engine.write(&mut batch, true)?;
        Ok(())
    }

    fn append_all(&self, records: &[Record]) -> Result<()> {
        let mut batch = LogBatch::with_capacity(records.len());
        for Record { log, lsn, bytes } in records {
            batch.add_entries::<Typed>(log + 1, &[entry(*lsn, bytes)])?;
        }
        self.engine.write(&mut batch, true)?;
        Ok(())
    }

    fn trim(&self, log: u64, below: u64) -> Result<()> {
        self.engine.compact_to(log + 1, below);
        Ok(())
    }

    fn read(&self, log: u64, lsn: u64, out: &mut Vec<u8>) -> Result<bool> {
        let found = self.engine.get_entry::<Typed>(log + 1, lsn)?;
        out.clear();
        found.iter().for_each(|entry| out.extend_from_slice(&entry.data));
        Ok(found.is_some())
    }

    fn takes_gaps(&self) -> bool {
        false
    }

    fn settings(&self) -> Vec<(String, String)> {
        let all = [
            ("purge_threshold", self.purge_threshold.to_string()),
            ("enable_log_recycle", "true".to_owned()),
        ];
        all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn stats(&self) -> Vec<(String, Value)> {
        Vec::new()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
