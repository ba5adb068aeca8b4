//! Many point reads at once, with batched device reads.
//!
//! The keys are looked up in their order, each once, at most [`WAVE_MAX`] at a time. Each lookup
//! runs until it needs a device read. The blocking call then performs one round of reads for all of
//! them, in the order of files and offsets, and resumes the lookups. A value in a value file with a
//! cached index takes one round, whatever the number of keys.
//!
//! An asynchronous caller may resume sooner: a key continues as soon as its own data has arrived.
//! The lookups use the path of a single read ([`GetOp`]), so the answers and errors are the same,
//! and an error concerns only its own key.

use crate::read::fetch::Content;
use crate::read::read_path::{GetOp, Value, book};
use crate::read::wanted::read_wanted;
use crate::tree::Tree;
use crate::tree::family::ReadState;
use base::{HashMap, Result, SeqNo};
use std::ops::Deref;
use std::sync::Arc;
use table::{BlockRequest, Extent, FetchedBlocks, Source, Stopped};

/// Keys that are looked up at the same time, and so the reads in flight.
pub(crate) const WAVE_MAX: usize = 256;

/// The answer for one key. A large value is located, but not read yet.
pub(crate) type Answer = Result<Option<Content>>;

/// A multi-get in progress: see the module. As [`GetOp`] it borrows tree and keys, or owns them.
pub(crate) struct MultiGetOp<T, K> {
    tree: T,
    pinned: (Arc<ReadState>, SeqNo),
    fill_cache: bool,
    keys: Vec<K>,
    /// For each key the index of its first duplicate, which is looked up in its place.
    same_as: Vec<usize>,
    /// Indexes of the keys not yet looked up, the next one last.
    left: Vec<usize>,
    /// Lookups in progress; `None`: answered.
    wave: Vec<Option<Lookup<T, K>>>,
    /// Number of unanswered lookups in the wave.
    open: usize,
    /// Indexes in the wave of the lookups that can continue.
    ready: Vec<usize>,
    /// Indexes in the wave of the lookups that need to block and may not.
    held_up: Vec<usize>,
    /// Outstanding reads, and the indexes in the wave of the lookups that wait for each.
    waiting: HashMap<Extent, Vec<usize>>,
    fetched: FetchedBlocks,
    answers: Vec<Answer>,
}

/// The lookup of one key.
struct Lookup<T, K> {
    nth: usize,
    get: GetOp<T, K>,
    /// Number of its outstanding reads.
    missing: usize,
}

impl<T: Deref<Target = Tree> + Clone, K: Deref<Target = [u8]> + Clone> MultiGetOp<T, K> {
    /// Creates a read of `keys` in a pinned read state.
    pub fn new(tree: T, pinned: (Arc<ReadState>, SeqNo), keys: Vec<K>, fill_cache: bool) -> Self {
        let mut order: Vec<usize> = (0..keys.len()).collect();
        // A stable sort keeps the first of several duplicates first.
        order.sort_by(|&a, &b| keys[a].cmp(&keys[b]));
        let mut same_as = vec![0; keys.len()];
        for same in order.chunk_by(|&a, &b| *keys[a] == *keys[b]) {
            same.iter().for_each(|&nth| same_as[nth] = same[0]);
        }
        order.retain(|&nth| same_as[nth] == nth);
        order.reverse();
        let answers = keys.iter().map(|_| Ok(None)).collect();
        let fetched = FetchedBlocks::default();
        MultiGetOp {
            tree,
            pinned,
            fill_cache,
            keys,
            same_as,
            left: order,
            wave: Vec::new(),
            open: 0,
            ready: Vec::new(),
            held_up: Vec::new(),
            waiting: HashMap::default(),
            fetched,
            answers,
        }
    }

    /// Runs the lookups until they need device reads. Returns the new reads in the order of files
    /// and offsets, each once. The result is empty in three cases. All keys are answered
    /// ([`MultiGetOp::is_done`]); or earlier reads are outstanding; or a lookup needs to block or
    /// take long and may not ([`FetchedBlocks::set_may_block`]).
    pub fn step(&mut self) -> Vec<BlockRequest> {
        let mut wanted = Vec::new();
        // A lookup that may not block retries when no other can continue.
        if self.fetched.may_block() || self.waiting.is_empty() {
            self.ready.append(&mut self.held_up);
        }
        let mut begun = 0;
        loop {
            // Lookups without a read may be many: a caller that may not block gets control back
            // after one wave.
            if self.open == 0 && (begun > 0 && !self.fetched.may_block() || !self.begin_wave()) {
                break;
            }
            begun += 1;
            let mut ready = std::mem::take(&mut self.ready);
            ready.sort_unstable();
            ready.into_iter().for_each(|at| self.advance(at, &mut wanted));
            if self.open > 0 {
                break;
            }
        }
        wanted.sort_unstable_by_key(|want: &BlockRequest| want.extent);
        wanted
    }

    /// Starts the next lookups. Returns false if there are no more keys.
    fn begin_wave(&mut self) -> bool {
        self.fetched.clear();
        let next = self.left.len().saturating_sub(WAVE_MAX)..;
        let (tree, pinned, keys) = (&self.tree, &self.pinned, &self.keys);
        let begin = |nth: usize| {
            let get = GetOp::new(tree.clone(), pinned.clone(), keys[nth].clone(), self.fill_cache);
            Some(Lookup { nth, get, missing: 0 })
        };
        self.wave = self.left.drain(next).rev().map(begin).collect();
        self.open = self.wave.len();
        self.ready = (0..self.open).collect();
        self.open > 0
    }

    /// Runs a lookup until its answer or its next read.
    fn advance(&mut self, at: usize, wanted: &mut Vec<BlockRequest>) {
        let Some(lookup) = self.wave.get_mut(at).and_then(Option::as_mut) else { return };
        let answer = match lookup.get.advance(&mut self.fetched) {
            Ok(found) => Ok(found),
            Err(Stopped::Failed(e)) => Err(e),
            Err(Stopped::Wanting) => {
                let own = self.fetched.take_wanted();
                lookup.missing = own.len();
                if own.is_empty() {
                    self.held_up.push(at);
                }
                for want in own {
                    let waiters = self.waiting.entry(want.extent).or_default();
                    waiters.push(at);
                    if waiters.len() == 1 {
                        wanted.push(want);
                    }
                }
                return;
            }
        };
        self.answers[lookup.nth] = answer;
        self.wave[at] = None;
        self.open -= 1;
    }

    /// True if every key is answered.
    pub fn is_done(&self) -> bool {
        self.open == 0 && self.left.is_empty()
    }

    /// Returns the number of keys not yet looked up. Data handed over is kept while it does not
    /// change.
    pub fn keys_left(&self) -> usize {
        self.left.len()
    }

    /// Drops all data handed over and all outstanding reads: the next step requests them again.
    /// Data of earlier requests must not be handed over after this.
    pub fn let_go(&mut self) {
        self.fetched.clear();
        self.waiting.clear();
        self.held_up.clear();
        self.ready = (0..self.wave.len()).filter(|&at| self.wave[at].is_some()).collect();
    }

    /// Returns the data that the reads have brought, and their cost.
    pub fn fetched(&mut self) -> &mut FetchedBlocks {
        &mut self.fetched
    }

    /// Resumes the lookups that waited for a read.
    pub fn arrived(&mut self, want: &BlockRequest) {
        for at in self.waiting.remove(&want.extent).unwrap_or_default() {
            let Some(Some(lookup)) = self.wave.get_mut(at) else { continue };
            lookup.missing -= 1;
            if lookup.missing == 0 {
                self.ready.push(at);
            }
        }
    }

    /// Returns the answers in the order of the keys. Call it once all keys are answered.
    pub fn finish(mut self) -> Vec<Answer> {
        debug_assert!(self.is_done(), "there are keys left");
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

/// Reads all keys with their values of any length.
pub(crate) fn run(
    tree: &Tree,
    pinned: (Arc<ReadState>, SeqNo),
    keys: Vec<&[u8]>,
    fill_cache: bool,
) -> Vec<Result<Option<Value>>> {
    let mut op = MultiGetOp::new(tree, pinned, keys, fill_cache);
    loop {
        let wanted = op.step();
        if op.is_done() {
            break;
        }
        read_wanted(op.fetched(), &wanted);
        wanted.iter().for_each(|want| op.arrived(want));
    }
    op.finish().into_iter().map(|answer| answer?.map(Content::into_value).transpose()).collect()
}
