//! Reading a log again of which it is known how far it goes: for verification and scrubbing, also while it is written.
//!
//! What recovery would read is the pages of the groups that were not released, and behind them those that are in the
//! staging file only. Pages in a group file are final: they were written once, in their closed form, and every one below
//! the end that [`crate::Wal::groups`] tells must be intact, and continue the one before it. Of a staged page it must be
//! there what was staged of it. Pages that are in memory only are nobody's to check.
//!
//! A group that is released meanwhile may be written by its next owner: so an error counts only if the caller still finds
//! the group among the living afterwards. The staging file is looked at twice: what moved on to a group file between the
//! two looks is not missed.
//!
//! Batches are put together on the way and handed out, so that whoever keeps things beside the log can check what the log
//! refers to. A batch of which a page is bad is passed over.
//!
//! Invariants: nothing is written. Memory is a run of pages, the longest batch, and a copy of the staging file.

use crate::page::{self, FragmentKind, Fragments, Owner, PageHeader, Verdict};
use crate::recover::Assembly;
use crate::staging::Staging;
use crate::{Lane, LoggedBatch, Place, Wal};
use base::{Error, Result, Uid};
use io::{AlignedBuf, Env, InPlaceFile, PAGE};
use std::path::Path;
use std::sync::Arc;

/// Pages read at a time.
const RUN_PAGES: u64 = 64;

/// A group with as many pages as must be in its file.
#[derive(Clone, Debug)]
pub struct GroupToCheck {
    /// Its number.
    pub ltn: u64,
    /// Its identity; `None`: its pages are of version 1.
    pub uid: Option<Uid>,
    /// Its file.
    pub file: Arc<dyn InPlaceFile>,
    /// Pages, from the first of the file on.
    pub pages: u64,
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
    /// The group and the page in it to come.
    at: (usize, u64),
    /// Of the page before: the number after it, and the bytes used. `None`: it is not known.
    before: Option<(u64, u16)>,
    assembly: Assembly,
    buf: AlignedBuf,
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
            before: None,
            assembly: Assembly::default(),
            buf: AlignedBuf::zeroed(0),
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
        let (index, first) = self.at;
        let Some(group) = self.groups.get(index).cloned() else { return false };
        if first == 0 && group.pages > 0 {
            // No batch reaches over groups. (One whose end is staged may have begun in the last group with pages.)
            self.assembly.forget();
        }
        let pages = group.pages.saturating_sub(first).min(RUN_PAGES);
        self.at = if first + pages >= group.pages { (index + 1, 0) } else { (index, first + pages) };
        let mut buf = std::mem::replace(&mut self.buf, AlignedBuf::zeroed(0));
        buf.resize(pages as usize * PAGE);
        let offset = first * PAGE as u64;
        if pages > 0 && (offset + pages * PAGE as u64) > group.file.len() {
            let why = format!("the file of a log group ends before page {} of it", first + pages);
            self.bad(&group, first, Error::corruption(why), found);
        } else if let Err(e) = read(&group, buf.as_mut_slice(), offset) {
            self.bad(&group, first, e, found);
        } else {
            for (i, bytes) in (first..).zip(buf.as_slice().chunks_exact(PAGE)) {
                found.pages += 1;
                self.page(&group, i, bytes, found, on_batch);
            }
        }
        self.buf = buf;
        true
    }

    fn bad(&mut self, group: &GroupToCheck, i: u64, e: Error, found: &mut LogFindings) {
        self.assembly.forget();
        self.before = None;
        let e = e.at_file(group.file.path()).at_offset(i * PAGE as u64);
        found.errors.push((group.ltn, e));
    }

    fn page(
        &mut self,
        group: &GroupToCheck,
        i: u64,
        bytes: &[u8],
        found: &mut LogFindings,
        on_batch: &mut OnChecked<'_>,
    ) {
        let owner = Owner { store: self.store, group: group.uid };
        let header = match page::read_closed(bytes, owner, group.ltn) {
            Verdict::Valid(header) if self.belongs(&header, i) => header,
            _ if self.page_from_staging(group, i, found, on_batch) => return,
            _ => {
                let why = "a page of the log is damaged or missing, and recovery would need it";
                return self.bad(group, i, Error::corruption(why), found);
            }
        };
        // The first page of a group states another end where groups without pages lie between.
        let continues = self.before.is_none_or(|(lpn, used)| (lpn, used) == (header.lpn, header.prev_used));
        if i > 0 && !continues {
            let why = "a page of the log does not continue the one before it";
            return self.bad(group, i, Error::corruption(why), found);
        }
        let used = bytes.get(..usize::from(header.used)).unwrap_or_default();
        let fragments = Fragments::new(used, owner, header.lpn);
        if let Err(e) = self.take(fragments, (group.ltn, i), found, on_batch) {
            return self.bad(group, i, e, found);
        }
        self.before = Some((header.lpn.saturating_add(1), header.used));
    }

    /// Takes a page from staging. False if it is not there.
    fn page_from_staging(
        &mut self,
        group: &GroupToCheck,
        i: u64,
        found: &mut LogFindings,
        on_batch: &mut OnChecked<'_>,
    ) -> bool {
        let owner = Owner { store: self.store, group: group.uid };
        let staging = std::mem::take(&mut self.staging);
        let mut pages = staging.of_group(owner, group.ltn);
        let page = pages.find(|page| page.header.lpn.checked_sub(page.header.first_lpn) == Some(i));
        let is_there = page.is_some();
        if let Some(page) = page {
            found.staged_pages += 1;
            self.before = None;
            let fragments = Fragments::new(&page.bytes, owner, page.header.lpn);
            if let Err(e) = self.take(fragments, (group.ltn, i), found, on_batch) {
                self.bad(group, i, e, found);
            }
        }
        drop(pages);
        self.staging = staging;
        is_there
    }

    /// True if a page is the one at this place of its group.
    fn belongs(&self, header: &PageHeader, i: u64) -> bool {
        header.lane() == self.lane && header.lpn.checked_sub(header.first_lpn) == Some(i)
    }

    /// Puts batches together, of the page at this place: the group, and the page in it.
    fn take(
        &mut self,
        fragments: Fragments<'_>,
        (ltn, page): (u64, u64),
        found: &mut LogFindings,
        on_batch: &mut OnChecked<'_>,
    ) -> Result<()> {
        for fragment in fragments {
            let begins = matches!(fragment.kind, FragmentKind::Full | FragmentKind::First);
            // The rest of a batch whose beginning cannot be read is passed over.
            if !begins && !self.assembly.has_begun() {
                continue;
            }
            let at = Place { ltn, page: page as u32, pos: 0 };
            if let Some(whole) = self.assembly.add(&fragment, at)? {
                found.batches += 1;
                on_batch(&whole.batch(&fragment));
            }
        }
        Ok(())
    }

    /// Looks at the staging file of the log while it is written: the last step. What was staged and is not in a group file
    /// yet must be there.
    pub fn staged(
        &mut self,
        wal: &Wal,
        (env, dir): (&Env, &Path),
        found: &mut LogFindings,
        on_batch: &mut OnChecked<'_>,
    ) {
        let path = io::fs::join(dir, self.lane.staging_name());
        let expected = wal.staged();
        let staging = match Staging::read(env, &path, self.store) {
            Ok(staging) => staging,
            Err(e) => {
                let ltn = expected.first().map_or(0, |page| page.ltn);
                return found.errors.push((ltn, e.at_file(&path)));
            }
        };
        let still = if expected.is_empty() { Vec::new() } else { wal.staged() };
        for page in expected {
            let owner = Owner { store: self.store, group: Some(page.group) };
            let there = staging.get(owner, page.ltn, page.lpn);
            let end = there.map_or(0, |there| {
                let mut fragments = Fragments::new(&there.bytes, owner, page.lpn);
                fragments.by_ref().for_each(drop);
                fragments.end()
            });
            let Some(there) = there.filter(|_| end >= page.used) else {
                self.assembly.forget();
                if still.iter().any(|now| now.lpn == page.lpn && now.used >= page.used) {
                    let why = format!("page {} of the log is staged, and damaged or missing there", page.lpn);
                    found.errors.push((page.ltn, Error::corruption(why).at_file(&path)));
                }
                continue;
            };
            found.staged_pages += 1;
            let used = there.bytes.get(..page.used).unwrap_or_default();
            let at = (page.ltn, page.lpn.saturating_sub(there.header.first_lpn));
            if let Err(e) = self.take(Fragments::new(used, owner, page.lpn), at, found, on_batch) {
                self.assembly.forget();
                found.errors.push((page.ltn, e.at_file(&path)));
            }
        }
    }
}

/// Reads a run of pages; a sector that cannot be read costs its page alone.
fn read(group: &GroupToCheck, run: &mut [u8], offset: u64) -> Result<()> {
    let Err(first) = group.file.read_at(run, offset) else { return Ok(()) };
    let mut any = false;
    let mut page_buf = AlignedBuf::zeroed(PAGE);
    for (at, page) in (offset..).step_by(PAGE).zip(run.chunks_exact_mut(PAGE)) {
        match group.file.read_at(page_buf.as_mut_slice(), at) {
            Ok(()) => {
                any = true;
                page.copy_from_slice(page_buf.as_slice());
            }
            Err(_) => page.fill(0),
        }
    }
    if any { Ok(()) } else { Err(first) }
}

#[cfg(test)]
mod tests;
