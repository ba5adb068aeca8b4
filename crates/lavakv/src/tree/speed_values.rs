//! Which files of values are made on the speed disk, of a store that has two.
//!
//! By heat (`docs/decisions/0082-values-on-the-speed-disk.md`): a flush parts the values of keys that are overwritten often from all others
//! (`work::jobs::hot_cold`), and their files, the *hot* ones, are made on the speed disk: as many bytes as `speed_values_bytes_max` allows, and as
//! long as there is room beside what the log will need there and the tables that threads may be writing ([`disk::wanted_bytes`]). Hot
//! values are garbage soon, so their files are read by a collection and gone; what survives it is cold and in the directory, like all else. A hot file for
//! which there is no room is made in the directory, and counted: nobody waits for the speed disk.
//!
//! With `speed_values_fresh` all that a flush writes begins there (`docs/decisions/0092-fresh-values-on-the-speed-disk.md`), and goes to the directory by
//! the collection that it survives: where half of the bound is taken, since up to that what lasts is as welcome. A quarter of the bound is left to hot files.
//! What is never overwritten has no garbage for which it would be collected: where it fills the bound ([`excess_bytes`]) the oldest files are collected for
//! the disk they are on (`plan::moves`).
//!
//! What is there the meter of the volume knows ([`store::volumes::Meter`]), with what files of jobs under way have reserved and what
//! readers still hold: nothing is listed, however many files there are. Which files of a version have lasted there its ledger keeps ([`values::Ledger::lasting`]). The manifest says of each file
//! where it is, and nothing moves it.
//!
//! A disk may refuse what it has told room for: a quota, or somebody else who writes there. Then the job fails that met it, and for a
//! while nothing is made there ([`super::speed_tables`]).

use super::family::ReadState;
use super::{Tree, disk};
use crate::context::options::Options;
use store::volumes::Volume;
use version::VsstClass;

/// What a new file of values is to the speed disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    /// Of keys that are overwritten often.
    Hot,
    /// Just written, and nothing known: on the disk with `speed_values_fresh`.
    Fresh,
    /// It has lasted: on the disk with `speed_values_fresh`, while there is plenty of room.
    Lasting,
    /// Nothing of the kind is to be there: in the directory.
    Elsewhere,
}

/// The rank of a file of this class that a flush writes, or a job with inputs.
pub(crate) fn rank(options: &Options, class: VsstClass, is_flushed: bool) -> Rank {
    if options.expert.speed_values_bytes_max == 0 {
        return Rank::Elsewhere;
    }
    match class {
        // What a job writes of that class has survived a collection.
        VsstClass::Hot if is_flushed => Rank::Hot,
        _ if !options.expert.speed_values_fresh => Rank::Elsewhere,
        _ if is_flushed => Rank::Fresh,
        _ => Rank::Lasting,
    }
}

/// Bytes of values that have to go down, those that last: they leave little of the bound to those that are just written. All above five eighths of it,
/// of which these may have six; but an eighth that is newest stays, however much hot ones take, or what is just written would go down at once.
pub(crate) fn excess_bytes(bytes_max: u64, sums: &SpeedBytes) -> u64 {
    let (over, eighth) = (sums.bytes.saturating_sub(bytes_max / 8 * 5), bytes_max / 8);
    over.min(sums.lasting_bytes.saturating_sub(eighth))
}

/// What versions have on the speed disk. What only readers hold, or a job has begun, is in none: it goes by itself, or comes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpeedBytes {
    /// Of all files of values.
    pub bytes: u64,
    /// Of those that may go down.
    pub lasting_bytes: u64,
}

impl SpeedBytes {
    pub fn of<'a>(read_states: impl Iterator<Item = &'a ReadState>) -> SpeedBytes {
        let mut sums = SpeedBytes::default();
        for ledger in read_states.map(|read_state| &read_state.ledger) {
            sums.bytes = sums.bytes.saturating_add(ledger.speed_bytes());
            sums.lasting_bytes = sums.lasting_bytes.saturating_add(ledger.lasting_bytes());
        }
        sums
    }
}

/// Where a file of values of this rank is to be made that is expected to have so many bytes, beside tables that have `table_bytes`.
pub(crate) fn of_new_file(tree: &Tree, rank: Rank, expected_len: u64, table_bytes: u64) -> Volume {
    let most = tree.context.options.expert.speed_values_bytes_max;
    let bound = match rank {
        Rank::Elsewhere => return Volume::DIRECTORY,
        Rank::Lasting => most / 2,
        Rank::Fresh => most - most / 4,
        _ => most,
    };
    let fits = has_room(tree, expected_len, table_bytes, bound);
    match fits {
        true => Volume::SPEED,
        false => Volume::DIRECTORY,
    }
}

fn has_room(tree: &Tree, expected_len: u64, table_bytes: u64, bound: u64) -> bool {
    let (context, options) = (&tree.context, &tree.context.options);
    if tree.speed.is_refusing(context.now_ns()) {
        return false;
    }
    let Some(disks) = context.env.fs.disks(&context.dir) else { return false };
    let value_bytes = context.volumes.directory().meter.speed_value_bytes();
    if value_bytes.saturating_add(expected_len) > bound {
        return false;
    }
    let table_bytes = if options.expert.speed_levels > 0 { table_bytes } else { 0 };
    disk::free_bytes(&disks) >= disk::wanted_bytes(tree, table_bytes).saturating_add(expected_len)
}

#[cfg(test)]
mod tests;
