//! Which files of values are made on the speed disk, of a store that has two.
//!
//! By heat (`docs/decisions/0082-values-on-the-speed-disk.md`): a flush parts the values of keys that are overwritten often from all others
//! (`work::jobs::hot_cold`), and their files, the *hot* ones, are made on the speed disk: as many bytes as `speed_values_bytes_max` allows, and as
//! long as there is room beside what the log will need there and the tables that threads may be writing ([`disk::wanted_bytes`]). Hot
//! values are garbage soon, so their files are read by a collection and gone; what survives it is cold and in the directory, like all else. A hot file for
//! which there is no room is made in the directory, and counted: nobody waits for the speed disk.
//!
//! What is there is not counted along the way: the directory of the disk is listed before each file is begun, with files of jobs under way and
//! those that readers still hold. The manifest says of each file where it is, and nothing moves it.
//!
//! A disk may refuse what it has told room for: a quota, or somebody else who writes there. Then the job fails that met it, and for a
//! while nothing is made there ([`super::speed_tables`]).

use super::{Tree, disk};
use store::speed::SpeedSpace;
use store::volumes::Volume;
use version::VsstClass;

/// Where a file of values of this class is to be made that is expected to have so many bytes, beside tables that have `table_bytes`.
pub(crate) fn of_new_file(tree: &Tree, class: VsstClass, expected_len: u64, table_bytes: u64) -> Volume {
    let options = &tree.context.options;
    let is_hot = class == VsstClass::Hot || base::canary::is("cold-values-on-the-speed-disk");
    if !is_hot || options.speed_values_bytes_max == 0 {
        return Volume::DIRECTORY;
    }
    match has_room(tree, expected_len, table_bytes) || base::canary::is("values-in-the-room-of-the-log") {
        true => Volume::SPEED,
        false => Volume::DIRECTORY,
    }
}

fn has_room(tree: &Tree, expected_len: u64, table_bytes: u64) -> bool {
    let (context, options) = (&tree.context, &tree.context.options);
    if tree.speed.is_refusing(context.now_ns()) {
        return false;
    }
    // A disk that does not say what it has is about to say worse.
    let Ok(Some(space)) = SpeedSpace::of(&context.env, &context.dir) else { return false };
    let table_bytes = if options.speed_levels > 0 { table_bytes } else { 0 };
    let wanted = disk::wanted_bytes(tree, table_bytes).saturating_add(expected_len);
    space.available_bytes >= wanted
        && space.value_bytes.saturating_add(expected_len) <= options.speed_values_bytes_max
}
