//! How many tables of a level lie on which of two disks, by the part of the level that they are in.
//!
//! A level may belong on the speed disk whole, in part, or not at all. Which tables are in the part their numbers say: [`spread`] gives each a place
//! among a thousand, and those below the part belong there. So the level counts its tables by the quarter that they are in and by disk, and
//! whether some are where they do not belong is answered without a look at each of them, where the part ends between two quarters;
//! elsewhere the answer may be of more tables than there are, never of fewer.

use crate::meta::FileMeta;
use store::volumes::Volume;

/// Places that tables are spread over.
pub const PLACES: u32 = 1000;
const QUARTERS: usize = 4;

/// The place of a table of this number, below [`PLACES`]. Numbers that follow each other are spread evenly.
pub fn spread(number: u64) -> u32 {
    (((number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) * u64::from(PLACES)) >> 32) as u32
}

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// Of each quarter: in the directory, on the speed disk.
    quarters: [[u128; 2]; QUARTERS],
}

impl Placed {
    pub(crate) fn of(file: &FileMeta) -> Placed {
        let mut quarters = [[0; 2]; QUARTERS];
        let quarter = spread(file.number) as usize * QUARTERS / PLACES as usize;
        quarters[quarter][usize::from(file.volume == Volume::SPEED)] = 1;
        Placed { quarters }
    }

    pub(crate) fn changed(self, other: &Placed, by: fn(u128, u128) -> u128) -> Placed {
        let disk = |q: usize, d: usize| by(self.quarters[q][d], other.quarters[q][d]);
        Placed { quarters: std::array::from_fn(|q| std::array::from_fn(|d| disk(q, d))) }
    }

    /// Tables that are on the speed disk, and of those in the directory that are not: how many at most, if so many places of the level belong on the speed
    /// disk.
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

/// Tables of a level that are not where they belong, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misplaced {
    /// In the directory, and belong on the speed disk.
    pub to_go_up: u128,
    /// The other way round.
    pub to_go_down: u128,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::Level;
    use base::key::{self, ValueKind};
    use std::sync::Arc;

    fn table(number: u64, on_speed: bool) -> Arc<FileMeta> {
        let volume = if on_speed { Volume::SPEED } else { Volume::DIRECTORY };
        let smallest = key::encode(format!("{number:06}").as_bytes(), 9, ValueKind::Value);
        Arc::new(FileMeta { number, volume, smallest, ..FileMeta::default() })
    }

    #[test]
    fn the_counts_are_what_a_walk_finds() {
        let files: Vec<_> = (1..700).map(|number| table(number, number % 3 == 0)).collect();
        let level = Level::from(files.clone());
        for places in (0..=PLACES).step_by(50) {
            let belongs = |file: &&Arc<FileMeta>| spread(file.number) < places;
            let on_speed = |file: &&Arc<FileMeta>| file.volume == Volume::SPEED;
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
    fn an_edit_carries_the_counts_along() {
        let all: Vec<_> = (1..400).map(|number| table(number, number % 3 == 0)).collect();
        let (first, rest) = all.split_at(200);
        // Some go, some come, and some come back on the other disk.
        let (gone, moved) = (&first[10..60], &first[100..150]);
        let back: Vec<_> =
            moved.iter().map(|file| table(file.number, file.volume != Volume::SPEED)).collect();
        let (removed, added) = ([gone, moved].concat(), [rest, &back].concat());
        let edited = Level::from(first.to_vec()).edited(&removed, &added);
        let anew = Level::from(edited.to_vec());
        assert_eq!(edited.sums(), anew.sums());
        assert_ne!(edited.sums().placed, Level::from(first.to_vec()).sums().placed);
    }
}
