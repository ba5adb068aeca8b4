//! Resolves a reference to its value: name -> value file (by the alias table of the version read)
//! -> crit-bit index -> one read of the record. The record is verified before it is returned.
//!
//! A reference is resolved only in the version that it was read from. Garbage collection moves
//! records under their names, and each version maps names to files at its time. The files live as
//! long as the version.

use crate::read::read_path::Value;
use crate::tree::Tree;
use base::limits::LARGE_VALUE_LEN_MAX;
use base::{Error, ErrorKind, Result, SeqNo, ValueKind};
use cache::BlockSlice;
use std::sync::Arc;
use table::{ReadCounters, Reference, SegmentReader, Source};
use version::{Version, VsstMeta};

/// Returns the value file that holds the record of an entry.
pub(crate) fn resolve<'v>(
    version: &'v Version,
    user_key: &[u8],
    seq: SeqNo,
    reference: &Reference,
) -> Result<&'v Arc<VsstMeta>> {
    version.resolve(reference.blob_id, user_key, seq).ok_or_else(|| {
        Error::corruption(format!(
            "the value of key \"{}\" is in value file (vSST) {}, which the manifest does not list; other \
             values stay readable",
            user_key.escape_ascii(),
            reference.blob_id
        ))
    })
}

/// A value, in memory or in a segment.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// In memory.
    Bytes(BlockSlice),
    /// In a segment, not read yet. The file stays readable after its removal, since it is open.
    Segment(Arc<SegmentReader>),
}

impl Content {
    /// Returns the value, read into memory.
    pub fn into_value(self) -> Result<Value> {
        self.into_bytes().map(Value)
    }

    /// Returns the bytes, read into memory.
    pub fn into_bytes(self) -> Result<BlockSlice> {
        match self {
            Content::Bytes(bytes) => Ok(bytes),
            Content::Segment(segment) => Ok(BlockSlice::from(segment.read_all(LARGE_VALUE_LEN_MAX)?)),
        }
    }
}

/// Fetches a separated value of any length.
pub(crate) fn value(
    tree: &Tree,
    version: &Version,
    entry: (&[u8], SeqNo, ValueKind),
    reference: &[u8],
    fill_cache: bool,
    counters: &mut ReadCounters,
) -> Result<BlockSlice> {
    content(tree, version, entry, reference, fill_cache, counters)?.into_bytes()
}

/// Locates a separated value, and fetches it unless it is large.
pub(crate) fn content<S: Source>(
    tree: &Tree,
    version: &Version,
    entry: (&[u8], SeqNo, ValueKind),
    reference: &[u8],
    fill_cache: bool,
    source: &mut S,
) -> Result<Content, S::Stop> {
    let found = look_up(tree, version, entry, reference, fill_cache, source);
    crate::files::damaged::in_value(found, entry.0)
}

fn look_up<S: Source>(
    tree: &Tree,
    version: &Version,
    entry: (&[u8], SeqNo, ValueKind),
    reference: &[u8],
    fill_cache: bool,
    source: &mut S,
) -> Result<Content, S::Stop> {
    let (user_key, seq, kind) = entry;
    match kind {
        ValueKind::Reference => {
            let reference = Reference::decode(reference)?;
            let meta = resolve(version, user_key, seq, &reference)?;
            if meta.segment {
                source.may_block()?;
                let segment = crate::large::segments::open_listed(&tree.files, user_key, meta)?;
                return Ok(Content::Segment(segment));
            }
            let vsst = tree.files.tables.vsst_from(meta, source)?;
            vsst.get(user_key, seq, &reference, fill_cache, source).map(Content::Bytes)
        }
        ValueKind::PlacedReference => {
            source.may_block()?;
            Ok(Content::Segment(crate::large::segments::open(&tree.files, user_key, reference)?))
        }
        kind => {
            let kind = kind as u8;
            let why = format!(
                "an entry of kind {kind} in a key table (kSST) is not known to this release: use a newer \
                 release"
            );
            Err(Error::new(ErrorKind::Unsupported, why).into())
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_dangling_reference_is_reported_with_its_key() {
        let reference = Reference { blob_id: 7, raw_len: 1, stored_len: 1 };
        let e = resolve(&Version::new(0), b"a\xff", 3, &reference).unwrap_err();
        assert!(e.is_corruption(), "{e}");
        assert_eq!(
            e.message(),
            "the value of key \"a\\xff\" is in value file (vSST) 7, which the manifest does not list; \
             other values stay readable"
        );
    }
}
