//! Where the bytes of a batch are, and how a part of one is read without the rest.
//!
//! A batch fills every page that it does not end in, so where each of its bytes is follows from where its first one is: that
//! page to its end, then, page by page, what is behind the headers of page and fragment ([`Place::at`]). A record inside of a
//! batch is read alone, with the pages that it touches and no others, in one read of the device.
//!
//! Every page is checked as it is read: its checksum holds only under the identities of the store and of the group, and it
//! must be the one that belongs there by number and lane. So what was written over the file of a group since it was given
//! free, whenever that was, is never taken for a part of it.
//!
//! This is so in pages of version 2 and later; groups of version 1 are replayed and never read by place.

use crate::Lane;
use crate::page::{self, HEADER_LEN, NEXT_FRAGMENT_HEADER_LEN, Owner, Verdict};
use base::{Error, Result, Uid};
use io::{AlignedBuf, InPlaceFile, PAGE};

/// Where the bytes of a page begin that continue a batch.
const NEXT_AT: usize = HEADER_LEN + NEXT_FRAGMENT_HEADER_LEN;

/// Where a byte of a batch is in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The number of the group.
    pub ltn: u64,
    /// The page, counted from the first of the group.
    pub page: u32,
    /// Bytes from the beginning of the page.
    pub pos: u16,
}

impl Place {
    /// Where the byte `offset` behind this one is, in the same batch. One place behind the end of a batch there is nothing.
    pub fn at(self, offset: usize) -> Place {
        let pos = usize::from(self.pos);
        let here = PAGE.saturating_sub(pos);
        if offset < here {
            return Place { pos: (pos + offset) as u16, ..self };
        }
        let (behind, room) = (offset - here, PAGE - NEXT_AT);
        let page = self.page.saturating_add(1).saturating_add((behind / room) as u32);
        Place { page, pos: (NEXT_AT + behind % room) as u16, ..self }
    }

    /// How many pages the `len` bytes from here on touch.
    pub fn pages(self, len: usize) -> u32 {
        self.at(len.saturating_sub(1)).page - self.page + 1
    }

    /// The parts of pages that hold the `len` bytes from here on: how many pages behind the first, and which bytes.
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

/// A group of which something is read.
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
    /// Appends the `len` bytes of a batch from `place` on to `out`. All pages that they touch must be in the file.
    ///
    /// # Errors
    /// `Corruption` with file and offset if one of these pages is not what it must be; those of reading the file. Then
    /// nothing is appended.
    pub fn read(&self, place: Place, len: usize, out: &mut Vec<u8>) -> Result<()> {
        let first = u64::from(place.page);
        let offset = first * PAGE as u64;
        let bytes = place.pages(len) as usize * PAGE;
        let here = |e: Error, at: u64| e.at_file(self.file.path()).at_offset(at);
        if offset + bytes as u64 > self.file.len() {
            let why = format!("log group {} ends before page {}", self.ltn, place.at(len).page);
            return Err(here(Error::corruption(why), offset));
        }
        let mut buf = AlignedBuf::zeroed(bytes);
        self.file.read_at(buf.as_mut_slice(), offset).map_err(|e| here(e, offset))?;
        let start = out.len();
        for (i, part) in place.parts(len) {
            let page = buf.as_slice().get(i * PAGE..).and_then(|rest| rest.get(..PAGE)).unwrap_or_default();
            match self.part_of(page, first + i as u64, part) {
                Some(part) => out.extend_from_slice(part),
                None => {
                    out.truncate(start);
                    return Err(here(damaged(self.ltn), offset + (i * PAGE) as u64));
                }
            }
        }
        Ok(())
    }

    /// A part of a page, if that is the one that must be at `index`.
    fn part_of<'p>(&self, page: &'p [u8], index: u64, part: std::ops::Range<usize>) -> Option<&'p [u8]> {
        let owner = Owner { store: self.store, group: Some(self.uid) };
        let Verdict::Valid(header) = page::judge_closed(page, owner, self.ltn) else { return None };
        let belongs = header.lpn.checked_sub(header.first_lpn) == Some(index) && header.lane() == self.lane;
        let filled = part.end <= usize::from(header.used);
        let belongs = belongs || base::canary::is("log-read-of-another-page");
        page.get(part).filter(|_| belongs && filled)
    }
}

fn damaged(ltn: u64) -> Error {
    Error::corruption(format!(
        "a page of log group {ltn} is damaged or missing: the records in it are lost, others are not; restore them from a \
         checkpoint or backup"
    ))
}

#[cfg(test)]
mod tests;
