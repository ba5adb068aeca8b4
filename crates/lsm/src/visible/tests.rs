use super::empty::KeyRange;
use super::*;
use crate::model::{Append, History, Mix, user_key};
use crate::vec_iter::{Entry, VecIter};
use crate::{MergeOperator, MergingIterator};
use base::MAX_SEQ;
use base::key::encode;
use io::Rng;

/// A history spread over several sources, as memtables would be.
fn sources(
    rng: &mut Rng,
    history: &History,
) -> (Vec<Box<dyn InternalIterator>>, Vec<Arc<FragmentedRangeTombstones>>) {
    let (mut children, mut tombstones) = (Vec::<Box<dyn InternalIterator>>::new(), Vec::new());
    let mut after = 0;
    while after < history.last_seq() {
        let upto = (after + 1 + rng.below(60)).min(history.last_seq());
        let (points, ranges) = history.entries(after, upto);
        children.insert(0, Box::new(VecIter::new(Arc::new(points))));
        tombstones.push(Arc::new(FragmentedRangeTombstones::new(&ranges)));
        after = upto;
    }
    (children, tombstones)
}

#[test]
fn random_walks_agree_with_the_model() {
    for case in 0..1500u64 {
        let mut rng = Rng::new(case);
        let mix = Mix::random(&mut rng);
        let mut history = History::default();
        (0..rng.below(150)).for_each(|_| history.write(&mut rng, &mix));
        let (children, tombstones) = sources(&mut rng, &history);
        let mut options = VisibleOptions::at(rng.below(history.last_seq() + 2));
        options.operator = Some(Arc::new(Append));
        options.keys_only = rng.one_in(4);
        let bound = |rng: &mut Rng| rng.one_in(3).then(|| user_key(rng.below(mix.keys + 2)));
        (options.lower, options.upper) = (bound(&mut rng), bound(&mut rng));
        if rng.one_in(4) {
            let prefix = user_key(rng.below(mix.keys));
            options = options.with_prefix(&prefix[..1 + rng.below(2) as usize]);
        }
        let view: Vec<(Vec<u8>, Vec<u8>)> = history
            .view(options.snapshot)
            .into_iter()
            .filter(|(k, _)| options.lower.as_ref().is_none_or(|l| l <= k))
            .filter(|(k, _)| options.upper.as_ref().is_none_or(|u| k < u))
            .collect();
        let keys_only = options.keys_only;
        let iter = VisibleIterator::new(MergingIterator::new(children), tombstones, options);
        walk(&mut rng, iter, &view, mix.keys, keys_only, case);
    }
}

fn walk(
    rng: &mut Rng,
    mut iter: VisibleIterator,
    view: &[(Vec<u8>, Vec<u8>)],
    keys: u64,
    keys_only: bool,
    case: u64,
) {
    let mut at = usize::MAX;
    for _ in 0..60 {
        let valid = at < view.len();
        let key = user_key(rng.below(keys + 2));
        match rng.below(10) {
            0 => {
                iter.seek_to_first().unwrap();
                at = 0;
            }
            1 => {
                iter.seek_to_last().unwrap();
                at = view.len().wrapping_sub(1);
            }
            2 => {
                iter.seek(&key).unwrap();
                at = view.partition_point(|(k, _)| *k < key);
            }
            3 => {
                iter.seek_for_prev(&key).unwrap();
                at = view.partition_point(|(k, _)| *k <= key).wrapping_sub(1);
            }
            4..=6 if valid => {
                iter.next().unwrap();
                at += 1;
            }
            _ if valid => {
                iter.prev().unwrap();
                at = at.wrapping_sub(1);
            }
            _ => {}
        }
        assert_eq!(iter.valid(), at < view.len(), "case {case}");
        if let Some((k, v)) = view.get(at) {
            let v: &[u8] = if keys_only { &[] } else { v };
            assert_eq!((iter.key(), iter.value()), (k.as_slice(), v), "case {case}");
            assert!(matches!(iter.value_kind(), ValueKind::Value | ValueKind::Reference), "case {case}");
        }
    }
}

/// Ranges that walks found at one snapshot, each checked against its visible keys.
#[derive(Default)]
struct Found {
    visible: Vec<Vec<u8>>,
    ranges: base::sync::Mutex<Vec<KeyRange>, base::sync::rank::Outside>,
    used: std::sync::atomic::AtomicU64,
}

impl EmptyRanges for Found {
    fn around(&self, user_key: &[u8], _: SeqNo) -> Option<KeyRange> {
        let found = base::sync::lock(&self.ranges).iter().find(|range| range.contains(user_key)).cloned();
        self.used.fetch_add(u64::from(found.is_some()), std::sync::atomic::Ordering::Relaxed);
        found
    }

    fn found(&self, range: KeyRange, _: SeqNo, keys: u64) {
        let seen = self.visible.iter().find(|key| range.contains(key));
        assert_eq!(seen, None, "{keys} keys passed in {range:?}");
        base::sync::lock(&self.ranges).push(range);
    }
}

#[test]
fn known_empty_ranges_do_not_change_results() {
    let (mut ranges, mut used) = (0, 0);
    for case in 0..300u64 {
        let mut rng = Rng::new(case);
        let range = rng.below(2);
        let mix = Mix { keys: 400, put: 2, reference: 0, delete: 30, merge: 0, range, single_keys: 0 };
        let mut history = History::default();
        (0..rng.below(1200)).for_each(|_| history.write(&mut rng, &mix));
        let snapshot = rng.below(history.last_seq() + 2);
        let visible = history.view(snapshot).into_keys().collect();
        let found = Arc::new(Found { visible, ..Found::default() });
        for _ in 0..4 {
            let (children, tombstones) = sources(&mut rng, &history);
            let mut options = VisibleOptions { empty: Some(found.clone()), ..VisibleOptions::at(snapshot) };
            let bound = |rng: &mut Rng| rng.one_in(3).then(|| user_key(rng.below(mix.keys + 2)));
            (options.lower, options.upper) = (bound(&mut rng), bound(&mut rng));
            let view: Vec<(Vec<u8>, Vec<u8>)> = history
                .view(snapshot)
                .into_iter()
                .filter(|(k, _)| options.lower.as_ref().is_none_or(|l| l <= k))
                .filter(|(k, _)| options.upper.as_ref().is_none_or(|u| k < u))
                .collect();
            let iter = VisibleIterator::new(MergingIterator::new(children), tombstones, options);
            walk(&mut rng, iter, &view, mix.keys, false, case);
        }
        ranges += base::sync::lock(&found.ranges).len();
        used += found.used.load(std::sync::atomic::Ordering::Relaxed);
    }
    assert!(ranges > 1000 && used > 1000, "{ranges} ranges found, {used} used");
}

fn over(entries: Vec<Entry>, options: VisibleOptions) -> VisibleIterator<VecIter> {
    VisibleIterator::new(VecIter::new(Arc::new(entries)), Vec::new(), options)
}

#[test]
fn hot_keys_cost_a_seek_and_not_a_step_for_each_version() {
    let mut entries = Vec::new();
    for user in [b"a", b"b", b"c"] {
        entries.extend((1..=10_000).rev().map(|s| (encode(user, s, ValueKind::Value), vec![user[0]])));
    }
    for snapshot in [5, 5_000, 10_000] {
        let mut iter = over(entries.clone(), VisibleOptions::at(snapshot));
        let mut seen: Vec<u8> = Vec::new();
        iter.seek_to_first().unwrap();
        while iter.valid() {
            assert_eq!(iter.seq(), snapshot);
            seen.extend(iter.key());
            iter.next().unwrap();
        }
        iter.seek_to_last().unwrap();
        while iter.valid() {
            assert_eq!(iter.seq(), snapshot);
            seen.extend(iter.key());
            iter.prev().unwrap();
        }
        assert_eq!(seen, b"abccba");
        assert!(iter.hidden_entries() < 150, "{} entries stepped over", iter.hidden_entries());
    }
}

struct Panics;
impl MergeOperator for Panics {
    fn full_merge(&self, _: &[u8], _: Option<&[u8]>, _: &[&[u8]], _: &mut Vec<u8>) -> Result<()> {
        panic!("the operator's own bug");
    }
}

struct Upper;
impl ReferenceResolver for Upper {
    fn resolve(&self, _: &[u8], seq: SeqNo, _: ValueKind, r: &[u8], out: &mut Vec<u8>) -> Result<()> {
        assert_eq!(seq, 1);
        out.extend(r.to_ascii_uppercase());
        Ok(())
    }
}

#[test]
fn merge_operands_need_a_working_operator_and_resolver() {
    let entries = vec![
        (encode(b"k", 2, ValueKind::Merge), b"+x".to_vec()),
        (encode(b"k", 1, ValueKind::Reference), b"ref".to_vec()),
    ];
    let mut options = VisibleOptions::at(9);
    assert_eq!(over(entries.clone(), options.clone()).seek(b"k").unwrap_err().kind(), ErrorKind::Unsupported);
    options.operator = Some(Arc::new(Append));
    assert_eq!(over(entries.clone(), options.clone()).seek(b"k").unwrap_err().kind(), ErrorKind::Unsupported);
    options.resolver = Some(Arc::new(Upper));
    let mut iter = over(entries.clone(), options.clone());
    iter.seek(b"k").unwrap();
    assert_eq!((iter.value(), iter.seq()), (&b"REF+x"[..], 2));
    iter.seek_to_last().unwrap();
    assert_eq!((iter.value(), iter.seq()), (&b"REF+x"[..], 2));
    options.operator = Some(Arc::new(Panics));
    let mut iter = over(entries, options);
    assert_eq!(iter.seek_to_first().unwrap_err().kind(), ErrorKind::UserCallback);
    assert!(!iter.valid());
}

#[test]
fn unknown_kinds_are_corruption() {
    let mut bad = encode(b"k", 2, ValueKind::Value);
    bad[1] = ValueKind::Prepare as u8;
    let mut iter = over(vec![(bad, Vec::new())], VisibleOptions::at(9));
    assert!(iter.seek_to_first().unwrap_err().is_corruption());
    assert!(iter.seek_to_last().unwrap_err().is_corruption());
}

#[test]
fn prefix_end_is_the_next_key_after_the_prefix() {
    assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
    assert_eq!(prefix_end(b"a\xff\xff"), Some(b"b".to_vec()));
    assert_eq!(prefix_end(b"\xff"), None);
    assert_eq!(prefix_end(b""), None);
}

/// A source with a lying index: it reports that its unreadable part ends at the first key, or
/// begins at the last.
struct Liar {
    inner: VecIter,
    /// The unreadable user key.
    bad: Vec<u8>,
    lies: Gap,
}

impl Liar {
    fn met(&self) -> Result<()> {
        match self.inner.valid() && key::user_key(self.inner.key()) == self.bad {
            true => Err(Error::corruption("a block that cannot be read")),
            false => Ok(()),
        }
    }
}

impl InternalIterator for Liar {
    fn valid(&self) -> bool {
        self.inner.valid()
    }
    fn seek_to_first(&mut self) -> Result<()> {
        self.inner.seek_to_first().and_then(|()| self.met())
    }
    fn seek_to_last(&mut self) -> Result<()> {
        self.inner.seek_to_last().and_then(|()| self.met())
    }
    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.inner.seek(target).and_then(|()| self.met())
    }
    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        self.inner.seek_for_prev(target).and_then(|()| self.met())
    }
    fn next(&mut self) -> Result<()> {
        self.inner.next().and_then(|()| self.met())
    }
    fn prev(&mut self) -> Result<()> {
        self.inner.prev().and_then(|()| self.met())
    }
    fn gap(&self) -> Option<Gap> {
        Some(self.lies.clone())
    }
    fn key(&self) -> &[u8] {
        self.inner.key()
    }
    fn value(&self) -> &[u8] {
        self.inner.value()
    }
}

/// A scan that continues after damage never moves back, and ends, whatever gap the index reports.
#[test]
fn scans_past_damage_never_move_backward() {
    for lie in 0..10u8 {
        for bad in 0..10u8 {
            for forward in [true, false] {
                let entries: Vec<Entry> =
                    (0..10u8).map(|i| (encode(&[b'a' + i], 5, ValueKind::Value), vec![i])).collect();
                let at = encode(&[b'a' + lie], 5, ValueKind::Value);
                let source = Liar {
                    inner: VecIter::new(Arc::new(entries)),
                    bad: vec![b'a' + bad],
                    lies: Gap { first: at.clone(), last: at },
                };
                let mut iter = VisibleIterator::new(source, Vec::new(), VisibleOptions::at(MAX_SEQ));
                let mut moved = if forward { iter.seek_to_first() } else { iter.seek_to_last() };
                let (mut seen, mut skips, mut goes_on) = (Vec::new(), 0, true);
                while goes_on {
                    while goes_on && moved.is_err() {
                        skips += 1;
                        assert!(skips < 20, "it goes on for ever: {bad} cannot be read, the gap is at {lie}");
                        let skipped = iter.skip_gap(forward);
                        goes_on = skipped.as_ref().map_or(true, |skipped| *skipped);
                        moved = skipped.map(drop);
                    }
                    goes_on &= iter.valid();
                    if goes_on {
                        seen.push(iter.key()[0] - b'a');
                        moved = if forward { iter.next() } else { iter.prev() };
                    }
                }
                if !forward {
                    seen.reverse();
                }
                assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}: it goes back");
                assert!(!seen.contains(&bad), "{seen:?}");
                // Going backward, the entry before a key decides the key, so the neighbor of the
                // bad key may be missing.
                let passed = |key: &u8| *key != lie && if forward { *key < bad } else { *key > bad + 1 };
                assert!((0..10).filter(passed).all(|key| seen.contains(&key)), "{seen:?}");
                if lie == bad {
                    assert_eq!(seen.len(), 9, "what tells the truth costs its own key");
                }
            }
        }
    }
}
