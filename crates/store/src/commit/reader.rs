//! Lists and reads the groups of a lane: see [`super::stored`].

use super::LogAddress;
use super::ahead::ReadAhead;
use super::floors::Floors;
use super::lane_shared::LaneShared;
use super::stored::{GroupState, LaneGroup, Readable, StoredGroups};
use base::sync::OnceLock;
use base::{Error, Result};
use std::sync::Arc;
use wal::check::{GroupToCheck, LogCheck};
use wal::{PriorGroup, ReadGroup, TenantId};

/// Reader of a lane: see the module.
#[derive(Debug)]
pub struct LaneReader {
    base: Arc<LaneShared>,
    stored: Arc<StoredGroups>,
    floors: Arc<Floors>,
    /// The replayed groups of a read-only store, oldest first.
    replayed: OnceLock<Vec<PriorGroup>>,
}

impl LaneReader {
    pub(super) fn new(base: Arc<LaneShared>, stored: Arc<StoredGroups>, floors: Arc<Floors>) -> LaneReader {
        LaneReader { base, stored, floors, replayed: OnceLock::new() }
    }

    /// Returns every group of the lane that is not free: retained groups first, each part oldest
    /// first.
    pub fn groups(&self) -> Vec<LaneGroup> {
        self.stored.all(&self.in_use(), true)
    }

    /// Returns the groups that are not retained. They are few, however many groups the lane has.
    pub fn to_retain(&self) -> Vec<LaneGroup> {
        self.stored.all(&self.in_use(), false)
    }

    /// Appends `len` bytes of a batch, from `place` on, to `out`. Bytes still in memory cost no
    /// read; for the others it reads exactly their pages in one request, and checks them. A batch
    /// is readable as soon as its position is known.
    ///
    /// # Errors
    /// `NotFound` if the group is free by now. `Corruption`, with file and offset, if a page or the
    /// file is damaged or missing. Other file system errors. Nothing is appended to `out` on error.
    pub fn read(&self, place: LogAddress, len: usize, out: &mut Vec<u8>) -> Result<()> {
        self.read_ahead(place, len, &mut ReadAhead::new(0), out)
    }

    /// As [`LaneReader::read`], with read-ahead for sequential readers.
    ///
    /// # Errors
    /// As [`LaneReader::read`].
    pub fn read_ahead(
        &self,
        place: LogAddress,
        len: usize,
        ahead: &mut ReadAhead,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let freed = || {
            Error::not_found(format!(
                "log group {} was removed from the log: read records that the log still has",
                place.ltn
            ))
        };
        let Some(group) = self.stored.readable(place.ltn)? else { return Err(freed()) };
        let start = out.len();
        let wal = self.base.wal.get().filter(|_| group.is_live);
        let in_file = wal.and_then(|wal| wal.content().read_ring(place, len, out)).unwrap_or(len);
        if in_file == 0 {
            return Ok(());
        }
        // The bytes of the file precede those in memory.
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
        place: LogAddress,
        len: usize,
        ahead: &mut ReadAhead,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let Readable { store, uid, file, .. } = group;
        let (store, lane, ltn) = (*store, self.base.lane, place.ltn);
        let end = place.offset() + u64::from(place.pages(len)) * io::PAGE as u64;
        ahead.prepare((ltn, *uid), &**file, place.offset(), end.min(file.len()));
        let windowed = ahead.over(file);
        let read = ReadGroup { store, lane, ltn, uid: *uid, file: &windowed }.read(place, len, out);
        match read {
            // The page may have been written since the window was filled.
            Err(e) if e.is_corruption() && ahead.is_filled() => {
                ahead.clear();
                ReadGroup { store, lane, ltn, uid: *uid, file: &**file }.read(place, len, out)
            }
            read => read,
        }
    }

    /// Returns a walk over the whole batches of a group that is not active, in order, with their
    /// positions. An engine uses it to rebuild a lost index. Each [`LogCheck::step`] reads a run of
    /// pages and notes damage.
    ///
    /// # Errors
    /// `NotFound` if there is no such group, or it is active. Errors of writing the last pages of a
    /// group that was just closed, and of opening the file.
    pub fn scan(&self, ltn: u64) -> Result<LogCheck> {
        let find = |groups: Vec<LaneGroup>| groups.into_iter().find(|group| group.ltn == ltn);
        let mut group = find(self.groups()).filter(|group| group.state != GroupState::Active);
        if group.as_ref().is_some_and(|group| group.state == GroupState::Closed)
            && let Some(last) = self.base.wal.get().and_then(|wal| wal.content().last_position())
        {
            self.base.wal().syncer().sync(last)?;
            group = find(self.groups());
        }
        self.scan_filled(ltn, group)
    }

    /// As [`LaneReader::scan`], for any group, up to the pages that are in its file by now.
    ///
    /// # Errors
    /// `NotFound` if there is no such group; errors of opening the file.
    pub fn scan_written(&self, ltn: u64) -> Result<LogCheck> {
        self.scan_filled(ltn, self.groups().into_iter().find(|group| group.ltn == ltn))
    }

    fn scan_filled(&self, ltn: u64, group: Option<LaneGroup>) -> Result<LogCheck> {
        let file = self.stored.readable(ltn)?;
        let Some((LaneGroup { filled, .. }, Readable { store, uid, file, .. })) = group.zip(file) else {
            return Err(Error::not_found(format!(
                "there is no closed log group {ltn}: name one that the log lists"
            )));
        };
        let group = GroupToCheck { ltn, uid: Some(uid), file, begins: 0, filled };
        Ok(LogCheck::of_lane(store, self.base.lane, vec![group]))
    }

    /// Sets the replayed groups of a read-only store, which has no log.
    pub fn set_replayed(&self, groups: Vec<PriorGroup>) {
        let _ = self.replayed.set(groups);
    }

    /// Returns the groups that may hold needed records, oldest first. The last one may still be
    /// written.
    pub fn in_use(&self) -> Vec<PriorGroup> {
        match self.base.wal.get() {
            Some(wal) => wal.content().groups(),
            None => self.replayed.get().cloned().unwrap_or_default(),
        }
    }

    /// Returns the bytes of closed groups that tenants other than `tenant` still need.
    pub fn held_by_others(&self, tenant: TenantId) -> u64 {
        let floors = self.floors.all(&self.base.manifest.state());
        let groups = self.in_use();
        let Some((_active, closed)) = groups.split_last() else { return 0 };
        let needed = |group: &&PriorGroup| group.seqs.needed_by(&floors).any(|other| other != tenant);
        closed.iter().skip_while(|group| !needed(group)).map(|group| group.len).sum()
    }
}
