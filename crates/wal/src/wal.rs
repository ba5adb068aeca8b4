//! The log while it is open: appending, syncing, writing out, rolling.
//!
//! Locks, in acquisition order: `order` (one appender at a time, for a whole batch), the token of
//! `commit` (one writer at a time, across I/O), `tail` (short, never across I/O). A leader needs
//! the token and, for a moment, the tail, so appends continue while pages are being written. An
//! append that finds the tail buffer full releases the tail, takes the token and writes the buffer
//! out itself.
//!
//! [`Wal`] appends; its [`Syncer`] makes pages durable for waiters; [`DeferredWriter`] decides when
//! the other pages are written; [`Content`] describes the groups and pages of the log. They share
//! the tail and the commit.

use crate::commit::{Commit, Frontier, Loggers};
use crate::counters::{Counters, Times, WalStats, add};
use crate::domain::Domain;
use crate::durability::Durability;
use crate::groups::PreparedGroup;
use crate::history::History;
use crate::lane::Lane;
use crate::page::{self, BatchHeader};
use crate::place::LogAddress;
use crate::staging::STAGING_LEN_MAX;
use crate::tail::{Batch, Put, Surroundings, Tail};
use crate::tenant::TenantId;
use base::limits::BATCH_LEN_MAX;
use base::sync::atomic::{AtomicBool, Ordering};
use base::sync::{Mutex, MutexGuard, lock, rank};
use base::{Error, ErrorKind, Result, SeqNo, Uid};
pub use content::Content;
use io::{Clock, Env, PAGE};
use std::path::{Path, PathBuf};
use std::sync::Arc;
pub use superseded_by_flush::{DeferredWriter, UnrecordedBegin};
pub use syncer::Syncer;

/// Options of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalOptions {
    /// The lane of the store.
    pub lane: Lane,
    /// Length of a group file as the caller prepares it, bytes.
    pub group_len: u64,
    /// Length of the tail buffer of unwritten pages, bytes.
    pub tail_buffer_len: usize,
    /// Full pages in the tail buffer that justify a background write, bytes.
    pub write_len_min: usize,
    /// Largest write to the device, bytes.
    pub write_len_max: usize,
    /// Spare groups to keep prepared.
    pub spares: usize,
    /// Concurrent durable writes.
    pub loggers: Loggers,
    /// Maximum age of a buffered record, nanoseconds: its page stays in the tail buffer until then,
    /// see the module `superseded_by_flush`. 0: pages are written once they justify a write. First
    /// lane only.
    pub buffered_age_ns: u64,
    /// Limit of the tail buffer once there are durable batches: the pages that the device writes in
    /// this time, nanoseconds, since a durable batch must wait for them.
    pub durable_wait_ns_max: u64,
    /// Whether durable batches are expected.
    pub expects_durable: bool,
}

impl Default for WalOptions {
    fn default() -> Self {
        WalOptions {
            lane: Lane::FIRST,
            group_len: 64 << 20,
            tail_buffer_len: 4 << 20,
            write_len_min: 256 << 10,
            write_len_max: 1 << 20,
            spares: 1,
            loggers: Loggers::default(),
            buffered_age_ns: 0,
            durable_wait_ns_max: 10_000_000,
            expects_durable: false,
        }
    }
}

impl WalOptions {
    /// Returns true if pages stay in the tail buffer as long as allowed.
    fn keeps_pages(&self) -> bool {
        // Where groups are storage, their pages must reach the files.
        self.buffered_age_ns > 0 && !self.lane.retains()
    }
}

/// End of a batch in the log: the number of the page of its last byte, in units of [`Lane::unit`].
/// Later batches have equal or greater positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Number of the page.
    pub lpn: u64,
}

/// State of appends and of changes of the tail buffer.
#[derive(Debug, Default)]
struct Order {
    /// Directory of a staging file whose name is not durable yet.
    unnamed: Option<(Env, PathBuf)>,
}

/// The write-ahead log of a store.
#[derive(Debug)]
pub struct Wal {
    options: WalOptions,
    clock: Arc<dyn Clock>,
    /// Held from the first page of a batch to its last, and while the tail buffer is replaced, so
    /// that batches are contiguous.
    order: Mutex<Order, rank::LogOrder>,
    /// Open pages, the buffer of closed ones, and their groups. Held while a buffered batch goes to
    /// `STAGING`, never across a write to a group.
    tail: Arc<Mutex<Tail, rank::LogTail>>,
    commit: Arc<Commit>,
    syncer: Arc<Syncer>,
    deferred: DeferredWriter,
    content: Content,
    /// Pages stay in the tail buffer as long as allowed.
    keeps_pages: bool,
    /// Changed under `order`.
    closed: AtomicBool,
    counters: Arc<Counters>,
    times: Arc<Times>,
}

/// Poisons the log if the thread panics while it changes the tail, which may then hold half a
/// batch.
struct PanicGuard<'a>(&'a Commit);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(Error::new(ErrorKind::Poisoned, "a thread panicked while it appended to the log"));
        }
    }
}

impl Wal {
    /// Starts the log of `store` with an empty group, in which the first page gets the number
    /// `next_lpn`.
    ///
    /// The manifest must list the group already. The groups that recovery reported as sealed or
    /// discarded must be durably so: starting erases the staging file. `next_lpn` is above every
    /// number seen before ([`crate::recover::RecoveryReport::next_lpn`]); `history` describes the
    /// groups that the log continues.
    ///
    /// # Errors
    /// Those of the file system; `InvalidArgument` for a group or tail buffer that is too small, or
    /// out of order.
    pub fn start(
        env: &Env,
        dir: &Path,
        options: WalOptions,
        store: Uid,
        next_lpn: u64,
        first: PreparedGroup,
        history: History,
    ) -> Result<Wal> {
        let tail_buffer_len = options.tail_buffer_len;
        if !(2 * PAGE..=STAGING_LEN_MAX).contains(&tail_buffer_len) || options.write_len_max < PAGE {
            return Err(Error::invalid(format!(
                "the tail buffer of the log takes {} to {STAGING_LEN_MAX} bytes and its writes \
                 at least {PAGE}, not {} and {} bytes",
                2 * PAGE,
                tail_buffer_len,
                options.write_len_max
            )));
        }
        if next_lpn >= page::LPN_LIMIT {
            return Err(Error::invalid(format!(
                "log page number {next_lpn} is not below {}, the limit of the format",
                page::LPN_LIMIT
            )));
        }
        let file = env
            .fs
            .create_scratch(&io::fs::join(dir, options.lane.staging_name()), tail_buffer_len / PAGE * PAGE)?;
        let tail = Tail::new(options.lane, first, store, next_lpn, &history, file)?;
        // Only pages of listed groups may be confirmed.
        let durable_end = if history.groups.is_empty() { 0 } else { tail.data_end() };
        let commit = Arc::new(Commit::new(durable_end, next_lpn).with_flights(options.loggers));
        let (tail, counters) = (Arc::new(Mutex::new(tail)), Arc::<Counters>::default());
        let times = Arc::new(Times::new(env));
        let syncer = Arc::new(Syncer::new(&options, store, env, &tail, &commit, &counters, &times));
        Ok(Wal {
            content: Content::new(&options, next_lpn, &tail, &commit),
            deferred: DeferredWriter::new(&options, env, &tail, &commit, &counters, &syncer),
            syncer,
            keeps_pages: options.keeps_pages(),
            options,
            clock: env.clock.clone(),
            order: Mutex::default(),
            commit,
            tail,
            closed: AtomicBool::new(false),
            counters,
            times,
        })
    }

    /// Assigns the log to a domain; from then on they fail together. To be called before the first
    /// batch.
    pub fn join(&self, domain: Arc<dyn Domain>) {
        self.commit.join(domain);
    }

    /// Returns the part that makes the log durable.
    pub fn syncer(&self) -> &Syncer {
        &self.syncer
    }

    /// Returns the groups and pages of the log.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Returns the part that writes pages without a waiter.
    pub fn deferred(&self) -> &DeferredWriter {
        &self.deferred
    }

    /// Returns true if pages stay in the tail buffer as long as allowed.
    pub fn keeps_pages(&self) -> bool {
        self.keeps_pages
    }

    /// Appends one batch, given in pieces, which recovery returns whole or not at all. When this
    /// returns, a buffered batch survives a crash of the process; a durable batch survives nothing
    /// until [`Syncer::sync`] returns, which makes both survive power loss.
    ///
    /// A tenant serializes its calls, so that its sequences ascend with positions. `witness_edit`
    /// is the number of the last durable edit of the manifest. Pages carry this number, so that a
    /// manifest that lost its end is detected.
    ///
    /// # Errors
    /// `Busy` when there is no spare group for the batch: add one of at least
    /// [`crate::group_len_needed`] bytes and try again. `NoSpace` when a copy-on-write file system
    /// has no space. In both cases nothing was appended. `TooLarge` above [`BATCH_LEN_MAX`],
    /// `InvalidArgument` when empty, `Poisoned` and `Closed`. All other errors poison the log.
    pub fn append(
        &self,
        tenant: TenantId,
        payload: &[&[u8]],
        first_seq: SeqNo,
        last_seq: SeqNo,
        durability: Durability,
        witness_edit: u64,
    ) -> Result<Position> {
        let placed = self.append_placed(tenant, payload, (first_seq, last_seq), durability, witness_edit);
        placed.map(|(position, _)| position)
    }

    /// As [`Wal::append`]; also returns the place of the first byte of the batch. The places of the
    /// other bytes follow from it ([`LogAddress::at`]).
    ///
    /// # Errors
    /// As there.
    pub fn append_placed(
        &self,
        tenant: TenantId,
        payload: &[&[u8]],
        (first_seq, last_seq): (SeqNo, SeqNo),
        durability: Durability,
        witness_edit: u64,
    ) -> Result<(Position, LogAddress)> {
        assert!(durability.is_logged(), "volatile batches are not logged");
        let len = payload.iter().fold(0usize, |sum, piece| sum.saturating_add(piece.len()));
        if len == 0 {
            return Err(Error::invalid("an empty batch cannot be logged"));
        }
        if len > BATCH_LEN_MAX {
            let why = format!("a batch of {len} bytes exceeds the limit of {BATCH_LEN_MAX} bytes: split it");
            return Err(Error::new(ErrorKind::TooLarge, why));
        }
        let span = last_seq.checked_sub(first_seq).and_then(|span| u32::try_from(span).ok());
        let Some(seq_span) = span else {
            let why = format!(
                "a batch cannot take the sequence numbers {first_seq} to {last_seq}: they descend, or are over 2^32"
            );
            return Err(Error::invalid(why));
        };
        let header = BatchHeader { tenant, first_seq, seq_span, len: len as u32 };
        let begun = self.times.append.begin();
        let appended = self.append_in_order(payload, header, durability, witness_edit);
        self.times.append.end(begun);
        appended
    }

    fn append_in_order(
        &self,
        payload: &[&[u8]],
        header: BatchHeader,
        durability: Durability,
        witness_edit: u64,
    ) -> Result<(Position, LogAddress)> {
        let mut order = lock(&self.order);
        self.check()?;
        if durability.is_staged() && order.unnamed.is_some() {
            self.sync_ring_name(&mut order)?;
        }
        let _guard = PanicGuard(&self.commit);
        let mut tail = lock(&self.tail);
        let put = if tail.fits_open_page(&header) {
            let (mark, place) = (tail.mark(), tail.next_place());
            Put { mark, place, last_lpn: tail.put_in_open_page(payload, header), is_unbroken: true }
        } else {
            let put;
            (tail, put) = self.put_over_pages(tail, Batch::new(payload, header), witness_edit)?;
            put
        };
        let Tail { slots, pages, .. } = &mut *tail;
        if durability.is_staged()
            && let Err(e) = slots.stage(pages, self.commit.frontier.written_end())
        {
            // After `NoSpace` the batch is taken back, if none of its pages can be in a group file.
            if !put.is_unbroken || e.kind() != ErrorKind::NoSpace {
                return Err(self.fail(e));
            }
            tail.take_back(put.mark);
            return Err(e);
        }
        tail.record(header);
        if self.keeps_pages {
            tail.notes.add(header, (put.mark.next_lpn, put.last_lpn), || self.clock.now_ns());
            self.counters.comes(durability, header.len);
        }
        Ok((Position { lpn: put.last_lpn }, put.place))
    }

    /// Puts a batch that does not fit the open page into several pages.
    fn put_over_pages<'a>(
        &'a self,
        tail: MutexGuard<'a, Tail>,
        mut batch: Batch<'_>,
        witness_edit: u64,
    ) -> Result<(MutexGuard<'a, Tail>, Put)> {
        let (mut tail, is_unbroken) = self.make_room(tail, batch.header())?;
        let (mark, place) = (tail.mark(), tail.next_place());
        if !is_unbroken && self.keeps_pages {
            tail.notes.begin(mark.next_lpn);
        }
        let mut last_lpn = tail.pages.next_lpn();
        while batch.left() > 0 {
            if tail.pages.used() == 0 {
                tail = self.wait_for_slots(tail, 1).map_err(|e| self.fail(e))?;
                tail.pages.forget_below(self.commit.frontier.written_end());
                let around = Surroundings { durable_end: self.commit.frontier.durable_end(), witness_edit };
                tail.open_page(around);
            }
            last_lpn = tail.write_fragment(&mut batch);
        }
        Ok((tail, Put { mark, place, last_lpn, is_unbroken }))
    }

    /// Prepares the tail for a batch that does not fit the open page. Also returns whether the tail
    /// buffer has a slot for every page of the batch. If so, the append does not release the lock,
    /// and the batch can be taken back.
    fn make_room<'a>(
        &'a self,
        mut tail: MutexGuard<'a, Tail>,
        header: &BatchHeader,
    ) -> Result<(MutexGuard<'a, Tail>, bool)> {
        let len = header.len as usize;
        tail.pages.forget_below(self.commit.frontier.written_end());
        tail.notes.forget_below(self.commit.frontier.durable_end());
        match tail.slots.erase_refused() {
            Err(e) if e.kind() == ErrorKind::NoSpace => return Err(e),
            erased => erased.map_err(|e| self.fail(e))?,
        }
        if header.tenant != TenantId::FIRST {
            tail.share();
        }
        let pages = tail.pages_for(len);
        let whole = pages <= tail.slots.count();
        if whole {
            tail = self.wait_for_slots(tail, pages)?;
        }
        if tail.reserve(len) { Ok((tail, whole)) } else { Err(busy(len)) }
    }

    /// Poisons the log: its content after a failed append is unknown.
    fn fail(&self, failure: Error) -> Error {
        self.commit.fail(failure.clone());
        match failure.kind() {
            ErrorKind::NoSpace => failure.with_kind(ErrorKind::Io),
            _ => failure,
        }
    }

    /// Fails if the log takes no more batches.
    ///
    /// # Errors
    /// `Closed`; the first failure of a write or sync, as `Poisoned`.
    pub fn check(&self) -> Result<()> {
        if self.closed.load(Ordering::Relaxed) { Err(closed()) } else { self.commit.check() }
    }

    /// Waits until `pages` pages, the open one first, have a slot: for the writer thread, or by
    /// writing pages of the tail buffer itself.
    fn wait_for_slots<'a>(
        &'a self,
        mut tail: MutexGuard<'a, Tail>,
        pages: u64,
    ) -> Result<MutexGuard<'a, Tail>> {
        if tail.has_slots(pages, self.commit.frontier.written_end()) {
            return Ok(tail);
        }
        let begun = self.times.ring_full.begin();
        while !tail.has_slots(pages, self.commit.frontier.written_end()) {
            let (next_lpn, needed) = (tail.pages.next_lpn(), tail.must_be_written(pages));
            drop(tail);
            let has_slots = |frontier: &Frontier| needed <= frontier.written_end();
            if let Some(token) = self.commit.acquire_unless(has_slots)? {
                add(&self.counters.inline_write_outs, 1);
                let written_end = self.commit.frontier.written_end();
                let run_max = self.options.write_len_max;
                let end = lock(&self.tail).pages.end_of_run(written_end, next_lpn, run_max);
                let outcome = self.syncer.write_pages(&token, end);
                token.finish_write(outcome)?;
            }
            tail = lock(&self.tail);
        }
        self.times.ring_full.end(begun);
        Ok(tail)
    }

    /// Returns true if an append of `len` bytes needs no wait: a group and slots in the tail buffer
    /// are free, unless other appends take them first.
    pub fn takes_at_once(&self, len: usize) -> bool {
        let mut tail = lock(&self.tail);
        let written_end = self.commit.frontier.written_end();
        tail.pages.forget_below(written_end);
        let pages = tail.pages_for(len);
        tail.has_room(len) && pages <= tail.slots.count() && tail.has_slots(pages, written_end)
    }

    /// Closes the active group, however much room it has, so that the next batch goes to another.
    /// Returns false if the group has no batches. The group may be released once a page of the next
    /// one is durable, which [`Wal::persist_watermark`] ensures.
    ///
    /// # Errors
    /// `Busy` if there is no spare group: add one and try again. `Poisoned`, `Closed`.
    pub fn roll(&self) -> Result<bool> {
        let _order = lock(&self.order);
        self.check()?;
        let _guard = PanicGuard(&self.commit);
        let mut tail = lock(&self.tail);
        if tail.groups.active.seqs.is_empty() {
            return Ok(false);
        }
        if tail.roll(1) { Ok(true) } else { Err(busy(1)) }
    }

    /// Makes everything appended so far durable, and then writes a page that confirms it. From then
    /// on a damaged page anywhere in the log is distinguished from a torn one. Returns true if
    /// there was something to confirm.
    ///
    /// To be called on idleness (pointless while batches keep coming); [`Wal::close`] does it too.
    ///
    /// # Errors
    /// Those of the file system; they poison the log.
    pub fn persist_watermark(&self) -> Result<bool> {
        let _order = lock(&self.order);
        self.check()?;
        self.persist_watermark_in_order()
    }

    fn persist_watermark_in_order(&self) -> Result<bool> {
        let _guard = PanicGuard(&self.commit);
        let token = self.commit.acquire()?;
        let end = self.syncer.take_all(&token);
        let outcome =
            self.syncer.make_durable(&token, end).and_then(|()| self.syncer.write_watermark(&token));
        token.finish(outcome)
    }

    /// Makes the tail buffer longer, for a log that is written faster than at its start. Everything
    /// appended so far is made durable before, so that no page in the old file is needed.
    ///
    /// # Errors
    /// `Poisoned`, and those of the file system. After `NoSpace`, or without a descriptor, the tail
    /// buffer keeps its length, or the name of its file is not durable yet: buffered batches are
    /// refused until it is. Failures of syncs for other reasons poison the log.
    pub fn lengthen_staging(&self, env: &Env, dir: &Path, len: usize) -> Result<()> {
        // No page is begun before the replacement is complete.
        let mut order = lock(&self.order);
        self.check()?;
        self.sync_ring_name(&mut order)?;
        let old_len = self.content.tail_buffer_len();
        if old_len >= len.min(STAGING_LEN_MAX) / PAGE * PAGE {
            return Ok(());
        }
        let token = self.commit.acquire()?;
        let end = self.syncer.take_all(&token);
        let outcome = self.syncer.make_durable(&token, end);
        token.finish(outcome)?;
        // The old file stays until the longer one is complete, since there may be no space to make
        // it again.
        let path = io::fs::join(dir, self.options.lane.staging_name());
        let beside = io::fs::join(dir, &self.options.lane.staging_temp_name());
        let longer = env.fs.create_scratch(&beside, len.min(STAGING_LEN_MAX) / PAGE * PAGE);
        let renamed = longer.and_then(|file| env.fs.rename(&beside, &path).map(|()| file));
        let file = renamed.inspect_err(|_| drop(env.fs.remove(&beside)))?;
        let mut tail = lock(&self.tail);
        tail.pages.forget_below(self.commit.frontier.written_end());
        tail.move_to(file);
        drop(tail);
        order.unnamed = Some((env.clone(), dir.to_owned()));
        self.sync_ring_name(&mut order)
    }

    /// Makes the name of the staging file durable. No page goes to the file before its name
    /// survives the process: LavaFS keeps names in memory until a sync.
    fn sync_ring_name(&self, order: &mut Order) -> Result<()> {
        let Some((env, dir)) = &order.unnamed else { return Ok(()) };
        match env.fs.sync_dir(dir) {
            Ok(()) => order.unnamed = None,
            Err(e) if e.is_refusal() => return Err(e),
            Err(e) => return Err(self.fail(e)),
        }
        Ok(())
    }

    /// Makes everything durable, confirms it and ends the log: later appends fail with `Closed`. A
    /// second call does nothing.
    ///
    /// # Errors
    /// Those of the file system; `Poisoned` after an earlier failure.
    pub fn close(&self) -> Result<()> {
        let _order = lock(&self.order);
        if self.closed.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.persist_watermark_in_order().map(drop)
    }

    /// Returns the latencies of appends and syncs.
    pub fn times(&self) -> &Times {
        &self.times
    }

    /// Returns the total time of durable writes in nanoseconds; concurrent writes count each.
    pub fn durable_ns(&self) -> u64 {
        self.counters.durable_ns()
    }

    /// Returns the counters.
    pub fn stats(&self) -> WalStats {
        let (at_once, width) = self.commit.width();
        let tail = lock(&self.tail);
        WalStats {
            writes_at_once: at_once as u64,
            loggers_tried: width.trials,
            loggers_kept: width.kept,
            batches: tail.batches,
            payload_bytes: tail.payload_bytes,
            rolls: tail.rolls,
            next_lpn: tail.pages.next_lpn(),
            durable_end: self.commit.frontier.durable_end(),
            ..self.counters.read()
        }
    }
}

#[cold]
fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the log is closed: open the store again")
}

fn busy(len: usize) -> Error {
    let needed = page::group_len_needed(len);
    let why = format!("no spare log group takes a batch of {len} bytes: add one of at least {needed} bytes");
    Error::new(ErrorKind::Busy, why)
}

mod content;
#[cfg(test)]
mod schedules;
mod superseded_by_flush;
mod syncer;
#[cfg(test)]
mod tests;
