//! Commits edits and publishes the new versions, for flush, compaction, collection and clean-up.
//!
//! ```text
//! work out what the families will look like -> commit the edit -> publish -> retire inputs, or remove outputs
//! ```
//!
//! A job passes each family's part in its edit ([`FamilyEdit`]), and a function from a manifest
//! state to the records of the parts.
//!
//! The next versions and the states derived from them are computed *before* the lock of the
//! manifest, from the published state. That includes the ledger, and the sums under all names that
//! a compaction touches. Under the lock the records are computed again, from the state with every
//! edit that was accepted meanwhile. If the family has another version by then, the derived state
//! is updated by the difference ([`version::changes`], [`values::Ledger::after`]). So the lock is
//! held for that difference, not for the whole edit. The previous read states are freed after the
//! lock is released.
//!
//! The new versions are published under that lock, in the order of the edits. If each family
//! published later, a reader could see a memtable together with its table, or a later version
//! without an earlier flush.
//!
//! Outcomes of a part:
//!
//! * **Whole**: the family has its new version. The replaced files go with their last reader.
//! * **Overtaken**: superseded, since its inputs are gone. Its outputs are removed.
//! * **Dropped**: the family was dropped, so its outputs have no reader. They are removed.
//!
//! After an error no file is removed: the edit may be durable all the same. The job that created
//! the files decides.

use super::Tree;
use super::family::{Derived, Family};
use crate::files::data_file::DataFile;
use base::Result;
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use version::{Edit, FamilyId, Record, State, StoreRecord, Version};

/// One family's part in an edit.
pub(crate) struct FamilyEdit {
    pub family: Arc<Family>,
    /// Ids of the memtables that the edit replaces by tables.
    pub flushed: Vec<u64>,
    /// Bytes of the flushed memtables.
    pub flushed_bytes: usize,
    /// Files that the edit makes obsolete.
    pub retired: Vec<DataFile>,
    /// New files of the edit.
    pub created: Vec<(u64, PathBuf)>,
    /// Copies of tables that keep their numbers; removed if the edit does not take them over.
    pub copied: Vec<PathBuf>,
}

impl FamilyEdit {
    pub fn new(family: &Arc<Family>) -> FamilyEdit {
        let (flushed, retired, created, copied) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        FamilyEdit { family: family.clone(), flushed, flushed_bytes: 0, retired, created, copied }
    }
}

/// Outcome of one part of an edit: see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstallOutcome {
    Whole,
    Overtaken,
    Dropped,
}

/// An edit and the derived families, valid if no other edit is accepted in between.
struct Prepared {
    edit: Edit,
    /// By part.
    families: Vec<Option<PreparedFamily>>,
}

/// The derived state of a part's family, and the version from which it was derived.
struct PreparedFamily {
    before: Arc<Version>,
    derived: Derived,
}

impl Tree {
    /// Notifies the scheduler after a read state was released, if obsolete files may now be
    /// removed.
    pub fn was_let_go(&self) {
        if self.files.obsolete.has_ready() {
            self.context.signals.notify_work();
        }
    }

    /// Makes an edit durable and publishes its versions. `records` returns the manifest records of
    /// a part, by its index; `None`: the part is superseded. It is called twice. `published` is
    /// called under the manifest's lock once the edit is part of the store.
    ///
    /// # Errors
    /// Those of [`version::Manifest::commit_with`], and those of a store that has failed before.
    pub fn install(
        &self,
        parts: Vec<FamilyEdit>,
        records: impl Fn(&State, usize) -> Option<Vec<Record>>,
        published: impl FnOnce(),
    ) -> Result<Vec<InstallOutcome>> {
        let Prepared { edit: tried, families } = self.prepare(&parts, &records);
        let prepared = RefCell::new(families);
        let mut outcomes = vec![InstallOutcome::Dropped; parts.len()];
        let (mut overtaken, mut replaced) = (Vec::new(), Vec::new());
        self.files.install(
            |state| {
                let (mut edit, mut prepared) = (Edit::default(), prepared.borrow_mut());
                for (nth, part) in parts.iter().enumerate() {
                    if !state.families.contains_key(&part.family.id) {
                        continue;
                    }
                    match records(state, nth) {
                        Some(records) => edit.0.extend(records),
                        None => {
                            overtaken.push(nth);
                            prepared[nth].iter_mut().for_each(|own| own.derived.is_overtaken());
                        }
                    }
                }
                for (part, own) in parts.iter().zip(&mut *prepared) {
                    rest_on(state, &mut edit, &tried, part.family.id, own);
                }
                Ok(edit)
            },
            |state| {
                published();
                let mut prepared = prepared.take();
                for ((part, own), outcome) in parts.iter().zip(&mut prepared).zip(&mut outcomes) {
                    replaced.push(part.family.read_state());
                    if self.publish_in(state, part, own.take()) {
                        *outcome = InstallOutcome::Whole;
                    }
                }
                self.context.signals.state_changed();
            },
        )?;
        // These may be the last references to a version, which take a while to free.
        drop((replaced, tried));
        for nth in overtaken {
            if outcomes[nth] == InstallOutcome::Whole {
                outcomes[nth] = InstallOutcome::Overtaken;
            }
        }
        for (part, outcome) in parts.into_iter().zip(&outcomes) {
            match outcome {
                InstallOutcome::Whole => self.files.obsolete.add(part.retired),
                InstallOutcome::Overtaken | InstallOutcome::Dropped => {
                    self.remove_outputs(&part.created);
                    part.copied.iter().for_each(|path| drop(self.context.env.fs.remove(path)));
                }
            }
        }
        Ok(outcomes)
    }

    /// Derives the families' next states ahead of the commit.
    fn prepare(
        &self,
        parts: &[FamilyEdit],
        records: &impl Fn(&State, usize) -> Option<Vec<Record>>,
    ) -> Prepared {
        let state = self.files.manifest.state();
        let all = (0..parts.len()).filter(|&nth| state.families.contains_key(&parts[nth].family.id));
        let edit = Edit(all.filter_map(|nth| records(&state, nth)).flatten().collect());
        // The commit refuses an edit that contradicts the state.
        let Ok(after) = state.apply(&edit) else {
            return Prepared { edit, families: parts.iter().map(|_| None).collect() };
        };
        let derive = |part: &FamilyEdit| {
            let (before, after) =
                (state.families.get(&part.family.id)?, after.families.get(&part.family.id)?);
            Some(PreparedFamily {
                before: before.version.clone(),
                derived: part.family.derive(after.version.clone()),
            })
        };
        let families = parts.iter().map(derive).collect();
        Prepared { edit, families }
    }

    /// Publishes the new version of a part's family. Returns false if the family was dropped; the
    /// job then owns its inputs and outputs. The family may also be dropped a moment later. Then
    /// its last version and the replaced one still have readers.
    fn publish_in(&self, state: &State, part: &FamilyEdit, own: Option<PreparedFamily>) -> bool {
        let known = state.families.get(&part.family.id).filter(|_| !part.family.is_dropped());
        let Some(known) = known else { return false };
        let (version, derived) = (known.version.clone(), own.map(|own| own.derived));
        part.family.install(version, derived, &part.flushed, self.context.now_ns());
        if !part.flushed.is_empty() {
            self.space.memory.flushed(part.flushed_bytes);
        }
        true
    }

    /// Commits an edit over any number of families without tables of its own, and publishes the
    /// versions that it changes.
    ///
    /// # Errors
    /// Those of [`Tree::install`].
    pub fn install_everywhere(&self, build: impl FnOnce(&State) -> Result<Edit>) -> Result<State> {
        self.files.install(build, |state| self.publish(state))
    }

    /// Publishes the manifest's version of each family. Called under the manifest's lock.
    pub fn publish(&self, state: &State) {
        for family in state.families.values() {
            if let Some(own) = self.families.get(family.id)
                && !Arc::ptr_eq(&own.read_state().version, &family.version)
            {
                own.install(family.version.clone(), None, &[], self.context.now_ns());
            }
        }
    }

    /// Drops a family durably. Returns its last read state; the files of its last version are on
    /// the obsolete list.
    ///
    /// The edit records the last sequence: the family's sequences are in no later table, and must
    /// not be assigned twice. The caller holds the writer's lock.
    ///
    /// # Errors
    /// Those of [`version::Manifest::commit`].
    pub fn drop_family(&self, family: &Arc<Family>) -> Result<Arc<super::family::ReadState>> {
        let mut last_read_state = family.read_state();
        self.files.manifest.commit_with(
            |_| {
                let last_seq = Record::Store(StoreRecord::LastSeq(self.snapshots.visible()));
                Ok(Edit(vec![last_seq, Record::DropFamily { id: family.id }]))
            },
            |_| {
                // Jobs install under the same lock, so none adds a file after this.
                family.mark_dropped();
                last_read_state = family.read_state();
            },
        )?;
        self.families.remove(family.id);
        self.space_sums.leave(family.id);
        self.space.memory.discarded(last_read_state.active.bytes());
        for memtable in &last_read_state.frozen {
            self.space.memory.flushed(memtable.bytes());
        }
        self.files.obsolete.add(DataFile::all_of(&last_read_state.version));
        Ok(last_read_state)
    }

    /// Removes the outputs of an abandoned job. The next open removes those that cannot be removed
    /// now.
    pub fn remove_outputs(&self, created: &[(u64, PathBuf)]) {
        self.forget(&created.iter().map(|(number, _)| *number).collect::<Vec<_>>());
        for (_, path) in created {
            let _ = self.context.env.fs.remove(path);
        }
    }

    /// Drops cached data of files before their removal.
    fn forget(&self, numbers: &[u64]) {
        self.files.tables.forget(numbers);
        numbers.iter().for_each(|number| self.kept.forget(*number));
    }

    /// Removes the obsolete files without readers. A file that cannot be removed stays on the list
    /// and does not block the others.
    pub fn remove_obsolete(&self) -> Result<()> {
        let mut outcome = Ok(());
        let living = self.files.manifest.state();
        let ready = self.files.obsolete.take_ready();
        let mut gone = Vec::new();
        for file in &ready {
            match file {
                // The table lives on the other tier, under the same number.
                DataFile::Table(meta) if living.table(meta.number).is_some() => self.files.tables.close(meta),
                _ => gone.push(file.number()),
            }
        }
        self.forget(&gone);
        for file in ready {
            if let Err(e) = self.files.remove(&file.kind().to_string()) {
                self.files.obsolete.add([file]);
                outcome = outcome.and(Err(e));
            }
        }
        outcome
    }
}

/// Rebases a family's part of an edit onto the current state.
fn rest_on(state: &State, edit: &mut Edit, tried: &Edit, id: FamilyId, own: &mut Option<PreparedFamily>) {
    let Some(own) = own else { return };
    edit.rest_on(tried, id, &own.before, own.derived.version());
    if !state.families.get(&id).is_some_and(|known| Arc::ptr_eq(&own.before, &known.version)) {
        own.derived.is_overtaken();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
