//! Many keys in one call: the same answers as single gets, with fewer rounds of reads.

use crate::common::*;
use lavastore_lavakv::io::Rng;
use lavastore_lavakv::sim::{FaultEffect, FaultPlan, OpKind, SimEnv};
use lavastore_lavakv::{
    BlockRequest, Db, Error, ErrorKind, FoundValue, Options, PendingMultiGet, Progress, ReadAt, ReadOptions,
    Result, Value,
};
use std::sync::Arc;

const KEYS: u64 = 500;

fn options(cache_bytes: usize, open_files_max: usize) -> Options {
    let mut options = Options { cache_bytes, open_files_max, ..small() };
    (options.family.min_blob_size, options.family.expert.vsst_bytes) = (100, 16 << 10);
    options
}

/// Puts, deletes, range deletions. Two thirds of the values are separated, a few get a file of
/// their own.
fn change(db: &Db, model: &mut Model, rng: &mut Rng, changes: u64) {
    for _ in 0..changes {
        let nth = rng.below(KEYS);
        if rng.one_in(100) {
            let end = key(nth + rng.below(20));
            db.delete_range(&key(nth), &end).unwrap();
            model.retain(|k, _| !(key(nth)..end.clone()).contains(k));
        } else if rng.one_in(6) {
            db.delete(&key(nth)).unwrap();
            model.remove(&key(nth));
        } else {
            let len = if rng.one_in(300) { 40_000 } else { rng.below(300) };
            let mut value = vec![0; len as usize];
            rng.fill(&mut value);
            db.put(&key(nth), &value).unwrap();
            model.insert(key(nth), value);
        }
        if rng.one_in(300) {
            db.flush().unwrap();
        }
    }
}

/// Keys, with missing and duplicate ones among them.
fn some_keys(rng: &mut Rng) -> Vec<Vec<u8>> {
    let count = [0, 1, 5, 64, 700][rng.below(5) as usize];
    (0..count).map(|_| key(rng.below(KEYS + 5))).collect()
}

fn multi_get(db: &Db, keys: &[Vec<u8>], options: &ReadOptions) -> Vec<Result<Option<Value>>> {
    db.multi_get_at(db.default_column_family(), keys, options.at())
}

/// Checks the answers of a call against the model.
fn agrees(db: &Db, model: &Model, keys: &[Vec<u8>], options: &ReadOptions) {
    let answers = multi_get(db, keys, options);
    assert_eq!(answers.len(), keys.len());
    for (key, answer) in keys.iter().zip(answers) {
        assert_eq!(answer.unwrap().as_deref(), model.get(key).map(|value| &value[..]), "{key:?}");
    }
}

#[test]
fn multi_get_agrees_with_a_model() {
    for seed in 0..8 {
        let (sim, mut rng) = (SimEnv::new(seed), Rng::new(seed));
        let options =
            options([64 << 10, 8 << 10, 0][rng.below(3) as usize], [16, 1000][rng.below(2) as usize]);
        let mut db = Db::open_in(env(&sim), DIR, options.clone()).unwrap();
        let mut model = Model::new();
        for _ in 0..12 {
            change(&db, &mut model, &mut rng, 300);
            let (snapshot, before) = (db.snapshot(), model.clone());
            change(&db, &mut model, &mut rng, 100);
            for fill_cache in [false, true] {
                let now = ReadOptions { fill_cache, ..Default::default() };
                agrees(&db, &model, &some_keys(&mut rng), &now);
                let then = ReadOptions { fill_cache, snapshot: Some(snapshot.clone()), ..Default::default() };
                agrees(&db, &before, &some_keys(&mut rng), &then);
            }
            drop(snapshot);
            match rng.below(4) {
                0 => settle(&db),
                1 => db.compact_range(db.default_column_family(), None, None).unwrap(),
                2 => {
                    db.close().unwrap();
                    db = Db::open_in(env(&sim), DIR, options.clone()).unwrap();
                }
                _ => {}
            }
        }
    }
}

/// A closed store with tables and value files, and its contents.
fn store(seed: u64) -> (SimEnv, Model) {
    let (sim, mut rng) = (SimEnv::new(seed), Rng::new(seed));
    let db = Db::open_in(env(&sim), DIR, options(0, 1000)).unwrap();
    let mut model = Model::new();
    change(&db, &mut model, &mut rng, 2500);
    db.flush().unwrap();
    settle(&db);
    db.close().unwrap();
    (sim, model)
}

fn same(one: &Result<Option<Value>>, other: &Result<Option<Value>>) -> bool {
    match (one, other) {
        (Ok(one), Ok(other)) => one.as_deref() == other.as_deref(),
        (Err(one), Err(other)) => one.to_string() == other.to_string(),
        _ => false,
    }
}

#[test]
fn multi_get_reports_damage_per_key_like_get() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let (sim, model) = store(1);
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    let mut told = [0, 0];
    for (nth, name) in [files_like(&sim, ".ksst"), files_like(&sim, ".vsst")].concat().iter().enumerate() {
        let len = sim.read_file(path(name)).unwrap().len() as u64;
        for round in 0..6 {
            let damaged = sim.fork(round);
            let mut rng = Rng::new(nth as u64 * 100 + round);
            // Also in the footer and close to it.
            let at = if round < 2 { len - 1 - rng.below(300) } else { rng.below(len) };
            damaged.flip_bit(path(name), at, rng.below(8) as u32).unwrap();
            if round == 5 {
                damaged.erase(path(name)).unwrap();
            }
            // In a separate store each, so that neither profits from the other's reads.
            let open = |seed| Db::open_in(env(&damaged.fork(seed)), DIR, options(64 << 10, 1000));
            let (Ok(one), Ok(other)) = (open(1), open(2)) else { continue };
            let answers = multi_get(&one, &keys, &ReadOptions::default());
            for (key, answer) in keys.iter().zip(answers) {
                let alone = other.get(key);
                assert!(same(&answer, &alone), "flip at {at} of {name}: {key:?}: {answer:?}, {alone:?}");
                match answer {
                    Ok(found) => assert_eq!(found.as_deref(), model.get(key).map(|value| &value[..])),
                    Err(_) => told[usize::from(name.ends_with(".vsst"))] += 1,
                }
            }
        }
    }
    assert!(told.iter().all(|&n| n > 20), "damage was met in tables and in value files: {told:?}");
}

#[test]
fn a_failed_read_fails_only_the_keys_that_need_it() {
    let (sim, model) = store(2);
    let keys: Vec<Vec<u8>> = (0..KEYS).step_by(3).map(key).collect();
    let (mut failed, mut whole) = (0, 0);
    for nth in 0..60 {
        let machine = sim.fork(nth);
        let db = Db::open_in(env(&machine), DIR, options(0, 1000)).unwrap();
        let effect = [FaultEffect::Eio, FaultEffect::FlippedRead][nth as usize % 2];
        let mut plan = FaultPlan::nth(nth / 2, effect).kinds(&[OpKind::Read]);
        if nth % 3 == 0 {
            plan = plan.sticky();
        }
        machine.inject(plan);
        let answers = multi_get(&db, &keys, &ReadOptions::default());
        let errors = answers.iter().filter(|answer| answer.is_err()).count();
        for (key, answer) in keys.iter().zip(answers) {
            match answer {
                Ok(found) => assert_eq!(found.as_deref(), model.get(key).map(|value| &value[..])),
                Err(e) => assert!(matches!(e.kind(), ErrorKind::Io | ErrorKind::Corruption), "{e}"),
            }
        }
        failed += usize::from(errors > 0);
        whole += usize::from(errors == 0);
        machine.clear_faults();
        agrees(&db, &model, &keys, &ReadOptions::default());
    }
    assert!(failed > 10 && whole > 5, "{failed} calls with errors, {whole} without");
}

#[test]
fn each_value_is_read_once_and_neighbours_together() {
    let sim = SimEnv::new(3);
    let db = Db::open_in(env(&sim), DIR, options(4 << 20, 1000)).unwrap();
    for i in 0..KEYS {
        db.put(&key(i), &value(i, 0)).unwrap();
    }
    db.compact_range(db.default_column_family(), None, None).unwrap();
    let uncached = ReadOptions { fill_cache: false, ..Default::default() };
    let apart: Vec<Vec<u8>> = (0..64).map(|i| key(i * 7)).collect();
    // From here on the indexes are cached, the values are not.
    multi_get(&db, &apart, &uncached);
    let before = db.stats();
    multi_get(&db, &[&apart[..], &apart[..]].concat(), &uncached);
    let after = db.stats();
    let grew = |of: fn(&lavastore_lavakv::Statistics) -> u64| of(&after) - of(&before);
    assert_eq!((grew(|s| s.gets), grew(|s| s.gets_found)), (128, 128));
    assert_eq!((grew(|s| s.get_value_reads), grew(|s| s.get_index_reads)), (64, 0));
    let requests = grew(|s| s.get_device_reads);
    assert!((2..30).contains(&requests), "{requests} requests for 64 values in a few files");
    assert_eq!(db.stats().histograms.operation("multi_get").unwrap().count(), 2);
}

/// Performs a read for the store.
fn read(want: &BlockRequest) -> Result<Arc<[u8]>> {
    let mut bytes = vec![0; want.extent.len as usize];
    want.file.read_at(&mut bytes, want.extent.offset)?;
    Ok(bytes.into())
}

fn value_of(answer: Result<Option<FoundValue>>) -> Result<Option<Value>> {
    answer?.map(FoundValue::into_value).transpose()
}

#[test]
fn get_steps_accept_reads_in_any_order() {
    let (sim, mut model) = store(4);
    let mut rng = Rng::new(4);
    for cache_bytes in [0, 8 << 10, 1 << 20] {
        let db = Db::open_in(env(&sim), DIR, options(cache_bytes, 16)).unwrap();
        change(&db, &mut model, &mut rng, 200);
        let (at, family) = (ReadOptions::default(), db.default_column_family());
        let mut gets: Vec<(Vec<u8>, _, Vec<BlockRequest>)> =
            (0..KEYS).map(|i| (key(i), db.begin_get(family, key(i), at.at()).unwrap(), Vec::new())).collect();
        let before = model.clone();
        change(&db, &mut model, &mut rng, 200);
        let mut longest = 0;
        while !gets.is_empty() {
            let nth = rng.below(gets.len() as u64) as usize;
            let (key, get, wants) = &mut gets[nth];
            for want in std::mem::take(wants) {
                get.put(&want, read(&want));
            }
            match get.step() {
                Progress::Wants(wanted) => {
                    assert!(!wanted.is_empty());
                    *wants = wanted;
                    longest += 1;
                }
                Progress::Done(answer) => {
                    let answer = value_of(answer).unwrap();
                    assert_eq!(answer.as_deref(), before.get(key).map(|value| &value[..]), "{key:?}");
                    gets.swap_remove(nth);
                }
            }
        }
        assert!(longest > 100, "most of it is on the device");
        db.close().unwrap();
    }
}

fn finish(
    mut op: PendingMultiGet,
    mut read: impl FnMut(&BlockRequest) -> Result<Arc<[u8]>>,
) -> Vec<Result<Option<Value>>> {
    loop {
        match op.step() {
            Progress::Done(answers) => return answers.into_iter().map(value_of).collect(),
            Progress::Wants(wants) => {
                assert!(wants.len() <= 256 && wants.is_sorted_by(|a, b| a.extent < b.extent));
                for want in wants.iter().rev() {
                    let read = read(want);
                    op.put(want, read);
                }
            }
        }
    }
}

#[test]
fn undelivered_reads_fail_only_the_keys_that_need_them() {
    let (sim, model) = store(5);
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    for every in [1, 4, 50, u64::MAX] {
        let db = Db::open_in(env(&sim), DIR, options(1 << 20, 1000)).unwrap();
        let mut rng = Rng::new(every);
        let op = db.begin_multi_get(db.default_column_family(), keys.clone(), ReadOptions::default().at());
        let answers = finish(op.unwrap(), |want| match rng.below(every) {
            0 => Err(Error::new(ErrorKind::Io, "the device is gone")),
            _ => read(want),
        });
        let errors = answers.iter().filter(|answer| answer.is_err()).count();
        assert_eq!(errors > 0, every < u64::MAX, "{errors} of {}", keys.len());
        assert!(every < 4 || errors < keys.len());
        for (key, answer) in keys.iter().zip(answers) {
            match answer {
                Ok(found) => assert_eq!(found.as_deref(), model.get(key).map(|value| &value[..])),
                Err(e) => assert_eq!(e.kind(), ErrorKind::Io, "{e}"),
            }
        }
    }
}

/// Wrong bytes are found like in a get that reads by itself.
#[test]
fn delivered_wrong_bytes_are_detected() {
    let (sim, model) = store(6);
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    let mut found_out = 0;
    for seed in 0..20 {
        let db = Db::open_in(env(&sim), DIR, options(0, 1000)).unwrap();
        let mut rng = Rng::new(seed);
        let op = db.begin_multi_get(db.default_column_family(), keys.clone(), ReadOptions::default().at());
        let answers = finish(op.unwrap(), |want| {
            let mut bytes = read(want)?.to_vec();
            if rng.one_in(10) {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << rng.below(8);
            }
            Ok(bytes.into())
        });
        for (key, answer) in keys.iter().zip(answers) {
            match answer {
                Ok(found) => assert_eq!(found.as_deref(), model.get(key).map(|value| &value[..])),
                Err(e) => {
                    assert!(matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Unsupported), "{e}");
                    found_out += 1;
                }
            }
        }
    }
    assert!(found_out > 20, "{found_out}");
}

#[test]
fn an_abandoned_get_leaves_no_state() {
    let (sim, model) = store(7);
    let db = Db::open_in(env(&sim), DIR, options(64 << 10, 16)).unwrap();
    let at = ReadOptions::default();
    for i in 0..20 {
        let mut get = db.begin_get(db.default_column_family(), key(i), at.at()).unwrap();
        if let Progress::Wants(wants) = get.step() {
            get.put(&wants[0], read(&wants[0]));
        }
    }
    agrees(&db, &model, &(0..KEYS).map(key).collect::<Vec<_>>(), &at);
    assert!(db.close().is_ok(), "nobody has it open");
}

#[test]
fn an_invalid_multi_get_fails_every_key() {
    let sim = SimEnv::new(8);
    let db = Db::open_in(env(&sim), DIR, small()).unwrap();
    let family = db.create_column_family("gone", small_family()).unwrap();
    db.drop_column_family(&family).unwrap();
    let at = ReadAt { snapshot: None, fill_cache: true };
    let answers = db.multi_get_at(&family, &[b"a", b"b"], at);
    assert_eq!(answers.len(), 2);
    assert!(answers.iter().all(|a| a.as_ref().is_err_and(|e| e.kind() == ErrorKind::NotFound)));
    assert!(db.begin_get(&family, b"a".to_vec(), at).is_err());
}
