//! The spread of repeated measurements.

use serde::{Deserialize, Serialize};

/// Median, minimum and maximum of some figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median; for an even number, the mean of the two middle figures.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
}

impl Spread {
    /// Returns the spread of `figures`; `None` without any.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max, middle) = (*sorted.first()?, *sorted.last()?, sorted.len() / 2);
        let below = if sorted.len().is_multiple_of(2) { middle - 1 } else { middle };
        Some(Spread { median: (sorted[below] + sorted[middle]) / 2.0, min, max })
    }

    /// Returns the spread of the ratios of `above` to `below` by round; `None` if there is none.
    pub fn of_ratios(above: &[f64], below: &[f64]) -> Option<Spread> {
        Spread::of(
            above.iter().zip(below).filter(|(_, below)| **below > 0.0).map(|(above, below)| above / below),
        )
    }

    /// Formats the spread with a number of decimals.
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
