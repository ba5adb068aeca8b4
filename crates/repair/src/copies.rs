//! Of two copies of a file the one that is read.
//!
//! A table that goes to the other disk, and every file of a disk that is given back, is there twice for a while: the copy is durable before the manifest names it, and the
//! old file goes after that. A loss of power before that leaves a copy with holes, whose footer may be sound. Where no manifest says which of the two is the file, both are
//! read to their ends, and that one is taken which is whole, or else lacks least. They are of one uid, so they are the same bytes as far as they can be
//! read. There are as many of them as were on their way, which is one, or those of a disk.

use super::files::{Files, Place};
use cache::Cache;
use io::Env;
use std::sync::Arc;
use table::salvage::{self, Kind, SalvageIter};
use table::{SegmentReader, Vsst};
use version::names;

/// The cache of one look: index frames. It is nobody else's, since blocks of both copies have the same names there.
const CACHE_LEN: usize = 1 << 20;

/// Of each file that is there twice the better copy is known from now on.
pub(super) fn settle(env: &Env, files: &mut Files) {
    for (uid, other) in &mut files.copies {
        let Some((kind, place)) = files.known.get_mut(uid) else { continue };
        let holes_of_first = holes(env, *kind, *uid, place);
        if holes_of_first > 0 && holes(env, *kind, *uid, other) < holes_of_first {
            std::mem::swap(place, other);
        }
    }
}

/// How much of a file cannot be read: blocks, or all.
fn holes(env: &Env, kind: Kind, uid: base::Uid, place: &Place) -> u64 {
    let named = place.path.file_name().and_then(|name| names::parse(name.to_str()?));
    let number = named.and_then(names::FileKind::data).unwrap_or_default();
    let cache = Arc::new(Cache::new(CACHE_LEN));
    let Ok(file) = place.open(env) else { return u64::MAX };
    let is_whole = match kind {
        Kind::Ksst => {
            let Ok((table, missing)) = salvage::open(file, number, uid, cache) else { return u64::MAX };
            if missing.is_empty() && table.verify().is_ok() {
                return 0;
            }
            let mut entries = SalvageIter::new(table);
            while entries.valid() {
                entries.advance();
            }
            return 1 + missing.len() as u64 + entries.take_lost().len() as u64;
        }
        Kind::Vsst => Vsst::open(file, number, uid, cache).and_then(|vsst| Arc::new(vsst).verify()).is_ok(),
        Kind::Segment => {
            SegmentReader::open_as_it_is(file, uid).and_then(|segment| Arc::new(segment).verify()).is_ok()
        }
    };
    if is_whole { 0 } else { u64::MAX }
}
