//! The rows: what is tried, and how much of it.

use crate::damage;
use crate::runner::{Context, Outcome};
use crate::{
    block, crash, damaged_log, flip, forks, full, io_errors, kernel, kill, lavafs, machine, model, reclaim,
    repair, sched, threads,
};

/// What the count of a row counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Cases: one for each seed.
    Cases,
    /// Checks, of which a case makes many.
    Checks,
    /// Distinct images of the volume.
    Images,
}

impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Unit::Cases => "cases",
            Unit::Checks => "checks",
            Unit::Images => "images",
        }
    }
}

/// A row.
pub(crate) struct Row {
    pub name: &'static str,
    pub about: &'static str,
    pub unit: Unit,
    /// The count in the profile `ci`.
    pub ci: u64,
    /// Cases use several threads themselves, or the real clock: one at a time.
    pub alone: bool,
    pub case: fn(&Context, u64) -> Outcome,
}

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "model",
        about: "about 100 random operations against a sorted map with snapshots",
        unit: Unit::Cases,
        ci: 12_000,
        alone: false,
        case: model::case,
    },
    Row {
        name: "numbers",
        about: "the same, with all numbers starting at 2^32 - 10",
        unit: Unit::Cases,
        ci: 1_000,
        alone: false,
        case: model::case_numbers,
    },
    Row {
        name: "reclaim",
        about: "every file is deleted exactly when nothing can reach it, with a crash at every sync",
        unit: Unit::Checks,
        ci: 10_000,
        alone: false,
        case: reclaim::case,
    },
    Row {
        name: "crash",
        about: "simulated death of the process and loss of power at any operation",
        unit: Unit::Images,
        ci: 50_000,
        alone: false,
        case: crash::case,
    },
    Row {
        name: "recrash",
        about: "crashes during recovery, several in a row",
        unit: Unit::Images,
        ci: 5_000,
        alone: false,
        case: crash::case_recrash,
    },
    Row {
        name: "forks",
        about: "checkpoints, copies, restored and moved stores on one volume: each holds what is its own",
        unit: Unit::Cases,
        ci: 200,
        alone: false,
        case: forks::case,
    },
    Row {
        name: "forks-on-lavafs",
        about: "the row forks, on LavaFS, where one store's blocks are given to another as they are",
        unit: Unit::Cases,
        ci: 200,
        alone: false,
        case: |context, seed| machine::on_lavafs(|| forks::case(context, seed)),
    },
    Row {
        name: "full",
        about: "limits that are reached and volumes that fill up: refusals, deaths there, and writes that resume",
        unit: Unit::Cases,
        ci: 1_500,
        alone: false,
        case: full::case,
    },
    Row {
        name: "sched",
        about: "the engine with all its threads, under schedules that a seed drives",
        unit: Unit::Cases,
        ci: 2_500,
        alone: false,
        case: sched::case,
    },
    Row {
        name: "sched-crash",
        about: "the same, with a crash at any point of the schedule",
        unit: Unit::Images,
        ci: 6_000,
        alone: false,
        case: sched::case_crash,
    },
    Row {
        name: "sched-on-lavafs",
        about: "the row sched, on LavaFS",
        unit: Unit::Cases,
        ci: 200,
        alone: false,
        case: |context, seed| machine::on_lavafs(|| sched::case(context, seed)),
    },
    Row {
        name: "sched-crash-on-lavafs",
        about: "the row sched-crash, on LavaFS",
        unit: Unit::Images,
        ci: 400,
        alone: false,
        case: |context, seed| machine::on_lavafs(|| sched::case_crash(context, seed)),
    },
    Row {
        name: "lavafs",
        about: "LavaFS: crashes at any operation, also during compaction of its journal and recovery",
        unit: Unit::Images,
        ci: 20_000,
        alone: false,
        case: lavafs::case,
    },
    Row {
        name: "model-on-lavafs",
        about: "the row model, on LavaFS",
        unit: Unit::Cases,
        ci: 1_000,
        alone: false,
        case: |context, seed| machine::on_lavafs(|| model::case(context, seed)),
    },
    Row {
        name: "numbers-on-lavafs",
        about: "the row numbers, on LavaFS",
        unit: Unit::Cases,
        ci: 200,
        alone: false,
        case: |context, seed| machine::on_lavafs(|| model::case_numbers(context, seed)),
    },
    Row {
        name: "crash-on-lavafs",
        about: "the row crash, on LavaFS",
        unit: Unit::Images,
        ci: 5_000,
        alone: false,
        case: |context, seed| machine::on_lavafs(|| crash::case(context, seed)),
    },
    Row {
        name: "recrash-on-lavafs",
        about: "the row recrash, on LavaFS",
        unit: Unit::Images,
        ci: 1_000,
        alone: false,
        case: |context, seed| machine::on_lavafs(|| crash::case_recrash(context, seed)),
    },
    Row {
        name: "reclaim-on-lavafs",
        about: "the row reclaim, on LavaFS",
        unit: Unit::Checks,
        ci: 2_000,
        alone: false,
        case: |context, seed| machine::on_lavafs(|| reclaim::case(context, seed)),
    },
    Row {
        name: "io-errors-on-lavafs",
        about: "the row io-errors, on LavaFS: the calls that fail are those of the device",
        unit: Unit::Cases,
        ci: 4,
        alone: false,
        case: |context, seed| machine::on_lavafs(|| io_errors::case(context, seed)),
    },
    Row {
        name: "flip-on-lavafs",
        about: "the row flip, on LavaFS; also flipped bits of its superblock and journal",
        unit: Unit::Checks,
        ci: 4_000,
        alone: false,
        case: |context, seed| machine::on_lavafs(|| flip::case(context, seed)),
    },
    Row {
        name: "full-on-lavafs",
        about: "the row full, on LavaFS",
        unit: Unit::Cases,
        ci: 300,
        alone: false,
        case: |context, seed| machine::on_lavafs(|| full::case(context, seed)),
    },
    Row {
        name: "kill",
        about: "SIGKILL of a writing process on the real disk",
        unit: Unit::Checks,
        ci: 200,
        alone: false,
        case: kill::case,
    },
    Row {
        name: "kill-on-lavafs",
        about: "the row kill, on LavaFS on an image file",
        unit: Unit::Checks,
        ci: 60,
        alone: false,
        case: kill::case_on_lavafs,
    },
    Row {
        name: "block",
        about: "loss of power below ext4, XFS, btrfs, and LavaFS on a device: needs root",
        unit: Unit::Images,
        ci: 150,
        alone: false,
        case: block::case,
    },
    Row {
        name: "kernel-faults",
        about: "a call to the kernel goes wrong, on the real file system: short, EINTR, EAGAIN, EIO, ENOSPC, EDQUOT, EMFILE, ENFILE",
        unit: Unit::Checks,
        ci: 60,
        alone: false,
        case: kernel::case_faults,
    },
    Row {
        name: "kernel-syncs",
        about: "what is durable by the log of calls to the kernel opens with all that was acknowledged as durable",
        unit: Unit::Checks,
        ci: 300,
        alone: false,
        case: kernel::case_syncs,
    },
    Row {
        name: "io-errors",
        about: "every call of a script fails: once, for good; EIO, ENOSPC, short",
        unit: Unit::Cases,
        ci: 8,
        alone: false,
        case: io_errors::case,
    },
    Row {
        name: "flip",
        about: "flipped bits; misdirected, stale, swapped, truncated, missing data",
        unit: Unit::Checks,
        ci: 40_000,
        alone: false,
        case: flip::case,
    },
    Row {
        name: "damage",
        about: "one table or value file is damaged, missing or exchanged: the store opens, serves the rest, goes on",
        unit: Unit::Checks,
        ci: 500,
        alone: false,
        case: damage::case,
    },
    Row {
        name: "damage-on-lavafs",
        about: "the row damage, on LavaFS",
        unit: Unit::Checks,
        ci: 60,
        alone: false,
        case: |context, seed| machine::on_lavafs(|| damage::case(context, seed)),
    },
    Row {
        name: "damaged-log",
        about: "log pages, the manifest or CURRENT are damaged: reading shows what is before, repair saves the rest",
        unit: Unit::Checks,
        ci: 600,
        alone: false,
        case: damaged_log::case,
    },
    Row {
        name: "damaged-log-on-lavafs",
        about: "the row damaged-log, on LavaFS",
        unit: Unit::Checks,
        ci: 250,
        alone: false,
        case: |context, seed| machine::on_lavafs(|| damaged_log::case(context, seed)),
    },
    Row {
        name: "repair",
        about: "stores of every shape are damaged and repaired: what is not reported as lost is there, and nothing else",
        unit: Unit::Checks,
        ci: 1_600,
        alone: false,
        case: repair::case,
    },
    Row {
        name: "repair-on-lavafs",
        about: "the row repair, on LavaFS",
        unit: Unit::Checks,
        ci: 400,
        alone: false,
        case: |context, seed| machine::on_lavafs(|| repair::case(context, seed)),
    },
    Row {
        name: "threads",
        about: "real threads on the real disk: writers, readers, iterators, flush, compaction",
        unit: Unit::Cases,
        ci: 10,
        alone: true,
        case: threads::case,
    },
    Row {
        name: "threads-on-lavafs",
        about: "the row threads, on LavaFS in an image",
        unit: Unit::Cases,
        ci: 3,
        alone: true,
        case: threads::case_on_lavafs,
    },
];
