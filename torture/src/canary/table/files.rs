//! Canaries of what lies below all engines: the machine, LavaFS, the store that engines share.

use crate::canary::seeded::{Canary, row, test};

pub(super) const CANARIES: &[Canary] = &[
    row("kernel-sync-skipped", "kernel-syncs", Some(1), "the kernel is never asked to sync a file"),
    row(
        "kernel-directory-sync-skipped",
        "kernel-syncs",
        Some(1),
        "the kernel is never asked to sync a directory",
    ),
    row("kernel-durable-write-plain", "kernel-syncs", Some(1), "a durable write loses its flag"),
    row(
        "kernel-short-write-resumed-where-it-began",
        "kernel-syncs",
        Some(2),
        "what is left of a short write goes where its beginning went",
    ),
    test(
        "kernel-in-place-poison-dropped",
        ("lavastore-io", "--lib"),
        "kernel::tests::files::a_file_written_in_place_takes_nothing_after_a_failed_sync",
        "a file written in place goes on after a failed sync",
    ),
    test(
        "repair-holds-files-open",
        ("lavastore-store", "--lib"),
        "repair::few_open::tests::many_files_are_read_again_and_again_and_few_are_open",
        "a repair holds all files of the damaged store open",
    ),
    test(
        "repair-takes-a-refusal-for-damage",
        ("lavastore-store", "--lib"),
        "repair::few_open::tests::a_refusal_that_passes_by_itself_is_no_damage",
        "a repair that found no descriptor for a file tells that it is damaged, and succeeds without it",
    ),
    test(
        "pieces-take-one-place-twice",
        ("lavastore-store", "--lib"),
        "pacing::depth::tests::under_every_schedule_no_place_is_taken_twice",
        "two pieces of background work that look for a place at the device at once both take the last one",
    ),
    test(
        "freed-group-taken-for-damaged",
        ("lavastore-store", "--test lanes"),
        "schedules::no_schedule_shows_a_reader_what_he_did_not_ask_for",
        "a reader who comes when the file of a freed group is used again is told of damage",
    ),
    test(
        "shared-group-used-again",
        ("lavastore-store", "--test lanes"),
        "storage::the_file_of_a_shared_group_is_not_used_again",
        "the file of a log group that a checkpoint shares is written over as another group",
    ),
    test(
        "removed-engine-finds-its-old-log",
        ("lavastore-store", "--test toy_log"),
        "removal::it_leaves_nothing_and_its_groups_go",
        "an engine that was removed is added again while the log still has batches of it",
    ),
    test(
        "lavafs-blocks-free-one-operation-early",
        ("lavastore-lavafs", "--lib"),
        "core::tests::blocks_are_free_when_the_operation_that_freed_them_is_durable_and_not_before",
        "blocks are handed out before the operation that freed them is durable",
    ),
    test(
        "lavafs-hole-does-not-wait-for-reads",
        ("lavastore-lavafs", "--lib"),
        "core::tests::blocks_of_a_hole_wait_for_the_reads_that_looked_them_up",
        "blocks of a hole are handed out while a read is under way",
    ),
    row(
        "lavafs-removed-file-loses-blocks",
        "lavafs",
        Some(9),
        "blocks of a removed file are handed out while it is open",
    ),
    row(
        "lavafs-claim-not-synced",
        "lavafs",
        Some(1),
        "a transaction with a claim is made durable without the bytes that it claims",
    ),
    test(
        "lavafs-hole-does-not-wait-for-claims",
        ("lavastore-lavafs", "--lib"),
        "fs::tests::a_hole_is_made_when_no_claim_is_in_line",
        "a hole is made in bytes that a claim in line still speaks of",
    ),
    row(
        "lavafs-journal-not-synced",
        "lavafs",
        Some(1),
        "a durable commit over several runs does not sync the device",
    ),
    row(
        "lavafs-confirms-what-is-not-durable",
        "lavafs",
        Some(41),
        "a transaction says of the one before it that it was durable",
    ),
    test(
        "lavafs-journal-keeps-what-is-removed",
        ("lavastore-lavafs", "--lib"),
        "fs::tests::what_is_removed_from_a_full_volume_is_there_for_files_however_long_the_journal_is",
        "on a full volume, what is removed makes up for what the journal took of the reserve, and no file gets it",
    ),
    row(
        "lavafs-grows-before-the-length-is-durable",
        "lavafs",
        Some(1),
        "a volume says that it has grown while a loss of power can still take the new length of its device back",
    ),
    test(
        "lavafs-discards-without-a-rate",
        ("lavastore-lavafs", "--lib"),
        "discard::tests::a_device_is_told_of_no_more_than_its_rate_and_in_time_of_all",
        "a device is told of all free blocks as fast as it takes that",
    ),
    row("lavafs-dump-not-synced", "lavafs", Some(15), "the superblock leads to a dump that is not durable"),
    test(
        "log-groups-ignore-the-rate",
        ("lavastore-store", "--lib"),
        "commit::pace::tests::groups_follow_the_rate_of_writes",
        "log groups stay short however fast they are used up",
    ),
    test(
        "log-room-of-edits-given-away",
        ("lavastore-store", "--lib"),
        "space::budget::tests::the_last_of_the_room_is_for_the_manifest",
        "files are let into the room below a limit that the manifest takes without asking",
    ),
];
