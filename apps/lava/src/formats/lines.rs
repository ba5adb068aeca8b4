//! Lines of bounded length with their numbers and offsets, and the errors of unreadable records.

use crate::{Error, interrupt};
use bench::report::human_count;
use std::fmt;
use std::io::{BufRead, ErrorKind};

/// Reasons for a missing record.
#[derive(Debug)]
pub enum ReadError {
    /// The record is malformed; the next one can be read.
    Malformed(Malformed),
    /// The input cannot be read or decompressed any further.
    Failed(Error),
}

/// A malformed record.
#[derive(Debug)]
pub struct Malformed {
    /// Its first line, from 1.
    pub line: u64,
    /// Offset of that line in the decompressed input.
    pub offset: u64,
    /// The reason.
    pub what: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {} (offset {})", self.line, self.what, self.offset)
    }
}

impl std::error::Error for Malformed {}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Error {
        match error {
            ReadError::Malformed(malformed) => Box::new(malformed),
            ReadError::Failed(error) => error,
        }
    }
}

/// Default limit on the line length.
pub const LINE_BYTES_MAX: usize = 64 << 20;

/// Reason for the end of a read.
enum Met {
    LineEnd,
    InputEnd,
    Limit,
}

/// Reads lines into a buffer.
pub struct Lines<'a> {
    input: Box<dyn BufRead + 'a>,
    limit: usize,
    number: u64,
    /// Offset of the next byte.
    offset: u64,
    start: u64,
    /// The rest of an overlong line must be skipped before the next one.
    rest_is_left: bool,
}

impl<'a> Lines<'a> {
    /// Returns a reader of lines of at most `limit` bytes each.
    pub fn new(input: Box<dyn BufRead + 'a>, limit: usize) -> Self {
        Lines { input, limit, number: 0, offset: 0, start: 0, rest_is_left: false }
    }

    /// Returns the limit on the line length.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the number of the last line, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the offset of the last line.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns the error of a record that begins on the last line.
    pub fn malformed(&self, what: impl Into<String>) -> ReadError {
        ReadError::Malformed(Malformed { line: self.number, offset: self.start, what: what.into() })
    }

    /// Formats the limit and the two remedies.
    pub fn over_limit(&self, what: &str) -> String {
        let limit = human_count(self.limit as u64);
        format!(
            "{what} of more than {limit} bytes; raise --line-bytes-max, or pass --skip-malformed to continue after it"
        )
    }

    /// Appends the next line to `line` without its `\n`; returns false at the end of the input.
    pub fn read(&mut self, line: &mut Vec<u8>) -> Result<bool, ReadError> {
        while self.rest_is_left {
            let mut passed = Vec::new();
            self.rest_is_left = matches!(self.fill(&mut passed, 1 << 16)?, Met::Limit);
        }
        self.start = self.offset;
        let before = line.len();
        let met = self.fill(line, self.limit)?;
        if matches!(met, Met::InputEnd) && line.len() == before {
            return Ok(false);
        }
        self.number += 1;
        if matches!(met, Met::Limit) {
            self.rest_is_left = true;
            return Err(self.malformed(self.over_limit("a line")));
        }
        Ok(true)
    }

    /// Appends bytes up to the end of the line, at most `limit`.
    fn fill(&mut self, line: &mut Vec<u8>, limit: usize) -> Result<Met, ReadError> {
        let mut left = limit;
        loop {
            let bytes = match self.input.fill_buf() {
                Err(e) if e.kind() == ErrorKind::Interrupted && !interrupt::requested() => continue,
                bytes => bytes.map_err(|e| ReadError::Failed(e.into()))?,
            };
            if bytes.is_empty() {
                return Ok(Met::InputEnd);
            }
            let end = bytes.iter().position(|b| *b == b'\n');
            let len = end.unwrap_or(bytes.len());
            if len > left {
                return Ok(Met::Limit);
            }
            line.extend_from_slice(&bytes[..len]);
            left -= len;
            let taken = len + usize::from(end.is_some());
            self.input.consume(taken);
            self.offset += taken as u64;
            if end.is_some() {
                return Ok(Met::LineEnd);
            }
        }
    }
}
