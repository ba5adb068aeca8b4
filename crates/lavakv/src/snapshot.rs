//! Snapshots: sequences that compaction must keep readable.
//!
//! A job copies the list, with the visible frontier added, under the same lock that registers snapshots. A snapshot
//! taken later has a sequence at or above that frontier, so the job never drops a version it needs.

use base::SeqNo;
use base::sync::lock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The registered snapshots and the visible frontier.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    held: Mutex<BTreeMap<SeqNo, Held>>,
    visible: AtomicU64,
}

#[derive(Debug)]
struct Held {
    count: usize,
    since_ns: u64,
}

impl Snapshots {
    fn held(&self) -> std::sync::MutexGuard<'_, BTreeMap<SeqNo, Held>> {
        lock(&self.held)
    }

    /// The highest sequence readers may see.
    pub fn visible(&self) -> SeqNo {
        self.visible.load(Ordering::Acquire)
    }

    /// Makes every sequence up to `seq` visible. Called in order, under the writer's lock.
    pub fn publish(&self, seq: SeqNo) {
        debug_assert!(seq >= self.visible());
        self.visible.store(seq, Ordering::Release);
    }

    /// The sequences a job must keep readable, ascending, the frontier last.
    pub fn for_job(&self) -> Vec<SeqNo> {
        let held = self.held();
        let visible = self.visible();
        let mut list: Vec<SeqNo> = held.keys().copied().filter(|&s| s < visible).collect();
        list.push(visible);
        list
    }

    /// Number of snapshots held, and the age of the oldest in nanoseconds.
    pub fn pressure(&self, now_ns: u64) -> (usize, u64) {
        let held = self.held();
        let oldest = held.values().map(|h| now_ns.saturating_sub(h.since_ns)).max().unwrap_or(0);
        (held.values().map(|h| h.count).sum(), oldest)
    }
}

/// A consistent view of the whole store at one moment. Cheap to clone; the last clone lets go of it.
#[derive(Clone)]
pub struct Snapshot(Arc<Registered>);

struct Registered {
    seq: SeqNo,
    registry: Arc<Snapshots>,
}

impl Snapshot {
    pub(crate) fn take(registry: &Arc<Snapshots>, now_ns: u64) -> Self {
        let mut held = registry.held();
        let seq = registry.visible();
        held.entry(seq).or_insert(Held { count: 0, since_ns: now_ns }).count += 1;
        Snapshot(Arc::new(Registered { seq, registry: registry.clone() }))
    }

    /// The sequence of the last write it sees.
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
        write!(f, "Snapshot({})", self.0.seq)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut held = self.registry.held();
        if let Some(h) = held.get_mut(&self.seq) {
            h.count -= 1;
            if h.count == 0 {
                held.remove(&self.seq);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_see_held_snapshots_and_the_frontier() {
        let r = Arc::new(Snapshots::default());
        r.publish(5);
        let a = Snapshot::take(&r, 0);
        let b = a.clone();
        r.publish(9);
        let c = Snapshot::take(&r, 3);
        assert_eq!(r.for_job(), vec![5, 9]);
        r.publish(12);
        assert_eq!(r.for_job(), vec![5, 9, 12]);
        assert_eq!(r.pressure(10), (2, 10));
        drop(a);
        assert_eq!(r.for_job(), vec![5, 9, 12]);
        drop((b, c));
        assert_eq!(r.for_job(), vec![12]);
    }
}
