use super::*;
use base::key::encode;
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind};
use datadriven::TestCase;
use io::Rng;
use lsm::VisibleOptions;
use lsm::vec_iter::VecIter;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use table::Reference;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Values of references, by blob id. Records its requests.
#[derive(Default)]
struct Store {
    values: BTreeMap<u64, Vec<u8>>,
    /// No background reads.
    waits_for_each: bool,
    /// Blob ids of unreadable values.
    damaged: BTreeSet<u64>,
    /// Blob ids of each request, and whether it was started in the background.
    requests: Mutex<Vec<(bool, Vec<u64>)>, rank::Noted>,
    /// Blob ids of values that entered the cache.
    kept: Mutex<Vec<u64>, rank::Noted>,
}

impl Store {
    fn value(&self, entry: &ViewEntry<'_>) -> Result<BlockSlice> {
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

    fn note(&self, begun: bool, entries: &[ViewEntry<'_>]) -> Vec<u64> {
        let ids: Vec<u64> = entries.iter().map(|e| Reference::decode(e.value).unwrap().blob_id).collect();
        lock(&self.requests).push((begun, ids.clone()));
        ids
    }

    /// Every other value comes from the cache.
    fn give(&self, entries: &[ViewEntry<'_>], put: Put<'_>) {
        for (nth, entry) in entries.iter().enumerate() {
            let id = Reference::decode(entry.value).unwrap().blob_id;
            if let Ok(value) = self.value(entry) {
                put(
                    nth,
                    PrefetchedValue {
                        value,
                        keep_at: id.is_multiple_of(2).then_some(CacheKey { file: id, offset: 0 }),
                    },
                );
            }
        }
    }
}

/// Started reads, by blob ids. Waiting for any other read is an error.
struct StartedReads(Arc<Store>, VecDeque<Vec<u64>>);

impl ReadAhead for StartedReads {
    fn begin(&mut self, entries: &[ViewEntry<'_>]) {
        self.1.push_back(self.0.note(true, entries));
        assert!(self.1.len() <= 2, "never more than two windows");
    }

    fn finish(&mut self, entries: &[ViewEntry<'_>], put: Put<'_>) {
        let ids: Vec<u64> = entries.iter().map(|e| Reference::decode(e.value).unwrap().blob_id).collect();
        assert_eq!(self.1.pop_front(), Some(ids), "waits for what it has begun");
        self.0.give(entries, put);
    }

    fn give_up(&mut self) {
        self.1.clear();
    }
}

impl FetchValues for Store {
    fn read(&self, entry: &ViewEntry<'_>) -> Result<BlockSlice> {
        self.note(false, &[*entry]);
        self.value(entry)
    }

    fn read_many(&self, entries: &[ViewEntry<'_>], put: Put<'_>) {
        self.note(false, entries);
        self.give(entries, put);
    }

    fn ahead(self: Arc<Self>) -> Option<Box<dyn ReadAhead>> {
        (!self.waits_for_each).then(|| Box::new(StartedReads(self, VecDeque::new())) as Box<dyn ReadAhead>)
    }

    fn keep(&self, at: CacheKey, value: &BlockSlice) {
        assert_eq!(**value, self.values[&at.file]);
        lock(&self.kept).push(at.file);
    }
}

/// Entries in memory, one of which may be unreadable.
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

/// Creates `count` keys: percentages of deleted and of separated ones, all with an older version
/// below.
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

/// Moves in one direction, with random lengths and use of values, and with seeks and turns in
/// between.
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

/// A scan of a script. Each value is compared with the model.
struct Script {
    iter: Prefetch<Disk>,
    store: Arc<Store>,
    model: Model,
}

type Outcome<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Formats numbers as ascending or descending runs: `0-9, 40, 30-20`.
fn runs(numbers: &[u64]) -> String {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for &n in numbers {
        match runs.last_mut() {
            Some(run) if run.1 + 1 == n && run.0 <= run.1 => run.1 = n,
            Some(run) if n + 1 == run.1 && run.0 >= run.1 => run.1 = n,
            _ => runs.push((n, n)),
        }
    }
    let run = |(a, b): &(u64, u64)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    if runs.is_empty() { "none".into() } else { runs.iter().map(run).collect::<Vec<_>>().join(", ") }
}

impl Script {
    /// Creates keys with separated values of random bytes.
    fn new(count: u64, value_len: u64, change: impl FnOnce(&mut Disk, &mut Store), reach: Reach) -> Script {
        let (mut disk, mut store, model) = make(&mut Rng::new(1), count, (0, 100), value_len);
        change(&mut disk, &mut store);
        let store = Arc::new(store);
        Script { iter: iterate(disk, &store, VisibleOptions::at(base::MAX_SEQ), reach), store, model }
    }

    fn run(&mut self, case: &mut TestCase) -> Outcome<String> {
        let out = match &*case.directive {
            "keys" => self.keys(case)?,
            "seek" => {
                match case.try_take_arg::<u64>("key")? {
                    Some(n) => self.iter.seek(&key(n))?,
                    None if case.take_flag("last")? => self.iter.seek_to_last()?,
                    None => self.iter.seek_to_first()?,
                }
                String::new()
            }
            "scan" => self.scan(case)?,
            "value" => {
                self.value()?;
                self.requests(false)
            }
            "kept" => format!("{}\n", runs(&self.store.take_kept())),
            "reach" => {
                let mut options = ReadOptions::default();
                options.readahead_bytes = case.try_take_arg("readahead")?.unwrap_or(options.readahead_bytes);
                options.expected_entries = case.try_take_arg("expected")?.unwrap_or(options.expected_entries);
                options.keys_only = case.take_flag("keys-only")?;
                let costs = ReadCosts { window_bytes: case.try_take_arg("device-window")?, ..UNKNOWN };
                format!("{:?}\n", Reach::of(&options, costs))
            }
            other => return Err(format!("no command is called {other}").into()),
        };
        case.expect_empty()?;
        Ok(out)
    }

    fn keys(&mut self, case: &mut TestCase) -> Outcome<String> {
        let (count, value_len) = (case.take_arg("count")?, case.try_take_arg("value-len-max")?.unwrap_or(10));
        let reach = Reach {
            first: case.try_take_arg("first-window")?.unwrap_or(WINDOW_MIN),
            bytes_max: case.try_take_arg("window-bytes-max")?.unwrap_or(BYTES_MAX),
            expected: case.try_take_arg("expected")?.unwrap_or(0),
        };
        let broken = case.try_take_arg("unreadable-key")?.map(key);
        let damaged: Vec<u64> = case.try_take_args("damaged-values")?.unwrap_or_default();
        let waits_for_each = case.take_flag("without-queue")?;
        let change = |disk: &mut Disk, store: &mut Store| {
            disk.broken = broken;
            (store.damaged, store.waits_for_each) = (damaged.into_iter().collect(), waits_for_each);
        };
        *self = Script::new(count, value_len, change, reach);
        Ok(String::new())
    }

    /// Checks the value at the iterator, read twice.
    fn value(&self) -> Outcome<Option<String>> {
        let found = match self.iter.value() {
            Ok(value) if value == self.model[self.iter.key()] => None,
            Ok(_) => return Err("another value".into()),
            Err(e) => Some(e.to_string()),
        };
        assert_eq!(self.iter.value().is_err(), found.is_some(), "asked again");
        Ok(found)
    }

    /// Steps that use every `every`-th value (0: none). Returns the requests for values.
    fn scan(&mut self, case: &mut TestCase) -> Outcome<String> {
        let (steps, every) =
            (case.take_arg::<u64>("steps")?, case.try_take_arg("values-of-every")?.unwrap_or(1));
        let (is_back, lists_keys) = (case.take_flag("back")?, case.take_flag("keys")?);
        let mut out = String::new();
        for nth in 0..steps {
            if !self.iter.valid() {
                out += &format!("the scan ends after {nth} entries\n");
                break;
            }
            let at = String::from_utf8_lossy(self.iter.key()).into_owned();
            if every > 0
                && nth % every == 0
                && let Some(e) = self.value()?
            {
                out += &format!("value of {at}: {e}\n");
            }
            if let Err(e) = if is_back { self.iter.prev() } else { self.iter.next() } {
                let valid = self.iter.valid();
                out += &format!("after {} entries, behind {at}: {e}; valid: {valid}\n", nth + 1);
                break;
            }
        }
        Ok(out + &self.requests(lists_keys))
    }

    /// Lengths of the requests since the last call, with `+` before background reads, and the keys.
    fn requests(&self, lists_keys: bool) -> String {
        let requests = std::mem::take(&mut *lock(&self.store.requests));
        let len = |(ahead, ids): &(bool, Vec<u64>)| format!("{}{}", if *ahead { "+" } else { "" }, ids.len());
        let lens: Vec<String> = requests.iter().map(len).collect();
        let ids: Vec<u64> = requests.into_iter().flat_map(|(_, ids)| ids).collect();
        let lens = if lens.is_empty() { "none".into() } else { lens.join(", ") };
        let keys = if lists_keys { format!("keys: {}\n", runs(&ids)) } else { String::new() };
        format!("requests: {lens}\n{keys}")
    }
}

#[test]
fn scripts() {
    datadriven::walk("src/read/prefetch/scripts", |file| {
        let mut script = Script::new(0, 1, |_, _| {}, REACH);
        file.run(|case| script.run(case));
    });
}
