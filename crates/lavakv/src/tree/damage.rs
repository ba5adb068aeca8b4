//! Consequences of an unreadable file for its family: see `files::damaged`.

use super::Tree;
use super::family::Family;
use crate::context::event::{DamagedFile, Event};
use crate::files::damaged::{Quarantine, QuarantinedFile};
use crate::files::data_file::DataFile;
use base::{Error, key};
use std::sync::Arc;
use table::SegmentReference;
use version::names;
use version::{FamilyId, FileMeta, FileOwner, State, Version};

/// Returns the family of a data file, and its metadata.
fn find(state: &State, number: u64) -> Option<(FamilyId, DataFile)> {
    let (FileOwner::Table { family, .. } | FileOwner::Vsst { family }) = state.place_of(number)?;
    Some((family, DataFile::find(state, number)?))
}

fn entry(family: &Family, found: &DataFile, error: &Error) -> QuarantinedFile {
    let (kind, bytes, ends, table) = match found {
        DataFile::Table(f) => (f.kind(), f.len, (&f.smallest, &f.largest), Some(f.clone())),
        DataFile::Vsst(v) => (v.kind(), v.len, (&v.smallest, &v.largest), None),
    };
    let told = DamagedFile {
        file: kind.to_string(),
        family: family.name.clone(),
        is_table: table.is_some(),
        bytes,
        first_key: key::user_key(ends.0).to_vec(),
        last_key: key::user_key(ends.1).to_vec(),
        error: error.clone(),
    };
    // A copy of the metadata, which does not count as a use of the file.
    let table = table.map(|f| Arc::new(FileMeta { copies: Arc::default(), ..FileMeta::clone(&f) }));
    QuarantinedFile { family: family.id, told, table }
}

/// Returns the value files that are excluded from collection because of a damaged file. For a
/// damaged table these are all files with a name between the first and the last that it uses,
/// whatever its list contains. Collections query tables by these two names.
fn never_collected(version: &Version, found: &DataFile) -> Vec<u64> {
    match found {
        DataFile::Vsst(meta) => vec![meta.number],
        DataFile::Table(meta) => {
            let may_use =
                |number: &u64| version.names_of(*number).iter().any(|&name| meta.uses.may_have(name));
            version.vssts.keys().filter(may_use).collect()
        }
    }
}

impl Tree {
    fn quarantine(&self) -> &Quarantine {
        &self.files.tables.quarantine
    }

    /// Adds a file to the quarantine, unless it is there. Runs `then` for the consequences before
    /// the statistics and the listener are updated.
    fn enter(&self, number: u64, entry: QuarantinedFile, then: impl FnOnce()) {
        let told = entry.told.clone();
        if !self.quarantine().add(number, entry) {
            return;
        }
        then();
        self.context.stats.files_set_aside.add(1);
        self.context.notify(&Event::FileSetAside { file: told });
    }

    /// Returns the quarantined files that are still part of the store. `holds`: whether a memtable
    /// references a file.
    pub fn damaged_files(&self, holds: impl Fn(u64) -> bool) -> Vec<DamagedFile> {
        let state = self.files.manifest.state();
        let known = |number: u64| state.place_of(number).is_some() || holds(number);
        self.quarantine()
            .all()
            .into_iter()
            .filter(|(number, _)| known(*number))
            .map(|(_, told)| told)
            .collect()
    }

    /// Quarantines a file in which `error` was found. Returns false if the manifest lists no such
    /// data file.
    pub fn set_aside(&self, number: u64, error: &Error) -> bool {
        let Some((id, found)) = find(&self.files.manifest.state(), number) else { return false };
        if self.quarantine().has(number) {
            return true;
        }
        let Some(family) = self.families.get(id) else { return true };
        self.enter(number, entry(&family, &found, error), || {
            family.set_aside(self.quarantine().tables_of(id));
            self.quarantine().leave_uncollected(never_collected(&family.read_state().version, &found));
        });
        true
    }

    /// Quarantines a file that a job found damaged, perhaps again. Collections may meanwhile have
    /// moved values that a damaged table may reference into files with other names. Without their
    /// exclusion the job would fail again and again.
    pub fn set_aside_for_jobs(&self, number: u64, error: &Error) -> bool {
        if !self.set_aside(number, error) {
            return false;
        }
        let Some((id, found)) = find(&self.files.manifest.state(), number) else { return true };
        let Some(family) = self.families.get(id) else { return true };
        self.quarantine().leave_uncollected(never_collected(&family.read_state().version, &found));
        true
    }

    /// Quarantines the segment of a large value that only the log references so far.
    pub fn set_segment_aside(
        &self,
        family: &Family,
        user_key: &[u8],
        reference: &SegmentReference,
        error: &Error,
    ) {
        let told = DamagedFile {
            file: names::vsst(reference.file),
            family: family.name.clone(),
            is_table: false,
            bytes: reference.stored_len,
            first_key: user_key.to_vec(),
            last_key: user_key.to_vec(),
            error: error.clone(),
        };
        self.enter(reference.file, QuarantinedFile { family: family.id, told, table: None }, || {});
    }
}
