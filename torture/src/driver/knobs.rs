//! Parameters of a run of the [`super::Driver`].

use crate::plan::{self, Data, pick};
use io::Rng;
use lavastore::Options;
use std::ops::Range;

/// Draws options.
pub(crate) type Draw = fn(&mut Rng) -> Options;

/// Parameters of a run.
#[derive(Clone, Debug)]
pub(crate) struct DriverParameters {
    pub steps: u64,
    /// Reads are made and compared with the model.
    pub reads: bool,
    /// The process is killed, which starts a new record.
    pub kills: bool,
    pub volatile: bool,
    pub families: bool,
    pub checkpoints: bool,
    pub reopen: bool,
    /// Calls may fail.
    pub faults: bool,
    pub first_number: u64,
    /// One in this many steps is a flush, compaction or similar.
    pub upkeep_one_in: u64,
    /// Generator of options.
    pub options: Draw,
}

impl DriverParameters {
    /// Returns the parameters and data of a store to be damaged afterwards. `plain` draws its
    /// options, or `churning` for a store with much garbage.
    pub fn to_damage(
        rng: &mut Rng,
        steps: Range<u64>,
        (plain, churning): (Draw, Draw),
    ) -> (DriverParameters, Data) {
        let churn = rng.one_in(2);
        let knobs = DriverParameters {
            steps: rng.range(steps.start, steps.end),
            reads: false,
            kills: false,
            volatile: false,
            families: rng.one_in(2),
            checkpoints: false,
            reopen: true,
            faults: false,
            first_number: 1,
            upkeep_one_in: pick(rng, &[4, 8, 20]),
            options: if churn { churning } else { plain },
        };
        (knobs, if churn { Data::churn(rng) } else { Data::small(rng) })
    }

    pub(super) fn draw_options(&self, rng: &mut Rng) -> Options {
        let drawn = (self.options)(rng).expert(|expert| expert.first_number = self.first_number);
        // Refusals for lack of space must be distinguishable from faults.
        if self.faults { plan::roomy(drawn) } else { drawn }
    }
}
