//! Verification and scrubbing of a log whose end is known, also while it is written.
//!
//! The checked pages are those that recovery would read: the pages of the groups that were not
//! released, and behind them the pages that are only in the staging file. Pages in a group file are
//! final: they were written once, in their closed form. Every page below the end from
//! [`crate::wal::Content::groups`] must be intact and continue the one before it. Of a staged page,
//! the staged bytes must be present. Pages that are only in memory are not checked.
//!
//! A group that is released meanwhile may be overwritten by its next owner. So an error counts only
//! if the caller finds the group still live afterwards.
//!
//! **Two snapshots of a moving log.** Pages move from the staging file to their group file, and are
//! always in one of the two. So the last step ([`LogCheck::staged`]) notes the staged pages, reads
//! the staging file, and then notes the end of the group files. Pages below that end are read from
//! the group files, where the scan continues. Pages behind it were staged both before and after the
//! staging file was read, so the file must contain them.
//!
//! The check also assembles the batches and passes them on, so that an engine with references into
//! the log can verify them. A batch with a bad page is skipped.
//!
//! Invariants: nothing is written. Memory is a run of pages, the longest batch, and a copy of the
//! staging file.

use crate::history::PriorGroup;
use crate::lane::Lane;
use crate::page::{self, FragmentKind, Fragments, Owner, PageHeader, Verdict};
use crate::place::LogAddress;
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

/// Most reads of the staging file, which are repeated if batches were taken back meanwhile.
const LOOKS_MAX: u32 = 5;

/// A group with the filled length of its file.
#[derive(Clone, Debug)]
pub struct GroupToCheck {
    /// Its number.
    pub ltn: u64,
    /// Its identity; `None`: its pages are of version 1.
    pub uid: Option<Uid>,
    /// Its file.
    pub file: Arc<dyn InPlaceFile>,
    /// Offset of the first page of the log in the file, bytes: see
    /// [`crate::history::PriorGroup::begins`].
    pub begins: u64,
    /// End of its pages in the file, bytes.
    pub filled: u64,
}

/// Findings so far.
#[derive(Debug, Default)]
pub struct LogFindings {
    /// Pages of group files that were read.
    pub pages: u64,
    /// Pages that were found in the staging file.
    pub staged_pages: u64,
    /// Whole batches.
    pub batches: u64,
    /// Errors, each with its group.
    pub errors: Vec<(u64, Error)>,
}

/// Files of each part of the log, at one moment.
#[derive(Debug)]
pub(crate) struct LogEnd {
    /// The groups that were not released, each with the filled length of its file.
    pub groups: Vec<PriorGroup>,
    /// The pages behind these that the staging file holds.
    pub staged: Vec<StagedEnd>,
    /// How often batches were taken back: their bytes in the staging file are overwritten.
    pub taken_back: u64,
}

/// A staged page: its group, its number, and its staged bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StagedEnd {
    pub group: Uid,
    pub ltn: u64,
    pub lpn: u64,
    pub used: usize,
}

/// Callback for a batch.
pub type OnChecked<'a> = dyn FnMut(&LoggedBatch<'_>) + 'a;

/// A running check of a log; see the module.
pub struct LogCheck {
    store: Uid,
    lane: Lane,
    groups: Vec<GroupToCheck>,
    /// Pages that may be missing in their file, in a store opened read-only.
    staging: Staging,
    /// The group, and the offset of its next page.
    at: (usize, u64),
    /// No page was intact since the last damaged or missing one, so the place of the next page is
    /// unknown.
    is_lost: bool,
    /// Number after the previous page, and its used bytes; `None`: unknown.
    before: Option<(u64, u16)>,
    assembly: Assembly,
}

impl LogCheck {
    /// Returns a check of these groups of the first lane, in the order of their numbers.
    pub fn new(store: Uid, groups: Vec<GroupToCheck>) -> LogCheck {
        LogCheck::of_lane(store, Lane::FIRST, groups)
    }

    /// Returns a check of these groups of a lane, in the order of their numbers.
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

    /// Also accepts pages from the staging file in `dir`: for a store opened read-only.
    ///
    /// # Errors
    /// Those of reading the file.
    pub fn or_staged(mut self, env: &Env, dir: &Path) -> Result<LogCheck> {
        self.staging = Staging::read(env, &io::fs::join(dir, self.lane.staging_name()), self.store)?;
        Ok(self)
    }

    /// Reads the next run of pages. Returns false if there is none.
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
            // No batch spans groups. (A batch whose end is staged may have begun in the last group
            // with pages.)
            self.assembly.forget();
            self.is_lost = false;
        }
        let there = group.filled.min(group.file.len());
        if is_new && there < group.filled {
            let why = format!(
                "the file of log group {} ends before byte {}, up to which records were stored: it was cut off at this offset",
                group.ltn, group.filled
            );
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

    /// Checks the page at `offset` of a group. Returns the distance to the next page.
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
                // With pages of one length the number of missing pages is known.
                if !self.is_lost || self.lane == Lane::FIRST {
                    found.pages += 1;
                    let why =
                        "the page of the log at this offset, which recovery needs, is damaged or missing";
                    self.bad(group, offset, Error::corruption(why), found);
                }
                self.is_lost = true;
                return unit;
            }
        };
        found.pages += 1;
        self.is_lost = false;
        // The first page of a group names another end if groups without pages are between.
        let continues = self.before.is_none_or(|(lpn, used)| (lpn, used) == (header.lpn, header.prev_used));
        let used = bytes.get(..usize::from(header.used)).unwrap_or_default();
        let fragments = Fragments::new(used, owner, header.lpn);
        if offset > 0 && !continues {
            let why = "the page of the log at this offset does not continue the page before it: pages were lost or exchanged";
            self.bad(group, offset, Error::corruption(why), found);
        } else if let Err(e) = self.take(fragments, (group.ltn, offset), found, on_batch) {
            self.bad(group, offset, e, found);
        } else {
            self.before = Some((header.end_lpn(), header.used));
        }
        header.page_len() as u64
    }

    /// Checks a page in staging. Returns its closed length, or `None` if it is not there.
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

    /// Returns true if a page belongs to this place of its group.
    fn belongs(&self, header: &PageHeader, offset: u64) -> bool {
        header.lane() == self.lane && header.offset() == Some(offset)
    }

    /// Assembles batches from the page at this place: the group, and the offset in its file.
    fn take(
        &mut self,
        fragments: Fragments<'_>,
        (ltn, offset): (u64, u64),
        found: &mut LogFindings,
        on_batch: &mut OnChecked<'_>,
    ) -> Result<()> {
        for fragment in fragments {
            let begins = matches!(fragment.kind, FragmentKind::Full | FragmentKind::First);
            // The rest of a batch whose beginning is unreadable is skipped.
            if !begins && !self.assembly.has_begun() {
                continue;
            }
            let at = LogAddress::of_page(ltn, offset);
            if let Some(whole) = self.assembly.add(&fragment, at)? {
                found.batches += 1;
                on_batch(&whole.batch(&fragment));
            }
        }
        Ok(())
    }

    /// Checks the staging file of a log that is being written; the last step, see the module.
    /// Leaves out groups that the check was not given.
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

    /// Checks the pages that were written to the files of the groups since.
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

    /// Checks the pages that were staged at both moments.
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
                let why = format!("page {} of the log is damaged or missing in its tail buffer", page.lpn);
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
