//! What a flush overtakes is never written.
//!
//! With an age ([`crate::wal::WalOptions::buffered_age_ns`]) pages stay in the ring, and in the staging file, until one of their records is
//! that old, the ring is nearly full, or somebody waits for a record at or behind them. Meanwhile the memtables that
//! hold their records may have been flushed. Then the log *begins* behind them: an edit of the manifest says so, and they are
//! let go of like pages that were written ([`Deferred::skip_to`]). `docs/decisions/0098-what-a-flush-overtakes.md` has the argument.
//!
//! Where somebody waits for durable writes now and then he would wait for all that is kept, up to the ring. So for [`ASKED_NS`](super::syncer::ASKED_NS) after such a write pages
//! are written when they are worth it, as without an age.
//!
//! After that the log still knows that durable batches come ([`crate::wal::WalOptions::expects_durable`], or one came since the start; that somebody syncs what was buffered
//! says nothing of the kind). From then on no more pages wait than the device takes in [`crate::wal::WalOptions::durable_wait_ns_max`], as fast as it took the log's long
//! writes so far: a durable batch that comes at any time waits for no more than that, and for what is appended while a part of it is written. In a log in which there never was one all of the ring waits.
//!
//! For that the log notes which pages each batch is in, and when it came (`notes`).
//!
//! Invariants: the log begins at the first page of the oldest batch that anybody may need, or before it. Only what is in the ring is
//! skipped, and only while nothing before that is needed. The edit is durable before any page before the new beginning
//! loses its slot, and whoever takes the slot says so in its header (`durable_end`): a manifest that loses this edit is found out.
//! The frontiers move by whoever holds the token, so nobody is writing pages that are skipped.

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

/// A new beginning of the log, before the manifest knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overtaken {
    /// The group in which the log will begin.
    pub ltn: u64,
    /// Where.
    pub begin: LogBegin,
    /// The groups before it, oldest first: nobody needs them any more.
    pub released: Vec<u64>,
}

/// What is to be done by now with the pages that are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// Up to there they are to be written, since the ring is nearly full, or somebody is expected to wait for them.
    written_end: u64,
    /// Up to there they are to be durable, since some are old.
    durable_end: u64,
}

/// The pages of a log that nobody waits for: when they are written, or that they never are.
#[derive(Debug)]
pub struct Deferred {
    options: WalOptions,
    clock: Arc<dyn Clock>,
    /// The tail of the log: open pages, the ring of closed ones, the groups they go to.
    tail: Arc<Mutex<Tail, rank::LogTail>>,
    commit: Arc<Commit>,
    counters: Arc<Counters>,
    syncer: Arc<Syncer>,
}

impl Deferred {
    pub(super) fn new(
        options: &WalOptions,
        env: &Env,
        tail: &Arc<Mutex<Tail, rank::LogTail>>,
        commit: &Arc<Commit>,
        counters: &Arc<Counters>,
        syncer: &Arc<Syncer>,
    ) -> Self {
        Deferred {
            options: options.clone(),
            clock: env.clock.clone(),
            tail: Arc::clone(tail),
            commit: Arc::clone(commit),
            counters: Arc::clone(counters),
            syncer: Arc::clone(syncer),
        }
    }

    /// True if [`Deferred::write_out`] has something to do. Cheap enough to ask after every append.
    pub fn wants_write_out(&self) -> bool {
        let tail = lock(&self.tail);
        if self.options.keeps_pages() {
            return self.is_due(&tail);
        }
        self.has_a_write(&tail) || self.release_waits(&tail)
    }

    /// True if so many full pages are in the ring that they are worth a write.
    fn has_a_write(&self, tail: &Tail) -> bool {
        let page = PAGE as u64;
        let half = (tail.slots.count() / 2).max(1) * page;
        let threshold = (self.options.write_len_min as u64 / page * page).clamp(page, half);
        let full = tail.pages.next_lpn().saturating_sub(self.commit.frontier.written_end());
        full * self.options.lane.unit() as u64 >= threshold
    }

    /// Moves full pages from the ring to the group files, if enough have come together for a large write. True if
    /// there was work. For a background thread; without one, appends do it when the ring is full.
    ///
    /// Where nobody syncs, this makes the log durable once for each group, when the group's first pages have been
    /// written: older groups can be released only then.
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
            // There may be room later, or never. A waiter without a thread gets the error, as one with a thread does.
            Err(e) if e.kind() == ErrorKind::NoSpace => {
                self.syncer.refuse_wanted(&e);
                Err(e)
            }
            outcome => outcome.map(|()| true),
        }
    }

    /// As [`Deferred::write_out`], of a log that keeps no pages back.
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

    /// Where the log could begin, and pages with it that were not written yet would never be; `None`: it is no gain. The caller makes
    /// it durable in the manifest, in one edit with the removal of the groups that are released, and then calls [`Deferred::skip_to`]. One
    /// caller at a time.
    pub fn overtaken(&self, floors: &[(TenantId, SeqNo)]) -> Option<Overtaken> {
        if !self.options.keeps_pages() {
            return None;
        }
        let tail = lock(&self.tail);
        let lpn = tail.notes.needed_from(tail.pages.next_lpn(), floors)?;
        let ((ltn, first_lpn), released) = tail.groups.before(lpn, floors)?;
        let written_end = self.commit.frontier.written_end();
        let gains = lpn > written_end || lpn == written_end && !released.is_empty();
        let used = tail.prev_used_of(lpn).filter(|_| gains)?;
        Some(Overtaken { ltn, begin: LogBegin { first_lpn, lpn, used }, released })
    }

    /// The manifest says, durably, that the log begins there: pages before that are not written any more. Files of groups that were released may be used
    /// again afterwards, and not before: somebody may be writing to them.
    ///
    /// # Errors
    /// `Poisoned` after an earlier failure.
    pub fn skip_to(&self, overtaken: &Overtaken) -> Result<()> {
        let token = self.commit.acquire()?;
        {
            // Under the lock, so that whoever opens a page in a slot that this frees knows why it is free.
            let mut tail = lock(&self.tail);
            let lpn = overtaken.begin.lpn;
            // First: what is in files is told by both.
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

    /// What is to be done by now in a log that keeps pages.
    fn due(&self, tail: &Tail) -> Due {
        let (now_ns, age_ns) = (self.clock.now_ns(), self.options.buffered_age_ns);
        let aged_end = |age_ns: u64| tail.notes.aged_end(now_ns.saturating_sub(age_ns));
        let is_old = aged_end(age_ns) > self.commit.frontier.durable_end();
        // With those that will be old soon: there are two syncs in that time at most, however fast pages come.
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

    /// So many pages wait at most, and so many of them when some have been written because of that.
    fn kept_max(&self, tail: &Tail) -> (u64, u64) {
        let slots = tail.slots.count();
        // A quarter of the ring is for those who append meanwhile.
        let of_ring = (slots - slots / 4, slots / 2);
        let waits_max = self.waiting_bytes_max() / PAGE as u64;
        if waits_max >= of_ring.0 {
            return of_ring;
        }
        let worth_a_write = (self.options.write_len_min / PAGE) as u64;
        let waits_max = waits_max.max(worth_a_write).clamp(1, of_ring.0);
        (waits_max, waits_max / 2)
    }

    /// Bytes of the pages that may wait as long as the ring has room: all, until durable batches come.
    fn waiting_bytes_max(&self) -> u64 {
        let is_bound = self.options.expects_durable || self.counters.has_durable();
        match is_bound {
            true => self.counters.rate.bytes_within(self.options.durable_wait_ns_max),
            false => u64::MAX,
        }
    }

    /// Bytes of a ring that is of use, where more than a short one is only for pages that wait.
    pub fn useful_ring_bytes(&self) -> u64 {
        let has_buffered = self.counters.has_buffered().unwrap_or(!self.options.expects_durable);
        if !self.options.keeps_pages() || !has_buffered || self.counters.are_asked_for(self.clock.now_ns()) {
            return 0;
        }
        // With what comes while the half of it is written.
        self.waiting_bytes_max().saturating_mul(2)
    }

    fn is_due(&self, tail: &Tail) -> bool {
        let (due, frontier) = (self.due(tail), &self.commit.frontier);
        due.durable_end > 0 || due.written_end > frontier.written_end() || self.release_waits(tail)
    }

    /// Older groups wait for a page of the active one to be durable, which is written.
    fn release_waits(&self, tail: &Tail) -> bool {
        let frontier = &self.commit.frontier;
        tail.groups.release_waits(frontier.durable_end())
            && frontier.written_end() > tail.groups.active.first_lpn
    }

    /// As [`Deferred::write_out`], of a log that keeps pages: what is old becomes durable, and what is too much for the ring is written.
    fn write_due(&self) -> Result<()> {
        let token = self.commit.acquire()?;
        let (due, syncs) = {
            let mut tail = lock(&self.tail);
            tail.notes.forget_below(self.commit.frontier.durable_end());
            let (due, waits) = (self.due(&tail), self.release_waits(&tail));
            if due.durable_end > tail.pages.next_lpn() {
                // The open page has a record that is old.
                tail.close_page();
            }
            (due, waits || due.durable_end > 0)
        };
        if !syncs {
            let outcome = self.syncer.write_pages(&token, due.written_end);
            return token.finish_write(outcome);
        }
        // A sync makes durable all that was written.
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
