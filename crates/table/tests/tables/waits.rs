//! Cursors whose reads the caller performs, compared with cursors that read themselves: the same
//! entries, errors and gaps, the same reads, and the same cache lookups.

use crate::common::*;
use base::{Error, Gap, InternalIterator, Result, ValueKind, key};
use cache::Cache;
use io::sim::SimEnv;
use io::{ReadFile, ReadQueues, Rng};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use table::source::read_now;
use table::{BlockRequest, FetchedBlocks, IterOptions, Ksst, KsstIter, ScanBounds, Source, TableOptions};

const FILL: IterOptions = IterOptions { fill_cache: true, readahead_bytes: 0 };

/// A file that records its reads, some of whose bytes are unreadable.
#[derive(Debug)]
struct Watched {
    inner: Arc<MemRead>,
    reads: Mutex<Vec<Range<u64>>>,
    unreadable: Mutex<Range<u64>>,
}

impl Watched {
    fn new(bytes: Vec<u8>) -> Arc<Watched> {
        let (reads, unreadable) = (Mutex::default(), Mutex::new(0..0));
        Arc::new(Watched { inner: MemRead::new(bytes), reads, unreadable })
    }

    fn take(&self) -> Vec<Range<u64>> {
        let mut reads = std::mem::take(&mut *self.reads.lock().unwrap());
        reads.sort_by_key(|r| (r.start, r.end));
        reads
    }
}

impl ReadFile for Watched {
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let range = offset..offset + buf.len() as u64;
        let bad = self.unreadable.lock().unwrap().clone();
        self.reads.lock().unwrap().push(range.clone());
        if range.start < bad.end && bad.start < range.end {
            return Err(Error::new(base::ErrorKind::Io, "a bad sector"));
        }
        self.inner.read_at(buf, offset)
    }
    fn path(&self) -> &Path {
        Path::new(PATH)
    }
}

/// Drives a move while it waits, and counts the waits.
fn drive(iter: &mut KsstIter, mut moved: Result<()>, waited: &mut u64) -> Result<()> {
    while moved.as_ref().is_err_and(Error::is_waiting) {
        assert!(!iter.valid());
        *waited += 1;
        let mut wants: Vec<Vec<BlockRequest>> = Vec::new();
        iter.each_fetched(&mut |fetched| wants.push(fetched.take_wanted()));
        assert!(wants.iter().any(|wants| !wants.is_empty()), "it waits for something");
        let mut part = 0;
        iter.each_fetched(&mut |fetched: &mut FetchedBlocks| {
            for want in &wants[part] {
                let read = read_now(&want.file, want.extent);
                if read.is_ok() {
                    fetched.counters().count_request(want.extent.len);
                }
                fetched.put(want, read);
            }
            part += 1;
        });
        moved = iter.resume();
    }
    moved
}

type At = Option<(Vec<u8>, Vec<u8>)>;
/// Entries, and the error that ended the walk.
type Walk = (Vec<At>, Option<(String, Option<Gap>)>);

fn walk(iter: &mut KsstIter, target: Option<&[u8]>, steps: usize, waited: &mut u64) -> Walk {
    let mut seen = Vec::new();
    let moved = match target {
        None => iter.seek_to_first(),
        Some(target) => iter.seek(target),
    };
    let mut moved = drive(iter, moved, waited);
    for _ in 0..=steps {
        if let Err(e) = moved {
            return (seen, Some((e.to_string(), iter.gap())));
        }
        seen.push(iter.valid().then(|| (iter.key().to_vec(), iter.value().to_vec())));
        if !iter.valid() {
            break;
        }
        moved = iter.next();
        moved = drive(iter, moved, waited);
    }
    (seen, None)
}

#[test]
fn a_waiting_cursor_agrees_with_a_reading_one() {
    let (mut waited, mut failed) = (0, 0);
    let (mut reads, mut spared) = (0, 0);
    for seed in 0..60u64 {
        let mut rng = Rng::new(seed);
        let count = [300, 3000, 20_000][rng.below(3) as usize];
        let model = random_model(&mut rng, count, seed % 3);
        let options = TableOptions {
            block_len: [100, 400, 4096][rng.below(3) as usize],
            partition_len: [200, 400, 4096][rng.below(3) as usize],
            ..TableOptions::default()
        };
        let (mut bytes, _) = build(&model, &[], &options, None);
        let all = entries(&model);
        let at = rng.below(bytes.len() as u64 * 3 / 4);
        let (fails, flips) = [(true, false), (false, true), (false, false)][rng.below(3) as usize];
        let unreadable = if fails { at..at + 1 } else { 0..0 };
        bytes[at as usize] ^= u8::from(flips);
        let cached = [0, 0, 60_000, 8 << 20][rng.below(4) as usize];
        let border = rng.one_in(2).then(|| all[rng.below(all.len() as u64) as usize].0.clone());
        let upper = border.map(|border| key::user_key(&border).to_vec());
        let open = |wants| {
            let (file, cache) = (Watched::new(bytes.clone()), Arc::new(Cache::new(cached)));
            let table = Arc::new(Ksst::open(file.clone(), 7, uid(), None, cache.clone()).ok()?);
            *file.unreadable.lock().unwrap() = unreadable.clone();
            let borders = Arc::new(ScanBounds { upper: upper.clone(), wants, ..ScanBounds::default() });
            Some((move || table.iter_within(FILL, &borders), file, cache))
        };
        let (Some((plain, plain_file, plain_cache)), Some((waiting, file, cache))) =
            (open(false), open(true))
        else {
            continue;
        };
        for _ in 0..100 {
            let target = rng.below(8).gt(&0).then(|| &all[rng.below(all.len() as u64) as usize].0[..]);
            let steps = rng.below(60) as usize;
            plain_file.take();
            file.take();
            let (mut plain, mut iter) = (plain(), waiting());
            let expected = walk(&mut plain, target, steps, &mut 0);
            assert_eq!(walk(&mut iter, target, steps, &mut waited), expected, "seed {seed}");
            failed += usize::from(expected.1.is_some());
            // The content of the cache depends on the walks before.
            if cached > 0 {
                continue;
            }
            // One stream may stop, or meet an unreadable part, before the other is needed.
            let (made, expected) = (file.take(), plain_file.take());
            assert!(made.iter().all(|read| expected.contains(read)), "seed {seed}: {made:?}, {expected:?}");
            (reads, spared) = (reads + made.len(), spared + expected.len() - made.len());
            let (a, b) = (cache.stats(), plain_cache.stats());
            assert!(a.index.misses <= b.index.misses && a.data.misses <= b.data.misses, "seed {seed}");
            assert!(a.index.hits <= b.index.hits && a.data.hits <= b.data.hits, "seed {seed}");
            let (a, b) = (iter.counters(), plain.counters());
            assert!(a.device_reads <= b.device_reads && a.device_read_bytes <= b.device_read_bytes);
        }
    }
    assert!(reads > 5000 && spared * 10 < reads, "{reads} reads, {spared} spared");
    assert!(waited > 5000 && failed > 200, "waited {waited} times, {failed} walks failed");
}

/// A long scan requests two runs at a time, holds no more than these, and reads the same bytes as a
/// scan that reads ahead.
#[test]
fn a_long_scan_waits_half_as_often() {
    let mut model = Model::new();
    for i in 0..40_000u64 {
        insert(&mut model, format!("user{i:016}").as_bytes(), i, ValueKind::Value, &[i as u8; 100]);
    }
    let options = TableOptions { block_len: 4096, partition_len: 1 << 20, ..TableOptions::default() };
    let (bytes, _) = build(&model, &[], &options, None);
    let open = |borders: ScanBounds| {
        let file = Watched::new(bytes.clone());
        let table = Ksst::open(file.clone(), 7, uid(), None, Arc::new(Cache::new(0))).unwrap();
        file.take();
        (Arc::new(table).iter_within(FILL, &Arc::new(borders)), file)
    };
    let queues = Some(Arc::new(ReadQueues::new(&SimEnv::new(1).env(), 4)));
    let (mut plain, plain_file) = open(ScanBounds { queues, ..ScanBounds::default() });
    let (mut iter, file) = open(ScanBounds { wants: true, ..ScanBounds::default() });
    let mut waited = 0;
    let expected = walk(&mut plain, None, 50_000, &mut 0);
    let moved = iter.seek_to_first();
    drive(&mut iter, moved, &mut waited).unwrap();
    for (at, entry) in expected.0.iter().flatten().enumerate() {
        assert_eq!((iter.key(), iter.value()), (&entry.0[..], &entry.1[..]), "entry {at}");
        assert!(iter.held_bytes() <= 2 * (256 << 10) + 8192, "{} bytes", iter.held_bytes());
        let moved = iter.next();
        drive(&mut iter, moved, &mut waited).unwrap();
    }
    assert!(!iter.valid());
    drop(plain);
    let (reads, expected) = (file.take(), plain_file.take());
    assert_eq!(reads, expected);
    assert!(waited * 3 <= reads.len() as u64 * 2, "waited {waited} times for {} reads", reads.len());
}
