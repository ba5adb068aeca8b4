//! Incremental reads of a log that another process writes.
//!
//! A reader has read the log up to its end. A later call reads only the pages from there on. It
//! begins with the last page that starts between two batches ([`ReadPoint`]). That page may have
//! got more fragments, and a batch without an end at the first reading is then read whole.
//!
//! Invariant: both readings together return the batches of one reading of the whole log, each once.
//! [`read_on`] returns `None` where this is impossible: the writer has dropped the group of the
//! page, the log begins behind the page, or a recovery has cut the log before the end of the
//! earlier reading. The reader then starts over.

use super::{Cursor, LogGroup, LoggedBatch, RecoveryReport, Scan, without_places};
use crate::history::Chain;
use crate::lane::Lane;
use crate::page::PageHeader;
use crate::recover::Accepted;
use crate::staging::Staging;
use crate::tenant::OnReplay;
use base::{Result, Uid};
use io::Env;

/// The page at which a later reading begins, and the end of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPoint {
    /// The group of the page.
    ltn: u64,
    /// The first number of the group.
    first_lpn: u64,
    /// Its number.
    lpn: u64,
    /// The place of the page in the file of the group.
    offset: u64,
    /// The end of the page before.
    before: Option<Chain>,
    /// The number after the last page that was read, and the bytes used in that page.
    end: (u64, u16),
}

impl ReadPoint {
    /// Returns the same point with the given end of the log.
    pub(super) fn ending(self, end: Option<Chain>) -> ReadPoint {
        ReadPoint { end: end.map_or((0, 0), |end| (end.end_lpn, end.used)), ..self }
    }

    /// Returns the number of the page.
    pub fn lpn(&self) -> u64 {
        self.lpn
    }

    /// Returns the index of the group of the page. `None`: the log no longer has the page.
    fn group_in(&self, groups: &[LogGroup]) -> Option<usize> {
        let index = groups.iter().position(|group| group.ltn == self.ltn)?;
        let group = groups.get(index)?;
        let is_before_begin = group.begin.is_some_and(|begin| begin.lpn > self.lpn);
        let is_cut = group.sealed_end.is_some_and(|end| end <= self.lpn);
        (!is_before_begin && !is_cut).then_some(index)
    }
}

impl Scan<'_> {
    /// Notes a page that is about to be accepted.
    pub(super) fn note_point(&mut self, cursor: &Cursor<'_>, header: &PageHeader, offset: u64) {
        if self.assembly.has_begun() {
            return;
        }
        self.report.point = Some(ReadPoint {
            ltn: cursor.group.ltn,
            first_lpn: header.first_lpn,
            lpn: header.lpn,
            offset,
            before: self.end,
            end: (0, 0),
        });
    }

    /// Enters the group of the point. Returns the offset of the first page to read.
    pub(super) fn begin_at(&mut self, cursor: &mut Cursor<'_>, last: &RecoveryReport) -> u64 {
        let Some(point) = last.point else { return 0 };
        cursor.first_lpn = Some(point.first_lpn);
        self.end = point.before;
        self.end_sealed = point.offset > 0 && cursor.group.sealed_end.is_some();
        // The first fragments may be the rest of a batch that began before the beginning of the
        // log.
        self.assembly.begins_inside = cursor.group.begin.is_some_and(|begin| begin.lpn == point.lpn);
        point.offset
    }
}

/// Reads the pages of the first lane behind those of an earlier reading, which reported `last`, and
/// passes on their batches. Changes nothing. `staging` must be from [`Staging::to_read_on`], read
/// after the manifest. The report is that of a reading of the whole log, except that its page
/// counts are those of this reading.
///
/// `None`: the log has to be read from its beginning. Batches may have been passed on before that
/// was known.
///
/// # Errors
/// As [`super::recover()`].
pub fn read_on(
    env: &Env,
    staging: &Staging,
    store: Uid,
    groups: &[LogGroup],
    last: &RecoveryReport,
    replay: &mut OnReplay<'_>,
) -> Result<Option<RecoveryReport>> {
    let Some((point, first)) = last.point.and_then(|point| Some((point, point.group_in(groups)?))) else {
        return Ok(None);
    };
    let (mut seqs, mut batches, mut once) = (last.seqs.clone(), last.batches, without_places(replay));
    let mut new = |batch: &LoggedBatch<'_>| {
        if seqs.last(batch.tenant).is_some_and(|known| batch.last_seq <= known) {
            return Ok(());
        }
        once(batch)?;
        seqs.add(batch.tenant, batch.first_seq, batch.last_seq);
        batches += 1;
        Ok(())
    };
    let mut scan = Scan { lane: Lane::FIRST, last: Some(last), ..Scan::new(env, store, staging, &mut new) };
    scan.accepted.extend(accepted_before(groups, last, &point));
    for (index, group) in groups.iter().enumerate() {
        match index < first {
            true => scan.passed.push(group.ltn),
            false => scan.group(index, group)?,
        }
    }
    scan.judge(groups)?;
    if scan.end.is_none_or(|end| (end.end_lpn, end.used) < point.end) {
        return Ok(None);
    }
    let report = scan.report(groups);
    Ok(Some(with_groups_before(RecoveryReport { seqs, batches, ..report }, last, point.ltn)))
}

/// Returns the accepted part of the group of the page before the point.
fn accepted_before(groups: &[LogGroup], last: &RecoveryReport, point: &ReadPoint) -> Option<Accepted> {
    let Chain { ltn, end_lpn, used } = point.before?;
    let group = groups.iter().position(|group| group.ltn == ltn)?;
    let first_lpn = if ltn == point.ltn { point.first_lpn } else { end_lpn };
    let known = last.history.groups.iter().find(|known| known.ltn == ltn);
    let seqs = known.map(|known| known.seqs.clone()).unwrap_or_default();
    Some(Accepted { group, first_lpn, end_lpn, used, seqs })
}

/// Returns the report, with the groups before `ltn` as in the report of the earlier reading.
fn with_groups_before(mut report: RecoveryReport, last: &RecoveryReport, ltn: u64) -> RecoveryReport {
    for group in report.history.groups.iter_mut().filter(|group| group.ltn < ltn) {
        if let Some(known) = last.history.groups.iter().find(|known| known.ltn == group.ltn) {
            group.clone_from(known);
        }
    }
    report
}
