//! The space contract: how much the store occupies, how much it may, and how it keeps to that.
//!
//! What is occupied is kept by [`Meter`] as the files change; nobody lists the directory to know it. With
//! [`Options::space_limit`](crate::Options::space_limit) it never exceeds the limit, seen from outside at any moment. Three
//! parts see to that:
//!
//! 1. **Admission** ([`admission`]): a write is taken only if what it will occupy, now and when it is flushed, fits below
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
//! headers and indexes of what is flushed), what the log may still grow by (its live part is bounded by early flushes), the
//! tails of values that are placed in it (`placement`), a little for deletes, and the pool of the jobs that free space: the
//! widest compaction and one output of a collection, or what is granted, if that is more. So flush always has room (unflushed
//! bytes are counted before they are logged), and one compaction and one collection can always run. Deletes are admitted
//! into the reserve, except for `fixed` and the pool; jobs into all of it.
//!
//! *Soft*: as `room` falls below a margin, writers are slowed down smoothly to the rate at which space is freed
//! (`throttle`). *Hard*: with no room, writers wait for running or possible work; memtables are frozen if that may free
//! something; compaction takes down what frees enough for what it writes, and everything where nothing else can make room
//! (`lsm::policy::space`). If nothing is left that could free anything, the policy decides: `NoSpace`, or wait for somebody to delete. Nothing has to be reopened afterwards.
//!
//! Where the volume has less left than the limit, what it has left is the limit: a store keeps its reserve on a volume that
//! fills up, too. Without a `space_limit` it does so from the moment the volume has little more left than the reserve,
//! unless the volume is so small that the reserve would take half of it.
//!
//! A store above its limit (opened with a lower one, or a ratio of data that became less) takes deletes and runs jobs up to
//! what it and its reserve occupied when that was found; that ceiling comes down with the store and never rises again.

use crate::context::options::{FamilyOptions, Options, SpaceLimit};
use crate::engine::Engine;
use crate::files::log_groups::{ballast_bytes, free_groups_max};
use crate::large::placement;
use crate::space::metered_fs::{Meter, MeteredFs};
use base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use base::{Error, Result};
use fit::Fit;
use io::Env;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) mod admission;
pub(crate) mod fit;

/// What the store occupies and may occupy, and what running jobs were granted of it.
#[derive(Debug)]
pub(crate) struct SpaceBudget {
    meter: Arc<Meter>,
    fit: Fit,
    volume_bytes: AtomicU64,
    volume_used_bytes: AtomicU64,
    /// What the store may occupy of the volume.
    volume_limit_bytes: AtomicU64,
    /// When the volume is to be asked again, in clock nanoseconds.
    ask_at_ns: AtomicU64,
    /// What the store occupied when it was last asked.
    asked_bytes: AtomicU64,
    /// `u64::MAX`: none.
    limit_bytes: AtomicU64,
    /// See the module; `u64::MAX`: none. Never below the limit.
    ceiling_bytes: AtomicU64,
    /// The widest compaction and one output of a collection, without what is not flushed.
    pool_bytes: AtomicU64,
    /// What part of unflushed bytes may make the widest compaction or an output of a collection larger, in 1024ths.
    table_share: AtomicU64,
    fixed_bytes: AtomicU64,
    /// Tails of values that are placed in the log: the part of them for which room is kept.
    tails_bytes: AtomicU64,
    /// The longest output of a collection: space is freed in such pieces.
    collected_bytes: AtomicU64,
    /// What a waiting write asks for.
    wanted_bytes: AtomicU64,
    /// What running jobs may write in all.
    granted_bytes: AtomicU64,
    /// What the files that running jobs (flushes, too) have begun occupy.
    written_bytes: AtomicU64,
}

/// The volume is asked how full it is at most this often,
const ASK_NS: u64 = 100_000_000;
/// or when the store has changed by this part of what the volume had left.
const ASK_PART: u64 = 16;
/// For headers, filters and last pages of what a family flushes, bytes.
const FAMILY_BYTES: u64 = 16 << 10;
/// For the edits of the manifest that are under way.
const EDITS_BYTES: u64 = 16 << 10;
/// Under a limit the manifest is rolled when it has this part of it, within bounds in bytes.
const MANIFEST_PART: u64 = 256;
const MANIFEST_BYTES: (u64, u64) = (64 << 10, 4 << 20);
/// Under a limit the log is bounded to this part of it.
const LOG_PART: u64 = 64;

/// What a job may write for so many bytes of input: outputs have headers and indexes of their own.
fn with_overhead(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 16).saturating_add(FAMILY_BYTES)
}

/// When the manifest is rolled under a limit.
fn manifest_bytes(limit_bytes: u64) -> u64 {
    let (least, most) = MANIFEST_BYTES;
    (limit_bytes / MANIFEST_PART).clamp(least, most)
}

impl SpaceBudget {
    /// The budget of the store in `dir`, and the environment through which all its files must be made.
    pub fn over(env: &Env, dir: &Path) -> (SpaceBudget, Env) {
        let meter = Arc::new(Meter::new(dir));
        let fs = MeteredFs { inner: env.fs.clone(), meter: meter.clone() };
        let budget = SpaceBudget {
            meter,
            fit: Fit::default(),
            volume_bytes: AtomicU64::new(0),
            volume_used_bytes: AtomicU64::new(0),
            volume_limit_bytes: AtomicU64::new(u64::MAX),
            ask_at_ns: AtomicU64::new(0),
            asked_bytes: AtomicU64::new(0),
            limit_bytes: AtomicU64::new(u64::MAX),
            ceiling_bytes: AtomicU64::new(u64::MAX),
            pool_bytes: AtomicU64::new(0),
            table_share: AtomicU64::new(0),
            fixed_bytes: AtomicU64::new(0),
            tails_bytes: AtomicU64::new(0),
            collected_bytes: AtomicU64::new(0),
            wanted_bytes: AtomicU64::new(0),
            granted_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
        };
        (budget, Env { fs: Arc::new(fs), ..env.clone() })
    }

    /// Makes everything smaller that is too long for what the store may have of its volume. Before anything else is asked.
    pub fn fit_to_volume(&mut self, env: &Env, dir: &Path, options: &Options) -> Options {
        // A volume that does not say is taken for a large one.
        if let Ok(volume) = env.fs.space(dir) {
            self.fit = Fit::to(options, self.meter.used_bytes().saturating_add(volume.available));
        }
        self.fit.store(options)
    }

    /// How much smaller than the options say the pieces of this store are.
    pub fn fit(&self) -> Fit {
        self.fit
    }

    fn overhead_bytes(&self, engine: &Engine, places: bool) -> u64 {
        overhead_bytes(&engine.options, &self.fit.family(&engine.options.family), places)
    }

    /// The count of the files.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// True if there is a limit.
    pub fn is_limited(&self) -> bool {
        self.limit_bytes.load(Relaxed) != u64::MAX
    }

    /// The limit; `u64::MAX`: none.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Relaxed)
    }

    /// Takes note of a version that was installed, and of files that were removed: sets limit, reserve and ceiling anew,
    /// and asks the volume how full it is, unless it was asked a moment ago.
    pub fn refresh(&self, engine: &Engine) {
        self.ask_volume(engine);
        let volume_limit = self.volume_limit_bytes.load(Relaxed);
        // What recovery flushes was admitted when it was logged, and the log is there until the end of it: so long there is no
        // ceiling.
        if engine.wal.get().is_none() {
            return;
        }
        let Some(limit) = engine.options.space_limit else {
            return self.follow_volume(engine, volume_limit);
        };
        let size = if let SpaceLimit::Bytes(bytes) = limit { bytes } else { self.meter.used_bytes() };
        engine.manifest.set_roll_len(manifest_bytes(size.min(volume_limit)));
        let exact = matches!(limit, SpaceLimit::Bytes(_));
        let most = if exact { size.min(volume_limit) } else { volume_limit };
        let state = self.take_in(engine, Reserve::of(engine), most);
        let own = match limit {
            SpaceLimit::Bytes(bytes) => bytes,
            SpaceLimit::Ratio(ratio) => {
                let more = (state.live_bytes as f64 * (ratio - 1.0)) as u64;
                // What a small store needs besides its data to go on at all, it is granted: of the reserve, which grows
                // with tables and families, no more than there is overhead.
                let overhead = self.overhead_bytes(engine, state.places);
                let least = overhead.saturating_add(engine.reserve_bytes().min(overhead));
                state.live_bytes.saturating_add(more.max(least))
            }
        };
        let ceiling = self.set_limit(engine, own.min(volume_limit));
        // A ratio is of what is only estimated. A volume has a ceiling of its own.
        self.meter.set_ceiling(if exact { ceiling.max(own) } else { u64::MAX });
    }

    /// What the reserve has for tails of values that are placed in the log.
    pub fn tails_bytes(&self) -> u64 {
        self.tails_bytes.load(Relaxed)
    }

    /// `most`: the limit, or more.
    fn take_in(&self, engine: &Engine, state: Reserve, most: u64) -> Reserve {
        // A family that is made later may place values under a limit that holds no tails.
        let places = state.places && self.overhead_bytes(engine, true) <= most;
        let tails = if places { placement::kept_bytes(&engine.options) } else { 0 };
        self.tails_bytes.store(tails, Relaxed);
        self.pool_bytes.store(state.pool_bytes, Relaxed);
        self.table_share.store(state.table_share, Relaxed);
        self.fixed_bytes.store(state.fixed_bytes, Relaxed);
        self.collected_bytes.store(state.collected_bytes, Relaxed);
        state
    }

    /// Sets the limit, and returns the ceiling: above the limit as long as the store is.
    fn set_limit(&self, engine: &Engine, limit: u64) -> u64 {
        self.limit_bytes.store(limit, Relaxed);
        let before = self.ceiling_bytes.load(Relaxed);
        let ceiling = limit.max(before.min(engine.space_needed_bytes()));
        self.ceiling_bytes.store(ceiling, Relaxed);
        ceiling
    }

    /// Without a limit of its own a store has that of the volume, as soon as it comes near: a volume that is full to the
    /// last page takes neither deletes nor outputs of jobs, and nothing would ever make room again.
    fn follow_volume(&self, engine: &Engine, volume_limit: u64) {
        let options = &engine.options;
        let left = volume_limit.saturating_sub(self.meter.used_bytes());
        let overhead = self.overhead_bytes(engine, engine.places_values());
        // No reserve is larger than what is there. It is summed only where it may matter.
        let far = left > self.meter.used_bytes().saturating_add(overhead);
        let tiny = volume_limit < overhead.saturating_mul(2);
        if !far && !tiny {
            engine.manifest.set_roll_len(manifest_bytes(volume_limit));
            self.take_in(engine, Reserve::of(engine), volume_limit);
            let (_, margin) = engine.room_below(volume_limit);
            // Until it is looked at again, memtables may be filled.
            let near = margin.saturating_add(2 * options.memory_bytes as u64);
            if engine.space_needed_below(volume_limit).saturating_add(near) > volume_limit {
                self.set_limit(engine, volume_limit);
                return;
            }
        }
        self.limit_bytes.store(u64::MAX, Relaxed);
        self.ceiling_bytes.store(u64::MAX, Relaxed);
    }

    /// The volume refused something: what it said before is past.
    pub fn volume_is_full(&self) {
        self.ask_at_ns.store(0, Relaxed);
    }

    /// Room may have come back while nobody wrote: a store that is short of it asks now and then, before it looks for work.
    /// Not under the lock of the claims.
    pub fn look_again(&self, engine: &Engine) {
        if !self.is_limited() || engine.env.clock.now_ns() < self.ask_at_ns.load(Relaxed) {
            return;
        }
        // The sums behind the reserve go over all tables and files of values. They have not changed since the last install,
        // so they are not taken again unless what the volume has does matter, and has changed.
        let own = match engine.options.space_limit {
            Some(SpaceLimit::Bytes(bytes)) => bytes,
            _ => u64::MAX,
        };
        let most = || self.volume_limit_bytes.load(Relaxed).min(own);
        let before = most();
        self.ask_volume(engine);
        if most() != before {
            self.refresh(engine);
        }
    }

    fn ask_volume(&self, engine: &Engine) {
        let now_ns = engine.env.clock.now_ns();
        let used = self.meter.used_bytes();
        let (then, limit) = (self.asked_bytes.load(Relaxed), self.volume_limit_bytes.load(Relaxed));
        let moved = used.abs_diff(then) > limit.saturating_sub(then) / ASK_PART;
        if now_ns < self.ask_at_ns.load(Relaxed) && !moved {
            return;
        }
        self.asked_bytes.store(used, Relaxed);
        self.ask_at_ns.store(now_ns + ASK_NS, Relaxed);
        // A volume that does not say is taken for what it was.
        let Ok(space) = engine.env.fs.space(&engine.dir) else { return };
        self.volume_bytes.store(space.total, Relaxed);
        self.volume_used_bytes.store(space.total.saturating_sub(space.available), Relaxed);
        self.volume_limit_bytes.store(used.saturating_add(space.available), Relaxed);
    }

    /// A job that may write the outputs of `input_bytes` may start; `None`: not now. Under the lock of the claims.
    pub fn grant(self: &Arc<Self>, engine: &Engine, input_bytes: u64) -> Option<Grant> {
        let bytes = with_overhead(input_bytes);
        let fits = self.fits_job(engine, bytes);
        fits.then(|| Grant::new(self, bytes))
    }

    /// True if a job could start that writes the outputs of `input_bytes`.
    pub fn would_grant(&self, engine: &Engine, input_bytes: u64) -> bool {
        self.fits_job(engine, with_overhead(input_bytes))
    }

    /// True if a file of `bytes` may be made that is nobody's output.
    pub fn fits_job(&self, engine: &Engine, bytes: u64) -> bool {
        if !self.is_limited() {
            return true;
        }
        let granted = self.granted_bytes.load(Relaxed);
        let others = engine.settled_bytes() + engine.unflushed_bytes() + self.fixed_bytes.load(Relaxed);
        others.saturating_add(granted).saturating_add(bytes) <= self.ceiling_bytes.load(Relaxed)
    }

    /// What a flush writes was admitted with the writes: it starts whatever there is.
    pub fn watch(self: &Arc<Self>) -> Grant {
        Grant::new(self, 0)
    }
}

/// What a running job may write, and what it has written.
#[derive(Debug)]
pub(crate) struct Grant {
    space: Arc<SpaceBudget>,
    granted_bytes: u64,
    written_bytes: AtomicU64,
}

impl Grant {
    fn new(space: &Arc<SpaceBudget>, granted_bytes: u64) -> Grant {
        space.granted_bytes.fetch_add(granted_bytes, Relaxed);
        Grant { space: space.clone(), granted_bytes, written_bytes: AtomicU64::new(0) }
    }

    /// `created` are the files the job has made so far. After each step.
    pub fn wrote(&self, created: impl FnOnce() -> Vec<(u64, PathBuf)>) {
        if self.space.is_limited() {
            let files = created();
            self.set_written(files.iter().map(|(_, path)| self.space.meter.bytes_of(path)).sum());
        }
    }

    fn set_written(&self, bytes: u64) {
        self.space.written_bytes.fetch_add(bytes, Relaxed);
        self.space.written_bytes.fetch_sub(self.written_bytes.swap(bytes, Relaxed), Relaxed);
    }

    /// Its files are the store's from now on.
    pub fn installed(&self) {
        self.set_written(0);
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.set_written(0);
        self.space.granted_bytes.fetch_sub(self.granted_bytes, Relaxed);
    }
}

/// What the state of the store asks for.
#[derive(Debug, Default)]
struct Reserve {
    pool_bytes: u64,
    table_share: u64,
    fixed_bytes: u64,
    collected_bytes: u64,
    live_bytes: u64,
    /// Values of some family are placed in the log.
    places: bool,
}

impl Reserve {
    fn of(engine: &Engine) -> Reserve {
        #[cfg(test)]
        tests::SUMS.with(|sums| sums.set(sums.get() + 1));
        let fixed_bytes = EDITS_BYTES + engine.manifest.growth_bytes();
        let mut sum = Reserve { fixed_bytes, live_bytes: engine.segments.bytes(), ..Reserve::default() };
        let mut widest = 0;
        for family in engine.all_families() {
            let (view, options) = (family.view(), family.options());
            let (version, ledger) = (&view.version, &view.ledger);
            let (policy, set_aside) = (family.policy(), family.tables_set_aside());
            let tables: u64 = version.levels.iter().map(|level| level.bytes()).sum();
            let width = policy.map_or(0, |policy| policy.width_bytes(version, &set_aside));
            widest = widest.max(with_overhead(width));
            // Of less than one output there is nothing more to collect; what is not flushed yet may be added to it.
            let records = ledger.record_bytes();
            sum.places |= placement::is_on(&options);
            let separates = !version.vssts.is_empty() || options.min_blob_size > 0;
            if separates {
                let longest = with_overhead(view.digest.collected_bytes.min(records));
                sum.collected_bytes = sum.collected_bytes.max(longest);
            }
            let widens = separates && records < view.digest.collected_bytes;
            let share = tables.saturating_mul(2048) / tables.saturating_add(records).max(1);
            let known = tables > 0 && options.min_blob_size > 0 && !widens;
            sum.table_share = sum.table_share.max(if known { share.min(1024) } else { 1024 });
            sum.fixed_bytes += FAMILY_BYTES;
            let live = tables.saturating_add(ledger.referenced_bytes());
            sum.live_bytes += live.saturating_sub(ledger.hidden(version).likely);
        }
        sum.pool_bytes = widest + sum.collected_bytes;
        sum
    }
}

/// From so many bytes of live log on the family that holds the oldest is flushed. Under a limit that is a small part of
/// it, but never less than a memtable and a group need.
pub(crate) fn live_log_bytes_max(options: &Options, limit_bytes: u64) -> u64 {
    let least = 2 * options.log_group_bytes.max(options.memtable_bytes as u64);
    options.wal_bytes_max.min((limit_bytes / LOG_PART).max(least))
}

/// What the log comes to: what may be live, the group that is open, those that are kept free, and the ballast.
fn log_bytes_max(options: &Options, limit_bytes: u64) -> u64 {
    let more = 1 + free_groups_max(options) as u64;
    let prepared = options.log_group_bytes.saturating_mul(more).saturating_add(ballast_bytes(options));
    live_log_bytes_max(options, limit_bytes).saturating_add(prepared)
}

/// What deletes may take of the reserve.
fn delete_bytes(options: &Options) -> u64 {
    (options.memtable_bytes as u64 / 4).max(16 << 10)
}

/// The least that a store with these options occupies or keeps free, however little data it has.
/// `places`: values of some family are placed in the log.
fn overhead_bytes(options: &Options, family: &FamilyOptions, places: bool) -> u64 {
    let staging = crate::open::staging_len(options.log_group_bytes) as u64;
    let log = log_bytes_max(options, 0);
    let vsst = if family.min_blob_size > 0 { family.vsst_bytes } else { 0 };
    // A file of placed values is as long as its memtable.
    let placed = if places { options.memtable_bytes as u64 } else { 0 };
    let tails = if places { placement::kept_bytes(options) } else { 0 };
    let memory = (options.memtable_bytes as u64).saturating_mul(4);
    let jobs = with_overhead(vsst.max(placed)).saturating_add(with_overhead(memory));
    let files = staging + log + tails + MANIFEST_BYTES.0 + EDITS_BYTES + FAMILY_BYTES;
    files + memory + jobs + delete_bytes(options)
}

impl Options {
    /// Checks every option and combination.
    ///
    /// # Errors
    /// `InvalidArgument` naming the option and its range.
    pub fn validate(&self) -> Result<()> {
        self.check_ranges()?;
        leaves_room(self)
    }
}

/// Refuses a limit that leaves no room for anything.
fn leaves_room(options: &Options) -> Result<()> {
    let needed = overhead_bytes(options, &options.family, placement::is_on(&options.family));
    match options.space_limit {
        Some(SpaceLimit::Bytes(bytes)) if bytes < needed => Err(Error::invalid(format!(
            "option space_limit = {bytes} bytes is less than log, memtables and reserve need: at least {needed} bytes with \
             these options; smaller log groups, memtables and value files (log_group_bytes, memtable_bytes, vsst_bytes) \
             need less, and so does value_placement = table"
        ))),
        Some(SpaceLimit::Ratio(ratio)) if !(1.05..=1000.0).contains(&ratio) => Err(Error::invalid(format!(
            "option space_limit = {ratio} times the live data is out of range: 1.05 to 1000"
        ))),
        _ => Ok(()),
    }
}

impl Engine {
    /// Bytes that the store's files occupy now.
    pub fn used_bytes(&self) -> u64 {
        self.space.meter.used_bytes()
    }

    /// True if somebody set a limit. There may be one without that: the end of the volume.
    pub fn has_own_limit(&self) -> bool {
        self.options.space_limit.is_some()
    }

    /// Those that running jobs have not begun to write.
    fn settled_bytes(&self) -> u64 {
        self.used_bytes().saturating_sub(self.space.written_bytes.load(Relaxed))
    }

    /// What the memtables will be as tables, bytes.
    fn unflushed_bytes(&self) -> u64 {
        let bytes = self.memory.used();
        bytes + bytes / 8
    }

    /// What may be used by the jobs that free space.
    fn pool_bytes(&self) -> u64 {
        let share = self.unflushed_bytes() / 1024 * self.space.table_share.load(Relaxed);
        let pool = self.space.pool_bytes.load(Relaxed).saturating_add(share);
        pool.max(self.space.granted_bytes.load(Relaxed))
    }

    /// Bytes by which the log may still grow.
    fn log_reserve_bytes(&self) -> u64 {
        self.log_reserve_below(self.space.limit_bytes())
    }

    fn log_reserve_below(&self, limit_bytes: u64) -> u64 {
        log_bytes_max(&self.options, limit_bytes).saturating_sub(self.log.file_bytes())
    }

    /// Bytes by which the tails of placed values may still grow.
    pub fn tail_reserve_bytes(&self) -> u64 {
        self.space.tails_bytes().saturating_sub(self.placement.tails.bytes())
    }

    /// True if values of some family are placed in the log.
    pub fn places_values(&self) -> bool {
        self.all_families().iter().any(|family| placement::is_on(&family.options()))
    }

    /// What flush, compaction, collection and deletes need to go on at a limit.
    fn way_out_below(&self, limit_bytes: u64) -> u64 {
        let fixed = self.space.fixed_bytes.load(Relaxed);
        let log = self.log_reserve_below(limit_bytes) + self.tail_reserve_bytes();
        fixed + log + delete_bytes(&self.options) + self.pool_bytes()
    }

    /// Bytes that are kept free so that flush, compaction, collection and deletes can go on at the limit; 0 without one.
    pub fn reserve_bytes(&self) -> u64 {
        if self.space.is_limited() { self.way_out_below(self.space.limit_bytes()) } else { 0 }
    }

    /// What is used or spoken for: the files, the memtables as tables, the reserve.
    pub fn space_needed_bytes(&self) -> u64 {
        self.space_needed_below(self.space.limit_bytes())
    }

    fn space_needed_below(&self, limit_bytes: u64) -> u64 {
        self.settled_bytes() + self.unflushed_bytes() + self.way_out_below(limit_bytes)
    }

    /// What is left for writes before the limit, and how much is so little that they are slowed down; `None`: no limit.
    pub fn space_room(&self) -> Option<(u64, u64)> {
        let limit = self.space.limit_bytes.load(Relaxed);
        (limit != u64::MAX).then(|| self.room_below(limit))
    }

    /// True if so many bytes more fit beside what is used or spoken for.
    pub fn has_room_left(&self, bytes: u64) -> bool {
        self.space_room().is_none_or(|(room, _)| bytes <= room)
    }

    /// The margin is a part of a limit that somebody set; of a volume it is no more than it must be.
    fn room_below(&self, limit: u64) -> (u64, u64) {
        let part = if self.has_own_limit() { limit / 48 } else { 0 };
        // Space comes and goes in pieces: a few of them keep writers from running into the limit.
        let piece = self.space.collected_bytes.load(Relaxed).max(self.options.memtable_bytes as u64);
        let margin = part.max((2 * piece).min(limit / 8)).max(1);
        (limit.saturating_sub(self.space_needed_below(limit)), margin)
    }

    /// True if room is so short, or a write waits for so much, that everything should be done that frees some.
    pub fn is_space_short(&self) -> bool {
        let wanted = self.space.wanted_bytes.load(Relaxed);
        self.space_room().is_some_and(|(room, margin)| room < wanted.max(margin / 2))
    }

    /// What is used or spoken for in percent of the limit (at 100 writers wait), or what is used of the volume where no
    /// limit is set; 0 as long as nobody knows. Cheap: to be asked whenever a job is picked.
    pub fn fill_percent(&self) -> u64 {
        let limit = self.space.limit_bytes.load(Relaxed);
        let (used, total) = match limit {
            u64::MAX => (self.space.volume_used_bytes.load(Relaxed), self.space.volume_bytes.load(Relaxed)),
            limit => (self.space_needed_bytes(), limit),
        };
        used.saturating_mul(100).checked_div(total).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
