//! Columns of level 0: sets of tables that go down together, and the cuts of a flush that keep
//! columns apart.
//!
//! A memtable has keys of the whole store. As one table it would have to be merged with all of
//! level 1. So a flush is cut at a few keys ([`ColumnCutter`]), and level 0 splits into *columns*:
//! tables that overlap, directly or through other tables of level 0. Different columns have no key
//! in common, so each goes down by itself, oldest table first.
//!
//! **Columns persist.** A flush is cut at the first key of each column of level 0, so it joins no
//! two columns. Within a column, and outside all columns, a flush is cut where tables of level 1
//! begin, at distances that make up about a full table. So dense key ranges become narrow columns,
//! and a wide column splits as its oldest tables go down. No column is stored: all are derived from
//! the version.
//!
//! **Few files.** No piece ends below a quarter of the minimum size of a level 1 table. If a flush
//! has almost no data for a column, its table joins that column to the one before, and once they go
//! down together.
//!
//! With separated values a flush is a short table of references, and is not cut.

use super::parameters::Vlsm;
use crate::policy::set_aside::SetAside;
use crate::{OutputCutter, OutputSize};
use base::HashSet;
use std::sync::Arc;
use version::{FileMeta, Version};

/// Minimum length of a piece of a flush, except the last, as a fraction of `Vlsm::least_bytes`.
const PIECE_PART: u64 = 4;

/// Tables of level 0 that overlap, directly or through others.
#[derive(Clone, Debug)]
pub(super) struct Column<'a> {
    /// Tables, ascending by first key.
    by_key: Vec<&'a Arc<FileMeta>>,
    /// Table with the largest last key.
    last: &'a Arc<FileMeta>,
}

impl<'a> Column<'a> {
    pub fn low(&self) -> &'a [u8] {
        self.by_key[0].smallest_user_key()
    }

    pub fn high(&self) -> &'a [u8] {
        self.last.largest_user_key()
    }

    pub fn tables(&self) -> impl Iterator<Item = &'a Arc<FileMeta>> + '_ {
        self.by_key.iter().copied()
    }

    /// Returns the tables, the oldest first.
    pub fn oldest_first(&self) -> Vec<&'a Arc<FileMeta>> {
        let mut files = self.by_key.clone();
        files.sort_by_key(|f| (f.seq_range().1, f.number));
        files
    }

    fn add(&mut self, file: &'a Arc<FileMeta>) {
        self.by_key.push(file);
        if self.last.ends_before(file.largest_user_key()) {
            self.last = file;
        }
    }

    /// Returns the maximum number of tables of the column that contain one key.
    pub fn depth(&self) -> usize {
        let mut open: Vec<&FileMeta> = Vec::new();
        let deepest = self.by_key.iter().map(|file| {
            open.retain(|other| !other.ends_before(file.smallest_user_key()));
            open.push(file);
            open.len()
        });
        deepest.max().unwrap_or(0)
    }
}

/// Returns the columns of level 0, ascending by key, without the tables in `held`.
pub(super) fn columns<'a>(version: &'a Version, held: &HashSet<u64>) -> Vec<Column<'a>> {
    let mut files: Vec<&Arc<FileMeta>> =
        version.files(0).iter().filter(|f| !held.contains(&f.number)).collect();
    files.sort_by_key(|f| f.smallest_user_key());
    let mut columns: Vec<Column<'a>> = Vec::new();
    for file in files {
        match columns.last_mut().filter(|column| !column.last.ends_before(file.smallest_user_key())) {
            Some(column) => column.add(file),
            None => columns.push(Column { by_key: vec![file], last: file }),
        }
    }
    columns
}

/// Returns the maximum number of level 0 tables that a read of one key must search.
pub(super) fn depth(version: &Version, held: &HashSet<u64>) -> usize {
    columns(version, held).iter().map(Column::depth).max().unwrap_or(0)
}

impl Vlsm {
    /// Returns the keys at which the tables of a flush begin, ascending.
    fn column_starts(&self, version: &Version) -> Vec<Vec<u8>> {
        if self.tree.deepest(version).1 {
            return Vec::new();
        }
        let base = self.level_targets(version, &SetAside::default()).base_level;
        let level_1 = version.files(base);
        let columns = columns(version, &HashSet::default());
        let mut known = starts_of(&columns, level_1).into_iter().peekable();
        let (mut starts, mut since): (Vec<&[u8]>, u64) = Default::default();
        for file in level_1 {
            let first = file.smallest_user_key();
            while let Some(start) = known.next_if(|start| *start <= first) {
                starts.push(start);
                since = 0;
            }
            if since >= self.tree.file_bytes / 4 * 3 {
                starts.push(first);
                since = 0;
            }
            since = since.saturating_add(self.tree.size_of(file));
        }
        starts.extend(known);
        starts.into_iter().map(<[u8]>::to_vec).collect()
    }
}

/// Returns the keys at which these columns begin for the next flush. That is the first key of the
/// level 1 table that contains a column's first key, or else the column's first key. The next flush
/// may have keys between the two; in the previous column they would overlap that table as well.
fn starts_of<'a>(columns: &[Column<'a>], level_1: &'a [Arc<FileMeta>]) -> Vec<&'a [u8]> {
    let start = |(i, column): (usize, &Column<'a>)| {
        let after = level_1.partition_point(|f| !f.starts_after(column.low()));
        let table = level_1[..after].last().map(|f| f.smallest_user_key());
        let before = i.checked_sub(1).map(|before| columns[before].last);
        table.filter(|first| before.is_none_or(|last| last.ends_before(first))).unwrap_or(column.low())
    };
    columns.iter().enumerate().map(start).collect()
}

/// Cuts a flush into the columns of level 0. Keys must ascend from call to call.
#[derive(Clone, Debug)]
pub struct ColumnCutter {
    starts: Vec<Vec<u8>>,
    /// Index of the first start beyond the last key asked.
    at: usize,
    piece_bytes: u64,
}

impl ColumnCutter {
    /// Returns a cutter for a flush into `version`; `None` if there are no cuts.
    pub fn new(policy: &Vlsm, version: &Version) -> Option<Self> {
        let (starts, piece_bytes) = (policy.column_starts(version), policy.least_bytes() / PIECE_PART);
        (starts.len() > 1).then_some(ColumnCutter { starts, at: 0, piece_bytes })
    }
}

impl OutputCutter for ColumnCutter {
    fn cut_before(&mut self, next_user_key: &[u8], open: OutputSize) -> bool {
        let before = self.at;
        while self.starts.get(self.at).is_some_and(|start| start.as_slice() <= next_user_key) {
            self.at += 1;
        }
        self.at > before && !open.is_empty && open.file_bytes >= self.piece_bytes
    }
}
