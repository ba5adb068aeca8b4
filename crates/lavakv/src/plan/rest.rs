//! Rest: the work of a store without writes, after which no deleted data is left on disk.
//!
//! A store is at rest some seconds after its last write ([`super::quiet`]). Rest work then runs in
//! this order:
//!
//! 1. Memtables with tombstones are flushed.
//! 2. The properties of tables written before the open are read, for the versions that were kept
//!    for snapshots.
//! 3. Compactions remove tombstones and these versions ([`lsm::policy::rest`]).
//! 4. Collections free the values, as at any time.
//!
//! The log removes its free files by itself (`store::commit::Upkeep`).
//!
//! **Budget.** A compaction that frees more than it writes is always allowed. Other compactions
//! rewrite at most the bytes written since the last rest ([`Account`]). The bytes written before
//! the open are unknown, so the first rest may additionally rewrite the size of the store. So work
//! with little gain ends, and a store that alternates between writes and rest writes at most twice.
//!
//! **End.** Each compaction moves its entries to a deeper level, or rewrites a table of the deepest
//! level without the tombstones and versions that caused the pick. So rest work ends.
//!
//! **Rate.** Rest work takes half of the device time, or half of `io_budget`
//! ([`store::run::Job::rests`]), unless a caller waits for its end.
//!
//! **Suspension.** Rest work is useless while a snapshot reads the deleted data, and it disturbs a
//! backup. The space report names the reason.

/// Why a store at rest does no rest work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suspension {
    /// `Options::rest` is off.
    Option,
    /// A snapshot is open.
    Snapshot,
    /// A backup or a checkpoint is running, or collection is paused.
    Backup,
}

/// The rest state of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rest {
    /// The store was written recently.
    #[default]
    Awake,
    /// The store is at rest, but rest work is suspended.
    Suspended(Suspension),
    /// The store is at rest, and rest work runs until it is complete.
    On,
}

/// The rewrite budget of rest work. See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// Bytes written between the open and the end of the last rest; `None`: no rest ended yet.
    rested_at: Option<u64>,
    /// Bytes of the store when the first rest began.
    found_bytes: Option<u64>,
    /// Bytes rewritten since then.
    spent_bytes: u64,
}

impl Account {
    /// Returns the remaining budget, given the bytes written since the open and the bytes in the
    /// store.
    pub fn left_bytes(&self, written_bytes: u64, used_bytes: u64) -> u64 {
        let earned = match self.rested_at {
            Some(bytes) => written_bytes.saturating_sub(bytes),
            None => written_bytes.saturating_add(self.found_bytes.unwrap_or(used_bytes)),
        };
        earned.saturating_sub(self.spent_bytes)
    }

    /// Charges a compaction that rewrites up to `bytes` of the `used_bytes` in the store.
    pub fn spend(&mut self, bytes: u64, used_bytes: u64) {
        self.found_bytes.get_or_insert(used_bytes);
        self.spent_bytes = self.spent_bytes.saturating_add(bytes);
    }

    /// Ends a rest, given the bytes written since the open.
    pub fn end(&mut self, written_bytes: u64) {
        *self = Account { rested_at: Some(written_bytes), ..Account::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_compaction_rewrites_at_most_the_bytes_written_since() {
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
