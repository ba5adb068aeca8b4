//! The limit that the caller set. It may change while the store is open.
//!
//! One word, so that a reader sees the old limit or the new one and nothing in between: the kind in the two lowest bits, the
//! value above. A ratio loses the two lowest bits of its mantissa.

use super::SpaceLimit;
use base::sync::atomic::{AtomicU64, Ordering::Relaxed};

const BYTES: u64 = 1;
const RATIO: u64 = 2;
const KIND: u64 = 3;

/// See the module.
#[derive(Debug)]
pub(super) struct OwnLimit(AtomicU64);

impl OwnLimit {
    pub fn new(limit: Option<SpaceLimit>) -> OwnLimit {
        OwnLimit(AtomicU64::new(packed(limit)))
    }

    #[inline]
    pub fn get(&self) -> Option<SpaceLimit> {
        let word = self.0.load(Relaxed);
        match word & KIND {
            BYTES => Some(SpaceLimit::Bytes(word >> 2)),
            RATIO => Some(SpaceLimit::Ratio(f64::from_bits(word & !KIND))),
            _ => None,
        }
    }

    pub fn set(&self, limit: Option<SpaceLimit>) {
        self.0.store(packed(limit), Relaxed);
    }
}

fn packed(limit: Option<SpaceLimit>) -> u64 {
    match limit {
        None => 0,
        Some(SpaceLimit::Bytes(bytes)) => bytes.min(u64::MAX >> 2) << 2 | BYTES,
        Some(SpaceLimit::Ratio(ratio)) => ratio.to_bits() & !KIND | RATIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_the_one_that_was_set() {
        let limits = [
            None,
            Some(SpaceLimit::Bytes(0)),
            Some(SpaceLimit::Bytes(4 << 30)),
            Some(SpaceLimit::Ratio(1.5)),
        ];
        let own = OwnLimit::new(None);
        for limit in limits {
            own.set(limit);
            assert_eq!(own.get(), limit);
            assert_eq!(OwnLimit::new(limit).get(), limit);
        }
        own.set(Some(SpaceLimit::Ratio(1.1)));
        assert!(matches!(own.get(), Some(SpaceLimit::Ratio(ratio)) if (ratio - 1.1).abs() < 1e-12));
    }
}
