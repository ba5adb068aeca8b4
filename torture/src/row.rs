//! What a row is: a kind of case, and how much of it every change has to pass.

use crate::case::{Context, Outcome};

/// What the count of a row counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Cases: one for each seed.
    Cases,
    /// Checks, of which a case makes many.
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

/// Rows that try a few of very many cases in the profile `ci`, and how many seeds they have for that.
const SAMPLED: &[(&str, u64)] = &[("kernel-faults", 4)];

/// A row.
pub(crate) struct Row {
    pub name: &'static str,
    pub about: &'static str,
    pub unit: Unit,
    /// The count in the profile `ci`.
    pub ci: u64,
    /// Cases use several threads themselves, or the real clock: one at a time.
    pub alone: bool,
    pub case: fn(&Context, u64) -> Outcome,
}

impl Row {
    /// The first seed in the profile `ci`: of the sample of this number, where the row tries one.
    pub fn first_seed(&self, sample: u64) -> u64 {
        let seeds = SAMPLED.iter().find(|(name, _)| *name == self.name).map_or(0, |(_, seeds)| *seeds);
        1 + sample.saturating_mul(seeds)
    }
}
