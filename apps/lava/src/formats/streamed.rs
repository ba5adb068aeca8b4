//! A large value as a member of a JSON object, in bounded memory.

use super::base64;
use crate::Result;
use std::io::Write;

/// Provides a value piece by piece. It is called twice, because only the end shows whether the
/// value is text.
pub type Pieces<'a> = dyn FnMut(&mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> + 'a;

/// Writes `"name":"..."`, or `"name_b64":"..."` for bytes that are not UTF-8.
pub fn write_member(out: &mut dyn Write, name: &str, pieces: &mut Pieces<'_>) -> Result<()> {
    if is_text(pieces)? {
        write!(out, "\"{name}\":\"")?;
        write_text(out, pieces)?;
    } else {
        write!(out, "\"{name}_b64\":\"")?;
        write_base64(out, pieces)?;
    }
    Ok(out.write_all(b"\"")?)
}

/// Text in pieces, which may end within a character.
#[derive(Default)]
struct Text {
    /// The beginning of a split character.
    held: Vec<u8>,
    is_broken: bool,
}

impl Text {
    /// Adds a piece and passes the complete characters to `take`.
    fn add(&mut self, piece: &[u8], mut take: impl FnMut(&str) -> Result<()>) -> Result<()> {
        if self.is_broken {
            return Ok(());
        }
        self.held.extend_from_slice(piece);
        let whole = match std::str::from_utf8(&self.held) {
            Ok(text) => text.len(),
            Err(e) => {
                self.is_broken = e.error_len().is_some();
                e.valid_up_to()
            }
        };
        take(std::str::from_utf8(&self.held[..whole]).unwrap_or_default())?;
        self.held.drain(..whole);
        Ok(())
    }

    fn is_whole(&self) -> bool {
        self.held.is_empty() && !self.is_broken
    }
}

fn is_text(pieces: &mut Pieces<'_>) -> Result<bool> {
    let mut text = Text::default();
    pieces(&mut |piece| text.add(piece, |_| Ok(())))?;
    Ok(text.is_whole())
}

fn write_text(out: &mut dyn Write, pieces: &mut Pieces<'_>) -> Result<()> {
    let mut text = Text::default();
    pieces(&mut |piece| {
        text.add(piece, |whole| {
            let quoted = serde_json::to_string(whole)?;
            Ok(out.write_all(&quoted.as_bytes()[1..quoted.len() - 1])?)
        })
    })?;
    match text.is_whole() {
        true => Ok(()),
        false => Err("the bytes changed during the read: export again".into()),
    }
}

fn write_base64(out: &mut dyn Write, pieces: &mut Pieces<'_>) -> Result<()> {
    let mut held = Vec::new();
    pieces(&mut |piece| {
        held.extend_from_slice(piece);
        // Only the end may be padded.
        let whole = held.len() / 3 * 3;
        base64::write(out, &held[..whole])?;
        held.drain(..whole);
        Ok(())
    })?;
    Ok(base64::write(out, &held)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, Value};

    fn written(bytes: &[u8], piece_len: usize) -> Vec<u8> {
        let mut out = Vec::new();
        write_member(&mut out, "value", &mut |take| bytes.chunks(piece_len).try_for_each(&mut *take))
            .unwrap();
        out
    }

    #[test]
    fn streamed_compression_does_not_depend_on_piece_length() {
        let values: [&[u8]; 6] = [
            b"",
            b"plain",
            "a\"\\\n\u{1}\u{e4}\u{20ac}\u{1f30b}".as_bytes(),
            &[0xff, 0, 7, 8],
            &[b'a', 0xe2, 0x82],
            &[7; 100],
        ];
        for value in values {
            let mut object = Map::new();
            super::super::jsonl::insert(&mut object, "value", value);
            for piece_len in 1..=value.len() + 1 {
                let json = [b"{", &written(value, piece_len)[..], b"}"].concat();
                let found: Value = serde_json::from_slice(&json).unwrap();
                assert_eq!(found, Value::Object(object.clone()), "{value:?} in pieces of {piece_len}");
            }
        }
    }
}
