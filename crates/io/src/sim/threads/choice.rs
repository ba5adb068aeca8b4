//! Choice of the next thread at a scheduling point.
//!
//! The seed chooses between two methods. **Random**: the present thread continues, or with some
//! probability any other one. **Priorities**: the ready thread with the highest priority runs.
//! Priorities are drawn when a thread starts, and at a few points of the run the running thread
//! falls behind all others (probabilistic concurrency testing, after Burckhardt and others, 2010).
//! The first finds bugs that need many switches. The second finds those that need one thread to
//! stay away for long at the wrong moment.

use crate::Rng;

/// Method of choosing the next thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// At one point in `one_in`, any thread; otherwise the running one.
    Random {
        /// Points for each switch, on average; at least 1.
        one_in: u64,
    },
    /// The highest priority runs; the running thread loses its priority at `changes` of `steps`
    /// points, on average.
    Priorities {
        /// Losses of priority.
        changes: u64,
        /// Points over which they are spread.
        steps: u64,
    },
}

/// Points that one thread may pass while others are ready, before another one must run: a polling
/// thread must not starve the one it polls for.
const PATIENCE_STEPS: u64 = 20_000;

pub(super) struct Chooser {
    rng: Rng,
    choice: Choice,
    /// Priority of each thread; higher runs first.
    priorities: Vec<u64>,
    /// The next priority below all others.
    lowest: u64,
    /// Points that the running thread has passed since it got the baton.
    alone: u64,
    /// Probability at each point, one in this many, that a wait ends early; 0: none.
    early_one_in: u64,
}

impl Choice {
    /// Draws one of the methods of campaigns.
    pub fn drawn(rng: &mut Rng) -> Choice {
        match rng.below(2) {
            0 => Choice::Random { one_in: [1, 2, 8, 40][rng.below(4) as usize] },
            _ => Choice::Priorities { changes: 1, steps: 10 * 3u64.pow(rng.below(7) as u32) },
        }
    }
}

impl Chooser {
    pub fn new(seed: u64, choice: Option<Choice>) -> Chooser {
        let mut rng = Rng::new(seed ^ 0x7c4ed);
        let drawn = Choice::drawn(&mut rng);
        let early_one_in = [0, 0, 3_000, 300][rng.below(4) as usize];
        Chooser {
            rng,
            choice: choice.unwrap_or(drawn),
            priorities: Vec::new(),
            lowest: 1 << 32,
            alone: 0,
            early_one_in,
        }
    }

    /// Adds a thread.
    pub fn add(&mut self) {
        let priority = self.rng.range(1 << 33, 1 << 40);
        self.priorities.push(priority);
    }

    /// Returns true if one of the `sleeping` waits ends early now.
    pub fn wakes_early(&mut self, sleeping: usize) -> bool {
        self.early_one_in > 0 && sleeping > 0 && self.rng.one_in(self.early_one_in)
    }

    /// Returns a random number below `of`.
    pub fn any(&mut self, of: usize) -> usize {
        self.rng.below(of as u64) as usize
    }

    /// Returns one of `ready`, which is not empty.
    pub fn choose(&mut self, me: usize, ready: &[usize]) -> usize {
        let can_stay = ready.contains(&me);
        self.alone += 1;
        let tired = self.alone > PATIENCE_STEPS;
        let next = match self.choice {
            Choice::Random { one_in } if can_stay && !tired && !self.rng.one_in(one_in) => me,
            Choice::Random { .. } => ready[self.any(ready.len())],
            Choice::Priorities { changes, steps } => {
                if tired || self.rng.below(steps) < changes {
                    self.lowest -= 1;
                    self.priorities[me] = self.lowest;
                }
                ready.iter().copied().max_by_key(|&i| self.priorities[i]).unwrap_or(me)
            }
        };
        if next != me || tired {
            self.alone = 0;
        }
        next
    }
}
