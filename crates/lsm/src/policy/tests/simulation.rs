//! Bounds of `vlsm`, by a simulation. Flushes come at a rate, jobs take time in proportion to the
//! bytes that they read and write, and threads ask for jobs like those of the engine. These bounds
//! must hold:
//!
//! * a job reads no more than the policy states before it begins; from level 0 that is q tables and
//!   level 1;
//! * level 1 holds at most its target and q tables for each thread, and the deeper levels exceed
//!   their targets by at most an eighth and a few tables;
//! * no key is in more than one and a half q tables of level 0, plus one for each thread, at four
//!   fifths of the rate that the tree sustains;
//! * no level starves: while flushes come as fast as they may, each level gets its turn, and the
//!   time between two jobs of level 0 is that of a chain;
//! * with several threads columns go down in parallel, and no two jobs have a table in common, or
//!   keys of one level.
//!
//! The trees are real: reads and the manifest's own checks verify entries, tables and versions.

use super::*;

/// Number of entries of a full table. Small, so that a hundred thousand flushes are fast.
const TABLE_ENTRIES: u64 = 32;
/// Depth at which flushes wait, if nothing else holds them back.
const STOP: usize = 32;

fn policy() -> Vlsm {
    let table_bytes = TABLE_ENTRIES * ENTRY;
    let tree = Leveled { file_bytes: table_bytes, level_base_bytes: 4 * table_bytes, ..Leveled::default() };
    Vlsm { tree, options: VlsmOptions { table_bytes, ..VlsmOptions::default() } }
}

/// Worst values seen.
#[derive(Clone, Copy, Debug, Default)]
struct Worst {
    /// Number of level 0 tables that contain one key, and the number of all of them.
    depth: usize,
    files: usize,
    /// Bytes of tables for each live byte.
    space: f64,
    /// Physical bytes of inputs, in full tables: of jobs from level 0, from level 1, and of deeper
    /// ones.
    width: [f64; 3],
    /// Excess of level 1, and of the deeper levels, over their bounds, in full tables.
    over: [f64; 2],
    /// Time between two jobs of level 0 while one was due, in full tables of work.
    wait: f64,
    jobs: u64,
    spills: u64,
    poor: u64,
    /// Number of parallel jobs that compacted level 0 down.
    at_once: usize,
}

pub(super) struct Machine<P> {
    pub(super) store: Store<P>,
    threads: usize,
    now: u64,
    /// End time of each running job.
    ends: Vec<u64>,
    last_l0: u64,
    worst: Worst,
}

impl<P: Shape> Machine<P> {
    pub(super) fn new(seed: u64, threads: usize, policy: P) -> Self {
        let store = Store::new(seed, policy);
        Machine { store, threads, now: 0, ends: Vec::new(), last_l0: 0, worst: Worst::default() }
    }

    /// Idle threads ask for jobs like those of the engine: all but one for any level, the last for
    /// level 0 alone.
    fn ask(&mut self) {
        while self.ends.len() < self.threads {
            let deeper = self.ends.len() + 1 < self.threads || self.threads == 1;
            let facts = self.store.facts();
            let picked = if deeper { self.store.policy.levels(&facts) } else { self.store.policy.l0(&facts) };
            let Some(c) = picked else { break };
            self.judge(&c);
            // A merge reads and writes its inputs; a move takes almost no time.
            let work = if c.trivial_move { 1 } else { 2 * c.input_bytes() };
            self.ends.push(self.now + work);
            self.store.start(c);
        }
    }

    fn judge(&mut self, c: &Compaction) {
        let (policy, version) = (&self.store.policy, self.store.version());
        let base = policy.targets(version, &SetAside::default()).base_level;
        let full = policy.tree().file_bytes as f64;
        let from = if c.level == 0 { 0 } else { 1 + usize::from(c.level > base) };
        self.worst.width[from] = self.worst.width[from].max(c.input_bytes() as f64 / full);
        assert!(c.input_bytes() <= policy.width_bytes(version, &SetAside::default()), "wider than stated");
        self.worst.jobs += 1;
        self.worst.spills += u64::from(matches!(c.reason, Reason::Spill | Reason::PoorSpill));
        self.worst.poor += u64::from(c.reason == Reason::PoorSpill);
        if c.level == 0 {
            self.last_l0 = self.now;
        }
        let beside = self.store.running.iter().map(|(other, _)| other);
        beside.clone().for_each(|other| assert_apart(c, other));
        let goes_down = |c: &Compaction| c.level == 0 && c.output_level > 0;
        let columns = usize::from(goes_down(c)) + beside.filter(|other| goes_down(other)).count();
        self.worst.at_once = self.worst.at_once.max(columns);
    }

    /// Advances to `to`, or until a job ends.
    fn advance(&mut self, to: u64) {
        self.ask();
        let next = (0..self.ends.len()).min_by_key(|&i| self.ends[i]).filter(|&i| self.ends[i] <= to);
        let Some(i) = next else {
            self.now = to;
            return;
        };
        self.now = self.now.max(self.ends.remove(i));
        let (c, version) = self.store.running.remove(i);
        self.store.end(c, &version);
        self.look();
    }

    fn look(&mut self) {
        let (policy, version) = (&self.store.policy, self.store.version());
        let targets = policy.targets(version, &SetAside::default());
        let (base, full) = (targets.base_level, policy.tree().file_bytes);
        let over = |level: usize| {
            let may = targets.bytes[level] as f64 * if level == base { 1.0 } else { 1.125 };
            (version.level_compensated_bytes(level) as f64 - may) / full as f64
        };
        let deeper = (base + 1..7).map(over).fold(0.0, f64::max);
        self.worst.over = [self.worst.over[0].max(over(base)), self.worst.over[1].max(deeper)];
        self.worst.depth = self.worst.depth.max(self.depth());
        self.worst.files = self.worst.files.max(version.files(0).len());
        self.worst.space = self.worst.space.max(self.store.space_amplification());
        if policy.l0_wants_compaction(version, &SetAside::default()) {
            let wait = (self.now - self.last_l0) as f64 / full as f64;
            self.worst.wait = self.worst.wait.max(wait);
        } else {
            self.last_l0 = self.now;
        }
    }

    /// Runs until no job is due.
    pub(super) fn rest(&mut self) {
        self.ask();
        while !self.ends.is_empty() {
            self.advance(u64::MAX);
            self.ask();
        }
    }

    /// Flushes at intervals, or as fast as level 0 allows. Returns the elapsed time.
    pub(super) fn write_entries(
        &mut self,
        flushes: usize,
        entries: u64,
        interval: Option<u64>,
        mut key: &mut dyn FnMut(&mut Rng) -> u32,
    ) -> u64 {
        let (start, mut due) = (self.now, self.now);
        for _ in 0..flushes {
            due = self.now.max(due + interval.unwrap_or(0));
            while self.now < due || self.depth() >= STOP {
                let to = if self.now < due { due } else { u64::MAX };
                self.advance(to);
                let stuck = to == u64::MAX && self.now == u64::MAX;
                assert!(
                    !stuck,
                    "level 0 is full, and nothing goes down: {}",
                    self.store.version().describe()
                );
            }
            self.store.flush(entries as usize, 0, &mut key);
            self.look();
        }
        self.now - start
    }

    /// Returns the depth of level 0 by which writers are throttled: tables that contain one key, or
    /// its bytes in full tables.
    fn depth(&self) -> usize {
        let load = self.store.policy.l0_load(self.store.version(), &SetAside::default());
        load.files.max((load.bytes / self.store.policy.tree().file_bytes) as usize)
    }

    /// Runs until the bytes over target are at most this percentage of the live bytes.
    pub(super) fn work_off_excess(&mut self, percent: u64) {
        let live = self.store.model.len() as u64 * ENTRY;
        let free = 8 * self.store.policy.tree().file_bytes;
        let excess = |of: &Self| of.store.policy.excess_bytes(of.store.version(), &SetAside::default());
        self.ask();
        while excess(self) > free + live * percent / 100 && !self.ends.is_empty() {
            self.advance(u64::MAX);
            self.ask();
        }
    }

    /// Resets the worst values.
    pub(super) fn forget(&mut self) {
        self.worst = Worst::default();
    }

    pub(super) fn describe(&self) -> String {
        let worst = &self.worst;
        let levels: Vec<usize> = (0..7).map(|level| self.store.version().files(level).len()).collect();
        let (depth, files, space) = (worst.depth, worst.files, worst.space);
        let [a, b, c] = worst.width;
        format!("depth {depth}, files {files}, width {a:.1} {b:.1} {c:.1}, space {space:.2}, {levels:?}")
    }
}

/// Fails if two jobs have a table in common, or write the same keys of one level.
fn assert_apart(a: &Compaction, b: &Compaction) {
    let tables = |c: &Compaction| c.input_files().map(|(_, f)| f.number).collect::<Vec<_>>();
    let theirs = tables(b);
    assert!(!tables(a).iter().any(|number| theirs.contains(number)), "one table in two jobs");
    let ((from, to), (low, high)) = (a.key_range(), b.key_range());
    let is_apart = to < low || high < from;
    let meets = a.output_level == b.output_level || a.level == 0 && b.level == 0;
    assert!(is_apart || !meets, "the same keys in two jobs: {a:?} {b:?}");
}

impl Machine<Vlsm> {
    /// Checks the bounds: see the module.
    fn check(&self, name: &str) {
        let (worst, factor) = (&self.worst, self.store.policy.factor() as f64);
        let at_once = f64::from(self.store.policy.options.queue_tables);
        assert!(worst.width[0] <= factor + at_once + 1.5, "{name}: level 0 and what it meets: {worst:?}");
        assert!(
            worst.over[0] <= at_once * self.threads as f64 + 1.0
                && worst.over[1] <= at_once * self.threads as f64,
            "{name}: {worst:?}"
        );
        // Counts bytes read and written. Each deeper level may have to pass on as much as it
        // received, one table at a time.
        let chain = 2.0 * (worst.width[0] + at_once * (worst.width[1] + 2.0 * worst.width[2]));
        assert!(worst.wait <= chain, "{name}: {chain} are a chain, level 0 waited for {}", worst.wait);
    }

    fn write(&mut self, flushes: usize, interval: Option<u64>, key: &mut dyn FnMut(&mut Rng) -> u32) -> u64 {
        self.write_entries(flushes, TABLE_ENTRIES, interval, key)
    }
}

/// Draws the key of a write.
pub(super) type Keys = dyn Fn(&mut Rng, u64) -> u32;

/// Fills a tree, writes as fast as possible, and then at four fifths of that rate.
fn simulate(name: &str, flushes: usize, threads: usize, policy: Vlsm, keys: u32, key: &Keys) {
    let mut machine = Machine::new(u64::from(keys) + threads as u64, threads, policy);
    let mut n = 0;
    let mut next = |rng: &mut Rng| {
        n += 1;
        key(rng, n)
    };
    machine.write(keys as usize / 8, None, &mut next);
    machine.worst = Worst::default();
    let first = flushes / 2;
    let interval = machine.write(first, None, &mut next) / first as u64;
    machine.store.check(keys);
    machine.check(name);
    let saturated = machine.worst;
    machine.rest();
    machine.worst = Worst::default();
    machine.write(flushes - first, Some(interval * 5 / 4), &mut next);
    machine.store.check(keys);
    machine.check(name);
    let full = machine.store.policy.tree.file_bytes;
    let levels: Vec<usize> = (0..7).map(|level| machine.store.version().files(level).len()).collect();
    let work = interval as f64 / full as f64;
    let steady = machine.worst;
    assert!(
        threads == 1 || name == "small" || saturated.at_once.max(steady.at_once) > 1,
        "{name}: one column at a time"
    );
    println!(
        "{name}, {threads} threads, {work:.1} tables of work a flush, {levels:?}\n  {saturated:?}\n  {steady:?}"
    );
    let queue = machine.store.policy.options.queue_tables as usize;
    // Data arrives while level 1 passes on one run, and each thread's inputs stay until its merge
    // is done.
    let depth_max = queue + queue / 2 + threads;
    assert!(steady.depth <= depth_max, "{name}: level 0 had {} tables", steady.depth);
}

/// Runs every load with a tree of `keys` keys.
fn simulate_all(keys: u32, flushes: usize) {
    let own = |overlap, growth_max| {
        let policy = policy();
        Vlsm { options: VlsmOptions { overlap, growth_max, ..policy.options }, ..policy }
    };
    let uniform = move |rng: &mut Rng, _| rng.below(u64::from(keys)) as u32;
    let skewed = move |rng: &mut Rng, _| (rng.unit().powi(4) * f64::from(keys)) as u32;
    // A range of a hundredth of the keys, which moves, gets nine of ten writes.
    let moving = move |rng: &mut Rng, n: u64| match rng.one_in(10) {
        true => rng.below(u64::from(keys)) as u32,
        false => ((n / 50 + rng.below(u64::from(keys) / 100)) % u64::from(keys)) as u32,
    };
    let of_table = || own(OverlapOf::Table, 32);
    simulate("uniform", flushes / 2, 1, of_table(), keys, &uniform);
    simulate("uniform, f*M", flushes / 8, 2, own(OverlapOf::FullTable, 32), keys, &uniform);
    simulate("skewed", flushes / 8, 2, of_table(), keys, &skewed);
    simulate("moving", flushes / 8, 3, of_table(), keys, &moving);
    simulate("moving, four levels", flushes / 8, 4, own(OverlapOf::Table, 8), keys, &moving);
    simulate("small", flushes / 8, 2, of_table(), 1_000, &|rng, _| rng.below(1_000) as u32);
}

#[test]
fn level_and_debt_bounds_hold() {
    simulate_all(12_000, 2_000);
}

#[test]
#[ignore = "takes minutes: a hundred thousand flushes"]
fn bounds_hold_for_a_hundred_thousand_flushes() {
    simulate_all(40_000, 100_000);
}
