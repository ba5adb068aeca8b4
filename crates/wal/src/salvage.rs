//! Salvage for repair: reads as much of a damaged log as possible.
//!
//! [`crate::recover()`] ends the log at the first missing page, and refuses a log that lost a
//! durable page. Salvage reads the pages behind such a page as well. A torn tail stays cut off: a
//! page is missed only if it is below the highest durable end that any intact page names. So a
//! store that merely crashed is read as recovery would read it.
//!
//! **Files of the log.** With a manifest these are the groups it lists, by their identities.
//! Without one, every page names its group, its store, and the group before its own; its checksum
//! holds only under these identities. So the log is the chain that ends in the group with the
//! highest number. A file belongs to the group that wrote it last. Groups before the chain are not
//! read: they were dropped because all their batches are in tables, and their files wait for reuse.
//! Groups that a recovery cut off are not in the chain. A group ends where its successor says that
//! it continues it.
//!
//! **Gaps.** Batches are returned whole or not at all. A gap is described by its missing sequences:
//! those between the last batch before it and the first behind it. Their keys are unknown.
//!
//! **Files with other names.** The first page of a file identifies it, if it is intact: a group is
//! looked for in all files, and pages of the staging file count under any name ([`displaced`]).
//!
//! **The lane of records** is read in the same way, with two differences. Groups that are kept as
//! storage come before the chain, with the gaps that collection has left between them; each is read
//! up to its filled length. Without a manifest, every group counts unless a later one shows that a
//! recovery passed it over (`not_passed_over`), so a freed group may be among them.
//!
//! Invariants: nothing is written. Memory is about 150 bytes for each page of the log, and the
//! longest batch.

pub mod displaced;
mod end;

use crate::history::LogBegin;
use crate::lane::Lane;
use crate::page::{self, FragmentKind, Fragments, Owner, PageHeader, Verdict};
use crate::place::{LogAddress, LogFilePosition};
use crate::recover::Assembly;
use crate::staging::Staging;
use crate::tenant::TenantId;
use base::{Error, Result, SeqNo, Uid};
use end::TornPage;
use io::{Env, PAGE, ReadFile};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a file read at a time.
const READ_LEN: usize = 512 << 10;

/// A file that may hold a part of the log.
#[derive(Clone, Debug)]
pub struct LogFile {
    /// Actual or expected path.
    pub path: PathBuf,
    /// The file; `None` if it is missing.
    pub file: Option<Arc<dyn ReadFile>>,
    /// Entry of the manifest, if there is one.
    pub listed: Option<ListedGroup>,
}

/// Entry of a group in the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedGroup {
    /// Its number.
    pub ltn: u64,
    /// Its identity; `None`: an older release listed it, and its pages are of version 1.
    pub uid: Option<Uid>,
    /// End set by an earlier recovery.
    pub sealed_end: Option<u64>,
    /// Bytes of its file.
    pub len: u64,
    /// The store that wrote its pages, if that is another one.
    pub store: Option<Uid>,
    /// Bytes of its pages, if it is kept as storage.
    pub retained_bytes: Option<u64>,
    /// Beginning of the log in this group.
    pub begin: Option<LogBegin>,
}

/// Callback for a batch: its end, its first sequence, its bytes.
pub type OnSalvagedBatch<'a> = dyn FnMut(&LogFilePosition, SeqNo, &[u8]) -> Result<()> + 'a;

/// An unreadable part of the log.
#[derive(Clone, Debug)]
pub struct LogGap {
    /// Place and cause of the gap.
    pub error: Error,
    /// The last sequence before it; 0: the log begins with the gap.
    pub after_seq: SeqNo,
    /// The first sequence behind it; `None`: the lost contents are unknown.
    pub before_seq: Option<SeqNo>,
    /// True if the only evidence is that the next group does not continue the one before. Nothing
    /// lists the groups between them, which in a lane of records may have been collected.
    pub between_groups: bool,
}

/// A salvaged log.
#[derive(Debug)]
pub struct SalvagedLog {
    /// The store that wrote it; the default if there are no pages.
    pub store: Uid,
    /// The highest edit of the manifest that a page recorded as durable.
    pub witness_edit: u64,
    /// The oldest group continues one that is gone.
    pub begins_late: bool,
    /// Files under wrong names.
    pub displaced: Vec<Error>,
    /// It is unknown whether the log was closed. Then a trace behind its end counts as a gap,
    /// though a crash may have torn it.
    pub end_is_open: bool,
    /// The trace behind the end.
    behind_end: Option<Error>,
    lane: Lane,
    files: Vec<LogFile>,
    /// The files of groups kept as storage that have none of their pages.
    silent: Vec<usize>,
    /// Owners of the groups, in order.
    owners: Vec<Owner>,
    staging: Staging,
    steps: Vec<Step>,
}

/// The log in order: pages, and the events between them.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A page at `index` of a file.
    Page { file: usize, index: u64, lpn: u64, used: u16 },
    /// A page that is only in staging.
    Staged { ltn: u64, lpn: u64 },
    /// The group at this index begins: half a batch before it was cut off by a recovery.
    Group(usize),
    /// A page that was durable is missing. `between`: see [`LogGap::between_groups`].
    Gap { file: usize, index: u64, between: bool },
}

/// The part of the log that is already in order.
struct Run {
    /// Every page with a lower number was once durable.
    durable_end: u64,
    /// The number after the last page, and its used bytes, if the next page must name them.
    end_lpn: u64,
    used: Option<u16>,
    steps: Vec<Step>,
}

impl Run {
    /// Checks how a group continues the earlier ones. Returns false if it does not, and never had
    /// to: the log ends.
    fn enters(&mut self, group: &Group, passed: &[Group], is_last: bool) -> bool {
        if let Some(begin) = group.begin.filter(|begin| begin.lpn > begin.first_lpn) {
            // The log begins in this group, as if all earlier pages had been read.
            (self.end_lpn, self.used) = (begin.lpn, Some(begin.used));
            if group.any.is_some() {
                return true;
            }
        }
        let Some(header) = &group.any else {
            // The group may never have had a page; then the next group does not continue it.
            // Without a next group, only a truncated file or a seal shows that it had pages.
            let had_pages = group.is_sealed && group.end > Some(self.end_lpn);
            if is_last && (group.is_cut || had_pages) {
                self.steps.push(Step::Gap { file: group.file, index: 0, between: false });
            }
            return true;
        };
        if header.prev_end == self.end_lpn {
            return true;
        }
        self.used = None;
        // The oldest group continues a released one.
        let Some(before) = passed.iter().find(|group| group.ltn == header.prev_ltn) else { return true };
        let is_missing = before.any.is_none() && self.end_lpn < self.durable_end;
        if is_missing {
            self.steps.push(Step::Gap { file: before.file, index: 0, between: false });
        }
        self.end_lpn < self.durable_end
    }
}

/// A group with its pages.
#[derive(Debug)]
struct Group {
    file: usize,
    owner: Owner,
    ltn: u64,
    pages: BTreeMap<u64, PageHeader>,
    /// Any page of the group, in its file or in staging: all of them name its beginning and its
    /// predecessor.
    any: Option<PageHeader>,
    /// Pages from here on do not count.
    end: Option<u64>,
    /// A recovery ended the group here: every earlier page is durable in its file.
    is_sealed: bool,
    /// The file lacks pages at its end.
    is_cut: bool,
    /// Beginning of the log in this group.
    begin: Option<LogBegin>,
}

impl Group {
    /// Returns a group that no manifest lists.
    fn unlisted(file: usize, owner: Owner, ltn: u64, pages: BTreeMap<u64, PageHeader>) -> Self {
        Group { file, owner, ltn, pages, any: None, end: None, is_sealed: false, is_cut: false, begin: None }
    }
}

/// Reads a lane of the log in `files` of the store `store`; if unknown, of the store that most
/// pages belong to.
///
/// # Errors
/// `Unsupported` if a newer release wrote it; those of reading the staging file.
pub fn salvage(
    env: &Env,
    dir: &Path,
    lane: Lane,
    store: Option<Uid>,
    files: Vec<LogFile>,
) -> Result<SalvagedLog> {
    let staging_path = io::fs::join(dir, lane.staging_name());
    let store = match store {
        Some(store) => store,
        None => most_common_store(env, lane, &staging_path, &files),
    };
    let staging = displaced::staging(env, &staging_path, (lane, store), &files)?;
    let (mut groups, mut torn) = (Vec::new(), Vec::new());
    for (file, log) in files.iter().enumerate() {
        groups.extend(read_group(file, log, (lane, store), &mut torn)?);
    }
    let has_manifest = files.iter().any(|log| log.listed.is_some());
    if !has_manifest {
        // The pages of a group that has just begun may be only in staging.
        groups.extend(staging.groups().map(|(owner, ltn)| Group::unlisted(0, owner, ltn, BTreeMap::new())));
    }
    groups.sort_by_key(|group| (group.ltn, group.pages.is_empty()));
    groups.dedup_by_key(|group| group.ltn);
    for group in &mut groups {
        if !group.is_sealed {
            staging.must_know(group.owner, group.ltn)?;
        }
        let staged = staging.of_group(group.owner, group.ltn).next().map(|page| page.header);
        group.any = group.pages.values().next().copied().or(staged);
        let filled = files.get(group.file).and_then(|log| log.listed?.retained_bytes);
        if let Some((filled, any)) = filled.zip(group.any) {
            group.end = Some(any.first_lpn.saturating_add(filled / lane.unit() as u64));
            group.is_sealed = true;
        }
    }
    if !has_manifest {
        groups = if lane.retains() { not_passed_over(groups) } else { chain(groups, &staging) };
    }
    end_groups(&mut groups);
    let is_silent = |group: &&Group| {
        let listed = files.get(group.file).and_then(|log| log.listed);
        group.any.is_none() && listed.is_some_and(|listed| listed.retained_bytes.is_some_and(|n| n > 0))
    };
    let silent = groups.iter().filter(is_silent).map(|group| group.file).collect();
    let owners = groups.iter().map(|group| group.owner).collect();
    let first = groups.iter().find_map(|group| group.any);
    let begins_late = first.is_some_and(|header| header.prev_ltn > 0);
    let mut log = SalvagedLog {
        store,
        witness_edit: 0,
        begins_late,
        displaced: Vec::new(),
        end_is_open: false,
        behind_end: None,
        lane,
        files,
        silent,
        owners,
        staging,
        steps: Vec::new(),
    };
    log.arrange(&groups);
    log.behind_end = log.find_behind_end(&groups, &torn);
    Ok(log)
}

/// Returns the store that most pages of a lane belong to: a copy of a store also has pages of the
/// original.
fn most_common_store(env: &Env, lane: Lane, staging: &Path, files: &[LogFile]) -> Uid {
    let mut votes: BTreeMap<Uid, u64> = BTreeMap::new();
    let staging = env.fs.open(staging, io::Access::Buffered).ok();
    for file in files.iter().filter_map(|log| log.file.as_ref()).chain(&staging) {
        each_page(&**file, PAGE, &mut |_, bytes| {
            let header = page::peek(bytes).filter(|header| header.lane() == lane);
            let Some(header) = header else { return Ok(PAGE) };
            let store = header.owner.store;
            let verdicts =
                [page::read_closed(bytes, header.owner, header.ltn), page::read_open(bytes, store)];
            if verdicts.iter().any(|verdict| matches!(verdict, Verdict::Valid(_))) {
                *votes.entry(store).or_default() += 1;
            }
            Ok(PAGE)
        })
        .unwrap_or_default();
    }
    votes.into_iter().max_by_key(|(_, n)| *n).map(|(store, _)| store).unwrap_or_default()
}

/// Visits every offset of a file where a page may begin; `visit` returns the distance to the next
/// one. An unreadable part is passed as zeros, and the last page of a truncated file as far as it
/// exists.
fn each_page(
    file: &dyn ReadFile,
    unit: usize,
    visit: &mut dyn FnMut(u64, &[u8]) -> Result<usize>,
) -> Result<()> {
    let len = file.len()?;
    let mut buf = vec![0; READ_LEN];
    let (mut start, mut end, mut offset) = (0, 0, 0);
    while offset < len {
        if end < len.min(offset + PAGE as u64) {
            start = offset;
            end = len.min(start + READ_LEN as u64);
            let bytes = buf.get_mut(..(end - start) as usize).unwrap_or_default();
            if file.read_at(bytes, start).is_err() {
                for (at, page) in (start..).step_by(PAGE).zip(bytes.chunks_mut(PAGE)) {
                    if file.read_at(page, at).is_err() {
                        page.fill(0);
                    }
                }
            }
        }
        let rest = buf.get((offset - start) as usize..(end - start) as usize).unwrap_or_default();
        offset += visit(offset, rest.get(..PAGE).unwrap_or(rest))?.max(unit) as u64;
    }
    Ok(())
}

/// Returns the group of a file with its pages; `None` if it has none and the manifest does not list
/// it. A page header of the lane without an intact page is added to `torn`.
fn read_group(
    file: usize,
    log: &LogFile,
    (lane, store): (Lane, Uid),
    torn: &mut Vec<TornPage>,
) -> Result<Option<Group>> {
    let mut by_group: BTreeMap<(u64, Owner), BTreeMap<u64, PageHeader>> = BTreeMap::new();
    let (mut len, mut other_lane) = (0, 0);
    if let Some(open) = &log.file {
        len = open.len()?;
        let unit = lane.unit();
        each_page(&**open, unit, &mut |offset, bytes| {
            let counts = |header: &PageHeader| is_of(header.owner.store, log.listed, lane, store);
            let Some(peeked) = page::peek(bytes).filter(counts) else { return Ok(unit) };
            match page::read_closed(bytes, peeked.owner, peeked.ltn) {
                Verdict::Valid(header) if header.lane() == lane && header.offset() == Some(offset) => {
                    by_group.entry((header.ltn, header.owner)).or_default().insert(header.lpn, header);
                    Ok(header.page_len())
                }
                Verdict::Valid(header) if header.lane() != lane => {
                    other_lane = header.ltn.max(other_lane);
                    Ok(unit)
                }
                Verdict::Newer(unknown) => {
                    let error =
                        unknown.error("repair the store with the release that wrote it, or a newer one");
                    Err(error.at_file(&log.path).at_offset(offset))
                }
                Verdict::Invalid if peeked.lane() == lane && peeked.offset() == Some(offset) => {
                    torn.push(TornPage { file, offset, ltn: peeked.ltn, lpn: peeked.lpn });
                    Ok(unit)
                }
                Verdict::Valid(_) | Verdict::Invalid => Ok(unit),
            }
        })?;
    }
    Ok(match log.listed {
        Some(ListedGroup { ltn, uid, sealed_end, len: listed, store: of, retained_bytes: _, begin }) => {
            let owner = Owner { store: of.unwrap_or(store), group: uid };
            let pages = by_group.remove(&(ltn, owner)).unwrap_or_default();
            let (is_sealed, is_cut) = (sealed_end.is_some(), len < listed);
            let group = Group::unlisted(file, owner, ltn, pages);
            Some(Group { end: sealed_end, is_sealed, is_cut, begin, ..group })
        }
        // Pages of other groups are remains of a former use of the file, in either lane.
        None => {
            let last = by_group.into_iter().max_by_key(|((ltn, _), pages)| (*ltn, pages.len()));
            let last = last.filter(|((ltn, _), _)| *ltn > other_lane);
            last.map(|((ltn, owner), pages)| Group::unlisted(file, owner, ltn, pages))
        }
    })
}

/// Returns whether pages of a store may be of a group of this one: a copy of a store has groups
/// that another one wrote.
fn is_of(pages: Uid, listed: Option<ListedGroup>, lane: Lane, store: Uid) -> bool {
    match listed {
        Some(listed) => pages == listed.store.unwrap_or(store),
        None => pages == store || lane.retains(),
    }
}

/// Without a manifest, in the lane of records: drops the groups that a later one skips, since it
/// continues an earlier group. A recovery cut them off, and reassigned their sequences.
fn not_passed_over(groups: Vec<Group>) -> Vec<Group> {
    let mut bound = u64::MAX;
    let mut counts = |group: &Group| {
        let is_passed_over = group.ltn > bound;
        if !is_passed_over {
            let before = group.any.filter(|header| header.prev_ltn > 0);
            bound = before.map_or(group.ltn, |header| header.prev_ltn);
        }
        !is_passed_over
    };
    let mut left: Vec<Group> = groups.into_iter().rev().filter(|group| counts(group)).collect();
    left.reverse();
    left
}

/// Without a manifest: returns the groups that the last one continues, directly or not, as far back
/// as they exist.
///
/// A group with pages only in staging has just begun, unless a later page records that all of it
/// was durable. Then it had a file, which is gone because nothing in it is needed. If no page is
/// left of a group that was not durable, the log ends before it, and the chain begins again there.
fn chain(groups: Vec<Group>, staging: &Staging) -> Vec<Group> {
    let mut by_ltn: BTreeMap<u64, Group> = groups.into_iter().map(|group| (group.ltn, group)).collect();
    let in_files = by_ltn.values().flat_map(|group| group.pages.values()).map(|header| header.durable_end);
    let in_staging = by_ltn.values().flat_map(|group| staging.of_group(group.owner, group.ltn));
    let in_staging = in_staging.map(|page| page.header.durable_end);
    let durable_end = in_files.chain(in_staging).max().unwrap_or(0);
    let mut chain: Vec<Group> = Vec::new();
    let mut needed = u64::MAX;
    while needed > durable_end && !by_ltn.is_empty() {
        chain.clear();
        let mut next = by_ltn.keys().next_back().copied();
        while let Some(group) = next.and_then(|ltn| by_ltn.remove(&ltn)) {
            if group.pages.is_empty() && needed <= durable_end {
                break;
            }
            next = group.any.map(|header| header.prev_ltn);
            needed = group.any.map_or(0, |header| header.prev_end);
            chain.push(group);
        }
    }
    chain.reverse();
    chain
}

/// Ends each group where the group that continues it says so.
fn end_groups(groups: &mut [Group]) {
    let links: Vec<(u64, u64)> =
        groups.iter().filter_map(|g| g.any.map(|h| (h.prev_ltn, h.prev_end))).collect();
    for group in groups {
        let end = links.iter().find(|(ltn, _)| *ltn == group.ltn).map(|(_, end)| *end);
        group.end = group.end.or(end);
    }
}

impl SalvagedLog {
    /// Puts the pages in order, and finds the missing ones.
    fn arrange(&mut self, groups: &[Group]) {
        let counts = |group: &Group, lpn: u64| group.end.is_none_or(|end| lpn < end);
        let mut durable_end = 0;
        for group in groups {
            let staged = self.staging.of_group(group.owner, group.ltn).map(|page| &page.header);
            let headers = group.pages.values().chain(staged);
            for header in headers.filter(|header| counts(group, header.lpn)) {
                durable_end = durable_end.max(header.durable_end);
                self.witness_edit = self.witness_edit.max(header.witness_edit);
            }
            durable_end = durable_end.max(group.end.filter(|_| group.is_sealed).unwrap_or(0));
        }
        let mut run = Run { durable_end, end_lpn: 0, used: None, steps: Vec::new() };
        for (i, group) in groups.iter().enumerate() {
            let (passed, later) = groups.split_at(i);
            let is_last = later.iter().skip(1).all(|later| later.any.is_none());
            if !run.enters(group, passed, is_last) || !self.group(i, group, is_last, &mut run) {
                // The end of a truncated file is not a torn end.
                if passed.iter().chain([group]).any(|group| group.is_cut) {
                    let first_lpn = group.any.map_or(run.end_lpn, |header| header.first_lpn);
                    let index = run.end_lpn.saturating_sub(first_lpn);
                    run.steps.push(Step::Gap { file: group.file, index, between: false });
                }
                break;
            }
        }
        self.steps = run.steps;
    }

    /// Adds the steps of one group. Returns false if the log ends in the group.
    fn group(&self, i: usize, group: &Group, is_last: bool, run: &mut Run) -> bool {
        let Some(first_lpn) = group.any.map(|header| header.first_lpn) else { return true };
        let (durable_end, mut used) = (run.durable_end, run.used);
        let Run { end_lpn, steps, .. } = run;
        steps.push(Step::Group(i));
        let staged_last = self.staging.of_group(group.owner, group.ltn).last().map(|page| page.header.lpn);
        let last_found = group.pages.keys().next_back().copied().max(staged_last).unwrap_or(first_lpn);
        let end = group.end.unwrap_or_else(|| last_found.saturating_add(1).max(durable_end.max(first_lpn)));
        let is_listed = self.files.get(group.file).is_some_and(|log| log.listed.is_some());
        let ends_anywhere = self.lane.retains() && !is_listed && !is_last && group.end.is_none();
        let gap = |lpn: u64| {
            let between = ends_anywhere && lpn > last_found;
            Step::Gap { file: group.file, index: lpn - first_lpn, between }
        };
        let (mut in_gap, mut lpn) = (false, first_lpn);
        if let Some(begin) = group.begin.filter(|begin| begin.lpn > first_lpn) {
            // The batches before it are in tables, and their pages may not exist.
            (lpn, used) = (begin.lpn, Some(begin.used));
        }
        while lpn < end {
            let index = lpn - first_lpn;
            let found = group.pages.get(&lpn);
            let found = found.filter(|header| used.is_none_or(|used| header.prev_used == used));
            let staged = || {
                let page = self.staging.get(group.owner, group.ltn, lpn).filter(|_| !group.is_sealed)?;
                let end = self.staged_end(group, lpn)?;
                used.is_none_or(|used| page.header.prev_used == used).then_some(end)
            };
            if let Some(header) = found {
                steps.push(Step::Page { file: group.file, index, lpn, used: header.used });
                (used, in_gap) = (Some(header.used), false);
                lpn = header.end_lpn();
            } else if let Some(n) = staged() {
                steps.push(Step::Staged { ltn: group.ltn, lpn });
                (used, in_gap) = (Some(n), false);
                lpn += self.lane_numbers(group, lpn, n);
            } else if lpn >= durable_end {
                return false;
            } else {
                if !in_gap {
                    steps.push(gap(lpn));
                }
                in_gap = true;
                // The previous page may be left only in an earlier state; this page still counts,
                // so it is checked again without it.
                if used.take().is_some() {
                    continue;
                }
                // Skips to the next existing page.
                let next = group.pages.range(lpn + 1..).next().map_or(end, |(&next, _)| next);
                let staged = self.staging.of_group(group.owner, group.ltn).map(|page| page.header.lpn);
                let next_staged = staged.filter(|&staged| staged > lpn).min().unwrap_or(end);
                lpn = next.min(next_staged).min(durable_end.max(lpn + 1)).min(end);
                continue;
            }
            *end_lpn = lpn;
        }
        if group.is_cut && is_last && group.end.is_none() {
            steps.push(gap(end));
        }
        run.used = used;
        true
    }

    /// Returns the used bytes of a page in staging; `None` if it is missing or empty.
    fn staged_end(&self, group: &Group, lpn: u64) -> Option<u16> {
        let page = self.staging.get(group.owner, group.ltn, lpn)?;
        let end = page::extent(page.kept(), &page.header).ok()?;
        (end > group.owner.header_len()).then_some(end as u16)
    }

    /// Returns the files of groups kept as storage that are missing or have none of their pages
    /// left.
    pub fn silent(&self) -> impl Iterator<Item = &Path> + '_ {
        self.silent.iter().filter_map(|file| self.files.get(*file)).map(|log| &*log.path)
    }

    /// Returns the number of files.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Returns how many numbers a page that is only in staging takes when it is closed.
    fn lane_numbers(&self, group: &Group, lpn: u64, used: u16) -> u64 {
        let page = self.staging.get(group.owner, group.ltn, lpn);
        page.map_or(1, |page| page.header.shape().numbers(used.into()))
    }

    /// Returns true if the log has no page.
    pub fn is_empty(&self) -> bool {
        !self.steps.iter().any(|step| matches!(step, Step::Page { .. } | Step::Staged { .. }))
    }

    /// Passes on every whole batch of a tenant in order: its end, its first sequence, its bytes.
    /// Can be repeated. Returns the gaps, in the tenant's sequences.
    ///
    /// # Errors
    /// Those of `replay`.
    pub fn replay(&self, tenant: TenantId, replay: &mut OnSalvagedBatch<'_>) -> Result<Vec<LogGap>> {
        let mut batches = self.batches(tenant);
        while batches.step(replay)? {}
        if let Some(error) = self.behind_end.as_ref().filter(|_| self.end_is_open) {
            batches.gap(error.clone(), false);
        }
        let mut gaps = batches.gaps;
        // Lost pages without batches leave no gap in the sequences.
        gaps.retain(|gap| gap.before_seq.is_none_or(|before| before > gap.after_seq + 1));
        Ok(gaps)
    }

    /// As [`SalvagedLog::replay`], page by page, for a caller that interleaves it with other reads.
    pub fn batches(&self, tenant: TenantId) -> Batches<'_> {
        Batches {
            log: self,
            steps: self.steps.iter(),
            owner: Owner { store: self.store, group: None },
            buf: vec![0; PAGE],
            tenant,
            assembly: Assembly::default(),
            last_seq: 0,
            gaps: Vec::new(),
        }
    }

    fn missing(&self, file: usize, index: u64) -> Error {
        let path = self.files.get(file).map(|log| log.path.clone()).unwrap_or_default();
        let why = "durable log pages from this offset on are damaged or missing";
        Error::corruption(why).at_file(path).at_offset(index * self.lane.unit() as u64)
    }
}

/// Iterator over the batches of a tenant: see [`SalvagedLog::batches`].
#[derive(Debug)]
pub struct Batches<'l> {
    log: &'l SalvagedLog,
    steps: std::slice::Iter<'l, Step>,
    /// Owner of the present group.
    owner: Owner,
    buf: Vec<u8>,
    tenant: TenantId,
    assembly: Assembly,
    last_seq: SeqNo,
    gaps: Vec<LogGap>,
}

impl Batches<'_> {
    /// Passes on the batches that end in the next page. Returns false if there are no more pages.
    ///
    /// # Errors
    /// Those of `replay`.
    pub fn step(&mut self, replay: &mut OnSalvagedBatch<'_>) -> Result<bool> {
        let log = self.log;
        let Some(step) = self.steps.next() else { return Ok(false) };
        match *step {
            Step::Group(i) => {
                self.owner = log.owners.get(i).copied().unwrap_or(self.owner);
                self.assembly.forget();
            }
            Step::Gap { file, index, between } => self.gap(log.missing(file, index), between),
            Step::Page { file, index, lpn, used } => {
                let Some(LogFile { file: Some(open), path, .. }) = log.files.get(file) else {
                    return Ok(true);
                };
                let place = LogFilePosition { path: path.clone(), offset: index * log.lane.unit() as u64 };
                let mut buf = std::mem::take(&mut self.buf);
                let bytes = buf.get_mut(..usize::from(used)).unwrap_or_default();
                let read = open.read_at(bytes, place.offset);
                let done = match read {
                    Ok(()) => self.page(Fragments::new(bytes, self.owner, lpn), &place, replay),
                    Err(e) => {
                        self.gap(e.at_file(path).at_offset(place.offset), false);
                        Ok(())
                    }
                };
                self.buf = buf;
                done?;
            }
            Step::Staged { ltn, lpn } => {
                let Some(page) = log.staging.get(self.owner, ltn, lpn) else { return Ok(true) };
                let place = LogFilePosition { path: log.lane.staging_name().into(), offset: 0 };
                self.page(Fragments::new(page.kept(), self.owner, lpn), &place, replay)?;
            }
        }
        Ok(true)
    }

    fn gap(&mut self, error: Error, between_groups: bool) {
        self.assembly.forget();
        // Gaps without a batch between them are merged.
        match self.gaps.last_mut().filter(|gap| gap.before_seq.is_none()) {
            Some(last) if last.between_groups => (last.error, last.between_groups) = (error, between_groups),
            Some(_) => {}
            None => {
                let after_seq = self.last_seq;
                self.gaps.push(LogGap { error, after_seq, before_seq: None, between_groups });
            }
        }
    }

    fn page(
        &mut self,
        fragments: Fragments<'_>,
        place: &LogFilePosition,
        replay: &mut OnSalvagedBatch<'_>,
    ) -> Result<()> {
        for fragment in fragments {
            let begins = matches!(fragment.kind, FragmentKind::Full | FragmentKind::First);
            if !begins && !self.assembly.has_begun() {
                // The rest of a batch whose beginning is in a gap.
                continue;
            }
            let here = |e: Error| e.at_file(&place.path).at_offset(place.offset);
            let whole = match self.assembly.add(&fragment, LogAddress::default()) {
                Ok(Some(whole)) => whole,
                Ok(None) => continue,
                Err(e) => {
                    self.gap(here(e), false);
                    continue;
                }
            };
            let batch = whole.batch(&fragment);
            let first_seq = batch.first_seq;
            if batch.tenant != self.tenant {
                continue;
            }
            if first_seq <= self.last_seq {
                let why = Error::corruption(format!(
                    "a batch in the log begins with sequence number {first_seq}, but an earlier batch ends with {}",
                    self.last_seq
                ));
                self.gap(here(why), false);
                continue;
            }
            if let Some(gap) = self.gaps.last_mut() {
                gap.before_seq.get_or_insert(first_seq);
            }
            replay(place, first_seq, batch.bytes).map_err(here)?;
            self.last_seq = batch.last_seq;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
