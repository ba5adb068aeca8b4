//! The files of log groups that the manifest lists for replay.
//!
//! A group is a file of fixed length, allocated and written once. The manifest lists it before the log may use it, and
//! the edit that drops it is durable before the file is used again or removed ([`super::Spares`]).

use super::foundation::{Foundation, ToldBytes};
use super::pace::Pace;
use super::spares::{Need, Spares};
use crate::manifest::{LogGroupMeta, Record, State};
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
    /// Its number.
    pub number: u64,
    /// Its bytes.
    pub len: u64,
    /// The identity of the group, as long as it is one.
    pub uid: Uid,
    /// The file.
    pub file: Arc<dyn InPlaceFile>,
    /// Bytes that it occupies: fewer than `len` after a close gave the room behind the end of the log back.
    pub room_bytes: u64,
}

impl GroupFile {
    /// True if it has room for all of its pages, so that it may be used again.
    pub(super) fn is_whole(&self) -> bool {
        self.room_bytes >= self.len
    }
}

/// See the module.
#[derive(Debug)]
pub struct GroupFiles {
    base: Arc<Foundation>,
    spares: Arc<Spares>,
    /// All of [`ReplayedFiles`].
    files: Mutex<ReplayedFiles, rank::LogGroups>,
}

#[derive(Debug, Default)]
struct ReplayedFiles {
    /// Groups the manifest lists for replay, by LTN.
    live: BTreeMap<u64, GroupFile>,
    /// How long groups are.
    pace: Pace,
    /// Groups that the log has let go of and the manifest still lists, oldest first. The log names each only once; if
    /// the edit that drops it is refused (a full disk), it must be part of the next one, because a group that stays
    /// listed while younger ones go is a hole in the log.
    leaving: Vec<u64>,
    told: ToldBytes,
}

impl ReplayedFiles {
    fn tell(&mut self, base: &Foundation) {
        let bytes = self.live.values().map(|file| file.room_bytes).sum();
        self.told.tell(base, bytes);
    }
}

/// The lengths of a group that is wanted, bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupLens {
    /// Where there is room.
    pub wanted: u64,
    /// At least.
    pub least: u64,
    /// If no batch needed a longer one.
    pub usual: u64,
}

impl GroupFiles {
    pub(super) fn new(base: Arc<Foundation>, spares: Arc<Spares>) -> GroupFiles {
        GroupFiles { base, spares, files: Mutex::default() }
    }

    /// Takes over a group found by recovery.
    pub(super) fn adopt(&self, ltn: u64, file: GroupFile) {
        let mut files = lock(&self.files);
        files.live.insert(ltn, file);
        files.tell(&self.base);
    }

    /// The file of a group that the manifest lists.
    pub fn file_of(&self, ltn: u64) -> Option<GroupFile> {
        lock(&self.files).live.get(&ltn).cloned()
    }

    /// Hands the file of a group to those that are kept as storage.
    pub(super) fn take(&self, ltn: u64) -> Option<GroupFile> {
        let mut files = lock(&self.files);
        let taken = files.live.remove(&ltn);
        files.tell(&self.base);
        taken
    }

    /// The names of the files, and of those that no group has, but not of those that are kept as storage.
    pub fn file_names(&self) -> Vec<String> {
        let groups =
            |files: &ReplayedFiles| files.live.values().map(|file| names::log(file.number)).collect();
        // Spares come second: a file that moves there meanwhile is seen.
        let mut names: Vec<String> = groups(&lock(&self.files));
        names.extend(self.spares.names());
        names
    }

    /// The length that groups have now.
    pub(super) fn len(&self) -> u64 {
        lock(&self.files).pace.len(self.base.terms.group_bytes)
    }

    /// The length that the next group of a log of `live_bytes` should have.
    pub(super) fn next_len(&self, live_bytes: u64) -> u64 {
        let now_ns = self.base.context.now_ns();
        lock(&self.files).pace.next_len(self.base.terms.group_bytes, now_ns, live_bytes)
    }

    /// A group file that the manifest lists, not yet handed to the log: of `wanted` bytes, or where there is no room for
    /// that, of at least `least`. `usual`: the length that it should have if no batch needed a longer one.
    ///
    /// # Errors
    /// `NoSpace`: nothing happened. Those of the manifest.
    pub(super) fn list_new(
        &self,
        GroupLens { wanted, least, usual }: GroupLens,
        need: Need,
    ) -> Result<PreparedGroup> {
        let group = self.spares.take(wanted, least, need)?;
        // New each time: a former use of the file, here or in a copy of this store, is told by it.
        let uid = self.base.context.env.new_uid();
        let group = GroupFile { uid, ..group };
        let (lane, file) = (self.base.lane, group.number);
        let meta = LogGroupMeta { file, len: group.len, uid: Some(uid), lane, ..Default::default() };
        let mut ltn = 0;
        let listed = self.base.context.health.check_sound().and_then(|()| {
            let build = |state: &State| {
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
        // One that was made for a long batch says nothing of those that follow.
        files.pace.made(group.len.min(usual), self.base.context.now_ns());
        files.live.insert(ltn, group.clone());
        files.tell(&self.base);
        Ok(PreparedGroup { ltn, uid, file: group.file })
    }

    /// Drops the groups that the log has let go of, and those that could not be dropped before: manifest first, then the
    /// files. Returns false if there are none.
    pub(super) fn release(&self, released: Vec<u64>) -> Result<bool> {
        lock(&self.files).leaving.extend(released);
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
        let mut dropped = lock(&self.files).leaving.clone();
        dropped.extend(released);
        if dropped.is_empty() && more.is_empty() {
            return Ok(false);
        }
        self.base.context.health.check_sound()?;
        let mut records: Vec<Record> = dropped.iter().map(|&ltn| Record::RemoveLogGroup { ltn }).collect();
        records.extend(more);
        self.base.manifest.commit_store(|_| Ok(records), |_| {})?;
        // One job at a time releases groups, so the list has not grown meanwhile.
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

    /// Gives up groups whose removal from the manifest is durable: their files are used again.
    pub(super) fn discard(&self, dropped: &[u64]) -> Result<()> {
        let surplus = {
            let mut files = lock(&self.files);
            let gone = dropped.iter().filter_map(|ltn| files.live.remove(ltn)).collect();
            files.tell(&self.base);
            // Under the lock, so that no file is in neither place for who looks at both.
            self.spares.recycle(gone, files.pace.len(self.base.terms.group_bytes))
        };
        self.spares.remove(surplus)
    }

    /// Gives up files of groups that were storage, and whose removal from the manifest is durable.
    pub(super) fn recycle(&self, files: Vec<GroupFile>) -> Result<()> {
        let surplus = self.spares.recycle(files, self.len());
        self.spares.remove(surplus)
    }

    /// After the log was closed: groups that it has not begun to use, youngest last, and the files that no group has. A
    /// closed store has no need of either.
    pub(super) fn unused(&self, last_used: u64) -> (Vec<u64>, Vec<u64>) {
        let mut files = lock(&self.files);
        let unused = files.live.split_off(&(last_used + 1));
        files.tell(&self.base);
        let numbers = unused.values().map(|file| file.number);
        let free = self.spares.take_all();
        (unused.keys().copied().collect(), numbers.chain(free.iter().map(|file| file.number)).collect())
    }
}
