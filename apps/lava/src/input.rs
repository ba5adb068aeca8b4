//! Input files: plain, gzip, LZ4 or Zstandard, with a progress bar on a terminal.

mod packed;

use crate::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::path::Path;

/// Bytes per read of the file.
const BUFFER_LEN: usize = 256 << 10;

/// Progress of reading a file, drawn on standard error if that is a terminal.
pub struct Progress(ProgressBar);

impl Progress {
    /// Returns a progress bar over `len` bytes (0: unknown) for `name`.
    pub fn new(name: &str, len: u64) -> Self {
        let bar = if !std::io::stderr().is_terminal() {
            ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::hidden())
        } else if len == 0 {
            ProgressBar::new_spinner()
        } else {
            ProgressBar::new(len)
        };
        let template = match len {
            0 => "{prefix} {spinner} {binary_bytes} {binary_bytes_per_sec} {elapsed}",
            _ => "{prefix} [{bar:30}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(name.to_owned());
        Progress(bar)
    }

    /// Adds bytes to the progress.
    pub fn add(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    /// Removes the bar from the screen.
    pub fn end(self) {
        self.0.finish_and_clear();
    }
}

/// Opens a file (`-`: standard input) without decompression; returns its length (0: unknown).
pub fn open_raw(path: &Path) -> Result<(Box<dyn Read>, u64)> {
    if path == Path::new("-") { Ok((Box::new(std::io::stdin()), 0)) } else { open_file(path) }
}

/// Checks that a file (`-`: standard input) can be opened.
pub fn check(path: &Path) -> Result<()> {
    open_raw(path).map(drop)
}

/// Opens a file (`-`: standard input) with decompression; returns its progress.
pub fn open(path: &Path) -> Result<(Box<dyn BufRead>, Progress)> {
    let (raw, len) = open_raw(path)?;
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let progress = Progress::new(&name, len);
    let counted = progress.0.wrap_read(raw);
    let unpacked = packed::unpack(Box::new(BufReader::with_capacity(BUFFER_LEN, counted)))?;
    Ok((Box::new(BufReader::with_capacity(BUFFER_LEN, unpacked)), progress))
}

#[allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "reads files of the user, not of a store"
)]
fn open_file(path: &Path) -> Result<(Box<dyn Read>, u64)> {
    let open = || -> std::io::Result<_> {
        let file = std::fs::File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(std::io::Error::other("the path is a directory; name a file"));
        }
        Ok((file, metadata.len()))
    };
    let (file, len) = open()?;
    Ok((Box::new(file), len))
}
