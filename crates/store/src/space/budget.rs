//! The space contract: how much the store occupies, how much it may, and how it keeps to that.
//!
//! What is occupied is kept by [`Meter`] as the files change; nobody lists the directory to know it. With
//! a [`SpaceLimit`] it never exceeds the limit, seen from outside at any moment. Three
//! parts see to that:
//!
//! 1. **Admission** (`write::admission`): a write is taken only if what it will occupy, now and when it is flushed, fits below
//!    the limit *beside the reserve*. Nothing of a write that is refused was done.
//! 2. **Grants**: a compaction or collection starts only if all that it may write fits below the limit before its inputs
//!    are gone. What it has written is watched as its files grow.
//! 3. **The ceiling** of the meter refuses what an estimate had wrong, as a full volume would.
//!
//! ```text
//!   0        settled             unflushed       fixed  log  deletes   pool          limit
//!   |== files, without what ==|== memtables, ==|======|====|=========|=========|......|
//!      running jobs wrote        as tables       \____________ reserve _________/  room
//! ```
//!
//! The *reserve* is what the way out needs: `fixed` (the manifest, as long as it may become, and its next file beside it;
//! headers and indexes of what is flushed), what the log may still grow by (its live part is bounded by early flushes), a
//! little for deletes, and the pool of the jobs that free space: the
//! widest compaction and one output of a collection, or what is granted, if that is more. So flush always has room (unflushed
//! bytes are counted before they are logged), and one compaction and one collection can always run. Deletes are admitted
//! into the reserve, except for `fixed` and the pool; jobs into all of it.
//!
//! *Soft*: as `room` falls below a margin, writers are slowed down smoothly to the rate at which space is freed
//! (`write::admission::price`). *Hard*: with no room, writers wait for running or possible work; memtables are frozen if that may free
//! something; compaction takes down what frees enough for what it writes, and everything where nothing else can make room
//! (`lsm::policy::for_space`). If nothing is left that could free anything, the policy decides: `NoSpace`, or wait for somebody to delete. Nothing has to be reopened afterwards.
//!
//! Where the volume has less left than the limit, what it has left is the limit: a store keeps its reserve on a volume that
//! fills up, too. Without a `space_limit` it does so from the moment the volume has little more left than the reserve,
//! unless the volume is so small that the reserve would take half of it.
//!
//! A store above its limit (opened with a lower one, or a ratio of data that became less) takes deletes and runs jobs up to
//! what it and its reserve occupied when that was found; that ceiling comes down with the store and never rises again.

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

/// What the store occupies and may occupy, and what running jobs were granted of it.
#[derive(Debug)]
pub struct SpaceBudget {
    context: Arc<Context>,
    meter: Arc<Meter>,
    terms: Terms,
    own: Arc<OwnLimit>,
    volume: Arc<VolumeFill>,
    bounds: Arc<Bounds>,
    claims: Arc<Claims>,
    /// What jobs may write.
    pub grants: Grants,
    /// The most that the files may occupy.
    pub ceiling: Ceiling,
    /// What users of the space say.
    pub memory: Arc<Memory>,
    /// What else they say.
    pub gauges: Arc<Gauges>,
}

impl SpaceBudget {
    /// The budget of a store whose files are counted by the meter of its directory.
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

    /// The count of the files.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// True if there is a limit.
    #[inline]
    pub fn is_limited(&self) -> bool {
        self.bounds.is_limited()
    }

    /// The limit; `u64::MAX`: none.
    #[inline]
    pub fn limit_bytes(&self) -> u64 {
        self.bounds.limit_bytes()
    }

    /// Changes the limit. It holds from the next [`SpaceBudget::refresh`] on. A store above a lower limit takes deletes, and comes down
    /// to it by its jobs.
    pub fn set_own_limit(&self, limit: Option<SpaceLimit>) {
        self.own.set(limit);
        fence(SeqCst);
        if self.own.bytes().is_none() {
            self.ceiling.let_files_in();
        }
    }

    /// Takes note of a version that was installed, and of files that were removed: sets limit, reserve and ceiling anew,
    /// and asks the volume how full it is, unless it was asked a moment ago. `demands` is asked only where the answer matters, and told at how many bytes the manifest is rolled from now on.
    ///
    /// Threads refresh beside each other. One that began with a limit that has changed since may bring the old bounds back, so it
    /// begins again. The fences make it see a change whose own refresh came before its bounds.
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
        // What recovery flushes was admitted when it was logged, and the log is there until the end of it: so long there is no
        // ceiling.
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
                // What a small store needs besides its data to go on at all, it is granted: of the reserve, which grows
                // with tables and families, no more than there is overhead.
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

    /// Without a limit of its own a store has that of the volume, as soon as it comes near: a volume that is full to the
    /// last page takes neither deletes nor outputs of jobs, and nothing would ever make room again.
    fn follow_volume(&self, volume_limit: u64, demands: impl Fn(u64) -> Demands) {
        let left = volume_limit.saturating_sub(self.meter.used_bytes());
        let overhead = self.terms.overhead_bytes;
        // No reserve is larger than what is there. It is summed only where it may matter.
        let far = left > self.meter.used_bytes().saturating_add(overhead);
        let tiny = volume_limit < overhead.saturating_mul(2);
        if !far && !tiny {
            self.claims.take_in(&demands(manifest_bytes(volume_limit)));
            let (_, margin) = self.room_below(volume_limit);
            // Until it is looked at again, memtables may be filled.
            let near = margin.saturating_add(2 * self.terms.sizes.memory_bytes);
            if self.claims.needed_below(volume_limit).saturating_add(near) > volume_limit {
                self.bounds.set_limit(volume_limit, || self.needed_bytes());
                return;
            }
        }
        self.bounds.lift();
    }

    /// The volume refused something: what it said before is past.
    pub fn volume_is_full(&self) {
        self.volume.refused();
    }

    /// Room may have come back while nobody wrote: a store that is short of it asks now and then, before it looks for work.
    /// True if what the volume has matters, and has changed: then the store is to be looked at anew ([`SpaceBudget::refresh`]).
    /// What else the reserve follows from has not changed since somebody said so.
    pub fn look_again(&self) -> bool {
        if !self.is_limited() || !self.volume.is_old(self.context.now_ns()) {
            return false;
        }
        let most = || self.volume.limit_bytes().min(self.own.bytes().unwrap_or(u64::MAX));
        let before = most();
        self.volume.ask(&self.context, self.meter.used_bytes());
        most() != before
    }

    /// Bytes that the store's files occupy now.
    pub fn used_bytes(&self) -> u64 {
        self.meter.used_bytes()
    }

    /// True if somebody set a limit. There may be one without that: the end of the volume.
    #[inline]
    pub fn has_own_limit(&self) -> bool {
        self.own.get().is_some()
    }

    /// What the memtables will be as tables, bytes.
    pub fn unflushed_bytes(&self) -> u64 {
        self.claims.unflushed_bytes()
    }

    /// Bytes that are kept free so that flush, compaction, collection and deletes can go on at the limit; 0 without one.
    pub fn reserve_bytes(&self) -> u64 {
        if self.is_limited() { self.claims.reserve_below(self.limit_bytes()) } else { 0 }
    }

    /// What is used or claimed: the files, the memtables as tables, the reserve.
    pub fn needed_bytes(&self) -> u64 {
        self.claims.needed_below(self.limit_bytes())
    }

    /// What is left for writes before the limit, and how much is so little that they are slowed down; `None`: no limit.
    #[inline]
    pub fn room(&self) -> Option<(u64, u64)> {
        let limit = self.limit_bytes();
        (limit != u64::MAX).then(|| self.room_below(limit))
    }

    /// True if so many bytes more fit beside what is used or spoken for.
    pub fn has_room_left(&self, bytes: u64) -> bool {
        self.room().is_none_or(|(room, _)| bytes <= room)
    }

    /// The margin is a part of a limit that somebody set; of a volume it is no more than it must be.
    fn room_below(&self, limit: u64) -> (u64, u64) {
        let part = if self.has_own_limit() { limit / 48 } else { 0 };
        // Space comes and goes in pieces: a few of them keep writers from running into the limit.
        let piece = self.claims.piece_bytes();
        let margin = part.max((2 * piece).min(limit / 8)).max(1);
        (limit.saturating_sub(self.claims.needed_below(limit)), margin)
    }

    /// True if room is so short, or a write waits for so much, that everything should be done that frees some.
    pub fn is_short(&self) -> bool {
        let wanted = self.bounds.wanted_bytes();
        self.room().is_some_and(|(room, margin)| room < wanted.max(margin / 2))
    }

    /// A write waits for so many bytes; 0: none does any more, as far as who says so knows. (Others that wait ask again, and say
    /// so again.)
    pub fn write_waits_for(&self, bytes: u64) {
        self.bounds.want(bytes);
    }

    /// True if there is room for a write of so many bytes.
    pub fn has_room_for_write(&self, bytes: u64) -> bool {
        // What is new is live: a ratio rises with it.
        let rises = matches!(self.own.get(), Some(SpaceLimit::Ratio(_)));
        let limit = self.limit_bytes();
        let needed = self.needed_bytes().saturating_add(bytes);
        !self.is_limited() || needed <= if rises { limit.saturating_add(bytes) } else { limit }
    }

    /// True if there is room for a write of so many bytes that frees more than it takes. It may use one part in `parts` of the reserve
    /// for such writes.
    pub fn has_room_in_reserve(&self, bytes: u64, parts: u64) -> bool {
        let log = self.claims.log_reserve_below(self.limit_bytes()).min(self.terms.sizes.log_group_bytes);
        let own = (log + self.terms.sizes.delete_bytes()) / parts.max(1);
        let needed = self.needed_bytes().saturating_add(bytes);
        !self.is_limited() || needed.saturating_sub(own) <= self.bounds.ceiling_bytes()
    }

    /// What is used or spoken for in percent of the limit (at 100 writers wait), or what is used of the volume where no
    /// limit is set; 0 as long as nobody knows. Cheap: to be asked whenever a job is picked.
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
