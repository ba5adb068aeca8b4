//! The space limit: appends are refused before it is passed, and what frees room goes on.
//!
//! The files of a store of logs are few kinds: groups of the log, which are made at their full length, index files, cold files, checkpoints,
//! the manifest. The budget (`store::space`) knows what they occupy at every moment, and its ceiling refuses what would lift them above
//! the limit. This module sees to it that nobody gets there: a group for appends is made only if, beside everything, a *reserve* stays
//! free of what the way out needs:
//!
//! * *pool*: one cold file, as long as a group, so that a collection can always run;
//! * *fixed*: one group, which trims and deletes may take; the index files of the groups that have none yet; the next
//!   checkpoint, in two copies, beside the present one; the growth of the manifest; open pages of the log.
//!
//! What a group takes is known before it is made, and its records take no more; so what is admitted is groups, not records. An append
//! that finds no room in its group waits, while something is under way or could be collected, up to [`STALL_NS`], and
//! is refused then, or at once if nothing is; nothing of it was done. As room gets short, files are collected with less and less garbage
//! in them.
//!
//! The last [`EDITS_BYTES`] below the limit are the manifest's, which is never refused: no other file is let into them, and that holds while
//! the store is opened as well (`store::open`). A store that is opened at its limit begins its logs in what was kept for that, the ballast,
//! and refuses appends until that is whole again.
//!
//! Trims and deletes take the group of the reserve where they must. What they trim frees groups; a group of nothing but trims
//! is dead when it is closed. So the reserve comes back by itself.

use crate::catalog::Catalog;
use crate::foundation::Foundation;
use crate::manifest::CHECKPOINTS;
use crate::options::Options;
use crate::pick::PickOptions;
use base::Result;
use std::sync::Arc;
use store::commit::{GroupState, ballast_bytes, staging_len};
use store::space::{Demands, EDITS_BYTES, OUTPUT_BYTES, Sizes, SpaceLimit, Terms, with_overhead};

/// What an index file takes for each record and log of a group, about.
const ROW_BYTES: u64 = 16;
/// The least share of garbage for which anything is copied where room is short, percent.
const GARBAGE_PERCENT_MIN: u32 = 5;
/// The steps in which that share is lowered.
const GARBAGE_PERCENT_STEP: u32 = 10;

/// Younger groups that there are when one is collected for its padding alone, unless room is short.
const PADDED_GROUPS: usize = 8;

/// What is copied for the second time waits until it is this part of a group, unless room is short.
const SECOND_PART: u64 = 4;

/// What the store is told of the space it needs.
pub(crate) fn terms(options: &Options) -> Terms {
    let first = options.first_lane_terms().group_bytes;
    let sizes = Sizes {
        memtable_bytes: 0,
        memory_bytes: 0,
        log_group_bytes: first,
        ballast_bytes: ballast_bytes(first),
        // Nothing is written to it.
        wal_bytes_max: 2 * first,
    };
    let limit = options.space_limit.map(SpaceLimit::Bytes);
    Terms { limit, overhead_bytes: options.overhead_bytes(), is_strict: true, ..Terms::unlimited(sizes) }
}

/// The reserve below the space limit, and its consequences for collections.
pub(crate) struct Reserve {
    store: Arc<Foundation>,
    catalog: Arc<Catalog>,
}

impl Reserve {
    /// Of these logs in this store.
    pub fn new(store: &Arc<Foundation>, catalog: &Arc<Catalog>) -> Reserve {
        Reserve { store: store.clone(), catalog: catalog.clone() }
    }

    /// Computes the reserve anew: after files were added or removed, and before a group is made.
    pub fn refresh(&self) {
        let space = &self.store.space;
        if !self.store.is_owner() || !space.has_own_limit() {
            // What is kept free of a store that another engine opened is that engine's affair.
            return;
        }
        space.refresh(|roll_bytes| self.demands(roll_bytes));
    }

    fn demands(&self, roll_bytes: u64) -> Demands {
        let (manifest, group_bytes) = (&self.store.manifest, self.store.options.longest_group());
        manifest.files().sizes().set_roll_len(roll_bytes);
        let checkpoint: u64 = manifest.state().checkpoints().map(|file| with_overhead(file.len)).sum();
        let open_pages =
            staging_len(group_bytes).saturating_sub(self.store.lane.wal().content().staging_len()) as u64;
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

    /// About what the index files will take of the groups that have none yet.
    fn unwritten_index_bytes(&self) -> u64 {
        let groups = self.store.lane.reader().to_retain();
        let logs = self.catalog.view();
        let rows = groups.iter().filter(|group| group.state != GroupState::Retained).map(|group| {
            let written = logs.ledger().usage(crate::Source::Group(group.ltn)).written.records;
            written.saturating_mul(ROW_BYTES) + 2 * OUTPUT_BYTES
        });
        rows.sum()
    }

    /// How a collection is chosen now.
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

    /// True unless a limit is so near that the manifest would pass it.
    pub fn has_room_for_edits(&self) -> bool {
        let space = &self.store.space;
        let used = space.used_bytes().saturating_add(EDITS_BYTES);
        !space.has_own_limit() || used <= space.limit_bytes()
    }

    /// To be called after files were added or removed. Begins another manifest if this one is long, and computes the reserve.
    ///
    /// # Errors
    /// Those of the manifest.
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

    /// The shares of garbage that make a file worth it, the best first: where room is short, less and less.
    pub fn garbage_percents(&self) -> impl Iterator<Item = u32> + use<> {
        let most = self.store.options.garbage_percent;
        let least = if self.is_short() { GARBAGE_PERCENT_MIN.min(most) } else { most };
        let steps = (least..=most).rev().step_by(GARBAGE_PERCENT_STEP as usize);
        steps.chain(Some(least).filter(|least| *least < most))
    }
}
