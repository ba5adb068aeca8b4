//! Rows that are measured again and again: a *round* runs all of them, and every other round in the opposite order, so that a
//! machine that becomes slower or a device that fills up favours none. Ratios are taken within a round.

use crate::Result;
use crate::host::alone;
use std::collections::BTreeMap;
use std::path::Path;

/// Rounds, unless told otherwise; from so many on a figure may be called a claim.
pub const ROUNDS: u64 = 3;

/// A figure of a run: how JSON calls it, how people do, and its digits behind the point.
pub type Figure<R> = (&'static str, &'static str, usize, fn(&R) -> Option<f64>);

/// The rows of one round, in the order in which they run.
fn order(round: u64, rows: usize) -> Vec<usize> {
    let rows = 0..rows;
    if round.is_multiple_of(2) { rows.collect() } else { rows.rev().collect() }
}

/// Runs the rows of these names so often, each time in a fresh directory below `dir`, and tells `progress` before each: the reports of
/// each row, round by round.
pub fn runs<R>(
    names: &[String],
    rounds: u64,
    dir: &Path,
    progress: &dyn Fn(&str),
    run: impl Fn(usize, &Path) -> Result<R>,
) -> Result<Vec<Vec<R>>> {
    let mut runs: Vec<Vec<R>> = names.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for at in order(round, names.len()) {
            progress(&format!("round {} of {rounds}: {}", round + 1, names[at]));
            runs[at].push(alone(&dir.join(format!("{round}-{at}")), |dir| run(at, dir))?);
        }
    }
    Ok(runs)
}

/// Of each row, of each figure, the values round by round; none where a run has none.
pub fn values<R>(figures: &[Figure<R>], runs: &[Vec<R>]) -> Vec<Vec<Vec<f64>>> {
    let of = |runs: &[R], (_, _, _, get): &Figure<R>| runs.iter().map(get).collect::<Option<Vec<f64>>>();
    runs.iter().map(|runs| figures.iter().map(|f| of(runs, f).unwrap_or_default()).collect()).collect()
}

/// What a row has of each figure, by name; `of` gets the number of the figure, and what it has nothing of is left out.
pub fn by_name<R, F>(figures: &[Figure<R>], of: impl Fn(usize) -> Option<F>) -> BTreeMap<String, F> {
    let named = |(number, (name, ..)): (usize, &Figure<R>)| Some(((*name).to_owned(), of(number)?));
    figures.iter().enumerate().filter_map(named).collect()
}
