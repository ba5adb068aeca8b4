//! The canaries: what is broken, and what must catch it.

/// What must catch a canary.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Catcher {
    /// A row; `seed`: one that caught it when it was entered, so that the campaign need not look for it.
    Row { row: &'static str, seed: Option<u64> },
    /// A unit or integration test: `target` are cargo's words for the test binary (`--lib`, `--test api`).
    Test { package: &'static str, target: &'static str, name: &'static str },
}

/// A seeded bug.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Canary {
    /// As it stands in the sources.
    pub name: &'static str,
    /// What is broken.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the page that tells people"))]
    pub about: &'static str,
    pub by: Catcher,
}

impl Canary {
    /// True if `what` is the row or the package that must catch it.
    pub fn is_for(&self, what: &str) -> bool {
        match self.by {
            Catcher::Row { row, .. } => row == what,
            Catcher::Test { package, .. } => package == what,
        }
    }
}

/// A canary that a row catches.
const fn row(name: &'static str, row: &'static str, seed: Option<u64>, about: &'static str) -> Canary {
    Canary { name, about, by: Catcher::Row { row, seed } }
}

/// A canary that a test catches: of which package, in which of its binaries.
const fn test(
    name: &'static str,
    (package, target): (&'static str, &'static str),
    test: &'static str,
    about: &'static str,
) -> Canary {
    Canary { name, about, by: Catcher::Test { package, target, name: test } }
}

pub(crate) const CANARIES: &[Canary] = &[
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
        "log-sync-failure-ignored",
        ("lavastore-wal", "--lib"),
        "wal::tests::a_failed_data_sync_is_told_and_stops_the_log",
        "a failed data sync of the log is taken for one that succeeded",
    ),
    Canary {
        name: "log-wakes-one-of-the-satisfied",
        about: "a round of the log that made the pages of several waiters durable wakes one of them",
        by: Catcher::Test {
            package: "lavastore-wal",
            target: "--lib",
            name: "commit::tests::other_work_that_makes_pages_durable_wakes_all_who_wait_for_them",
        },
    },
    Canary {
        name: "log-ring-lengthened-under-appends",
        about: "the ring of open pages is exchanged for a longer one while batches are appended",
        by: Catcher::Test {
            package: "lavastore-wal",
            target: "--lib",
            name: "wal::schedules::no_schedule_loses_a_wake_up_or_a_promise",
        },
    },
    Canary {
        name: "log-floor-asks-memtables-first",
        about: "a write between the look at the memtables and the one at the frontier is below the floor",
        by: Catcher::Test {
            package: "lavastore-lavakv",
            target: "--lib",
            name: "tree::log_floor::tests::a_write_that_begins_and_ends_after_the_memtables_were_looked_at_is_not_below_it",
        },
    },
    test(
        "levels-below-the-first-cost-nothing",
        ("lavastore-lavakv", "--test contract"),
        "levels_bound::overwriting_small_values_stays_near_the_data_without_a_standstill",
        "writers are not slowed down for what lies above the targets of the levels, and a store of small values grows to twice its data",
    ),
    test(
        "empty-durable-batch-not-synced",
        ("lavastore-lavakv", "--test api"),
        "sync::buffered_writes_before_it_survive_a_loss_of_power",
        "a durable batch of nothing, and so `Db::sync`, returns without making the log durable",
    ),
    row(
        "log-sync-skipped",
        "crash",
        Some(277),
        "pages written earlier are taken for durable without a sync of their file",
    ),
    row("log-write-not-durable", "crash", Some(2), "the write of a durable round is a plain one"),
    test(
        "log-flights-land-out-of-order",
        ("lavastore-wal", "--lib"),
        "commit::tests::a_flight_that_lands_early_waits_for_those_before_it",
        "of two writes of the log at once the later one counts though the earlier one has not ended",
    ),
    row("log-sync-one-page-short", "crash", Some(2), "a sync waits for the page before its own"),
    row(
        "log-released-one-sequence-early",
        "crash",
        Some(13),
        "a group is released that holds one record of a memtable",
    ),
    row(
        "log-released-before-successor",
        "crash",
        Some(41),
        "a group is released before the first page of the next is durable",
    ),
    row(
        "recovery-serves-what-is-not-durable",
        "recrash",
        Some(4),
        "pages that nobody confirms are not written again",
    ),
    test(
        "recovery-keeps-cut-groups",
        ("lavastore-wal", "--lib"),
        "recover::tests::crafted::nothing_is_accepted_behind_a_hole",
        "groups behind the end of the log stay listed",
    ),
    row(
        "recovery-forgets-staging",
        "crash",
        Some(4),
        "pages that are in the staging file only are not looked for",
    ),
    row(
        "recovery-takes-damage-for-a-torn-tail",
        "flip",
        Some(9),
        "a durable page that is damaged cuts the log like a torn one",
    ),
    test(
        "log-release-ignores-absent-tenants",
        ("lavastore-wal", "--lib"),
        "wal::tests::a_group_goes_when_all_of_its_tenants_have_let_go_of_it",
        "a group of the log goes although a tenant that is not there has records in it",
    ),
    row(
        "roll-drops-absent-engines",
        "engines",
        Some(2),
        "a new manifest leaves out the records of an engine that the store was opened without",
    ),
    row(
        "others-log-dropped",
        "engines",
        Some(2),
        "a checkpoint is taken, and the log dropped at open, although another engine needs what is in it",
    ),
    test(
        "checkpoint-without-the-lanes",
        ("lavastore-lavakv", "--test api"),
        "other_engines::its_lane_of_the_log_stays_and_damage_to_what_it_keeps_is_not_lavakvs",
        "a checkpoint is taken, and leaves out the records that another engine keeps in a lane of the log",
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
        "log-checkpoint-of-no-moment",
        ("lavastore-lavalog", "--test domain"),
        "copies::writers_go_on_while_a_copy_of_both_is_taken",
        "a checkpoint has records that were appended after its moment, without the other half of their batch",
    ),
    test(
        "log-read-of-another-page",
        ("lavastore-wal", "--lib"),
        "place::tests::a_damaged_page_is_told_by_file_and_offset",
        "a page of the log that was written to the wrong place is read for the one that belongs there",
    ),
    test(
        "removed-engine-finds-its-old-log",
        ("lavastore-store", "--test toy_log"),
        "removal::it_leaves_nothing_and_its_groups_go",
        "an engine that was removed is added again while the log still has batches of it",
    ),
    row(
        "log-ended-behind-an-engines-back",
        "engines",
        Some(46),
        "an engine that is away is not told that the log was ended after a crash without it",
    ),
    row("recovery-does-not-seal", "recrash", Some(3), "the end of the old log is not sealed"),
    row("manifest-sync-skipped", "crash", Some(2), "edits are taken for durable without a sync"),
    row(
        "manifest-current-not-synced",
        "crash",
        Some(10),
        "the directory is not synced after CURRENT was replaced",
    ),
    test(
        "manifest-witness-ignored",
        ("lavastore-version", "--lib"),
        "manifest::tests::damage::witnesses_cover_the_last_edit",
        "a manifest that lost edits which the log has seen durable is opened",
    ),
    row(
        "manifest-unknown-group-passed",
        "flip",
        Some(156),
        "a manifest is opened that does not know a group of the log of which there are pages",
    ),
    test(
        "recovery-flushes-unjudged",
        ("lavastore-lavakv", "--test bad_input"),
        "lost_end::a_lost_end_is_found_before_recovery_flushes",
        "recovery makes edits of its own before it has read what the log says of the manifest",
    ),
    test(
        "manifest-published-out-of-order",
        ("lavastore-version", "--lib"),
        "manifest::tests::group_commit_with_threads",
        "a thread publishes its state before those of earlier edits",
    ),
    test(
        "manifest-confirms-its-own-batch",
        ("lavastore-version", "--lib"),
        "manifest::tests::schedules::no_schedule_loses_a_wake_up_or_an_edit",
        "an edit confirms the one before it in its own group commit",
    ),
    row(
        "names-not-inherited",
        "model",
        Some(15),
        "a collected file does not pass on the names that it has taken over",
    ),
    row(
        "tombstone-dropped-above-the-bottom",
        "model",
        Some(2),
        "a tombstone is dropped although something older may lie under it",
    ),
    row(
        "range-tombstone-dropped-above-the-bottom",
        "model",
        Some(4),
        "a range tombstone is dropped although something older may lie under it",
    ),
    row(
        "snapshots-forgotten-by-compaction",
        "model",
        Some(1),
        "versions that only a snapshot sees are dropped",
    ),
    row(
        "range-tombstone-covers-newer",
        "model",
        Some(3),
        "a range tombstone hides what was written after it",
    ),
    row(
        "sequence-zeroed-under-a-range-tombstone",
        "model",
        Some(11),
        "an entry gets sequence 0 under a range tombstone that stays",
    ),
    test(
        "single-delete-dropped-as-shadowed",
        ("lavastore-lsm", "--lib"),
        "merge_job::tests::cases::single_deletes_vanish_with_their_value",
        "a single delete is dropped because of a newer value",
    ),
    test(
        "pinned-name-pruned",
        ("lavastore-values", "--lib"),
        "pins::tests::what_nothing_references_and_nobody_pinned_goes",
        "an alias is dropped that a running compaction is about to write",
    ),
    test(
        "pinned-file-pruned",
        ("lavastore-values", "--lib"),
        "pins::tests::what_nothing_references_and_nobody_pinned_goes",
        "a vSST is dropped whose name a running job has pinned",
    ),
    row("flush-floor-one-too-high", "crash", Some(3), "replay skips the first record after a flush"),
    row(
        "flush-tears-batches-between-families",
        "crash",
        Some(141),
        "with several families a table is installed before the log is durable",
    ),
    row("orphans-left-at-open", "crash", Some(1), "an open removes nothing of what a crash left half done"),
    row("removes-files-that-are-read", "reclaim", Some(1), "a file is removed while a version holds it"),
    row("snapshots-not-told-to-jobs", "model", Some(1), "jobs start without the list of snapshots"),
    row(
        "replay-gives-sequences-twice",
        "crash",
        Some(1),
        "after a replay the next write gets a sequence that is in use",
    ),
    row("replay-ignores-floors", "crash", Some(3), "records that tables hold are replayed again"),
    row(
        "checkpoint-without-a-ceiling",
        "sched",
        Some(58),
        "writes after the moment of a checkpoint are flushed into it",
    ),
    row(
        "placed-values-of-one-file-not-synced",
        "crash",
        Some(2),
        "a durable write is acknowledged before the values of one file are durable",
    ),
    row(
        "frozen-while-a-write-is-under-way",
        "sched",
        Some(17),
        "a memtable is frozen while a write that was logged before is put into it",
    ),
    row(
        "volatile-batch-frozen-by-halves",
        "crash",
        Some(195),
        "a volatile batch over families is flushed family by family",
    ),
    row(
        "refused-after-it-was-logged",
        "sched",
        None,
        "a write that may not wait is refused when only the device is waited for: it is in the log, and seen",
    ),
    test(
        "request-told-durable-when-visible",
        ("lavastore-lavakv", "--test api"),
        "requests::requests_do_what_the_model_does_and_a_crash_takes_nothing_that_was_told",
        "an asynchronous durable write is acknowledged when it is logged",
    ),
    test(
        "request-overtakes-who-waits",
        ("lavastore-lavakv", "--lib"),
        "requests::tests::who_waits_holds_up_those_behind_it_and_none_waits_longer_than_it_may",
        "a write that was submitted later than one that waits is written before it",
    ),
    test(
        "request-pushed-without-a-wake-up",
        ("lavastore-lavakv", "--test api"),
        "requests::all_are_told_under_every_schedule",
        "a request is handed over, and no thread is woken for it",
    ),
    test(
        "request-over-without-a-wake-up",
        ("lavastore-lavakv", "--test api"),
        "requests::all_are_told_under_every_schedule",
        "a request is over, and the loop that waits for one is not woken",
    ),
    row(
        "flush-picked-while-families-freeze",
        "sched-crash",
        Some(654),
        "a flush begins with one family of a volatile batch, while the other is still to be frozen",
    ),
    row("block-checksum-ignored", "flip", Some(1), "blocks are believed whatever their checksum says"),
    row(
        "record-checksum-ignored",
        "flip",
        Some(2),
        "records of vSSTs are believed whatever their checksum says",
    ),
    row("table-not-synced", "crash", Some(2), "tables and vSSTs are finished without a sync"),
    row("segment-not-synced", "crash", Some(26), "a large value is logged before it is durable"),
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
    row("lavafs-dump-not-synced", "lavafs", Some(15), "the superblock leads to a dump that is not durable"),
    row(
        "log-group-identity-constant",
        "forks-on-lavafs",
        Some(31),
        "all log groups have one identity, so that pages of a copy on the same blocks are believed",
    ),
    test(
        "log-groups-as-long-as-allowed",
        ("lavastore-lavakv", "--test api"),
        "small_stores::two_records_take_less_than_a_megabyte",
        "every log group has the longest length",
    ),
    test(
        "log-groups-ignore-the-rate",
        ("lavastore-store", "--lib"),
        "commit::pace::tests::groups_follow_the_rate_of_writes",
        "log groups stay short however fast they are used up",
    ),
    test(
        "old-log-groups-unbounded",
        ("lavastore-lavakv", "--test api"),
        "small_stores::the_log_does_not_grow_with_the_number_of_opens",
        "each opening adds a log group, and none lets go of the former ones",
    ),
    test(
        "placed-sync-covers-what-came-later",
        ("lavastore-lavakv", "--test api"),
        "held_sync::what_was_placed_during_a_sync_is_not_durable_by_it",
        "a value that was placed while its file was synced is taken for durable",
    ),
    test(
        "writes-pay-for-their-first-piece",
        ("lavastore-lavakv", "--test separated"),
        "garbage_bound::a_batch_pays_for_its_garbage_like_single_puts",
        "what a long batch owes for garbage is forgiven",
    ),
    test(
        "families-share-a-pacer",
        ("lavastore-lavakv", "--lib"),
        "write::payment::tests::a_family_pays_for_its_own_level_0",
        "what the writers of one family owe for its level 0 holds up those of another",
    ),
    test(
        "no-wait-leaves-any-debt",
        ("lavastore-lavakv", "--lib"),
        "context::pacer::tests::who_may_not_wait_leaves_a_bounded_debt",
        "a long batch that may not wait leaves all that it owes to those behind it",
    ),
    test(
        "segments-pay-nothing",
        ("lavastore-lavakv", "--test separated"),
        "garbage_bound::a_value_with_a_file_of_its_own_pays_for_its_bytes",
        "values with files of their own do not pay for garbage",
    ),
    test(
        "checkpoint-keeps-uid",
        ("lavastore-lavakv", "--test api"),
        "forks::a_checkpoint_has_a_uid_of_its_own",
        "a checkpoint has the uid of its source",
    ),
    test(
        "directory-sync-failure-forgotten",
        ("lavastore-lavakv", "--test api"),
        "failed_syncs::a_failed_sync_of_the_directory_stops_the_jobs_under_way",
        "a sync of the directory that failed is tried again as if nothing had been lost",
    ),
    test(
        "closing-hides-failures",
        ("lavastore-lavakv", "--test api"),
        "failed_syncs::a_sync_of_the_manifest_that_fails_while_the_store_is_closed",
        "a failure while the store is being closed does not replace `Closed`, and outputs are removed",
    ),
    test(
        "log-sync-failure-does-not-poison",
        ("lavastore-lavakv", "--test api"),
        "failed_syncs::a_failed_sync_of_the_log_stops_all_writes",
        "a failed sync of the log is returned and not remembered by the store",
    ),
    test(
        "lost-value-taken-for-a-torn-end",
        ("lavastore-lavakv", "--test api"),
        "placement::a_lost_value_is_an_error_of_its_key_and_of_no_other",
        "a placed value that was durable and is gone ends the log, and nobody is told",
    ),
    row(
        "scrub-passes-over-a-file",
        "damage",
        None,
        "scrub and verification leave out files with an even number",
    ),
    row(
        "damaged-table-read-past",
        "damage",
        Some(3),
        "a get goes on to older tables behind one that cannot be opened",
    ),
    test(
        "full-levels-have-no-turn",
        ("lavastore-lsm", "--lib"),
        "policy::tests::simulation::bounds_hold",
        "under vlsm level 0 goes down however full the levels below are",
    ),
    test(
        "oldest-of-the-queue-left-behind",
        ("lavastore-lsm", "--lib"),
        "policy::tests::random_flushes_converge",
        "under vlsm a table of level 0 goes down before an older one",
    ),
    test(
        "level-0-in-two-levels-at-once",
        ("lavastore-lsm", "--lib"),
        "policy::tests::outputs_of_running_compactions_are_reserved",
        "level 0 goes down to two levels at once with keys in common",
    ),
    row(
        "damaged-table-passed-in-level-0",
        "damage",
        Some(3),
        "files of level 0 go down past an older one that cannot be read",
    ),
    row(
        "repair-forgets-a-family",
        "repair",
        Some(1),
        "a repair saves the tables of the default family alone",
    ),
    row(
        "repair-forgets-range-tombstones",
        "repair",
        Some(4),
        "a repair merges tables without their range tombstones",
    ),
    row(
        "repair-ignores-sequences",
        "repair",
        Some(105),
        "without a manifest the log is replayed over newer entries in tables",
    ),
    test(
        "lane-read-coarser-than-written",
        ("lavastore-lavalog", "--test domain"),
        "crashes::a_batch_beside_unreadable_sectors_is_seen_by_who_opens_lavakv_alone",
        "with a sector that cannot be read, who only reads a lane of the log loses the pages beside it",
    ),
    row(
        "joint-batch-ahead-of-the-other-lane",
        "log-joint",
        Some(1),
        "a batch of both engines is written while changes before it, in the key-value lane, are not durable",
    ),
    row(
        "log-carried-changes-forgotten",
        "log-joint",
        Some(3),
        "a group of records becomes storage while batches in it carry changes that are in no table",
    ),
    row(
        "log-acknowledged-before-it-is-durable",
        "log-crash",
        Some(2),
        "a durable append does not wait for its sync",
    ),
    row(
        "log-goes-on-after-a-failed-sync",
        "log-io-errors",
        Some(1),
        "a failed sync is returned and not remembered by the logs",
    ),
    row(
        "log-lack-of-descriptors-stops-the-store",
        "log-io-errors",
        Some(1),
        "a job of the logs that finds no descriptor for a file to read stops the store for good",
    ),
    row(
        "log-beside-keys-has-no-ballast",
        "log-joint-full",
        Some(14),
        "beside keys, logs have nothing of what is kept for trims and jobs on a full volume",
    ),
    row(
        "log-sealed-before-it-is-durable",
        "log-crash",
        Some(51),
        "the edit that makes a group storage comes before the operations are durable by which records are not in its index file",
    ),
    row(
        "log-index-file-not-in-the-directory",
        "log-crash",
        Some(2),
        "an index file is named by an edit before its name is durable",
    ),
    row(
        "log-one-index-file-for-several-groups",
        "log-crash",
        Some(1),
        "of groups that become storage together one gets an index file",
    ),
    test(
        "log-block-of-a-lost-file-trusted",
        ("lavastore-lavalog", "--lib"),
        "log_store::tests::a_block_that_was_found_before_rows_were_taken_in_is_looked_for_again",
        "a block that was found in a lost index file is read in the one that took its place",
    ),
    test(
        "log-jobs-overtake-holds",
        ("lavastore-lavalog", "--lib"),
        "jobs::tests::no_job_overtakes_who_waits_for_a_hold",
        "the next job takes the right to move groups before who waits for it, so that a checkpoint of a busy store never begins",
    ),
    test(
        "log-waiting-groups-unbounded",
        ("lavastore-lavalog", "--test logs"),
        "short_lives::what_short_lives_leave_to_be_replayed_is_bounded",
        "processes that live for one command leave ever more groups to be replayed",
    ),
    test(
        "repair-replays-what-tables-had",
        ("lavastore", "--test keys_and_logs"),
        "a_repair_without_a_manifest_brings_no_key_back_that_was_deleted",
        "a repair without a manifest replays batches of both whose keys were in tables, and were deleted since",
    ),
    test(
        "repair-takes-a-lost-end-for-a-torn-one",
        ("lavastore", "--test keys_and_logs"),
        "a_lost_end_before_a_batch_of_both_is_told",
        "changes that are lost before a batch of both that is there are not told",
    ),
    row(
        "log-begins-before-its-ceiling",
        "log-model",
        Some(1_043_344_867_033),
        "a store of logs that is opened at its limit begins groups above it",
    ),
    test(
        "log-room-of-edits-given-away",
        ("lavastore-lavalog", "--test domain"),
        "faults::a_store_at_its_limit_is_opened_again_and_again_below_it",
        "files are let into the room below a limit that the manifest takes without asking",
    ),
    test(
        "looked-for-memory-in-vain-and-went-in",
        ("lavastore-lavakv", "--lib"),
        "write::room::tests::schedules::no_schedule_lets_two_writers_into_the_room_of_one",
        "a write that found no memtable to freeze, since all were being flushed, goes into memory that others have filled since",
    ),
    test(
        "ceiling-of-the-last-process-forgotten",
        ("lavastore-lavalog", "--test domain"),
        "faults::a_store_whose_trims_took_the_reserve_is_opened_again_below_its_limit",
        "a store of keys and logs whose trims took the reserve passes its limit when it is opened again",
    ),
    test(
        "log-scan-reads-truncated",
        ("lavastore-lavalog", "--test logs"),
        "scans::a_scan_hands_out_nothing_that_was_truncated_before_it_came_there",
        "a scan hands out what it has read ahead and what was truncated since",
    ),
    test(
        "log-applied-by-two",
        ("lavastore-lavalog", "--test schedules"),
        "one_applies_a_log_at_a_time",
        "a log that somebody applies is given to another one as well",
    ),
    row(
        "log-index-file-leaves-out-a-record",
        "log-model",
        Some(1),
        "an index file has all rows of a log but one",
    ),
    row(
        "log-cold-file-not-synced",
        "log-crash",
        Some(2),
        "a cold file is named by an edit before it is durable",
    ),
    row(
        "log-collected-before-trims-are-durable",
        "log-crash",
        Some(12),
        "records go whose trims and truncations are not durable",
    ),
    row(
        "log-collection-loses-a-record",
        "log-model",
        Some(1),
        "a collection leaves out the first record of a log, and drops its inputs",
    ),
    row(
        "log-file-brings-back-what-died",
        "log-model",
        Some(1),
        "what was trimmed or truncated while a file was written is there again when it takes its place",
    ),
    row(
        "log-truncation-takes-what-came-later",
        "log-model",
        Some(1),
        "a truncation applies to records that came after it",
    ),
    row("log-checkpoint-forgets-truncations", "log-crash", Some(1), "a checkpoint does not keep truncations"),
    row(
        "log-number-given-twice",
        "log-crash",
        Some(1),
        "after an opening a log may get the number of one that was deleted",
    ),
    row(
        "log-lost-taken-for-absent",
        "log-flip",
        Some(2),
        "records of a file that cannot be read are called absent",
    ),
    row(
        "log-repair-takes-an-older-record",
        "log-repair",
        Some(2),
        "a repair takes the first record that has an LSN, also one that was truncated and written anew",
    ),
    row(
        "log-repair-forgets-a-gap",
        "log-repair",
        Some(2),
        "a repair does not tell of records that are lost for certain",
    ),
    row(
        "repair-forgets-what-is-carried",
        "log-joint-repair",
        Some(2),
        "a repair of both engines saves of batches of both only the half that is the log's",
    ),
    test(
        "repair-gives-logs-other-numbers",
        ("lavastore", "--test keys_and_logs"),
        "a_state_that_is_made_from_a_log_goes_on_after_a_repair",
        "logs have other numbers in the store that a repair makes, and the positions in the keys are others'",
    ),
    test(
        "log-truncations-forgotten-before-their-groups",
        ("lavastore-lavalog", "--test logs"),
        "damage::what_was_truncated_does_not_come_back_with_a_lost_index_file",
        "a truncation is forgotten while a group is kept that has what it took",
    ),
    row(
        "stale-speed-disk-taken",
        "two-disks",
        None,
        "a speed disk of another time, or of a copy of the store, is taken for the one that the manifest means",
    ),
    row(
        "speed-edit-before-its-directory",
        "two-disks",
        None,
        "the manifest says that the log is on the speed disk before the names of its files there are durable",
    ),
    row(
        "speed-directory-not-synced",
        "crash-on-two-disks",
        None,
        "a sync of the store's directory is none of that of the speed disk: names of log groups are lost there",
    ),
    test(
        "room-for-jobs-on-the-speed-disk",
        ("lavastore-lavakv", "--test api"),
        "two_disks::a_full_disk_is_told_by_name",
        "what is kept free for jobs lies on the speed disk, where it helps none of them",
    ),
];
