//! What each engine still needs of the log.
//!
//! A *floor* is a sequence of a tenant below which all it wrote is durable elsewhere, or not wanted any more. Tenants tell
//! theirs as it rises; the log never asks them, so that no lock of theirs is taken here. What was not told since the store
//! was opened is the floor that the manifest has, which is the only one for an engine that is not there. A tenant of
//! which there is neither keeps all it has.
//!
//! Invariant: a floor never falls. So one that is read a moment too early only keeps more.

use crate::manifest::{EngineId, State};
use base::SeqNo;
use base::sync::{Mutex, lock, rank};
use std::collections::BTreeMap;
use wal::TenantId;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Floors {
    /// Those that were told, by tenant.
    told: Mutex<BTreeMap<TenantId, SeqNo>, rank::LogFloors>,
}

impl Floors {
    /// A tenant needs nothing below `floor`.
    pub fn tell(&self, tenant: TenantId, floor: SeqNo) {
        let mut told = lock(&self.told);
        let known = told.entry(tenant).or_default();
        *known = floor.max(*known);
    }

    /// Of every tenant that has one. `state`: what the manifest has.
    pub fn all(&self, state: &State) -> Vec<(TenantId, SeqNo)> {
        let mut all: BTreeMap<TenantId, SeqNo> =
            state.engines().filter_map(|e| Some((tenant(e.id)?, e.floor))).collect();
        for (&tenant, &floor) in lock(&self.told).iter() {
            let known = all.entry(tenant).or_default();
            *known = floor.max(*known);
        }
        all.into_iter().collect()
    }
}

/// The number under which an engine's batches are in the log: the one that the manifest has for it.
pub fn tenant(engine: EngineId) -> Option<TenantId> {
    u8::try_from(engine.0).ok().map(TenantId)
}
