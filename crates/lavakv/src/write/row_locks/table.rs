//! Holders and waiters of row locks: the rules, without threads and clocks.
//!
//! * A row is locked by one owner exclusively, or by any number of owners together.
//! * Waiting owners form a queue. An owner passes no earlier one, with an exception: the holder of
//!   a shared lock that wants it exclusively is first, since nobody gets the row before it.
//! * A cycle of waiting owners never ends by itself. An owner that would close one is refused
//!   instead ([`Answer::Deadlock`]), so no cycle exists.
//! * An owner may have an expiry. Its locks hold nobody up after it, and a request for one of its
//!   rows removes them. An expired owner gets `Conflict` at its next call.

use base::{Error, ErrorKind, Result};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use version::FamilyId;

/// Most bytes of all locks of a store.
pub(super) const BYTES_MAX: usize = 64 << 20;

/// Bytes of a lock in memory beside its key.
const LOCK_BYTES: usize = 192;

/// The number of an owner; never used twice while the store is open.
pub(super) type OwnerId = u64;

/// The strength of a row lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockMode {
    /// Other transactions can lock the row as shared, and nobody can change it.
    Shared,
    /// Nobody else can lock or change the row.
    #[default]
    Exclusive,
}

type Key = Arc<[u8]>;

/// A locked row, or one that is waited for.
#[derive(Debug, Default)]
struct Row {
    /// Its holders; several only if the lock is shared.
    holders: Vec<OwnerId>,
    is_exclusive: bool,
    /// Waiting owners, the first one first.
    queue: VecDeque<OwnerId>,
}

#[derive(Debug)]
struct Owner {
    locks: BTreeSet<(FamilyId, Key)>,
    /// Clock nanoseconds; `u64::MAX`: never.
    expires_ns: u64,
    waits_for: Option<(FamilyId, Key)>,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The owner holds the lock. `is_new`: it did not before.
    Held { is_new: bool },
    /// It is in the queue. Unless a lock is released, it need not ask again before this time in
    /// clock nanoseconds.
    Waits(u64),
    /// It would wait for an owner that waits for it; it is not in the queue.
    Deadlock,
}

/// The row locks of a store: see the module.
#[derive(Debug, Default)]
pub(super) struct LockTable {
    rows: BTreeMap<FamilyId, BTreeMap<Key, Row>>,
    owners: BTreeMap<OwnerId, Owner>,
    last_owner: OwnerId,
    /// Number of held locks.
    held: usize,
    bytes: usize,
}

impl LockTable {
    /// Adds an owner without locks.
    pub fn add_owner(&mut self, expires_ns: u64) -> OwnerId {
        self.last_owner += 1;
        let owner = Owner { locks: BTreeSet::new(), expires_ns, waits_for: None };
        self.owners.insert(self.last_owner, owner);
        self.last_owner
    }

    /// Returns the number of held locks.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Requests a lock; the same call asks again.
    ///
    /// # Errors
    /// `Conflict`: the owner has expired. `Busy`: there are too many locks.
    pub fn request(
        &mut self,
        (id, mode): (OwnerId, LockMode),
        family: FamilyId,
        key: &[u8],
        now_ns: u64,
    ) -> Result<Answer> {
        self.check_owner(id, now_ns)?;
        self.remove_expired(family, key, now_ns);
        let row = self.rows.get(&family).and_then(|rows| rows.get_key_value(key));
        let key = row.map_or_else(|| Arc::from(key), |(key, _)| key.clone());
        if row.is_none_or(|(_, row)| row.grants(id, mode)) {
            let is_new = !row.is_some_and(|(_, row)| row.holders.contains(&id));
            if is_new {
                self.check_room(key.len())?;
            }
            self.grant(id, mode, family, key);
            return Ok(Answer::Held { is_new });
        }
        self.enqueue(id, family, &key);
        if self.waits_for_itself(id) {
            self.leave_queue(id);
            return Ok(Answer::Deadlock);
        }
        Ok(Answer::Waits(self.next_expiry(family, &key)))
    }

    /// Fails if an owner has expired.
    ///
    /// # Errors
    /// `Conflict`.
    pub fn check_owner(&mut self, id: OwnerId, now_ns: u64) -> Result<()> {
        if self.owners.get(&id).is_some_and(|owner| now_ns < owner.expires_ns) {
            return Ok(());
        }
        self.remove_owner(id);
        let why = "the transaction has expired, and its row locks with it: begin it again, make it shorter, or \
                   let it expire later";
        Err(Error::new(ErrorKind::Conflict, why))
    }

    /// Makes an owner live until it is removed.
    pub fn keep_owner(&mut self, id: OwnerId) {
        if let Some(owner) = self.owners.get_mut(&id) {
            owner.expires_ns = u64::MAX;
        }
    }

    /// Removes an owner from the queue in which it waits.
    pub fn leave_queue(&mut self, id: OwnerId) {
        let Some(owner) = self.owners.get_mut(&id) else { return };
        if let Some((family, key)) = owner.waits_for.take() {
            self.edit_row(family, &key, |row| row.queue.retain(|waiting| *waiting != id));
        }
    }

    /// Removes an owner with its locks. Returns true if it held any.
    pub fn remove_owner(&mut self, id: OwnerId) -> bool {
        self.leave_queue(id);
        let Some(owner) = self.owners.remove(&id) else { return false };
        for (family, key) in &owner.locks {
            self.held -= 1;
            self.bytes -= key.len() + LOCK_BYTES;
            self.edit_row(*family, key, |row| row.holders.retain(|holder| *holder != id));
        }
        !owner.locks.is_empty()
    }

    /// Returns true if an owner other than `except` has locked this key.
    pub fn is_locked(&self, family: FamilyId, key: &[u8], except: Option<OwnerId>, now_ns: u64) -> bool {
        let row = self.rows.get(&family).and_then(|rows| rows.get(key));
        row.is_some_and(|row| self.is_held(row, except, now_ns))
    }

    /// Returns true if an owner has locked a key from `start` up to `end`.
    pub fn is_any_locked(&self, family: FamilyId, (start, end): (&[u8], &[u8]), now_ns: u64) -> bool {
        // The map panics for a range in the other order.
        let rows = self.rows.get(&family).filter(|_| start < end);
        let bounds = (Bound::Included(start), Bound::Excluded(end));
        let mut rows = rows.into_iter().flat_map(|rows| rows.range::<[u8], _>(bounds));
        rows.any(|(_, row)| self.is_held(row, None, now_ns))
    }

    fn is_held(&self, row: &Row, except: Option<OwnerId>, now_ns: u64) -> bool {
        let mut others = row.holders.iter().filter(|holder| Some(**holder) != except);
        others.any(|holder| self.owners.get(holder).is_some_and(|owner| now_ns < owner.expires_ns))
    }

    fn grant(&mut self, id: OwnerId, mode: LockMode, family: FamilyId, key: Key) {
        self.leave_queue(id);
        let row = self.rows.entry(family).or_default().entry(key.clone()).or_default();
        row.is_exclusive |= mode == LockMode::Exclusive;
        if !row.holders.contains(&id) {
            row.holders.push(id);
            self.held += 1;
            self.bytes += key.len() + LOCK_BYTES;
            if let Some(owner) = self.owners.get_mut(&id) {
                owner.locks.insert((family, key));
            }
        }
    }

    fn enqueue(&mut self, id: OwnerId, family: FamilyId, key: &Key) {
        let Some(owner) = self.owners.get_mut(&id) else { return };
        if owner.waits_for.replace((family, key.clone())).is_some() {
            return;
        }
        let row = self.rows.entry(family).or_default().entry(key.clone()).or_default();
        match row.holders.contains(&id) {
            true => row.queue.push_front(id),
            false => row.queue.push_back(id),
        }
    }

    /// Changes a row, and removes it if nobody holds it or waits for it.
    fn edit_row(&mut self, family: FamilyId, key: &[u8], edit: impl FnOnce(&mut Row)) {
        let Some(rows) = self.rows.get_mut(&family) else { return };
        let Some(row) = rows.get_mut(key) else { return };
        edit(row);
        row.is_exclusive &= !row.holders.is_empty();
        if row.holders.is_empty() && row.queue.is_empty() {
            rows.remove(key);
        }
        if rows.is_empty() {
            self.rows.remove(&family);
        }
    }

    fn remove_expired(&mut self, family: FamilyId, key: &[u8], now_ns: u64) {
        let Some(row) = self.rows.get(&family).and_then(|rows| rows.get(key)) else { return };
        let is_over = |id: &&OwnerId| self.owners.get(id).is_some_and(|owner| owner.expires_ns <= now_ns);
        let over: Vec<OwnerId> = row.holders.iter().chain(&row.queue).filter(is_over).copied().collect();
        for id in over {
            self.remove_owner(id);
        }
    }

    /// Returns the time at which the first owner of a row, or before others in its queue, expires.
    fn next_expiry(&self, family: FamilyId, key: &[u8]) -> u64 {
        let Some(row) = self.rows.get(&family).and_then(|rows| rows.get(key)) else { return 0 };
        let expiries = row.holders.iter().chain(&row.queue).filter_map(|id| self.owners.get(id));
        expiries.map(|owner| owner.expires_ns).min().unwrap_or(0)
    }

    /// Returns true if a chain of waiting owners leads from an owner back to it.
    fn waits_for_itself(&self, id: OwnerId) -> bool {
        let (mut seen, mut next) = (BTreeSet::new(), self.obstacles(id));
        while let Some(other) = next.pop() {
            if other == id {
                return true;
            }
            if seen.insert(other) {
                next.extend(self.obstacles(other));
            }
        }
        false
    }

    /// Returns the owners that an owner waits for: other holders of the row, and those before it
    /// in the queue.
    fn obstacles(&self, id: OwnerId) -> Vec<OwnerId> {
        let waits_for = self.owners.get(&id).and_then(|owner| owner.waits_for.as_ref());
        let Some((family, key)) = waits_for else { return Vec::new() };
        let Some(row) = self.rows.get(family).and_then(|rows| rows.get(key)) else { return Vec::new() };
        let before = row.queue.iter().take_while(|waiting| **waiting != id);
        row.holders.iter().filter(|holder| **holder != id).chain(before).copied().collect()
    }

    fn check_room(&self, key_len: usize) -> Result<()> {
        if self.bytes + key_len + LOCK_BYTES <= BYTES_MAX {
            return Ok(());
        }
        let why = format!(
            "{} row locks take {} bytes of memory, and at most {BYTES_MAX} bytes are supported: end some \
             transactions, or lock fewer rows in each",
            self.held, self.bytes
        );
        Err(Error::new(ErrorKind::Busy, why))
    }
}

impl Row {
    /// Returns true if an owner can hold the row now.
    fn grants(&self, id: OwnerId, mode: LockMode) -> bool {
        if self.holders.contains(&id) {
            return self.holders.len() == 1 || mode == LockMode::Shared;
        }
        let is_next = self.queue.front().is_none_or(|first| *first == id);
        let is_free = self.holders.is_empty() || mode == LockMode::Shared && !self.is_exclusive;
        is_free && is_next
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
