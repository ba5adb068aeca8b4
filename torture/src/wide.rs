//! Which images of a row come of a store that may have several writes of its log at the device at once (`loggers` above one).
//!
//! Such a store has states that others never leave: a page of the log that is durable behind one that is not. A row that draws
//! `loggers` counts its distinct images of them apart, under [`IMAGES`], so that it can be said how many were tried.

use lavastore::Db;

/// Distinct images of stores with loggers above one.
pub(crate) const IMAGES: &str = "distinct images of loggers above one";

/// An image of a volume, by its hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Image {
    pub hash: u64,
    /// It comes of loggers above one.
    pub is_wide: bool,
}

impl From<u64> for Image {
    /// One of which that is not known.
    fn from(hash: u64) -> Self {
        Image { hash, is_wide: false }
    }
}

/// True if the log of an open store may have several writes at the device now, or had (where the number is found out).
pub(crate) fn is_wide(db: &Db) -> bool {
    let stats = db.stats();
    stats.wal_writes_at_once > 1 || stats.wal_loggers_tried > 0
}

/// The sessions of a life: from which operation of the machine on, and whether their loggers are above one.
#[derive(Debug, Default)]
pub(crate) struct Widths(Vec<(u64, bool)>);

impl Widths {
    /// A session begins.
    pub fn begin(&mut self, op: u64, is_wide: bool) {
        self.0.push((op, is_wide));
    }

    /// What the session is like that an operation is part of.
    pub fn at(&self, op: u64) -> bool {
        self.0.iter().rfind(|(begun, _)| *begun <= op).is_some_and(|(_, is_wide)| *is_wide)
    }
}
