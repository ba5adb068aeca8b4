//! The canaries: what is broken, and what must catch it.

/// What must catch a canary.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Catcher {
    /// A row; `seed`: one that caught it when it was entered, so that the campaign need not look for it.
    Row { row: &'static str, seed: Option<u64> },
    /// A unit or integration test: `target` are cargo's words for the test binary (`--lib`, `--test api`).
    #[allow(dead_code, reason = "rows catch all so far")]
    Test { package: &'static str, target: &'static str, name: &'static str },
}

/// A seeded bug.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Canary {
    /// As it stands in the sources.
    pub name: &'static str,
    /// What is broken.
    #[allow(dead_code, reason = "read by people")]
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

pub(crate) const CANARIES: &[Canary] = &[
    row(
        "log-sync-skipped",
        "crash",
        None,
        "pages written earlier are taken for durable without a sync of their file",
    ),
    row("log-write-not-durable", "crash", None, "the write of a durable round is a plain one"),
    row("log-sync-one-page-short", "crash", None, "a sync waits for the page before its own"),
    row(
        "log-released-one-sequence-early",
        "crash",
        None,
        "a group is released that holds one record of a memtable",
    ),
    row(
        "log-released-before-successor",
        "crash",
        None,
        "a group is released before the first page of the next is durable",
    ),
    row(
        "recovery-serves-what-is-not-durable",
        "recrash",
        None,
        "pages that nobody vouches for are not written again",
    ),
    row("recovery-keeps-cut-groups", "recrash", None, "groups behind the end of the log stay listed"),
    row(
        "recovery-forgets-staging",
        "crash",
        None,
        "pages that are in the staging file only are not looked for",
    ),
    row(
        "recovery-takes-damage-for-a-torn-tail",
        "flip",
        None,
        "a durable page that is damaged cuts the log like a torn one",
    ),
    row(
        "recovery-numbers-pages-twice",
        "recrash",
        None,
        "page numbers of what was cut off are given out again",
    ),
    row("recovery-does-not-seal", "recrash", None, "the end of the old log is not sealed"),
    row("manifest-sync-skipped", "crash", None, "edits are taken for durable without a sync"),
    row(
        "manifest-current-not-synced",
        "crash",
        None,
        "the directory is not synced after CURRENT was replaced",
    ),
    row(
        "manifest-witness-ignored",
        "flip",
        None,
        "a manifest that lost edits which the log has seen durable is opened",
    ),
    row(
        "manifest-published-out-of-order",
        "threads",
        None,
        "a thread publishes its state before those of earlier edits",
    ),
    row(
        "names-not-inherited",
        "model",
        None,
        "a collected file does not pass on the names that it has taken over",
    ),
    row(
        "tombstone-dropped-above-the-bottom",
        "model",
        None,
        "a tombstone is dropped although something older may lie under it",
    ),
    row(
        "range-tombstone-dropped-above-the-bottom",
        "model",
        None,
        "a range tombstone is dropped although something older may lie under it",
    ),
    row("snapshots-forgotten-by-compaction", "model", None, "versions that only a snapshot sees are dropped"),
    row("range-tombstone-covers-newer", "model", None, "a range tombstone hides what was written after it"),
    row(
        "sequence-zeroed-under-a-range-tombstone",
        "model",
        None,
        "an entry gets sequence 0 under a range tombstone that stays",
    ),
    row(
        "single-delete-dropped-as-shadowed",
        "model",
        None,
        "a single delete is dropped because of a newer value",
    ),
    row(
        "pinned-name-pruned",
        "reclaim",
        None,
        "an alias is dropped that a running compaction is about to write",
    ),
    row("pinned-file-pruned", "reclaim", None, "a vSST is dropped whose name a running job has pinned"),
    row(
        "collects-what-memtables-refer-to",
        "model",
        None,
        "a write-once segment is collected while a memtable may refer to it",
    ),
    row("flush-floor-one-too-high", "crash", None, "replay skips the first record after a flush"),
    row(
        "flush-tears-batches-between-families",
        "crash",
        None,
        "with several families a table is installed before the log is durable",
    ),
    row("removes-files-that-are-read", "reclaim", None, "a file is removed while a version holds it"),
    row("snapshots-not-told-to-jobs", "model", None, "jobs start without the list of snapshots"),
    row(
        "replay-gives-sequences-twice",
        "crash",
        None,
        "after a replay the next write gets a sequence that is in use",
    ),
    row("replay-ignores-floors", "crash", None, "records that tables hold are replayed again"),
    row(
        "checkpoint-does-not-mark-shared",
        "model",
        None,
        "files with a second link are not marked as shared",
    ),
    row(
        "checkpoint-without-a-ceiling",
        "threads",
        None,
        "writes after the moment of a checkpoint are flushed into it",
    ),
    row(
        "placed-values-of-one-file-not-synced",
        "crash",
        None,
        "a durable write is acknowledged before the values of one file are durable",
    ),
    row(
        "volatile-batch-frozen-by-halves",
        "crash",
        None,
        "a volatile batch over families is flushed family by family",
    ),
    row("block-checksum-ignored", "flip", None, "blocks are believed whatever their checksum says"),
    row(
        "record-checksum-ignored",
        "flip",
        None,
        "records of vSSTs are believed whatever their checksum says",
    ),
    row("table-not-synced", "crash", None, "tables and vSSTs are finished without a sync"),
    row("segment-not-synced", "crash", None, "a large value is logged before it is durable"),
    row(
        "lavafs-blocks-free-one-operation-early",
        "lavafs",
        None,
        "blocks are handed out before the operation that freed them is durable",
    ),
    row(
        "lavafs-hole-does-not-wait-for-reads",
        "threads",
        None,
        "blocks of a hole are handed out while a read is under way",
    ),
    row(
        "lavafs-removed-file-loses-blocks",
        "lavafs",
        None,
        "blocks of a removed file are handed out while it is open",
    ),
    row(
        "lavafs-claim-not-synced",
        "lavafs",
        None,
        "a transaction with a claim is made durable without the bytes that it claims",
    ),
    row(
        "lavafs-hole-does-not-wait-for-claims",
        "lavafs",
        None,
        "a hole is made in bytes that a claim in line still speaks of",
    ),
    row(
        "lavafs-journal-not-synced",
        "lavafs",
        None,
        "a durable commit over several runs does not sync the device",
    ),
    row(
        "lavafs-vouches-for-what-is-not-durable",
        "lavafs",
        None,
        "a transaction says of the one before it that it was durable",
    ),
    row("lavafs-dump-not-synced", "lavafs", None, "the superblock leads to a dump that is not durable"),
];
