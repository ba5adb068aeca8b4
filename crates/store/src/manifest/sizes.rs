//! Lengths of manifest files, and when they are rolled.

use super::format;
use base::sync::atomic::Ordering;
use base::sync::statistic;

/// Default minimum length for a roll, bytes.
const ROLL_LEN: u64 = 4 << 20;
/// Minimum ratio of file to snapshot for a roll, so that rolls cost a bounded share of the writes.
const ROLL_RATIO: u64 = 4;

/// Lengths of the manifest files, bytes: see the module.
#[derive(Debug)]
pub struct ManifestSizes {
    /// Length of the current file; 0 while there is none to append to.
    file: statistic::AtomicU64,
    /// Length of its snapshot.
    snapshot: statistic::AtomicU64,
    /// Maximum length of a snapshot piece.
    piece: statistic::AtomicU64,
    /// Minimum length for a roll.
    roll: statistic::AtomicU64,
    /// Bytes written since the manifest was opened.
    written: statistic::AtomicU64,
}

impl Default for ManifestSizes {
    fn default() -> Self {
        ManifestSizes {
            file: statistic::AtomicU64::new(0),
            snapshot: statistic::AtomicU64::new(0),
            piece: statistic::AtomicU64::new(format::PAYLOAD_LEN_MAX as u64),
            roll: statistic::AtomicU64::new(ROLL_LEN),
            written: statistic::AtomicU64::new(0),
        }
    }
}

impl ManifestSizes {
    /// Records a new file with a snapshot of `len` bytes, in `copies` files.
    pub(super) fn begun(&self, len: u64, copies: u64) {
        self.file.store(len, Ordering::Relaxed);
        self.written.fetch_add(len * copies, Ordering::Relaxed);
        self.snapshot.store(len, Ordering::Relaxed);
    }

    /// Records the new length of the file, in `copies` files.
    pub(super) fn appended(&self, len: u64, copies: u64) {
        let before = self.file.swap(len, Ordering::Relaxed);
        self.written.fetch_add(len.saturating_sub(before) * copies, Ordering::Relaxed);
    }

    /// Returns true if a roll is due: the file is much longer than its snapshot, or this process
    /// did not begin it. `copies`: the number of files that hold the manifest.
    pub(super) fn should_roll(&self, copies: u64) -> bool {
        let len = self.file.load(Ordering::Relaxed);
        len == 0 || len > self.longest(self.snapshot.load(Ordering::Relaxed), copies)
    }

    /// Returns the length at which a manifest with this snapshot is rolled. Two copies together may
    /// use as much space as a single file.
    fn longest(&self, snapshot: u64, copies: u64) -> u64 {
        let roll = self.roll.load(Ordering::Relaxed) / copies;
        roll.max(snapshot.saturating_mul(ROLL_RATIO))
    }

    /// Returns the bytes by which the files may still grow.
    pub(super) fn growth(&self, copies: u64) -> u64 {
        let (len, snapshot) = (self.file.load(Ordering::Relaxed), self.snapshot.load(Ordering::Relaxed));
        let growth = self.longest(snapshot, copies).saturating_sub(len).saturating_add(snapshot);
        growth.saturating_mul(copies)
    }

    /// Sets the minimum length for [`super::Manifest::should_roll`].
    pub fn set_roll_len(&self, bytes: u64) {
        self.roll.store(bytes, Ordering::Relaxed);
    }

    /// Sets the maximum length of a snapshot piece, for tests. A snapshot that does not fit into
    /// one record is split into pieces, which older releases refuse.
    pub fn set_piece_len(&self, bytes: u64) {
        self.piece.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn piece_len_max(&self) -> usize {
        self.piece.load(Ordering::Relaxed).clamp(1, format::PAYLOAD_LEN_MAX as u64) as usize
    }

    /// Returns the bytes of edits and snapshots written since the manifest was opened.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }
}
