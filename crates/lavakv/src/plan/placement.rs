//! Placement of tables on two tiers: the sampled loads, the pointer that follows them, and the
//! tables to move.
//!
//! This state is part of the work in progress, under its mutex. [`super::moves`] picks the next
//! table.

use super::pointer::{Pointer, TierWindow};
use crate::context::event::FastTierChangeReason;
use crate::tree::fast_tier_tables::FastTierRoom;
use store::pacing::DiskLoad;
use store::volumes::Volume;
use version::FamilyId;

/// A table that should change its tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TierMove {
    pub family: FamilyId,
    pub level: usize,
    pub number: u64,
    pub to: Volume,
}

/// The directions in which tables may move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ways {
    pub down: bool,
    pub up: bool,
}

/// A sample of the tiers.
#[derive(Clone, Debug, Default)]
pub(crate) struct TierSample {
    pub now_ns: u64,
    /// Loads since the store was opened: fast tier, capacity tier.
    pub loads: [DiskLoad; 2],
    pub room: FastTierRoom,
    pub most: u32,
    pub filled: u32,
}

/// State of the placement.
#[derive(Debug, Default)]
pub(crate) struct Moving {
    pointer: Pointer,
    loads: [DiskLoad; 2],
    ways: Ways,
    wanted: Vec<TierMove>,
}

impl Moving {
    /// Evaluates a sample. Returns the reason if the pointer moved.
    pub fn see(&mut self, seen: TierSample) -> Option<FastTierChangeReason> {
        let TierSample { now_ns, loads, room, most, filled } = seen;
        let [speed, capacity] = [loads[0].since(&self.loads[0]), loads[1].since(&self.loads[1])];
        self.loads = loads;
        let why = self.pointer.see(&TierWindow { now_ns, speed, capacity, room, most, filled });
        let is_settled = self.pointer.is_settled();
        self.ways = Ways {
            down: room == FastTierRoom::Short || is_settled,
            up: room == FastTierRoom::Plenty && is_settled,
        };
        why
    }

    /// Returns the directions allowed by the last sample.
    pub fn ways(&self) -> Ways {
        self.ways
    }

    /// Stores the list of misplaced tables that may move.
    pub fn note(&mut self, wanted: Vec<TierMove>) {
        self.wanted = wanted;
    }

    /// Returns the levels on the fast tier, in thousandths.
    pub fn pointer(&self) -> u32 {
        self.pointer.at()
    }

    /// Returns the stored list of tables to move.
    pub fn wanted(&self) -> &[TierMove] {
        &self.wanted
    }

    /// Clears the list because a move did not fit; the next sample fills it again.
    pub fn give_up(&mut self) {
        self.wanted.clear();
    }
}
