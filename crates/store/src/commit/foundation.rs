//! What all parts of a lane's log have in common: where it is, and who is asked.

use super::LogTerms;
use crate::context::Context;
use crate::files::Files;
use crate::manifest::Manifest;
use crate::space::SpaceBudget;
use base::sync::OnceLock;
use std::sync::Arc;
use wal::{Lane, Wal};

/// See the module.
#[derive(Debug)]
pub(super) struct Foundation {
    pub lane: Lane,
    pub terms: LogTerms,
    pub context: Arc<Context>,
    pub manifest: Arc<Manifest>,
    pub store: Arc<Files>,
    pub space: Arc<SpaceBudget>,
    /// The log itself, once it has begun.
    pub wal: OnceLock<Wal>,
}

impl Foundation {
    pub(super) fn of(lane: Lane, terms: LogTerms, store: Arc<Files>, space: Arc<SpaceBudget>) -> Foundation {
        let (context, manifest) = (store.context().clone(), store.manifest().clone());
        Foundation { lane, terms, context, manifest, store, space, wal: OnceLock::new() }
    }

    /// The log itself. It must have begun.
    #[inline]
    pub(super) fn wal(&self) -> &Wal {
        self.wal.get().expect("the log is started before the first write")
    }
}

/// Bytes of files that one part of a log has, and has told the gauge of the lane.
#[derive(Debug, Default)]
pub(super) struct ToldBytes(u64);

impl ToldBytes {
    /// Tells that there are so many now.
    pub(super) fn tell(&mut self, base: &Foundation, bytes: u64) {
        base.space.gauges.change_log_bytes(base.lane, self.0, bytes);
        self.0 = bytes;
    }
}
