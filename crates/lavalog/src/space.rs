//! The space limit: refuses appends before the limit is exceeded, and lets requests that free space
//! proceed.
//!
//! A store of logs has few kinds of files: log groups, which are created at full length, index
//! files, cold files, checkpoints, and the manifest. The budget (`store::space`) tracks their size,
//! and its ceiling refuses a file that would exceed the limit. This module keeps the store away
//! from the ceiling. A group for appends is created only if a *reserve* for freeing space remains:
//!
//! * *pool*: one cold file of the size of a group, so that a collection can always run;
//! * *fixed*: one group for trims and deletes; the index files of the unsealed groups; the next
//!   checkpoint, in two copies, in addition to the current one; the growth of the manifest; open
//!   pages of the log.
//!
//! The size of a group is known before its creation, and its records take no more. So the limit
//! admits groups, not records. An append without space in its group waits up to [`STALL_NS`] while
//! a job is running or could collect files. Then, or at once if no job can free space, it is
//! refused without effect. The less space is left, the less garbage a file needs to be collected.
//!
//! The last [`EDITS_BYTES`] below the limit belong to the manifest, whose edits are never refused.
//! No other file may use them, not even while the store is being opened (`store::open`). A store
//! opened at its limit begins its logs in the reserved space, and refuses appends until that is
//! complete again.
//!
//! Trims and deletes use the reserve's group if necessary. The trimmed records free groups, and a
//! group with only trims is dead when it is closed. So the reserve replenishes itself.

use crate::catalog::Catalog;
use crate::manifest::CHECKPOINTS;
use crate::options::Options;
use crate::pick::PickOptions;
use crate::store_handles::StoreHandles;
use base::Result;
use std::sync::Arc;
use store::commit::{GroupState, reserved_bytes, tail_buffer_len};
use store::space::{Demands, EDITS_BYTES, OUTPUT_BYTES, Sizes, SpaceLimit, Terms, with_overhead};

/// Approximate size of an index file per record and per log of a group, bytes.
const ROW_BYTES: u64 = 16;
/// Minimum share of garbage for any copy when space is short, percent.
const GARBAGE_PERCENT_MIN: u32 = 5;
/// Step by which that share is lowered.
const GARBAGE_PERCENT_STEP: u32 = 10;

/// Number of younger groups before a group is collected for its padding alone, unless space is
/// short.
const PADDED_GROUPS: usize = 8;

/// A second copy waits until its data reaches this fraction of a group, unless space is short.
const SECOND_PART: u64 = 4;

/// Returns the space requirements of the engine for the store.
pub(crate) fn terms(options: &Options) -> Terms {
    let first = options.first_lane_terms().group_bytes;
    let sizes = Sizes {
        memtable_bytes: 0,
        memory_bytes: 0,
        log_group_bytes: first,
        reserved_bytes: reserved_bytes(first),
        // The engine writes nothing to the first lane.
        wal_bytes_max: 2 * first,
    };
    let limit = options.space_limit.map(SpaceLimit::Bytes);
    Terms { limit, overhead_bytes: options.overhead_bytes(), is_strict: true, ..Terms::unlimited(sizes) }
}

/// The reserve below the space limit, and its effect on garbage collection.
pub(crate) struct Reserve {
    store: Arc<StoreHandles>,
    catalog: Arc<Catalog>,
}

impl Reserve {
    pub fn new(store: &Arc<StoreHandles>, catalog: &Arc<Catalog>) -> Reserve {
        Reserve { store: store.clone(), catalog: catalog.clone() }
    }

    /// Recomputes the reserve, after files were added or removed, and before a group is created.
    pub fn refresh(&self) {
        let space = &self.store.space;
        if !self.store.is_owner() || !space.has_own_limit() {
            // The host engine manages the reserve of a shared store.
            return;
        }
        space.refresh(|roll_bytes| self.demands(roll_bytes));
    }

    fn demands(&self, roll_bytes: u64) -> Demands {
        let (manifest, group_bytes) = (&self.store.manifest, self.store.options.longest_group());
        manifest.files().sizes().set_roll_len(roll_bytes);
        let checkpoint: u64 = manifest.state().checkpoints().map(|file| with_overhead(file.len)).sum();
        let open_pages = tail_buffer_len(group_bytes)
            .saturating_sub(self.store.lane.wal().content().tail_buffer_len())
            as u64;
        let fixed_bytes = EDITS_BYTES
            + manifest.growth_bytes()
            + group_bytes
            + self.unwritten_index_bytes()
            + checkpoint
            + CHECKPOINTS as u64 * OUTPUT_BYTES
            + open_pages;
        let pool_bytes = with_overhead(group_bytes);
        Demands { fixed_bytes, pool_bytes, collected_bytes: group_bytes, ..Demands::default() }
    }

    /// Estimates the size of the index files of all unsealed groups.
    fn unwritten_index_bytes(&self) -> u64 {
        let groups = self.store.lane.reader().to_retain();
        let logs = self.catalog.view();
        let rows = groups.iter().filter(|group| group.state != GroupState::Retained).map(|group| {
            let written = logs.ledger().usage(crate::Source::Group(group.ltn)).written.records;
            written.saturating_mul(ROW_BYTES) + 2 * OUTPUT_BYTES
        });
        rows.sum()
    }

    /// Returns the current parameters for choosing a collection.
    pub fn pick_options(&self, garbage_percent: u32) -> PickOptions {
        PickOptions {
            garbage_percent,
            all_garbage_percent: garbage_percent,
            padded_groups: if self.is_short() { 0 } else { PADDED_GROUPS },
            wanted_bytes: self.store.options.longest_group(),
            second_bytes_min: if self.is_short() {
                0
            } else {
                self.store.options.longest_group() / SECOND_PART
            },
            output_bytes: self.store.options.longest_group(),
            room_bytes: self.store.space.grants.job_bytes_max(),
            ..PickOptions::default()
        }
    }

    /// Returns true unless a manifest edit would exceed the space limit.
    pub fn has_room_for_edits(&self) -> bool {
        let space = &self.store.space;
        let used = space.used_bytes().saturating_add(EDITS_BYTES);
        !space.has_own_limit() || used <= space.limit_bytes()
    }

    /// Updates the reserve after files were added or removed. Starts a new manifest file if the
    /// current one is long.
    ///
    /// # Errors
    /// Errors of the manifest.
    pub fn files_changed(&self) -> Result<()> {
        if self.store.manifest.should_roll() {
            self.store.manifest.commits().roll()?;
        }
        self.refresh();
        self.store.context().signals.notify_progress();
        Ok(())
    }

    fn is_short(&self) -> bool {
        self.store.space.has_own_limit() && self.store.space.is_short()
    }

    /// Returns the garbage thresholds to try, highest first. When space is short, they go down to a
    /// minimum.
    pub fn garbage_percents(&self) -> impl Iterator<Item = u32> + use<> {
        let most = self.store.options.garbage_percent;
        let least = if self.is_short() { GARBAGE_PERCENT_MIN.min(most) } else { most };
        let steps = (least..=most).rev().step_by(GARBAGE_PERCENT_STEP as usize);
        steps.chain(Some(least).filter(|least| *least < most))
    }
}
