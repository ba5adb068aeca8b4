//! Counts of the tables of a level on each of two tiers, by part of the level.
//!
//! A level may belong on the fast tier completely, in part, or not at all. [`spread`] maps the
//! number of a table to one of a thousand places, and the places below a limit belong on the fast
//! tier. The level counts its tables by quarter of the places and by tier, so it knows whether
//! tables are misplaced without visiting them. The answer is exact if the limit is between two
//! quarters; otherwise it may be too high, never too low.

use crate::meta::FileMeta;
use store::volumes::Volume;

/// Number of places over which tables are spread.
pub const PLACES: u32 = 1000;
const QUARTERS: usize = 4;

/// Returns the place of a table with this number, below [`PLACES`]. Consecutive numbers are spread
/// evenly.
pub fn spread(number: u64) -> u32 {
    (((number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) * u64::from(PLACES)) >> 32) as u32
}

/// Counts of tables by quarter and tier: see the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// For each quarter: tables in the directory, and on the fast tier.
    quarters: [[u128; 2]; QUARTERS],
}

impl Placed {
    pub(crate) fn of(file: &FileMeta) -> Placed {
        let mut quarters = [[0; 2]; QUARTERS];
        let quarter = spread(file.number) as usize * QUARTERS / PLACES as usize;
        quarters[quarter][usize::from(file.volume == Volume::FAST)] = 1;
        Placed { quarters }
    }

    pub(crate) fn changed(self, other: &Placed, by: fn(u128, u128) -> u128) -> Placed {
        let disk = |q: usize, d: usize| by(self.quarters[q][d], other.quarters[q][d]);
        Placed { quarters: std::array::from_fn(|q| std::array::from_fn(|d| disk(q, d))) }
    }

    /// Returns upper bounds of the misplaced tables in both directions, if the first `places`
    /// places of the level belong on the fast tier.
    pub fn misplaced(&self, places: u32) -> Misplaced {
        let quarter = PLACES / QUARTERS as u32;
        let mut out = Misplaced::default();
        for (from, [in_directory, on_speed]) in (0..).step_by(quarter as usize).zip(self.quarters) {
            if places > from {
                out.to_go_up += in_directory;
            }
            if places < from + quarter {
                out.to_go_down += on_speed;
            }
        }
        out
    }
}

/// Upper bounds of the misplaced tables of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misplaced {
    /// Tables in the directory that belong on the fast tier.
    pub to_go_up: u128,
    /// Tables on the fast tier that belong in the directory.
    pub to_go_down: u128,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::Level;
    use base::key::{self, ValueKind};
    use std::sync::Arc;

    fn table(number: u64, on_speed: bool) -> Arc<FileMeta> {
        let volume = if on_speed { Volume::FAST } else { Volume::DIRECTORY };
        let smallest = key::encode(format!("{number:06}").as_bytes(), 9, ValueKind::Value);
        Arc::new(FileMeta { number, volume, smallest, ..FileMeta::default() })
    }

    #[test]
    fn placement_counts_equal_a_full_walk() {
        let files: Vec<_> = (1..700).map(|number| table(number, number % 3 == 0)).collect();
        let level = Level::from(files.clone());
        for places in (0..=PLACES).step_by(50) {
            let belongs = |file: &&Arc<FileMeta>| spread(file.number) < places;
            let on_speed = |file: &&Arc<FileMeta>| file.volume == Volume::FAST;
            let up = files.iter().filter(|f| belongs(f) && !on_speed(f)).count() as u128;
            let down = files.iter().filter(|f| !belongs(f) && on_speed(f)).count() as u128;
            let Misplaced { to_go_up, to_go_down } = level.sums().placed.misplaced(places);
            match places % 250 {
                0 => assert_eq!((to_go_up, to_go_down), (up, down), "{places}"),
                _ => assert!(to_go_up >= up && to_go_down >= down, "{places}"),
            }
        }
        assert!((0..10_000).chain([u64::MAX]).all(|number| spread(number) < PLACES));
    }

    #[test]
    fn an_edit_updates_the_placement_counts() {
        let all: Vec<_> = (1..400).map(|number| table(number, number % 3 == 0)).collect();
        let (first, rest) = all.split_at(200);
        // Some tables are removed, some are added, and some return on the other tier.
        let (gone, moved) = (&first[10..60], &first[100..150]);
        let back: Vec<_> = moved.iter().map(|file| table(file.number, file.volume != Volume::FAST)).collect();
        let (removed, added) = ([gone, moved].concat(), [rest, &back].concat());
        let edited = Level::from(first.to_vec()).edited(&removed, &added);
        let anew = Level::from(edited.to_vec());
        assert_eq!(edited.sums(), anew.sums());
        assert_ne!(edited.sums().placed, Level::from(first.to_vec()).sums().placed);
    }
}
