//! What several runs of the same came to.

use serde::{Deserialize, Serialize};

/// Median, smallest and largest of some figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median; of an even number the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of `figures`; nothing of none.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max, middle) = (*sorted.first()?, *sorted.last()?, sorted.len() / 2);
        let below = if sorted.len().is_multiple_of(2) { middle - 1 } else { middle };
        Some(Spread { median: (sorted[below] + sorted[middle]) / 2.0, min, max })
    }

    /// Of the ratios of each of `above` to the one of `below` from the same round; nothing where nothing can be divided.
    pub fn of_ratios(above: &[f64], below: &[f64]) -> Option<Spread> {
        Spread::of(
            above.iter().zip(below).filter(|(_, below)| **below > 0.0).map(|(above, below)| above / below),
        )
    }

    /// For people, with so many digits behind the point.
    pub fn text(&self, digits: usize) -> String {
        format!("{:.digits$} [{:.digits$} .. {:.digits$}]", self.median, self.min, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_lie_between_the_smallest_and_the_largest() {
        let spread = |median, min, max| Some(Spread { median, min, max });
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), spread(2.0, 1.0, 3.0));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]), spread(2.5, 1.0, 4.0));
        assert_eq!(Spread::of_ratios(&[2.0, 9.0, 5.0], &[1.0, 3.0, 0.0]), spread(2.5, 2.0, 3.0));
        assert_eq!(spread(2.5, 1.0, 4.0).unwrap().text(1), "2.5 [1.0 .. 4.0]");
    }
}
