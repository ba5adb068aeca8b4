//! State that all parts of a lane's log share.

use super::LogTerms;
use crate::context::Context;
use crate::files::Files;
use crate::manifest::Manifest;
use crate::space::SpaceBudget;
use base::sync::OnceLock;
use std::sync::Arc;
use wal::{Lane, Wal};

/// The shared state: see the module.
#[derive(Debug)]
pub(super) struct Foundation {
    pub lane: Lane,
    pub terms: LogTerms,
    pub context: Arc<Context>,
    pub manifest: Arc<Manifest>,
    pub store: Arc<Files>,
    pub space: Arc<SpaceBudget>,
    /// The log, once it has begun.
    pub wal: OnceLock<Wal>,
}

impl Foundation {
    pub(super) fn of(lane: Lane, terms: LogTerms, store: Arc<Files>, space: Arc<SpaceBudget>) -> Foundation {
        let (context, manifest) = (store.context().clone(), store.manifest().clone());
        Foundation { lane, terms, context, manifest, store, space, wal: OnceLock::new() }
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
    pub(super) fn tell(&mut self, base: &Foundation, bytes: u64) {
        base.space.gauges.change_log_bytes(base.lane, self.0, bytes);
        self.0 = bytes;
    }
}
