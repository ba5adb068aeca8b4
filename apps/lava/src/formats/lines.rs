//! Lines of bounded length, with their numbers and offsets, and the errors of records that cannot be read.

use crate::{Error, interrupt};
use bench::report::human_count;
use std::fmt;
use std::io::{BufRead, ErrorKind};

/// Why there is no record.
#[derive(Debug)]
pub enum ReadError {
    /// The record is malformed; the next one can be read.
    Malformed(Malformed),
    /// The input ends here: it cannot be read or unpacked.
    Failed(Error),
}

/// A malformed record.
#[derive(Debug)]
pub struct Malformed {
    /// The line on which it begins, from 1.
    pub line: u64,
    /// Where that line begins in the input, unpacked.
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

/// The longest line that is read, unless the user says otherwise.
pub const LINE_BYTES_MAX: usize = 64 << 20;

/// The reason why reading a line stopped.
enum Met {
    LineEnd,
    InputEnd,
    Limit,
}

/// Reads lines into one buffer.
pub struct Lines<'a> {
    input: Box<dyn BufRead + 'a>,
    limit: usize,
    number: u64,
    /// Of the next byte.
    offset: u64,
    start: u64,
    /// The rest of a line that is too long is passed over before the next one.
    rest_is_left: bool,
}

impl<'a> Lines<'a> {
    /// Lines of at most `limit` bytes each.
    pub fn new(input: Box<dyn BufRead + 'a>, limit: usize) -> Self {
        Lines { input, limit, number: 0, offset: 0, start: 0, rest_is_left: false }
    }

    /// The longest line.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The number of the line that was read last, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Where the line that was read last begins.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The error of a record that begins on the last line.
    pub fn malformed(&self, what: impl Into<String>) -> ReadError {
        ReadError::Malformed(Malformed { line: self.number, offset: self.start, what: what.into() })
    }

    /// The limit, and the two remedies.
    pub fn over_limit(&self, what: &str) -> String {
        let limit = human_count(self.limit as u64);
        format!(
            "{what} of more than {limit} bytes; --line-bytes-max raises the limit, --skip-malformed goes on behind it"
        )
    }

    /// Appends the next line to `line`, without its end (`\n`); false at the end of the input.
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
