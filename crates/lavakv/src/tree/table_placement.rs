//! The tier of new tables in a store with two, and the free space of the fast tier.
//!
//! The rule is fixed, or the number of levels moves
//! (`docs/decisions/0074-tables-on-the-speed-disk.md`). Tables of the first `fast_tier_levels`
//! levels go to the fast tier if it has room beside the log's reserve. All others go to the
//! capacity tier, as do tables for which there is no room; those are counted.
//!
//! The placement itself needs no durable state: the manifest records the volume of each table,
//! where it stays until it is compacted.
//!
//! **Order.** A table is synced when it is finished. A sync of the directory then covers both
//! disks, the fast tier first. The edit follows. So a listed table that is missing is damage and
//! never an empty table: reads do not continue below it (`files::damaged`).
//!
//! A device may report free space and still refuse a file, because of a quota or of reserved
//! blocks. After that no file is created there for a while ([`super::fast_tier_tables`]), so that
//! the retried job does not fail again.
//!
//! A trivial move to a level that is not on the fast tier becomes a rewrite ([`stays`]). Otherwise
//! tables that were moved down would fill the fast tier.

use super::Tree;
use super::fast_tier_tables::{FastTierRoom, home};
use crate::context::options::Options;
use io::Tiers;
use lsm::policy::{Compaction, SetAside};
use store::commit::Lane;
use store::volumes::Volume;

/// Returns the volume for a new table of this level, number and expected length.
pub(crate) fn of_new_table(tree: &Tree, (level, number): (usize, u64), expected_len: u64) -> Volume {
    let context = &tree.context;
    if home(tree.speed.pointer(&context.options), level, number) != Volume::FAST {
        return Volume::DIRECTORY;
    }
    let Some(disks) = context.env.fs.disks(&context.dir) else { return Volume::DIRECTORY };
    let has_room =
        !tree.speed.is_refusing(context.now_ns()) && free_bytes(&disks) >= wanted_bytes(tree, expected_len);
    if has_room {
        return Volume::FAST;
    }
    Volume::DIRECTORY
}

/// Counts a new table of this level and number on `volume`.
pub(crate) fn count_new_table(tree: &Tree, (level, number): (usize, u64), volume: Volume) {
    let (context, stats) = (&tree.context, &tree.context.stats);
    if volume == Volume::FAST {
        stats.fast_tier_tables.add(1);
    } else if home(tree.speed.pointer(&context.options), level, number) == Volume::FAST
        && context.env.fs.disks(&context.dir).is_some()
    {
        stats.fast_tier_tables_elsewhere.add(1);
    }
}

/// True if the fast tier has room for a table of `len` bytes that is moved as it is.
pub(crate) fn has_room_for_move(tree: &Tree, len: u64) -> bool {
    let Some(disks) = tree.context.env.fs.disks(&tree.context.dir) else { return false };
    !tree.speed.is_refusing(tree.context.now_ns()) && free_for_moves(&disks) >= wanted_bytes(tree, len)
}

/// Returns the room on the fast tier for tables of `table_bytes`.
pub(crate) fn room(tree: &Tree, table_bytes: u64) -> Option<FastTierRoom> {
    let disks = tree.context.env.fs.disks(&tree.context.dir)?;
    Some(match free_for_moves(&disks) {
        _ if tree.speed.is_refusing(tree.context.now_ns()) => FastTierRoom::Short,
        free if free < wanted_bytes(tree, 0) => FastTierRoom::Short,
        free if free < wanted_bytes(tree, table_bytes.saturating_mul(2)) => FastTierRoom::Enough,
        _ => FastTierRoom::Plenty,
    })
}

/// Returns the free bytes of the fast tier for tables that change their tier.
fn free_for_moves(disks: &Tiers) -> u64 {
    free_bytes(disks)
}

/// Returns the free bytes of the fast tier: 0 if the file system does not report them.
pub(super) fn free_bytes(disks: &Tiers) -> u64 {
    disks.speed.space(&disks.speed_dir).map_or(0, |space| space.available)
}

/// Returns the bytes that must be free on the fast tier before another table is created: see
/// [`room_bytes`].
pub(super) fn wanted_bytes(tree: &Tree, expected_len: u64) -> u64 {
    room_bytes(&tree.context.options, tree.space.gauges.log_bytes(Lane::FIRST), expected_len)
}

/// Returns the bytes that must be free on the fast tier before another table is created. These are
/// the growth of the log up to its bound and a quarter, and one table for each thread. As many
/// threads may have created a table without writing to it yet.
fn room_bytes(options: &Options, log_bytes: u64, expected_len: u64) -> u64 {
    let log_bytes_max = options.expert.wal_bytes_max.saturating_add(options.expert.wal_bytes_max / 4);
    let tables = expected_len.saturating_mul(options.background_threads as u64);
    log_bytes_max.saturating_sub(log_bytes).saturating_add(tables)
}

/// True if all inputs of a trivial move may stay on their tier at the output level. A table that is
/// set aside always stays: a move changes its level only by name. A rewrite would fail to read it,
/// and be picked again at once.
pub(crate) fn stays(options: &Options, set_aside: &SetAside, compaction: &Compaction) -> bool {
    let is_fast = compaction.input_files().any(|(_, file)| file.volume == Volume::FAST);
    let is_damaged = || compaction.input_files().any(|(_, file)| set_aside.has(file.number));
    if compaction.trivial_move && is_damaged() {
        return true;
    }
    // With moving placement misplaced tables move down by themselves.
    !is_fast || options.expert.fast_tier_adaptive || compaction.output_level < options.expert.fast_tier_levels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_tier_space_is_left_for_the_log_and_job_outputs() {
        let options = Options { background_threads: 3, ..Options::default() }
            .expert(|expert| expert.wal_bytes_max = 400);
        assert_eq!(room_bytes(&options, 0, 10), 530);
        assert_eq!(room_bytes(&options, 300, 10), 230);
        assert_eq!(room_bytes(&options, 600, 10), 30, "the log has more than its bound");
        let most = options.expert(|expert| expert.wal_bytes_max = u64::MAX);
        assert_eq!(room_bytes(&most, 0, u64::MAX), u64::MAX);
    }
}
