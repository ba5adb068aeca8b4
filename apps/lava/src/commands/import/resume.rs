//! Finds the records of a file that a store already has.
//!
//! Records are processed in windows. The keys of a window are sorted, and one pass of a cursor
//! compares them with the store. A sorted file costs one scan of the store; an unsorted one costs a
//! scan per window. Within a window, the records of a key are followed in file order: a record is
//! skipped if the previous record of its key, or the store, has its value.
//!
//! The pass has a budget of steps. For a store much larger than a window and an unsorted file, a
//! seek per record would cost many times the write. A record beyond the budget is written, which is
//! always correct.

use crate::Result;
use crate::formats::Record;
use lavastore::{Cursor, Family};

/// Bytes of a window, and overhead of a record in it beyond key and value.
pub const WINDOW_LEN: usize = 32 << 20;
pub const RECORD_OVERHEAD: usize = 64;
/// Steps for the first records, and further steps per record. A step is one entry; writing a record
/// costs about three.
const STEPS_FIRST: u64 = 500_000;
const STEPS_PER_RECORD: u64 = 2;
/// Steps per seek.
const SEEK_STEPS: u64 = 32;
/// Maximum number of `next` calls before a seek.
const NEXTS_MAX: u64 = 16;

/// The remaining budget of an import, and the steps taken.
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
    /// Returns the steps taken so far.
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

    /// Returns the records of a window that change the store when written in order.
    pub fn changes(&mut self, family: &Family, window: Vec<Record>) -> Result<Vec<Record>> {
        self.left = self.left.saturating_add(STEPS_PER_RECORD * window.len() as u64);
        // A stable sort keeps the records of a key in file order.
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

/// Result of a lookup.
enum Found<'a> {
    Value(&'a [u8]),
    Missing,
    /// The budget is exhausted.
    Unknown,
}

/// A cursor that moves forward only.
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
