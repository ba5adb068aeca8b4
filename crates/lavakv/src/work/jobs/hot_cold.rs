//! Separation of hot and cold values into different vSSTs.
//!
//! Compactions record in the family's [`DropCache`] the keys whose older versions they drop
//! ([`Drops`]). A flush looks each key up, and writes hot values to one vSST and all others to
//! another ([`HotColdVssts`]). Whether it separates them depends on the shares in previous flushes
//! (`values::drop_cache`), and on its size: a memtable flushed early is not split into two small
//! files. A file is created with its first value. Values written by a compaction are cold, because
//! they have lasted until then.
//!
//! The cache is in memory only. After an open, all values are cold until compactions have dropped
//! some.

use crate::tree::output::{CreateVsst, VsstFiles};
use base::hash::key_hash;
use base::{Result, SeqNo, ValueKind};
use lsm::{DropObserver, DropReason};
use std::path::PathBuf;
use std::sync::Arc;
use table::Reference;
use values::{DropCache, HotColdSplit, VsstSeries};
use version::{VsstClass, VsstMeta};

/// Divisor: values are separated if a flush writes at least this part of a memtable, or of a vSST
/// if that is less.
const FLUSH_PART_MIN: u64 = 4;

/// The hot and cold output vSSTs of one job.
pub(crate) struct HotColdVssts {
    /// The cache that a flush queries, and updates with its shares.
    cache: Option<Arc<DropCache>>,
    hot: VsstSeries<CreateVsst>,
    cold: VsstSeries<CreateVsst>,
    parting: HotColdSplit,
    asked_bytes: u64,
    hot_bytes: u64,
}

impl HotColdVssts {
    /// Creates the outputs of a job, with vSSTs created by `files`. `flush_bytes`: the size of a
    /// flush.
    pub fn new(files: VsstFiles, flush_bytes: Option<u64>) -> Self {
        let options = files.family.options();
        let cache = files.family.drop_cache();
        let worth = (files.tree.context.options.memtable_bytes as u64).min(options.expert.vsst_bytes)
            / FLUSH_PART_MIN;
        let parting = match (&cache, flush_bytes) {
            (Some(cache), Some(bytes)) if bytes >= worth => cache.parting(),
            _ => HotColdSplit::AllCold,
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

    /// Writes a value. Keys must ascend strictly.
    pub fn add(&mut self, user_key: &[u8], seq: SeqNo, value: &[u8]) -> Result<Reference> {
        let mut hot = false;
        if let Some(cache) = &self.cache {
            hot = cache.is_hot(key_hash(user_key));
            self.asked_bytes += value.len() as u64;
            self.hot_bytes += if hot { value.len() as u64 } else { 0 };
        }
        match self.parting {
            HotColdSplit::ByKey if hot => self.hot.add(user_key, seq, value),
            HotColdSplit::AllHot => self.hot.add(user_key, seq, value),
            HotColdSplit::ByKey | HotColdSplit::AllCold => self.cold.add(user_key, seq, value),
        }
    }

    /// Ends the open vSSTs. Returns all written ones.
    pub fn finish(&mut self) -> Result<Vec<VsstMeta>> {
        let mut all = self.hot.finish()?;
        all.extend(self.cold.finish()?);
        if let Some(cache) = &self.cache {
            cache.book(std::mem::take(&mut self.asked_bytes), std::mem::take(&mut self.hot_bytes));
        }
        Ok(all)
    }

    /// Returns every vSST created so far, finished or not.
    pub fn created(&self) -> Vec<(u64, PathBuf)> {
        [self.hot.created(), self.cold.created()].concat()
    }

    /// Returns the bytes written since the last call.
    pub fn take_written_bytes(&mut self) -> u64 {
        self.hot.take_written_bytes() + self.cold.take_written_bytes()
    }
}

/// Records in the cache the separated values that a compaction drops because of newer versions.
pub(crate) struct Drops(pub Arc<DropCache>);

impl DropObserver for Drops {
    fn dropped(&mut self, user_key: &[u8], _: SeqNo, kind: ValueKind, _: &[u8], reason: DropReason) {
        if kind == ValueKind::Reference && matches!(reason, DropReason::Shadowed | DropReason::Covered) {
            self.0.remember(key_hash(user_key));
        }
    }
}
