//! The tail of the log: the open page, and the closed pages that are not in their group file yet.
//!
//! These pages are in memory ([`Ring`]) until they are written to their group file. A buffered batch must outlive the
//! process, so its pages are also written to the staging file before the batch is acknowledged. Pages take the slots of
//! that file in turn; of the open page, only the new bytes are written. The write may fail for want of room; the batch is
//! then taken back ([`Tail::take_back`]). A durable batch is not staged: its sync writes it to the group file.
//!
//! Invariant: when a staged batch is acknowledged, all pages up to its last are in their group file or in the staging
//! file, as far as they are filled at that time. A slot is reused only after its page was written to the group file
//! (the caller's duty, [`Tail::has_slots`]).

use crate::groups::Groups;
use crate::groups::PreparedGroup;
use crate::history::{Chain, History};
use crate::lane::Lane;
use crate::notes::Notes;
use crate::page::{self, BatchHeader, FragmentKind, Owner, PageHeader, Shape, Stream};
use crate::place::Place;
use crate::tenant::TenantId;
use base::{ErrorKind, Result, Uid};
use io::{AlignedBuf, PAGE, PartialWrite, ScratchFile};
use std::collections::VecDeque;
use std::sync::Arc;

/// Buffers of pages that are kept for later ones.
const SPARE_PAGES_MAX: usize = 256;

/// A page as far as it is filled, in its open form.
pub(crate) type PageBytes = Arc<Vec<u8>>;

/// A page to which nothing is added any more.
#[derive(Debug)]
pub(crate) struct ClosedPage {
    pub lpn: u64,
    /// Bytes that it takes in its group file.
    pub len: usize,
    /// As far as it is filled.
    pub bytes: PageBytes,
}

/// The pages that are not known to be in their group file, and the file that keeps them for the next process.
#[derive(Debug)]
pub(crate) struct Ring {
    file: Arc<dyn ScratchFile>,
    slots: u64,
    store: Uid,
    /// The pages so far that left this, and so how many slots were used before that of the first of `closed`.
    gone: u64,
    closed: VecDeque<ClosedPage>,
    /// The page after them; empty: none is open.
    open: Vec<u8>,
    /// Its number, or that of the next.
    next_lpn: u64,
    /// How long it will be.
    shape: Shape,
    spare: Vec<Vec<u8>>,
    /// How far the file has the pages: up to this many bytes of this page.
    staged: (u64, usize),
    /// Buffer of a write of several pages.
    run: Vec<u8>,
    /// How often batches were taken back.
    taken_back: u64,
    /// Bytes of the file that batches left which found no room, as offset and length. No position is used again before they are zero.
    refused: Vec<(usize, usize)>,
}

impl Ring {
    pub fn new(file: Arc<dyn ScratchFile>, store: Uid, next_lpn: u64) -> Self {
        Ring {
            slots: (file.len() / PAGE) as u64,
            file,
            store,
            gone: next_lpn,
            closed: VecDeque::new(),
            open: Vec::new(),
            next_lpn,
            shape: Shape::default(),
            spare: Vec::new(),
            staged: (next_lpn, 0),
            run: Vec::new(),
            taken_back: 0,
            refused: Vec::new(),
        }
    }

    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// Goes on in another file. All pages must be in their group file.
    pub fn move_to(&mut self, file: Arc<dyn ScratchFile>) {
        assert!(self.closed.is_empty() && self.open.is_empty(), "pages of the old file are still needed");
        (self.slots, self.staged) = ((file.len() / PAGE) as u64, (self.next_lpn, 0));
        self.file = file;
        self.refused.clear();
    }

    /// How often batches were taken back.
    pub fn taken_back(&self) -> u64 {
        self.taken_back
    }

    /// The first page that is here; all before it are in their group file.
    pub fn first_lpn(&self) -> u64 {
        self.closed.front().map_or(self.next_lpn, |page| page.lpn)
    }

    /// Where a closed page is in `closed`; the end of it for the open one and those to come.
    fn index(&self, lpn: u64) -> usize {
        let is_closed = lpn < self.next_lpn;
        if is_closed { self.closed.partition_point(|page| page.lpn < lpn) } else { self.closed.len() }
    }

    /// Returns the owner of the pages of a group.
    fn owner(&self, group: Uid) -> Owner {
        Owner { store: self.store, group: Some(group) }
    }

    /// Closed pages from `start` on up to `end`, as many as have `len_max` bytes together, and one in any case.
    pub fn run(&self, start: u64, end: u64, len_max: usize) -> impl Iterator<Item = &ClosedPage> {
        let mut len = 0usize;
        self.closed.range(self.index(start)..).take_while(move |page| {
            let first = len == 0;
            len += page.len;
            page.lpn < end && (first || len <= len_max)
        })
    }

    /// The number after the pages that make such a run.
    pub fn end_of_run(&self, start: u64, end: u64, len_max: usize) -> u64 {
        self.run(start, end, len_max).last().map_or(end, |page| self.number_after(page.lpn))
    }

    /// The pages from `written_end` on that the file holds, each with the bytes of it that were staged.
    pub fn staged_from(&self, written_end: u64) -> Vec<(u64, usize)> {
        let (last, last_used) = self.staged;
        let closed = self.closed.range(self.index(written_end)..).take_while(|page| page.lpn < last);
        let whole = closed.map(|page| (page.lpn, page.bytes.len()));
        let part = (last >= self.first_lpn().max(written_end) && last_used > 0).then_some((last, last_used));
        whole.chain(part).collect()
    }

    /// Returns the number below which all pages must be written before so many pages, the open one first, have a slot.
    pub fn must_be_written(&self, pages: u64) -> u64 {
        let over = (self.closed.len() as u64 + pages).saturating_sub(self.slots);
        match over.checked_sub(1).and_then(|last| self.closed.get(last as usize)) {
            Some(page) => self.number_after(page.lpn),
            None if over == 0 => 0,
            None => self.next_lpn,
        }
    }

    /// The number of the page behind a closed one.
    fn number_after(&self, lpn: u64) -> u64 {
        self.closed.get(self.index(lpn + 1)).map_or(self.next_lpn, |page| page.lpn)
    }

    /// Lets go of pages that are in their group file by now.
    pub fn forget_below(&mut self, written_end: u64) {
        while self.first_lpn() < written_end {
            let Some(page) = self.closed.pop_front() else { break };
            self.gone += 1;
            if let Some(bytes) = Arc::into_inner(page.bytes) {
                self.recycle(bytes);
            }
        }
    }

    fn recycle(&mut self, mut bytes: Vec<u8>) {
        if bytes.capacity() > 0 && self.spare.len() < SPARE_PAGES_MAX {
            bytes.clear();
            self.spare.push(bytes);
        }
    }

    fn begin(&mut self, header: &[u8], shape: Shape) {
        self.open = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(PAGE));
        self.open.extend_from_slice(header);
        self.shape = shape;
    }

    /// The number after the open page, if it is closed now.
    fn end_lpn(&self) -> u64 {
        if self.open.is_empty() { self.next_lpn } else { self.next_lpn + self.shape.numbers(self.open.len()) }
    }

    fn end(&mut self) {
        let (lpn, len) = (self.next_lpn, self.shape.page_len(self.open.len()));
        self.next_lpn = self.end_lpn();
        let bytes = Arc::new(std::mem::take(&mut self.open));
        self.closed.push_back(ClosedPage { lpn, len, bytes });
    }

    /// The numbers up to `next_lpn` were given to a page that is in its group file, as are all before it.
    fn skip_to(&mut self, next_lpn: u64) {
        self.forget_below(next_lpn);
        self.gone += 1;
        self.next_lpn = next_lpn;
    }

    /// Goes back to where `lpn` was the open page, with `used` bytes.
    fn cut_back(&mut self, lpn: u64, used: usize) {
        self.taken_back += 1;
        while self.next_lpn > lpn {
            let Some(page) = self.closed.pop_back() else { break };
            self.next_lpn = page.lpn;
            let open = std::mem::replace(&mut self.open, Arc::unwrap_or_clone(page.bytes));
            self.recycle(open);
        }
        self.open.truncate(used);
    }

    /// A page that is here, as far as it is filled.
    pub fn in_memory(&self, lpn: u64) -> Option<&[u8]> {
        let page = self.closed.get(self.index(lpn)).filter(|page| page.lpn == lpn);
        match page {
            Some(page) => Some(&page.bytes),
            None => Some(&*self.open).filter(|open| lpn == self.next_lpn && !open.is_empty()),
        }
    }

    /// A page by its index, closed or open.
    fn page(&self, index: usize) -> &[u8] {
        self.closed.get(index).map_or(&self.open, |page| &page.bytes)
    }

    /// Makes the file hold all pages from `written_end` on. After `NoSpace` their numbers may be given once more, behind
    /// [`Ring::erase_refused`].
    pub fn stage(&mut self, written_end: u64) -> Result<()> {
        let end = (self.next_lpn, self.open.len());
        let (lpn, used) = self.staged.max((written_end, 0));
        if (lpn, used) >= end {
            return Ok(());
        }
        let index = self.index(lpn);
        // The last page that has bytes.
        let last = if self.open.is_empty() { self.closed.len() - 1 } else { self.closed.len() };
        let staged = match index == last {
            true => self.write(index, used, &self.page(index)[used..]).map_err(|e| (index, used, e)),
            false => self.stage_run(index, used, last),
        };
        if let Err((run_index, run_used, PartialWrite { stored_bytes, error })) = staged {
            if error.kind() == ErrorKind::NoSpace {
                let stored_end = run_index * PAGE + run_used + stored_bytes;
                self.refuse(index * PAGE + used, stored_end);
                match self.erase_refused() {
                    Err(e) if e.kind() == ErrorKind::NoSpace => {}
                    erased => erased?,
                }
            }
            return Err(error);
        }
        self.staged = end;
        Ok(())
    }

    /// The slot of a page, by its index.
    fn slot(&self, index: usize) -> u64 {
        (self.gone + index as u64) % self.slots
    }

    fn write(&self, index: usize, at: usize, bytes: &[u8]) -> std::result::Result<(), PartialWrite> {
        self.file.write(self.slot(index) as usize * PAGE + at, bytes)
    }

    /// Several pages at once; as many writes as the ring wraps. An error comes with where the write that failed began.
    fn stage_run(
        &mut self,
        mut index: usize,
        mut used: usize,
        last: usize,
    ) -> std::result::Result<(), (usize, usize, PartialWrite)> {
        let mut run = std::mem::take(&mut self.run);
        let mut staged = Ok(());
        while staged.is_ok() && index <= last {
            let (start, start_used) = (index, used);
            run.clear();
            loop {
                run.extend_from_slice(&self.page(index)[used..]);
                (index, used) = (index + 1, 0);
                if index > last || self.slot(index) == 0 {
                    break;
                }
                // Bytes behind the end of a page are never read.
                run.resize((start_used + run.len()).next_multiple_of(PAGE) - start_used, 0);
            }
            staged = self.write(start, start_used, &run).map_err(|e| (start, start_used, e));
        }
        self.run = run;
        staged
    }

    /// Notes bytes to erase of a batch that found no room: the beginning of its fragment in the first page, and the headers of the pages
    /// after it. The next batch takes the same positions, and recovery must find neither these bytes nor a page that continues them.
    /// `start` and `end` count bytes of slots from the first page on.
    fn refuse(&mut self, start: usize, end: usize) {
        let mut at = start;
        while at < end {
            let len = page::HEADER_LEN.min(end - at).min(PAGE - at % PAGE);
            self.refused.push((self.slot(at / PAGE) as usize * PAGE + at % PAGE, len));
            at = (at / PAGE + 1) * PAGE;
        }
    }

    /// Erases what refused batches left in the file. To be called before a page is begun or added to.
    ///
    /// # Errors
    /// Those of the file; after `NoSpace` it may be tried again.
    pub fn erase_refused(&mut self) -> Result<()> {
        while let Some((at, len)) = self.refused.last() {
            self.file.write(*at, &[0; page::HEADER_LEN][..*len]).map_err(|e| e.error)?;
            self.refused.pop();
        }
        Ok(())
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

    pub fn header(&self) -> &BatchHeader {
        &self.header
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

/// The state of store and log that a new page records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings {
    pub durable_end: u64,
    pub witness_edit: u64,
}

/// The state that appending and closing pages share; behind one lock.
#[derive(Debug)]
pub(crate) struct Tail {
    pub groups: Groups,
    pub ring: Ring,
    /// Kept where pages wait to be overtaken.
    pub notes: Notes,
    /// Bytes used of the page before the next.
    prev_used: u16,
    /// The stream of the pages. In the first lane `None` until a second tenant appends: pages of a single tenant keep the
    /// form of earlier releases. Afterwards every page has it, since a page begins before its batches are known.
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

/// Where the tail was before a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    next_lpn: u64,
    used: usize,
    prev_used: u16,
    closed_data_end: u64,
}

impl Mark {
    /// The page that was open, or came next.
    pub fn lpn(self) -> u64 {
        self.next_lpn
    }
}

/// A batch in pages of the tail.
pub(crate) struct Put {
    /// The tail before it.
    pub mark: Mark,
    /// Its first byte.
    pub place: Place,
    pub last_lpn: u64,
    /// None of its pages was written meanwhile, so it can be taken back.
    pub is_unbroken: bool,
}

impl Tail {
    pub fn new(
        lane: Lane,
        first: PreparedGroup,
        next_lpn: u64,
        history: &History,
        ring: Ring,
    ) -> Result<Self> {
        let groups = Groups::new(lane, first, next_lpn, history)?;
        let Chain { end_lpn, used, .. } = groups.active.prev;
        Ok(Tail {
            groups,
            ring,
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

    /// The page that is open, or the next to be opened.
    pub fn next_lpn(&self) -> u64 {
        self.ring.next_lpn
    }

    /// Bytes used of the open page; 0: no page is open.
    pub fn used(&self) -> usize {
        self.ring.open.len()
    }

    /// The end of all pages, the open one included.
    pub fn end_lpn(&self) -> u64 {
        self.ring.end_lpn()
    }

    /// The end of the pages that hold batches (watermarks do not count).
    pub fn data_end(&self) -> u64 {
        if self.used() != 0 { self.end_lpn() } else { self.closed_data_end }
    }

    /// True if a batch fits the open page and nothing has to be done before. Such a batch needs neither a slot nor room
    /// in the group: the page has both.
    pub fn fits_open_page(&self, batch: &BatchHeader) -> bool {
        let used = self.used();
        let is_ready = used != 0
            && self.groups.active.shape == Shape::default()
            && self.ring.refused.is_empty()
            && (batch.tenant == TenantId::FIRST || self.stream.is_some());
        is_ready && used + page::FIRST_FRAGMENT_HEADER_LEN + batch.len as usize <= PAGE
    }

    /// Bytes used of the page before one that is here, or that comes next.
    pub fn prev_used_of(&self, lpn: u64) -> Option<u16> {
        if lpn == self.next_lpn() {
            return Some(self.prev_used);
        }
        page::peek(self.ring.in_memory(lpn)?).map(|header| header.prev_used)
    }

    /// True if the slots of so many pages, the open one first, are free, given that all pages below `written_end` were
    /// written.
    pub fn has_slots(&self, pages: u64, written_end: u64) -> bool {
        self.ring.must_be_written(pages) <= written_end
    }

    /// The most pages that a batch of `len` bytes may need, the open one included.
    pub fn pages_for(&self, len: usize) -> u64 {
        u64::from(self.used() != 0) + page::pages_to_open(0, len)
    }

    /// Makes room for a batch of `len` bytes in the active group, rolling if need be. False if there is no group for it.
    pub fn reserve(&mut self, len: usize) -> bool {
        let active = &self.groups.active;
        let have = self.next_lpn() - active.first_lpn;
        have + active.shape.numbers_for(self.used(), len) <= active.data_numbers || self.roll(len)
    }

    /// Goes on in the first spare group with room for a batch of `len` bytes. False, and nothing happened, if there is none.
    pub fn roll(&mut self, len: usize) -> bool {
        let end_lpn = self.end_lpn();
        let used = if self.used() != 0 { self.used() as u16 } else { self.prev_used };
        let end = Chain { ltn: self.groups.active.prepared.ltn, end_lpn, used };
        let rolled = self.groups.roll(end, len);
        if rolled {
            self.close_page();
            self.rolls += 1;
        }
        rolled
    }

    /// Where the first byte of the next batch will be, if it goes to the active group.
    pub fn next_place(&self) -> Place {
        let used = if self.used() != 0 { self.used() } else { page::HEADER_LEN };
        self.groups.active.place(self.next_lpn(), used + page::FIRST_FRAGMENT_HEADER_LEN)
    }

    /// True if [`Tail::reserve`] finds room for a batch of `len` bytes, even if the open page is closed before.
    pub fn has_room(&self, len: usize) -> bool {
        let active = &self.groups.active;
        let have = self.end_lpn() - active.first_lpn;
        have + active.shape.numbers_for(0, len) <= active.data_numbers || self.groups.has_spare(len)
    }

    /// Begins the next page. There must be a slot for it and no open page.
    pub fn open_page(&mut self, around: Surroundings) {
        assert_eq!(self.used(), 0, "a page is open");
        let mut header = [0; page::HEADER_LEN];
        self.header(around).encode_open(&mut header);
        self.ring.begin(&header, self.groups.active.shape);
    }

    fn header(&mut self, around: Surroundings) -> PageHeader {
        let active = &self.groups.active;
        self.highest_witness = self.highest_witness.max(around.witness_edit);
        PageHeader {
            form: page::Form::Open,
            used: 0,
            prev_used: self.prev_used,
            owner: self.ring.owner(active.prepared.uid),
            ltn: active.prepared.ltn,
            lpn: self.next_lpn(),
            first_lpn: active.first_lpn,
            durable_end: around.durable_end,
            prev_ltn: active.prev.ltn,
            prev_end: active.prev.end_lpn,
            witness_edit: self.highest_witness,
            stream: self.stream.map(|stream| Stream { shape: active.shape, ..stream }),
        }
    }

    /// From now on batches are of several tenants. The open page is not for that, and is closed.
    pub fn share(&mut self) {
        if self.stream.is_none() {
            self.close_page();
            self.stream = Some(Stream::default());
        }
    }

    /// Appends a batch that fits the open page ([`Tail::fits_open_page`]), and closes the page if it is then full. Returns
    /// the page.
    pub fn put_in_open_page(&mut self, pieces: &[&[u8]], header: BatchHeader) -> u64 {
        let (lpn, pos) = (self.next_lpn(), self.used());
        self.ring.open.resize(pos + page::FIRST_FRAGMENT_HEADER_LEN, 0);
        pieces.iter().for_each(|piece| self.ring.open.extend_from_slice(piece));
        self.end_fragment(FragmentKind::Full, header, pos);
        self.close_full_page();
        lpn
    }

    /// Fills in the header of the last fragment of the open page, which begins at `pos`.
    fn end_fragment(&mut self, kind: FragmentKind, header: BatchHeader, pos: usize) {
        let (owner, lpn) = (self.ring.owner(self.groups.active.prepared.uid), self.next_lpn());
        page::encode_fragment(&mut self.ring.open[pos..], kind, header, owner, lpn, pos);
    }

    fn close_full_page(&mut self) {
        if PAGE - self.used() < page::ROOM_LEN_MIN {
            self.close_page();
        }
    }

    /// Appends as much of the batch as fits to the open page, and closes the page if it is then full. Returns the page.
    pub fn write_fragment(&mut self, batch: &mut Batch<'_>) -> u64 {
        let begins = batch.left == batch.header.len as usize;
        let (whole, part) = match begins {
            true => (FragmentKind::Full, FragmentKind::First),
            false => (FragmentKind::Last, FragmentKind::Middle),
        };
        let (lpn, pos) = (self.next_lpn(), self.used());
        let room = PAGE - pos - whole.header_len();
        let (kind, n) = if batch.left <= room { (whole, batch.left) } else { (part, room) };
        self.ring.open.resize(pos + kind.header_len() + n, 0);
        batch.fill(&mut self.ring.open[pos + kind.header_len()..]);
        self.end_fragment(kind, batch.header, pos);
        self.close_full_page();
        lpn
    }

    /// Closes the open page, if there is one: nothing is added to it any more.
    pub fn close_page(&mut self) {
        if self.used() != 0 {
            self.prev_used = self.used() as u16;
            self.ring.end();
            self.closed_data_end = self.next_lpn();
        }
    }

    /// Makes `out` a page without batches, in its closed form, and returns its number and the one after it. All pages before
    /// it must be in their group file; it does not pass through the ring.
    pub fn watermark_page(&mut self, around: Surroundings, out: &mut AlignedBuf) -> (u64, u64) {
        assert_eq!(self.used(), 0, "a page is open");
        let (lpn, used) = (self.next_lpn(), page::HEADER_LEN);
        let shape = self.groups.active.shape;
        out.resize(shape.page_len(used));
        let header = self.header(around);
        header.encode_open(out.as_mut_slice());
        page::close(out.as_mut_slice(), used as u16, around.durable_end, header.owner, lpn);
        self.prev_used = used as u16;
        let end = lpn + shape.numbers(used);
        self.ring.skip_to(end);
        (lpn, end)
    }

    /// Where the tail is now. As long as the lock is held, and no page is opened for lack of a slot in between, it can be
    /// brought back there.
    pub fn mark(&self) -> Mark {
        let (next_lpn, closed_data_end) = (self.next_lpn(), self.closed_data_end);
        Mark { next_lpn, used: self.used(), prev_used: self.prev_used, closed_data_end }
    }

    /// Forgets the bytes since the mark. None of them is in a group file, and none was acknowledged.
    pub fn take_back(&mut self, mark: Mark) {
        self.ring.cut_back(mark.next_lpn, mark.used);
        (self.prev_used, self.closed_data_end) = (mark.prev_used, mark.closed_data_end);
    }

    /// Notes the sequences of a batch that is now in the log.
    pub fn record(&mut self, header: BatchHeader) {
        self.groups.active.seqs.add(header.tenant, header.first_seq, header.last_seq());
        (self.batches, self.payload_bytes) = (self.batches + 1, self.payload_bytes + u64::from(header.len));
    }
}
