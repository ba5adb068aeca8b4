//! Reading a log as far as it can be read: for repair.
//!
//! [`crate::recover()`] ends the log at the first page that is missing, and refuses a log that lost a page which was durable.
//! Here what lies behind such a page is read as well. What is cut off as torn stays cut off: a page is missed only if it
//! lies below the highest durable end that any intact page names, so a store that merely crashed is read as recovery
//! would read it.
//!
//! **Which files are the log.** With a manifest, the groups it lists, by the identities it lists. Without one, every page
//! says which group of which store it belongs to and which group that one continues (its checksum holds only under the
//! identities it names), so the log is the chain that ends in the group with the highest
//! number; a file is taken for the group whose pages came to it last. Groups before the chain are not read: they were
//! dropped because all of them is in tables, and their files wait to be used again. Groups that a recovery cut off are not
//! in the chain, and the end of a group is where its successor says that it continues it.
//!
//! **Gaps.** Batches are handed out whole or not at all. Of a gap it is told which sequences are missing: those between the
//! last batch before it and the first behind it. Nothing tells their keys.
//!
//! **Files with other names.** What a file is says its first page, as far as it is one: a group is looked for in all files, and pages of
//! the staging file count under whatever name ([`displaced`]).
//!
//! **The lane of records** is read in the same way, with two differences. Groups that are kept as storage come before the chain, with
//! whatever gaps collection has left between them: each is read as far as it was filled. And without a manifest every group counts of
//! which no later one says that a recovery passed it over (`not_passed_over`): one that was freed may be among them.
//!
//! Invariants: nothing is written. Memory is about 150 bytes for each page of the log, and the longest batch.

pub mod displaced;
mod end;

use crate::history::LogBegin;
use crate::lane::Lane;
use crate::page::{self, FragmentKind, Fragments, Owner, PageHeader, Verdict};
use crate::place::{LogPlace, Place};
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
    /// Where it is, or should be.
    pub path: PathBuf,
    /// The file; `None` if it is missing.
    pub file: Option<Arc<dyn ReadFile>>,
    /// What the manifest says of it, if there is one.
    pub listed: Option<ListedGroup>,
}

/// A group as the manifest has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedGroup {
    /// Its number.
    pub ltn: u64,
    /// Its identity; `None`: an older release listed it, and its pages are of version 1.
    pub uid: Option<Uid>,
    /// Where an earlier recovery cut it.
    pub sealed_end: Option<u64>,
    /// Bytes of its file.
    pub len: u64,
    /// The store that wrote its pages, if that is another one.
    pub store: Option<Uid>,
    /// Bytes of its pages, if it is kept as storage.
    pub retained_bytes: Option<u64>,
    /// The log begins there, in this group.
    pub begin: Option<LogBegin>,
}

/// Gets a batch: where it ends, its first sequence, its bytes.
pub type OnBatch<'a> = dyn FnMut(&LogPlace, SeqNo, &[u8]) -> Result<()> + 'a;

/// A part of the log that cannot be read.
#[derive(Clone, Debug)]
pub struct LogGap {
    /// Where it begins, and why.
    pub error: Error,
    /// The last sequence before it; 0: the log begins with the gap.
    pub after_seq: SeqNo,
    /// The first sequence behind it; `None`: it is not known what the log held there.
    pub before_seq: Option<SeqNo>,
    /// It is only known that the next group does not go on from where the one before ends, and nothing lists what was between them: in a lane
    /// of records these may be groups that were collected.
    pub between_groups: bool,
}

/// A log that was looked through.
#[derive(Debug)]
pub struct SalvagedLog {
    /// The store that wrote it; the default if there are no pages.
    pub store: Uid,
    /// The highest edit of the manifest that a page saw durable.
    pub witness_edit: u64,
    /// The oldest group goes on from one that is gone.
    pub begins_late: bool,
    /// Files that are not what their names say.
    pub displaced: Vec<Error>,
    /// Nothing tells whether the log was closed: what may have been behind its end is a gap, if anything shows that there was something.
    /// It may have been torn by a crash.
    pub end_is_open: bool,
    /// What shows it.
    behind_end: Option<Error>,
    lane: Lane,
    files: Vec<LogFile>,
    /// Of the files of groups that are kept as storage, those that have no page of them.
    silent: Vec<usize>,
    /// Of the groups, in order.
    owners: Vec<Owner>,
    staging: Staging,
    steps: Vec<Step>,
}

/// The log in order: pages, and what comes between them.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A page at `index` of a file.
    Page { file: usize, index: u64, lpn: u64, used: u16 },
    /// A page that is in staging only.
    Staged { ltn: u64, lpn: u64 },
    /// The group at this index begins: half a batch before it was cut off by a recovery.
    Group(usize),
    /// A page that was durable is missing. `between`: see [`LogGap::between_groups`].
    Gap { file: usize, index: u64, between: bool },
}

/// The log as far as it was put in order.
struct Run {
    /// Every page with a lower number was durable once.
    durable_end: u64,
    /// Behind the last page, and the bytes used of it, if the next one must say the same.
    end_lpn: u64,
    used: Option<u16>,
    steps: Vec<Step>,
}

impl Run {
    /// Looks at how a group continues what came before. False if it does not, and never had to: the log ends.
    fn enters(&mut self, group: &Group, passed: &[Group], is_last: bool) -> bool {
        if let Some(begin) = group.begin.filter(|begin| begin.lpn > begin.first_lpn) {
            // The log begins there, as if all before it had been read.
            (self.end_lpn, self.used) = (begin.lpn, Some(begin.used));
            if group.any.is_some() {
                return true;
            }
        }
        let Some(header) = &group.any else {
            // It may never have had a page: then the next one does not continue it. If there is no next one, only a
            // file that was cut tells that something was there, or who closed it.
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
        // The oldest group continues one that is gone by now.
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
    /// Any page of the group, in its file or in staging: they all say where it begins and what it continues.
    any: Option<PageHeader>,
    /// Pages from here on do not count.
    end: Option<u64>,
    /// A recovery ended it there: every page before is in its file, durable.
    is_sealed: bool,
    /// The file lacks pages at its end.
    is_cut: bool,
    /// The log begins there.
    begin: Option<LogBegin>,
}

impl Group {
    /// One of which no manifest says anything.
    fn unlisted(file: usize, owner: Owner, ltn: u64, pages: BTreeMap<u64, PageHeader>) -> Self {
        Group { file, owner, ltn, pages, any: None, end: None, is_sealed: false, is_cut: false, begin: None }
    }
}

/// Looks through a lane of the log in `files` of the store `store`; of the store that most pages belong to, if it is not known.
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
        // The pages of a group that has just begun may be in staging only.
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

/// The store that most pages of a lane belong to: those of the other may be another's, of which this one is a copy.
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

/// Shows what is at every offset of a file where a page may begin, and goes on so many bytes behind it as `visit` says. What cannot be
/// read is zeros; where the file was cut in a page, the beginning of that is shown.
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

/// The pages of the group that a file holds; `None` if it holds none and the manifest does not list it.
/// What begins like a page of the lane and is none is added to `torn`.
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
        // Pages of other groups are what is left of a former use of the file, in either lane.
        None => {
            let last = by_group.into_iter().max_by_key(|((ltn, _), pages)| (*ltn, pages.len()));
            let last = last.filter(|((ltn, _), _)| *ltn > other_lane);
            last.map(|((ltn, owner), pages)| Group::unlisted(file, owner, ltn, pages))
        }
    })
}

/// Whether pages of a store may be of a group of this one: a copy of a store has groups that another one wrote.
fn is_of(pages: Uid, listed: Option<ListedGroup>, lane: Lane, store: Uid) -> bool {
    match listed {
        Some(listed) => pages == listed.store.unwrap_or(store),
        None => pages == store || lane.retains(),
    }
}

/// Without a manifest, in the lane of records: the groups but for those that a later one does not go on from, although they came after the
/// group that it does go on from. A recovery cut them off, and gave their sequences away again.
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

/// Without a manifest: the groups from which the last one goes on, as far back as they are there.
///
/// A group of which only staging has pages is one that has just begun, unless a later page knows that all of it was
/// durable: then it had a file, which is gone because nothing in it is needed. And where nothing is left of a group that
/// was not durable, the log ends before it, and the chain begins anew there.
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

/// A group ends where the one that continues it says so.
fn end_groups(groups: &mut [Group]) {
    let links: Vec<(u64, u64)> =
        groups.iter().filter_map(|g| g.any.map(|h| (h.prev_ltn, h.prev_end))).collect();
    for group in groups {
        let end = links.iter().find(|(ltn, _)| *ltn == group.ltn).map(|(_, end)| *end);
        group.end = group.end.or(end);
    }
}

impl SalvagedLog {
    /// Puts the pages in order, and finds what is missing between them.
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
                // A file that was cut is no torn end.
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

    /// The steps of one group. False if the log ends in it.
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
            // What is before it is in tables, and perhaps nowhere else.
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
                // Of the page before perhaps only an earlier state is left: what is here is as it was, and is looked at without it.
                if used.take().is_some() {
                    continue;
                }
                // Pages that are not there are passed at once.
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

    /// Bytes used of a page in staging; `None` if nothing is in it.
    fn staged_end(&self, group: &Group, lpn: u64) -> Option<u16> {
        let page = self.staging.get(group.owner, group.ltn, lpn)?;
        let end = page::extent(page.kept(), &page.header).ok()?;
        (end > group.owner.header_len()).then_some(end as u16)
    }

    /// The files of groups that are kept as storage in which no page of them is left, or that are missing.
    pub fn silent(&self) -> impl Iterator<Item = &Path> + '_ {
        self.silent.iter().filter_map(|file| self.files.get(*file)).map(|log| &*log.path)
    }

    /// How many files there are.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// How many numbers a page has that is in staging only, once it is closed.
    fn lane_numbers(&self, group: &Group, lpn: u64, used: u16) -> u64 {
        let page = self.staging.get(group.owner, group.ltn, lpn);
        page.map_or(1, |page| page.header.shape().numbers(used.into()))
    }

    /// True if there is not a page of it.
    pub fn is_empty(&self) -> bool {
        !self.steps.iter().any(|step| matches!(step, Step::Page { .. } | Step::Staged { .. }))
    }

    /// Hands out every whole batch of a tenant in order: where it ends, its first sequence, its bytes. Can be called again.
    /// Returns the gaps, in the tenant's sequences.
    ///
    /// # Errors
    /// Those of `replay`.
    pub fn replay(&self, tenant: TenantId, replay: &mut OnBatch<'_>) -> Result<Vec<LogGap>> {
        let mut batches = self.batches(tenant);
        while batches.step(replay)? {}
        if let Some(error) = self.behind_end.as_ref().filter(|_| self.end_is_open) {
            batches.gap(error.clone(), false);
        }
        let mut gaps = batches.gaps;
        // Pages without batches leave no trace in the sequences.
        gaps.retain(|gap| gap.before_seq.is_none_or(|before| before > gap.after_seq + 1));
        Ok(gaps)
    }

    /// The same page by page, for who reads something else in between.
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
        let why = "log pages are damaged or missing that were durable";
        Error::corruption(why).at_file(path).at_offset(index * self.lane.unit() as u64)
    }
}

/// The batches of a tenant, as they are read: see [`SalvagedLog::batches`].
#[derive(Debug)]
pub struct Batches<'l> {
    log: &'l SalvagedLog,
    steps: std::slice::Iter<'l, Step>,
    /// Of the group that is read.
    owner: Owner,
    buf: Vec<u8>,
    tenant: TenantId,
    assembly: Assembly,
    last_seq: SeqNo,
    gaps: Vec<LogGap>,
}

impl Batches<'_> {
    /// Hands out the batches that end in the next page. False: there are no more pages.
    ///
    /// # Errors
    /// Those of `replay`.
    pub fn step(&mut self, replay: &mut OnBatch<'_>) -> Result<bool> {
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
                let place = LogPlace { path: path.clone(), offset: index * log.lane.unit() as u64 };
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
                let place = LogPlace { path: log.lane.staging_name().into(), offset: 0 };
                self.page(Fragments::new(page.kept(), self.owner, lpn), &place, replay)?;
            }
        }
        Ok(true)
    }

    fn gap(&mut self, error: Error, between_groups: bool) {
        self.assembly.forget();
        // Gaps without a batch between them are one.
        match self.gaps.last_mut().filter(|gap| gap.before_seq.is_none()) {
            Some(last) if last.between_groups => (last.error, last.between_groups) = (error, between_groups),
            Some(_) => {}
            None => {
                let after_seq = self.last_seq;
                self.gaps.push(LogGap { error, after_seq, before_seq: None, between_groups });
            }
        }
    }

    fn page(&mut self, fragments: Fragments<'_>, place: &LogPlace, replay: &mut OnBatch<'_>) -> Result<()> {
        for fragment in fragments {
            let begins = matches!(fragment.kind, FragmentKind::Full | FragmentKind::First);
            if !begins && !self.assembly.has_begun() {
                // The rest of a batch whose beginning is in a gap.
                continue;
            }
            let here = |e: Error| e.at_file(&place.path).at_offset(place.offset);
            let whole = match self.assembly.add(&fragment, Place::default()) {
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
                let why = Error::corruption("a batch in the log has sequences of one before it");
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
