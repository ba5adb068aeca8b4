//! vSSTs against a map.

use crate::common::*;
use base::{Compression, ErrorKind, MAX_SEQ, ValueKind, key};
use cache::{Cache, CacheKey, Segment};
use io::Rng;
use std::sync::Arc;
use table::{ReadCounters, Reference, Vsst, VsstOptions};
use vsst::{Built, Values, build, open, random_values};

fn options_of(rng: &mut Rng) -> VsstOptions {
    let codecs = codecs();
    let compression = codecs[rng.below(codecs.len() as u64) as usize];
    VsstOptions { compression, alignment: [0, 1, 8, 64][rng.below(4) as usize] }
}

fn check_gets(table: &Arc<Vsst>, values: &Values, built: &Built, fill: bool) {
    let mut counters = ReadCounters::default();
    for (i, ((user, inverted), value)) in values.iter().enumerate() {
        let found = table.get(user, !inverted, &built.reference(i), fill, &mut counters).unwrap();
        assert_eq!(&found[..], &value[..]);
    }
    assert_eq!(counters.value_reads + counters.values_cached, values.len() as u64);
    assert_eq!(counters.vsst_dense_searches, 0);
}

fn check_keys(table: &Arc<Vsst>, values: &Values, built: &Built) {
    let mut keys = table.keys().unwrap();
    let mut offset = 0;
    for (i, ((user, inverted), value)) in values.iter().enumerate() {
        assert!(keys.valid());
        let e = keys.entry();
        assert_eq!((e.user_key, e.seq, e.raw_len), (&user[..], !inverted, value.len() as u64));
        assert_eq!((e.offset, e.stored_len), (offset, built.lens[i].stored_len));
        offset += e.stored_len;
        let located = table.locate(e.user_key, e.seq, &mut ReadCounters::default()).unwrap();
        assert_eq!(located, e.offset);
        keys.next().unwrap();
    }
    assert!(!keys.valid());
    assert_eq!(keys.counters().value_reads, 0, "keys are read without the values");
}

#[test]
fn a_vsst_round_trips() {
    let mut rng = Rng::new(301);
    for round in 0..24 {
        let count = [1, 2, 127, 128, 129, 700, 3000][round % 7];
        let values = random_values(&mut rng, count);
        let options = options_of(&mut rng);
        let built = build(&values, &options, None);
        let cache = Arc::new(Cache::new(if round % 2 == 0 { 0 } else { 16 << 20 }));
        let table = open(built.bytes.clone(), &cache).unwrap();
        check_gets(&table, &values, &built, true);
        check_gets(&table, &values, &built, false);
        check_keys(&table, &values, &built);
        assert_eq!(table.verify().unwrap(), built.finished.len);
        let p = table.properties();
        assert_eq!(*p, built.finished.properties);
        assert_eq!((p.entries, p.class, &p.took_over[..]), (values.len() as u64, 1, &[2, 90][..]));
        assert_eq!(p.identity, identity());
        let (first, last) = (values.first_key_value().unwrap().0, values.last_key_value().unwrap().0);
        assert_eq!(built.finished.smallest, key::encode(&first.0, !first.1, ValueKind::Value));
        assert_eq!(built.finished.largest, key::encode(&last.0, !last.1, ValueKind::Value));
        assert!(options.alignment == 0 || p.alignment == options.alignment);
        assert!(built.lens.iter().all(|l| l.stored_len % u64::from(p.alignment) == 0));
    }
}

#[test]
fn a_value_takes_one_read_and_then_none() {
    let mut rng = Rng::new(302);
    let values = random_values(&mut rng, 900);
    for compression in codecs() {
        let cache = Arc::new(Cache::new(32 << 20));
        let options = VsstOptions { compression, alignment: 0 };
        let built = build(&values, &options, Some(cache.clone()));
        let file = MemRead::new(built.bytes.clone());
        let table = Arc::new(Vsst::open(file.clone(), 7, uid(), cache.clone()).unwrap());
        let opened = file.reads();
        assert_eq!(opened, 1, "the end of a file of this size holds all that opening needs");
        let mut counters = ReadCounters::default();
        let read_all = |counters: &mut ReadCounters| {
            for (i, ((user, inverted), value)) in values.iter().enumerate() {
                let found = table.get(user, !inverted, &built.reference(i), true, counters).unwrap();
                assert_eq!(&found[..], &value[..]);
            }
        };
        read_all(&mut counters);
        let n = values.len() as u64;
        let bytes = built.finished.properties.record_bytes;
        assert_eq!(file.reads() - opened, n, "one read a value; the index was warmed by the builder");
        assert_eq!((counters.device_reads, counters.device_read_bytes), (n, bytes));
        assert_eq!((counters.value_reads, counters.values_cached), (n, 0));
        assert_eq!((counters.vsst_index_reads, counters.index_blocks_cached), (0, n));
        read_all(&mut counters);
        assert_eq!((counters.value_reads, counters.values_cached), (n, n));
        assert_eq!(file.reads() - opened, n);
        let mut sum = ReadCounters::default();
        sum.add(&counters);
        sum.add(&counters);
        assert_eq!((sum.value_reads, sum.values_cached), (2 * n, 2 * n));
    }
}

#[test]
fn values_can_be_read_by_the_caller() {
    let mut rng = Rng::new(303);
    let values = random_values(&mut rng, 300);
    for compression in codecs() {
        let built = build(&values, &VsstOptions { compression, alignment: 16 }, None);
        let cache = Arc::new(Cache::new(16 << 20));
        let table = open(built.bytes.clone(), &cache).unwrap();
        let counters = &mut ReadCounters::default();
        for (i, ((user, inverted), value)) in values.iter().enumerate() {
            let (seq, reference) = (!inverted, built.reference(i));
            let offset = table.locate(user, seq, counters).unwrap();
            assert_eq!(table.cached(offset, user, seq, &reference, counters), None);
            let bytes = built.bytes[offset as usize..][..reference.stored_len as usize].to_vec();
            let found = table.open_value(bytes, offset, user, seq, &reference).unwrap();
            assert_eq!(&found[..], &value[..]);
            let place = CacheKey { file: table.number(), offset };
            cache.insert(Segment::Data, place, found.block());
            assert_eq!(table.cached(offset, user, seq, &reference, counters), Some(found));
            let other = Reference { raw_len: reference.raw_len + 1, ..reference };
            assert_eq!(table.cached(offset, user, seq, &other, counters), None);
            assert_eq!(table.cached(offset, user, seq + 1, &reference, counters), None);
            assert_eq!(table.cached(offset, b"other", seq, &reference, counters), None);
        }
    }
}

#[test]
fn records_are_copied_verbatim() {
    let mut rng = Rng::new(304);
    let values = random_values(&mut rng, 400);
    for compression in codecs() {
        let built = build(&values, &VsstOptions { compression, alignment: 32 }, None);
        let source = open(built.bytes.clone(), &Arc::new(Cache::new(0))).unwrap();
        for alignment in [0, 1, 32] {
            // Every third record survives; new ones come between.
            let (mut target, shared) = vsst::builder(&VsstOptions { compression, alignment }, None);
            let (mut kept, mut kept_values) = (Vec::new(), Values::new());
            let mut keys = source.keys().unwrap();
            for (i, (key, value)) in values.iter().enumerate() {
                let e = keys.entry();
                let bytes = &built.bytes[e.offset as usize..][..e.stored_len as usize];
                if i % 3 == 0 {
                    let record = source.open_record(bytes, e.offset).unwrap();
                    assert_eq!((record.user_key, record.seq, record.raw_len), (e.user_key, e.seq, e.raw_len));
                    let lens = target.copy(&record).unwrap();
                    assert_eq!(lens, built.lens[i], "references are never rewritten");
                    kept.push(lens);
                    kept_values.insert(key.clone(), value.clone());
                } else if i % 7 == 1 {
                    kept.push(target.add(&key.0, !key.1, b"new").unwrap());
                    kept_values.insert(key.clone(), b"new".to_vec());
                }
                keys.next().unwrap();
            }
            let finished = target.finish(vec![]).unwrap();
            let copy = Built { bytes: vsst::take(&shared), finished, lens: kept };
            let table = open(copy.bytes.clone(), &Arc::new(Cache::new(0))).unwrap();
            check_gets(&table, &kept_values, &copy, false);
            check_keys(&table, &kept_values, &copy);
            table.verify().unwrap();
        }
        // A coarser alignment than the source's cannot hold its lengths.
        let (mut target, _) = vsst::builder(&VsstOptions { compression, alignment: 64 }, None);
        let mut keys = source.keys().unwrap();
        while keys.valid() && keys.entry().stored_len.is_multiple_of(64) {
            keys.next().unwrap();
        }
        let e = keys.entry();
        let bytes = &built.bytes[e.offset as usize..][..e.stored_len as usize];
        let refused = target.copy(&source.open_record(bytes, e.offset).unwrap()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn a_reference_to_another_record_is_corruption() {
    let mut rng = Rng::new(305);
    let values = random_values(&mut rng, 500);
    let built = build(&values, &VsstOptions::default(), None);
    let table = open(built.bytes.clone(), &Arc::new(Cache::new(16 << 20))).unwrap();
    let counters = &mut ReadCounters::default();
    for (i, ((user, inverted), value)) in values.iter().enumerate() {
        let (seq, right) = (!inverted, built.reference(i));
        // The value cache must not return another record either.
        table.get(user, seq, &right, true, counters).unwrap();
        let absent = [&user[..], b"\0absent"].concat();
        let wrong = [
            (&absent[..], seq, right),
            (user, seq ^ 0x5555_0000, right),
            (user, seq, Reference { raw_len: right.raw_len + 1, ..right }),
            (user, seq, Reference { stored_len: right.stored_len + 1, ..right }),
            (user, seq, Reference { stored_len: 0, ..right }),
            (user, seq, Reference { stored_len: 1 << 40, ..right }),
            (user, seq, Reference { stored_len: u64::MAX, ..right }),
        ];
        for (key, seq, reference) in wrong {
            match table.get(key, seq.min(MAX_SEQ), &reference, true, counters) {
                // The length of the record does not matter if the record is cached.
                Ok(found) => assert!(found[..] == value[..] && reference.stored_len != right.stored_len),
                Err(e) => assert!(e.is_corruption() && e.offset().is_some() && e.file().is_some(), "{e}"),
            }
        }
    }
    assert!(counters.vsst_dense_searches > 0);
}

#[test]
fn invalid_vsst_entries_are_refused() {
    let options = VsstOptions { compression: Compression::None, alignment: 0 };
    let (mut b, _) = vsst::builder(&options, None);
    b.add(b"k", 5, b"v").unwrap();
    for (user, seq) in [(&b"k"[..], 5), (b"k", 6), (b"j", 1)] {
        assert_eq!(b.add(user, seq, b"v").unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    b.add(b"k", 4, b"v").unwrap();
    assert_eq!(b.add(b"", 1, b"v").unwrap_err().kind(), ErrorKind::InvalidArgument);
    let (mut empty_first, _) = vsst::builder(&options, None);
    empty_first.add(b"", 5, b"v").unwrap();
    assert_eq!(empty_first.add(b"", 5, b"v").unwrap_err().kind(), ErrorKind::InvalidArgument);
    let long = vec![b'z'; base::limits::KEY_LEN_MAX + 1];
    for (user, seq, value) in [
        (&long[..], 1, &b""[..]),
        (b"l", MAX_SEQ + 1, b""),
        (b"l", 1, &vec![0; base::limits::VALUE_LEN_MAX + 1]),
    ] {
        assert_eq!(b.add(user, seq, value).unwrap_err().kind(), ErrorKind::TooLarge);
    }
    b.add(&long[1..], MAX_SEQ, &vec![7; base::limits::VALUE_LEN_MAX]).unwrap();
    b.finish(vec![]).unwrap();
    let (empty, _) = vsst::builder(&options, None);
    assert_eq!(empty.finish(vec![]).unwrap_err().kind(), ErrorKind::InvalidArgument);
    for took_over in [vec![3, 2], vec![2, 2], vec![7]] {
        let (mut b, _) = vsst::builder(&options, None);
        b.add(b"k", 5, b"v").unwrap();
        assert_eq!(b.finish(took_over).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn the_alignment_follows_the_first_record() {
    for (len, alignment) in [(10, 1), (240, 2), (512, 4), (1000, 8), (1400, 8), (1600, 16), (1 << 14, 64)] {
        let (mut b, _) = vsst::builder(&VsstOptions::default(), None);
        b.add(b"key", 5, &vec![1; len]).unwrap();
        assert_eq!(b.finish(vec![]).unwrap().properties.alignment, alignment, "{len}");
    }
}

#[test]
fn a_directory_of_several_levels_finds_every_key() {
    // Blocks that end between versions of one long key have long separators, and so need many
    // nodes.
    let mut values = Values::new();
    for i in 0..20_000u64 {
        let mut user = (i / 400).to_be_bytes().to_vec();
        user.extend((0..500).map(|j| (i / 400 * 31 + j) as u8));
        values.insert((user, !(i % 400)), vec![1; 3]);
    }
    let cache = Arc::new(Cache::new(64 << 20));
    let built = build(&values, &VsstOptions::default(), Some(cache.clone()));
    let table = open(built.bytes.clone(), &cache).unwrap();
    let mut text = String::new();
    table::dump_vsst(&table, Default::default(), &mut text).unwrap();
    assert!(text.contains(" directory up to"), "{text}");
    let counters = &mut ReadCounters::default();
    for (i, ((user, inverted), value)) in values.iter().enumerate().step_by(37) {
        let found = table.get(user, !inverted, &built.reference(i), false, counters).unwrap();
        assert_eq!(&found[..], &value[..]);
    }
    assert_eq!(counters.vsst_index_reads, 0, "warmed by the builder");
    table.verify().unwrap();
}

#[test]
fn a_listing_names_every_block_and_key() {
    let mut rng = Rng::new(306);
    let values = random_values(&mut rng, 600);
    let built = build(&values, &VsstOptions::default(), None);
    let table = open(built.bytes.clone(), &Arc::new(Cache::new(0))).unwrap();
    let mut text = String::new();
    table::dump_vsst(&table, table::dump::DumpOptions { entries: true }, &mut text).unwrap();
    assert!(text.starts_with("vSST version 1, "), "{text}");
    let mut end = built.finished.properties.record_bytes;
    let mut blocks: Vec<(u64, u64)> = text
        .lines()
        .filter_map(|line| {
            let (offset, rest) = line.strip_prefix("block ")?.split_once('+')?;
            Some((offset.trim().parse().ok()?, rest.split(' ').next()?.parse().ok()?))
        })
        .collect();
    blocks.sort();
    for (offset, len) in blocks {
        assert_eq!(offset, end);
        end += len;
    }
    assert_eq!(end + 64, built.finished.len, "blocks fill the file up to the footer");
    assert_eq!(text.lines().filter(|l| l.starts_with("record ")).count(), values.len());
}
