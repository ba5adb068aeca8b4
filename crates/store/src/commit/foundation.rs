//! What all parts of a lane's log have in common: where it is, and who is asked.

use super::LogTerms;
use crate::context::Context;
use crate::files::Files;
use crate::manifest::Manifest;
use crate::space::SpaceBudget;
use std::sync::Arc;
use wal::Lane;

/// See the module.
#[derive(Debug)]
pub(super) struct Foundation {
    pub lane: Lane,
    pub terms: LogTerms,
    pub context: Arc<Context>,
    pub manifest: Arc<Manifest>,
    pub store: Arc<Files>,
    pub space: Arc<SpaceBudget>,
}

impl Foundation {
    pub(super) fn of(lane: Lane, terms: LogTerms, store: Arc<Files>, space: Arc<SpaceBudget>) -> Foundation {
        let (context, manifest) = (store.context().clone(), store.manifest().clone());
        Foundation { lane, terms, context, manifest, store, space }
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
