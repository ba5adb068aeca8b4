//! Files of a store as text, for people who have to look inside one.

use base::{Error, Result, limits};
use io::{Access, Env};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use table::{Ksst, dump::DumpOptions};
use version::names::{self, FileKind};

/// The longest manifest that is read whole, bytes.
const MANIFEST_LEN_MAX: usize = 1 << 30;

/// Writes the lines that describe one file of a store to `out`.
///
/// The kind follows from the file's name: tables (blocks, and entries if asked), log groups (pages and fragments),
/// manifests (edits), `CURRENT`. Damage is a line of the dump where the rest can still be shown, an error where it
/// cannot.
///
/// # Errors
/// `InvalidArgument` if the name is not one of a store's files; those of reading.
pub fn dump(env: &Env, path: &Path, entries: bool, out: &mut dyn Write) -> Result<()> {
    let refused = |_| Error::new(base::ErrorKind::Io, "the listing could not be written");
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    match names::parse(name) {
        Some(FileKind::Ksst(number)) => {
            let file = env.fs.open(path, Access::Buffered)?;
            let uid = table::footer::uid_of(&*file)?;
            let table = Ksst::open(file, number, uid, None, Arc::new(cache::Cache::new(0)))?;
            table::dump::dump(&table, DumpOptions { entries }, out)
        }
        Some(FileKind::Manifest(_)) => {
            let bytes = env.fs.read_all(path, MANIFEST_LEN_MAX)?;
            version::dump_manifest(&bytes)
                .iter()
                .try_for_each(|line| writeln!(out, "{line}"))
                .map_err(refused)
        }
        Some(FileKind::Log(_)) => wal::dump_group(&*env.fs.open_in_place(path, Access::Buffered)?, out),
        Some(FileKind::Current) => {
            let text = env.fs.read_all(path, limits::FILE_NAME_LEN_MAX * 4)?;
            out.write_str(&String::from_utf8_lossy(&text)).map_err(refused)
        }
        _ => Err(Error::invalid("not a table, log group or manifest of a store").at_file(path)),
    }
}
