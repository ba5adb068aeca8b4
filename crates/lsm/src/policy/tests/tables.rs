//! Table metadata for tests of picks.

use base::{ValueKind, key};
use std::ops::Range;
use version::{Dependency, FileMeta};

/// Returns a table with `entries` of these keys in `len` bytes, and references to `value_bytes`.
pub(in crate::policy) fn of_values(
    number: u64,
    keys: Range<u32>,
    entries: u64,
    len: u64,
    value_bytes: u64,
) -> FileMeta {
    let end = |key: u32| key::encode(&key.to_be_bytes(), number, ValueKind::Reference);
    let values = Dependency {
        blob_id: 100 + number,
        count: entries,
        raw_bytes: value_bytes,
        stored_bytes: value_bytes,
    };
    FileMeta {
        number,
        len,
        smallest: end(keys.start),
        largest: end(keys.end - 1),
        min_seq: number,
        max_seq: number,
        entries,
        raw_bytes: len + value_bytes,
        uses: if value_bytes > 0 { vec![values] } else { Vec::new() }.into(),
        ..FileMeta::default()
    }
}
