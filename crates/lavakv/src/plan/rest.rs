//! Rest: the work of a store without writes, after which no deleted data is left on disk.
//!
//! A store is at rest some seconds after its last write ([`super::quiet`]). Then, in this order:
//!
//! 1. Memtables with tombstones are flushed.
//! 2. The properties of tables from before the process are read, for the versions that were kept for snapshots.
//! 3. Compactions remove tombstones and these versions ([`lsm::policy::rest`]).
//! 4. Collections free the values, as at any time.
//!
//! The log removes its free files by itself (`store::commit::Upkeep`).
//!
//! **Account.** A compaction that frees more than it writes is always allowed. The others rewrite at most as many bytes as were
//! written since the last rest ([`Account`]). A process does not know the bytes written before its start: its first rest may
//! rewrite as many bytes more as the store has. So work that brings little ends, and a store that is written and left alone in turns
//! writes at most twice.
//!
//! **End.** Each compaction brings its entries to a deeper level, or writes a table of the deepest level without the
//! tombstones and versions that it was picked for. So rest work ends.
//!
//! **Rate.** It takes half of the time of the device, or half of `io_budget` ([`store::run::Job::rests`]), unless a caller waits
//! for its end.
//!
//! **Suspension.** Work would be in vain while a snapshot reads the deleted data, and in the way of a backup. The ledger names the
//! reason.

/// Why a store without writes does no rest work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suspension {
    /// `Options::rest` is off.
    Option,
    /// A snapshot is open.
    Snapshot,
    /// A backup or a checkpoint is under way, or collection is held.
    Backup,
}

/// Whether a store is at rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rest {
    /// It was written a moment ago.
    #[default]
    Awake,
    /// It is, and does no work.
    Suspended(Suspension),
    /// It is, and works until nothing is left to do.
    On,
}

/// Bytes that rest work may rewrite. See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// Bytes that were written up to the end of the last rest, since the open; `None`: there was no rest yet.
    rested_at: Option<u64>,
    /// Bytes of the store when the first rest began.
    found_bytes: Option<u64>,
    /// Bytes that were rewritten since.
    spent_bytes: u64,
}

impl Account {
    /// Bytes that may be rewritten: `written_bytes` were written since the open, `used_bytes` are in the store.
    pub fn left_bytes(&self, written_bytes: u64, used_bytes: u64) -> u64 {
        let earned = match self.rested_at {
            Some(bytes) => written_bytes.saturating_sub(bytes),
            None => written_bytes.saturating_add(self.found_bytes.unwrap_or(used_bytes)),
        };
        earned.saturating_sub(self.spent_bytes)
    }

    /// A compaction begins that rewrites up to so many bytes of the `used_bytes` in the store.
    pub fn spend(&mut self, bytes: u64, used_bytes: u64) {
        self.found_bytes.get_or_insert(used_bytes);
        self.spent_bytes = self.spent_bytes.saturating_add(bytes);
    }

    /// Nothing is left to do; `written_bytes` were written since the open.
    pub fn end(&mut self, written_bytes: u64) {
        *self = Account { rested_at: Some(written_bytes), ..Account::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_rewrites_what_was_written_since_the_one_before() {
        let mut account = Account::default();
        assert_eq!(account.left_bytes(10, 1_000), 1_010, "nobody knows what was written before the open");
        account.spend(600, 1_000);
        assert_eq!(account.left_bytes(10, 700), 410, "what is freed takes nothing from it");
        account.end(10);
        assert_eq!(account.left_bytes(10, 1_000), 0);
        assert_eq!(account.left_bytes(50, 1_000), 40);
        account.spend(100, 700);
        assert_eq!(account.left_bytes(50, 1_000), 0);
    }
}
