//! Bytes as one line of readable text: UTF-8 stays as it is; `\t \n \r \\` and `\xHH` stand for tab, newline, return,
//! backslash, and for any other byte that is a control character or no part of valid UTF-8.

/// The escaped form.
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

/// The bytes that an escaped text stands for; an error names what is wrong.
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
                    _ => return Err("\\x must be followed by two hexadecimal digits".to_owned()),
                }
            }
            Some(other) => return Err(format!("\\{} is no escape", char::from(*other).escape_default())),
            None => return Err("it ends in a single backslash".to_owned()),
        }
    }
    Ok(out)
}
