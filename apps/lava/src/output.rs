//! Output, and common errors of commands.

use crate::Result;
use crate::status::about;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A usage error: exit status 2, with a hint to the help.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Returns a usage error.
pub fn usage<T>(message: impl Into<String>) -> Result<T> {
    Err(Box::new(Usage(message.into())))
}

/// Prints a message with the program's name to standard error. The reader may be gone (`2>&1 | head
/// -1`), which is no reason to stop.
pub fn tell(message: &str) {
    let _ = writeln!(std::io::stderr(), "lava: {message}");
}

/// Joins a message into one line.
pub fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns true if the reader of our output is gone (`lava scan | head`), which is no error.
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

/// Width of the output, and whether it may use colors.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// Number of columns.
    pub width: usize,
    /// Whether colored blocks may replace letters.
    pub colours: bool,
}

/// Default number of columns.
const PLAIN_WIDTH: usize = 80;
/// Maximum width, for readability.
const WIDTH_MAX: usize = 120;

impl Screen {
    /// Returns the screen of standard output. Plain if it is no terminal, has no Unicode, or if
    /// `NO_COLOR` is set.
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

    /// Returns `width` columns for part number `at`: colored blocks, or its letter.
    pub fn mark(&self, at: usize, letter: char, width: usize) -> String {
        if !self.colours {
            return letter.to_string().repeat(width);
        }
        // Blue, green, yellow, red, bright red, magenta, cyan, white, grey.
        const COLOURS: [u8; 9] = [34, 32, 33, 31, 91, 35, 36, 37, 90];
        format!("\x1b[{}m{}\x1b[0m", COLOURS[at % COLOURS.len()], "\u{2588}".repeat(width))
    }
}

/// A writer that adds its name to errors.
pub struct Named<W> {
    name: String,
    out: W,
}

impl<W: Write> Named<W> {
    pub fn new(name: impl Into<String>, out: W) -> Self {
        Named { name: name.into(), out }
    }

    fn told(&self, error: std::io::Error) -> std::io::Error {
        std::io::Error::new(error.kind(), format!("{}: {error}", self.name))
    }
}

impl<W: Write> Write for Named<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.out.write(bytes).map_err(|e| self.told(e))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush().map_err(|e| self.told(e))
    }
}

/// Returns buffered standard output.
pub fn stdout() -> impl Write {
    let out = Named::new("standard output", std::io::stdout().lock());
    std::io::BufWriter::with_capacity(64 << 10, out)
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

/// Writes a file of the user.
#[allow(clippy::disallowed_methods, reason = "writes a file of the user, not of a store")]
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).map_err(|e| about(format_args!("cannot write {}", path.display()), e))
}

/// Creates a directory of the user, with its parents.
#[allow(clippy::disallowed_methods, reason = "makes a directory of the user, not of a store")]
pub fn create_directory(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|e| about(format_args!("cannot make {}", path.display()), e))
}

/// Returns true if the directory exists and is not empty.
#[allow(clippy::disallowed_methods, reason = "looks into a directory before any store does")]
pub fn has_entries(dir: &Path) -> Result<bool> {
    match std::fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().is_some()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(about(format_args!("cannot read {}", dir.display()), e)),
    }
}

/// Removes a directory and its contents.
pub fn remove_directory(dir: &Path) -> Result<()> {
    std::fs::remove_dir_all(dir).map_err(|e| about(format_args!("cannot remove {}", dir.display()), e))
}

/// Returns the files in a directory; none if it cannot be read.
#[allow(clippy::disallowed_methods, reason = "lists files of the machine, not of a store")]
pub fn files_in(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect()
}

/// Formats the line of a report with the format of a store.
pub fn format_line(format: u64, newest: u64) -> String {
    let more =
        if format < newest { format!(", run lava upgrade to raise it to {newest}") } else { String::new() };
    format!("format               {format}{more}\n")
}
