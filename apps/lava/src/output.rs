//! Printing, and what all commands share about errors.

use crate::{Error, Result};
use std::fmt;
use std::io::Write;

/// The user asked for something that cannot be asked like this: exit status 2.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// A usage error.
pub fn usage<T>(message: impl Into<String>) -> Result<T> {
    Err(Box::new(Usage(message.into())))
}

/// The message on one line.
pub fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// True if the reader of our output went away (`lava scan | head`), which is no error.
pub fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
        {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Standard output, buffered.
pub fn stdout() -> impl Write {
    std::io::BufWriter::with_capacity(64 << 10, std::io::stdout().lock())
}

/// Prints a report: `text` for a person, or `json` on one line.
pub fn report(json: bool, value: &serde_json::Value, text: impl FnOnce() -> String) -> Result<()> {
    let mut out = stdout();
    if json {
        writeln!(out, "{value}")?;
    } else {
        out.write_all(text().as_bytes())?;
    }
    Ok(out.flush()?)
}

/// Writes a file of the user's.
#[allow(clippy::disallowed_methods, reason = "writes a file of the user, not of a store")]
pub fn write_file(path: &std::path::Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|e| Error::from(format!("cannot write {}: {e}", path.display())))
}

/// Creates a file of the user's, buffered.
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "writes a file of the user, not of a store"
)]
pub fn create_file(path: &std::path::Path) -> Result<impl Write + use<>> {
    let file = std::fs::File::create(path);
    let file = file.map_err(|e| Error::from(format!("cannot create {}: {e}", path.display())))?;
    Ok(std::io::BufWriter::with_capacity(256 << 10, file))
}

/// True if the directory exists and something is in it.
#[allow(clippy::disallowed_methods, reason = "looks into a directory before any store does")]
pub fn has_entries(dir: &std::path::Path) -> Result<bool> {
    match std::fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().is_some()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(format!("cannot read {}: {e}", dir.display()).into()),
    }
}

/// Removes a directory and all in it.
pub fn remove_directory(dir: &std::path::Path) -> Result<()> {
    std::fs::remove_dir_all(dir).map_err(|e| Error::from(format!("cannot remove {}: {e}", dir.display())))
}

/// The files in a directory; none if it cannot be read.
#[allow(clippy::disallowed_methods, reason = "lists files of the machine, not of a store")]
pub fn files_in(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect()
}
