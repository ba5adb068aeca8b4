//! The files of data in a directory, by what they say they are.
//!
//! A file is known by the uid in its footer, not by its name, so that files whose names were exchanged are all there. One
//! that is longer than it was ends where its footer is found. One whose footer is damaged is known by its name alone, and
//! can be read only if a manifest tells its uid.

use base::{HashMap, Result, Uid};
use io::{Access, Env, ReadFile};
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use table::salvage::{self, Kind};
use version::names::{self, FileKind};

/// How far the end of a file is searched for its footer.
const SEARCH_LEN: u64 = 1 << 20;
/// Bytes of the footers of all kinds; the last 8 are the magic.
const FOOTER_LEN: usize = 64;

/// Where a file is, and how much of it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub path: PathBuf,
    pub len: u64,
}

impl Place {
    /// Opens it for reading.
    pub fn open(&self, env: &Env) -> Result<Arc<dyn ReadFile>> {
        Ok(store::repair::clipped(env.fs.open(&self.path, Access::Buffered)?, self.len))
    }
}

/// The files of data of a directory.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// Those that say what they are.
    pub known: HashMap<Uid, (Kind, Place)>,
    /// Of those that are there twice, since they were on their way to another disk, the other one: see [`super::copies`].
    pub copies: HashMap<Uid, Place>,
    /// Those that do not, and all others too, by their names.
    pub named: HashMap<FileKind, Place>,
    /// Of those in `named` the ones that say nothing.
    pub silent: Vec<FileKind>,
}

impl Files {
    /// True if there is a file of data of LavaKV's.
    pub fn have_keys(&self) -> bool {
        let is_of_keys = |kind: &FileKind| kind.data().is_some() || matches!(kind, FileKind::Tail(_));
        self.named.keys().any(is_of_keys)
    }

    /// Where a file is that a manifest names: of two copies the one that has this name, since the other one may not be whole.
    pub fn place_of(&self, uid: Uid, kind: FileKind) -> Option<&Place> {
        let (_, first) = self.known.get(&uid)?;
        let name = kind.to_string();
        let is_named = |place: &&Place| place.path.file_name().is_some_and(|file| file == name.as_str());
        Some(self.copies.get(&uid).filter(is_named).unwrap_or(first))
    }
}

/// Looks at the end of every file of data.
///
/// # Errors
/// `Unsupported` if a newer release wrote one; those of listing the directory.
pub(super) fn look(env: &Env, dir: &Path) -> Result<Files> {
    let mut files = Files::default();
    for entry in env.fs.list(dir)? {
        let Some(kind) = names::parse(&entry.name) else { continue };
        let path = io::fs::join(dir, &entry.name);
        let place = Place { path, len: entry.len };
        if kind.data().is_some() {
            match end_of(env, &place)? {
                Some((what, uid, len)) => {
                    let place = Place { len, ..place.clone() };
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

/// What a file is, and where it ends. `None` also if it cannot be read.
fn end_of(env: &Env, place: &Place) -> Result<Option<(Kind, Uid, u64)>> {
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
