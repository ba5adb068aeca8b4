//! Long random overwrites under a limit: it is kept after every step, and no write is stuck.

use crate::common::*;
use lavastore_lavakv::{
    ColumnFamily, Db, ErrorKind, FamilyOptions, Options, Snapshot, SpaceLimit, SpacePolicy, io::Rng,
    sim::SimEnv,
};
use std::path::Path;

pub fn limited(bytes: u64) -> Options {
    Options {
        memtable_bytes: 32 << 10,
        memory_bytes: 96 << 10,
        cache_bytes: 64 << 10,
        space_limit: Some(SpaceLimit::Bytes(bytes)),
        family: family(),
        ..Default::default()
    }
    .expert(|expert| {
        expert.log_group_bytes = 64 << 10;
        expert.wal_bytes_max = 256 << 10;
    })
}

pub fn family() -> FamilyOptions {
    FamilyOptions::default().expert(|expert| {
        expert.file_bytes = 32 << 10;
        expert.level_base_bytes = 64 << 10;
        expert.vsst_bytes = 96 << 10;
    })
}

/// Returns the allocated bytes of the directory.
pub fn occupied(sim: &SimEnv) -> u64 {
    env(sim).fs.list(Path::new(DIR)).unwrap().iter().map(|e| e.allocated).sum()
}

#[track_caller]
pub fn kept(sim: &SimEnv, limit: u64) {
    let there = occupied(sim);
    assert!(there <= limit, "{there} bytes occupied of {limit}");
}

pub fn bytes(key: u64, round: u64, len: usize) -> Vec<u8> {
    format!("{key}/{round}/").into_bytes().into_iter().cycle().take(len).collect()
}

/// A store of `keys` keys, `mean` bytes each, all live.
pub struct Filled {
    pub sim: SimEnv,
    pub db: Db,
    pub model: Model,
    pub limit: u64,
    pub longest_ns: u64,
    pub refusal: String,
}

impl Filled {
    pub fn new(seed: u64, options: Options, limit: u64) -> Filled {
        let sim = SimEnv::new(seed);
        let db = Db::open_in(env(&sim), DIR, options).unwrap();
        Filled { sim, db, model: Model::new(), limit, longest_ns: 0, refusal: String::new() }
    }

    /// Puts a value; the only possible failure is `NoSpace`. Returns true on success.
    pub fn put(&mut self, key_number: u64, value: Vec<u8>) -> bool {
        let start = self.sim.now_ns();
        let done = match self.db.put(&key(key_number), &value) {
            Ok(()) => {
                self.model.insert(key(key_number), value);
                true
            }
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
                self.refusal = e.to_string();
                false
            }
        };
        self.longest_ns = self.longest_ns.max(self.sim.now_ns() - start);
        kept(&self.sim, self.limit);
        done
    }

    pub fn delete(&mut self, key_number: u64) {
        self.db.delete(&key(key_number)).unwrap_or_else(|e| panic!("{e}\n{}", self.db.describe()));
        self.model.remove(&key(key_number));
        kept(&self.sim, self.limit);
    }

    pub fn steps(&self, n: u64) {
        for _ in 0..n {
            self.db.run_background_step();
            kept(&self.sim, self.limit);
        }
    }

    /// Checks that the contents equal the model, also after a reopen.
    pub fn check(self, options: Options) -> SimEnv {
        assert!(contents(&self.db) == self.model);
        assert!(self.db.verify().unwrap().errors.is_empty());
        self.db.close().unwrap();
        kept(&self.sim, self.limit);
        let db = Db::open_in(env(&self.sim), DIR, options).unwrap();
        kept(&self.sim, self.limit);
        assert!(contents(&db) == self.model);
        drop(db);
        self.sim
    }
}

/// Live data of two thirds of the limit, overwritten many times: every write succeeds, none waits
/// for a second.
fn overwrites(seed: u64, min_blob_size: usize) {
    let live = 5u64 << 20;
    let limit = live * 3 / 2;
    let mut options = limited(limit);
    options.family.min_blob_size = min_blob_size;
    let mut rng = Rng::new(seed);
    let mut s = Filled::new(seed, options.clone(), limit);
    let (mut n, mut sum) = (0, 0);
    while sum < live {
        let len = 200 + rng.below(4000) as usize;
        assert!(s.put(n, bytes(n, 0, len)), "loading: {} {}", s.refusal, s.db.describe());
        (n, sum) = (n + 1, sum + len as u64 + 20);
    }
    let mean = live / n;
    for round in 1..2 * n {
        // About the mean length of the replaced values, so that the live bytes stay constant.
        let len = mean as usize / 2 + rng.below(mean) as usize;
        let k = rng.below(n);
        let len = s.model.get(&key(k)).map_or(len, Vec::len);
        assert!(
            s.put(k, bytes(k, round, len)),
            "seed {seed}, write {round}: {} {}",
            s.refusal,
            s.db.describe()
        );
        s.steps(rng.below(3));
    }
    assert!(s.longest_ns < 1_000_000_000, "a write waited {} ns", s.longest_ns);
    s.check(options);
}

#[test]
fn overwrites_of_separated_values_run_at_two_thirds_of_limit() {
    (0..2).for_each(|seed| overwrites(seed, 512));
}

#[test]
fn overwrites_of_inline_values_run_at_two_thirds_of_limit() {
    (10..11).for_each(|seed| overwrites(seed, 0));
}

/// Random operations at any fill: several families, values of all lengths, snapshots, batches. The
/// limit is kept after every step, and refused operations have no effect.
#[test]
fn random_writes_at_any_fill_keep_the_limit() {
    for seed in 100..102u64 {
        let limit = 3u64 << 20;
        let mut rng = Rng::new(seed);
        let mut options = limited(limit);
        if rng.one_in(2) {
            options.space_policy = SpacePolicy::Wait { at_most: std::time::Duration::from_millis(300) };
        }
        let mut s = Filled::new(seed, options.clone(), limit);
        let other = s.db.create_column_family("other", family()).unwrap();
        let mut others = Model::new();
        let mut snapshots: Vec<Snapshot> = Vec::new();
        let (mut refused, mut done) = (0, 0);
        for round in 0..2000u64 {
            let k = rng.below(1200);
            let len = match rng.below(10) {
                0 => rng.below(60_000) as usize,
                1..4 => rng.below(500) as usize,
                _ => rng.below(4000) as usize,
            };
            match rng.below(20) {
                0..3 => s.delete_unless_full(k),
                3 => put_other(&s.db, &other, &mut others, k, bytes(k, round, len)),
                4 if rng.one_in(10) => snapshots.push(s.db.snapshot()),
                5 if rng.one_in(5) => snapshots.clear(),
                6 if rng.one_in(20) => drop(s.db.flush()),
                _ if s.put(k, bytes(k, round, len)) => done += 1,
                _ => refused += 1,
            }
            kept(&s.sim, limit);
            s.steps(rng.below(3));
        }
        assert!(done > 300, "seed {seed}: {done} done, {refused} refused");
        snapshots.clear();
        assert!(contents_cf(&s.db, &other) == others);
        s.check(options);
    }
}

fn put_other(db: &Db, family: &ColumnFamily, model: &mut Model, k: u64, value: Vec<u8>) {
    match db.put_cf(family, &key(k), &value) {
        Ok(()) => drop(model.insert(key(k), value)),
        Err(e) => assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}"),
    }
}

impl Filled {
    /// A snapshot may retain everything: then even deletes run out of room.
    fn delete_unless_full(&mut self, key_number: u64) {
        match self.db.delete(&key(key_number)) {
            Ok(()) => drop(self.model.remove(&key(key_number))),
            Err(e) => assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}"),
        }
    }
}
