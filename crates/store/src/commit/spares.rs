//! Files of the log that no group has: those that wait to be used again, and those kept for a day without room.
//!
//! # Where there is no room
//!
//! A group that was wanted longer is made as short as will do; where none can be made, a file that waits to be used again
//! is taken, whatever its length. The last resort is the *ballast*: two files, made by the first open with room, and made
//! again as soon as there is room after they were used. (That of the first lane stands for all: a lane whose groups are kept
//! as storage has its reserve in the files that wait to be used again.) The log takes one for a batch that only deletes, or at open; a job
//! that finds no room has the other removed. While any is missing nothing but deletes is written, so that what they freed
//! is not taken by new data.

use super::files::GroupFile;
use super::foundation::{Foundation, ToldBytes};
use super::pace::shortest_bytes;
use crate::names;
use base::sync::{Mutex, MutexGuard, lock, rank};
use base::{Error, ErrorKind, Result, Uid};
use io::DirEntry;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

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

/// See the module.
#[derive(Debug)]
pub struct Spares {
    base: Arc<Foundation>,
    /// All of [`SpareFiles`].
    files: Mutex<SpareFiles, rank::LogSpares>,
}

#[derive(Debug, Default)]
struct SpareFiles {
    /// Files of dropped groups that may be used again.
    free: Vec<GroupFile>,
    /// Files for the day on which there is no room, by [`Ballast`].
    ballast: [Option<GroupFile>; 2],
    /// How many free ones are kept: as many as the log last let go of at once, so that a log which uses many groups
    /// between two flushes recycles them all, and one that uses one keeps one.
    keep: usize,
    /// Groups that are kept as storage: a long lane keeps more free files.
    retained: usize,
    told: ToldBytes,
}

impl SpareFiles {
    fn all(&self) -> impl Iterator<Item = &GroupFile> {
        self.free.iter().chain(self.ballast.iter().flatten())
    }
}

/// The files, to be changed: what they come to is told when that is done.
struct Changing<'a> {
    base: &'a Foundation,
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

fn no_room(base: &Foundation) -> Error {
    let why =
        "the volume is full, and what was kept for deletes is used up: writes resume when there is room";
    Error::new(ErrorKind::NoSpace, why).at_file(base.context.volumes.log_dir())
}

impl Spares {
    pub(super) fn new(base: Arc<Foundation>) -> Spares {
        Spares { base, files: Mutex::default() }
    }

    fn change(&self) -> Changing<'_> {
        Changing { base: &self.base, files: lock(&self.files) }
    }

    /// True if a file that no group has is kept under this number: it is no orphan.
    pub fn is_kept(&self, number: u64) -> bool {
        let state = lock(&self.files);
        state.free.iter().chain(state.ballast.iter().flatten()).any(|f| f.number == number)
    }

    /// True if a file of a former group of this length waits to be used again.
    pub(super) fn has_free(&self, wanted: u64) -> bool {
        lock(&self.files).free.iter().any(|f| f.len == wanted)
    }

    /// True if a group for a batch that needs `least` bytes could be had without new room.
    pub fn has_fitting(&self, least: u64) -> bool {
        lock(&self.files).free.iter().any(|file| file.len >= least)
    }

    /// The names of all.
    pub(super) fn names(&self) -> Vec<String> {
        let (mut names, ballast) = {
            let files = lock(&self.files);
            let number = |part: Ballast| Some((part, files.ballast[part as usize].as_ref()?.number));
            let free = files.free.iter().map(|file| names::log(file.number));
            (free.collect::<Vec<String>>(), Ballast::ALL.map(number))
        };
        names.extend(ballast.into_iter().flatten().map(|(part, number)| self.ballast_name(part, number)));
        names
    }

    /// So many groups are kept as storage.
    pub(super) fn set_retained(&self, groups: usize) {
        lock(&self.files).retained = groups;
    }

    /// The log let go of so many groups at once.
    pub(super) fn set_let_go(&self, groups: usize) {
        lock(&self.files).keep = groups;
    }

    /// A file for a group of `wanted` bytes, or where there is no room for that, of at least `least`.
    ///
    /// # Errors
    /// `NoSpace`: nothing happened; others of the file system.
    pub(super) fn take(&self, wanted: u64, least: u64, need: Need) -> Result<GroupFile> {
        // Room that was kept for jobs is not for the log.
        let short = self.ballast_is_short();
        let wanted = if need == Need::Last && short { least } else { wanted };
        if let Some(file) = self.take_free(|len| len == wanted || short && len >= least) {
            return Ok(file);
        }
        let refused = match need {
            _ if short && need != Need::Last => no_room(&self.base),
            Need::Deletes if self.base.lane.retains() => match self.make(wanted, least) {
                Err(e) if e.kind() == ErrorKind::NoSpace => e,
                made => return made,
            },
            Need::Deletes => match self.create(wanted, names::log) {
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
        // A page is told by the identity of its group: like a group that is used again, a new one may hold anything.
        let file = self.base.context.env.fs.create_in_place_unzeroed(&path, len, self.base.terms.access)?;
        self.base.store.sync_dir()?;
        Ok(GroupFile { number, len, uid: Uid::default(), file, room_bytes: len })
    }

    /// The longest file of a former group that fits.
    fn take_free(&self, fits: impl Fn(u64) -> bool) -> Option<GroupFile> {
        let mut state = self.change();
        let all = state.free.iter().enumerate().filter(|(_, file)| fits(file.len));
        let longest = all.max_by_key(|(_, file)| file.len).map(|(i, _)| i);
        longest.map(|i| state.free.swap_remove(i))
    }

    fn take_ballast(&self, least: u64) -> Option<GroupFile> {
        let file = self.change().ballast[Ballast::Log as usize].take_if(|file| file.len >= least)?;
        self.base.space.gauges.set_ballast_used(true);
        Some(file)
    }

    /// Removes a part of the ballast, so that something finds room. False if it is not there.
    pub fn give_ballast(&self, part: Ballast) -> bool {
        let Some(file) = self.change().ballast[part as usize].take() else { return false };
        self.base.space.gauges.set_ballast_used(true);
        self.base.store.remove(&self.ballast_name(part, file.number)).is_ok()
    }

    /// The name of a part of the ballast. Where the log has a disk of its own, the room for jobs is to be on the other one.
    fn ballast_name(&self, part: Ballast, number: u64) -> String {
        let apart = part == Ballast::Jobs && self.base.manifest.state().speed.is_some();
        if apart { names::room(number) } else { names::log(number) }
    }

    /// What part of the ballast a file is, by its name and length.
    fn ballast_in(&self, entry: &DirEntry) -> Option<(Ballast, u64)> {
        let number = names::parse(&entry.name)?.number()?;
        let is = |part: &Ballast| {
            part.len(self.base.terms.group_bytes) == entry.len
                && self.ballast_name(*part, number) == entry.name
        };
        Ballast::ALL.into_iter().find(is).map(|part| (part, number))
    }

    /// Removes the longest file that waits to be used again, so that something else finds room. False if there is none.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn give_free(&self) -> Result<bool> {
        let Some(file) = self.take_free(|_| true) else { return Ok(false) };
        self.base.store.remove(&names::log(file.number))?;
        // What is removed gives its room back when that is durable, on some file systems.
        self.base.store.sync_dir()?;
        Ok(true)
    }

    /// There was no room for something without which nothing goes on: only deletes are written until the ballast is whole.
    pub fn room_is_short(&self) {
        if self.base.lane.retains() {
            return;
        }
        self.base.space.gauges.set_ballast_used(true);
    }

    /// True while some of the ballast is missing after it was used: only deletes may be written, to whatever lane.
    pub fn ballast_is_short(&self) -> bool {
        self.base.space.gauges.ballast_is_used()
    }

    /// Makes what is missing of the ballast. One at a time: the caller prepares groups.
    pub(super) fn fill_ballast(&self) -> Result<()> {
        if self.base.lane.retains() {
            return Ok(());
        }
        self.base.space.gauges.set_ballast_used(true);
        // The longer one first: where it does not fit, the room is left to jobs.
        for part in [Ballast::Jobs, Ballast::Log] {
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

    /// Takes over the ballast that an earlier process left: of the files that no group has, those with the right length.
    /// A file that a crash left half made has not all its pages.
    ///
    /// # Errors
    /// Those of opening the files.
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
                // It was used up by an earlier try.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Takes back a file that was to be a group for `need`, and is none.
    pub(super) fn give_back(&self, file: GroupFile, need: Need) {
        let mut files = self.change();
        let of_ballast = file.len == Ballast::Log.len(self.base.terms.group_bytes);
        let ballast = &mut files.ballast[Ballast::Log as usize];
        if need != Need::Usual && ballast.is_none() && of_ballast {
            *ballast = Some(file);
        } else {
            files.free.push(file);
        }
    }

    /// Takes the files of dropped groups, to be used again; `len`: the length that groups have now. Returns those that are too many,
    /// of another length, or without room for all of their pages.
    pub(super) fn recycle(&self, dropped: Vec<GroupFile>, len: u64) -> Vec<GroupFile> {
        let retains = self.base.lane.retains();
        let mut files = self.change();
        let bound = match self.base.space.is_limited() || retains {
            // Groups of a long lane become garbage several at a time, and each that is made anew is written twice, once with zeros.
            // Where there is a limit they are room that is had ([`Spares::give_free`]).
            true => self.base.terms.free_groups_max.max(free_of_retained(files.retained, len)),
            false => usize::MAX,
        };
        files.free.extend(dropped);
        let (mut fit, mut surplus): (Vec<_>, Vec<_>) =
            files.free.drain(..).partition(|f| f.len == len && f.is_whole());
        // How many are let go of at once says nothing of a lane whose groups go when they are garbage.
        let keep = if retains { bound } else { files.keep.max(1).min(bound) }.min(fit.len());
        surplus.extend(fit.drain(keep..));
        files.free = fit;
        surplus
    }

    /// Removes files that are too many.
    ///
    /// # Errors
    /// The first of the file system.
    pub(super) fn remove(&self, surplus: Vec<GroupFile>) -> Result<()> {
        let (removes, mut outcome) = (!surplus.is_empty(), Ok(()));
        for file in surplus {
            if let Err(e) = self.base.store.remove(&names::log(file.number)) {
                // It keeps none of the others, and is too much again the next time.
                self.change().free.push(file);
                outcome = outcome.and(Err(e));
            }
        }
        outcome?;
        if removes && self.ballast_is_short() {
            // What is removed gives its room back when that is durable, on some file systems.
            self.base.store.sync_dir()?;
        }
        Ok(())
    }

    /// Takes all free files: a log that is idle or closed has no need of them.
    pub(super) fn take_all(&self) -> Vec<GroupFile> {
        std::mem::take(&mut self.change().free)
    }
}

#[cfg(test)]
mod tests;
