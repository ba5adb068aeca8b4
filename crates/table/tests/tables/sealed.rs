//! Every byte of every block is changed under a valid checksum, as a faulty writer would leave it.
//! Every reader of the file returns an error with file and offset, or a valid result, and never
//! panics.

use crate::common::*;
use base::hash::key_hash;
use base::range_del::RangeTombstone;
use base::{Compression, Error, ErrorKind, InternalIterator, MAX_SEQ, Result, ValueKind, key};
use cache::Cache;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use table::salvage::{self, SalvageIter};
use table::{
    IterOptions, Ksst, KsstBuilder, ReadCounters, Reference, TableOptions, Vsst, VsstBuilder, VsstOptions,
};
use vsst::{Built, Values};

/// Returns the places of blocks, from the listing of a file.
fn blocks(listing: &str) -> Vec<(usize, usize)> {
    let numbers = |line: &str| {
        let (offset, rest) = line.strip_prefix("block ")?.split_once('+')?;
        Some((offset.trim().parse().ok()?, rest.split(' ').next()?.parse().ok()?))
    };
    listing.lines().filter_map(numbers).collect()
}

/// Returns the file with one byte of a block changed, under a valid checksum.
fn resealed(bytes: &[u8], (offset, len): (usize, usize), at: usize, to: u8) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[offset + at] = to;
    let mut sealed = bytes[offset..offset + len - 5].to_vec();
    table::frame::seal(&mut sealed, 0, Compression::None);
    table::frame::mask(&mut sealed, uid(), offset as u64);
    bytes[offset..offset + len].copy_from_slice(&sealed);
    bytes
}

/// Returns the replacements of a byte.
fn others(byte: u8) -> BTreeSet<u8> {
    let flips = (0..8).map(|bit| byte ^ 1 << bit);
    let all = flips.chain([0, 1, 0xff, byte.wrapping_add(1), byte.wrapping_sub(1)]);
    all.filter(|other| *other != byte).collect()
}

/// The error messages seen, without their variable parts.
#[derive(Default)]
struct Met(BTreeSet<String>);

impl Met {
    fn note<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|e| self.error(&e)).ok()
    }

    fn error(&mut self, e: &Error) {
        assert!(matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Unsupported), "{e}");
        assert!(e.file().is_some_and(|f| f.ends_with(PATH)) && e.offset().is_some(), "{e}");
        self.0.insert(e.message().replace(|c: char| c.is_ascii_digit(), ""));
    }

    fn expect(&self, parts: &[&str]) {
        for part in parts {
            assert!(self.0.iter().any(|told| told.contains(part)), "nothing said {part:?}: {:#?}", self.0);
        }
    }
}

fn read_table(met: &mut Met, bytes: Vec<u8>, keys: &[Vec<u8>]) {
    let cache = || Arc::new(Cache::new(0));
    if let Ok((table, missing)) = salvage::open(MemRead::new(bytes.clone()), 7, uid(), cache()) {
        missing.iter().for_each(|m| met.error(m.error()));
        let mut iter = SalvageIter::new(table);
        for _ in 0..100 {
            if !iter.valid() {
                break;
            }
            iter.advance();
        }
        iter.take_lost().iter().for_each(|lost| met.error(&lost.error));
    }
    let Some(table) = met.note(Ksst::open(MemRead::new(bytes), 7, uid(), None, cache())) else { return };
    let table = Arc::new(table);
    met.note(table.verify());
    met.note(table::dump::dump(&table, Default::default(), &mut String::new()));
    let mut iter = table.iter(IterOptions { fill_cache: false, readahead_bytes: 0 });
    let mut moved = met.note(iter.seek_to_first());
    for _ in 0..100 {
        if moved.is_none() || !iter.valid() {
            break;
        }
        moved = met.note(iter.next());
    }
    for user in keys {
        met.note(table.get(user, MAX_SEQ, key_hash(user), &mut ReadCounters::default()));
    }
}

#[test]
fn every_resealed_table_byte_is_refused_or_correct() {
    let mut model = Model::new();
    for i in 0..14u64 {
        let kind = if i % 5 == 4 { ValueKind::Deletion } else { ValueKind::Value };
        insert(&mut model, format!("key{i:02}").as_bytes(), i + 1, kind, &[i as u8; 9]);
    }
    for i in 14..22u64 {
        let mut value = Vec::new();
        Reference { blob_id: 40 + i % 3, raw_len: 600, stored_len: 640 }.encode_into(&mut value);
        insert(&mut model, format!("key{i:02}").as_bytes(), i + 1, ValueKind::Reference, &value);
    }
    let tombstones = [RangeTombstone { start: b"a".to_vec(), end: b"q".to_vec(), seq: 77 }];
    let options = TableOptions {
        compression: Compression::None,
        block_len: 64,
        partition_len: 64,
        ..TableOptions::default()
    };
    let bytes = build(&model, &tombstones, &options, None).0;
    let keys: Vec<Vec<u8>> =
        entries(&model).iter().step_by(3).map(|(k, _)| key::user_key(k).to_vec()).collect();
    let mut listing = String::new();
    table::dump::dump(
        &open(bytes.clone(), &Arc::new(Cache::new(0))).unwrap(),
        Default::default(),
        &mut listing,
    )
    .unwrap();
    let mut met = Met::default();
    for block in blocks(&listing) {
        for at in 0..block.1 - 5 {
            for to in others(bytes[block.0 + at]) {
                read_table(&mut met, resealed(&bytes, block, at, to), &keys);
            }
        }
    }
    met.expect(&[
        "the first key of a data block is not after the last key of the block before it",
        "the top index of the key table (kSST) has no partitions",
    ]);
}

fn values(count: u64) -> Values {
    let key = |i: u64| format!("key{:04}", i * 3).into_bytes();
    (0..count).map(|i| ((key(i), !(i + 1)), vec![i as u8; (i % 7) as usize])).collect()
}

fn read_vsst(met: &mut Met, bytes: Vec<u8>, values: &Values, built: &Built, full: bool) {
    let Some(vsst) = met.note(Vsst::open(MemRead::new(bytes), 7, uid(), Arc::new(Cache::new(0)))) else {
        return;
    };
    let vsst = Arc::new(vsst);
    met.note(vsst.verify());
    if let Some(mut keys) = met.note(vsst.keys()) {
        while keys.valid() && met.note(keys.next()).is_some() {}
    }
    if full {
        met.note(table::dump_vsst(&vsst, Default::default(), &mut String::new()));
        for i in [0, values.len() / 2, values.len() - 1] {
            let ((user, inverted), value) = values.iter().nth(i).unwrap();
            let read = vsst.get(user, !inverted, &built.reference(i), true, &mut ReadCounters::default());
            if let Some(found) = met.note(read) {
                assert!(found[..] == value[..], "a wrong value");
            }
        }
    }
}

#[test]
fn every_resealed_vsst_byte_is_refused_or_correct() {
    let mut met = Met::default();
    // A file with one index frame, and one whose directory has several.
    for (count, step) in [(40, 1), (1500, 7)] {
        let values = values(count);
        let options = VsstOptions { compression: Compression::None, alignment: 8 };
        let built = vsst::build(&values, &options, None);
        let opened = vsst::open(built.bytes.clone(), &Arc::new(Cache::new(0))).unwrap();
        let mut listing = String::new();
        table::dump_vsst(&opened, Default::default(), &mut listing).unwrap();
        for block in blocks(&listing) {
            for at in (0..block.1 - 5).step_by(if block.1 > 300 { step * 5 } else { step }) {
                for to in others(built.bytes[block.0 + at]) {
                    read_vsst(&mut met, resealed(&built.bytes, block, at, to), &values, &built, true);
                }
            }
        }
    }
    met.expect(&[
        "an index block of the value file (vSST) has no entries, or they begin past its end",
        "an index block of the value file (vSST) lacks the offset of a record",
    ]);
}

/// Records have their own checksums.
#[test]
fn every_resealed_record_byte_is_refused_or_correct() {
    let values = values(6);
    let built = vsst::build(&values, &VsstOptions { compression: Compression::None, alignment: 8 }, None);
    let mut met = Met::default();
    let mut offset = 0;
    for lens in &built.lens {
        let len = lens.stored_len as usize;
        for at in 0..len - 4 {
            for to in others(built.bytes[offset + at]) {
                let mut bytes = built.bytes.clone();
                bytes[offset + at] = to;
                let sum = base::checksum::stored(&bytes[offset..offset + len - 4], uid(), offset as u64);
                bytes[offset + len - 4..offset + len].copy_from_slice(&sum.to_le_bytes());
                let vsst =
                    Arc::new(Vsst::open(MemRead::new(bytes), 7, uid(), Arc::new(Cache::new(0))).unwrap());
                // A changed value goes unnoticed, since its checksum is valid.
                met.note(vsst.verify());
                for (i, (user, inverted)) in values.keys().enumerate() {
                    met.note(vsst.get(
                        user,
                        !inverted,
                        &built.reference(i),
                        true,
                        &mut ReadCounters::default(),
                    ));
                }
            }
        }
        offset += len;
    }
    met.expect(&[
        "a value record has another key, sequence or length than its entry in the key list (dense keys)",
        "a value record has a compression codec that the properties of the file do not list",
        "a value record is damaged",
    ]);
}

#[test]
fn invalid_file_contents_are_refused() {
    let file = || Box::new(MemAppend::default());
    let options = TableOptions::default();
    let mut b = KsstBuilder::new(file(), Path::new(PATH), identity(), &options, None);
    let long = vec![b'z'; base::limits::KEY_LEN_MAX + 1];
    let tombstone = |end: Vec<u8>, seq| RangeTombstone { start: b"a".to_vec(), end, seq };
    let e = b.add_range_tombstone(&tombstone(long, 1)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::TooLarge);
    assert!(
        e.message().ends_with("end key of a range deletion has 65537 bytes, over the limit of 65536 bytes"),
        "{e}"
    );
    let e = b.add_range_tombstone(&tombstone(b"b".to_vec(), MAX_SEQ + 1)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    assert!(e.message().contains("of a range deletion is over 56 bits"), "{e}");
    let options = VsstOptions { compression: Compression::None, alignment: 8 };
    let b = VsstBuilder::new(file(), Path::new(PATH), identity(), &options, None);
    assert!(
        b.finish(vec![])
            .unwrap_err()
            .message()
            .ends_with("the value file (vSST) has no records: add one before finishing")
    );
    // Files that are too short for a footer.
    for len in [0, 63] {
        let e = table::footer::uid_of(&*MemRead::new(vec![0; len])).unwrap_err();
        assert_eq!(
            e.message(),
            format!("the file has {len} bytes, fewer than a footer of 64 bytes: it was cut off")
        );
        let e = table::SegmentReader::open_as_it_is(MemRead::new(vec![0; len]), uid()).err().unwrap();
        assert_eq!(
            e.message(),
            format!("the file has {len} bytes, fewer than the footer of a value segment (64 bytes)")
        );
    }
}
