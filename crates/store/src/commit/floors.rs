//! The floor of each engine: the lowest sequence that it still needs in the log.
//!
//! A *floor* is a sequence of a tenant. All its batches below the floor are durable elsewhere, or
//! no longer needed. Tenants report their floors as they rise. The log never calls a tenant for its
//! floor, so it takes no lock of the tenant here. Until the first report after an open, the
//! manifest's floor counts; for an absent engine it is the only one. The log keeps all batches of a
//! tenant without any floor.
//!
//! Invariants: a floor never falls, so a floor read too early only keeps more. After raising a
//! floor the engine gives a *hint*, and the next release uses that floor or a higher one. The
//! release therefore takes the hint before it reads any floor, and asks the engines with computed
//! floors in between ([`Floors::for_release`]). Otherwise it would lose the hint of a floor that
//! rose meanwhile, and the group would stay until another floor rises.

use crate::manifest::{EngineId, ManifestState};
use base::SeqNo;
use base::sync::model::atomic::{AtomicBool, Ordering};
use base::sync::model::{Mutex, lock};
use base::sync::rank;
use std::collections::BTreeMap;
use std::sync::Arc;
use wal::TenantId;

/// The floors of all tenants: see the module.
#[derive(Debug, Default)]
pub struct Floors {
    /// Reported floors, by tenant.
    told: Mutex<BTreeMap<TenantId, SeqNo>, rank::LogFloors>,
    /// An event occurred that may make groups releasable.
    hinted: AtomicBool,
}

impl Floors {
    /// Records that a tenant needs nothing below `floor`.
    pub fn tell(&self, tenant: TenantId, floor: SeqNo) {
        let mut told = lock(&self.told);
        let known = told.entry(tenant).or_default();
        *known = floor.max(*known);
    }

    /// Requests a release: a floor has risen, or an obstacle to a release is gone.
    pub fn hint(&self) {
        // A swap, not a store: it also acquires the earlier hints, so a release that takes the hint
        // sees every floor raised before any of them.
        self.hinted.swap(true, Ordering::AcqRel);
    }

    /// Returns true if a hint was given since the last release.
    pub fn is_hinted(&self) -> bool {
        self.hinted.load(Ordering::Acquire)
    }

    /// Returns the floors for a release. `tell` computes and reports the floors of engines that do
    /// not report them on their own.
    pub(super) fn for_release(
        &self,
        tell: impl FnOnce(),
        state: impl FnOnce() -> Arc<ManifestState>,
    ) -> Vec<(TenantId, SeqNo)> {
        self.hinted.swap(false, Ordering::AcqRel);
        tell();
        self.all(&state())
    }

    /// Returns the floor of every tenant that has one. `state` is the manifest's state.
    pub fn all(&self, state: &ManifestState) -> Vec<(TenantId, SeqNo)> {
        let mut all: BTreeMap<TenantId, SeqNo> =
            state.engines.floors().filter_map(|(id, floor)| Some((tenant(id)?, floor))).collect();
        for (&tenant, &floor) in lock(&self.told).iter() {
            let known = all.entry(tenant).or_default();
            *known = floor.max(*known);
        }
        all.into_iter().collect()
    }
}

/// Returns the tenant number of an engine: the engine id of the manifest, if it fits.
pub fn tenant(engine: EngineId) -> Option<TenantId> {
    u8::try_from(engine.0).ok().map(TenantId)
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::manifest::Engines;

    #[test]
    fn a_hint_given_while_floors_are_computed_is_kept() {
        let floors = Floors::default();
        let state = || Arc::new(ManifestState::empty(base::Uid::default(), 0, &Engines::default()));
        floors.hint();
        let found = floors.for_release(
            || {
                floors.tell(TenantId(1), 5);
                // A flush raises the next floor after the first tenant was asked.
                floors.hint();
            },
            state,
        );
        assert_eq!(found, [(TenantId(1), 5)]);
        assert!(floors.is_hinted(), "what rose meanwhile is released the next time");
        floors.for_release(|| (), state);
        assert!(!floors.is_hinted());
        floors.tell(TenantId(1), 3);
        assert_eq!(floors.for_release(|| (), state), [(TenantId(1), 5)], "a floor never falls");
    }
}
