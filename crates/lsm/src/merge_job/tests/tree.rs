//! The central test of the crate: random histories in a small tree in memory, with random flushes
//! and compactions between its levels. After each of them the view of every snapshot is compared
//! with the model.

use super::*;

const LEVELS: usize = 4;

struct Tree {
    history: History,
    mix: Mix,
    /// Highest sequence in files.
    flushed: SeqNo,
    /// Level 0 newest first, the others in key order.
    levels: Vec<Vec<Arc<MemFile>>>,
    snapshots: BTreeSet<SeqNo>,
    /// Lowest sequence at which a new reader may stand.
    frontier: SeqNo,
    operator: bool,
    next_number: u64,
    log: Vec<String>,
}

impl Tree {
    fn new(rng: &mut Rng) -> Tree {
        Tree {
            history: History::default(),
            mix: Mix::random(rng),
            flushed: 0,
            levels: (0..LEVELS).map(|_| Vec::new()).collect(),
            snapshots: BTreeSet::new(),
            frontier: 0,
            operator: rng.one_in(2),
            next_number: 1,
            log: Vec::new(),
        }
    }

    fn version(&self) -> Version {
        let metas = |files: &Vec<Arc<MemFile>>| files.iter().map(|f| f.meta.clone()).collect();
        Version::with_files(0, self.levels.iter().map(metas).collect())
    }

    /// Returns the options of a job that starts now, and advances the frontier: mostly to the last
    /// sequence, sometimes to an older one (as if writes had continued), so that inputs reach above
    /// it.
    fn options(&mut self, rng: &mut Rng, output_level: usize) -> MergeOptions {
        let last = self.history.last_seq();
        self.frontier = if rng.one_in(4) { rng.range(self.frontier, last + 1) } else { last };
        let mut snapshots: Vec<SeqNo> = self.snapshots.range(..self.frontier).copied().collect();
        snapshots.push(self.frontier);
        let mut options = MergeOptions::new(snapshots);
        options.zero_sequences = output_level > 0;
        options.operator = self.operator.then(|| Arc::new(Append) as Arc<dyn MergeOperator>);
        options
    }

    fn flush(&mut self, rng: &mut Rng) {
        let upto = rng.range(self.flushed, self.history.last_seq() + 1);
        let (points, ranges) = self.history.entries(self.flushed, upto);
        self.flushed = upto;
        if points.is_empty() && ranges.iter().all(|t| t.start >= t.end) {
            return;
        }
        let memory = MemFile {
            meta: Arc::default(),
            points: Arc::new(points),
            tombstones: Arc::new(FragmentedRangeTombstones::new(&ranges)),
        };
        let options = self.options(rng, 0);
        let version = self.version();
        let mut deeper = DeeperLevels::new(&version, 0);
        let below: &mut dyn OlderEntryCheck =
            if rng.one_in(3) { &mut AssumeOlderEntries } else { &mut deeper };
        self.log.push(format!("flush up to {upto}, snapshots {:?}", options.snapshots));
        let (outputs, _) = run_job(rng, &[&memory], below, options, &mut self.next_number);
        self.levels[0].splice(0..0, outputs.into_iter().map(Arc::new));
    }

    /// Compacts a part of level `level` down, with every overlapping file on the way to `output`.
    fn compact(&mut self, rng: &mut Rng, level: usize, output: usize, from: usize, to: usize) {
        let version = self.version();
        let mut inputs: Vec<(usize, Arc<MemFile>)> =
            self.levels[level][from..to].iter().map(|f| (level, f.clone())).collect();
        for next in level + 1..=output {
            let low = inputs.iter().map(|(_, f)| f.meta.smallest_user_key()).min().unwrap_or_default();
            let high = inputs.iter().map(|(_, f)| f.meta.largest_user_key()).max().unwrap_or_default();
            let range = version.overlap_range(next, Some(low), Some(high));
            let more: Vec<_> = self.levels[next][range].iter().map(|f| (next, f.clone())).collect();
            inputs.extend(more);
        }
        for (l, f) in &inputs {
            self.levels[*l].retain(|g| g.meta.number != f.meta.number);
        }
        let numbers: Vec<_> = inputs.iter().map(|(l, f)| (*l, f.meta.number)).collect();
        let outputs = if inputs.len() == 1 && level > 0 && rng.one_in(2) {
            self.log.push(format!("move {numbers:?} to level {output}"));
            vec![inputs[0].1.clone()]
        } else {
            let options = self.options(rng, output);
            self.log
                .push(format!("compact {numbers:?} to level {output}, snapshots {:?}", options.snapshots));
            let files: Vec<&MemFile> = inputs.iter().map(|(_, f)| &**f).collect();
            self.run(rng, &files, &version, output, options)
        };
        if output == 0 {
            self.levels[0].splice(from..from, outputs);
        } else {
            self.levels[output].extend(outputs);
            self.levels[output].sort_by(|a, b| compare(&a.meta.smallest, &b.meta.smallest));
        }
    }

    /// Runs the job, sometimes in pieces, one after another. Between pieces snapshots are released,
    /// and the frontier rises.
    fn run(
        &mut self,
        rng: &mut Rng,
        files: &[&MemFile],
        version: &Version,
        output: usize,
        options: MergeOptions,
    ) -> Vec<Arc<MemFile>> {
        let mut cuts = BTreeSet::new();
        if rng.one_in(3) {
            cuts.extend((0..1 + rng.below(3)).map(|_| crate::model::user_key(rng.below(self.mix.keys))));
        }
        let mut parts = vec![options];
        for cut in cuts {
            let Some(before) = parts.last_mut() else { break };
            let mut next = before.clone();
            before.upper = Some(cut.clone());
            next.lower = Some(cut);
            if rng.one_in(3) {
                let gone = self.snapshots.iter().nth(rng.below(4) as usize).copied();
                gone.map(|s| self.snapshots.remove(&s));
                self.frontier = rng.range(self.frontier, self.history.last_seq() + 1);
                next.snapshots = self.snapshots.range(..self.frontier).copied().collect();
                next.snapshots.push(self.frontier);
            }
            parts.push(next);
        }
        let mut outputs = Vec::new();
        for part in parts {
            let mut below = DeeperLevels::new(version, output);
            let (more, stats) = run_job(rng, files, &mut below, part, &mut self.next_number);
            assert!(output > 0 || stats.zeroed == 0);
            outputs.extend(more.into_iter().map(Arc::new));
        }
        outputs
    }

    /// Makes one random change to the shape of the tree.
    fn reshape(&mut self, rng: &mut Rng) {
        let levels: Vec<usize> = (0..LEVELS).filter(|&l| !self.levels[l].is_empty()).collect();
        if levels.is_empty() || rng.one_in(3) {
            return self.flush(rng);
        }
        let level = levels[rng.below(levels.len() as u64) as usize];
        let len = self.levels[level].len() as u64;
        let mut from = rng.below(len);
        let mut to = rng.range(from + 1, len + 1);
        // Level 0 goes down oldest first. Some compactions stay within level 0, and some rewrite
        // one file of the last level.
        let output = match level {
            0 if rng.one_in(4) => 0,
            l if l + 1 == LEVELS => l,
            l => (l + 1 + rng.below(2) as usize).min(LEVELS - 1),
        };
        if level == 0 && output > 0 {
            to = len;
        }
        if level > 0 && level == output {
            (from, to) = (from, from + 1);
        }
        if level > 0 && rng.one_in(2) {
            to = from + 1;
        }
        from = from.min(to - 1);
        self.compact(rng, level, output, from as usize, to as usize);
    }

    fn check(&self, rng: &mut Rng, case: u64) {
        for level in &self.levels[1..] {
            for pair in level.windows(2) {
                assert!(
                    pair[0].meta.ends_before(pair[1].meta.smallest_user_key()),
                    "case {case}: {:?}",
                    self.log
                );
            }
        }
        let (points, ranges) = self.history.entries(self.flushed, self.history.last_seq());
        let memory = MemFile {
            meta: Arc::default(),
            points: Arc::new(points),
            tombstones: Arc::new(FragmentedRangeTombstones::new(&ranges)),
        };
        let files: Vec<&MemFile> =
            std::iter::once(&memory).chain(self.levels.iter().flatten().map(|f| &**f)).collect();
        let last = self.history.last_seq();
        let later = [self.frontier, rng.range(self.frontier, last + 1), last, MAX_SEQ];
        for snapshot in self.snapshots.iter().copied().chain(later).collect::<BTreeSet<_>>() {
            let seen = scan(&files, snapshot, rng.one_in(2));
            let expected = self.history.view(snapshot);
            assert_eq!(seen, expected, "case {case} snapshot {snapshot}: {:#?}", self.log);
        }
        // References keep their sequences; only inline values are zeroed.
        for (k, v) in files.iter().flat_map(|f| f.points.iter()) {
            let (seq, kind) = (key::seq(k), key::kind(k).expect("a known kind"));
            assert!(seq > 0 || kind == ValueKind::Value, "case {case}: {kind:?} lost its sequence");
            let written = format!("{seq};");
            assert!(
                kind != ValueKind::Reference || v.starts_with(written.as_bytes()),
                "case {case}: a reference changed its sequence"
            );
        }
    }

    /// Without snapshots, one compaction of everything leaves exactly the live keys.
    fn settle(&mut self, rng: &mut Rng, case: u64) {
        self.snapshots.clear();
        while self.flushed < self.history.last_seq() {
            self.flush(rng);
        }
        let all: Vec<_> = self.levels.iter_mut().flat_map(std::mem::take).collect();
        let files: Vec<&MemFile> = all.iter().map(|f| &**f).collect();
        self.frontier = self.history.last_seq();
        let mut options = MergeOptions::new(vec![self.frontier]);
        options.operator = Some(Arc::new(Append));
        let version = self.version();
        let outputs = self.run(rng, &files, &version, LEVELS - 1, options);
        let view = self.history.view(MAX_SEQ);
        let entries: Vec<&Entry> = outputs.iter().flat_map(|f| f.points.iter()).collect();
        let keys: Vec<&[u8]> = entries.iter().map(|(k, _)| key::user_key(k)).collect();
        assert_eq!(keys, view.keys().map(Vec::as_slice).collect::<Vec<_>>(), "case {case}: {:#?}", self.log);
        assert!(outputs.iter().all(|f| f.tombstones.is_empty()), "case {case}: a range tombstone stayed");
        let zeroed = |k: &[u8]| key::seq(k) == 0 || key::kind(k) == Some(ValueKind::Reference);
        assert!(entries.iter().all(|(k, _)| zeroed(k)), "case {case}: a sequence was not zeroed");
        self.levels[LEVELS - 1] = outputs;
        self.check(rng, case);
    }
}

fn run_case(case: u64) {
    let mut rng = Rng::new(case);
    let mut tree = Tree::new(&mut rng);
    let burst = 1 + rng.below(40);
    for _ in 0..1 + rng.below(16) {
        for _ in 0..rng.below(burst) {
            tree.history.write(&mut rng, &tree.mix);
            if rng.one_in(12) {
                tree.snapshots.insert(tree.history.last_seq());
            }
        }
        // A snapshot may be released at any time; a new one sees at least the frontier.
        if rng.one_in(3) {
            let gone = tree.snapshots.iter().nth(rng.below(4) as usize).copied();
            gone.map(|s| tree.snapshots.remove(&s));
        }
        tree.reshape(&mut rng);
        tree.check(&mut rng, case);
    }
    tree.settle(&mut rng, case);
}

#[test]
fn snapshots_are_unchanged_by_flush_and_compaction() {
    let cases = std::env::var("LAVASTORE_MODEL_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1500);
    let only = std::env::var("LAVASTORE_MODEL_CASE").ok().and_then(|n| n.parse().ok());
    match only {
        Some(case) => run_case(case),
        None => (0..cases).for_each(run_case),
    }
}
