//! The summary of a comparison: for each figure and engine the median of its runs with the smallest and the largest; for
//! each engine after the first, the ratios of the first engine over it, pair by pair.

use super::{Figure, Runs};
use serde_json::{Value, json};

/// Width of a column.
const WIDTH: usize = 34;

/// Median, smallest and largest.
fn spread(mut values: Vec<f64>) -> Option<(f64, f64, f64)> {
    values.sort_by(f64::total_cmp);
    let (first, last) = (*values.first()?, *values.last()?);
    let middle = values.len() / 2;
    let median =
        if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
    Some((median, first, last))
}

/// The ratios of pairs; none where a figure is missing or zero below.
fn ratios(first: &[Option<f64>], other: &[Option<f64>]) -> Vec<f64> {
    let pairs = first.iter().zip(other).filter_map(|(a, b)| Some(((*a)?, (*b)?)));
    pairs.filter(|(_, b)| *b > 0.0).map(|(a, b)| a / b).collect()
}

fn row(name: &str, cells: &[String]) {
    let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:<WIDTH$}")).collect();
    println!("{name:<27} {}", cells.join(" ").trim_end());
}

/// Prints figures and ratios, and returns them.
pub(super) fn summarize(all: &[Runs], figures: &[Figure]) -> Value {
    let names: Vec<String> = all.iter().map(|r| r.engine.name()).collect();
    println!("median [min .. max]; x: {} over that engine, of each pair, the same way", names[0]);
    row("", &names);
    let mut summary = serde_json::Map::new();
    for (figure, get, show) in figures {
        let values: Vec<Vec<Option<f64>>> =
            all.iter().map(|runs| runs.reports.iter().map(get).collect()).collect();
        let mut cells = Vec::new();
        let mut ratio_cells = vec![String::new()];
        let mut found = serde_json::Map::new();
        for (at, name) in names.iter().enumerate() {
            let Some((median, min, max)) = spread(values[at].iter().flatten().copied().collect()) else {
                cells.push("-".to_owned());
                ratio_cells.push(String::new());
                continue;
            };
            cells.push(format!("{} [{} .. {}]", show(median), show(min), show(max)));
            let mut entry = json!({ "median": median, "min": min, "max": max });
            if at > 0 {
                let ratio = spread(ratios(&values[0], &values[at]));
                ratio_cells
                    .push(ratio.map_or(String::new(), |(m, a, b)| format!("x{m:.2} [{a:.2} .. {b:.2}]")));
                entry["ratio"] =
                    ratio.map_or(Value::Null, |(m, a, b)| json!({ "median": m, "min": a, "max": b }));
            }
            found.insert(name.clone(), entry);
        }
        if found.is_empty() {
            continue;
        }
        row(figure, &cells);
        if ratio_cells.iter().any(|cell| !cell.is_empty()) {
            row("", &ratio_cells);
        }
        summary.insert((*figure).to_owned(), found.into());
    }
    summary.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_samples_are_computed() {
        assert_eq!(spread(vec![]), None);
        assert_eq!(spread(vec![3.0, 1.0, 2.0]), Some((2.0, 1.0, 3.0)));
        assert_eq!(spread(vec![4.0, 1.0, 2.0, 3.0]), Some((2.5, 1.0, 4.0)));
    }

    #[test]
    fn ratios_are_computed_per_pair() {
        assert_eq!(ratios(&[Some(4.0), Some(9.0)], &[Some(2.0), Some(3.0)]), [2.0, 3.0]);
        assert!(ratios(&[None, Some(1.0)], &[Some(1.0), Some(0.0)]).is_empty());
    }
}
