//! A lane whose groups are storage: where its records are, and how a group is kept and let go of.
//!
//! A group of such a lane goes from hand to hand:
//!
//! 1. *Active*: batches are appended to it. *Closed*: nothing is, and it is replayed after a crash.
//! 2. *Passed*: every tenant's floor has passed it, and the log has let go of it; it is still replayed. The engine whose records
//!    it holds now sees to it that it finds them without a replay, and
//! 3. *Retains* it ([`StoredGroups::retain`](super::StoredGroups::retain)): it is storage, and not read at open any more, however many there are. Groups are retained
//!    in their order, since what is replayed must be one run.
//! 4. *Freed* ([`StoredGroups::free`](super::StoredGroups::free)): the file waits to be used again, as another group with another identity. One that was *shared*
//!    ([`StoredGroups::share`](super::StoredGroups::share)) has another name, in a copy of the store, and is only removed.
//!
//! Both steps are one edit of the manifest, together with what the engine says of them in its own records.
//!
//! **Reading.** [`Log::read`] takes any bytes of a batch from where they are: from memory while they are not in the file of their
//! group, else with one read of the device. Nothing is pinned: the page says by its identity whether it is still what was asked
//! for, and the group whether it is still there. Who finds that it is not (`NotFound`) asks his index again.
//!
//! **Damage.** A retained group that is missing, short or damaged costs the records in it and nothing else; the store opens.
//! [`StoredGroups::missing`](super::StoredGroups::missing) says which are not whole; everything else shows when it is read.
//!
//! Invariants: a group that is listed for replay and not passed is the log's. One is free only after the edit that removes it is
//! durable. What is kept in memory of a retained group is its entry here. There are more of them than a process may have files open: the
//! files of those that were read or retained last are, so many at most ([`super::LogTerms::retained_open_max`]).

use super::ahead::ReadAhead;
use super::files::GroupFile;
use super::stored::{GroupState, LaneGroup, Readable};
use super::{Lane, Log, OnBatch, Place};
use crate::manifest::Record;
use base::{Error, ErrorKind, Result};
use wal::check::{GroupToCheck, LogCheck};
use wal::{PreparedGroup, ReadGroup, RecoveryMode, RecoveryReport};

impl Log {
    /// Which lane this is.
    pub fn lane(&self) -> Lane {
        self.base.lane
    }

    /// Every group of the lane that is not free, those kept as storage first, each part oldest first.
    pub fn groups(&self) -> Vec<LaneGroup> {
        self.stored.all(&self.in_use(), true)
    }

    /// Those of them that are not storage yet: few, however many there are in all.
    pub fn to_retain(&self) -> Vec<LaneGroup> {
        self.stored.all(&self.in_use(), false)
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
        let Some(group) = self.stored.readable(place.ltn)? else { return Err(freed()) };
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
            let is_free = self.stored.readable(place.ltn)?.is_none();
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
        let file = self.stored.readable(ltn)?;
        let Some((LaneGroup { filled, .. }, Readable { store, uid, file, .. })) = group.zip(file) else {
            return Err(Error::not_found(format!("there is no closed log group {ltn} that could be read")));
        };
        let group = GroupToCheck { ltn, uid: Some(uid), file, begins: 0, filled };
        Ok(LogCheck::of_lane(store, self.lane(), vec![group]))
    }

    /// Makes an edit of these records alone.
    ///
    /// # Errors
    /// Those of the manifest.
    pub fn commit(&self, records: Vec<Record>) -> Result<()> {
        self.base.manifest.commit_store(|_| Ok(records), |_| {}).map(drop)
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

    /// Reads what is to be replayed of the lane, and hands out its batches. Nothing follows from it yet: see [`Log::resume`].
    ///
    /// # Errors
    /// As [`wal::recover_lane`]; `Corruption` if the manifest has lost its end.
    pub fn replay(&self, on_batch: &mut OnBatch<'_>) -> Result<RecoveryReport> {
        let (env, dir) = (&self.base.context.env, &self.base.context.dir);
        let groups = self.groups_to_read(|path| env.fs.open_in_place(path, self.base.terms.access))?;
        let of = (self.base.manifest.store(), self.lane());
        let report = wal::recover_lane(env, dir, of, &groups, RecoveryMode::ReadWrite, on_batch)?;
        self.base.manifest.require_edit(report.witness_edit)?;
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
        let (env, dir) = (&self.base.context.env, &self.base.context.dir);
        let groups = self.groups_to_read(|path| match up_to_damage {
            true => super::read::open_group(env, path, self.base.terms.access),
            false => io::open_in_place_read_only(&*env.fs, path, self.base.terms.access),
        })?;
        let of = (self.base.manifest.store(), self.lane());
        let read = wal::read_lane(env, dir, of, &groups, up_to_damage, on_batch)?;
        let lost = self.base.manifest.require_edit(read.report.witness_edit).err();
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
