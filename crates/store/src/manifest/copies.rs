//! Reading of `CURRENT` and of manifests with copies.
//!
//! A manifest and its copy hold the same bytes, each record at the same offset in both, and both
//! are synced before an edit counts as durable. So damage or loss in one of them is intact in the
//! other: [`merged`] takes each record from the first file in which it is intact. If a crash tore
//! the last records of only one file, these records count, because no caller has been told their
//! outcome yet.
//!
//! `CURRENT` and its copy are replaced one after the other, and each rename leaves a whole file.
//! Between the two renames they name different manifests with the same edits, and both manifests
//! are whole. The higher edit wins, and the newer manifest for equal edits: a restored older file
//! in place of one of them leads to no earlier state. The copy appears only once `CURRENT` durably
//! names a manifest with a copy, so a release without copies never leaves a stale one behind.
//!
//! Damage is reported ([`super::ManifestReport::damaged`]) and repaired by the next roll, which is
//! the first commit after an open for writing.

use super::format::{Current, HEADER_LEN, Header, confirmed, read_record};
use super::replay::read_manifest;
use crate::format::Feature;
use crate::names;
use base::{Error, ErrorKind, Result};
use io::Env;
use std::path::{Path, PathBuf};

/// Maximum length of `CURRENT`, bytes.
pub(super) const CURRENT_LEN_MAX: usize = 4096;

/// A damaged copy, and the edit that it lacks; 0: more than edits.
#[derive(Debug)]
pub(super) struct Note {
    edit: u64,
    error: Error,
}

/// The contents of `CURRENT` and of its copy.
pub(super) struct Currents {
    /// `None`: both are unreadable or missing.
    pub current: Option<Current>,
    /// The error of the original; `NotFound` if it is missing.
    pub original: Option<Error>,
    /// The error of the copy.
    pub copy: Option<Error>,
}

impl Currents {
    /// Reads both.
    ///
    /// # Errors
    /// Transient errors of reading.
    pub(super) fn read(env: &Env, dir: &Path) -> Result<Currents> {
        let one = |name: &str| -> Result<Result<Current>> {
            let path = io::fs::join(dir, name);
            let read = env.fs.read_all(&path, CURRENT_LEN_MAX);
            match read.and_then(|bytes| Current::decode(&bytes)).map_err(|e| e.at_file(&path)) {
                Err(e) if e.is_passing() => Err(e),
                read => Ok(read),
            }
        };
        let (original, copy) = (one(names::CURRENT)?, one(names::CURRENT_COPY)?);
        let best = [&original, &copy].into_iter().flatten().max_by_key(|it| (it.edit, it.manifest)).cloned();
        let mut copy = copy.err();
        // A crash came between the first `CURRENT` of a manifest with a copy and its own copy; that
        // is no damage.
        if copy.as_ref().is_some_and(|e| e.kind() == ErrorKind::NotFound)
            && one(names::CURRENT_COPY_TEMP)?.is_ok()
        {
            copy = None;
        }
        Ok(Currents { current: best, original: original.err(), copy })
    }

    /// Returns the errors of both; in a store with copies each of them is damage.
    fn damage(self) -> impl Iterator<Item = Error> {
        self.original.into_iter().chain(self.copy).map(lost)
    }
}

/// Remedy of damage that an open for writing repairs.
const RESTORED: &str = "an open for writing writes both files anew";

/// Returns the error for a file whose contents are intact in another one.
fn lost(e: Error) -> Error {
    let file = e.file().map(Path::to_owned).unwrap_or_default();
    let why = "this file is damaged or missing, and its copy is intact: no data is lost; open the store \
               for writing to restore it";
    Error::corruption(why).with_remedy(RESTORED).at_file(file).caused_by(e)
}

/// A manifest, merged from its files.
pub(super) struct Merged {
    /// Header and records; at the end, the bytes that are intact in neither file.
    pub bytes: Vec<u8>,
    /// Name of the manifest.
    pub name: String,
    /// Path of the original.
    pub path: PathBuf,
    notes: Vec<Note>,
    /// The last edit that the original confirms: both files had it before either was read.
    durable: u64,
}

impl Merged {
    /// Returns the damage in one of the files, for a store with copies. Only edits count that were
    /// durable when the files were read; `edit` was durable for certain.
    pub(super) fn damage(self, currents: Currents, edit: u64) -> Vec<Error> {
        let edit = edit.max(self.durable).max(currents.current.as_ref().map_or(0, |current| current.edit));
        let has_copies =
            Header::decode(&self.bytes).is_ok_and(|header| header.format.allows(Feature::ManifestCopies));
        if !has_copies {
            return Vec::new();
        }
        let notes = self.notes.into_iter().filter(|note| note.edit <= edit).map(|note| note.error);
        currents.damage().chain(notes).collect()
    }
}

/// Reads the manifest of this number, and its copy if it has one. `current`: the contents of
/// `CURRENT`.
///
/// # Errors
/// Errors of reading, if neither can be read.
pub(super) fn read(env: &Env, dir: &Path, number: u64, current: Option<&Current>) -> Result<Merged> {
    let name = names::manifest(number);
    let (path, copy_path) = (io::fs::join(dir, &name), io::fs::join(dir, &names::manifest_copy(number)));
    let original = read_one(env, &path)?;
    let has_copy = |bytes: &Vec<u8>| match Header::decode(bytes) {
        Ok(header) => header.format.allows(Feature::ManifestCopies),
        // A newer format is refused later; a damaged header proves nothing.
        Err(e) => e.kind() != ErrorKind::Unsupported,
    };
    let whole =
        |bytes| Merged { bytes, name: name.clone(), path: path.clone(), notes: Vec::new(), durable: 0 };
    if original.as_ref().is_ok_and(|bytes| !has_copy(bytes)) {
        return original.map(whole);
    }
    let copy = read_one(env, &copy_path)?;
    let note = |e: Error, path: &Path| Note { edit: 0, error: lost(e.at_file(path)) };
    match (original, copy) {
        (Ok(bytes), Ok(copy)) if bytes == copy => Ok(whole(bytes)),
        (Ok(bytes), Ok(copy)) => {
            let (bytes, notes, durable) = merged([&bytes, &copy], [&path, &copy_path], current);
            Ok(Merged { notes, durable, ..whole(bytes) })
        }
        (Ok(bytes), Err(e)) => Ok(Merged { notes: vec![note(e, &copy_path)], ..whole(bytes) }),
        (Err(e), Ok(bytes)) => Ok(Merged { notes: vec![note(e, &path)], ..whole(bytes) }),
        (Err(e), Err(_)) => Err(e.at_file(&path)),
    }
}

/// Returns a file, or its error. Transient errors, which say nothing about the file, are returned
/// as errors of this function.
fn read_one(env: &Env, path: &Path) -> Result<Result<Vec<u8>>> {
    match read_manifest(env, path) {
        Err(e) if e.is_passing() => Err(e.at_file(path)),
        read => Ok(read),
    }
}

/// Returns the manifest of the intact records of two files, for a repair.
pub(super) fn merged_bytes(original: &[u8], copy: &[u8], current: Option<&Current>) -> Vec<u8> {
    merged([original, copy], [Path::new(""); 2], current).0
}

/// Merges the intact records of two files.
fn merged(parts: [&[u8]; 2], paths: [&Path; 2], current: Option<&Current>) -> (Vec<u8>, Vec<Note>, u64) {
    let [original, copy] = parts;
    let is_meant =
        |header: &Header| current.is_none_or(|it| (it.uid, it.manifest) == (header.manifest, header.number));
    let header = |bytes: &[u8]| Header::decode(bytes).ok().filter(is_meant);
    let (own, other) = (header(original), header(copy));
    let Some(uid) = own.or(other).map(|header| header.manifest) else {
        // The reader of the original reports its damage.
        return (original.to_vec(), Vec::new(), 0);
    };
    let mut notes: [Option<Note>; 2] = [None, None];
    let mut note = |nth: usize, offset: usize, edit: u64| {
        let why = "this file is damaged here, and its copy is intact: no data is lost; open the store for \
                   writing to restore it";
        let error = Error::corruption(why).with_remedy(RESTORED);
        let error = error.at_file(paths[nth]).at_offset(offset as u64);
        notes[nth].get_or_insert(Note { edit, error });
    };
    [own.is_none(), other.is_none()]
        .into_iter()
        .enumerate()
        .filter(|it| it.1)
        .for_each(|it| note(it.0, 0, 0));
    let mut out = Vec::with_capacity(original.len().max(copy.len()));
    let first = if own.is_some() { original } else { copy };
    out.extend_from_slice(first.get(..HEADER_LEN).unwrap_or_default());
    let (mut last, mut durable) = (0, 0);
    loop {
        let at = out.len();
        let records = parts.map(|bytes| read_record(uid, bytes, at).ok());
        let Some(record) = records[0].or(records[1]) else { break };
        let end = at + record.len();
        let intact = if records[0].is_some() { original } else { copy };
        out.extend_from_slice(intact.get(at..end).unwrap_or_default());
        (0..2).filter(|nth| records[*nth].is_none()).for_each(|nth| note(nth, at, record.edit));
        last = record.edit;
        durable = records[0].map_or(durable, |record| record.durable);
    }
    // The file that confirms the missing records decides whether the end is torn or damaged.
    let at = out.len();
    let tells = |bytes: &&[u8]| confirmed(uid, bytes, at + 1, last + 1);
    let longer = if original.len() >= copy.len() { original } else { copy };
    let tail = parts.iter().copied().find(tells).unwrap_or(longer);
    out.extend_from_slice(tail.get(at..).unwrap_or_default());
    (out, notes.into_iter().flatten().collect(), durable)
}
