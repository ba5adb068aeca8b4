//! Random changes and rollbacks against a list that is searched from its end.

use super::*;
use lavakv::io::Rng;
use lavakv::sim::SimEnv;
use lavakv::{Db, Options};

/// The effect of a change of the model on each of its keys.
#[derive(Clone, Copy, Debug)]
enum Effect {
    Put(u8),
    Merge(u8),
    Delete,
}

/// A change of the model: the keys from the first one up to the second.
type Step = (u8, u8, Effect);

fn bytes(byte: u8) -> Value {
    Value::from(vec![byte])
}

fn found(steps: &[Step], key: u8) -> Found {
    let (mut base, mut operands) = (Found::Nothing, Vec::new());
    for (_, _, effect) in steps.iter().filter(|(from, to, _)| (*from..*to).contains(&key)) {
        match effect {
            Effect::Put(value) => (base, operands) = (Found::Value(bytes(*value)), Vec::new()),
            Effect::Delete => (base, operands) = (Found::Deleted, Vec::new()),
            Effect::Merge(operand) => operands.push(bytes(*operand)),
        }
    }
    if operands.is_empty() { base } else { Found::Merged(Box::new(base), operands) }
}

fn change(contents: &mut Contents, family: &ColumnFamily, rng: &mut Rng) -> Step {
    let key = rng.below(40) as u8;
    match rng.below(6) {
        0 => {
            contents.delete(family, &[key]).unwrap();
            (key, key + 1, Effect::Delete)
        }
        1 => {
            let to = key + 1 + rng.below(10) as u8;
            let end = (to <= 40).then_some([to]);
            contents.delete_range(family, &[key], end.as_ref().map(|end| &end[..])).unwrap();
            (key, to, Effect::Delete)
        }
        2 | 3 => {
            let operand = rng.below(200) as u8;
            contents.merge(family, &[key], &[operand]).unwrap();
            (key, key + 1, Effect::Merge(operand))
        }
        _ => {
            let value = rng.below(200) as u8;
            contents.put(family, &[key], &[value]).unwrap();
            (key, key + 1, Effect::Put(value))
        }
    }
}

/// Opens a store whose default family appends operands.
fn open() -> Db {
    let merge_operator = Some(lavakv::MergeChoice::append(b"+"));
    let family = lavakv::FamilyOptions { merge_operator, ..Default::default() };
    Db::open_in(SimEnv::new(1).env(), "/store", Options { family, ..Options::default() }).unwrap()
}

#[test]
fn lookups_and_batches_agree_with_a_list_after_any_rollback() {
    let db = open();
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
        // Both forms of the batch have the effect that reads above the store see before.
        for overwrites in [false, true] {
            db.delete_range_opt(family, &[], &[255], &Default::default()).unwrap();
            (0..40).step_by(2).for_each(|key| db.put(&[key], b"stored").unwrap());
            let settled = |key: u8| {
                let fold = |base: Option<&[u8]>, operands: &[&[u8]]| db.fold(family, &[key], base, operands);
                contents.find(family.id(), &[key]).settle(|| db.get(&[key]), fold).unwrap()
            };
            let expected: Vec<_> = (0..40).map(settled).collect();
            let mut entries = crate::merged::MergedIterator::new(
                &db,
                family,
                Default::default(),
                std::sync::Arc::new(contents.clone()),
            )
            .unwrap();
            let mut shown = vec![None; 40];
            entries.seek_to_first().unwrap();
            while entries.valid() {
                shown[usize::from(entries.key()[0])] = Some(Value::from(entries.value().unwrap().to_vec()));
                entries.next().unwrap();
            }
            assert_eq!(shown, expected, "seed {seed}");
            let keys_only = lavakv::ReadOptions { keys_only: true, ..Default::default() };
            let contents_of = std::sync::Arc::new(contents.clone());
            let mut keys = crate::merged::MergedIterator::new(&db, family, keys_only, contents_of).unwrap();
            let mut listed = [false; 40];
            keys.seek_to_first().unwrap();
            while keys.valid() {
                listed[usize::from(keys.key()[0])] = true;
                keys.next().unwrap();
            }
            assert!(listed.iter().eq(expected.iter().map(Option::is_some).collect::<Vec<_>>().iter()));
            db.write(&contents.to_batch(overwrites)).unwrap();
            let written: Vec<_> = (0..40).map(|key| db.get(&[key]).unwrap()).collect();
            assert_eq!(written, expected, "seed {seed}, {overwrites}");
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
