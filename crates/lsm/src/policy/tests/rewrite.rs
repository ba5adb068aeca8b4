//! Manual compactions that rewrite the last level.

use super::*;

/// A rewriting walk takes each table of the last level once, and again if its job failed.
#[test]
fn compact_range_that_rewrites_takes_each_table_once() {
    let at = |n: u64, from: u32| file(n, from, from + 5, 1, 1000);
    let of = |tables: Vec<Arc<FileMeta>>| Version::with_files(0, vec![vec![], vec![], tables]);
    let policy = options(FileChoice::default());
    let mut walk = ManualRange::new(None, Some(&user_key(25))).rewriting();
    let mut step = |version: &Version| match free(version, |facts| {
        policy.manual(facts, &mut walk, &|_| false)
    }) {
        ManualStep::Start(c) => {
            assert_eq!((c.level, c.output_level, c.reason), (2, 2, Reason::Rewrite));
            let numbers = c.input_files().map(|(_, f)| f.number).collect::<Vec<_>>();
            (numbers, walk.rewritten(), walk.to_rewrite(version).0, walk.rewritten_to().map(<[u8]>::to_vec))
        }
        ManualStep::Wait => panic!("nothing is in the way"),
        ManualStep::Done => (Vec::new(), walk.rewritten(), walk.to_rewrite(version).0, None),
    };
    let before = of(vec![at(1, 10), at(2, 20), at(3, 30)]);
    assert_eq!(step(&before), (vec![1], 0, 1, None));
    assert_eq!(step(&before), (vec![1], 0, 1, None), "its job came to nothing");
    let after = of(vec![at(4, 10), at(2, 20), at(3, 30)]);
    assert_eq!(step(&after), (vec![2], 1, 0, Some(user_key(15).to_vec())));
    let last = of(vec![at(4, 10), at(5, 20), at(3, 30)]);
    let (none, rewritten, ..) = step(&last);
    assert_eq!((none, rewritten), (Vec::new(), 2), "the third is not in the range");
}

/// A table that is too long for the free space is cut in half, and its parts are taken instead. A
/// short table, or one with one key, is not cut.
#[test]
fn a_rewrite_splits_tables_longer_than_the_free_space() {
    let of = |tables: Vec<Arc<FileMeta>>| Version::with_files(0, vec![vec![], vec![], tables]);
    let policy = options(FileChoice::default());
    let mut walk = ManualRange::new(None, None).rewriting();
    let step = |walk: &mut ManualRange, version: &Version| match free(version, |facts| {
        policy.manual(facts, walk, &|_| false)
    }) {
        ManualStep::Start(c) => *c,
        other => panic!("{other:?}"),
    };
    let before = of(vec![file(1, 10, 15, 1, 1 << 20), file(2, 20, 25, 1, 1 << 20)]);
    let whole = step(&mut walk, &before);
    assert!(walk.cut(&whole, 100 << 10).is_none(), "parts would be too short");
    let cut = walk.cut(&whole, 300 << 10).unwrap();
    assert_eq!((cut.reason, cut.file_bytes), (Reason::Cut, 150 << 10));
    let mut cutter = policy.cutter(&cut, &before);
    let open = |raw_bytes| OutputSize { raw_bytes, file_bytes: 1, is_empty: false };
    assert!(!cutter.cut_before(&user_key(11), open((150 << 10) - 1)));
    assert!(cutter.cut_before(&user_key(11), open(150 << 10)));
    let after =
        of(vec![file(3, 10, 12, 1, 1 << 19), file(4, 13, 15, 1, 1 << 19), file(2, 20, 25, 1, 1 << 20)]);
    let first = step(&mut walk, &after);
    assert_eq!(first.input_files().map(|(_, f)| f.number).collect::<Vec<_>>(), [3]);
    assert_eq!(walk.rewritten(), 0, "a cut rewrites nothing");
    let mut one_key = ManualRange::new(None, None).rewriting();
    let single = step(&mut one_key, &of(vec![file(5, 10, 10, 1, 1 << 20)]));
    assert!(one_key.cut(&single, 300 << 10).is_none());
}
