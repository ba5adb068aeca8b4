//! A store whose log flushes overtake is opened for reading while its writer goes on: what is seen is a state from the call on, or later.

use crate::common::*;
use lavastore_lavakv::io::{
    Access, AppendFile, CreateOptions, DirEntry, FileLock, FileSystem, FsSpace, InPlaceFile, Metadata,
    ReadFile, Rng, ScratchFile,
};
use lavastore_lavakv::sim::SimEnv;
use lavastore_lavakv::{Db, Env, Options, Result, WriteBatch, WriteOptions};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The file system of a reader: something happens before it opens a file.
struct Meanwhile<F> {
    inner: Arc<dyn FileSystem>,
    happens: F,
}

impl<F> fmt::Debug for Meanwhile<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<F: Fn() + Send + Sync> FileSystem for Meanwhile<F> {
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn ReadFile>> {
        (self.happens)();
        self.inner.open(path, access)
    }
    pass_on! { create(path: &Path, options: &CreateOptions) -> Box<dyn AppendFile>; }
    pass_on!(rest);
}

fn aging(buffered_age_ms_max: u64) -> Options {
    let log_group_bytes = 64 << 10;
    Options {
        buffered_age_ms_max: Some(buffered_age_ms_max),
        log_group_bytes,
        wal_bytes_max: 256 << 10,
        memory_bytes: 512 << 10,
        ..small()
    }
}

/// The store of a writer, and what it held after each batch.
struct Writer {
    db: Db,
    rng: Rng,
    states: Vec<Model>,
}

impl Writer {
    /// A batch that says in `last` the how many-th it is.
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
    // Now and then, until so many files were opened.
    let left = Mutex::new((rng.below(60), rng.fork()));
    let beside = writer.clone();
    let happens = move || {
        let mut left = left.lock().unwrap();
        left.0 = left.0.saturating_sub(1);
        if left.0 > 0 && left.1.one_in(3) {
            beside.lock().unwrap().goes_on();
        }
    };
    let plain = env(sim);
    let fs = Arc::new(Meanwhile { inner: plain.fs.clone(), happens });
    let reader = Db::open_read_only_in(Env { fs, ..plain }, path(""), options.clone()).unwrap();
    let found = contents(&reader);
    let last = found.get(&b"last"[..]).map_or(0, |v| u64::from_be_bytes(v[..].try_into().unwrap()));
    let states = &writer.lock().unwrap().states;
    assert!((from as u64..=states.len() as u64).contains(&(last + 1)), "seed {seed}: {last}, from {from} on");
    assert!(found == states[last as usize], "seed {seed}: not the state after {last} batches");
}

#[test]
fn who_opens_for_reading_sees_what_was_there_when_it_began_or_later() {
    if skipped_on_lavafs(because::MEDIUM) {
        return;
    }
    for seed in 0..20 {
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
