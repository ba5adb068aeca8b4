//! Decides which tables are live, and the log floor of each family.
//!
//! With a manifest state, the live tables and the floors are those that it names. Without one, a
//! table is live unless one of these proves that it was superseded:
//!
//! * a later file lists the table as deleted before that file was begun, or a manifest record
//!   removes the table;
//! * a job took the table as an input, and another input of that job is gone. Inputs are deleted
//!   only once the job's edit is durable. Then the outputs replace the table in the key range that
//!   they span. Entries of the table outside that range may be garbage of that job, or belong to a
//!   lost output. They are kept, and reported as possibly resurrected. If all inputs exist, outputs
//!   and inputs together have the content of the inputs alone, whether the job finished or not;
//! * the table is an output of a job whose inputs are all live, and one of them has merge operands.
//!   These would count twice, since the job may have folded them.
//!
//! Superseded tables must be removed although the newest sequence wins. At the bottom, sequences
//! become 0 and tombstones are dropped, so an old table would win over the outputs that replaced
//! it.
//!
//! **Why the two proofs suffice.** When a job begins a file, the file notes the tables that were
//! dropped but still on disk, kept by readers. Consider a table that was dropped and whose file is
//! still there. If a living file was begun after the drop, that file notes it. Otherwise the
//! outputs of the job that dropped it, which name it as input, are still there, or were replaced by
//! a job whose outputs were begun later. By induction over the jobs some living file proves it. The
//! exception is a last job without any output, which leaves no trace. Then deleted keys may
//! reappear that only a reader had kept, and only if the manifest is lost as well.
//!
//! A table that is superseded in a part of its range cannot be dropped whole. Its other entries
//! were deleted by that job, or went into a lost output, and no file records the number of outputs.
//! A closed store has no such table: the close removes the files that readers had kept, before it
//! makes the names in the directory durable.
//!
//! The log floor is the highest floor that any file records. It is needed because volatile writes
//! are in no log. Suppose that a key was logged, then overwritten by a volatile write, which
//! reached the bottom with sequence 0. A replay from too far back would restore the first value. A
//! recorded floor was durable when its file was begun, so it is never too high. It may be lower
//! than the floor of the lost manifest; then the log replays changes that tables already have (see
//! `rebuild`).

use super::report::LostRange;
use super::scan::{RepairScan, Table};
use base::{Error, SeqNo};
use std::collections::{BTreeMap, BTreeSet};
use version::names::FileKind;
use version::{FamilyId, TableWitness};

/// A family to rebuild.
#[derive(Clone, Debug, Default)]
pub(super) struct FamilyPlan {
    pub name: Option<String>,
    pub options: Option<Vec<u8>>,
    pub log_floor: SeqNo,
    pub tables: Vec<Counted>,
}

/// A live table.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub table: Table,
    /// User key range, both ends inclusive, in which the entries of the table are superseded. If
    /// set, all range tombstones of the table are superseded too.
    pub superseded: Option<Keys>,
}

/// Families by id.
pub(super) type Plan = BTreeMap<FamilyId, FamilyPlan>;

/// Chooses the live tables.
pub(super) fn judge(found: &mut RepairScan) -> Plan {
    let mut plan = Plan::new();
    let tables = std::mem::take(&mut found.tables);
    found.report.files_used = tables.len() as u64;
    if let Some(state) = &found.witness.state {
        for family in state.families.values() {
            let own = plan.entry(family.id).or_default();
            (own.name, own.options) = (Some(family.name.clone()), Some(family.options.clone()));
            own.log_floor = family.version.log_floor;
        }
        for table in tables {
            let own = plan.entry(table.family).or_default();
            own.tables.push(Counted { table, superseded: None });
        }
        return plan;
    }
    name_families(found, &tables, &mut plan);
    let gone = gone(found, &tables);
    let spans = spans_of_done_jobs(found, &tables);
    let doubled = outputs_with_doubled_operands(&tables, &gone);
    let mut ignored = 0;
    for table in tables {
        let is_dropped = found.witness.families.get(&table.family).is_some_and(|f| f.is_dropped);
        if gone.contains(&table.number) || doubled.contains(&table.number) || is_dropped {
            ignored += 1;
            continue;
        }
        let superseded = spans.iter().find(|(inputs, _)| inputs.contains(&table.number));
        let superseded = superseded.map(|(_, span)| span.clone());
        if let Some((from, to)) = &superseded {
            let is_inside = *from <= table.smallest && table.largest <= *to;
            if is_inside {
                ignored += 1;
                continue;
            }
            let why = "a compaction replaced the table in a part of its range: its entries outside of it \
                       may be garbage";
            let at = LostRange::at(&Error::corruption(why).at_file(&table.place.path));
            found.report.lose(LostRange {
                family: Some(table.family),
                from: Some(table.smallest.clone()),
                to: Some(table.largest.clone()),
                may_come_back: true,
                only_come_back: true,
                ..at
            });
        }
        plan.entry(table.family).or_default().tables.push(Counted { table, superseded });
    }
    found.report.files_used -= ignored;
    found.report.files_ignored += ignored;
    plan
}

/// Sets names, options and floors, from the surviving manifest records and from the tables.
fn name_families(found: &RepairScan, tables: &[Table], plan: &mut Plan) {
    for (id, known) in found.witness.families.iter().filter(|(_, known)| !known.is_dropped) {
        let own = plan.entry(*id).or_default();
        (own.name, own.options) = (known.name.clone(), known.options.clone());
        own.log_floor = known.log_floor;
    }
    // The latest file has the latest options.
    let mut by_age: Vec<&Table> = tables.iter().collect();
    by_age.sort_by_key(|table| std::cmp::Reverse((table.identity.edit, table.number)));
    for table in by_age {
        let (own, notes) = (plan.entry(table.family).or_default(), &table.identity.store);
        if own.name.is_none() && !notes.family_name.is_empty() {
            own.name = Some(notes.family_name.clone());
        }
        if own.options.is_none() && !notes.family_options.is_empty() {
            own.options = Some(notes.family_options.clone());
        }
        own.log_floor = own.log_floor.max(notes.log_floor);
        if !table.identity.inputs.is_empty() {
            // Changes that a compaction read were in tables.
            own.log_floor = own.log_floor.max(table.max_seq + 1);
        }
    }
}

/// Returns the tables that exist but no longer belong to the store.
fn gone(found: &RepairScan, tables: &[Table]) -> BTreeSet<u64> {
    let noted = tables.iter().flat_map(|table| table.identity.store.gone.iter().copied());
    let removed = found.witness.tables.iter().filter(|(_, table)| matches!(table, TableWitness::Removed));
    noted.chain(removed.map(|(number, _)| *number)).collect()
}

/// Returns the outputs of jobs whose inputs are all there, where an input has merge operands.
fn outputs_with_doubled_operands(tables: &[Table], gone: &BTreeSet<u64>) -> BTreeSet<u64> {
    let live = tables.iter().filter(|table| !gone.contains(&table.number));
    let operands: BTreeMap<u64, bool> = live.map(|table| (table.number, table.has_operands)).collect();
    let is_doubled = |inputs: &[u64]| {
        inputs.iter().all(|input| operands.contains_key(input))
            && inputs.iter().any(|input| operands.get(input) == Some(&true))
    };
    let outputs = tables.iter().filter(|table| !table.identity.inputs.is_empty());
    outputs.filter(|table| is_doubled(&table.identity.inputs)).map(|table| table.number).collect()
}

/// Inputs of a job, and the user key range that its outputs span.
type Span = (BTreeSet<u64>, Keys);
/// First and last user key of a range.
pub(super) type Keys = (Vec<u8>, Vec<u8>);

/// Returns the jobs with missing inputs.
fn spans_of_done_jobs(found: &RepairScan, tables: &[Table]) -> Vec<Span> {
    let is_there = |number: &u64| {
        let names = [FileKind::Ksst(*number), FileKind::FastKsst(*number)];
        names.iter().any(|name| found.files.named.contains_key(name))
    };
    let mut jobs: BTreeMap<(u64, Vec<u64>), Keys> = BTreeMap::new();
    for table in tables.iter().filter(|table| !table.identity.inputs.is_empty()) {
        let job = (table.identity.job, table.identity.inputs.clone());
        let span = jobs.entry(job).or_insert_with(|| (table.smallest.clone(), table.largest.clone()));
        span.0 = std::mem::take(&mut span.0).min(table.smallest.clone());
        span.1 = std::mem::take(&mut span.1).max(table.largest.clone());
    }
    let is_done = |inputs: &[u64]| !inputs.iter().all(is_there);
    let done = jobs.into_iter().filter(|((_, inputs), _)| is_done(inputs));
    done.map(|((_, inputs), span)| (inputs.into_iter().collect(), span)).collect()
}
