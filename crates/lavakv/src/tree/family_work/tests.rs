use super::*;

#[test]
fn settled_sum_follows_settling_changed_and_dropped_trees() {
    let work = FamilyWork::default();
    let tree = |last_bytes| SettledTree { last_bytes, excess_bytes: 1 };
    work.join_tree(1, Some(tree(10)));
    work.join_tree(2, None);
    assert_eq!(work.with_work(), (vec![2], tree(10)));
    work.change_tree(2, Some(tree(5)));
    assert_eq!(work.with_work(), (vec![], SettledTree { last_bytes: 15, excess_bytes: 2 }));
    work.change_tree(1, Some(tree(20)));
    work.change_tree(2, None);
    assert_eq!(work.with_work(), (vec![2], tree(20)));
    work.leave(1);
    work.leave(2);
    assert_eq!(work.with_work(), (vec![], SettledTree::default()));
    // A dropped family does not come back.
    work.change_tree(1, Some(tree(20)));
    assert_eq!(work.with_work(), (vec![], SettledTree::default()));
}

#[test]
fn frozen_memtables_or_passed_tombstones_count_as_work() {
    let work = FamilyWork::default();
    let tree = |last_bytes| SettledTree { last_bytes, excess_bytes: 0 };
    (1..=3).for_each(|id| work.join_tree(id, Some(tree(1 << (4 * id)))));
    work.set_frozen(3, true);
    work.set_passed(1, true);
    work.set_passed(3, true);
    assert_eq!(work.with_work(), (vec![1, 3], tree(0x100)));
    work.set_passed(3, false);
    work.set_frozen(3, false);
    assert_eq!(work.with_work(), (vec![1], tree(0x1100)));
}
