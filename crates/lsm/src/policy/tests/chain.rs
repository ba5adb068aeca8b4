use super::*;

/// Builds a tree with this many tables of 40 entries in each level, over keys that no other level
/// has.
fn tree(levels: &[(u32, u32)]) -> Store<Leveled> {
    let mut store = Store::new(1, options(FileChoice::MinOverlap));
    for (level, tables) in levels {
        for table in 0..*tables {
            let entry = |i| Entry { key: level * 1_000_000 + table * 100 + i, seq: 1, tombstone: false };
            let meta = store.table((0..40).map(entry).collect());
            store.apply(vec![Record::AddFile { family: 0, level: *level, meta }]);
        }
    }
    store
}

/// A chain continues as long as the next level is over its target, and no further.
#[test]
fn compaction_debt_counts_consecutive_full_levels() {
    // Targets follow from the last level, the largest: 64 kB at least. A table has 4 kB.
    let chain = |levels: &[(u32, u32)], from| {
        let store = tree(levels);
        let targets = store.policy.level_targets(store.version(), &store.set_aside);
        (targets.base_level, store.policy.chain_len(&store.facts(), from))
    };
    assert_eq!(chain(&[(0, 1), (6, 10)], 0), (6, 1), "the last level never has too much");
    assert_eq!(chain(&[(0, 1), (5, 10), (6, 100)], 0), (5, 1), "within its target");
    assert_eq!(chain(&[(0, 1), (5, 40), (6, 100)], 0), (5, 2), "the base level is full as well");
    let two = [(0, 1), (4, 40), (5, 400), (6, 1000)];
    assert_eq!(chain(&two, 0), (4, 3));
    assert_eq!(chain(&two, 4), (4, 2));
    assert_eq!(chain(&two, 5), (4, 1));
    assert_eq!(chain(&[(0, 1), (4, 10), (5, 400), (6, 1000)], 0), (4, 1), "the chain breaks at level 4");
}
