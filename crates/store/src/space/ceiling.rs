//! The ceiling of the files of a store: the meter refuses a file that would exceed it.
//!
//! Writes of the manifest are never refused. So the last bytes below a limit are kept for them.
//!
//! **Across opens, beside a secondary engine.** Trims of that engine may use the whole reserve of
//! LavaKV, so at a limit the files may fill it up to the last page. At the next open the needed
//! bytes (files, memtables as tables, reserve) exceed the limit, exactly as after a lowered limit.
//! Jobs would then get the needed bytes as their ceiling, and the store would exceed its limit. The
//! files do not tell the two cases apart. To assume a kept limit is no way out: a store whose limit
//! was lowered to just above its files could run no compaction and no collection, and would refuse
//! deletes, so no space would ever be freed. So the manifest records the ceiling (tag 31). Over all
//! processes it only falls, and a limit below it is a lowered one. A recorded ceiling is ignored if
//! the files exceed it already.
//!
//! Without a secondary engine no record is needed. The pool of the jobs is untouched at a kept
//! limit, so only the share of deletes may be missing from the reserve.

use super::bounds::Bounds;
use super::own_limit::OwnLimit;
use super::sizes::EDITS_BYTES;
use crate::volumes::Meter;
use std::sync::Arc;

/// The ceiling of a store: see the module.
#[derive(Debug)]
pub struct Ceiling {
    meter: Arc<Meter>,
    own: Arc<OwnLimit>,
    bounds: Arc<Bounds>,
}

/// Returns the part of a ceiling for all files except the manifest.
fn without_edits(ceiling: u64) -> u64 {
    ceiling.saturating_sub(EDITS_BYTES)
}

impl Ceiling {
    pub(super) fn new(meter: &Arc<Meter>, own: &Arc<OwnLimit>, bounds: &Arc<Bounds>) -> Ceiling {
        Ceiling { meter: meter.clone(), own: own.clone(), bounds: bounds.clone() }
    }

    /// Sets the ceiling of a store without a strict limit. Only a limit in bytes bounds the files.
    pub(super) fn follow(&self, ceiling: u64) {
        // A ratio limit multiplies an estimate of the live data. A volume has a ceiling of its own.
        self.meter.set_ceiling(self.own.bytes().map_or(u64::MAX, |own| without_edits(ceiling.max(own))));
    }

    /// Sets the ceiling of a store with a strict limit ([`super::Terms::is_strict`]), and of any
    /// store while its logs begin.
    ///
    /// A store may be above it already: the limit was lowered, or [`Ceiling::let_files_in`] was
    /// called. Then the present size is the ceiling, and each removed file lowers it.
    pub fn bound_files(&self) {
        self.bound_files_beside(0);
    }

    /// As [`Ceiling::bound_files`], before a log begins. `unmade_bytes`: growth of the staging
    /// files, which are never refused.
    pub fn bound_files_beside(&self, unmade_bytes: u64) {
        let Some(own) = self.own.bytes() else { return };
        let below = without_edits(own.min(self.bounds.limit_bytes())).saturating_sub(unmade_bytes);
        let most = self.meter.ceiling().min(self.meter.used_bytes());
        self.meter.set_ceiling(below.max(most));
    }

    /// Sets the ceiling while recovered memtables are flushed. Their writes were admitted when they
    /// were logged, so no file is refused. Beside a secondary engine, whose trims may have taken
    /// that room since, a store below its limit stays below it.
    pub fn bound_recovery(&self, beside_guest: bool) {
        match self.own.bytes() {
            Some(own) if beside_guest && self.meter.used_bytes() <= own => self.bound_files(),
            _ => self.let_files_in(),
        }
    }

    /// Refuses no file until [`Ceiling::bound_files`]: a store of any size can be opened, since
    /// only an open store can free space.
    pub fn let_files_in(&self) {
        self.meter.set_ceiling(u64::MAX);
    }

    /// Takes over the ceiling of the last process ([`Ceiling::to_tell`]), so that it does not rise
    /// with an open. It cannot be derived: a secondary engine's trims may have used the reserve at
    /// the limit, and then the needed bytes exceed a limit that was not lowered. It is ignored if
    /// the files exceed it already.
    pub fn take(&self, bytes: u64) {
        if self.meter.used_bytes() <= bytes {
            self.bounds.lower_ceiling(bytes);
        }
    }

    /// Returns the ceiling for the next process; `None`: the recorded one, `told`, still holds. It
    /// is at least a limit in bytes; `u64::MAX` without such a limit.
    pub fn to_tell(&self, told: u64) -> Option<u64> {
        let ceiling = self.own.bytes().map_or(u64::MAX, |own| self.bounds.ceiling_bytes().max(own));
        (ceiling != told).then_some(ceiling)
    }

    /// Returns true while the ceiling is above the limit in bytes.
    pub fn is_above_limit(&self) -> bool {
        let ceiling = self.bounds.ceiling_bytes();
        self.own.bytes().is_some_and(|own| ceiling > own)
    }
}
