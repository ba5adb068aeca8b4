//! Which records of a file a store has already.
//!
//! Records are taken in windows. The keys of a window are sorted, and one walk of a cursor compares them with the
//! store. A file in the order of its keys costs one scan of the store, a file in another order one scan for each window. Within a window the
//! records of a key are followed in the order of the file: each is left out if the one before it, or the store, has its value.
//!
//! The walk has a budget of steps. Where the store is much larger than a window and the file in no order, a seek for each
//! record would cost many times the write: a record for which the budget does not suffice is written, as in a whole import,
//! which is always right.

use crate::Result;
use crate::formats::Record;
use lavastore::{Cursor, Family};

/// Bytes of a window, and bytes of a record in it beside key and value.
pub const WINDOW_LEN: usize = 32 << 20;
pub const RECORD_OVERHEAD: usize = 64;
/// Steps for the first records, and further ones for each record. A step is one entry; writing a record costs some three.
const STEPS_FIRST: u64 = 500_000;
const STEPS_PER_RECORD: u64 = 2;
/// Steps that a seek counts for.
const SEEK_STEPS: u64 = 32;
/// Entries that are passed one by one before a seek.
const NEXTS_MAX: u64 = 16;

/// The budget of an import, and the steps taken.
pub struct Resume {
    left: u64,
    taken: u64,
}

impl Default for Resume {
    fn default() -> Self {
        Resume { left: STEPS_FIRST, taken: 0 }
    }
}

impl Resume {
    /// Steps of cursors so far.
    pub fn steps(&self) -> u64 {
        self.taken
    }

    fn take(&mut self, steps: u64) -> bool {
        match self.left.checked_sub(steps) {
            Some(left) => {
                (self.left, self.taken) = (left, self.taken + steps);
                true
            }
            None => false,
        }
    }

    /// The records of a window that change the store if they are written in their order.
    pub fn changes(&mut self, family: &Family, window: Vec<Record>) -> Result<Vec<Record>> {
        self.left = self.left.saturating_add(STEPS_PER_RECORD * window.len() as u64);
        // Stable: the records of a key stay in the order of the file.
        let mut sorted: Vec<usize> = (0..window.len()).collect();
        sorted.sort_by_key(|&at| &window[at].0);
        let mut unchanged = vec![false; window.len()];
        let mut walk = Walk { cursor: family.iter().cursor()?, is_placed: false };
        for same in sorted.chunk_by(|&a, &b| window[a].0 == window[b].0) {
            let Some(&first) = same.first() else { continue };
            let mut current = match walk.find(&window[first].0, self)? {
                Found::Value(value) => Some(value),
                Found::Missing => None,
                Found::Unknown => continue,
            };
            for &at in same {
                unchanged[at] = current == Some(&window[at].1[..]);
                current = Some(&window[at].1);
            }
        }
        let kept = window.into_iter().zip(unchanged);
        Ok(kept.filter(|(_, unchanged)| !unchanged).map(|(record, _)| record).collect())
    }
}

/// The value of a key in the store.
enum Found<'a> {
    Value(&'a [u8]),
    Missing,
    /// The budget is spent.
    Unknown,
}

/// A cursor that goes forward.
struct Walk {
    cursor: Cursor,
    is_placed: bool,
}

impl Walk {
    fn find(&mut self, key: &[u8], budget: &mut Resume) -> Result<Found<'_>> {
        if !self.is_placed {
            self.cursor.seek(key)?;
            self.is_placed = true;
        }
        let mut nexts = 0;
        while self.cursor.valid() && self.cursor.key() < key {
            if nexts == NEXTS_MAX {
                if !budget.take(SEEK_STEPS) {
                    return Ok(Found::Unknown);
                }
                self.cursor.seek(key)?;
                break;
            }
            if !budget.take(1) {
                return Ok(Found::Unknown);
            }
            self.cursor.next()?;
            nexts += 1;
        }
        if self.cursor.valid() && self.cursor.key() == key {
            return Ok(Found::Value(self.cursor.value()?));
        }
        Ok(Found::Missing)
    }
}
