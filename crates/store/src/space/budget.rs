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
//! (`throttle`). *Hard*: with no room, writers wait for running or possible work; memtables are frozen if that may free
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
use super::gauges::{Gauges, Memory};
use super::grant::{Grant, Granted};
use super::sizes::{EDITS_BYTES, Terms, manifest_bytes, with_overhead, without_overhead};
use crate::context::Context;
use crate::volumes::Meter;
use base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

/// What the store occupies and may occupy, and what running jobs were granted of it.
#[derive(Debug)]
pub struct SpaceBudget {
    context: Arc<Context>,
    meter: Arc<Meter>,
    terms: Terms,
    volume: VolumeFill,
    bounds: Bounds,
    sums: Sums,
    pub(super) jobs: Granted,
    /// What users of the space say.
    pub memory: Memory,
    /// What else they say.
    pub gauges: Gauges,
}

/// What the volume said when it was last asked.
#[derive(Debug)]
struct VolumeFill {
    bytes: AtomicU64,
    used_bytes: AtomicU64,
    /// What the store may occupy of the volume.
    limit_bytes: AtomicU64,
    /// When it is to be asked again, in clock nanoseconds.
    ask_at_ns: AtomicU64,
    /// What the store occupied when it was last asked.
    asked_bytes: AtomicU64,
}

#[derive(Debug)]
struct Bounds {
    /// `u64::MAX`: none.
    limit_bytes: AtomicU64,
    /// See the module; `u64::MAX`: none. Never below the limit.
    ceiling_bytes: AtomicU64,
    /// What a waiting write asks for.
    wanted_bytes: AtomicU64,
}

/// Of what the state of the store asks for ([`Demands`]): what is asked for again and again.
#[derive(Debug, Default)]
struct Sums {
    pool_bytes: AtomicU64,
    table_share: AtomicU64,
    fixed_bytes: AtomicU64,
    collected_bytes: AtomicU64,
}

/// What the state of the store asks for: sums over its families, which are theirs to work out.
#[derive(Debug, Default)]
pub struct Demands {
    /// The widest compaction and one output of a collection, without what is not flushed.
    pub pool_bytes: u64,
    /// What part of unflushed bytes may make the widest compaction or an output of a collection larger, in 1024ths.
    pub table_share: u64,
    /// What the manifest may grow by, and what the families flush besides their data.
    pub fixed_bytes: u64,
    /// The longest output of a collection: space is freed in such pieces.
    pub collected_bytes: u64,
    /// What is live of tables and values.
    pub live_bytes: u64,
}

/// The volume is asked how full it is at most this often, in nanoseconds of the clock,
pub const ASK_NS: u64 = 100_000_000;
/// or when the store has changed by this part of what the volume had left.
const ASK_PART: u64 = 16;

/// What of a ceiling is left to all but the manifest.
fn without_edits(ceiling: u64) -> u64 {
    ceiling.saturating_sub(EDITS_BYTES)
}

impl SpaceBudget {
    /// The budget of a store whose files are counted by the meter of its directory.
    pub fn new(context: &Arc<Context>, terms: Terms) -> SpaceBudget {
        SpaceBudget {
            context: context.clone(),
            meter: context.volumes.directory().meter.clone(),
            terms,
            volume: VolumeFill {
                bytes: AtomicU64::new(0),
                used_bytes: AtomicU64::new(0),
                limit_bytes: AtomicU64::new(u64::MAX),
                ask_at_ns: AtomicU64::new(0),
                asked_bytes: AtomicU64::new(0),
            },
            bounds: Bounds {
                limit_bytes: AtomicU64::new(u64::MAX),
                ceiling_bytes: AtomicU64::new(u64::MAX),
                wanted_bytes: AtomicU64::new(0),
            },
            sums: Sums::default(),
            jobs: Granted::default(),
            memory: Memory::default(),
            gauges: Gauges::default(),
        }
    }

    /// The count of the files.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// True if there is a limit.
    #[inline]
    pub fn is_limited(&self) -> bool {
        self.bounds.limit_bytes.load(Relaxed) != u64::MAX
    }

    /// The limit; `u64::MAX`: none.
    #[inline]
    pub fn limit_bytes(&self) -> u64 {
        self.bounds.limit_bytes.load(Relaxed)
    }

    /// Takes note of a version that was installed, and of files that were removed: sets limit, reserve and ceiling anew,
    /// and asks the volume how full it is, unless it was asked a moment ago. `demands` is asked only where the answer matters, and told at how many bytes the manifest is rolled from now on.
    pub fn refresh(&self, demands: impl FnOnce(u64) -> Demands) {
        self.ask_volume();
        let volume_limit = self.volume.limit_bytes.load(Relaxed);
        // What recovery flushes was admitted when it was logged, and the log is there until the end of it: so long there is no
        // ceiling.
        if !self.gauges.serves() {
            return;
        }
        let Some(limit) = self.terms.limit else {
            return self.follow_volume(volume_limit, demands);
        };
        let size = if let SpaceLimit::Bytes(bytes) = limit { bytes } else { self.meter.used_bytes() };
        let exact = matches!(limit, SpaceLimit::Bytes(_));
        let state = self.take_in(demands(manifest_bytes(size.min(volume_limit))));
        let own = match limit {
            SpaceLimit::Bytes(bytes) => bytes,
            SpaceLimit::Ratio(ratio) => {
                let more = (state.live_bytes as f64 * (ratio - 1.0)) as u64;
                // What a small store needs besides its data to go on at all, it is granted: of the reserve, which grows
                // with tables and families, no more than there is overhead.
                let overhead = self.terms.overhead_bytes;
                let least = overhead.saturating_add(self.reserve_bytes().min(overhead));
                state.live_bytes.saturating_add(more.max(least))
            }
        };
        let ceiling = self.set_limit(own.min(volume_limit));
        if self.terms.is_strict {
            return self.bound_files();
        }
        // A ratio is of what is only estimated. A volume has a ceiling of its own.
        // What the manifest writes is never refused: its part of the reserve is for no other file.
        self.meter.set_ceiling(if exact { without_edits(ceiling.max(own)) } else { u64::MAX });
    }

    /// The ceiling of a store that keeps to its limit strictly ([`Terms::is_strict`]), and of any store while its logs begin.
    ///
    /// What the manifest writes is never refused, so the last of the room is for nothing else. Found above that, with a limit that was
    /// lowered or files that were let in ([`SpaceBudget::let_files_in`]), the store occupies no more than it does, and less with each file that goes.
    pub fn bound_files(&self) {
        self.bound_files_beside(0);
    }

    /// The same while so many bytes of files are still to be made that are never refused: those of open pages, of a log that is to begin.
    pub fn bound_files_beside(&self, unmade_bytes: u64) {
        let Some(SpaceLimit::Bytes(own)) = self.terms.limit else { return };
        let below = without_edits(own.min(self.limit_bytes())).saturating_sub(unmade_bytes);
        let most = self.meter.ceiling().min(self.meter.used_bytes());
        self.meter.set_ceiling(below.max(most));
    }

    /// The ceiling while what was recovered is flushed. It was admitted when it was logged, so nothing is refused; but a guest's trims may have
    /// taken the room: beside one a store that is found below the limit stays below it.
    pub fn bound_recovery(&self, beside_guest: bool) {
        match self.terms.limit {
            Some(SpaceLimit::Bytes(own)) if beside_guest && self.used_bytes() <= own => self.bound_files(),
            _ => self.let_files_in(),
        }
    }

    /// Refuses no file until [`SpaceBudget::bound_files`]: a store is opened whatever it occupies, or nobody could free anything.
    pub fn let_files_in(&self) {
        self.meter.set_ceiling(u64::MAX);
    }

    fn take_in(&self, state: Demands) -> Demands {
        self.sums.pool_bytes.store(state.pool_bytes, Relaxed);
        self.sums.table_share.store(state.table_share, Relaxed);
        self.sums.fixed_bytes.store(state.fixed_bytes, Relaxed);
        self.sums.collected_bytes.store(state.collected_bytes, Relaxed);
        state
    }

    /// Sets the limit, and returns the ceiling: above the limit as long as the store is.
    fn set_limit(&self, limit: u64) -> u64 {
        self.bounds.limit_bytes.store(limit, Relaxed);
        let before = self.bounds.ceiling_bytes.load(Relaxed);
        // What deletes may take of the reserve does not lower it: what is needed may still grow, as levels do, and the way out with it.
        let ceiling = limit.max(before.min(self.needed_bytes()));
        self.bounds.ceiling_bytes.store(ceiling, Relaxed);
        ceiling
    }

    /// The last process of this store had this ceiling ([`SpaceBudget::ceiling_to_tell`]): it does not rise because the store is opened again.
    /// A guest's trims may have taken all of the reserve at the limit, so what is needed beside the files does not say that a limit was
    /// lowered. Of a store whose files are above the ceiling nothing is believed: somebody let them in.
    pub fn take_ceiling(&self, bytes: u64) {
        if self.meter.used_bytes() <= bytes {
            self.bounds.ceiling_bytes.fetch_min(bytes, Relaxed);
        }
    }

    /// What the next process is to know of the ceiling, beside the one that it would read now; `None`: nothing else. With a limit that somebody
    /// set in bytes the ceiling is that or above, and `u64::MAX` without.
    pub fn ceiling_to_tell(&self, told: u64) -> Option<u64> {
        let ceiling = match self.terms.limit {
            Some(SpaceLimit::Bytes(own)) => self.bounds.ceiling_bytes.load(Relaxed).max(own),
            _ => u64::MAX,
        };
        (ceiling != told).then_some(ceiling)
    }

    /// True as long as the ceiling is above the limit that somebody set.
    pub fn is_above_limit(&self) -> bool {
        let ceiling = self.bounds.ceiling_bytes.load(Relaxed);
        matches!(self.terms.limit, Some(SpaceLimit::Bytes(own)) if ceiling > own)
    }

    /// Without a limit of its own a store has that of the volume, as soon as it comes near: a volume that is full to the
    /// last page takes neither deletes nor outputs of jobs, and nothing would ever make room again.
    fn follow_volume(&self, volume_limit: u64, demands: impl FnOnce(u64) -> Demands) {
        let left = volume_limit.saturating_sub(self.meter.used_bytes());
        let overhead = self.terms.overhead_bytes;
        // No reserve is larger than what is there. It is summed only where it may matter.
        let far = left > self.meter.used_bytes().saturating_add(overhead);
        let tiny = volume_limit < overhead.saturating_mul(2);
        if !far && !tiny {
            self.take_in(demands(manifest_bytes(volume_limit)));
            let (_, margin) = self.room_below(volume_limit);
            // Until it is looked at again, memtables may be filled.
            let near = margin.saturating_add(2 * self.terms.sizes.memory_bytes);
            if self.needed_below(volume_limit).saturating_add(near) > volume_limit {
                self.set_limit(volume_limit);
                return;
            }
        }
        self.bounds.limit_bytes.store(u64::MAX, Relaxed);
        self.bounds.ceiling_bytes.store(u64::MAX, Relaxed);
    }

    /// The volume refused something: what it said before is past.
    pub fn volume_is_full(&self) {
        self.volume.ask_at_ns.store(0, Relaxed);
    }

    /// Room may have come back while nobody wrote: a store that is short of it asks now and then, before it looks for work.
    /// True if what the volume has matters, and has changed: then the store is to be looked at anew ([`SpaceBudget::refresh`]).
    /// What else the reserve follows from has not changed since somebody said so.
    pub fn look_again(&self) -> bool {
        if !self.is_limited() || self.context.now_ns() < self.volume.ask_at_ns.load(Relaxed) {
            return false;
        }
        let own = match self.terms.limit {
            Some(SpaceLimit::Bytes(bytes)) => bytes,
            _ => u64::MAX,
        };
        let most = || self.volume.limit_bytes.load(Relaxed).min(own);
        let before = most();
        self.ask_volume();
        most() != before
    }

    fn ask_volume(&self) {
        let now_ns = self.context.now_ns();
        let used = self.meter.used_bytes();
        let (then, limit) = (self.volume.asked_bytes.load(Relaxed), self.volume.limit_bytes.load(Relaxed));
        let moved = used.abs_diff(then) > limit.saturating_sub(then) / ASK_PART;
        if now_ns < self.volume.ask_at_ns.load(Relaxed) && !moved {
            return;
        }
        self.volume.asked_bytes.store(used, Relaxed);
        self.volume.ask_at_ns.store(now_ns + ASK_NS, Relaxed);
        // A volume that does not say is taken for what it was.
        let Ok(space) = self.context.env.fs.space(&self.context.dir) else { return };
        self.volume.bytes.store(space.total, Relaxed);
        self.volume.used_bytes.store(space.total.saturating_sub(space.available), Relaxed);
        self.volume.limit_bytes.store(used.saturating_add(space.available), Relaxed);
    }

    /// A job that may write the outputs of `input_bytes` may start; `None`: not now. Under the lock of what is in progress.
    pub fn grant(self: &Arc<Self>, input_bytes: u64) -> Option<Grant> {
        let bytes = with_overhead(input_bytes);
        self.fits_job(bytes).then(|| Grant::new(self, bytes))
    }

    /// True if a job could start that writes the outputs of `input_bytes`.
    pub fn would_grant(&self, input_bytes: u64) -> bool {
        self.fits_job(with_overhead(input_bytes))
    }

    /// How long the input of a job may be that may start now; `u64::MAX` without a limit.
    pub fn job_bytes_max(&self) -> u64 {
        if !self.is_limited() {
            return u64::MAX;
        }
        let others = self.settled_bytes() + self.unflushed_bytes() + self.sums.fixed_bytes.load(Relaxed);
        let taken = others.saturating_add(self.jobs.granted_bytes.load(Relaxed));
        without_overhead(self.bounds.ceiling_bytes.load(Relaxed).saturating_sub(taken))
    }

    /// True if a file of `bytes` may be made that is nobody's output.
    pub fn fits_job(&self, bytes: u64) -> bool {
        self.fits_beside(self.jobs.granted_bytes.load(Relaxed), bytes)
    }

    /// True if a file of `bytes` may be made that stays and frees nothing: what the jobs that free space need is left to them.
    pub fn fits_file(&self, bytes: u64) -> bool {
        self.fits_beside(self.pool_bytes(), bytes)
    }

    fn fits_beside(&self, jobs_bytes: u64, bytes: u64) -> bool {
        if !self.is_limited() {
            return true;
        }
        let others = self.settled_bytes() + self.unflushed_bytes() + self.sums.fixed_bytes.load(Relaxed);
        others.saturating_add(jobs_bytes).saturating_add(bytes) <= self.bounds.ceiling_bytes.load(Relaxed)
    }

    /// What a flush writes was admitted with the writes: it starts whatever there is.
    pub fn watch(self: &Arc<Self>) -> Grant {
        Grant::new(self, 0)
    }

    /// Bytes that running jobs are granted, and bytes that they have written.
    pub fn job_sums(&self) -> (u64, u64) {
        (self.jobs.granted_bytes.load(Relaxed), self.jobs.written_bytes.load(Relaxed))
    }

    /// Bytes that the store's files occupy now.
    pub fn used_bytes(&self) -> u64 {
        self.meter.used_bytes()
    }

    /// True if somebody set a limit. There may be one without that: the end of the volume.
    #[inline]
    pub fn has_own_limit(&self) -> bool {
        self.terms.limit.is_some()
    }

    /// Those that running jobs have not begun to write.
    fn settled_bytes(&self) -> u64 {
        self.used_bytes().saturating_sub(self.jobs.written_bytes.load(Relaxed))
    }

    /// What the memtables will be as tables, bytes.
    pub fn unflushed_bytes(&self) -> u64 {
        let bytes = self.memory.used();
        bytes + bytes / 8
    }

    /// What may be used by the jobs that free space.
    fn pool_bytes(&self) -> u64 {
        let share = self.unflushed_bytes() / 1024 * self.sums.table_share.load(Relaxed);
        let pool = self.sums.pool_bytes.load(Relaxed).saturating_add(share);
        pool.max(self.jobs.granted_bytes.load(Relaxed))
    }

    /// Bytes by which the log may still grow below a limit.
    fn log_reserve_below(&self, limit_bytes: u64) -> u64 {
        self.terms.sizes.log_bytes_max(limit_bytes).saturating_sub(self.gauges.log_bytes(wal::Lane::FIRST))
    }

    /// What flush, compaction, collection and deletes need to go on at a limit.
    fn way_out_below(&self, limit_bytes: u64) -> u64 {
        let fixed = self.sums.fixed_bytes.load(Relaxed);
        let log = self.log_reserve_below(limit_bytes);
        fixed + log + self.terms.sizes.delete_bytes() + self.pool_bytes()
    }

    /// Bytes that are kept free so that flush, compaction, collection and deletes can go on at the limit; 0 without one.
    pub fn reserve_bytes(&self) -> u64 {
        if self.is_limited() { self.way_out_below(self.limit_bytes()) } else { 0 }
    }

    /// What is used or spoken for: the files, the memtables as tables, the reserve.
    pub fn needed_bytes(&self) -> u64 {
        self.needed_below(self.limit_bytes())
    }

    fn needed_below(&self, limit_bytes: u64) -> u64 {
        self.settled_bytes() + self.unflushed_bytes() + self.way_out_below(limit_bytes)
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
        let piece = self.sums.collected_bytes.load(Relaxed).max(self.terms.sizes.memtable_bytes);
        let margin = part.max((2 * piece).min(limit / 8)).max(1);
        (limit.saturating_sub(self.needed_below(limit)), margin)
    }

    /// True if room is so short, or a write waits for so much, that everything should be done that frees some.
    pub fn is_short(&self) -> bool {
        let wanted = self.bounds.wanted_bytes.load(Relaxed);
        self.room().is_some_and(|(room, margin)| room < wanted.max(margin / 2))
    }

    /// A write waits for so many bytes; 0: none does any more, as far as who says so knows. (Others that wait ask again, and say
    /// so again.)
    pub fn write_waits_for(&self, bytes: u64) {
        match bytes {
            0 => self.bounds.wanted_bytes.store(0, Relaxed),
            bytes => drop(self.bounds.wanted_bytes.fetch_max(bytes, Relaxed)),
        }
    }

    /// True if there is room for a write of so many bytes.
    pub fn has_room_for_write(&self, bytes: u64) -> bool {
        // What is new is live: a ratio rises with it.
        let rises = matches!(self.terms.limit, Some(SpaceLimit::Ratio(_)));
        let limit = self.limit_bytes();
        let needed = self.needed_bytes().saturating_add(bytes);
        !self.is_limited() || needed <= if rises { limit.saturating_add(bytes) } else { limit }
    }

    /// True if there is room for a write of so many bytes that only deletes.
    pub fn has_room_for_delete(&self, bytes: u64) -> bool {
        let log = self.log_reserve_below(self.limit_bytes()).min(self.terms.sizes.log_group_bytes);
        let own = log + self.terms.sizes.delete_bytes();
        let needed = self.needed_bytes().saturating_add(bytes);
        !self.is_limited() || needed.saturating_sub(own) <= self.bounds.ceiling_bytes.load(Relaxed)
    }

    /// What is used or spoken for in percent of the limit (at 100 writers wait), or what is used of the volume where no
    /// limit is set; 0 as long as nobody knows. Cheap: to be asked whenever a job is picked.
    pub fn fill_percent(&self) -> u64 {
        let (used, total) = match self.limit_bytes() {
            u64::MAX => (self.volume.used_bytes.load(Relaxed), self.volume.bytes.load(Relaxed)),
            limit => (self.needed_bytes(), limit),
        };
        used.saturating_mul(100).checked_div(total).unwrap_or(0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
