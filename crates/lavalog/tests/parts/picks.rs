//! The choice of files to collect, over simulated histories.

use io::Rng;
use lavalog::Source;
use lavalog::lsn_set::Size;
use lavalog::pick::{Candidates, ColdClass, FileFacts, Pick, PickOptions, RECORD_COST};
use std::collections::BTreeMap;

const MB: u64 = 1 << 20;

fn pick(files: &[FileFacts], options: &PickOptions) -> Option<Pick> {
    lavalog::pick::pick(&mut Candidates::of(files), options)
}

fn group(age: u64, live_percent: u64) -> FileFacts {
    let amount = |percent| Size { records: percent, bytes: percent * (MB - RECORD_COST) };
    FileFacts {
        source: Source::Group(age),
        bytes: 100 * MB,
        written: amount(100),
        live: amount(live_percent),
        age,
        generation: 0,
    }
}

fn cold(number: u64, generation: u32, live_percent: u64) -> FileFacts {
    let facts = group(number, live_percent);
    FileFacts { source: Source::Cold(number), generation, ..facts }
}

/// Returns true if nothing of the file is live.
fn is_dead(file: &FileFacts) -> bool {
    file.live.records == 0
}

fn all_there_is() -> PickOptions {
    PickOptions { wanted_bytes: u64::MAX, ..PickOptions::default() }
}

#[test]
fn incremental_candidates_are_picked_like_a_full_set() {
    let mut rng = Rng::new(12);
    let (mut kept, mut all) = (Candidates::default(), BTreeMap::new());
    for round in 0..3000 {
        let number = rng.below(60);
        let generation = 1 + (number % 3) as u32;
        let percent = rng.below(101);
        let bytes = if number.is_multiple_of(4) { 10 * MB } else { 100 * MB };
        let facts = if rng.one_in(2) { group(number, percent) } else { cold(number, generation, percent) };
        let facts = FileFacts { bytes, ..facts };
        match rng.below(3) {
            0 => {
                kept.remove(facts.source);
                all.remove(&facts.source);
            }
            1 => {
                kept.set(facts);
                all.insert(facts.source, facts);
            }
            _ => {
                kept.set_live(facts.source, facts.live);
                all.entry(facts.source).and_modify(|there| there.live = facts.live);
            }
        }
        if rng.one_in(2) {
            all.values().filter(|facts| is_dead(facts)).for_each(|facts| kept.remove(facts.source));
            all.retain(|_, facts| !is_dead(facts));
        }
        let garbage_percent = [0, 30, 50, 100][rng.below(4) as usize];
        let (all_garbage_percent, padded_groups) = (rng.below(80) as u32, rng.below(4) as usize);
        let options = PickOptions { all_garbage_percent, padded_groups, ..all_there_is() };
        let options = PickOptions { garbage_percent, room_bytes: rng.below(300 * MB), ..options };
        let at_once: Vec<FileFacts> = all.values().copied().collect();
        assert_eq!(kept.len(), all.len());
        assert_eq!(lavalog::pick::pick(&mut kept, &options), pick(&at_once, &options), "round {round}");
    }
}

/// Number of copies of each record of the simulation.
type Copies = BTreeMap<(u64, u64), u32>;

/// A file of the simulation.
struct File {
    age: u64,
    generation: u32,
    /// Log and LSN of each record.
    records: Vec<(u64, u64)>,
}

/// Files and trim points, as the collector sees them.
struct World {
    files: BTreeMap<Source, File>,
    /// Trim point of each log.
    trimmed: Vec<u64>,
    copies: Copies,
    next: u64,
    copied: u64,
}

/// Number of a log's records in a group.
const EACH: u64 = 24;

const RECORD: u64 = 10_000;

const OUTPUT: u64 = 101 * EACH * RECORD;

impl World {
    fn facts(&self) -> Vec<FileFacts> {
        let amount = |records: u64| Size { records, bytes: records * RECORD };
        let fact = |(source, file): (&Source, &File)| FileFacts {
            source: *source,
            bytes: file.records.len() as u64 * (RECORD + RECORD_COST),
            written: amount(file.records.len() as u64),
            live: amount(file.records.iter().filter(|record| self.is_live(record)).count() as u64),
            age: file.age,
            generation: file.generation,
        };
        self.files.iter().map(fact).collect()
    }

    fn is_live(&self, &(log, lsn): &(u64, u64)) -> bool {
        lsn >= self.trimmed[log as usize]
    }

    fn bytes(&self) -> u64 {
        self.facts().iter().map(|file| file.bytes).sum()
    }

    fn write_group(&mut self) {
        let number = self.next;
        self.next += 1;
        let logs = self.trimmed.len() as u64;
        let records = (0..logs).flat_map(|log| (0..EACH).map(move |i| (log, number * EACH + i))).collect();
        self.files.insert(Source::Group(number), File { age: number, generation: 0, records });
    }

    fn collect(&mut self, what: Pick) {
        let (inputs, generation) = match what {
            Pick::Free(inputs) => (inputs, 0),
            Pick::Copy { inputs, generation, .. } => (inputs, generation),
        };
        let mut survivors = Vec::new();
        for input in inputs {
            let file = self.files.remove(&input).expect("a file is picked once");
            assert!(generation == 0 || file.generation + 1 == generation);
            survivors.extend(file.records.into_iter().filter(|record| self.is_live(record)));
        }
        let mut by_log: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        survivors.iter().for_each(|record| by_log.entry(record.0).or_default().push(*record));
        let mut outputs: BTreeMap<(ColdClass, u64), Vec<(u64, u64)>> = BTreeMap::new();
        for (log, records) in by_log {
            let live = Size { records: records.len() as u64, bytes: records.len() as u64 * RECORD };
            let company = ColdClass::of(generation, live, self.trimmed[log as usize] > 0, OUTPUT);
            let own = if company == ColdClass::Own { log } else { 0 };
            outputs.entry((company, own)).or_default().extend(records);
        }
        for records in outputs.into_values() {
            self.copied += records.len() as u64;
            records.iter().for_each(|record| *self.copies.entry(*record).or_default() += 1);
            let number = 1_000_000 + self.copied;
            self.files.insert(Source::Cold(number), File { age: number, generation, records });
        }
    }

    /// Collects until the files fit the budget, with as low a threshold as necessary.
    fn make_room(&mut self, budget: u64) {
        let mut percent = 50;
        while self.bytes() > budget {
            let options = PickOptions {
                garbage_percent: percent,
                wanted_bytes: self.bytes() - budget,
                second_bytes_min: if percent == 50 { OUTPUT / 4 } else { 0 },
                output_bytes: OUTPUT,
                ..all_there_is()
            };
            match pick(&self.facts(), &options) {
                Some(what) => self.collect(what),
                None if percent > 0 => percent -= 10,
                None => panic!("{} bytes are alive in a budget of {budget}", self.bytes()),
            }
        }
    }
}

/// Writes 80 groups of 101 logs into the space of 8 groups. The first log is never trimmed; each
/// other keeps up to `lag` groups. Returns the maximum number of copies of a record of the first
/// log, and the copied share of the written records.
fn run(seed: u64, lag: u64) -> (u32, f64) {
    let mut rng = Rng::new(seed);
    let mut world =
        World { files: BTreeMap::new(), trimmed: vec![0; 101], copies: Copies::new(), next: 0, copied: 0 };
    let keeps: Vec<u64> = (0..101).map(|_| rng.below(lag * EACH + 1)).collect();
    let budget = 8 * 101 * EACH * (RECORD + RECORD_COST);
    for _ in 0..80 {
        world.write_group();
        let end = world.next * EACH;
        let trimmed = world.trimmed.iter_mut().zip(&keeps).skip(1);
        trimmed.for_each(|(point, keep)| *point = (*point).max(end.saturating_sub(*keep)));
        world.make_room(budget);
    }
    let never_trimmed = world.copies.iter().filter(|((log, _), _)| *log == 0);
    let most = never_trimmed.map(|(_, copies)| *copies).max().unwrap_or(0);
    (most, world.copied as f64 / (80 * 101 * EACH) as f64)
}

/// Up to a lag of 12, with 85 % of the budget live at the end. Above that, files are copied twice
/// before all other logs are trimmed once.
#[test]
fn records_of_an_untrimmed_log_are_copied_at_most_twice() {
    let mut twice = 0;
    for lag in (0..=12).step_by(2) {
        for seed in 0..3 {
            let (most, share) = run(500 + seed, lag);
            assert!((1..=2).contains(&most), "lag {lag}, seed {seed}: copied {most} times");
            assert!(
                lag > 6 || share < 0.05,
                "lag {lag}, seed {seed}: {share} of what was written was copied"
            );
            twice += u32::from(most == 2);
        }
    }
    assert!(twice > 0, "no cold file was ever collected");
}

/// A record is copied a third time in one case: its log was too small for its own file at the
/// second copy, and another log in the shared file is trimmed for the first time later. Returns the
/// maximum copies of a record of an untrimmed log: of a long one with its own file, and of the
/// small ones.
fn run_with_late_trims(seed: u64, trims_late: bool) -> (u32, u32) {
    let mut rng = Rng::new(seed);
    let logs = 101;
    let mut world =
        World { files: BTreeMap::new(), trimmed: vec![0; logs], copies: Copies::new(), next: 0, copied: 0 };
    // Each tenth group has a record of each small log. Small logs are trimmed late, or never.
    let is_small = |log: u64| (1..=8).contains(&log);
    let is_late = |log: u64| log > 1 && is_small(log);
    let keeps: Vec<u64> = (0..logs).map(|_| rng.below(12 * EACH + 1)).collect();
    let budget = 8 * logs as u64 * EACH * (RECORD + RECORD_COST);
    for round in 0..110 {
        world.write_group();
        let group = world.files.get_mut(&Source::Group(world.next - 1)).unwrap();
        group.records.retain(|(log, lsn)| !is_small(*log) || lsn % (10 * EACH) == 0);
        let end = world.next * EACH;
        for (point, keep) in world.trimmed.iter_mut().zip(&keeps).skip(9) {
            *point = (*point).max(end.saturating_sub(*keep));
        }
        if trims_late && round == 80 {
            (0..logs as u64).filter(|log| is_late(*log)).for_each(|log| world.trimmed[log as usize] = end);
        }
        world.make_room(budget);
    }
    let most = |wanted: &dyn Fn(u64) -> bool| {
        let of = world.copies.iter().filter(|((log, _), _)| wanted(*log) && !is_late(*log));
        of.map(|(_, copies)| *copies).max().unwrap_or(0)
    };
    (most(&|log| log == 0), most(&is_small))
}

#[test]
fn only_late_trims_cause_a_third_copy_of_a_small_log() {
    let mut thrice = 0;
    for seed in 0..8 {
        let (long, small) = run_with_late_trims(900 + seed, false);
        assert!(
            long <= 2 && small <= 2,
            "seed {seed}: {long} and {small} copies, and nobody is trimmed late"
        );
        let (long, small) = run_with_late_trims(900 + seed, true);
        assert!(long <= 2, "seed {seed}: a log with a file of its own was copied {long} times");
        assert!(small <= 3, "seed {seed}: {small} copies after one late trim");
        thrice += u32::from(small == 3);
    }
    assert!(thrice > 0, "no late trim cost others a copy");
}
