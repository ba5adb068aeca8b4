//! Many point reads at once: what all of them need next is read together.
//!
//! The keys are looked up in their order, each once, at most [`WAVE_MAX`] at a time. Each goes as far as it comes without a
//! read; what they stopped for is one round of reads, in the order of files and places, and once it is there they go on. A
//! value in a vSST whose index is cached takes one round, however many keys there are. It is the path of a single read, step
//! for step ([`GetOp`]), so the answers are the same, errors included, and the error of one key is its own.

use crate::read::fetch::Content;
use crate::read::read_path::{GetOp, Value, book};
use crate::read::wanted::read_wanted;
use crate::tree::Tree;
use crate::tree::family::ReadState;
use base::{Result, SeqNo};
use std::ops::Deref;
use std::sync::Arc;
use table::{Fetched, Source, Stopped, Want};

/// Keys that are looked up at the same time, and so reads in flight.
pub(crate) const WAVE_MAX: usize = 256;

/// The answer for one key, in which a large value is found, but not read yet.
pub(crate) type Answer = Result<Option<Content>>;

/// See the module. As [`GetOp`] it may borrow tree and keys, or own them.
pub(crate) struct MultiGetOp<T, K> {
    tree: T,
    pinned: (Arc<ReadState>, SeqNo),
    fill_cache: bool,
    keys: Vec<K>,
    /// For each key where the first that is the same stands, which is the one looked up.
    same_as: Vec<usize>,
    /// Those that are to be looked up still, the next last.
    left: Vec<usize>,
    wave: Vec<(usize, GetOp<T, K>)>,
    fetched: Fetched,
    answers: Vec<Answer>,
}

impl<T: Deref<Target = Tree> + Clone, K: Deref<Target = [u8]> + Clone> MultiGetOp<T, K> {
    /// A read of `keys` in what `pinned` shows.
    pub fn new(tree: T, pinned: (Arc<ReadState>, SeqNo), keys: Vec<K>, fill_cache: bool) -> Self {
        let mut order: Vec<usize> = (0..keys.len()).collect();
        // Stable: the first of several that are the same comes first.
        order.sort_by(|&a, &b| keys[a].cmp(&keys[b]));
        let mut same_as = vec![0; keys.len()];
        for same in order.chunk_by(|&a, &b| *keys[a] == *keys[b]) {
            same.iter().for_each(|&nth| same_as[nth] = same[0]);
        }
        order.retain(|&nth| same_as[nth] == nth);
        order.reverse();
        let answers = keys.iter().map(|_| Ok(None)).collect();
        let fetched = Fetched::default();
        MultiGetOp {
            tree,
            pinned,
            fill_cache,
            keys,
            same_as,
            left: order,
            wave: Vec::new(),
            fetched,
            answers,
        }
    }

    /// Goes on as far as it comes without a read. What it wants read next, in the order of files and places, each once;
    /// nothing: all is answered.
    pub fn step(&mut self) -> Vec<Want> {
        loop {
            if self.wave.is_empty() {
                self.fetched.clear();
                let next = self.left.len().saturating_sub(WAVE_MAX)..;
                let (tree, pinned, keys) = (&self.tree, &self.pinned, &self.keys);
                let begin = |nth: usize| {
                    (nth, GetOp::new(tree.clone(), pinned.clone(), keys[nth].clone(), self.fill_cache))
                };
                self.wave = self.left.drain(next).rev().map(begin).collect();
            }
            let (fetched, answers) = (&mut self.fetched, &mut self.answers);
            self.wave.retain_mut(|(nth, get)| match get.advance(fetched) {
                Err(Stopped::Wanting) => true,
                Err(Stopped::Failed(e)) => {
                    answers[*nth] = Err(e);
                    false
                }
                Ok(found) => {
                    answers[*nth] = Ok(found);
                    false
                }
            });
            let mut wanted = fetched.take_wanted();
            if !wanted.is_empty() {
                wanted.sort_unstable_by_key(|want| want.extent);
                wanted.dedup_by_key(|want| want.extent);
                return wanted;
            }
            if self.left.is_empty() {
                return Vec::new();
            }
        }
    }

    /// Takes what was read.
    pub fn fetched(&mut self) -> &mut Fetched {
        &mut self.fetched
    }

    /// The answers, in the order of the keys. Only once a step wanted nothing.
    pub fn finish(mut self) -> Vec<Answer> {
        debug_assert!(self.wave.is_empty() && self.left.is_empty(), "there are keys left");
        for nth in 0..self.answers.len() {
            let first = self.same_as[nth];
            if first != nth {
                self.answers[nth] = self.answers[first].clone();
            }
        }
        let found = self.answers.iter().filter(|answer| matches!(answer, Ok(Some(_)))).count();
        let (gets, stats) = (self.answers.len() as u64, &self.tree.context.stats);
        book(stats, gets, found as u64, self.fetched.counters());
        self.answers
    }
}

/// Reads to the end, and the values, whatever their lengths.
pub(crate) fn run(
    tree: &Tree,
    pinned: (Arc<ReadState>, SeqNo),
    keys: Vec<&[u8]>,
    fill_cache: bool,
) -> Vec<Result<Option<Value>>> {
    let mut op = MultiGetOp::new(tree, pinned, keys, fill_cache);
    loop {
        let wanted = op.step();
        if wanted.is_empty() {
            break;
        }
        read_wanted(op.fetched(), &wanted);
    }
    op.finish().into_iter().map(|answer| answer?.map(Content::into_value).transpose()).collect()
}
