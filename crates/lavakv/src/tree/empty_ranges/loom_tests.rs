//! Every interleaving of a put with a reader that finds the range of its key empty, reports it
//! twice and uses it.

use super::*;
use base::sync::model::loom::thread;
use base::sync::model::{RwLock, check, read, write};

const KEY: &[u8] = b"k";

struct Store {
    ranges: EmptyRanges,
    snapshots: Arc<Snapshots>,
    /// Stands for the read state, which a put pins.
    read_state: RwLock<(), rank::ReadState>,
    /// True if the memtable has the key.
    has_key: AtomicBool,
}

impl Store {
    /// Makes a put with sequence `seq`, in the order of `write::memtables`.
    fn put(&self, seq: SeqNo) {
        self.snapshots.register(seq);
        drop(read(&self.read_state));
        self.ranges.put(KEY);
        self.has_key.store(true, Ordering::Release);
        self.snapshots.publish(seq);
    }

    /// Walks over the range. Returns whether it used a known one.
    fn walk(&self) -> bool {
        let snapshot = self.snapshots.visible();
        let sees = snapshot > 0 && self.has_key.load(Ordering::Acquire);
        if self.ranges.around(KEY, snapshot).is_some() {
            assert!(!sees, "snapshot {snapshot} sees the key in an empty range");
            return true;
        }
        if !sees {
            let range = KeyRange { low: b"a".to_vec(), high: None };
            self.ranges.found(&range, (snapshot, KEYS_MIN), || drop(write(&self.read_state)));
        }
        false
    }
}

#[test]
fn loom_a_put_ends_a_known_range_before_a_snapshot_sees_it() {
    check(3, || {
        let (ranges, snapshots) = (EmptyRanges::default(), Arc::default());
        ranges.join(&snapshots);
        let has_key = AtomicBool::new(false);
        let store = Arc::new(Store { ranges, snapshots, read_state: RwLock::new(()), has_key });
        let writer = {
            let store = store.clone();
            thread::spawn(move || store.put(1))
        };
        for _ in 0..3 {
            store.walk();
        }
        writer.join().unwrap();
        assert!(!store.walk());
    });
}
