//! Space demands of all families, kept as sums, so that reading them visits no family.
//!
//! The demand of a family ([`SpaceDemand`]) follows from its version, its options and its damage,
//! and is derived along with the read state. An update of the read state passes a changed demand to
//! the sums under the lock that publishes it. So the sums always match the published read states.
//!
//! Each sum changes by the difference of one family. For maxima, such as the widest compaction, a
//! multiset of all values is kept, so that the next largest value is known after a decrease.

use crate::context::family_options::FamilyOptions;
use crate::tree::summary::VersionSummary;
use base::sync::{Mutex, lock, rank};
use lsm::policy::{CompactionPolicy, SetAside};
use std::collections::BTreeMap;
use store::space::{Demands, OUTPUT_BYTES, with_overhead};
use values::Ledger;
use version::{FamilyId, Version};

/// Space demand of one family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpaceDemand {
    /// Bytes of its widest compaction.
    width_bytes: u64,
    /// Bytes of its longest collection output.
    collected_bytes: u64,
    /// See [`Demands::table_share`].
    table_share: u64,
    /// Live bytes of its tables and values.
    live_bytes: u64,
}

impl SpaceDemand {
    pub fn of(
        (version, ledger, summary): (&Version, &Ledger, &VersionSummary),
        options: &FamilyOptions,
        policy: Option<&dyn CompactionPolicy>,
        set_aside: &SetAside,
    ) -> SpaceDemand {
        let tables: u64 = version.levels.iter().map(|level| level.bytes()).sum();
        let width = policy.map_or(0, |policy| policy.width_bytes(version, set_aside));
        // A collection cannot exceed the records that there are, but unflushed records may still be
        // added.
        let records = ledger.record_bytes();
        let separates = !version.vssts.is_empty() || options.min_blob_size > 0;
        let longest = with_overhead(summary.collected_bytes.min(records));
        let widens = separates && records < summary.collected_bytes;
        let share = tables.saturating_mul(2048) / tables.saturating_add(records).max(1);
        let known = tables > 0 && options.min_blob_size > 0 && !widens;
        let live = tables.saturating_add(ledger.referenced_bytes());
        SpaceDemand {
            width_bytes: with_overhead(width),
            collected_bytes: if separates { longest } else { 0 },
            table_share: if known { share.min(1024) } else { 1024 },
            live_bytes: live.saturating_sub(summary.likely_hidden_bytes),
        }
    }
}

/// A multiset of demands, for their maximum.
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
struct DemandSums {
    families: BTreeMap<FamilyId, SpaceDemand>,
    width_bytes: Asked,
    collected_bytes: Asked,
    table_share: Asked,
    live_bytes: u64,
}

impl DemandSums {
    fn remove(&mut self, id: FamilyId) -> bool {
        let Some(before) = self.families.remove(&id) else { return false };
        self.width_bytes.remove(before.width_bytes);
        self.collected_bytes.remove(before.collected_bytes);
        self.table_share.remove(before.table_share);
        self.live_bytes -= before.live_bytes;
        true
    }

    fn add(&mut self, id: FamilyId, demand: SpaceDemand) {
        self.width_bytes.add(demand.width_bytes);
        self.collected_bytes.add(demand.collected_bytes);
        self.table_share.add(demand.table_share);
        self.live_bytes += demand.live_bytes;
        self.families.insert(id, demand);
    }
}

/// Space demands of all families: see the module.
#[derive(Debug, Default)]
pub(crate) struct SpaceSums {
    /// The demand of each family, and the sums over all of them.
    sums: Mutex<DemandSums, rank::SpaceDemand>,
}

impl SpaceSums {
    /// Adds a family, or replaces its demand.
    pub fn join(&self, id: FamilyId, demand: SpaceDemand) {
        let mut sums = lock(&self.sums);
        sums.remove(id);
        sums.add(id, demand);
    }

    /// Replaces the demand of a family, if it is in the sums.
    pub fn change(&self, id: FamilyId, demand: SpaceDemand) {
        let mut sums = lock(&self.sums);
        if sums.remove(id) {
            sums.add(id, demand);
        }
    }

    /// Removes a family.
    pub fn leave(&self, id: FamilyId) {
        lock(&self.sums).remove(id);
    }

    /// Returns the demands of all families and of the store itself.
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
