//! Repeated measurements in *rounds* of all rows. Every other round runs them in the opposite
//! order, so that a slowing machine or a filling device favors none. Ratios are taken within a
//! round.

use crate::Result;
use crate::host::alone;
use std::collections::BTreeMap;
use std::path::Path;

/// Default number of rounds; a figure needs at least this many to be called a claim.
pub const ROUNDS: u64 = 3;

/// A figure of a run: JSON name, display name, and number of decimals.
pub type Figure<R> = (&'static str, &'static str, usize, fn(&R) -> Option<f64>);

/// Returns the execution order of the rows of a round.
fn order(round: u64, rows: usize) -> Vec<usize> {
    let rows = 0..rows;
    if round.is_multiple_of(2) { rows.collect() } else { rows.rev().collect() }
}

/// Runs the named rows for a number of rounds, each in a fresh directory below `dir`, and calls
/// `progress` before each run. Returns the reports of each row by round.
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

/// Returns the values of each row and figure by round; empty if a run lacks the figure.
pub fn values<R>(figures: &[Figure<R>], runs: &[Vec<R>]) -> Vec<Vec<Vec<f64>>> {
    let of = |runs: &[R], (_, _, _, get): &Figure<R>| runs.iter().map(get).collect::<Option<Vec<f64>>>();
    runs.iter().map(|runs| figures.iter().map(|f| of(runs, f).unwrap_or_default()).collect()).collect()
}

/// Collects the figures of a row by name; `of` maps the index of a figure to its value, or omits
/// it.
pub fn by_name<R, F>(figures: &[Figure<R>], of: impl Fn(usize) -> Option<F>) -> BTreeMap<String, F> {
    let named = |(number, (name, ..)): (usize, &Figure<R>)| Some(((*name).to_owned(), of(number)?));
    figures.iter().enumerate().filter_map(named).collect()
}
