//! The definition of a row: a kind of case, and its required amount for every change.

use crate::case::{Context, Outcome};

/// Unit of a row's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Cases: one per seed.
    Cases,
    /// Checks; a case makes many.
    Checks,
    /// Distinct images of the volume.
    Images,
}

impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Unit::Cases => "cases",
            Unit::Checks => "checks",
            Unit::Images => "images",
        }
    }
}

/// Rows that sample few of very many cases in the profile `ci`, with their number of seeds.
const SAMPLED: &[(&str, u64)] = &[("kernel-faults", 4)];

/// A row.
pub(crate) struct Row {
    pub name: &'static str,
    pub about: &'static str,
    pub unit: Unit,
    /// Count in the profile `ci`.
    pub ci: u64,
    /// Cases use several threads or the real clock themselves, so they run one at a time.
    pub alone: bool,
    pub case: fn(&Context, u64) -> Outcome,
}

impl Row {
    /// Returns the first seed in the profile `ci`, that of the given sample for a sampled row.
    pub fn first_seed(&self, sample: u64) -> u64 {
        let seeds = SAMPLED.iter().find(|(name, _)| *name == self.name).map_or(0, |(_, seeds)| *seeds);
        1 + sample.saturating_mul(seeds)
    }
}
