//! The device reads of scans: their number and length, and compliance with their options.

use crate::common::*;
use base::{Error, InternalIterator, MAX_SEQ, Result, ValueKind, key};
use cache::Cache;
use io::sim::SimEnv;
use io::{ReadFile, ReadQueues, Rng};
use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use table::source::read_now;
use table::{FetchedBlocks, IterOptions, Ksst, KsstIter, ScanBounds, SeekTarget, TableOptions};

const FILL: IterOptions = IterOptions { fill_cache: true, readahead_bytes: 0 };
const PEEK: IterOptions = IterOptions { fill_cache: false, readahead_bytes: 0 };

/// A file that records its reads, some of whose bytes are unreadable.
#[derive(Debug)]
struct Watched {
    inner: Arc<MemRead>,
    reads: Mutex<Vec<Range<u64>>>,
    unreadable: Mutex<Range<u64>>,
}

impl Watched {
    fn take(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut *self.reads.lock().unwrap())
    }
}

impl ReadFile for Watched {
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let range = offset..offset + buf.len() as u64;
        let bad = self.unreadable.lock().unwrap().clone();
        if range.start < bad.end && bad.start < range.end {
            return Err(Error::new(base::ErrorKind::Io, "a bad sector"));
        }
        self.reads.lock().unwrap().push(range);
        self.inner.read_at(buf, offset)
    }
    fn path(&self) -> &Path {
        Path::new(PATH)
    }
}

fn user(i: u64) -> Vec<u8> {
    format!("user{i:016}").into_bytes()
}

/// Returns a table of `count` entries with values of `value_len` bytes, its file, and its cache,
/// which has the indexes.
fn plain(count: u64, value_len: usize) -> (Arc<Ksst>, Arc<Watched>, Arc<Cache>) {
    let mut model = Model::new();
    for i in 0..count {
        insert(&mut model, &user(i), i, ValueKind::Value, &vec![i as u8; value_len]);
    }
    let cache = Arc::new(Cache::new(64 << 20));
    let options = TableOptions { block_len: 4096, ..TableOptions::default() };
    let (bytes, _) = build(&model, &[], &options, Some(cache.clone()));
    let (reads, unreadable) = (Mutex::default(), Mutex::new(0..0));
    let file = Arc::new(Watched { inner: MemRead::new(bytes), reads, unreadable });
    let table = Arc::new(Ksst::open(file.clone(), 7, uid(), None, cache.clone()).unwrap());
    file.take();
    (table, file, cache)
}

/// Moves over `count` entries after a seek.
fn scan(iter: &mut KsstIter, from: u64, count: u64, forward: bool) {
    let target = key::seek_target(&user(from), if forward { MAX_SEQ } else { 0 });
    if forward {
        iter.seek(&target).unwrap()
    } else {
        iter.seek_for_prev(&target).unwrap()
    }
    for i in 0..count {
        let at = if forward { from + i } else { from - i };
        assert_eq!(key::user_key(iter.key()), user(at));
        assert!(iter.value().iter().all(|&b| b == at as u8));
        if i + 1 < count {
            if forward { iter.next().unwrap() } else { iter.prev().unwrap() }
        }
    }
}

#[test]
fn a_long_scan_reads_growing_runs_and_nothing_twice() {
    for forward in [true, false] {
        let (table, file, cache) = plain(20_000, 100);
        let mut iter = table.iter(PEEK);
        scan(&mut iter, if forward { 0 } else { 19_999 }, 20_000, forward);
        let (reads, counters) = (file.take(), iter.counters());
        let bytes: u64 = reads.iter().map(|r| r.end - r.start).sum();
        assert_eq!(counters.device_reads, reads.len() as u64);
        assert_eq!(counters.device_read_bytes, bytes);
        assert_eq!((counters.index_reads, counters.data_reads), (0, counters.device_reads));
        let first = reads[0].end - reads[0].start;
        assert!((4096..=22 << 10).contains(&first), "{first} bytes at first");
        let mut longest = first;
        for pair in reads.windows(2) {
            let len = pair[1].end - pair[1].start;
            assert!(len <= (2 * longest + 8192).min(270 << 10), "{reads:?}");
            longest = longest.max(len);
            let joined = if forward { pair[0].end == pair[1].start } else { pair[1].end == pair[0].start };
            assert!(joined, "gaps or overlaps: {reads:?}");
        }
        // 16 + 32 + 64 + 128 KiB, then 256 KiB each; a run ends with its index partition.
        assert!((10..=22).contains(&reads.len()), "{} reads of {bytes} bytes", reads.len());
        assert!(bytes > 20_000 * 100 && bytes < 20_000 * 150, "{bytes}");
        assert_eq!(cache.stats().data.entries, 0, "it was told to leave the cache alone");
    }
}

#[test]
fn short_scans_read_once_and_little() {
    let (table, file, cache) = plain(20_000, 1000);
    for from in (0..19_000).step_by(1000) {
        let mut iter = table.iter(PEEK);
        scan(&mut iter, from, 10, true);
    }
    // The second read of one scan: a run ends with its index partition.
    let reads = file.take();
    assert!(reads.len() <= 20 && reads.iter().all(|r| r.end - r.start <= 38 << 10), "{reads:?}");
    // A seek starts small again, unless the window has its target.
    let mut iter = table.iter(PEEK);
    scan(&mut iter, 0, 2000, true);
    file.take();
    scan(&mut iter, 1999, 1, true);
    assert_eq!(file.take().len(), 0);
    scan(&mut iter, 9000, 1, true);
    let reads = file.take();
    assert!(reads.len() == 1 && reads[0].end - reads[0].start <= 22 << 10, "{reads:?}");
    assert_eq!(cache.stats().data.entries, 0);
}

/// A merge join with a table seeks whenever the next key is some blocks away, and passes all of the
/// table: its runs grow as those of a scan.
#[test]
fn adjacent_seeks_read_growing_runs_and_distant_ones_do_not() {
    let (table, file, _) = plain(20_000, 100);
    let mut iter = table.iter(PEEK);
    // A block has some thirty-five entries, so each seek enters another block.
    (0..20_000).step_by(50).for_each(|from| scan(&mut iter, from, 1, true));
    let reads = file.take();
    assert!((10..=22).contains(&reads.len()), "as many as a scan makes, not {}: {reads:?}", reads.len());
    assert!(reads.windows(2).all(|pair| pair[0].end <= pair[1].start), "nothing twice: {reads:?}");
    // Seeks ten times as far apart as the first read-ahead, going backward, are not treated as one
    // scan.
    for from in (0..13u64).rev().map(|n| n * 1500) {
        scan(&mut iter, from, 1, true);
    }
    let reads = file.take();
    assert!(reads.len() >= 12 && reads.iter().all(|r| r.end - r.start <= 22 << 10), "{reads:?}");
}

#[test]
fn entries_larger_than_blocks_are_read_together() {
    let (table, file, _) = plain(400, 16_000);
    let mut iter = table.iter(PEEK);
    scan(&mut iter, 7, 10, true);
    let reads = file.take();
    assert!(reads.len() <= 4, "{reads:?}");
    assert!(reads[0].end - reads[0].start < 34_000, "{reads:?}");
}

#[test]
fn only_visited_blocks_enter_the_cache() {
    let (table, file, cache) = plain(20_000, 1000);
    let mut iter = table.iter(FILL);
    scan(&mut iter, 5000, 1, true);
    assert_eq!((file.take().len(), cache.stats().data.entries), (1, 1));
    scan(&mut table.iter(FILL), 5000, 1, true);
    assert_eq!(file.take().len(), 0, "it is in the cache");
    scan(&mut iter, 5000, 1000, true);
    let entries = cache.stats().data.entries;
    assert!((250..=335).contains(&entries), "{entries} blocks");
    file.take();
    let mut again = table.iter(PEEK);
    scan(&mut again, 5000, 1000, true);
    assert_eq!((file.take().len(), again.counters().device_reads), (0, 0));
    assert_eq!(again.counters().data_blocks_cached, entries);
}

#[test]
fn read_ahead_stops_at_the_iterator_bounds() {
    let (table, file, _) = plain(20_000, 1000);
    for (from, count) in [(100u64, 1u64), (100, 7), (3001, 40), (3000, 2000), (19_990, 10)] {
        let borders = ScanBounds { upper: Some(user(from + count)), ..ScanBounds::default() };
        let mut iter = table.iter_within(PEEK, &Arc::new(borders));
        scan(&mut iter, from, count, true);
        let end = file.take().iter().map(|r| r.end).max().unwrap();
        let border = table.offset_of(&key::seek_target(&user(from + count), MAX_SEQ)).unwrap();
        assert!(end <= border + 5000, "read to {end}, the block with the border begins at {border}");
        let borders = ScanBounds { lower: Some(user(from)), ..ScanBounds::default() };
        let mut iter = table.iter_within(PEEK, &Arc::new(borders));
        scan(&mut iter, from + count - 1, count, false);
        let start = file.take().iter().map(|r| r.start).min().unwrap();
        let border = table.offset_of(&key::seek_target(&user(from), MAX_SEQ)).unwrap();
        assert!(start >= border, "read from {start}, the block with the border begins at {border}");
    }
}

#[test]
fn an_unreadable_neighbor_block_fails_alone() {
    let (table, file, _) = plain(2000, 1000);
    let bad = table.offset_of(&key::seek_target(&user(1008), MAX_SEQ)).unwrap();
    *file.unreadable.lock().unwrap() = bad + 10..bad + 20;
    let mut iter = table.iter(FILL);
    iter.seek(&key::seek_target(&user(1000), MAX_SEQ)).unwrap();
    let mut seen = 1000;
    let e = loop {
        assert_eq!(key::user_key(iter.key()), user(seen));
        seen += 1;
        if let Err(e) = iter.next() {
            break e;
        }
    };
    assert_eq!(e.kind(), base::ErrorKind::Io);
    assert!((1004..=1010).contains(&seen) && !iter.valid(), "{seen}");
    iter.seek(&key::seek_target(&user(1016), MAX_SEQ)).unwrap();
    assert_eq!(key::user_key(iter.key()), user(1016));
}

/// Returns bounds of a scan that reads the next run in the background, in simulation.
fn ahead(lower: Option<u64>, upper: Option<u64>) -> Arc<ScanBounds> {
    let queues = Some(Arc::new(ReadQueues::new(&SimEnv::new(1).env(), 2)));
    Arc::new(ScanBounds {
        lower: lower.map(user),
        upper: upper.map(user),
        queues,
        wants: false,
        asks_filters: true,
    })
}

#[test]
fn a_long_scan_prefetches_the_next_run() {
    let (table, file, _) = plain(20_000, 1000);
    for forward in [true, false] {
        let mut alone = table.iter(PEEK);
        let mut iter = table.iter_within(PEEK, &ahead(None, None));
        for cursor in [&mut alone, &mut iter] {
            if forward { cursor.seek_to_first() } else { cursor.seek_to_last() }.unwrap();
        }
        file.take();
        let mut meanwhile = 0;
        for _ in 1..20_000 {
            if forward { alone.next() } else { alone.prev() }.unwrap();
            let needed = file.take();
            if forward { iter.next() } else { iter.prev() }.unwrap();
            // When the plain scan has to read, the other already has the block, and has the next
            // read in flight.
            meanwhile += usize::from(!needed.is_empty() && !file.take().contains(&needed[0]));
            assert_eq!((alone.key(), alone.value()), (iter.key(), iter.value()));
        }
        let reads = alone.counters().device_reads;
        assert!(meanwhile as u64 > reads / 2, "{meanwhile} of {reads}, forward: {forward}");
        assert_eq!(iter.counters().device_reads, reads);
        assert_eq!(iter.counters().data_reads, alone.counters().data_reads);
    }
}

#[test]
fn short_and_bounded_scans_do_not_prefetch() {
    let (table, file, _) = plain(20_000, 1000);
    let reads_of = |borders: Option<&Arc<ScanBounds>>, count| {
        file.take();
        let mut iter = borders.map_or_else(|| table.iter(PEEK), |borders| table.iter_within(PEEK, borders));
        scan(&mut iter, 5000, count, true);
        file.take()
    };
    assert_eq!(reads_of(Some(&ahead(None, None)), 400), reads_of(None, 400), "short");
    for count in [600, 800, 1000, 1200] {
        let end = 5000 + count;
        let bounded = Arc::new(ScanBounds { upper: Some(user(end)), ..ScanBounds::default() });
        assert_eq!(reads_of(Some(&ahead(None, Some(end))), count), reads_of(Some(&bounded), count), "border");
    }
}

#[test]
fn prefetch_errors_are_reported_at_their_position() {
    for (bad_from, forward) in [(5000, true), (5001, true), (15_000, false)] {
        let (table, file, _) = plain(20_000, 1000);
        let bad = table.offset_of(&key::seek_target(&user(bad_from), MAX_SEQ)).unwrap();
        *file.unreadable.lock().unwrap() = bad + 10..bad + 20;
        let (start, mut seen) = (if forward { 4000 } else { 16_000 }, Vec::new());
        for borders in [None, Some(ahead(None, None))] {
            let mut iter =
                borders.map_or_else(|| table.iter(FILL), |borders| table.iter_within(FILL, &borders));
            iter.seek(&key::seek_target(&user(start), MAX_SEQ)).unwrap();
            let mut keys = 0;
            let e = loop {
                let at = if forward { start + keys } else { start - keys };
                assert_eq!(key::user_key(iter.key()), user(at));
                keys += 1;
                if let Err(e) = if forward { iter.next() } else { iter.prev() } {
                    break e;
                }
            };
            assert!((990..=1010).contains(&keys) && !iter.valid(), "{keys}");
            seen.push((keys, e.to_string(), iter.gap()));
        }
        assert_eq!(seen[0], seen[1]);
    }
}

/// Cursors with different read options return the same entries for the same random moves.
#[test]
fn every_scan_mode_sees_the_same() {
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let model = random_model(&mut rng, 3000, seed % 3);
        let options = TableOptions {
            block_len: [100, 1000, 4096][rng.below(3) as usize],
            partition_len: [200, 4096][rng.below(2) as usize],
            ..TableOptions::default()
        };
        let (bytes, _) = build(&model, &[], &options, None);
        // A cache that holds some blocks makes runs begin anywhere.
        let table = open(bytes, &Arc::new(Cache::new([0, 40_000, 1 << 20][rng.below(3) as usize]))).unwrap();
        let all = entries(&model);
        let (a, b) = (rng.below(all.len() as u64) as usize, rng.below(all.len() as u64) as usize);
        let border = |i: usize| Some(key::user_key(&all[i].0).to_vec());
        let borders =
            ScanBounds { lower: border(a.min(b)), upper: border(a.max(b)), ..ScanBounds::default() };
        let mut cursors: VecDeque<KsstIter> = VecDeque::from([
            table.iter(PEEK),
            table.iter(FILL),
            table.iter(IterOptions { fill_cache: false, readahead_bytes: 20_000 }),
            table.iter_within(FILL, &Arc::new(borders.clone())),
            table.iter_within([FILL, PEEK][rng.below(2) as usize], &Arc::new(borders)),
        ]);
        for _ in 0..400 {
            let target = all[rng.below(all.len() as u64) as usize].0.clone();
            let (kind, turn) = (rng.below(8), 2 + rng.below(30));
            let steps: Vec<bool> = (0..rng.below(60)).map(|i| (i / turn) % 2 == 0).collect();
            // Some seeks of the last cursor are prepared, completely or partly, and some
            // preparations are for other seeks.
            let prepared = if rng.one_in(4) {
                all[rng.below(all.len() as u64) as usize].0.clone()
            } else {
                target.clone()
            };
            prepare(&mut cursors[4], place(kind, &prepared), rng.below(4) as usize);
            let mut paths = cursors.iter_mut().map(|c| path(c, kind, &target, &steps));
            let first = paths.next().unwrap();
            paths.for_each(|p| assert!(p == first, "seed {seed}, {target:?}"));
        }
    }
}

/// Prepares a seek with at most `batches` batches of reads. Returns the reads of each.
fn prepare(iter: &mut KsstIter, place: SeekTarget<'_>, batches: usize) -> Vec<Vec<Range<u64>>> {
    let mut fetched = FetchedBlocks::default();
    let mut read = Vec::new();
    for nth in 0.. {
        iter.prepare(place, &mut fetched);
        let wants = fetched.take_wanted();
        if wants.is_empty() || nth == batches {
            break;
        }
        wants.iter().for_each(|want| fetched.put(want, read_now(&want.file, want.extent)));
        read.push(wants.iter().map(|w| w.extent.offset..w.extent.offset + w.extent.len).collect());
    }
    read
}

fn place(kind: u64, target: &[u8]) -> SeekTarget<'_> {
    match kind {
        0 => SeekTarget::First,
        1 => SeekTarget::Last,
        2..=4 => SeekTarget::From(target),
        _ => SeekTarget::UpTo(target),
    }
}

/// A prepared seek makes the reads of an ordinary seek, but for both streams at once. It looks up
/// each block in the cache once, and the scan continues with the same read-ahead.
#[test]
fn a_prepared_seek_reads_both_streams_in_two_batches() {
    let (mut streams, mut alone) = (0, 0);
    for seed in 0..8 {
        let mut rng = Rng::new(seed);
        let model = random_model(&mut rng, 20_000, 0);
        let (bytes, _) = build(
            &model,
            &[],
            &TableOptions { block_len: 400, partition_len: 400, ..TableOptions::default() },
            None,
        );
        let all = entries(&model);
        let open = || {
            let (reads, unreadable) = (Mutex::default(), Mutex::new(0..0));
            let file = Arc::new(Watched { inner: MemRead::new(bytes.clone()), reads, unreadable });
            let cache = Arc::new(Cache::new([0, 100_000][seed as usize % 2]));
            let table = Arc::new(Ksst::open(file.clone(), 7, uid(), None, cache.clone()).unwrap());
            (table.iter(FILL), file, cache)
        };
        let ((mut plain, plain_file, plain_cache), (mut ready, file, cache)) = (open(), open());
        for _ in 0..300 {
            let (kind, target) = (rng.below(8), &all[rng.below(all.len() as u64) as usize].0);
            let steps = vec![true; rng.below(100) as usize];
            plain_file.take();
            file.take();
            let expected = path(&mut plain, kind, target, &steps);
            let batches = prepare(&mut ready, place(kind, target), 9);
            assert!(batches.len() <= 2 && batches.iter().all(|b| b.len() <= 2), "{batches:?}");
            streams = streams.max(batches.iter().map(Vec::len).max().unwrap_or(0));
            let before = file.take();
            assert!(path(&mut ready, kind, target, &steps) == expected);
            alone += usize::from(!batches.is_empty());
            let mut all_reads = [before, file.take()].concat();
            let mut expected = plain_file.take();
            all_reads.sort_by_key(|r| r.start);
            expected.sort_by_key(|r| r.start);
            // The blocks that stay in a cache depend on the order of their insertion.
            if seed % 2 == 0 {
                assert_eq!(all_reads, expected, "seed {seed}");
                let (a, b) = (cache.stats(), plain_cache.stats());
                assert_eq!((a.index.misses, a.data.misses), (b.index.misses, b.data.misses));
                assert_eq!((a.index.inserts, a.data.inserts), (b.index.inserts, b.data.inserts));
            }
        }
    }
    assert!(streams == 2 && alone > 500, "{streams} streams, {alone} seeks that read");
}

/// A seek reports damaged or unreadable blocks as if it had not been prepared.
#[test]
fn a_prepared_seek_reports_the_same_errors() {
    let mut failed = 0;
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let model = random_model(&mut rng, 2000, seed % 3);
        let (mut bytes, _) = build(
            &model,
            &[],
            &TableOptions { block_len: 400, partition_len: 400, ..TableOptions::default() },
            None,
        );
        let all = entries(&model);
        let at = rng.below(bytes.len() as u64 * 3 / 4);
        let unreadable = if rng.one_in(2) {
            bytes[at as usize] ^= 1;
            0..0
        } else {
            at..at + 1
        };
        let open = || {
            let file = Watched {
                inner: MemRead::new(bytes.clone()),
                reads: Mutex::default(),
                unreadable: Mutex::default(),
            };
            let file = Arc::new(file);
            let table = Ksst::open(file.clone(), 7, uid(), None, Arc::new(Cache::new(0))).ok()?;
            *file.unreadable.lock().unwrap() = unreadable.clone();
            Some(Arc::new(table).iter(FILL))
        };
        let (Some(mut plain), Some(mut ready)) = (open(), open()) else { continue };
        for _ in 0..200 {
            let (kind, target) = (rng.below(8), &all[rng.below(all.len() as u64) as usize].0);
            assert!(prepare(&mut ready, place(kind, target), 9).len() <= 4);
            let outcome = |iter: &mut KsstIter| {
                let moved = match kind {
                    0 => iter.seek_to_first(),
                    1 => iter.seek_to_last(),
                    2..=4 => iter.seek(target),
                    _ => iter.seek_for_prev(target),
                };
                moved
                    .map(|()| iter.valid().then(|| iter.key().to_vec()))
                    .map_err(|e| (e.to_string(), iter.gap()))
            };
            let expected = outcome(&mut plain);
            failed += usize::from(expected.is_err());
            assert_eq!(outcome(&mut ready), expected, "seed {seed}");
        }
    }
    assert!(failed > 50, "{failed}");
}

type Seen = Vec<Option<(Vec<u8>, Vec<u8>)>>;

fn path(iter: &mut KsstIter, kind: u64, target: &[u8], steps: &[bool]) -> Seen {
    match kind {
        0 => iter.seek_to_first().unwrap(),
        1 => iter.seek_to_last().unwrap(),
        2..=4 => iter.seek(target).unwrap(),
        _ => iter.seek_for_prev(target).unwrap(),
    }
    let here = |iter: &KsstIter| iter.valid().then(|| (iter.key().to_vec(), iter.value().to_vec()));
    let mut seen = vec![here(iter)];
    for &ahead in steps {
        if !iter.valid() {
            break;
        }
        if ahead == (kind < 5) {
            iter.next().unwrap()
        } else {
            iter.prev().unwrap()
        }
        seen.push(here(iter));
    }
    seen
}
