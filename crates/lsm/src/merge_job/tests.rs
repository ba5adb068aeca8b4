use super::*;
use crate::below::{AssumeOlderEntries, DeeperLevels};
use crate::model::{Append, History, Mix, View};
use crate::vec_iter::{Entry, VecIter};
use crate::{MergingIterator, VisibleIterator, VisibleOptions};
use base::ErrorKind;
use base::key::{compare, encode_into};
use io::Rng;
use std::collections::BTreeSet;
use version::{FileMeta, Version};

mod cases;
mod pieces;
mod tree;

/// A table in memory.
#[derive(Debug, Default)]
struct MemTable {
    points: Vec<Entry>,
    ranges: Vec<RangeTombstone>,
    raw: u64,
    fail_finish: bool,
}

#[derive(Debug)]
struct MemFile {
    meta: Arc<FileMeta>,
    points: Arc<Vec<Entry>>,
    tombstones: Arc<FragmentedRangeTombstones>,
}

impl OutputTable for MemTable {
    type Finished = (Vec<Entry>, Vec<RangeTombstone>);
    fn add(&mut self, ikey: &[u8], value: &[u8]) -> Result<()> {
        let last = self.points.last().map_or(&[][..], |p| &p.0);
        assert!(last.is_empty() || compare(last, ikey).is_lt(), "output out of order");
        self.raw += (ikey.len() + value.len()) as u64;
        self.points.push((ikey.to_vec(), value.to_vec()));
        Ok(())
    }
    fn add_range_tombstone(&mut self, t: &RangeTombstone) -> Result<()> {
        let key = |t: &RangeTombstone| (t.start.clone(), std::cmp::Reverse(t.seq));
        assert!(t.start < t.end && self.ranges.last().is_none_or(|last| key(last) < key(t)));
        self.ranges.push(t.clone());
        Ok(())
    }
    fn len_estimate(&self) -> u64 {
        self.raw
    }
    fn raw_bytes(&self) -> u64 {
        self.raw
    }
    fn finish(self) -> Result<Self::Finished> {
        if self.fail_finish {
            return Err(Error::new(ErrorKind::Io, "injected"));
        }
        Ok((self.points, self.ranges))
    }
}

/// Creates tables in memory. The creation, or the finish, of chosen ones fails.
#[derive(Default)]
struct MemFiles {
    next: u64,
    fail_create: Option<u64>,
    fail_finish: Option<u64>,
}

impl OutputFiles<MemTable> for MemFiles {
    fn create(&mut self) -> Result<OutputFile<MemTable>> {
        if self.fail_create == Some(self.next) {
            return Err(Error::new(ErrorKind::NoSpace, "injected"));
        }
        let number = self.next;
        self.next += 1;
        let table = MemTable { fail_finish: self.fail_finish == Some(number), ..MemTable::default() };
        Ok(OutputFile { number, path: format!("{number}").into(), table })
    }
}

/// Observer that counts and checks the dropped entries.
#[derive(Default)]
struct Count(u64);

impl DropObserver for Count {
    fn dropped(&mut self, key: &[u8], seq: SeqNo, _: ValueKind, _: &[u8], _: DropReason) {
        assert!(!key.is_empty() && seq <= MAX_SEQ);
        self.0 += 1;
    }
}

/// Cuts at random, so that every boundary is tried.
struct RandomCutter(Rng, u64);

impl OutputCutter for RandomCutter {
    fn cut_before(&mut self, _next: &[u8], _open: OutputSize) -> bool {
        self.0.one_in(self.1)
    }
}

fn describe(number: u64, points: Vec<Entry>, ranges: Vec<RangeTombstone>) -> MemFile {
    let mut smallest: Vec<Vec<u8>> = points.first().map(|p| p.0.clone()).into_iter().collect();
    let mut largest: Vec<Vec<u8>> = points.last().map(|p| p.0.clone()).into_iter().collect();
    for t in &ranges {
        smallest.push(encode(&t.start, t.seq, ValueKind::RangeDeletion));
        largest.push(encode(&t.end, MAX_SEQ, ValueKind::Seek));
    }
    let seqs = || points.iter().map(|p| key::seq(&p.0)).chain(ranges.iter().map(|t| t.seq));
    let meta = FileMeta {
        number,
        min_seq: seqs().min().expect("an output is not empty"),
        max_seq: seqs().max().expect("an output is not empty"),
        smallest: smallest.into_iter().min_by(|a, b| compare(a, b)).expect("an output is not empty"),
        largest: largest.into_iter().max_by(|a, b| compare(a, b)).expect("an output is not empty"),
        ..FileMeta::default()
    };
    meta.validate().expect("a sound file");
    let tombstones = Arc::new(FragmentedRangeTombstones::new(&ranges));
    MemFile { meta: Arc::new(meta), points: Arc::new(points), tombstones }
}

/// Runs a job to its end in steps of random size, checks its counters, and returns its files.
fn run_job(
    rng: &mut Rng,
    inputs: &[&MemFile],
    below: &mut dyn OlderEntryCheck,
    mut options: MergeOptions,
    next_number: &mut u64,
) -> (Vec<MemFile>, MergeStats) {
    options.step_bytes = [1, 100, 1 << 20][rng.below(3) as usize];
    let children =
        inputs.iter().map(|f| Box::new(VecIter::new(f.points.clone())) as Box<dyn InternalIterator>);
    let tombstones: Vec<_> = inputs.iter().map(|f| f.tombstones.clone()).collect();
    let mut job = MergeJob::new(MergingIterator::new(children.collect()), &tombstones, options);
    let mut files = MemFiles { next: *next_number, ..MemFiles::default() };
    let odds = [1, 2, 5, 1000][rng.below(4) as usize];
    let (mut cutter, mut observer) = (RandomCutter(rng.fork(), odds), Count::default());
    let mut written = 0;
    let outputs = loop {
        let mut hooks = JobEnv {
            files: &mut files,
            cutter: &mut cutter,
            below: &mut *below,
            values: None,
            observer: Some(&mut observer),
        };
        let step = job.step(&mut hooks).expect("no faults here");
        written += job.take_written_bytes();
        if let Step::Done(outputs) = step {
            break outputs;
        }
    };
    let stats = *job.stats();
    assert_eq!(stats.dropped(), observer.0);
    assert_eq!(written, stats.output_bytes);
    assert_eq!(job.created().len(), outputs.len());
    *next_number = files.next;
    let outputs: Vec<MemFile> =
        outputs.into_iter().map(|o| describe(o.number, o.table.0, o.table.1)).collect();
    let entries: usize = outputs.iter().map(|o| o.points.len()).sum();
    assert_eq!(entries as u64, stats.output_entries);
    for pair in outputs.windows(2) {
        assert!(pair[0].meta.ends_before(pair[1].meta.smallest_user_key()), "a user key spans two outputs");
    }
    (outputs, stats)
}

/// Returns the view of a snapshot over `files`, by a scan in either direction.
fn scan(files: &[&MemFile], snapshot: SeqNo, backward: bool) -> View {
    let children =
        files.iter().map(|f| Box::new(VecIter::new(f.points.clone())) as Box<dyn InternalIterator>);
    let tombstones = files.iter().map(|f| f.tombstones.clone()).collect();
    let mut options = VisibleOptions::at(snapshot);
    options.operator = Some(Arc::new(Append));
    let mut iter = VisibleIterator::new(MergingIterator::new(children.collect()), tombstones, options);
    let mut view = View::new();
    if backward { iter.seek_to_last() } else { iter.seek_to_first() }.expect("no faults here");
    while iter.valid() {
        let before = view.insert(iter.key().to_vec(), iter.value().to_vec());
        assert!(before.is_none(), "a key was shown twice");
        if backward { iter.prev() } else { iter.next() }.expect("no faults here");
    }
    view
}
