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

/// It was done as far as it could be, as the user asked: exit status 3.
#[derive(Debug)]
pub struct NotWhole(String);

impl fmt::Display for NotWhole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotWhole {}

/// An error that says that something was left out.
pub fn not_whole<T>(message: impl Into<String>) -> Result<T> {
    Err(Box::new(NotWhole(message.into())))
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

/// How wide what is printed may be, and whether it may have colours.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// Columns.
    pub width: usize,
    /// Coloured blocks may stand for letters.
    pub colours: bool,
}

/// Columns where nobody tells them.
const PLAIN_WIDTH: usize = 80;
/// A wider line is no longer taken in at a glance.
const WIDTH_MAX: usize = 120;

impl Screen {
    /// Of standard output. Plain if it is no terminal, or one without Unicode, or if `NO_COLOR` is set.
    pub fn of_stdout() -> Screen {
        let terminal = console::Term::stdout();
        if !terminal.is_term() {
            return Screen { width: PLAIN_WIDTH, colours: false };
        }
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| set(name)).unwrap_or_default();
        let unicode = locale.to_ascii_uppercase().replace('-', "").contains("UTF8");
        let dumb = set("TERM").is_none_or(|name| name == "dumb");
        let width = terminal.size_checked().map_or(PLAIN_WIDTH, |(_, columns)| usize::from(columns));
        Screen { width: width.min(WIDTH_MAX), colours: unicode && !dumb && set("NO_COLOR").is_none() }
    }

    /// `width` columns for the thing number `at`: a coloured block, or its letter.
    pub fn mark(&self, at: usize, letter: char, width: usize) -> String {
        if !self.colours {
            return letter.to_string().repeat(width);
        }
        // Blue, green, yellow, red, bright red, magenta, cyan, white, grey.
        const COLOURS: [u8; 9] = [34, 32, 33, 31, 91, 35, 36, 37, 90];
        format!("\x1b[{}m{}\x1b[0m", COLOURS[at % COLOURS.len()], "\u{2588}".repeat(width))
    }
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
