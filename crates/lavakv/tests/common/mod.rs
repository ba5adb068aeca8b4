//! Helpers shared by the tests of the public API: small options, a model, temporary directories.
#![allow(dead_code, unused_imports, reason = "each test program uses its own part")]
#![allow(clippy::disallowed_methods, reason = "tests stage files as a hand outside the engine would")]

mod copies;
mod machine;
mod meanwhile;
mod syncs;

#[allow(unused_imports, reason = "each test program uses its own part")]
pub use copies::{put_twice, remove_manifest};
#[allow(unused_imports, reason = "each test program uses its own part")]
pub use machine::{because, env, lavafs_env, on_lavafs, skipped_on_lavafs};
#[allow(unused_imports, reason = "each test program uses its own part")]
pub use meanwhile::{before_each_open, before_opens, counting_reads};
#[allow(unused_imports, reason = "each test program uses its own part")]
pub use syncs::around_syncs;
#[allow(unused_imports, reason = "each test program uses its own part")]
pub(crate) use syncs::pass_on;

use lavastore_lavakv::{
    ColumnFamily, Db, ErrorKind, FamilyOptions, Options, ReadOptions, Result, Space, sim::SimEnv,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Directory of simulated stores.
pub const DIR: &str = "/store";

/// Options under which a few thousand writes go through flush, compaction and several log groups.
pub fn small() -> Options {
    Options {
        memtable_bytes: 32 << 10,
        memory_bytes: 96 << 10,
        cache_bytes: 64 << 10,
        family: small_family(),
        ..Default::default()
    }
    .expert(|expert| {
        expert.log_group_bytes = 128 << 10;
        expert.wal_bytes_max = 512 << 10;
    })
}

pub fn small_family() -> FamilyOptions {
    FamilyOptions::default().expert(|expert| {
        expert.file_bytes = 16 << 10;
        expert.level_base_bytes = 64 << 10;
    })
}

pub fn key(i: u64) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

/// A value of about 100 bytes that contains key and round.
pub fn value(i: u64, round: u64) -> Vec<u8> {
    format!("{i}/{round}/").into_bytes().into_iter().cycle().take(100 + (i % 7) as usize).collect()
}

/// Writes `value(i, round)` for a range of keys to the default family and the model.
pub fn fill(db: &Db, model: &mut Model, keys: std::ops::Range<u64>, round: u64) {
    for i in keys {
        db.put(&key(i), &value(i, round)).unwrap();
        model.insert(key(i), value(i, round));
    }
}

/// Returns all entries of the default family.
pub fn contents(db: &Db) -> Model {
    contents_cf(db, db.default_column_family())
}

pub fn contents_cf(db: &Db, family: &ColumnFamily) -> Model {
    try_contents(db, family).unwrap()
}

pub fn try_contents(db: &Db, family: &ColumnFamily) -> Result<Model> {
    db.iter_cf(family, ReadOptions::default())?.entries().collect()
}

pub fn open(sim: &SimEnv) -> Db {
    Db::open_in(env(sim), DIR, small()).unwrap()
}

pub fn try_open(sim: &SimEnv) -> Result<Db> {
    Db::open_in(env(sim), DIR, small())
}

pub fn settle(db: &Db) {
    assert!(db.wait_idle(Duration::from_secs(60)), "{}", db.describe());
}

/// Names of the files of a simulated store, with lengths.
pub fn files(sim: &SimEnv) -> Vec<(String, u64)> {
    if on_lavafs() {
        let listed = env(sim).fs.list(Path::new(DIR)).unwrap_or_default();
        return listed.into_iter().map(|entry| (entry.name, entry.len)).collect();
    }
    let name = |p: PathBuf| p.file_name().unwrap().to_str().unwrap().to_owned();
    sim.files().into_iter().filter(|(p, _)| p.starts_with(DIR)).map(|(p, len)| (name(p), len)).collect()
}

/// Returns the names with this beginning or end.
pub fn files_like(sim: &SimEnv, part: &str) -> Vec<String> {
    files(sim)
        .into_iter()
        .map(|(name, _)| name)
        .filter(|n| n.starts_with(part) || n.ends_with(part))
        .collect()
}

/// The path of a file of the simulated store.
pub fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

/// Asserts an error of this kind that names this file.
#[track_caller]
pub fn refused<T>(result: Result<T>, kind: ErrorKind, file: &str) {
    match result {
        Ok(_) => panic!("{file}: accepted, {kind:?} was expected"),
        Err(e) => {
            assert_eq!(e.kind(), kind, "{file}: {e}");
            let named = e.file().map(|f| f.to_string_lossy().into_owned()).unwrap_or_default();
            assert!(named.ends_with(file), "{file}: {e}");
        }
    }
}

#[track_caller]
pub fn fails<T>(result: Result<T>, kind: ErrorKind) {
    match result {
        Ok(_) => panic!("accepted, {kind:?} was expected"),
        Err(e) => assert_eq!(e.kind(), kind, "{e}"),
    }
}

/// Asserts that the parts of the ledger sum to its total, and that the total equals the allocated
/// bytes of the directory.
#[track_caller]
pub fn ledger_adds_up(db: &Db, listed_allocated: u64) -> Space {
    let space = db.space().unwrap();
    assert_eq!(space.parts().iter().map(|(_, n)| n).sum::<u64>(), space.total_bytes, "{space:?}");
    assert_eq!(space.total_bytes, listed_allocated, "{space:?}");
    space
}

/// A temporary directory, removed when it goes out of scope.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("lavastore-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        TempDir(dir)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
