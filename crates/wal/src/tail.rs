//! The tail of the log: the open page, and the closed pages that are not in their group file yet.
//!
//! These pages are in memory ([`Pages`]) until they are written to their group file. A buffered
//! batch must outlive the process, so its pages are also written to the staging file
//! ([`StagingSlots`]) before the batch is acknowledged. Pages take the slots of that file in turn;
//! only the new bytes of the open page are written. If the write finds no space, the batch is taken
//! back ([`Tail::take_back`]). A durable batch is not staged: its sync writes it to the group file.
//!
//! Invariant: when a staged batch is acknowledged, all pages up to its last are in their group file
//! or in the staging file, with the bytes they have at that time. A slot is reused only after its
//! page was written to the group file (the caller ensures this, [`Tail::has_slots`]).

use crate::groups::Groups;
use crate::groups::PreparedGroup;
use crate::history::{Chain, History};
use crate::lane::Lane;
use crate::notes::Notes;
use crate::page::{self, BatchHeader, FragmentKind, PageHeader, Shape, Stream};
use crate::place::LogAddress;
use crate::tenant::TenantId;
use base::{Result, Uid};
use io::{AlignedBuf, PAGE, ScratchFile};
use std::sync::Arc;

pub(crate) use pages::{ClosedPage, Pages};
pub(crate) use slots::StagingSlots;

/// A batch that is being put into pages.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    pieces: &'a [&'a [u8]],
    /// Consumed bytes of the first piece.
    consumed: usize,
    left: usize,
    header: BatchHeader,
}

impl<'a> Batch<'a> {
    pub fn new(pieces: &'a [&'a [u8]], header: BatchHeader) -> Self {
        Batch { pieces, consumed: 0, left: header.len as usize, header }
    }

    pub fn left(&self) -> usize {
        self.left
    }

    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Appends the next `len` bytes to `out`.
    fn put(&mut self, len: usize, out: &mut Vec<u8>) {
        self.left -= len;
        let mut missing = len;
        while let Some((piece, others)) = self.pieces.split_first() {
            let rest = &piece[self.consumed..];
            let n = rest.len().min(missing);
            out.extend_from_slice(&rest[..n]);
            missing -= n;
            if n < rest.len() {
                self.consumed += n;
                break;
            }
            self.consumed = 0;
            self.pieces = others;
        }
        assert!(missing == 0, "the pieces are shorter than the batch");
    }
}

/// The state of store and log that a new page records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings {
    pub durable_end: u64,
    pub witness_edit: u64,
}

/// State that appending and closing pages share; behind one lock.
#[derive(Debug)]
pub(crate) struct Tail {
    pub groups: Groups,
    pub pages: Pages,
    pub slots: StagingSlots,
    /// Used where pages stay in the tail buffer.
    pub notes: Notes,
    /// Used bytes of the page before the open or next one.
    prev_used: u16,
    /// The stream of the pages. In the first lane `None` until a second tenant appends: pages of a
    /// single tenant keep the form of earlier releases. Afterwards every page has it, since a page
    /// begins before its batches are known.
    stream: Option<Stream>,
    /// The end of the closed pages that hold batches (watermarks do not count).
    closed_data_end: u64,
    /// [`Tail::data_end`] when the last watermark was made durable.
    pub confirmed_end: u64,
    pub highest_witness: u64,
    pub batches: u64,
    pub payload_bytes: u64,
    pub rolls: u64,
}

/// Position of the tail before a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// The open page, or the next one.
    pub next_lpn: u64,
    used: usize,
    prev_used: u16,
    closed_data_end: u64,
}

/// A batch in pages of the tail.
pub(crate) struct Put {
    /// The tail before the batch.
    pub mark: Mark,
    /// The first byte of the batch.
    pub place: LogAddress,
    pub last_lpn: u64,
    /// No page of the batch was written meanwhile, so it can be taken back.
    pub is_unbroken: bool,
}

impl Tail {
    pub fn new(
        lane: Lane,
        first: PreparedGroup,
        store: Uid,
        next_lpn: u64,
        history: &History,
        staging: Arc<dyn ScratchFile>,
    ) -> Result<Self> {
        let groups = Groups::new(lane, first, store, next_lpn, history)?;
        let Chain { end_lpn, used, .. } = groups.active.prev;
        Ok(Tail {
            groups,
            pages: Pages::new(next_lpn),
            slots: StagingSlots::new(staging, next_lpn),
            notes: Notes::default(),
            prev_used: used,
            stream: (lane != Lane::FIRST).then_some(Stream { lane, ..Stream::default() }),
            closed_data_end: end_lpn,
            confirmed_end: end_lpn,
            highest_witness: 0,
            batches: 0,
            payload_bytes: 0,
            rolls: 0,
        })
    }

    /// Returns the end of the pages that hold batches (watermarks do not count).
    pub fn data_end(&self) -> u64 {
        if self.pages.used() != 0 { self.pages.end_lpn() } else { self.closed_data_end }
    }

    /// Returns true if a batch fits the open page without any preparation. Such a batch needs
    /// neither a slot nor room in the group: the page has both.
    pub fn fits_open_page(&self, batch: &BatchHeader) -> bool {
        let used = self.pages.used();
        let is_ready = used != 0
            && self.groups.active.shape == Shape::default()
            && self.slots.is_clean()
            && (batch.tenant == TenantId::FIRST || self.stream.is_some());
        is_ready && used + page::FIRST_FRAGMENT_HEADER_LEN + batch.len as usize <= PAGE
    }

    /// Returns the used bytes of the page before a page in memory, or before the next one.
    pub fn prev_used_of(&self, lpn: u64) -> Option<u16> {
        if lpn == self.pages.next_lpn() {
            return Some(self.prev_used);
        }
        page::peek(self.pages.in_memory(lpn)?).map(|header| header.prev_used)
    }

    /// Returns the number below which all pages must be written before `pages` pages, the open one
    /// first, have a slot.
    pub fn must_be_written(&self, pages: u64) -> u64 {
        self.pages.must_be_written(pages, self.slots.count())
    }

    /// Returns true if the slots of `pages` pages, the open one first, are free, given that all
    /// pages below `written_end` were written.
    pub fn has_slots(&self, pages: u64, written_end: u64) -> bool {
        self.must_be_written(pages) <= written_end
    }

    /// Continues in another staging file. All pages must be in their group file.
    pub fn move_to(&mut self, staging: Arc<dyn ScratchFile>) {
        assert!(self.pages.is_empty(), "pages of the old file are still needed");
        self.slots = StagingSlots::new(staging, self.pages.next_lpn());
    }

    /// Returns the most pages that a batch of `len` bytes may need, including the open one.
    pub fn pages_for(&self, len: usize) -> u64 {
        u64::from(self.pages.used() != 0) + page::pages_to_open(0, len)
    }

    /// Ensures room for a batch of `len` bytes in the active group, rolling if necessary. Returns
    /// false if there is no group for the batch.
    pub fn reserve(&mut self, len: usize) -> bool {
        let active = &self.groups.active;
        let have = self.pages.next_lpn() - active.first_lpn;
        have + active.shape.numbers_for(self.pages.used(), len) <= active.data_numbers || self.roll(len)
    }

    /// Continues in the first spare group with room for a batch of `len` bytes. Returns false, with
    /// no change, if there is none.
    pub fn roll(&mut self, len: usize) -> bool {
        let end_lpn = self.pages.end_lpn();
        let used = if self.pages.used() != 0 { self.pages.used() as u16 } else { self.prev_used };
        let end = Chain { ltn: self.groups.active.prepared.ltn, end_lpn, used };
        let rolled = self.groups.roll(end, len);
        if rolled {
            self.close_page();
            self.rolls += 1;
        }
        rolled
    }

    /// Returns the place of the first byte of the next batch, if it goes to the active group.
    pub fn next_place(&self) -> LogAddress {
        let used = if self.pages.used() != 0 { self.pages.used() } else { page::HEADER_LEN };
        self.groups.active.place(self.pages.next_lpn(), used + page::FIRST_FRAGMENT_HEADER_LEN)
    }

    /// Returns true if [`Tail::reserve`] finds room for a batch of `len` bytes, even if the open
    /// page is closed before.
    pub fn has_room(&self, len: usize) -> bool {
        let active = &self.groups.active;
        let have = self.pages.end_lpn() - active.first_lpn;
        have + active.shape.numbers_for(0, len) <= active.data_numbers || self.groups.has_spare(len)
    }

    /// Begins the next page. There must be a slot for the page, and no open page.
    pub fn open_page(&mut self, around: Surroundings) {
        assert_eq!(self.pages.used(), 0, "a page is open");
        let mut header = [0; page::HEADER_LEN];
        self.header(around).encode_open(&mut header);
        self.pages.begin(&header, self.groups.active.shape);
    }

    fn header(&mut self, around: Surroundings) -> PageHeader {
        let active = &self.groups.active;
        self.highest_witness = self.highest_witness.max(around.witness_edit);
        PageHeader {
            form: page::Form::Open,
            used: 0,
            prev_used: self.prev_used,
            owner: active.owner,
            ltn: active.prepared.ltn,
            lpn: self.pages.next_lpn(),
            first_lpn: active.first_lpn,
            durable_end: around.durable_end,
            prev_ltn: active.prev.ltn,
            prev_end: active.prev.end_lpn,
            witness_edit: self.highest_witness,
            stream: self.stream.map(|stream| Stream { shape: active.shape, ..stream }),
        }
    }

    /// Switches to batches of several tenants. The open page has the older format, and is closed.
    pub fn share(&mut self) {
        if self.stream.is_none() {
            self.close_page();
            self.stream = Some(Stream::default());
        }
    }

    /// Appends a batch that fits the open page ([`Tail::fits_open_page`]), and closes the page if
    /// it is then full. Returns the page.
    pub fn put_in_open_page(&mut self, pieces: &[&[u8]], header: BatchHeader) -> u64 {
        let (lpn, pos, open) = (self.pages.next_lpn(), self.pages.used(), self.pages.open());
        open.resize(pos + page::FIRST_FRAGMENT_HEADER_LEN, 0);
        pieces.iter().for_each(|piece| open.extend_from_slice(piece));
        self.end_fragment(FragmentKind::Full, header, pos);
        self.close_full_page();
        lpn
    }

    /// Fills in the header of the last fragment of the open page, which begins at `pos`.
    fn end_fragment(&mut self, kind: FragmentKind, header: BatchHeader, pos: usize) {
        let (owner, lpn) = (self.groups.active.owner, self.pages.next_lpn());
        page::encode_fragment(&mut self.pages.open()[pos..], kind, header, owner, lpn, pos);
    }

    fn close_full_page(&mut self) {
        if PAGE - self.pages.used() < page::ROOM_LEN_MIN {
            self.close_page();
        }
    }

    /// Appends the part of the batch that fits the open page, and closes the page if it is then
    /// full. Returns the page.
    pub fn write_fragment(&mut self, batch: &mut Batch<'_>) -> u64 {
        let begins = batch.left == batch.header.len as usize;
        let (whole, part) = match begins {
            true => (FragmentKind::Full, FragmentKind::First),
            false => (FragmentKind::Last, FragmentKind::Middle),
        };
        let (lpn, pos) = (self.pages.next_lpn(), self.pages.used());
        let room = PAGE - pos - whole.header_len();
        let (kind, n) = if batch.left <= room { (whole, batch.left) } else { (part, room) };
        let open = self.pages.open();
        open.resize(pos + kind.header_len(), 0);
        batch.put(n, open);
        self.end_fragment(kind, batch.header, pos);
        self.close_full_page();
        lpn
    }

    /// Closes the open page, if there is one.
    pub fn close_page(&mut self) {
        if self.pages.used() != 0 {
            self.prev_used = self.pages.used() as u16;
            self.pages.end();
            self.closed_data_end = self.pages.next_lpn();
        }
    }

    /// Makes `out` a page without batches, in its closed form, and returns its number and the next
    /// one. All earlier pages must be in their group file; this page does not pass through the tail
    /// buffer.
    pub fn watermark_page(&mut self, around: Surroundings, out: &mut AlignedBuf) -> (u64, u64) {
        assert_eq!(self.pages.used(), 0, "a page is open");
        let (lpn, used) = (self.pages.next_lpn(), page::HEADER_LEN);
        let shape = self.groups.active.shape;
        out.resize(shape.page_len(used));
        let header = self.header(around);
        header.encode_open(out.as_mut_slice());
        page::close(out.as_mut_slice(), used as u16, around.durable_end, header.owner, lpn);
        self.prev_used = used as u16;
        let end = lpn + shape.numbers(used);
        self.pages.skip_to(end);
        (lpn, end)
    }

    /// Returns the position of the tail. The tail can be reset to it as long as the lock is held,
    /// and no page is opened for lack of a slot in between.
    pub fn mark(&self) -> Mark {
        let (next_lpn, closed_data_end) = (self.pages.next_lpn(), self.closed_data_end);
        Mark { next_lpn, used: self.pages.used(), prev_used: self.prev_used, closed_data_end }
    }

    /// Removes the bytes since the mark. None of them is in a group file, and none was
    /// acknowledged.
    pub fn take_back(&mut self, mark: Mark) {
        self.pages.cut_back(mark.next_lpn, mark.used);
        (self.prev_used, self.closed_data_end) = (mark.prev_used, mark.closed_data_end);
    }

    /// Adds the sequences of an appended batch to the active group.
    pub fn record(&mut self, header: BatchHeader) {
        self.groups.active.seqs.add(header.tenant, header.first_seq, header.last_seq());
        (self.batches, self.payload_bytes) = (self.batches + 1, self.payload_bytes + u64::from(header.len));
    }
}

mod pages;
mod slots;
