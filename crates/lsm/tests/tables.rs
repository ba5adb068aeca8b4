//! Flush, compaction and scans over real tables, in the simulated environment: what the pieces do together, against a
//! map of what every snapshot should see.

use base::key::{self, encode};
use base::range_del::{FragmentedRangeTombstones, RangeTombstone};
use base::{ErrorKind, Result, SeqNo, Uid, ValueKind};
use cache::Cache;
use io::{Access, CreateOptions, Env, Rng, sim::SimEnv};
use lavastore_lsm::vec_iter::{Entry, VecIter};
use lavastore_lsm::{
    Bounds, DeeperLevels, Hooks, MergeJob, MergeOptions, MergingIterator, OutputFile, OutputFiles,
    SizeCutter, Sources, Step, TableSource, Visibility, VisibleIterator, VisibleOptions, file_meta,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use table::{IterOptions, Ksst, KsstBuilder, Reference, TableIdentity, TableOptions};
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
    /// What each registered snapshot sees.
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

    /// A memtable's worth of random writes, flushed.
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
            let mut hooks = Hooks {
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

    /// Compacts everything of `level` into the next one.
    fn compact(&mut self, level: usize) {
        let mut levels = self.levels();
        let readers = Visibility::Snapshots(self.visible());
        let options = IterOptions { fill_cache: false, readahead_bytes: 4096 };
        let mut sources = Sources::new(readers, self.source.clone(), options);
        let inputs = self.version.levels.iter().enumerate().skip(level).take(2);
        sources.add(inputs, Bounds::default()).expect("no faults here");
        self.hidden_tables += sources.hidden_tables;
        let tombstones = std::mem::take(&mut sources.tombstones);
        let new = self.run(MergingIterator::new(sources.cursors), &tombstones, level + 1, 1500);
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
            let merged = MergingIterator::new(sources.cursors);
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

#[test]
fn a_missing_table_is_an_error_and_not_the_end() {
    let mut rng = Rng::new(3);
    let mut store = Store::new(3);
    (0..6).for_each(|_| store.flush(&mut rng));
    store.compact(0);
    let victim = store.version.levels[1].last().expect("a file").number;
    store.files.env.fs.remove(&path(victim)).expect("it exists");
    let mut sources = Sources::new(Visibility::At(store.seq), store.source.clone(), IterOptions::default());
    let added = sources.add(store.version.levels.iter().enumerate(), Bounds::default());
    let scanned = added.and_then(|()| {
        let merged = MergingIterator::new(sources.cursors);
        let mut iter = VisibleIterator::new(merged, sources.tombstones, VisibleOptions::at(store.seq));
        iter.seek_to_first()?;
        while iter.valid() {
            iter.next()?;
        }
        Ok(())
    });
    assert_eq!(scanned.expect_err("the table is gone").kind(), ErrorKind::NotFound);
}
