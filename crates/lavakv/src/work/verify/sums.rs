//! The sums of references under names, derived again from what the tables say, and held against those that versions carry along.
//!
//! It takes one read for each table, and holds on to the version of a family as long as its tables are read: so a verification does
//! it, and the scrub, which may take days, does not; that compares each table with what the manifest says of it alone.
//!
//! Where the list of a table cannot be read, which its own check tells, the sums under its names are what they are at most: only a name
//! under which other tables have more is wrong then.

use crate::work::jobs::Jobs;
use base::Error;
use version::{ReferenceSums, Version};

/// What is wrong with the sums of all families.
pub(super) fn check(jobs: &Jobs) -> Vec<Error> {
    let families = jobs.tree.all_families().into_iter();
    let checked = families.filter_map(|family| {
        let version = family.read_state().version.clone();
        let error = differs(jobs, &version)?;
        Some(error.context(format!("column family \"{}\"", family.name)).at_file(&jobs.context.dir))
    });
    checked.collect()
}

fn differs(jobs: &Jobs, version: &Version) -> Option<Error> {
    let (mut sums, mut is_whole) = (ReferenceSums::default(), true);
    for file in version.levels.iter().flatten().filter(|file| file.uses.sums().names > 0) {
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
