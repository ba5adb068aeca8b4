//! Holders and waiters of row locks: the rules, without threads and clocks.
//!
//! * A row is locked by one owner exclusively, or by any number of owners together.
//! * Waiting owners form a queue. An owner passes no earlier one, with an exception: the holder of
//!   a shared lock that wants it exclusively is first, since no other gets the row before it.
//! * When an owner leaves a row or its queue, the first waiting owners that are compatible with
//!   the holders get the lock. Such an owner learns it when it asks again.
//! * A cycle of waiting owners never ends by itself. An owner that would close one is refused
//!   instead ([`Answer::Deadlock`]), so no cycle exists. One search at the begin of a wait is
//!   enough: an owner waits for the holders and for its predecessor in the queue, and later holders
//!   come from the queue before it.
//! * An owner may have an expiry. After it, its locks are no obstacle, and a request for one of its
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
    /// Other transactions can lock the row as shared, and none can change it.
    Shared,
    /// No other write or transaction can lock or change the row.
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
    queue: VecDeque<(OwnerId, LockMode)>,
}

#[derive(Debug)]
struct Owner {
    locks: BTreeSet<(FamilyId, Key)>,
    /// Clock nanoseconds; `u64::MAX`: never.
    expires_ns: u64,
    /// The requested lock, until the owner has learned that it holds it.
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
    /// Number of grants to waiting owners so far.
    granted: u64,
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

    /// Returns the number of grants to waiting owners so far.
    pub fn granted(&self) -> u64 {
        self.granted
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
        let waited = self.owners.get(&id).and_then(|owner| owner.waits_for.clone());
        let waits_here = waited.is_some_and(|waited| waited == (family, key.clone()));
        if row.is_some_and(|(_, row)| row.has_in_queue(id)) && waits_here {
            return Ok(Answer::Waits(self.next_expiry(family, &key)));
        }
        if row.is_none_or(|(_, row)| row.grants(id, mode)) {
            let is_held = row.is_some_and(|(_, row)| row.holders.contains(&id));
            if !is_held {
                self.check_room(key.len(), now_ns)?;
            }
            self.leave_queue(id);
            self.grant(id, mode, family, key);
            return Ok(Answer::Held { is_new: !is_held || waits_here });
        }
        self.enqueue((id, mode), family, &key);
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

    /// Ends the wait of an owner.
    pub fn leave_queue(&mut self, id: OwnerId) {
        let Some(owner) = self.owners.get_mut(&id) else { return };
        if let Some((family, key)) = owner.waits_for.take() {
            self.edit_row(family, &key, |row| row.queue.retain(|(waiting, _)| *waiting != id));
        }
    }

    /// Removes an owner with its locks.
    pub fn remove_owner(&mut self, id: OwnerId) {
        self.leave_queue(id);
        let Some(owner) = self.owners.remove(&id) else { return };
        for (family, key) in &owner.locks {
            self.held -= 1;
            self.bytes -= key.len() + LOCK_BYTES;
            self.edit_row(*family, key, |row| row.holders.retain(|holder| *holder != id));
        }
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

    fn enqueue(&mut self, (id, mode): (OwnerId, LockMode), family: FamilyId, key: &Key) {
        self.leave_queue(id);
        let Some(owner) = self.owners.get_mut(&id) else { return };
        owner.waits_for = Some((family, key.clone()));
        let row = self.rows.entry(family).or_default().entry(key.clone()).or_default();
        match row.holders.contains(&id) {
            true => row.queue.push_front((id, mode)),
            false => row.queue.push_back((id, mode)),
        }
    }

    /// Changes a row, grants it to waiting owners, and removes it if it has no owner left.
    fn edit_row(&mut self, family: FamilyId, key: &Key, edit: impl FnOnce(&mut Row)) {
        let Some(row) = self.rows.get_mut(&family).and_then(|rows| rows.get_mut(key)) else { return };
        edit(row);
        row.is_exclusive &= !row.holders.is_empty();
        while let Some((id, mode)) = self.take_granted(family, key) {
            self.granted += 1;
            self.grant(id, mode, family, key.clone());
        }
        let Some(rows) = self.rows.get_mut(&family) else { return };
        if rows.get(key).is_some_and(|row| row.holders.is_empty() && row.queue.is_empty()) {
            rows.remove(key);
        }
        if rows.is_empty() {
            self.rows.remove(&family);
        }
    }

    /// Takes the first owner out of the queue of a row if it can hold the row now.
    fn take_granted(&mut self, family: FamilyId, key: &Key) -> Option<(OwnerId, LockMode)> {
        let row = self.rows.get_mut(&family)?.get_mut(key)?;
        let (id, mode) = *row.queue.front()?;
        if row.grants(id, mode) { row.queue.pop_front() } else { None }
    }

    fn remove_expired(&mut self, family: FamilyId, key: &[u8], now_ns: u64) {
        let Some(row) = self.rows.get(&family).and_then(|rows| rows.get(key)) else { return };
        let is_over = |id: &&OwnerId| self.owners.get(id).is_some_and(|owner| owner.expires_ns <= now_ns);
        let over: Vec<OwnerId> = row.owners().filter(is_over).copied().collect();
        for id in over {
            self.remove_owner(id);
        }
    }

    /// Returns the time at which the first owner of a row, or before others in its queue, expires.
    fn next_expiry(&self, family: FamilyId, key: &[u8]) -> u64 {
        let Some(row) = self.rows.get(&family).and_then(|rows| rows.get(key)) else { return 0 };
        let expiries = row.owners().filter_map(|id| self.owners.get(id));
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

    /// Returns the owners that an owner waits for: other holders of the row, and its predecessor in
    /// the queue.
    fn obstacles(&self, id: OwnerId) -> Vec<OwnerId> {
        let waits_for = self.owners.get(&id).and_then(|owner| owner.waits_for.as_ref());
        let Some((family, key)) = waits_for else { return Vec::new() };
        let Some(row) = self.rows.get(family).and_then(|rows| rows.get(key)) else { return Vec::new() };
        let Some(place) = row.queue.iter().position(|(waiting, _)| *waiting == id) else { return Vec::new() };
        let before = place.checked_sub(1).and_then(|place| row.queue.get(place)).map(|(before, _)| before);
        row.holders.iter().filter(|holder| **holder != id).chain(before).copied().collect()
    }

    /// Fails if there is no room for another lock, even without those of expired owners.
    fn check_room(&mut self, key_len: usize, now_ns: u64) -> Result<()> {
        let is_room = |table: &LockTable| table.bytes + key_len + LOCK_BYTES <= BYTES_MAX;
        if is_room(self) {
            return Ok(());
        }
        let over = self.owners.iter().filter(|(_, owner)| owner.expires_ns <= now_ns);
        for id in over.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.remove_owner(id);
        }
        if is_room(self) {
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
        let is_next = self.queue.front().is_none_or(|(first, _)| *first == id);
        let is_free = self.holders.is_empty() || mode == LockMode::Shared && !self.is_exclusive;
        is_free && is_next
    }

    fn has_in_queue(&self, id: OwnerId) -> bool {
        self.queue.iter().any(|(waiting, _)| *waiting == id)
    }

    /// Returns all holders and waiting owners.
    fn owners(&self) -> impl Iterator<Item = &OwnerId> {
        self.holders.iter().chain(self.queue.iter().map(|(waiting, _)| waiting))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
