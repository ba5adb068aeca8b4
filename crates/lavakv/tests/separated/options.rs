//! Options that may change between opens, with inline and separated data.

use crate::common::*;
use crate::*;
use lavastore_lavakv::{Compression, ReadOptions, Snapshot};

const SIZES: [usize; 4] = [0, 32, 512, 4000];

/// Random changes, with values on both sides of every threshold.
fn churn(db: &Db, model: &mut Model, rng: &mut Rng, changes: u64) {
    for _ in 0..changes {
        let key = key(rng.below(120));
        if rng.one_in(8) {
            db.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let len_max = [40, 600, 6000][rng.below(3) as usize];
            let value = noise(rng, len_max);
            db.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        if rng.one_in(100) {
            db.flush().unwrap();
        }
    }
}

/// From every threshold to every other and back, with and without a compaction in between.
#[test]
fn the_separation_threshold_can_change_at_reopen() {
    for from in SIZES {
        for to in SIZES {
            let sim = SimEnv::new((from * 31 + to) as u64);
            let (mut model, mut rng) = (Model::new(), Rng::new(from as u64 ^ to as u64));
            for (round, size) in [from, to, from, to].into_iter().enumerate() {
                let db = open_apart(&sim, size);
                reads_back(&db, &model);
                churn(&db, &mut model, &mut rng, 150);
                if round % 2 == 1 {
                    compact(&db);
                }
                reads_back(&db, &model);
                nothing_left_over(&db, &sim);
                reads_back(&db, &model);
                db.close().unwrap();
            }
            let db = Db::open_read_only_in(env(&sim), DIR, apart(from)).unwrap();
            reads_back(&db, &model);
            assert!(db.verify().unwrap().errors.is_empty());
        }
    }
}

fn vsst_bytes(sim: &SimEnv) -> u64 {
    files(sim).iter().filter(|(name, _)| name.ends_with(".vsst")).map(|(_, len)| len).sum()
}

/// Compaction moves values between tables and value files; leftovers are removed.
#[test]
fn a_full_compaction_moves_values_between_the_streams() {
    let (sim, mut model) = (SimEnv::new(1), Model::new());
    let bytes = 200 * 1000;
    for (round, size) in [0, 512, 0, 512, 2000].into_iter().enumerate() {
        let db = open_apart(&sim, size);
        fill_long(&db, &mut model, (0..200).step_by(10), round as u64, 1000);
        if round == 0 {
            fill_long(&db, &mut model, 0..200, 0, 1000);
        }
        compact(&db);
        nothing_left_over(&db, &sim);
        reads_back(&db, &model);
        let apart = vsst_bytes(&sim);
        if size == 512 {
            assert!(apart > bytes * 9 / 10, "{apart} B in vSSTs\n{}", db.describe());
        } else {
            assert_eq!(apart, 0, "{}", db.describe());
        }
    }
}

/// A value of exactly the threshold's length is separated; one byte less is not.
#[test]
fn a_value_of_threshold_length_is_separated() {
    for (len, apart) in [(511, false), (512, true), (513, true)] {
        let sim = SimEnv::new(len as u64);
        let db = open_apart(&sim, 512);
        db.put(b"key", &long(1, 1, len)).unwrap();
        db.flush().unwrap();
        settle(&db);
        assert_eq!(vsst_bytes(&sim) > 0, apart, "{len}");
        assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&long(1, 1, len)[..]));
    }
}

/// Versions of one key, inline and separated, are visible at their snapshots while compaction
/// merges them.
#[test]
fn both_streams_are_merged_at_every_snapshot() {
    for seed in 0..4 {
        let (sim, mut rng, mut model) = (SimEnv::new(seed), Rng::new(seed), Model::new());
        let db = open_apart(&sim, 200);
        let mut views: Vec<(Snapshot, Model)> = Vec::new();
        for round in 0..12u64 {
            for i in 0..60 {
                // The same key has a short and a long value in turn.
                let len = if (i + round + rng.below(2)) % 2 == 0 { 20 } else { 900 };
                if rng.one_in(9) {
                    db.delete(&key(i)).unwrap();
                    model.remove(&key(i));
                } else {
                    fill_long(&db, &mut model, i..i + 1, round, len);
                }
            }
            db.flush().unwrap();
            if rng.one_in(2) {
                compact(&db);
            }
            if rng.one_in(2) {
                views.push((db.snapshot(), model.clone()));
            }
            if views.len() > 4 {
                views.swap_remove(rng.below(5) as usize);
            }
            settle(&db);
            for (snapshot, then) in &views {
                let options = ReadOptions { snapshot: Some(snapshot.clone()), ..Default::default() };
                let found: Model = db.iter(options.clone()).unwrap().entries().map(Result::unwrap).collect();
                assert!(found == *then);
                let mut i = db.iter(options).unwrap();
                i.seek_to_last().unwrap();
                for (key, value) in then.iter().rev() {
                    assert!(i.valid() && i.key() == key && i.value().unwrap() == value);
                    i.prev().unwrap();
                }
                assert!(!i.valid());
            }
        }
        drop(views);
        compact(&db);
        nothing_left_over(&db, &sim);
        reads_back(&db, &model);
        let stats = db.stats();
        assert!(stats.gc_runs + stats.vssts_pruned > 0, "{}", db.describe());
    }
}

/// Records keep their compression, collections copy them unchanged, and all are readable.
#[test]
fn value_compression_can_change_at_reopen() {
    let (sim, mut model, mut rng) = (SimEnv::new(2), Model::new(), Rng::new(2));
    let kinds = [Compression::None, Compression::Zstd, Compression::Lz4, Compression::None];
    let mut runs = 0;
    for (round, compression) in (0..).zip(kinds.into_iter().cycle().take(9)) {
        let mut options = apart(200);
        options.family.compression = compression;
        let db = Db::open_in(env(&sim), DIR, options).unwrap();
        // Some of the keys at a time, so that every file has records of every kind.
        fill_long(&db, &mut model, (0..300).filter(|_| rng.one_in(3)), round, 1500);
        fill_long(&db, &mut model, 300..320, round, 30);
        compact(&db);
        nothing_left_over(&db, &sim);
        reads_back(&db, &model);
        runs += db.stats().gc_runs;
    }
    assert!(runs > 0);
    let db = Db::open_read_only_in(env(&sim), DIR, small()).unwrap();
    reads_back(&db, &model);
}

/// Each family has its own threshold; collections and pruning work per family.
#[test]
fn families_have_separate_separation_options() {
    let sim = SimEnv::new(3);
    let db = open_apart(&sim, 512);
    let mut rng = Rng::new(3);
    let families: Vec<_> = SIZES
        .iter()
        .map(|&size| db.create_column_family(&format!("border {size}"), apart_family(size)).unwrap())
        .collect();
    let mut models = vec![Model::new(); families.len()];
    for round in 0..8 {
        for _ in 0..400 {
            let f = rng.below(families.len() as u64) as usize;
            let (key, value) = (key(rng.below(50)), noise(&mut rng, 5000));
            db.put_cf(&families[f], &key, &value).unwrap();
            models[f].insert(key, value);
        }
        if round % 2 == 1 {
            families.iter().for_each(|f| db.compact_range(f, None, None).unwrap());
        }
    }
    nothing_left_over(&db, &sim);
    for (family, model) in families.iter().zip(&models) {
        assert!(contents_cf(&db, family) == *model);
    }
    drop((db, families));
    let db = open_apart(&sim, 0);
    for (size, model) in SIZES.iter().zip(&models) {
        let family = db.column_family(&format!("border {size}")).unwrap();
        assert_eq!(family.options().min_blob_size, *size);
        assert!(contents_cf(&db, &family) == *model);
    }
    nothing_left_over(&db, &sim);
}
