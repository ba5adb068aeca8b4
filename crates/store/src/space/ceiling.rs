//! The ceiling of the files of a store.
//!
//! What the manifest writes is never refused, so the last of the room is for nothing else.

use super::SpaceLimit;
use super::bounds::Bounds;
use super::sizes::EDITS_BYTES;
use crate::volumes::Meter;
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub struct Ceiling {
    meter: Arc<Meter>,
    /// The limit that the caller of the open set.
    own: Option<SpaceLimit>,
    bounds: Arc<Bounds>,
}

/// What of a ceiling is left to all but the manifest.
fn without_edits(ceiling: u64) -> u64 {
    ceiling.saturating_sub(EDITS_BYTES)
}

impl Ceiling {
    pub(super) fn new(meter: &Arc<Meter>, own: Option<SpaceLimit>, bounds: &Arc<Bounds>) -> Ceiling {
        Ceiling { meter: meter.clone(), own, bounds: bounds.clone() }
    }

    /// Bounds the files of a store whose limit is in bytes and not kept strictly; those of any other store are not bounded.
    pub(super) fn follow(&self, ceiling: u64) {
        // A ratio is of what is only estimated. A volume has a ceiling of its own.
        self.meter.set_ceiling(match self.own {
            Some(SpaceLimit::Bytes(own)) => without_edits(ceiling.max(own)),
            _ => u64::MAX,
        });
    }

    /// The ceiling of a store that keeps to its limit strictly ([`super::Terms::is_strict`]), and of any store while its logs begin.
    ///
    /// Found above that, with a limit that was lowered or files that were let in ([`Ceiling::let_files_in`]), the store occupies no
    /// more than it does, and less with each file that goes.
    pub fn bound_files(&self) {
        self.bound_files_beside(0);
    }

    /// The same while so many bytes of files are still to be made that are never refused: those of open pages, of a log that is to begin.
    pub fn bound_files_beside(&self, unmade_bytes: u64) {
        let Some(SpaceLimit::Bytes(own)) = self.own else { return };
        let below = without_edits(own.min(self.bounds.limit_bytes())).saturating_sub(unmade_bytes);
        let most = self.meter.ceiling().min(self.meter.used_bytes());
        self.meter.set_ceiling(below.max(most));
    }

    /// The ceiling while what was recovered is flushed. It was admitted when it was logged, so nothing is refused; but a guest's trims may have
    /// taken the room: beside one a store that is found below the limit stays below it.
    pub fn bound_recovery(&self, beside_guest: bool) {
        match self.own {
            Some(SpaceLimit::Bytes(own)) if beside_guest && self.meter.used_bytes() <= own => {
                self.bound_files()
            }
            _ => self.let_files_in(),
        }
    }

    /// Refuses no file until [`Ceiling::bound_files`]: a store is opened whatever it occupies, or nobody could free anything.
    pub fn let_files_in(&self) {
        self.meter.set_ceiling(u64::MAX);
    }

    /// The last process of this store had this ceiling ([`Ceiling::to_tell`]): it does not rise because the store is opened again.
    /// A guest's trims may have taken all of the reserve at the limit, so what is needed beside the files does not say that a limit was
    /// lowered. Of a store whose files are above the ceiling nothing is believed: somebody let them in.
    pub fn take(&self, bytes: u64) {
        if self.meter.used_bytes() <= bytes {
            self.bounds.lower_ceiling(bytes);
        }
    }

    /// What the next process is to know of the ceiling, beside the one that it would read now; `None`: nothing else. With a limit that somebody
    /// set in bytes the ceiling is that or above, and `u64::MAX` without.
    pub fn to_tell(&self, told: u64) -> Option<u64> {
        let ceiling = match self.own {
            Some(SpaceLimit::Bytes(own)) => self.bounds.ceiling_bytes().max(own),
            _ => u64::MAX,
        };
        (ceiling != told).then_some(ceiling)
    }

    /// True as long as the ceiling is above the limit that somebody set.
    pub fn is_above_limit(&self) -> bool {
        let ceiling = self.bounds.ceiling_bytes();
        matches!(self.own, Some(SpaceLimit::Bytes(own)) if ceiling > own)
    }
}
