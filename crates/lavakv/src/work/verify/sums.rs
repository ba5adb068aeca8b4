//! Verification of the reference sums per name: recomputed from the tables, and compared with those
//! in the versions.
//!
//! A verification reads each table, and notes its references ([`Noted`]). So no list is read twice,
//! and no version is pinned meanwhile. At the end it reads the lists of newer tables. If a noted
//! table no longer exists, its share cannot be subtracted. Then the lists of all tables of its
//! family are read, one read each, while the version is pinned. The scrub, which may take days,
//! does none of this: it only compares each table with its description in the manifest.
//!
//! If the list of a table is unreadable, which the table's own check reports, the expected sums are
//! only lower bounds. Then a name is reported only if the other tables reference more than the
//! version states.

use crate::work::jobs::Jobs;
use base::{Error, HashMap, HashSet};
use version::{Dependency, FamilyId, ReferenceSums, Version};

/// References of the tables read so far.
#[derive(Debug, Default)]
pub(crate) struct Noted(HashMap<FamilyId, NotedTables>);

/// The references of one family's tables.
#[derive(Debug, Default)]
struct NotedTables {
    sums: ReferenceSums,
    tables: HashSet<u64>,
}

impl Noted {
    /// Adds the list of a table.
    pub fn add(&mut self, family: FamilyId, table: u64, list: &[Dependency]) {
        let noted = self.0.entry(family).or_default();
        if noted.tables.insert(table) {
            noted.sums.add(list);
        }
    }
}

/// Returns the errors in the sums of all families.
pub(super) fn check(jobs: &Jobs, mut noted: Noted) -> Vec<Error> {
    let families = jobs.tree.families.all().into_iter();
    let checked = families.filter_map(|family| {
        let version = family.read_state().version.clone();
        of_family(jobs, &family.name, &version, noted.0.remove(&family.id).unwrap_or_default())
    });
    checked.collect()
}

/// Returns the error in the sums of one family.
fn of_family(jobs: &Jobs, family: &str, version: &Version, noted: NotedTables) -> Option<Error> {
    let error = differs(jobs, version, noted)?;
    Some(error.context(format!("column family \"{family}\"")).at_file(&jobs.context.dir))
}

fn differs(jobs: &Jobs, version: &Version, noted: NotedTables) -> Option<Error> {
    let files = || version.levels.iter().flatten();
    let numbers: HashSet<u64> = files().map(|file| file.number).collect();
    let is_there = noted.tables.is_subset(&numbers);
    let NotedTables { mut sums, tables } = if is_there { noted } else { NotedTables::default() };
    let mut is_whole = true;
    for file in files().filter(|file| file.uses.sums().names > 0 && !tables.contains(&file.number)) {
        #[cfg(all(test, not(loom)))]
        tests::LISTS.with(|lists| lists.set(lists.get() + 1));
        match jobs.files.tables.dependencies(file) {
            Ok(list) => sums.add(&list),
            Err(_) => is_whole = false,
        }
    }
    let name = sums.difference(&version.references, is_whole)?;
    let why = format!(
        "the references of the tables to value file (vSST) {name} differ from the manifest: no value is \
         lost, but the file may be kept for nothing or taken for garbage"
    );
    Some(Error::corruption(why))
}

#[cfg(all(test, not(loom)))]
mod tests;
