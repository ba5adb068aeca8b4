//! Placement of value files on the fast tier of a store with two.
//!
//! Placement is by heat (`docs/decisions/0082-values-on-the-speed-disk.md`). A flush separates the
//! values of frequently overwritten keys from all others (`work::jobs::hot_cold`). Their files, the
//! *hot* ones, go to the fast tier, up to `fast_tier_values_bytes_max` bytes, if there is room
//! beside the log's reserve and the tables in progress ([`table_placement::wanted_bytes`]). Hot
//! values soon become garbage and are collected; the survivors are cold and go to the capacity
//! tier. A hot file without room goes to the capacity tier and is counted: no write waits for the
//! fast tier.
//!
//! With `fast_tier_values_flushed` every flush writes to the fast tier. The values that survive a
//! collection go to the capacity tier once half of the bound is taken; below that they may stay. A
//! quarter of the bound is reserved for hot files. Values that are never overwritten have no
//! garbage and would never be collected. So where they fill the bound ([`excess_bytes`]), the
//! oldest files are collected in order to leave the tier (`plan::moves`).
//!
//! The volume's meter ([`store::volumes::Meter`]) counts the bytes on the tier, including
//! reservations of running jobs and files that only readers hold, without a listing. The ledger of
//! a version counts the files that have lasted there ([`values::Ledger::lasting`]). The manifest
//! records the volume of each file; files are never moved.
//!
//! A device may refuse a file in spite of its reported free space, because of a quota or of another
//! writer. At its creation the file then goes to the capacity tier; a later refusal fails the job.
//! In both cases no file is created there for a while ([`super::speed_tables`]).

use super::family::ReadState;
use super::{Tree, table_placement};
use crate::context::options::Options;
use store::volumes::Volume;
use version::VsstClass;

/// Priority of a new value file on the fast tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    /// Values of frequently overwritten keys.
    Hot,
    /// Flushed values of unknown heat: on the fast tier with `fast_tier_values_flushed`.
    Fresh,
    /// Survivors of a collection: on the fast tier with `fast_tier_values_flushed`, while there is
    /// plenty of room.
    Lasting,
    /// Always on the capacity tier.
    Elsewhere,
}

/// Returns the rank of a new file of this class, written by a flush or by another job.
pub(crate) fn rank(options: &Options, class: VsstClass, is_flushed: bool) -> Rank {
    if options.expert.fast_tier_values_bytes_max == 0 {
        return Rank::Elsewhere;
    }
    match class {
        // Values of that class written by any other job have survived a collection.
        VsstClass::Hot if is_flushed => Rank::Hot,
        _ if !options.expert.fast_tier_values_flushed => Rank::Elsewhere,
        _ if is_flushed => Rank::Fresh,
        _ => Rank::Lasting,
    }
}

/// Returns the bytes of lasting values that must leave the fast tier to make room for fresh ones.
/// These are the bytes above five eighths of the bound, of which fresh values may take six. The
/// newest eighth stays, however many bytes are hot, so that fresh values do not leave at once.
pub(crate) fn excess_bytes(bytes_max: u64, sums: &SpeedBytes) -> u64 {
    let (over, eighth) = (sums.bytes.saturating_sub(bytes_max / 8 * 5), bytes_max / 8);
    over.min(sums.lasting_bytes.saturating_sub(eighth))
}

/// Bytes of values that versions have on the fast tier. Files that only readers hold, or that jobs
/// are writing, are not included.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpeedBytes {
    /// Bytes of all value files.
    pub bytes: u64,
    /// Bytes of the files that may leave.
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

/// Returns the volume for a new value file of this rank and expected length, beside tables of
/// `table_bytes`.
pub(crate) fn of_new_file(tree: &Tree, rank: Rank, expected_len: u64, table_bytes: u64) -> Volume {
    let most = tree.context.options.expert.fast_tier_values_bytes_max;
    let bound = match rank {
        Rank::Elsewhere => return Volume::DIRECTORY,
        Rank::Lasting => most / 2,
        Rank::Fresh => most - most / 4,
        _ => most,
    };
    let fits = has_room(tree, expected_len, table_bytes, bound);
    match fits {
        true => Volume::FAST,
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
    let table_bytes = if options.expert.fast_tier_levels > 0 { table_bytes } else { 0 };
    table_placement::free_bytes(&disks)
        >= table_placement::wanted_bytes(tree, table_bytes).saturating_add(expected_len)
}

#[cfg(test)]
mod tests;
