//! Reading a manifest: recovery, and the listing of `lava dump`.

use super::format::{Current, HEADER_LEN, Header, RawRecord, read_record, vouched};
use crate::edit::Edit;
use crate::meta::{NUMBER_REACHED_MAX, damaged};
use crate::names::{self, FileKind};
use crate::state::State;
use base::{Error, ErrorKind, Result};
use io::{Access, Env};
use std::path::Path;

/// The longest manifest that is read.
pub(super) const MANIFEST_LEN_MAX: u64 = 4 << 30;

/// What a device reads or does not read, bytes.
const SECTOR: usize = 512;

/// The history in a manifest.
pub(super) struct History {
    pub(super) header: Header,
    pub(super) state: State,
    /// Edits after the snapshot.
    pub(super) edits: u64,
    /// Bytes before that, the header among them.
    pub(super) bytes: u64,
    /// Bytes after the last intact record: torn by a crash, and relied on by nobody.
    pub(super) torn_bytes: u64,
    /// The last edit for which a later record vouches, or which has nothing in it to lose.
    pub(super) vouched: u64,
}

/// Replays a manifest.
///
/// # Errors
/// `Corruption` with the offset, if a record is damaged that anything later in the file vouches for, or an intact one
/// contradicts the history; `Unsupported` if a newer release wrote it.
pub(super) fn replay(bytes: &[u8]) -> Result<History> {
    let header = Header::decode(bytes)?;
    let mut offset = HEADER_LEN;
    let first = read_record(header.manifest, bytes, offset).map_err(|e| {
        let why =
            "the snapshot at the start of the manifest is damaged; restore a backup, or run `lava repair`";
        e.context(why).with_kind(ErrorKind::Corruption)
    })?;
    let at = |offset: usize| move |e: Error| e.at_offset(offset as u64);
    let snapshot = Edit::decode(first.payload).map_err(at(offset))?;
    check_numbers(&first, first.edit, first.edit, first.edit).map_err(at(offset))?;
    let state = State::from_snapshot(header.store, first.edit, &snapshot);
    let mut history = History {
        header,
        state: state.map_err(damaged).map_err(at(offset))?,
        edits: 0,
        bytes: 0,
        torn_bytes: 0,
        vouched: first.edit,
    };
    let mut durable = first.durable;
    offset += first.len();
    while offset < bytes.len() {
        let expected = history.state.edit_number + 1;
        let record = match read_record(header.manifest, bytes, offset) {
            Ok(record) => record,
            Err(e) if vouched(header.manifest, bytes, offset + 1, expected) => {
                return Err(e.context(format!(
                    "manifest record of edit {expected} is damaged, and a later one vouches that it was durable; \
                     restore a backup, or run `lava repair`"
                )));
            }
            Err(_) => {
                history.torn_bytes = (bytes.len() - offset) as u64;
                break;
            }
        };
        check_numbers(&record, expected, durable, expected - 1).map_err(at(offset))?;
        durable = record.durable;
        let edit = Edit::decode(record.payload).map_err(at(offset))?;
        history.state = history.state.apply(&edit).map_err(damaged).map_err(at(offset))?;
        history.edits += 1;
        history.vouched = if record.payload.is_empty() { expected } else { durable };
        offset += record.len();
    }
    history.bytes = offset as u64;
    Ok(history)
}

/// A history whose next numbers could run out was not written by any store, and cannot be gone on with.
fn check_reached(state: &State) -> Result<()> {
    let numbers = [state.next_file_number, state.next_ltn, state.edit_number];
    match numbers.into_iter().find(|&n| n > NUMBER_REACHED_MAX) {
        Some(n) => Err(Error::corruption(format!("no store reaches the number {n}; run `lava repair`"))),
        None => Ok(()),
    }
}

/// An intact record whose numbers do not continue the history was not torn: the file is not what was written.
fn check_numbers(record: &RawRecord<'_>, edit: u64, durable_min: u64, durable_max: u64) -> Result<()> {
    let in_range = (1..=crate::meta::NUMBER_MAX).contains(&record.edit);
    if record.edit == edit && in_range && (durable_min..=durable_max).contains(&record.durable) {
        return Ok(());
    }
    Err(Error::corruption(format!(
        "manifest record of edit {} (durable {}) stands where edit {edit} belongs; run `lava repair`",
        record.edit, record.durable
    )))
}

/// What recovery found.
pub(super) struct Found {
    pub(super) history: History,
    /// The name of the manifest.
    pub(super) name: String,
    /// The largest file number in the directory, whatever the file is.
    pub(super) largest_number: u64,
}

/// Finds the manifest of a directory and replays it; writes nothing.
pub(super) fn find(env: &Env, dir: &Path) -> Result<Found> {
    let listing = env.fs.list(dir)?;
    let kinds: Vec<FileKind> = listing.iter().filter_map(|e| names::parse(&e.name)).collect();
    let largest_number = names::largest_number(kinds.iter().copied());
    let current_path = io::fs::join(dir, names::CURRENT);
    let bytes = match env.fs.read_all(&current_path, 4096) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == ErrorKind::NotFound => return Err(without_current(env, dir, &kinds)),
        Err(e) => return Err(e),
    };
    let current = Current::decode(&bytes).map_err(|e| e.at_file(&current_path))?;
    let name = names::manifest(current.manifest);
    let path = io::fs::join(dir, &name);
    let mut history =
        read_manifest(env, &path).and_then(|bytes| replay(&bytes)).map_err(|e| e.at_file(&path))?;
    history.vouched = history.vouched.max(current.edit);
    let header = &history.header;
    if header.manifest != current.uid || header.number != current.manifest {
        let why = "this is not the manifest that CURRENT names: a file was swapped; restore a backup, or run `lava repair`";
        return Err(Error::corruption(why).at_file(&path));
    }
    if history.state.edit_number < current.edit {
        let why = format!(
            "the manifest ends at edit {}, but CURRENT says that edit {} was durable: its end is damaged or missing; \
             restore a backup, or run `lava repair`",
            history.state.edit_number, current.edit
        );
        return Err(Error::corruption(why).at_file(&path));
    }
    history.state.verify().and_then(|()| check_reached(&history.state)).map_err(|e| e.at_file(&path))?;
    Ok(Found { history, name, largest_number })
}

fn read_manifest(env: &Env, path: &Path) -> Result<Vec<u8>> {
    let missing = |e: Error| match e.kind() {
        ErrorKind::NotFound => {
            Error::corruption("the manifest that CURRENT names is missing; run `lava repair`")
        }
        _ => e,
    };
    // A file system whose recorded length lags behind the data may hold more than it says.
    let len = env.fs.scan_extent_tail(path).map_err(missing)?;
    if len > MANIFEST_LEN_MAX {
        return Err(Error::corruption(format!("a manifest of {len} bytes is not believed")));
    }
    let mut bytes = vec![0; len as usize];
    let file = env.fs.open(path, Access::Buffered).map_err(missing)?;
    // Where the power failed on a record it may be unreadable: then it is torn, or vouched for and missed.
    io::read_around(&mut bytes, 0, SECTOR, |buf, offset| file.read_at(buf, offset))?;
    Ok(bytes)
}

/// Checks that a new store may be put into `dir`; returns the largest file number in it.
pub(super) fn check_vacant(env: &Env, dir: &Path, state: &State) -> Result<u64> {
    let listing = env.fs.list(dir)?;
    let kinds: Vec<FileKind> = listing.iter().filter_map(|e| names::parse(&e.name)).collect();
    if kinds.contains(&FileKind::Current) {
        let why = "there is a store in this directory already";
        return Err(Error::new(ErrorKind::AlreadyExists, why).at_file(dir));
    }
    // The files that the new state names may be there.
    let strange = |k: &FileKind| k.number().is_none_or(|n| state.place_of(n).is_none());
    let strangers: Vec<FileKind> = kinds.iter().copied().filter(strange).collect();
    match without_current(env, dir, &strangers) {
        e if e.kind() == ErrorKind::NotFound => Ok(names::largest_number(kinds)),
        e => Err(e),
    }
}

/// Why a directory without `CURRENT` does not open. A crash while a store was created leaves at most a manifest that
/// says nothing; everything else means that `CURRENT` was lost, and must not be mistaken for an empty directory.
fn without_current(env: &Env, dir: &Path, kinds: &[FileKind]) -> Error {
    let says_nothing = |number: u64| {
        let read = read_manifest(env, &io::fs::join(dir, &names::manifest(number)));
        match read.and_then(|bytes| replay(&bytes)) {
            Ok(history) => history.edits == 0 && history.state.files().next().is_none(),
            Err(e) => e.is_corruption(), // not even synced
        }
    };
    let lost = kinds.iter().any(|kind| match *kind {
        FileKind::Ksst(_) | FileKind::Vsst(_) | FileKind::Log(_) => true,
        FileKind::Manifest(number) => !says_nothing(number),
        _ => false,
    });
    if lost {
        Error::corruption("CURRENT is missing, but the directory holds files of a store: run `lava repair`")
            .at_file(dir)
    } else {
        Error::not_found("there is no store in this directory").at_file(dir)
    }
}

/// Lists a manifest for people: a line for the header, each record and each change in it. Never fails: what cannot be
/// read is said in the last line.
pub fn dump_manifest(bytes: &[u8]) -> Vec<String> {
    let header = match Header::decode(bytes) {
        Ok(header) => header,
        Err(e) => return vec![e.to_string()],
    };
    let mut lines = vec![format!(
        "manifest {} uid {:?} of store {:?}, {} bytes",
        header.number,
        header.manifest,
        header.store,
        bytes.len()
    )];
    let mut offset = HEADER_LEN;
    while offset < bytes.len() {
        let record = match read_record(header.manifest, bytes, offset) {
            Ok(record) => record,
            Err(e) => {
                lines.push(format!(
                    "offset {offset}: {} bytes are torn or damaged: {e}",
                    bytes.len() - offset
                ));
                break;
            }
        };
        let (edit, durable, len) = (record.edit, record.durable, record.payload.len());
        lines.push(format!("offset {offset}: edit {edit}, durable {durable}, {len} bytes"));
        match Edit::decode(record.payload) {
            Ok(edit) => lines.extend(edit.0.iter().map(|record| format!("  {record}"))),
            Err(e) => lines.push(format!("  {e}")),
        }
        offset += record.len();
    }
    lines.extend(replay(bytes).err().map(|e| format!("does not replay: {e}")));
    lines
}
