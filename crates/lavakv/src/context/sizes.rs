//! How long the pieces of LavaKV are: what follows from the options alone.
//!
//! What is the store's in it stands in `store::space`: log, ballast, the reserve of deletes. Here is what LavaKV adds: the
//! outputs of its jobs, and so the least that a store needs; and what of it is too much for a volume.

use crate::context::family_options::FamilyOptions;
use crate::context::fit::Fit;
use crate::context::options::{Options, SpaceLimit};
use base::{Error, Result};
use store::commit::{Aging, ballast_bytes};
use store::space::{EDITS_BYTES, OUTPUT_BYTES, Sizes, Terms, manifest_bytes, with_overhead};

/// How long pages of the log wait for a flush where nobody has said how long, milliseconds. A loss of power takes as much: a file system makes durable what is in its
/// page cache after half a minute.
const BUFFERED_AGE_MS: u64 = 10_000;
/// What waits is at most one part in so many of a limit of space, where nobody has said that anything is to wait: it is in a file, too.
const WAITING_PART: u64 = 32;

/// The least that a store with these options occupies or keeps free, however little data it has.
pub(crate) fn overhead_bytes(options: &Options, family: &FamilyOptions) -> u64 {
    let sizes = options.sizes();
    let staging = options.ring_bytes(options.aging()) as u64;
    let log = sizes.log_bytes_max(0);
    let vsst = if family.min_blob_size > 0 { family.expert.vsst_bytes } else { 0 };
    let memory = (options.memtable_bytes as u64).saturating_mul(4);
    let jobs = with_overhead(vsst).saturating_add(with_overhead(memory));
    let files = staging + log + manifest_bytes(0) + EDITS_BYTES + OUTPUT_BYTES;
    files + memory + jobs + sizes.delete_bytes()
}

impl Options {
    /// How long pages of the log wait for a flush.
    pub(crate) fn aging(&self) -> Aging {
        let aging = |age_ms_max| Aging {
            age_ms_max,
            memtable_bytes: self.memtable_bytes as u64,
            durable_wait_us_max: u64::try_from(self.stall_budget.as_micros()).unwrap_or(u64::MAX),
            expects_durable: self.durability.waits_for_device(),
        };
        if let Some(age_ms_max) = self.expert.buffered_age_ms_max {
            return aging(age_ms_max);
        }
        let ring = self.ring_bytes(aging(BUFFERED_AGE_MS));
        let has_memory = self.memory_bytes() >= self.memtable_bytes.saturating_mul(2).saturating_add(ring);
        let has_space = match self.space_limit {
            Some(SpaceLimit::Bytes(bytes)) => ring as u64 <= bytes / WAITING_PART,
            Some(SpaceLimit::Ratio(_) | SpaceLimit::VolumePercent(_)) | None => true,
        };
        aging(if has_memory && has_space { BUFFERED_AGE_MS } else { 0 })
    }

    /// Bytes of the longest ring of open pages.
    fn ring_bytes(&self, aging: Aging) -> usize {
        aging.ring_len(self.expert.log_group_bytes, self.expert.log_group_bytes)
    }

    /// Of [`Options::memory_bytes`](field@Options::memory_bytes), what pages of the log take that wait for a flush; 0 where none wait ([`ExpertOptions::buffered_age_ms_max`](crate::ExpertOptions::buffered_age_ms_max)). The rest is for
    /// memtables.
    pub fn waiting_log_bytes(&self) -> usize {
        match self.aging() {
            Aging { age_ms_max: 0, .. } => 0,
            aging => self.ring_bytes(aging),
        }
    }

    /// [`Options::memory_bytes`](field@Options::memory_bytes), derived if it is 0.
    pub(crate) fn memory_bytes(&self) -> usize {
        if self.memory_bytes > 0 {
            return self.memory_bytes;
        }
        let age_ms_max = BUFFERED_AGE_MS;
        let (memtable_bytes, expects_durable) = (self.memtable_bytes as u64, false);
        let aging = Aging { age_ms_max, memtable_bytes, durable_wait_us_max: 0, expects_durable };
        self.memtable_bytes.saturating_mul(4).saturating_add(self.ring_bytes(aging))
    }

    /// What memtables may take, all together.
    pub(crate) fn memtables_bytes_max(&self) -> usize {
        self.memory_bytes().saturating_sub(self.waiting_log_bytes())
    }

    /// The least memory with which there is some for memtables. What waits only where there is room for it asks for none.
    pub(crate) fn memory_bytes_min(&self) -> usize {
        2 * self.memtable_bytes + self.expert.buffered_age_ms_max.map_or(0, |_| self.waiting_log_bytes())
    }

    /// The pieces that every engine has.
    pub(crate) fn sizes(&self) -> Sizes {
        Sizes {
            memtable_bytes: self.memtable_bytes as u64,
            memory_bytes: self.memory_bytes() as u64,
            log_group_bytes: self.expert.log_group_bytes,
            ballast_bytes: ballast_bytes(self.expert.log_group_bytes),
            wal_bytes_max: self.expert.wal_bytes_max(),
        }
    }

    /// What the store is told of the space it needs. `family`: the options of the default family as they fit the volume.
    pub(crate) fn terms(&self, family: &FamilyOptions) -> Terms {
        Terms {
            limit: self.space_limit,
            sizes: self.sizes(),
            overhead_bytes: overhead_bytes(self, family),
            // What recovery flushes was admitted when it was logged.
            is_strict: false,
        }
    }

    /// Checks every option and combination, those that are derived with the values that they get.
    ///
    /// # Errors
    /// `InvalidArgument` naming the option and its range.
    pub fn validate(&self) -> Result<()> {
        let derived = self.clone().derived();
        derived.check_ranges()?;
        leaves_room(&derived)
    }
}

/// Refuses a limit without room for the smallest sizes.
pub(crate) fn leaves_room(options: &Options) -> Result<()> {
    let needed = Fit::SMALLEST.overhead_bytes(options);
    match options.space_limit {
        Some(SpaceLimit::Bytes(bytes)) if bytes < needed => Err(Error::invalid(format!(
            "option space_limit = {bytes} bytes is less than the log, the memtables and the reserve of an empty store: \
             at least {needed} bytes"
        ))),
        Some(SpaceLimit::VolumePercent(percent)) if !(1..=100).contains(&percent) => Err(Error::invalid(
            format!("option space_limit = {percent} percent of the volume is out of range: 1 to 100"),
        )),
        Some(SpaceLimit::Ratio(ratio)) if !(1.05..=1000.0).contains(&ratio) => Err(Error::invalid(format!(
            "option space_limit = {ratio} times the live data is out of range: 1.05 to 1000"
        ))),
        _ => Ok(()),
    }
}

#[cfg(all(test, not(loom)))]
pub(crate) mod tests;
