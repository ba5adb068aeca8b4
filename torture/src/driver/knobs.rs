//! What a run of the [`super::Driver`] does, and what not.

use crate::plan::{self, Data, pick};
use io::Rng;
use lavastore::Options;
use std::ops::Range;

/// Draws options.
pub(crate) type Draw = fn(&mut Rng) -> Options;

/// What a run does.
#[derive(Clone, Debug)]
pub(crate) struct Knobs {
    pub steps: u64,
    /// Read, and compare with the model.
    pub reads: bool,
    /// Kill the process (which starts a new record).
    pub kills: bool,
    pub volatile: bool,
    pub families: bool,
    pub checkpoints: bool,
    pub reopen: bool,
    /// Calls may fail.
    pub faults: bool,
    pub first_number: u64,
    /// One in so many steps is a flush, compaction or the like.
    pub upkeep_one_in: u64,
    /// Options are drawn by this.
    pub options: Draw,
}

impl Knobs {
    /// For a store whose files are damaged when it is done, of so many steps; and its data. Its options are drawn by `plain`,
    /// or for a store with much garbage by `churning`.
    pub fn to_damage(rng: &mut Rng, steps: Range<u64>, (plain, churning): (Draw, Draw)) -> (Knobs, Data) {
        let churn = rng.one_in(2);
        let knobs = Knobs {
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
        // Refusals for want of space are to be told from faults.
        if self.faults { plan::roomy(drawn) } else { drawn }
    }
}
