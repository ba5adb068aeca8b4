//! Chooses between two copies of the same file.
//!
//! A table that migrates to the other tier exists twice for a while, and so does every file of a
//! tier that is being removed. The copy becomes durable before the manifest names it, and the old
//! file is deleted after that. A power failure before that point leaves a copy with holes, whose
//! footer may be sound. Without a manifest to name the right file, repair reads both copies to
//! their ends. It takes the complete copy, or else the one with fewer damaged blocks. Both copies
//! carry one uid, so their readable bytes are equal. The number of such pairs is small: one, or the
//! files of one tier.

use super::files::{DataFilePath, DataFiles};
use cache::Cache;
use io::Env;
use std::sync::Arc;
use table::salvage::{self, Kind, SalvageIter};
use table::{SegmentReader, Vsst};
use version::names;

/// Size of the cache for the index frames of one comparison. The cache is private because blocks of
/// both copies have the same cache keys.
const CACHE_LEN: usize = 1 << 20;

/// Puts the better copy of each duplicated file into `files.known`.
pub(super) fn settle(env: &Env, files: &mut DataFiles) {
    for (uid, other) in &mut files.copies {
        let Some((kind, place)) = files.known.get_mut(uid) else { continue };
        let holes_of_first = holes(env, *kind, *uid, place);
        if holes_of_first > 0 && holes(env, *kind, *uid, other) < holes_of_first {
            std::mem::swap(place, other);
        }
    }
}

/// Returns the number of unreadable blocks of a file, or `u64::MAX` if the whole file is unusable.
fn holes(env: &Env, kind: Kind, uid: base::Uid, place: &DataFilePath) -> u64 {
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
