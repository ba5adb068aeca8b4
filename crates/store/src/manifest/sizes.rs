//! How long the files of a manifest are, and when they are rolled.

use super::format;
use base::sync::atomic::Ordering;
use base::sync::statistic;

/// A manifest is rolled when it has grown past this, by default.
const ROLL_LEN: u64 = 4 << 20;
/// And when it is this many times as long as its snapshot, so that rolls cost a bounded share of what is written.
const ROLL_RATIO: u64 = 4;

/// See the module. Bytes.
#[derive(Debug)]
pub struct ManifestSizes {
    /// Of the present file; 0 while there is none to append to.
    file: statistic::AtomicU64,
    /// Of its snapshot.
    snapshot: statistic::AtomicU64,
    /// The longest piece of a snapshot.
    piece: statistic::AtomicU64,
    /// At which it is rolled.
    roll: statistic::AtomicU64,
    /// Written since the manifest was opened.
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
    /// A new file was begun with a snapshot, in so many copies.
    pub(super) fn begun(&self, len: u64, copies: u64) {
        self.file.store(len, Ordering::Relaxed);
        self.written.fetch_add(len * copies, Ordering::Relaxed);
        self.snapshot.store(len, Ordering::Relaxed);
    }

    /// The file has grown to this length, in so many copies.
    pub(super) fn appended(&self, len: u64, copies: u64) {
        let before = self.file.swap(len, Ordering::Relaxed);
        self.written.fetch_add(len.saturating_sub(before) * copies, Ordering::Relaxed);
    }

    /// True if a roll would pay: the file is much longer than its snapshot, or was not begun by this process. `copies`: how many
    /// files hold the manifest.
    pub(super) fn should_roll(&self, copies: u64) -> bool {
        let len = self.file.load(Ordering::Relaxed);
        len == 0 || len > self.longest(self.snapshot.load(Ordering::Relaxed), copies)
    }

    /// The length at which a manifest with this snapshot is rolled. Two files are to occupy no more than one.
    fn longest(&self, snapshot: u64, copies: u64) -> u64 {
        let roll = self.roll.load(Ordering::Relaxed) / copies;
        roll.max(snapshot.saturating_mul(ROLL_RATIO))
    }

    /// Bytes by which the files may still grow.
    pub(super) fn growth(&self, copies: u64) -> u64 {
        let (len, snapshot) = (self.file.load(Ordering::Relaxed), self.snapshot.load(Ordering::Relaxed));
        let growth = self.longest(snapshot, copies).saturating_sub(len).saturating_add(snapshot);
        growth.saturating_mul(copies)
    }

    /// Changes how long a manifest grows before [`super::Manifest::should_roll`] says so.
    pub fn set_roll_len(&self, bytes: u64) {
        self.roll.store(bytes, Ordering::Relaxed);
    }

    /// Changes how long the pieces of a snapshot are at most: a snapshot is in pieces where it does not fit into one record, and older
    /// releases refuse it then. For tests.
    pub fn set_piece_len(&self, bytes: u64) {
        self.piece.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn piece_len_max(&self) -> usize {
        self.piece.load(Ordering::Relaxed).clamp(1, format::PAYLOAD_LEN_MAX as u64) as usize
    }

    /// Bytes of edits and snapshots written since the manifest was opened.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }
}
