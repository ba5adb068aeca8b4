//! The contents of a log: its groups, and its pages in memory.

use super::{Position, WalOptions};
use crate::check::{LogEnd, StagedEnd};
use crate::commit::Commit;
use crate::groups::PreparedGroup;
use crate::history::PriorGroup;
use crate::lane::Lane;
use crate::place::LogAddress;
use crate::tail::Tail;
use crate::tenant::TenantId;
use base::sync::{Mutex, lock, rank};
use base::{Result, SeqNo};
use io::PAGE;
use std::sync::Arc;

/// The groups of an open log, and its pages in memory.
#[derive(Debug)]
pub struct Content {
    lane: Lane,
    /// The number of the first page since the start.
    start_lpn: u64,
    /// Spare groups to keep ready.
    spares: usize,
    /// Tail of the log: open pages, the buffer of closed ones, and their groups.
    tail: Arc<Mutex<Tail, rank::LogTail>>,
    commit: Arc<Commit>,
}

impl Content {
    pub(super) fn new(
        options: &WalOptions,
        start_lpn: u64,
        tail: &Arc<Mutex<Tail, rank::LogTail>>,
        commit: &Arc<Commit>,
    ) -> Self {
        let (lane, spares) = (options.lane, options.spares);
        Content { lane, start_lpn, spares, tail: Arc::clone(tail), commit: Arc::clone(commit) }
    }

    /// Installs a spare group; the manifest must list it already.
    ///
    /// # Errors
    /// `InvalidArgument` if it is too small or its number not above those before.
    pub fn add_group(&self, group: PreparedGroup) -> Result<()> {
        lock(&self.tail).groups.add_spare(group)
    }

    /// Returns the number of missing spares. The caller prepares them ahead of time, in the
    /// background.
    pub fn groups_wanted(&self) -> usize {
        self.spares.saturating_sub(lock(&self.tail).groups.spares())
    }

    /// Returns true if a batch of `len` bytes finds a group, unless another append takes the room
    /// first.
    pub fn has_room(&self, len: usize) -> bool {
        lock(&self.tail).has_room(len)
    }

    /// Returns true if half of the active group is used: time to prepare a spare. An earlier spare
    /// would only be disk space that a small store never needs.
    pub fn is_half_full(&self) -> bool {
        let tail = lock(&self.tail);
        let active = &tail.groups.active;
        (tail.pages.next_lpn() - active.first_lpn) * 2 >= active.data_numbers
    }

    /// Returns the closed groups, oldest first, that no tenant needs: they hold no record with a
    /// sequence at or above the floor of its tenant, and none of a tenant without a floor here.
    /// Each is returned once: the caller drops it from the manifest and removes or recycles its
    /// file.
    ///
    /// A group stays until the first page of its successor is durable. Without syncs,
    /// [`super::DeferredWriter::write_out`] and [`super::Wal::persist_watermark`] make it durable.
    pub fn release_below(&self, floors: &[(TenantId, SeqNo)]) -> Vec<u64> {
        self.release_groups_below(floors).into_iter().map(|group| group.ltn).collect()
    }

    /// As [`Content::release_below`], with the description of each group.
    pub fn release_groups_below(&self, floors: &[(TenantId, SeqNo)]) -> Vec<PriorGroup> {
        let durable_end = self.commit.frontier.durable_end();
        lock(&self.tail).groups.release_below(floors, durable_end)
    }

    /// Appends the part of the `len` bytes from `place` on that is in memory to `out`. Returns the
    /// number of bytes before that part, which are in the file of the group. `None`: the log does
    /// not write this group, or all of the bytes are in its file.
    pub fn read_ring(&self, place: LogAddress, len: usize, out: &mut Vec<u8>) -> Option<usize> {
        let tail = lock(&self.tail);
        let start_lpn = tail.groups.first_lpn_of(place.ltn)? + place.offset() / self.lane.unit() as u64;
        let page_numbers = self.lane.page_numbers();
        let (mut before, start) = (0, out.len());
        for (i, part) in place.parts(len) {
            let lpn = start_lpn + i as u64 * page_numbers;
            if lpn < tail.pages.first_lpn() {
                before += part.len();
                continue;
            }
            match tail.pages.in_memory(lpn).and_then(|page| page.get(part)) {
                Some(part) => out.extend_from_slice(part),
                // No batch ever reached this far.
                None => {
                    out.truncate(start);
                    return None;
                }
            }
        }
        (before < len).then_some(before)
    }

    /// Returns the groups that were not released, oldest first and the active one last (without
    /// spares).
    pub fn groups(&self) -> Vec<PriorGroup> {
        let tail = lock(&self.tail);
        tail.groups.all(self.commit.frontier.written_end())
    }

    /// Returns the file of each part of the log, at one moment.
    pub(crate) fn ends(&self) -> LogEnd {
        let tail = lock(&self.tail);
        let written_end = self.commit.frontier.written_end();
        let staged = tail.slots.staged_from(&tail.pages, written_end);
        let end = staged.last().map_or(written_end, |(lpn, _)| (lpn + 1).max(written_end));
        let segments = tail.groups.segments(written_end, end);
        let group_of = |lpn: u64| segments.iter().find(|s| s.start <= lpn && lpn < s.end);
        let one = |(lpn, used): (u64, usize)| {
            let segment = group_of(lpn)?;
            Some(StagedEnd { group: segment.group, ltn: segment.ltn, lpn, used })
        };
        LogEnd {
            groups: tail.groups.all(written_end),
            staged: staged.into_iter().filter_map(one).collect(),
            taken_back: tail.pages.taken_back(),
        }
    }

    /// Returns the bytes of all groups that were not released (without spares).
    pub fn live_bytes(&self) -> u64 {
        lock(&self.tail).groups.live_bytes()
    }

    /// Returns the position of the last page that was begun; a sync of it makes all of the log
    /// durable. `None` if nothing was appended since the start.
    pub fn last_position(&self) -> Option<Position> {
        let tail = lock(&self.tail);
        let open = (tail.pages.used() != 0).then(|| tail.pages.next_lpn());
        let last = open.or_else(|| tail.pages.next_lpn().checked_sub(1)).filter(|&lpn| lpn >= self.start_lpn);
        last.map(|lpn| Position { lpn })
    }

    /// Returns the active group and the number after its last page; `None` if it has no pages.
    /// After [`super::Wal::close`] this is the end of the log: a manifest that records it detects
    /// the loss of the whole group.
    pub fn end(&self) -> Option<(u64, u64)> {
        let tail = lock(&self.tail);
        let end = tail.pages.end_lpn();
        let active = &tail.groups.active;
        (end > active.first_lpn).then_some((active.prepared.ltn, end))
    }

    /// Returns the offset of the end of the last page in the file of the active group.
    pub fn end_offset(&self) -> u64 {
        let tail = lock(&self.tail);
        let active = &tail.groups.active;
        tail.pages.end_lpn().saturating_sub(active.first_lpn) * self.lane.unit() as u64
    }

    /// Returns the bytes of the staging file.
    pub fn tail_buffer_len(&self) -> usize {
        lock(&self.tail).slots.count() as usize * PAGE
    }
}
