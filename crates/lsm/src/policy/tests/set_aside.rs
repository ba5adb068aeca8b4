//! A tree with unreadable tables.

use super::*;

const KEYS: u32 = 6_000;

impl<P: Shape> Store<P> {
    /// Looks up a key like a reader: an error if an unreadable table may have it.
    fn read(&self, key: u32) -> Result<Option<SeqNo>, u64> {
        let user_key = user_key(key);
        for (_, f) in self.version().lookup(&user_key) {
            if self.set_aside.has(f.number) {
                return Err(f.number);
            }
            let entries = &self.files[&f.number];
            if let Ok(i) = entries.binary_search_by_key(&key, |e| e.key) {
                return Ok(Some(entries[i]).filter(|e| !e.tombstone).map(|e| e.seq));
            }
        }
        Ok(None)
    }

    /// Checks that every key is right, or may be in a table set aside; returns the number of the
    /// latter.
    fn check_readable(&self) -> usize {
        self.state.verify().unwrap();
        let mut lost = 0;
        for key in 0..KEYS {
            match self.read(key) {
                Ok(found) => assert_eq!(found, self.model.get(&key).copied(), "key {key}"),
                Err(_) => lost += 1,
            }
        }
        lost
    }

    /// Sets tables aside and corrupts them, so that a compaction that reads one fails.
    fn set_aside(&mut self, numbers: &[u64]) {
        let mut all: Vec<Arc<FileMeta>> = self.set_aside.tables().to_vec();
        let version = self.version().clone();
        all.extend(version.levels.iter().flatten().filter(|f| numbers.contains(&f.number)).cloned());
        numbers.iter().for_each(|n| drop(self.files.remove(n)));
        self.set_aside = SetAside::new(all.iter().map(|f| &**f));
    }

    fn quiesce(&mut self) {
        let mut steps = 0;
        while self.work(2, 0) {
            steps += 1;
            assert!(steps < 3000, "compaction does not come to an end: {}", self.version().describe());
        }
    }
}

fn uniform(rng: &mut Rng) -> u32 {
    rng.below(u64::from(KEYS)) as u32
}

/// Builds a store with running jobs and damaged tables in any level.
fn damaged<P: Shape>(seed: u64, options: P, count: u64) -> Store<P> {
    let mut store = Store::new(seed, options);
    for _ in 0..40 {
        store.flush(100, 12, uniform);
        store.work(2, 1);
    }
    // Running jobs have read their inputs.
    store.work(0, 0);
    for _ in 0..count {
        let used: Vec<usize> = (0..7).filter(|&l| !store.version().files(l).is_empty()).collect();
        let level = used[store.rng.below(used.len() as u64) as usize];
        let nth = store.rng.below(store.version().files(level).len() as u64) as usize;
        let number = store.version().files(level)[nth].number;
        if !store.set_aside.has(number) {
            store.set_aside(&[number]);
        }
    }
    store
}

/// With any compactions around them, no lookup returns an older version, level 0 stays short, and
/// no writer is told to wait for files that cannot go down.
#[test]
fn no_compaction_passes_a_quarantined_table() {
    let small = Leveled { level_multiplier: 2, level_base_bytes: 8 << 10, ..options(FileChoice::default()) };
    nothing_passes_with(
        24,
        |seed| if seed % 3 == 0 { small.clone() } else { options(FileChoice::default()) },
    );
    // Files that may go down are also queued in columns.
    nothing_passes_with(24 + 16, |seed| match seed % 3 {
        0 => Vlsm { tree: small.clone(), ..short_chains() },
        _ => short_chains(),
    });
}

fn nothing_passes_with<P: Shape>(depth_max: usize, policy: impl Fn(u64) -> P) {
    let (mut lost_first, mut lost_last, mut sunk, mut most) = (0, 0, 0, 0);
    for seed in 0..9 {
        let options = policy(seed);
        let mut store = damaged(seed, options, 1 + seed % 3);
        lost_first += store.check_readable();
        for round in 0..80 {
            store.flush(100, 12, uniform);
            let leave = store.rng.below(3) as usize;
            store.work(2, leave);
            sunk += store.running.iter().filter(|(c, _)| c.reason == Reason::SetAside).count();
            if round % 8 == 0 {
                store.work(0, 0);
                store.check_readable();
            }
        }
        store.quiesce();
        lost_last += store.check_readable();
        let level_0 = store.version().files(0);
        let with_key = |key: u32| level_0.iter().filter(|f| f.covers(&user_key(key))).count();
        let left =
            level_0.iter().map(|f| with_key(u32::from_be_bytes(f.smallest_user_key().try_into().unwrap())));
        let left = left.max().unwrap_or(0);
        most = most.max(left);
        assert!(left < depth_max, "seed {seed}: {left} files of level 0 have one key");
        assert!(!store.policy.l0_wants_compaction(store.version(), &store.set_aside), "seed {seed}");
    }
    println!(
        "{lost_first} keys unreadable at first, {lost_last} after all were written over; {sunk} seen sinking, {most} in level 0"
    );
    assert!(lost_last < lost_first / 3, "what is written anew is found above: {lost_last} of {lost_first}");
}

/// A table of level 0 sinks as deep as it can, and leaves a level free for newer data.
#[test]
fn a_quarantined_level_0_table_sinks() {
    sinks_with(options(FileChoice::default()));
    sinks_with(short_chains());
}

fn sinks_with(policy: impl Shape) {
    let mut store = Store::new(5, policy);
    for _ in 0..3 {
        store.flush(100, 0, uniform);
    }
    while let Some(c) = store.pick() {
        store.start(c);
        store.work(0, 0);
    }
    store.flush(2000, 0, uniform);
    store.quiesce();
    let newest = store.version().files(0).first().map(|f| f.number);
    let number = newest.unwrap_or_else(|| store.version().levels.iter().flatten().next().unwrap().number);
    store.set_aside(&[number]);
    for _ in 0..30 {
        store.flush(300, 0, uniform);
        store.quiesce();
        store.check_readable();
    }
    let level = (0..7).find(|&l| store.version().files(l).iter().any(|f| f.number == number)).unwrap();
    assert!(level > 1, "{}", store.version().describe());
    assert!(store.policy.targets(store.version(), &store.set_aside).base_level < level);
    assert!(store.version().files(0).len() < 8);
}

/// `compact_range` skips them and ends.
#[test]
fn compact_range_skips_quarantined_tables() {
    for seed in 0..40 {
        walk_passes_over(damaged(seed, options(FileChoice::default()), 1 + seed % 4));
        walk_passes_over(damaged(seed, short_chains(), 1 + seed % 4));
    }
}

fn walk_passes_over<P: Shape>(mut store: Store<P>) {
    run_manual(&mut store, &mut ManualRange::new(None, None));
    store.check_readable();
}

/// A compaction includes a table that begins at the exclusive end of a range tombstone. So an
/// unreadable table there holds a file with such an end in level 0, and no writer may wait for that
/// file to go down.
#[test]
fn a_quarantined_table_blocks_adjacent_range_tombstones() {
    a_table_at_the_end_is_in_the_way(&options(FileChoice::default()));
    a_table_at_the_end_is_in_the_way(&short_chains());
}

fn a_table_at_the_end_is_in_the_way(policy: &impl Shape) {
    let with_tombstone = |number: u64| {
        let mut file = (*file(number, 10, 20, number, 1 << 20)).clone();
        file.largest.truncate(user_key(20).len());
        file.largest.extend_from_slice(&u64::MAX.to_le_bytes());
        assert!(file.largest_is_exclusive() && !file.covers(&user_key(20)));
        Arc::new(file)
    };
    let damaged = file(1, 20, 30, 1, 1 << 20);
    let level_0 = (2..40).rev().map(with_tombstone).collect();
    let version = Version::with_files(0, vec![level_0, vec![damaged.clone()]]);
    let set_aside = SetAside::new([&*damaged]);
    assert!(!policy.l0_wants_compaction(&version, &set_aside), "nothing of it can go down");
    let facts = PickInputs { version: &version, set_aside: &set_aside, busy: &InProgress::default() };
    let step = policy.manual(&facts, &mut ManualRange::new(None, None), &|_| false);
    assert!(matches!(step, ManualStep::Done), "{step:?}");
}
