//! The end of the log: the open page and its neighbours in the staging ring.
//!
//! Page `p` lives in slot `p mod slots` of the mapping until it is written to its group file. The order of stores makes
//! the mapping parse at every instant: a page's header body before its magic and checksum, a fragment's body before its
//! checksum. A slot is reused only after the page in it was written (the caller's duty, [`Tail::has_slot`]).

use crate::groups::Groups;
use crate::page::{self, BatchHeader, FragmentKind, PageHeader};
use crate::{Chain, History, PreparedGroup};
use base::sync::atomic::{AtomicU16, Ordering, fence};
use base::{Result, Uid};
use io::{PAGE, SharedMapping};
use std::sync::Arc;

/// The ring of pages, shared by the appender and whoever writes pages out.
#[derive(Debug)]
pub(crate) struct Ring {
    mapping: Arc<dyn SharedMapping>,
    store: Uid,
    /// Bytes used of the page in each slot, set when the page is closed (under the tail's lock).
    used: Box<[AtomicU16]>,
}

impl Ring {
    pub fn new(mapping: Arc<dyn SharedMapping>, store: Uid) -> Self {
        let used = (0..mapping.len() / PAGE).map(|_| AtomicU16::new(0)).collect();
        Ring { mapping, store, used }
    }

    pub fn slots(&self) -> u64 {
        self.used.len() as u64
    }

    fn slot(&self, lpn: u64) -> usize {
        (lpn % self.slots()) as usize
    }

    /// Copies closed pages out of the ring, in their closed form, one after the other into `out`.
    pub fn copy_closed(&self, first_lpn: u64, durable_end: u64, out: &mut [u8]) {
        let (pages, rest) = out.as_chunks_mut::<PAGE>();
        assert!(rest.is_empty(), "whole pages");
        for (lpn, page) in (first_lpn..).zip(pages) {
            let slot = self.slot(lpn);
            let used = self.used[slot].load(Ordering::Relaxed);
            self.mapping.read(slot * PAGE, &mut page[..usize::from(used)]);
            page::close(page, used, durable_end, self.store, lpn);
        }
    }
}

/// A batch on its way into pages.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    pieces: &'a [&'a [u8]],
    /// Bytes of the first piece that are consumed.
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

    fn fill(&mut self, mut out: &mut [u8]) {
        self.left -= out.len();
        while let Some((piece, others)) = self.pieces.split_first() {
            let rest = &piece[self.consumed..];
            let n = rest.len().min(out.len());
            let (now, later) = out.split_at_mut(n);
            now.copy_from_slice(&rest[..n]);
            out = later;
            if n < rest.len() {
                self.consumed += n;
                break;
            }
            self.consumed = 0;
            self.pieces = others;
        }
        assert!(out.is_empty(), "the pieces are shorter than the batch");
    }
}

/// What a new page notes of the world around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings {
    pub durable_end: u64,
    pub witness_edit: u64,
}

/// The state that appending and closing pages share; behind one lock.
#[derive(Debug)]
pub(crate) struct Tail {
    pub groups: Groups,
    /// The page that is open, or the next to be opened.
    pub next_lpn: u64,
    /// Bytes used of the open page; 0: no page is open.
    pub used: usize,
    /// Bytes used of the page before `next_lpn`.
    prev_used: u16,
    /// The end of the pages that hold batches (watermarks do not count).
    pub data_end: u64,
    /// `data_end` when the last watermark was made durable.
    pub vouched_end: u64,
    pub highest_witness: u64,
    pub batches: u64,
    pub payload_bytes: u64,
    pub rolls: u64,
    scratch: Box<[u8; PAGE]>,
}

impl Tail {
    pub fn new(first: PreparedGroup, next_lpn: u64, history: &History) -> Result<Self> {
        let groups = Groups::new(first, next_lpn, history)?;
        let Chain { end_lpn, used, .. } = groups.active.prev;
        Ok(Tail {
            groups,
            next_lpn,
            used: 0,
            prev_used: used,
            data_end: end_lpn,
            vouched_end: end_lpn,
            highest_witness: 0,
            batches: 0,
            payload_bytes: 0,
            rolls: 0,
            scratch: Box::new([0; PAGE]),
        })
    }

    /// True if the slot of the next page is free, given that all pages below `written_end` were written.
    pub fn has_slot(&self, ring: &Ring, written_end: u64) -> bool {
        self.next_lpn - written_end.min(self.next_lpn) < ring.slots()
    }

    /// Makes room for a batch of `len` bytes in the active group, rolling if need be. False if there is no group for it.
    pub fn reserve(&mut self, ring: &Ring, len: usize) -> bool {
        let open = u64::from(self.used != 0);
        let have = self.next_lpn + open - self.groups.active.first_lpn;
        if have + page::pages_to_open(self.used, len) <= self.groups.active.data_pages() {
            return true;
        }
        let end_lpn = self.next_lpn + open;
        let used = if self.used != 0 { self.used as u16 } else { self.prev_used };
        let end = Chain { ltn: self.groups.active.prepared.ltn, end_lpn, used };
        let rolled = self.groups.roll(end, page::pages_to_open(0, len));
        if rolled {
            self.close_page(ring);
            self.rolls += 1;
        }
        rolled
    }

    /// True if [`Tail::reserve`] finds room for a batch of `len` bytes, even if the open page is closed before.
    pub fn has_room(&self, len: usize) -> bool {
        let active = &self.groups.active;
        let have = self.next_lpn + u64::from(self.used != 0) - active.first_lpn;
        let pages = page::pages_to_open(0, len);
        have + pages <= active.data_pages() || self.groups.has_spare(pages)
    }

    /// Begins the next page. There must be a slot for it and no open page.
    pub fn open_page(&mut self, ring: &Ring, around: Surroundings) {
        assert_eq!(self.used, 0, "a page is open");
        let header = self.header(ring, around).encode_open();
        let at = ring.slot(self.next_lpn) * PAGE;
        let (commit, body) = header.split_at(8);
        ring.mapping.write(at + commit.len(), body);
        fence(Ordering::Release);
        ring.mapping.write(at, commit);
        self.used = page::HEADER_LEN;
    }

    fn header(&mut self, ring: &Ring, around: Surroundings) -> PageHeader {
        let active = &self.groups.active;
        self.highest_witness = self.highest_witness.max(around.witness_edit);
        PageHeader {
            form: page::Form::Open,
            used: 0,
            prev_used: self.prev_used,
            store: ring.store,
            ltn: active.prepared.ltn,
            lpn: self.next_lpn,
            first_lpn: active.first_lpn,
            durable_end: around.durable_end,
            prev_ltn: active.prev.ltn,
            prev_end: active.prev.end_lpn,
            witness_edit: self.highest_witness,
        }
    }

    /// Appends as much of the batch as fits to the open page, and closes the page if it is then full. Returns the page.
    pub fn write_fragment(&mut self, ring: &Ring, batch: &mut Batch<'_>) -> u64 {
        let begins = batch.left == batch.header.len as usize;
        let (whole, part) = match begins {
            true => (FragmentKind::Full, FragmentKind::First),
            false => (FragmentKind::Last, FragmentKind::Middle),
        };
        let room = PAGE - self.used - whole.header_len();
        let (kind, n) = if batch.left <= room { (whole, batch.left) } else { (part, room) };
        let bytes = &mut self.scratch[..kind.header_len() + n];
        batch.fill(&mut bytes[kind.header_len()..]);
        page::encode_fragment(bytes, kind, batch.header, ring.store, self.next_lpn, self.used);
        let at = ring.slot(self.next_lpn) * PAGE + self.used;
        // The checksum last: until it stands, the page ends before this fragment.
        let (commit, body) = bytes.split_at(4);
        ring.mapping.write(at + commit.len(), body);
        fence(Ordering::Release);
        ring.mapping.write(at, commit);
        self.used += bytes.len();
        let lpn = self.next_lpn;
        self.data_end = lpn + 1;
        if PAGE - self.used < page::ROOM_LEN_MIN {
            self.close_page(ring);
        }
        lpn
    }

    /// Closes the open page, if there is one: nothing is added to it any more.
    pub fn close_page(&mut self, ring: &Ring) {
        if self.used != 0 {
            self.prev_used = self.used as u16;
            ring.used[ring.slot(self.next_lpn)].store(self.prev_used, Ordering::Relaxed);
            self.next_lpn += 1;
            self.used = 0;
        }
    }

    /// Adds a page without batches, in its closed form, to `out`; it does not pass through the ring.
    pub fn watermark_page(&mut self, ring: &Ring, around: Surroundings, out: &mut [u8; PAGE]) -> u64 {
        assert_eq!(self.used, 0, "a page is open");
        let lpn = self.next_lpn;
        let used = page::HEADER_LEN;
        out[..used].copy_from_slice(&self.header(ring, around).encode_open());
        page::close(out, used as u16, around.durable_end, ring.store, lpn);
        self.prev_used = used as u16;
        self.next_lpn += 1;
        lpn
    }

    /// Notes the sequences of a batch that is now in the log.
    pub fn record(&mut self, header: BatchHeader) {
        let last = header.first_seq + u64::from(header.seq_span);
        let seqs = &mut self.groups.active.seqs;
        let (low, high) = seqs.unwrap_or((header.first_seq, last));
        *seqs = Some((low.min(header.first_seq), high.max(last)));
        self.batches += 1;
        self.payload_bytes += u64::from(header.len);
    }
}
