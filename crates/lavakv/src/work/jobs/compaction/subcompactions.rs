//! The state of the pieces of one compaction.
//!
//! ```text
//! waiting --next--> at work --end--> merged     the last one to end gets all that was merged, and installs it
//!                      \-----leave-> over       from then on none begins, and whoever is at work leaves as well
//! ```
//!
//! A job merges one piece after the other while pieces are waiting. So each unmerged piece has a
//! job or is waiting. A job that abandons the compaction takes the files of all pieces without a
//! job. So each file is removed exactly once, after its last writer.
//!
//! Invariants: each piece has at most one job; no piece begins after another was abandoned; either
//! all pieces are installed, in key order, or none.

use crate::tree::retained::WrittenTable;
use base::sync::{Mutex, lock, rank};
use lsm::MergeOutput;
use std::path::PathBuf;
use version::VsstMeta;

/// Number and path of a created file.
pub(super) type Created = (u64, PathBuf);

/// A key range to merge.
pub(super) struct Subcompaction {
    nth: usize,
    /// First user key; `None`: from the start.
    pub lower: Option<Vec<u8>>,
    /// End user key, exclusive; `None`: to the end.
    pub upper: Option<Vec<u8>>,
}

/// The outputs of a piece.
#[derive(Default)]
pub(super) struct Merged {
    pub outputs: Vec<MergeOutput<WrittenTable>>,
    pub vssts: Vec<VsstMeta>,
}

/// The state after the end of a piece.
pub(super) enum Ended {
    /// Other pieces are running or waiting.
    More,
    /// All pieces are merged: their outputs in key order, and their files, which the caller owns
    /// from now on.
    All(Vec<Merged>, Vec<Created>),
    /// Another piece has failed, so the caller leaves.
    Over,
}

/// The pieces of one compaction. See the module.
pub(super) struct Pieces {
    /// User keys at which the pieces are split.
    cuts: Vec<Vec<u8>>,
    /// Guards the progress of the pieces, and the ownership of their files.
    state: Mutex<PiecesState, rank::CompactionPieces>,
}

struct PiecesState {
    /// All pieces, in key order.
    all: Vec<One>,
    /// Number of started pieces; they start in key order.
    begun: usize,
    is_over: bool,
}

#[derive(Default)]
struct One {
    at_work: bool,
    created: Vec<Created>,
    written_bytes: u64,
    merged: Option<Merged>,
}

impl Pieces {
    /// Splits at these ascending user keys.
    pub fn new(cuts: Vec<Vec<u8>>) -> Pieces {
        let all = (0..=cuts.len()).map(|_| One::default()).collect();
        Pieces { cuts, state: Mutex::new(PiecesState { all, begun: 0, is_over: false }) }
    }

    /// Returns the number of pieces.
    pub fn count(&self) -> usize {
        self.cuts.len() + 1
    }

    /// Starts the next waiting piece.
    pub fn next(&self) -> Option<Subcompaction> {
        let mut state = lock(&self.state);
        let nth = state.begun;
        if state.is_over || nth == state.all.len() {
            return None;
        }
        state.begun += 1;
        state.all[nth].at_work = true;
        let lower = nth.checked_sub(1).map(|before| self.cuts[before].clone());
        Some(Subcompaction { nth, lower, upper: self.cuts.get(nth).cloned() })
    }

    /// Returns whether a piece was abandoned, so that all must be.
    pub fn are_over(&self) -> bool {
        lock(&self.state).is_over
    }

    /// Records the bytes written by a piece. Returns the sum of all pieces.
    pub fn wrote(&self, piece: &Subcompaction, written_bytes: u64) -> u64 {
        let mut state = lock(&self.state);
        state.all[piece.nth].written_bytes = written_bytes;
        state.all.iter().map(|one| one.written_bytes).sum()
    }

    /// Records the files created by a piece. Returns those of all pieces.
    pub fn created(&self, piece: &Subcompaction, created: Vec<Created>) -> Vec<Created> {
        let mut state = lock(&self.state);
        state.all[piece.nth].created = created;
        state.all.iter().flat_map(|one| one.created.iter().cloned()).collect()
    }

    /// Ends a merged piece with these files.
    pub fn end(&self, piece: Subcompaction, merged: Merged, created: Vec<Created>) -> Ended {
        let mut state = lock(&self.state);
        let one = &mut state.all[piece.nth];
        *one = One { at_work: false, created, merged: Some(merged), ..std::mem::take(one) };
        let goes_on = state.begun < state.all.len() || state.all.iter().any(|one| one.at_work);
        if state.is_over {
            return Ended::Over;
        }
        if goes_on {
            return Ended::More;
        }
        let created = state.all.iter_mut().flat_map(|one| std::mem::take(&mut one.created)).collect();
        let merged = state.all.iter_mut().map(|one| one.merged.take().unwrap_or_default());
        Ended::All(merged.collect(), created)
    }

    /// Abandons the compaction, including the caller's piece with its files. Returns the files to
    /// remove: those of all pieces without a job.
    pub fn leave(&self, piece: Option<(Subcompaction, Vec<Created>)>) -> Vec<Created> {
        let mut state = lock(&self.state);
        state.is_over = true;
        if let Some((piece, created)) = piece {
            let one = &mut state.all[piece.nth];
            (one.at_work, one.created) = (false, created);
        }
        state
            .all
            .iter_mut()
            .filter(|one| !one.at_work)
            .flat_map(|one| std::mem::take(&mut one.created))
            .collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
