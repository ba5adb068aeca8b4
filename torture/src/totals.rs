//! Accumulated results of the cases of a run.

use crate::case::Outcome;
use crate::row::Unit;
use crate::wide::{self, Image};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(crate) struct Totals {
    pub passed: u64,
    pub failed: u64,
    pub cases: u64,
    images: BTreeSet<u64>,
    /// Images with more than one logger.
    wide: BTreeSet<u64>,
    pub failures: Vec<(u64, String)>,
    pub notes: BTreeMap<&'static str, u64>,
    /// Skipped amounts by reason.
    pub skipped: BTreeMap<String, u64>,
}

impl Totals {
    /// Returns the total skipped amount.
    pub fn skipped(&self) -> u64 {
        self.skipped.values().sum()
    }

    pub fn done(&self, unit: Unit) -> u64 {
        match unit {
            Unit::Images => self.images.len() as u64,
            Unit::Checks => self.passed + self.failed,
            Unit::Cases => self.cases,
        }
    }

    /// Adds the results of a seed's case.
    pub fn add(&mut self, unit: Unit, seed: u64, outcome: Outcome) {
        self.cases += 1;
        self.failed += outcome.failures.len() as u64;
        let before = self.images.len();
        self.wide.extend(outcome.images.iter().filter(|image| image.is_wide).map(|image| image.hash));
        self.images.extend(outcome.images.iter().map(|Image { hash, .. }| *hash));
        if !self.wide.is_empty() {
            self.notes.insert(wide::IMAGES, self.wide.len() as u64);
        }
        self.passed += match unit {
            Unit::Images => (self.images.len() - before).saturating_sub(outcome.failures.len()) as u64,
            _ => outcome.passed,
        };
        for (what, count) in outcome.notes {
            *self.notes.entry(what).or_default() += count;
        }
        if let Some((why, count)) = outcome.skipped {
            *self.skipped.entry(why).or_default() += count;
        }
        self.failures.extend(outcome.failures.into_iter().map(|why| (seed, why)));
    }
}
