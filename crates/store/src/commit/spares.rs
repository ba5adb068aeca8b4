//! Log files without a group: free files for reuse, and files reserved against a full volume.
//!
//! # Without space
//!
//! A new group is made as short as necessary. If none can be made, a free file of any sufficient
//! length is taken. The last resort is the *reserved space*: two files, made by the first open with
//! space. After their use they are made again as soon as there is space. The first lane's reserved
//! space serves the whole store: the free files of a record lane are its reserve. The log takes one
//! file for a batch that only deletes, or at open. For a job without space the other file is
//! removed. While a file is missing, only deletes are written, so that new data does not take the
//! space that they freed.

use super::files::GroupFile;
use super::lane_shared::{LaneShared, ToldBytes};
use super::pace::shortest_bytes;
use crate::names;
use base::sync::{Mutex, MutexGuard, lock, rank};
use base::{Error, ErrorKind, Result, Uid};
use io::DirEntry;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Retained groups for each free group.
const RETAINED_PER_FREE: usize = 4;
/// Maximum bytes of free groups, however long the lane is: about a second of writes of a fast
/// device. Groups that become garbage together are then reused together. The excess is space for
/// other files.
const FREE_BYTES_MAX: u64 = 1 << 30;

/// Purpose of a reserved file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservePurpose {
    /// A group of the log.
    Log,
    /// Space for a job that frees more.
    Jobs,
}

impl ReservePurpose {
    const ALL: [ReservePurpose; 2] = [ReservePurpose::Log, ReservePurpose::Jobs];

    /// Returns the length of the file, bytes. The lengths differ, so that the next process can
    /// distinguish the files.
    fn len(self, group_bytes: u64) -> u64 {
        let factor = match self {
            ReservePurpose::Log => 2,
            ReservePurpose::Jobs => 4,
        };
        factor * shortest_bytes(group_bytes)
    }
}

/// Returns the length of the whole reserved space if the longest group has `group_bytes`.
pub fn reserved_bytes(group_bytes: u64) -> u64 {
    ReservePurpose::ALL.iter().map(|part| part.len(group_bytes)).sum()
}

/// Returns the maximum number of free groups of `len` bytes in a lane with `retained` groups.
fn free_of_retained(retained: usize, len: u64) -> usize {
    let within = usize::try_from(FREE_BYTES_MAX / len.max(1)).unwrap_or(usize::MAX);
    (retained / RETAINED_PER_FREE).min(within)
}

/// Purpose of a new group. It decides which files the group may use if there is no space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogGroupPurpose {
    /// An ordinary batch: uses no reserved space.
    Usual,
    /// A batch of deletes: uses the reserved space. Once part of that is used, no other space: the
    /// remaining space is for the flush of the deletes.
    Deletes,
    /// Everything is allowed: the log begins, or flushed deletes still found no group.
    Last,
}

/// Log files without a group: see the module.
#[derive(Debug)]
pub struct Spares {
    base: Arc<LaneShared>,
    /// The state, under one lock.
    files: Mutex<SpareFiles, rank::LogSpares>,
}

#[derive(Debug, Default)]
struct SpareFiles {
    /// Files of dropped groups, free for reuse.
    free: Vec<GroupFile>,
    /// Reserved files, by [`ReservePurpose`].
    ballast: [Option<GroupFile>; 2],
    /// Number of free files to keep: as many as the log last released at once. So a log that uses
    /// many groups between two flushes recycles all of them, and one that uses a single group keeps
    /// one.
    keep: usize,
    /// Number of retained groups; a long lane keeps more free files.
    retained: usize,
    told: ToldBytes,
}

impl SpareFiles {
    fn all(&self) -> impl Iterator<Item = &GroupFile> {
        self.free.iter().chain(self.ballast.iter().flatten())
    }
}

/// Write access to the files; the drop reports their new total.
struct Changing<'a> {
    base: &'a LaneShared,
    files: MutexGuard<'a, SpareFiles>,
}

impl Deref for Changing<'_> {
    type Target = SpareFiles;
    fn deref(&self) -> &SpareFiles {
        &self.files
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut SpareFiles {
        &mut self.files
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let bytes = self.files.all().map(|file| file.len).sum();
        self.files.told.tell(self.base, bytes);
    }
}

fn no_room(base: &LaneShared) -> Error {
    let why = "the volume is full, and the reserve for deletes is used up: free space on it; \
               writes then resume";
    Error::new(ErrorKind::NoSpace, why).at_file(base.context.volumes.log_dir())
}

impl Spares {
    pub(super) fn new(base: Arc<LaneShared>) -> Spares {
        Spares { base, files: Mutex::default() }
    }

    fn change(&self) -> Changing<'_> {
        Changing { base: &self.base, files: lock(&self.files) }
    }

    /// Returns true if a spare file has this number, so that it is no orphan.
    pub fn is_kept(&self, number: u64) -> bool {
        let state = lock(&self.files);
        state.free.iter().chain(state.ballast.iter().flatten()).any(|f| f.number == number)
    }

    /// Returns true if there is a free file of exactly this length.
    pub(super) fn has_free(&self, wanted: u64) -> bool {
        lock(&self.files).free.iter().any(|f| f.len == wanted)
    }

    /// Returns true if a group of at least `least` bytes needs no new space.
    pub fn has_fitting(&self, least: u64) -> bool {
        lock(&self.files).free.iter().any(|file| file.len >= least)
    }

    /// Returns the names of all spare files.
    pub(super) fn names(&self) -> Vec<String> {
        let (mut names, ballast) = {
            let files = lock(&self.files);
            let number = |part: ReservePurpose| Some((part, files.ballast[part as usize].as_ref()?.number));
            let free = files.free.iter().map(|file| names::log(file.number));
            (free.collect::<Vec<String>>(), ReservePurpose::ALL.map(number))
        };
        names.extend(ballast.into_iter().flatten().map(|(part, number)| self.ballast_name(part, number)));
        names
    }

    /// Sets the number of retained groups.
    pub(super) fn set_retained(&self, groups: usize) {
        lock(&self.files).retained = groups;
    }

    /// Sets the number of groups that the log last released at once.
    pub(super) fn set_let_go(&self, groups: usize) {
        lock(&self.files).keep = groups;
    }

    /// Returns a file for a group of `wanted` bytes, or of at least `least` where space is short.
    ///
    /// # Errors
    /// `NoSpace`: nothing happened; other file system errors.
    pub(super) fn take(&self, wanted: u64, least: u64, need: LogGroupPurpose) -> Result<GroupFile> {
        // The log must not take space that was kept for jobs.
        let short = self.reserved_is_short();
        let wanted = if need == LogGroupPurpose::Last && short { least } else { wanted };
        if let Some(file) = self.take_free(|len| len == wanted || short && len >= least) {
            return Ok(file);
        }
        let refused = match need {
            _ if short && need != LogGroupPurpose::Last => no_room(&self.base),
            LogGroupPurpose::Deletes if self.base.lane.retains() => match self.make(wanted, least) {
                Err(e) if e.kind() == ErrorKind::NoSpace => e,
                made => return made,
            },
            LogGroupPurpose::Deletes => match self.create(wanted, names::log) {
                // The remaining space is for the flush of the deletes.
                Err(e) if e.kind() == ErrorKind::NoSpace => e,
                made => return made,
            },
            LogGroupPurpose::Usual | LogGroupPurpose::Last => match self.make(wanted, least) {
                Err(e) if e.kind() == ErrorKind::NoSpace => e,
                made => return made,
            },
        };
        if need == LogGroupPurpose::Usual {
            return Err(refused);
        }
        self.room_is_short();
        self.take_free(|len| len >= least).or_else(|| self.take_ballast(least)).ok_or(refused)
    }

    /// Makes a file of `wanted` bytes. Without space for it, takes the longest free file, or makes
    /// a shorter one.
    fn make(&self, wanted: u64, least: u64) -> Result<GroupFile> {
        let mut len = wanted;
        loop {
            match self.create(len, names::log) {
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

    fn create(&self, len: u64, name: impl Fn(u64) -> String) -> Result<GroupFile> {
        let number = self.base.manifest.allocate_file_number();
        let path = self.base.context.path(&name(number));
        // The group identity in each page tells old content apart, so a new file may hold anything.
        let file = self.base.context.env.fs.create_in_place_unzeroed(&path, len, self.base.terms.access)?;
        self.base.store.sync_dir()?;
        Ok(GroupFile { number, len, uid: Uid::default(), file, room_bytes: len })
    }

    /// Takes the longest free file that fits.
    fn take_free(&self, fits: impl Fn(u64) -> bool) -> Option<GroupFile> {
        let mut state = self.change();
        let all = state.free.iter().enumerate().filter(|(_, file)| fits(file.len));
        let longest = all.max_by_key(|(_, file)| file.len).map(|(i, _)| i);
        longest.map(|i| state.free.swap_remove(i))
    }

    fn take_ballast(&self, least: u64) -> Option<GroupFile> {
        let file = self.change().ballast[ReservePurpose::Log as usize].take_if(|file| file.len >= least)?;
        self.base.space.gauges.set_ballast_used(true);
        Some(file)
    }

    /// Removes a reserved file to free its space. Returns false if it does not exist.
    pub fn release_reserved(&self, part: ReservePurpose) -> bool {
        let Some(file) = self.change().ballast[part as usize].take() else { return false };
        self.base.space.gauges.set_ballast_used(true);
        self.base.store.remove(&self.ballast_name(part, file.number)).is_ok()
    }

    /// Returns the name of a reserved file. With a fast tier, the file for jobs is on the capacity
    /// tier.
    fn ballast_name(&self, part: ReservePurpose, number: u64) -> String {
        let apart = part == ReservePurpose::Jobs && self.base.manifest.state().speed.is_some();
        if apart { names::room(number) } else { names::log(number) }
    }

    /// Returns the purpose of a reserved file, by its name and length.
    fn ballast_in(&self, entry: &DirEntry) -> Option<(ReservePurpose, u64)> {
        let number = names::parse(&entry.name)?.number()?;
        let is = |part: &ReservePurpose| {
            part.len(self.base.terms.group_bytes) == entry.len
                && self.ballast_name(*part, number) == entry.name
        };
        ReservePurpose::ALL.into_iter().find(is).map(|part| (part, number))
    }

    /// Removes the longest free file to free its space. Returns false if there is none.
    ///
    /// # Errors
    /// File system errors.
    pub fn give_free(&self) -> Result<bool> {
        let Some(file) = self.take_free(|_| true) else { return Ok(false) };
        self.base.store.remove(&names::log(file.number))?;
        // Some file systems free the space of a removed file only once its removal is durable.
        self.base.store.sync_dir()?;
        Ok(true)
    }

    /// Reports that an indispensable step found no space. Until the reserved space is whole again,
    /// only deletes are written.
    pub fn room_is_short(&self) {
        if self.base.lane.retains() {
            return;
        }
        self.base.space.gauges.set_ballast_used(true);
    }

    /// Returns true while part of the reserved space is missing after use: every lane takes deletes
    /// only.
    pub fn reserved_is_short(&self) -> bool {
        self.base.space.gauges.ballast_is_used()
    }

    /// Makes the missing reserved files. The caller holds the lock of group preparation.
    pub(super) fn fill_reserved(&self) -> Result<()> {
        if self.base.lane.retains() {
            return Ok(());
        }
        self.base.space.gauges.set_ballast_used(true);
        // The longer file first: if it does not fit, the space is left to jobs.
        for part in [ReservePurpose::Jobs, ReservePurpose::Log] {
            let len = part.len(self.base.terms.group_bytes);
            if lock(&self.files).ballast[part as usize].is_some() {
                continue;
            }
            let is_log = self.ballast_name(part, 0) == names::log(0);
            let file = match self.take_free(|free| is_log && free == len) {
                Some(file) => file,
                None => self.create(len, |number| self.ballast_name(part, number))?,
            };
            self.change().ballast[part as usize] = Some(file);
        }
        self.base.space.gauges.set_ballast_used(false);
        Ok(())
    }

    /// Takes over the reserved space of an earlier process: files without a group, with the right
    /// length. A file that a crash left incomplete does not have all its pages allocated.
    ///
    /// # Errors
    /// Errors of opening the files.
    pub fn adopt_ballast(&self, listing: &[DirEntry]) -> Result<()> {
        let manifest = self.base.manifest.state();
        for entry in listing.iter().filter(|entry| entry.allocated >= entry.len) {
            let Some((part, number)) = self.ballast_in(entry) else { continue };
            let part = part as usize;
            if lock(&self.files).ballast[part].is_some() {
                continue;
            }
            if manifest.log_groups.in_file(number).is_some() || self.is_kept(number) {
                continue;
            }
            let len = entry.len;
            match self
                .base
                .context
                .env
                .fs
                .open_in_place(&self.base.context.path(&entry.name), self.base.terms.access)
            {
                Ok(file) => {
                    let uid = Uid::default();
                    self.change().ballast[part] = Some(GroupFile { number, len, uid, file, room_bytes: len })
                }
                // An earlier attempt used it up.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Takes back a file for a group whose listing failed.
    pub(super) fn give_back(&self, file: GroupFile, need: LogGroupPurpose) {
        let mut files = self.change();
        let of_ballast = file.len == ReservePurpose::Log.len(self.base.terms.group_bytes);
        let ballast = &mut files.ballast[ReservePurpose::Log as usize];
        if need != LogGroupPurpose::Usual && ballast.is_none() && of_ballast {
            *ballast = Some(file);
        } else {
            files.free.push(file);
        }
    }

    /// Takes the files of dropped groups for reuse. `len` is the current group length. Returns the
    /// surplus: files beyond the bound, of another length, or not fully allocated.
    pub(super) fn recycle(&self, dropped: Vec<GroupFile>, len: u64) -> Vec<GroupFile> {
        let retains = self.base.lane.retains();
        let mut files = self.change();
        let bound = match self.base.space.is_limited() || retains {
            // Groups of a long lane become garbage several at a time, and each new file is written
            // twice, once with zeros. Under a limit the free files are available space
            // ([`Spares::give_free`]).
            true => self.base.terms.free_groups_max.max(free_of_retained(files.retained, len)),
            false => usize::MAX,
        };
        files.free.extend(dropped);
        let (mut fit, mut surplus): (Vec<_>, Vec<_>) =
            files.free.drain(..).partition(|f| f.len == len && f.is_whole());
        // In a record lane, the number released at once says nothing about the reuse of groups.
        let keep = if retains { bound } else { files.keep.max(1).min(bound) }.min(fit.len());
        surplus.extend(fit.drain(keep..));
        files.free = fit;
        surplus
    }

    /// Removes surplus files.
    ///
    /// # Errors
    /// The first of the file system.
    pub(super) fn remove(&self, surplus: Vec<GroupFile>) -> Result<()> {
        let (removes, mut outcome) = (!surplus.is_empty(), Ok(()));
        for file in surplus {
            if let Err(e) = self.base.store.remove(&names::log(file.number)) {
                // The failure must not keep the other files; this one is surplus again the next
                // time.
                self.change().free.push(file);
                outcome = outcome.and(Err(e));
            }
        }
        outcome?;
        if removes && self.reserved_is_short() {
            // Some file systems free the space of a removed file only once its removal is durable.
            self.base.store.sync_dir()?;
        }
        Ok(())
    }

    /// Takes all free files; an idle or closed log does not need them.
    pub(super) fn take_all(&self) -> Vec<GroupFile> {
        std::mem::take(&mut self.change().free)
    }
}

#[cfg(test)]
mod tests;
