//! The space limit: used and allowed bytes, and how the store keeps to the limit.
//!
//! [`Meter`] counts the used bytes as the files change, so no caller has to list the directory.
//! With a [`SpaceLimit`] they never exceed the limit, for an outside observer at any moment. Three
//! mechanisms ensure that:
//!
//! 1. **Admission** (`write::admission`): a write is accepted only if its bytes, now and after its
//!    flush, fit below the limit *beside the reserve*. A refused write has no effect.
//! 2. **Grants**: a compaction or collection starts only if all its possible output fits below the
//!    limit before its inputs are removed. Its written bytes are tracked as its files grow.
//! 3. **The ceiling** of the meter refuses the bytes that an estimate missed, like a full volume.
//!
//! ```text
//!   0        settled             unflushed       fixed  log  deletes   pool          limit
//!   |== files, without what ==|== memtables, ==|======|====|=========|=========|......|
//!      running jobs wrote        as tables       \____________ reserve _________/  room
//! ```
//!
//! The *reserve* is the space for work that frees space. `fixed` is the manifest at its maximum
//! length with its successor, and headers and indexes of flushed tables. The rest is the remaining
//! growth of the log (early flushes bound its live part), a little for deletes, and the pool of the
//! freeing jobs. The pool is the widest compaction and one output of a collection, or the granted
//! bytes if these are more. So a flush always has space (unflushed bytes are counted before they
//! are logged), and one compaction and one collection can always run. Deletes may use the reserve,
//! except for `fixed` and the pool; jobs may use all of it.
//!
//! The bytes that running jobs have written are subtracted from the files, because the pool has
//! them already. Otherwise each job would hold writers up just before it frees space.
//!
//! *Soft*: as `room` falls below a margin, writers are throttled smoothly to the rate at which
//! space is freed (`write::admission::price`). *Hard*: without room, writers wait for running or
//! possible work. Memtables are rotated if that may free space. Compaction selects the tables that
//! free enough for its output, and everything if no other work can make room
//! (`lsm::policy::for_space`). If nothing is left that could free space, the policy decides:
//! `NoSpace`, or wait for a delete. The store need not be reopened afterwards.
//!
//! If the volume has less space left than the limit, the space left is the limit: a store keeps its
//! reserve on a filling volume too. Without a `space_limit` this starts once the volume has little
//! more left than the reserve, unless the volume is so small that the reserve would take half of
//! it.
//!
//! A store may exceed its limit: it was opened with a lower one, or the data of a ratio shrank.
//! Then it accepts deletes and runs jobs up to its needed bytes at the time of detection. That
//! ceiling falls with the store and never rises again.

use super::SpaceLimit;
use super::bounds::Bounds;
use super::ceiling::Ceiling;
use super::claims::{Claims, Demands};
use super::gauges::{Gauges, Memory};
use super::grant::Grants;
use super::own_limit::OwnLimit;
use super::sizes::{Terms, manifest_bytes};
use super::volume::VolumeFill;
use crate::context::Context;
use crate::volumes::Meter;
use base::sync::atomic::{Ordering::SeqCst, fence};
use std::sync::Arc;

/// Used, allowed and granted bytes of a store.
#[derive(Debug)]
pub struct SpaceBudget {
    context: Arc<Context>,
    meter: Arc<Meter>,
    terms: Terms,
    own: Arc<OwnLimit>,
    volume: Arc<VolumeFill>,
    bounds: Arc<Bounds>,
    claims: Arc<Claims>,
    /// Space grants of jobs.
    pub grants: Grants,
    /// Maximum bytes of the files.
    pub ceiling: Ceiling,
    /// Bytes of the memtables.
    pub memory: Arc<Memory>,
    /// Other byte counts.
    pub gauges: Arc<Gauges>,
}

impl SpaceBudget {
    /// Creates the budget of a store whose files the meter of its directory counts.
    pub fn new(context: &Arc<Context>, terms: Terms) -> SpaceBudget {
        let meter = context.volumes.directory().meter.clone();
        let (memory, gauges) = (Arc::<Memory>::default(), Arc::<Gauges>::default());
        let bounds = Arc::new(Bounds::none());
        let volume = Arc::new(VolumeFill::unknown());
        let own = Arc::new(OwnLimit::new(terms.limit, &volume));
        let claims = Arc::new(Claims::new(&meter, &memory, &gauges, terms.sizes));
        SpaceBudget {
            context: context.clone(),
            volume,
            grants: Grants::new(&claims, &bounds),
            ceiling: Ceiling::new(&meter, &own, &bounds),
            meter,
            terms,
            own,
            bounds,
            claims,
            memory,
            gauges,
        }
    }

    /// Returns the meter of the files.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Returns true if there is a limit.
    #[inline]
    pub fn is_limited(&self) -> bool {
        self.bounds.is_limited()
    }

    /// Returns the limit; `u64::MAX`: none.
    #[inline]
    pub fn limit_bytes(&self) -> u64 {
        self.bounds.limit_bytes()
    }

    /// Changes the configured limit, from the next [`SpaceBudget::refresh`] on. A store above a
    /// lower limit accepts deletes, and its jobs shrink it to the limit.
    pub fn set_own_limit(&self, limit: Option<SpaceLimit>) {
        self.own.set(limit);
        fence(SeqCst);
        if self.own.bytes().is_none() {
            self.ceiling.let_files_in();
        }
    }

    /// Recomputes limit, reserve and ceiling after a new version was installed or files were
    /// removed. It also queries the fill of the volume, unless that was done a moment ago.
    /// `demands` is called only if its result matters, with the manifest's length for a roll from
    /// now on.
    ///
    /// Threads may refresh concurrently. One that began with a limit that has changed since may
    /// restore the old bounds, so it begins again. The fences make it see a change whose own
    /// refresh came before its bounds.
    pub fn refresh(&self, demands: impl Fn(u64) -> Demands) {
        loop {
            let own = self.own.get();
            self.refresh_with(own, &demands);
            fence(SeqCst);
            if self.own.get() == own {
                return;
            }
        }
    }

    fn refresh_with(&self, own: Option<SpaceLimit>, demands: impl Fn(u64) -> Demands) {
        self.volume.ask(&self.context, self.meter.used_bytes());
        let volume_limit = self.volume.limit_bytes();
        // Recovered memtables were admitted when they were logged, and the log exists until the end
        // of their flush. So there is no ceiling until then.
        if !self.gauges.serves() {
            return;
        }
        let Some(limit) = own else {
            return self.follow_volume(volume_limit, demands);
        };
        let size = self.own.bytes().unwrap_or(self.meter.used_bytes());
        let state = demands(manifest_bytes(size.min(volume_limit)));
        self.claims.take_in(&state);
        let own = match limit {
            SpaceLimit::Bytes(_) | SpaceLimit::VolumePercent(_) => self.own.bytes().unwrap_or(u64::MAX),
            SpaceLimit::Ratio(ratio) => {
                let more = (state.live_bytes as f64 * (ratio - 1.0)) as u64;
                // A small store gets the space beside its data that it needs to work at all. Of the
                // reserve, which grows with tables and families, it gets no more than the overhead.
                let overhead = self.terms.overhead_bytes;
                let least = overhead.saturating_add(self.reserve_bytes().min(overhead));
                state.live_bytes.saturating_add(more.max(least))
            }
        };
        let ceiling = self.bounds.set_limit(own.min(volume_limit), || self.needed_bytes());
        match self.terms.is_strict {
            true => self.ceiling.bound_files(),
            false => self.ceiling.follow(ceiling),
        }
    }

    /// Applies the volume's limit to a store without a configured one, once it comes near. A volume
    /// full to the last page accepts neither deletes nor outputs of jobs, so nothing could free
    /// space again.
    fn follow_volume(&self, volume_limit: u64, demands: impl Fn(u64) -> Demands) {
        let left = volume_limit.saturating_sub(self.meter.used_bytes());
        let overhead = self.terms.overhead_bytes;
        // The reserve is never larger than the used bytes and the overhead, so a large distance
        // needs no sum.
        let far = left > self.meter.used_bytes().saturating_add(overhead);
        let tiny = volume_limit < overhead.saturating_mul(2);
        if !far && !tiny {
            self.claims.take_in(&demands(manifest_bytes(volume_limit)));
            let (_, margin) = self.room_below(volume_limit);
            // Memtables may be filled before the next check.
            let near = margin.saturating_add(2 * self.terms.sizes.memory_bytes);
            if self.claims.needed_below(volume_limit).saturating_add(near) > volume_limit {
                self.bounds.set_limit(volume_limit, || self.needed_bytes());
                return;
            }
        }
        self.bounds.lift();
    }

    /// Records that the volume refused a write: its last query is out of date.
    pub fn volume_is_full(&self) {
        self.volume.refused();
    }

    /// Queries the volume again if the store is limited and the last query is old: space may return
    /// without a write. Returns true if the result changes the limit; the caller then calls
    /// [`SpaceBudget::refresh`]. The other inputs of the reserve report their own changes.
    pub fn look_again(&self) -> bool {
        if !self.is_limited() || !self.volume.is_old(self.context.now_ns()) {
            return false;
        }
        let most = || self.volume.limit_bytes().min(self.own.bytes().unwrap_or(u64::MAX));
        let before = most();
        self.volume.ask(&self.context, self.meter.used_bytes());
        most() != before
    }

    /// Returns the used bytes of the store's files.
    pub fn used_bytes(&self) -> u64 {
        self.meter.used_bytes()
    }

    /// Returns true if a limit is configured. The volume may limit a store without one.
    #[inline]
    pub fn has_own_limit(&self) -> bool {
        self.own.get().is_some()
    }

    /// Returns the size of the memtables as tables, bytes.
    pub fn unflushed_bytes(&self) -> u64 {
        self.claims.unflushed_bytes()
    }

    /// Returns the bytes kept free for flush, compaction, collection and deletes at the limit; 0
    /// without one.
    pub fn reserve_bytes(&self) -> u64 {
        if self.is_limited() { self.claims.reserve_below(self.limit_bytes()) } else { 0 }
    }

    /// Returns the used and claimed bytes: the files, the memtables as tables, the reserve.
    pub fn needed_bytes(&self) -> u64 {
        self.claims.needed_below(self.limit_bytes())
    }

    /// Returns the room for writes below the limit, and the margin below which writes are
    /// throttled; `None`: no limit.
    #[inline]
    pub fn room(&self) -> Option<(u64, u64)> {
        let limit = self.limit_bytes();
        (limit != u64::MAX).then(|| self.room_below(limit))
    }

    /// Returns true if `bytes` fit beside the used and claimed bytes.
    pub fn has_room_left(&self, bytes: u64) -> bool {
        self.room().is_none_or(|(room, _)| bytes <= room)
    }

    /// Returns room and margin. The margin is a fraction of a configured limit, but minimal for a
    /// volume.
    fn room_below(&self, limit: u64) -> (u64, u64) {
        let part = if self.has_own_limit() { limit / 48 } else { 0 };
        // Space comes and goes in pieces. A margin of a few pieces keeps writers from hitting the
        // limit.
        let piece = self.claims.piece_bytes();
        let margin = part.max((2 * piece).min(limit / 8)).max(1);
        (limit.saturating_sub(self.claims.needed_below(limit)), margin)
    }

    /// Returns true if room is short, or a write waits for so much, that all freeing work should
    /// run.
    pub fn is_short(&self) -> bool {
        let wanted = self.bounds.wanted_bytes();
        self.room().is_some_and(|(room, margin)| room < wanted.max(margin / 2))
    }

    /// Records the bytes that a waiting write requests; 0: the caller knows of no waiting write.
    /// (Other waiting writes ask again, and record their bytes again.)
    pub fn write_waits_for(&self, bytes: u64) {
        self.bounds.want(bytes);
    }

    /// Returns true if there is room for a write of `bytes`.
    pub fn has_room_for_write(&self, bytes: u64) -> bool {
        // New data is live data, so a ratio limit rises with it.
        let rises = matches!(self.own.get(), Some(SpaceLimit::Ratio(_)));
        let limit = self.limit_bytes();
        let needed = self.needed_bytes().saturating_add(bytes);
        !self.is_limited() || needed <= if rises { limit.saturating_add(bytes) } else { limit }
    }

    /// Returns true if there is room for a write of `bytes` that frees more than it uses. It may
    /// use one part in `parts` of the reserve for such writes.
    pub fn has_room_in_reserve(&self, bytes: u64, parts: u64) -> bool {
        let log = self.claims.log_reserve_below(self.limit_bytes()).min(self.terms.sizes.log_group_bytes);
        let own = (log + self.terms.sizes.delete_bytes()) / parts.max(1);
        let needed = self.needed_bytes().saturating_add(bytes);
        !self.is_limited() || needed.saturating_sub(own) <= self.bounds.ceiling_bytes()
    }

    /// Returns the used and claimed bytes in percent of the limit (at 100 writers wait). Without a
    /// limit, it is the fill of the volume; 0 if unknown. Cheap enough for each choice of a job.
    pub fn fill_percent(&self) -> u64 {
        let (used, total) = match self.limit_bytes() {
            u64::MAX => self.volume.fill(),
            limit => (self.needed_bytes(), limit),
        };
        used.saturating_mul(100).checked_div(total).unwrap_or(0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
