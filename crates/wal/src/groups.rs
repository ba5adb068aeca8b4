//! The groups of a log: closed ones that still hold needed records, the active one, and spares.
//!
//! Groups are used in the order of their numbers. A closed group is released when all its records
//! are below the floors of their tenants **and the first page of its successor is durable**. The
//! second condition keeps recovery simple: the oldest group on disk, unless it is the first of all,
//! begins with a page that was durable. So a missing beginning is never mistaken for a torn one.

use crate::history::{Chain, History, PriorGroup};
use crate::lane::Lane;
use crate::page::{HEADER_LEN, Owner, Shape};
use crate::place::LogAddress;
use crate::tenant::{Spans, TenantId};
use base::{Error, Result, SeqNo, Uid};
use io::{BLOCK_LEN_MIN, InPlaceFile, PAGE};
use std::collections::VecDeque;
use std::sync::Arc;

/// A group file that the manifest already lists, ready to be written.
#[derive(Clone, Debug)]
pub struct PreparedGroup {
    /// Its number: above those of all earlier groups.
    pub ltn: u64,
    /// Its identity: random, new each time a file is given to the log, and in the edit that lists
    /// the group.
    pub uid: Uid,
    /// Its file: new, or recycled from a removed group.
    pub file: Arc<dyn InPlaceFile>,
}

impl PreparedGroup {
    /// Returns the format of its pages.
    fn shape(&self, lane: Lane) -> Shape {
        Shape::of(lane, self.file.block_len())
    }

    /// Returns the page numbers for data: room for a watermark is reserved, so that the log can
    /// always be closed.
    fn data_numbers(&self, lane: Lane) -> u64 {
        let watermark = self.shape(lane).page_len(HEADER_LEN) as u64;
        self.file.len().saturating_sub(watermark) / lane.unit() as u64
    }
}

/// The group that pages are appended to.
#[derive(Debug)]
pub(crate) struct ActiveGroup {
    pub prepared: PreparedGroup,
    /// Identity of its store and of the group, as its pages carry it.
    pub owner: Owner,
    /// Format of its pages.
    pub shape: Shape,
    /// Page numbers for data.
    pub data_numbers: u64,
    pub first_lpn: u64,
    /// End of the group that this one continues; `ltn` and `end_lpn` 0: none.
    pub prev: Chain,
    /// The first page of the log in this group.
    pub begin_lpn: u64,
    pub seqs: Spans,
}

impl ActiveGroup {
    /// Returns the place of a byte of a page of the group.
    pub fn place(&self, lpn: u64, pos: usize) -> LogAddress {
        let offset = (lpn - self.first_lpn) * self.shape.unit() as u64;
        LogAddress::of_page(self.prepared.ltn, offset).in_page(pos)
    }

    fn new(prepared: PreparedGroup, store: Uid, lane: Lane, first_lpn: u64, prev: Chain) -> Self {
        let (shape, data_numbers) = (prepared.shape(lane), prepared.data_numbers(lane));
        ActiveGroup {
            owner: Owner { store, group: Some(prepared.uid) },
            prepared,
            shape,
            data_numbers,
            first_lpn,
            prev,
            begin_lpn: first_lpn,
            seqs: Spans::default(),
        }
    }

    /// Returns the bytes of its file before the beginning of the log.
    fn begins(&self) -> u64 {
        (self.begin_lpn - self.first_lpn) * self.shape.unit() as u64
    }
}

/// A group that takes no more pages.
#[derive(Debug)]
struct ClosedGroup {
    prior: PriorGroup,
    first_lpn: u64,
    end_lpn: u64,
    /// Identity and file. `None`: it came from recovery, and all its pages are durable.
    own: Option<(Uid, Arc<dyn InPlaceFile>)>,
}

impl ClosedGroup {
    /// Returns its description when all its pages are in its file.
    fn whole(self, lane: Lane) -> PriorGroup {
        let own = (self.end_lpn - self.first_lpn) * lane.unit() as u64;
        let filled = if self.own.is_some() { own } else { self.prior.filled };
        PriorGroup { filled, ..self.prior }
    }
}

/// A part of a group file that holds pages `start..end`, contiguous.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Number and identity of the group.
    pub ltn: u64,
    pub group: Uid,
    pub file: Arc<dyn InPlaceFile>,
    pub first_lpn: u64,
    pub start: u64,
    pub end: u64,
}

#[derive(Debug)]
pub(crate) struct Groups {
    lane: Lane,
    store: Uid,
    closed: VecDeque<ClosedGroup>,
    pub active: ActiveGroup,
    spares: VecDeque<PreparedGroup>,
}

/// Checks that a group can hold a page of data and a watermark.
fn check(group: &PreparedGroup) -> Result<()> {
    // Places count blocks in 32 bits.
    let blocks = group.file.len() / BLOCK_LEN_MIN as u64;
    if group.file.len() < 2 * PAGE as u64 || blocks > u64::from(u32::MAX) {
        let why = format!(
            "the file of a log group has {} bytes, instead of {} to {} bytes",
            group.file.len(),
            2 * PAGE,
            u64::from(u32::MAX) * BLOCK_LEN_MIN as u64
        );
        return Err(Error::invalid(why).at_file(group.file.path()));
    }
    Ok(())
}

impl Groups {
    pub fn new(
        lane: Lane,
        first: PreparedGroup,
        store: Uid,
        next_lpn: u64,
        history: &History,
    ) -> Result<Self> {
        check(&first)?;
        let prev = history.chain.unwrap_or(Chain { ltn: 0, end_lpn: 0, used: 0 });
        if prev.end_lpn > next_lpn || history.groups.iter().any(|g| g.ltn >= first.ltn) {
            let why = format!(
                "log group {} from log page {next_lpn} on does not follow log page {} of log group {} (a fault of the engine: report it)",
                first.ltn, prev.end_lpn, prev.ltn
            );
            return Err(Error::invalid(why).at_file(first.file.path()));
        }
        let closed = history.groups.iter().map(|prior| ClosedGroup {
            prior: prior.clone(),
            first_lpn: prev.end_lpn,
            end_lpn: prev.end_lpn,
            own: None,
        });
        let active = ActiveGroup::new(first, store, lane, next_lpn, prev);
        Ok(Groups { lane, store, closed: closed.collect(), active, spares: VecDeque::new() })
    }

    pub fn add_spare(&mut self, group: PreparedGroup) -> Result<()> {
        check(&group)?;
        let last = self.spares.back().map_or(self.active.prepared.ltn, |s| s.ltn);
        if group.ltn <= last {
            let why = format!(
                "spare log group {} does not come after log group {last} (a fault of the engine: report it)",
                group.ltn
            );
            return Err(Error::invalid(why).at_file(group.file.path()));
        }
        self.spares.push_back(group);
        Ok(())
    }

    pub fn spares(&self) -> usize {
        self.spares.len()
    }

    /// Returns true if a spare has room for a batch of `len` bytes.
    pub fn has_spare(&self, len: usize) -> bool {
        self.spares.iter().any(|spare| self.fits(spare, len))
    }

    fn fits(&self, spare: &PreparedGroup, len: usize) -> bool {
        spare.data_numbers(self.lane) >= spare.shape(self.lane).numbers_for(0, len)
    }

    /// Closes the active group at `end` and activates the first spare with room for a batch of
    /// `len` bytes. Smaller spares before it are closed empty. Returns false, with no change, if no
    /// spare fits.
    pub fn roll(&mut self, end: Chain, len: usize) -> bool {
        let Some(fits) = self.spares.iter().position(|spare| self.fits(spare, len)) else { return false };
        let next_lpn = end.end_lpn;
        for prepared in self.spares.drain(..=fits).collect::<Vec<_>>() {
            // A batch goes to a group that holds all of it. The spares that are passed over are
            // never written, and are released in order.
            let empty = self.active.first_lpn == next_lpn;
            let prev = if empty { self.active.prev } else { end };
            let next = ActiveGroup::new(prepared, self.store, self.lane, next_lpn, prev);
            let old = std::mem::replace(&mut self.active, next);
            let (ltn, len, begins) = (old.prepared.ltn, old.prepared.file.len(), old.begins());
            let prior = PriorGroup { ltn, len, begins, filled: 0, seqs: old.seqs };
            self.closed.push_back(ClosedGroup {
                prior,
                first_lpn: old.first_lpn,
                end_lpn: next_lpn,
                own: Some((old.prepared.uid, old.prepared.file)),
            });
        }
        true
    }

    /// Returns the parts of files that hold the pages `start..end`.
    pub fn segments(&self, start: u64, end: u64) -> Vec<Segment> {
        let closed = self.closed.iter();
        let closed = closed.filter_map(|g| Some((g.prior.ltn, g.own.as_ref()?, g.first_lpn, g.end_lpn)));
        let closed =
            closed.map(|(ltn, (uid, file), first_lpn, end_lpn)| (ltn, *uid, file, first_lpn, end_lpn));
        let PreparedGroup { ltn, uid, file } = &self.active.prepared;
        closed
            .chain([(*ltn, *uid, file, self.active.first_lpn, end)])
            .map(|(ltn, group, file, first_lpn, group_end)| Segment {
                ltn,
                group,
                file: Arc::clone(file),
                first_lpn,
                start: start.max(first_lpn),
                end: end.min(group_end),
            })
            .filter(|s| s.start < s.end)
            .collect()
    }

    /// Returns true if older groups wait for a durable page of the active one before they can be
    /// released.
    pub fn release_waits(&self, durable_end: u64) -> bool {
        !self.closed.is_empty() && durable_end <= self.active.first_lpn
    }

    /// See [`crate::wal::Content::release_below`].
    pub fn release_below(&mut self, floors: &[(TenantId, SeqNo)], durable_end: u64) -> Vec<PriorGroup> {
        let mut released = Vec::new();
        while let Some(oldest) = self.closed.front() {
            let successor = self.closed.get(1).map_or(self.active.first_lpn, |g| g.first_lpn);
            let own = self.closed.get(1).is_none_or(|g| g.own.is_some());
            let needed = oldest.prior.seqs.are_needed(floors);
            let waits = own && durable_end <= successor;
            if needed || waits {
                break;
            }
            released.extend(self.closed.pop_front().map(|g| g.whole(self.lane)));
        }
        released
    }

    /// Returns the group in which the log begins if `lpn` is its first page (its number, its first
    /// page), and the closed groups that end before it. `None`: one of these is needed, or the page
    /// is in a group that this log does not write.
    pub fn before(&self, lpn: u64, floors: &[(TenantId, SeqNo)]) -> Option<((u64, u64), Vec<u64>)> {
        let gone = self.closed.iter().take_while(|g| g.end_lpn <= lpn);
        let gone: Vec<&ClosedGroup> = gone.collect();
        if gone.iter().any(|g| g.prior.seqs.are_needed(floors)) {
            return None;
        }
        let group = match self.closed.get(gone.len()) {
            Some(closed) => closed.own.as_ref().map(|_| (closed.prior.ltn, closed.first_lpn)),
            None => Some((self.active.prepared.ltn, self.active.first_lpn)),
        };
        Some((group?, gone.iter().map(|g| g.prior.ltn).collect()))
    }

    /// Begins the log at a page of the group `ltn`, and drops all earlier groups.
    pub fn begin_at(&mut self, ltn: u64, lpn: u64) {
        let gone = self.closed.partition_point(|g| g.prior.ltn < ltn);
        self.closed.drain(..gone);
        let unit = self.lane.unit() as u64;
        match self.closed.front_mut().filter(|g| g.prior.ltn == ltn) {
            Some(group) => group.prior.begins = lpn.saturating_sub(group.first_lpn) * unit,
            None => self.active.begin_lpn = lpn,
        }
    }

    /// Returns the number of the first page of a group, if this log writes it or wrote it.
    pub fn first_lpn_of(&self, ltn: u64) -> Option<u64> {
        if self.active.prepared.ltn == ltn {
            return Some(self.active.first_lpn);
        }
        // Most requests are for young groups.
        let closed = self.closed.iter().rev().take_while(|g| g.own.is_some());
        closed.into_iter().find(|g| g.prior.ltn == ltn).map(|g| g.first_lpn)
    }

    /// Returns the groups that were not released, oldest first, the active one last. All pages
    /// below `written_end` are in their files.
    pub fn all(&self, written_end: u64) -> Vec<PriorGroup> {
        let unit = self.lane.unit() as u64;
        let in_file =
            |first_lpn: u64, end_lpn: u64| end_lpn.min(written_end).saturating_sub(first_lpn) * unit;
        let closed = self.closed.iter().map(|g| match g.own {
            Some(_) => PriorGroup { filled: in_file(g.first_lpn, g.end_lpn), ..g.prior.clone() },
            None => g.prior.clone(),
        });
        let ActiveGroup { prepared, seqs, first_lpn, .. } = &self.active;
        let (ltn, len, filled) = (prepared.ltn, prepared.file.len(), in_file(*first_lpn, u64::MAX));
        let begins = self.active.begins();
        closed.chain([PriorGroup { ltn, len, begins, filled, seqs: seqs.clone() }]).collect()
    }

    pub fn live_bytes(&self) -> u64 {
        self.closed.iter().map(|g| g.prior.len).sum::<u64>() + self.active.prepared.file.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::Access;
    use io::sim::SimEnv;
    use std::path::Path;

    /// The background thread writes no page while no group waits for release, and the groups stay.
    #[test]
    fn group_release_waits_for_a_durable_page_in_the_active_group() {
        for durable_end in 4..8 {
            let file =
                SimEnv::new(1).env().fs.create_in_place(Path::new("/2"), 4 * PAGE as u64, Access::Direct);
            let first = PreparedGroup { ltn: 2, uid: Uid::default(), file: file.unwrap() };
            let (len, filled) = (4 * PAGE as u64, 0);
            let prior = PriorGroup { ltn: 1, len, begins: 0, filled, seqs: Spans::default() };
            let chain = Some(Chain { ltn: 1, end_lpn: 6, used: 0 });
            let history = History { chain, groups: vec![prior] };
            let mut groups = Groups::new(Lane::FIRST, first, Uid::default(), 6, &history).unwrap();
            let waits = groups.release_waits(durable_end);
            assert_eq!(waits, durable_end <= 6, "durable up to {durable_end}");
            assert_eq!(groups.release_below(&[], durable_end).is_empty(), waits);
            assert!(waits || !groups.release_waits(durable_end), "nothing is left that could wait");
        }
    }
}
