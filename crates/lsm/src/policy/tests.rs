use super::*;
use crate::{DeeperLevels, OlderEntryCheck, OutputCutter, OutputSize, SizeCutter};
use base::limits::LEVELS_MAX;
use base::{SeqNo, Uid, ValueKind, key};
use io::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;
use version::{Edit, Record, State};
use version::{FileMeta, Version};

mod bytes;
mod chain;
mod choice;
mod references;
mod rewrite;
mod set_aside;
mod simulation;
pub(super) mod tables;
mod vlsm;

/// Length of an entry with a value, and of a tombstone.
const ENTRY: u64 = 100;
const TOMBSTONE: u64 = 20;

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u32,
    seq: SeqNo,
    tombstone: bool,
}

fn user_key(key: u32) -> [u8; 4] {
    key.to_be_bytes()
}

fn options(choice: FileChoice) -> Leveled {
    Leveled {
        l0_compaction_files: 4,
        l0_compaction_bytes: 256 << 10,
        level_base_bytes: 64 << 10,
        file_bytes: 8 << 10,
        choice,
        ..Leveled::default()
    }
}

/// Returns a `vlsm` policy with the same sizes.
fn short_chains() -> Vlsm {
    let own =
        VlsmOptions { table_bytes: 8 << 10, level_1_tables: 4, growth_max: 8, ..VlsmOptions::default() };
    let tree = options(FileChoice::default());
    Vlsm { options: own, tree }
}

/// Further methods of a policy for tests.
trait Shape: CompactionPolicy {
    fn targets(&self, version: &Version, set_aside: &SetAside) -> LevelTargets;
    fn highest_score(&self, facts: &PickInputs<'_>) -> f64;
    fn tree(&self) -> &Leveled;
}

impl Shape for Leveled {
    fn targets(&self, version: &Version, set_aside: &SetAside) -> LevelTargets {
        self.level_targets(version, set_aside)
    }
    fn highest_score(&self, facts: &PickInputs<'_>) -> f64 {
        let scores = self.scores(facts);
        assert!(scores[0].1 >= 1.0 || self.debt_bytes(facts.version, facts.set_aside) == 0);
        scores[0].1
    }
    fn tree(&self) -> &Leveled {
        self
    }
}

impl Shape for Vlsm {
    fn targets(&self, version: &Version, set_aside: &SetAside) -> LevelTargets {
        self.level_targets(version, set_aside)
    }
    fn highest_score(&self, facts: &PickInputs<'_>) -> f64 {
        self.scores(facts)[0].1
    }
    fn tree(&self) -> &Leveled {
        &self.tree
    }
}

/// A store whose tables are lists of entries in memory. Everything else is real: the picker, the
/// cutter, and the state with its checks of every edit.
struct Store<P> {
    rng: Rng,
    policy: P,
    set_aside: SetAside,
    state: State,
    files: BTreeMap<u64, Vec<Entry>>,
    busy: InProgress,
    running: Vec<(Compaction, Arc<Version>)>,
    /// Sequence of each live key.
    model: BTreeMap<u32, SeqNo>,
    seq: SeqNo,
    flushed_bytes: u64,
    written_bytes: u64,
    moves: u64,
    intra: u64,
    /// Bytes of an entry in its table, and of its separated value.
    entry: (u64, u64),
}

impl<P: Shape> Store<P> {
    fn new(seed: u64, policy: P) -> Self {
        let create = Record::CreateFamily { id: 0, name: "default".into(), options: vec![] };
        Store {
            rng: Rng::new(seed),
            policy,
            set_aside: SetAside::default(),
            state: State::empty(Uid::default(), 1).apply(Edit(vec![create])).unwrap(),
            files: BTreeMap::new(),
            busy: InProgress::default(),
            running: Vec::new(),
            model: BTreeMap::new(),
            seq: 0,
            flushed_bytes: 0,
            written_bytes: 0,
            moves: 0,
            intra: 0,
            entry: (ENTRY, 0),
        }
    }

    fn version(&self) -> &Arc<Version> {
        &self.state.family(0).unwrap().version
    }

    fn facts(&self) -> PickInputs<'_> {
        PickInputs { version: self.version(), set_aside: &self.set_aside, busy: &self.busy }
    }

    fn pick(&self) -> Option<Compaction> {
        self.policy.levels(&self.facts())
    }

    fn table(&mut self, entries: Vec<Entry>) -> FileMeta {
        let number =
            self.state.store.next_file_number.max(self.files.last_key_value().map_or(1, |(n, _)| n + 1));
        let tombstones = entries.iter().filter(|e| e.tombstone).count() as u64;
        let (values, (of_table, of_value)) = (entries.len() as u64 - tombstones, self.entry);
        let len = values * of_table + tombstones * TOMBSTONE;
        let end = |e: &Entry| key::encode(&user_key(e.key), e.seq, ValueKind::Value);
        let meta = FileMeta {
            number,
            uid: Uid::from_words(number, number),
            len,
            smallest: end(&entries[0]),
            largest: end(&entries[entries.len() - 1]),
            min_seq: entries.iter().map(|e| e.seq).min().unwrap(),
            max_seq: entries.iter().map(|e| e.seq).max().unwrap(),
            entries: entries.len() as u64,
            tombstones,
            raw_bytes: len + values * of_value,
            hidden_bytes: tombstones * (of_table + of_value).saturating_sub(TOMBSTONE),
            ..FileMeta::default()
        };
        self.files.insert(number, entries);
        meta
    }

    /// Flushes `n` writes to keys drawn by `next_key`; one in `delete_every` is a delete (0: none).
    fn flush(&mut self, n: usize, delete_every: u64, mut next_key: impl FnMut(&mut Rng) -> u32) {
        let mut memtable = BTreeMap::new();
        for _ in 0..n {
            let key = next_key(&mut self.rng);
            self.seq += 1;
            let tombstone = delete_every > 0 && self.rng.one_in(delete_every);
            memtable.insert(key, Entry { key, seq: self.seq, tombstone });
            if tombstone {
                self.model.remove(&key);
            } else {
                self.model.insert(key, self.seq);
            }
        }
        let cutter = self.policy.flush_cutter(self.version(), &self.set_aside);
        let mut cutter = cutter.unwrap_or_else(|| Box::new(SizeCutter { raw_bytes: u64::MAX }));
        let mut records = Vec::new();
        for entries in self.cut(memtable.into_values(), &mut *cutter) {
            let meta = self.table(entries);
            self.flushed_bytes += meta.len;
            records.push(Record::AddFile { family: 0, level: 0, meta });
        }
        self.apply(records);
    }

    /// Cuts entries into tables with a cutter.
    fn cut(&self, entries: impl Iterator<Item = Entry>, cutter: &mut dyn OutputCutter) -> Vec<Vec<Entry>> {
        let (mut outputs, mut open, mut raw_bytes, mut file_bytes) = (Vec::new(), Vec::new(), 0, 0);
        for e in entries {
            let size = OutputSize { raw_bytes, file_bytes, is_empty: open.is_empty() };
            if cutter.cut_before(&user_key(e.key), size) {
                outputs.push(std::mem::take(&mut open));
                (raw_bytes, file_bytes) = (0, 0);
            }
            let (of_table, of_value) = if e.tombstone { (TOMBSTONE, 0) } else { self.entry };
            (raw_bytes, file_bytes) = (raw_bytes + of_table + of_value, file_bytes + of_table);
            open.push(e);
        }
        outputs.push(open);
        outputs.retain(|o| !o.is_empty());
        outputs
    }

    fn apply(&mut self, records: Vec<Record>) {
        self.state = self.state.apply(Edit(records)).unwrap();
    }

    /// Starts compactions until `slots` run or none is due, then ends random ones until at most
    /// `leave` run.
    fn work(&mut self, slots: usize, leave: usize) -> bool {
        let mut worked = false;
        while self.running.len() < slots {
            let Some(c) = self.pick() else { break };
            self.start(c);
            worked = true;
        }
        while self.running.len() > leave {
            let i = self.rng.below(self.running.len() as u64) as usize;
            let (c, version) = self.running.swap_remove(i);
            self.end(c, &version);
            worked = true;
        }
        worked
    }

    fn start(&mut self, c: Compaction) {
        assert!(c.is_current(self.version()));
        assert!(c.inputs.iter().all(|(_, files)| !files.is_empty()) && c.input_files().count() > 0);
        self.busy.add(&c);
        self.running.push((c, self.version().clone()));
    }

    fn end(&mut self, c: Compaction, version: &Version) {
        let remove = |(level, f): (usize, &Arc<FileMeta>)| Record::RemoveFile {
            family: 0,
            level: level as u32,
            number: f.number,
        };
        let mut records: Vec<Record> = c.input_files().map(remove).collect();
        let level = c.output_level as u32;
        if c.trivial_move {
            self.moves += 1;
            let moved =
                c.input_files().map(|(_, f)| Record::AddFile { family: 0, level, meta: (**f).clone() });
            records.extend(moved.collect::<Vec<_>>());
        } else {
            self.intra += u64::from(c.reason == Reason::L0Intra);
            for entries in self.merge(&c, version) {
                let meta = self.table(entries);
                self.written_bytes += meta.len;
                records.push(Record::AddFile { family: 0, level, meta });
            }
            c.input_files().for_each(|(_, f)| {
                self.files.remove(&f.number);
            });
        }
        self.apply(records);
        self.busy.remove(&c);
    }

    fn merge(&self, c: &Compaction, version: &Version) -> Vec<Vec<Entry>> {
        let mut newest: BTreeMap<u32, Entry> = BTreeMap::new();
        for e in c.input_files().flat_map(|(_, f)| &self.files[&f.number]) {
            let slot = newest.entry(e.key).or_insert(*e);
            *slot = if e.seq > slot.seq { *e } else { *slot };
        }
        let mut cutter = self.policy.cutter(c, version);
        let mut below = DeeperLevels::new(version, c.output_level);
        // Compactions into level 0 merge only the newest files, so older entries exist underneath.
        let mut goes = |e: &Entry| e.tombstone && c.output_level > 0 && !below.may_hold_key(&user_key(e.key));
        self.cut(newest.into_values().filter(|e| !goes(e)), &mut *cutter)
    }

    fn get(&self, key: u32) -> Option<SeqNo> {
        let user_key = user_key(key);
        let found = self.version().lookup(&user_key).find_map(|(_, f)| {
            let entries = &self.files[&f.number];
            entries.binary_search_by_key(&key, |e| e.key).ok().map(|i| entries[i])
        });
        found.filter(|e| !e.tombstone).map(|e| e.seq)
    }

    fn check(&mut self, keys: u32) {
        self.state.verify().unwrap();
        for _ in 0..200 {
            let key = self.rng.below(u64::from(keys)) as u32;
            assert_eq!(self.get(key), self.model.get(&key).copied(), "key {key}");
        }
    }

    /// Works until no compaction is due; fails if that takes too long.
    fn settle(&mut self) {
        let mut steps = 0;
        while self.work(2, 0) {
            steps += 1;
            assert!(steps < 3000, "compaction does not come to an end");
        }
        assert!(self.busy.is_empty());
        let high = self.policy.highest_score(&self.facts());
        assert!(high < 1.0, "{high}: {}", self.version().describe());
        let excess = self.policy.excess_bytes(self.version(), &self.set_aside);
        assert_eq!(excess, 0, "nothing is to be done: {}", self.version().describe());
    }

    fn write_amplification(&self) -> f64 {
        1.0 + self.written_bytes as f64 / self.flushed_bytes as f64
    }

    fn space_amplification(&self) -> f64 {
        let bytes: u64 =
            self.version().levels.iter().flat_map(|level| level.iter()).map(|f| f.raw_bytes).sum();
        bytes as f64 / (self.model.len() as u64 * (self.entry.0 + self.entry.1)) as f64
    }
}

/// Random writes with some compactions always running: reads stay right, all scores fall below 1,
/// and the tree takes about a ninth more than its data.
#[test]
fn random_flushes_converge() {
    leveled_converges(2, FileChoice::LargestCompensated, 3);
    vlsm_converges(2);
}

#[test]
#[ignore = "a minute: every night"]
fn random_flushes_converge_with_many_slots() {
    leveled_converges(1, FileChoice::MinOverlap, 1);
    leveled_converges(3, FileChoice::MinOverlap, 4);
    [1, 3, 4].into_iter().for_each(vlsm_converges);
}

fn leveled_converges(seed: u64, choice: FileChoice, slots: usize) {
    random_flushes_converge_with(&format!("{choice:?}, {slots} slots"), seed, options(choice), slots);
}

fn vlsm_converges(slots: usize) {
    random_flushes_converge_with(&format!("vlsm, {slots} slots"), 3 + slots as u64, short_chains(), slots);
}

fn random_flushes_converge_with(name: &str, seed: u64, policy: impl Shape, slots: usize) {
    const KEYS: u32 = 30_000;
    let mut store = Store::new(seed, policy);
    for round in 0..400 {
        store.flush(320, 0, |rng| rng.below(u64::from(KEYS)) as u32);
        let leave = store.rng.below(slots as u64 + 1) as usize;
        store.work(slots, leave);
        if round % 40 == 0 {
            store.check(KEYS);
        }
    }
    store.settle();
    store.check(KEYS);
    let (space, write) = (store.space_amplification(), store.write_amplification());
    let targets = store.policy.targets(store.version(), &store.set_aside);
    println!("{name}: space {space:.3}, write {write:.2}, base {}", targets.base_level);
    assert!(space < 1.2, "{name}: space amplification {space}");
    assert!(targets.base_level < 6, "several levels");
    assert!((0..targets.base_level).skip(1).all(|l| store.version().files(l).is_empty()));
}

/// Deletes free their space, and the remains of an emptied store are small.
#[test]
fn deletes_sink_to_the_bottom() {
    deletes_sink_with(options(FileChoice::default()));
    deletes_sink_with(short_chains());
}

fn deletes_sink_with(policy: impl Shape) {
    const KEYS: u32 = 10_000;
    let mut store = Store::new(11, policy);
    for _ in 0..100 {
        store.flush(300, 0, |rng| rng.below(u64::from(KEYS)) as u32);
        store.work(2, 0);
    }
    let full: u64 = store.version().levels.iter().map(|l| l.bytes()).sum();
    let mut next = 0;
    for _ in 0..KEYS / 500 + 1 {
        store.flush(500, 1, |_| {
            next += 1;
            next % KEYS
        });
        while store.work(2, 0) {}
    }
    store.settle();
    store.check(KEYS);
    let mut manual = ManualRange::new(None, None);
    run_manual(&mut store, &mut manual);
    assert_eq!(store.version().file_numbers().count(), 0, "of {full} B: {}", store.version().describe());
}

fn run_manual<P: Shape>(store: &mut Store<P>, manual: &mut ManualRange) {
    for _ in 0..2000 {
        match store.policy.manual(&store.facts(), manual, &|_| false) {
            ManualStep::Start(c) => store.start(*c),
            ManualStep::Wait => assert!(!store.running.is_empty(), "waits for nothing"),
            ManualStep::Done => {
                store.work(0, 0);
                return;
            }
        }
        if store.rng.one_in(2) {
            store.work(3, 0);
        }
    }
    panic!("compact_range does not come to an end");
}

#[test]
fn compact_range_leaves_the_range_in_one_level() {
    for seed in 0..4 {
        compact_range_with(seed, options(FileChoice::default()));
        compact_range_with(seed, short_chains());
    }
}

fn compact_range_with(seed: u64, policy: impl Shape) {
    const KEYS: u32 = 8_000;
    let mut store = Store::new(seed, policy);
    for _ in 0..60 {
        store.flush(200, 10, |rng| rng.below(u64::from(KEYS)) as u32);
        store.work(2, 1);
    }
    let (low, high) = (user_key(2000), user_key(5000));
    run_manual(&mut store, &mut ManualRange::new(Some(&low), Some(&high)));
    let version = store.version();
    let levels = (0..7).filter(|&l| !version.overlapping(l, Some(&low), Some(&high)).is_empty()).count();
    assert_eq!(levels, 1, "{}", version.describe());
    store.check(KEYS);
}

/// Sequential writes cause no rewriting.
#[test]
fn sequential_writes_only_move() {
    sequential_writes_with(options(FileChoice::default()));
    sequential_writes_with(short_chains());
}

fn sequential_writes_with(policy: impl Shape) {
    let mut store = Store::new(13, policy);
    let mut next = 0;
    for _ in 0..200 {
        store.flush(80, 0, |_| {
            next += 1;
            next
        });
        while store.work(1, 0) {}
    }
    store.settle();
    assert_eq!(store.written_bytes, 0);
    assert!(store.moves > 150);
    store.check(next);
}

/// While the base level is busy, level 0 shrinks by merging its newest files.
#[test]
fn a_blocked_level_0_merges_with_itself() {
    const KEYS: u32 = 5_000;
    let mut store = Store::new(17, options(FileChoice::default()));
    let uniform = |rng: &mut Rng| rng.below(u64::from(KEYS)) as u32;
    for _ in 0..4 {
        store.flush(100, 0, uniform);
    }
    let first = store.pick().unwrap();
    assert_eq!((first.reason, first.output_level, first.inputs[0].1.len()), (Reason::L0Files, 6, 4));
    store.start(first);
    let mut widest = 0;
    for _ in 0..40 {
        store.flush(100, 0, uniform);
        while let Some(c) = store.pick() {
            assert_eq!((c.reason, c.output_level), (Reason::L0Intra, 0));
            store.start(c);
            let (c, version) = store.running.pop().unwrap();
            store.end(c, &version);
        }
        widest = widest.max(store.version().files(0).len());
        store.check(KEYS);
    }
    assert!(store.intra > 3 && widest < 24, "{} merges, up to {widest} files", store.intra);
    store.work(0, 0);
    store.settle();
    store.check(KEYS);
}

fn file(number: u64, low: u32, high: u32, seq: SeqNo, raw_bytes: u64) -> Arc<FileMeta> {
    Arc::new(FileMeta {
        number,
        len: raw_bytes / 2,
        smallest: key::encode(&user_key(low), seq, ValueKind::Value),
        largest: key::encode(&user_key(high), seq, ValueKind::Value),
        min_seq: seq,
        max_seq: seq,
        entries: 100,
        raw_bytes,
        ..FileMeta::default()
    })
}

/// Runs a pick on a version without running jobs or damaged tables.
fn free<T>(version: &Version, pick: impl FnOnce(&PickInputs<'_>) -> T) -> T {
    pick(&PickInputs { version, set_aside: &SetAside::default(), busy: &InProgress::default() })
}

#[test]
fn targets_follow_the_deepest_level() {
    let options = Leveled::default();
    let mib = 1u64 << 20;
    let with = |sizes: &[(usize, u64)]| {
        let mut levels = vec![Vec::new(); 7];
        sizes.iter().for_each(|&(l, mb)| levels[l].push(file(l as u64 + 1, 0, 9, 1, mb * mib)));
        options.level_targets(&Version::with_files(0, levels), &SetAside::default())
    };
    assert_eq!(with(&[]).base_level, 6);
    assert_eq!(with(&[(6, 60)]).base_level, 6);
    let t = with(&[(6, 600)]);
    assert_eq!((t.base_level, t.bytes[5]), (5, 64 * mib));
    let t = with(&[(6, 10_000)]);
    assert_eq!((t.base_level, &t.bytes[..]), (3, &[0, 0, 0, 64 * mib, 100 * mib, 1000 * mib, u64::MAX][..]));
    let t = with(&[(6, 6_000)]);
    assert_eq!((t.base_level, t.bytes[5], t.bytes[4]), (4, 600 * mib, 64 * mib));
    // A level in use stays in use when the store shrinks.
    assert_eq!(with(&[(3, 1), (6, 60)]).base_level, 3);
}

/// An old file of level 0 never stays behind a newer one that it overlaps.
#[test]
fn level_0_is_compacted_with_all_older_overlapping_tables() {
    let mut rng = Rng::new(19);
    for _ in 0..2000 {
        let n = rng.range(4, 10);
        let l0 = (0..n).map(|i| {
            let low = rng.below(100) as u32;
            file(i + 1, low, low + rng.below(30) as u32, i + 1, 1000)
        });
        let version = Version::with_files(0, vec![l0.collect()]);
        let options = Leveled { compaction_bytes_max: rng.range(1, 4000), ..options(FileChoice::default()) };
        let c = free(&version, |facts| options.levels(facts)).unwrap();
        let taken: Vec<u64> = c.input_files().map(|(_, f)| f.number).collect();
        for f in version.files(0).iter().filter(|f| !taken.contains(&f.number)) {
            let behind = c.input_files().any(|(_, t)| t.max_seq > f.max_seq && t.overlaps(f));
            assert!(!behind, "{} stays behind\n{}", f.number, version.describe());
        }
        assert!(taken.contains(&1));
    }
}

#[test]
fn a_file_full_of_tombstones_is_rewritten_at_the_bottom() {
    let sparse = file(1, 0, 9, 1, 1 << 20);
    let full = Arc::new(FileMeta { tombstones: 50, ..(*sparse).clone() });
    for (f, moves) in [(sparse, true), (full, false)] {
        let options = Leveled { l0_compaction_files: 1, ..Leveled::default() };
        let version = Version::with_files(0, vec![vec![f]]);
        let c = free(&version, |facts| options.levels(facts)).unwrap();
        assert_eq!((c.output_level, c.trivial_move), (6, moves));
    }
}

#[test]
fn outputs_end_at_the_size_and_at_the_overlap() {
    let levels = vec![
        vec![file(1, 0, 100, 9, 1000)],
        vec![],
        (0..10).map(|i| file(10 + i, i as u32 * 10, i as u32 * 10 + 9, 1, 1000)).collect(),
    ];
    let version = Version::with_files(0, levels);
    let options = Leveled { file_bytes: 100, ..options(FileChoice::default()) };
    let busy = InProgress::default();
    let facts = PickInputs { version: &version, set_aside: &SetAside::default(), busy: &busy };
    let mut c = options.moves(&facts).down(2, 0, Reason::Manual).unwrap();
    (c.output_level, c.overlap_max) = (1, 1200);
    let mut cutter = Cutter::new(&c, &version);
    let open = |raw_bytes| OutputSize { raw_bytes, file_bytes: 60, is_empty: raw_bytes == 0 };
    assert!(!cutter.cut_before(&user_key(0), open(0)));
    assert!(!cutter.cut_before(&user_key(29), open(10)), "met 2 files of 500 B");
    assert!(cutter.cut_before(&user_key(30), open(10)), "and a third one");
    assert!(!cutter.cut_before(&user_key(49), open(20)));
    assert!(cutter.cut_before(&user_key(49), open(100)), "full");
    let mut cutter = Cutter::new(&c, &version);
    assert!(!cutter.cut_before(&user_key(75), open(0)));
    assert!(!cutter.cut_before(&user_key(76), open(10)), "what lies before its first key is not met");
    c.output_level = 0;
    assert!(!Cutter::new(&c, &version).cut_before(&user_key(99), open(1 << 40)), "level 0 is not cut");
}

#[test]
fn reference_tables_may_exceed_the_target_up_to_a_file_size() {
    let mib = 1 << 20;
    let c = Compaction {
        family: 1,
        level: 0,
        output_level: LEVELS_MAX - 1,
        inputs: Vec::new(),
        reason: Reason::L0Files,
        trivial_move: false,
        file_bytes: 16 * mib,
        overlap_max: u64::MAX,
        compensated: true,
        relocate_vssts: Vec::new(),
        volume: 0,
    };
    let version = Version::new(1);
    let mut cutter = Cutter::new(&c, &version);
    let mut full = |raw_bytes, file_bytes| {
        cutter.cut_before(&user_key(0), OutputSize { raw_bytes, file_bytes, is_empty: false })
    };
    assert!(!full(16 * mib - 1, 16 * mib) && full(16 * mib, 16 * mib), "inline values");
    assert!(
        !full(16 * mib, mib - 1) && full(16 * mib, mib) && full(64 * mib, mib - 1),
        "values of a kilobyte"
    );
    assert!(!full(64 * mib, mib / 4 - 1) && full(64 * mib, mib / 4), "values of many");
    let file = |len, raw_bytes| Arc::new(FileMeta { len, raw_bytes, ..FileMeta::default() });
    let with = |file| Compaction { inputs: vec![(0, vec![file])], ..c.clone() }.expected_output_len();
    assert_eq!(with(file(100 * mib, 100 * mib)), 16 * mib, "inline values");
    assert_eq!(with(file(100 * mib, 800 * mib)), 2 * mib, "a share like the inputs'");
    assert_eq!((with(file(10 * mib, 10_000 * mib)), with(file(mib / 2, 10 * mib))), (mib, mib / 2));
}

/// Some compactions may not run in parallel although they share no file.
#[test]
fn outputs_of_running_compactions_are_reserved() {
    let version = Version::with_files(
        0,
        vec![vec![file(1, 0, 50, 1, 1000), file(2, 60, 90, 2, 1000)], vec![file(3, 40, 70, 0, 1000)]],
    );
    let compaction = |level: usize, output_level: usize, files: &[Arc<FileMeta>]| Compaction {
        family: 0,
        level,
        output_level,
        inputs: vec![(level, files.to_vec())],
        reason: Reason::Manual,
        trivial_move: false,
        file_bytes: 1,
        overlap_max: 1,
        compensated: true,
        relocate_vssts: vec![],
        volume: 0,
    };
    let (l0, l1) = (version.files(0), version.files(1));
    let (newer, older, below) = (&l0[..1], &l0[1..], l1);
    let running = compaction(0, 2, older);
    let mut busy = InProgress::default();
    busy.add(&running);
    assert!(!busy.allows(&running), "the same files");
    assert!(busy.allows(&compaction(0, 3, newer)), "other keys");
    let meets = |low: u32, high: u32| compaction(0, 3, &[file(4, low, high, 3, 1000)]);
    let (low, high) = running.key_range();
    let [low, high] = [low, high].map(|key| u32::from_be_bytes(key.try_into().unwrap()));
    for (low, high) in [(low, low), (high, high), (low + 1, low + 2), (0, 99)] {
        assert!(!busy.allows(&meets(low, high)), "level 0 goes down to two levels at once");
    }
    assert!(busy.allows(&meets(high + 1, high + 2)));
    assert!(busy.allows(&compaction(0, 0, newer)));
    assert!(!busy.allows(&compaction(1, 2, below)), "the same level and range");
    assert!(busy.allows(&compaction(1, 3, below)));
    assert!(!running.is_current(&Version::new(0)) && compaction(0, 2, newer).is_current(&version));
    assert!(
        !compaction(0, 1, newer).is_current(&version),
        "a file of the output level is not among the inputs"
    );
    busy.remove(&running);
    assert!(busy.is_empty() && busy.allows(&compaction(1, 2, below)));
}

/// Tombstones that a snapshot holds back are rewritten once, not endlessly.
#[test]
fn compact_range_terminates_if_tombstones_stay() {
    let stubborn = |n: u64| {
        Arc::new(FileMeta { tombstones: 9, ..(*file(n, n as u32 * 10, n as u32 * 10 + 5, 1, 1000)).clone() })
    };
    let version = Version::with_files(0, vec![vec![], vec![], vec![stubborn(1), stubborn(2), stubborn(3)]]);
    let mut manual = ManualRange::new(None, Some(&user_key(25)));
    let mut seen = Vec::new();
    let mut step =
        || free(&version, |facts| options(FileChoice::default()).manual(facts, &mut manual, &|_| false));
    while let ManualStep::Start(c) = step() {
        assert_eq!((c.level, c.output_level), (2, 2));
        seen.extend(c.input_files().map(|(_, f)| f.number));
        assert!(seen.len() < 9);
    }
    assert_eq!(seen, vec![1, 2]);
    assert!(matches!(step(), ManualStep::Done));
}

/// When space is short, everything goes to the deepest level, and then nothing is left to do.
#[test]
fn space_compaction_moves_everything_down() {
    for seed in 0..8 {
        for_space_with(seed, options(FileChoice::default()));
        for_space_with(seed, short_chains());
    }
}

fn for_space_with(seed: u64, policy: impl Shape) {
    let mut store = Store::new(seed, policy);
    for _ in 0..40 {
        store.flush(200, 5, |rng| rng.below(4000) as u32);
        store.work(1, 0);
    }
    let mut steps = 0;
    while let Some(c) = store.policy.for_space(&store.facts(), RequiredBenefit::Any, &|_| false) {
        assert_eq!(c.reason, Reason::Space);
        store.start(c);
        let (c, version) = store.running.pop().unwrap();
        store.end(c, &version);
        steps += 1;
        assert!(steps < 1000, "it never ends");
    }
    let version = store.version();
    let bottom = version.deepest_level().unwrap();
    assert!((0..bottom).all(|level| version.files(level).is_empty()), "seed {seed}");
    let entries: u64 = version.files(bottom).iter().map(|f| f.entries).sum();
    assert!(steps > 0 && entries == store.model.len() as u64, "seed {seed}: {entries}");
}

/// A file of a nearly empty level overlaps a large part of the level below: it is compacted only if
/// there is no other way.
#[test]
fn space_compaction_rewrites_no_byte_repeatedly() {
    let below = (0..40).map(|i| file(10 + i, i as u32 * 10, i as u32 * 10 + 9, 1, 1000));
    let mut tree = vec![Vec::new(); 7];
    tree[6] = below.map(|f| Arc::new(FileMeta { entries: 100, ..(*f).clone() })).collect();
    tree[5] = vec![Arc::new(FileMeta { entries: 100, ..(*file(1, 0, 400, 9, 1000)).clone() })];
    let options = Leveled { file_bytes: 100, ..options(FileChoice::default()) };
    let pick = |tree: &Vec<Vec<Arc<FileMeta>>>, need| {
        let version = Version::with_files(0, tree.clone());
        let picked = free(&version, |facts| options.for_space(facts, need, &|_| false));
        picked.map(|c| c.input_files().map(|(_, f)| f.number).min().unwrap_or_default())
    };
    assert_eq!((pick(&tree, RequiredBenefit::Worth(3)), pick(&tree, RequiredBenefit::Any)), (None, Some(1)));
    // The same number of entries in fewer files is worth its cost, and goes first.
    let dense = FileMeta { entries: 300, ..(*file(2, 401, 420, 9, 1000)).clone() };
    tree[5].push(Arc::new(dense));
    tree[6].push(Arc::new(FileMeta { entries: 100, ..(*file(90, 402, 419, 1, 1000)).clone() }));
    assert_eq!(
        (pick(&tree, RequiredBenefit::Worth(3)), pick(&tree, RequiredBenefit::Any)),
        (Some(2), Some(2))
    );
}

/// Overlap is physical: tables of references have many compensated bytes, but are short.
#[test]
fn short_tables_bound_the_width_of_a_compaction() {
    let mib = 1 << 20;
    let options = Leveled::default();
    let full = |number: u64, len: u64, values: u64| {
        let mut f = (*file(number, number as u32 * 10, number as u32 * 10 + 9, 1, 0)).clone();
        (f.len, f.raw_bytes) = (len, len + values);
        Arc::new(f)
    };
    let tree = |len: u64, values: u64| {
        let mut tree = vec![Vec::new(); 7];
        tree[5] = vec![full(1, len, values)];
        tree[6] = (1..200).map(|number| full(number, len, values)).collect();
        Version::with_files(0, tree)
    };
    let inline = tree(16 * mib, 0);
    assert_eq!(options.overlap_max(&inline, 5), 160 * mib);
    assert_eq!(options.width_bytes(&inline, &SetAside::default()), 12 * 16 * mib);
    let separated = tree(2 * mib, 14 * mib);
    assert_eq!(options.overlap_max(&separated, 5), 20 * mib);
    assert_eq!(options.width_bytes(&separated, &SetAside::default()), 12 * 2 * mib);
    assert_eq!(options.overlap_max(&tree(mib / 4, 64 * mib), 5), 10 * mib, "not below what is worth a file");
}
