//! Files of a store as text, for people who have to look inside one.

use base::{Error, Result, limits};
use io::{Access, Env, ReadFile};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use table::{Ksst, SegmentReader, Vsst, dump::DumpOptions, segment};
use version::names::{self, FileKind};

/// The longest manifest that is read whole, bytes.
const MANIFEST_LEN_MAX: usize = 1 << 30;

/// Writes the lines that describe one file of a store to `out`.
///
/// The kind follows from the file's name: tables and vSSTs (blocks, and entries if asked), log groups (pages and fragments),
/// manifests (edits), `CURRENT`. Damage is a line of the dump where the rest can still be shown, an error where it
/// cannot.
///
/// # Errors
/// `InvalidArgument` if the name is not one of a store's files; those of reading.
pub fn dump(env: &Env, path: &Path, entries: bool, out: &mut dyn Write) -> Result<()> {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    match names::parse(name) {
        Some(FileKind::Ksst(number)) => {
            let file = env.fs.open(path, Access::Buffered)?;
            let uid = table::footer::uid_of(&*file)?;
            let table = Ksst::open(file, number, uid, None, Arc::new(cache::Cache::new(0)))?;
            table::dump::dump(&table, DumpOptions { entries }, out)
        }
        Some(FileKind::Vsst(number)) => {
            dump_values(env.fs.open(path, Access::Buffered)?, number, entries, out)
        }
        Some(FileKind::Manifest(_)) => {
            let bytes = env.fs.read_all(path, MANIFEST_LEN_MAX)?;
            version::dump_manifest(&bytes)
                .iter()
                .try_for_each(|line| writeln!(out, "{line}"))
                .map_err(refused)
        }
        Some(FileKind::Log(_)) => {
            wal::dump_group(&*io::open_in_place_read_only(&*env.fs, path, Access::Buffered)?, out)
        }
        Some(FileKind::Current) => {
            let text = env.fs.read_all(path, limits::FILE_NAME_LEN_MAX * 4)?;
            out.write_str(&String::from_utf8_lossy(&text)).map_err(refused)
        }
        _ => Err(Error::invalid("not a table, vSST, log group or manifest of a store").at_file(path)),
    }
}

/// A vSST, or the segment of one large value, which has the same kind of name: the magic at the end tells.
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

fn refused(_: std::fmt::Error) -> Error {
    Error::new(base::ErrorKind::Io, "the listing could not be written")
}
