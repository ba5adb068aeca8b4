//! Marks images of stores whose log may have several writes in flight (`loggers` above one).
//!
//! Only such a store has states with a durable log page behind a missing one. Rows that draw
//! `loggers` count their distinct images separately, under [`IMAGES`], so that their number is
//! known.

use lavastore::Db;

/// Name of the count of distinct images with loggers above one.
pub(crate) const IMAGES: &str = "distinct images of loggers above one";

/// An image of a volume, identified by its hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Image {
    pub hash: u64,
    /// The store had loggers above one.
    pub is_wide: bool,
}

impl From<u64> for Image {
    /// Converts a hash of an image with unknown loggers.
    fn from(hash: u64) -> Self {
        Image { hash, is_wide: false }
    }
}

/// Returns true if the log of an open store may have several writes in flight now, or had while it
/// adapted their number.
pub(crate) fn is_wide(db: &Db) -> bool {
    let stats = db.stats();
    stats.wal_loggers > 1 || stats.wal_loggers_tried > 0
}

/// The sessions of a workload: first operation, and whether loggers are above one.
#[derive(Debug, Default)]
pub(crate) struct Widths(Vec<(u64, bool)>);

impl Widths {
    /// Records the start of a session.
    pub fn begin(&mut self, op: u64, is_wide: bool) {
        self.0.push((op, is_wide));
    }

    /// Returns whether the session of an operation has loggers above one.
    pub fn at(&self, op: u64) -> bool {
        self.0.iter().rfind(|(begun, _)| *begun <= op).is_some_and(|(_, is_wide)| *is_wide)
    }
}
