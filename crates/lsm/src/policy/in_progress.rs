//! The in-progress set: files held by running jobs of a family, to keep concurrent jobs apart.

use super::compaction::Compaction;
use base::HashSet;

/// Files and key ranges held by running compactions of a family.
///
/// A new compaction may start under three conditions. It shares no input with a running one. No
/// running one writes to the same level within its key range. If it compacts level 0 down, no other
/// one does so within its key range: two of them could reach different levels in the wrong order of
/// age. That is enough, because a compaction takes every file of the output level within its range,
/// and from level 0 every older file that it overlaps.
#[derive(Clone, Debug, Default)]
pub struct InProgress {
    files: HashSet<u64>,
    vssts: HashSet<u64>,
    outputs: Vec<OutputRange>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct OutputRange {
    from: usize,
    level: usize,
    low: Vec<u8>,
    high: Vec<u8>,
}

impl OutputRange {
    fn of(c: &Compaction) -> Self {
        let (low, high) = c.key_range();
        OutputRange { from: c.level, level: c.output_level, low: low.to_vec(), high: high.to_vec() }
    }

    fn takes_l0_down(&self) -> bool {
        self.from == 0 && self.level > 0
    }
}

impl InProgress {
    /// Adds a compaction that starts.
    ///
    /// # Panics
    /// If it is not [allowed](InProgress::allows).
    pub fn add(&mut self, compaction: &Compaction) {
        assert!(self.allows(compaction), "a compaction that meets a running one");
        self.files.extend(compaction.input_files().map(|(_, f)| f.number));
        self.vssts.extend(&compaction.relocate_vssts);
        self.outputs.push(OutputRange::of(compaction));
    }

    /// Removes a compaction that has ended, whatever its outcome.
    pub fn remove(&mut self, compaction: &Compaction) {
        compaction.input_files().for_each(|(_, f)| {
            self.files.remove(&f.number);
        });
        compaction.relocate_vssts.iter().for_each(|n| {
            self.vssts.remove(n);
        });
        let output = OutputRange::of(compaction);
        if let Some(i) = self.outputs.iter().position(|o| *o == output) {
            self.outputs.swap_remove(i);
        }
    }

    /// Returns true if the compaction may run beside the running ones.
    pub fn allows(&self, c: &Compaction) -> bool {
        let (low, high) = c.key_range();
        let takes_l0_down = c.level == 0 && c.output_level > 0;
        let both_from_l0 = |o: &OutputRange| takes_l0_down && o.takes_l0_down();
        let writes_here = |o: &OutputRange| {
            let meets = o.low.as_slice() <= high && low <= o.high.as_slice();
            meets && (o.level == c.output_level || both_from_l0(o))
        };
        let meets = c.input_files().any(|(_, f)| self.has_file(f.number))
            || c.relocate_vssts.iter().any(|n| self.has_vsst(*n))
            || c.output_level > 0 && self.outputs.iter().any(writes_here);
        !meets
    }

    /// Returns true if a running compaction reads this table.
    pub fn has_file(&self, number: u64) -> bool {
        self.files.contains(&number)
    }

    /// Returns true if a running job rewrites this vSST. Garbage collection registers its inputs
    /// here as well.
    pub fn has_vsst(&self, number: u64) -> bool {
        self.vssts.contains(&number)
    }

    /// Returns the vSSTs that running jobs rewrite.
    pub fn vssts(&self) -> impl Iterator<Item = u64> + '_ {
        self.vssts.iter().copied()
    }

    /// Claims a table for migration to another tier. Returns false if a running compaction reads
    /// it. The claim must be short: every compaction that overlaps the table waits.
    pub fn claim_table(&mut self, number: u64) -> bool {
        self.files.insert(number)
    }

    /// Releases a table after its migration.
    pub fn release_table(&mut self, number: u64) {
        self.files.remove(&number);
    }

    /// Claims a vSST for garbage collection. Returns false if a running job already rewrites it.
    pub fn claim_vsst(&mut self, number: u64) -> bool {
        self.vssts.insert(number)
    }

    /// Releases a vSST after garbage collection.
    pub fn release_vsst(&mut self, number: u64) {
        self.vssts.remove(&number);
    }

    /// Returns true if no job is running.
    pub fn is_empty(&self) -> bool {
        !self.has_tables() && self.vssts.is_empty()
    }

    /// Returns true if a job reads or writes tables.
    pub fn has_tables(&self) -> bool {
        !self.files.is_empty() || !self.outputs.is_empty()
    }

    /// Returns true if a running compaction compacts level 0 down.
    pub fn l0_goes_down(&self) -> bool {
        self.outputs.iter().any(OutputRange::takes_l0_down)
    }
}
