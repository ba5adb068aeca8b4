//! The inputs of a scan or a merge job: the cursors and the range tombstones of many tables.
//!
//! A table may lie wholly under one newer range tombstone, or under several that join without a
//! gap. If no snapshot lies between the table and the tombstones, all its entries are hidden and
//! need not be read. Scanning over a large deleted range, or compacting it away, then costs only a
//! check of the key ranges of its files. The range tombstones of such a table still count.

use crate::cursor::Cursor;
use crate::gap::{TableCursor, Unreadable};
use crate::level::{Bounds, LevelIterator, TableCursors, TableSource, open_cursor};
use base::range_del::FragmentedRangeTombstones;
use base::{Result, SeqNo};
use io::ReadQueues;
use std::sync::Arc;
use table::{IterOptions, ScanBounds};
use version::{FileMeta, Level};

/// The readers that will see the entries.
#[derive(Clone, Debug)]
pub enum Visibility {
    /// One reader at this snapshot (a scan).
    At(SeqNo),
    /// These snapshots, ascending, and every later one (a merge job; see [`crate::MergeOptions`]).
    Snapshots(Vec<SeqNo>),
}

impl Visibility {
    /// Returns the largest sequence of a tombstone that can hide an entry with sequence `seq` from
    /// all readers.
    fn bound(&self, seq: SeqNo) -> Option<SeqNo> {
        match self {
            Visibility::At(snapshot) => Some(*snapshot),
            Visibility::Snapshots(list) => list.get(list.partition_point(|&s| s < seq)).copied(),
        }
    }
}

/// Cursors and range tombstones of many tables.
pub struct Sources {
    /// Cursors, newest data first.
    pub cursors: Vec<Cursor>,
    /// Range tombstones of memtables and tables, one for each that has any.
    pub tombstones: Vec<Arc<FragmentedRangeTombstones>>,
    /// Number of tables left out because range tombstones hide all of their entries.
    pub hidden_tables: usize,
    readers: Visibility,
    source: Arc<dyn TableSource>,
    options: IterOptions,
    queues: Option<Arc<ReadQueues>>,
    /// True if the caller performs the reads.
    wants: bool,
}

impl Sources {
    /// Returns empty sources. The caller pushes memtables before the tables: they are newer.
    pub fn new(readers: Visibility, source: Arc<dyn TableSource>, options: IterOptions) -> Self {
        let (cursors, tombstones) = (Vec::new(), Vec::new());
        Sources {
            cursors,
            tombstones,
            hidden_tables: 0,
            readers,
            source,
            options,
            queues: None,
            wants: false,
        }
    }

    /// Makes cursors that are added later read nothing: their moves wait until the caller reads the
    /// blocks ([`crate::MergingIterator::take_wanted`]). Opening a table still reads.
    pub fn waiting(self) -> Self {
        Sources { wants: true, ..self }
    }

    /// Makes cursors that are added later read ahead.
    pub fn reading_ahead(self, queues: &Arc<ReadQueues>) -> Self {
        Sources { queues: Some(queues.clone()), ..self }
    }

    /// Adds the files of `levels` that overlap `bounds`, from the newest level to the oldest. Each
    /// level has its number and files: level 0 newest first, the others sorted and disjoint.
    ///
    /// Opens tables with range tombstones at once, and those of level 0 that share no cursor. The
    /// others open when the cursor reaches them.
    ///
    /// # Errors
    /// For a job, the errors of opening tables. A scan fails only on reaching a table that cannot
    /// be opened.
    pub fn add<'l>(
        &mut self,
        levels: impl Iterator<Item = (usize, &'l Level)> + Clone,
        bounds: Bounds<'_>,
    ) -> Result<()> {
        for (_, files) in levels.clone() {
            for file in files.iter().filter(|f| f.range_tombstones > 0 && bounds.meet(f)) {
                match self.source.table(file) {
                    Ok(table) => self.tombstones.push(table.range_tombstones().clone()),
                    // A scan fails in the whole range of the table, and no other entries of it lie
                    // there. A job must know all.
                    Err(_) if self.is_scan() => {}
                    Err(e) => return Err(e),
                }
            }
        }
        let borders = Arc::new(ScanBounds {
            queues: self.queues.clone(),
            wants: self.wants,
            asks_filters: self.is_scan(),
            ..bounds.borders()
        });
        for (level, files) in levels {
            if level == 0 {
                self.add_level_0(files, bounds, &borders)?;
            } else {
                self.add_sorted(files, bounds, &borders);
            }
        }
        Ok(())
    }

    /// Adds the files of level 0. If a flush wrote several tables, the disjoint ones share one
    /// cursor of a scan, which has one of them open. So there are at most as many cursors as tables
    /// that contain one key.
    fn add_level_0(&mut self, files: &Level, bounds: Bounds<'_>, borders: &Arc<ScanBounds>) -> Result<()> {
        let (hidden, shown): (Vec<_>, Vec<_>) =
            files.iter().filter(|f| bounds.meet(f)).partition(|f| self.hides(f));
        self.hidden_tables += hidden.len();
        let runs = match self.is_scan() {
            true => disjoint_runs(shown),
            false => shown.into_iter().map(|file| vec![file.clone()]).collect(),
        };
        for run in runs {
            match &run[..] {
                [file] => {
                    let cursor = self.cursor_of(file, borders)?;
                    self.cursors.push(cursor);
                }
                _ => self.add_run(Level::from(run), bounds, borders),
            }
        }
        Ok(())
    }

    fn is_scan(&self) -> bool {
        matches!(self.readers, Visibility::At(_))
    }

    fn cursor_of(&self, file: &Arc<FileMeta>, borders: &Arc<ScanBounds>) -> Result<Cursor> {
        match open_cursor(&*self.source, file, self.options, borders) {
            Ok(cursor) if self.is_scan() => {
                Ok(Cursor::Table(Box::new(TableCursor { cursor, file: file.clone() })))
            }
            Ok(cursor) => Ok(Cursor::Any(Box::new(cursor))),
            Err(error) if self.is_scan() => {
                Ok(Cursor::Any(Box::new(Unreadable { file: file.clone(), error })))
            }
            Err(e) => Err(e),
        }
    }

    fn add_sorted(&mut self, files: &Level, bounds: Bounds<'_>, borders: &Arc<ScanBounds>) {
        let range = bounds.range_in(files);
        let part = files.get(range).unwrap_or_default();
        let shown: Option<Vec<Arc<FileMeta>>> = if self.tombstones.is_empty() {
            None
        } else {
            Some(part.iter().filter(|f| !self.hides(f)).cloned().collect())
        };
        let count = shown.as_ref().map_or(part.len(), Vec::len);
        self.hidden_tables += part.len() - count;
        if count == 0 {
            return;
        }
        let files = match shown {
            Some(shown) if count < part.len() => Level::from(shown),
            _ => files.clone(),
        };
        self.add_run(files, bounds, borders);
    }

    fn add_run(&mut self, files: Level, bounds: Bounds<'_>, borders: &Arc<ScanBounds>) {
        let (source, borders) = (self.source.clone(), borders.clone());
        let tables = TableCursors { source, options: self.options, borders };
        self.cursors.push(Cursor::Level(Box::new(LevelIterator::new(files, bounds, tables))));
    }

    /// Returns true if range tombstones hide every entry of `file` from all readers.
    fn hides(&self, file: &FileMeta) -> bool {
        let (oldest, newest) = file.seq_range();
        let Some(bound) = self.readers.bound(oldest) else { return false };
        self.tombstones.iter().any(|t| spans(t, file, newest, bound))
    }
}

/// Arranges tables, newest first, into as few runs of disjoint tables as possible; each run
/// ascends.
fn disjoint_runs(files: Vec<&Arc<FileMeta>>) -> Vec<Vec<Arc<FileMeta>>> {
    let mut in_order: Vec<(usize, &Arc<FileMeta>)> = files.into_iter().enumerate().collect();
    in_order.sort_by_key(|(_, f)| f.smallest_user_key());
    let mut runs: Vec<(usize, Vec<Arc<FileMeta>>)> = Vec::new();
    for (age, file) in in_order {
        let fits = |(_, run): &&mut (usize, Vec<Arc<FileMeta>>)| {
            run.last().is_some_and(|last| last.ends_before(file.smallest_user_key()))
        };
        match runs.iter_mut().find(fits) {
            Some((first, run)) => {
                *first = (*first).min(age);
                run.push(file.clone());
            }
            None => runs.push((age, vec![file.clone()])),
        }
    }
    runs.sort_by_key(|(age, _)| *age);
    runs.into_iter().map(|(_, run)| run).collect()
}

/// Returns true if tombstones with sequences above `newest` and at most `bound` cover all user keys
/// of `file`.
fn spans(tombstones: &FragmentedRangeTombstones, file: &FileMeta, newest: SeqNo, bound: SeqNo) -> bool {
    let fragments = tombstones.fragments();
    let mut at = fragments.partition_point(|f| f.end.as_slice() <= file.smallest_user_key());
    let mut upto = file.smallest_user_key();
    while let Some(f) = fragments.get(at) {
        let seq = f.seqs.get(f.seqs.partition_point(|&s| s > bound));
        if f.start.as_slice() > upto || seq.is_none_or(|&s| s <= newest) {
            return false;
        }
        upto = &f.end;
        if file.ends_before(upto) {
            return true;
        }
        at += 1;
    }
    false
}

#[cfg(test)]
mod tests;
