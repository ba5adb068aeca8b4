//! Keys without a base for merge operands: their value, or a part of a table that may have had it, is
//! lost. Operands alone would be a wrong value, so they are left out up to the next put or delete of
//! the key. The report tells the losses.

use super::report::LostRange;
use std::collections::BTreeSet;
use version::FamilyId;

/// A range of lost keys: from the first key up to the second one; `None`: all from the first on.
#[derive(Clone, Debug)]
struct LostKeys {
    family: FamilyId,
    start: Vec<u8>,
    end: Option<Vec<u8>>,
}

impl LostKeys {
    fn has(&self, family: FamilyId, key: &[u8]) -> bool {
        self.family == family && *self.start <= *key && self.end.as_deref().is_none_or(|end| key < end)
    }
}

/// The keys without a base: see the module. Only families that may have operands count.
#[derive(Debug, Default)]
pub(super) struct LostBases {
    families: BTreeSet<FamilyId>,
    keys: BTreeSet<(FamilyId, Vec<u8>)>,
    ranges: Vec<LostKeys>,
    /// Keys of the ranges that later changes have made whole.
    whole: BTreeSet<(FamilyId, Vec<u8>)>,
}

impl LostBases {
    /// `families`: those that may have operands. `lost`: the losses that are known already.
    pub fn new(families: BTreeSet<FamilyId>, lost: &[LostRange]) -> LostBases {
        let mut bases = LostBases { families, ..LostBases::default() };
        for range in lost.iter().filter(|lost| lost.sequences.is_none() && !lost.only_come_back) {
            let of_range: Vec<FamilyId> = match range.family {
                Some(family) => vec![family],
                None => bases.families.iter().copied().collect(),
            };
            for family in of_range {
                bases.lose_range(family, range.from.as_deref().unwrap_or_default(), range.to.as_deref());
            }
        }
        bases
    }

    /// Adds a key.
    pub fn lose(&mut self, family: FamilyId, key: &[u8]) {
        if self.families.contains(&family) {
            self.whole.remove(&(family, key.to_vec()));
            self.keys.insert((family, key.to_vec()));
        }
    }

    /// Adds all keys between two keys, both included; `None`: all from the first on.
    pub fn lose_range(&mut self, family: FamilyId, from: &[u8], to: Option<&[u8]>) {
        if self.families.contains(&family) {
            let end = to.map(|to| [to, &[0]].concat());
            self.ranges.push(LostKeys { family, start: from.to_vec(), end });
        }
    }

    /// Returns true if a key has no base for operands.
    pub fn concerns(&self, family: FamilyId, key: &[u8]) -> bool {
        if !self.families.contains(&family) {
            return false;
        }
        let at = (family, key.to_vec());
        self.keys.contains(&at)
            || self.ranges.iter().any(|range| range.has(family, key)) && !self.whole.contains(&at)
    }

    /// A later change has set or deleted a key.
    pub fn is_whole(&mut self, family: FamilyId, key: &[u8]) {
        if self.concerns(family, key) {
            self.keys.remove(&(family, key.to_vec()));
            self.whole.insert((family, key.to_vec()));
        }
    }

    /// A later change has deleted all keys from `start` up to `end`.
    pub fn is_deleted(&mut self, family: FamilyId, start: &[u8], end: &[u8]) {
        if !self.families.contains(&family) || start >= end {
            return;
        }
        let inside = self.keys.range((family, start.to_vec())..(family, end.to_vec()));
        let inside: Vec<(FamilyId, Vec<u8>)> = inside.cloned().collect();
        for key in &inside {
            self.keys.remove(key);
        }
        let mut left = Vec::new();
        for range in std::mem::take(&mut self.ranges) {
            let is_apart = range.family != family
                || range.end.as_deref().is_some_and(|own| own <= start)
                || end <= &*range.start;
            if is_apart {
                left.push(range);
                continue;
            }
            if *range.start < *start {
                left.push(LostKeys { end: Some(start.to_vec()), ..range.clone() });
            }
            if range.end.as_deref().is_none_or(|own| end < own) {
                left.push(LostKeys { start: end.to_vec(), ..range });
            }
        }
        self.ranges = left;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Error;
    use io::Rng;

    fn told(family: Option<FamilyId>, from: Option<u8>, to: Option<u8>) -> LostRange {
        let (from, to) = (from.map(|key| vec![key]), to.map(|key| vec![key]));
        LostRange { family, from, to, ..LostRange::at(&Error::corruption("lost")) }
    }

    #[test]
    fn losses_and_later_changes_agree_with_a_list_of_keys() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let from = rng.below(30) as u8;
            let first = told(Some(1), Some(from), rng.one_in(2).then(|| from + rng.below(5) as u8));
            let mut bases = LostBases::new([1, 2].into(), std::slice::from_ref(&first));
            let lost_at_first = |key: u8| key >= from && first.to.as_ref().is_none_or(|to| key <= to[0]);
            let mut model: Vec<bool> = (0..40).map(lost_at_first).collect();
            for _ in 0..rng.below(20) {
                let (a, b) = (rng.below(40) as u8, rng.below(40) as u8);
                match rng.below(3) {
                    0 => {
                        bases.lose(1, &[a]);
                        model[usize::from(a)] = true;
                    }
                    1 => {
                        bases.is_whole(1, &[a]);
                        model[usize::from(a)] = false;
                    }
                    _ => {
                        bases.is_deleted(1, &[a], &[b]);
                        (a..b).for_each(|key| model[usize::from(key)] = false);
                    }
                }
            }
            let found: Vec<bool> = (0..40).map(|key| bases.concerns(1, &[key])).collect();
            assert_eq!(found, model, "seed {seed}");
            assert!((0..40).all(|key| !bases.concerns(2, &[key]) && !bases.concerns(3, &[key])));
        }
        let bases = LostBases::new([1, 2].into(), &[told(None, None, None)]);
        assert!(bases.concerns(1, b"") && bases.concerns(2, b"key") && !bases.concerns(3, b"key"));
    }
}
