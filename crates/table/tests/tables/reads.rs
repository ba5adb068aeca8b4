//! The cost of reads, and the metadata of tables.

use crate::common::*;
use base::hash::key_hash;
use base::range_del::RangeTombstone;
use base::{Compression, ErrorKind, InternalIterator, MAX_SEQ, ValueKind, key};
use cache::{Cache, Segment};
use std::sync::Arc;
use table::{IterOptions, Ksst, ReadCounters, Reference, TableOptions};

fn user(i: u64) -> Vec<u8> {
    format!("user{i:016}").into_bytes()
}

/// Every third value is separated.
fn mixed(count: u64) -> Model {
    let mut model = Model::new();
    for i in 0..count {
        if i % 3 == 0 {
            let r = Reference { blob_id: i / 1000, raw_len: 1000, stored_len: 1040 };
            insert(&mut model, &user(2 * i), i, ValueKind::Reference, &r.encode());
        } else {
            insert(&mut model, &user(2 * i), i, ValueKind::Value, &[i as u8; 100]);
        }
    }
    model
}

#[test]
fn reference_blocks_are_warmed_and_inline_blocks_are_not() {
    let cache = Arc::new(Cache::new(64 << 20));
    let (bytes, _) = build(&mixed(20_000), &[], &TableOptions::default(), Some(cache.clone()));
    let table = Ksst::open(MemRead::new(bytes), 7, uid(), None, cache.clone()).unwrap();
    let mut counters = ReadCounters::default();
    for i in (0..20_000).step_by(3) {
        let k = user(2 * i);
        assert!(table.get_reference(&k, i, key_hash(&k), &mut counters).unwrap().is_some());
    }
    assert_eq!(counters.device_reads, 0, "all that leads to values was warmed by the builder");
    assert_eq!(cache.stats().data.entries, 0);
}

#[test]
fn a_point_read_is_one_device_read() {
    let cache = Arc::new(Cache::new(64 << 20));
    let (bytes, finished) = build(&mixed(20_000), &[], &TableOptions::default(), Some(cache.clone()));
    let file = MemRead::new(bytes);
    let table = Ksst::open(file.clone(), 7, uid(), None, cache.clone()).unwrap();
    assert!(file.reads() <= 2, "opening took {} reads", file.reads());
    let warmed = cache.stats().index.entries;
    assert!(finished.properties.filter_bytes > 20_000 && warmed >= 4, "{warmed} {:?}", finished.properties);
    let before = file.reads();
    let mut counters = ReadCounters::default();
    let mut asked = 0;
    for i in (0..20_000).step_by(97) {
        let k = user(2 * i);
        let found = table.get(&k, MAX_SEQ, key_hash(&k), &mut counters).unwrap().unwrap();
        assert_eq!(found.seq, i);
        asked += 1;
    }
    assert_eq!((counters.index_reads, counters.filter_reads), (0, 0), "warmed by the builder");
    assert_eq!(counters.device_reads, file.reads() - before);
    let extra = counters.device_reads + counters.data_blocks_cached - asked;
    assert_eq!(extra, counters.filter_false_positives, "one block a lookup, but for false positives");
    assert!(extra <= 8, "{extra} of {asked}");
    // Absent keys need no reads, except for false positives.
    let before = counters;
    for i in 0..5000 {
        let k = user(2 * i + 1);
        assert!(table.get(&k, MAX_SEQ, key_hash(&k), &mut counters).unwrap().is_none());
    }
    let passed = counters.filter_false_positives - before.filter_false_positives;
    let negatives = counters.filter_negatives - before.filter_negatives;
    assert_eq!(passed + negatives, 10_000);
    assert!(passed < 200, "{passed} of 10000 passed");
}

#[test]
fn readahead_leaves_the_cache_alone_and_reads_in_runs() {
    let cache = Arc::new(Cache::new(64 << 20));
    let (bytes, _) = build(&mixed(20_000), &[], &TableOptions::default(), None);
    let len = bytes.len() as u64;
    let table = open(bytes, &cache).unwrap();
    let mut iter = table.iter(IterOptions { fill_cache: false, readahead_bytes: 256 << 10 });
    iter.seek_to_first().unwrap();
    let mut count = 0;
    while iter.valid() {
        count += 1;
        iter.next().unwrap();
    }
    assert_eq!(count, 20_000);
    let counters = iter.counters();
    assert!(counters.data_reads < 2 + len / (256 << 10) * 2, "{counters:?} for {len} bytes");
    assert!(counters.device_read_bytes <= len, "nothing is read twice");
    let stats = cache.stats();
    assert_eq!(stats.index.entries + stats.data.entries, 0);
}

#[test]
fn streams_have_their_segments_and_plain_tables_one_stream() {
    let cache = Arc::new(Cache::new(64 << 20));
    let mut model = mixed(3000);
    model.retain(|_, v| v.len() < 20);
    let (bytes, finished) = build(&model, &[], &TableOptions::default(), None);
    assert_eq!(finished.properties.inline_block_bytes, 0);
    assert_eq!(finished.properties.references, finished.properties.entries);
    let dependencies = &finished.properties.dependencies;
    assert_eq!(dependencies.iter().map(|d| d.blob_id).collect::<Vec<_>>(), vec![0, 1, 2]);
    assert_eq!(dependencies.iter().map(|d| d.count).sum::<u64>(), 1000);
    assert!(dependencies.iter().all(|d| d.raw_bytes == d.count * 1000 && d.stored_bytes == d.count * 1040));
    let per_entry = finished.properties.reference_block_bytes as f64 / 1000.0;
    assert!(per_entry < 10.0, "{per_entry} bytes a reference entry with its key");
    let table = open(bytes, &cache).unwrap();
    let mut iter = table.iter(IterOptions { fill_cache: true, readahead_bytes: 0 });
    iter.seek_to_first().unwrap();
    assert_eq!(cache.stats().data.entries, 0, "references are index");
    let k = model.keys().next().unwrap().0.clone();
    let handle = cache::CacheKey { file: 7, offset: 0 };
    assert!(cache.get(Segment::Index, &handle).is_some());
    assert!(table.get(&k, MAX_SEQ, key_hash(&k), &mut ReadCounters::default()).unwrap().is_some());
}

#[test]
fn a_global_sequence_applies_to_everything() {
    let mut model = Model::new();
    for i in 0..2000u64 {
        let kind = if i % 2 == 0 { ValueKind::Reference } else { ValueKind::Value };
        insert(&mut model, &user(i), 0, kind, &random_value(&mut io::Rng::new(i), kind));
    }
    let tombstones = [RangeTombstone { start: user(3), end: user(5), seq: 0 }];
    let (bytes, _) = build(&model, &tombstones, &TableOptions::default(), None);
    let cache = Arc::new(Cache::new(8 << 20));
    let table = Arc::new(Ksst::open(MemRead::new(bytes), 7, uid(), Some(500), cache).unwrap());
    assert_eq!(table.range_tombstones().covering(&user(4), 500), Some(500));
    assert_eq!(table.range_tombstones().covering(&user(4), 499), None);
    let mut counters = ReadCounters::default();
    let mut iter = table.iter(IterOptions::default());
    iter.seek_to_first().unwrap();
    for i in 0..2000 {
        let k = user(i);
        assert_eq!((key::user_key(iter.key()), key::seq(iter.key())), (&k[..], 500));
        iter.next().unwrap();
        assert!(table.get(&k, 499, key_hash(&k), &mut counters).unwrap().is_none());
        assert_eq!(table.get(&k, 500, key_hash(&k), &mut counters).unwrap().unwrap().seq, 500);
        if i % 2 == 0 {
            assert!(table.get_reference(&k, 500, key_hash(&k), &mut counters).unwrap().is_some());
            assert!(table.get_reference(&k, 0, key_hash(&k), &mut counters).unwrap().is_none());
        }
    }
    for i in 1..1999 {
        for (seq, forward, backward) in [(MAX_SEQ, i, i - 1), (500, i, i - 1), (499, i + 1, i), (0, i + 1, i)]
        {
            let target = key::seek_target(&user(i), seq);
            iter.seek(&target).unwrap();
            assert_eq!(key::user_key(iter.key()), user(forward));
            iter.seek_for_prev(&target).unwrap();
            assert_eq!(key::user_key(iter.key()), user(backward));
        }
    }
    table.verify().unwrap();
}

#[test]
fn range_tombstones_widen_the_bounds() {
    let mut model = Model::new();
    insert(&mut model, b"m", 5, ValueKind::Value, b"v");
    let t = |s: &[u8], e: &[u8], seq| RangeTombstone { start: s.to_vec(), end: e.to_vec(), seq };
    let many: Vec<_> = (0..9000u32).map(|i| t(&i.to_be_bytes(), b"z", u64::from(i) + 1)).collect();
    let (bytes, finished) = build(&model, &many, &TableOptions::default(), None);
    assert_eq!(finished.smallest, key::encode(&0u32.to_be_bytes(), 1, ValueKind::RangeDeletion));
    assert_eq!(finished.largest, key::encode(b"z", MAX_SEQ, ValueKind::Seek));
    assert_eq!((finished.properties.min_seq, finished.properties.max_seq), (1, 9000));
    let table = open(bytes, &Arc::new(Cache::new(0))).unwrap();
    assert_eq!(table.range_tombstones().covering(b"m", MAX_SEQ), Some(9000));
    assert_eq!(table.range_tombstones().covering(b"m", 77), Some(77));
    assert_eq!(table.verify().unwrap(), finished.len);
    let (bytes, finished) = build(&Model::new(), &[t(b"a", b"c", 3)], &TableOptions::default(), None);
    let table = open(bytes, &Arc::new(Cache::new(0))).unwrap();
    assert_eq!(table.properties().entries, 0);
    let mut iter = table.iter(IterOptions::default());
    iter.seek_to_first().unwrap();
    assert!(!iter.valid());
    iter.seek_for_prev(&key::seek_target(b"b", 5)).unwrap();
    assert!(!iter.valid());
    assert!(table.get(b"b", 9, key_hash(b"b"), &mut ReadCounters::default()).unwrap().is_none());
    assert_eq!(table.verify().unwrap(), finished.len);
}

#[test]
fn expiries_are_kept_and_bounded() {
    let file = MemAppend::default();
    let bytes = file.shared();
    let options = TableOptions::default();
    let path = std::path::Path::new(PATH);
    let mut builder = table::KsstBuilder::new(Box::new(file), path, identity(), &options, None);
    let reference = Reference { blob_id: 1, raw_len: 2, stored_len: 3 }.encode();
    builder.add_expiring(&key::encode(b"a", 1, ValueKind::Value), b"v", 1000).unwrap();
    builder.add(&key::encode(b"b", 1, ValueKind::Value), b"v").unwrap();
    builder.add_expiring(&key::encode(b"c", 1, ValueKind::Reference), &reference, 70).unwrap();
    builder.set_created(1_234_567);
    let finished = builder.finish().unwrap();
    assert_eq!((finished.properties.min_expiry, finished.properties.max_expiry), (70, 1000));
    let bytes = std::mem::take(&mut *bytes.lock().unwrap());
    let table = open(bytes, &Arc::new(Cache::new(0))).unwrap();
    assert_eq!(table.properties().created_unix_seconds, 1_234_567);
    let mut iter = table.iter(IterOptions::default());
    iter.seek_to_first().unwrap();
    let mut expiries = Vec::new();
    while iter.valid() {
        expiries.push(iter.expiry());
        iter.next().unwrap();
    }
    assert_eq!(expiries, [1000, 0, 70]);
    table.verify().unwrap();
}

#[test]
fn a_codec_that_is_not_built_in_is_unsupported() {
    for (compression, present) in
        [(Compression::Lz4, cfg!(feature = "lz4")), (Compression::Zstd, cfg!(feature = "zstd"))]
    {
        match table::compress::require(compression) {
            Ok(()) => assert!(present),
            Err(e) => assert!(!present && e.kind() == ErrorKind::Unsupported),
        }
    }
}

#[test]
fn the_listing_names_every_block() {
    let model = mixed(500);
    let tombstones = [RangeTombstone { start: b"x".to_vec(), end: b"y".to_vec(), seq: 9 }];
    let (bytes, _) = build(&model, &tombstones, &TableOptions::default(), None);
    let table = open(bytes, &Arc::new(Cache::new(0))).unwrap();
    let mut text = String::new();
    table::dump::dump(&table, table::dump::DumpOptions { entries: true }, &mut text).unwrap();
    let sum: u64 = text
        .lines()
        .filter_map(|l| l.strip_prefix("block ")?.split_once('+')?.1.split(' ').next()?.parse::<u64>().ok())
        .sum();
    assert_eq!(sum + 64, table.len(), "{text}");
    assert_eq!(text.lines().filter(|l| l.starts_with("  ")).count(), 500);
    assert!(
        text.contains("-> blob 0 raw 1000 stored 1040")
            && text.contains("range tombstone [\"x\", \"y\") seq 9")
    );
}

#[test]
fn tables_cross_threads() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<Ksst>();
    sync::<Ksst>();
    send::<table::KsstBuilder>();
    send::<table::KsstIter>();
}
