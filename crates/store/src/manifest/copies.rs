//! What an open reads of `CURRENT` and a manifest that have copies.
//!
//! A manifest and its copy hold the same bytes, each record at the same offset in both, and both are synced before an edit counts as
//! durable. So whatever is damaged, cut off or missing in one of them is in the other: [`merged`] takes each record from the
//! first file in which it is intact. Where a crash tore the last records of one file and not of the other, they count: nobody was
//! told of them, and nobody was told that they failed.
//!
//! `CURRENT` and its copy are written one after the other, and each rename leaves a whole file. Between the two they name different
//! manifests with the same edits, and both manifests are whole. The one with the higher edit counts, and of equal ones the newer
//! manifest: a file of an earlier time in place of one of them leads to no earlier state. The copy appears only when `CURRENT` names a
//! manifest with a copy durably, so a release that knows of no copies never leaves a stale one behind.
//!
//! What is damaged is told ([`super::ManifestReport::damaged`]), and written anew by the next roll: that is the first commit of whoever
//! opens the store for writing.

use super::format::{Current, HEADER_LEN, Header, confirmed, read_record};
use super::replay::read_manifest;
use crate::format::Feature;
use crate::names;
use base::{Error, ErrorKind, Result};
use io::Env;
use std::path::{Path, PathBuf};

/// The longest `CURRENT` that is read, bytes.
pub(super) const CURRENT_LEN_MAX: usize = 4096;

/// A damaged copy, and the edit that is missing in it; 0: more than edits.
#[derive(Debug)]
pub(super) struct Note {
    edit: u64,
    error: Error,
}

/// Which manifest `CURRENT` and its copy name.
pub(super) struct Currents {
    /// `None`: neither can be read, or neither is there.
    pub current: Option<Current>,
    /// Why the original is not what counts; `NotFound` if it is missing.
    pub original: Option<Error>,
    /// The same of the copy.
    pub copy: Option<Error>,
}

impl Currents {
    /// Reads both.
    ///
    /// # Errors
    /// Those of reading that pass by themselves.
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
        // A crash came between the first `CURRENT` of a manifest with a copy and its own: that is no damage.
        if copy.as_ref().is_some_and(|e| e.kind() == ErrorKind::NotFound)
            && one(names::CURRENT_COPY_TEMP)?.is_ok()
        {
            copy = None;
        }
        Ok(Currents { current: best, original: original.err(), copy })
    }

    /// Those of them that a store with copies must have whole, and has not.
    fn damage(self) -> impl Iterator<Item = Error> {
        self.original.into_iter().chain(self.copy).map(lost)
    }
}

/// Says of a file that cannot be read that another one has what was in it.
fn lost(e: Error) -> Error {
    let file = e.file().map(Path::to_owned).unwrap_or_default();
    let why = "this file is damaged or missing, and its copy is intact: an open for writing makes it anew";
    Error::corruption(why).at_file(file).caused_by(e)
}

/// A manifest, as its files tell it.
pub(super) struct Merged {
    /// Header and records; behind them what is intact in neither file.
    pub bytes: Vec<u8>,
    /// Its name.
    pub name: String,
    /// The original.
    pub path: PathBuf,
    notes: Vec<Note>,
    /// The last edit that the original says to be durable: both files had it before either was read.
    durable: u64,
}

impl Merged {
    /// What is damaged in one of the files, of a store with copies: of edits, those that were durable when the files were read. `edit`: one
    /// that was.
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

/// Reads the manifest of this number, and its copy if it has one. `current`: what names it.
///
/// # Errors
/// Those of reading, if neither can be read.
pub(super) fn read(env: &Env, dir: &Path, number: u64, current: Option<&Current>) -> Result<Merged> {
    let name = names::manifest(number);
    let (path, copy_path) = (io::fs::join(dir, &name), io::fs::join(dir, &names::manifest_copy(number)));
    let original = read_one(env, &path)?;
    let has_copy = |bytes: &Vec<u8>| match Header::decode(bytes) {
        Ok(header) => header.format.allows(Feature::ManifestCopies),
        // Of a newer format it is refused; a damaged header tells nothing.
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

/// A file, or why it cannot be read; an error that passes by itself says nothing of the file.
fn read_one(env: &Env, path: &Path) -> Result<Result<Vec<u8>>> {
    match read_manifest(env, path) {
        Err(e) if e.is_passing() => Err(e.at_file(path)),
        read => Ok(read),
    }
}

/// The manifest of the intact records of two files that are read for a repair.
pub(super) fn merged_bytes(original: &[u8], copy: &[u8], current: Option<&Current>) -> Vec<u8> {
    merged([original, copy], [Path::new(""); 2], current).0
}

/// A manifest of the intact records of two files.
fn merged(parts: [&[u8]; 2], paths: [&Path; 2], current: Option<&Current>) -> (Vec<u8>, Vec<Note>, u64) {
    let [original, copy] = parts;
    let is_meant =
        |header: &Header| current.is_none_or(|it| (it.uid, it.manifest) == (header.manifest, header.number));
    let header = |bytes: &[u8]| Header::decode(bytes).ok().filter(is_meant);
    let (own, other) = (header(original), header(copy));
    let Some(uid) = own.or(other).map(|header| header.manifest) else {
        // Whatever is wrong with the original says it.
        return (original.to_vec(), Vec::new(), 0);
    };
    let mut notes: [Option<Note>; 2] = [None, None];
    let mut note = |nth: usize, offset: usize, edit: u64| {
        let why = "this file and its copy differ here, and only the other one is intact";
        let error = Error::corruption(why).at_file(paths[nth]).at_offset(offset as u64);
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
    // Whether the end is torn or damaged is said by the file that confirms what is missing.
    let at = out.len();
    let tells = |bytes: &&[u8]| confirmed(uid, bytes, at + 1, last + 1);
    let longer = if original.len() >= copy.len() { original } else { copy };
    let tail = parts.iter().copied().find(tells).unwrap_or(longer);
    out.extend_from_slice(tail.get(at..).unwrap_or_default());
    (out, notes.into_iter().flatten().collect(), durable)
}
