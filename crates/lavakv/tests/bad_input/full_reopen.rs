//! Opens on a volume with little room or none: the store opens, all of it is readable, deletes
//! work, and after them writes resume.

use crate::common::*;
use lavastore_lavakv::{
    Db, ErrorKind, FamilyOptions, Options, WriteOptions,
    io::Access,
    sim::{CrashKind, SimEnv},
};
use std::path::{Path, PathBuf};

/// Bounds the volume so that `room` bytes are left.
fn leave(sim: &SimEnv, room: u64) {
    if !on_lavafs() {
        return sim.set_capacity(Some(sim.used() + room));
    }
    let fs = env(sim).fs;
    let ballast = Path::new("/taken");
    let _ = fs.remove(ballast);
    // The volume frees removed blocks with its next operations.
    fs.sync_dir(Path::new("/")).unwrap();
    let available = fs.space(Path::new("/")).unwrap().available;
    let taken = available.saturating_sub(room) / 4096 * 4096;
    fs.create_in_place_unzeroed(ballast, taken, Access::Buffered).unwrap();
}

fn give_back(sim: &SimEnv) {
    match on_lavafs() {
        false => sim.set_capacity(None),
        true => env(sim).fs.remove(&PathBuf::from("/taken")).unwrap(),
    }
}

/// A killed store with tables, separated values, and a log with unflushed changes.
fn left_behind(seed: u64, options: &Options) -> (SimEnv, Model) {
    let (sim, mut model) = (SimEnv::new(seed), Model::new());
    let db = Db::open_in(env(&sim), DIR, options.clone()).unwrap();
    fill(&db, &mut model, 0..600, 0);
    for i in 0..40 {
        let long = value(i, 1).repeat(20);
        db.put(&key(1000 + i), &long).unwrap();
        model.insert(key(1000 + i), long);
    }
    db.flush().unwrap();
    fill(&db, &mut model, 300..700 + seed * 7, 2);
    settle(&db);
    fill(&db, &mut model, 0..seed * 3, 3);
    drop(db);
    (sim, model)
}

/// Opens, reads, deletes, compacts and writes again with `room` bytes.
fn live_with(seed: u64, room: u64, sim: &SimEnv, mut model: Model, options: &Options) {
    let what = format!("seed {seed}, {room} bytes left");
    leave(sim, room);
    let open = || Db::open_in(env(sim), DIR, options.clone()).unwrap_or_else(|e| panic!("{what}: {e}"));
    for _ in 0..3 {
        // Repeated opens without changes use no space.
        let db = open();
        assert!(contents(&db) == model, "{what}: reads");
        db.close().unwrap_or_else(|e| panic!("{what}: close: {e}"));
    }
    let db = open();
    let keys: Vec<_> = model.keys().cloned().collect();
    for (i, key) in keys.iter().enumerate() {
        let options = if i % 97 == 0 { WriteOptions::durable() } else { WriteOptions::buffered() };
        let deleted = db.delete_opt(db.default_column_family(), key, &options);
        deleted.unwrap_or_else(|e| panic!("{what}: delete {i} of {}: {e:?}\n{}", keys.len(), db.describe()));
        model.remove(key);
        if i == keys.len() / 2 {
            assert!(contents(&db) == model, "{what}: reads between deletes");
        }
    }
    drop(db);
    let db = open();
    assert!(contents(&db).is_empty(), "{what}: deletes are kept");
    if on_lavafs() {
        // LavaFS takes blocks beside those of files, so the freed room is short of the need of
        // compactions.
        leave(sim, 128 << 10);
    }
    for _ in 0..20 {
        if db.compact_range(db.default_column_family(), None, None).is_ok() {
            break;
        }
        sim.advance_ns(200_000_000);
    }
    settle(&db);
    for i in 0..100 {
        let put = db.put(&key(i), &value(i, 9));
        put.unwrap_or_else(|e| panic!("{what}: writes do not resume: {i}: {e}\n{}", db.describe()));
        model.insert(key(i), value(i, 9));
    }
    db.checkpoint("/copy").unwrap_or_else(|e| panic!("{what}: checkpoint: {e}"));
    assert!(contents(&db) == model);
    db.close().unwrap();
    give_back(sim);
    let db = open();
    assert!(contents(&db) == model && db.verify().unwrap().errors.is_empty(), "{what}");
}

/// At every size from no free byte to roomy. (On LavaFS from a few blocks on, since it takes blocks
/// beside those of files.)
#[test]
fn a_store_on_a_full_volume_can_be_reopened() {
    let all = [(1, 0..30), (9, 0..6), (17, 0..6), (25, 0..6)];
    let (tried, least) = if on_lavafs() { (&all[..1], 16 << 10) } else { (&all[..], 0) };
    for (seed, rooms) in tried.iter().cloned() {
        for room in rooms.map(|n| least + n * n * 1024 / 4096 * 4096) {
            let options = small();
            let (sim, model) = left_behind(seed, &options);
            let sim = if seed == 9 { sim.crash(CrashKind::ProcessKill, seed) } else { sim };
            live_with(seed, room, &sim, model, &options);
        }
    }
}

/// Single opens that delete one key each, on a volume filled to the last byte: the space that an
/// open takes is returned.
#[test]
fn opens_without_space_consume_no_space() {
    if skipped_on_lavafs(because::END) {
        return;
    }
    let options = small();
    for (seed, room) in [(1, 0), (2, 0), (2, 40 << 10), (3, 8 << 10)] {
        let (sim, mut model) = left_behind(seed, &options);
        leave(&sim, room);
        let keys: Vec<_> = model.keys().cloned().collect();
        for (i, key) in keys.iter().take(120).enumerate() {
            let what = format!("seed {seed}, {room} bytes left, opening {i}");
            let db = Db::open_in(env(&sim), DIR, options.clone()).unwrap_or_else(|e| panic!("{what}: {e}"));
            db.delete(key).unwrap_or_else(|e| panic!("{what}: {e}\n{:?}", files(&sim)));
            model.remove(key);
            db.close().unwrap_or_else(|e| panic!("{what}: close: {e}"));
        }
        let db = Db::open_in(env(&sim), DIR, options.clone()).unwrap();
        assert!(contents(&db) == model, "seed {seed}");
    }
}

/// Without free space and without the reserve there is no room to begin a log. Every change returns
/// that; none waits for a lock that it holds itself.
#[test]
fn a_store_without_space_for_a_log_refuses_writes() {
    let options = small();
    let (sim, model) = left_behind(3, &options);
    let fs = env(&sim).fs;
    let dir = Path::new(DIR);
    let lengths = [32 << 10, 64 << 10];
    for entry in fs.list(dir).unwrap().iter().filter(|e| e.name.ends_with(".log") && lengths.contains(&e.len))
    {
        fs.remove(&dir.join(&entry.name)).unwrap();
    }
    leave(&sim, 0);
    let db = Db::open_in(env(&sim), DIR, options).unwrap();
    let default = db.default_column_family();
    let refused = [
        db.put(b"key", b"value"),
        db.delete(&key(1)),
        db.set_family_options(default, FamilyOptions { min_blob_size: 777, ..small_family() }),
        db.create_column_family("new", small_family()).map(drop),
        db.compact_range(default, None, None),
        db.flush(),
        db.checkpoint("/copy"),
    ];
    for (i, refused) in refused.into_iter().enumerate() {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::NoSpace, "call {i}");
    }
    assert!(contents(&db) == model);
    give_back(&sim);
    db.put(b"key", b"value").unwrap();
    db.create_column_family("new", small_family()).unwrap();
    db.close().unwrap();
}
