//! Every interleaving of a rotation with a reader that asks for the families with changes in
//! memory.

use super::*;
use base::sync::model::atomic::{AtomicBool, Ordering};
use base::sync::model::check;
use base::sync::model::loom::thread;
use std::sync::Arc;

/// A family whose change is visible and in no table is found during its rotation.
#[test]
fn loom_a_changed_family_is_found_during_memtable_rotation() {
    check(3, || {
        let work = Arc::new(FamilyWork::default());
        let is_visible = Arc::new(AtomicBool::new(false));
        let writer = {
            let (work, is_visible) = (work.clone(), is_visible.clone());
            thread::spawn(move || {
                work.changes(1);
                is_visible.store(true, Ordering::Release);
                work.set_frozen(1, true);
                work.is_unchanged(1);
            })
        };
        for _ in 0..2 {
            let must_be_found = is_visible.load(Ordering::Acquire);
            assert!(!must_be_found || work.unflushed() == [1], "the family is not found");
        }
        writer.join().unwrap();
        assert_eq!((work.unflushed(), work.frozen()), (vec![1], vec![1]));
    });
}
