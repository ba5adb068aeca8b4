//! The expected contents of a toy log after a crash.

use super::engine::ToyLog;
use io::sim::CrashKind;
use store::commit::Ticket;

/// An appended entry, and the operations after which it must survive each kind of crash.
#[derive(Clone, Debug)]
pub struct Entry {
    pub bytes: Vec<u8>,
    pub ticket: Ticket,
    pub begun_op: u64,
    pub buffered_op: Option<u64>,
    pub durable_op: Option<u64>,
}

/// A trim: its bound, and the operations at which it began and returned.
#[derive(Clone, Copy, Debug)]
pub struct Trim {
    pub below: u64,
    pub begun_op: u64,
    pub done_op: Option<u64>,
}

/// The history of a toy log. Entry `i` has the number `i + 1`.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub entries: Vec<Entry>,
    pub trims: Vec<Trim>,
}

impl Model {
    /// Records that everything up to a ticket is durable.
    pub fn durable(&mut self, ticket: Ticket, op: u64) {
        for entry in self.entries.iter_mut().filter(|entry| entry.ticket <= ticket) {
            entry.durable_op.get_or_insert(op);
            entry.buffered_op.get_or_insert(op);
        }
    }

    /// Records that everything is durable.
    pub fn all_durable(&mut self, op: u64) {
        if let Some(last) = self.entries.last().map(|entry| entry.ticket) {
            self.durable(last, op);
        }
    }

    /// Checks the entries after a crash at an operation, and drops those that the crash lost.
    ///
    /// # Errors
    /// The first difference.
    pub fn check(&mut self, op: u64, kind: CrashKind, toy: &ToyLog) -> Result<(), String> {
        let passed = |at: Option<u64>| at.is_some_and(|at| at <= op);
        let begun = self.entries.iter().take_while(|entry| entry.begun_op <= op).count() as u64;
        let kept = |entry: &Entry| match kind {
            CrashKind::ProcessKill => passed(entry.buffered_op),
            _ => passed(entry.durable_op),
        };
        // Acknowledgement is by prefix, so the last required entry gives their number.
        let required = self.entries.iter().rposition(kept).map_or(0, |i| i as u64 + 1);
        let floor_min = self.trims.iter().filter(|t| passed(t.done_op)).map(|t| t.below).max().unwrap_or(1);
        let floor_max = self.trims.iter().filter(|t| t.begun_op <= op).map(|t| t.below).max().unwrap_or(1);
        let range = toy.range();
        // If all entries are trimmed the range is empty, at the floor or behind it.
        let end_max = (begun + 1).max(floor_max);
        if range.end < required + 1 || range.end > end_max {
            return Err(format!("{range:?}: {required} of {begun} entries were promised, floor {floor_min}"));
        }
        if range.start < floor_min.min(range.end) || range.start > floor_max.max(1) {
            return Err(format!("{range:?}: the floor is between {floor_min} and {floor_max}"));
        }
        for number in range.clone() {
            let expected = &self.entries[number as usize - 1].bytes;
            match toy.read(number) {
                None => return Err(format!("entry {number} of {range:?} is missing")),
                Some(found) if found != *expected => return Err(format!("entry {number} is another")),
                Some(_) => {}
            }
        }
        self.entries.truncate(range.end as usize - 1);
        self.trims.retain(|trim| trim.below <= range.start);
        for entry in &mut self.entries {
            // The recovered entries stay.
            (entry.begun_op, entry.buffered_op, entry.durable_op) = (0, Some(0), Some(0));
        }
        self.trims.iter_mut().for_each(|trim| (trim.begun_op, trim.done_op) = (0, Some(0)));
        Ok(())
    }
}
