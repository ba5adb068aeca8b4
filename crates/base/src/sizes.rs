//! Sizes of many things, counted in classes: enough to bound how many bytes any of them have together.
//!
//! A class spans an eighth of a power of two. It knows how many sizes it has and their sum, so the sum of the `n`
//! largest sizes is bounded from above to within an eighth, and exactly where whole classes are taken.

/// The sizes of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Class {
    number: u16,
    count: u64,
    bytes: u64,
}

impl Class {
    /// The smallest size of a class.
    fn low(number: u16) -> u64 {
        match number {
            0..8 => number.into(),
            _ => (8 + u64::from(number % 8)) << (number / 8 - 1).min(60),
        }
    }

    /// An upper bound of what `count` of its sizes sum to.
    fn most(&self, count: u64) -> u64 {
        if count >= self.count {
            return self.bytes;
        }
        let largest = Class::low(self.number + 1).saturating_sub(1);
        let rest = (self.count - count).saturating_mul(Class::low(self.number));
        count.saturating_mul(largest).min(self.bytes.saturating_sub(rest))
    }
}

fn class_of(size: u64) -> u16 {
    match size {
        0..8 => size as u16,
        _ => {
            let exponent = size.ilog2();
            ((exponent - 2) * 8) as u16 + (size >> (exponent - 3) & 7) as u16
        }
    }
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SizeClasses(Vec<Class>);

impl SizeClasses {
    /// Adds a size.
    #[inline]
    pub fn add(&mut self, size: u64) {
        self.add_class(Class { number: class_of(size), count: 1, bytes: size });
    }

    #[inline]
    fn add_class(&mut self, class: Class) {
        let at = self.0.partition_point(|known| known.number < class.number);
        match self.0.get_mut(at) {
            Some(known) if known.number == class.number => {
                known.count = known.count.saturating_add(class.count);
                known.bytes = known.bytes.saturating_add(class.bytes);
            }
            _ => self.0.insert(at, class),
        }
    }

    /// Adds all sizes of `other`.
    pub fn merge(&mut self, other: &SizeClasses) {
        other.0.iter().for_each(|class| self.add_class(*class));
    }

    /// The sum of all sizes.
    pub fn bytes(&self) -> u64 {
        self.0.iter().fold(0, |sum, class| sum.saturating_add(class.bytes))
    }

    /// An upper bound of what any `count` of the sizes sum to.
    pub fn largest(&self, count: u64) -> u64 {
        let (mut left, mut sum) = (count, 0u64);
        for class in self.0.iter().rev() {
            sum = sum.saturating_add(class.most(left));
            left = left.saturating_sub(class.count);
            if left == 0 {
                break;
            }
        }
        sum
    }
}

/// What is known of the entries of a table beyond what the manifest says: in memory only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableNotes {
    /// Distinct user keys. Every other entry is an older version of one of them.
    pub keys: u64,
    /// Bytes of the records that its references lead to.
    pub records: SizeClasses,
    /// Bytes of key and value, uncompressed, of all entries but tombstones.
    pub values: SizeClasses,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_cover_all_sizes_in_order() {
        let sizes = (0..4096).chain([u64::from(u32::MAX), 1 << 40, (1 << 56) + 12345, u64::MAX]);
        for size in sizes {
            let class = class_of(size);
            assert!(Class::low(class) <= size, "{size} in {class}");
            assert!(size >= 1 << 61 || size < Class::low(class + 1), "{size} in {class}");
        }
    }

    #[test]
    fn the_largest_are_bounded_from_above_to_an_eighth() {
        // Sizes of all magnitudes, by a generator of Knuth.
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state >> 33
        };
        for _ in 0..200 {
            let count = 1 + next() % 200;
            let shift = next() % 24;
            let mut sizes: Vec<u64> = (0..count).map(|_| next() >> (shift + next() % 6)).collect();
            let (mut classes, mut other) = (SizeClasses::default(), SizeClasses::default());
            for (nth, size) in sizes.iter().enumerate() {
                if nth % 3 == 0 { other.add(*size) } else { classes.add(*size) }
            }
            classes.merge(&other);
            sizes.sort_unstable_by_key(|size| std::cmp::Reverse(*size));
            assert_eq!(classes.bytes(), sizes.iter().sum::<u64>());
            assert_eq!((classes.largest(0), classes.largest(count + 5)), (0, classes.bytes()));
            for taken in 1..=count {
                let exact: u64 = sizes[..taken as usize].iter().sum();
                let bound = classes.largest(taken);
                assert!(bound >= exact && bound <= exact + exact / 8 + taken, "{bound} for {exact}");
            }
        }
    }
}
