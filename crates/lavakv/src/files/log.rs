//! The store's log as seen by LavaKV, which is one of its tenants and runs its background work.
//!
//! [`store::commit`] defines the log, its groups and the handling of a lack of space. LavaKV adds
//! the bound on the log's length, and statistics of writers that waited for a group.

use crate::context::Context;
use crate::context::event::StallCause;
use crate::files::KvFiles;
use base::histogram::Distribution;
use base::sync::OnceLock;
use base::sync::atomic::{AtomicBool, Ordering};
use base::{Result, SeqNo};
use std::ops::Deref;
use std::sync::Arc;
use store::commit::{LogGroupPurpose, LogTerms, TenantId};
use store::manifest::EngineId;
use store::secondary_engine::{CopySource, GuestTimes, ServingEngine};
use store::space::SpaceBudget;
use version::State;
use wal::{Lane, PreparedGroup, RecoveryReport, Wal};

/// Tenant number of LavaKV's batches in the log.
pub const TENANT: TenantId = TenantId::FIRST;

/// The log with LavaKV's additions. See the module.
pub(crate) struct Log {
    log: Arc<store::commit::Log>,
    context: Arc<Context>,
    space: Arc<SpaceBudget>,
    /// The lane of a secondary engine for records, if the store was opened with one.
    records: Option<Arc<store::commit::Log>>,
    /// The secondary engine's part of checkpoints, and its latencies.
    secondary: OnceLock<(Arc<dyn CopySource>, GuestTimes)>,
    /// True if the log exceeds its bound: the next write freezes the family that holds its oldest
    /// group.
    over_bound: AtomicBool,
}

impl Log {
    /// Creates the log. `records`: the terms of a secondary engine's lane, if the store is opened
    /// with one.
    pub fn new(
        context: &Arc<Context>,
        space: &Arc<SpaceBudget>,
        files: &Arc<KvFiles>,
        records: Option<LogTerms>,
    ) -> Log {
        let options = &context.options;
        let terms = LogTerms {
            access: options.access,
            group_bytes: options.expert.log_group_bytes,
            free_groups_max: options.sizes().free_groups_max(),
            loggers: options.expert.loggers,
            // LavaKV retains no groups.
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
            secondary: OnceLock::new(),
            over_bound: AtomicBool::new(false),
        }
    }

    /// Returns the log, for other engines.
    pub fn shared(&self) -> &Arc<store::commit::Log> {
        &self.log
    }

    /// Returns the lane of the secondary engine, if there is one.
    pub fn records(&self) -> Option<&Arc<store::commit::Log>> {
        self.records.as_ref()
    }

    /// Registers the secondary engine, once it serves. Called once.
    pub fn set_guest(&self, served: &ServingEngine) {
        let secondary = (served.copies.clone(), served.times.clone());
        self.secondary.set(secondary).unwrap_or_else(|_| unreachable!("a store is opened once"));
    }

    /// Returns the secondary engine's part of checkpoints, if there is one.
    pub fn secondary(&self) -> Option<&Arc<dyn CopySource>> {
        self.secondary.get().map(|(copies, _)| copies)
    }

    /// Returns the latencies of the secondary engine's operations, in nanoseconds by name.
    pub fn guest_times(&self) -> Vec<(&'static str, Distribution)> {
        self.secondary.get().map_or_else(Vec::new, |(_, times)| times())
    }

    /// Returns a lane, if the store was opened with it.
    pub fn of(&self, lane: Lane) -> Option<&Arc<store::commit::Log>> {
        if lane == Lane::FIRST { Some(&self.log) } else { self.records.as_ref() }
    }

    /// Syncs the secondary engine's lane. A flush must not make an embedded batch durable in tables
    /// before the secondary engine's half of the batch is durable.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn sync_records(&self) -> Result<()> {
        let Some(lane) = self.records.as_ref().and_then(|records| records.begun()) else { return Ok(()) };
        lane.content().last_position().map_or(Ok(()), |last| lane.syncer().sync(last))
    }

    /// Returns whether a spare file of any lane has this number.
    pub fn keeps(&self, number: u64) -> bool {
        [&self.log].into_iter().chain(&self.records).any(|lane| lane.spares().is_kept(number))
    }

    /// Returns the space budget.
    pub fn space(&self) -> &Arc<SpaceBudget> {
        &self.space
    }

    /// Closes all lanes; everything is then durable.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn end(&self) -> Result<()> {
        self.log.wal().close()?;
        self.records.as_ref().and_then(|records| records.begun()).map_or(Ok(()), Wal::close)
    }

    /// Records the ends of all lanes in the manifest.
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

    /// Returns the log, once it has begun.
    pub fn get(&self) -> Option<&Wal> {
        self.log.begun()
    }

    /// Begins the log after recovery.
    pub fn begin(&self, first: PreparedGroup, report: &RecoveryReport) -> Result<()> {
        self.log.recovery().begin(first, report, self.context.options.expert.first_number)?;
        self.space.gauges.set_serves();
        Ok(())
    }

    /// Returns whether the live log exceeds `live_max` because of LavaKV's own data. A flush cannot
    /// release groups held only by other tenants.
    pub fn is_over(&self, live_max: u64) -> bool {
        let live_bytes = self.log.wal().content().live_bytes();
        live_bytes > live_max
            && live_bytes - self.log.reader().held_by_others(TENANT).min(live_bytes) > live_max
    }

    /// Returns whether the log was closed, or sealed by an open that recovered LavaKV's part. Then
    /// no file referenced by the log may be missing.
    pub fn was_closed(state: &State) -> bool {
        let last = state.store.log_groups.chain(Lane::FIRST).rfind(|group| !group.discarded);
        last.is_none_or(|group| group.sealed_end.is_some())
            && !state.store.engines.has_missed(EngineId::NATIVE)
    }

    /// Records that the log exceeds its bound.
    pub fn set_over_bound(&self) {
        self.over_bound.store(true, Ordering::Release);
    }

    /// Returns whether the log exceeded its bound, without resetting the flag. Called by every
    /// write.
    pub fn went_over_bound(&self) -> bool {
        self.over_bound.load(Ordering::Relaxed)
    }

    /// Returns whether the log exceeded its bound, and resets the flag.
    pub fn take_over_bound(&self) -> bool {
        self.over_bound.swap(false, Ordering::AcqRel)
    }

    /// Provides a group for a batch of `batch_len` bytes that fits in none. Records the wait as a
    /// stall.
    pub fn provide(&self, batch_len: usize, need: LogGroupPurpose) -> Result<()> {
        let start_ns = self.context.now_ns();
        let out = self.log.preparation().provide(batch_len, need);
        self.context.record_stall(StallCause::Log, self.context.now_ns() - start_ns);
        out
    }

    /// Releases unneeded groups. `floor` returns LavaKV's floor: everything below is in tables.
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
