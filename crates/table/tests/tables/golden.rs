//! Checked-in files of format version 1. They must stay readable, and the writer must keep
//! producing the first of them byte for byte. (Codecs may compress better one day, so the bytes of
//! the other two are not compared.)
//!
//! After a deliberate change of the format: raise its version, then run with `LAVASTORE_BLESS=1`.

use crate::common::*;
use base::range_del::RangeTombstone;
use base::{Compression, InternalIterator, ValueKind, key};
use cache::Cache;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use table::{
    FinishedTable, IterOptions, KsstBuilder, ReadCounters, Reference, StoreNotes, TableIdentity, TableOptions,
};

/// Key, value and expiry of every entry.
fn fixed_entries() -> Vec<(Vec<u8>, Vec<u8>, u64)> {
    let mut all = Vec::new();
    let mut add = |user: &[u8], seq, kind, value: &[u8], expiry| {
        all.push((key::encode(user, seq, kind), value.to_vec(), expiry));
    };
    add(b"\0", 3, ValueKind::Value, b"the smallest key", 0);
    add(b"\0\0", 3, ValueKind::Deletion, b"", 0);
    for i in 0..40u64 {
        let user = format!("account/{i:05}");
        let r = Reference { blob_id: 1000 + i / 16, raw_len: 700 + i % 3, stored_len: 760 + i % 3 };
        add(user.as_bytes(), 900 + i, ValueKind::Merge, b"+1", 0);
        add(
            user.as_bytes(),
            100 + i,
            ValueKind::Reference,
            &r.encode(),
            if i == 7 { 1_900_000_000 } else { 0 },
        );
        if i % 8 == 0 {
            add(user.as_bytes(), 20, ValueKind::SingleDeletion, b"", 0);
        }
        let expiry = if i % 5 == 0 { 1_800_000_000 + i } else { 0 };
        add(
            user.as_bytes(),
            10,
            ValueKind::Value,
            "value of the account ".repeat(i as usize % 4).as_bytes(),
            expiry,
        );
    }
    add(b"\xff\xff", base::MAX_SEQ, ValueKind::Value, b"the largest sequence", 0);
    all
}

fn fixed_tombstones() -> Vec<RangeTombstone> {
    let t = |s: &[u8], e: &[u8], seq| RangeTombstone { start: s.to_vec(), end: e.to_vec(), seq };
    vec![t(b"account/00003", b"account/00010", 500), t(b"account/00008", b"b", 501)]
}

/// The store notes that tables have since repair reads them; older tables have none.
fn notes() -> TableIdentity {
    let store = StoreNotes {
        family_name: "accounts".into(),
        family_options: vec![1, 2, 0, 255],
        log_floor: 1 << 40,
        gone: vec![3, 4, 300, u64::MAX >> 2],
    };
    TableIdentity { store, ..identity() }
}

fn write(compression: Compression) -> (Vec<u8>, FinishedTable) {
    write_as(identity(), compression)
}

fn write_as(identity: TableIdentity, compression: Compression) -> (Vec<u8>, FinishedTable) {
    let options = TableOptions {
        compression,
        block_len: 512,
        partition_len: 64,
        restart_interval: 4,
        filter_bits_per_key: 10,
        prefix: None,
    };
    let file = MemAppend::default();
    let bytes = file.shared();
    let mut builder = KsstBuilder::new(Box::new(file), Path::new(PATH), identity, &options, None);
    builder.set_created(1_700_000_000);
    for (ikey, value, expiry) in fixed_entries() {
        builder.add_expiring(&ikey, &value, expiry).unwrap();
    }
    fixed_tombstones().iter().for_each(|t| builder.add_range_tombstone(t).unwrap());
    let finished = builder.finish().unwrap();
    let bytes = std::mem::take(&mut *bytes.lock().unwrap());
    (bytes, finished)
}

fn path(compression: Compression) -> PathBuf {
    let name = format!("ksst-v1-{}.bin", compression.name());
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

#[allow(clippy::disallowed_methods)]
fn stored(compression: Compression) -> Vec<u8> {
    let path = path(compression);
    if std::env::var_os("LAVASTORE_BLESS").is_some() {
        std::fs::write(&path, write(compression).0).unwrap();
    }
    std::fs::read(&path).unwrap()
}

#[test]
fn the_writer_still_writes_version_1() {
    assert!(write(Compression::None).0 == stored(Compression::None), "the format has changed");
}

#[test]
fn version_1_can_be_read() {
    for compression in codecs() {
        let bytes = stored(compression);
        let len = bytes.len() as u64;
        let table = open(bytes, &Arc::new(Cache::new(1 << 20))).unwrap();
        let mut iter = table.iter(IterOptions::default());
        iter.seek_to_first().unwrap();
        for (ikey, value, expiry) in fixed_entries() {
            assert_eq!((iter.key(), iter.value(), iter.expiry()), (&ikey[..], &value[..], expiry));
            iter.next().unwrap();
        }
        assert!(!iter.valid());
        let expected = base::range_del::FragmentedRangeTombstones::new(&fixed_tombstones());
        assert_eq!(**table.range_tombstones(), expected);
        let mut properties = write(compression).1.properties;
        let dependencies = std::mem::take(&mut properties.dependencies);
        assert_eq!(dependencies.len(), 3);
        assert_eq!(table.dependencies(&mut ReadCounters::default()).unwrap(), dependencies);
        assert_eq!(properties.identity, identity());
        assert!(properties.uses(compression));
        // Another release of a codec may compress to another length.
        properties.inline_block_bytes = table.properties().inline_block_bytes;
        properties.reference_block_bytes = table.properties().reference_block_bytes;
        properties.index_bytes = table.properties().index_bytes;
        assert_eq!(*table.properties(), properties);
        assert_eq!(table.verify().unwrap(), len);
    }
}

#[allow(clippy::disallowed_methods)]
#[test]
fn table_identity_of_version_1_stays_readable() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/ksst-v1-notes.bin");
    let written = write_as(notes(), Compression::None).0;
    if std::env::var_os("LAVASTORE_BLESS").is_some() {
        std::fs::write(&path, &written).unwrap();
    }
    let bytes = std::fs::read(&path).unwrap();
    assert!(written == bytes, "the format has changed");
    let table = open(bytes, &Arc::new(Cache::new(1 << 20))).unwrap();
    assert_eq!(table.properties().identity, notes());
    assert!(table.verify().is_ok());
}

/// Returns a table of 1,200 references, which stores its notes.
fn write_noted() -> (Vec<u8>, FinishedTable) {
    let options = TableOptions { compression: Compression::None, ..TableOptions::default() };
    let file = MemAppend::default();
    let bytes = file.shared();
    let mut builder = KsstBuilder::new(Box::new(file), Path::new(PATH), identity(), &options, None);
    for i in 0..1200u64 {
        let reference = Reference { blob_id: 1000, raw_len: 700 + i % 90, stored_len: 760 + i % 90 };
        let ikey = key::encode(&i.to_be_bytes(), 100 + i, ValueKind::Reference);
        builder.add(&ikey, &reference.encode()).unwrap();
    }
    let finished = builder.finish().unwrap();
    let bytes = std::mem::take(&mut *bytes.lock().unwrap());
    (bytes, finished)
}

#[test]
#[allow(clippy::disallowed_methods)]
fn the_notes_of_a_table_stay_readable() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/ksst-v1-sampled.bin");
    let (written, finished) = write_noted();
    if std::env::var_os("LAVASTORE_BLESS").is_some() {
        std::fs::write(&path, &written).unwrap();
    }
    let bytes = std::fs::read(&path).unwrap();
    assert!(written == bytes, "the format has changed");
    let table = open(bytes, &Arc::new(Cache::new(1 << 20))).unwrap();
    let (notes, known) = (table.notes().unwrap(), finished.notes);
    assert_eq!((notes.keys, notes.records, notes.values), (known.keys, known.records, known.values));
    let (stored, level) = (&notes.sample, notes.sample.level());
    assert!(stored.at(level) == known.sample.at(level) && stored.at(level).len() > 100);
    assert!(table.verify().is_ok());
}

/// Notes equal those of the builder, even if they are computed from the entries.
#[test]
fn recomputed_table_notes_equal_those_of_the_builder() {
    let (bytes, finished) = write(Compression::None);
    assert_eq!(open(bytes, &Arc::new(Cache::new(1 << 20))).unwrap().notes().unwrap(), finished.notes);
}

/// This test covers its case only in a build without the default features.
#[test]
fn a_file_with_a_codec_that_is_not_built_in_is_unsupported() {
    for compression in [Compression::Lz4, Compression::Zstd] {
        let opened = open(stored(compression), &Arc::new(Cache::new(0)));
        assert_eq!(opened.is_ok(), table::compress::require(compression).is_ok());
        if let Err(e) = opened {
            assert_eq!(e.kind(), base::ErrorKind::Unsupported);
            assert!(e.file().is_some_and(|f| f.ends_with(PATH)), "{e}");
        }
    }
}
