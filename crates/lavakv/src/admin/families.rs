//! Creating and dropping column families.

use crate::context::options::FamilyOptions;
use crate::engine::Engine;
use crate::files::obsolete::DataFile;
use crate::tree::family::Family;
use crate::tree::writer::Writer;
use crate::write::write_path::settle;
use base::sync::{MutexGuard, lock, write};
use base::{Error, ErrorKind, Result, limits};
use std::cell::Cell;
use std::sync::Arc;
use version::{Edit, Record, StoreRecord};

/// Makes a family; it exists once the edit is durable.
pub(crate) fn create(engine: &Arc<Engine>, name: &str, options: FamilyOptions) -> Result<Arc<Family>> {
    check_name(name)?;
    check(engine, name, &options)?;
    let mut writer = enter(engine)?;
    let (id, mut version) = (Cell::new(0), None);
    engine.manifest.commit_with(
        |state| {
            if state.family_named(name).is_some() {
                return Err(Error::new(
                    ErrorKind::AlreadyExists,
                    format!("column family {name} exists already"),
                ));
            }
            if state.families.len() >= limits::FAMILIES_MAX {
                return Err(Error::new(
                    ErrorKind::TooLarge,
                    "the store has as many column families as it can",
                ));
            }
            id.set(state.next_family);
            let record =
                Record::CreateFamily { id: id.get(), name: name.to_owned(), options: options.encode() };
            let visible = engine.snapshots.visible();
            // The floor may lie above the end of the log that a power loss leaves. Sequences then go on above it, or
            // recovery would take later writes for ones that are in tables.
            let floor = Record::LogFloor { family: id.get(), seq: visible + 1 };
            Ok(Edit(vec![record, floor, Record::Store(StoreRecord::LastSeq(visible))]))
        },
        |state| version = state.families.get(&id.get()).map(|f| f.version.clone()),
    )?;
    let version = version.expect("the edit that made the family was published");
    let (id, name, memtable_id) = (id.get(), name.to_owned(), writer.next_memtable_id);
    let family =
        Arc::new(Family::new(id, name, options, version, memtable_id, &engine.options, engine.space.fit()));
    writer.next_memtable_id += 1;
    write(&engine.families).insert(id, family.clone());
    Ok(family)
}

/// Drops a family: its files become obsolete, its entries in the log are skipped by recovery.
pub(crate) fn drop(engine: &Arc<Engine>, family: &Arc<Family>) -> Result<()> {
    if family.id == crate::write::batch::DEFAULT_FAMILY {
        return Err(Error::invalid("column family default cannot be dropped"));
    }
    let _writer = enter(engine)?;
    if family.is_dropped() {
        return Err(Error::not_found(format!("column family {} was dropped already", family.name)));
    }
    let mut last_view = family.view();
    engine.manifest.commit_with(
        |_| Ok(Edit(vec![Record::DropFamily { id: family.id }])),
        |_| {
            // Jobs install under the same lock: none can add a file after this.
            family.mark_dropped();
            last_view = family.view();
        },
    )?;
    write(&engine.families).remove(&family.id);
    engine.memory.discarded(last_view.active.bytes());
    for memtable in &last_view.frozen {
        engine.memory.flushed(memtable.bytes());
    }
    engine.obsolete.add(DataFile::all_of(&last_view.version));
    let listed = |number| last_view.version.vssts.contains_key(&number);
    engine.segments.family_dropped(engine, family.id, listed);
    for memtable in last_view.frozen.iter().chain([&last_view.active]) {
        engine.placement.forget(engine, memtable.id());
    }
    family.discard_view();
    engine.log.hint_release();
    engine.scheduler.notify_work();
    Ok(())
}

/// The writer's lock, so that no write can meet a family that is only half there. Service begins before it is taken: that
/// may have to freeze memtables.
fn enter(engine: &Arc<Engine>) -> Result<MutexGuard<'_, Writer>> {
    crate::admin::maintenance::must_be_writable(engine)?;
    let writer = lock(&engine.writer);
    settle(engine);
    engine.health.check()?;
    Ok(writer)
}

/// Options that a family can have from now on.
fn check(engine: &Engine, name: &str, options: &FamilyOptions) -> Result<()> {
    options.validate()?;
    options.check_policy(&engine.options).map_err(|e| e.context(format!("column family {name}")))
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > limits::FAMILY_NAME_LEN_MAX {
        return Err(Error::invalid(format!(
            "the name of a column family has 1 to {} bytes, not {}",
            limits::FAMILY_NAME_LEN_MAX,
            name.len()
        )));
    }
    Ok(())
}

/// Replaces the options of a family. What is running goes on as it began; data moves to the new options as compaction
/// and collection rewrite it.
pub(crate) fn set_options(engine: &Arc<Engine>, family: &Arc<Family>, options: FamilyOptions) -> Result<()> {
    check(engine, &family.name, &options)?;
    let _writer = enter(engine)?;
    if *family.given_options() != options {
        let record = Record::UpdateFamily { id: family.id, options: options.encode() };
        engine.manifest.commit(Edit(vec![record]))?;
        family.set_options(options);
        engine.scheduler.notify_work();
    }
    Ok(())
}
