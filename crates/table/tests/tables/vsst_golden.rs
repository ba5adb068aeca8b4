//! Checked-in vSSTs of format version 1. They must stay readable, and the writer must keep
//! producing the first of them byte for byte. (Codecs may compress better one day, so the bytes of
//! the other two are not compared.)
//!
//! After a deliberate change of the format: raise its version, then run with `LAVASTORE_BLESS=1`.

use crate::common::*;
use base::Compression;
use cache::Cache;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use table::{ReadCounters, VsstOptions};
use vsst::{Built, Values, build, open};

/// Returns several crit-bit blocks, versions of a key across the boundary between two, and the
/// smallest and largest of keys, sequences and values.
fn fixed_values() -> Values {
    let mut values = Values::new();
    let mut add = |user: &[u8], seq: u64, value: Vec<u8>| values.insert((user.to_vec(), !seq), value);
    add(b"\0", 3, b"the smallest key".to_vec());
    add(b"\0\0", 0, Vec::new());
    for i in 0..100u64 {
        let user = format!("account/{i:05}");
        add(user.as_bytes(), 100 + i, format!("value {i} ").repeat(1 + (i % 9) as usize).into_bytes());
        if i % 10 == 0 {
            add(user.as_bytes(), 20, b"an older version".to_vec());
        }
    }
    for seq in 0..60 {
        add(b"account/00042/history", 1000 + 17 * seq, seq.to_string().into_bytes());
    }
    add(b"\xff\xff", base::MAX_SEQ, b"the largest sequence".to_vec());
    values
}

fn write(compression: Compression) -> Built {
    build(&fixed_values(), &VsstOptions { compression, alignment: 4 }, None)
}

fn path(compression: Compression) -> PathBuf {
    let name = format!("vsst-v1-{}.bin", compression.name());
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

#[allow(clippy::disallowed_methods)]
fn stored(compression: Compression) -> Vec<u8> {
    let path = path(compression);
    if std::env::var_os("LAVASTORE_BLESS").is_some() {
        std::fs::write(&path, write(compression).bytes).unwrap();
    }
    std::fs::read(&path).unwrap()
}

#[test]
fn the_writer_still_writes_version_1() {
    assert!(write(Compression::None).bytes == stored(Compression::None), "the format has changed");
}

#[test]
fn version_1_can_be_read() {
    for compression in codecs() {
        let bytes = stored(compression);
        let len = bytes.len() as u64;
        let table = open(bytes.clone(), &Arc::new(Cache::new(1 << 20))).unwrap();
        let mut keys = table.keys().unwrap();
        for ((user, inverted), value) in &fixed_values() {
            let entry = keys.entry();
            assert_eq!(
                (entry.user_key, entry.seq, entry.raw_len),
                (&user[..], !inverted, value.len() as u64)
            );
            let reference =
                table::Reference { blob_id: 7, raw_len: entry.raw_len, stored_len: entry.stored_len };
            let found = table.get(user, !inverted, &reference, true, &mut ReadCounters::default()).unwrap();
            assert_eq!(&found[..], &value[..]);
            keys.next().unwrap();
        }
        assert!(!keys.valid());
        assert_eq!(table.verify().unwrap(), len);
        let p = table.properties();
        assert_eq!((&p.identity, p.alignment, p.class, &p.took_over[..]), (&identity(), 4, 1, &[2, 90][..]));
        assert_eq!((p.min_seq, p.max_seq, p.segment), (0, base::MAX_SEQ, false));
        assert_eq!(p.codecs, 1 | 1 << compression as u8);
    }
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
