//! Snapshots: sequences that compaction must keep readable.
//!
//! A job copies the list, with the visible frontier added, under the same lock that registers
//! snapshots. A snapshot taken later has a sequence at or above that frontier, so the job never
//! drops a version it needs.
//!
//! Each snapshot has an id and an optional name for the space ledger (`space::holders`).

use base::SeqNo;
use base::process::Owned;
use base::sync::model::atomic::{AtomicU64, Ordering};
use base::sync::model::{Mutex, MutexGuard, lock};
use base::sync::rank;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The registered snapshots and the visible frontier.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    /// Held snapshots by sequence, in the order in which they were taken.
    held: Mutex<BTreeMap<SeqNo, Vec<Registration>>, rank::Snapshots>,
    /// The visible frontier: reads may see every sequence up to it. It only rises.
    visible: AtomicU64,
    /// The last sequence of the last registered write; 0: none since the open. Changed under the
    /// writer's lock.
    registered: AtomicU64,
    next_id: AtomicU64,
}

/// A held snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    /// Unique among the snapshots and iterators of an open store.
    pub id: u64,
    /// The caller's name for it; may be empty.
    pub name: Arc<str>,
    pub since_ns: u64,
}

impl Snapshots {
    fn held(&self) -> MutexGuard<'_, BTreeMap<SeqNo, Vec<Registration>>> {
        lock(&self.held)
    }

    /// Returns an id for a snapshot or an iterator.
    pub fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the held snapshots with their sequences, ascending.
    pub fn all(&self) -> Vec<(SeqNo, Registration)> {
        let held = self.held();
        held.iter().flat_map(|(&seq, all)| all.iter().map(move |one| (seq, one.clone()))).collect()
    }

    /// Returns the highest sequence readers may see.
    pub fn visible(&self) -> SeqNo {
        self.visible.load(Ordering::Acquire)
    }

    /// Returns the visible frontier by a read-modify-write, which is ordered with publishers: see
    /// `write::memtables::visibility_ring`.
    pub fn visible_now(&self) -> SeqNo {
        self.visible.fetch_max(0, Ordering::AcqRel)
    }

    /// Registers a write with sequences up to `last` before its insert. The caller holds the
    /// writer's lock.
    pub fn register(&self, last: SeqNo) {
        self.registered.store(last, Ordering::Relaxed);
    }

    /// Returns the last sequence of the last registered write; 0: none since the open. It is exact
    /// only if a lock orders the call with writes.
    pub fn registered(&self) -> SeqNo {
        self.registered.load(Ordering::Relaxed)
    }

    /// Makes every sequence up to `seq` visible; all of them are in the memtables. A faster
    /// publisher may have published more.
    pub fn publish(&self, seq: SeqNo) {
        self.visible.fetch_max(seq, Ordering::AcqRel);
    }

    /// Returns the sequences a job must keep readable, ascending, the frontier last.
    pub fn for_job(&self) -> Vec<SeqNo> {
        let held = self.held();
        let visible = self.visible();
        let mut list: Vec<SeqNo> = held.keys().copied().filter(|&s| s < visible).collect();
        list.push(visible);
        list
    }

    /// Returns the sequence of the newest held snapshot.
    pub fn newest_held(&self) -> Option<SeqNo> {
        self.held().keys().next_back().copied()
    }

    /// True if a held snapshot does not see the last write.
    pub fn is_any(&self) -> bool {
        self.for_job().len() > 1
    }
}

/// A consistent view of the whole store at one moment. Cheap to clone; the snapshot is released
/// with its last clone.
#[derive(Clone)]
pub struct Snapshot(Owned<Arc<Registered>>);

struct Registered {
    seq: SeqNo,
    id: u64,
    name: Arc<str>,
    registry: Arc<Snapshots>,
}

impl Snapshot {
    pub(crate) fn take(registry: &Arc<Snapshots>, name: &str, now_ns: u64) -> Self {
        let (id, name) = (registry.new_id(), Arc::<str>::from(name));
        let mut held = registry.held();
        let seq = registry.visible();
        held.entry(seq).or_default().push(Registration { id, name: name.clone(), since_ns: now_ns });
        Snapshot(Owned::new(Arc::new(Registered { seq, id, name, registry: registry.clone() })))
    }

    /// Returns a snapshot for a child process, in which it retains nothing and every read fails.
    pub(crate) fn of_child(registry: &Arc<Snapshots>, name: &str) -> Self {
        let (seq, id) = (registry.visible(), registry.new_id());
        let registered = Arc::new(Registered { seq, id, name: name.into(), registry: registry.clone() });
        // It is not registered, so its drop must not unregister it.
        std::mem::forget(registered.clone());
        Snapshot(Owned::new(registered))
    }

    /// Returns its id in the space ledger, unique while the store is open.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Returns the name given to it; may be empty.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the sequence of the last write it sees.
    pub fn sequence(&self) -> SeqNo {
        self.0.seq
    }

    /// True if it was taken from the store with this registry.
    pub(crate) fn is_of(&self, registry: &Arc<Snapshots>) -> bool {
        Arc::ptr_eq(&self.0.registry, registry)
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            "" => write!(f, "Snapshot({})", self.0.seq),
            name => write!(f, "Snapshot({} {name:?})", self.0.seq),
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut held = self.registry.held();
        if let Some(all) = held.get_mut(&self.seq) {
            all.retain(|one| one.id != self.id);
            if all.is_empty() {
                held.remove(&self.seq);
            }
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn jobs_see_held_snapshots_and_the_frontier() {
        let r = Arc::new(Snapshots::default());
        r.publish(5);
        let a = Snapshot::take(&r, "a", 0);
        let b = a.clone();
        r.publish(9);
        let c = Snapshot::take(&r, "", 3);
        assert_eq!(r.for_job(), vec![5, 9]);
        r.publish(12);
        assert_eq!(r.for_job(), vec![5, 9, 12]);
        let all = r.all();
        assert_eq!(all.iter().map(|(seq, h)| (*seq, &*h.name)).collect::<Vec<_>>(), [(5, "a"), (9, "")]);
        assert!(all[0].1.id == a.id() && all[1].1.id == c.id() && a.id() != c.id());
        assert_eq!(format!("{a:?} {c:?}"), "Snapshot(5 \"a\") Snapshot(9)");
        drop(a);
        assert_eq!(r.for_job(), vec![5, 9, 12]);
        drop((b, c));
        assert_eq!(r.for_job(), vec![12]);
    }
}
