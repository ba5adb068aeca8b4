//! The children of a merging iterator: arbitrary cursors, and table cursors, which can report
//! beforehand which blocks a seek will read.

use crate::gap::TableCursor;
use crate::level::LevelIterator;
use base::InternalIterator;
use std::ops::{Deref, DerefMut};
use table::{FetchedBlocks, SeekTarget};

/// One of the cursors of a merging iterator.
pub enum Cursor {
    /// A cursor that reads during its moves, if at all.
    Any(Box<dyn InternalIterator>),
    /// A cursor over one table.
    Table(Box<TableCursor>),
    /// A cursor over the tables of a level.
    Level(Box<LevelIterator>),
}

impl Cursor {
    /// Prepares for the seek that follows ([`table::KsstIter::prepare`]).
    pub fn prepare(&mut self, place: SeekTarget<'_>, fetched: &mut FetchedBlocks) {
        match self {
            Cursor::Any(_) => {}
            Cursor::Table(table) => table.prepare(place, fetched),
            Cursor::Level(level) => level.prepare(place, fetched),
        }
    }
}

impl Cursor {
    /// Visits the read buffers of each part of the cursor, for callers that perform the reads.
    pub fn each_fetched(&mut self, visit: &mut dyn FnMut(&mut FetchedBlocks)) {
        match self {
            Cursor::Any(_) => {}
            Cursor::Table(table) => table.cursor.each_fetched(visit),
            Cursor::Level(level) => level.each_fetched(visit),
        }
    }

    /// Returns the bytes of blocks that the caller read and the cursor holds.
    pub fn held_bytes(&self) -> u64 {
        match self {
            Cursor::Any(_) => 0,
            Cursor::Table(table) => table.cursor.held_bytes(),
            Cursor::Level(level) => level.held_bytes(),
        }
    }
}

impl Deref for Cursor {
    type Target = dyn InternalIterator;

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Cursor::Any(cursor) => &**cursor,
            Cursor::Table(cursor) => &**cursor,
            Cursor::Level(cursor) => &**cursor,
        }
    }
}

impl DerefMut for Cursor {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Cursor::Any(cursor) => &mut **cursor,
            Cursor::Table(cursor) => &mut **cursor,
            Cursor::Level(cursor) => &mut **cursor,
        }
    }
}
