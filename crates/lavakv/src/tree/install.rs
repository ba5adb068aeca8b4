//! How a change of the files becomes the families': one way for flush, compaction, collection and clean-up.
//!
//! ```text
//! work out what the families will look like -> commit the edit -> publish -> retire inputs, or remove outputs
//! ```
//!
//! A job says what each family's part in its change is ([`Part`]), and of the state that is current how that reads as
//! records. What a version carries along (the sums under all names that a compaction touches) and what is derived of it (the
//! ledger) is worked out *before* the lock of the manifest, from the state as it is published then. Under the lock the records are
//! made once more, of the state with every edit that was accepted meanwhile. If that has another version of the family, what was
//! worked out is brought up to date by what the others changed ([`version::changes`], [`values::Ledger::after`]): so the lock is held
//! for as long as that takes, and not for what the change itself takes. What the families looked like before goes after the lock.
//!
//! What comes of a part:
//!
//! * **Whole**: the family has its new version; what the change replaced goes with its last reader.
//! * **Overtaken**: its inputs are not there any more. Its outputs are removed.
//! * **Dropped**: the family was, and nobody reads the outputs. They are removed.
//!
//! After an error nothing is removed: the edit may be durable all the same, and whoever made the files knows what to do.

use super::Tree;
use super::family::{Derived, Family};
use crate::files::data_file::DataFile;
use base::Result;
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use version::{Edit, FamilyId, Record, State, StoreRecord, Version};

/// One family's part in a change.
pub(crate) struct Part {
    pub family: Arc<Family>,
    /// Memtables that are in tables from now on.
    pub flushed: Vec<u64>,
    /// Bytes of them.
    pub flushed_bytes: usize,
    /// What the change replaces: obsolete once it is durable.
    pub retired: Vec<DataFile>,
    /// The files that were made for it.
    pub created: Vec<(u64, PathBuf)>,
    /// Copies of tables that go on under their numbers, if they are not the family's after all.
    pub copied: Vec<PathBuf>,
}

impl Part {
    pub fn new(family: &Arc<Family>) -> Part {
        let (flushed, retired, created, copied) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Part { family: family.clone(), flushed, flushed_bytes: 0, retired, created, copied }
    }
}

/// What came of a part of a change: see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Installed {
    Whole,
    Overtaken,
    Dropped,
}

/// What a change makes of the families, if nothing comes between.
struct Prepared {
    edit: Edit,
    /// By part.
    families: Vec<Option<PreparedFamily>>,
}

/// What was derived of a part's family, and of which version it begins.
struct PreparedFamily {
    before: Arc<Version>,
    derived: Derived,
}

impl Tree {
    /// A read state was let go of: files may have waited for that.
    pub fn was_let_go(&self) {
        if self.files.obsolete.has_ready() {
            self.context.signals.notify_work();
        }
    }

    /// Makes a change durable and publishes it. `records`: what the manifest is to say for a part, by its place in the list;
    /// `None`: it is overtaken. It is called twice. `published` is called once the change is the store's, under the manifest's
    /// lock.
    ///
    /// # Errors
    /// Those of [`version::Manifest::commit_with`], and whatever stopped the store before.
    pub fn install(
        &self,
        parts: Vec<Part>,
        records: impl Fn(&State, usize) -> Option<Vec<Record>>,
        published: impl FnOnce(),
    ) -> Result<Vec<Installed>> {
        let Prepared { edit: tried, families } = self.prepare(&parts, &records);
        let prepared = RefCell::new(families);
        let mut outcomes = vec![Installed::Dropped; parts.len()];
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
                        *outcome = Installed::Whole;
                    }
                }
                self.context.signals.state_changed();
            },
        )?;
        // What may be the last that knows of a version: it takes a while to let go of.
        drop((replaced, tried));
        for nth in overtaken {
            if outcomes[nth] == Installed::Whole {
                outcomes[nth] = Installed::Overtaken;
            }
        }
        for (part, outcome) in parts.into_iter().zip(&outcomes) {
            match outcome {
                Installed::Whole => self.files.obsolete.add(part.retired),
                Installed::Overtaken | Installed::Dropped => {
                    self.remove_outputs(&part.created);
                    part.copied.iter().for_each(|path| drop(self.context.env.fs.remove(path)));
                }
            }
        }
        Ok(outcomes)
    }

    /// What the families will look like if nothing comes between.
    fn prepare(&self, parts: &[Part], records: &impl Fn(&State, usize) -> Option<Vec<Record>>) -> Prepared {
        let state = self.files.manifest.state();
        let all = (0..parts.len()).filter(|&nth| state.families.contains_key(&parts[nth].family.id));
        let edit = Edit(all.filter_map(|nth| records(&state, nth)).flatten().collect());
        // What contradicts the state is refused when it is committed.
        let Ok(after) = state.apply(&edit) else {
            return Prepared { edit, families: parts.iter().map(|_| None).collect() };
        };
        let derive = |part: &Part| {
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

    /// False if the family was dropped: by the answer a job that publishes an edit knows whose its inputs and outputs are. A
    /// moment later it may have been dropped, and then both its last version and what that version replaced still have
    /// readers.
    fn publish_in(&self, state: &State, part: &Part, own: Option<PreparedFamily>) -> bool {
        let known = state.families.get(&part.family.id).filter(|_| !part.family.is_dropped());
        let Some(known) = known else { return false };
        let (version, derived) = (known.version.clone(), own.map(|own| own.derived));
        part.family.install(version, derived, &part.flushed, self.context.now_ns());
        if !part.flushed.is_empty() {
            self.space.memory.flushed(part.flushed_bytes);
        }
        true
    }

    /// Commits what concerns any number of families, without tables of its own, and gives those that have a new version that
    /// version.
    ///
    /// # Errors
    /// Those of [`Tree::install`].
    pub fn install_everywhere(&self, build: impl FnOnce(&State) -> Result<Edit>) -> Result<State> {
        self.files.install(build, |state| self.publish(state))
    }

    /// Gives each family the version that the manifest has. Under the manifest's lock.
    pub fn publish(&self, state: &State) {
        for family in state.families.values() {
            if let Some(own) = self.families.get(family.id)
                && !Arc::ptr_eq(&own.read_state().version, &family.version)
            {
                own.install(family.version.clone(), None, &[], self.context.now_ns());
            }
        }
    }

    /// Drops a family, durably. Its last read state: what it holds is obsolete, and with it the files of its last version, which are
    /// on the list when this returns.
    ///
    /// The edit says how far sequences went: nothing that is flushed later may hold those that the family had last, and none is given
    /// twice. The caller has the writer's lock.
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
                // Jobs install under the same lock: none can add a file after this.
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

    /// Removes the outputs of a job that was given up. What cannot be removed now is removed at the next open.
    pub fn remove_outputs(&self, created: &[(u64, PathBuf)]) {
        self.forget(&created.iter().map(|(number, _)| *number).collect::<Vec<_>>());
        for (_, path) in created {
            let _ = self.context.env.fs.remove(path);
        }
    }

    /// Files of data are about to go.
    fn forget(&self, numbers: &[u64]) {
        self.files.tables.forget(numbers);
        numbers.iter().for_each(|number| self.kept.forget(*number));
    }

    /// Removes the files whose last reader is gone. One that cannot be removed holds none of the others up, and stays on the
    /// list.
    pub fn remove_obsolete(&self) -> Result<()> {
        let mut outcome = Ok(());
        let living = self.files.manifest.state();
        let ready = self.files.obsolete.take_ready();
        let mut gone = Vec::new();
        for file in &ready {
            match file {
                // The table is on the other disk now, under its number.
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

/// A family's part in an edit is what was tried, of the state as it is now.
fn rest_on(state: &State, edit: &mut Edit, tried: &Edit, id: FamilyId, own: &mut Option<PreparedFamily>) {
    let Some(own) = own else { return };
    edit.rest_on(tried, id, &own.before, own.derived.version());
    if !state.families.get(&id).is_some_and(|known| Arc::ptr_eq(&own.before, &known.version)) {
        own.derived.is_overtaken();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
