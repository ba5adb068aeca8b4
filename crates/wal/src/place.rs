//! Places of the bytes of a batch in the log, and reads of a part of a batch.
//!
//! A batch fills every page but its last, all 4 KB of it, so the place of each byte follows from
//! the place of the first. The batch continues to the end of that page, and then, page by page,
//! behind the headers of page and fragment ([`LogAddress::at`]). Only its last page may be shorter.
//! A record inside a batch is read with one device read of the pages that it touches.
//!
//! Every page is checked as it is read. Its checksum holds only under the identities of the store
//! and of the group, and its number and lane must belong to that place. So data written over the
//! file of a released group, at any later time, is never taken for a part of the batch.
//!
//! This holds for pages of version 2 and later; groups of version 1 are replayed and never read by
//! place.

use crate::lane::Lane;
use crate::page::{self, HEADER_LEN, NEXT_FRAGMENT_HEADER_LEN, Owner, Verdict};
use base::{Error, Result, Uid};
use io::{AlignedBuf, BLOCK_LEN_MIN, InPlaceFile, PAGE};

/// A position in the files of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilePosition {
    /// The file.
    pub path: std::path::PathBuf,
    /// Bytes from its beginning.
    pub offset: u64,
}

/// Blocks of a page other than the last of a batch.
const PAGE_BLOCKS: u64 = (PAGE / BLOCK_LEN_MIN) as u64;
/// Position of the payload in a page that continues a batch.
const NEXT_AT: usize = HEADER_LEN + NEXT_FRAGMENT_HEADER_LEN;

/// The place of a byte of a batch in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogAddress {
    /// The number of the group.
    pub ltn: u64,
    /// The beginning of its page, in blocks of [`BLOCK_LEN_MIN`] bytes from the beginning of the
    /// group.
    pub block: u32,
    /// Bytes from the beginning of the page.
    pub pos: u16,
}

impl LogAddress {
    /// Returns the place of the page at `offset` of the file of a group.
    pub(crate) fn of_page(ltn: u64, offset: u64) -> LogAddress {
        LogAddress { ltn, block: (offset / BLOCK_LEN_MIN as u64) as u32, pos: 0 }
    }

    /// Returns the place of a byte of the same page.
    pub(crate) fn in_page(self, pos: usize) -> LogAddress {
        LogAddress { pos: pos as u16, ..self }
    }

    /// Returns the offset of its page in the file of the group.
    pub fn offset(self) -> u64 {
        u64::from(self.block) * BLOCK_LEN_MIN as u64
    }

    /// Returns the place of the byte `offset` behind this one, in the same batch. The result is
    /// meaningless behind the end of the batch.
    pub fn at(self, offset: usize) -> LogAddress {
        let pos = usize::from(self.pos);
        let here = PAGE.saturating_sub(pos);
        if offset < here {
            return self.in_page(pos + offset);
        }
        let (behind, room) = (offset - here, PAGE - NEXT_AT);
        let pages = 1 + (behind / room) as u64;
        let block = u64::from(self.block).saturating_add(pages.saturating_mul(PAGE_BLOCKS));
        LogAddress { block: u32::try_from(block).unwrap_or(u32::MAX), ..self }
            .in_page(NEXT_AT + behind % room)
    }

    /// Returns how many pages the `len` bytes from here on touch.
    pub fn pages(self, len: usize) -> u32 {
        (self.at(len.saturating_sub(1)).block - self.block) / PAGE_BLOCKS as u32 + 1
    }

    /// Returns the parts of pages that hold the `len` bytes from here on: the distance to the first
    /// page, and the byte range.
    pub(crate) fn parts(self, len: usize) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
        let (mut left, mut start) = (len, usize::from(self.pos));
        (0..self.pages(len) as usize).map(move |page| {
            let end = PAGE.min(start + left);
            let part = start..end;
            (left, start) = (left - (end - start), NEXT_AT);
            (page, part)
        })
    }
}

/// A group to read from.
#[derive(Clone, Copy, Debug)]
pub struct ReadGroup<'a> {
    /// The store.
    pub store: Uid,
    /// The lane.
    pub lane: Lane,
    /// Its number.
    pub ltn: u64,
    /// Its identity.
    pub uid: Uid,
    /// Its file.
    pub file: &'a dyn InPlaceFile,
}

impl ReadGroup<'_> {
    /// Appends the `len` bytes of a batch from `place` on to `out`. All pages that they touch must
    /// be in the file.
    ///
    /// # Errors
    /// `Corruption` with file and offset if one of these pages is not the expected one; those of
    /// reading the file. Then nothing is appended.
    pub fn read(&self, place: LogAddress, len: usize, out: &mut Vec<u8>) -> Result<()> {
        let offset = place.offset();
        let here = |e: Error, at: u64| e.at_file(self.file.path()).at_offset(at);
        // The last page may be shorter, and the file may end with it.
        let least = (place.pages(len) as u64 - 1) * PAGE as u64 + BLOCK_LEN_MIN as u64;
        if offset + least > self.file.len() {
            let why = format!(
                "the file of log group {} ends before byte {}, up to which records were stored: those behind its end are lost, others stay readable",
                self.ltn,
                offset + least
            );
            return Err(here(Error::corruption(why), offset));
        }
        let most = (offset + u64::from(place.pages(len)) * PAGE as u64).min(self.file.len());
        match self.read_to(place, len, most, out) {
            // Only the last page itself tells its length. The bytes read behind it may be
            // unreadable after a power failure during their write.
            Err(e) if !e.is_corruption() => {
                let mut shorter = (offset + least..most).step_by(self.file.block_len());
                let is_read = shorter.any(|end| self.read_to(place, len, end, out).is_ok());
                if is_read { Ok(()) } else { Err(e) }
            }
            read => read,
        }
    }

    /// As [`ReadGroup::read`], from the bytes of the file up to `end`.
    fn read_to(&self, place: LogAddress, len: usize, end: u64, out: &mut Vec<u8>) -> Result<()> {
        let offset = place.offset();
        let here = |e: Error, at: u64| e.at_file(self.file.path()).at_offset(at);
        let (buf, skipped) = self.read_blocks(offset, end).map_err(|e| here(e, offset))?;
        let start = out.len();
        for (i, part) in place.parts(len) {
            let at = i * PAGE;
            let page = buf.as_slice().get(skipped + at..).unwrap_or_default();
            match self.part_of(page, offset + at as u64, part) {
                Some(part) => out.extend_from_slice(part),
                None => {
                    out.truncate(start);
                    return Err(here(damaged(self.ltn), offset + at as u64));
                }
            }
        }
        Ok(())
    }

    /// Reads the device blocks that hold the bytes `start..end`. Also returns how many bytes come
    /// before them.
    fn read_blocks(&self, start: u64, end: u64) -> Result<(AlignedBuf, usize)> {
        let block = self.file.block_len() as u64;
        let first = start / block * block;
        let mut buf = AlignedBuf::zeroed((end.next_multiple_of(block) - first) as usize);
        self.file.read_at(buf.as_mut_slice(), first)?;
        Ok((buf, (start - first) as usize))
    }

    /// Returns a part of a page, if it is the one that belongs at `offset`.
    fn part_of<'p>(&self, page: &'p [u8], offset: u64, part: std::ops::Range<usize>) -> Option<&'p [u8]> {
        let owner = Owner { store: self.store, group: Some(self.uid) };
        let Verdict::Valid(header) = page::judge_closed(page, owner, self.ltn) else { return None };
        let belongs = header.offset() == Some(offset) && header.lane() == self.lane;
        let filled = part.end <= usize::from(header.used);
        page.get(part).filter(|_| belongs && filled)
    }
}

fn damaged(ltn: u64) -> Error {
    Error::corruption(format!(
        "the page of log group {ltn} at this offset is damaged or missing: its records are lost, others stay readable"
    ))
}

#[cfg(test)]
mod tests;
