//! Recovery: finds the pages of the log after a restart, and cuts off the torn tail.
//!
//! Groups are read in the order of their numbers, every page once. The log is the longest run of
//! pages that continue each other: by number, by group (a first page names the group before it and
//! its end) and by fill (`prev_used`). Where a group file has no intact page, the staging file may
//! have it. A batch is replayed when its last fragment is read. One thread checks and replays;
//! other threads may read ahead, and nothing depends on them (`walk`).
//!
//! Let `h` be the number after that run. Let `D` be the highest `durable_end` on any intact page of
//! a live group, or the end of a group that an earlier recovery sealed. If `h < D`, a page that was
//! durable is lost: corruption. Otherwise no page at or above `h` was ever acknowledged as durable,
//! and all of them are cut off. `docs/format/wal.md` has the proof for both directions.
//!
//! Invariants: nothing is written before the whole log was checked, and nothing in read-only mode.
//! When [`recover`] returns, every page it accepted is durable in its group file.

mod assembly;
mod begin;
mod read_on;
mod read_only;

pub(crate) use assembly::Assembly;
pub use read_on::{ReadPoint, read_on};
pub use read_only::{LaneRead, StagedPages, read_lane};

use crate::history::{Chain, History, LogBegin, PriorGroup};
use crate::lane::Lane;
use crate::page::{self, Fragments, Owner, PageHeader, Unknown, Verdict};
use crate::place::LogAddress;
use crate::staging::STAGING_NAME;
use crate::staging::Staging;
use crate::tenant::{OnReplay, Spans, TenantId};
use crate::walk::{READ_LEN, Readers, Walk};
use assembly::disorder;
use base::{Error, ErrorKind, Result, SeqNo, Uid};
use io::{AlignedBuf, Env, InPlaceFile};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A group that the manifest lists.
#[derive(Clone, Debug)]
pub struct LogGroup {
    /// Its number.
    pub ltn: u64,
    /// Its identity; `None`: an older release listed it, and its pages are of version 1.
    pub uid: Option<Uid>,
    /// Its file.
    pub file: Arc<dyn InPlaceFile>,
    /// End set by an earlier recovery: pages from this number on do not count.
    pub sealed_end: Option<u64>,
    /// Beginning of the log in this group; only for the oldest group.
    pub begin: Option<LogBegin>,
}

/// Whether recovery may write to the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryMode {
    /// Pages found only in staging are written to their group files, and these are synced.
    ReadWrite,
    /// Nothing is written.
    ReadOnly,
}

/// Result of a recovery. The caller must make the seal and the discards durable **before** it
/// serves requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// First number for the next group: above every page number seen anywhere.
    pub next_lpn: u64,
    /// The group to seal, and the page number where it ends; `None` if there is no log, or it is
    /// already sealed there.
    pub sealed: Option<(u64, u64)>,
    /// Groups after the end of the log, including spares: drop them from the manifest, in the edit
    /// that seals.
    pub discarded: Vec<u64>,
    /// The sequences replayed.
    pub seqs: Spans,
    /// Bytes of accepted pages with batches that no later page confirms: damage to one of them
    /// would have been taken for a torn page.
    pub unverified_tail_bytes: u64,
    /// Intact pages that were cut off because an earlier page is missing.
    pub discarded_pages: u64,
    /// Accepted pages that were found in staging only.
    pub staged_pages: u64,
    /// Batches replayed.
    pub batches: u64,
    /// The highest edit of the manifest that a page recorded as durable: a manifest that ends
    /// before it has lost its end.
    pub witness_edit: u64,
    /// The history that the next log continues: for [`crate::wal::Wal::start`].
    pub history: History,
    /// Start of a later reading: for [`read_on`]. `None`: there is no page.
    pub point: Option<ReadPoint>,
}

/// A whole batch as read from the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedBatch<'a> {
    /// The owner of the batch.
    pub tenant: TenantId,
    /// Its lowest sequence.
    pub first_seq: SeqNo,
    /// Its highest sequence.
    pub last_seq: SeqNo,
    /// Place of its first byte.
    pub place: LogAddress,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// Callback for a batch.
pub type OnBatch<'a> = dyn FnMut(&LoggedBatch<'_>) -> Result<()> + 'a;

/// Passes batches on without their places.
fn without_places<'a>(replay: &'a mut OnReplay<'_>) -> impl FnMut(&LoggedBatch<'_>) -> Result<()> + 'a {
    move |batch| replay(batch.tenant, batch.first_seq, batch.bytes)
}

/// Reads the log of `store`, and passes every whole batch of every tenant to `replay` in order.
/// Returns where the log ends.
///
/// `groups` are all groups of the manifest, ascending. On success the caller makes one edit
/// durable, with the seal and the discards of the report. Then it starts a new log in a new group,
/// whose number is above all in `groups`, with the report's `next_lpn` and `history`. Until that
/// edit is durable recovery can be repeated.
///
/// # Errors
/// `Corruption`, with file and page, if a page is missing that was durable, even after batches were
/// replayed; `Unsupported` for pages of a later format; those of `replay` and of the file system.
pub fn recover(
    env: &Env,
    dir: &Path,
    store: Uid,
    groups: &[LogGroup],
    mode: RecoveryMode,
    replay: &mut OnReplay<'_>,
) -> Result<RecoveryReport> {
    recover_lane(env, dir, (store, Lane::FIRST), groups, mode, &mut without_places(replay))
}

/// As [`recover()`], for any lane of the store: `groups` are those of the lane. Batches come with
/// their places.
///
/// # Errors
/// As [`recover()`].
pub fn recover_lane(
    env: &Env,
    dir: &Path,
    (store, lane): (Uid, Lane),
    groups: &[LogGroup],
    mode: RecoveryMode,
    replay: &mut OnBatch<'_>,
) -> Result<RecoveryReport> {
    let path = io::fs::join(dir, lane.staging_name());
    let staging = match mode {
        RecoveryMode::ReadWrite => Staging::index(env, &path, store)?,
        // A writer may change the file meanwhile.
        RecoveryMode::ReadOnly => Staging::read(env, &path, store)?,
    };
    recover_with(env, &staging, (store, lane), groups, mode, replay)
}

/// As [`recover()`], with an index of the staging file ([`Staging::of_lane`]). The file may have
/// tens of megabytes, and opening a store for writing needs it several times. It must not change
/// between the index and this call.
///
/// # Errors
/// As [`recover()`].
pub fn recover_staged(
    env: &Env,
    staging: &Staging,
    store: Uid,
    groups: &[LogGroup],
    mode: RecoveryMode,
    replay: &mut OnReplay<'_>,
) -> Result<RecoveryReport> {
    recover_with(env, staging, (store, Lane::FIRST), groups, mode, &mut without_places(replay))
}

fn recover_with(
    env: &Env,
    staging: &Staging,
    (store, lane): (Uid, Lane),
    groups: &[LogGroup],
    mode: RecoveryMode,
    replay: &mut OnBatch<'_>,
) -> Result<RecoveryReport> {
    if !groups.windows(2).all(|pair| matches!(pair, [a, b] if a.ltn < b.ltn)) {
        return Err(Error::invalid("log groups must be given in ascending order, each once"));
    }
    let mut scan = Scan { lane, ..Scan::new(env, store, staging, replay) };
    for (index, group) in groups.iter().enumerate() {
        scan.group(index, group)?;
    }
    scan.judge(groups)?;
    if mode == RecoveryMode::ReadWrite {
        scan.make_durable(groups)?;
    }
    Ok(scan.report(groups))
}

/// As [`recover()`], for a read-only open: the log ends at the first damage, which is returned
/// beside the report. Everything before the damage is replayed, and nothing behind it. A
/// `Corruption` from `replay` counts as damage as well.
///
/// # Errors
/// `Unsupported` for pages of a later format; those of `replay` that are not `Corruption`; those of
/// reading staging.
pub fn recover_up_to_damage(
    env: &Env,
    dir: &Path,
    store: Uid,
    groups: &[LogGroup],
    replay: &mut OnReplay<'_>,
) -> Result<(RecoveryReport, Option<Error>)> {
    let staging = Staging::read(env, &io::fs::join(dir, STAGING_NAME), store)?;
    let mut on_batch = without_places(replay);
    let mut scan = Scan { up_to_damage: true, ..Scan::new(env, store, &staging, &mut on_batch) };
    for (index, group) in groups.iter().enumerate() {
        scan.group(index, group)?;
    }
    let judged = scan.judge(groups).err();
    let damage = scan.damage.take().or(judged);
    Ok((scan.report(groups), damage))
}

/// A page that was accepted from staging.
struct FromStaging {
    group: usize,
    /// Its offset in the file of its group.
    offset: u64,
    lpn: u64,
    used: usize,
    /// Its closed length in bytes.
    len: usize,
}

impl FromStaging {
    /// Returns the range of the group file that it occupies.
    fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.len as u64
    }
}

/// Returns the intersection of two ranges.
fn common(a: &Range<u64>, b: &Range<u64>) -> Range<u64> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}

/// Accepted pages of a group.
struct Accepted {
    group: usize,
    first_lpn: u64,
    /// The number after its last page.
    end_lpn: u64,
    /// Used bytes of its last page.
    used: u16,
    seqs: Spans,
}

struct Scan<'a> {
    readers: Readers<'a>,
    store: Uid,
    lane: Lane,
    staging: &'a Staging,
    replay: &'a mut OnBatch<'a>,
    /// The end of the accepted run.
    end: Option<Chain>,
    /// The group of that end was sealed by an earlier recovery.
    end_sealed: bool,
    /// Groups already read.
    passed: Vec<u64>,
    /// An intact page was skipped, so that no later page can be accepted.
    broken: bool,
    /// Expected place of the next page of the run: index of the group, and offset in its file.
    hole: Option<(usize, u64)>,
    /// First page of the log, if it is missing and a later page of the same group names it.
    origin: u64,
    durable_end: u64,
    /// Above the numbers of all pages seen.
    highest_end: u64,
    staged: Vec<FromStaging>,
    /// Accepted pages that hold fragments: their numbers, and their lengths.
    data_pages: Vec<(u64, usize)>,
    assembly: Assembly,
    accepted: Vec<Accepted>,
    report: RecoveryReport,
    /// Damage ends the log; `damage` is the first.
    up_to_damage: bool,
    damage: Option<Error>,
    /// The report of the earlier reading, until the scan enters its first group: see [`read_on`].
    last: Option<&'a RecoveryReport>,
}

/// The state of the group being read.
struct Cursor<'g> {
    index: usize,
    group: &'g LogGroup,
    first_lpn: Option<u64>,
    accepting: bool,
}

impl<'a> Scan<'a> {
    fn new(env: &'a Env, store: Uid, staging: &'a Staging, replay: &'a mut OnBatch<'a>) -> Self {
        Scan {
            readers: Readers::new(env),
            store,
            lane: Lane::FIRST,
            staging,
            replay,
            end: None,
            end_sealed: false,
            passed: Vec::new(),
            broken: false,
            hole: None,
            origin: 0,
            durable_end: 0,
            highest_end: 0,
            staged: Vec::new(),
            data_pages: Vec::new(),
            assembly: Assembly::default(),
            accepted: Vec::new(),
            report: RecoveryReport::default(),
            up_to_damage: false,
            damage: None,
            last: None,
        }
    }

    /// Returns the owner of the pages of a group.
    fn owner(&self, group: &LogGroup) -> Owner {
        Owner { store: self.store, group: group.uid }
    }

    fn group(&mut self, index: usize, group: &LogGroup) -> Result<()> {
        self.durable_end = self.durable_end.max(group.sealed_end.unwrap_or(0));
        if group.sealed_end.is_none() {
            self.staging.must_know(self.owner(group), group.ltn)?;
        }
        for page in self.staging.of_group(self.owner(group), group.ltn) {
            self.note(group, &page.header, self.lane.page_numbers());
        }
        let staged_first =
            self.staging.of_group(self.owner(group), group.ltn).next().map(|page| page.header.first_lpn);
        let mut cursor = Cursor { index, group, first_lpn: staged_first, accepting: !self.broken };
        let (len, unit) = (group.file.len(), self.unit());
        // The file of a missing or truncated group may be shorter.
        let mut offset = self.begin(&mut cursor);
        let mut walk = Walk::ahead(&mut self.readers, &group.file, unit as usize, offset.min(len)..len);
        while offset + unit <= len {
            // A page that was being written at a power failure may be unreadable. If it was
            // durable, the check of `D` misses it; otherwise it counts as never written.
            if let Err(e) = walk.move_to(offset) {
                self.unless_damage(e.at_file(group.file.path()).at_offset(offset))?;
            }
            offset += self.page_or_damage(&mut cursor, offset, walk.page(offset))?;
        }
        if self.up_to_damage {
            self.behind_the_file(&mut cursor, offset)?;
        }
        self.passed.push(group.ltn);
        Ok(())
    }

    /// As [`Scan::page`], but damage may end the log.
    fn page_or_damage(&mut self, cursor: &mut Cursor<'_>, offset: u64, bytes: &[u8]) -> Result<u64> {
        self.page(cursor, offset, bytes).or_else(|e| {
            self.unless_damage(e)?;
            (cursor.accepting, self.broken) = (false, true);
            Ok(self.unit())
        })
    }

    /// Returns the bytes for which one page number stands.
    fn unit(&self) -> u64 {
        self.lane.unit() as u64
    }

    /// Reads pages behind the end of a missing or truncated file, which may still be in staging.
    fn behind_the_file(&mut self, cursor: &mut Cursor<'_>, mut offset: u64) -> Result<()> {
        let group = cursor.group;
        loop {
            let lpn = cursor.first_lpn.and_then(|first| first.checked_add(offset / self.unit()));
            let staged = lpn.and_then(|lpn| self.staging.get(self.owner(group), group.ltn, lpn));
            if !cursor.accepting || staged.is_none() {
                return Ok(());
            }
            offset += self.page_or_damage(cursor, offset, &[])?;
        }
    }

    /// Records an error as the damage at which the log ends, if it can be damage.
    fn unless_damage(&mut self, e: Error) -> Result<()> {
        if !self.up_to_damage || !matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Io) {
            return Err(e);
        }
        self.damage.get_or_insert(e);
        Ok(())
    }

    /// Records the facts in an intact page, accepted or not; the page takes `numbers` numbers.
    fn note(&mut self, group: &LogGroup, header: &PageHeader, numbers: u64) {
        self.highest_end = self.highest_end.max(header.lpn.saturating_add(numbers));
        if group.sealed_end.is_none_or(|end| header.lpn < end) {
            self.durable_end = self.durable_end.max(header.durable_end);
            self.report.witness_edit = self.report.witness_edit.max(header.witness_edit);
        }
    }

    /// Accepts the page at `offset` of a group, if it is the next page of the run. Returns the
    /// distance to the next offset: the length of the page, or a unit, since without an intact page
    /// the next may begin anywhere.
    fn page(&mut self, cursor: &mut Cursor<'_>, offset: u64, bytes: &[u8]) -> Result<u64> {
        let (group, unit) = (cursor.group, self.unit());
        let in_file = match page::read_closed(bytes, self.owner(group), group.ltn) {
            // A page whose header names another offset was written to the wrong place.
            Verdict::Valid(header) if header.offset() == Some(offset) => Some(header),
            Verdict::Newer(unknown) => return Err(newer(group, offset, unknown)),
            Verdict::Valid(_) | Verdict::Invalid => None,
        };
        if let Some(header) = &in_file {
            self.note(group, header, header.numbers());
            // The first page of the file overrides staging.
            if offset == 0 {
                cursor.first_lpn = Some(header.first_lpn);
            }
        }
        let len = in_file.as_ref().map_or(unit, |header| header.page_len() as u64);
        let lpn = cursor.first_lpn.and_then(|first| first.checked_add(offset / unit));
        let beyond = lpn.zip(group.sealed_end).is_some_and(|(lpn, end)| lpn >= end);
        if beyond {
            cursor.accepting = false;
            return Ok(len);
        }
        let taken = match (cursor.accepting, &in_file) {
            (false, _) => None,
            (true, Some(header)) if self.continues(header, offset) => {
                self.accept_file(cursor, header, bytes, offset)?;
                Some(len)
            }
            (true, Some(_)) => None,
            (true, None) => self.accept_staged(cursor, lpn, offset)?,
        };
        if let Some(len) = taken {
            return Ok(len);
        }
        if cursor.accepting {
            self.hole.get_or_insert((cursor.index, offset));
        }
        cursor.accepting = false;
        if let Some(header) = &in_file {
            self.broken = true;
            self.report.discarded_pages += 1;
            if self.end.is_none() && self.hole == Some((cursor.index, 0)) {
                self.origin = header.first_lpn;
            }
            // The group of this page continues the accepted run, so the beginning of this group is
            // missing.
            let prev = (header.prev_ltn, header.prev_end);
            if self.end.is_some_and(|end| prev == (end.ltn, end.end_lpn)) {
                self.hole = Some((cursor.index, 0));
            }
        }
        Ok(len)
    }

    /// Returns true if a page is the next of the run.
    fn continues(&self, header: &PageHeader, offset: u64) -> bool {
        match &self.end {
            _ if header.lane() != self.lane => false,
            // The oldest group continues a released group, or none; never a listed one without
            // pages.
            None => offset == 0 && !self.passed.contains(&header.prev_ltn),
            Some(end) if offset == 0 => {
                (header.prev_ltn, header.prev_end, header.prev_used) == (end.ltn, end.end_lpn, end.used)
            }
            Some(end) => (header.ltn, header.lpn, header.prev_used) == (end.ltn, end.end_lpn, end.used),
        }
    }

    fn accept_file(
        &mut self,
        cursor: &Cursor<'_>,
        header: &PageHeader,
        bytes: &[u8],
        offset: u64,
    ) -> Result<()> {
        let used = usize::from(header.used);
        self.accept(cursor, header, bytes.get(..used).unwrap_or_default(), offset)
    }

    /// Accepts the page from staging, if it exists, continues the run and is not empty. Returns its
    /// closed length.
    fn accept_staged(&mut self, cursor: &Cursor<'_>, lpn: Option<u64>, offset: u64) -> Result<Option<u64>> {
        let usable = cursor.group.sealed_end.is_none();
        let Some(lpn) = lpn.filter(|_| usable) else { return Ok(None) };
        let (staging, owner) = (self.staging, self.owner(cursor.group));
        let Some(page) = staging.get(owner, cursor.group.ltn, lpn) else { return Ok(None) };
        if page.header.offset() != Some(offset) || !self.continues(&page.header, offset) {
            return Ok(None);
        }
        let bytes = staging.bytes(page)?;
        let used = page::extent(&bytes, &page.header).map_err(|e| newer(cursor.group, offset, e))?;
        if used == owner.header_len() {
            return Ok(None);
        }
        let len = page.header.shape().page_len(used);
        self.staged.push(FromStaging { group: cursor.index, offset, lpn, used, len });
        self.accept(cursor, &page.header, bytes.get(..used).unwrap_or_default(), offset)?;
        Ok(Some(len as u64))
    }

    /// Adds a page to the run and its fragments to batches.
    fn accept(&mut self, cursor: &Cursor<'_>, header: &PageHeader, used: &[u8], offset: u64) -> Result<()> {
        let group = cursor.group;
        let here = |e: Error| e.at_file(group.file.path()).at_offset(offset);
        if offset == 0 {
            self.enter(cursor, header).map_err(here)?;
        }
        self.note_point(cursor, header, offset);
        let shape = header.shape();
        let end_lpn = header.lpn.saturating_add(shape.numbers(used.len()));
        if let Some(accepted) = self.accepted.last_mut() {
            accepted.end_lpn = end_lpn;
            accepted.used = used.len() as u16;
        }
        for fragment in Fragments::new(used, header.owner, header.lpn) {
            let at = LogAddress::of_page(group.ltn, offset);
            let Some(whole) = self.assembly.add(&fragment, at).map_err(here)? else { continue };
            let batch = whole.batch(&fragment);
            let LoggedBatch { tenant, first_seq, last_seq, .. } = batch;
            // A tenant's sequences ascend, and a memtable does not accept an entry twice.
            if let Some(last) = self.report.seqs.last(tenant).filter(|last| first_seq <= *last) {
                return Err(here(disorder(&format!(
                    "begins with sequence number {first_seq}, but an earlier batch ends with {last}"
                ))));
            }
            (self.replay)(&batch).map_err(here)?;
            self.report.batches += 1;
            self.report.seqs.add(tenant, first_seq, last_seq);
            if let Some(accepted) = self.accepted.last_mut() {
                accepted.seqs.add(tenant, first_seq, last_seq);
            }
        }
        if used.len() > header.owner.header_len() {
            self.data_pages.push((header.lpn, shape.page_len(used.len())));
        }
        self.end = Some(Chain { ltn: group.ltn, end_lpn, used: used.len() as u16 });
        self.hole = None;
        Ok(())
    }

    /// Enters a group. A recovery may have cut off half a batch at the end of the previous group,
    /// if it sealed that group. No other half batch is followed by a group.
    fn enter(&mut self, cursor: &Cursor<'_>, first: &PageHeader) -> Result<()> {
        let half = self.assembly.partial.take().is_some();
        if half && !self.end_sealed {
            return Err(Error::corruption(
                "the log group before the one in this file ends in the middle of a batch",
            ));
        }
        self.end_sealed = cursor.group.sealed_end.is_some();
        self.accepted.push(Accepted {
            group: cursor.index,
            first_lpn: first.lpn,
            end_lpn: first.lpn,
            used: 0,
            seqs: Spans::default(),
        });
        Ok(())
    }

    /// Decides whether the end of the run is torn or damaged.
    fn judge(&self, groups: &[LogGroup]) -> Result<()> {
        let end = self.end.map_or(self.origin, |end| end.end_lpn);
        let staged = self.staged.first().filter(|page| page.lpn < self.durable_end);
        let (lpn, place) = match staged {
            Some(page) => (page.lpn, Some((page.group, page.offset))),
            None if end < self.durable_end => (end, self.hole),
            None => return Ok(()),
        };
        let error = Error::corruption(format!(
            "log page {lpn} is damaged or missing, and was durable: all pages below {} were",
            self.durable_end
        ))
        .with_remedy(base::error::REMEDY_OF_A_LOST_END);
        let last = groups.last().map(|group| (group, group.file.len()));
        let found = place.and_then(|(group, offset)| Some((groups.get(group)?, offset)));
        Err(match found.or(last) {
            Some((group, offset)) => error.at_file(group.file.path()).at_offset(offset),
            None => error,
        })
    }

    /// Makes every accepted page durable in its file.
    ///
    /// Unconfirmed pages are written once more, whole and unchanged, or for the first time if they
    /// come from staging. A sync alone would not suffice: after a failed sync before the restart,
    /// the kernel may return bytes that are not on the device and that it will not write again.
    fn make_durable(&self, groups: &[LogGroup]) -> Result<()> {
        for accepted in &self.accepted {
            let Some(group) = groups.get(accepted.group).filter(|group| group.sealed_end.is_none()) else {
                continue;
            };
            let offset = |lpn: u64| lpn.saturating_sub(accepted.first_lpn).saturating_mul(self.unit());
            self.write_again(group, accepted.group, offset(self.durable_end)..offset(accepted.end_lpn))?;
            group.file.sync_data()?;
        }
        Ok(())
    }

    /// Writes the accepted pages in a part of the file of a group, with the rest of their blocks.
    fn write_again(&self, group: &LogGroup, index: usize, part: Range<u64>) -> Result<()> {
        let block = group.file.block_len() as u64;
        let staged: Vec<&FromStaging> = self.staged.iter().filter(|page| page.group == index).collect();
        let mut buf = AlignedBuf::zeroed(0);
        let mut start = part.start / block * block;
        while start < part.end {
            let end = part.end.min(start + READ_LEN as u64).next_multiple_of(block);
            buf.resize((end - start) as usize);
            read_accepted(group, start, &part, &staged, buf.as_mut_slice())?;
            staged.iter().try_for_each(|page| self.overlay(group, page, start, buf.as_mut_slice()))?;
            group.file.write_at(&buf, start)?;
            start = end;
        }
        Ok(())
    }

    /// Overwrites the part of `out` that belongs to a page accepted from staging with the closed
    /// form of that page. `out` begins at `start` in the file.
    fn overlay(&self, group: &LogGroup, from: &FromStaging, start: u64, out: &mut [u8]) -> Result<()> {
        let part = common(&from.range(), &(start..start + out.len() as u64));
        if part.is_empty() {
            return Ok(());
        }
        let page = self.closed(group, from)?;
        let within = |base: u64| (part.start - base) as usize..(part.end - base) as usize;
        if let (Some(to), Some(from)) = (out.get_mut(within(start)), page.get(within(from.offset))) {
            to.copy_from_slice(from);
        }
        Ok(())
    }

    /// Returns the closed form of a page that was accepted from staging.
    fn closed(&self, group: &LogGroup, from: &FromStaging) -> Result<Vec<u8>> {
        let owner = self.owner(group);
        let changed = || {
            let why = "a page in the tail buffer of the log changed while it was read: open the \
                       store again";
            Error::new(ErrorKind::Io, why).at_file(self.lane.staging_name())
        };
        let staged = self.staging.get(owner, group.ltn, from.lpn).ok_or_else(changed)?;
        let bytes = self.staging.bytes(staged)?;
        // Checked before the page gets a closed checksum, which would fit any contents.
        let is_same = page::extent(&bytes, &staged.header).is_ok_and(|used| used == from.used);
        let mut page = bytes.get(..from.len).filter(|_| is_same).ok_or_else(changed)?.to_vec();
        page::close(&mut page, from.used as u16, staged.header.durable_end, owner, from.lpn);
        Ok(page)
    }

    /// Drops groups at the end that hold only watermarks: the seal of the group before them
    /// confirms it. Otherwise every open would leave a group behind, however little is written.
    fn let_go_of_empty(&mut self, groups: &[LogGroup]) {
        while self.accepted.pop_if(|last| last.seqs.is_empty()).is_some() {
            let chain = |last: &Accepted| {
                let end_lpn = last.end_lpn;
                Some(Chain { ltn: groups.get(last.group)?.ltn, end_lpn, used: last.used })
            };
            self.end = self.accepted.last().and_then(chain);
        }
    }

    fn report(mut self, groups: &[LogGroup]) -> RecoveryReport {
        let end_lpn = self.end.map_or(0, |end| end.end_lpn);
        self.report.point = self.report.point.map(|point| point.ending(self.end));
        self.let_go_of_empty(groups);
        let kept = self.accepted.last().map_or(0, |last| last.group + 1);
        let (kept, cut) = groups.split_at(kept.min(groups.len()));
        let kept_end = self.end.map_or(0, |end| end.end_lpn);
        let unverified = self.data_pages.iter().filter(|(lpn, _)| *lpn >= self.durable_end);
        let unverified_bytes: usize = unverified.map(|(_, len)| len).sum();
        let seqs = |index: usize| {
            self.accepted.iter().find(|a| a.group == index).map_or_else(Spans::default, |a| a.seqs.clone())
        };
        let unit = self.unit();
        let filled = |a: &Accepted| a.end_lpn.saturating_sub(a.first_lpn).saturating_mul(unit);
        let filled = |index: usize| self.accepted.iter().find(|a| a.group == index).map_or(0, filled);
        let prior = |(index, group): (usize, &LogGroup)| PriorGroup {
            ltn: group.ltn,
            len: group.file.len(),
            begins: group.begin.map_or(0, |begin| begin.offset(self.lane)),
            filled: filled(index),
            seqs: seqs(index),
        };
        let prior: Vec<PriorGroup> = kept.iter().enumerate().map(prior).collect();
        let staged_end = |lpn: u64| lpn.saturating_add(self.lane.page_numbers());
        let highest_end = self.highest_end.max(self.staging.highest_lpn.map_or(0, staged_end));
        self.report.next_lpn = highest_end.max(end_lpn).max(self.durable_end);
        let unsealed = |group: &&LogGroup| group.sealed_end.is_none();
        self.report.sealed = kept.last().filter(unsealed).map(|group| (group.ltn, kept_end));
        self.report.discarded = cut.iter().map(|group| group.ltn).collect();
        self.report.unverified_tail_bytes = unverified_bytes as u64;
        self.report.staged_pages = self.staged.len() as u64;
        self.report.history = History { chain: self.end, groups: prior };
        self.report
    }
}

/// Reads the part of the file to be written again, from `start` on. Blocks whose wanted part is in
/// staging may be unreadable.
fn read_accepted(
    group: &LogGroup,
    start: u64,
    part: &Range<u64>,
    staged: &[&FromStaging],
    out: &mut [u8],
) -> Result<()> {
    match group.file.read_at(out, start) {
        Err(e) if io::is_unreadable(&e) => {}
        read => return read,
    }
    let block = group.file.block_len();
    for (at, piece) in (start..).step_by(block).zip(out.chunks_mut(block)) {
        let wanted = common(part, &(at..at + piece.len() as u64));
        let in_staging = staged.iter().map(|page| common(&page.range(), &wanted));
        let in_staging: u64 = in_staging.map(|both| both.end - both.start).sum();
        match group.file.read_at(piece, at) {
            Err(e) if io::is_unreadable(&e) && in_staging == wanted.end - wanted.start => piece.fill(0),
            read => read?,
        }
    }
    Ok(())
}

fn newer(group: &LogGroup, offset: u64, unknown: Unknown) -> Error {
    let error = unknown.error("open the store with the release that wrote it, or a newer one");
    error.at_file(group.file.path()).at_offset(offset)
}

#[cfg(test)]
mod tests;
