//! A lane whose groups are storage: reading records, and retaining and freeing groups.
//!
//! A group of such a lane passes through these states:
//!
//! 1. *Active*: it takes batches. *Closed*: it takes none, and is replayed after a crash.
//! 2. *Passed*: every tenant's floor has passed it, and the log has released it. It is still
//!    replayed. The engine with records in it now makes them readable without a replay.
//! 3. *Retained* ([`StoredGroups::retain`]): the group is storage, and an open does not read it,
//!    however many retained groups there are. Groups are retained in order, because the replayed
//!    groups must be contiguous.
//! 4. *Freed* ([`StoredGroups::free`]): the file is free for reuse as another group with another
//!    identity. The file of a *shared* group ([`StoredGroups::share`]) has another name in a copy
//!    of the store, so it is only removed.
//!
//! **Sharing.** The edit that marks a group as shared is durable before the file gets a second
//! name. A dead group is not zeroed: the next group overwrites it in place, and through a second
//! name that would change the copy. A crash between mark and link costs one reuse of a file. In the
//! other order the store could overwrite a copy that it does not know of. A group is marked even
//! where its link then fails, because only an attempt shows whether files can be linked.
//!
//! Retaining and freeing are one manifest edit each, together with the engine's own records.
//!
//! **Reading.** [`super::LaneReader::read`] reads any bytes of a batch: from memory while they are
//! not in the group's file, else with one device read. It pins nothing. The identity in each page
//! shows whether the page still belongs to the requested group, and the group table shows whether
//! the group still exists. On `NotFound` the reader must look up its index again.
//!
//! **Damage.** A missing, short or damaged retained group loses its own records and nothing else;
//! the store opens. [`StoredGroups::missing`] lists missing and short groups. Other damage shows on
//! read.
//!
//! Invariants: a listed group that is not passed belongs to the log. A group is free only after the
//! edit that removes it is durable. Memory holds one entry for each retained group. There are more
//! retained groups than a process may have open files: only the most recently read or retained ones
//! are open, up to [`super::LogTerms::retained_open_max`].

use super::files::{GroupFile, GroupFiles};
use super::lane_shared::{LaneShared, ToldBytes};
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

/// State of a group in its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupState {
    /// Takes batches.
    Active,
    /// Needed for replay.
    Closed,
    /// Replayed, but not needed for replay: it may be retained.
    Passed,
    /// Kept as storage.
    Retained,
}

/// A group of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneGroup {
    /// Log group number.
    pub ltn: u64,
    /// Length of the file, bytes.
    pub len: u64,
    /// Bytes of valid pages in the file, from its start.
    pub filled: u64,
    /// State of the group.
    pub state: GroupState,
    /// Sequences of its batches; `None` for a retained group, which an open does not read.
    pub seqs: Option<Spans>,
}

#[derive(Debug)]
struct Retained {
    number: u64,
    len: u64,
    uid: Uid,
    filled: u64,
    /// The store that wrote its pages.
    store: Uid,
    /// The file has another name in a copy.
    shared: bool,
}

/// A readable group.
pub(super) struct Readable {
    pub store: Uid,
    pub uid: Uid,
    pub file: Arc<dyn InPlaceFile>,
    /// The log may have pages of it in memory.
    pub is_live: bool,
}

/// The released groups of a lane: see the module.
#[derive(Debug)]
pub struct StoredGroups {
    base: Arc<LaneShared>,
    files: Arc<GroupFiles>,
    spares: Arc<Spares>,
    /// The state, under one lock.
    groups: Mutex<ReleasedGroups, rank::LogStored>,
    /// Open files of retained groups, by group number.
    open: OpenFiles<Arc<dyn InPlaceFile>>,
}

#[derive(Debug, Default)]
struct ReleasedGroups {
    /// Passed groups, oldest first: released by the log, listed for replay, and not yet retained.
    passed: VecDeque<PriorGroup>,
    /// Retained groups, by number.
    retained: BTreeMap<u64, Retained>,
    /// Total bytes of the retained groups, so that no caller has to visit all of them.
    retained_bytes: u64,
    /// A commit that changes these two is in flight.
    is_moving: bool,
    told: ToldBytes,
}

impl StoredGroups {
    pub(super) fn new(base: Arc<LaneShared>, files: Arc<GroupFiles>, spares: Arc<Spares>) -> StoredGroups {
        let open = OpenFiles::new(base.terms.retained_open_max);
        open.share(&base.context.volumes.directory().descriptors, LOG_PARTS);
        StoredGroups { base, files, spares, groups: Mutex::default(), open }
    }

    /// Closes the files of all groups when the store is closed.
    pub fn end(&self) {
        self.open.end();
    }

    /// Takes over the groups that the manifest lists as retained, without opening their files.
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

    fn tell(&self, groups: &mut ReleasedGroups) {
        let bytes = groups.retained_bytes;
        groups.told.tell(&self.base, bytes);
        self.spares.set_retained(groups.retained.len());
    }

    /// Takes over groups that the log releases; they wait to be retained.
    pub(super) fn pass(&self, released: impl FnOnce() -> Vec<PriorGroup>) {
        // Under the lock: otherwise a concurrent listing could find a group in neither place.
        lock(&self.groups).passed.extend(released());
    }

    /// Returns the bytes of released groups that are not free.
    pub(super) fn bytes(&self) -> u64 {
        let state = lock(&self.groups);
        state.retained_bytes + state.passed.iter().map(|group| group.len).sum::<u64>()
    }

    /// Returns the group `ltn` unless it is free. Opens the file of a retained group if necessary.
    pub(super) fn readable(&self, ltn: u64) -> Result<Option<Readable>> {
        // In this order: a group becomes retained before its file leaves the replayed files.
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
            // The group was freed while this call opened its file, so no other call would close it.
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

    /// Commits a change of passed and retained groups. `plan` makes the records, `done` applies the
    /// change once they are durable.
    fn move_groups<P>(
        &self,
        plan: impl FnOnce(&ReleasedGroups) -> Result<(P, Vec<Record>)>,
        commit: impl FnOnce(Vec<Record>) -> Result<()>,
        done: impl FnOnce(&mut ReleasedGroups, &P),
    ) -> Result<P> {
        self.base.context.health.check_sound()?;
        let (plan, records) = {
            let mut state = lock(&self.groups);
            if state.is_moving {
                let why = "another call retains or frees log groups now: repeat this call afterwards";
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

    /// Commits an edit with only these records.
    ///
    /// # Errors
    /// Manifest errors.
    pub fn commit(&self, records: Vec<Record>) -> Result<()> {
        self.base.manifest.commit_store(|_| Ok(records), |_| {}).map(drop)
    }

    /// Retains [passed](GroupState::Passed) groups: the oldest, without a gap. `commit` makes the
    /// given records durable in one edit with the engine's own records ([`StoredGroups::commit`]
    /// adds none).
    ///
    /// # Errors
    /// `InvalidArgument` if one of them is not passed, or an earlier one would stay. `Busy` during
    /// another retain, free or share. Errors of `commit`; after `NoSpace` nothing happened.
    pub fn retain(&self, ltns: &[u64], commit: impl FnOnce(Vec<Record>) -> Result<()>) -> Result<()> {
        let plan = |state: &ReleasedGroups| {
            // Groups without batches need no retaining; they are removed in the same edit.
            let wanted = |group: &&PriorGroup| group.seqs.is_empty() || ltns.contains(&group.ltn);
            let front: Vec<PriorGroup> = state.passed.iter().take_while(wanted).cloned().collect();
            let kept = |ltn: &u64| front.iter().any(|group| group.ltn == *ltn);
            if let Some(ltn) = ltns.iter().find(|ltn| !kept(ltn)) {
                let why = format!(
                    "log group {ltn} cannot be retained: an earlier group is not retained, or \
                     this one is still needed"
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
        let done = |state: &mut ReleasedGroups, front: &Vec<PriorGroup>| {
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
        // The most recently written records are read soon.
        open.into_iter()
            .try_for_each(|(ltn, file)| self.open.find(ltn, || Ok::<_, Error>(file)).map(drop))?;
        let empty = front.iter().map(|group| group.ltn).filter(|ltn| !ltns.contains(ltn));
        self.files.discard(&empty.collect::<Vec<u64>>())
    }

    /// Frees [retained](GroupState::Retained) groups: their files are reused or removed. `commit`
    /// makes the given records durable in one edit with the records of their replacement.
    ///
    /// # Errors
    /// `InvalidArgument` if one of them is not retained. `Busy` during another retain, free or
    /// share. Errors of `commit`; after `NoSpace` nothing happened. Errors of removing files, after
    /// which the groups are free all the same.
    pub fn free(&self, ltns: &[u64], commit: impl FnOnce(Vec<Record>) -> Result<()>) -> Result<()> {
        let plan = |state: &ReleasedGroups| match ltns.iter().find(|ltn| !state.retained.contains_key(ltn)) {
            Some(ltn) => {
                Err(Error::invalid(format!("log group {ltn} cannot be freed, because it is not retained")))
            }
            None => Ok(((), ltns.iter().map(|&ltn| Record::RemoveLogGroup { ltn }).collect())),
        };
        let mut freed = Vec::new();
        let done = |state: &mut ReleasedGroups, (): &()| {
            freed = ltns.iter().filter_map(|ltn| Some((*ltn, state.retained.remove(ltn)?))).collect();
            state.retained_bytes -= freed.iter().map(|(_, group)| group.len).sum::<u64>();
        };
        self.move_groups(plan, commit, done)?;
        let (mut outcome, mut reused) = (Ok(()), Vec::new());
        for (ltn, Retained { number, len, uid, shared, .. }) in freed {
            // A file that cannot be opened cannot be reused. Nor can a shared one, which a copy
            // reads.
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

    /// Marks files of [retained](GroupState::Retained) groups as shared, so that they are not
    /// reused as other groups. `commit` makes the given records durable. After that the files may
    /// be linked.
    ///
    /// # Errors
    /// As [`StoredGroups::free`].
    pub fn share(&self, ltns: &[u64], commit: impl FnOnce(Vec<Record>) -> Result<()>) -> Result<()> {
        if ltns.is_empty() {
            return Ok(());
        }
        let plan = |state: &ReleasedGroups| match ltns.iter().find(|ltn| !state.retained.contains_key(ltn)) {
            Some(ltn) => Err(Error::invalid(format!("log group {ltn} cannot be shared: it is not retained"))),
            None => Ok(((), ltns.iter().map(|&ltn| Record::ShareLogGroup { ltn }).collect())),
        };
        let done = |state: &mut ReleasedGroups, (): &()| {
            for ltn in ltns {
                state.retained.get_mut(ltn).iter_mut().for_each(|group| group.shared = true);
            }
        };
        self.move_groups(plan, commit, done)
    }

    /// Returns the first passed group above a number for which `is_wanted` returns true. It copies
    /// no other group, however many there are.
    pub fn first_passed(&self, above: u64, is_wanted: impl Fn(&PriorGroup) -> bool) -> Option<LaneGroup> {
        let state = lock(&self.groups);
        let from = state.passed.partition_point(|group| group.ltn <= above);
        let group = state.passed.iter().skip(from).find(|group| is_wanted(group))?;
        let PriorGroup { ltn, len, filled, seqs, .. } = group.clone();
        Some(LaneGroup { ltn, len, filled, state: GroupState::Passed, seqs: Some(seqs) })
    }

    /// Returns every group that is not free: the retained ones if requested, then the passed ones,
    /// then the groups in use (`in_use`, read earlier). Each part is oldest first.
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
        // A group that was passed or retained since `in_use` was read is in both lists.
        let is_passed = |ltn| state.passed.binary_search_by_key(&ltn, |group| group.ltn).is_ok();
        let known = |ltn| state.retained.contains_key(&ltn) || is_passed(ltn);
        let in_use: Vec<&PriorGroup> = in_use.iter().filter(|group| !known(group.ltn)).collect();
        if let Some((active, closed)) = in_use.split_last() {
            all.extend(closed.iter().map(|group| of_log(GroupState::Closed, group)));
            all.push(of_log(GroupState::Active, active));
        }
        all
    }

    /// Returns the retained groups whose files are missing or too short in the listing of the store
    /// directory. Only the records in these groups are lost.
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
        "the file of retained log group {ltn} {problem}: its records are lost, the other groups are readable"
    ))
}
