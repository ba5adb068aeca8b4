//! Seeds that once failed: row, seed, what was wrong. They are run by `cargo test -p torture`.
//!
//! A seed repeats its case only as long as the operations are drawn in the same order, so each of these bugs also has a
//! row that meets it from fresh seeds.

/// Row, seed, and what it found.
#[cfg(test)]
pub(crate) const FOUND: &[(&str, u64, &str)] = &[
    ("model", 3, "a range deletion from the empty key could not be flushed"),
    ("model", 13, "a table was removed that an iterator older than its move still read"),
    (
        "crash",
        3,
        "a crash between the first manifest and the default family left a store that refused to open",
    ),
    (
        "crash",
        8,
        "a family's log floor lay above the end of the log, and later writes were taken for flushed",
    ),
    ("crash", 111, "the name of the store's directory was not durable"),
    ("crash", 283, "a log floor that fell"),
    ("recrash", 31, "recovery flushed one family of a batch, and the power failed"),
    ("recrash", 62, "the same"),
    ("io-errors", 2, "the sync of the parent directory failed, and the next open relied on the name"),
    ("io-errors", 7, "a manifest whose sync found no space was taken for one that could be tried again"),
    ("io-errors", 4, "a failed sync took values of buffered writes that were placed in the log"),
    ("io-errors", 1000, "the name of a file of placed values was taken for durable after a second sync"),
    ("io-errors", 5004, "recovery removed the tables of a flush whose edit failed, and was durable"),
    ("log-crash", 34, "a record was not read as a block behind its page could not be"),
    (
        "log-joint",
        4,
        "LavaKV alone did not see a durable batch of both beside a sector that could not be read, and went on without it",
    ),
    ("log-model", 1_043_344_866_748, "what a manifest wrote at a limit lifted a store of logs above it"),
    ("log-model", 1_043_344_867_033, "a store of logs that was opened at its limit began groups above it"),
    ("log-model", 1_043_344_867_657, "the same"),
    ("log-model", 1_043_344_867_838, "the same, after a kill that left files of a job"),
    ("log-model", 1_043_344_871_514, "the same"),
    (
        "log-model-on-lavafs",
        58_702_473_895,
        "what a manifest wrote at a limit lifted a store of logs above it",
    ),
    ("log-flip", 28, "a truncated record came back when the rows of its group were made again"),
    ("log-flip", 40, "the same"),
    (
        "log-repair",
        880_042,
        "a truncation that a group has still made a repair forget how far its log went, and not tell what was lost behind it",
    ),
    ("flip", 13, "a last log group replaced as a whole was taken for a torn tail after a clean close"),
    ("flip", 121, "an error about a family that the manifest does not know named no file"),
    ("flip", 1417, "of a killed store the manifest was cut short, and flushed writes were silently gone"),
    ("flip", 156, "the lost end of a manifest listed a log group of which only the staging file had pages"),
    ("damaged-log", 22, "a first failure of the row, of while it was made"),
    (
        "model",
        100_283,
        "a family made for large files took the whole limit, and not even deletes were admitted",
    ),
    (
        "full",
        9,
        "on a full volume a placed value that was visible was reported as refused, and the store poisoned",
    ),
    ("full", 84, "a writer under a limit waited for ever for a flush that a full volume held up"),
    ("full", 173, "small durable deletes filled log groups on a full volume until no flush had room"),
    ("full", 1242, "a store above its limit refused to open: recovery met the ceiling"),
    (
        "full",
        112,
        "a file that a dropped family had shared with a reader waited for removal twice, and for ever",
    ),
    ("full", 309, "tails of placed values kept a small store full after everything was deleted"),
    ("full", 533, "the same, of a family made later"),
    (
        "io-errors-on-lavafs",
        3,
        "a write that was logged failed because the volume had stopped, and was reported as one that was not",
    ),
    ("io-errors-on-lavafs", 101, "a mount went on behind a transaction that a failed sync had lost"),
    (
        "full-on-lavafs",
        17,
        "placed values had no room reserved on LavaFS, and a write that was admitted found none",
    ),
    (
        "full-on-lavafs",
        339,
        "what another file had left behind the end of a manifest was taken for a record that confirms",
    ),
    (
        "sched-crash",
        1_009_313,
        "the failed sync of one checkpoint's parent took the name of another, which returned and was gone",
    ),
    (
        "io-errors-on-lavafs",
        2,
        "after a failed close on a full volume the next open took a live manifest for an orphan",
    ),
    ("sched", 989, "closing hid a real failure: tables of a flush whose edit may be durable were removed"),
    ("sched", 1724, "a store at rest was at work again when somebody looked"),
    ("sched", 1197, "a flush began with one family of a volatile batch, and closing failed before the other"),
    ("sched-crash", 30, "a flush began with one family of a volatile batch, before the other was frozen"),
    (
        "sched",
        7_004_305,
        "a family dropped between the edit and the end of a flush left a file of placed values behind, until the next open",
    ),
    ("sched-crash", 1829, "a failed sync of the directory was forgotten, and a table was lost after it"),
    ("repair", 99, "the log was taken to end at a placed value that had been collected long before"),
    ("repair", 171, "the same"),
    ("repair", 191, "the same"),
    (
        "crash",
        1,
        "a sector of the log that the power failed on could not be read, and the store refused to open",
    ),
    ("crash", 2, "the same of the staging file"),
    (
        "crash",
        921_202_896_879,
        "sequences of a family that was dropped were given again after the power failed",
    ),
    ("reclaim", 473, "a collection whose estimate was wrong was given up, and begun again for ever"),
    (
        "engines",
        3,
        "what LavaKV had begun to make of a store was taken for a store without CURRENT by the other engine alone",
    ),
];
