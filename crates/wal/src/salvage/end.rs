//! Traces of a log behind the end that its pages prove.
//!
//! A crash leaves such traces as well: pages that were written at the power failure, behind an
//! unwritten one. So the traces count only if it is unknown whether there was a crash.

use super::{Group, SalvagedLog, Step};
use base::Error;

/// A page header in its proper place, over bytes that do not match its checksum.
#[derive(Clone, Copy, Debug)]
pub(super) struct TornPage {
    pub file: usize,
    pub offset: u64,
    pub ltn: u64,
    pub lpn: u64,
}

impl SalvagedLog {
    /// Returns the first trace behind the last accepted or missed page of the arranged groups.
    pub(super) fn find_behind_end(&self, groups: &[Group], torn: &[TornPage]) -> Option<Error> {
        let last = self.steps.iter().rev().find_map(|step| match step {
            Step::Page { lpn, .. } => Some((*lpn, false)),
            Step::Staged { lpn, .. } => Some((*lpn, true)),
            Step::Group(_) | Step::Gap { .. } => None,
        });
        let (last_lpn, is_staged) = last?;
        // A page that is only in staging may have been fuller in its file.
        let is_behind = |lpn: u64| lpn > last_lpn || is_staged && lpn == last_lpn;
        let unit = self.lane.unit() as u64;
        if is_staged && let Some(lost) = self.file_lost_at(groups, torn, last_lpn) {
            return Some(lost);
        }
        for group in groups.iter().filter(|group| !group.pages.is_empty()) {
            let Some(first_lpn) = group.any.map(|header| header.first_lpn) else { continue };
            let place = |lpn: u64| lpn.saturating_sub(first_lpn).saturating_mul(unit);
            let file = self.files.get(group.file).and_then(|log| log.file.as_ref());
            // A file has its full length before its first page is written.
            let len = file.and_then(|file| file.len().ok()).unwrap_or(u64::MAX);
            let staged = self.staging.of_group(group.owner, group.ltn).map(|page| page.header.lpn);
            let mut cut = staged.filter(|lpn| counts(group, *lpn) && place(*lpn) >= len);
            let mut behind = group.pages.keys().copied().filter(|lpn| counts(group, *lpn) && is_behind(*lpn));
            if let Some(lpn) = behind.next().or_else(|| cut.next()) {
                return Some(self.behind(group.file, place(lpn)));
            }
        }
        let newest = groups.iter().map(|group| group.ltn).max()?;
        // A newer group may begin before the end of the last one, if a recovery cut that.
        let is_lost = |page: &&TornPage| {
            let group = groups.iter().find(|group| group.ltn == page.ltn);
            let is_behind = page.ltn > newest || is_behind(page.lpn);
            page.ltn >= newest && is_behind && group.is_none_or(|group| counts(group, page.lpn))
        };
        torn.iter().find(is_lost).map(|page| self.behind(page.file, page.offset))
    }

    /// Checks for a last page in staging that records durable pages of its group: these were in the
    /// group's file, of which no page is left. So the length of the lost part is unknown.
    fn file_lost_at(&self, groups: &[Group], torn: &[TornPage], last_lpn: u64) -> Option<Error> {
        let is_last = |group: &&Group| {
            let mut staged = self.staging.of_group(group.owner, group.ltn);
            group.pages.is_empty() && staged.any(|page| page.header.lpn == last_lpn)
        };
        let group = groups.iter().find(is_last)?;
        let staged = self.staging.of_group(group.owner, group.ltn).map(|page| page.header.durable_end);
        let first_lpn = group.any?.first_lpn;
        staged.max().filter(|durable_end| *durable_end > first_lpn)?;
        let file = torn.iter().find(|page| page.ltn == group.ltn).map_or(group.file, |page| page.file);
        Some(self.behind(file, 0))
    }

    fn behind(&self, file: usize, offset: u64) -> Error {
        let path = self.files.get(file).map(|log| log.path.clone()).unwrap_or_default();
        let why = "the log may have continued here, past its end: earlier pages of the log are \
                   damaged or missing, or a crash interrupted their write";
        Error::corruption(why).at_file(path).at_offset(offset)
    }
}

fn counts(group: &Group, lpn: u64) -> bool {
    group.end.is_none_or(|end| lpn < end)
}
