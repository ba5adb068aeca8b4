//! Whole tables: opened, searched, walked, checked and listed.

use crate::files::{MemRead, NUMBER, UID, entries, tables};
use crate::script::{self, patches};
use crate::seal::{Region, regions, seal};
use base::hash::key_hash;
use base::{InternalIterator, MAX_SEQ, Result, Uid, key};
use cache::Cache;
use std::fmt::Write;
use std::sync::{Arc, OnceLock};
use table::dump::{DumpOptions, dump};
use table::{IterOptions, Ksst, KsstIter, ReadCounters};
use version::names::FileKind;

/// Text that is counted and thrown away; refuses when a listing does not end.
pub struct Listing {
    left: usize,
}

impl Listing {
    /// Takes this many bytes.
    pub fn new(left: usize) -> Self {
        Listing { left }
    }
}

impl Write for Listing {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        self.left = self.left.checked_sub(s.len()).expect("a listing that does not end");
        Ok(())
    }
}

/// Moves on while there is no error, at most `steps` times.
fn run(iter: &mut KsstIter, steps: usize, forward: bool) {
    let mut moved = Ok(());
    for _ in 0..steps {
        if moved.is_err() || !iter.valid() {
            return;
        }
        let _ = (iter.key(), iter.value());
        moved = if forward { iter.next() } else { iter.prev() };
    }
    assert!(!iter.valid(), "a walk that does not end");
}

/// Everything that can be done with a table.
fn use_table(bytes: &[u8], uid: Uid, global_seq: Option<u64>) -> Result<()> {
    // Compressed blocks hold more entries than bytes; no block of the seeds is compressed a thousand times.
    let entries_max = bytes.len() * 100 + 1_000_000;
    let cache = Arc::new(Cache::new(1 << 20));
    let table = Arc::new(Ksst::open(Arc::new(MemRead(bytes.to_vec())), NUMBER, uid, global_seq, cache)?);
    for readahead_bytes in [0, 20_000] {
        let mut iter = table.iter(IterOptions { fill_cache: true, readahead_bytes });
        let _ = iter.seek_to_first();
        run(&mut iter, entries_max, true);
        let _ = iter.seek_to_last();
        run(&mut iter, entries_max, false);
    }
    let mut iter = table.iter(IterOptions::default());
    let mut counters = ReadCounters::default();
    for (ikey, _) in entries(1, 40).iter().step_by(9) {
        let (user, seq) = (key::user_key(ikey), key::seq(ikey));
        let hash = key_hash(user);
        let _ = table.get(user, seq, hash, &mut counters);
        let _ = table.get(user, MAX_SEQ, hash, &mut counters);
        let _ = table.get_reference(user, seq, hash, &mut counters);
        let _ = table.offset_of(ikey);
        let _ = table.range_tombstones().covering(user, MAX_SEQ);
        // Back and forth over the place.
        if iter.seek(ikey).is_ok() && iter.valid() && iter.prev().is_ok() && iter.valid() {
            let _ = iter.next();
        }
        if iter.seek_for_prev(ikey).is_ok() && iter.valid() && iter.next().is_ok() && iter.valid() {
            let _ = iter.prev();
        }
    }
    let _ = table.verify();
    let mut listing = Listing::new(bytes.len() * 1000 + (1 << 28));
    let _ = dump(&table, DumpOptions { entries: true }, &mut listing);
    Ok(())
}

/// The bytes of a table.
pub fn ksst(data: &[u8]) {
    let uid = table::footer::uid_of(&MemRead(data.to_vec())).unwrap_or(UID);
    let _ = use_table(data, uid, None);
}

/// Valid tables.
pub fn ksst_seeds() -> Vec<Vec<u8>> {
    let mut all = tables();
    all.push(include_bytes!("../../crates/table/tests/golden/ksst-v1-none.bin").to_vec());
    all.push(include_bytes!("../../crates/table/tests/golden/ksst-v1-lz4.bin").to_vec());
    all.push(include_bytes!("../../crates/table/tests/golden/ksst-v1-zstd.bin").to_vec());
    all
}

fn bases() -> &'static [(Vec<u8>, Vec<Region>)] {
    static BASES: OnceLock<Vec<(Vec<u8>, Vec<Region>)>> = OnceLock::new();
    BASES.get_or_init(|| {
        let with_regions = |bytes: Vec<u8>| {
            let regions = regions(FileKind::Ksst(NUMBER), &bytes);
            (bytes, regions)
        };
        tables().into_iter().map(with_regions).collect()
    })
}

/// A script of damage to a valid table, under valid checksums. The first byte chooses the table.
pub fn ksst_sealed(data: &[u8]) {
    let (&first, script) = data.split_first().unwrap_or((&0, &[]));
    let (bytes, regions) = &bases()[usize::from(first) % bases().len()];
    let mut bytes = bytes.clone();
    for patch in patches(script) {
        let Some(region) = patch.region_of(regions.len()).map(|i| &regions[i]) else { continue };
        patch.apply(&mut bytes[region.start..region.start + region.len]);
        seal(&mut bytes, region);
    }
    let _ = use_table(&bytes, UID, None);
    if script.len() % 3 == 0 {
        let _ = use_table(&bytes, UID, Some(5));
    }
}

/// Scripts for each of the tables.
pub fn script_seeds() -> Vec<Vec<u8>> {
    let bases = tables().len();
    script::seeds().into_iter().enumerate().map(|(i, s)| [&[(i % bases) as u8][..], &s].concat()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resealed_files_are_valid() {
        for (bytes, regions) in bases() {
            let mut sealed = bytes.clone();
            regions.iter().for_each(|region| seal(&mut sealed, region));
            assert!(&sealed == bytes);
            assert_eq!(regions.iter().map(|r| r.len).sum::<usize>(), bytes.len());
        }
    }
}
