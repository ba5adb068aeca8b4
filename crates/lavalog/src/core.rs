//! The parts of the engine, put together. Each has its own state and lock; this only leads to them.

use crate::appliers::Appliers;
use crate::catalog::Catalog;
use crate::collect::Collector;
use crate::foundation::Foundation;
use crate::hold::Moves;
use crate::log_writer::LogWriter;
use crate::reader::Reader;
use crate::records::Records;
use crate::remake::Remaker;
use crate::room::Room;
use crate::seal::Sealer;
use crate::write::WritePath;
use base::histogram::Distribution;
use std::sync::Arc;
use store::Store;
use store::context::Context;
use store::guest::Relieve;

/// Who drives what is not of the lane of records.
pub(crate) enum Roof {
    /// This engine, which opened the store.
    Own(Store),
    /// The one that did, which can be asked for relief.
    Host(Relieve),
    /// Nobody: the store is only read.
    Reader(Reader),
}

/// See the module.
pub(crate) struct Core {
    pub store: Arc<Foundation>,
    pub roof: Roof,
    pub catalog: Arc<Catalog>,
    pub records: Arc<Records>,
    pub log: Arc<LogWriter>,
    pub writes: WritePath,
    pub moves: Arc<Moves>,
    pub room: Arc<Room>,
    pub collector: Arc<Collector>,
    pub sealer: Arc<Sealer>,
    pub remaker: Arc<Remaker>,
    pub appliers: Appliers,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LavaLog({})", self.context().dir.display())
    }
}

impl Core {
    /// The machine, and the store's directory.
    pub fn context(&self) -> &Arc<Context> {
        self.store.context()
    }

    /// The store, if it is only read.
    pub fn reader(&self) -> Option<&Reader> {
        match &self.roof {
            Roof::Reader(reader) => Some(reader),
            _ => None,
        }
    }

    /// How long operations took since the store was opened, nanoseconds by kind.
    pub fn operations(&self) -> Vec<(&'static str, Distribution)> {
        let (writes, reads) = (self.writes.times(), self.records.times());
        let mut all = vec![
            ("record_append", writes.append.read()),
            ("record_append_async", writes.append_async.read()),
            ("record_read", reads.read.read()),
            ("record_scan", reads.scan.read()),
        ];
        if let Some(wal) = self.store.lane.begun() {
            let log = wal.times();
            all.extend([
                ("record_log_append", log.append.read()),
                ("record_log_sync", log.sync.read()),
                // Of those that append, where the log's buffer is full.
                ("record_log_wait", log.ring_full.read()),
            ]);
        }
        all
    }
}
