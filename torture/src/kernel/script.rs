//! Some 500 sequential operations of the whole engine on the machine's file system. There are no
//! threads and the clock is stopped, so two runs of a seed make the same calls.

use crate::check::{Check, Doing, ensure, show};
use crate::plan;
use io::Rng;
use io::kernel::{IoEngine, KernelOptions};
use lavastore::testing::SimEnv;
use lavastore::{Db, Durability, Env, Error, Options, WriteOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Operations per run.
pub(crate) const OPERATIONS: u64 = 500;
const KEYS: u64 = 48;

struct ScriptWrite {
    key: Vec<u8>,
    value: Option<Vec<u8>>,
    acknowledged: bool,
}

/// A store and its writes.
pub(crate) struct Script {
    dir: PathBuf,
    env: Env,
    options: Options,
    rng: Rng,
    db: Option<Db>,
    writes: Vec<ScriptWrite>,
    /// Number of writes up to the last one acknowledged as durable.
    durable: usize,
}

/// An environment with the machine's files, and otherwise simulated.
fn env(seed: u64, engine: IoEngine) -> Env {
    Env { fs: Env::kernel_with(KernelOptions { engine }).fs, ..SimEnv::new(seed).env() }
}

impl Script {
    pub fn new(dir: &Path, seed: u64, engine: IoEngine) -> Script {
        let mut rng = Rng::new(seed ^ 0x6b65_726e_656c);
        let options = Options { space_limit: None, ..plan::roomy(plan::churn_options(&mut rng)) };
        let env = env(seed, engine);
        Script { dir: dir.to_owned(), env, options, rng, db: None, writes: Vec::new(), durable: 0 }
    }

    pub fn open(&mut self) -> Result<(), Error> {
        self.db = Some(Db::open_in(&self.env, &self.dir, &self.options)?);
        Ok(())
    }

    pub fn drop_store(&mut self) {
        self.db = None;
    }

    /// Returns the number of durable writes.
    pub fn durable(&self) -> usize {
        self.durable
    }

    /// Runs the next operation and returns its error.
    pub fn step(&mut self) -> Result<(), Error> {
        let what = self.rng.below(100);
        let Some(db) = &self.db else { return self.open() };
        match what {
            0..=2 => db.flush(),
            3 => db.compact_range(..).map(drop),
            4 => db.collect_garbage(&Default::default()).map(drop),
            5 => {
                let closed = self.db.take().map_or(Ok(()), Db::close);
                closed.and_then(|()| self.open())
            }
            6..=25 => {
                db.engine().run_background_step();
                Ok(())
            }
            26..=35 => db.get(key(self.rng.below(KEYS))).map(drop),
            36..=40 => db.iter().try_for_each(|entry| entry.map(drop)),
            _ => self.write(),
        }
    }

    fn write(&mut self) -> Result<(), Error> {
        let Some(db) = &self.db else { return Ok(()) };
        let key = key(self.rng.below(KEYS));
        let len = match self.rng.below(20) {
            0 => self.rng.range(4_000, 24_000),
            1..=4 => self.rng.range(500, 4_000),
            _ => self.rng.range(1, 300),
        };
        let value = (!self.rng.one_in(8)).then(|| {
            let mut value = vec![0; len as usize];
            self.rng.fill(&mut value);
            value
        });
        let durable = self.rng.one_in(2);
        let durability = Some(if durable { Durability::Durable } else { Durability::Buffered });
        let (family, options) = (db.default_family(), WriteOptions { durability, ..WriteOptions::default() });
        let written = match &value {
            Some(value) => family.writing(&options).put(&key, value),
            None => family.writing(&options).delete(&key),
        };
        self.writes.push(ScriptWrite { key, value, acknowledged: written.is_ok() });
        if durable && written.is_ok() {
            self.durable = self.writes.len();
        }
        written
    }

    /// Opens a copy of the store after a crash and checks it. `guaranteed`: the number of writes
    /// that must be there.
    pub fn check(&self, dir: &Path, guaranteed: usize) -> Check {
        let options = Options { create_if_missing: guaranteed == 0, ..self.options.clone() };
        let db =
            Db::open_in(&env(1, IoEngine::Portable), dir, &options).doing(|| "refused to open".into())?;
        let entries = db.iter();
        let found: BTreeMap<Vec<u8>, Vec<u8>> = entries.collect::<Result<_, _>>().doing(|| "scan".into())?;
        let keys: BTreeSet<&Vec<u8>> = found.keys().chain(self.writes.iter().map(|w| &w.key)).collect();
        for key in keys {
            let allowed = self.allowed(key, guaranteed);
            let value = found.get(key);
            ensure!(
                allowed.contains(&value),
                "{} is {}, which is none of {} values it may have",
                show(key),
                value.map_or("gone".into(), |value| show(value)),
                allowed.len()
            );
        }
        Ok(())
    }

    /// Checks the store itself, with all acknowledged writes.
    pub fn check_own(&self) -> Check {
        self.check(&self.dir, self.writes.len())
    }

    fn allowed(&self, key: &[u8], guaranteed: usize) -> Vec<Option<&Vec<u8>>> {
        let mut allowed = vec![None];
        for (nth, write) in self.writes.iter().enumerate().filter(|(_, write)| write.key == key) {
            if write.acknowledged && nth < guaranteed {
                allowed.clear();
            }
            allowed.push(write.value.as_ref());
        }
        allowed
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:04}").into_bytes()
}
