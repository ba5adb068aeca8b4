//! Log pages that are superseded by a flush before they are written.
//!
//! With an age ([`crate::wal::WalOptions::buffered_age_ns`]), pages stay in the tail buffer and in
//! the staging file. They are written when one of their records reaches that age, when the buffer
//! is nearly full, or when there is a waiter for a record at or behind them. The memtables that
//! hold their records may be flushed before that. Then the log *begins* behind these pages: an edit
//! of the manifest records this, and their slots are freed as if they had been written
//! ([`DeferredWriter::skip_to`]). The argument is at the end.
//!
//! An occasional durable write would have to wait for all kept pages, up to the whole buffer. So
//! for [`ASKED_NS`](super::syncer::ASKED_NS) after such a write pages are written once they justify
//! a write, as without an age.
//!
//! After that the log still knows that durable batches come: from
//! [`crate::wal::WalOptions::expects_durable`], or from one since the start. A sync of buffered
//! records does not count. From then on the kept pages are limited to the amount that the device
//! writes in [`crate::wal::WalOptions::durable_wait_ns_max`], at the rate of the log's long writes
//! so far. So a durable batch waits at most for these pages, and for the appends during a write of
//! a part of them. Without any durable batch, pages may fill the whole buffer.
//!
//! For that the log notes the pages and the arrival time of each batch (`notes`).
//!
//! Invariants: the log begins at the first page of the oldest batch that any tenant may need, or
//! before it. Only pages in the tail buffer are skipped, and only while no page before them is
//! needed. The edit is durable before any page before the new beginning loses its slot. The next
//! page in the slot records this in its header (`durable_end`), so a manifest that loses this edit
//! is detected. The holder of the token moves the frontiers, so no thread is writing skipped pages.
//!
//! # Why no needed page is lost
//!
//! A page with buffered records, before it is written, is in one of four states:
//!
//! 1. *Buffered.* It is in the tail buffer and staged; its records are not flushed. A process
//!    crash: recovery reads it from the staging file. A power loss may take it, with all pages
//!    behind it. No durable record is lost with it: the waiter for such a record writes this page
//!    first.
//! 2. *Flushed.* The manifest durably has the edit of the flush. A process crash: recovery reads
//!    the page, and the floors skip its records. A power loss may take it, with all buffered pages
//!    behind it; its records are in tables.
//! 3. *Skipped.* The manifest durably records that the log begins behind it. Recovery does not read
//!    it.
//! 4. *Released.* As before, and its slot may hold another page.
//!
//! An edit of the manifest leads from 2 to 3, and [`DeferredWriter::skip_to`] from 3 to 4. So a
//! slot never holds another page before the manifest records that the first one is skipped. Nothing
//! here concerns a written page.
//!
//! * **Frontiers.** A durable end now means: every lower page is durable, *or lies before a
//!   beginning of the log that the manifest durably records*. [`DeferredWriter::skip_to`] raises both
//!   frontiers to the beginning. Let `d` be the durable end of any page. Recovery starts at the
//!   beginning in a manifest that is no older than that page, and all pages from there to `d` are
//!   durable. So the accepted pages reach `d`, as the proof in `docs/format/wal.md` requires.
//! * **Movers.** The holder of the token moves the frontiers while no write is in flight, so no
//!   thread is writing skipped pages. The files of the released groups are reused or removed only
//!   after that. Both frontiers move under the lock of the tail, under which pages are opened. So a
//!   page that is opened in a freed slot has the new durable end in its header.
//! * **Nothing needed is skipped.** The beginning is the page in which the oldest batch begins that
//!   any tenant needs by its floor; a tenant without a floor needs all. Floors never fall, and the
//!   sequences of a tenant ascend. Of durable batches only the highest sequence of each tenant is
//!   kept: if a tenant needs it, nothing is skipped. Nothing is skipped either while an older group
//!   is needed. The floors are those by which groups are released: a memtable leaves them only when
//!   the edit with its tables is durable.
//! * **Cut batches.** The page at the beginning may continue a batch that began before it. All of
//!   that batch is in tables. Recovery skips continued fragments until a batch begins.
//! * **Superseded durable batches.** A durable batch may be superseded before any thread has synced
//!   it. It is durable once the log begins behind it: the batch, and all before it, is in durable
//!   tables. Its waiters are then notified.

use super::{Syncer, WalOptions};
use crate::commit::Commit;
use crate::counters::{Counters, add};
use crate::history::LogBegin;
use crate::tail::Tail;
use crate::tenant::TenantId;
use base::sync::{Mutex, lock, rank};
use base::{ErrorKind, Result, SeqNo};
use io::{Clock, Env, PAGE};
use std::sync::Arc;

/// New beginning of the log that the manifest does not record yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnrecordedBegin {
    /// The group in which the log will begin.
    pub ltn: u64,
    /// The first page in that group.
    pub begin: LogBegin,
    /// The groups before it, oldest first: no tenant needs them any more.
    pub released: Vec<u64>,
}

/// Kept pages that must be written by now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// End of the pages to write, since the tail buffer is nearly full or a waiter is expected.
    written_end: u64,
    /// End of the pages to make durable, since some records are old.
    durable_end: u64,
}

/// Pages of a log without a waiter: decides when they are written, or that they never are.
#[derive(Debug)]
pub struct DeferredWriter {
    options: WalOptions,
    clock: Arc<dyn Clock>,
    /// Tail of the log: open pages, the buffer of closed ones, and their groups.
    tail: Arc<Mutex<Tail, rank::LogTail>>,
    commit: Arc<Commit>,
    counters: Arc<Counters>,
    syncer: Arc<Syncer>,
}

impl DeferredWriter {
    pub(super) fn new(
        options: &WalOptions,
        env: &Env,
        tail: &Arc<Mutex<Tail, rank::LogTail>>,
        commit: &Arc<Commit>,
        counters: &Arc<Counters>,
        syncer: &Arc<Syncer>,
    ) -> Self {
        DeferredWriter {
            options: options.clone(),
            clock: env.clock.clone(),
            tail: Arc::clone(tail),
            commit: Arc::clone(commit),
            counters: Arc::clone(counters),
            syncer: Arc::clone(syncer),
        }
    }

    /// Returns true if [`DeferredWriter::write_out`] has work. Cheap enough to call after every
    /// append.
    pub fn wants_write_out(&self) -> bool {
        let tail = lock(&self.tail);
        if self.options.keeps_pages() {
            return self.is_due(&tail);
        }
        self.has_a_write(&tail) || self.release_waits(&tail)
    }

    /// Returns true if enough full pages are in the tail buffer to justify a write.
    fn has_a_write(&self, tail: &Tail) -> bool {
        let page = PAGE as u64;
        let half = (tail.slots.count() / 2).max(1) * page;
        let threshold = (self.options.write_len_min as u64 / page * page).clamp(page, half);
        let full = tail.pages.next_lpn().saturating_sub(self.commit.frontier.written_end());
        full * self.options.lane.unit() as u64 >= threshold
    }

    /// Writes full pages from the tail buffer to the group files, if there are enough for a large
    /// write. Returns true if there was work. For a background thread; without one, appends do it
    /// when the buffer is full.
    ///
    /// Without syncs, this makes the log durable once for each group, when the group's first pages
    /// have been written: older groups can be released only then.
    ///
    /// # Errors
    /// Those of the file system; they poison the log.
    pub fn write_out(&self) -> Result<bool> {
        if !self.wants_write_out() {
            self.commit.check()?;
            return Ok(false);
        }
        let outcome = if self.options.keeps_pages() { self.write_due() } else { self.write_full() };
        match outcome {
            // There may be space later, or never. An asynchronous waiter gets the error, as a
            // blocked one does.
            Err(e) if e.kind() == ErrorKind::NoSpace => {
                self.syncer.refuse_wanted(&e);
                Err(e)
            }
            outcome => outcome.map(|()| true),
        }
    }

    /// As [`DeferredWriter::write_out`], for a log that keeps no pages in its tail buffer.
    fn write_full(&self) -> Result<()> {
        let token = self.commit.acquire()?;
        let (end, waits) = {
            let tail = lock(&self.tail);
            (tail.pages.next_lpn(), tail.groups.release_waits(self.commit.frontier.durable_end()))
        };
        if waits {
            token.covers(end);
        }
        if let Err(e) = self.syncer.write_pages(&token, end) {
            return token.finish_write(Err(e));
        }
        let outcome = if waits { self.syncer.make_durable_unasked(&token, end) } else { Ok(()) };
        token.finish(outcome)
    }

    /// Returns a possible new beginning of the log behind pages that were not written yet, which
    /// then never are; `None` if nothing is gained. The caller makes it durable in the manifest, in
    /// one edit with the removal of the released groups, and then calls
    /// [`DeferredWriter::skip_to`]. One caller at a time.
    pub fn overtaken(&self, floors: &[(TenantId, SeqNo)]) -> Option<UnrecordedBegin> {
        if !self.options.keeps_pages() {
            return None;
        }
        let tail = lock(&self.tail);
        let lpn = tail.notes.needed_from(tail.pages.next_lpn(), floors)?;
        let ((ltn, first_lpn), released) = tail.groups.before(lpn, floors)?;
        let written_end = self.commit.frontier.written_end();
        let gains = lpn > written_end || lpn == written_end && !released.is_empty();
        let used = tail.prev_used_of(lpn).filter(|_| gains)?;
        Some(UnrecordedBegin { ltn, begin: LogBegin { first_lpn, lpn, used }, released })
    }

    /// Skips the pages before a new beginning that the manifest durably records. Files of released
    /// groups may be reused only after this call: a thread may be writing to them until then.
    ///
    /// # Errors
    /// `Poisoned` after an earlier failure.
    pub fn skip_to(&self, overtaken: &UnrecordedBegin) -> Result<()> {
        let token = self.commit.acquire()?;
        {
            // Under the lock, so that the next page in a freed slot has the new durable end in its
            // header.
            let mut tail = lock(&self.tail);
            let lpn = overtaken.begin.lpn;
            // First, since `groups` and the frontier together tell which pages are in files.
            tail.groups.begin_at(overtaken.ltn, lpn);
            let frontier = &self.commit.frontier;
            let written_end = frontier.written_end();
            if written_end < lpn {
                add(&self.counters.skipped_bytes, (lpn - written_end) * PAGE as u64);
                token.written(lpn);
            }
            if frontier.durable_end() < lpn {
                token.durable(lpn);
            }
            tail.notes.forget_below(lpn);
        }
        token.finish(Ok(()))
    }

    /// Returns the pages that must be written by now in a log that keeps pages.
    fn due(&self, tail: &Tail) -> Due {
        let (now_ns, age_ns) = (self.clock.now_ns(), self.options.buffered_age_ns);
        let aged_end = |age_ns: u64| tail.notes.aged_end(now_ns.saturating_sub(age_ns));
        let is_old = aged_end(age_ns) > self.commit.frontier.durable_end();
        // Includes pages that will be old soon, so there are at most two syncs per age, however
        // fast pages come.
        let durable_end = if is_old { aged_end(age_ns / 2) } else { 0 };
        let kept = tail.pages.next_lpn().saturating_sub(self.commit.frontier.written_end());
        let (kept_max, stays) = self.kept_max(tail);
        let full_end = match () {
            () if self.counters.are_asked_for(now_ns) && self.has_a_write(tail) => tail.pages.next_lpn(),
            () if kept >= kept_max => tail.pages.next_lpn() - stays,
            () => 0,
        };
        Due { written_end: full_end, durable_end }
    }

    /// Returns the most pages to keep, and how many stay when that limit causes a write.
    fn kept_max(&self, tail: &Tail) -> (u64, u64) {
        let slots = tail.slots.count();
        // A quarter of the tail buffer is for appends during the write.
        let of_ring = (slots - slots / 4, slots / 2);
        let waits_max = self.waiting_bytes_max() / PAGE as u64;
        if waits_max >= of_ring.0 {
            return of_ring;
        }
        let worth_a_write = (self.options.write_len_min / PAGE) as u64;
        let waits_max = waits_max.max(worth_a_write).clamp(1, of_ring.0);
        (waits_max, waits_max / 2)
    }

    /// Returns the bytes of pages that may be kept if the tail buffer has room: no limit until
    /// durable batches come.
    fn waiting_bytes_max(&self) -> u64 {
        let is_bound = self.options.expects_durable || self.counters.has_durable();
        match is_bound {
            true => self.counters.rate.bytes_within(self.options.durable_wait_ns_max),
            false => u64::MAX,
        }
    }

    /// Returns the useful length of the tail buffer, where any length above the minimum serves only
    /// kept pages.
    pub fn useful_ring_bytes(&self) -> u64 {
        let has_buffered = self.counters.has_buffered().unwrap_or(!self.options.expects_durable);
        if !self.options.keeps_pages() || !has_buffered || self.counters.are_asked_for(self.clock.now_ns()) {
            return 0;
        }
        // Twice, for the appends while half of it is written.
        self.waiting_bytes_max().saturating_mul(2)
    }

    fn is_due(&self, tail: &Tail) -> bool {
        let (due, frontier) = (self.due(tail), &self.commit.frontier);
        due.durable_end > 0 || due.written_end > frontier.written_end() || self.release_waits(tail)
    }

    /// Returns true if older groups wait for a durable page of the active one, and that page is
    /// written.
    fn release_waits(&self, tail: &Tail) -> bool {
        let frontier = &self.commit.frontier;
        tail.groups.release_waits(frontier.durable_end())
            && frontier.written_end() > tail.groups.active.first_lpn
    }

    /// As [`DeferredWriter::write_out`], for a log that keeps pages: makes old pages durable, and
    /// writes pages that exceed the limit.
    fn write_due(&self) -> Result<()> {
        let token = self.commit.acquire()?;
        let (due, syncs) = {
            let mut tail = lock(&self.tail);
            tail.notes.forget_below(self.commit.frontier.durable_end());
            let (due, waits) = (self.due(&tail), self.release_waits(&tail));
            if due.durable_end > tail.pages.next_lpn() {
                // The open page has an old record.
                tail.close_page();
            }
            (due, waits || due.durable_end > 0)
        };
        if !syncs {
            let outcome = self.syncer.write_pages(&token, due.written_end);
            return token.finish_write(outcome);
        }
        // A sync makes all written pages durable.
        let end = due.durable_end.max(due.written_end).max(self.commit.frontier.written_end());
        token.covers(end);
        if let Err(e) = self.syncer.write_pages(&token, end) {
            return token.finish_write(Err(e));
        }
        let outcome = self.syncer.make_durable_unasked(&token, end);
        token.finish(outcome)
    }
}

#[cfg(test)]
mod tests;
