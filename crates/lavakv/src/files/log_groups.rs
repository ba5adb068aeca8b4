//! Log groups: prepared ahead of the log, released behind it, recycled in between.
//!
//! A group is a file of fixed length, allocated and written once. The manifest lists it before the log may use it, and
//! the edit that drops it is durable before the file is used again or removed. Preparing one costs a device write of its
//! whole length, so the background does it while the log still has a spare (`work::jobs::log`); a writer does it
//! itself only when the spare is used up, or for a batch larger than a whole group. How long a group is follows the rate
//! of writes ([`pace`]).
//!
//! # Where there is no room
//!
//! A group that was wanted longer is made as short as will do; where none can be made, a file that waits to be used again
//! is taken, whatever its length. The last resort is the *ballast*: two files, made by the first open with room, and made
//! again as soon as there is room after they were used. The log takes one for a batch that only deletes, or at open; a job
//! that finds no room has the other removed. While any is missing nothing but deletes is written, so that what they freed
//! is not taken by new data.

use crate::context::Context;
use crate::context::event::StallCause;
use crate::context::options::Options;
use crate::files::{Files, other_engines};
use crate::space::sizes::{Ballast, free_groups_max, shortest_group_bytes, staging_len};
use crate::space::space_limit::SpaceBudget;
use base::sync::atomic::{AtomicBool, Ordering};
use base::sync::{Mutex, MutexGuard, OnceLock, lock, rank};
use base::{Error, ErrorKind, Result, SeqNo};
use io::{DirEntry, InPlaceFile};
use pace::Pace;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use version::names::FileKind;
use version::{Edit, LogGroupMeta, Record, StoreRecord, names};
use wal::{PreparedGroup, PriorGroup, TenantId, Wal};

mod pace;

/// Who needs a group, and what may be used for it where there is no room for a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing.
    Usual,
    /// The ballast. After some of it was used, that and nothing else: what room there is, is for the flush of what is
    /// deleted.
    Deletes,
    /// Everything there is: the log is to begin, or deletes have been flushed and found no group all the same.
    Last,
}

/// How long the log must be idle before its watermark is written on its own, after durable and after other writes.
const IDLE_DURABLE_NS: u64 = 10_000_000;
const IDLE_BUFFERED_NS: u64 = 1_000_000_000;

/// The log, and the files that it has had, has, and will have.
pub(crate) struct Log {
    context: Arc<Context>,
    space: Arc<SpaceBudget>,
    files: Arc<Files>,
    /// Set once recovery is done; never in a read-only store.
    wal: OnceLock<Wal>,
    /// Serializes preparation.
    preparing: Mutex<(), rank::LogPreparing>,
    state: Mutex<Groups, rank::LogGroups>,
    /// Something happened after which groups may have become releasable.
    release_hint: AtomicBool,
    /// The log is longer than its bound: the next write freezes the family that holds its oldest group.
    over_bound: AtomicBool,
    refused: Refused,
    idle: Mutex<Idle, rank::LogIdle>,
    /// In a read-only store: the groups that were replayed, oldest first.
    replayed: OnceLock<Vec<PriorGroup>>,
}

/// What there was no room for when it was last tried.
#[derive(Debug, Default)]
struct Refused {
    /// A spare group.
    spare: AtomicBool,
    /// Pages to be written to their group files, on a copy-on-write volume.
    write_out: AtomicBool,
    /// Something without which nothing goes on: some of the ballast was used.
    ballast_used: AtomicBool,
    /// A longer ring of open pages.
    ring: AtomicBool,
}

#[derive(Debug, Default)]
struct Groups {
    /// Groups the manifest lists, by LTN.
    live: BTreeMap<u64, GroupFile>,
    /// Files of dropped groups that may be used again.
    free: Vec<GroupFile>,
    /// Files for the day on which there is no room, by [`Ballast`].
    ballast: [Option<GroupFile>; 2],
    /// How long groups are.
    pace: Pace,
    /// How many of those are kept: as many as the log last let go of at once, so that a log which uses many groups
    /// between two flushes recycles them all, and one that uses one keeps one.
    keep: usize,
    /// Groups that the log has let go of and the manifest still lists, oldest first. The log names each only once; if
    /// the edit that drops it is refused (a full disk), it must be part of the next one, because a group that stays
    /// listed while younger ones go is a hole in the log.
    leaving: Vec<u64>,
}

impl Groups {
    /// All that there are.
    fn files(&self) -> impl Iterator<Item = &GroupFile> {
        self.live.values().chain(&self.free).chain(self.ballast.iter().flatten())
    }
}

/// The groups, to be changed: what they come to is told to the budget when that is done.
struct Changing<'a> {
    space: &'a SpaceBudget,
    groups: MutexGuard<'a, Groups>,
}

impl Deref for Changing<'_> {
    type Target = Groups;
    fn deref(&self) -> &Groups {
        &self.groups
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut Groups {
        &mut self.groups
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.space.gauges.set_log_bytes(self.groups.files().map(|file| file.len).sum());
    }
}

/// What the log looked like when it was last looked at.
#[derive(Debug, Default)]
struct Idle {
    batches: u64,
    since_ns: u64,
    vouched_batches: u64,
    vouched_durable_writes: u64,
}

/// The file of a group.
#[derive(Clone, Debug)]
pub(crate) struct GroupFile {
    pub number: u64,
    pub len: u64,
    pub file: Arc<dyn InPlaceFile>,
}

impl Log {
    pub fn new(context: &Arc<Context>, space: &Arc<SpaceBudget>, files: &Arc<Files>) -> Log {
        Log {
            context: context.clone(),
            space: space.clone(),
            files: files.clone(),
            wal: OnceLock::new(),
            preparing: Mutex::default(),
            state: Mutex::default(),
            release_hint: AtomicBool::default(),
            over_bound: AtomicBool::default(),
            refused: Refused::default(),
            idle: Mutex::default(),
            replayed: OnceLock::new(),
        }
    }

    /// The log. Panics before recovery is done and in read-only stores, where nothing may write.
    pub fn wal(&self) -> &Wal {
        self.get().expect("the log is started before the first write")
    }

    /// The log, once it has begun.
    pub fn get(&self) -> Option<&Wal> {
        self.wal.get()
    }

    /// The log begins.
    pub fn begin(&self, wal: Wal) {
        self.wal.set(wal).unwrap_or_else(|_| unreachable!("a store starts its log once"));
        self.space.gauges.set_serves();
    }

    /// The log has become longer than its bound.
    pub fn set_over_bound(&self) {
        self.over_bound.store(true, Ordering::Release);
    }

    /// True once after the log had become longer than its bound.
    pub fn take_over_bound(&self) -> bool {
        self.over_bound.swap(false, Ordering::AcqRel)
    }

    fn change(&self) -> Changing<'_> {
        Changing { space: &self.space, groups: lock(&self.state) }
    }

    fn no_room(&self) -> Error {
        let why =
            "the volume is full, and what was kept for deletes is used up: writes resume when there is room";
        Error::new(ErrorKind::NoSpace, why).at_file(&self.context.dir)
    }

    /// Takes over a group found by recovery.
    pub fn adopt(&self, ltn: u64, file: GroupFile) {
        self.change().live.insert(ltn, file);
    }

    /// A read-only store has no log of its own: these groups it has read.
    pub fn set_replayed(&self, groups: Vec<PriorGroup>) {
        let _ = self.replayed.set(groups);
    }

    /// The groups that hold records somebody may need, oldest first; the last one may still be written.
    pub fn in_use(&self) -> Vec<PriorGroup> {
        match self.get() {
            Some(wal) => wal.groups(),
            None => self.replayed.get().cloned().unwrap_or_default(),
        }
    }

    /// The file of a group that the manifest lists.
    pub fn file_of(&self, ltn: u64) -> Option<GroupFile> {
        lock(&self.state).live.get(&ltn).cloned()
    }

    /// Puts groups whose removal from the manifest is durable on the free list, so that they are used again.
    pub fn discard(&self, dropped: &[u64]) -> Result<()> {
        let bound = if self.space.is_limited() { free_groups_max(&self.context.options) } else { usize::MAX };
        let surplus = self.recycle(dropped, &self.context.options, bound);
        let (removes, mut outcome) = (!surplus.is_empty(), Ok(()));
        for file in surplus {
            if let Err(e) = self.files.remove(&names::log(file.number)) {
                // It keeps none of the others, and is too much again the next time.
                self.change().free.push(file);
                outcome = outcome.and(Err(e));
            }
        }
        outcome?;
        if removes && self.ballast_is_short() {
            // What is removed gives its room back when that is durable, on some file systems.
            self.files.sync_dir()?;
        }
        Ok(())
    }

    /// True if a file that no group has is kept under this number: it is no orphan.
    pub fn is_kept(&self, number: u64) -> bool {
        let state = lock(&self.state);
        state.free.iter().chain(state.ballast.iter().flatten()).any(|f| f.number == number)
    }

    /// True if a file of a former group, of the length that groups have now, waits to be used again.
    pub fn has_free(&self) -> bool {
        let wanted = self.next_len();
        lock(&self.state).free.iter().any(|f| f.len == wanted)
    }

    /// The numbers of their files.
    pub fn file_numbers(&self) -> Vec<u64> {
        lock(&self.state).files().map(|file| file.number).collect()
    }

    /// The length that the next group should have.
    pub fn next_len(&self) -> u64 {
        let live_bytes = self.get().map_or(0, |wal| wal.live_bytes());
        lock(&self.state).pace.next_len(&self.context.options, self.context.env.clock.now_ns(), live_bytes)
    }

    /// True if the ring of open pages is short for groups of the present length.
    pub fn wants_longer_ring(&self) -> bool {
        let wanted = staging_len(lock(&self.state).pace.len(&self.context.options));
        self.wal().staging_len() < wanted && !self.refused.ring.load(Ordering::Relaxed)
    }

    /// Gives the log a ring of open pages that fits the length of its groups, if there is room.
    pub fn lengthen_ring(&self) -> Result<()> {
        let wanted = staging_len(lock(&self.state).pace.len(&self.context.options));
        match self.wal().lengthen_staging(&self.context.env, &self.context.dir, wanted) {
            Err(e) if e.kind() == ErrorKind::NoSpace => {
                self.refused.ring.store(true, Ordering::Relaxed);
                Ok(())
            }
            done => done,
        }
    }

    /// Called by a writer whose batch of `batch_len` bytes found no group to go to.
    pub fn provide(&self, batch_len: usize, need: Need) -> Result<()> {
        let start_ns = self.context.env.clock.now_ns();
        let guard = lock(&self.preparing);
        let out = if self.wal().has_room(batch_len) {
            Ok(())
        } else {
            let needed = wal::group_len_needed(batch_len);
            self.prepare(self.next_len().max(needed), needed, need)
        };
        drop(guard);
        let wait_ns = self.context.env.clock.now_ns() - start_ns;
        self.context.record_stall(StallCause::Log, wait_ns);
        out
    }

    /// Prepares a group if the log wants one.
    pub fn prepare_ahead(&self) -> Result<()> {
        let _guard = lock(&self.preparing);
        if self.wal().groups_wanted() > 0 {
            let refused =
                |e: &Error| self.refused.spare.store(e.kind() == ErrorKind::NoSpace, Ordering::Release);
            let (shortest, mut wanted) = (shortest_group_bytes(&self.context.options), self.next_len());
            while wanted > shortest && !self.has_free() && !self.space.fits_job(wanted) {
                wanted = (wanted / 2 / io::PAGE as u64 * io::PAGE as u64).max(shortest);
            }
            self.prepare(wanted, shortest, Need::Usual).inspect_err(refused)?;
        }
        Ok(())
    }

    fn prepare(&self, wanted: u64, least: u64, need: Need) -> Result<()> {
        let group = self.list_new_group(wanted, least, need)?;
        self.wal().add_group(group)
    }

    /// A group file that the manifest lists, not yet handed to the log: of `wanted` bytes, or where there is no room for
    /// that, of at least `least`.
    pub fn list_new_group(&self, wanted: u64, least: u64, need: Need) -> Result<PreparedGroup> {
        let group = self.group_file(wanted, least, need)?;
        let usual = self.next_len();
        // New each time: a former use of the file, here or in a copy of this store, is told by it.
        let uid = match base::canary::is("log-group-identity-constant") {
            true => base::Uid::from_words(1, 1),
            false => self.context.env.new_uid(),
        };
        let meta = LogGroupMeta { file: group.number, len: group.len, uid: Some(uid), ..Default::default() };
        let mut ltn = 0;
        let listed = self.files.install(
            |state| {
                ltn = state.store.next_ltn;
                Ok(Edit(vec![Record::Store(StoreRecord::AddLogGroup {
                    group: LogGroupMeta { ltn, ..meta },
                })]))
            },
            |_| {},
        );
        let mut state = self.change();
        if let Err(e) = listed {
            let ballast = &mut state.ballast[Ballast::Log as usize];
            if need != Need::Usual
                && ballast.is_none()
                && group.len == Ballast::Log.len(&self.context.options)
            {
                *ballast = Some(group);
            } else {
                state.free.push(group);
            }
            return Err(e);
        }
        // One that was made for a long batch says nothing of those that follow.
        state.pace.made(group.len.min(usual), self.context.env.clock.now_ns());
        state.live.insert(ltn, group.clone());
        Ok(PreparedGroup { ltn, uid, file: group.file })
    }

    fn group_file(&self, wanted: u64, least: u64, need: Need) -> Result<GroupFile> {
        // Room that was kept for jobs is not for the log.
        let short = self.ballast_is_short();
        let wanted = if need == Need::Last && short { least } else { wanted };
        if let Some(file) = self.take_free(|len| len == wanted || short && len >= least) {
            return Ok(file);
        }
        let refused = match need {
            _ if short && need != Need::Last => self.no_room(),
            Need::Deletes => match self.create_file(wanted) {
                // What is left is for the flush of what is deleted.
                Err(e) if e.kind() == ErrorKind::NoSpace => e,
                made => return made,
            },
            Need::Usual | Need::Last => match self.make_group(wanted, least) {
                Err(e) if e.kind() == ErrorKind::NoSpace => e,
                made => return made,
            },
        };
        if need == Need::Usual {
            return Err(refused);
        }
        self.room_is_short();
        self.take_free(|len| len >= least).or_else(|| self.take_ballast(least)).ok_or(refused)
    }

    /// A new file of `wanted` bytes; where there is no room for it, the longest that waits to be used again, or a new one
    /// that is shorter.
    fn make_group(&self, wanted: u64, least: u64) -> Result<GroupFile> {
        let mut len = wanted;
        loop {
            match self.create_file(len) {
                Err(e) if e.kind() == ErrorKind::NoSpace => {
                    if let Some(file) = self.take_free(|len| len >= least) {
                        return Ok(file);
                    }
                    let shorter = (len / 2 / io::PAGE as u64 * io::PAGE as u64).max(least);
                    if shorter >= len {
                        return Err(e);
                    }
                    len = shorter;
                }
                made => return made,
            }
        }
    }

    /// True if a group for a batch that needs `least` bytes could be had without new room.
    pub fn has_fitting(&self, least: u64) -> bool {
        lock(&self.state).free.iter().any(|file| file.len >= least)
    }

    /// The longest file of a former group that fits.
    fn take_free(&self, fits: impl Fn(u64) -> bool) -> Option<GroupFile> {
        let mut state = self.change();
        let all = state.free.iter().enumerate().filter(|(_, file)| fits(file.len));
        let longest = all.max_by_key(|(_, file)| file.len).map(|(i, _)| i);
        longest.map(|i| state.free.swap_remove(i))
    }

    fn take_ballast(&self, least: u64) -> Option<GroupFile> {
        let mut state = self.change();
        let file = state.ballast[Ballast::Log as usize].take_if(|file| file.len >= least)?;
        self.refused.ballast_used.store(true, Ordering::Release);
        Some(file)
    }

    /// Removes a part of the ballast, so that something finds room. False if it is not there.
    pub fn give_ballast(&self, part: Ballast) -> bool {
        let Some(file) = self.change().ballast[part as usize].take() else { return false };
        self.refused.ballast_used.store(true, Ordering::Release);
        self.files.remove(&names::log(file.number)).is_ok()
    }

    /// There was no room for something without which nothing goes on: only deletes are written until the ballast is whole.
    pub fn room_is_short(&self) {
        self.refused.ballast_used.store(true, Ordering::Release);
    }

    /// True while some of the ballast is missing after it was used: only deletes may be written.
    pub fn ballast_is_short(&self) -> bool {
        self.refused.ballast_used.load(Ordering::Acquire)
    }

    /// Makes what is missing of the ballast.
    ///
    /// # Errors
    /// `NoSpace` as long as there is no room for it; others of the file system.
    pub fn fill_ballast(&self) -> Result<()> {
        let _guard = lock(&self.preparing);
        self.refused.ballast_used.store(true, Ordering::Release);
        // The longer one first: where it does not fit, the room is left to jobs.
        for part in [Ballast::Jobs, Ballast::Log] {
            let len = part.len(&self.context.options);
            if lock(&self.state).ballast[part as usize].is_some() {
                continue;
            }
            let file = match self.take_free(|free| free == len) {
                Some(file) => file,
                None => self.create_file(len)?,
            };
            self.change().ballast[part as usize] = Some(file);
        }
        self.refused.ballast_used.store(false, Ordering::Release);
        Ok(())
    }

    /// Takes over the ballast that an earlier process left: of the files that no group has, those with the right length.
    /// A file that a crash left half made has not all its pages.
    pub fn adopt_ballast(&self, listing: &[DirEntry]) -> Result<()> {
        let listed: Vec<u64> =
            self.files.manifest.state().store.log_groups.values().map(|group| group.file).collect();
        for entry in listing.iter().filter(|entry| entry.allocated >= entry.len) {
            let Some(FileKind::Log(number)) = names::parse(&entry.name) else { continue };
            let of_part = |part: &Ballast| part.len(&self.context.options) == entry.len;
            let part = Ballast::ALL.into_iter().find(of_part).map(|part| part as usize);
            let Some(part) = part.filter(|part| lock(&self.state).ballast[*part].is_none()) else { continue };
            if listed.contains(&number) || self.is_kept(number) {
                continue;
            }
            let len = entry.len;
            let path = self.context.path(&entry.name);
            match self.context.env.fs.open_in_place(&path, self.context.options.access) {
                Ok(file) => self.change().ballast[part] = Some(GroupFile { number, len, file }),
                // It was used up by an earlier try.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn create_file(&self, len: u64) -> Result<GroupFile> {
        let number = self.files.manifest.allocate_file_number();
        let path = self.context.path(&names::log(number));
        // A page is told by the identity of its group: like a group that is used again, a new one may hold anything.
        let file = self.context.env.fs.create_in_place_unzeroed(&path, len, self.context.options.access)?;
        self.files.sync_dir()?;
        Ok(GroupFile { number, len, file })
    }

    /// True once after there was no room for a spare group: then others have a turn. The log is the most urgent class, and
    /// after a refusal all wait for a while; without this it would be the first to be refused again, for ever, and the
    /// flush that makes room for it would never run.
    pub fn gives_way(&self) -> bool {
        self.refused.spare.swap(false, Ordering::AcqRel)
    }

    /// Moves full pages from the log's ring to the group files.
    pub fn write_out(&self) -> Result<()> {
        let outcome = self.wal().write_out();
        let refused = outcome.as_ref().is_err_and(|e| e.kind() == ErrorKind::NoSpace);
        self.refused.write_out.store(refused, Ordering::Relaxed);
        outcome.map(drop)
    }

    /// True if the last try found no room.
    pub fn write_out_was_refused(&self) -> bool {
        self.refused.write_out.load(Ordering::Relaxed)
    }

    /// Groups may have become releasable.
    pub fn hint_release(&self) {
        self.release_hint.store(true, Ordering::Release);
    }

    /// True if groups may be releasable.
    pub fn may_release(&self) -> bool {
        self.release_hint.load(Ordering::Acquire)
    }

    /// Drops the groups that only hold records below `floor`, which are in tables: manifest first, then the files.
    pub fn release(&self, floor: SeqNo) -> Result<()> {
        self.release_hint.store(false, Ordering::Release);
        let mut floors = other_engines::floors(&self.files.manifest.state().store);
        floors.push((TenantId::FIRST, floor));
        let released = self.wal().release_below(&floors);
        let dropped = {
            let mut state = lock(&self.state);
            state.leaving.extend(released);
            state.leaving.clone()
        };
        if dropped.is_empty() {
            return Ok(());
        }
        let records = dropped.iter().map(|&ltn| Record::Store(StoreRecord::RemoveLogGroup { ltn })).collect();
        self.files.install(|_| Ok(Edit(records)), |_| {}).inspect_err(|_| self.hint_release())?;
        {
            let mut state = lock(&self.state);
            // One job at a time releases groups, so the list has not grown meanwhile.
            state.leaving.clear();
            state.keep = dropped.len();
        }
        self.discard(&dropped)
    }

    /// Moves dropped groups to the free list; returns the files that are too many or of another length than groups have
    /// now. `bound`: most that may be kept.
    fn recycle(&self, dropped: &[u64], options: &Options, bound: usize) -> Vec<GroupFile> {
        let mut state = self.change();
        let len = state.pace.len(options);
        let files: Vec<GroupFile> = dropped.iter().filter_map(|ltn| state.live.remove(ltn)).collect();
        state.free.extend(files);
        let (mut fit, mut surplus): (Vec<_>, Vec<_>) = state.free.drain(..).partition(|f| f.len == len);
        let keep = state.keep.max(1).min(bound).min(fit.len());
        surplus.extend(fit.drain(keep..));
        state.free = fit;
        surplus
    }

    /// After the log was closed: groups that it has not begun to use, youngest last, and the files that no group has. A
    /// closed store has no need of either.
    pub fn unused(&self, last_used: u64) -> (Vec<u64>, Vec<u64>) {
        let mut state = self.change();
        let mut spares = state.live.split_off(&(last_used + 1));
        let free = std::mem::take(&mut state.free).into_iter();
        let files = spares.values().map(|file| file.number).chain(free.map(|file| file.number)).collect();
        let ltns = spares.keys().copied().collect();
        spares.clear();
        (ltns, files)
    }

    /// True if the log has been idle for long enough that its watermark should be persisted.
    pub fn is_idle(&self) -> bool {
        let (stats, now_ns) = (self.wal().stats(), self.context.env.clock.now_ns());
        let mut idle = lock(&self.idle);
        if stats.batches != idle.batches {
            (idle.batches, idle.since_ns) = (stats.batches, now_ns);
            return false;
        }
        let durable = stats.durable_writes > idle.vouched_durable_writes;
        let wait_ns = if durable { IDLE_DURABLE_NS } else { IDLE_BUFFERED_NS };
        stats.batches > idle.vouched_batches && now_ns.saturating_sub(idle.since_ns) >= wait_ns
    }

    /// True if the log will want its watermark persisted once it has been idle for long enough.
    pub fn has_unvouched(&self) -> bool {
        self.wal().stats().batches > lock(&self.idle).vouched_batches
    }

    /// Vouches for all of the log.
    pub fn persist_watermark(&self) -> Result<()> {
        let batches = self.wal().stats().batches;
        self.wal().persist_watermark()?;
        let mut idle = lock(&self.idle);
        idle.vouched_batches = batches;
        idle.vouched_durable_writes = self.wal().stats().durable_writes;
        Ok(())
    }
}
