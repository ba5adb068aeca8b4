//! Redo records: a change of some bytes of one page.
//!
//! ```text
//! page u64 | at u16 | bytes
//! ```
//!
//! All integers are little-endian; the LSN is that of the log record.

use crate::Result;

/// Size of a page in bytes.
pub const PAGE_BYTES: usize = 16 << 10;
/// Bytes before the new bytes of the page.
const HEAD_BYTES: usize = 10;

/// A change, encoded in the log and as a delta of its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redo<'a> {
    /// The page.
    pub page: u64,
    /// Offset in the page.
    pub at: u16,
    /// New bytes at this offset.
    pub bytes: &'a [u8],
}

impl<'a> Redo<'a> {
    /// Appends the encoded change.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.page.to_le_bytes());
        out.extend_from_slice(&self.at.to_le_bytes());
        out.extend_from_slice(self.bytes);
    }

    /// # Errors
    /// The record is no change of a page.
    pub fn decode(record: &'a [u8]) -> Result<Redo<'a>> {
        let (head, bytes) = record
            .split_at_checked(HEAD_BYTES)
            .ok_or("a redo record is shorter than its header of 10 bytes")?;
        let (page, at) = head.split_at(8);
        let redo = Redo {
            page: u64::from_le_bytes(page.try_into()?),
            at: u16::from_le_bytes(at.try_into()?),
            bytes,
        };
        match usize::from(redo.at) + bytes.len() <= PAGE_BYTES {
            true => Ok(redo),
            false => Err(format!("a redo record changes bytes past the end of page {}", redo.page).into()),
        }
    }

    /// Applies the change to a page.
    pub fn apply(&self, page: &mut [u8]) {
        let at = usize::from(self.at);
        page[at..at + self.bytes.len()].copy_from_slice(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redo_record_round_trips_and_malformed_is_refused() {
        let redo = Redo { page: 7, at: 16_380, bytes: b"abcd" };
        let mut record = Vec::new();
        redo.encode(&mut record);
        assert_eq!(Redo::decode(&record).unwrap(), redo);
        let mut page = vec![0; PAGE_BYTES];
        redo.apply(&mut page);
        assert_eq!(&page[16_379..], b"\0abcd");
        record.push(0);
        assert!(Redo::decode(&record).unwrap_err().to_string().contains("past the end of page"));
        assert!(Redo::decode(&record[..9]).is_err());
    }
}
