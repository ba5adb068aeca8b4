//! Debian package indexes (`Packages`): stanzas of fields, separated by empty lines.
//!
//! The key of a stanza is its package and version, `name/version`. The value is the stanza
//! verbatim, including the end of its last line but not the empty line after it. Exported stanzas
//! are separated by one empty line each, so an index that is sorted by unique keys round-trips byte
//! for byte.

use super::lines::Malformed;
use super::{Lines, ReadError, Record};
use std::io::Write;

/// Longest accepted stanza in bytes.
const STANZA_LEN_MAX: usize = 16 << 20;

/// Reads stanzas.
pub struct Reader<'a> {
    lines: Lines<'a>,
    /// The rest of an overlong stanza must be skipped before the next one.
    rest_is_left: bool,
}

impl<'a> Reader<'a> {
    /// Returns a reader of lines.
    pub fn new(lines: Lines<'a>) -> Self {
        Reader { lines, rest_is_left: false }
    }

    /// Skips the rest of a stanza.
    fn pass_rest(&mut self) -> Result<(), ReadError> {
        let mut line = Vec::new();
        while self.rest_is_left {
            line.clear();
            let is_more = match self.lines.read(&mut line) {
                Err(ReadError::Malformed(_)) => true,
                read => read? && !line.trim_ascii().is_empty(),
            };
            self.rest_is_left = is_more;
        }
        Ok(())
    }

    fn stanza(&mut self) -> Result<Option<Record>, ReadError> {
        self.pass_rest()?;
        let mut stanza = Vec::new();
        let mut first = None;
        loop {
            let start = stanza.len();
            // After an overlong line, the rest of the stanza is skipped.
            let is_line = self.lines.read(&mut stanza).inspect_err(|_| self.rest_is_left = true)?;
            let blank = stanza[start..].trim_ascii().is_empty();
            if blank {
                stanza.truncate(start);
            } else {
                first.get_or_insert((self.lines.number(), self.lines.start()));
                stanza.push(b'\n');
            }
            if !is_line || (blank && !stanza.is_empty()) {
                break;
            }
            if stanza.len() > self.lines.limit().min(STANZA_LEN_MAX) {
                self.rest_is_left = true;
                let limit = self.lines.limit().min(STANZA_LEN_MAX);
                return Err(malformed(
                    first,
                    format!(
                        "a stanza of more than {limit} bytes; pass --skip-malformed to continue after it"
                    ),
                ));
            }
        }
        if stanza.is_empty() {
            return Ok(None);
        }
        let key = key_of(&stanza);
        let key = key.ok_or_else(|| {
            malformed(first, "a stanza without Package and Version, which make its key".to_owned())
        })?;
        Ok(Some((key, stanza)))
    }
}

fn malformed(first: Option<(u64, u64)>, what: String) -> ReadError {
    let (line, offset) = first.unwrap_or_default();
    ReadError::Malformed(Malformed { line, offset, what })
}

/// Returns the key of a stanza: `name/version`.
pub fn key_of(stanza: &[u8]) -> Option<Vec<u8>> {
    let (mut package, mut version) = (None, None);
    for line in stanza.split(|b| *b == b'\n') {
        // Field names ignore case. The index always uses this case, but other files may not.
        let Some(colon) = line.iter().position(|b| *b == b':') else { continue };
        let value = line[colon + 1..].trim_ascii();
        if line[..colon].eq_ignore_ascii_case(b"Package") {
            package.get_or_insert(value);
        } else if line[..colon].eq_ignore_ascii_case(b"Version") {
            version.get_or_insert(value);
        }
    }
    let (package, version) = (package?, version?);
    (!package.is_empty() && !version.is_empty()).then(|| [package, version].join(&b'/'))
}

impl Iterator for Reader<'_> {
    type Item = Result<Record, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.stanza().transpose()
    }
}

/// Writes a stanza and an empty line.
pub fn write(out: &mut dyn Write, stanza: &[u8]) -> std::io::Result<()> {
    out.write_all(stanza)?;
    let end: &[u8] = if stanza.last() == Some(&b'\n') { b"\n" } else { b"\n\n" };
    out.write_all(end)
}
