//! The encoding of a change without its key and value. So a single change is logged without copying
//! these, and without encoding it under the writer's lock.

use super::Change;
use base::codec::varint_bytes;

/// Longest encoding: kind, family, length of the key, length of the value.
const LEN_MAX: usize = 1 + 5 + 10 + 10;

/// The bytes before the key, and the bytes between key and value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Frame {
    bytes: [u8; LEN_MAX],
    /// The ends of the two parts.
    ends: (u8, u8),
}

impl Frame {
    pub fn of(change: &Change<'_>) -> Frame {
        let mut frame = Frame::default();
        frame.put(change.kind as u8);
        frame.put_varint(u64::from(change.family));
        frame.put_varint(change.key.len() as u64);
        frame.ends.0 = frame.ends.1;
        if change.has_value() {
            frame.put_varint(change.value.len() as u64);
        }
        frame
    }

    fn put(&mut self, byte: u8) {
        self.bytes[usize::from(self.ends.1)] = byte;
        self.ends.1 += 1;
    }

    fn put_varint(&mut self, v: u64) {
        varint_bytes(v, |byte| self.put(byte));
    }

    /// Returns the whole encoding of the change, in pieces.
    pub fn around<'a>(&'a self, change: &Change<'a>) -> [&'a [u8]; 4] {
        let (head, end) = (usize::from(self.ends.0), usize::from(self.ends.1));
        let value = if change.has_value() { change.value } else { &[] };
        [&self.bytes[..head], change.key, &self.bytes[head..end], value]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ValueKind;
    use base::codec::{put_bytes, put_varint};

    #[test]
    fn frame_and_change_concatenate_to_the_encoding() {
        let long = vec![7; 70_000];
        for kind in [ValueKind::Value, ValueKind::Deletion, ValueKind::RangeDeletion, ValueKind::Merge] {
            for family in [0, 127, 128, u32::MAX] {
                for (key, value) in [(&b"k"[..], &b""[..]), (&long[..300], &long[..128]), (&long, &long)] {
                    let change = Change { kind, family, key, value };
                    let mut whole = vec![kind as u8];
                    put_varint(&mut whole, u64::from(family));
                    put_bytes(&mut whole, key);
                    if kind != ValueKind::Deletion {
                        put_bytes(&mut whole, value);
                    }
                    assert_eq!(Frame::of(&change).around(&change).concat(), whole, "{kind:?} {family}");
                }
            }
        }
    }
}
