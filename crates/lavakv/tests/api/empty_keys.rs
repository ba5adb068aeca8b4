//! The empty key is an ordinary key in stores whose format allows it.

use crate::common::*;
use lavastore_lavakv::io::Rng;
use lavastore_lavakv::sim::{CrashKind, SimEnv};
use lavastore_lavakv::{
    Compression, Db, ErrorKind, GcRequest, Options, PolicyChoice, ReadOptions, RequestOptions, Snapshot,
    StoreFormat, VlsmOptions, WriteBatch, WriteOptions,
};
use repair::RepairOptions;

fn options() -> Options {
    let mut options = small();
    (options.family.min_blob_size, options.family.expert.vsst_bytes) = (100, 16 << 10);
    options
}

/// Either policy, with and without compression.
fn options_of(seed: u64) -> Options {
    let vlsm = VlsmOptions { table_bytes: 4 << 10, level_1_tables: 2, ..VlsmOptions::default() };
    let mut options = options();
    options.family.policy = [PolicyChoice::default(), PolicyChoice::vlsm(&vlsm)][seed as usize % 2].clone();
    if seed / 2 % 2 == 1 {
        options.family.compression = Compression::None;
    }
    options
}

/// One of a few keys, with the empty one among them.
fn some_key(rng: &mut Rng) -> Vec<u8> {
    match rng.below(4) {
        0 => Vec::new(),
        1 => vec![0; 1 + rng.below(2) as usize],
        _ => key(rng.below(60)),
    }
}

fn change(db: &Db, model: &mut Model, rng: &mut Rng) {
    let key = some_key(rng);
    match rng.below(12) {
        0 => {
            db.delete(&key).unwrap();
            model.remove(&key);
        }
        1 if rng.one_in(4) => {
            let (start, end) = (some_key(rng), some_key(rng));
            let (start, end) = if start <= end { (start, end) } else { (end, start) };
            db.delete_range(&start, &end).unwrap();
            model.retain(|key, _| *key < start || *key >= end);
        }
        2 => {
            let mut batch = WriteBatch::new();
            batch.put(&key, b"of a batch");
            batch.delete(b"");
            db.write(&batch).unwrap();
            model.insert(key, b"of a batch".to_vec());
            model.remove(&b""[..]);
        }
        nth => {
            // Inline, separated, sometimes in a file of its own.
            let len = if rng.one_in(60) { 40_000 } else { [20, 300][nth as usize % 2] };
            let value: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
            db.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
}

fn agrees(db: &Db, model: &Model, rng: &mut Rng) {
    assert!(contents(db) == *model);
    let key = some_key(rng);
    assert_eq!(db.get(&key).unwrap().as_deref(), model.get(&key).map(|value| &value[..]));
    let family = db.default_column_family();
    let found = db.multi_get_at(family, &[&key[..], b""], ReadOptions::default().at());
    for (found, key) in found.into_iter().zip([&key[..], b""]) {
        assert_eq!(found.unwrap().as_deref(), model.get(key).map(|value| &value[..]));
    }
    assert_eq!(
        db.contains_key_at(family, b"", ReadOptions::default().at()).unwrap(),
        model.contains_key(&b""[..])
    );
    let prefixed = ReadOptions { prefix: Some(Vec::new()), ..Default::default() };
    let mut iter = db.iter(prefixed).unwrap();
    iter.seek_to_last().unwrap();
    for key in model.keys().rev() {
        assert_eq!(iter.key(), key);
        iter.prev().unwrap();
    }
    assert!(!iter.valid());
    iter.seek(b"").unwrap();
    assert_eq!(iter.valid().then(|| iter.key().to_vec()), model.keys().next().cloned());
    iter.seek_for_prev(b"").unwrap();
    assert_eq!(iter.valid(), model.contains_key(&b""[..]));
    let bounded = ReadOptions { upper_bound: Some(vec![0]), ..Default::default() };
    let below: Vec<_> = db.iter(bounded).unwrap().entries().map(|entry| entry.unwrap().0).collect();
    assert_eq!(below.len(), usize::from(model.contains_key(&b""[..])));
}

#[test]
fn the_empty_key_is_a_key_like_any_other() {
    for seed in 0..12 {
        let (mut sim, mut rng) = (SimEnv::new(seed), Rng::new(seed));
        let mut model = Model::new();
        let mut held: Vec<(Snapshot, Model)> = Vec::new();
        let open = |sim: &SimEnv, dir: &str| Db::open_in(env(sim), dir, options_of(seed)).unwrap();
        let mut db = open(&sim, DIR);
        db.upgrade(StoreFormat::V2).unwrap();
        for round in 0..12 {
            for _ in 0..60 {
                change(&db, &mut model, &mut rng);
            }
            agrees(&db, &model, &mut rng);
            match rng.below(7) {
                0 => db.flush().unwrap(),
                1 => db.compact_range(db.default_column_family(), None, None).unwrap(),
                2 => settle(&db),
                3 => held.push((db.snapshot(), model.clone())),
                4 => {
                    db.flush().unwrap();
                    db.compact_range(db.default_column_family(), None, None).unwrap();
                    db.collect_garbage(GcRequest { until_percent: Some(0), ..Default::default() }).unwrap();
                }
                5 => {
                    let copy = format!("/copy{round}");
                    db.checkpoint(&copy).unwrap();
                    let copy = open(&sim, &copy);
                    agrees(&copy, &model, &mut rng);
                    assert!(copy.verify().unwrap().errors.is_empty());
                }
                _ => {
                    held.clear();
                    let after = sim.crash(CrashKind::ProcessKill, seed);
                    drop(db);
                    sim = after;
                    db = open(&sim, DIR);
                    assert_eq!(db.format(), StoreFormat::V2);
                }
            }
            agrees(&db, &model, &mut rng);
            for (snapshot, then) in &held {
                let at = ReadOptions { snapshot: Some(snapshot.clone()), ..Default::default() };
                let found: Model = db.iter(at).unwrap().entries().collect::<Result<_, _>>().unwrap();
                assert!(found == *then, "seed {seed}, round {round}");
            }
        }
        assert!(db.verify().unwrap().errors.is_empty(), "seed {seed}");
    }
}

/// Repair keeps the empty key, from a table, from the log, or with a value in a file of its own.
#[test]
fn repair_saves_the_empty_key() {
    for (len, flushed) in [(20, true), (20, false), (300, true), (40_000, true), (40_000, false)] {
        let (sim, mut model) = (SimEnv::new(1), Model::new());
        let db = Db::open_in(env(&sim), DIR, options()).unwrap();
        db.upgrade(StoreFormat::V2).unwrap();
        fill(&db, &mut model, 0..20, 1);
        db.put(b"", &vec![7; len]).unwrap();
        model.insert(Vec::new(), vec![7; len]);
        if flushed {
            db.flush().unwrap();
        }
        db.close().unwrap();
        let env = env(&sim);
        remove_manifest(&env);
        let how = RepairOptions { options: options(), ..RepairOptions::default() };
        let report = repair::repair_in(&env, DIR, &env, "/repaired", &how).unwrap();
        assert!(report.lost.is_empty(), "{len} bytes, flushed: {flushed}: {report:?}");
        let db = Db::open_in(env, "/repaired", options()).unwrap();
        assert!(contents(&db) == model && db.format() == StoreFormat::V2, "{len} bytes, flushed: {flushed}");
        assert!(db.verify().unwrap().errors.is_empty());
    }
}

#[test]
fn an_empty_key_is_refused_where_the_format_has_none() {
    let sim = SimEnv::new(1);
    let db = Db::open_in(env(&sim), DIR, options()).unwrap();
    assert_eq!(db.format(), StoreFormat::V1);
    let family = db.default_column_family();
    let mut batch = WriteBatch::new();
    batch.put(b"a", b"1");
    batch.put(b"", &[7; 40_000]);
    let requests = db.requests(&RequestOptions::default()).unwrap();
    let refusals = [
        db.put(b"", b"1"),
        db.delete(b""),
        db.write(&batch),
        db.put_stream(family, b"", WriteOptions::default()).map(drop),
        requests.put(family, Vec::new(), b"1".to_vec()).and_then(|write| db.block_on(write)).map(drop),
    ];
    for (nth, refusal) in refusals.into_iter().enumerate() {
        let e = refusal.expect_err("an empty key");
        assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{nth}: {e}");
        assert!(e.message().starts_with("empty key: the store has format 1"), "{nth}: {e}");
    }
    assert!(contents(&db).is_empty());
    // Range bounds may be empty in every format.
    db.put(b"a", b"1").unwrap();
    db.delete_range(b"", b"b").unwrap();
    db.flush().unwrap();
    assert!(contents(&db).is_empty() && db.verify().unwrap().errors.is_empty());
}
