//! The store's log as LavaKV holds it: one tenant of it among others, and the one who drives its work.
//!
//! What the log is, its groups and what is done where there is no room is in [`store::commit`]. Here is what LavaKV adds: how
//! long its writers waited for a group, and how long the log may be.

use crate::context::Context;
use crate::context::event::StallCause;
use crate::files::Files;
use base::histogram::Distribution;
use base::sync::OnceLock;
use base::sync::atomic::{AtomicBool, Ordering};
use base::{Result, SeqNo};
use std::ops::Deref;
use std::sync::Arc;
use store::commit::{LogTerms, Need, TenantId};
use store::guest::{Copies, GuestTimes, Served};
use store::manifest::EngineId;
use store::space::SpaceBudget;
use version::State;
use wal::{Lane, PreparedGroup, RecoveryReport, Wal};

/// Under this number LavaKV's batches are in the log.
pub const TENANT: TenantId = TenantId::FIRST;

/// See the module.
pub(crate) struct Log {
    log: Arc<store::commit::Log>,
    context: Arc<Context>,
    space: Arc<SpaceBudget>,
    /// The lane of a guest that keeps records, in a store that was opened with one.
    records: Option<Arc<store::commit::Log>>,
    /// What that guest brings into a checkpoint, and what it times.
    guest: OnceLock<(Arc<dyn Copies>, GuestTimes)>,
    /// The log is longer than its bound: the next write freezes the family that holds its oldest group.
    over_bound: AtomicBool,
}

impl Log {
    /// `records`: how long the groups of the lane of a guest may be, if the store is opened with one.
    pub fn new(
        context: &Arc<Context>,
        space: &Arc<SpaceBudget>,
        files: &Arc<Files>,
        records: Option<LogTerms>,
    ) -> Log {
        let options = &context.options;
        let terms = LogTerms {
            access: options.access,
            group_bytes: options.expert.log_group_bytes,
            free_groups_max: options.sizes().free_groups_max(),
            loggers: options.expert.loggers,
            // It has none.
            retained_open_max: 0,
            aging: options.aging(),
        };
        let of = |lane, terms| {
            Arc::new(store::commit::Log::of_lane(lane, terms, files.store().clone(), space.clone()))
        };
        let (log, records) = (of(Lane::FIRST, terms), records.map(|terms| of(Lane::LOG, terms)));
        Log {
            log,
            context: context.clone(),
            space: space.clone(),
            records,
            guest: OnceLock::new(),
            over_bound: AtomicBool::new(false),
        }
    }

    /// The log, for other engines.
    pub fn shared(&self) -> &Arc<store::commit::Log> {
        &self.log
    }

    /// The lane of the guest, if there is one.
    pub fn records(&self) -> Option<&Arc<store::commit::Log>> {
        self.records.as_ref()
    }

    /// The guest serves. Once.
    pub fn set_guest(&self, served: &Served) {
        let guest = (served.copies.clone(), served.times.clone());
        self.guest.set(guest).unwrap_or_else(|_| unreachable!("a store is opened once"));
    }

    /// What the guest brings into a checkpoint, if there is one.
    pub fn guest(&self) -> Option<&Arc<dyn Copies>> {
        self.guest.get().map(|(copies, _)| copies)
    }

    /// How long the operations of the guest took, nanoseconds by name.
    pub fn guest_times(&self) -> Vec<(&'static str, Distribution)> {
        self.guest.get().map_or_else(Vec::new, |(_, times)| times())
    }

    /// A lane, if the store was opened with it.
    pub fn of(&self, lane: Lane) -> Option<&Arc<store::commit::Log>> {
        if lane == Lane::FIRST { Some(&self.log) } else { self.records.as_ref() }
    }

    /// Returns when all that a guest's batches carry is durable: before it comes into tables, where it would be without the guest's half.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn sync_records(&self) -> Result<()> {
        let Some(lane) = self.records.as_ref().and_then(|records| records.begun()) else { return Ok(()) };
        lane.content().last_position().map_or(Ok(()), |last| lane.syncer().sync(last))
    }

    /// True if a file that no group has is kept under this number, in any lane.
    pub fn keeps(&self, number: u64) -> bool {
        [&self.log].into_iter().chain(&self.records).any(|lane| lane.spares().is_kept(number))
    }

    /// What files may occupy.
    pub fn space(&self) -> &Arc<SpaceBudget> {
        &self.space
    }

    /// Ends all lanes: everything is durable.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn end(&self) -> Result<()> {
        self.log.wal().close()?;
        self.records.as_ref().and_then(|records| records.begun()).map_or(Ok(()), Wal::close)
    }

    /// Says in the manifest where they end.
    ///
    /// # Errors
    /// As [`store::commit::LogRecovery::seal`].
    pub fn seal_all(&self) -> Result<()> {
        self.log.recovery().seal()?;
        self.records
            .as_ref()
            .filter(|records| records.begun().is_some())
            .map_or(Ok(()), |records| records.recovery().seal())
    }

    /// The log, once it has begun.
    pub fn get(&self) -> Option<&Wal> {
        self.log.begun()
    }

    /// The log begins.
    pub fn begin(&self, first: PreparedGroup, report: &RecoveryReport) -> Result<()> {
        self.log.recovery().begin(first, report, self.context.options.expert.first_number)?;
        self.space.gauges.set_serves();
        Ok(())
    }

    /// True if more of the log is live than this, and it would be shorter if LavaKV needed nothing of it: what others hold, no
    /// flush gives back.
    pub fn is_over(&self, live_max: u64) -> bool {
        let live_bytes = self.log.wal().content().live_bytes();
        live_bytes > live_max
            && live_bytes - self.log.reader().held_by_others(TENANT).min(live_bytes) > live_max
    }

    /// True if the log was closed, or ended by an opening that recovered LavaKV's part of it. Then no file that the log refers to
    /// may be missing.
    pub fn was_closed(state: &State) -> bool {
        let last = state.store.log_groups.chain(Lane::FIRST).rfind(|group| !group.discarded);
        last.is_none_or(|group| group.sealed_end.is_some())
            && !state.store.engines.has_missed(EngineId::NATIVE)
    }

    /// The log has become longer than its bound.
    pub fn set_over_bound(&self) {
        self.over_bound.store(true, Ordering::Release);
    }

    /// True after the log has become longer than its bound, until that is taken. Every write asks.
    pub fn went_over_bound(&self) -> bool {
        self.over_bound.load(Ordering::Relaxed)
    }

    /// True once after the log had become longer than its bound.
    pub fn take_over_bound(&self) -> bool {
        self.over_bound.swap(false, Ordering::AcqRel)
    }

    /// Called by a writer whose batch of `batch_len` bytes found no group to go to.
    pub fn provide(&self, batch_len: usize, need: Need) -> Result<()> {
        let start_ns = self.context.now_ns();
        let out = self.log.preparation().provide(batch_len, need);
        self.context.record_stall(StallCause::Log, self.context.now_ns() - start_ns);
        out
    }

    /// Drops the groups that nobody needs, where LavaKV needs nothing below the floor that it is asked for: that is in tables.
    pub fn release(&self, floor: impl FnOnce() -> SeqNo) -> Result<()> {
        self.log.upkeep().release(|| {
            let floor = floor();
            self.log.floors().tell(TENANT, floor);
            if let Some(records) = self.records.as_ref() {
                records.floors().tell(TENANT, floor);
            }
        })
    }
}

impl Deref for Log {
    type Target = store::commit::Log;
    fn deref(&self) -> &store::commit::Log {
        &self.log
    }
}
