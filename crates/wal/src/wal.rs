//! The log while it is open: appending, syncing, writing out, rolling.
//!
//! Locks, in the order they are taken: `order` (one appender at a time, for a whole batch), the token of
//! `commit` (one writer at a time, across I/O), `tail` (short, never across I/O). A leader needs the token and,
//! for a moment, the tail, so appending goes on while pages are being written. An append that finds the ring full gives
//! up the tail, takes the token and writes the ring out itself.

use crate::check::{LogEnd, StagedEnd};
use crate::commit::Loggers;
use crate::commit::{Commit, Frontier, Token, Turn};
use crate::counters::{Counters, Times, WalStats, add};
use crate::domain::Domain;
use crate::durability::Durability;
use crate::groups::{PreparedGroup, Segment};
use crate::history::{History, PriorGroup};
use crate::lane::Lane;
use crate::page::{self, BatchHeader};
use crate::place::Place;
use crate::rate::Rate;
use crate::staging::STAGING_LEN_MAX;
use crate::tail::{Batch, Put, Surroundings, Tail};
use crate::tenant::TenantId;
use base::completion::Completer;
use base::limits::BATCH_LEN_MAX;
use base::sync::atomic::{AtomicBool, Ordering};
use base::sync::{Mutex, MutexGuard, lock, rank};
use base::{Error, ErrorKind, Result, SeqNo, Uid};
use io::{AlignedBuf, Clock, Env, PAGE};
pub use overtaken::Overtaken;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Sizes of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalOptions {
    /// Which log of the store.
    pub lane: Lane,
    /// Bytes of a group file, as the caller prepares them.
    pub group_len: u64,
    /// Bytes of the ring of pages that are not written yet.
    pub staging_len: usize,
    /// Full pages in the ring that make a background write worth its while, bytes.
    pub write_len_min: usize,
    /// The most that goes to the device in one write, bytes.
    pub write_len_max: usize,
    /// Spare groups to keep ready.
    pub spares: usize,
    /// Durable writes at the device at once.
    pub loggers: Loggers,
    /// Pages stay in the ring until one of their records is so old, nanoseconds: see the module `overtaken`. 0: they are written when they are
    /// worth a write. Of the first lane only.
    pub buffered_age_ns: u64,
    /// Once there are durable batches no more pages stay there than the device takes in this time, nanoseconds: who waits for one writes them.
    pub durable_wait_ns_max: u64,
    /// Durable batches will come.
    pub expects_durable: bool,
}

impl Default for WalOptions {
    fn default() -> Self {
        WalOptions {
            lane: Lane::FIRST,
            group_len: 64 << 20,
            staging_len: 4 << 20,
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

/// Where a batch ended up: the page of its last byte, by the number of that ([`Lane::unit`]). Later batches have equal or greater positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Number of the page.
    pub lpn: u64,
}

/// The turn of appenders and of changes of the ring.
#[derive(Debug, Default)]
struct Order {
    /// The directory of a ring whose name is not durable yet.
    unnamed: Option<(Env, PathBuf)>,
}

/// The write-ahead log of a store.
#[derive(Debug)]
pub struct Wal {
    options: WalOptions,
    /// The number of the first page since the start.
    start_lpn: u64,
    store: Uid,
    clock: Arc<dyn Clock>,
    /// Held from the first page of a batch to its last, and while the ring is exchanged: batches lie one behind another.
    order: Mutex<Order, rank::LogOrder>,
    /// Open pages, the ring of closed ones, the groups they go to. Held while a buffered batch goes to `STAGING`, never
    /// across a write to a group.
    tail: Mutex<Tail, rank::LogTail>,
    commit: Commit,
    /// Free buffers for writes to the device.
    bufs: Mutex<Vec<AlignedBuf>, rank::LogBuffer>,
    /// Changed under `order`.
    closed: AtomicBool,
    counters: Counters,
    /// How fast the device takes long writes.
    rate: Rate,
    times: Times,
}

/// Poisons the log if the thread panics while it changes the tail: half a batch may stand there.
struct PanicGuard<'a>(&'a Commit);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(Error::new(ErrorKind::Poisoned, "a thread panicked while it appended to the log"));
        }
    }
}

impl Wal {
    /// Starts the log of `store` with an empty group, in which the first page gets the number `next_lpn`.
    ///
    /// The manifest must list the group already, and whatever recovery reported to be sealed and discarded must be
    /// durable: starting erases the staging file. `next_lpn` is above every number seen before
    /// ([`crate::recover::RecoveryReport::next_lpn`]); `history` is what the log continues.
    ///
    /// # Errors
    /// Those of the file system; `InvalidArgument` for a group or ring that is too small, or out of order.
    pub fn start(
        env: &Env,
        dir: &Path,
        options: WalOptions,
        store: Uid,
        next_lpn: u64,
        first: PreparedGroup,
        history: History,
    ) -> Result<Wal> {
        let staging_len = options.staging_len;
        if !(2 * PAGE..=STAGING_LEN_MAX).contains(&staging_len) || options.write_len_max < PAGE {
            return Err(Error::invalid(format!(
                "the log's staging takes {} to {STAGING_LEN_MAX} bytes and its writes at least {PAGE}, not {} and {}",
                2 * PAGE,
                staging_len,
                options.write_len_max
            )));
        }
        if next_lpn >= page::LPN_LIMIT {
            return Err(Error::invalid(format!("page number {next_lpn} is over the format's limit")));
        }
        let file = env
            .fs
            .create_scratch(&io::fs::join(dir, options.lane.staging_name()), staging_len / PAGE * PAGE)?;
        let tail = Tail::new(options.lane, first, store, next_lpn, &history, file)?;
        // Only pages of listed groups may be confirmed.
        let durable_end = if history.groups.is_empty() { 0 } else { tail.data_end() };
        let commit = Commit::new(durable_end, next_lpn).with_flights(options.loggers);
        Ok(Wal {
            options,
            start_lpn: next_lpn,
            store,
            clock: env.clock.clone(),
            order: Mutex::default(),
            commit,
            tail: Mutex::new(tail),
            bufs: Mutex::new(Vec::new()),
            closed: AtomicBool::new(false),
            counters: Counters::default(),
            rate: Rate::default(),
            times: Times::new(env),
        })
    }

    /// The log fails with this domain from now on, and the domain with the log. To be called before the first batch.
    pub fn join(&self, domain: Arc<dyn Domain>) {
        self.commit.join(domain);
    }

    /// Appends one batch, given in pieces, which recovery hands back whole or not at all. A buffered one has then survived
    /// the process. [`Wal::sync`] makes it survive the power; a durable one has survived nothing before.
    ///
    /// A tenant serializes its calls, so that its sequences ascend with positions. `witness_edit` is the number of the
    /// manifest's last durable edit; pages carry it, so that a manifest that lost its end is found out.
    ///
    /// # Errors
    /// `Busy` when there is no spare group that the batch fits in: add one of at least [`crate::group_len_needed`]
    /// bytes and try again; `NoSpace` when the volume has no room where a copy-on-write file system needs it: in both cases
    /// nothing happened. `TooLarge` above [`BATCH_LEN_MAX`], `InvalidArgument` when empty, `Poisoned` and `Closed`. All
    /// others poison the log.
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

    /// As [`Wal::append`]; also says where the first byte of the batch is. All others follow from that ([`Place::at`]).
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
    ) -> Result<(Position, Place)> {
        assert!(durability.is_logged(), "volatile batches are not logged");
        let len = payload.iter().fold(0usize, |sum, piece| sum.saturating_add(piece.len()));
        if len == 0 {
            return Err(Error::invalid("an empty batch cannot be logged"));
        }
        if len > BATCH_LEN_MAX {
            let why = format!("a batch of {len} bytes is over the limit of {BATCH_LEN_MAX}: split it");
            return Err(Error::new(ErrorKind::TooLarge, why));
        }
        let span = last_seq.checked_sub(first_seq).and_then(|span| u32::try_from(span).ok());
        let Some(seq_span) = span else {
            let why = format!("a batch cannot take the sequences {first_seq} to {last_seq}");
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
    ) -> Result<(Position, Place)> {
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
            // For want of room the batch is taken back, if none of its pages can be in a group file.
            if !put.is_unbroken || e.kind() != ErrorKind::NoSpace {
                return Err(self.fail(e));
            }
            tail.take_back(put.mark);
            return Err(e);
        }
        tail.record(header);
        if self.keeps_pages() {
            tail.notes.add(header, (put.mark.next_lpn, put.last_lpn), || self.clock.now_ns());
            self.counters.comes(durability, header.len);
        }
        Ok((Position { lpn: put.last_lpn }, put.place))
    }

    /// Puts a batch that does not fit the open page into pages.
    fn put_over_pages<'a>(
        &'a self,
        tail: MutexGuard<'a, Tail>,
        mut batch: Batch<'_>,
        witness_edit: u64,
    ) -> Result<(MutexGuard<'a, Tail>, Put)> {
        let (mut tail, is_unbroken) = self.make_room(tail, batch.header())?;
        let (mark, place) = (tail.mark(), tail.next_place());
        if !is_unbroken && self.keeps_pages() {
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

    /// Prepares the tail for a batch that does not fit the open page. Also returns whether the ring has a slot for every
    /// page of the batch, which then goes in without a break, and can be taken back.
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

    /// Fails if nothing can be appended any more.
    ///
    /// # Errors
    /// `Closed`; what failed first of its writes and syncs, as `Poisoned`.
    pub fn check(&self) -> Result<()> {
        if self.closed.load(Ordering::Relaxed) { Err(closed()) } else { self.commit.check() }
    }

    /// Waits until so many pages, the open one first, have a slot: for the thread that writes, or by writing a run of the
    /// ring itself.
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
                let outcome = self.write_pages(&token, end);
                token.finish_write(outcome)?;
            }
            tail = lock(&self.tail);
        }
        self.times.ring_full.end(begun);
        Ok(tail)
    }

    /// Returns when every page up to `position` is durable: then, and not before, the batch may be acknowledged as
    /// durable, together with all before it.
    ///
    /// # Errors
    /// The first failure as it is to the caller that met it, `Poisoned` to all others, and to everyone once the domain failed. What the device then holds is
    /// unknown; only a restart tells.
    pub fn sync(&self, position: Position) -> Result<()> {
        loop {
            match self.commit.lead_or_wait(position.lpn)? {
                Turn::Durable => return self.commit.acknowledge(),
                Turn::Lead(token) => {
                    self.expects_more();
                    self.lead(token, position)?;
                }
            }
            // Its pages are durable when those before them are, which may be under way.
        }
    }

    /// `completer` is resolved when [`Wal::sync`] of this position would return, without a thread that waits. Some thread has to call
    /// [`Wal::sync_wanted`]. Returns true if no completer waited before: that thread may be asleep then.
    pub fn when_durable(&self, position: Position, completer: Completer<()>) -> bool {
        self.counters.waits_for_durable();
        self.commit.when_durable(position.lpn, completer)
    }

    /// Nobody is going to sync any more: all who wait without a thread are told so, unless theirs is durable.
    pub fn refuse_wanted(&self, why: &Error) {
        self.commit.refuse_wanted(why);
    }

    /// True if a batch of `len` bytes is appended without a wait: it finds a group, and slots in the ring, unless others are appended before it.
    pub fn takes_at_once(&self, len: usize) -> bool {
        let mut tail = lock(&self.tail);
        let written_end = self.commit.frontier.written_end();
        tail.pages.forget_below(written_end);
        let pages = tail.pages_for(len);
        tail.has_room(len) && pages <= tail.slots.count() && tail.has_slots(pages, written_end)
    }

    /// True if somebody waits without a thread.
    pub fn is_wanted(&self) -> bool {
        self.commit.last_wanted().is_some()
    }

    /// Makes durable all that somebody waits for without a thread.
    ///
    /// # Errors
    /// As [`Wal::sync`].
    pub fn sync_wanted(&self) -> Result<()> {
        self.commit.last_wanted().map_or(Ok(()), |lpn| self.sync(Position { lpn }))
    }

    /// True if every page up to `position` is durable already.
    pub fn is_durable(&self, position: Position) -> bool {
        position.lpn < self.commit.frontier.durable_end()
    }

    /// Bytes for which one page number stands.
    fn unit(&self) -> u64 {
        self.options.lane.unit() as u64
    }

    /// Where a page is in the file of its group.
    fn offset_of(&self, segment: &Segment, lpn: u64) -> u64 {
        (lpn - segment.first_lpn) * self.unit()
    }

    /// Installs a spare group; the manifest must list it already.
    ///
    /// # Errors
    /// `InvalidArgument` if it is too small or its number not above those before.
    pub fn add_group(&self, group: PreparedGroup) -> Result<()> {
        lock(&self.tail).groups.add_spare(group)
    }

    /// How many spares are missing. The caller prepares them ahead of time, in the background.
    pub fn groups_wanted(&self) -> usize {
        self.options.spares.saturating_sub(lock(&self.tail).groups.spares())
    }

    /// True if a batch of `len` bytes finds a group, unless another is appended before it.
    pub fn has_room(&self, len: usize) -> bool {
        lock(&self.tail).has_room(len)
    }

    /// True if half of the active group is taken: time to prepare a spare. (Before that a spare would only be
    /// disk space that a small store never needs.)
    pub fn is_half_full(&self) -> bool {
        let tail = lock(&self.tail);
        let active = &tail.groups.active;
        (tail.pages.next_lpn() - active.first_lpn) * 2 >= active.data_numbers
    }

    /// Closed groups, oldest first, that nobody needs: they hold no record with a sequence at or above the floor of its
    /// tenant, and none of a tenant that has no floor here. Each is handed out once: the caller drops it from the manifest
    /// and removes or recycles its file.
    ///
    /// A group stays until the first page of its successor is durable; where nobody syncs, [`Wal::write_out`] and
    /// [`Wal::persist_watermark`] see to that.
    pub fn release_below(&self, floors: &[(TenantId, SeqNo)]) -> Vec<u64> {
        self.release_groups_below(floors).into_iter().map(|group| group.ltn).collect()
    }

    /// As [`Wal::release_below`], with what is known of each group.
    pub fn release_groups_below(&self, floors: &[(TenantId, SeqNo)]) -> Vec<PriorGroup> {
        let durable_end = self.commit.frontier.durable_end();
        lock(&self.tail).groups.release_below(floors, durable_end)
    }

    /// Closes the group that is written, however much room it has, so that the next batch goes to another. False if it has
    /// no batches. It may be released once a page of the next one is durable, which [`Wal::persist_watermark`] sees to.
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

    /// Appends those of the `len` bytes from `place` on that are in pages in memory to `out`, and says how many come before
    /// them: those are in the file of the group. `None`: the log does not write this group, or nothing of it is in memory;
    /// then all are.
    pub fn read_ring(&self, place: Place, len: usize, out: &mut Vec<u8>) -> Option<usize> {
        let tail = lock(&self.tail);
        let start_lpn = tail.groups.first_lpn_of(place.ltn)? + place.offset() / self.unit();
        let page_numbers = self.options.lane.page_numbers();
        let (mut before, start) = (0, out.len());
        for (i, part) in place.parts(len) {
            let lpn = start_lpn + i as u64 * page_numbers;
            if lpn < tail.pages.first_lpn() {
                before += part.len();
                continue;
            }
            match tail.pages.in_memory(lpn).and_then(|page| page.get(part)) {
                Some(part) => out.extend_from_slice(part),
                // There never was a batch that reaches so far.
                None => {
                    out.truncate(start);
                    return None;
                }
            }
        }
        (before < len).then_some(before)
    }

    /// The groups that were not released, oldest first, the one that is written last (spares not counted).
    pub fn groups(&self) -> Vec<PriorGroup> {
        let tail = lock(&self.tail);
        tail.groups.all(self.commit.frontier.written_end())
    }

    /// What of the log is in which file, at one moment.
    pub(crate) fn ends(&self) -> LogEnd {
        let tail = lock(&self.tail);
        let written_end = self.commit.frontier.written_end();
        let staged = tail.slots.staged_from(&tail.pages, written_end);
        let end = staged.last().map_or(written_end, |(lpn, _)| (lpn + 1).max(written_end));
        let segments = tail.groups.segments(written_end, end);
        let group_of = |lpn: u64| segments.iter().find(|s| s.start <= lpn && lpn < s.end);
        let one = |(lpn, used): (u64, usize)| {
            let segment = group_of(lpn)?;
            Some(StagedEnd { group: segment.group, ltn: segment.ltn, lpn, used })
        };
        LogEnd {
            groups: tail.groups.all(written_end),
            staged: staged.into_iter().filter_map(one).collect(),
            taken_back: tail.pages.taken_back(),
        }
    }

    /// Bytes of all groups that were not released (spares not counted).
    pub fn live_bytes(&self) -> u64 {
        lock(&self.tail).groups.live_bytes()
    }

    /// The position of the last page that was begun; a sync of it makes all of the log durable. `None` if nothing
    /// was appended since the start.
    pub fn last_position(&self) -> Option<Position> {
        let tail = lock(&self.tail);
        let open = (tail.pages.used() != 0).then(|| tail.pages.next_lpn());
        let last = open.or_else(|| tail.pages.next_lpn().checked_sub(1)).filter(|&lpn| lpn >= self.start_lpn);
        last.map(|lpn| Position { lpn })
    }

    /// The group that is written, and the number after its last page; `None` if it has no pages. After [`Wal::close`] this
    /// is where the log ends: a manifest that remembers it notices if the whole group is lost.
    pub fn end(&self) -> Option<(u64, u64)> {
        let tail = lock(&self.tail);
        let end = tail.pages.end_lpn();
        let active = &tail.groups.active;
        (end > active.first_lpn).then_some((active.prepared.ltn, end))
    }

    /// True if [`Wal::write_out`] has something to do. Cheap enough to ask after every append.
    pub fn wants_write_out(&self) -> bool {
        let tail = lock(&self.tail);
        if self.keeps_pages() {
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
        full * self.unit() >= threshold
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
        let outcome = if self.keeps_pages() { self.write_due() } else { self.write_full() };
        match outcome {
            // There may be room later, or never. A waiter without a thread gets the error, as one with a thread does.
            Err(e) if e.kind() == ErrorKind::NoSpace => {
                self.refuse_wanted(&e);
                Err(e)
            }
            outcome => outcome.map(|()| true),
        }
    }

    /// As [`Wal::write_out`], of a log that keeps no pages back.
    fn write_full(&self) -> Result<()> {
        let token = self.commit.acquire()?;
        let (end, waits) = {
            let tail = lock(&self.tail);
            (tail.pages.next_lpn(), tail.groups.release_waits(self.commit.frontier.durable_end()))
        };
        if waits {
            token.covers(end);
        }
        if let Err(e) = self.write_pages(&token, end) {
            return token.finish_write(Err(e));
        }
        let outcome = if waits { self.make_durable_unasked(&token, end) } else { Ok(()) };
        token.finish(outcome)
    }

    /// Makes everything appended so far durable, and then leaves a page that says so. After that a damaged page is
    /// told from a torn one everywhere in the log. True if there was something to confirm.
    ///
    /// To be called on idleness (nothing is gained while batches keep coming); [`Wal::close`] does it too.
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
        let end = self.take_all(&token);
        let outcome = self.make_durable(&token, end).and_then(|()| self.write_watermark(&token));
        token.finish(outcome)
    }

    /// Bytes of the staging ring.
    pub fn staging_len(&self) -> usize {
        lock(&self.tail).slots.count() as usize * PAGE
    }

    /// Makes the staging ring longer: for a log that is written faster than when it was started. Everything appended so
    /// far is made durable before, so that nothing in the old file is needed.
    ///
    /// # Errors
    /// `Poisoned`, and those of the file system. After `NoSpace`, or without a descriptor, the ring is as long as it was, or its
    /// name is not durable yet: buffered batches are refused until it is. Failures of syncs for other reasons poison the log.
    pub fn lengthen_staging(&self, env: &Env, dir: &Path, len: usize) -> Result<()> {
        // No page is begun before this is over.
        let mut order = lock(&self.order);
        self.check()?;
        self.sync_ring_name(&mut order)?;
        let old_len = self.staging_len();
        if old_len >= len.min(STAGING_LEN_MAX) / PAGE * PAGE {
            return Ok(());
        }
        let token = self.commit.acquire()?;
        let end = self.take_all(&token);
        let outcome = self.make_durable(&token, end);
        token.finish(outcome)?;
        // The old file stays until the longer one is whole: there may be no room to make it again.
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

    /// Makes the name of the staging ring durable. No page goes to the file before its name outlives the process: LavaFS keeps names in
    /// memory up to a sync.
    fn sync_ring_name(&self, order: &mut Order) -> Result<()> {
        let Some((env, dir)) = &order.unnamed else { return Ok(()) };
        match env.fs.sync_dir(dir) {
            Ok(()) => order.unnamed = None,
            Err(e) if e.is_refusal() => return Err(e),
            Err(e) => return Err(self.fail(e)),
        }
        Ok(())
    }

    fn write_watermark(&self, token: &Token<'_>) -> Result<bool> {
        let frontier = &self.commit.frontier;
        let watermark = frontier.durable_end();
        let mut buf = self.take_buf();
        let (lpn, end, data_end, segments) = {
            let mut tail = lock(&self.tail);
            if tail.data_end() == tail.confirmed_end && !tail.groups.release_waits(watermark) {
                return Ok(false);
            }
            let data_end = tail.data_end();
            let around = Surroundings { durable_end: watermark, witness_edit: 0 };
            let (lpn, end) = tail.watermark_page(around, &mut buf);
            (lpn, end, data_end, tail.groups.segments(lpn, end))
        };
        for segment in segments {
            let offset = self.offset_of(&segment, lpn);
            assert!(offset + buf.len() as u64 <= segment.file.len(), "room was kept for it");
            add(&self.counters.durable_writes, 1);
            add(&self.counters.written_bytes, buf.len() as u64);
            segment.file.write_durable(&buf, offset)?;
        }
        self.give_buf(buf);
        token.written(end);
        token.durable(end);
        lock(&self.tail).confirmed_end = data_end;
        Ok(true)
    }

    /// Makes everything durable, confirms it and ends the log: later appends fail with `Closed`. Closing twice
    /// does nothing.
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

    /// How long appends and syncs take.
    pub fn times(&self) -> &Times {
        &self.times
    }

    /// Nanoseconds that durable writes took, those of all who sync together; several at once count each.
    pub fn durable_ns(&self) -> u64 {
        self.counters.durable_ns()
    }

    /// Counters.
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
    Error::new(ErrorKind::Closed, "the log is closed")
}

fn busy(len: usize) -> Error {
    let needed = page::group_len_needed(len);
    let why = format!("no spare log group takes a batch of {len} bytes: add one of at least {needed} bytes");
    Error::new(ErrorKind::Busy, why)
}

mod overtaken;
mod round;
#[cfg(test)]
mod schedules;
#[cfg(test)]
mod tests;
