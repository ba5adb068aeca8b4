//! Separated values: the same answers, files that live exactly as long as needed, and reported
//! damage.
#![allow(clippy::disallowed_methods, reason = "tests look at directories from outside")]

#[path = "../common/mod.rs"]
mod common;

mod correlated;
mod damage;
mod full_disk;
mod garbage_bound;
mod hot_cold;
mod life;
mod options;
mod pipelined;
mod quiet;
mod rewrite;
mod scheduling;
mod speed_values;
mod steering;

use common::*;
use lavastore_lavakv::io::Rng;
use lavastore_lavakv::{Db, FamilyOptions, Options, sim::SimEnv};

/// Options under which values of at least `min_blob_size` bytes go to small value files.
fn apart(min_blob_size: usize) -> Options {
    Options { family: apart_family(min_blob_size), ..small() }
}

fn apart_family(min_blob_size: usize) -> FamilyOptions {
    FamilyOptions { min_blob_size, ..small_family() }.expert(|expert| expert.vsst_bytes = 16 << 10)
}

fn open_apart(sim: &SimEnv, min_blob_size: usize) -> Db {
    Db::open_in(env(sim), DIR, apart(min_blob_size)).unwrap()
}

/// A value of random length, half of which is compressible.
fn noise(rng: &mut Rng, len_max: u64) -> Vec<u8> {
    let mut value = vec![7; rng.below(len_max + 1) as usize];
    let half = value.len() / 2;
    rng.fill(&mut value[..half]);
    value
}

/// A value of `len` bytes that contains key and round.
fn long(i: u64, round: u64, len: usize) -> Vec<u8> {
    format!("{i}/{round}/").into_bytes().into_iter().cycle().take(len).collect()
}

/// Puts `long(i, round, len)` for a range of keys.
fn fill_long(db: &Db, model: &mut Model, keys: impl Iterator<Item = u64>, round: u64, len: usize) {
    for i in keys {
        db.put(&key(i), &long(i, round, len)).unwrap();
        model.insert(key(i), long(i, round, len));
    }
}

fn compact(db: &Db) {
    db.compact_range(db.default_column_family(), None, None).unwrap();
}

/// Checks that scans and point reads agree with the model.
#[track_caller]
fn reads_back(db: &Db, model: &Model) {
    assert!(contents(db) == *model);
    for (key, value) in model.iter().step_by(5) {
        assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..]));
    }
}

/// Checks that at rest, without readers, the directory has exactly the files in the manifest, and
/// each is referenced.
#[track_caller]
fn nothing_left_over(db: &Db, sim: &SimEnv) {
    settle(db);
    let mut found = files_like(sim, ".ksst");
    found.extend(files_like(sim, ".vsst"));
    found.sort_unstable();
    let live = db.live_files();
    assert_eq!(found, live.files);
    assert!(live.unreferenced.is_empty() && live.pinned == 0, "{live:?}");
    let space = db.space().unwrap();
    assert_eq!((space.job_bytes, space.pinned_bytes), (0, 0), "{space:?}");
    assert!(db.verify().unwrap().errors.is_empty());
}
