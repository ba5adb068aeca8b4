//! Random changes and rollbacks against a list that is searched from its end.

use super::*;
use lavakv::io::Rng;
use lavakv::sim::SimEnv;
use lavakv::{Db, Options};

/// A change of the model: the keys from the first one up to the second get a value, or none.
type Step = (u8, u8, Option<u8>);

fn found(steps: &[Step], key: u8) -> Found {
    match steps.iter().rev().find(|(from, to, _)| (*from..*to).contains(&key)) {
        Some((_, _, Some(value))) => Found::Value(Value::from(vec![*value])),
        Some((_, _, None)) => Found::Deleted,
        None => Found::Nothing,
    }
}

fn change(contents: &mut Contents, family: &ColumnFamily, rng: &mut Rng) -> Step {
    let key = rng.below(40) as u8;
    match rng.below(4) {
        0 => {
            contents.delete(family, &[key]).unwrap();
            (key, key + 1, None)
        }
        1 => {
            let to = key + 1 + rng.below(10) as u8;
            let end = (to <= 40).then_some([to]);
            contents.delete_range(family, &[key], end.as_ref().map(|end| &end[..])).unwrap();
            (key, to, None)
        }
        _ => {
            let value = rng.below(200) as u8;
            contents.put(family, &[key], &[value]).unwrap();
            (key, key + 1, Some(value))
        }
    }
}

#[test]
fn lookups_and_batches_agree_with_a_list_after_any_rollback() {
    let db = Db::open_in(SimEnv::new(1).env(), "/store", Options::default()).unwrap();
    let family = db.default_column_family();
    for seed in 0..300 {
        let (mut rng, mut contents, mut steps) = (Rng::new(seed), Contents::default(), Vec::new());
        for _ in 0..rng.below(60) {
            steps.push(change(&mut contents, family, &mut rng));
            if rng.one_in(12) {
                let len = rng.below(steps.len() as u64 + 1) as usize;
                steps.truncate(len);
                contents.truncate(len);
            }
            assert_eq!(contents.len(), steps.len());
        }
        for key in 0..40 {
            assert_eq!(contents.find(family.id(), &[key]), found(&steps, key), "seed {seed}, key {key}");
        }
        let bytes: usize = contents.changes.iter().map(|(_, change)| change.bytes()).sum();
        assert_eq!(contents.bytes, bytes, "seed {seed}");
        // Both forms of the batch have the same effect.
        for overwrites in [false, true] {
            db.delete_range_opt(family, &[], &[255], &Default::default()).unwrap();
            db.write(&contents.to_batch(overwrites)).unwrap();
            for key in 0..40 {
                let expected = match found(&steps, key) {
                    Found::Value(value) => Some(value),
                    _ => None,
                };
                assert_eq!(db.get(&[key]).unwrap(), expected, "seed {seed}, key {key}, {overwrites}");
            }
        }
    }
}

#[test]
fn a_batch_that_overwrites_writes_each_key_once() {
    let db = Db::open_in(SimEnv::new(1).env(), "/store", Options::default()).unwrap();
    let (family, mut contents) = (db.default_column_family(), Contents::default());
    for n in 0..10u8 {
        contents.put(family, b"a", &[n]).unwrap();
    }
    contents.put(family, b"b", b"").unwrap();
    contents.delete_range(family, b"b", None).unwrap();
    assert_eq!(contents.to_batch(false).len(), 13, "the range has no end, and is two changes");
    let left: Vec<BatchChange<'_>> = contents.iter(true).map(|(_, change)| change).collect();
    assert_eq!(left, [BatchChange::Put(b"a", &[9]), BatchChange::DeleteRange(b"b", None)]);
}

#[test]
fn a_change_over_a_limit_adds_nothing() {
    let db = Db::open_in(SimEnv::new(1).env(), "/store", Options::default()).unwrap();
    let (family, mut contents) = (db.default_column_family(), Contents::default());
    let long = vec![0; limits::KEY_LEN_MAX + 1];
    let half = vec![0; limits::BATCH_LEN_MAX / 2];
    for refused in [contents.put(family, &long, b""), contents.delete(family, &long)] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::TooLarge);
    }
    assert_eq!(
        contents.delete_range(family, b"b", Some(b"a")).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    assert_eq!(contents.len(), 0);
    contents.put(family, b"a", &half).unwrap();
    assert_eq!(contents.put(family, b"b", &half).unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!((contents.len(), contents.find(family.id(), b"b")), (1, Found::Nothing));
}
