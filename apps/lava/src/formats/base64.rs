//! Base64 with padding (RFC 4648, section 4).

use std::io::Write;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes bytes as base64.
pub fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    bytes.chunks(3).for_each(|group| out.extend(digits(group)));
    out
}

/// Writes bytes as base64.
pub fn write(out: &mut dyn Write, bytes: &[u8]) -> std::io::Result<()> {
    // A multiple of three, so that only the last piece is padded.
    bytes.chunks(3 << 10).try_for_each(|piece| out.write_all(encode(piece).as_bytes()))
}

/// Returns the four digits of at most three bytes.
fn digits(group: &[u8]) -> [char; 4] {
    let at = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
    let word = at(0) << 16 | at(1) << 8 | at(2);
    [0, 1, 2, 3].map(|digit| match digit <= group.len() {
        true => char::from(ALPHABET[(word >> (18 - 6 * digit)) as usize & 63]),
        false => '=',
    })
}

/// Decodes base64 text; `None` if it is invalid.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let body = text.strip_suffix("==").or(text.strip_suffix('=')).unwrap_or(text);
    let mut out = Vec::with_capacity(body.len() / 4 * 3 + 2);
    let (mut word, mut bits) = (0u32, 0u32);
    for byte in body.bytes() {
        let digit = ALPHABET.iter().position(|a| *a == byte)? as u32;
        word = (word << 6 | digit) & 0xffff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((word >> bits) as u8);
        }
    }
    let rest_is_zero = word & ((1 << bits) - 1) == 0;
    (bits < 6 && rest_is_zero).then_some(out)
}
