//! On which disk a new table is made, of a store that has two.
//!
//! The rule is fixed (`docs/decisions/0074-tables-on-the-speed-disk.md`): tables of the first `speed_levels` levels are made on the speed
//! disk as long as there is room beside what the log will need there, all others in the directory. A table for which there is no room is made in
//! the directory as well, and counted. Nothing is remembered: the manifest says of each table where it is, and it stays there until it is
//! compacted. One that a compaction would only move to a deeper level is rewritten where that level is not on the speed disk ([`stays`]) and
//! there is room for that; else what was once moved down would fill that disk.

use super::Tree;
use crate::context::options::Options;
use lsm::policy::Compaction;
use store::commit::Lane;
use store::volumes::Volume;

/// Where a table of a level is to be made that is expected to have so many bytes.
pub(crate) fn of_new_table(tree: &Tree, level: usize, expected_len: u64) -> Volume {
    let (options, stats) = (&tree.context.options, &tree.context.stats);
    if level >= options.speed_levels {
        return Volume::DIRECTORY;
    }
    let Some(disks) = tree.context.env.fs.disks(&tree.context.dir) else { return Volume::DIRECTORY };
    let wanted = wanted_bytes(options, tree.space.gauges.log_bytes(Lane::FIRST), expected_len);
    // A disk that does not say what it has is about to say worse.
    let has_room = disks.speed.space(&disks.speed_dir).is_ok_and(|space| space.available >= wanted);
    if has_room || base::canary::is("tables-in-the-room-of-the-log") {
        stats.speed_tables.add(1);
        return Volume::SPEED;
    }
    stats.speed_tables_elsewhere.add(1);
    Volume::DIRECTORY
}

/// Bytes that are to be free on the speed disk for a table more: for what the log may still grow there, a quarter more than its bound, and for
/// a table of each thread, since as many may have begun one of which nothing is written.
pub(super) fn wanted_bytes(options: &Options, log_bytes: u64, expected_len: u64) -> u64 {
    let log_bytes_max = options.wal_bytes_max.saturating_add(options.wal_bytes_max / 4);
    let tables = expected_len.saturating_mul(options.background_threads as u64);
    log_bytes_max.saturating_sub(log_bytes).saturating_add(tables)
}

/// True if all tables of a compaction may stay where they are when they are only moved to its output level.
pub(crate) fn stays(options: &Options, compaction: &Compaction) -> bool {
    let is_fast = compaction.input_files().any(|(_, file)| file.volume == Volume::SPEED);
    !is_fast || compaction.output_level < options.speed_levels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_has_its_room_first_and_each_thread_a_table() {
        let options = Options { wal_bytes_max: 400, background_threads: 3, ..Options::default() };
        assert_eq!(wanted_bytes(&options, 0, 10), 530);
        assert_eq!(wanted_bytes(&options, 300, 10), 230);
        assert_eq!(wanted_bytes(&options, 600, 10), 30, "the log has more than its bound");
        let most = Options { wal_bytes_max: u64::MAX, ..options };
        assert_eq!(wanted_bytes(&most, 0, u64::MAX), u64::MAX);
    }
}
