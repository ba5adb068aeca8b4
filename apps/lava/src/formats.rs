//! Text formats for import and export. Each one round-trips every key and value, except packages,
//! whose keys are derived from their values.

pub mod base64;
pub mod escape;
pub mod jsonl;
pub mod lines;
pub mod packages;
pub mod streamed;
pub mod tsv;

use clap::ValueEnum;
use lines::Lines;
pub use lines::{LINE_BYTES_MAX, ReadError};
use std::io::{BufRead, Write};
use std::path::Path;

/// A key and its value.
pub type Record = (Vec<u8>, Vec<u8>);

/// The records of an input, in order.
pub type Records<'a> = Box<dyn Iterator<Item = Result<Record, ReadError>> + 'a>;

/// Text formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One record per line: key, tab, value, with the escapes `\t \n \r \\ \xHH`.
    Tsv,
    /// One JSON object per line: `{"key":"...","value":"..."}`, or `key_b64` and `value_b64`
    /// (base64) for bytes that are not UTF-8.
    Jsonl,
    /// Debian package index: the key is package/version, the value the stanza.
    Packages,
}

impl Format {
    /// Returns the format of a file name, ignoring a compression extension.
    pub fn of_name(path: &Path) -> Option<Format> {
        let name = path.file_name()?.to_str()?;
        let name = [".gz", ".lz4", ".zst"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        if name.ends_with(".tsv") || name.ends_with(".txt") {
            Some(Format::Tsv)
        } else if name.ends_with(".jsonl") || name.ends_with(".ndjson") || name.ends_with(".json") {
            Some(Format::Jsonl)
        } else if name == "Packages" || name.ends_with("_Packages") {
            Some(Format::Packages)
        } else {
            None
        }
    }

    /// Reads the records of `input` with a limit on the line length.
    pub fn read<'a>(self, input: Box<dyn BufRead + 'a>, line_bytes_max: usize) -> Records<'a> {
        let lines = Lines::new(input, line_bytes_max);
        match self {
            Format::Tsv => Box::new(tsv::Reader::new(lines)),
            Format::Jsonl => Box::new(jsonl::Reader::new(lines)),
            Format::Packages => Box::new(packages::Reader::new(lines)),
        }
    }

    /// Writes a record.
    pub fn write(self, out: &mut dyn Write, key: &[u8], value: &[u8]) -> std::io::Result<()> {
        match self {
            Format::Tsv => tsv::write(out, key, value),
            Format::Jsonl => jsonl::write(out, key, value),
            Format::Packages => packages::write(out, value),
        }
    }
}

#[cfg(test)]
mod tests;
