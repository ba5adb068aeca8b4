//! Reading a manifest: recovery, and the listing of `lava dump`.

use super::copies::{self, Currents};
use super::engine::Engines;
use super::format::{
    Current, HEADER_LEN, Header, PAYLOAD_LEN_MAX, RECORD_HEADER_LEN, RawRecord, confirmed, read_record,
};
use super::record::{EngineId, Payload, Record};
use super::state::ManifestState;
use crate::format::StoreFormat;
use crate::names::{self, FileKind};
use crate::numbers::NUMBER_REACHED_MAX;
use base::{Error, ErrorKind, Result};
use io::{Access, Env, ReadFile};
use std::borrow::Cow;
use std::path::Path;

/// Maximum length of a manifest, without the pieces of its snapshot behind the first.
pub(super) const MANIFEST_LEN_MAX: u64 = 4 << 30;

/// Unit of reading that a device returns or fails as a whole, bytes.
const SECTOR: usize = 512;

/// The history in a manifest.
#[derive(Debug)]
pub struct History {
    /// Header of the manifest.
    pub header: Header,
    /// State at the end of the history.
    pub state: ManifestState,
    /// Number of edits after the snapshot.
    pub edits: u64,
    /// Bytes up to the end of the history, including the header.
    pub bytes: u64,
    /// Bytes after the last intact record: torn by a crash, and relied on by no component.
    pub torn_bytes: u64,
    /// The last edit that a later record confirms, or that is empty and needs no confirmation.
    pub confirmed: u64,
}

/// Replays a manifest.
///
/// # Errors
/// `Corruption` with the offset, if a damaged record is confirmed by a later one, or an intact
/// record contradicts the history. `Unsupported` if a newer release wrote it.
pub fn replay(bytes: &[u8], engines: &Engines) -> Result<History> {
    let (history, damage) = replay_up_to_damage(bytes, engines)?;
    damage.map_or(Ok(history), Err)
}

/// Returns the history up to the first damage after the snapshot, and that damage.
pub(super) fn replay_up_to_damage(bytes: &[u8], engines: &Engines) -> Result<(History, Option<Error>)> {
    let header = Header::decode(bytes)?;
    let Snapshot { edit, payload, end } = read_snapshot(&header, bytes)?;
    let at = |e: Error| e.at_offset(HEADER_LEN as u64);
    let mut state = ManifestState::from_snapshot(header.store, edit, &payload, engines).map_err(at)?;
    state.format = header.format;
    drop(payload);
    let mut history = History { header, state, edits: 0, bytes: end as u64, torn_bytes: 0, confirmed: edit };
    let mut durable = edit;
    loop {
        match history.next(bytes, &mut durable) {
            Ok(true) => {}
            Ok(false) => return Ok((history, None)),
            Err(e) => return Ok((history, Some(e))),
        }
    }
}

/// The snapshot at the start of a manifest.
struct Snapshot<'a> {
    edit: u64,
    payload: Cow<'a, [u8]>,
    /// The offset behind it.
    end: usize,
}

/// Reads the record of the snapshot, or all of its pieces.
fn read_snapshot<'a>(header: &Header, bytes: &'a [u8]) -> Result<Snapshot<'a>> {
    let piece = |offset: usize| {
        read_record(header.manifest, bytes, offset).map_err(|e| {
            let why = "the snapshot at the start of the manifest is damaged";
            e.context(why).with_kind(ErrorKind::Corruption)
        })
    };
    let at = |offset: usize| move |e: Error| e.at_offset(offset as u64);
    let first = piece(HEADER_LEN)?;
    check_numbers(&first, first.edit, first.edit, first.edit).map_err(at(HEADER_LEN))?;
    let mut snapshot =
        Snapshot { edit: first.edit, payload: Cow::Borrowed(first.payload), end: HEADER_LEN + first.len() };
    for _ in 1..header.pieces {
        let next = piece(snapshot.end)?;
        check_numbers(&next, first.edit, first.edit, first.edit).map_err(at(snapshot.end))?;
        snapshot.payload.to_mut().extend_from_slice(next.payload);
        snapshot.end += next.len();
    }
    Ok(snapshot)
}

impl History {
    /// Applies the next record. Returns false at the end. An error leaves the history as it is.
    fn next(&mut self, bytes: &[u8], durable: &mut u64) -> Result<bool> {
        let (offset, manifest) = (self.bytes as usize, self.header.manifest);
        if offset >= bytes.len() {
            return Ok(false);
        }
        let at = |e: Error| e.at_offset(offset as u64);
        let expected = self.state.edit_number + 1;
        let record = match read_record(manifest, bytes, offset) {
            Ok(record) => record,
            Err(e) if confirmed(manifest, bytes, offset + 1, expected) => {
                return Err(e
                    .context(format!(
                        "manifest record of edit {expected} is damaged, and a later one confirms \
                     that it was durable"
                    ))
                    .with_remedy(base::error::REMEDY_OF_A_LOST_END));
            }
            Err(_) => {
                self.torn_bytes = (bytes.len() - offset) as u64;
                return Ok(false);
            }
        };
        check_numbers(&record, expected, *durable, expected - 1).map_err(at)?;
        self.state = self.state.after(record.payload).map_err(at)?;
        *durable = record.durable;
        self.edits += 1;
        self.confirmed = if record.payload.is_empty() { expected } else { *durable };
        self.bytes += record.len() as u64;
        Ok(true)
    }
}

/// Checks a state before it is used.
fn check_state(dir: &Path, state: &ManifestState) -> Result<()> {
    state.verify()?;
    check_reached(state)?;
    state.check_volumes(dir)
}

/// Fails if the next numbers could run out. No store writes such a history, and none can continue
/// it.
fn check_reached(state: &ManifestState) -> Result<()> {
    let numbers = [state.next_file_number, state.next_ltn, state.edit_number];
    match numbers.into_iter().find(|&n| n > NUMBER_REACHED_MAX) {
        Some(n) => Err(Error::corruption(format!(
            "the next file, log group or edit number {n} in the manifest exceeds the limit of a store, {NUMBER_REACHED_MAX}"
        ))),
        None => Ok(()),
    }
}

/// Fails if an intact record does not continue the history. It was not torn, so the file is not as
/// written.
fn check_numbers(record: &RawRecord<'_>, edit: u64, durable_min: u64, durable_max: u64) -> Result<()> {
    let in_range = (1..=crate::numbers::NUMBER_MAX).contains(&record.edit);
    if record.edit == edit && in_range && (durable_min..=durable_max).contains(&record.durable) {
        return Ok(());
    }
    Err(Error::corruption(format!(
        "the manifest record in the place of edit {edit} is of edit {} (durable up to {}, allowed are \
         {durable_min} to {durable_max})",
        record.edit, record.durable
    )))
}

/// The manifest that recovery found.
pub(super) struct RecoveredManifest {
    pub(super) history: History,
    /// Name of the manifest.
    pub(super) name: String,
    /// The largest file number in the directory, for any kind of file.
    pub(super) largest_number: u64,
    /// Damaged files with an intact copy.
    pub(super) damaged: Vec<Error>,
}

/// Finds the manifest of a directory and replays it; writes nothing.
pub(super) fn find(env: &Env, dir: &Path, engines: &Engines) -> Result<RecoveredManifest> {
    find_with(env, dir, engines, 0)
}

/// As [`find`], with an edit known to be durable: a gap before it in one of two copies is damage.
pub(super) fn find_with(
    env: &Env,
    dir: &Path,
    engines: &Engines,
    durable_edit: u64,
) -> Result<RecoveredManifest> {
    let (kinds, largest_number) = look(env, dir)?;
    let mut currents = Currents::read(env, dir)?;
    let Some(current) = currents.current.clone() else {
        return Err(match currents.original.take() {
            Some(e) if e.kind() != ErrorKind::NotFound => e,
            _ => without_current(env, dir, &kinds, engines),
        });
    };
    let merged = copies::read(env, dir, current.manifest, Some(&current))?;
    let (name, path) = (merged.name.clone(), merged.path.clone());
    let mut history = replay(&merged.bytes, engines).map_err(|e| e.at_file(&path))?;
    history.confirmed = history.confirmed.max(current.edit);
    check_is_named(&history, &current).map_err(|e| e.at_file(&path))?;
    check_reaches(&history, &current).map_err(|e| e.at_file(&path))?;
    check_state(dir, &history.state).map_err(|e| e.at_file(&path))?;
    let damaged = merged.damage(currents, durable_edit);
    Ok(RecoveredManifest { history, name, largest_number, damaged })
}

/// Returns the state of a whole manifest, for any engines and any location of the log.
///
/// # Errors
/// As [`super::Manifest::recover`].
pub fn state_of(env: &Env, dir: &Path) -> Result<ManifestState> {
    Ok(find(env, dir, &Engines::default())?.history.state)
}

/// As [`find`], and checks that the log's own disk is the one that the manifest means. A reader
/// beside the writer may find a session that began after the manifest was read; it then reads the
/// manifest again.
pub(super) fn find_with_disk(
    env: &Env,
    dir: &Path,
    read_only: bool,
    engines: &Engines,
    durable_edit: u64,
) -> Result<RecoveredManifest> {
    let mut found = find_with(env, dir, engines, durable_edit)?;
    loop {
        let Err(e) = found.history.state.check_disk(env, dir, read_only) else { return Ok(found) };
        let now = find_with(env, dir, engines, durable_edit)?;
        if now.history.state.speed == found.history.state.speed {
            return Err(e);
        }
        found = now;
    }
}

/// Returns the state before the first damage, and the damage. `CURRENT` may be unreadable, and the
/// manifest may be damaged behind its snapshot.
///
/// # Errors
/// `NotFound` if there is no store. `Corruption` if no manifest has a whole snapshot, or `CURRENT`
/// names another one.
pub(super) fn find_up_to_damage(
    env: &Env,
    dir: &Path,
    engines: &Engines,
) -> Result<(RecoveredManifest, Vec<Error>)> {
    let (kinds, largest_number) = look(env, dir)?;
    let mut damage = Vec::new();
    let mut currents = Currents::read(env, dir)?;
    let current = currents.current.clone();
    if current.is_none() {
        match currents.original.take().map(|e| match e.kind() {
            ErrorKind::NotFound => without_current(env, dir, &kinds, engines),
            _ => e,
        }) {
            Some(e) if e.is_corruption() => damage.push(e),
            Some(e) => return Err(e),
            None => {}
        }
    }
    // Without `CURRENT` the newest manifest counts: a new one holds the durable state of the one
    // before it gets its name.
    let newest = kinds.iter().filter(|kind| kind.is_manifest()).filter_map(|kind| kind.number());
    let number = current.as_ref().map(|current| current.manifest).or(newest.max());
    let number = number.ok_or_else(|| without_current(env, dir, &kinds, engines))?;
    let merged = copies::read(env, dir, number, current.as_ref())?;
    let (name, path) = (merged.name.clone(), merged.path.clone());
    let (history, torn) = replay_up_to_damage(&merged.bytes, engines).map_err(|e| e.at_file(&path))?;
    damage.extend(torn.map(|e| e.at_file(&path)));
    if let Some(current) = &current {
        check_is_named(&history, current).map_err(|e| e.at_file(&path))?;
        if let Err(e) = check_reaches(&history, current)
            && damage.is_empty()
        {
            damage.push(e.at_file(&path));
        }
    }
    check_state(dir, &history.state).map_err(|e| e.at_file(&path))?;
    let damaged = merged.damage(currents, 0);
    Ok((RecoveredManifest { history, name, largest_number, damaged }, damage))
}

/// Returns the kinds of files in a directory, and the largest number of any.
fn look(env: &Env, dir: &Path) -> Result<(Vec<FileKind>, u64)> {
    let kinds: Vec<FileKind> = env.fs.list(dir)?.iter().filter_map(|e| names::parse(&e.name)).collect();
    let largest_number = names::largest_number(kinds.iter().copied());
    Ok((kinds, largest_number))
}

/// Fails if the manifest is not the one that `CURRENT` names.
fn check_is_named(history: &History, current: &Current) -> Result<()> {
    if history.header.manifest == current.uid && history.header.number == current.manifest {
        return Ok(());
    }
    let header = &history.header;
    Err(Error::corruption(format!(
        "this is not the manifest that CURRENT names, but a swapped file: manifest {} with id {:?}, not {} \
         with {:?}",
        header.number, header.manifest, current.manifest, current.uid
    )))
}

/// Fails if the manifest ends before the edit that `CURRENT` confirms.
fn check_reaches(history: &History, current: &Current) -> Result<()> {
    if history.state.edit_number >= current.edit {
        return Ok(());
    }
    Err(Error::corruption(format!(
        "the manifest ends at edit {}, but CURRENT says that edit {} was durable: its end is \
         damaged or missing",
        history.state.edit_number, current.edit
    ))
    .with_remedy(base::error::REMEDY_OF_A_LOST_END))
}

pub(super) fn read_manifest(env: &Env, path: &Path) -> Result<Vec<u8>> {
    let missing = |e: Error| match e.kind() {
        ErrorKind::NotFound => Error::corruption("the manifest that CURRENT names is missing"),
        _ => e,
    };
    // The recorded length may lag behind the data, so the file may be longer than recorded.
    let len = env.fs.scan_extent_tail(path).map_err(missing)?;
    let file = env.fs.open(path, Access::Buffered).map_err(missing)?;
    if len > MANIFEST_LEN_MAX && len > len_max(&*file) {
        return Err(Error::corruption(format!(
            "a manifest of {len} bytes exceeds the limit of {MANIFEST_LEN_MAX} bytes"
        )));
    }
    let mut bytes = vec![0; len as usize];
    // A record may be unreadable after a power failure: it is then torn, or confirmed and damaged.
    io::read_around(&mut bytes, 0, SECTOR, |buf, offset| file.read_at(buf, offset))?;
    Ok(bytes)
}

/// Returns the maximum plausible length of a manifest, by the number of pieces in its header.
pub(super) fn len_max(file: &dyn ReadFile) -> u64 {
    let mut header = [0; HEADER_LEN];
    let read = file.read_at(&mut header, 0).and_then(|()| Header::decode(&header));
    let pieces = read.map_or(0, |header| u64::from(header.pieces) - 1);
    MANIFEST_LEN_MAX.saturating_add(pieces.saturating_mul((RECORD_HEADER_LEN + PAYLOAD_LEN_MAX) as u64))
}

/// Checks that a new store may be put into `dir`; returns the largest file number in it.
pub(super) fn check_vacant(env: &Env, dir: &Path, state: &ManifestState) -> Result<u64> {
    let listing = env.fs.list(dir)?;
    let kinds: Vec<FileKind> = listing.iter().filter_map(|e| names::parse(&e.name)).collect();
    if kinds.iter().any(|kind| kind.is_current()) {
        let why = "there is a store in this directory already: open it, or name another directory";
        return Err(Error::new(ErrorKind::AlreadyExists, why).at_file(dir));
    }
    // The directory may hold the files of the new state.
    let strange = |k: &FileKind| k.number().is_none_or(|n| !state.holds(n));
    let strangers: Vec<FileKind> = kinds.iter().copied().filter(strange).collect();
    match without_current(env, dir, &strangers, &state.engines.here()) {
        e if e.kind() == ErrorKind::NotFound => Ok(names::largest_number(kinds)),
        e => Err(e),
    }
}

/// Returns the error of a directory without `CURRENT`. A crash while a store was created leaves at
/// most an empty manifest. Any other file means that `CURRENT` was lost, and the directory must not
/// be mistaken for an empty one.
fn without_current(env: &Env, dir: &Path, kinds: &[FileKind], engines: &Engines) -> Error {
    let says_nothing = |manifest: FileKind| {
        let read = read_manifest(env, &io::fs::join(dir, &manifest.to_string()));
        match read.and_then(|bytes| replay(&bytes, engines)) {
            Ok(history) => history.edits == 0 && history.state.is_blank(),
            Err(e) => e.is_corruption(), // not even synced
        }
    };
    let lost = kinds.iter().any(|kind| match *kind {
        FileKind::Log(_) | FileKind::Engine { .. } => true,
        kind if kind.is_manifest() => !says_nothing(kind),
        kind => kind.data().is_some(),
    });
    if lost {
        Error::corruption(
            "CURRENT, which names the manifest, is missing, but the directory holds files of a store",
        )
        .at_file(dir)
    } else {
        Error::not_found("there is no store in this directory: name the directory of a store, or create one")
            .at_file(dir)
    }
}

/// Lists a manifest for people: a line for the header, for each record and for each change in it.
/// Never fails: the last line reports an unreadable part.
pub fn dump_manifest(bytes: &[u8], engines: &Engines) -> Vec<String> {
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
    if header.format > StoreFormat::OLDEST {
        lines.push(format!("format {}", header.format));
    }
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
        match list(record.payload, engines) {
            Ok(records) => lines.extend(records.iter().map(|record| format!("  {record}"))),
            Err(e) => lines.push(format!("  {e}")),
        }
        offset += record.len();
    }
    lines.extend(replay(bytes, engines).err().map(|e| format!("does not replay: {e}")));
    lines
}

/// Returns the records of an edit: the store's, then those of each engine.
fn list(edit: &[u8], engines: &Engines) -> Result<Vec<String>> {
    let edit = Payload::decode(edit)?;
    let mut lines: Vec<String> = edit.records.iter().map(Record::to_string).collect();
    for (id, step) in edit.all_steps() {
        let listed = match engines.find(id) {
            Some(engine) => engine.list(step)?,
            None => vec![format!("{} bytes", step.len())],
        };
        let of = |line: String| match id {
            EngineId::NATIVE => line,
            _ => format!("engine {id}: {line}"),
        };
        lines.extend(listed.into_iter().map(of));
    }
    Ok(lines)
}
