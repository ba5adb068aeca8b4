//! The data files in a directory, identified by their footers.
//!
//! The uid in the footer identifies a file, not its name, so files whose names were exchanged are
//! all found. A file that has grown ends where its footer is found. A file with a damaged footer is
//! known by its name alone, and is readable only if a manifest gives its uid.

use base::{HashMap, Result, Uid};
use io::{Access, Env, ReadFile};
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use table::salvage::{self, Kind};
use version::names::{self, FileKind};

/// Length of the part at the end of a file in which to search for its footer.
const SEARCH_LEN: u64 = 1 << 20;
/// Length of the footer of every kind; its last 8 bytes are the magic.
const FOOTER_LEN: usize = 64;

/// Path of a file, and the length of its valid part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DataFilePath {
    pub path: PathBuf,
    pub len: u64,
}

impl DataFilePath {
    /// Opens the file for reading.
    pub fn open(&self, env: &Env) -> Result<Arc<dyn ReadFile>> {
        Ok(store::repair::clipped(env.fs.open(&self.path, Access::Buffered)?, self.len))
    }
}

/// Data files of a directory.
#[derive(Debug, Default)]
pub(super) struct DataFiles {
    /// Files with a readable footer, by uid.
    pub known: HashMap<Uid, (Kind, DataFilePath)>,
    /// Second copy of each file in `known` that was being migrated to another tier: see
    /// [`super::copies`].
    pub copies: HashMap<Uid, DataFilePath>,
    /// All files by name, with or without a readable footer.
    pub named: HashMap<FileKind, DataFilePath>,
    /// Files in `named` without a readable footer.
    pub silent: Vec<FileKind>,
}

impl DataFiles {
    /// Returns true if the directory has a data file of LavaKV.
    pub fn have_keys(&self) -> bool {
        let is_of_keys = |kind: &FileKind| kind.data().is_some() || matches!(kind, FileKind::Tail(_));
        self.named.keys().any(is_of_keys)
    }

    /// Returns the place of a file that the manifest names. Of two copies it takes the one with
    /// this name, since the other may be incomplete.
    pub fn place_of(&self, uid: Uid, kind: FileKind) -> Option<&DataFilePath> {
        let (_, first) = self.known.get(&uid)?;
        let name = kind.to_string();
        let is_named =
            |place: &&DataFilePath| place.path.file_name().is_some_and(|file| file == name.as_str());
        Some(self.copies.get(&uid).filter(is_named).unwrap_or(first))
    }
}

/// Reads the footer of every data file.
///
/// # Errors
/// `Unsupported` if a newer release wrote a file; the errors of listing the directory.
pub(super) fn look(env: &Env, dir: &Path) -> Result<DataFiles> {
    let mut files = DataFiles::default();
    for entry in env.fs.list(dir)? {
        let Some(kind) = names::parse(&entry.name) else { continue };
        let path = io::fs::join(dir, &entry.name);
        let place = DataFilePath { path, len: entry.len };
        if kind.data().is_some() {
            match end_of(env, &place)? {
                Some((what, uid, len)) => {
                    let place = DataFilePath { len, ..place.clone() };
                    match files.known.entry(uid) {
                        Entry::Vacant(entry) => drop(entry.insert((what, place))),
                        Entry::Occupied(_) => drop(files.copies.insert(uid, place)),
                    }
                }
                None => files.silent.push(kind),
            }
        }
        files.named.insert(kind, place);
    }
    files.silent.sort_unstable();
    Ok(files)
}

/// Returns the kind, the uid and the end of a file. Returns `None` also if the file is unreadable.
fn end_of(env: &Env, place: &DataFilePath) -> Result<Option<(Kind, Uid, u64)>> {
    let Ok(file) = env.fs.open(&place.path, Access::Buffered) else { return Ok(None) };
    match salvage::identify(&*file, place.len) {
        Ok(Some((kind, uid))) => return Ok(Some((kind, uid, place.len))),
        Err(e) if e.kind() == base::ErrorKind::Unsupported => return Err(e),
        Ok(None) | Err(_) => {}
    }
    let start = place.len.saturating_sub(SEARCH_LEN);
    let mut bytes = vec![0; (place.len - start) as usize];
    if file.read_at(&mut bytes, start).is_err() {
        return Ok(None);
    }
    const MAGICS: [&[u8]; 3] = [b"LAVAKSST", b"LAVAVSST", b"LAVASEGM"];
    let ends = bytes.windows(8).enumerate().rev().filter(|(_, magic)| MAGICS.contains(magic));
    for end in ends.map(|(at, _)| start + at as u64 + 8) {
        if end >= FOOTER_LEN as u64
            && let Ok(Some((kind, uid))) = salvage::identify(&*file, end)
        {
            return Ok(Some((kind, uid, end)));
        }
    }
    Ok(None)
}
