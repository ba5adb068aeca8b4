//! Tab-separated values: key, tab, value, each escaped.

use super::escape::{escape, unescape};
use super::{Record, next_line};
use crate::Result;
use std::io::{BufRead, Write};

/// Reads records; empty lines are skipped.
pub struct Reader<'a> {
    input: Box<dyn BufRead + 'a>,
    line: Vec<u8>,
    number: u64,
}

impl<'a> Reader<'a> {
    /// A reader of `input`.
    pub fn new(input: Box<dyn BufRead + 'a>) -> Self {
        Reader { input, line: Vec::new(), number: 0 }
    }

    fn parse(&self) -> Result<Record> {
        // A file written elsewhere may end its lines in \r\n; a return that belongs to the value is escaped.
        let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        let at = line.iter().position(|b| *b == b'\t');
        let at = at.ok_or_else(|| format!("line {}: no tab between key and value", self.number))?;
        let (key, value) = (unescape(&line[..at]), unescape(&line[at + 1..]));
        let key = key.map_err(|e| format!("line {}: key: {e}", self.number))?;
        let value = value.map_err(|e| format!("line {}: value: {e}", self.number))?;
        Ok((key, value))
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match next_line(self.input.as_mut(), &mut self.line) {
                Ok(false) => return None,
                Ok(true) => self.number += 1,
                Err(error) => return Some(Err(error)),
            }
            if !self.line.is_empty() {
                return Some(self.parse());
            }
        }
    }
}

/// Writes one record.
pub fn write(out: &mut dyn Write, key: &[u8], value: &[u8]) -> std::io::Result<()> {
    writeln!(out, "{}\t{}", escape(key), escape(value))
}
