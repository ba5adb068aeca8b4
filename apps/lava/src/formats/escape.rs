//! Bytes as one line of readable text. Valid UTF-8 stays as it is. `\t \n \r \\` stand for tab,
//! newline, return and backslash, `\xHH` for other control characters and invalid bytes.

use std::io::Write;

/// Returns the escaped form.
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                '\t' => out.push_str("\\t"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                c if c < ' ' || c == '\x7f' => push_hex(&mut out, c as u8),
                c => out.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| push_hex(&mut out, *byte));
    }
    out
}

fn push_hex(out: &mut String, byte: u8) {
    out.push_str(&format!("\\x{byte:02x}"));
}

/// Writes the escaped form.
pub fn write(out: &mut dyn Write, bytes: &[u8]) -> std::io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(piece_len(rest));
        out.write_all(escape(piece).as_bytes())?;
        rest = behind;
    }
    Ok(())
}

/// Returns the length of a prefix that splits no character.
fn piece_len(bytes: &[u8]) -> usize {
    const PIECE_LEN: usize = 16 << 10;
    let Some(piece) = bytes.get(..PIECE_LEN) else { return bytes.len() };
    // The first byte of a character of up to four bytes that may continue behind the piece.
    let last = piece.iter().rev().take(4).position(|b| *b & 0xc0 != 0x80);
    match last {
        Some(back) if piece[PIECE_LEN - 1 - back] >= 0xc0 => PIECE_LEN - 1 - back,
        _ => PIECE_LEN,
    }
}

/// Decodes escaped text; an error names the invalid escape.
pub fn unescape(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        if *byte != b'\\' {
            out.push(*byte);
            continue;
        }
        match rest.next() {
            Some(b'\\') => out.push(b'\\'),
            Some(b't') => out.push(b'\t'),
            Some(b'n') => out.push(b'\n'),
            Some(b'r') => out.push(b'\r'),
            Some(b'x') => {
                let mut digit = || rest.next().and_then(|d| char::from(*d).to_digit(16));
                match (digit(), digit()) {
                    (Some(high), Some(low)) => out.push((high << 4 | low) as u8),
                    _ => return Err("\\x must be followed by two hexadecimal digits, as in \\x0a".to_owned()),
                }
            }
            Some(other) => {
                return Err(format!(
                    "\\{} is no escape: use \\t \\n \\r \\\\ or \\xHH",
                    char::from(*other).escape_default()
                ));
            }
            None => return Err("it ends in a single backslash: write \\\\ for a backslash".to_owned()),
        }
    }
    Ok(out)
}
