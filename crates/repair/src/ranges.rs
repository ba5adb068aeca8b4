//! An interval tree over a sorted list: finds the key ranges that contain a key.
//!
//! The ranges are sorted by first key. Each part of the list is a tree: its middle is the root, and
//! the parts before and after the middle are the branches. Each root records the range of its part
//! with the largest last key. A lookup visits only parts that may contain the key. With `n` ranges
//! of which `k` contain the key, a lookup visits about `(k + 1) * log n` of them.

/// Interval tree over key ranges: see the module.
#[derive(Debug)]
pub(super) struct Ranges<'a, T> {
    ranges: Vec<Range<'a, T>>,
    /// For the middle of each part: the index of the range in that part with the largest last key.
    furthest: Vec<usize>,
}

#[derive(Debug)]
struct Range<'a, T> {
    first: &'a [u8],
    last: &'a [u8],
    what: T,
}

impl<'a, T> Ranges<'a, T> {
    /// Builds the tree from first keys, last keys (inclusive) and payloads.
    pub fn new(ranges: impl Iterator<Item = (&'a [u8], &'a [u8], T)>) -> Self {
        let mut ranges: Vec<Range<'a, T>> =
            ranges.map(|(first, last, what)| Range { first, last, what }).collect();
        ranges.sort_by_key(|range| range.first);
        let mut furthest: Vec<usize> = (0..ranges.len()).collect();
        link(&ranges, &mut furthest, 0, ranges.len());
        Ranges { ranges, furthest }
    }

    /// Returns true if `wanted` accepts a range that contains the key. The search ends at the first
    /// such range.
    pub fn any(&self, key: &[u8], mut wanted: impl FnMut(&T) -> bool) -> bool {
        self.any_of(0, self.ranges.len(), key, &mut wanted)
    }

    fn any_of(&self, from: usize, to: usize, key: &[u8], wanted: &mut impl FnMut(&T) -> bool) -> bool {
        let middle = from + (to - from) / 2;
        let Some((range, &furthest)) = self.ranges.get(middle).zip(self.furthest.get(middle)) else {
            return false;
        };
        if from == to || self.ranges.get(furthest).is_none_or(|furthest| furthest.last < key) {
            return false;
        }
        self.any_of(from, middle, key, wanted)
            || range.first <= key
                && (range.last >= key && wanted(&range.what) || self.any_of(middle + 1, to, key, wanted))
    }
}

/// Fills in `furthest` for a part and for all parts within it.
fn link<T>(ranges: &[Range<'_, T>], furthest: &mut [usize], from: usize, to: usize) -> Option<usize> {
    if from == to {
        return None;
    }
    let middle = from + (to - from) / 2;
    let branches = [link(ranges, furthest, from, middle), link(ranges, furthest, middle + 1, to)];
    let all = branches.into_iter().flatten().chain([middle]);
    let best = all.max_by_key(|&at| ranges.get(at).map(|range| range.last))?;
    *furthest.get_mut(middle)? = best;
    Some(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::Rng;

    #[test]
    fn range_lookup_finds_all_matches_with_few_probes() {
        let mut rng = Rng::new(1);
        for case in 0..200u64 {
            let count = rng.below(300);
            let longest = [1, 30, 3000][case as usize % 3];
            let owned: Vec<(Vec<u8>, Vec<u8>)> = (0..count)
                .map(|_| {
                    let first = rng.below(3000) as u32;
                    let last = first + rng.below(longest) as u32;
                    (first.to_be_bytes().to_vec(), last.to_be_bytes().to_vec())
                })
                .collect();
            let all = owned.iter().enumerate().map(|(i, (first, last))| (&first[..], &last[..], i));
            let ranges = Ranges::new(all.clone());
            for _ in 0..50 {
                let key = (rng.below(3100) as u32).to_be_bytes();
                let mut found = Vec::new();
                assert!(!ranges.any(&key, |i| {
                    found.push(*i);
                    false
                }));
                found.sort_unstable();
                let expected: Vec<usize> = all
                    .clone()
                    .filter(|(first, last, _)| *first <= &key[..] && &key[..] <= *last)
                    .map(|(_, _, i)| i)
                    .collect();
                assert_eq!(found, expected);
                let mut asked = 0;
                let stopped = ranges.any(&key, |_| {
                    asked += 1;
                    true
                });
                assert_eq!((stopped, asked), (!expected.is_empty(), usize::from(!expected.is_empty())));
            }
        }
    }

    /// A hundred thousand tables in seven sorted runs, as in a large store: a lookup visits a few
    /// of them.
    #[test]
    fn range_lookup_probes_few_of_a_hundred_thousand() {
        let owned: Vec<(Vec<u8>, Vec<u8>)> = (0..100_000u32)
            .map(|i| {
                let (run, at) = (i % 7, i / 7);
                ((at * 100 + run).to_be_bytes().to_vec(), (at * 100 + run + 99).to_be_bytes().to_vec())
            })
            .collect();
        let looked = std::cell::Cell::new(0u64);
        let ranges = Ranges::new(owned.iter().map(|(first, last)| (&first[..], &last[..], ())));
        let mut rng = Rng::new(2);
        for _ in 0..1000 {
            let key = (rng.below(1_400_000) as u32).to_be_bytes();
            assert!(!ranges.any(&key, |()| {
                looked.set(looked.get() + 1);
                false
            }));
        }
        assert!(looked.get() <= 1000 * 8, "{}", looked.get());
    }
}
