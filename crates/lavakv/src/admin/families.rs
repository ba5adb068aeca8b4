//! Creating and dropping column families.

use crate::context::family_options::FamilyOptions;
use crate::context::options::Options;
use crate::tree::family::Family;
use crate::work::jobs::Jobs;
use crate::write::memtables::Writer;
use base::sync::MutexGuard;
use base::{Error, ErrorKind, Result, limits};
use std::cell::Cell;
use std::sync::Arc;
use version::{Edit, Record, StoreRecord};

/// Creates a family, which exists once the edit is durable.
pub(crate) fn create(jobs: &Arc<Jobs>, name: &str, options: FamilyOptions) -> Result<Arc<Family>> {
    let options = options.derived();
    let mut writer = enter(jobs)?;
    let (id, mut version) = (Cell::new(0), None);
    jobs.files.manifest.commit_with(
        |state| {
            if state.family_named(name).is_some() {
                return Err(Error::new(
                    ErrorKind::AlreadyExists,
                    format!("column family {name} exists already: open it, or choose another name"),
                ));
            }
            if state.families.len() >= limits::FAMILIES_MAX {
                return Err(Error::new(
                    ErrorKind::TooLarge,
                    format!(
                        "the store has the maximum of {} column families: drop one",
                        limits::FAMILIES_MAX
                    ),
                ));
            }
            id.set(state.next_family);
            let record =
                Record::CreateFamily { id: id.get(), name: name.to_owned(), options: options.encode() };
            let visible = jobs.tree.snapshots.visible();
            // The floor may be above the end of the log that remains after a power failure.
            // Sequence numbers then continue above the floor; otherwise recovery would treat later
            // writes as flushed.
            let floor = Record::LogFloor { family: id.get(), seq: visible + 1 };
            Ok(Edit(vec![record, floor, Record::Store(StoreRecord::LastSeq(visible))]))
        },
        |state| version = state.families.get(&id.get()).map(|f| f.version.clone()),
    )?;
    let version = version.expect("the edit that made the family was published");
    let (id, name, memtable_id) = (id.get(), name.to_owned(), writer.next_memtable_id);
    let family = Arc::new(Family::new(
        id,
        name,
        options,
        version,
        memtable_id,
        &jobs.context.options,
        jobs.context.fit,
    ));
    writer.next_memtable_id += 1;
    jobs.tree.add_family(&family);
    Ok(family)
}

/// Drops a family: its files become obsolete, and recovery skips its entries in the log.
pub(crate) fn drop(jobs: &Arc<Jobs>, family: &Arc<Family>) -> Result<()> {
    let mut writer = enter(jobs)?;
    if family.is_dropped() {
        return Err(Error::not_found(format!(
            "column family {} was dropped already: use another family",
            family.name
        )));
    }
    let last_read_state = jobs.tree.drop_family(family)?;
    writer.changed.remove(&family.id);
    let listed = |number| last_read_state.version.vssts.contains_key(&number);
    jobs.large.segments.family_dropped(family.id, listed);
    family.discard_read_state();
    jobs.log.floors().hint();
    jobs.context.signals.notify_work();
    Ok(())
}

/// Returns the writer lock, so that no write can encounter a partly created or dropped family.
fn enter(jobs: &Arc<Jobs>) -> Result<MutexGuard<'_, Writer>> {
    let writer = jobs.writes.memtables.lock();
    jobs.writes.memtables.wait_for_inserts();
    jobs.context.health.check()?;
    Ok(writer)
}

/// Checks the options for a family of the store.
pub(crate) fn check(store: &Options, name: &str, options: &FamilyOptions) -> Result<()> {
    options.validate()?;
    options.check_names(store).map_err(|e| e.context(format!("column family {name}")))
}

/// Checks the name of a new family.
pub(crate) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > limits::FAMILY_NAME_LEN_MAX {
        return Err(Error::invalid(format!(
            "the name of a column family has 1 to {} bytes, not {}",
            limits::FAMILY_NAME_LEN_MAX,
            name.len()
        )));
    }
    Ok(())
}

/// Replaces the options of a family. Running jobs keep their options; compaction and collection
/// apply the new ones as they rewrite data.
pub(crate) fn set_options(jobs: &Arc<Jobs>, family: &Arc<Family>, options: FamilyOptions) -> Result<()> {
    let _writer = enter(jobs)?;
    let options = options.derived().keeping_operator(&family.settings.given());
    if *family.settings.given() != options {
        let record = Record::UpdateFamily { id: family.id, options: options.encode() };
        jobs.files.manifest.commit(Edit(vec![record]))?;
        family.set_options(options);
        jobs.context.signals.notify_work();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::{Db, FamilyOptions, Options};
    use base::ErrorKind;
    use io::sim::SimEnv;

    /// Another thread may drop the family between the check of the handle and the writer lock.
    #[test]
    fn a_family_is_dropped_once() {
        let sim = SimEnv::new(1);
        let db = Db::open_in(sim.env(), "/store", Options::default()).unwrap();
        let family = db.create_column_family("x", FamilyOptions::default()).unwrap();
        let jobs = &db.engine().jobs;
        super::drop(jobs, &family.0).unwrap();
        let e = super::drop(jobs, &family.0).unwrap_err();
        assert_eq!(
            (e.kind(), e.message()),
            (ErrorKind::NotFound, "column family x was dropped already: use another family")
        );
    }
}
