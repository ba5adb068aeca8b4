//! Tab-separated values: key, tab, value, each escaped.

use super::escape::{self, unescape};
use super::{Lines, ReadError, Record};
use std::io::Write;

/// Reads records; empty lines are skipped.
pub struct Reader<'a> {
    lines: Lines<'a>,
    line: Vec<u8>,
}

impl<'a> Reader<'a> {
    /// Returns a reader of lines.
    pub fn new(lines: Lines<'a>) -> Self {
        Reader { lines, line: Vec::new() }
    }
}

fn parse(line: &[u8]) -> Result<Record, String> {
    // A file of another program may end its lines in \r\n; a return in the value is escaped.
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let at = line.iter().position(|b| *b == b'\t').ok_or("no tab between key and value")?;
    let key = unescape(&line[..at]).map_err(|e| format!("key: {e}"))?;
    let value = unescape(&line[at + 1..]).map_err(|e| format!("value: {e}"))?;
    Ok((key, value))
}

impl Iterator for Reader<'_> {
    type Item = Result<Record, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            self.line.clear();
            match self.lines.read(&mut self.line) {
                Ok(false) => return None,
                Ok(true) if self.line.is_empty() => {}
                Ok(true) => return Some(parse(&self.line).map_err(|what| self.lines.malformed(what))),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Writes a record.
pub fn write(out: &mut dyn Write, key: &[u8], value: &[u8]) -> std::io::Result<()> {
    escape::write(out, key)?;
    out.write_all(b"\t")?;
    escape::write(out, value)?;
    out.write_all(b"\n")
}
