//! Row locks: a transaction that locks a row keeps all other writes off it until it ends.
//!
//! The table of locks ([`table`]) has the rules. Any store can have locks: no option turns them on,
//! and a write pays one load of a counter where there are none.
//!
//! **Transactions** wait for a lock in the call that requests it ([`LockOwner::lock`]), up to a
//! time of their own.
//!
//! **Plain writes hold no locks.** A write compares its rows with the table under the writer's
//! lock, once it is admitted. If another owner has locked one, it releases the writer's lock and
//! waits up to its deadline, or for [`WRITE_WAIT`] if it has none. So plain writes are in no
//! deadlock, and cannot hold up a transaction. They do not queue: under constant locks of a row, a
//! plain write of it may fail with `Busy`.
//!
//! **A new lock shows all earlier writes of its row.** A write that was compared with the table
//! before the lock has its sequence, but may not be visible yet. So the request takes the writer's
//! lock once, and waits until the writes that were registered by then are visible.
//!
//! **Locks end with the sequence.** A commit releases its locks when it is registered with the
//! memtables, before it is durable. The next owner sees the commit and is logged behind it, so no
//! crash keeps the second change and loses the first.

mod table;

use super::WritePath;
use crate::batch::payload::{Body, Payload};
use crate::batch::{BatchEntries, Change, WriteBatch, shown_key};
use crate::context::{Context, saturating_ns};
use crate::tree::family::ColumnFamily;
use base::process::Owned;
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind, Result, ValueKind};
use std::sync::Arc;
use std::time::Duration;
pub use table::LockMode;
use table::{Answer, LockTable, OwnerId};

/// Longest wait of a plain write without a deadline for row locks.
pub(super) const WRITE_WAIT: Duration = Duration::from_secs(1);

/// Interval at which a plain write that waits for a lock checks whether its owner has expired.
const LOOK_NS: u64 = 20_000_000;

/// The row locks of a store: see the module.
#[derive(Debug)]
pub(crate) struct RowLocks {
    context: Arc<Context>,
    /// Holders and waiters of all locks.
    table: Mutex<LockTable, rank::RowLocks>,
    /// Number of held locks. Raised before the barrier of [`LockOwner::lock`], so a write that
    /// takes the writer's lock after it sees it.
    held: AtomicU64,
    /// Raised after each release, and each grant to a waiting owner.
    releases: AtomicU64,
}

/// The wait of a plain write for a row lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowLockWait {
    /// The number of releases before.
    releases: u64,
    /// Time of the next check, in clock nanoseconds.
    until_ns: u64,
}

impl RowLockWait {
    /// Returns the time of the next check in a wait until `until_ns`, in clock nanoseconds.
    pub fn look_ns(&self, until_ns: u64) -> u64 {
        self.until_ns.min(until_ns)
    }
}

impl RowLocks {
    pub fn new(context: &Arc<Context>) -> RowLocks {
        let (table, held, releases) = Default::default();
        RowLocks { context: context.clone(), table, held, releases }
    }

    /// Returns true if any row may be locked. Exact under the writer's lock.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.held.load(Ordering::Relaxed) != 0
    }

    /// Returns the end of the wait of a write that begins now and has no deadline. `None`: no row is
    /// locked.
    pub(super) fn write_wait_end(&self) -> Option<u64> {
        self.is_any().then(|| self.context.now_ns().saturating_add(saturating_ns(WRITE_WAIT)))
    }

    /// Returns true if a write can look again.
    pub(super) fn is_over(&self, wait: &RowLockWait, now_ns: u64) -> bool {
        self.releases() != wait.releases || now_ns >= wait.until_ns
    }

    /// Returns the number of releases so far.
    fn releases(&self) -> u64 {
        self.releases.load(Ordering::SeqCst)
    }

    /// Compares the rows of a write with the locks of owners other than `owner`, under the writer's
    /// lock. Returns the condition of a write that must wait. `until_ns`: the end of its wait, set
    /// when it begins. `deadline_ns`: its deadline, `u64::MAX` for none.
    ///
    /// # Errors
    /// `Conflict`: its own locks have expired. `Busy`: it has waited for too long.
    pub(super) fn obstacle(
        &self,
        payload: &Payload<'_>,
        owner: Option<&LockOwner>,
        (until_ns, deadline_ns): (&mut Option<u64>, u64),
    ) -> Result<Option<RowLockWait>> {
        // Read before the table, so that no release is missed.
        let releases = self.releases();
        let (now_ns, owner) = (self.context.now_ns(), owner.map(|owner| owner.0.id));
        let locked = {
            let mut table = lock(&self.table);
            owner.map_or(Ok(()), |owner| table.check_owner(owner, now_ns))?;
            locked_row(&table, payload, owner, now_ns)?
        };
        let Some(key) = locked else { return Ok(None) };
        let is_first = until_ns.is_none();
        let longest = || match deadline_ns {
            u64::MAX => now_ns.saturating_add(saturating_ns(WRITE_WAIT)),
            deadline_ns => deadline_ns,
        };
        let until_ns = *until_ns.get_or_insert_with(longest);
        if is_first {
            self.context.stats.row_lock_waits.add(1);
        }
        if now_ns >= until_ns {
            return Err(self.timed_out(&key));
        }
        let look_ns = until_ns.min(now_ns.saturating_add(LOOK_NS));
        Ok(Some(RowLockWait { releases, until_ns: look_ns }))
    }

    fn timed_out(&self, key: &[u8]) -> Error {
        self.context.stats.row_lock_timeouts.add(1);
        let why = format!(
            "a transaction has locked {} and has not ended in time: repeat the call, end transactions sooner, \
             or wait longer",
            shown_key(key)
        );
        Error::new(ErrorKind::Busy, why)
    }

    /// Changes the table, and wakes waiting calls if they may go on.
    fn edit<T>(&self, edit: impl FnOnce(&mut LockTable) -> T) -> T {
        let mut table = lock(&self.table);
        let (before, granted) = (table.held(), table.granted());
        let outcome = edit(&mut table);
        let (held, granted) = (table.held(), table.granted() - granted);
        self.held.store(held as u64, Ordering::Relaxed);
        self.context.stats.row_locks.set(held as u64);
        drop(table);
        if held < before || granted > 0 {
            self.releases.fetch_add(1, Ordering::SeqCst);
            self.context.signals.notify_progress();
        }
        outcome
    }
}

/// Returns a key of a write that another owner has locked.
fn locked_row(
    table: &LockTable,
    payload: &Payload<'_>,
    owner: Option<OwnerId>,
    now_ns: u64,
) -> Result<Option<Vec<u8>>> {
    let is_locked = |change: &Change<'_>| match change.kind {
        ValueKind::RangeDeletion => table.is_any_locked(change.family, (change.key, change.value), now_ns),
        _ => table.is_locked(change.family, change.key, owner, now_ns),
    };
    match &payload.body {
        Body::One(_, change) => Ok(is_locked(change).then(|| change.key.to_vec())),
        Body::Batch(batch) => {
            for change in BatchEntries::of(batch.body()) {
                let change = change?;
                if is_locked(&change) {
                    return Ok(Some(change.key.to_vec()));
                }
            }
            Ok(None)
        }
    }
}

/// An owner of row locks: a transaction. Its drop releases all of them.
#[derive(Debug)]
pub struct LockOwner(Owned<Held>);

struct Held {
    writes: Arc<WritePath>,
    id: OwnerId,
}

impl LockOwner {
    /// Adds an owner, whose locks end after `expires_after` at the latest.
    pub(crate) fn new(writes: &Arc<WritePath>, expires_after: Option<Duration>) -> LockOwner {
        let now_ns = writes.context.now_ns();
        let expires_ns = expires_after.map_or(u64::MAX, |after| now_ns.saturating_add(saturating_ns(after)));
        let id = writes.row_locks.edit(|table| table.add_owner(expires_ns));
        LockOwner(Owned::new(Held { writes: writes.clone(), id }))
    }

    /// Locks a row, whether it exists or not. On return all earlier writes of the row are visible,
    /// and other writes of it wait. A second call can make a shared lock exclusive.
    ///
    /// # Errors
    /// `Busy`: another owner holds the lock for longer than `at_most`, or there are too many locks.
    /// `Conflict`: the wait would never end, since that owner waits for this one; or this owner has
    /// expired. `TooLarge`: the key. `NotFound`: the family was dropped. `Closed`, `Poisoned`.
    pub fn lock(&self, family: &ColumnFamily, key: &[u8], mode: LockMode, at_most: Duration) -> Result<()> {
        let Held { writes, id } = &*self.0;
        let context = &writes.context;
        let _entered = context.enter()?;
        Change { kind: ValueKind::Deletion, family: family.id(), key, value: &[] }.validate()?;
        writes.tree.own(family)?.check_there()?;
        let until_ns = context.now_ns().saturating_add(saturating_ns(at_most));
        let is_new = self.wait(family, key, mode, until_ns).inspect_err(|_| {
            writes.row_locks.edit(|table| table.leave_queue(*id));
        })?;
        if is_new {
            let registered = {
                let _writer = writes.memtables.lock();
                writes.tree.snapshots.registered()
            };
            if writes.memtables.wait_visible(registered).is_err() {
                context.health.check()?;
            }
        }
        Ok(())
    }

    /// Locks the rows of a batch of single keys exclusively, without a wait.
    ///
    /// # Errors
    /// `Busy`: another owner holds one of the locks, or there are too many. `Corruption`: the batch
    /// deletes a range.
    pub fn lock_rows_of(&self, batch: &WriteBatch) -> Result<()> {
        let Held { writes, id } = &*self.0;
        let (locks, now_ns) = (&writes.row_locks, writes.context.now_ns());
        for change in BatchEntries::of(batch.body()) {
            let change = change?;
            if change.kind == ValueKind::RangeDeletion {
                return Err(Error::corruption("the batch of a transaction deletes a range"));
            }
            let request = (*id, LockMode::Exclusive);
            match locks.edit(|table| table.request(request, change.family, change.key, now_ns))? {
                Answer::Held { .. } => {}
                Answer::Waits(_) | Answer::Deadlock => {
                    locks.edit(|table| table.leave_queue(*id));
                    return Err(locks.timed_out(change.key));
                }
            }
        }
        Ok(())
    }

    /// Returns whether the lock is new.
    fn wait(&self, family: &ColumnFamily, key: &[u8], mode: LockMode, until_ns: u64) -> Result<bool> {
        let Held { writes, id } = &*self.0;
        let (locks, context) = (&writes.row_locks, &writes.context);
        let mut has_waited = false;
        loop {
            context.check_open()?;
            context.health.check()?;
            let (releases, now_ns) = (locks.releases(), context.now_ns());
            let request = |table: &mut LockTable| table.request((*id, mode), family.id(), key, now_ns);
            let retry_ns = match locks.edit(request)? {
                Answer::Held { is_new } => return Ok(is_new),
                Answer::Deadlock => {
                    context.stats.deadlocks.add(1);
                    let why = format!(
                        "the owner of the lock on {} waits for this transaction (a deadlock): begin again, and \
                         lock rows in the same order everywhere",
                        shown_key(key)
                    );
                    return Err(Error::new(ErrorKind::Conflict, why));
                }
                Answer::Waits(retry_ns) => retry_ns,
            };
            if now_ns >= until_ns {
                return Err(locks.timed_out(key));
            }
            if !std::mem::replace(&mut has_waited, true) {
                context.stats.row_lock_waits.add(1);
            }
            context.wait_before(retry_ns.min(until_ns), || {
                locks.releases() != releases || context.health.is_poisoned() || context.check_open().is_err()
            });
        }
    }

    /// Fails if the locks have expired.
    ///
    /// # Errors
    /// `Conflict`.
    pub(super) fn check(&self) -> Result<()> {
        let Held { writes, id } = &*self.0;
        let now_ns = writes.context.now_ns();
        writes.row_locks.edit(|table| table.check_owner(*id, now_ns))
    }

    /// Lets the locks live until the drop, whatever their expiry was.
    ///
    /// # Errors
    /// `Conflict`: they have expired.
    pub fn keep(&self) -> Result<()> {
        let Held { writes, id } = &*self.0;
        let now_ns = writes.context.now_ns();
        writes.row_locks.edit(|table| {
            table.check_owner(*id, now_ns)?;
            table.keep_owner(*id);
            Ok(())
        })
    }

    /// Releases all locks.
    pub(super) fn release(&self) {
        self.0.release();
    }
}

impl Held {
    fn release(&self) {
        self.writes.row_locks.edit(|table| table.remove_owner(self.id));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release();
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "owner {} of row locks", self.id)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
