//! Dumps of a store's files as text, for debugging.

use crate::batch;
use crate::files::log::TENANT;
use base::{Error, Result, SeqNo, limits};
use io::{Access, Env, ReadFile};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use table::{Ksst, SegmentReader, Vsst, dump::DumpOptions, segment};
use version::Manifest;
use version::names::{self, FileKind};
use wal::{Lane, LogGroup, RecoveryMode};

/// Maximum length of a manifest to dump, bytes: about five million files.
const MANIFEST_LEN_MAX: usize = 1 << 30;

/// Writes a textual dump of one file of a store to `out`, to examine damage or a format by eye. It
/// reads the file only, also while a process has the store open. To find damage in a whole store
/// use `Db::verify`.
///
/// The kind is derived from the file name: tables and value files (vSSTs; blocks, and entries on
/// request), log groups (pages and fragments), manifests (edits), `CURRENT`. Damage is a line of
/// the dump if the rest can still be shown, and an error otherwise. `entries` adds a line for each
/// entry of a table or value file. The text is for people and may change.
///
/// # Errors
/// * `InvalidArgument`: the name is not one of a store's files.
/// * `Corruption`: the file is too damaged to show. `NotFound`, `Io`: it cannot be read.
pub fn dump(env: &Env, path: &Path, entries: bool, out: &mut dyn Write) -> Result<()> {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    match names::parse(name) {
        Some(FileKind::Ksst(number) | FileKind::FastKsst(number)) => {
            let file = env.fs.open(path, Access::Buffered)?;
            let uid = table::footer::uid_of(&*file)?;
            let table = Ksst::open(file, number, uid, None, Arc::new(cache::Cache::new(0)))?;
            table::dump::dump(&table, DumpOptions { entries }, out)
        }
        Some(FileKind::Vsst(number) | FileKind::FastVsst(number)) => {
            dump_values(env.fs.open(path, Access::Buffered)?, number, entries, out)
        }
        Some(FileKind::Manifest(_) | FileKind::ManifestCopy(_)) => {
            let bytes = env.fs.read_all(path, MANIFEST_LEN_MAX)?;
            version::dump_manifest(&bytes)
                .iter()
                .try_for_each(|line| writeln!(out, "{line}"))
                .map_err(refused)
        }
        Some(FileKind::Log(_)) => {
            wal::dump_group(&*io::open_in_place_read_only(&*env.fs, path, Access::Buffered)?, out)
        }
        Some(FileKind::Current | FileKind::CurrentCopy) => {
            let text = env.fs.read_all(path, limits::FILE_NAME_LEN_MAX * 4)?;
            out.write_str(&String::from_utf8_lossy(&text)).map_err(refused)
        }
        _ => Err(Error::invalid(
            "the name of the file is none of a table, value file (vSST), log file, manifest or CURRENT of \
             a store",
        )
        .at_file(path)),
    }
}

/// Dumps a vSST, or the segment of a large value: both have the same kind of name, but different
/// magic numbers at the end.
fn dump_values(file: Arc<dyn ReadFile>, number: u64, entries: bool, out: &mut dyn Write) -> Result<()> {
    let uid = table::footer::uid_of(&*file)?;
    let mut magic = segment::footer::MAGIC;
    let at = file.len()?.saturating_sub(magic.len() as u64);
    file.read_at(&mut magic, at)?;
    if magic != segment::footer::MAGIC {
        let vsst = Arc::new(Vsst::open(file, number, uid, Arc::new(cache::Cache::new(0)))?);
        return table::dump_vsst(&vsst, DumpOptions { entries }, out);
    }
    let segment = SegmentReader::open(file, number, uid)?;
    let id = segment.identity();
    let (len, raw, chunk) = (segment.file_len(), segment.raw_len(), segment.chunk_len());
    let key = segment.user_key().escape_ascii();
    writeln!(out, "value segment version {}, {len} bytes, uid {uid:?}", segment::footer::VERSION)
        .and_then(|()| {
            let (number, family, edit, created) = (id.number, id.family, id.edit, id.created_unix_seconds);
            writeln!(out, "number {number} family {family} edit {edit} created {created}")
        })
        .and_then(|()| {
            writeln!(
                out,
                "value of \"{key}\": {raw} bytes in {} chunks of {chunk}, checksum {:#010x}",
                raw.div_ceil(chunk as u64),
                segment.checksum()
            )
        })
        .map_err(refused)
}

/// Shows which changes the log of a closed store holds, for tests of durability: with the floors
/// below which entries need not be in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogContents {
    /// Log floor of each family, by id: all entries below it are in tables.
    pub floors: BTreeMap<u32, SeqNo>,
    /// Family of each entry of each complete batch, by sequence number. Entries below the floors
    /// are present while their log group is.
    pub entries: BTreeMap<SeqNo, u32>,
}

impl LogContents {
    /// Returns whether a change is safe without memory, for a test: it is in the log, or need not
    /// be, because it is in a table or its family was dropped. False: the next open lacks the
    /// change. The call reads memory only.
    pub fn holds(&self, seq: SeqNo, family: u32) -> bool {
        self.floors.get(&family).is_none_or(|floor| seq < *floor) || self.entries.get(&seq) == Some(&family)
    }
}

/// Reads the manifest and the log of a closed store like an open, for tests of durability. Writes
/// nothing. Close the store first: the contents of an open one change meanwhile. The cost is a read
/// of the log, and memory for each entry.
///
/// # Errors
/// * `Corruption`: the manifest or the log lost durable data. Repair the store.
/// * `NotFound`: there is no store. `Unsupported`: a newer release wrote it. `Io`: a read failed.
pub fn log_contents(env: &Env, dir: &Path) -> Result<LogContents> {
    let state = Manifest::recover(env, dir, true)?.state();
    let mut out = LogContents::default();
    out.floors.extend(state.families.values().map(|f| (f.id, f.version.log_floor)));
    let mut groups = Vec::new();
    for meta in state.store.log_groups.chain(Lane::FIRST).filter(|group| !group.discarded) {
        let path = io::fs::join(dir, &names::log(meta.file));
        let file = io::open_in_place_read_only(&*env.fs, &path, Access::Buffered)?;
        let (ltn, uid, sealed_end) = (meta.ltn, meta.uid, meta.sealed_end);
        groups.push(LogGroup { ltn, uid, file, sealed_end, begin: meta.begin });
    }
    let mut take = wal::only(TENANT, |first_seq, payload| {
        let (_, _, entries) = batch::decode(payload)?;
        for (seq, change) in (first_seq..).zip(entries) {
            out.entries.insert(seq, change?.family);
        }
        Ok(())
    });
    wal::recover(env, dir, state.store.uid, &groups, RecoveryMode::ReadOnly, &mut take)?;
    drop(take);
    Ok(out)
}

fn refused(_: std::fmt::Error) -> Error {
    Error::new(
        base::ErrorKind::Io,
        "the listing of the file cannot be written to its output; the file is not damaged",
    )
}
