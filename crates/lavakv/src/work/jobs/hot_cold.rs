//! Hot and cold values go to vSSTs of their own.
//!
//! Compactions tell the family's [`DropCache`] which keys they drop older versions of ([`Drops`]); a flush asks it, key by
//! key, and writes what is hot to one vSST and the rest to another ([`HotColdVssts`]). Whether it does follows from the
//! shares that the flushes before it came to (`values::drop_cache`), and from how much there is to write: a memtable
//! flushed early is not made two small files. A file is begun with its first value. What a compaction writes has lasted
//! until then: it is cold.
//!
//! The cache is in memory only. After an open, everything is cold until compactions have dropped something.

use crate::tree::output::{CreateVsst, VsstFiles};
use base::hash::key_hash;
use base::{Result, SeqNo, ValueKind};
use lsm::{DropObserver, DropReason};
use std::path::PathBuf;
use std::sync::Arc;
use table::Reference;
use values::{DropCache, Parting, VsstSeries};
use version::{VsstClass, VsstMeta};

/// Values are parted where a flush writes at least this part of a memtable, or of a vSST if that is less.
const FLUSH_PART_MIN: u64 = 4;

/// The vSSTs of one job.
pub(crate) struct HotColdVssts {
    /// What a flush asks, and tells what came of it.
    cache: Option<Arc<DropCache>>,
    hot: VsstSeries<CreateVsst>,
    cold: VsstSeries<CreateVsst>,
    parting: Parting,
    asked_bytes: u64,
    hot_bytes: u64,
}

impl HotColdVssts {
    /// For a job that makes its vSSTs by `files`. `flush_bytes`: what it has to write, if it is a flush.
    pub fn new(files: VsstFiles, flush_bytes: Option<u64>) -> Self {
        let options = files.family.options();
        let cache = files.family.drop_cache();
        let worth = (files.tree.context.options.memtable_bytes as u64).min(options.expert.vsst_bytes)
            / FLUSH_PART_MIN;
        let parting = match (&cache, flush_bytes) {
            (Some(cache), Some(bytes)) if bytes >= worth => cache.parting(),
            _ => Parting::AllCold,
        };
        let cold = if cache.is_some() { VsstClass::Cold } else { VsstClass::Mixed };
        let files = Arc::new(files);
        let series = |class| {
            let files = files.clone();
            VsstSeries::new(options.expert.vsst_bytes, Box::new(move || files.create(0, class)) as CreateVsst)
        };
        HotColdVssts {
            cache: cache.filter(|_| flush_bytes.is_some()),
            hot: series(VsstClass::Hot),
            cold: series(cold),
            parting,
            asked_bytes: 0,
            hot_bytes: 0,
        }
    }

    /// Writes a value. Keys ascend strictly.
    pub fn add(&mut self, user_key: &[u8], seq: SeqNo, value: &[u8]) -> Result<Reference> {
        let mut hot = false;
        if let Some(cache) = &self.cache {
            hot = cache.is_hot(key_hash(user_key));
            self.asked_bytes += value.len() as u64;
            self.hot_bytes += if hot { value.len() as u64 } else { 0 };
        }
        match self.parting {
            Parting::ByKey if hot => self.hot.add(user_key, seq, value),
            Parting::AllHot => self.hot.add(user_key, seq, value),
            Parting::ByKey | Parting::AllCold => self.cold.add(user_key, seq, value),
        }
    }

    /// Ends the open vSSTs; all that were written.
    pub fn finish(&mut self) -> Result<Vec<VsstMeta>> {
        let mut all = self.hot.finish()?;
        all.extend(self.cold.finish()?);
        if let Some(cache) = &self.cache {
            cache.book(std::mem::take(&mut self.asked_bytes), std::mem::take(&mut self.hot_bytes));
        }
        Ok(all)
    }

    /// Every vSST made so far, finished or not.
    pub fn created(&self) -> Vec<(u64, PathBuf)> {
        [self.hot.created(), self.cold.created()].concat()
    }

    /// Bytes written since the last call.
    pub fn take_written_bytes(&mut self) -> u64 {
        self.hot.take_written_bytes() + self.cold.take_written_bytes()
    }
}

/// Tells the cache of the separated values that a compaction drops because of newer ones.
pub(crate) struct Drops(pub Arc<DropCache>);

impl DropObserver for Drops {
    fn dropped(&mut self, user_key: &[u8], _: SeqNo, kind: ValueKind, _: &[u8], reason: DropReason) {
        if kind == ValueKind::Reference && matches!(reason, DropReason::Shadowed | DropReason::Covered) {
            self.0.remember(key_hash(user_key));
        }
    }
}
