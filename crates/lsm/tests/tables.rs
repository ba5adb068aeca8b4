//! Flush, compaction and scans over real tables, in the simulated environment. The results are
//! compared with a map for the view of every snapshot.

use base::key::{self, encode};
use base::range_del::{FragmentedRangeTombstones, RangeTombstone};
use base::{ErrorKind, InternalIterator, MAX_SEQ, Result, SeqNo, Uid, ValueKind};
use cache::Cache;
use io::{Access, CreateOptions, Env, ReadFile, Rng, sim::SimEnv};
use lavastore_lsm::vec_iter::{Entry, VecIter};
use lavastore_lsm::{
    Bounds, DeeperLevels, JobEnv, MergeJob, MergeOptions, MergingIterator, OutputFile, OutputFiles,
    ReadTogether, SizeCutter, Sources, Step, TableSource, Visibility, VisibleIterator, VisibleOptions,
    file_meta,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use table::source::read_now;
use table::{
    BlockRequest, FetchedBlocks, IterOptions, Ksst, KsstBuilder, Reference, TableIdentity, TableOptions,
};
use version::{FileMeta, Version};

type View = BTreeMap<Vec<u8>, Vec<u8>>;

struct Files {
    env: Env,
    next: u64,
}

fn path(number: u64) -> PathBuf {
    io::fs::join(Path::new("/store"), &format!("{number:012}.ksst"))
}

impl OutputFiles<KsstBuilder> for Files {
    fn create(&mut self) -> Result<OutputFile<KsstBuilder>> {
        let number = self.next;
        self.next += 1;
        let file = self.env.fs.create(&path(number), &CreateOptions::default())?;
        let identity = TableIdentity { number, uid: Uid::from_words(number, 9), ..TableIdentity::default() };
        let options = TableOptions { block_len: 256, partition_len: 256, ..TableOptions::default() };
        let table = KsstBuilder::new(file, &path(number), identity, &options, None);
        Ok(OutputFile { number, path: path(number), table })
    }
}

struct Opener(Env);

impl TableSource for Opener {
    fn table(&self, file: &FileMeta) -> Result<Arc<Ksst>> {
        let opened = self.0.fs.open(&path(file.number), Access::Buffered)?;
        let cache = Arc::new(Cache::new(1 << 20));
        Ok(Arc::new(Ksst::open(opened, file.number, file.uid, file.global_seq, cache)?))
    }
}

struct Store {
    files: Files,
    source: Arc<dyn TableSource>,
    version: Version,
    seq: SeqNo,
    now: View,
    /// View of each registered snapshot.
    snapshots: BTreeMap<SeqNo, View>,
    hidden_tables: usize,
}

impl Store {
    fn new(seed: u64) -> Store {
        let env = SimEnv::new(seed).env();
        env.fs.create_dir_all(Path::new("/store")).expect("a new volume");
        Store {
            source: Arc::new(Opener(env.clone())),
            files: Files { env, next: 1 },
            version: Version::new(0),
            seq: 0,
            now: View::new(),
            snapshots: BTreeMap::new(),
            hidden_tables: 0,
        }
    }

    /// Flushes random writes of about one memtable.
    fn flush(&mut self, rng: &mut Rng) {
        let (mut points, mut ranges) = (Vec::<Entry>::new(), Vec::new());
        for _ in 0..1 + rng.below(120) {
            self.seq += 1;
            let k = format!("key{:04}", rng.below(400)).into_bytes();
            let (kind, value) = match rng.below(12) {
                0 => {
                    let end = format!("key{:04}", rng.below(500)).into_bytes();
                    self.now.retain(|have, _| *have < k || end <= *have);
                    ranges.push(RangeTombstone { start: k, end, seq: self.seq });
                    continue;
                }
                1 | 2 => (ValueKind::Deletion, Vec::new()),
                3 | 4 => {
                    let reference = Reference { blob_id: 7, raw_len: self.seq, stored_len: 600 };
                    (ValueKind::Reference, reference.encode())
                }
                _ => (ValueKind::Value, vec![self.seq as u8; rng.below(60) as usize]),
            };
            match kind {
                ValueKind::Deletion => self.now.remove(&k),
                _ => self.now.insert(k.clone(), value.clone()),
            };
            points.push((encode(&k, self.seq, kind), value));
        }
        points.sort_by(|a, b| key::compare(&a.0, &b.0));
        let tombstones = Arc::new(FragmentedRangeTombstones::new(&ranges));
        let merged = MergingIterator::new(vec![Box::new(VecIter::new(Arc::new(points)))]);
        let new = self.run(merged, &[tombstones], 0, u64::MAX);
        let mut levels = self.levels();
        levels[0].extend(new);
        self.version = Version::with_files(0, levels);
    }

    fn levels(&self) -> Vec<Vec<Arc<FileMeta>>> {
        self.version.levels.iter().map(|l| l.to_vec()).collect()
    }

    fn run(
        &mut self,
        input: MergingIterator,
        tombstones: &[Arc<FragmentedRangeTombstones>],
        output_level: usize,
        raw_bytes: u64,
    ) -> Vec<Arc<FileMeta>> {
        let mut options = MergeOptions::new(self.visible());
        options.step_bytes = 1000;
        options.zero_sequences = output_level > 0;
        let mut job = MergeJob::new(input, tombstones, options);
        let mut below = DeeperLevels::new(&self.version, output_level);
        loop {
            let mut hooks = JobEnv {
                files: &mut self.files,
                cutter: &mut SizeCutter { raw_bytes },
                below: &mut below,
                values: None,
                observer: None,
            };
            if let Step::Done(outputs) = job.step(&mut hooks).expect("no faults here") {
                let metas: Vec<_> = outputs.iter().map(|o| Arc::new(file_meta(&o.table))).collect();
                metas.iter().for_each(|m| m.validate().expect("a sound file"));
                assert_eq!(metas.iter().map(|m| m.entries).sum::<u64>(), job.stats().output_entries);
                return metas;
            }
        }
    }

    fn visible(&self) -> Vec<SeqNo> {
        self.snapshots.keys().copied().chain([self.seq]).collect()
    }

    /// Compacts all of `level` into the next one.
    fn compact(&mut self, level: usize) {
        let mut levels = self.levels();
        let readers = Visibility::Snapshots(self.visible());
        let options = IterOptions { fill_cache: false, readahead_bytes: 4096 };
        let mut sources = Sources::new(readers, self.source.clone(), options);
        let inputs = self.version.levels.iter().enumerate().skip(level).take(2);
        sources.add(inputs, Bounds::default()).expect("no faults here");
        self.hidden_tables += sources.hidden_tables;
        let tombstones = std::mem::take(&mut sources.tombstones);
        let new = self.run(MergingIterator::over(sources.cursors), &tombstones, level + 1, 1500);
        for old in levels[level].drain(..).collect::<Vec<_>>().into_iter().chain(levels[level + 1].drain(..))
        {
            self.files.env.fs.remove(&path(old.number)).expect("it exists");
        }
        levels[level + 1] = new;
        self.version = Version::with_files(0, levels);
    }

    fn check(&mut self, rng: &mut Rng) {
        let low = rng.one_in(2).then(|| format!("key{:04}", rng.below(400)).into_bytes());
        let high = rng.one_in(2).then(|| format!("key{:04}", rng.below(400)).into_bytes());
        let now = [(self.seq, self.now.clone())];
        for (snapshot, view) in self.snapshots.clone().into_iter().chain(now) {
            let mut sources =
                Sources::new(Visibility::At(snapshot), self.source.clone(), IterOptions::default());
            let bounds = Bounds { lower: low.as_deref(), upper: high.as_deref() };
            sources.add(self.version.levels.iter().enumerate(), bounds).expect("no faults here");
            self.hidden_tables += sources.hidden_tables;
            let mut options = VisibleOptions::at(snapshot);
            (options.lower, options.upper) = (low.clone(), high.clone());
            let mut merged = MergingIterator::over(sources.cursors);
            if rng.one_in(2) {
                merged = merged.reading_together(Box::new(Reads::default()));
            }
            let mut iter = VisibleIterator::new(merged, sources.tombstones, options);
            let inside =
                |k: &Vec<u8>| low.as_ref().is_none_or(|l| l <= k) && high.as_ref().is_none_or(|h| k < h);
            let expected: Vec<_> = view.into_iter().filter(|(k, _)| inside(k)).collect();
            let mut seen = Vec::new();
            iter.seek_to_first().expect("no faults here");
            while iter.valid() {
                seen.push((iter.key().to_vec(), iter.value().to_vec()));
                iter.next().expect("no faults here");
            }
            assert_eq!(seen, expected, "snapshot {snapshot}");
            seen.clear();
            iter.seek_to_last().expect("no faults here");
            while iter.valid() {
                seen.insert(0, (iter.key().to_vec(), iter.value().to_vec()));
                iter.prev().expect("no faults here");
            }
            assert_eq!(seen, expected, "snapshot {snapshot}, backward");
        }
    }
}

#[test]
fn scans_over_tables_agree_with_the_model() {
    let mut hidden_tables = 0;
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut store = Store::new(seed);
        for _ in 0..12 {
            match rng.below(6) {
                0 | 1 => store.compact(rng.below(3) as usize),
                2 => {
                    store.snapshots.insert(store.seq, store.now.clone());
                }
                3 => {
                    store.snapshots.pop_first();
                }
                _ => store.flush(&mut rng),
            }
            store.check(&mut rng);
        }
        hidden_tables += store.hidden_tables;
        for file in store.version.levels.iter().flatten() {
            store.source.table(file).and_then(|t| t.verify()).expect("a sound table");
        }
    }
    assert!(hidden_tables > 20, "only {hidden_tables} tables were hidden by range tombstones");
}

/// Log of the reads, with the size of each batch.
#[derive(Clone, Default)]
struct Reads(Arc<Mutex<ReadsMade>>);

#[derive(Default)]
struct ReadsMade {
    /// Each batch: file, offset, length.
    batches: Vec<Vec<(u64, u64, u64)>>,
    alone: Vec<(u64, u64, u64)>,
    is_batch: bool,
    /// Number of batches that are to fail.
    unreadable: usize,
}

impl Reads {
    fn take(&self) -> ReadsMade {
        std::mem::take(&mut *self.0.lock().expect("nobody panics"))
    }
}

impl ReadTogether for Reads {
    fn read(&self, fetched: &mut FetchedBlocks, wants: &[BlockRequest]) {
        assert!(wants.is_sorted_by(|a, b| a.extent < b.extent), "ascending, each once");
        let mut made = self.0.lock().expect("nobody panics");
        made.batches.push(wants.iter().map(|w| (w.extent.file, w.extent.offset, w.extent.len)).collect());
        made.is_batch = true;
        let fails = made.unreadable > 0;
        made.unreadable = made.unreadable.saturating_sub(1);
        drop(made);
        for want in wants {
            let read = read_now(&want.file, want.extent);
            fetched.put(want, if fails { Err(base::Error::corruption("not this time")) } else { read });
        }
        self.0.lock().expect("nobody panics").is_batch = false;
    }
}

/// A file that logs single reads.
#[derive(Debug)]
struct Told {
    inner: Arc<dyn ReadFile>,
    number: u64,
    reads: Reads,
}

impl std::fmt::Debug for Reads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reads")
    }
}

impl ReadFile for Told {
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let mut made = self.reads.0.lock().expect("nobody panics");
        if !made.is_batch {
            made.alone.push((self.number, offset, buf.len() as u64));
        }
        self.inner.read_at(buf, offset)
    }
    fn path(&self) -> &Path {
        self.inner.path()
    }
}

/// Tables that are already open, without cached blocks.
struct Opened(BTreeMap<u64, Arc<Ksst>>);

impl Opened {
    fn all(store: &Store, reads: &Reads) -> Arc<dyn TableSource> {
        let open = |file: &Arc<FileMeta>| {
            let inner = store.files.env.fs.open(&path(file.number), Access::Buffered)?;
            let told = Arc::new(Told { inner, number: file.number, reads: reads.clone() });
            let table = Ksst::open(told, file.number, file.uid, file.global_seq, Arc::new(Cache::new(0)))?;
            Ok((file.number, Arc::new(table)))
        };
        let tables: Result<_> = store.version.levels.iter().flatten().map(open).collect();
        Arc::new(Opened(tables.expect("no faults here")))
    }
}

impl TableSource for Opened {
    fn table(&self, file: &FileMeta) -> Result<Arc<Ksst>> {
        Ok(self.0[&file.number].clone())
    }
}

/// With any number of tables, a seek waits for two batches of reads: one for the indexes, and one
/// for the blocks. They are the same reads that the cursors would make one after another.
#[test]
fn a_cold_seek_waits_for_two_batches_of_reads() {
    for tables in [1, 2, 5, 9, 14] {
        let (mut rng, mut store) = (Rng::new(tables), Store::new(tables));
        (0..3).for_each(|_| store.flush(&mut rng));
        store.compact(0);
        (0..2).for_each(|_| store.flush(&mut rng));
        store.compact(1);
        store.compact(0);
        (0..tables).for_each(|_| store.flush(&mut rng));
        let merged_by = |reads: &Reads, together: bool| {
            let readers = Visibility::At(store.seq);
            let mut sources = Sources::new(readers, Opened::all(&store, reads), IterOptions::default());
            sources.add(store.version.levels.iter().enumerate(), Bounds::default()).expect("no faults");
            let merged = MergingIterator::over(sources.cursors);
            if together { merged.reading_together(Box::new(reads.clone())) } else { merged }
        };
        let (plain_reads, reads) = (Reads::default(), Reads::default());
        let (mut plain, mut merged) = (merged_by(&plain_reads, false), merged_by(&reads, true));
        let mut most = 0;
        for round in 0..60 {
            plain_reads.take();
            reads.take();
            let target = key::seek_target(format!("key{:04}", rng.below(440)).as_bytes(), MAX_SEQ);
            for iter in [&mut plain, &mut merged] {
                match round % 4 {
                    0 => iter.seek_to_first(),
                    1 => iter.seek_to_last(),
                    2 => iter.seek(&target),
                    _ => iter.seek_for_prev(&target),
                }
                .expect("no faults here");
            }
            assert_eq!(merged.valid(), plain.valid());
            assert!(!merged.valid() || merged.key() == plain.key());
            let (mut expected, made) = (plain_reads.take().alone, reads.take());
            assert!(made.batches.len() <= 2, "{:?}", made.batches);
            // Allowance for a cursor that has to continue in the next block.
            let goes_on = if round % 4 < 2 { 0 } else { 4 };
            assert!(made.alone.len() <= goes_on, "{} alone", made.alone.len());
            most = most.max(expected.len());
            let mut all = [made.batches.concat(), made.alone].concat();
            all.sort_unstable();
            expected.sort_unstable();
            assert_eq!(all, expected);
        }
        assert!(most >= 2 * tables as usize, "{most} reads of {tables} tables and two levels");
    }
}

/// If a batch fails or returns damaged data, the cursor reads the block itself. Only its own result
/// is reported.
#[test]
fn a_failed_prefetch_batch_does_not_fail_the_seek() {
    let (mut rng, mut store) = (Rng::new(7), Store::new(7));
    (0..6).for_each(|_| store.flush(&mut rng));
    for unreadable in 0..6 {
        let reads = Reads::default();
        let mut sources =
            Sources::new(Visibility::At(store.seq), Opened::all(&store, &reads), IterOptions::default());
        sources.add(store.version.levels.iter().enumerate(), Bounds::default()).expect("no faults");
        let merged = MergingIterator::over(sources.cursors).reading_together(Box::new(reads.clone()));
        let mut iter = VisibleIterator::new(merged, sources.tombstones, VisibleOptions::at(store.seq));
        reads.0.lock().expect("nobody panics").unreadable = unreadable;
        iter.seek_to_first().expect("each reads alone what was not brought");
        let mut seen = View::new();
        while iter.valid() {
            seen.insert(iter.key().to_vec(), iter.value().to_vec());
            iter.next().expect("no faults here");
        }
        assert_eq!(seen, store.now);
        assert!(!reads.take().batches.is_empty());
    }
}

/// Drives a move while it waits: performs the requested reads one by one, and delivers them in any
/// order.
fn drive(rng: &mut Rng, iter: &mut VisibleIterator, mut moved: Result<()>, rounds: &mut usize) -> Result<()> {
    while moved.as_ref().is_err_and(base::Error::is_waiting) {
        assert!(!iter.valid());
        *rounds += 1;
        let mut wants = iter.inner_mut().take_wanted();
        assert!(!wants.is_empty(), "it waits for something");
        while !wants.is_empty() {
            let want = wants.swap_remove(rng.below(wants.len() as u64) as usize);
            let read = read_now(&want.file, want.extent);
            iter.inner_mut().give(&want.extent, &mut |fetched| fetched.put(&want, read.clone()));
        }
        moved = iter.resume();
    }
    moved
}

/// Runs flushes and compactions in random order, with snapshots in between.
fn shuffled(rng: &mut Rng, store: &mut Store) {
    for _ in 0..4 + rng.below(8) {
        match rng.below(4) {
            0 => store.compact(0),
            1 => store.compact(1),
            _ => store.flush(rng),
        }
        if rng.one_in(3) {
            store.snapshots.insert(store.seq, store.now.clone());
        }
    }
}

/// Scans whose reads the caller performs, over level 0, levels below, deletions, range deletions
/// and several snapshots. They see the same entries, read no more blocks, and wait less often than
/// they read.
#[test]
fn prefetching_scans_see_the_same_and_read_no_more() {
    let (mut rounds, mut waited_reads, mut plain_reads_made) = (0, 0, 0);
    for seed in 0..25 {
        let (mut rng, mut store) = (Rng::new(seed), Store::new(seed));
        shuffled(&mut rng, &mut store);
        for _ in 0..20 {
            let nth = rng.below(store.snapshots.len() as u64 + 1) as usize;
            let (seq, view) = match store.snapshots.iter().nth(nth) {
                Some((seq, view)) => (*seq, view.clone()),
                None => (store.seq, store.now.clone()),
            };
            let mut key = || rng.one_in(2).then(|| format!("key{:04}", rng.below(450)).into_bytes());
            let (lower, upper, target) = (key(), key(), key());
            let scan = |reads: &Reads, wants: bool| {
                let mut visible = VisibleOptions::at(seq);
                (visible.lower, visible.upper) = (lower.clone(), upper.clone());
                let readers = Visibility::At(seq);
                let sources = Sources::new(readers, Opened::all(&store, reads), IterOptions::default());
                let mut sources = if wants { sources.waiting() } else { sources };
                let bounds = Bounds { lower: lower.as_deref(), upper: upper.as_deref() };
                sources.add(store.version.levels.iter().enumerate(), bounds).expect("no faults");
                reads.take();
                VisibleIterator::new(MergingIterator::over(sources.cursors), sources.tombstones, visible)
            };
            let (plain_reads, reads) = (Reads::default(), Reads::default());
            let (mut plain, mut iter) = (scan(&plain_reads, false), scan(&reads, true));
            let from = |iter: &mut VisibleIterator| match &target {
                None => iter.seek_to_first(),
                Some(target) => iter.seek(target),
            };
            from(&mut plain).expect("no faults");
            let moved = from(&mut iter);
            drive(&mut rng, &mut iter, moved, &mut rounds).expect("no faults");
            let inside = |k: &[u8]| {
                [&lower, &target].iter().all(|border| border.as_ref().is_none_or(|b| &b[..] <= k))
                    && upper.as_ref().is_none_or(|upper| k < &upper[..])
            };
            let mut expected = view.iter().filter(|(k, _)| inside(k));
            for _ in 0..rng.below(200) {
                let next = expected.next();
                assert_eq!(
                    iter.valid().then(|| (iter.key(), iter.value())),
                    next.map(|(k, v)| (&k[..], &v[..]))
                );
                assert_eq!(iter.valid(), plain.valid());
                if next.is_none() {
                    break;
                }
                plain.next().expect("no faults");
                let moved = iter.next();
                drive(&mut rng, &mut iter, moved, &mut rounds).expect("no faults");
            }
            let (made, plain_made) = (reads.take().alone, plain_reads.take().alone);
            assert!(made.iter().all(|read| plain_made.contains(read)), "seed {seed}");
            assert!(made.len() <= plain_made.len());
            (waited_reads, plain_reads_made) =
                (waited_reads + made.len(), plain_reads_made + plain_made.len());
        }
    }
    assert!(
        waited_reads > 3000 && waited_reads * 10 > plain_reads_made * 9,
        "{waited_reads}, {plain_reads_made}"
    );
    assert!(rounds * 3 < waited_reads * 2, "waited {rounds} times for {waited_reads} reads");
}

#[test]
fn a_missing_table_is_an_error_and_not_end_of_scan() {
    let mut rng = Rng::new(3);
    let mut store = Store::new(3);
    (0..6).for_each(|_| store.flush(&mut rng));
    store.compact(0);
    let victim = store.version.levels[1].last().expect("a file").number;
    store.files.env.fs.remove(&path(victim)).expect("it exists");
    let mut sources = Sources::new(Visibility::At(store.seq), store.source.clone(), IterOptions::default());
    let added = sources.add(store.version.levels.iter().enumerate(), Bounds::default());
    let scanned = added.and_then(|()| {
        let merged = MergingIterator::over(sources.cursors);
        let mut iter = VisibleIterator::new(merged, sources.tombstones, VisibleOptions::at(store.seq));
        iter.seek_to_first()?;
        while iter.valid() {
            iter.next()?;
        }
        Ok(())
    });
    assert_eq!(scanned.expect_err("the table is gone").kind(), ErrorKind::NotFound);
}
