use super::*;
use base::key::encode;
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind};
use io::Rng;
use lsm::VisibleOptions;
use lsm::vec_iter::VecIter;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use table::Reference;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Values of references, by blob id; keeps what it was asked.
#[derive(Default)]
struct Store {
    values: BTreeMap<u64, Vec<u8>>,
    /// Nothing is read while the caller does something else.
    waits_for_each: bool,
    /// These cannot be read at all.
    damaged: BTreeSet<u64>,
    /// Blob ids of each request, and whether it was begun before it was waited for.
    requests: Mutex<Vec<(bool, Vec<u64>)>, rank::Noted>,
    /// Blob ids of values that went to the cache.
    kept: Mutex<Vec<u64>, rank::Noted>,
}

impl Store {
    fn value(&self, entry: &Entry<'_>) -> Result<BlockSlice> {
        let id = Reference::decode(entry.value)?.blob_id;
        if self.damaged.contains(&id) {
            return Err(Error::corruption("damaged"));
        }
        Ok(BlockSlice::from(&self.values[&id][..]))
    }

    fn take_requests(&self) -> Vec<Vec<u64>> {
        std::mem::take(&mut *lock(&self.requests)).into_iter().map(|(_, ids)| ids).collect()
    }

    fn take_kept(&self) -> Vec<u64> {
        std::mem::take(&mut *lock(&self.kept))
    }

    fn note(&self, begun: bool, entries: &[Entry<'_>]) -> Vec<u64> {
        let ids: Vec<u64> = entries.iter().map(|e| Reference::decode(e.value).unwrap().blob_id).collect();
        lock(&self.requests).push((begun, ids.clone()));
        ids
    }

    /// Every other value comes from the cache already.
    fn give(&self, entries: &[Entry<'_>], put: Put<'_>) {
        for (nth, entry) in entries.iter().enumerate() {
            let id = Reference::decode(entry.value).unwrap().blob_id;
            if let Ok(value) = self.value(entry) {
                put(
                    nth,
                    Found {
                        value,
                        keep_at: id.is_multiple_of(2).then_some(CacheKey { file: id, offset: 0 }),
                    },
                );
            }
        }
    }
}

/// What is begun, by blob ids. It is an error to wait for anything else.
struct Begun(Arc<Store>, VecDeque<Vec<u64>>);

impl ReadAhead for Begun {
    fn begin(&mut self, entries: &[Entry<'_>]) {
        self.1.push_back(self.0.note(true, entries));
        assert!(self.1.len() <= 2, "never more than two windows");
    }

    fn finish(&mut self, entries: &[Entry<'_>], put: Put<'_>) {
        let ids: Vec<u64> = entries.iter().map(|e| Reference::decode(e.value).unwrap().blob_id).collect();
        assert_eq!(self.1.pop_front(), Some(ids), "waits for what it has begun");
        self.0.give(entries, put);
    }

    fn give_up(&mut self) {
        self.1.clear();
    }
}

impl FetchValues for Store {
    fn read(&self, entry: &Entry<'_>) -> Result<BlockSlice> {
        self.note(false, &[*entry]);
        self.value(entry)
    }

    fn read_many(&self, entries: &[Entry<'_>], put: Put<'_>) {
        self.note(false, entries);
        self.give(entries, put);
    }

    fn ahead(self: Arc<Self>) -> Option<Box<dyn ReadAhead>> {
        (!self.waits_for_each).then(|| Box::new(Begun(self, VecDeque::new())) as Box<dyn ReadAhead>)
    }

    fn keep(&self, at: CacheKey, value: &BlockSlice) {
        assert_eq!(**value, self.values[&at.file]);
        lock(&self.kept).push(at.file);
    }
}

/// Entries in memory, one of which may fail to be read.
struct Disk {
    entries: VecIter,
    broken: Option<Vec<u8>>,
}

impl Disk {
    fn moved(&mut self) -> Result<()> {
        match &self.broken {
            Some(key) if self.entries.valid() && base::key::user_key(self.entries.key()) == key => {
                Err(Error::corruption("broken"))
            }
            _ => Ok(()),
        }
    }
}

impl InternalIterator for Disk {
    fn valid(&self) -> bool {
        self.entries.valid()
    }
    fn seek_to_first(&mut self) -> Result<()> {
        self.entries.seek_to_first().and_then(|()| self.moved())
    }
    fn seek_to_last(&mut self) -> Result<()> {
        self.entries.seek_to_last().and_then(|()| self.moved())
    }
    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.entries.seek(target).and_then(|()| self.moved())
    }
    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        self.entries.seek_for_prev(target).and_then(|()| self.moved())
    }
    fn next(&mut self) -> Result<()> {
        self.entries.next().and_then(|()| self.moved())
    }
    fn prev(&mut self) -> Result<()> {
        self.entries.prev().and_then(|()| self.moved())
    }
    fn key(&self) -> &[u8] {
        self.entries.key()
    }
    fn value(&self) -> &[u8] {
        self.entries.value()
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:05}").into_bytes()
}

/// `count` keys: so many in a hundred deleted, so many separated, and all with an older version beneath.
fn make(rng: &mut Rng, count: u64, (deleted, separated): (u64, u64), value_len: u64) -> (Disk, Store, Model) {
    let (mut entries, mut store, mut model) = (Vec::new(), Store::default(), Model::new());
    for n in 0..count {
        let mut value = vec![0; 1 + rng.below(value_len) as usize];
        rng.fill(&mut value);
        if rng.below(100) < deleted {
            entries.push((encode(&key(n), 2, ValueKind::Deletion), Vec::new()));
        } else if rng.below(100) < separated {
            let raw_len = value.len() as u64;
            let reference = Reference { blob_id: n, raw_len, stored_len: raw_len + 20 };
            entries.push((encode(&key(n), 2, ValueKind::Reference), reference.encode()));
            store.values.insert(n, value.clone());
            model.insert(key(n), value);
        } else {
            entries.push((encode(&key(n), 2, ValueKind::Value), value.clone()));
            model.insert(key(n), value);
        }
        entries.push((encode(&key(n), 1, ValueKind::Value), b"old".to_vec()));
    }
    (Disk { entries: VecIter::new(Arc::new(entries)), broken: None }, store, model)
}

fn iterate(disk: Disk, store: &Arc<Store>, options: VisibleOptions, reach: Reach) -> Prefetch<Disk> {
    Prefetch::new(VisibleIterator::new(disk, Vec::new(), options), store.clone(), reach)
}

const UNKNOWN: ReadCosts = ReadCosts { gap_bytes: None, window_bytes: None };
const REACH: Reach = Reach { first: WINDOW_MIN, bytes_max: BYTES_MAX, expected: 0 };

fn check(iter: &Prefetch<Disk>, store: &Store, at: Option<(&Vec<u8>, &Vec<u8>)>, ask: bool) {
    assert_eq!(iter.valid(), at.is_some());
    let Some((key, value)) = at else { return };
    assert_eq!(iter.key(), key);
    if !ask {
        return;
    }
    let id: u64 = std::str::from_utf8(&key[3..]).unwrap().parse().unwrap();
    if store.damaged.contains(&id) && store.values.contains_key(&id) {
        assert_eq!(iter.value().unwrap_err().kind(), ErrorKind::Corruption);
    } else {
        assert_eq!(iter.value().unwrap(), value);
        assert_eq!(iter.value().unwrap(), value, "asked again");
    }
    assert_eq!(iter.key(), key);
}

#[test]
fn random_moves_agree_with_a_model() {
    for case in 0..400u64 {
        let mut rng = Rng::new(case);
        let count = 1 + rng.below(300);
        let shares = (rng.below(40), [0, 5, 50, 95, 100][rng.below(5) as usize]);
        let value_len = [40, 700, 200_000][rng.below(3) as usize].min(if count > 60 { 700 } else { 200_000 });
        let (disk, mut store, mut model) = make(&mut rng, count, shares, value_len);
        store.waits_for_each = rng.one_in(4);
        if rng.one_in(3) {
            store.damaged = (0..count).filter(|_| rng.one_in(10)).collect();
        }
        let mut options = VisibleOptions::at(base::MAX_SEQ);
        options.lower = rng.one_in(3).then(|| key(rng.below(count)));
        options.upper = rng.one_in(3).then(|| key(rng.below(count)));
        model.retain(|k, _| {
            options.lower.as_ref().is_none_or(|l| l <= k) && options.upper.as_ref().is_none_or(|u| k < u)
        });
        let reach = Reach {
            first: [0, 1, WINDOW_MIN, WINDOW_MAX][rng.below(4) as usize],
            bytes_max: [1, 5000, BYTES_MAX][rng.below(3) as usize],
            expected: [0, 0, 1, 3, 50, 700][rng.below(6) as usize],
        };
        let store = Arc::new(store);
        let mut iter = iterate(disk, &store, options, reach);
        walk(&mut rng, &mut iter, &store, &model, count);
        let highest = store.take_requests().into_iter().flatten().max();
        assert!(highest.is_none_or(|id| model.contains_key(&key(id))), "read beyond the border");
    }
}

/// Runs in one direction, of random lengths and appetites for values, with seeks and turns between them.
fn walk(rng: &mut Rng, iter: &mut Prefetch<Disk>, store: &Store, model: &Model, count: u64) {
    let mut at: Option<Vec<u8>> = None;
    for _ in 0..40 {
        let target = key(rng.below(count + 2));
        match (rng.below(6), &at) {
            (0, _) => iter.seek(&target).map(|()| at = model.range(target..).next().map(|e| e.0.clone())),
            (1, _) => {
                let before = model.range(..=target.clone()).next_back();
                iter.seek_for_prev(&target).map(|()| at = before.map(|e| e.0.clone()))
            }
            (2 | 3, None) => iter.seek_to_first().map(|()| at = model.keys().next().cloned()),
            (4 | 5, None) => iter.seek_to_last().map(|()| at = model.keys().next_back().cloned()),
            _ => Ok(()),
        }
        .unwrap();
        let (forward, appetite) = (rng.one_in(2), rng.below(4));
        let length_max = if rng.one_in(5) { 200 } else { 6 };
        for _ in 0..rng.below(length_max) {
            check(iter, store, at.as_ref().map(|k| model.get_key_value(k).unwrap()), rng.below(3) < appetite);
            let Some(now) = &at else { break };
            let after = (std::ops::Bound::Excluded(now.clone()), std::ops::Bound::Unbounded);
            at = if forward {
                iter.next().map(|()| model.range(after).next().map(|e| e.0.clone()))
            } else {
                iter.prev().map(|()| model.range(..now.clone()).next_back().map(|e| e.0.clone()))
            }
            .unwrap();
        }
    }
}

/// The lengths of the requests of a scan in which the values that `wanted` says are asked for.
fn requests(
    iter: &mut Prefetch<Disk>,
    store: &Store,
    steps: usize,
    wanted: impl Fn(usize) -> bool,
) -> Vec<usize> {
    for nth in 0..steps {
        if wanted(nth) {
            iter.value().unwrap();
        }
        iter.next().unwrap();
    }
    store.take_requests().iter().map(Vec::len).collect()
}

#[test]
fn windows_grow_while_values_are_asked_for() {
    let (disk, store, _) = make(&mut Rng::new(1), 1000, (0, 100), 100);
    let store = Arc::new(store);
    let mut iter = iterate(disk, &store, VisibleOptions::at(base::MAX_SEQ), REACH);
    iter.seek_to_first().unwrap();
    assert_eq!(requests(&mut iter, &store, 300, |_| true), [1, 4, 8, 16, 32, 64, 128, 128, 256]);
    iter.seek(&key(500)).unwrap();
    assert_eq!(requests(&mut iter, &store, 10, |_| true), [1, 4, 8], "a seek begins anew");
    iter.seek(&key(10)).unwrap();
    assert_eq!(requests(&mut iter, &store, 500, |_| false), [0; 0], "nobody asked");
    iter.seek(&key(10)).unwrap();
    let reads = requests(&mut iter, &store, 300, |nth| nth % 3 == 0);
    assert_eq!((&reads[..3], reads.len()), (&[1, 2, 1][..], 100), "few are wanted: one by one");
    assert!(reads[2..].iter().all(|&n| n == 1));
}

#[test]
fn windows_hold_so_many_bytes() {
    let (disk, store, _) = make(&mut Rng::new(2), 300, (0, 100), 1);
    let store = Arc::new(store);
    // Every value counts with the 21 bytes of its record.
    let reach = Reach { first: WINDOW_MAX, bytes_max: 210, expected: 0 };
    let mut iter = iterate(disk, &store, VisibleOptions::at(base::MAX_SEQ), reach);
    iter.seek_to_first().unwrap();
    assert_eq!(requests(&mut iter, &store, 35, |_| true), [1, 10, 10, 10, 10, 10]);
    assert_eq!(Reach::of(&ReadOptions::default(), UNKNOWN), REACH);
    let options = ReadOptions { readahead_bytes: usize::MAX, expected_entries: 7, ..Default::default() };
    assert_eq!(
        (Reach::of(&options, UNKNOWN).bytes_max, Reach::of(&options, UNKNOWN).expected),
        (BYTES_MAX, 7)
    );
    assert_eq!(Reach::of(&ReadOptions { keys_only: true, ..options }, UNKNOWN).expected, 0);
    // Where the device moves more than a window while one read is waited for, windows are longer, within bounds.
    let window = |bytes| {
        let costs = ReadCosts { window_bytes: Some(bytes), ..UNKNOWN };
        Reach::of(&ReadOptions::default(), costs).bytes_max
    };
    assert_eq!([1, 3 << 19, u64::MAX].map(window), [BYTES_MAX, 3 << 19, 2 * BYTES_MAX]);
}

#[test]
fn an_error_ahead_is_told_when_the_scan_comes_there() {
    for (broken, backward) in [(40, false), (41, false), (40, true), (2, false), (3, false)] {
        let (mut disk, store, model) = make(&mut Rng::new(3), 80, (0, 100), 10);
        disk.broken = Some(key(broken));
        let store = Arc::new(store);
        let mut iter = iterate(disk, &store, VisibleOptions::at(base::MAX_SEQ), REACH);
        let (mut seen, mut error) = (0, None);
        if backward { iter.seek_to_last() } else { iter.seek_to_first() }.unwrap();
        while error.is_none() {
            assert_eq!(iter.value().unwrap(), model[iter.key()]);
            seen += 1;
            error = if backward { iter.prev() } else { iter.next() }.err();
        }
        // Backward, the view looks one entry further before it shows one.
        assert_eq!(seen, if backward { 79 - broken - 1 } else { broken });
        assert!(!iter.valid());
        iter.seek(&key(60)).unwrap();
        assert_eq!(iter.value().unwrap(), model[&key(60)]);
    }
}

#[test]
fn a_damaged_value_is_told_when_it_is_asked_for() {
    let (disk, mut store, model) = make(&mut Rng::new(4), 50, (0, 100), 10);
    store.damaged = BTreeSet::from([20, 21]);
    let store = Arc::new(store);
    let mut iter = iterate(disk, &store, VisibleOptions::at(base::MAX_SEQ), REACH);
    iter.seek_to_first().unwrap();
    for n in 0..50 {
        if n == 20 || n == 21 {
            assert_eq!(iter.value().unwrap_err().kind(), ErrorKind::Corruption);
        } else {
            assert_eq!(iter.value().unwrap(), model[&key(n)]);
        }
        assert_eq!(iter.key(), key(n));
        iter.next().unwrap();
    }
}

/// An iterator over so many separated values, and what stores them.
fn separated(count: u64, reach: Reach) -> (Prefetch<Disk>, Arc<Store>) {
    let (disk, store, _) = make(&mut Rng::new(5), count, (0, 100), 10);
    let store = Arc::new(store);
    (iterate(disk, &store, VisibleOptions::at(base::MAX_SEQ), reach), store)
}

#[test]
fn the_next_window_of_a_long_scan_is_read_meanwhile() {
    let (mut iter, store) = separated(2000, REACH);
    iter.seek_to_first().unwrap();
    for n in 0..1000 {
        assert_eq!(iter.value().unwrap(), store.values[&n]);
        iter.next().unwrap();
    }
    let all = std::mem::take(&mut *lock(&store.requests));
    let shape: Vec<(bool, usize)> = all.iter().map(|(begun, ids)| (*begun, ids.len())).collect();
    let short = [1, 4, 8, 16, 32, 64, 128].map(|len| (false, len));
    assert_eq!(shape, [&short[..], &[128, 256, 256, 256, 256].map(|len| (true, len))[..]].concat());
    // Begun in the middle of the window before, or as long as windows are full with the window before.
    let ids: Vec<u64> = all.into_iter().flat_map(|(_, ids)| ids).collect();
    assert_eq!(ids, (0..1405).collect::<Vec<u64>>(), "each once, in order");
}

#[test]
fn who_turns_or_seeks_waits_for_nothing_that_was_begun() {
    let reach = Reach { first: WINDOW_MAX, bytes_max: 2000, expected: 0 };
    for turn in [true, false] {
        let (mut iter, store) = separated(2000, reach);
        iter.seek_to_first().unwrap();
        for _ in 0..400 {
            iter.value().unwrap();
            iter.next().unwrap();
        }
        assert!(lock(&store.requests).iter().any(|(begun, _)| *begun));
        if turn { iter.prev() } else { iter.seek(&key(1000)) }.unwrap();
        let from = if turn { 399 } else { 1000 };
        for n in 0..300 {
            let at = if turn { from - n } else { from + n };
            assert_eq!((iter.key(), iter.value().unwrap()), (&key(at)[..], &store.values[&at][..]));
            if turn { iter.prev() } else { iter.next() }.unwrap();
        }
    }
}

#[test]
fn an_error_behind_the_next_window_is_told_behind_it() {
    let (mut disk, mut store, model) = make(&mut Rng::new(6), 500, (0, 100), 10);
    disk.broken = Some(key(400));
    store.damaged = BTreeSet::from([300, 399]);
    let store = Arc::new(store);
    let mut iter = iterate(disk, &store, VisibleOptions::at(base::MAX_SEQ), REACH);
    iter.seek_to_first().unwrap();
    for n in 0..400 {
        assert_eq!(iter.key(), key(n));
        match iter.value() {
            Ok(value) => assert_eq!(value, model[&key(n)]),
            Err(e) => assert!(e.is_corruption() && (n == 300 || n == 399)),
        }
        assert_eq!(iter.next().is_err(), n == 399);
    }
    assert!(!iter.valid());
    assert!(lock(&store.requests).iter().any(|(begun, ids)| *begun && ids.contains(&399)));
}

#[test]
fn what_is_expected_is_read_at_once_and_nothing_beyond() {
    let expecting = |expected| separated(1000, Reach { expected, ..REACH });
    let (mut iter, store) = expecting(50);
    for target in [0, 400] {
        iter.seek(&key(target)).unwrap();
        let mut lens = requests(&mut iter, &store, 49, |_| true);
        iter.value().unwrap();
        lens.extend(store.take_requests().iter().map(Vec::len));
        assert_eq!(lens, [50]);
    }
    iter.next().unwrap();
    assert_eq!(requests(&mut iter, &store, 10, |_| true), [100], "who goes on looks at more than he said");
    let (mut iter, store) = expecting(600);
    iter.seek_to_first().unwrap();
    assert_eq!(requests(&mut iter, &store, 599, |_| true), [256, 256, 88]);
    let (mut iter, store) = expecting(50);
    iter.seek_to_last().unwrap();
    iter.value().unwrap();
    assert_eq!(store.take_requests(), [(950..1000).rev().collect::<Vec<u64>>()]);
    iter.seek_to_first().unwrap();
    assert_eq!(requests(&mut iter, &store, 40, |_| false), [0; 0], "nobody asked");
}

#[test]
fn only_what_is_asked_for_goes_to_the_cache() {
    let (mut iter, store) = separated(100, Reach { expected: 50, ..REACH });
    iter.seek_to_first().unwrap();
    for n in 0..10 {
        iter.value().unwrap();
        iter.value().unwrap();
        if n == 5 {
            iter.next().unwrap();
        }
        iter.next().unwrap();
    }
    // 0 to 5 and 7 to 10; of these, the even ones are not there.
    assert_eq!(store.take_kept(), [0, 2, 4, 8, 10]);
}

#[test]
fn without_a_queue_each_window_is_waited_for() {
    let (disk, mut store, _) = make(&mut Rng::new(7), 2000, (0, 100), 10);
    store.waits_for_each = true;
    let store = Arc::new(store);
    let mut iter = iterate(disk, &store, VisibleOptions::at(base::MAX_SEQ), REACH);
    iter.seek_to_first().unwrap();
    assert_eq!(requests(&mut iter, &store, 600, |_| true), [1, 4, 8, 16, 32, 64, 128, 256, 256]);
}
