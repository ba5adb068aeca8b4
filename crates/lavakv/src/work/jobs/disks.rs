//! Samples of the two tiers, taken periodically without the mutex. They contain the misplaced
//! tables, found by the sums of levels, and the value files to move to the capacity tier. The
//! ledger of a version orders the long-lived files of the fast tier.

use super::Jobs;
use crate::context::event::Event;
use crate::files::data_file::DataFile;
use crate::plan::moves::{self, NOTED_MAX};
use crate::plan::placement::{TierMove, TierSample, Ways};
use crate::tree::fast_tier_tables::LEVEL;
use crate::tree::fast_tier_values::{self, SpeedBytes};
use crate::tree::table_placement;
use base::HashSet;
use base::sync::lock;
use version::FamilyId;
use version::names::FileKind;

/// Takes a sample if one is due.
pub(super) fn see(jobs: &Jobs) {
    let (context, options) = (&jobs.context, &jobs.context.options);
    let has_values = options.expert.fast_tier_values_bytes_max > 0;
    let looks = options.expert.fast_tier_adaptive || has_values;
    if !looks || !jobs.tree.speed.takes_turn(context.now_ns(), options.expert.fast_tier_interval) {
        return;
    }
    if options.expert.fast_tier_adaptive {
        see_tables(jobs);
    }
    if has_values {
        let lasting = lasting(jobs);
        lock(&jobs.in_progress).learned.lasting = lasting;
    }
}

/// Returns the value files to move from the fast tier to the capacity tier: as many as exceed the
/// bound, or all long-lived ones if only hot values belong on the fast tier. Damaged files are
/// skipped until they are repaired.
fn lasting(jobs: &Jobs) -> Vec<(FamilyId, u64)> {
    let families: Vec<_> =
        jobs.tree.families.all().into_iter().map(|family| (family.id, family.read_state())).collect();
    let sums = SpeedBytes::of(families.iter().map(|(_, read_state)| &**read_state));
    let options = &jobs.context.options;
    let mut left = match options.expert.fast_tier_values_flushed {
        true => fast_tier_values::excess_bytes(options.expert.fast_tier_values_bytes_max, &sums),
        false => sums.lasting_bytes,
    };
    let (mut noted, quarantine) = (Vec::new(), &jobs.files.tables.quarantine);
    for (id, read_state) in &families {
        let may_go = |number: &u64| !quarantine.is_uncollected(*number);
        for number in read_state.ledger.lasting().filter(may_go) {
            if left == 0 || noted.len() >= NOTED_MAX {
                return noted;
            }
            let meta = read_state.version.vssts.get(&number);
            left = left.saturating_sub(meta.map_or(0, |meta| meta.occupied_bytes()));
            noted.push((*id, number));
        }
    }
    noted
}

/// Samples the tables, and notifies the listener if the pointer has moved.
fn see_tables(jobs: &Jobs) {
    let Some(seen) = look(jobs) else { return };
    let (why, milli, ways) = {
        let moving = &mut lock(&jobs.in_progress).learned.moving;
        let why = moving.see(seen);
        jobs.tree.speed.set_pointer(&jobs.context, moving.pointer());
        (why, moving.pointer(), moving.ways())
    };
    let wanted = misplaced(jobs, milli, ways);
    lock(&jobs.in_progress).learned.moving.note(wanted);
    if let Some(why) = why {
        jobs.context.stats.fast_tier_pointer_moves.add(1);
        jobs.context.notify(&Event::FastTierLevelsChanged { milli, why });
    }
}

/// Returns misplaced tables that may move.
fn misplaced(jobs: &Jobs, pointer: u32, ways: Ways) -> Vec<TierMove> {
    let mut wanted = Vec::new();
    let leaving = leaving(jobs);
    for family in jobs.tree.families.all() {
        let version = family.read_state().version.clone();
        let left = NOTED_MAX.saturating_sub(wanted.len());
        // Tables that cannot move yet take no slot of the list.
        let may_go = |wanted: &TierMove| !leaving.contains(&moves::copy(wanted));
        wanted.extend(moves::misplaced(&version, family.id, pointer, ways).filter(may_go).take(left));
    }
    // Moves down first: they make room for moves up.
    wanted.sort_by_key(|wanted| (wanted.to, wanted.level));
    wanted
}

/// Returns obsolete files that wait for their last reader. There may be thousands, so the set is
/// computed once for all tables.
fn leaving(jobs: &Jobs) -> HashSet<FileKind> {
    jobs.files.obsolete.map(DataFile::kind).into_iter().collect()
}

/// Returns whether an obsolete file of this name waits for its last reader. A table that moved
/// leaves such a file on its old tier.
pub(super) fn is_leaving(jobs: &Jobs, table: FileKind) -> bool {
    jobs.files.obsolete.any(|file| file.kind() == table)
}

/// Samples the loads, the room and the levels.
fn look(jobs: &Jobs) -> Option<TierSample> {
    let (tree, context, options) = (&jobs.tree, &jobs.context, &jobs.context.options);
    let now_ns = context.now_ns();
    let speed = context.pace().of_fast_tier()?;
    let loads = [speed.load(), context.pace().load()];
    let (mut filled, mut table_bytes) = (1u32, 0);
    for family in tree.families.all() {
        let version = family.read_state().version.clone();
        table_bytes = table_bytes.max(family.options().expert.file_bytes);
        for (level, files) in version.levels.iter().enumerate() {
            filled |= u32::from(!files.is_empty()) << level.min(31);
        }
    }
    let levels = options.expert.fast_tier_levels.min((u32::BITS - filled.leading_zeros()) as usize);
    let most = u32::try_from(levels).unwrap_or(u32::MAX).saturating_mul(LEVEL);
    let room = table_placement::room(tree, table_bytes)?;
    Some(TierSample { now_ns, loads, room, most, filled })
}
