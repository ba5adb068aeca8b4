//! The files of log groups that the manifest lists for replay.
//!
//! A group is a file of fixed length, allocated and written once. The manifest lists the group
//! before the log may use it. The edit that drops a group is durable before its file is reused or
//! removed ([`super::Spares`]).

use super::lane_shared::{LaneShared, ToldBytes};
use super::pace::Pace;
use super::spares::{LogGroupPurpose, Spares};
use crate::manifest::{LogGroupMeta, ManifestState, Record};
use crate::names;
use base::sync::{Mutex, lock, rank};
use base::{Result, Uid};
use io::InPlaceFile;
use std::collections::BTreeMap;
use std::sync::Arc;
use wal::PreparedGroup;

/// The file of a group.
#[derive(Clone, Debug)]
pub struct GroupFile {
    /// File number.
    pub number: u64,
    /// File length, bytes.
    pub len: u64,
    /// Identity of the group that the file holds.
    pub uid: Uid,
    /// The open file.
    pub file: Arc<dyn InPlaceFile>,
    /// Allocated bytes; below `len` after a close released the space behind the end of the log.
    pub room_bytes: u64,
}

impl GroupFile {
    /// Returns true if all pages are allocated, so that the file may be reused.
    pub(super) fn is_whole(&self) -> bool {
        self.room_bytes >= self.len
    }
}

/// The files of replayed groups: see the module.
#[derive(Debug)]
pub struct GroupFiles {
    base: Arc<LaneShared>,
    spares: Arc<Spares>,
    /// The state, under one lock.
    files: Mutex<ReplayedFiles, rank::LogGroups>,
}

#[derive(Debug, Default)]
struct ReplayedFiles {
    /// Groups that the manifest lists for replay, by number.
    live: BTreeMap<u64, GroupFile>,
    /// Length of the next group.
    pace: Pace,
    /// Groups that the log has released but the manifest still lists, oldest first. The log reports
    /// each group only once. If the edit that drops it is refused (a full disk), the next edit must
    /// include it. A group that stays listed while younger ones go is a hole in the log.
    leaving: Vec<u64>,
    told: ToldBytes,
}

impl ReplayedFiles {
    fn tell(&mut self, base: &LaneShared) {
        let bytes = self.live.values().map(|file| file.room_bytes).sum();
        self.told.tell(base, bytes);
    }
}

/// Lengths of a requested group, bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupLens {
    /// Preferred length.
    pub wanted: u64,
    /// Minimum length.
    pub least: u64,
    /// Length of a group without an oversized batch.
    pub usual: u64,
}

impl GroupFiles {
    pub(super) fn new(base: Arc<LaneShared>, spares: Arc<Spares>) -> GroupFiles {
        GroupFiles { base, spares, files: Mutex::default() }
    }

    /// Takes over a group from recovery.
    pub(super) fn adopt(&self, ltn: u64, file: GroupFile) {
        let mut files = lock(&self.files);
        files.live.insert(ltn, file);
        files.tell(&self.base);
    }

    /// Returns the file of a listed group.
    pub fn file_of(&self, ltn: u64) -> Option<GroupFile> {
        lock(&self.files).live.get(&ltn).cloned()
    }

    /// Removes and returns the file of a group that becomes storage.
    pub(super) fn take(&self, ltn: u64) -> Option<GroupFile> {
        let mut files = lock(&self.files);
        let taken = files.live.remove(&ltn);
        files.tell(&self.base);
        taken
    }

    /// Returns the names of these files and of the spare files, without those of retained groups.
    pub fn file_names(&self) -> Vec<String> {
        let groups =
            |files: &ReplayedFiles| files.live.values().map(|file| names::log(file.number)).collect();
        // Spare files come second: a file that becomes a spare meanwhile is not missed.
        let mut names: Vec<String> = groups(&lock(&self.files));
        names.extend(self.spares.names());
        names
    }

    /// Returns the current group length.
    pub(super) fn len(&self) -> u64 {
        lock(&self.files).pace.len(self.base.terms.group_bytes)
    }

    /// Returns the length of the next group for a log of `live_bytes`.
    pub(super) fn next_len(&self, live_bytes: u64) -> u64 {
        let now_ns = self.base.context.now_ns();
        lock(&self.files).pace.next_len(self.base.terms.group_bytes, now_ns, live_bytes)
    }

    /// Returns a group file that the manifest lists and the log does not use yet. It has `wanted`
    /// bytes, or at least `least` where space is short. `usual` is the length without an oversized
    /// batch.
    ///
    /// # Errors
    /// `NoSpace`: nothing happened. Manifest errors.
    pub(super) fn list_new(
        &self,
        GroupLens { wanted, least, usual }: GroupLens,
        need: LogGroupPurpose,
    ) -> Result<PreparedGroup> {
        let group = self.spares.take(wanted, least, need)?;
        // New each time: it distinguishes former uses of the file, here or in a copy of the store.
        let uid = self.base.context.env.new_uid();
        let group = GroupFile { uid, ..group };
        let (lane, file) = (self.base.lane, group.number);
        let meta = LogGroupMeta { file, len: group.len, uid: Some(uid), lane, ..Default::default() };
        let mut ltn = 0;
        let listed = self.base.context.health.check_sound().and_then(|()| {
            let build = |state: &ManifestState| {
                ltn = state.next_ltn;
                let volume = state.log_volume();
                Ok(vec![Record::AddLogGroup { group: LogGroupMeta { ltn, volume, ..meta } }])
            };
            self.base.manifest.commit_store(build, |_| {})
        });
        if let Err(e) = listed {
            self.spares.give_back(group, need);
            return Err(e);
        }
        let mut files = lock(&self.files);
        // A group made for an oversized batch does not set the length of the next groups.
        files.pace.made(group.len.min(usual), self.base.context.now_ns());
        files.live.insert(ltn, group.clone());
        files.tell(&self.base);
        Ok(PreparedGroup { ltn, uid, file: group.file })
    }

    /// Drops the given groups and those that an earlier call could not drop: first from the
    /// manifest, then their files. Returns false if there are none.
    pub(super) fn release(&self, released: Vec<u64>) -> Result<bool> {
        lock(&self.files).leaving.extend(released);
        self.release_with(&[], Vec::new(), || Ok(()))
    }

    /// As [`GroupFiles::release`], with more records in the same edit. The log releases these
    /// groups in `done`, once the edit is durable; until then it may write to their files.
    pub(super) fn release_with(
        &self,
        released: &[u64],
        more: Vec<Record>,
        done: impl FnOnce() -> Result<()>,
    ) -> Result<bool> {
        let mut dropped = lock(&self.files).leaving.clone();
        dropped.extend(released);
        if dropped.is_empty() && more.is_empty() {
            return Ok(false);
        }
        self.base.context.health.check_sound()?;
        let mut records: Vec<Record> = dropped.iter().map(|&ltn| Record::RemoveLogGroup { ltn }).collect();
        records.extend(more);
        self.base.manifest.commit_store(|_| Ok(records), |_| {})?;
        // Only one job at a time releases groups, so the list has not grown meanwhile.
        lock(&self.files).leaving.clear();
        if !dropped.is_empty() {
            self.spares.set_let_go(dropped.len());
        }
        done()?;
        if !dropped.is_empty() {
            self.discard(&dropped)?;
        }
        Ok(true)
    }

    /// Recycles the files of groups whose removal from the manifest is durable.
    pub(super) fn discard(&self, dropped: &[u64]) -> Result<()> {
        let surplus = {
            let mut files = lock(&self.files);
            let gone = dropped.iter().filter_map(|ltn| files.live.remove(ltn)).collect();
            files.tell(&self.base);
            // Under the lock: otherwise a concurrent listing could find the file in neither place.
            self.spares.recycle(gone, files.pace.len(self.base.terms.group_bytes))
        };
        self.spares.remove(surplus)
    }

    /// Recycles the files of retained groups whose removal from the manifest is durable.
    pub(super) fn recycle(&self, files: Vec<GroupFile>) -> Result<()> {
        let surplus = self.spares.recycle(files, self.len());
        self.spares.remove(surplus)
    }

    /// Takes the unused groups, youngest last, and the spare files after the log was closed. A
    /// closed store needs neither.
    pub(super) fn unused(&self, last_used: u64) -> (Vec<u64>, Vec<u64>) {
        let mut files = lock(&self.files);
        let unused = files.live.split_off(&(last_used + 1));
        files.tell(&self.base);
        let numbers = unused.values().map(|file| file.number);
        let free = self.spares.take_all();
        (unused.keys().copied().collect(), numbers.chain(free.iter().map(|file| file.number)).collect())
    }
}
