//! A lane whose groups are storage: where its records are, and how a group is kept and let go of.
//!
//! A group of such a lane goes from hand to hand:
//!
//! 1. *Active*: batches are appended to it. *Closed*: nothing is, and it is replayed after a crash.
//! 2. *Passed*: every tenant's floor has passed it, and the log has let go of it; it is still replayed. The engine whose records
//!    it holds now sees to it that it finds them without a replay, and
//! 3. *Retains* it ([`Log::retain`]): it is storage, and not read at open any more, however many there are. Groups are retained
//!    in their order, since what is replayed must be one run.
//! 4. *Freed* ([`Log::free`]): the file waits to be used again, as another group with another identity. One that was *shared*
//!    ([`Log::share`]) has another name, in a copy of the store, and is only removed.
//!
//! Both steps are one edit of the manifest, together with what the engine says of them in its own records.
//!
//! **Reading.** [`Log::read`] takes any bytes of a batch from where they are: from memory while they are not in the file of their
//! group, else with one read of the device. Nothing is pinned: the page says by its identity whether it is still what was asked
//! for, and the group whether it is still there. Who finds that it is not (`NotFound`) asks his index again.
//!
//! **Damage.** A retained group that is missing, short or damaged costs the records in it and nothing else; the store opens.
//! [`Log::missing`] says which are not whole; everything else shows when it is read.
//!
//! Invariants: a group that is listed for replay and not passed is the log's. One is free only after the edit that removes it is
//! durable. What is kept in memory of a retained group is its entry here. There are more of them than a process may have files open: the
//! files of those that were read or retained last are, so many at most ([`super::LogTerms::retained_open_max`]).

use super::ahead::ReadAhead;
use super::files::{Files, GroupFile, GroupFiles};
use super::{Lane, Log, OnBatch, Place, recorded};
use crate::manifest::{LogGroupMeta, Record};
use crate::names;
use base::sync::lock;
use base::{Error, ErrorKind, HashMap, Result, Uid};
use io::{DirEntry, InPlaceFile};
use std::sync::Arc;
use wal::check::{GroupToCheck, LogCheck};
use wal::{PreparedGroup, PriorGroup, ReadGroup, RecoveryMode, RecoveryReport, Spans};

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
pub(super) struct Retained {
    pub number: u64,
    pub len: u64,
    uid: Uid,
    filled: u64,
    /// The store that wrote its pages.
    store: Uid,
    /// Its file has another name.
    shared: bool,
}

/// A group of which something can be read.
struct Readable {
    store: Uid,
    uid: Uid,
    file: Arc<dyn InPlaceFile>,
    /// The log may have pages of it in memory.
    is_live: bool,
}

impl GroupFiles {
    /// Takes over the groups that the manifest lists as retained. Their files are not opened.
    pub(super) fn adopt_retained<'a>(&self, listed: impl Iterator<Item = &'a LogGroupMeta>) {
        let retained = |meta: &LogGroupMeta| Retained {
            number: meta.file,
            len: meta.len,
            uid: meta.uid.unwrap_or_default(),
            filled: meta.retained_bytes.unwrap_or_default(),
            store: meta.store.unwrap_or(self.manifest.store()),
            shared: meta.shared,
        };
        let mut state = self.change();
        state.retained.extend(listed.map(|meta| (meta.ltn, retained(meta))));
        state.retained_bytes = state.retained.values().map(|group| group.len).sum();
    }

    /// The log lets go of groups that are not dropped, but wait to be retained.
    pub(super) fn pass(&self, released: impl FnOnce() -> Vec<PriorGroup>) {
        // Under the lock, so that none is in neither place for who looks at both.
        lock(&self.state).passed.extend(released());
    }

    /// Bytes of the groups that the log has let go of and that are not free.
    pub(super) fn stored_bytes(&self) -> u64 {
        let state = lock(&self.state);
        state.retained_bytes + state.passed.iter().map(|group| group.len).sum::<u64>()
    }

    /// The group `ltn`, if it is not free by now; the file of one that is retained is opened for it, unless it is open.
    fn readable(&self, ltn: u64) -> Result<Option<Readable>> {
        let (number, len, store, uid) = {
            let state = lock(&self.state);
            if let Some(GroupFile { uid, file, .. }) = state.live.get(&ltn) {
                let store = self.manifest.store();
                return Ok(Some(Readable { store, uid: *uid, file: file.clone(), is_live: true }));
            }
            let Some(group) = state.retained.get(&ltn) else { return Ok(None) };
            (group.number, group.len, group.store, group.uid)
        };
        let opened = self.open.find(ltn, || self.open_retained(ltn, number, len));
        if !lock(&self.state).retained.contains_key(&ltn) {
            // Who freed it may have asked for its file before it was open: nobody else would close it.
            self.open.forget(ltn);
            return Ok(None);
        }
        Ok(Some(Readable { store, uid, file: opened?, is_live: false }))
    }

    fn open_retained(&self, ltn: u64, number: u64, len: u64) -> Result<Arc<dyn InPlaceFile>> {
        let path = self.context.path(&names::log(number));
        let opened = match self.manifest.is_read_only() {
            false => self.context.env.fs.open_in_place(&path, self.terms.access),
            true => io::open_in_place_read_only(&*self.context.env.fs, &path, self.terms.access),
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
        plan: impl FnOnce(&Files) -> Result<(P, Vec<Record>)>,
        commit: impl FnOnce(Vec<Record>) -> Result<()>,
        done: impl FnOnce(&mut Files, &P),
    ) -> Result<P> {
        self.context.health.check_sound()?;
        let (plan, records) = {
            let mut state = lock(&self.state);
            if state.is_moving {
                let why = "groups of the log are being retained or freed already: one at a time";
                return Err(Error::new(ErrorKind::Busy, why));
            }
            let planned = plan(&state)?;
            state.is_moving = true;
            planned
        };
        let committed = commit(records);
        let mut state = self.change();
        state.is_moving = false;
        committed?;
        done(&mut state, &plan);
        Ok(plan)
    }

    /// See [`Log::retain`].
    fn retain(&self, ltns: &[u64], commit: impl FnOnce(Vec<Record>) -> Result<()>) -> Result<()> {
        let plan = |state: &Files| {
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
        let done = |state: &mut Files, front: &Vec<PriorGroup>| {
            state.passed.drain(..front.len());
            for group in front.iter().filter(|group| ltns.contains(&group.ltn)) {
                let Some(GroupFile { number, len, uid, file }) = state.live.remove(&group.ltn) else {
                    continue;
                };
                let (store, filled) = (self.manifest.store(), group.filled);
                let retained = Retained { number, len, uid, filled, store, shared: false };
                state.retained.insert(group.ltn, retained);
                state.retained_bytes += len;
                open.push((group.ltn, file));
            }
        };
        let front = self.move_groups(plan, commit, done)?;
        // What was written last is read soon.
        open.into_iter()
            .try_for_each(|(ltn, file)| self.open.find(ltn, || Ok::<_, Error>(file)).map(drop))?;
        let empty = front.iter().map(|group| group.ltn).filter(|ltn| !ltns.contains(ltn));
        self.discard(&empty.collect::<Vec<u64>>())
    }

    /// See [`Log::free`].
    fn free(&self, ltns: &[u64], commit: impl FnOnce(Vec<Record>) -> Result<()>) -> Result<()> {
        let plan = |state: &Files| match ltns.iter().find(|ltn| !state.retained.contains_key(ltn)) {
            Some(ltn) => Err(Error::invalid(format!("log group {ltn} is not retained, and cannot be freed"))),
            None => Ok(((), ltns.iter().map(|&ltn| Record::RemoveLogGroup { ltn }).collect())),
        };
        let mut freed = Vec::new();
        let done = |state: &mut Files, (): &()| {
            freed = ltns.iter().filter_map(|ltn| Some((*ltn, state.retained.remove(ltn)?))).collect();
            state.retained_bytes -= freed.iter().map(|(_, group)| group.len).sum::<u64>();
        };
        self.move_groups(plan, commit, done)?;
        let mut outcome = Ok(());
        for (ltn, Retained { number, len, uid, shared, .. }) in freed {
            // One that cannot be opened cannot be used again, nor may one that somebody else reads.
            let file = self.open.take(ltn).map_or_else(|| self.open_retained(ltn, number, len), Ok).ok();
            match file.filter(|_| !shared) {
                Some(file) => drop(self.change().live.insert(ltn, GroupFile { number, len, uid, file })),
                None => match self.store.remove(&names::log(number)) {
                    Err(e) if e.kind() != ErrorKind::NotFound => outcome = outcome.and(Err(e)),
                    _ => {}
                },
            }
        }
        outcome.and(self.discard(ltns))
    }
}

impl GroupFiles {
    /// See [`Log::share`].
    fn share(&self, ltns: &[u64], commit: impl FnOnce(Vec<Record>) -> Result<()>) -> Result<()> {
        let plan = |state: &Files| match ltns.iter().find(|ltn| !state.retained.contains_key(ltn)) {
            Some(ltn) => {
                Err(Error::invalid(format!("log group {ltn} is not retained, and cannot be shared")))
            }
            None => Ok(((), ltns.iter().map(|&ltn| Record::ShareLogGroup { ltn }).collect())),
        };
        let done = |state: &mut Files, (): &()| {
            for ltn in ltns {
                state.retained.get_mut(ltn).iter_mut().for_each(|group| group.shared = true);
            }
        };
        self.move_groups(plan, commit, done)
    }
}

impl Log {
    /// Which lane this is.
    pub fn lane(&self) -> Lane {
        self.files.lane
    }

    /// Every group of the lane that is not free, those kept as storage first, each part oldest first.
    pub fn groups(&self) -> Vec<LaneGroup> {
        self.groups_after(true)
    }

    /// Those of them that are not storage yet: few, however many there are in all.
    pub fn to_retain(&self) -> Vec<LaneGroup> {
        self.groups_after(false)
    }

    /// The first group above a number that the log has let go of and that is not storage yet, of those for which `is_wanted` says so.
    /// Nothing but this one is copied, however many there are.
    pub fn first_passed(&self, above: u64, is_wanted: impl Fn(&PriorGroup) -> bool) -> Option<LaneGroup> {
        let state = lock(&self.files.state);
        let from = state.passed.partition_point(|group| group.ltn <= above);
        let group = state.passed.iter().skip(from).find(|group| is_wanted(group))?;
        let PriorGroup { ltn, len, filled, seqs, .. } = group.clone();
        Some(LaneGroup { ltn, len, filled, state: GroupState::Passed, seqs: Some(seqs) })
    }

    fn groups_after(&self, with_retained: bool) -> Vec<LaneGroup> {
        let in_use = self.in_use();
        let state = lock(&self.files.state);
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

    /// Appends `len` bytes of a batch, from `place` on, to `out`: the pages that they are in and no others are read, at once and
    /// not at all while they are in memory, and checked. What was appended is found from the moment that its place is known.
    ///
    /// # Errors
    /// `NotFound` if the group is free by now; `Corruption`, with file and offset, if one of the pages, or the file, is damaged or
    /// missing; others of the file system. Then nothing is appended to `out`.
    pub fn read(&self, place: Place, len: usize, out: &mut Vec<u8>) -> Result<()> {
        self.read_ahead(place, len, &mut ReadAhead::new(0), out)
    }

    /// As [`Log::read`], by one who reads what follows next.
    ///
    /// # Errors
    /// As there.
    pub fn read_ahead(
        &self,
        place: Place,
        len: usize,
        ahead: &mut ReadAhead,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let freed = || Error::not_found(format!("log group {} is not there any more", place.ltn));
        let Some(group) = self.files.readable(place.ltn)? else { return Err(freed()) };
        let start = out.len();
        let wal = self.wal.get().filter(|_| group.is_live);
        let in_file = wal.and_then(|wal| wal.content().read_ring(place, len, out)).unwrap_or(len);
        if in_file == 0 {
            return Ok(());
        }
        // It comes before what was in memory.
        let in_memory = out.split_off(start);
        if let Err(e) = self.read_file(&group, place, in_file, ahead, out) {
            // The file of a group that was freed meanwhile may hold anything.
            let is_free = self.files.readable(place.ltn)?.is_none();
            return Err(if is_free { freed() } else { e });
        }
        out.extend_from_slice(&in_memory);
        Ok(())
    }

    fn read_file(
        &self,
        group: &Readable,
        place: Place,
        len: usize,
        ahead: &mut ReadAhead,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let Readable { store, uid, file, .. } = group;
        let (store, lane, ltn) = (*store, self.lane(), place.ltn);
        let end = place.offset() + u64::from(place.pages(len)) * io::PAGE as u64;
        ahead.prepare((ltn, *uid), &**file, place.offset(), end.min(file.len()));
        let windowed = ahead.over(file);
        let read = ReadGroup { store, lane, ltn, uid: *uid, file: &windowed }.read(place, len, out);
        match read {
            // It may have been written since it was read ahead.
            Err(e) if e.is_corruption() && ahead.is_filled() => {
                ahead.clear();
                ReadGroup { store, lane, ltn, uid: *uid, file: &**file }.read(place, len, out)
            }
            read => read,
        }
    }

    /// A walk over the whole batches of a group that is not active, in order, with their places: for an index that is missing.
    /// [`LogCheck::step`] reads a run of pages at a time, and notes what is damaged.
    ///
    /// # Errors
    /// `NotFound` if there is no such group, or it is active; those of writing the end of one that was just closed to its file,
    /// and of opening the file.
    pub fn scan(&self, ltn: u64) -> Result<LogCheck> {
        let find = |groups: Vec<LaneGroup>| groups.into_iter().find(|group| group.ltn == ltn);
        let mut group = find(self.groups()).filter(|group| group.state != GroupState::Active);
        if group.as_ref().is_some_and(|group| group.state == GroupState::Closed)
            && let Some(last) = self.begun().and_then(|wal| wal.content().last_position())
        {
            self.sync(last)?;
            group = find(self.groups());
        }
        self.scan_filled(ltn, group)
    }

    /// As [`Log::scan`], of any group, as far as its pages are in its file by now.
    ///
    /// # Errors
    /// `NotFound` if there is no such group; those of opening the file.
    pub fn scan_written(&self, ltn: u64) -> Result<LogCheck> {
        self.scan_filled(ltn, self.groups().into_iter().find(|group| group.ltn == ltn))
    }

    fn scan_filled(&self, ltn: u64, group: Option<LaneGroup>) -> Result<LogCheck> {
        let file = self.files.readable(ltn)?;
        let Some((LaneGroup { filled, .. }, Readable { store, uid, file, .. })) = group.zip(file) else {
            return Err(Error::not_found(format!("there is no closed log group {ltn} that could be read")));
        };
        let group = GroupToCheck { ltn, uid: Some(uid), file, begins: 0, filled };
        Ok(LogCheck::of_lane(store, self.lane(), vec![group]))
    }

    /// Keeps groups that are [passed](GroupState::Passed) as storage: the oldest, and all between them. `commit` makes the
    /// records it is given durable in one edit, together with the engine's own ([`Log::commit`] makes one of them alone).
    ///
    /// # Errors
    /// `InvalidArgument` if one of them is not passed, or one before it would stay; `Busy` while somebody else retains or frees;
    /// those of `commit`: after `NoSpace` nothing happened.
    pub fn retain(&self, ltns: &[u64], commit: impl FnOnce(Vec<Record>) -> Result<()>) -> Result<()> {
        self.files.retain(ltns, commit)
    }

    /// Lets go of groups that are [retained](GroupState::Retained): their files are used again, or removed. `commit` makes the
    /// records it is given durable in one edit, together with what takes their place.
    ///
    /// # Errors
    /// `InvalidArgument` if one of them is not retained; `Busy` while somebody else retains or frees; those of `commit`: after
    /// `NoSpace` nothing happened; those of removing files, after which the groups are free all the same.
    pub fn free(&self, ltns: &[u64], commit: impl FnOnce(Vec<Record>) -> Result<()>) -> Result<()> {
        self.files.free(ltns, commit)
    }

    /// The files of groups that are [retained](GroupState::Retained) get other names: they are not used again as other groups. `commit`
    /// makes the records it is given durable; then they may be linked.
    ///
    /// # Errors
    /// As [`Log::free`].
    pub fn share(&self, ltns: &[u64], commit: impl FnOnce(Vec<Record>) -> Result<()>) -> Result<()> {
        if ltns.is_empty() {
            return Ok(());
        }
        self.files.share(ltns, commit)
    }

    /// Makes an edit of these records alone.
    ///
    /// # Errors
    /// Those of the manifest.
    pub fn commit(&self, records: Vec<Record>) -> Result<()> {
        self.manifest.commit_store(|_| Ok(records), |_| {}).map(drop)
    }

    /// Closes the group that batches are appended to, however much room it has, and makes all of it durable. False if it has no
    /// batches.
    ///
    /// # Errors
    /// `NoSpace` if there is no room for another group: nothing happened. Those of the manifest and of the file system.
    pub fn seal_active(&self) -> Result<bool> {
        loop {
            match self.wal().roll() {
                Err(e) if e.kind() == ErrorKind::Busy => self.provide_spare()?,
                Ok(true) => break,
                other => return other,
            }
        }
        // The next group must have a durable page before anything of this one is released.
        self.persist_watermark()?;
        self.hint_release();
        Ok(true)
    }

    /// The retained groups that are missing, or shorter than they were, by the listing of the store's directory. What
    /// is in them is lost; the other records are not.
    pub fn missing(&self, listing: &[DirEntry]) -> Vec<(u64, Error)> {
        let lens: HashMap<&str, u64> = listing.iter().map(|entry| (&*entry.name, entry.len)).collect();
        let mut missing = Vec::new();
        for (&ltn, group) in &lock(&self.files.state).retained {
            let name = names::log(group.number);
            let found = lens.get(&*name).copied();
            if found.is_none_or(|found| found < group.len) {
                let error = not_whole(ltn, found, group.len).at_file(self.context.path(&name));
                missing.push((ltn, error));
            }
        }
        missing
    }

    /// Reads what is to be replayed of the lane, and hands out its batches. Nothing follows from it yet: see [`Log::resume`].
    ///
    /// # Errors
    /// As [`wal::recover_lane`]; `Corruption` if the manifest has lost its end.
    pub fn replay(&self, on_batch: &mut OnBatch<'_>) -> Result<RecoveryReport> {
        let (env, dir) = (&self.context.env, &self.context.dir);
        let groups = self.groups_to_read(|path| env.fs.open_in_place(path, self.terms.access))?;
        let of = (self.manifest.store(), self.lane());
        let report = wal::recover_lane(env, dir, of, &groups, RecoveryMode::ReadWrite, on_batch)?;
        self.manifest.require_edit(report.witness_edit)?;
        Ok(report)
    }

    /// As [`Log::replay`], for somebody who only reads: the lane never begins, and what was handed out is read by its places. With
    /// `up_to_damage` it ends where it is damaged, which is told with the report.
    ///
    /// # Errors
    /// As there.
    pub fn replay_to_read(
        &self,
        up_to_damage: bool,
        on_batch: &mut OnBatch<'_>,
    ) -> Result<(RecoveryReport, Option<Error>)> {
        let (env, dir) = (&self.context.env, &self.context.dir);
        let groups = self.groups_to_read(|path| match up_to_damage {
            true => super::read::open_group(env, path, self.terms.access),
            false => io::open_in_place_read_only(&*env.fs, path, self.terms.access),
        })?;
        let of = (self.manifest.store(), self.lane());
        let read = wal::read_lane(env, dir, of, &groups, up_to_damage, on_batch)?;
        let lost = self.manifest.require_edit(read.report.witness_edit).err();
        for (ltn, file) in read.staged {
            if let Some(group) = self.files.file_of(ltn) {
                self.files.adopt(ltn, GroupFile { file, ..group });
            }
        }
        self.set_replayed(read.report.history.groups.clone());
        match read.damage.or(lost) {
            Some(e) if !up_to_damage => Err(e),
            damage => Ok((read.report, damage)),
        }
    }

    /// Goes on where the replay ended, in a new group, which is `listed` from when the manifest lists it.
    ///
    /// # Errors
    /// `NoSpace` if there is no room: it may be tried again, with what is listed by then. Those of the manifest and of the file system.
    pub fn resume(&self, report: &RecoveryReport, listed: &mut Option<PreparedGroup>) -> Result<()> {
        let first = match listed.take() {
            Some(first) => first,
            None => self.list_first()?,
        };
        let first = listed.insert(first).clone();
        self.begin(first, report, 0)?;
        self.hint_release();
        Ok(())
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
