//! Which tables count, and from where on the log does.
//!
//! With a state: those it names, and its floors. Without, a table counts unless it is proven that it was superseded:
//!
//! * a later file notes that it was gone when that file was begun, or a record of the manifest removes it;
//! * a job took it as an input, and another input of that job is gone. Inputs go only once the job's edit is durable. Then
//!   the outputs stand for everything in the range of keys that they span; what the table has outside may be garbage of
//!   that job, or belong to an output that is lost, so it is kept, and told as what may have come back. If all inputs are
//!   there, outputs and inputs together are what the inputs alone are, whether the job was done or not.
//!
//! It matters to take superseded tables out, although the newest sequence wins: at the bottom sequences become 0 and
//! tombstones go, so that an old table would win over what came of it.
//!
//! The floor of the log is the highest that any file notes. It may be lower than the one of the lost manifest; then the
//! log replays what is in tables already (see `rebuild`).

use super::report::LostRange;
use super::scan::{Found, Table};
use base::{Error, SeqNo};
use std::collections::{BTreeMap, BTreeSet};
use version::names::FileKind;
use version::{FamilyId, TableWitness};

/// A family that is rebuilt.
#[derive(Clone, Debug, Default)]
pub(super) struct FamilyPlan {
    pub name: Option<String>,
    pub options: Option<Vec<u8>>,
    pub log_floor: SeqNo,
    pub tables: Vec<Counted>,
}

/// A table that counts.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub table: Table,
    /// Its entries with user keys in this range, both ends inclusive, are superseded, and its range tombstones.
    pub superseded: Option<Keys>,
}

/// The families by their ids.
pub(super) type Plan = BTreeMap<FamilyId, FamilyPlan>;

/// Decides.
pub(super) fn judge(found: &mut Found) -> Plan {
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
    let mut ignored = 0;
    for table in tables {
        let is_dropped = found.witness.families.get(&table.family).is_some_and(|f| f.is_dropped);
        if gone.contains(&table.number) || is_dropped {
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
            let why = "a table that a compaction replaced: what it has beside the outputs may be garbage";
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

/// Names, options and floors, from what the manifests still tell and from what the tables do.
fn name_families(found: &Found, tables: &[Table], plan: &mut Plan) {
    for (id, known) in found.witness.families.iter().filter(|(_, known)| !known.is_dropped) {
        let own = plan.entry(*id).or_default();
        (own.name, own.options) = (known.name.clone(), known.options.clone());
        own.log_floor = known.log_floor;
    }
    // The latest file knows the latest options.
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
            // What a compaction read was in tables.
            own.log_floor = own.log_floor.max(table.max_seq + 1);
        }
    }
}

/// Tables that are there and belong to the store no more.
fn gone(found: &Found, tables: &[Table]) -> BTreeSet<u64> {
    let noted = tables.iter().flat_map(|table| table.identity.store.gone.iter().copied());
    let removed = found.witness.tables.iter().filter(|(_, table)| matches!(table, TableWitness::Removed));
    noted.chain(removed.map(|(number, _)| *number)).collect()
}

/// Inputs of a job, and the range of user keys that its outputs span.
type Span = (BTreeSet<u64>, Keys);
/// The first and the last user key of a range.
pub(super) type Keys = (Vec<u8>, Vec<u8>);

/// The jobs some of whose inputs are gone.
fn spans_of_done_jobs(found: &Found, tables: &[Table]) -> Vec<Span> {
    let is_there = |number: &u64| {
        let names = [FileKind::Ksst(*number), FileKind::SpeedKsst(*number)];
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
