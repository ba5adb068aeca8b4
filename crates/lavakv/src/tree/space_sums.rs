//! What the families ask of the space: kept as sums, so that nobody has to ask them.
//!
//! What one family asks ([`FamilySpace`]) follows from its version, its options and what of it is damaged, and is worked out with everything
//! else that does. Whoever changes a family tells the sums what it asks now, under the lock under which readers get to see the change: so the
//! sums are of what is seen, and a family that asks what it asked before tells nothing.
//!
//! A sum is changed by what one family asks more or less. Of what is the largest of all (the widest compaction) it is kept how many ask how
//! much: a family that asks less than it did need not know who comes next.

use crate::context::family_options::FamilyOptions;
use crate::tree::summary::VersionSummary;
use base::sync::{Mutex, lock, rank};
use lsm::policy::{CompactionPolicy, SetAside};
use std::collections::BTreeMap;
use store::space::{Demands, OUTPUT_BYTES, with_overhead};
use values::Ledger;
use version::{FamilyId, Version};

/// What a family asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FamilySpace {
    /// Its widest compaction.
    width_bytes: u64,
    /// Its longest output of a collection.
    collected_bytes: u64,
    /// See [`Demands::table_share`].
    table_share: u64,
    /// What is live of its tables and values.
    live_bytes: u64,
}

impl FamilySpace {
    pub fn of(
        (version, ledger, summary): (&Version, &Ledger, &VersionSummary),
        options: &FamilyOptions,
        policy: Option<&dyn CompactionPolicy>,
        set_aside: &SetAside,
    ) -> FamilySpace {
        let tables: u64 = version.levels.iter().map(|level| level.bytes()).sum();
        let width = policy.map_or(0, |policy| policy.width_bytes(version, set_aside));
        // Of less than one output there is nothing more to collect; what is not flushed yet may be added to it.
        let records = ledger.record_bytes();
        let separates = !version.vssts.is_empty() || options.min_blob_size > 0;
        let longest = with_overhead(summary.collected_bytes.min(records));
        let widens = separates && records < summary.collected_bytes;
        let share = tables.saturating_mul(2048) / tables.saturating_add(records).max(1);
        let known = tables > 0 && options.min_blob_size > 0 && !widens;
        let live = tables.saturating_add(ledger.referenced_bytes());
        FamilySpace {
            width_bytes: with_overhead(width),
            collected_bytes: if separates { longest } else { 0 },
            table_share: if known { share.min(1024) } else { 1024 },
            live_bytes: live.saturating_sub(summary.likely_hidden_bytes),
        }
    }
}

/// How many ask how much.
#[derive(Debug, Default)]
struct Asked(BTreeMap<u64, usize>);

impl Asked {
    fn add(&mut self, bytes: u64) {
        *self.0.entry(bytes).or_default() += 1;
    }

    fn remove(&mut self, bytes: u64) {
        if let Some(count) = self.0.get_mut(&bytes) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&bytes);
            }
        }
    }

    fn most(&self) -> u64 {
        self.0.last_key_value().map_or(0, |(bytes, _)| *bytes)
    }
}

#[derive(Debug, Default)]
struct Sums {
    families: BTreeMap<FamilyId, FamilySpace>,
    width_bytes: Asked,
    collected_bytes: Asked,
    table_share: Asked,
    live_bytes: u64,
}

impl Sums {
    fn remove(&mut self, id: FamilyId) -> bool {
        let Some(before) = self.families.remove(&id) else { return false };
        self.width_bytes.remove(before.width_bytes);
        self.collected_bytes.remove(before.collected_bytes);
        self.table_share.remove(before.table_share);
        self.live_bytes -= before.live_bytes;
        true
    }

    fn add(&mut self, id: FamilyId, demand: FamilySpace) {
        self.width_bytes.add(demand.width_bytes);
        self.collected_bytes.add(demand.collected_bytes);
        self.table_share.add(demand.table_share);
        self.live_bytes += demand.live_bytes;
        self.families.insert(id, demand);
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SpaceSums {
    /// What each family asks, and what that comes to.
    sums: Mutex<Sums, rank::FamilySpace>,
}

impl SpaceSums {
    /// A family is there from now on.
    pub fn join(&self, id: FamilyId, demand: FamilySpace) {
        let mut sums = lock(&self.sums);
        sums.remove(id);
        sums.add(id, demand);
    }

    /// A family asks something else than before, if it is there.
    pub fn change(&self, id: FamilyId, demand: FamilySpace) {
        let mut sums = lock(&self.sums);
        if sums.remove(id) {
            sums.add(id, demand);
        }
    }

    /// A family is there no more.
    pub fn leave(&self, id: FamilyId) {
        lock(&self.sums).remove(id);
    }

    /// What all of them ask, with what the store asks besides.
    pub fn demands(&self, fixed_bytes: u64, live_bytes: u64) -> Demands {
        let sums = lock(&self.sums);
        let collected_bytes = sums.collected_bytes.most();
        Demands {
            pool_bytes: sums.width_bytes.most() + collected_bytes,
            table_share: sums.table_share.most(),
            fixed_bytes: fixed_bytes + sums.families.len() as u64 * OUTPUT_BYTES,
            collected_bytes,
            live_bytes: live_bytes + sums.live_bytes,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
