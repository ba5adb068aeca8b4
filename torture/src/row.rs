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
