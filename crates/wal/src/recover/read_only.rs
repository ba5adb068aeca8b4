//! Read-only replay of a lane, for a reader that later reads the replayed records by their places.
//!
//! Recovery makes staged pages durable in the files of groups, so that a place leads to a file. A
//! read-only reader keeps these pages in memory instead, in their closed form, and overlays them on
//! each file that it reads ([`StagedPages`]). They are at most the pages of the tail buffer. A page
//! of a group is written once, as it is closed. If its writer has written it meanwhile, it has all
//! fragments of the staged page at the same positions, so the overlay is never wrong.

use super::{LogGroup, OnBatch, RecoveryReport, Scan};
use crate::lane::Lane;
use crate::staging::Staging;
use base::{Error, Result, Uid};
use io::{AlignedBuf, Env, InPlaceFile};
use std::path::Path;
use std::sync::Arc;

/// Result of reading a lane.
#[derive(Debug)]
pub struct LaneRead {
    /// The report of the recovery.
    pub report: RecoveryReport,
    /// Damage at which the lane ends; `None`: it is not damaged.
    pub damage: Option<Error>,
    /// Numbers and files of the groups with pages in staging, overlaid with these pages.
    pub staged: Vec<(u64, Arc<StagedPages>)>,
}

/// Reads a lane and changes nothing. With `up_to_damage` the lane ends at the first damage,
/// otherwise damage is an error.
///
/// # Errors
/// As [`super::recover_lane()`]; with `up_to_damage` as [`super::recover_up_to_damage()`].
pub fn read_lane(
    env: &Env,
    dir: &Path,
    (store, lane): (Uid, Lane),
    groups: &[LogGroup],
    up_to_damage: bool,
    replay: &mut OnBatch<'_>,
) -> Result<LaneRead> {
    let staging = Staging::read(env, &io::fs::join(dir, lane.staging_name()), store)?;
    let mut scan = Scan { lane, up_to_damage, ..Scan::new(env, store, &staging, replay) };
    for (index, group) in groups.iter().enumerate() {
        scan.group(index, group)?;
    }
    let judged = match scan.judge(groups) {
        Err(e) if !up_to_damage => return Err(e),
        judged => judged.err(),
    };
    let damage = scan.damage.take().or(judged);
    let staged = scan.staged_pages(groups)?;
    Ok(LaneRead { report: scan.report(groups), damage, staged })
}

impl Scan<'_> {
    fn staged_pages(&self, groups: &[LogGroup]) -> Result<Vec<(u64, Arc<StagedPages>)>> {
        let mut all: Vec<(u64, StagedPages)> = Vec::new();
        for from in &self.staged {
            let Some(group) = groups.get(from.group) else { continue };
            let page = self.closed(group, from)?;
            match all.last_mut() {
                Some((ltn, file)) if *ltn == group.ltn => file.pages.push((from.offset, page)),
                _ => {
                    let pages = vec![(from.offset, page)];
                    all.push((group.ltn, StagedPages { file: group.file.clone(), pages }));
                }
            }
        }
        Ok(all.into_iter().map(|(ltn, file)| (ltn, Arc::new(file))).collect())
    }
}

/// The file of a group, overlaid with staged pages.
#[derive(Debug)]
pub struct StagedPages {
    file: Arc<dyn InPlaceFile>,
    /// Offsets and closed pages.
    pages: Vec<(u64, Vec<u8>)>,
}

impl InPlaceFile for StagedPages {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn block_len(&self) -> usize {
        self.file.block_len()
    }

    fn write_at(&self, data: &AlignedBuf, offset: u64) -> Result<()> {
        self.file.write_at(data, offset)
    }

    fn write_durable(&self, data: &AlignedBuf, offset: u64) -> Result<()> {
        self.file.write_durable(data, offset)
    }

    fn sync_data(&self) -> Result<()> {
        self.file.sync_data()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let end = offset.saturating_add(buf.len() as u64);
        let end_of = |(at, page): &(u64, Vec<u8>)| *at + page.len() as u64;
        let over = self.pages.iter().filter(|page| page.0 < end && offset < end_of(page));
        let covered: u64 = over.clone().map(|page| end_of(page).min(end) - page.0.max(offset)).sum();
        // A range that was never written out may be unreadable after a power failure.
        if covered < buf.len() as u64 {
            self.file.read_at(buf, offset)?;
        }
        for page in over {
            let (from, to) = (page.0.max(offset), end_of(page).min(end));
            let part = buf.get_mut((from - offset) as usize..(to - offset) as usize);
            if let (Some(part), Some(bytes)) =
                (part, page.1.get((from - page.0) as usize..(to - page.0) as usize))
            {
                part.copy_from_slice(bytes);
            }
        }
        Ok(())
    }

    fn path(&self) -> &Path {
        self.file.path()
    }
}
