//! The pieces of one compaction: which wait, which are being merged, and what came of them.
//!
//! ```text
//! waiting --next--> at work --end--> merged     the last one to end gets all that was merged, and installs it
//!                      \-----leave-> over       from then on none begins, and whoever is at work leaves as well
//! ```
//!
//! A job works on one piece after the other, as long as there are any. So there is a job as long as there is a piece that is not
//! merged, and who gives up, and when, needs no more than this: who leaves takes along the files of all pieces that nobody is at,
//! and each file is removed by one, after its last writer.
//!
//! Invariants: a piece is at work in one job; no piece begins after one was left; what is installed is all of them, in the order of keys.

use crate::tree::retained::WrittenTable;
use base::sync::{Mutex, lock, rank};
use lsm::MergeOutput;
use std::path::PathBuf;
use version::VsstMeta;

/// A file that was begun: number and path.
pub(super) type Created = (u64, PathBuf);

/// A piece to be merged.
pub(super) struct Piece {
    nth: usize,
    /// From this user key on; `None`: from the first.
    pub lower: Option<Vec<u8>>,
    /// Up to that one, which is not part of it; `None`: to the last.
    pub upper: Option<Vec<u8>>,
}

/// What came of a piece.
#[derive(Default)]
pub(super) struct Merged {
    pub outputs: Vec<MergeOutput<WrittenTable>>,
    pub vssts: Vec<VsstMeta>,
}

/// What is left to do when a piece has ended.
pub(super) enum Ended {
    /// Others are at work, or wait.
    More,
    /// It was the last: everything, in the order of keys, and the files, which are who ended it's from now on.
    All(Vec<Merged>, Vec<Created>),
    /// Another piece has failed. Whoever has ended leaves.
    Over,
}

/// See the module.
pub(super) struct Pieces {
    /// Where one ends and the next begins.
    cuts: Vec<Vec<u8>>,
    /// Guards how far each has come, and who owns its files.
    state: Mutex<State, rank::CompactionPieces>,
}

struct State {
    /// All, in the order of keys.
    all: Vec<One>,
    /// The first so many have begun.
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
    /// Cut at these user keys, which ascend.
    pub fn new(cuts: Vec<Vec<u8>>) -> Pieces {
        let all = (0..=cuts.len()).map(|_| One::default()).collect();
        Pieces { cuts, state: Mutex::new(State { all, begun: 0, is_over: false }) }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.cuts.len() + 1
    }

    /// One that nobody has begun, if there is any.
    pub fn next(&self) -> Option<Piece> {
        let mut state = lock(&self.state);
        let nth = state.begun;
        if state.is_over || nth == state.all.len() {
            return None;
        }
        state.begun += 1;
        state.all[nth].at_work = true;
        let lower = nth.checked_sub(1).map(|before| self.cuts[before].clone());
        Some(Piece { nth, lower, upper: self.cuts.get(nth).cloned() })
    }

    /// A piece was left: so should the others be.
    pub fn are_over(&self) -> bool {
        lock(&self.state).is_over
    }

    /// A piece has written so much by now. What all have written.
    pub fn wrote(&self, piece: &Piece, written_bytes: u64) -> u64 {
        let mut state = lock(&self.state);
        state.all[piece.nth].written_bytes = written_bytes;
        state.all.iter().map(|one| one.written_bytes).sum()
    }

    /// A piece has begun these files by now. Those of all.
    pub fn created(&self, piece: &Piece, created: Vec<Created>) -> Vec<Created> {
        let mut state = lock(&self.state);
        state.all[piece.nth].created = created;
        state.all.iter().flat_map(|one| one.created.iter().cloned()).collect()
    }

    /// A piece is merged, into these files.
    pub fn end(&self, piece: Piece, merged: Merged, created: Vec<Created>) -> Ended {
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

    /// Nothing comes of it. If a piece was at work, it is no more, and has begun these files. Those that go now: of all pieces that
    /// nobody works on.
    pub fn leave(&self, piece: Option<(Piece, Vec<Created>)>) -> Vec<Created> {
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
