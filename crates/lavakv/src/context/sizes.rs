//! Sizes of LavaKV's buffers and files, computed from the options alone.
//!
//! `store::space` computes the sizes of the store itself: log, reserved space, the reserve of
//! deletes. This module adds the outputs of LavaKV's jobs, and so the minimum space of a store.

use crate::context::family_options::FamilyOptions;
use crate::context::fit::SizeReduction;
use crate::context::options::{Options, SpaceLimit};
use base::{Error, Result};
use store::commit::{Aging, reserved_bytes};
use store::space::{EDITS_BYTES, OUTPUT_BYTES, Sizes, Terms, manifest_bytes, with_overhead};

/// Default maximum age of buffered log pages, milliseconds. File systems lose as much in a power
/// failure: they write their page cache back after half a minute.
const BUFFERED_AGE_MS: u64 = 10_000;
/// Divisor: by default, buffered log pages take at most this part of a space limit, because they
/// are in a file as well.
const WAITING_PART: u64 = 32;

/// Returns the minimum space that a store with these options occupies or keeps free, without any
/// data.
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
    /// Returns the aging policy of buffered log pages.
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

    /// Returns the maximum size of the tail buffer.
    fn ring_bytes(&self, aging: Aging) -> usize {
        aging.tail_buffer_len(self.expert.log_group_bytes, self.expert.log_group_bytes)
    }

    /// Returns the part of [`Options::memory_bytes`](field@Options::memory_bytes) for buffered log
    /// pages; 0 without buffering
    /// ([`ExpertOptions::buffered_age_ms_max`](crate::ExpertOptions::buffered_age_ms_max)). The
    /// rest is for memtables.
    pub fn waiting_log_bytes(&self) -> usize {
        match self.aging() {
            Aging { age_ms_max: 0, .. } => 0,
            aging => self.ring_bytes(aging),
        }
    }

    /// Returns [`Options::memory_bytes`](field@Options::memory_bytes), derived if it is 0.
    pub(crate) fn memory_bytes(&self) -> usize {
        if self.memory_bytes > 0 {
            return self.memory_bytes;
        }
        let age_ms_max = BUFFERED_AGE_MS;
        let (memtable_bytes, expects_durable) = (self.memtable_bytes as u64, false);
        let aging = Aging { age_ms_max, memtable_bytes, durable_wait_us_max: 0, expects_durable };
        self.memtable_bytes.saturating_mul(4).saturating_add(self.ring_bytes(aging))
    }

    /// Returns the total budget of memtables.
    pub(crate) fn memtables_bytes_max(&self) -> usize {
        self.memory_bytes().saturating_sub(self.waiting_log_bytes())
    }

    /// Returns the minimum of `memory_bytes` that leaves some for memtables. Buffering by default
    /// needs none, because it adapts to the memory.
    pub(crate) fn memory_bytes_min(&self) -> usize {
        2 * self.memtable_bytes + self.expert.buffered_age_ms_max.map_or(0, |_| self.waiting_log_bytes())
    }

    /// Returns the sizes that every engine has.
    pub(crate) fn sizes(&self) -> Sizes {
        Sizes {
            memtable_bytes: self.memtable_bytes as u64,
            memory_bytes: self.memory_bytes() as u64,
            log_group_bytes: self.expert.log_group_bytes,
            reserved_bytes: reserved_bytes(self.expert.log_group_bytes),
            wal_bytes_max: self.expert.wal_bytes_max(),
        }
    }

    /// Returns the space requirements of the store. `family`: the options of the default family, as
    /// reduced to the volume.
    pub(crate) fn terms(&self, family: &FamilyOptions) -> Terms {
        Terms {
            limit: self.space_limit,
            sizes: self.sizes(),
            overhead_bytes: overhead_bytes(self, family),
            // Memtables that recovery flushes were admitted when they were logged.
            is_strict: false,
        }
    }

    /// Checks every option and combination; derived options with their derived values.
    ///
    /// # Errors
    /// `InvalidArgument` naming the option and its range.
    pub fn validate(&self) -> Result<()> {
        let derived = self.clone().derived();
        derived.check_ranges()?;
        leaves_room(&derived)
    }
}

/// Fails if the space limit has no room for the smallest sizes.
pub(crate) fn leaves_room(options: &Options) -> Result<()> {
    let needed = SizeReduction::SMALLEST.overhead_bytes(options);
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
