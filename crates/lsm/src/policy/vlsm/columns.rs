//! Level 0 in columns: what goes down together, and where a flush is cut so that it can.
//!
//! A memtable has keys of the whole store. As one table it would have to be merged with all of level 1. So a flush is cut at a few
//! keys ([`ColumnCutter`]), and level 0 falls apart into *columns*: tables that meet in keys, directly or over others of level 0. What is
//! in different columns has no key in common, so each goes down by itself, oldest table first.
//!
//! **Columns hold.** A flush is cut at the first key of each column that level 0 has, so it bridges none. Within a column, and where there is
//! none, it is cut where tables of level 1 begin, about as far apart as makes a full table of it: so what lies dense becomes narrow columns, and
//! a wide one falls apart as its oldest tables go down. Nothing of this is stored: all is read off the version.
//!
//! **Few files.** No piece ends below a fourth of what a table of level 1 is at least. Where a flush has next to nothing for a column,
//! its table bridges that column and the one before, and then they go down together, once.
//!
//! Where values are separated a flush is a short table of references, and stays whole.

use super::parameters::Vlsm;
use crate::policy::set_aside::SetAside;
use crate::{OutputCutter, OutputSize};
use base::HashSet;
use std::sync::Arc;
use version::{FileMeta, Version};

/// A piece of a flush is no shorter than this part of `Vlsm::least_bytes`, but for the last.
const PIECE_PART: u64 = 4;

/// Tables of level 0 that meet, directly or over others.
#[derive(Clone, Debug)]
pub(super) struct Column<'a> {
    /// Ascending by first key.
    by_key: Vec<&'a Arc<FileMeta>>,
    /// The table that reaches farthest.
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

    /// The same, the oldest first.
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

    /// How many of its tables have one key at most.
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

/// The columns of level 0, ascending by key, without the tables in `held`.
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

/// How many tables of level 0 a reader of one key may have to look into.
pub(super) fn depth(version: &Version, held: &HashSet<u64>) -> usize {
    columns(version, held).iter().map(Column::depth).max().unwrap_or(0)
}

impl Vlsm {
    /// Where the tables of a flush begin, ascending.
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

/// Where these columns begin for the next flush: where the table of level 1 begins that their first key is in, or else at that. Between the
/// two the next flush may have keys, and in the column before they would meet that table as well.
fn starts_of<'a>(columns: &[Column<'a>], level_1: &'a [Arc<FileMeta>]) -> Vec<&'a [u8]> {
    let start = |(i, column): (usize, &Column<'a>)| {
        let after = level_1.partition_point(|f| !f.starts_after(column.low()));
        let table = level_1[..after].last().map(|f| f.smallest_user_key());
        let before = i.checked_sub(1).map(|before| columns[before].last);
        table.filter(|first| before.is_none_or(|last| last.ends_before(first))).unwrap_or(column.low())
    };
    columns.iter().enumerate().map(start).collect()
}

/// Cuts a flush into the columns of level 0. Asked with ascending keys.
#[derive(Clone, Debug)]
pub struct ColumnCutter {
    starts: Vec<Vec<u8>>,
    /// The first of them that no key asked has reached.
    at: usize,
    piece_bytes: u64,
}

impl ColumnCutter {
    /// For a flush into `version`; `None` if there is nowhere to cut.
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
