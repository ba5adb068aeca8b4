//! The log of a store: the one durability domain of all engines on it.
//!
//! An engine is a *tenant*: it appends batches under its number, with sequences of its own, and gets a [`Ticket`] for
//! each. A batch is durable when the pages up to its ticket are; whoever waits for that makes everything before durable as
//! well, whoever wrote it, so that the small writes of all engines share the writes of the device. After a restart each
//! tenant gets back its own batches, whole and in order ([`read`]).
//!
//! A group of the log lives until every tenant has let go of it. A tenant tells its floor as it rises ([`Log::tell_floor`]);
//! one that is not there has the floor that the manifest keeps for it. So what an engine wrote stays untouched for as long
//! as nobody opens the store with it, and the log cannot shrink below it: the price is space, which [`Log::held_by_others`] shows.
//!
//! Background work is driven by whoever holds the log: [`Log::task`] says what is most urgent, [`Log::run`]
//! does it. Preparing a group costs a device write of its whole length, so it is done while the log still has a spare; a
//! writer does it himself only when that is used up, or for a batch larger than a whole group ([`Log::provide`]).
//!
//! **Lanes.** A store may have several logs, each with groups, a staging file and a durable end of its own ([`Lane`]). In those
//! that keep records ([`Lane::LOG`]) a group that nobody needs for replay is not dropped but kept as storage: see [`lane`].
//!
//! Modules: `ahead` (reading ahead), [`files`] (the files of groups, and what is done where there is no room), `pace` (how long groups are), `floors`,
//! `idle` (when the durable end is worth a page of its own), `overtaken` (what a flush overtakes is never written), [`read`] (what recovery reads, and what must fit the manifest),
//! It asks the store's health, its space and its files, and no engine.
//!
//! Invariants: the manifest lists a group before the log may use it, and the edit that drops it is durable before its file is
//! used again or removed. The log knows nothing of what batches mean.

mod ahead;
pub mod files;
mod floors;
mod foundation;
mod idle;
pub mod lane;
mod overtaken;
mod pace;
pub mod read;
pub mod recorded;
mod spares;
mod stored;

pub use ahead::ReadAhead;
pub use files::{GroupFile, GroupFiles};
pub use floors::tenant;
pub use overtaken::Aging;
pub use pace::shortest_bytes;
pub use spares::{Ballast, Need, Spares, ballast_bytes};
pub use stored::{GroupState, LaneGroup, StoredGroups};
pub use wal::check::{LogCheck, LogFindings};
pub use wal::{Durability, Lane, LoggedBatch, Loggers, OnBatch, Place, Position as Ticket, TenantId};

use crate::files::Files;
use crate::manifest::{EngineId, EngineView, LogGroupMeta, Record, State};
use crate::space::SpaceBudget;
use base::completion::Completer;
use base::sync::atomic::{AtomicBool, Ordering};
use base::sync::{Mutex, OnceLock, lock, rank};
use base::{Error, ErrorKind, Result, SeqNo};
use files::GroupLens;
use floors::Floors;
use foundation::Foundation;
use idle::Idle;
use io::{Access, InPlaceFile};
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task;
use wal::{LogGroup, PreparedGroup, PriorGroup, RecoveryReport, Wal, WalOptions};

/// The log begins in a group of this length where there is no room for a regular one, bytes.
const FIRST_GROUP_BYTES_MIN: u64 = 4 * io::PAGE as u64;

/// Bytes of the ring of open pages for groups of this length.
pub fn staging_len(group_len: u64) -> usize {
    (group_len / 4).clamp(64 << 10, 8 << 20) as usize
}

/// How long the pieces of a log may be, and how they are accessed.
#[derive(Clone, Copy, Debug)]
pub struct LogTerms {
    /// How group files are accessed.
    pub access: Access,
    /// Bytes of the longest group.
    pub group_bytes: u64,
    /// Under a limit of space, the most files of former groups that are kept to be used again.
    pub free_groups_max: usize,
    /// Durable writes at the device at once.
    pub loggers: Loggers,
    /// Of the groups that are kept as storage, the most whose files are open.
    pub retained_open_max: usize,
    /// How long pages of the first lane wait for a flush that makes it unnecessary to write them.
    pub aging: Aging,
}

/// What there is to do for a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Move full pages from the ring to the group files.
    WriteOut,
    /// Prepare a group.
    Prepare,
    /// Make the ring of open pages longer.
    Lengthen,
    /// Let go of groups that nobody needs.
    Release,
    /// Make durable what somebody waits for without a thread.
    Sync,
    /// Leave a page that says that all before it is durable.
    Confirm,
}

/// Resolves when what was written is durable: a future, for any runtime, or [`Completion::wait`]. Dropped, it is made durable all the
/// same, and nobody is told.
#[derive(Debug)]
#[must_use = "before it has resolved, what was written may be lost"]
pub struct Completion {
    future: base::completion::Completion<()>,
    log: Arc<Log>,
    ticket: Option<Ticket>,
}

impl Completion {
    /// Waits for it. Whoever waits writes for all, if nobody else does.
    ///
    /// # Errors
    /// As [`Log::sync`].
    pub fn wait(mut self) -> Result<()> {
        let sync = || self.ticket.map_or(Ok(()), |ticket| self.log.sync(ticket));
        self.future.take().unwrap_or_else(sync)
    }

    /// What became of it, if that is known; once.
    pub fn take(&mut self) -> Option<Result<()>> {
        self.future.take()
    }
}

impl Future for Completion {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> task::Poll<Result<()>> {
        Pin::new(&mut self.future).poll(context)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Log {
    base: Arc<Foundation>,
    /// Once it has begun.
    wal: OnceLock<Wal>,
    files: Arc<GroupFiles>,
    spares: Arc<Spares>,
    stored: StoredGroups,
    floors: Floors,
    /// Serializes preparation.
    preparing: Mutex<(), rank::LogPreparing>,
    hints: Hints,
    idle: Idle,
    /// In a read-only store: the groups that were replayed, oldest first.
    replayed: OnceLock<Vec<PriorGroup>>,
}

/// What happened since somebody last looked.
#[derive(Debug, Default)]
struct Hints {
    /// There was no room for a spare group when it was last tried.
    spare_refused: AtomicBool,
    /// There was no room to write pages to their group files, on a copy-on-write volume, when it was last tried.
    write_out_refused: AtomicBool,
    /// There was no room for a longer ring of open pages.
    ring_refused: AtomicBool,
}

impl Log {
    /// The log of a store, its first lane, before anything of it is read.
    pub fn new(terms: LogTerms, store: Arc<Files>, space: Arc<SpaceBudget>) -> Log {
        Log::of_lane(Lane::FIRST, terms, store, space)
    }

    /// A lane of a store's log, before anything of it is read.
    pub fn of_lane(lane: Lane, terms: LogTerms, store: Arc<Files>, space: Arc<SpaceBudget>) -> Log {
        let base = Arc::new(Foundation::of(lane, terms, store, space));
        let spares = Arc::new(Spares::new(base.clone()));
        let files = Arc::new(GroupFiles::new(base.clone(), spares.clone()));
        Log {
            stored: StoredGroups::new(base.clone(), files.clone(), spares.clone()),
            base,
            files,
            spares,
            wal: OnceLock::new(),
            floors: Floors::default(),
            preparing: Mutex::new(()),
            hints: Hints::default(),
            idle: Idle::default(),
            replayed: OnceLock::new(),
        }
    }

    // Appending.

    /// Appends one batch of a tenant, given in pieces: recovery hands it back whole or not at all. `seqs`: the lowest and the
    /// highest of its sequences, which ascend for each tenant (who serializes its calls).
    ///
    /// # Errors
    /// `Busy`: no group takes it ([`Log::provide`] one and try again), `NoSpace`: in both cases nothing happened; also where
    /// there was no room yet to begin the log. Others as [`Wal::append`].
    #[inline]
    pub fn append(
        &self,
        tenant: TenantId,
        pieces: &[&[u8]],
        seqs: (SeqNo, SeqNo),
        durability: Durability,
    ) -> Result<Ticket> {
        self.append_placed(tenant, pieces, seqs, durability).map(|(ticket, _)| ticket)
    }

    #[cold]
    fn no_room_to_begin(&self) -> Error {
        let why = "there was no room on the volume to begin the log: make room, and write with the engine that opened the store";
        Error::new(ErrorKind::NoSpace, why).at_file(self.base.context.volumes.log_dir())
    }

    /// As [`Log::append`]; also says where the first byte of the batch is: see [`Place::at`] and [`Log::read`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn append_placed(
        &self,
        tenant: TenantId,
        pieces: &[&[u8]],
        seqs: (SeqNo, SeqNo),
        durability: Durability,
    ) -> Result<(Ticket, Place)> {
        let Some(wal) = self.wal.get() else { return Err(self.no_room_to_begin()) };
        wal.append_placed(tenant, pieces, seqs, durability, self.base.manifest.durable_edit())
    }

    /// As [`Log::append`], by one who makes the group that is missing and waits for nothing else.
    ///
    /// # Errors
    /// As there, without `Busy`.
    pub fn put(
        &self,
        tenant: TenantId,
        pieces: &[&[u8]],
        seqs: (SeqNo, SeqNo),
        durability: Durability,
    ) -> Result<Ticket> {
        self.put_placed(tenant, pieces, seqs, durability).map(|(ticket, _)| ticket)
    }

    /// As [`Log::put`]; also says where the first byte of the batch is.
    ///
    /// # Errors
    /// As there.
    pub fn put_placed(
        &self,
        tenant: TenantId,
        pieces: &[&[u8]],
        seqs: (SeqNo, SeqNo),
        durability: Durability,
    ) -> Result<(Ticket, Place)> {
        loop {
            match self.append_placed(tenant, pieces, seqs, durability) {
                Err(e) if e.kind() == ErrorKind::Busy => {
                    let len = pieces.iter().map(|piece| piece.len()).sum();
                    self.provide_when_whole(len)?;
                }
                done => return done,
            }
        }
    }

    /// As [`Log::provide`]; where the ballast was used there may be room for it again by now.
    fn provide_when_whole(&self, batch_len: usize) -> Result<()> {
        match self.provide(batch_len, Need::Usual) {
            Err(e) if e.kind() == ErrorKind::NoSpace && self.spares.ballast_is_short() => {
                self.fill_ballast().map_err(|why| if why.kind() == ErrorKind::NoSpace { e } else { why })?;
                self.provide(batch_len, Need::Usual)
            }
            provided => provided,
        }
    }

    /// Returns when everything up to the ticket is durable.
    ///
    /// # Errors
    /// Those of the file system, which poison the log.
    pub fn sync(&self, ticket: Ticket) -> Result<()> {
        self.wal().syncer().sync(ticket)
    }

    /// Resolves when everything up to the ticket is durable; at once if nothing was written. Whoever works in the background makes it so; several who come at the
    /// same time share a write.
    pub fn when_durable(self: &Arc<Self>, ticket: Option<Ticket>) -> Completion {
        let future = match ticket {
            None => base::completion::Completion::known(Ok(())),
            Some(ticket) => {
                let (completer, future) = base::completion::pending();
                self.tell_durable(ticket, completer);
                future
            }
        };
        Completion { future, log: self.clone(), ticket }
    }

    /// As [`Log::when_durable`], for one who has what is to be told.
    pub fn tell_durable(&self, ticket: Ticket, completer: Completer<()>) {
        if self.wal().syncer().when_durable(ticket, completer) {
            self.base.context.signals.notify_work();
        }
    }

    /// Once the store is poisoned nobody syncs the log for others: who waits for that is told. A store that is being closed makes durable what
    /// there is.
    pub fn refuse_if_poisoned(&self) {
        if self.base.context.health.outcome_unknown()
            && let Err(why) = self.base.context.health.check()
        {
            self.refuse_wanted(&why);
        }
    }

    /// Who waits for something to be durable is told that nobody will make it so.
    pub fn refuse_wanted(&self, why: &Error) {
        self.begun().into_iter().for_each(|wal| wal.syncer().refuse_wanted(why));
    }

    /// True if everything up to the ticket is durable already.
    pub fn is_durable(&self, ticket: Ticket) -> bool {
        self.wal().syncer().is_durable(ticket)
    }

    // What is known of it.

    /// The log itself. It must have begun.
    #[inline]
    pub fn wal(&self) -> &Wal {
        self.wal.get().expect("the log is started before the first write")
    }

    /// The log itself, once it has begun.
    #[inline]
    pub fn begun(&self) -> Option<&Wal> {
        self.wal.get()
    }

    /// The files of its groups.
    pub fn files(&self) -> &GroupFiles {
        &self.files
    }

    /// The files that no group has.
    #[inline]
    pub fn spares(&self) -> &Spares {
        &self.spares
    }

    /// The groups that it has let go of.
    pub fn stored(&self) -> &StoredGroups {
        &self.stored
    }

    /// A read-only store has no log of its own: these groups it has read.
    pub fn set_replayed(&self, groups: Vec<PriorGroup>) {
        let _ = self.replayed.set(groups);
    }

    /// The groups that hold records somebody may need, oldest first; the last one may still be written.
    pub fn in_use(&self) -> Vec<PriorGroup> {
        match self.wal.get() {
            Some(wal) => wal.content().groups(),
            None => self.replayed.get().cloned().unwrap_or_default(),
        }
    }

    fn live_bytes(&self) -> u64 {
        self.wal.get().map_or(0, |wal| wal.content().live_bytes())
    }

    /// The length that the next group should have.
    pub fn next_len(&self) -> u64 {
        self.files.next_len(self.live_bytes() + self.stored.bytes())
    }

    // Floors.

    /// A tenant needs nothing of its own below `floor` any more: what is below is durable elsewhere.
    pub fn tell_floor(&self, tenant: TenantId, floor: SeqNo) {
        self.floors.tell(tenant, floor);
    }

    /// The floors of all tenants that have one.
    pub fn floors(&self) -> Vec<(TenantId, SeqNo)> {
        self.floors.all(&self.base.manifest.state())
    }

    /// Bytes of the closed groups that must stay for tenants other than `tenant`, which can do nothing about them.
    pub fn held_by_others(&self, tenant: TenantId) -> u64 {
        let floors = self.floors();
        let groups = self.in_use();
        let Some((_active, closed)) = groups.split_last() else { return 0 };
        let needed = |group: &&PriorGroup| group.seqs.needed_by(&floors).any(|other| other != tenant);
        closed.iter().skip_while(|group| !needed(group)).map(|group| group.len).sum()
    }

    // Groups.

    /// Called by a writer whose batch of `batch_len` bytes found no group to go to.
    ///
    /// # Errors
    /// `NoSpace`: nothing happened. Those of the manifest and of the file system.
    pub fn provide(&self, batch_len: usize, need: Need) -> Result<()> {
        let _guard = lock(&self.preparing);
        if self.wal().content().has_room(batch_len) {
            return Ok(());
        }
        let needed = wal::group_len_needed(batch_len);
        let wanted = self.next_len().max(needed);
        if need == Need::Usual && !self.admits(self.new_bytes(needed, wanted)) {
            return Err(self.no_room_for_group(wanted));
        }
        self.prepare(wanted, needed, need)
    }

    /// What a group takes that is not there yet: nothing, if one is that waits to be used again.
    pub fn new_bytes(&self, least: u64, wanted: u64) -> u64 {
        if self.spares.has_fitting(least.max(wanted)) { 0 } else { wanted }
    }

    /// True if what is kept free for the way out stays free when so many bytes are written. Where groups are storage that is
    /// decided group by group, here; of the first lane each write is admitted, by its engine.
    pub fn admits(&self, bytes: u64) -> bool {
        !self.lane().retains()
            || !self.base.space.has_own_limit()
            || self.base.space.has_room_for_write(bytes)
    }

    fn no_room_for_group(&self, bytes: u64) -> Error {
        let why = format!(
            "the space limit, {} bytes, leaves no room for a group of {bytes} bytes: {} are occupied, {} reserved; trim or \
             delete logs, or make the limit larger",
            self.base.space.limit_bytes(),
            self.base.space.used_bytes(),
            self.base.space.reserve_bytes(),
        );
        Error::new(ErrorKind::NoSpace, why).at_file(&self.base.context.dir)
    }

    /// Prepares a spare group if there is none.
    fn provide_spare(&self) -> Result<()> {
        let _guard = lock(&self.preparing);
        if self.wal().content().groups_wanted() == 0 {
            return Ok(());
        }
        let (wanted, least) = (self.next_len(), shortest_bytes(self.base.terms.group_bytes));
        let admitted = self.admits(self.new_bytes(wanted, wanted));
        // A group is closed to be let go of, which frees more than the next one takes.
        self.prepare(wanted, least, if admitted { Need::Usual } else { Need::Deletes })
    }

    fn prepare(&self, wanted: u64, least: u64, need: Need) -> Result<()> {
        let group = self.files.list_new(GroupLens { wanted, least, usual: self.next_len() }, need)?;
        self.wal().content().add_group(group)
    }

    /// Prepares a group if the log wants one.
    fn prepare_ahead(&self) -> Result<()> {
        let _guard = lock(&self.preparing);
        if self.wal().content().groups_wanted() == 0 {
            return Ok(());
        }
        let (shortest, mut wanted) = (shortest_bytes(self.base.terms.group_bytes), self.next_len());
        let fits = |bytes| self.base.space.grants.fits_job(bytes) && self.admits(bytes);
        while wanted > shortest && !self.spares.has_free(self.next_len()) && !fits(wanted) {
            wanted = (wanted / 2 / io::PAGE as u64 * io::PAGE as u64).max(shortest);
        }
        let refused = |e: &base::Error| {
            self.hints.spare_refused.store(e.kind() == ErrorKind::NoSpace, Ordering::Release)
        };
        self.prepare(wanted, shortest, Need::Usual).inspect_err(refused)
    }

    /// Looks at something while no file of a group is made that nobody lists yet.
    pub fn while_none_is_made<T>(&self, look: impl FnOnce() -> T) -> T {
        let _guard = lock(&self.preparing);
        look()
    }

    /// Makes what is missing of the ballast.
    ///
    /// # Errors
    /// `NoSpace` as long as there is no room for it; others of the file system.
    pub fn fill_ballast(&self) -> Result<()> {
        let _guard = lock(&self.preparing);
        self.spares.fill_ballast()
    }

    /// Groups may have become releasable.
    pub fn hint_release(&self) {
        self.floors.hint();
    }

    /// True if groups may be releasable.
    pub fn may_release(&self) -> bool {
        self.floors.is_hinted()
    }

    /// Drops the groups that nobody needs: manifest first, then the files. One caller at a time. (In a lane that keeps them they
    /// wait for [`Log::retain`].) `tell`: an engine whose floor
    /// is found out by asking is asked now and tells it. (What rises later is hinted at, and waits for the next time.)
    ///
    /// # Errors
    /// Those of the manifest and of the file system; what could not be dropped is, the next time.
    pub fn release(&self, tell: impl FnOnce()) -> Result<()> {
        let floors = self.floors.for_release(tell, || self.base.manifest.state());
        if self.lane().retains() {
            self.stored.pass(|| self.wal().content().release_groups_below(&floors));
            return Ok(());
        }
        if self.skip_overtaken(&floors).inspect_err(|_| self.hint_release())? {
            return Ok(());
        }
        let released = self.wal().content().release_below(&floors);
        self.files.release(released).inspect_err(|_| self.hint_release()).map(drop)
    }

    // Background work.

    /// The most urgent of what there is to do. After something found no room, nothing that takes any is tried for a while: a
    /// job for anything else would be refused in its place, and put off everybody's next try again and again.
    pub fn task(&self) -> Option<Task> {
        let wal = self.wal();
        let has_room = !self.base.context.health.must_wait(self.base.context.now_ns());
        if has_room && let Some(task) = self.looks_for_overtaken() {
            Some(task)
        } else if wal.deferred().wants_write_out() {
            // Until it is tried again whoever finds the ring full tries himself, and is told. Nothing else is done: what
            // confirms these pages would meet the same, and stop the log.
            let refused = self.hints.write_out_refused.load(Ordering::Relaxed);
            (has_room || !refused).then_some(Task::WriteOut)
        } else if wal.syncer().is_wanted() {
            Some(Task::Sync)
        } else if has_room && self.wants_spare() {
            Some(Task::Prepare)
        } else if has_room && self.wants_longer_ring() {
            Some(Task::Lengthen)
        } else if has_room && self.may_release() {
            Some(Task::Release)
        } else if self.idle.is_idle(&wal.stats(), self.base.context.now_ns()) {
            Some(Task::Confirm)
        } else {
            None
        }
    }

    fn wants_spare(&self) -> bool {
        let shortest = shortest_bytes(self.base.terms.group_bytes);
        let fits = || {
            let has_free = self.spares.has_free(self.next_len());
            let new_bytes = if has_free { 0 } else { shortest };
            (has_free || self.base.space.grants.fits_job(shortest)) && self.admits(new_bytes)
        };
        let wanted = self.wal().content().groups_wanted() > 0 && self.wal().content().is_half_full();
        // What room there is, is for deletes and the jobs that make more of it.
        wanted && !self.spares.ballast_is_short() && fits()
    }

    /// True if the ring of open pages is short for groups of the present length.
    fn wants_longer_ring(&self) -> bool {
        let wanted = self.ring_wanted();
        self.wal().content().staging_len() < wanted && !self.hints.ring_refused.load(Ordering::Relaxed)
    }

    /// Does it.
    ///
    /// # Errors
    /// Those of the manifest and of the file system.
    pub fn run(&self, task: Task) -> Result<()> {
        match task {
            Task::WriteOut => {
                self.write_out()?;
                self.hint_release();
                Ok(())
            }
            Task::Prepare => self.prepare_ahead(),
            Task::Lengthen => self.lengthen_ring(),
            Task::Release => self.release(|| ()),
            Task::Sync => self.wal().syncer().sync_wanted(),
            Task::Confirm => self.persist_watermark(),
        }
    }

    /// Gives the log a ring of open pages that fits the length of its groups, if there is room.
    fn lengthen_ring(&self) -> Result<()> {
        let wanted = self.ring_wanted();
        match self.wal().lengthen_staging(&self.base.context.env, &self.base.context.dir, wanted) {
            Err(e) if e.kind() == ErrorKind::NoSpace => {
                self.hints.ring_refused.store(true, Ordering::Relaxed);
                Ok(())
            }
            done => done,
        }
    }

    /// Moves full pages from the log's ring to the group files.
    fn write_out(&self) -> Result<()> {
        let outcome = self.wal().deferred().write_out();
        let refused = outcome.as_ref().is_err_and(|e| e.kind() == ErrorKind::NoSpace);
        self.hints.write_out_refused.store(refused, Ordering::Relaxed);
        outcome.map(drop)
    }

    /// True once after there was no room for a spare group: then others have a turn. The log is the most urgent class, and
    /// after a refusal all wait for a while; without this it would be the first to be refused again, for ever, and the
    /// flush that makes room for it would never run.
    pub fn gives_way(&self) -> bool {
        self.hints.spare_refused.swap(false, Ordering::AcqRel)
    }

    /// True if the log will want its watermark persisted once it has been idle for long enough.
    pub fn has_unconfirmed(&self) -> bool {
        self.idle.has_unconfirmed(&self.wal().stats())
    }

    /// Confirms all of the log.
    ///
    /// # Errors
    /// Those of the file system, which poison the log.
    pub fn persist_watermark(&self) -> Result<()> {
        let before = self.wal().stats();
        self.wal().persist_watermark()?;
        self.idle.confirmed(&before, &self.wal().stats());
        Ok(())
    }

    // Beginning and end.

    /// The groups that the manifest lists, for recovery: `open` opens the file at a path. The log takes them over.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn groups_to_read(
        &self,
        open: impl Fn(&Path) -> Result<Arc<dyn InPlaceFile>>,
    ) -> Result<Vec<LogGroup>> {
        let (mut groups, state) = (Vec::new(), self.base.manifest.state());
        self.stored.adopt(state.log_groups.retained(self.lane()));
        for meta in state.log_groups.chain(self.lane()).filter(|g| !g.discarded) {
            let file =
                recorded::up_to(open(&self.base.context.path(&crate::names::log(meta.file)))?, meta.len);
            let (number, len, uid) = (meta.file, meta.len, meta.uid.unwrap_or_default());
            self.files.adopt(meta.ltn, GroupFile { number, len, uid, file: file.clone() });
            let LogGroupMeta { ltn, uid, sealed_end, begin, .. } = *meta;
            groups.push(LogGroup { ltn, uid, file, sealed_end, begin });
        }
        Ok(groups)
    }

    /// Counts among those that recovery cut off the oldest groups that nobody needs by now, whose records all are below the
    /// floors. Where there is room they are released later, like any other.
    pub fn let_go(&self, report: &mut RecoveryReport) {
        if self.lane().retains() {
            return;
        }
        let floors = self.floors();
        report.discarded.extend(report.history.release_below(&floors));
    }

    /// Makes the end of the old log durable, and lets go of the groups that recovery cut off. `first`: the group in which the
    /// new log is going to begin, if it is listed already.
    ///
    /// # Errors
    /// `NoSpace`: nothing happened, and it may be tried again. Those of the manifest and of the file system.
    pub fn end_old(&self, report: &RecoveryReport, first: Option<u64>) -> Result<()> {
        let state = self.base.manifest.state();
        let old = state.log_groups.chain(self.lane()).filter(|group| Some(group.ltn) != first);
        let cut = |ltn: u64, discarded: bool| discarded || report.discarded.contains(&ltn);
        let dropped: Vec<u64> = old.filter(|g| cut(g.ltn, g.discarded)).map(|g| g.ltn).collect();
        let mut records: Vec<Record> = dropped.iter().map(|&ltn| Record::RemoveLogGroup { ltn }).collect();
        records.extend(missed(&state, report));
        if let Some((ltn, end_lpn)) = report.sealed.filter(|(ltn, _)| !dropped.contains(ltn))
            && state.log_groups.get(&ltn).is_some_and(|group| group.sealed_end != Some(end_lpn))
        {
            records.push(Record::SealLogGroup { ltn, end_lpn });
        }
        if !records.is_empty() {
            self.base.manifest.commit_store(|_| Ok(records), |_| {})?;
        } else if self.base.manifest.should_roll() {
            // Its new file must find room before the log takes any.
            self.base.manifest.roll()?;
        }
        self.files.discard(&dropped)
    }

    /// Lists the group in which the log is going to begin.
    ///
    /// # Errors
    /// `NoSpace`: nothing happened. Those of the manifest and of the file system.
    pub fn list_first(&self) -> Result<PreparedGroup> {
        self.base.store.begin_session()?;
        let wanted = shortest_bytes(self.base.terms.group_bytes);
        let least = FIRST_GROUP_BYTES_MIN.min(wanted);
        let lens = GroupLens { wanted, least, usual: self.next_len() };
        self.files.list_new(lens, Need::Last)
    }

    /// Bytes by which the file of open pages grows when the log begins: the power may have failed while it was longer than what is left of it. It is never
    /// refused, so what is made before it must leave it the room.
    pub fn unmade_bytes(&self) -> u64 {
        let path = self.base.context.path(self.lane().staging_name());
        (self.first_staging_len() as u64).saturating_sub(self.base.space.meter().bytes_of(&path))
    }

    fn first_staging_len(&self) -> usize {
        staging_len(shortest_bytes(self.base.terms.group_bytes))
    }

    /// Begins the log, in a group that is listed. What recovery reported is durable ([`Log::end_old`]). No page has a number
    /// below `lpn_min`.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn begin(&self, first: PreparedGroup, report: &RecoveryReport, lpn_min: u64) -> Result<()> {
        let options = WalOptions {
            lane: self.lane(),
            group_len: self.base.terms.group_bytes,
            // Where pages wait it is made longer as soon as there is room for that.
            staging_len: self.first_staging_len(),
            loggers: self.base.terms.loggers,
            buffered_age_ns: self.base.terms.aging.age_ms_max.saturating_mul(1_000_000),
            durable_wait_ns_max: self.base.terms.aging.durable_wait_us_max.saturating_mul(1000),
            expects_durable: self.base.terms.aging.expects_durable,
            ..Default::default()
        };
        let next_lpn = report.next_lpn.max(lpn_min);
        let (history, store) = (report.history.clone(), self.base.manifest.store());
        let wal = Wal::start(
            &self.base.context.env,
            &self.base.context.dir,
            options,
            store,
            next_lpn,
            first,
            history,
        )?;
        wal.join(self.base.context.health.clone());
        self.wal.set(wal).unwrap_or_else(|_| unreachable!("a store starts its log once"));
        Ok(())
    }

    /// Ends the log: everything is durable, and the manifest knows where it ends, so that the loss of its end is noticed;
    /// groups that were prepared for writes to come are let go.
    ///
    /// # Errors
    /// Those of the manifest and of the file system.
    pub fn close(&self) -> Result<()> {
        self.wal().close()?;
        self.seal()
    }

    /// After the log was closed: see [`Log::close`].
    ///
    /// # Errors
    /// `NoSpace`: nothing depends on it, and the next close makes up for it. Others of the manifest and of the file system.
    pub fn seal(&self) -> Result<()> {
        let Some((ltn, end_lpn)) = self.wal().content().end() else { return Ok(()) };
        let (spares, files) = self.files.unused(ltn);
        let mut records = vec![Record::SealLogGroup { ltn, end_lpn }];
        records.extend(spares.into_iter().map(|ltn| Record::RemoveLogGroup { ltn }));
        self.base.manifest.commit_store(|_| Ok(records), |_| {})?;
        files.iter().try_for_each(|&number| self.base.store.remove(&crate::names::log(number)))
    }
}

/// Who misses the end of this log, of those who are away and have batches there that they may need; and who had missed an
/// earlier one, and is here.
fn missed(state: &State, report: &RecoveryReport) -> Vec<Record> {
    let of = |engine: EngineId, missed: bool| Record::EngineMissed { engine, missed };
    let ends = report.sealed.is_some();
    let needs = |engine: &EngineView<'_>| {
        let last = tenant(engine.id).and_then(|tenant| report.seqs.last(tenant));
        last.is_some_and(|last| last >= engine.floor)
    };
    let mut records = Vec::new();
    for engine in state.engines.iter() {
        match (engine.is_here, engine.missed) {
            (true, true) => records.push(of(engine.id, false)),
            (false, false) if ends && needs(&engine) => records.push(of(engine.id, true)),
            _ => {}
        }
    }
    records
}
