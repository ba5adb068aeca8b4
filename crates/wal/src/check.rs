//! Reading a log again of which it is known how far it goes: for verification and scrubbing, also while it is written.
//!
//! What recovery would read is the pages of the groups that were not released, and behind them those that are in the
//! staging file only. Pages in a group file are final: they were written once, in their closed form, and every one below
//! the end that [`crate::wal::Content::groups`] tells must be intact, and continue the one before it. Of a staged page it must be
//! there what was staged of it. Pages that are in memory only are nobody's to check.
//!
//! A group that is released meanwhile may be written by its next owner: so an error counts only if the caller still finds
//! the group among the living afterwards.
//!
//! **Two looks at a moving log.** Pages move from the staging file to their group file, and always are in one of the two. The last step
//! ([`LogCheck::staged`]) therefore notes the staged pages, reads the staging file, and notes the end of the group files after that. Pages
//! below that end are read from the group files, which the scan goes on with. Pages behind it were staged before and after the staging
//! file was read: these must be there.
//!
//! Batches are put together on the way and handed out, so that whoever keeps things beside the log can check what the log
//! refers to. A batch of which a page is bad is passed over.
//!
//! Invariants: nothing is written. Memory is a run of pages, the longest batch, and a copy of the staging file.

use crate::history::PriorGroup;
use crate::lane::Lane;
use crate::page::{self, FragmentKind, Fragments, Owner, PageHeader, Verdict};
use crate::place::Place;
use crate::recover::Assembly;
use crate::recover::LoggedBatch;
use crate::staging::Staging;
use crate::wal::Wal;
use crate::walk::{READ_LEN, Walk};
use base::{Error, Result, Uid};
use io::{Env, InPlaceFile, PAGE};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Bytes in which the pages of a step begin: all of them are in one window.
const RUN_LEN: u64 = (READ_LEN - 2 * PAGE) as u64;

/// How often the staging file is looked at that has bytes of batches which were taken back meanwhile.
const LOOKS_MAX: u32 = 5;

/// A group with as much as must be in its file.
#[derive(Clone, Debug)]
pub struct GroupToCheck {
    /// Its number.
    pub ltn: u64,
    /// Its identity; `None`: its pages are of version 1.
    pub uid: Option<Uid>,
    /// Its file.
    pub file: Arc<dyn InPlaceFile>,
    /// Where in the file the pages begin that count, bytes: see [`crate::history::PriorGroup::begins`].
    pub begins: u64,
    /// Where they end.
    pub filled: u64,
}

/// What was found so far.
#[derive(Debug, Default)]
pub struct LogFindings {
    /// Pages of group files that were read.
    pub pages: u64,
    /// Pages that were found in the staging file.
    pub staged_pages: u64,
    /// Whole batches.
    pub batches: u64,
    /// What is wrong, each with the group in which it was met.
    pub errors: Vec<(u64, Error)>,
}

/// Where the log is in files, at one moment.
#[derive(Debug)]
pub(crate) struct LogEnd {
    /// The groups that were not released, each with as much as is in its file.
    pub groups: Vec<PriorGroup>,
    /// The pages behind these that the staging file holds.
    pub staged: Vec<StagedEnd>,
    /// How often batches were taken back: their bytes in the staging file become others.
    pub taken_back: u64,
}

/// A page that was staged: its group, its number, and the bytes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StagedEnd {
    pub group: Uid,
    pub ltn: u64,
    pub lpn: u64,
    pub used: usize,
}

/// Gets a batch.
pub type OnChecked<'a> = dyn FnMut(&LoggedBatch<'_>) + 'a;

/// A check of a log under way. See the module.
pub struct LogCheck {
    store: Uid,
    lane: Lane,
    groups: Vec<GroupToCheck>,
    /// Where a page that is not in its file may be, in a store that only reads.
    staging: Staging,
    /// The group, and the offset of the page to come in its file.
    at: (usize, u64),
    /// No page was intact since the last that was found damaged or missing, so that it is not known where one should be.
    is_lost: bool,
    /// Of the page before: the number after it, and the bytes used. `None`: it is not known.
    before: Option<(u64, u16)>,
    assembly: Assembly,
}

impl LogCheck {
    /// A check of these groups of the first lane, in the order of their numbers.
    pub fn new(store: Uid, groups: Vec<GroupToCheck>) -> LogCheck {
        LogCheck::of_lane(store, Lane::FIRST, groups)
    }

    /// A check of these groups of a lane, in the order of their numbers.
    pub fn of_lane(store: Uid, lane: Lane, groups: Vec<GroupToCheck>) -> LogCheck {
        LogCheck {
            store,
            lane,
            groups,
            staging: Staging::default(),
            at: (0, 0),
            is_lost: false,
            before: None,
            assembly: Assembly::default(),
        }
    }

    /// Pages may also be in the staging file in `dir`: in a store that was opened for reading only.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn or_staged(mut self, env: &Env, dir: &Path) -> Result<LogCheck> {
        self.staging = Staging::read(env, &io::fs::join(dir, self.lane.staging_name()), self.store)?;
        Ok(self)
    }

    /// Reads the next run of pages. False: there is none.
    pub fn step(&mut self, found: &mut LogFindings, on_batch: &mut OnChecked<'_>) -> bool {
        let (index, start) = self.at;
        let Some(group) = self.groups.get(index).cloned() else { return false };
        let (is_new, begins_later) = (start == 0, start < group.begins);
        let start = start.max(group.begins);
        if begins_later {
            // The pages before it may never have been written.
            self.before = None;
            self.assembly.forget();
        }
        if is_new && group.filled > 0 {
            // No batch reaches over groups. (One whose end is staged may have begun in the last group with pages.)
            self.assembly.forget();
            self.is_lost = false;
        }
        let there = group.filled.min(group.file.len());
        if is_new && there < group.filled {
            let why = format!("the file of a log group ends before byte {} of it", group.filled);
            self.bad(&group, there, Error::corruption(why), found);
        }
        let (mut offset, end) = (start, there.min(start + RUN_LEN));
        let mut walk = Walk::new(&*group.file, self.lane.unit(), start..there.min(end + PAGE as u64));
        while offset < end {
            if let Err(e) = walk.move_to(offset) {
                self.bad(&group, offset, e, found);
                (self.is_lost, offset) = (true, end);
                break;
            }
            offset += self.page(&group, offset, walk.page(offset), found, on_batch);
        }
        self.at = if offset >= there { (index + 1, 0) } else { (index, offset) };
        true
    }

    fn bad(&mut self, group: &GroupToCheck, offset: u64, e: Error, found: &mut LogFindings) {
        self.assembly.forget();
        self.before = None;
        let e = e.at_file(group.file.path()).at_offset(offset);
        found.errors.push((group.ltn, e));
    }

    /// Looks at what is at `offset` of a group. Returns how far it is to what comes next.
    fn page(
        &mut self,
        group: &GroupToCheck,
        offset: u64,
        bytes: &[u8],
        found: &mut LogFindings,
        on_batch: &mut OnChecked<'_>,
    ) -> u64 {
        let (owner, unit) = (Owner { store: self.store, group: group.uid }, self.lane.unit() as u64);
        let header = match page::read_closed(bytes, owner, group.ltn) {
            Verdict::Valid(header) if self.belongs(&header, offset) => header,
            _ => {
                if let Some(len) = self.page_from_staging(group, offset, found, on_batch) {
                    found.pages += 1;
                    return len;
                }
                // Where pages are of one length it is known how many are missing.
                if !self.is_lost || self.lane == Lane::FIRST {
                    found.pages += 1;
                    let why = "a page of the log is damaged or missing, and recovery would need it";
                    self.bad(group, offset, Error::corruption(why), found);
                }
                self.is_lost = true;
                return unit;
            }
        };
        found.pages += 1;
        self.is_lost = false;
        // The first page of a group states another end where groups without pages lie between.
        let continues = self.before.is_none_or(|(lpn, used)| (lpn, used) == (header.lpn, header.prev_used));
        let used = bytes.get(..usize::from(header.used)).unwrap_or_default();
        let fragments = Fragments::new(used, owner, header.lpn);
        if offset > 0 && !continues {
            let why = "a page of the log does not continue the one before it";
            self.bad(group, offset, Error::corruption(why), found);
        } else if let Err(e) = self.take(fragments, (group.ltn, offset), found, on_batch) {
            self.bad(group, offset, e, found);
        } else {
            self.before = Some((header.end_lpn(), header.used));
        }
        header.page_len() as u64
    }

    /// Takes a page from staging. `None` if it is not there; else its length when it is closed.
    fn page_from_staging(
        &mut self,
        group: &GroupToCheck,
        offset: u64,
        found: &mut LogFindings,
        on_batch: &mut OnChecked<'_>,
    ) -> Option<u64> {
        let owner = Owner { store: self.store, group: group.uid };
        let staging = std::mem::take(&mut self.staging);
        let mut pages = staging.of_group(owner, group.ltn);
        let mut len = None;
        if let Some(page) = pages.find(|page| page.header.offset() == Some(offset)) {
            found.staged_pages += 1;
            self.before = None;
            let fragments = Fragments::new(page.kept(), owner, page.header.lpn);
            let used = page::extent(page.kept(), &page.header).unwrap_or(PAGE);
            len = Some(page.header.shape().page_len(used) as u64);
            if let Err(e) = self.take(fragments, (group.ltn, offset), found, on_batch) {
                self.bad(group, offset, e, found);
            }
        }
        drop(pages);
        self.staging = staging;
        len
    }

    /// True if a page is the one at this place of its group.
    fn belongs(&self, header: &PageHeader, offset: u64) -> bool {
        header.lane() == self.lane && header.offset() == Some(offset)
    }

    /// Puts batches together, of the page at this place: the group, and the offset in its file.
    fn take(
        &mut self,
        fragments: Fragments<'_>,
        (ltn, offset): (u64, u64),
        found: &mut LogFindings,
        on_batch: &mut OnChecked<'_>,
    ) -> Result<()> {
        for fragment in fragments {
            let begins = matches!(fragment.kind, FragmentKind::Full | FragmentKind::First);
            // The rest of a batch whose beginning cannot be read is passed over.
            if !begins && !self.assembly.has_begun() {
                continue;
            }
            let at = Place::of_page(ltn, offset);
            if let Some(whole) = self.assembly.add(&fragment, at)? {
                found.batches += 1;
                on_batch(&whole.batch(&fragment));
            }
        }
        Ok(())
    }

    /// Looks at the staging file of the log while it is written: the last step. See the module. Groups that the check was not given are
    /// left out.
    pub fn staged(
        &mut self,
        wal: &Wal,
        (env, dir): (&Env, &Path),
        found: &mut LogFindings,
        on_batch: &mut OnChecked<'_>,
    ) {
        let path = io::fs::join(dir, self.lane.staging_name());
        for _ in 0..LOOKS_MAX {
            let before = wal.content().ends();
            let staging = Staging::read(env, &path, self.store);
            let after = wal.content().ends();
            self.go_on_to(&after, found, on_batch);
            if before.taken_back != after.taken_back {
                // The bytes of a batch that was taken back may be half overwritten.
                continue;
            }
            match staging {
                Ok(staging) => self.staged_pages(&staging, (&before, &after), &path, found, on_batch),
                Err(e) => {
                    let ltn = before.staged.first().map_or(0, |page| page.ltn);
                    found.errors.push((ltn, e.at_file(&path)));
                }
            }
            return;
        }
    }

    /// Scans the pages that have come to the files of the groups since.
    fn go_on_to(&mut self, end: &LogEnd, found: &mut LogFindings, on_batch: &mut OnChecked<'_>) {
        let mut from = None;
        for (index, group) in self.groups.iter_mut().enumerate() {
            let Some(now) = end.groups.iter().find(|now| now.ltn == group.ltn) else { continue };
            if now.filled > group.filled {
                from.get_or_insert((index, group.filled));
            }
            group.begins = group.begins.max(now.begins);
            group.filled = group.filled.max(now.filled);
        }
        let Some(from) = from else { return };
        self.at = from;
        while self.step(found, on_batch) {}
    }

    /// Looks at the pages that were staged at both moments.
    fn staged_pages(
        &mut self,
        staging: &Staging,
        (before, after): (&LogEnd, &LogEnd),
        path: &Path,
        found: &mut LogFindings,
        on_batch: &mut OnChecked<'_>,
    ) {
        let is_staged =
            |page: &&StagedEnd| after.staged.iter().any(|now| now.lpn == page.lpn && now.used >= page.used);
        let own: BTreeSet<u64> = self.groups.iter().map(|group| group.ltn).collect();
        for page in before.staged.iter().filter(|page| own.contains(&page.ltn)).filter(is_staged) {
            if self.before.take().is_some_and(|(lpn, _)| lpn != page.lpn) {
                self.assembly.forget();
            }
            let owner = Owner { store: self.store, group: Some(page.group) };
            let there = staging.get(owner, page.ltn, page.lpn);
            let end = there.map_or(0, |there| {
                let mut fragments = Fragments::new(there.kept(), owner, page.lpn);
                fragments.by_ref().for_each(drop);
                fragments.end()
            });
            let Some(there) = there.filter(|_| end >= page.used) else {
                self.assembly.forget();
                let why = format!("page {} of the log is staged, and damaged or missing there", page.lpn);
                found.errors.push((page.ltn, Error::corruption(why).at_file(path)));
                continue;
            };
            found.staged_pages += 1;
            let used = there.kept().get(..page.used).unwrap_or_default();
            let at = (page.ltn, there.header.offset().unwrap_or_default());
            if let Err(e) = self.take(Fragments::new(used, owner, page.lpn), at, found, on_batch) {
                self.assembly.forget();
                found.errors.push((page.ltn, e.at_file(path)));
            }
        }
    }
}

#[cfg(test)]
mod tests;
