//! The configured limit, which may change while the store is open.
//!
//! It is one word, so that a reader sees the old limit or the new one and nothing in between. The
//! kind is in the two lowest bits, the value above. A ratio loses the two lowest bits of its
//! mantissa.

use super::SpaceLimit;
use super::volume::VolumeFill;
use base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

const BYTES: u64 = 1;
const RATIO: u64 = 2;
const PERCENT: u64 = 3;
const KIND: u64 = 3;

/// The configured limit: see the module.
#[derive(Debug)]
pub(super) struct OwnLimit {
    word: AtomicU64,
    volume: Arc<VolumeFill>,
}

impl OwnLimit {
    pub fn new(limit: Option<SpaceLimit>, volume: &Arc<VolumeFill>) -> OwnLimit {
        OwnLimit { word: AtomicU64::new(packed(limit)), volume: volume.clone() }
    }

    #[inline]
    pub fn get(&self) -> Option<SpaceLimit> {
        let word = self.word.load(Relaxed);
        match word & KIND {
            BYTES => Some(SpaceLimit::Bytes(word >> 2)),
            RATIO => Some(SpaceLimit::Ratio(f64::from_bits(word & !KIND))),
            PERCENT => Some(SpaceLimit::VolumePercent((word >> 2) as u8)),
            _ => None,
        }
    }

    /// Returns the limit in bytes, unless it is a ratio, or a percentage of a volume of unknown
    /// size.
    pub fn bytes(&self) -> Option<u64> {
        match self.get()? {
            SpaceLimit::Bytes(bytes) => Some(bytes),
            SpaceLimit::Ratio(_) => None,
            SpaceLimit::VolumePercent(percent) => {
                let (_, total) = self.volume.fill();
                (total > 0).then(|| SpaceLimit::percent_of(percent, total))
            }
        }
    }

    pub fn set(&self, limit: Option<SpaceLimit>) {
        self.word.store(packed(limit), Relaxed);
    }
}

fn packed(limit: Option<SpaceLimit>) -> u64 {
    match limit {
        None => 0,
        Some(SpaceLimit::Bytes(bytes)) => bytes.min(u64::MAX >> 2) << 2 | BYTES,
        Some(SpaceLimit::Ratio(ratio)) => ratio.to_bits() & !KIND | RATIO,
        Some(SpaceLimit::VolumePercent(percent)) => u64::from(percent) << 2 | PERCENT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_round_trip_through_their_packed_form() {
        let limits = [
            None,
            Some(SpaceLimit::Bytes(0)),
            Some(SpaceLimit::Bytes(4 << 30)),
            Some(SpaceLimit::Ratio(1.5)),
            Some(SpaceLimit::VolumePercent(80)),
        ];
        let volume = Arc::new(VolumeFill::unknown());
        let own = OwnLimit::new(None, &volume);
        for limit in limits {
            own.set(limit);
            assert_eq!(own.get(), limit);
            assert_eq!(OwnLimit::new(limit, &volume).get(), limit);
        }
        own.set(Some(SpaceLimit::Ratio(1.1)));
        assert!(matches!(own.get(), Some(SpaceLimit::Ratio(ratio)) if (ratio - 1.1).abs() < 1e-12));
    }
}
