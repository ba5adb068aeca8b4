//! The sums of references under names, derived again from what the tables say, and held against those that versions carry along.
//!
//! A verification reads each table, and notes what it references then ([`Noted`]): so no list is read twice, and no version is held on to meanwhile. At
//! the end the lists of tables that have come since are read. If a table has gone since, what it had cannot be taken away again without it: then the lists of
//! all tables of its family are read, one read for each, and the version is held on to as long as that takes. The scrub, which may take days, does
//! nothing of this; it compares each table with what the manifest says of it alone.
//!
//! Where the list of a table cannot be read, which its own check tells, the sums under its names are what they are at most: only a name
//! under which other tables have more is wrong then.

use crate::work::jobs::Jobs;
use base::{Error, HashMap, HashSet};
use version::{Dependency, FamilyId, ReferenceSums, Version};

/// What tables were found to reference when they were read.
#[derive(Debug, Default)]
pub(crate) struct Noted(HashMap<FamilyId, NotedTables>);

/// Those of a family.
#[derive(Debug, Default)]
struct NotedTables {
    sums: ReferenceSums,
    tables: HashSet<u64>,
}

impl Noted {
    /// A table, and its list.
    pub fn add(&mut self, family: FamilyId, table: u64, list: &[Dependency]) {
        let noted = self.0.entry(family).or_default();
        if noted.tables.insert(table) {
            noted.sums.add(list);
        }
    }
}

/// What is wrong with the sums of all families.
pub(super) fn check(jobs: &Jobs, mut noted: Noted) -> Vec<Error> {
    let families = jobs.tree.families.all().into_iter();
    let checked = families.filter_map(|family| {
        let version = family.read_state().version.clone();
        of_family(jobs, &family.name, &version, noted.0.remove(&family.id).unwrap_or_default())
    });
    checked.collect()
}

/// What is wrong with those of a family.
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
        "what the tables reference under blob {name} is not what the manifest says they do; run `lava repair`"
    );
    Some(Error::corruption(why))
}

#[cfg(all(test, not(loom)))]
mod tests;
