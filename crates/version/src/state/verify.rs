//! Verifies a state from scratch, without trusting the data that [`super::apply`] maintains.

use super::{Directory, FileOwner, KvState, apply::check_alias};
use crate::meta::{BlobId, FileMeta};
use crate::uses::SumChange;
use crate::version::Version;
use base::limits::LEVELS_MAX;
use base::{Error, Result, key};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use store::IdMap;
use store::field::damaged;

pub(super) fn verify(state: &KvState) -> Result<()> {
    let mut index = IdMap::new();
    let mut occupy = |number: u64, place: FileOwner| match index.insert(number, place) {
        Some(other) => fault(format!("file {number} is both {other} and {place}")),
        None => Ok(()),
    };
    let mut names = BTreeSet::new();
    for (id, family) in state.families.iter() {
        let version = &family.version;
        if id != family.id || id != version.family || id >= state.next_family || !names.insert(&family.name) {
            let next = state.next_family;
            return fault(format!(
                "column family {id}, \"{}\", has another id ({}), a taken name, or an id not below {next}",
                family.name.escape_debug(),
                family.id
            ));
        }
        for (level, files) in version.levels.iter().enumerate() {
            for file in files {
                file.validate().map_err(damaged)?;
                occupy(file.number, FileOwner::Table { family: id, level: level as u32 })?;
            }
        }
        for (number, meta) in version.vssts.iter() {
            meta.validate().map_err(damaged)?;
            if number != meta.number {
                return fault(format!("value file (vSST) {} is listed as {number}", meta.number));
            }
            occupy(number, FileOwner::Vsst { family: id })?;
        }
        verify_version(version)?;
    }
    if state.directory != Directory::of(state.families.values()) {
        return fault("the directory of names and log floors does not match the column families");
    }
    if state.files().eq(index.iter().map(|(number, place)| (number, *place))) {
        Ok(())
    } else {
        fault("the index of file numbers does not match the files of the column families")
    }
}

fn verify_version(version: &Version) -> Result<()> {
    if version.levels.len() != LEVELS_MAX {
        let (family, levels) = (version.family, version.levels.len());
        return fault(format!("column family {family} has {levels} levels instead of {LEVELS_MAX}"));
    }
    for (level, files) in version.levels.iter().enumerate() {
        for pair in files.windows(2) {
            let [a, b] = pair else { continue };
            if level == 0 && (a.seq_range().1, a.number) < (b.seq_range().1, b.number)
                || level > 0 && !ordered(a, b)
            {
                return fault(format!(
                    "key tables (kSSTs) {} and {} of column family {} are out of order at level {level}",
                    a.number, b.number, version.family
                ));
            }
        }
    }
    verify_references(version)?;
    version.aliases.keys().try_for_each(|id| check_alias(version, id)).map_err(damaged)
}

/// Checks the sums under blob ids against the tables. If all tables have dependency lists, as in
/// older histories, each blob id must match. Otherwise the totals over all blob ids and all tables
/// must match, and no list may exceed the sums.
fn verify_references(version: &Version) -> Result<()> {
    let (mut listed, mut of_tables) = (Vec::new(), SumChange::default());
    let mut all_listed = true;
    for file in version.levels.iter().flatten() {
        of_tables = of_tables.plus(&SumChange::of_table(file.uses.sums(), 1));
        all_listed &= file.uses.list().is_some();
        for d in file.uses.list().unwrap_or_default() {
            if !version.resolves(d.blob_id) {
                let why = format!(
                    "key table (kSST) {} depends on value file (vSST) {}, which the manifest does not list",
                    file.number, d.blob_id
                );
                return fault(why);
            }
            listed.push((d.blob_id, SumChange::of(d, 1)));
        }
    }
    let mut of_names = SumChange::default();
    for (name, totals) in version.references.iter() {
        if !version.resolves(name) {
            return fault(format!(
                "key tables (kSSTs) depend on value file (vSST) {name}, and the manifest lists neither it \
                 nor a successor"
            ));
        }
        of_names = of_names.plus(&SumChange::of_totals(totals));
    }
    let listed = SumChange::by_name(listed);
    let stated = |name: BlobId| version.references.get(&name).map(SumChange::of_totals).unwrap_or_default();
    let fits = |(name, net): &(BlobId, SumChange)| match all_listed {
        true => *net == stated(*name),
        false => net.is_within(&stated(*name)),
    };
    let unlike = listed.iter().find(|&it| !fits(it));
    let (what, stated, counted) = match unlike {
        Some((name, net)) => (format!("value file (vSST) {name}"), stated(*name), *net),
        None if of_names != of_tables => ("all value files (vSSTs)".to_owned(), of_names, of_tables),
        None => return Ok(()),
    };
    fault(format!(
        "the sums of references to value files are not those of the tables: for {what} of column family {} \
         stated {stated}, counted {counted}",
        version.family
    ))
}

fn ordered(a: &FileMeta, b: &FileMeta) -> bool {
    key::compare(&a.smallest, &b.smallest) == Ordering::Less && a.ends_before(b.smallest_user_key())
}

fn fault<T>(why: impl std::fmt::Display) -> Result<T> {
    Err(Error::corruption(format!("the manifest contradicts itself: {why}")))
}
