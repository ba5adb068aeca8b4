//! What each engine still needs of the log.
//!
//! A *floor* is a sequence of a tenant below which all it wrote is durable elsewhere, or not wanted any more. Tenants tell
//! theirs as it rises; the log never asks them, so that no lock of theirs is taken here. What was not told since the store
//! was opened is the floor that the manifest has, which is the only one for an engine that is not there. A tenant of
//! which there is neither keeps all it has.
//!
//! Invariants: a floor never falls, so one that is read a moment too early only keeps more. Whoever made one rise gives a
//! *hint*, and the next release is by that floor or a higher one: the hint is taken before anything is read, and an engine
//! whose floor is found out by asking is asked in between ([`Floors::for_release`]). Taken after the asking, the hint of what
//! rose meanwhile would be lost, and the group stay until something else rises.

use crate::manifest::{EngineId, State};
use base::SeqNo;
use base::sync::model::atomic::{AtomicBool, Ordering};
use base::sync::model::{Mutex, lock};
use base::sync::rank;
use std::collections::BTreeMap;
use std::sync::Arc;
use wal::TenantId;

/// See the module.
#[derive(Debug, Default)]
pub struct Floors {
    /// Those that were told, by tenant.
    told: Mutex<BTreeMap<TenantId, SeqNo>, rank::LogFloors>,
    /// Something happened after which groups may have become releasable.
    hinted: AtomicBool,
}

impl Floors {
    /// A tenant needs nothing below `floor`.
    pub fn tell(&self, tenant: TenantId, floor: SeqNo) {
        let mut told = lock(&self.told);
        let known = told.entry(tenant).or_default();
        *known = floor.max(*known);
    }

    /// Some floor has risen, or what stood in the way of a release is gone.
    pub fn hint(&self) {
        // Exchanged, not stored: so who takes it sees what rose before any of the hints it takes.
        self.hinted.swap(true, Ordering::AcqRel);
    }

    /// True if there was a hint since the last release.
    pub fn is_hinted(&self) -> bool {
        self.hinted.load(Ordering::Acquire)
    }

    /// What may be released now. `tell`: whoever knows a floor by asking asks now, and tells it.
    pub(super) fn for_release(
        &self,
        tell: impl FnOnce(),
        state: impl FnOnce() -> Arc<State>,
    ) -> Vec<(TenantId, SeqNo)> {
        self.hinted.swap(false, Ordering::AcqRel);
        tell();
        self.all(&state())
    }

    /// Of every tenant that has one. `state`: what the manifest has.
    pub fn all(&self, state: &State) -> Vec<(TenantId, SeqNo)> {
        let mut all: BTreeMap<TenantId, SeqNo> =
            state.engines.floors().filter_map(|(id, floor)| Some((tenant(id)?, floor))).collect();
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

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::manifest::Engines;

    #[test]
    fn a_hint_that_is_given_while_floors_are_asked_for_stays() {
        let floors = Floors::default();
        let state = || Arc::new(State::empty(base::Uid::default(), 0, &Engines::default()));
        floors.hint();
        let found = floors.for_release(
            || {
                floors.tell(TenantId(1), 5);
                // The next memtable is flushed right after the first tenant was asked.
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
