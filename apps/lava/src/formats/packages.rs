//! Debian package indexes (`Packages`): stanzas of fields, parted by empty lines.
//!
//! The key of a stanza is its package and version, `name/version`; the value is the stanza as it stands, with the end of
//! its last line, without the empty line behind. Exported stanzas are parted by one empty line each, so an index
//! that is sorted by key and holds every key once comes back byte for byte.

use super::Record;
use crate::Result;
use std::io::{BufRead, Write};

/// The longest stanza that is believed, bytes.
const STANZA_LEN_MAX: usize = 16 << 20;

/// Reads stanzas.
pub struct Reader<'a> {
    input: Box<dyn BufRead + 'a>,
    number: u64,
}

impl<'a> Reader<'a> {
    /// A reader of `input`.
    pub fn new(input: Box<dyn BufRead + 'a>) -> Self {
        Reader { input, number: 0 }
    }

    fn stanza(&mut self) -> Result<Option<Record>> {
        let mut stanza = Vec::new();
        let first = self.number + 1;
        loop {
            let start = stanza.len();
            let len = self.input.read_until(b'\n', &mut stanza)?;
            self.number += 1;
            let blank = stanza[start..].trim_ascii().is_empty();
            if blank {
                stanza.truncate(start);
            }
            if len == 0 || (blank && !stanza.is_empty()) {
                break;
            }
            if stanza.len() > STANZA_LEN_MAX {
                return Err(format!("line {first}: a stanza of more than {STANZA_LEN_MAX} bytes").into());
            }
        }
        if stanza.is_empty() {
            return Ok(None);
        }
        let key = key_of(&stanza).ok_or(format!("line {first}: a stanza without Package and Version"))?;
        Ok(Some((key, stanza)))
    }
}

/// The key of a stanza: `name/version`.
pub fn key_of(stanza: &[u8]) -> Option<Vec<u8>> {
    let (mut package, mut version) = (None, None);
    for line in stanza.split(|b| *b == b'\n') {
        // Field names ignore case; the index always writes them like this, but others may not.
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
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        self.stanza().transpose()
    }
}

/// Writes one stanza and the empty line behind.
pub fn write(out: &mut dyn Write, stanza: &[u8]) -> std::io::Result<()> {
    out.write_all(stanza)?;
    let end: &[u8] = if stanza.last() == Some(&b'\n') { b"\n" } else { b"\n\n" };
    out.write_all(end)
}
