//! The files of log groups: in use, waiting to be used again, and kept for a day without room.
//!
//! A group is a file of fixed length, allocated and written once. The manifest lists it before the log may use it, and
//! the edit that drops it is durable before the file is used again or removed.
//!
//! # Where there is no room
//!
//! A group that was wanted longer is made as short as will do; where none can be made, a file that waits to be used again
//! is taken, whatever its length. The last resort is the *ballast*: two files, made by the first open with room, and made
//! again as soon as there is room after they were used. (That of the first lane stands for all: a lane whose groups are kept
//! as storage has its reserve in the files that wait to be used again.) The log takes one for a batch that only deletes, or at open; a job
//! that finds no room has the other removed. While any is missing nothing but deletes is written, so that what they freed
//! is not taken by new data.

use super::LogTerms;
use super::lane::Retained;
use super::pace::{Pace, shortest_bytes};
use crate::context::Context;
use crate::descriptors::LOG_PARTS;
use crate::files::OpenFiles;
use crate::manifest::{LogGroupMeta, Manifest, Record};
use crate::names;
use crate::space::SpaceBudget;
use base::sync::{Mutex, MutexGuard, lock, rank};
use base::{Error, ErrorKind, Result, Uid};
use io::{DirEntry, InPlaceFile};
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use wal::{Lane, PreparedGroup, PriorGroup};

/// Retained groups for each one that may wait to be used again.
const RETAINED_PER_FREE: usize = 4;
/// Bytes of those, at most, however long the lane is: what a fast device takes in a second, so that groups which become garbage together
/// are used again together. What is over that is room for others.
const FREE_BYTES_MAX: u64 = 1 << 30;

/// What a file of the ballast is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ballast {
    /// A group of the log.
    Log,
    /// Room for a job that frees space.
    Jobs,
}

impl Ballast {
    const ALL: [Ballast; 2] = [Ballast::Log, Ballast::Jobs];

    /// Bytes of the file. They differ, so that the next process can tell which is which.
    fn len(self, group_bytes: u64) -> u64 {
        let factor = match self {
            Ballast::Log => 2,
            Ballast::Jobs => 4,
        };
        factor * shortest_bytes(group_bytes)
    }
}

/// Bytes of the whole ballast where the longest group has `group_bytes`.
pub fn ballast_bytes(group_bytes: u64) -> u64 {
    Ballast::ALL.iter().map(|part| part.len(group_bytes)).sum()
}

/// How many groups of `len` bytes may wait to be used again in a lane that has so many retained ones.
fn free_of_retained(retained: usize, len: u64) -> usize {
    let within = usize::try_from(FREE_BYTES_MAX / len.max(1)).unwrap_or(usize::MAX);
    (retained / RETAINED_PER_FREE).min(within)
}

/// Who needs a group, and what may be used for it where there is no room for a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing.
    Usual,
    /// The ballast. After some of it was used, that and nothing else: what room there is, is for the flush of what is
    /// deleted.
    Deletes,
    /// Everything there is: the log is to begin, or deletes have been flushed and found no group all the same.
    Last,
}

/// The file of a group.
#[derive(Clone, Debug)]
pub struct GroupFile {
    /// Its number.
    pub number: u64,
    /// Its bytes.
    pub len: u64,
    /// The identity of the group, as long as it is one.
    pub uid: Uid,
    /// The file.
    pub file: Arc<dyn InPlaceFile>,
}

/// See the module.
#[derive(Debug)]
pub struct GroupFiles {
    pub(super) lane: Lane,
    pub(super) terms: LogTerms,
    pub(super) context: Arc<Context>,
    pub(super) manifest: Arc<Manifest>,
    pub(super) store: Arc<crate::files::Files>,
    space: Arc<SpaceBudget>,
    /// All of [`Files`].
    pub(super) state: Mutex<Files, rank::LogGroups>,
    /// Files of retained groups, by LTN.
    pub(super) open: OpenFiles<Arc<dyn InPlaceFile>>,
}

#[derive(Debug, Default)]
pub(super) struct Files {
    /// Groups the manifest lists for replay, by LTN.
    pub live: BTreeMap<u64, GroupFile>,
    /// Those of them that the log has let go of and that are not kept as storage yet, oldest first.
    pub passed: VecDeque<PriorGroup>,
    /// Groups that are kept as storage, by LTN.
    pub retained: BTreeMap<u64, Retained>,
    /// Bytes of those: nobody goes through all of them.
    pub retained_bytes: u64,
    /// Somebody commits what changes these two.
    pub is_moving: bool,
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

impl Files {
    /// All that there are, but for those that are kept as storage.
    fn all(&self) -> impl Iterator<Item = &GroupFile> {
        self.live.values().chain(&self.free).chain(self.ballast.iter().flatten())
    }
}

/// The files, to be changed: what they come to is told when that is done.
pub(super) struct Changing<'a> {
    lane: Lane,
    space: &'a SpaceBudget,
    files: MutexGuard<'a, Files>,
}

impl Deref for Changing<'_> {
    type Target = Files;
    fn deref(&self) -> &Files {
        &self.files
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut Files {
        &mut self.files
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let bytes = self.files.all().map(|file| file.len).sum::<u64>() + self.files.retained_bytes;
        self.space.gauges.set_log_bytes(self.lane, bytes);
    }
}

impl GroupFiles {
    pub(super) fn new(
        lane: Lane,
        terms: LogTerms,
        store: Arc<crate::files::Files>,
        space: Arc<SpaceBudget>,
    ) -> GroupFiles {
        let (context, manifest) = (store.context().clone(), store.manifest().clone());
        let (state, open) = (Mutex::new(Files::default()), OpenFiles::new(terms.retained_open_max));
        open.share(&context.volumes.directory().descriptors, LOG_PARTS);
        GroupFiles { lane, terms, context, manifest, store, space, state, open }
    }

    pub(super) fn change(&self) -> Changing<'_> {
        Changing { lane: self.lane, space: &self.space, files: lock(&self.state) }
    }

    /// Takes over a group found by recovery.
    pub(super) fn adopt(&self, ltn: u64, file: GroupFile) {
        self.change().live.insert(ltn, file);
    }

    /// The file of a group that the manifest lists.
    pub fn file_of(&self, ltn: u64) -> Option<GroupFile> {
        lock(&self.state).live.get(&ltn).cloned()
    }

    /// True if a file that no group has is kept under this number: it is no orphan.
    pub fn is_kept(&self, number: u64) -> bool {
        let state = lock(&self.state);
        state.free.iter().chain(state.ballast.iter().flatten()).any(|f| f.number == number)
    }

    /// True if a file of a former group of this length waits to be used again.
    pub(super) fn has_free(&self, wanted: u64) -> bool {
        lock(&self.state).free.iter().any(|f| f.len == wanted)
    }

    /// True if a group for a batch that needs `least` bytes could be had without new room.
    pub fn has_fitting(&self, least: u64) -> bool {
        lock(&self.state).free.iter().any(|file| file.len >= least)
    }

    /// The names of their files, but for those that are kept as storage.
    pub fn file_names(&self) -> Vec<String> {
        let ballast = {
            let state = lock(&self.state);
            let number = |part: Ballast| Some((part, state.ballast[part as usize].as_ref()?.number));
            Ballast::ALL.map(number)
        };
        let ballast: Vec<String> =
            ballast.into_iter().flatten().map(|(part, number)| self.ballast_name(part, number)).collect();
        let state = lock(&self.state);
        let groups = state.live.values().chain(&state.free).map(|file| names::log(file.number));
        groups.chain(ballast).collect()
    }

    /// The length that groups have now.
    pub(super) fn len(&self) -> u64 {
        lock(&self.state).pace.len(self.terms.group_bytes)
    }

    /// The length that the next group of a log of `live_bytes` should have.
    pub(super) fn next_len(&self, live_bytes: u64) -> u64 {
        let now_ns = self.context.now_ns();
        lock(&self.state).pace.next_len(self.terms.group_bytes, now_ns, live_bytes)
    }

    fn no_room(&self) -> Error {
        let why =
            "the volume is full, and what was kept for deletes is used up: writes resume when there is room";
        Error::new(ErrorKind::NoSpace, why).at_file(self.context.volumes.log_dir())
    }

    /// A group file that the manifest lists, not yet handed to the log: of `wanted` bytes, or where there is no room for
    /// that, of at least `least`. `usual`: the length that it should have if no batch needed a longer one.
    ///
    /// # Errors
    /// `NoSpace`: nothing happened. Those of the manifest.
    pub(super) fn list_new(
        &self,
        (wanted, least, usual): (u64, u64, u64),
        need: Need,
    ) -> Result<PreparedGroup> {
        let group = self.group_file(wanted, least, need)?;
        // New each time: a former use of the file, here or in a copy of this store, is told by it.
        let uid = self.context.env.new_uid();
        let group = GroupFile { uid, ..group };
        let (lane, file) = (self.lane, group.number);
        let meta = LogGroupMeta { file, len: group.len, uid: Some(uid), lane, ..Default::default() };
        let mut ltn = 0;
        let listed = self.context.health.check_sound().and_then(|()| {
            let build = |state: &crate::manifest::State| {
                ltn = state.next_ltn;
                let volume = state.log_volume();
                Ok(vec![Record::AddLogGroup { group: LogGroupMeta { ltn, volume, ..meta } }])
            };
            self.manifest.commit_store(build, |_| {})
        });
        let mut state = self.change();
        if let Err(e) = listed {
            let ballast = &mut state.ballast[Ballast::Log as usize];
            let of_ballast = group.len == Ballast::Log.len(self.terms.group_bytes);
            if need != Need::Usual && ballast.is_none() && of_ballast {
                *ballast = Some(group);
            } else {
                state.free.push(group);
            }
            return Err(e);
        }
        // One that was made for a long batch says nothing of those that follow.
        state.pace.made(group.len.min(usual), self.context.now_ns());
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
            Need::Deletes if self.lane.retains() => match self.make(wanted, least) {
                Err(e) if e.kind() == ErrorKind::NoSpace => e,
                made => return made,
            },
            Need::Deletes => match self.create(wanted) {
                // What is left is for the flush of what is deleted.
                Err(e) if e.kind() == ErrorKind::NoSpace => e,
                made => return made,
            },
            Need::Usual | Need::Last => match self.make(wanted, least) {
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
    fn make(&self, wanted: u64, least: u64) -> Result<GroupFile> {
        let mut len = wanted;
        loop {
            match self.create(len) {
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

    fn create(&self, len: u64) -> Result<GroupFile> {
        self.create_as(len, names::log)
    }

    fn create_as(&self, len: u64, name: impl Fn(u64) -> String) -> Result<GroupFile> {
        let number = self.manifest.allocate_file_number();
        let path = self.context.path(&name(number));
        // A page is told by the identity of its group: like a group that is used again, a new one may hold anything.
        let file = self.context.env.fs.create_in_place_unzeroed(&path, len, self.terms.access)?;
        self.store.sync_dir()?;
        Ok(GroupFile { number, len, uid: Uid::default(), file })
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
        self.space.gauges.set_ballast_used(true);
        Some(file)
    }

    /// Removes a part of the ballast, so that something finds room. False if it is not there.
    pub fn give_ballast(&self, part: Ballast) -> bool {
        let Some(file) = self.change().ballast[part as usize].take() else { return false };
        self.space.gauges.set_ballast_used(true);
        self.store.remove(&self.ballast_name(part, file.number)).is_ok()
    }

    /// The name of a part of the ballast. Where the log has a disk of its own, the room for jobs is to be on the other one.
    fn ballast_name(&self, part: Ballast, number: u64) -> String {
        let apart = part == Ballast::Jobs && self.manifest.state().speed.is_some();
        if apart { names::room(number) } else { names::log(number) }
    }

    /// What part of the ballast a file is, by its name and length.
    fn ballast_in(&self, entry: &DirEntry) -> Option<(Ballast, u64)> {
        let number = names::parse(&entry.name)?.number()?;
        let is = |part: &Ballast| {
            part.len(self.terms.group_bytes) == entry.len && self.ballast_name(*part, number) == entry.name
        };
        Ballast::ALL.into_iter().find(is).map(|part| (part, number))
    }

    /// Removes the longest file that waits to be used again, so that something else finds room. False if there is none.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn give_free(&self) -> Result<bool> {
        let Some(file) = self.take_free(|_| true) else { return Ok(false) };
        self.store.remove(&names::log(file.number))?;
        // What is removed gives its room back when that is durable, on some file systems.
        self.store.sync_dir()?;
        Ok(true)
    }

    /// There was no room for something without which nothing goes on: only deletes are written until the ballast is whole.
    pub fn room_is_short(&self) {
        if self.lane.retains() {
            return;
        }
        self.space.gauges.set_ballast_used(true);
    }

    /// True while some of the ballast is missing after it was used: only deletes may be written, to whatever lane.
    pub fn ballast_is_short(&self) -> bool {
        self.space.gauges.ballast_is_used()
    }

    /// Makes what is missing of the ballast. One at a time: the caller prepares groups.
    pub(super) fn fill_ballast(&self) -> Result<()> {
        if self.lane.retains() {
            return Ok(());
        }
        self.space.gauges.set_ballast_used(true);
        // The longer one first: where it does not fit, the room is left to jobs.
        for part in [Ballast::Jobs, Ballast::Log] {
            let len = part.len(self.terms.group_bytes);
            if lock(&self.state).ballast[part as usize].is_some() {
                continue;
            }
            let is_log = self.ballast_name(part, 0) == names::log(0);
            let file = match self.take_free(|free| is_log && free == len) {
                Some(file) => file,
                None => self.create_as(len, |number| self.ballast_name(part, number))?,
            };
            self.change().ballast[part as usize] = Some(file);
        }
        self.space.gauges.set_ballast_used(false);
        Ok(())
    }

    /// Takes over the ballast that an earlier process left: of the files that no group has, those with the right length.
    /// A file that a crash left half made has not all its pages.
    ///
    /// # Errors
    /// Those of opening the files.
    pub fn adopt_ballast(&self, listing: &[DirEntry]) -> Result<()> {
        let manifest = self.manifest.state();
        for entry in listing.iter().filter(|entry| entry.allocated >= entry.len) {
            let Some((part, number)) = self.ballast_in(entry) else { continue };
            let part = part as usize;
            if lock(&self.state).ballast[part].is_some() {
                continue;
            }
            if manifest.log_groups.in_file(number).is_some() || self.is_kept(number) {
                continue;
            }
            let len = entry.len;
            match self.context.env.fs.open_in_place(&self.context.path(&entry.name), self.terms.access) {
                Ok(file) => {
                    self.change().ballast[part] = Some(GroupFile { number, len, uid: Uid::default(), file })
                }
                // It was used up by an earlier try.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Drops the groups that the log has let go of, and those that could not be dropped before: manifest first, then the
    /// files. Returns false if there are none.
    pub(super) fn release(&self, released: Vec<u64>) -> Result<bool> {
        lock(&self.state).leaving.extend(released);
        self.release_with(&[], Vec::new(), || Ok(()))
    }

    /// As [`GroupFiles::release`], with more records in the same edit. These groups the log lets go of in `done`, once the edit is durable: until then
    /// it may write to their files.
    pub(super) fn release_with(
        &self,
        released: &[u64],
        more: Vec<Record>,
        done: impl FnOnce() -> Result<()>,
    ) -> Result<bool> {
        let mut dropped = lock(&self.state).leaving.clone();
        dropped.extend(released);
        if dropped.is_empty() && more.is_empty() {
            return Ok(false);
        }
        self.context.health.check_sound()?;
        let mut records: Vec<Record> = dropped.iter().map(|&ltn| Record::RemoveLogGroup { ltn }).collect();
        records.extend(more);
        self.manifest.commit_store(|_| Ok(records), |_| {})?;
        {
            let mut state = lock(&self.state);
            // One job at a time releases groups, so the list has not grown meanwhile.
            state.leaving.clear();
            if !dropped.is_empty() {
                state.keep = dropped.len();
            }
        }
        done()?;
        if !dropped.is_empty() {
            self.discard(&dropped)?;
        }
        Ok(true)
    }

    /// Puts groups whose removal from the manifest is durable on the free list, so that they are used again.
    pub(super) fn discard(&self, dropped: &[u64]) -> Result<()> {
        let is_bound = self.space.is_limited() || self.lane.retains();
        let bound = if is_bound { self.terms.free_groups_max.max(self.free_max()) } else { usize::MAX };
        let surplus = self.recycle(dropped, bound);
        let (removes, mut outcome) = (!surplus.is_empty(), Ok(()));
        for file in surplus {
            if let Err(e) = self.store.remove(&names::log(file.number)) {
                // It keeps none of the others, and is too much again the next time.
                self.change().free.push(file);
                outcome = outcome.and(Err(e));
            }
        }
        outcome?;
        if removes && self.ballast_is_short() {
            // What is removed gives its room back when that is durable, on some file systems.
            self.store.sync_dir()?;
        }
        Ok(())
    }

    /// How many free groups a long lane of retained ones may have: groups become garbage several at a time, and each that is made anew is
    /// written twice, once with zeros. Where there is a limit they are room that is had ([`GroupFiles::give_free`]).
    fn free_max(&self) -> usize {
        let state = lock(&self.state);
        free_of_retained(state.retained.len(), state.pace.len(self.terms.group_bytes))
    }

    /// Moves dropped groups to the free list; returns the files that are too many or of another length than groups have
    /// now. `bound`: most that may be kept.
    fn recycle(&self, dropped: &[u64], bound: usize) -> Vec<GroupFile> {
        let mut state = self.change();
        let len = state.pace.len(self.terms.group_bytes);
        let files: Vec<GroupFile> = dropped.iter().filter_map(|ltn| state.live.remove(ltn)).collect();
        state.free.extend(files);
        let (mut fit, mut surplus): (Vec<_>, Vec<_>) = state.free.drain(..).partition(|f| f.len == len);
        // How many are let go of at once says nothing of a lane whose groups go when they are garbage.
        let keep = if self.lane.retains() { bound } else { state.keep.max(1).min(bound) }.min(fit.len());
        surplus.extend(fit.drain(keep..));
        state.free = fit;
        surplus
    }

    /// After the log was closed: groups that it has not begun to use, youngest last, and the files that no group has. A
    /// closed store has no need of either.
    pub(super) fn unused(&self, last_used: u64) -> (Vec<u64>, Vec<u64>) {
        let mut state = self.change();
        let mut spares = state.live.split_off(&(last_used + 1));
        let free = std::mem::take(&mut state.free).into_iter();
        let files = spares.values().map(|file| file.number).chain(free.map(|file| file.number)).collect();
        let ltns = spares.keys().copied().collect();
        spares.clear();
        (ltns, files)
    }
}

#[cfg(test)]
mod tests;
