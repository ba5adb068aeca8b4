//! State that all parts of a lane's log share.

use super::LogTerms;
use crate::context::Context;
use crate::files::StoreFiles;
use crate::manifest::Manifest;
use crate::space::SpaceBudget;
use base::sync::OnceLock;
use std::sync::Arc;
use wal::{Lane, Wal};

/// The shared state: see the module.
#[derive(Debug)]
pub(super) struct LaneShared {
    pub lane: Lane,
    pub terms: LogTerms,
    pub context: Arc<Context>,
    pub manifest: Arc<Manifest>,
    pub store: Arc<StoreFiles>,
    pub space: Arc<SpaceBudget>,
    /// The log, once it has begun.
    pub wal: OnceLock<Wal>,
}

impl LaneShared {
    pub(super) fn of(
        lane: Lane,
        terms: LogTerms,
        store: Arc<StoreFiles>,
        space: Arc<SpaceBudget>,
    ) -> LaneShared {
        let (context, manifest) = (store.context().clone(), store.manifest().clone());
        LaneShared { lane, terms, context, manifest, store, space, wal: OnceLock::new() }
    }

    /// Returns the log, which must have begun.
    #[inline]
    pub(super) fn wal(&self) -> &Wal {
        self.wal.get().expect("the log is started before the first write")
    }
}

/// The file bytes of one part of a log, as reported to the gauge of the lane.
#[derive(Debug, Default)]
pub(super) struct ToldBytes(u64);

impl ToldBytes {
    /// Reports the current number of bytes.
    pub(super) fn tell(&mut self, base: &LaneShared, bytes: u64) {
        base.space.gauges.change_log_bytes(base.lane, self.0, bytes);
        self.0 = bytes;
    }
}
