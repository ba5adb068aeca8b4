//! Many point reads at once: what all of them need next is read together.
//!
//! The keys are looked up in their order, each once, at most [`WAVE_MAX`] at a time. Each goes as far as it comes without a
//! read. What the blocking call's keys stopped for is one round of reads, in the order of files and places, and once it is there they go
//! on: a value in a vSST whose index is cached takes one round, however many keys there are. Who has the reads in flight may go on
//! sooner: a key goes on as soon as there is what it wants itself, whatever others wait for. It is the path of a single read, step
//! for step ([`GetOp`]), so the answers are the same, errors included, and the error of one key is its own.

use crate::read::fetch::Content;
use crate::read::read_path::{GetOp, Value, book};
use crate::read::wanted::read_wanted;
use crate::tree::Tree;
use crate::tree::family::ReadState;
use base::{HashMap, Result, SeqNo};
use std::ops::Deref;
use std::sync::Arc;
use table::{Extent, Fetched, Source, Stopped, Want};

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
    /// Those that are looked up now; `None`: answered.
    wave: Vec<Option<Lookup<T, K>>>,
    /// Of the wave, how many are not answered.
    open: usize,
    /// Of the wave, those that can go on.
    ready: Vec<usize>,
    /// Of the wave, those that have to block and may not.
    held_up: Vec<usize>,
    /// What is wanted and was not handed over, and who of the wave waits for it.
    waiting: HashMap<Extent, Vec<usize>>,
    fetched: Fetched,
    answers: Vec<Answer>,
}

/// A key that is looked up.
struct Lookup<T, K> {
    nth: usize,
    get: GetOp<T, K>,
    /// How much it wants that was not handed over.
    missing: usize,
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
            open: 0,
            ready: Vec::new(),
            held_up: Vec::new(),
            waiting: HashMap::default(),
            fetched,
            answers,
        }
    }

    /// Goes on as far as it comes without a read. What it wants read next and has not wanted before, in the order of files and places,
    /// each once. Nothing: all is answered ([`MultiGetOp::is_done`]), or what it wanted before was not handed over, or it has to block or
    /// would take long, and may not ([`Fetched::set_may_block`]).
    pub fn step(&mut self) -> Vec<Want> {
        let mut wanted = Vec::new();
        // Who may not block asks again when there is nothing else to do.
        if self.fetched.may_block() || self.waiting.is_empty() {
            self.ready.append(&mut self.held_up);
        }
        let mut begun = 0;
        loop {
            // Of what takes no read there may be much: who may not block is not kept for more than a wave.
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
        wanted.sort_unstable_by_key(|want: &Want| want.extent);
        wanted
    }

    /// False if there are no more keys.
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

    /// A key goes on.
    fn advance(&mut self, at: usize, wanted: &mut Vec<Want>) {
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

    /// How many keys are not looked up yet: as long as it stays the same, what was read is kept.
    pub fn keys_left(&self) -> usize {
        self.left.len()
    }

    /// Forgets what was wanted and handed over: the next step wants it again. Nothing may be handed over that was wanted before.
    pub fn let_go(&mut self) {
        self.fetched.clear();
        self.waiting.clear();
        self.held_up.clear();
        self.ready = (0..self.wave.len()).filter(|&at| self.wave[at].is_some()).collect();
    }

    /// What the reads have brought and cost.
    pub fn fetched(&mut self) -> &mut Fetched {
        &mut self.fetched
    }

    /// What was wanted is there: who waited for it may go on.
    pub fn arrived(&mut self, want: &Want) {
        for at in self.waiting.remove(&want.extent).unwrap_or_default() {
            let Some(Some(lookup)) = self.wave.get_mut(at) else { continue };
            lookup.missing -= 1;
            if lookup.missing == 0 {
                self.ready.push(at);
            }
        }
    }

    /// The answers, in the order of the keys. Only once a step wanted nothing.
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
        if op.is_done() {
            break;
        }
        read_wanted(op.fetched(), &wanted);
        wanted.iter().for_each(|want| op.arrived(want));
    }
    op.finish().into_iter().map(|answer| answer?.map(Content::into_value).transpose()).collect()
}
