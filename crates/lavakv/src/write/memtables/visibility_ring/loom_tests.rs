//! Every interleaving of writers (registration, insert, publication), a rotation, and a reader.
//!
//! The ring has two slots, so a third writer finds it full.

use super::*;
use base::sync::model::check;
use base::sync::model::loom::thread;

const WRITES: u64 = 3;

struct Store {
    /// The last assigned sequence.
    writer: Mutex<SeqNo, rank::Writer>,
    order: VisibilityRing,
    snapshots: Arc<Snapshots>,
    /// The sequences in it.
    memtable: [AtomicBool; WRITES as usize + 1],
}

impl Store {
    fn new() -> Arc<Store> {
        let snapshots = Arc::new(Snapshots::default());
        Arc::new(Store {
            writer: Mutex::new(0),
            order: VisibilityRing::new(&snapshots, || ()),
            snapshots,
            memtable: std::array::from_fn(|_| AtomicBool::new(false)),
        })
    }

    fn begin(&self) -> InFlightInsert<'_> {
        let mut last = lock(&self.writer);
        assert!(self.order.make_place(0));
        *last += 1;
        self.order.begin(*last)
    }

    fn write(&self) {
        let under_way = self.begin();
        let seq = under_way.last;
        self.memtable[seq as usize].store(true, Ordering::Relaxed);
        under_way.done();
        assert!(self.order.wait_for(seq, 0));
        assert!(self.has_all_up_to(self.snapshots.visible().max(seq)), "a write returns when it is visible");
    }

    fn has_all_up_to(&self, seq: SeqNo) -> bool {
        (1..=seq).all(|seq| self.memtable[seq as usize].load(Ordering::Relaxed))
    }

    fn rotate(&self) {
        let last = lock(&self.writer);
        assert!(self.order.wait_for_inserts(0));
        assert!(self.has_all_up_to(*last), "a frozen memtable has no insert under way");
        assert_eq!(self.snapshots.visible(), *last);
    }

    fn read(&self) {
        let seq = self.snapshots.visible();
        assert!(self.has_all_up_to(seq), "{seq} is visible, and not all before it is there");
    }
}

fn spawn(store: &Arc<Store>, work: fn(&Store)) -> thread::JoinHandle<()> {
    let store = store.clone();
    thread::spawn(move || work(&store))
}

#[test]
fn loom_three_writers_become_visible_in_order() {
    check(2, || {
        let store = Store::new();
        let threads = [spawn(&store, Store::write), spawn(&store, Store::write)];
        store.write();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(store.snapshots.visible(), WRITES);
    });
}

#[test]
fn loom_a_reader_sees_the_first_of_the_writes_without_a_gap() {
    check(2, || {
        let store = Store::new();
        let threads = [spawn(&store, Store::write), spawn(&store, Store::write), spawn(&store, Store::read)];
        store.read();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn loom_rotation_waits_for_in_flight_inserts() {
    check(3, || {
        let store = Store::new();
        let threads = [spawn(&store, Store::write), spawn(&store, Store::write)];
        store.rotate();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// An insert that never ends blocks no thread, and no later write becomes visible.
#[test]
fn loom_a_panicking_insert_fails_later_writes() {
    check(3, || {
        let store = Store::new();
        drop(store.begin());
        let behind = |store: &Store| {
            let under_way = store.begin();
            let seq = under_way.last;
            under_way.done();
            assert!(!store.order.wait_for(seq, 0));
        };
        let ends = |store: &Store| {
            let _last = lock(&store.writer);
            assert!(!store.order.wait_for_inserts(0));
        };
        let threads = [spawn(&store, behind), spawn(&store, ends)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(store.snapshots.visible(), 0);
    });
}

/// The same with a panic at any later moment.
#[test]
fn loom_a_sleeping_waiter_is_woken_by_a_panic() {
    check(3, || {
        let store = Store::new();
        let thread = spawn(&store, |store| drop(store.begin()));
        {
            let _last = lock(&store.writer);
            let is_over = store.order.wait_for_inserts(0);
            assert_eq!(is_over, *_last == 0);
        }
        thread.join().unwrap();
    });
}
