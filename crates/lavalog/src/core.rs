//! The assembled components of the engine. Each component has its own state and lock; `Core` has
//! none.

use crate::appliers::Appliers;
use crate::catalog::Catalog;
use crate::collect::Collector;
use crate::full_volume::FullVolume;
use crate::hold::MoveLock;
use crate::index_rebuild::IndexRebuilder;
use crate::log_writer::LogWriter;
use crate::reader::Reader;
use crate::records::RecordReader;
use crate::seal::Sealer;
use crate::store_handles::StoreHandles;
use crate::write::WritePath;
use base::histogram::Distribution;
use std::sync::Arc;
use store::Store;
use store::context::Context;
use store::secondary_engine::RequestFlush;

/// Owner of the parts of the store outside the record lane.
pub(crate) enum StoreOwner {
    /// This engine, which opened the store.
    Own(Store),
    /// The host engine, which this engine can ask to release log space.
    Host(RequestFlush),
    /// No engine: the store is open read-only.
    Reader(Reader),
}

pub(crate) struct Core {
    pub store: Arc<StoreHandles>,
    pub roof: StoreOwner,
    pub catalog: Arc<Catalog>,
    pub records: Arc<RecordReader>,
    pub log: Arc<LogWriter>,
    pub writes: WritePath,
    pub moves: Arc<MoveLock>,
    pub room: Arc<FullVolume>,
    pub collector: Arc<Collector>,
    pub sealer: Arc<Sealer>,
    pub remaker: Arc<IndexRebuilder>,
    pub appliers: Appliers,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LavaLog({})", self.context().dir.display())
    }
}

impl Core {
    /// Returns the environment and the directory of the store.
    pub fn context(&self) -> &Arc<Context> {
        self.store.context()
    }

    /// Returns the read-only state, if the store is open read-only.
    pub fn reader(&self) -> Option<&Reader> {
        match &self.roof {
            StoreOwner::Reader(reader) => Some(reader),
            _ => None,
        }
    }

    /// Returns the latency distributions since the store was opened, nanoseconds by kind.
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
                // Waits of appends for space in the tail buffer of the log.
                ("record_log_wait", log.ring_full.read()),
            ]);
        }
        all
    }
}
