//! Tables against a `BTreeMap`: every way to read gives the result of the model.

use crate::common::*;
use base::hash::key_hash;
use base::{InternalIterator, MAX_SEQ, ValueKind, key};
use cache::Cache;
use io::Rng;
use std::sync::Arc;
use table::{IterOptions, Ksst, ReadCounters, TableOptions};

type Entries = [(Vec<u8>, Vec<u8>)];

fn at(all: &Entries, i: Option<usize>) -> Option<(&[u8], &[u8])> {
    i.and_then(|i| all.get(i)).map(|(k, v)| (&k[..], &v[..]))
}

fn here<I: InternalIterator>(iter: &I) -> Option<(&[u8], &[u8])> {
    iter.valid().then(|| (iter.key(), iter.value()))
}

fn walk<I: InternalIterator>(iter: &mut I, all: &Entries) {
    iter.seek_to_first().unwrap();
    for (k, v) in all {
        assert_eq!(here(iter), Some((&k[..], &v[..])));
        iter.next().unwrap();
    }
    assert!(!iter.valid());
    iter.seek_to_last().unwrap();
    for (k, v) in all.iter().rev() {
        assert_eq!(here(iter), Some((&k[..], &v[..])));
        iter.prev().unwrap();
    }
    assert!(!iter.valid());
}

fn random_target(rng: &mut Rng, all: &Entries) -> Vec<u8> {
    let user = match rng.below(3) {
        0 => random_key(rng),
        _ => key::user_key(&all[rng.below(all.len() as u64) as usize].0).to_vec(),
    };
    match rng.below(4) {
        0 => key::seek_target(&user, MAX_SEQ),
        1 => key::encode(&user, rng.below(1000), ValueKind::Reference),
        2 => key::encode(&user, 0, ValueKind::Deletion),
        _ => key::seek_target(&user, rng.below(1000)),
    }
}

/// Seeks, then moves at random in both directions.
fn wander<I: InternalIterator>(rng: &mut Rng, iter: &mut I, all: &Entries) {
    let target = random_target(rng, all);
    let mut i = if rng.one_in(2) {
        iter.seek(&target).unwrap();
        Some(all.partition_point(|(k, _)| key::compare(k, &target).is_lt()))
    } else {
        iter.seek_for_prev(&target).unwrap();
        all.partition_point(|(k, _)| key::compare(k, &target).is_le()).checked_sub(1)
    };
    assert_eq!(here(iter), at(all, i), "{target:?}");
    for _ in 0..rng.below(30) {
        if !iter.valid() {
            return;
        }
        if rng.one_in(3) {
            iter.prev().unwrap();
            i = i.unwrap().checked_sub(1);
        } else {
            iter.next().unwrap();
            i = i.map(|i| i + 1);
        }
        assert_eq!(here(iter), at(all, i));
    }
}

fn check(rng: &mut Rng, table: &Arc<Ksst>, model: &Model, probes: u64) {
    let all = entries(model);
    walk(&mut table.iter(IterOptions { fill_cache: true, readahead_bytes: 0 }), &all);
    walk(
        &mut table.iter(IterOptions { fill_cache: false, readahead_bytes: 1 + rng.below(100_000) as usize }),
        &all,
    );
    let references: Vec<_> =
        all.iter().filter(|(k, _)| key::kind(k) == Some(ValueKind::Reference)).cloned().collect();
    walk(&mut table.iter_references(IterOptions::default()), &references);
    let mut iter = table.iter(IterOptions { fill_cache: true, readahead_bytes: 0 });
    let mut ahead = table.iter(IterOptions { fill_cache: false, readahead_bytes: 20_000 });
    let mut counters = ReadCounters::default();
    let mut last: Option<(Vec<u8>, u64)> = None;
    for i in 0..probes {
        wander(rng, &mut iter, &all);
        if i % 4 == 0 {
            wander(rng, &mut ahead, &all);
        }
        let target = random_target(rng, &all);
        let (user, snapshot) = (key::user_key(&target), key::seq(&target));
        let target = key::seek_target(user, snapshot);
        let newest = all.get(all.partition_point(|(k, _)| key::compare(k, &target).is_lt()));
        let newest = newest.filter(|(k, _)| key::user_key(k) == user);
        let got = table.get(user, snapshot, key_hash(user), &mut counters).unwrap();
        assert_eq!(
            got.map(|e| (e.seq, e.kind, e.value.to_vec())),
            newest.map(|(k, v)| (key::seq(k), key::kind(k).unwrap(), v.clone()))
        );
        let (ikey, value) = &all[rng.below(all.len() as u64) as usize];
        let (user, seq) = (key::user_key(ikey), key::seq(ikey));
        let got = table.get_reference(user, seq, key_hash(user), &mut counters).unwrap();
        if key::kind(ikey) == Some(ValueKind::Reference) {
            assert_eq!(got.unwrap().encode(), *value);
        }
        let offset = table.offset_of(ikey).unwrap();
        assert!(offset <= table.len());
        match last.replace((ikey.clone(), offset)) {
            Some((last, at)) if key::compare(&last, ikey).is_lt() => assert!(at <= offset),
            Some((_, at)) => assert!(at >= offset),
            None => {}
        }
    }
}

#[test]
fn every_read_method_agrees_with_the_model() {
    let mut rng = Rng::new(101);
    let codecs = codecs();
    for round in 0..60 {
        let count = [1, 2, 30, 300, 2000][round % 5];
        let model = random_model(&mut rng, count, round as u64 % 3);
        let options = TableOptions {
            compression: codecs[round % codecs.len()],
            block_len: [64, 300, 4096, 70_000][rng.below(4) as usize],
            filter_bits_per_key: [0, 4, 10][rng.below(3) as usize],
            prefix: [None, Some(table::KeyPrefix::Fixed(2))][round % 2],
            partition_len: [64, 300, 4096][rng.below(3) as usize],
            restart_interval: [1, 2, 16, 200][rng.below(4) as usize],
        };
        let (bytes, finished) = build(&model, &[], &options, None);
        let all = entries(&model);
        assert_eq!(finished.smallest, all[0].0);
        assert_eq!(finished.largest, all[all.len() - 1].0);
        let budget = [0, 20_000, 10 << 20][rng.below(3) as usize];
        let table = open(bytes, &Arc::new(Cache::new(budget))).unwrap();
        let mut stated = finished.properties.clone();
        let (dependencies, mut counters) =
            (std::mem::take(&mut stated.dependencies), ReadCounters::default());
        assert_eq!(*table.properties(), stated);
        assert_eq!(table.dependencies(&mut counters).unwrap(), dependencies);
        assert_eq!(counters.device_reads, u64::from(!dependencies.is_empty()), "one read, or none");
        assert_eq!(table.properties().entries, all.len() as u64);
        assert_eq!(table.verify().unwrap(), finished.len);
        check(&mut rng, &table, &model, 40);
    }
}

#[test]
fn keys_and_values_of_extreme_sizes_round_trip() {
    let mut rng = Rng::new(102);
    for compression in codecs() {
        let mut model = Model::new();
        for i in 0..24u64 {
            // Neighbors share nearly everything, so separators are long, too.
            let mut user = vec![b'k'; if i % 2 == 0 { 64 << 10 } else { 40_000 }];
            user[(i / 3) as usize] = b'l';
            let n = user.len();
            user[n - 1] = i as u8;
            insert(&mut model, &user, i, ValueKind::Reference, &random_value(&mut rng, ValueKind::Reference));
            let mut value = vec![0; if i % 6 == 0 { 1 << 20 } else { 3 }];
            rng.fill(&mut value);
            insert(&mut model, &user, i + 1, ValueKind::Value, &value);
            insert(&mut model, &[i as u8], 1, ValueKind::Value, &vec![i as u8; 1 << 20]);
        }
        let options = TableOptions { compression, ..TableOptions::default() };
        let (bytes, finished) = build(&model, &[], &options, None);
        let table = open(bytes, &Arc::new(Cache::new(4 << 20))).unwrap();
        assert_eq!(table.verify().unwrap(), finished.len);
        check(&mut rng, &table, &model, 4);
    }
}

#[test]
fn the_largest_entry_fits() {
    let mut model = Model::new();
    let user = vec![7; base::limits::KEY_LEN_MAX];
    insert(&mut model, &user, 1, ValueKind::Value, &vec![1; base::limits::VALUE_LEN_MAX]);
    let (bytes, _) = build(&model, &[], &TableOptions::default(), None);
    let table = open(bytes, &Arc::new(Cache::new(0))).unwrap();
    let found = table.get(&user, 1, key_hash(&user), &mut ReadCounters::default()).unwrap().unwrap();
    assert_eq!(found.value.len(), base::limits::VALUE_LEN_MAX);
}

#[test]
fn many_versions_of_one_key_cost_one_lookup() {
    let mut model = Model::new();
    for seq in 0..3000u64 {
        let kind = if seq % 3 == 0 { ValueKind::Reference } else { ValueKind::Merge };
        let value = random_value(&mut Rng::new(seq), kind);
        insert(&mut model, b"hot", seq, kind, &value);
    }
    insert(&mut model, b"a", 1, ValueKind::Value, b"");
    insert(&mut model, b"z", 1, ValueKind::Value, b"");
    let options = TableOptions { partition_len: 64, ..TableOptions::default() };
    let (bytes, _) = build(&model, &[], &options, None);
    let table = open(bytes, &Arc::new(Cache::new(8 << 20))).unwrap();
    check(&mut Rng::new(103), &table, &model, 200);
    let mut counters = ReadCounters::default();
    for snapshot in 0..3000 {
        let found = table.get(b"hot", snapshot, key_hash(b"hot"), &mut counters).unwrap().unwrap();
        assert_eq!(found.seq, snapshot);
    }
    assert_eq!(counters.filter_false_positives, 1, "of the inline stream, at snapshot 0");
}

#[test]
fn versions_of_a_key_may_change_between_streams() {
    // As when `min_blob_size` changes between two compactions.
    let mut model = Model::new();
    let reference = random_value(&mut Rng::new(1), ValueKind::Reference);
    for i in 0..500u32 {
        let user = i.to_be_bytes();
        let (first, second) = if i % 2 == 0 {
            (ValueKind::Reference, ValueKind::Value)
        } else {
            (ValueKind::Value, ValueKind::Reference)
        };
        for (seq, kind) in [(10, first), (20, second)] {
            let value = if kind == ValueKind::Reference { reference.clone() } else { vec![1; 30] };
            insert(&mut model, &user, seq, kind, &value);
        }
    }
    let (bytes, _) = build(&model, &[], &TableOptions::default(), None);
    let table = open(bytes, &Arc::new(Cache::new(8 << 20))).unwrap();
    check(&mut Rng::new(104), &table, &model, 300);
}
