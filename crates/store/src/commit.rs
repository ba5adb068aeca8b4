//! The write-ahead log of a store: the single durability domain of all its engines.
//!
//! An engine is a *tenant*. It appends batches under its tenant number, with sequences of its own,
//! and gets a [`Ticket`] for each batch. A batch is durable once all pages up to its ticket are
//! durable. A sync makes every earlier batch of every tenant durable too, so the small writes of
//! all engines share device writes. After a restart each tenant gets its own batches back, whole
//! and in order ([`read`]).
//!
//! A log group lives until every tenant's floor has passed it. Tenants report their floors as they
//! rise ([`Floors::tell`]). For an absent engine the log uses the floor in the manifest. The log
//! therefore keeps the batches of an absent engine until the store is opened with it, and cannot
//! shrink below them. [`LaneReader::held_by_others`] reports that space.
//!
//! The owner of the log drives background work: [`Upkeep::task`] returns the most urgent task,
//! [`Upkeep::run`] executes it.
//!
//! **Lanes.** A store may have several logs, each with its own groups, staging file and durable end
//! ([`Lane`]). Record lanes ([`Lane::LOG`]) keep a group as storage after replay no longer needs
//! it: see [`StoredGroups`] and the module `stored`.
//!
//! **Parts.** Each part owns its state and its lock. [`Log`] appends, and gives access to the
//! parts.
//!
//! | part | content |
//! |---|---|
//! | [`Spares`] | files without a group, including the reserved space |
//! | [`GroupFiles`] | files of the groups that recovery replays |
//! | [`StoredGroups`] | groups that the log has released but that are not free |
//! | [`Floors`] | the floor of each engine |
//! | [`Preparation`] | time and length of the next group |
//! | [`LaneReader`] | lists groups and reads batches |
//! | [`Upkeep`] | background work |
//! | [`LogRecovery`] | replay, start and close |
//!
//! Private parts: `ahead` reads ahead, and `pace` chooses the group length. `idle` decides when the
//! durable end gets a page of its own. `buffered_pages` computes a length of the tail buffer at
//! which pages superseded by a flush are never written. [`read`] holds the reads of recovery and
//! the checks against the manifest.
//!
//! The log depends on the store's health, space and files, and on no engine.
//!
//! Invariants: the manifest lists a group before the log may use it. The edit that drops a group is
//! durable before its file is reused or removed. The log does not interpret batches.

mod ahead;
mod buffered_pages;
pub mod files;
mod floors;
mod idle;
mod lane_shared;
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
pub use buffered_pages::Aging;
pub use files::{GroupFile, GroupFiles};
pub use floors::{Floors, tenant};
pub use pace::shortest_bytes;
pub use preparation::Preparation;
pub use reader::LaneReader;
pub use recovery::LogRecovery;
pub use spares::{LogGroupPurpose, ReservePurpose, Spares, reserved_bytes};
pub use stored::{GroupState, LaneGroup, StoredGroups};
pub use upkeep::{Task, Upkeep};
pub use wal::check::{LogCheck, LogFindings};
pub use wal::{Durability, Lane, LogAddress, LoggedBatch, Loggers, OnBatch, Position as Ticket, TenantId};

use crate::files::StoreFiles;
use crate::space::SpaceBudget;
use base::completion::Completer;
use base::{Error, ErrorKind, Result, SeqNo};
use io::Access;
use lane_shared::LaneShared;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task;
use wal::Wal;

/// Returns the tail buffer's length in bytes for groups of this length.
pub fn tail_buffer_len(group_len: u64) -> usize {
    (group_len / 4).clamp(64 << 10, 8 << 20) as usize
}

/// Lengths and access modes of the parts of a log.
#[derive(Clone, Copy, Debug)]
pub struct LogTerms {
    /// Access mode of group files.
    pub access: Access,
    /// Length of the longest group, bytes.
    pub group_bytes: u64,
    /// Maximum number of free group files under a space limit.
    pub free_groups_max: usize,
    /// Logger concurrency: durable device writes in flight.
    pub loggers: Loggers,
    /// Maximum number of open files of retained groups.
    pub retained_open_max: usize,
    /// Time that pages of the first lane wait for a flush to supersede them.
    pub aging: Aging,
}

/// Resolves when the write is durable. It is a future for any runtime, or blocks in
/// [`Completion::wait`]. Dropping it does not cancel the write, which still becomes durable.
#[derive(Debug)]
#[must_use = "before it has resolved, what was written may be lost"]
pub struct Completion {
    future: base::completion::Completion<()>,
    log: Arc<Log>,
    ticket: Option<Ticket>,
}

impl Completion {
    /// Waits until the write is durable. If no other thread writes the log, the caller writes for
    /// all.
    ///
    /// # Errors
    /// As [`Log::sync`]; `Closed` if the store is closed and the write is not known to be durable.
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

    /// Returns the outcome once, if it is known.
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

/// The log of one lane: see the module.
#[derive(Debug)]
pub struct Log {
    base: Arc<LaneShared>,
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
    /// Creates the log of the first lane, before recovery reads it.
    pub fn new(terms: LogTerms, store: Arc<StoreFiles>, space: Arc<SpaceBudget>) -> Log {
        Log::of_lane(Lane::FIRST, terms, store, space)
    }

    /// Creates the log of a lane, before recovery reads it.
    pub fn of_lane(lane: Lane, terms: LogTerms, store: Arc<StoreFiles>, space: Arc<SpaceBudget>) -> Log {
        let base = Arc::new(LaneShared::of(lane, terms, store, space));
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

    /// Appends one batch of a tenant, in pieces. Recovery returns the batch whole or not at all.
    /// `seqs` are the lowest and the highest sequence of the batch. They ascend for each tenant;
    /// the tenant serializes its calls.
    ///
    /// # Errors
    /// `Busy`: no group has room; call [`Preparation::provide`] and try again. `NoSpace`: the log
    /// could not begin for want of room. Nothing was appended in both cases. Others as
    /// [`Wal::append`].
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
        let why = "cannot begin the log: the volume was full at the open; free space on it, then write \
                   once with the engine that opened the store";
        Error::new(ErrorKind::NoSpace, why).at_file(self.base.context.volumes.log_dir())
    }

    /// As [`Log::append`]; also returns the position of the batch's first byte: see
    /// [`LogAddress::at`] and [`LaneReader::read`].
    ///
    /// # Errors
    /// As [`Log::append`].
    #[inline]
    pub fn append_placed(
        &self,
        tenant: TenantId,
        pieces: &[&[u8]],
        seqs: (SeqNo, SeqNo),
        durability: Durability,
    ) -> Result<(Ticket, LogAddress)> {
        let Some(wal) = self.base.wal.get() else { return Err(self.no_room_to_begin()) };
        wal.append_placed(tenant, pieces, seqs, durability, self.base.manifest.durable_edit())
    }

    /// As [`Log::append`], but provides a missing group itself. It waits for nothing else.
    ///
    /// # Errors
    /// As [`Log::append`], without `Busy`.
    pub fn put(
        &self,
        tenant: TenantId,
        pieces: &[&[u8]],
        seqs: (SeqNo, SeqNo),
        durability: Durability,
    ) -> Result<Ticket> {
        self.put_placed(tenant, pieces, seqs, durability).map(|(ticket, _)| ticket)
    }

    /// As [`Log::put`]; also returns the position of the batch's first byte.
    ///
    /// # Errors
    /// As [`Log::put`].
    pub fn put_placed(
        &self,
        tenant: TenantId,
        pieces: &[&[u8]],
        seqs: (SeqNo, SeqNo),
        durability: Durability,
    ) -> Result<(Ticket, LogAddress)> {
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

    /// As [`Preparation::provide`]. After the reserved space was used, it first tries to refill it.
    fn provide_when_whole(&self, batch_len: usize) -> Result<()> {
        match self.preparation.provide(batch_len, LogGroupPurpose::Usual) {
            Err(e) if e.kind() == ErrorKind::NoSpace && self.spares.reserved_is_short() => {
                self.preparation
                    .fill_reserved()
                    .map_err(|why| if why.kind() == ErrorKind::NoSpace { e } else { why })?;
                self.preparation.provide(batch_len, LogGroupPurpose::Usual)
            }
            provided => provided,
        }
    }

    /// Returns once everything up to the ticket is durable.
    ///
    /// # Errors
    /// File system errors, which poison the log.
    pub fn sync(&self, ticket: Ticket) -> Result<()> {
        self.wal().syncer().sync(ticket)
    }

    /// Returns a completion that resolves once everything up to the ticket is durable; at once
    /// without a ticket. A background worker writes the pages. Concurrent requests share a device
    /// write.
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

    /// As [`Log::when_durable`], but resolves the caller's completer.
    pub fn tell_durable(&self, ticket: Ticket, completer: Completer<()>) {
        if self.wal().syncer().when_durable(ticket, completer) {
            self.base.context.signals.notify_work();
        }
    }

    /// Fails all waiting completions once the store is poisoned, because no worker syncs the log
    /// then. A store that is being closed still makes its buffered pages durable.
    pub fn refuse_if_poisoned(&self) {
        if self.base.context.health.outcome_unknown()
            && let Err(why) = self.base.context.health.check()
        {
            self.refuse_wanted(&why);
        }
    }

    /// Fails all completions that wait for durability.
    pub fn refuse_wanted(&self, why: &Error) {
        self.begun().into_iter().for_each(|wal| wal.syncer().refuse_wanted(why));
    }

    /// Returns true if everything up to the ticket is already durable.
    pub fn is_durable(&self, ticket: Ticket) -> bool {
        self.wal().syncer().is_durable(ticket)
    }

    // State of the log, and its parts.

    /// Returns the log, which must have begun.
    #[inline]
    pub fn wal(&self) -> &Wal {
        self.base.wal.get().expect("the log is started before the first write")
    }

    /// Returns the log, or `None` before it has begun.
    #[inline]
    pub fn begun(&self) -> Option<&Wal> {
        self.base.wal.get()
    }

    /// Returns the files of the groups that recovery replays.
    pub fn files(&self) -> &GroupFiles {
        &self.files
    }

    /// Returns the files without a group.
    #[inline]
    pub fn spares(&self) -> &Spares {
        &self.spares
    }

    /// Returns the floors of the engines.
    pub fn floors(&self) -> &Floors {
        &self.floors
    }

    /// Returns the preparation of the next groups.
    pub fn preparation(&self) -> &Preparation {
        &self.preparation
    }

    /// Returns the reader of groups and batches.
    pub fn reader(&self) -> &LaneReader {
        &self.reader
    }

    /// Returns the background work.
    pub fn upkeep(&self) -> &Upkeep {
        &self.upkeep
    }

    /// Returns replay, start and close.
    pub fn recovery(&self) -> &LogRecovery {
        &self.recovery
    }

    /// Returns the lane of this log.
    pub fn lane(&self) -> Lane {
        self.base.lane
    }

    /// Returns the groups that the log has released.
    pub fn stored(&self) -> &StoredGroups {
        &self.stored
    }
}
