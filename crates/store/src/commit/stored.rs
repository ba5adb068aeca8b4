//! A lane whose groups are storage: where its records are, and how a group is kept and let go of.
//!
//! A group of such a lane goes from hand to hand:
//!
//! 1. *Active*: batches are appended to it. *Closed*: nothing is, and it is replayed after a crash.
//! 2. *Passed*: every tenant's floor has passed it, and the log has let go of it; it is still replayed. The engine whose records
//!    it holds now sees to it that it finds them without a replay, and
//! 3. *Retains* it ([`StoredGroups::retain`]): it is storage, and not read at open any more, however many there are. Groups are retained
//!    in their order, since what is replayed must be one run.
//! 4. *Freed* ([`StoredGroups::free`]): the file waits to be used again, as another group with another identity. One that was *shared*
//!    ([`StoredGroups::share`]) has another name, in a copy of the store, and is only removed.
//!
//! Both steps are one edit of the manifest, together with what the engine says of them in its own records.
//!
//! **Reading.** [`super::LaneReader::read`] takes any bytes of a batch from where they are: from memory while they are not in the file of their
//! group, else with one read of the device. Nothing is pinned: the page says by its identity whether it is still what was asked
//! for, and the group whether it is still there. Who finds that it is not (`NotFound`) asks his index again.
//!
//! **Damage.** A retained group that is missing, short or damaged costs the records in it and nothing else; the store opens.
//! [`StoredGroups::missing`] says which are not whole; everything else shows when it is read.
//!
//! Invariants: a group that is listed for replay and not passed is the log's. One is free only after the edit that removes it is
//! durable. What is kept in memory of a retained group is its entry here. There are more of them than a process may have files open: the
//! files of those that were read or retained last are, so many at most ([`super::LogTerms::retained_open_max`]).

use super::files::{GroupFile, GroupFiles};
use super::foundation::{Foundation, ToldBytes};
use super::recorded;
use super::spares::Spares;
use crate::descriptors::LOG_PARTS;
use crate::files::OpenFiles;
use crate::manifest::{LogGroupMeta, Record};
use crate::names;
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind, HashMap, Result, Uid};
use io::{DirEntry, InPlaceFile};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use wal::{PriorGroup, Spans};

/// What a group is to its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupState {
    /// Batches are appended to it.
    Active,
    /// It is needed for replay.
    Closed,
    /// It is replayed, and nobody would miss that: it may be retained.
    Passed,
    /// It is kept as storage.
    Retained,
}

/// A group of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneGroup {
    /// Its number.
    pub ltn: u64,
    /// Bytes of its file.
    pub len: u64,
    /// Bytes of the pages that are in its file and count, from the first on.
    pub filled: u64,
    /// What it is.
    pub state: GroupState,
    /// The sequences of its batches; `None` for one that is retained: nobody reads them at open.
    pub seqs: Option<Spans>,
}

/// A group that is kept as storage.
#[derive(Debug)]
struct Retained {
    number: u64,
    len: u64,
    uid: Uid,
    filled: u64,
    /// The store that wrote its pages.
    store: Uid,
    /// Its file has another name.
    shared: bool,
}

/// A group of which something can be read.
pub(super) struct Readable {
    pub store: Uid,
    pub uid: Uid,
    pub file: Arc<dyn InPlaceFile>,
    /// The log may have pages of it in memory.
    pub is_live: bool,
}

/// See the module.
#[derive(Debug)]
pub struct StoredGroups {
    base: Arc<Foundation>,
    files: Arc<GroupFiles>,
    spares: Arc<Spares>,
    /// All of [`Groups`].
    groups: Mutex<Groups, rank::LogStored>,
    /// Files of retained groups, by LTN.
    open: OpenFiles<Arc<dyn InPlaceFile>>,
}

#[derive(Debug, Default)]
struct Groups {
    /// Those that the manifest lists for replay, that the log has let go of, and that are not storage yet, oldest first.
    passed: VecDeque<PriorGroup>,
    /// Those that are storage, by LTN.
    retained: BTreeMap<u64, Retained>,
    /// Bytes of those: nobody goes through all of them.
    retained_bytes: u64,
    /// Somebody commits what changes these two.
    is_moving: bool,
    told: ToldBytes,
}

impl StoredGroups {
    pub(super) fn new(base: Arc<Foundation>, files: Arc<GroupFiles>, spares: Arc<Spares>) -> StoredGroups {
        let open = OpenFiles::new(base.terms.retained_open_max);
        open.share(&base.context.volumes.directory().descriptors, LOG_PARTS);
        StoredGroups { base, files, spares, groups: Mutex::default(), open }
    }

    /// Closes the files of all of them: the store is closed.
    pub fn end(&self) {
        self.open.end();
    }

    /// Takes over the groups that the manifest lists as retained. Their files are not opened.
    pub(super) fn adopt<'a>(&self, listed: impl Iterator<Item = &'a LogGroupMeta>) {
        let retained = |meta: &LogGroupMeta| Retained {
            number: meta.file,
            len: meta.len,
            uid: meta.uid.unwrap_or_default(),
            filled: meta.retained_bytes.unwrap_or_default(),
            store: meta.store.unwrap_or(self.base.manifest.store()),
            shared: meta.shared,
        };
        let mut groups = lock(&self.groups);
        groups.retained.extend(listed.map(|meta| (meta.ltn, retained(meta))));
        groups.retained_bytes = groups.retained.values().map(|group| group.len).sum();
        self.tell(&mut groups);
    }

    fn tell(&self, groups: &mut Groups) {
        let bytes = groups.retained_bytes;
        groups.told.tell(&self.base, bytes);
        self.spares.set_retained(groups.retained.len());
    }

    /// The log lets go of groups that are not dropped, but wait to be retained.
    pub(super) fn pass(&self, released: impl FnOnce() -> Vec<PriorGroup>) {
        // Under the lock, so that none is in neither place for who looks at both.
        lock(&self.groups).passed.extend(released());
    }

    /// Bytes of the groups that the log has let go of and that are not free.
    pub(super) fn bytes(&self) -> u64 {
        let state = lock(&self.groups);
        state.retained_bytes + state.passed.iter().map(|group| group.len).sum::<u64>()
    }

    /// The group `ltn`, if it is not free by now; the file of one that is retained is opened for it, unless it is open.
    pub(super) fn readable(&self, ltn: u64) -> Result<Option<Readable>> {
        // A group that is retained meanwhile is storage before it is no file for replay.
        if let Some(GroupFile { uid, file, .. }) = self.files.file_of(ltn) {
            return Ok(Some(Readable { store: self.base.manifest.store(), uid, file, is_live: true }));
        }
        let (number, len, store, uid) = {
            let groups = lock(&self.groups);
            let Some(group) = groups.retained.get(&ltn) else { return Ok(None) };
            (group.number, group.len, group.store, group.uid)
        };
        let opened = self.open.find(ltn, || self.open_retained(ltn, number, len));
        if !lock(&self.groups).retained.contains_key(&ltn) {
            // Who freed it may have asked for its file before it was open: nobody else would close it.
            self.open.forget(ltn);
            return Ok(None);
        }
        Ok(Some(Readable { store, uid, file: opened?, is_live: false }))
    }

    fn open_retained(&self, ltn: u64, number: u64, len: u64) -> Result<Arc<dyn InPlaceFile>> {
        let path = self.base.context.path(&names::log(number));
        let opened = match self.base.manifest.is_read_only() {
            false => self.base.context.env.fs.open_in_place(&path, self.base.terms.access),
            true => io::open_in_place_read_only(&*self.base.context.env.fs, &path, self.base.terms.access),
        };
        match opened {
            Ok(file) if file.len() >= len => Ok(recorded::up_to(file, len)),
            Ok(file) => Err(not_whole(ltn, Some(file.len()), len).at_file(path)),
            Err(e) if e.kind() == ErrorKind::NotFound => Err(not_whole(ltn, None, len).at_file(path)),
            Err(e) => Err(e),
        }
    }

    /// Commits what changes passed and retained groups: `plan` makes the records, `done` what follows from them once they are
    /// durable.
    fn move_groups<P>(
        &self,
        plan: impl FnOnce(&Groups) -> Result<(P, Vec<Record>)>,
        commit: impl FnOnce(Vec<Record>) -> Result<()>,
        done: impl FnOnce(&mut Groups, &P),
    ) -> Result<P> {
        self.base.context.health.check_sound()?;
        let (plan, records) = {
            let mut state = lock(&self.groups);
            if state.is_moving {
                let why = "groups of the log are being retained or freed already: one at a time";
                return Err(Error::new(ErrorKind::Busy, why));
            }
            let planned = plan(&state)?;
            state.is_moving = true;
            planned
        };
        let committed = commit(records);
        let mut groups = lock(&self.groups);
        groups.is_moving = false;
        committed?;
        done(&mut groups, &plan);
        self.tell(&mut groups);
        Ok(plan)
    }

    /// Makes an edit of these records alone.
    ///
    /// # Errors
    /// Those of the manifest.
    pub fn commit(&self, records: Vec<Record>) -> Result<()> {
        self.base.manifest.commit_store(|_| Ok(records), |_| {}).map(drop)
    }

    /// Keeps groups that are [passed](GroupState::Passed) as storage: the oldest, and all between them. `commit` makes the
    /// records it is given durable in one edit, together with the engine's own ([`StoredGroups::commit`] makes one of them alone).
    ///
    /// # Errors
    /// `InvalidArgument` if one of them is not passed, or one before it would stay; `Busy` while somebody else retains or frees;
    /// those of `commit`: after `NoSpace` nothing happened.
    pub fn retain(&self, ltns: &[u64], commit: impl FnOnce(Vec<Record>) -> Result<()>) -> Result<()> {
        let plan = |state: &Groups| {
            // Those without batches are of no use to anybody, and go on the way.
            let wanted = |group: &&PriorGroup| group.seqs.is_empty() || ltns.contains(&group.ltn);
            let front: Vec<PriorGroup> = state.passed.iter().take_while(wanted).cloned().collect();
            let kept = |ltn: &u64| front.iter().any(|group| group.ltn == *ltn);
            if let Some(ltn) = ltns.iter().find(|ltn| !kept(ltn)) {
                let why = format!(
                    "log group {ltn} cannot be retained: not all before it are, or it is still needed"
                );
                return Err(Error::invalid(why));
            }
            let record = |group: &PriorGroup| match ltns.contains(&group.ltn) {
                true => Record::RetainLogGroup { ltn: group.ltn, bytes: group.filled },
                false => Record::RemoveLogGroup { ltn: group.ltn },
            };
            let records = front.iter().map(record).collect();
            Ok((front, records))
        };
        let mut open = Vec::new();
        let done = |state: &mut Groups, front: &Vec<PriorGroup>| {
            state.passed.drain(..front.len());
            for group in front.iter().filter(|group| ltns.contains(&group.ltn)) {
                let Some(GroupFile { number, len, uid, file, .. }) = self.files.file_of(group.ltn) else {
                    continue;
                };
                let (store, filled) = (self.base.manifest.store(), group.filled);
                let retained = Retained { number, len, uid, filled, store, shared: false };
                state.retained.insert(group.ltn, retained);
                state.retained_bytes += len;
                self.files.take(group.ltn);
                open.push((group.ltn, file));
            }
        };
        let front = self.move_groups(plan, commit, done)?;
        // What was written last is read soon.
        open.into_iter()
            .try_for_each(|(ltn, file)| self.open.find(ltn, || Ok::<_, Error>(file)).map(drop))?;
        let empty = front.iter().map(|group| group.ltn).filter(|ltn| !ltns.contains(ltn));
        self.files.discard(&empty.collect::<Vec<u64>>())
    }

    /// Lets go of groups that are [retained](GroupState::Retained): their files are used again, or removed. `commit` makes the
    /// records it is given durable in one edit, together with what takes their place.
    ///
    /// # Errors
    /// `InvalidArgument` if one of them is not retained; `Busy` while somebody else retains or frees; those of `commit`: after
    /// `NoSpace` nothing happened; those of removing files, after which the groups are free all the same.
    pub fn free(&self, ltns: &[u64], commit: impl FnOnce(Vec<Record>) -> Result<()>) -> Result<()> {
        let plan = |state: &Groups| match ltns.iter().find(|ltn| !state.retained.contains_key(ltn)) {
            Some(ltn) => Err(Error::invalid(format!("log group {ltn} is not retained, and cannot be freed"))),
            None => Ok(((), ltns.iter().map(|&ltn| Record::RemoveLogGroup { ltn }).collect())),
        };
        let mut freed = Vec::new();
        let done = |state: &mut Groups, (): &()| {
            freed = ltns.iter().filter_map(|ltn| Some((*ltn, state.retained.remove(ltn)?))).collect();
            state.retained_bytes -= freed.iter().map(|(_, group)| group.len).sum::<u64>();
        };
        self.move_groups(plan, commit, done)?;
        let (mut outcome, mut reused) = (Ok(()), Vec::new());
        for (ltn, Retained { number, len, uid, shared, .. }) in freed {
            // One that cannot be opened cannot be used again, nor may one that somebody else reads.
            let file = self.open.take(ltn).map_or_else(|| self.open_retained(ltn, number, len), Ok).ok();
            match file.filter(|_| !shared) {
                Some(file) => reused.push(GroupFile { number, len, uid, file, room_bytes: len }),
                None => match self.base.store.remove(&names::log(number)) {
                    Err(e) if e.kind() != ErrorKind::NotFound => outcome = outcome.and(Err(e)),
                    _ => {}
                },
            }
        }
        outcome.and(self.files.recycle(reused))
    }

    /// The files of groups that are [retained](GroupState::Retained) get other names: they are not used again as other groups. `commit`
    /// makes the records it is given durable; then they may be linked.
    ///
    /// # Errors
    /// As [`StoredGroups::free`].
    pub fn share(&self, ltns: &[u64], commit: impl FnOnce(Vec<Record>) -> Result<()>) -> Result<()> {
        if ltns.is_empty() {
            return Ok(());
        }
        let plan = |state: &Groups| match ltns.iter().find(|ltn| !state.retained.contains_key(ltn)) {
            Some(ltn) => {
                Err(Error::invalid(format!("log group {ltn} is not retained, and cannot be shared")))
            }
            None => Ok(((), ltns.iter().map(|&ltn| Record::ShareLogGroup { ltn }).collect())),
        };
        let done = |state: &mut Groups, (): &()| {
            for ltn in ltns {
                state.retained.get_mut(ltn).iter_mut().for_each(|group| group.shared = true);
            }
        };
        self.move_groups(plan, commit, done)
    }

    /// The first group above a number that the log has let go of and that is not storage yet, of those for which `is_wanted` says so.
    /// Nothing but this one is copied, however many there are.
    pub fn first_passed(&self, above: u64, is_wanted: impl Fn(&PriorGroup) -> bool) -> Option<LaneGroup> {
        let state = lock(&self.groups);
        let from = state.passed.partition_point(|group| group.ltn <= above);
        let group = state.passed.iter().skip(from).find(|group| is_wanted(group))?;
        let PriorGroup { ltn, len, filled, seqs, .. } = group.clone();
        Some(LaneGroup { ltn, len, filled, state: GroupState::Passed, seqs: Some(seqs) })
    }

    /// Every group that is not free: those that the log has in use, as it said before, those that it has let go of, and, where they are
    /// asked for, those that are storage. These come first, each part oldest first.
    pub(super) fn all(&self, in_use: &[PriorGroup], with_retained: bool) -> Vec<LaneGroup> {
        let state = lock(&self.groups);
        let retained = state.retained.iter().filter(|_| with_retained).map(|(&ltn, group)| LaneGroup {
            ltn,
            len: group.len,
            filled: group.filled,
            state: GroupState::Retained,
            seqs: None,
        });
        let of_log = |state: GroupState, group: &PriorGroup| {
            let PriorGroup { ltn, len, filled, seqs, .. } = group.clone();
            LaneGroup { ltn, len, filled, state, seqs: Some(seqs) }
        };
        let passed = state.passed.iter().map(|group| of_log(GroupState::Passed, group));
        let mut all: Vec<LaneGroup> = retained.chain(passed).collect();
        // What was passed meanwhile is in both, or was retained.
        let is_passed = |ltn| state.passed.binary_search_by_key(&ltn, |group| group.ltn).is_ok();
        let known = |ltn| state.retained.contains_key(&ltn) || is_passed(ltn);
        let in_use: Vec<&PriorGroup> = in_use.iter().filter(|group| !known(group.ltn)).collect();
        if let Some((active, closed)) = in_use.split_last() {
            all.extend(closed.iter().map(|group| of_log(GroupState::Closed, group)));
            all.push(of_log(GroupState::Active, active));
        }
        all
    }

    /// The retained groups that are missing, or shorter than they were, by the listing of the store's directory. What
    /// is in them is lost; the other records are not.
    pub fn missing(&self, listing: &[DirEntry]) -> Vec<(u64, Error)> {
        let lens: HashMap<&str, u64> = listing.iter().map(|entry| (&*entry.name, entry.len)).collect();
        let mut missing = Vec::new();
        for (&ltn, group) in &lock(&self.groups).retained {
            let name = names::log(group.number);
            let found = lens.get(&*name).copied();
            if found.is_none_or(|found| found < group.len) {
                let error = not_whole(ltn, found, group.len).at_file(self.base.context.path(&name));
                missing.push((ltn, error));
            }
        }
        missing
    }
}

fn not_whole(ltn: u64, found: Option<u64>, len: u64) -> Error {
    let problem = match found {
        Some(found) => format!("has {found} bytes instead of {len}"),
        None => "is missing".to_owned(),
    };
    Error::corruption(format!(
        "the file of log group {ltn} {problem}: the records in it are lost, others are not; restore it from a checkpoint or backup"
    ))
}
