//! Forks of a store on one volume: a fork never reads data of another, although they have the same
//! numbers and reuse the same blocks.
//!
//! All of it on LavaFS, where a log group takes over blocks without clearing them.

use crate::common::{DIR, Model, contents, fill, key, lavafs_env as env, small};
use lavastore_lavakv::io::{Access, CreateOptions, SyncKind};
use lavastore_lavakv::sim::{CrashKind, SimEnv};
use lavastore_lavakv::{Db, Durability, Options};
use std::path::Path;

/// The end of a store before it is opened again.
const ENDS: [Option<CrashKind>; 3] = [Some(CrashKind::ProcessKill), Some(CrashKind::PowerLoss), None];

fn options() -> Options {
    Options { durability: Durability::Durable, ..small() }
}

/// Returns the store, with its first 50 keys, and a checkpoint of these in each directory.
fn source(sim: &SimEnv, checkpoints: &[&str]) -> (Db, Model) {
    let db = Db::open_in(env(sim), DIR, options()).unwrap();
    let mut model = Model::new();
    fill(&db, &mut model, 0..50, 0);
    checkpoints.iter().for_each(|dir| db.checkpoint(dir).unwrap());
    (db, model)
}

fn put(db: &Db, model: &mut Model, count: u64, len: usize, what: &str) {
    for i in 0..count {
        let value: Vec<u8> = format!("{what}/{i}/").into_bytes().into_iter().cycle().take(len).collect();
        db.put(&key(1000 + i), &value).unwrap();
        model.insert(key(1000 + i), value);
    }
}

/// Removes a closed store.
fn delete(sim: &SimEnv, dir: &str) {
    let (fs, dir) = (env(sim).fs, Path::new(dir));
    for entry in fs.list(dir).unwrap() {
        fs.remove(&dir.join(&entry.name)).unwrap();
    }
    fs.remove_dir(dir).unwrap();
    fs.sync_dir(Path::new("/")).unwrap();
}

/// Ends an open store in this way, and returns the machine after it.
fn end(sim: &SimEnv, db: Db, how: Option<CrashKind>, seed: u64) -> SimEnv {
    match how {
        Some(kind) => {
            let after = sim.crash(kind, seed);
            drop(db);
            after
        }
        None => {
            db.close().unwrap();
            sim.fork(seed)
        }
    }
}

/// Checks that the store equals the model, or returns the difference.
fn check(sim: &SimEnv, dir: &str, model: &Model) -> Result<(), String> {
    let db = Db::open_in(env(sim), dir, options()).map_err(|e| format!("refused to open: {e}"))?;
    let found = contents(&db);
    let strange = found.iter().filter(|(k, v)| model.get(*k) != Some(*v)).count();
    let lost = model.keys().filter(|k| !found.contains_key(*k)).count();
    if strange + lost == 0 { Ok(()) } else { Err(format!("{lost} keys lost, {strange} from elsewhere")) }
}

/// Copies the files of a closed store without the engine.
fn copy(sim: &SimEnv, from: &str, to: &str) {
    let fs = env(sim).fs;
    fs.create_dir_all(Path::new(to)).unwrap();
    for entry in fs.list(Path::new(from)).unwrap() {
        let source = fs.open(&Path::new(from).join(&entry.name), Access::Buffered).unwrap();
        let mut bytes = vec![0; source.readable_len().unwrap() as usize];
        source.read_at(&mut bytes, 0).unwrap();
        let mut target = fs.create(&Path::new(to).join(&entry.name), &CreateOptions::default()).unwrap();
        target.append(&bytes).unwrap();
        target.sync(SyncKind::Full).unwrap();
    }
    fs.sync_dir(Path::new(to)).unwrap();
}

#[test]
fn a_checkpoint_does_not_see_writes_of_its_sibling() {
    one_after_the_other(false);
}

/// A file copy does not know that it is one: it has the uid of the store and all its numbers.
#[test]
fn a_file_copy_does_not_see_writes_of_its_sibling() {
    one_after_the_other(true);
}

/// One of two forks is used and deleted, and the other reuses its blocks.
fn one_after_the_other(by_hand: bool) {
    for how in ENDS {
        for (first, len) in [(40, 100), (300, 300), (40, 3000), (3, 100), (200, 480)] {
            let sim = SimEnv::new(first + len as u64);
            let (db, mut model) = source(&sim, if by_hand { &[] } else { &["/one", "/two"] });
            db.close().unwrap();
            if by_hand {
                ["/one", "/two"].iter().for_each(|to| copy(&sim, DIR, to));
            }
            let one = Db::open_in(env(&sim), "/one", options()).unwrap();
            put(&one, &mut model.clone(), first, len, "one");
            one.close().unwrap();
            delete(&sim, "/one");
            let two = Db::open_in(env(&sim), "/two", options()).unwrap();
            put(&two, &mut model, 5, len, "two");
            let after = end(&sim, two, how, first);
            check(&after, "/two", &model)
                .unwrap_or_else(|why| panic!("{how:?}, {first} writes of {len} to the other: {why}"));
        }
    }
}

#[test]
fn a_checkpoint_replacing_its_source_sees_no_later_writes() {
    for how in ENDS {
        for (later, puts) in [(2000, 0), (5000, 0), (2000, 5), (5000, 5), (5000, 800)] {
            let sim = SimEnv::new(later + puts);
            let (db, mut model) = source(&sim, &["/copy"]);
            fill(&db, &mut model.clone(), 0..later, 1);
            db.close().unwrap();
            delete(&sim, DIR);
            let copy = Db::open_in(env(&sim), "/copy", options()).unwrap();
            put(&copy, &mut model, puts, 100, "after");
            let after = end(&sim, copy, how, later);
            check(&after, "/copy", &model)
                .unwrap_or_else(|why| panic!("{how:?}, {later} writes later, {puts} to the copy: {why}"));
        }
    }
}

/// Different stores have different uids, whatever else they share.
#[test]
fn a_checkpoint_has_a_uid_of_its_own() {
    let sim = SimEnv::new(1);
    let (db, _) = source(&sim, &["/one", "/two"]);
    db.close().unwrap();
    let uid = |dir: &str| version::Manifest::recover(&env(&sim), Path::new(dir), true).unwrap().store();
    let uids = [uid(DIR), uid("/one"), uid("/two")];
    assert!(uids[0] != uids[1] && uids[1] != uids[2] && uids[0] != uids[2], "{uids:?}");
}
