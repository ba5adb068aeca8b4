//! After a restart: which pages are the log, and which the torn tail.
//!
//! Groups are read in the order of their numbers, every page once. The log is the longest run of pages that continue
//! each other: by number, by group (a first page names the group before it and its end) and by fill (`prev_used`). Where
//! a group file has no intact page, the staging file may have it. Batches are replayed as their last fragment comes by. One
//! thread judges and replays; where there are others, they read what comes next meanwhile, and nothing depends on it (`walk`).
//!
//! Let `h` be the number after that run, and `D` the highest `durable_end` on any intact page of a live group, or the
//! end of a group that was sealed by an earlier recovery. If `h < D`, a page that was durable is gone: corruption. Else
//! nothing at or above `h` was ever acknowledged as durable, and all of it is cut off. `docs/format/wal.md` argues why
//! this is right in both directions.
//!
//! Invariants: nothing is written before the whole log was judged, and nothing in read-only mode. When [`recover`]
//! returns, every page it accepted is durable in its group file.

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
use crate::place::Place;
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
    /// Where an earlier recovery cut it: pages from this number on do not count.
    pub sealed_end: Option<u64>,
    /// The log begins there, in this group; only of the oldest.
    pub begin: Option<LogBegin>,
}

/// Whether recovery may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryMode {
    /// Pages found only in staging are written to their group files, and these are synced.
    ReadWrite,
    /// Nothing is written.
    ReadOnly,
}

/// What recovery found, and what the caller must make durable **before** it serves anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Above every page number seen anywhere: the first number of the next group.
    pub next_lpn: u64,
    /// The group to seal, and the page number where it ends; `None` if there is no log, or it is sealed there already.
    pub sealed: Option<(u64, u64)>,
    /// Groups after the end of the log, spares among them: drop them from the manifest, in the edit that seals.
    pub discarded: Vec<u64>,
    /// The sequences replayed.
    pub seqs: Spans,
    /// Bytes of accepted pages with batches that no later page confirms: had one of them been damaged, it would have
    /// been taken for torn.
    pub unverified_tail_bytes: u64,
    /// Intact pages that were cut off because one before them is missing.
    pub discarded_pages: u64,
    /// Accepted pages that were found in staging only.
    pub staged_pages: u64,
    /// Batches replayed.
    pub batches: u64,
    /// The highest edit of the manifest that a page saw durable: a manifest that ends before it has lost its end.
    pub witness_edit: u64,
    /// The history that the next log continues: for [`crate::wal::Wal::start`].
    pub history: History,
    /// Where a reader goes on later: for [`read_on`]. `None`: there is no page.
    pub point: Option<ReadPoint>,
}

/// A whole batch as it is read from the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedBatch<'a> {
    /// Whose it is.
    pub tenant: TenantId,
    /// Its lowest sequence.
    pub first_seq: SeqNo,
    /// Its highest sequence.
    pub last_seq: SeqNo,
    /// Where its first byte is.
    pub place: Place,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// Gets a batch.
pub type OnBatch<'a> = dyn FnMut(&LoggedBatch<'_>) -> Result<()> + 'a;

/// Passes batches on without their places.
fn without_places<'a>(replay: &'a mut OnReplay<'_>) -> impl FnMut(&LoggedBatch<'_>) -> Result<()> + 'a {
    move |batch| replay(batch.tenant, batch.first_seq, batch.bytes)
}

/// Reads the log of `store`, hands every whole batch to `replay` in order, whoever its tenant is, and says where the log ends.
///
/// `groups` are all groups of the manifest, ascending. On success the caller makes one edit durable that seals and
/// discards what the report says; then it starts a new log in a new group, whose number is above all in `groups`, with
/// the report's `next_lpn` and `history`. Until that edit is durable recovery can be repeated.
///
/// # Errors
/// `Corruption`, naming file and page, if a page is missing that was durable, also after batches were replayed;
/// `Unsupported` for pages of a later format; those of `replay` and of the file system.
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

/// As [`recover()`], of any lane of the store: `groups` are those of the lane that are replayed. Batches come with their places.
///
/// # Errors
/// As there.
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
        // Somebody may write it.
        RecoveryMode::ReadOnly => Staging::read(env, &path, store)?,
    };
    recover_with(env, &staging, (store, lane), groups, mode, replay)
}

/// As [`recover()`], with an index of the staging file ([`Staging::of_lane`]). The file may have tens of megabytes, and an
/// open for writing needs it several times. It must not change between the index and this call.
///
/// # Errors
/// As there.
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

/// As [`recover()`], for somebody who only reads: where the log is damaged it ends, and what is wrong is told instead of being
/// an error. Everything before the damage is replayed, and nothing behind it. A `Corruption` from `replay` is damage as well.
///
/// # Errors
/// `Unsupported` for pages of a later format; those of `replay` that are not `Corruption`; those of reading staging.
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
    /// Where it belongs in the file of its group.
    offset: u64,
    lpn: u64,
    used: usize,
    /// Bytes that it has when it is closed.
    len: usize,
}

impl FromStaging {
    /// The bytes of its group that it has.
    fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.len as u64
    }
}

/// What two ranges have in common.
fn common(a: &Range<u64>, b: &Range<u64>) -> Range<u64> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}

/// What was accepted of a group.
struct Accepted {
    group: usize,
    first_lpn: u64,
    /// The number after its last page.
    end_lpn: u64,
    /// Bytes used in its last page.
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
    /// The group it ends in was sealed by an earlier recovery.
    end_sealed: bool,
    /// Groups already read.
    passed: Vec<u64>,
    /// An intact page was left out, so that no later one can be accepted.
    broken: bool,
    /// Where the next page of the run was expected: index of the group, and offset in its file.
    hole: Option<(usize, u64)>,
    /// Where the log begins, if its first page is missing and a later one of the same group tells.
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
    /// Damage ends the log, and this is the first.
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

    /// Whose the pages of a group are.
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
        // A file that is missing, or was cut, may be shorter.
        let mut offset = self.begin(&mut cursor);
        let mut walk = Walk::ahead(&mut self.readers, &group.file, unit as usize, offset.min(len)..len);
        while offset + unit <= len {
            // A page that the power failed on may be unreadable: it is as good as never written, or else was durable, and
            // is missed.
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

    /// As [`Scan::page`], where damage may end the log.
    fn page_or_damage(&mut self, cursor: &mut Cursor<'_>, offset: u64, bytes: &[u8]) -> Result<u64> {
        self.page(cursor, offset, bytes).or_else(|e| {
            self.unless_damage(e)?;
            (cursor.accepting, self.broken) = (false, true);
            Ok(self.unit())
        })
    }

    /// Bytes for which one page number stands.
    fn unit(&self) -> u64 {
        self.lane.unit() as u64
    }

    /// Pages that a file which is missing, or was cut, does not have may be in staging still.
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

    /// Takes an error for the damage at which the log ends, if it may be that.
    fn unless_damage(&mut self, e: Error) -> Result<()> {
        if !self.up_to_damage || !matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Io) {
            return Err(e);
        }
        self.damage.get_or_insert(e);
        Ok(())
    }

    /// What any intact page tells, accepted or not; so many numbers it has.
    fn note(&mut self, group: &LogGroup, header: &PageHeader, numbers: u64) {
        self.highest_end = self.highest_end.max(header.lpn.saturating_add(numbers));
        if group.sealed_end.is_none_or(|end| header.lpn < end) {
            self.durable_end = self.durable_end.max(header.durable_end);
            self.report.witness_edit = self.report.witness_edit.max(header.witness_edit);
        }
    }

    /// Takes what is at `offset` of a group, if it is the next page of the run. Returns how far it is to what comes next: the
    /// length of the page, or a unit, since where none is intact the next may begin anywhere.
    fn page(&mut self, cursor: &mut Cursor<'_>, offset: u64, bytes: &[u8]) -> Result<u64> {
        let (group, unit) = (cursor.group, self.unit());
        let in_file = match page::read_closed(bytes, self.owner(group), group.ltn) {
            // One that says it belongs elsewhere in the file was written to the wrong place.
            Verdict::Valid(header) if header.offset() == Some(offset) => Some(header),
            Verdict::Newer(unknown) => return Err(newer(group, offset, unknown)),
            Verdict::Valid(_) | Verdict::Invalid => None,
        };
        if let Some(header) = &in_file {
            self.note(group, header, header.numbers());
            // The file knows better than staging where the group begins.
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
            // Its group continues what was accepted: then it is the beginning of this group that is missing.
            let prev = (header.prev_ltn, header.prev_end);
            if self.end.is_some_and(|end| prev == (end.ltn, end.end_lpn)) {
                self.hole = Some((cursor.index, 0));
            }
        }
        Ok(len)
    }

    /// True if a page is the next of the run.
    fn continues(&self, header: &PageHeader, offset: u64) -> bool {
        match &self.end {
            _ if header.lane() != self.lane => false,
            // The oldest group continues one that is gone by now, or none; never one that is listed and has no pages.
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

    /// Accepts the page from staging, if it is there, continues the run and holds anything; its length when it is closed.
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

    /// Takes a page into the run and its fragments into batches.
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
            let at = Place::of_page(group.ltn, offset);
            let Some(whole) = self.assembly.add(&fragment, at).map_err(here)? else { continue };
            let batch = whole.batch(&fragment);
            let LoggedBatch { tenant, first_seq, last_seq, .. } = batch;
            // A tenant gives sequences in order; a batch twice would be one too many for a memtable.
            if self.report.seqs.last(tenant).is_some_and(|last| first_seq <= last) {
                return Err(here(disorder("has sequences of one before it")));
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

    /// Enters a group. Half a batch at the end of the one before is what a recovery cut off, if that sealed it; no
    /// other half batch is followed by a group.
    fn enter(&mut self, cursor: &Cursor<'_>, first: &PageHeader) -> Result<()> {
        let half = self.assembly.partial.take().is_some();
        if half && !self.end_sealed {
            return Err(Error::corruption(
                "the group before this one ends in the middle of a batch; restore from a checkpoint or backup, or run `lava repair`",
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

    /// Torn or damaged?
    fn judge(&self, groups: &[LogGroup]) -> Result<()> {
        let end = self.end.map_or(self.origin, |end| end.end_lpn);
        let staged = self.staged.first().filter(|page| page.lpn < self.durable_end);
        let (lpn, place) = match staged {
            Some(page) => (page.lpn, Some((page.group, page.offset))),
            None if end < self.durable_end => (end, self.hole),
            None => return Ok(()),
        };
        let error = Error::corruption(format!(
            "log page {lpn} is damaged or missing, and was durable: all pages below {} were; open the store read-only \
             for what is before it, save the rest with `lava repair`, or restore a checkpoint or backup",
            self.durable_end
        ));
        let last = groups.last().map(|group| (group, group.file.len()));
        let found = place.and_then(|(group, offset)| Some((groups.get(group)?, offset)));
        Err(match found.or(last) {
            Some((group, offset)) => error.at_file(group.file.path()).at_offset(offset),
            None => error,
        })
    }

    /// Makes every accepted page durable in its file.
    ///
    /// Pages that nobody confirms are written once more, whole and unchanged (or for the first time, where they come
    /// from staging). A sync alone would not do: if a sync failed before the restart, the kernel may show bytes that are
    /// not on the device and that it no longer means to write.
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

    /// Writes the accepted pages in a part of the file of a group, with what is around them in their blocks.
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

    /// Puts the closed form of a page that was accepted from staging in the place of what the file has, as far as that is
    /// in `out`, which begins at `start`.
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

    /// A page that was accepted from staging, as it is when it is closed.
    fn closed(&self, group: &LogGroup, from: &FromStaging) -> Result<Vec<u8>> {
        let owner = self.owner(group);
        let changed = || {
            let why =
                "a page in the staging file of the log is not what it was a moment ago: open the store again";
            Error::new(ErrorKind::Io, why).at_file(self.lane.staging_name())
        };
        let staged = self.staging.get(owner, group.ltn, from.lpn).ok_or_else(changed)?;
        let bytes = self.staging.bytes(staged)?;
        // It is going to be closed, under a checksum that fits whatever is in it.
        let is_same = page::extent(&bytes, &staged.header).is_ok_and(|used| used == from.used);
        let mut page = bytes.get(..from.len).filter(|_| is_same).ok_or_else(changed)?.to_vec();
        page::close(&mut page, from.used as u16, staged.header.durable_end, owner, from.lpn);
        Ok(page)
    }

    /// Groups at the end that hold watermarks and no batch are not needed: the seal of the group before them confirms
    /// it. Otherwise every opening would leave a group behind, however little is written.
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

/// Reads what is to be written again, from `start` on. Blocks in which nothing of the file is wanted, since their part of it is
/// in staging, may be unreadable.
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
