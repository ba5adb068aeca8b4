//! What a merging iterator merges: any cursors, and those over tables, which can say beforehand what a seek will read.

use crate::gap::TableCursor;
use crate::level::LevelIterator;
use base::InternalIterator;
use std::ops::{Deref, DerefMut};
use table::{Fetched, Place};

/// One of the cursors of a merging iterator.
pub enum Cursor {
    /// Reads when it is moved, if it reads at all.
    Any(Box<dyn InternalIterator>),
    /// Over one table.
    Table(Box<TableCursor>),
    /// Over the tables of a level.
    Level(Box<LevelIterator>),
}

impl Cursor {
    /// Makes ready for a seek that follows next ([`table::KsstIter::prepare`]).
    pub fn prepare(&mut self, place: Place<'_>, fetched: &mut Fetched) {
        match self {
            Cursor::Any(_) => {}
            Cursor::Table(table) => table.prepare(place, fetched),
            Cursor::Level(level) => level.prepare(place, fetched),
        }
    }
}

impl Cursor {
    /// Where somebody else does the reads: what each part of it wants, and is handed.
    pub fn each_fetched(&mut self, visit: &mut dyn FnMut(&mut Fetched)) {
        match self {
            Cursor::Any(_) => {}
            Cursor::Table(table) => table.cursor.each_fetched(visit),
            Cursor::Level(level) => level.each_fetched(visit),
        }
    }

    /// Bytes it holds that somebody else has read.
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
