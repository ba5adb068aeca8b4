//! A merged iterator against a map, with moves in both directions.

use crate::store;
use lavastore_transactions::IndexedBatch;
use lavastore_transactions::lavakv::{ReadOptions, io::Rng};
use std::collections::BTreeMap;
use std::ops::Bound;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(rng: &mut Rng) -> Vec<u8> {
    format!("{:03}", rng.below(120)).into_bytes()
}

/// Makes a random change of the batch and of the map.
fn change(batch: &mut IndexedBatch, db: &lavastore_transactions::lavakv::Db, map: &mut Map, rng: &mut Rng) {
    let (family, key, other) = (db.default_column_family(), key(rng), key(rng));
    match rng.below(5) {
        0 => {
            let (start, end) = (key.clone().min(other.clone()), key.max(other));
            let end = (!rng.one_in(8)).then_some(end);
            batch.delete_range(family, &start, end.as_deref()).unwrap();
            map.retain(|k, _| *k < start || end.as_ref().is_some_and(|end| end <= k));
        }
        1 => {
            batch.delete(family, &key).unwrap();
            map.remove(&key);
        }
        _ => {
            let value = vec![rng.below(250) as u8; rng.below(300) as usize];
            batch.put(family, &key, &value).unwrap();
            map.insert(key, value);
        }
    }
}

#[test]
fn random_moves_agree_with_a_map() {
    let mut moves = 0;
    for seed in 0..150 {
        let (db, mut rng, mut map) = (store(seed), Rng::new(seed), Map::new());
        for _ in 0..rng.below(300) {
            let (key, value) = (key(&mut rng), vec![1; rng.below(600) as usize]);
            db.put(&key, &value).unwrap();
            map.insert(key, value);
            db.run_background_step();
        }
        let mut batch = IndexedBatch::new(rng.one_in(2));
        for _ in 0..rng.below(40) {
            change(&mut batch, &db, &mut map, &mut rng);
        }
        let mut options = ReadOptions::default();
        if rng.one_in(2) {
            options.lower_bound = Some(key(&mut rng));
        }
        if rng.one_in(2) {
            options.upper_bound = Some(key(&mut rng));
        }
        if rng.one_in(4) {
            options.prefix = Some(vec![b'0' + rng.below(2) as u8]);
        }
        let within = |key: &[u8]| {
            options.lower_bound.as_deref().is_none_or(|low| low <= key)
                && options.upper_bound.as_deref().is_none_or(|high| key < high)
                && options.prefix.as_deref().is_none_or(|prefix| key.starts_with(prefix))
        };
        map.retain(|key, _| within(key));
        let mut iter = batch.iter_over(&db, db.default_column_family(), options.clone()).unwrap();
        // Changes after it was made are not seen.
        batch.put(db.default_column_family(), b"060x", b"later").unwrap();
        let mut at: Option<Vec<u8>> = None;
        for _ in 0..80 {
            let to = key(&mut rng);
            let next = |from: Bound<Vec<u8>>| map.range((from, Bound::Unbounded)).next().map(|e| e.0.clone());
            let back =
                |to: Bound<Vec<u8>>| map.range((Bound::Unbounded, to)).next_back().map(|e| e.0.clone());
            at = match (rng.below(6), at) {
                (0, _) => iter.seek(&to).map(|()| next(Bound::Included(to))).unwrap(),
                (1, _) => iter.seek_for_prev(&to).map(|()| back(Bound::Included(to))).unwrap(),
                (2 | 3, Some(key)) => iter.next().map(|()| next(Bound::Excluded(key))).unwrap(),
                (4 | 5, Some(key)) => iter.prev().map(|()| back(Bound::Excluded(key))).unwrap(),
                (2 | 4, None) => iter.seek_to_first().map(|()| next(Bound::Unbounded)).unwrap(),
                _ => iter.seek_to_last().map(|()| back(Bound::Unbounded)).unwrap(),
            };
            assert_eq!(iter.valid().then(|| iter.key().to_vec()), at, "seed {seed}, {options:?}");
            if let Some(key) = &at {
                assert_eq!(iter.value().unwrap(), map[key], "seed {seed}");
                moves += 1;
            }
        }
    }
    assert!(moves > 4_000, "{moves} moves to a key");
}
