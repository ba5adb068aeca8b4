//! The writes of a run, and their possible remains after a crash.
//!
//! All families share one log, so after a crash the remaining logged writes are a *prefix* over all
//! families. The prefix covers at least the last write acknowledged with a durability that survives
//! the crash. Volatile writes are in no log: of a family's volatile writes, those before its last
//! flush remain. Families are created and dropped durably in the manifest, so they follow another
//! prefix.
//!
//! [`History::check`] searches a prefix that explains the found contents. It compares fingerprints
//! from a table that is computed once per run and serves all its crash states.

use crate::check::{Check, ensure};
use crate::state::{Change, Contents, Entries, FamilyId, difference};
use lavastore::inspect::LogContents;
use lavastore::{Durability, SeqNo};
use std::cell::OnceCell;
use std::collections::BTreeMap;

/// A batch that was written.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// The simulator's count of operations before and after the call.
    pub begin_op: u64,
    pub end_op: u64,
    pub durability: Durability,
    pub changes: Vec<(FamilyId, Change)>,
    /// The call failed: the write may be there or not.
    pub failed: bool,
    /// Sequence number of the first change. `None` for a write that failed or changed nothing.
    pub first_seq: Option<SeqNo>,
}

impl Write {
    /// Formats the write in a line.
    pub fn describe(&self) -> String {
        let changes: Vec<String> =
            self.changes.iter().map(|(id, c)| format!("{id}:{}", c.describe())).collect();
        let failed = if self.failed { ", failed" } else { "" };
        let (begin, end) = (self.begin_op, self.end_op);
        format!("operations {begin}..{end}, {:?}{failed}: {}", self.durability, changes.join(", "))
    }

    fn touches(&self, family: FamilyId) -> bool {
        self.changes.iter().any(|(id, _)| *id == family)
    }

    fn is_volatile(&self) -> bool {
        self.durability == Durability::Volatile
    }
}

/// A created or dropped family.
#[derive(Clone, Debug)]
pub(crate) struct FamilyChange {
    pub begin_op: u64,
    pub end_op: u64,
    pub id: FamilyId,
    pub created: bool,
}

/// At the return of this call, all writes before `upto` were in tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Barrier {
    pub end_op: u64,
    pub upto: usize,
}

/// Kind of a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    Process,
    Power,
}

/// Contents of each family of a store.
pub(crate) type FamilyEntries = BTreeMap<FamilyId, Entries>;

/// The durability-relevant events of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub writes: Vec<Write>,
    pub families: Vec<FamilyChange>,
    pub barriers: Vec<Barrier>,
    /// Families whose drop failed: they may be there or not.
    pub failed_drops: Vec<FamilyId>,
    /// Number of families whose creation failed: they may be there or not.
    pub failed_creations: usize,
    tables: OnceCell<BTreeMap<FamilyId, Table>>,
}

/// Fingerprints of one family after the first `v` volatile and the first `n` of all logged writes:
/// `prints[v][n]`.
#[derive(Clone, Debug)]
struct Table {
    /// Indexes of the volatile writes to the family.
    volatile: Vec<usize>,
    prints: Vec<Vec<u64>>,
}

/// The writes that may and must be there.
#[derive(Clone, Copy, Debug)]
struct Range {
    min: usize,
    max: usize,
    /// Volatile writes before this one must be there.
    volatile_min: usize,
}

impl History {
    /// Returns every change with its sequence number, without failed writes and writes without
    /// sequence numbers, such as the deletion of an empty range.
    pub fn sequenced(&self) -> impl Iterator<Item = (SeqNo, &(FamilyId, Change))> {
        let writes = self.writes.iter().filter_map(|write| Some((write.first_seq?, &write.changes)));
        writes.flat_map(|(first_seq, changes)| (first_seq..).zip(changes))
    }

    /// Drops the cached table: call after adding to the history.
    pub fn changed(&mut self) {
        self.tables = OnceCell::new();
    }

    /// Checks the contents after a crash at operation `op`.
    pub fn check(&self, op: u64, loss: Loss, found: &FamilyEntries) -> Check {
        self.check_families(op, found)?;
        let range = self.range(op, loss);
        let tables = self.tables.get_or_init(|| self.make_tables());
        let prints: Vec<(FamilyId, u64)> =
            found.iter().map(|(&id, e)| (id, Contents::from_entries(e.clone()).fingerprint())).collect();
        for end in (range.min..=range.max).rev() {
            if self.explains(tables, range, end, &prints) {
                return Ok(());
            }
        }
        Err(self.complaint(range, found))
    }

    /// Checks the log after a crash at operation `op`: each promised change is in the log, or below
    /// the floor of its family, so that tables have it.
    pub fn check_log(&self, op: u64, loss: Loss, log: &LogContents) -> Check {
        let min = self.range(op, loss).min;
        let logged = self.writes[..min].iter().enumerate().filter(|(_, w)| !w.is_volatile());
        for (nth, write) in logged {
            let Some(first_seq) = write.first_seq else { continue };
            for (seq, (family, _)) in (first_seq..).zip(&write.changes) {
                ensure!(
                    log.holds(seq, *family),
                    "sequence {seq} of family {family} (write {nth}) is not in the log, and the floor of its family is {:?}: \
                     {}; the log has {:?} to {:?}",
                    log.floors.get(family),
                    write.describe(),
                    log.entries.first_key_value(),
                    log.entries.last_key_value()
                );
            }
        }
        Ok(())
    }

    /// Returns the last promised sequence number after a crash at operation `op`: the store must
    /// not report a lower one.
    pub fn sequence_min(&self, op: u64, loss: Loss) -> SeqNo {
        let promised = self.writes[..self.range(op, loss).min].iter().filter(|w| !w.is_volatile());
        let last = |w: &Write| w.first_seq.map(|first| first + w.changes.len() as u64 - 1);
        promised.filter_map(last).max().unwrap_or(0)
    }

    /// Checks that the families are those after a prefix of the family changes that covers the
    /// acknowledged ones.
    fn check_families(&self, op: u64, found: &FamilyEntries) -> Check {
        let acknowledged = self.families.iter().filter(|f| f.end_op <= op).count();
        let begun = self.families.iter().filter(|f| f.begin_op <= op).count();
        let ids: Vec<FamilyId> = found.keys().copied().collect();
        for end in acknowledged..=begun {
            let mut expected = vec![0];
            for change in &self.families[..end] {
                expected.retain(|id| *id != change.id);
                if change.created {
                    expected.push(change.id);
                }
            }
            expected.sort_unstable();
            if expected == ids {
                return Ok(());
            }
        }
        Err(format!(
            "families {ids:?} are not those after {acknowledged} to {begun} changes of {:?}",
            self.families
        ))
    }

    fn range(&self, op: u64, loss: Loss) -> Range {
        let flushed = self.barriers.iter().filter(|b| b.end_op <= op).map(|b| b.upto).max().unwrap_or(0);
        let promised = |w: &Write| match w.durability {
            Durability::Durable => true,
            Durability::Buffered => loss == Loss::Process,
            Durability::Volatile => false,
        };
        // An empty batch promises as much for the writes before it.
        let last = self.writes.iter().rposition(|w| w.end_op <= op && !w.failed && promised(w));
        let min = last.map_or(0, |i| i + 1).max(flushed);
        let max = self.writes.iter().filter(|w| w.begin_op <= op).count().max(min);
        Range { min, max, volatile_min: flushed }
    }

    fn ids(&self) -> Vec<FamilyId> {
        std::iter::once(0).chain(self.families.iter().filter(|f| f.created).map(|f| f.id)).collect()
    }

    fn make_tables(&self) -> BTreeMap<FamilyId, Table> {
        self.ids().into_iter().map(|id| (id, self.make_table(id))).collect()
    }

    fn make_table(&self, family: FamilyId) -> Table {
        let is_volatile = |i: &usize| self.writes[*i].is_volatile() && self.writes[*i].touches(family);
        let volatile: Vec<usize> = (0..self.writes.len()).filter(is_volatile).collect();
        let mut prints = Vec::new();
        for flushed in std::iter::once(0).chain(volatile.iter().map(|i| i + 1)) {
            let mut contents = Contents::default();
            let mut line = vec![contents.fingerprint()];
            for (i, write) in self.writes.iter().enumerate() {
                if !write.is_volatile() || i < flushed {
                    write.changes.iter().filter(|(id, _)| *id == family).for_each(|(_, c)| contents.apply(c));
                }
                line.push(contents.fingerprint());
            }
            prints.push(line);
        }
        Table { volatile, prints }
    }

    /// Returns true if the first `end` writes, with a choice of volatile ones per family, explain
    /// the contents.
    fn explains(
        &self,
        tables: &BTreeMap<FamilyId, Table>,
        range: Range,
        end: usize,
        prints: &[(FamilyId, u64)],
    ) -> bool {
        // For each family, the possible numbers of flushed volatile writes.
        let mut choices: Vec<(FamilyId, Vec<usize>)> = Vec::new();
        for (id, print) in prints {
            let Some(table) = tables.get(id) else { return false };
            let must = table.volatile.iter().filter(|i| **i < range.volatile_min).count();
            let may = table.volatile.iter().filter(|i| **i < end).count();
            let fits: Vec<usize> = (must..=may).filter(|v| table.prints[*v][end] == *print).collect();
            if fits.is_empty() {
                return false;
            }
            choices.push((*id, fits));
        }
        self.agree(tables, &choices, &mut BTreeMap::new())
    }

    /// Returns true if the families can agree on every volatile batch that spans several of them.
    fn agree(
        &self,
        tables: &BTreeMap<FamilyId, Table>,
        choices: &[(FamilyId, Vec<usize>)],
        fate: &mut BTreeMap<usize, bool>,
    ) -> bool {
        let Some(((id, fits), rest)) = choices.split_first() else { return true };
        fits.iter().rev().any(|&kept| {
            let mut fate = fate.clone();
            let consistent = tables[id].volatile.iter().enumerate().all(|(nth, &write)| {
                let here = nth < kept;
                *fate.entry(write).or_insert(here) == here
            });
            consistent && self.agree(tables, rest, &mut fate)
        })
    }

    /// Compares with the longest prefix, for the error message.
    fn complaint(&self, range: Range, found: &FamilyEntries) -> String {
        let mut parts = Vec::new();
        for end in [range.min, range.max] {
            let expected = self.contents_after(end);
            let differs = found.iter().find_map(|(id, entries)| {
                let empty = Contents::default();
                let want = expected.get(id).unwrap_or(&empty);
                difference(want.entries(), entries).err().map(|why| format!("family {id}, {why}"))
            });
            parts.push(format!(
                "not the first {end} writes: {}",
                differs.unwrap_or_else(|| "volatile writes".into())
            ));
        }
        format!(
            "no prefix of {} to {} of {} writes explains it; {}",
            range.min,
            range.max,
            self.writes.len(),
            parts.join("; ")
        )
    }

    /// Returns the contents of all families after the first `end` writes.
    pub fn contents_after(&self, end: usize) -> BTreeMap<FamilyId, Contents> {
        let mut all: BTreeMap<FamilyId, Contents> = BTreeMap::new();
        for write in &self.writes[..end] {
            for (id, change) in &write.changes {
                all.entry(*id).or_default().apply(change);
            }
        }
        all
    }

    /// Checks the contents after failed calls: every acknowledged write within the required range,
    /// and each failed one whole or not at all.
    pub fn check_with_failures(&self, op: u64, loss: Loss, found: &FamilyEntries) -> Check {
        self.check_families_with_failures(found)?;
        let range = self.range(op, loss);
        let doubtful: Vec<usize> = (0..range.max).filter(|i| self.writes[*i].failed).collect();
        ensure!(doubtful.len() <= 12, "{} failed writes are too many to tell apart", doubtful.len());
        let prints: BTreeMap<FamilyId, u64> =
            found.iter().map(|(&id, e)| (id, Contents::from_entries(e.clone()).fingerprint())).collect();
        for end in (range.min..=range.max).rev() {
            for subset in 0u32..1 << doubtful.len() {
                let kept =
                    |i: usize| doubtful.iter().position(|d| *d == i).is_none_or(|n| subset >> n & 1 == 1);
                if self.subset_matches(end, kept, &prints) {
                    return Ok(());
                }
            }
        }
        Err(self.complaint(range, found))
    }

    fn check_families_with_failures(&self, found: &FamilyEntries) -> Check {
        let dropped = |id: FamilyId| self.families.iter().any(|f| f.id == id && !f.created);
        let known = self.ids();
        let extra = found.keys().filter(|id| !known.contains(id)).count();
        ensure!(extra <= self.failed_creations, "families {:?} were never created", found.keys());
        for id in known {
            let (alive, here) = (!dropped(id), found.contains_key(&id));
            let doubtful = self.failed_drops.contains(&id);
            ensure!(here == alive || (alive && doubtful), "family {id}: found {here}, should be {alive}");
        }
        Ok(())
    }

    /// Returns true if the families are those of an earlier moment, before their last change.
    pub fn families_lag(&self, found: &FamilyEntries) -> Check<bool> {
        if self.check_families(u64::MAX, found).is_ok() {
            return Ok(false);
        }
        let last = self.families.last().map_or(0, |f| f.end_op);
        self.check_families(last.saturating_sub(1), found).map(|()| true)
    }

    /// Returns the longest prefix that explains the contents, at least the flushed writes.
    pub fn longest_prefix(&self, found: &FamilyEntries) -> Check<usize> {
        let range = self.range(u64::MAX, Loss::Power);
        let range = Range { min: range.volatile_min, max: self.writes.len(), ..range };
        let tables = self.tables.get_or_init(|| self.make_tables());
        let prints: Vec<(FamilyId, u64)> =
            found.iter().map(|(&id, e)| (id, Contents::from_entries(e.clone()).fingerprint())).collect();
        let fit = (range.min..=range.max).rev().find(|end| self.explains(tables, range, *end, &prints));
        fit.ok_or_else(|| self.complaint(range, found))
    }

    fn subset_matches(
        &self,
        end: usize,
        kept: impl Fn(usize) -> bool,
        prints: &BTreeMap<FamilyId, u64>,
    ) -> bool {
        prints.iter().all(|(family, print)| {
            let mut contents = Contents::default();
            for (i, write) in self.writes[..end].iter().enumerate().filter(|(i, _)| kept(*i)) {
                debug_assert!(i < end);
                write.changes.iter().filter(|(id, _)| id == family).for_each(|(_, c)| contents.apply(c));
            }
            contents.fingerprint() == *print
        })
    }
}
