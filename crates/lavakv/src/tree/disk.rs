//! On which disk a new table is made, of a store that has two, and what is seen of the disks.
//!
//! The rule is fixed (`docs/decisions/0074-tables-on-the-speed-disk.md`), or the number of levels moves (`docs/decisions/0079-moving-placement.md`): tables
//! of the first `speed_levels` levels are made on the speed disk as long as there is room beside what the log will need there, all others in the directory. A table for which there is no room is made in
//! the directory as well, and counted. Nothing of it is durable: the manifest says of each table where it is, and it stays there until it is
//! compacted. A disk may say that it has room and refuse all the same (a quota, blocks that are reserved for others): after that nothing is
//! made there for a while ([`super::speed_tables`]), so that the job that met it, which is made again at once, does not meet it again. One that a
//! compaction would only move to a deeper level is rewritten where that level is not on the speed disk ([`stays`]) and
//! there is room for that; else what was once moved down would fill that disk.

use super::Tree;
use super::speed_tables::{Room, home};
use crate::context::options::Options;
use io::Disks;
use lsm::policy::{Compaction, SetAside};
use store::commit::Lane;
use store::volumes::Volume;

/// Where a table of this level and number is to be made that is expected to have so many bytes.
pub(crate) fn of_new_table(tree: &Tree, (level, number): (usize, u64), expected_len: u64) -> Volume {
    let context = &tree.context;
    if home(tree.speed.pointer(&context.options), level, number) != Volume::SPEED {
        return Volume::DIRECTORY;
    }
    let Some(disks) = context.env.fs.disks(&context.dir) else { return Volume::DIRECTORY };
    let has_room =
        !tree.speed.is_refusing(context.now_ns()) && free_bytes(&disks) >= wanted_bytes(tree, expected_len);
    if has_room {
        return Volume::SPEED;
    }
    Volume::DIRECTORY
}

/// Counts a table of this level and number that was begun on this disk.
pub(crate) fn count_new_table(tree: &Tree, (level, number): (usize, u64), volume: Volume) {
    let (context, stats) = (&tree.context, &tree.context.stats);
    if volume == Volume::SPEED {
        stats.speed_tables.add(1);
    } else if home(tree.speed.pointer(&context.options), level, number) == Volume::SPEED
        && context.env.fs.disks(&context.dir).is_some()
    {
        stats.speed_tables_elsewhere.add(1);
    }
}

/// True if a table of so many bytes may go to the speed disk as it is.
pub(crate) fn has_room_for_move(tree: &Tree, len: u64) -> bool {
    let Some(disks) = tree.context.env.fs.disks(&tree.context.dir) else { return false };
    !tree.speed.is_refusing(tree.context.now_ns()) && free_for_moves(&disks) >= wanted_bytes(tree, len)
}

/// What room there is, for tables of so many bytes.
pub(crate) fn room(tree: &Tree, table_bytes: u64) -> Option<Room> {
    let disks = tree.context.env.fs.disks(&tree.context.dir)?;
    Some(match free_for_moves(&disks) {
        _ if tree.speed.is_refusing(tree.context.now_ns()) => Room::Short,
        free if free < wanted_bytes(tree, 0) => Room::Short,
        free if free < wanted_bytes(tree, table_bytes.saturating_mul(2)) => Room::Enough,
        _ => Room::Plenty,
    })
}

/// The same for tables that change their disk.
fn free_for_moves(disks: &Disks) -> u64 {
    free_bytes(disks)
}

/// Bytes that are free on the speed disk. One that does not say what it has is about to say worse.
pub(super) fn free_bytes(disks: &Disks) -> u64 {
    disks.speed.space(&disks.speed_dir).map_or(0, |space| space.available)
}

/// Bytes that are to be free on the speed disk for a file of tables more: see [`room_bytes`].
pub(super) fn wanted_bytes(tree: &Tree, expected_len: u64) -> u64 {
    room_bytes(&tree.context.options, tree.space.gauges.log_bytes(Lane::FIRST), expected_len)
}

/// Bytes that are to be free on the speed disk for a table more: for what the log may still grow there, a quarter more than its bound, and for
/// a table of each thread, since as many may have begun one of which nothing is written.
fn room_bytes(options: &Options, log_bytes: u64, expected_len: u64) -> u64 {
    let log_bytes_max = options.expert.wal_bytes_max.saturating_add(options.expert.wal_bytes_max / 4);
    let tables = expected_len.saturating_mul(options.background_threads as u64);
    log_bytes_max.saturating_sub(log_bytes).saturating_add(tables)
}

/// True if all tables of a compaction may stay where they are when they are only moved to its output level. One that is set aside stays in any case: it changes
/// its level by name only, and who read it to write it anew would fail, and be asked for it again at once.
pub(crate) fn stays(options: &Options, set_aside: &SetAside, compaction: &Compaction) -> bool {
    let is_fast = compaction.input_files().any(|(_, file)| file.volume == Volume::SPEED);
    let is_damaged = || compaction.input_files().any(|(_, file)| set_aside.has(file.number));
    if compaction.trivial_move && is_damaged() {
        return true;
    }
    // Where placement moves what does not belong there goes down by itself.
    !is_fast || options.expert.speed_moving || compaction.output_level < options.expert.speed_levels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_has_its_room_first_and_each_thread_a_table() {
        let options = Options { background_threads: 3, ..Options::default() }
            .expert(|expert| expert.wal_bytes_max = 400);
        assert_eq!(room_bytes(&options, 0, 10), 530);
        assert_eq!(room_bytes(&options, 300, 10), 230);
        assert_eq!(room_bytes(&options, 600, 10), 30, "the log has more than its bound");
        let most = options.expert(|expert| expert.wal_bytes_max = u64::MAX);
        assert_eq!(room_bytes(&most, 0, u64::MAX), u64::MAX);
    }
}
