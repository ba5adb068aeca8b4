//! The log of a store: the one durability domain of all engines on it.
//!
//! An engine is a *tenant*: it appends batches under its number, with sequences of its own, and gets a [`Ticket`] for
//! each. A batch is durable when the pages up to its ticket are; whoever waits for that makes everything before durable as
//! well, whoever wrote it, so that the small writes of all engines share the writes of the device. After a restart each
//! tenant gets back its own batches, whole and in order ([`read`]).
//!
//! A group of the log lives until every tenant has let go of it. A tenant tells its floor as it rises ([`Floors::tell`]);
//! one that is not there has the floor that the manifest keeps for it. So what an engine wrote stays untouched for as long
//! as nobody opens the store with it, and the log cannot shrink below it: the price is space, which [`LaneReader::held_by_others`] shows.
//!
//! Background work is driven by whoever holds the log: [`Upkeep::task`] says what is most urgent, [`Upkeep::run`] does it.
//!
//! **Lanes.** A store may have several logs, each with groups, a staging file and a durable end of its own ([`Lane`]). In those
//! that keep records ([`Lane::LOG`]) a group that nobody needs for replay is not dropped but kept as storage: see [`StoredGroups`] and the module `stored`.
//!
//! **Parts.** Each owns its state and its lock; [`Log`] appends, and leads to the parts.
//!
//! | part | content |
//! |---|---|
//! | [`Spares`] | files that no group has, among them the ballast |
//! | [`GroupFiles`] | files of groups that are replayed |
//! | [`StoredGroups`] | groups that the log has let go of |
//! | [`Floors`] | what each engine still needs |
//! | [`Preparation`] | when and how long the next group is made |
//! | [`LaneReader`] | groups, and the batches in them |
//! | [`Upkeep`] | work in the background |
//! | [`LogRecovery`] | replay, beginning and end |
//!
//! Below them: `ahead` (reading ahead), `pace` (how long groups are), `idle` (when the durable end is worth a page of its own),
//! `overtaken` (how long the ring is, so that what a flush overtakes is never written), [`read`] (what recovery reads, and what must
//! fit the manifest).
//! It asks the store's health, its space and its files, and no engine.
//!
//! Invariants: the manifest lists a group before the log may use it, and the edit that drops it is durable before its file is
//! used again or removed. The log knows nothing of what batches mean.

mod ahead;
pub mod files;
mod floors;
mod foundation;
mod idle;
mod overtaken;
mod pace;
mod preparation;
pub mod read;
mod reader;
pub mod recorded;
mod recovery;
mod spares;
mod stored;
mod upkeep;

pub use ahead::ReadAhead;
pub use files::{GroupFile, GroupFiles};
pub use floors::{Floors, tenant};
pub use overtaken::Aging;
pub use pace::shortest_bytes;
pub use preparation::Preparation;
pub use reader::LaneReader;
pub use recovery::LogRecovery;
pub use spares::{Ballast, Need, Spares, ballast_bytes};
pub use stored::{GroupState, LaneGroup, StoredGroups};
pub use upkeep::{Task, Upkeep};
pub use wal::check::{LogCheck, LogFindings};
pub use wal::{Durability, Lane, LoggedBatch, Loggers, OnBatch, Place, Position as Ticket, TenantId};

use crate::files::Files;
use crate::space::SpaceBudget;
use base::completion::Completer;
use base::{Error, ErrorKind, Result, SeqNo};
use foundation::Foundation;
use io::Access;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task;
use wal::Wal;

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
    /// As [`Log::sync`]; `Closed` if the store is closed and it is not known to be durable.
    pub fn wait(mut self) -> Result<()> {
        let sync = || match self.ticket {
            Some(ticket) if !self.log.is_durable(ticket) => {
                let _entered = self.log.base.context.enter()?;
                self.log.sync(ticket)
            }
            _ => Ok(()),
        };
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
    files: Arc<GroupFiles>,
    spares: Arc<Spares>,
    stored: Arc<StoredGroups>,
    floors: Arc<Floors>,
    preparation: Arc<Preparation>,
    reader: Arc<LaneReader>,
    upkeep: Upkeep,
    recovery: LogRecovery,
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
        let stored = Arc::new(StoredGroups::new(base.clone(), files.clone(), spares.clone()));
        let floors = Arc::new(Floors::default());
        let preparation =
            Arc::new(Preparation::new(base.clone(), files.clone(), spares.clone(), stored.clone()));
        let reader = Arc::new(LaneReader::new(base.clone(), stored.clone(), floors.clone()));
        let upkeep = Upkeep::new(
            base.clone(),
            files.clone(),
            spares.clone(),
            stored.clone(),
            floors.clone(),
            preparation.clone(),
        );
        let recovery = LogRecovery::new(
            base.clone(),
            files.clone(),
            stored.clone(),
            floors.clone(),
            preparation.clone(),
            reader.clone(),
        );
        Log { base, files, spares, stored, floors, preparation, reader, upkeep, recovery }
    }

    // Appending.

    /// Appends one batch of a tenant, given in pieces: recovery hands it back whole or not at all. `seqs`: the lowest and the
    /// highest of its sequences, which ascend for each tenant (who serializes its calls).
    ///
    /// # Errors
    /// `Busy`: no group takes it ([`Preparation::provide`] one and try again), `NoSpace`: in both cases nothing happened; also where
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

    /// As [`Log::append`]; also says where the first byte of the batch is: see [`Place::at`] and [`LaneReader::read`].
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
        let Some(wal) = self.base.wal.get() else { return Err(self.no_room_to_begin()) };
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

    /// As [`Preparation::provide`]; where the ballast was used there may be room for it again by now.
    fn provide_when_whole(&self, batch_len: usize) -> Result<()> {
        match self.preparation.provide(batch_len, Need::Usual) {
            Err(e) if e.kind() == ErrorKind::NoSpace && self.spares.ballast_is_short() => {
                self.preparation
                    .fill_ballast()
                    .map_err(|why| if why.kind() == ErrorKind::NoSpace { e } else { why })?;
                self.preparation.provide(batch_len, Need::Usual)
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
        self.base.wal.get().expect("the log is started before the first write")
    }

    /// The log itself, once it has begun.
    #[inline]
    pub fn begun(&self) -> Option<&Wal> {
        self.base.wal.get()
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

    /// What each engine still needs of it.
    pub fn floors(&self) -> &Floors {
        &self.floors
    }

    /// Its next groups.
    pub fn preparation(&self) -> &Preparation {
        &self.preparation
    }

    /// Its groups, and what is in them.
    pub fn reader(&self) -> &LaneReader {
        &self.reader
    }

    /// What is done for it in the background.
    pub fn upkeep(&self) -> &Upkeep {
        &self.upkeep
    }

    /// Its beginning and its end.
    pub fn recovery(&self) -> &LogRecovery {
        &self.recovery
    }

    /// Which lane it is.
    pub fn lane(&self) -> Lane {
        self.base.lane
    }

    /// The groups that it has let go of.
    pub fn stored(&self) -> &StoredGroups {
        &self.stored
    }
}
