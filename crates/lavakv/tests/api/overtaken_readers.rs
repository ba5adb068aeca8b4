//! A read-only open beside a writer whose log pages are superseded by flushes. It shows a state
//! from the time of the call or later.

use crate::common::*;
use lavastore_lavakv::io::Rng;
use lavastore_lavakv::sim::SimEnv;
use lavastore_lavakv::{Db, Options, WriteBatch, WriteOptions};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

fn aging(buffered_age_ms_max: u64) -> Options {
    let log_group_bytes = 64 << 10;
    Options { memory_bytes: 512 << 10, ..small() }.expert(|expert| {
        expert.buffered_age_ms_max = Some(buffered_age_ms_max);
        expert.log_group_bytes = log_group_bytes;
        expert.wal_bytes_max = 256 << 10;
    })
}

/// A writer with its store, and the state after each batch.
struct Writer {
    db: Db,
    rng: Rng,
    states: Vec<Model>,
}

impl Writer {
    /// Writes a batch with its number in the key `last`.
    fn write(&mut self) {
        let nth = self.states.len() as u64;
        let (k, len) = (key(self.rng.below(20)), [20, 700, 3000, 9000][self.rng.below(4) as usize]);
        let v: Vec<u8> = value(nth, nth).into_iter().cycle().take(len).collect();
        let mut batch = WriteBatch::new();
        batch.put(&k, &v);
        batch.put(b"last", &nth.to_be_bytes());
        let how = if self.rng.one_in(40) { WriteOptions::durable() } else { WriteOptions::buffered() };
        self.db.write_opt(&batch, &how).unwrap();
        let mut state = self.states.last().cloned().unwrap_or_default();
        state.insert(k, v);
        state.insert(b"last".to_vec(), nth.to_be_bytes().to_vec());
        self.states.push(state);
    }

    fn goes_on(&mut self) {
        for _ in 0..self.rng.below(30) {
            self.write();
            while self.rng.below(4) > 0 && self.db.run_background_step() {}
        }
        if self.rng.one_in(3) {
            while self.db.run_background_step() {}
        }
    }
}

fn open_beside(writer: &Arc<Mutex<Writer>>, sim: &SimEnv, options: &Options, seed: u64) {
    let (from, mut rng) = (writer.lock().unwrap().states.len(), Rng::new(seed ^ 0x62_6573));
    // Now and then, up to a random number of opened files.
    let left = Mutex::new((rng.below(60), rng.fork()));
    let beside = writer.clone();
    let happens = move || {
        let mut left = left.lock().unwrap();
        left.0 = left.0.saturating_sub(1);
        if left.0 > 0 && left.1.one_in(3) {
            beside.lock().unwrap().goes_on();
        }
    };
    let reader = Db::open_read_only_in(before_opens(env(sim), happens), path(""), options.clone()).unwrap();
    must_be_a_state(&reader, writer, from, &format!("seed {seed}"));
}

/// Checks that the reader shows a state from `from` on.
fn must_be_a_state(reader: &Db, writer: &Arc<Mutex<Writer>>, from: usize, whose: &str) {
    let found = contents(reader);
    let last = found.get(&b"last"[..]).map_or(0, |v| u64::from_be_bytes(v[..].try_into().unwrap()));
    let states = &writer.lock().unwrap().states;
    assert!((from as u64..=states.len() as u64).contains(&(last + 1)), "{whose}: {last}, from {from} on");
    assert!(found == states[last as usize], "{whose}: not the state after {last} batches");
}

#[test]
fn a_read_only_open_sees_the_state_at_its_start_or_later() {
    if skipped_on_lavafs(because::MEDIUM) {
        return;
    }
    for seed in 0..8 {
        let (sim, options) = (SimEnv::new(600 + seed), aging([60_000, 60_000, 20, 0][seed as usize % 4]));
        let db = Db::open_in(env(&sim), DIR, options.clone()).unwrap();
        let mut writer = Writer { db, rng: Rng::new(seed), states: Vec::new() };
        (0..5).for_each(|_| writer.write());
        let writer = Arc::new(Mutex::new(writer));
        for round in 0..12 {
            writer.lock().unwrap().goes_on();
            open_beside(&writer, &sim, &options, seed * 100 + round);
        }
    }
}

/// Steps of the writer between two files that the reader opens.
type Steps = &'static [Step];

#[derive(Clone, Copy, Debug)]
enum Step {
    /// That many batches, and nothing else.
    Batches(u64),
    /// Flush of all memtables, after which the log begins behind them.
    Flush,
    /// All due background work.
    Work,
}

impl Writer {
    /// Runs the steps. Enough of them reuse the slots of all released pages.
    fn takes(&mut self, steps: Steps) {
        for step in steps {
            match step {
                Step::Batches(n) => (0..*n).for_each(|_| self.write_buffered()),
                Step::Flush => self.db.flush().unwrap(),
                Step::Work => while self.db.run_background_step() {},
            }
        }
    }

    fn write_buffered(&mut self) {
        let nth = self.states.len() as u64;
        let (k, v) = (key(nth % 20), value(nth, nth).repeat(8));
        let mut batch = WriteBatch::new();
        batch.put(&k, &v);
        batch.put(b"last", &nth.to_be_bytes());
        self.db.write_opt(&batch, &WriteOptions::buffered()).unwrap();
        let mut state = self.states.last().cloned().unwrap_or_default();
        state.insert(k, v);
        state.insert(b"last".to_vec(), nth.to_be_bytes().to_vec());
        self.states.push(state);
    }
}

/// Runs the writer's steps once at every file that a reader opens. The log then begins behind the
/// begin in the reader's manifest. Entries that were in memtables at the call are in tables that
/// the reader does not know, and no longer in the log, whose slots may hold later pages. Only a
/// second read of the manifest shows that. `before`: steps before the open; `meanwhile`: steps
/// during it. Returns the number of restarts.
fn opens_in_every_window(before: Steps, meanwhile: Steps) -> u64 {
    let (mut nth, mut anew, options) = (0, 0, aging(60_000));
    loop {
        let sim = SimEnv::new(nth);
        let db = Db::open_in(env(&sim), DIR, options.clone()).unwrap();
        let writer = Arc::new(Mutex::new(Writer { db, rng: Rng::new(nth), states: Vec::new() }));
        writer.lock().unwrap().takes(before);
        let from = writer.lock().unwrap().states.len();
        let alone = {
            let (env, opened) = before_each_open(env(&sim), |_| ());
            drop(Db::open_read_only_in(env, path(""), options.clone()).unwrap());
            opened.load(Ordering::Relaxed)
        };
        if nth == alone {
            return anew;
        }
        let beside = writer.clone();
        let (env, opened) = before_each_open(env(&sim), move |at| {
            if at == nth {
                beside.lock().unwrap().takes(meanwhile);
            }
        });
        let reader = Db::open_read_only_in(env, path(""), options.clone()).unwrap();
        must_be_a_state(&reader, &writer, from, &format!("{before:?}, {meanwhile:?} at file {nth}"));
        anew += u64::from(opened.load(Ordering::Relaxed) > alone + alone / 2);
        nth += 1;
    }
}

#[test]
fn replay_restarts_if_the_log_begins_after_the_read_position() {
    if skipped_on_lavafs(because::MEDIUM) {
        return;
    }
    use Step::{Batches, Flush, Work};
    // The first table, then changes only in the log: some pages of one group, or several groups.
    let befores: [Steps; 3] =
        [&[Batches(10), Flush, Work, Batches(6)], &[Batches(10), Flush, Work, Batches(25)], &[Batches(6)]];
    let meanwhiles: [Steps; 4] = [
        &[Flush, Work],
        &[Flush, Work, Batches(30), Work],
        // The log begins at the end of its first group, which is then dropped.
        &[Flush, Work, Batches(30), Work, Flush, Work],
        &[Flush, Work, Batches(80), Work, Flush, Work, Batches(30), Work],
    ];
    let runs = befores.iter().flat_map(|before| meanwhiles.iter().map(move |meanwhile| (before, meanwhile)));
    let anew: Vec<u64> = runs.map(|(before, meanwhile)| opens_in_every_window(before, meanwhile)).collect();
    println!("begun anew: {anew:?}");
    assert!(anew.iter().sum::<u64>() >= 12, "the windows were met: {anew:?}");
}
