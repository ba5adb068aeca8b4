//! A set of LSNs of a log, as runs of consecutive numbers with the bytes of their records.
//!
//! Nearly all LSNs are consecutive, so a file usually has one run of a log, which the set stores
//! without an allocation. Sets with gaps store packed runs: up to `RUNS_MAX` per chunk, each as the
//! preceding gap, its count and its bytes, all varints. The worst case, a set of single numbers,
//! takes about five bytes per number.
//!
//! A run has the total bytes of its records, not their single lengths. Whole runs count exactly.
//! LSNs removed from within a run count in proportion: each as the mean length of the run. The
//! parts of a run always add up to the run, so no error accumulates: a set that becomes empty has
//! given back every byte.
//!
//! Invariants: runs ascend, do not touch, and are not empty; no chunk is empty; a set of one run is
//! `Few::One`.

mod runs;

pub use runs::{Run, Size};

use crate::entry::Lsn;
use crate::limits::{LSN_MAX, RECORD_LEN_MAX};
use base::codec::{get_varint, put_varint};
use base::{Error, Result};
use std::fmt;
use std::ops::RangeInclusive;

/// Maximum number of runs in a chunk. A change re-encodes a whole chunk, so chunks are short.
const RUNS_MAX: usize = 64;

/// A set of LSNs of a log, with the bytes of their records.
#[derive(Clone, PartialEq, Eq)]
pub struct LsnSet(Few);

#[derive(Clone, PartialEq, Eq)]
enum Few {
    /// One run, with its fields inline, so that the compiler places its tag between them.
    One { first: Lsn, count: u32, bytes: u64 },
    /// No runs, or several. Boxed, which makes a set of one run smaller.
    #[allow(clippy::box_collection)]
    Many(Box<Vec<RunChunk>>),
}

/// A chunk of packed runs.
#[derive(Clone, PartialEq, Eq)]
struct RunChunk {
    first: Lsn,
    last: Lsn,
    size: Size,
    packed: Box<[u8]>,
}

impl RunChunk {
    fn new(runs: &[Run]) -> RunChunk {
        let (first, mut end) = (runs[0].first, runs[0].first);
        let (mut packed, mut size) = (Vec::with_capacity(8 * runs.len()), Size::default());
        for run in runs {
            put_varint(&mut packed, run.first - end);
            put_varint(&mut packed, u64::from(run.count));
            put_varint(&mut packed, run.bytes);
            end = run.last() + 1;
            size += run.size();
        }
        RunChunk { first, last: end - 1, size, packed: packed.into_boxed_slice() }
    }

    fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        let (mut end, mut rest) = (self.first, &self.packed[..]);
        std::iter::from_fn(move || {
            let mut next = || {
                let (value, len) = get_varint(rest)?;
                rest = rest.get(len..)?;
                Some(value)
            };
            let (gap, count, bytes) = (next()?, next()?, next()?);
            let run = Run { first: end + gap, count: count as u32, bytes };
            end = run.last() + 1;
            Some(run)
        })
    }

    fn memory_bytes(&self) -> usize {
        size_of::<RunChunk>() + self.packed.len()
    }
}

impl Default for LsnSet {
    fn default() -> Self {
        LsnSet(Few::Many(Box::default()))
    }
}

impl LsnSet {
    /// Creates an empty set.
    pub fn new() -> LsnSet {
        LsnSet::default()
    }

    /// Creates a set of ascending runs that do not touch.
    fn of(runs: &[Run]) -> LsnSet {
        match *runs {
            [Run { first, count, bytes }] => LsnSet(Few::One { first, count, bytes }),
            _ => LsnSet(Few::Many(Box::new(runs.chunks(RUNS_MAX).map(RunChunk::new).collect()))),
        }
    }

    /// Iterates over the runs, ascending.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        let (one, many) = match &self.0 {
            Few::One { first, count, bytes } => {
                (Some(Run { first: *first, count: *count, bytes: *bytes }), None)
            }
            Few::Many(pieces) => (None, Some(pieces)),
        };
        one.into_iter().chain(many.into_iter().flat_map(|pieces| pieces.iter().flat_map(RunChunk::runs)))
    }

    /// Iterates over the runs that end at or above `from`; the first may begin below it.
    pub fn runs_from(&self, from: Lsn) -> impl Iterator<Item = Run> + '_ {
        let (one, many): (_, &[RunChunk]) = match &self.0 {
            Few::One { first, count, bytes } => {
                (Some(Run { first: *first, count: *count, bytes: *bytes }), &[])
            }
            Few::Many(pieces) => (None, &pieces[pieces.partition_point(|piece| piece.last < from)..]),
        };
        let all = one.into_iter().chain(many.iter().flat_map(RunChunk::runs));
        all.skip_while(move |run| run.last() < from)
    }

    /// Returns true if the set has no LSN.
    pub fn is_empty(&self) -> bool {
        matches!(&self.0, Few::Many(pieces) if pieces.is_empty())
    }

    /// Returns the number of LSNs and the bytes of their records.
    pub fn size(&self) -> Size {
        match &self.0 {
            Few::One { count, bytes, .. } => Size { records: u64::from(*count), bytes: *bytes },
            Few::Many(pieces) => pieces.iter().map(|piece| piece.size).sum(),
        }
    }

    /// Returns the lowest LSN.
    pub fn first(&self) -> Option<Lsn> {
        match &self.0 {
            Few::One { first, .. } => Some(*first),
            Few::Many(pieces) => pieces.first().map(|piece| piece.first),
        }
    }

    /// Returns the highest LSN.
    pub fn last(&self) -> Option<Lsn> {
        match &self.0 {
            Few::One { first, count, .. } => Some(first + u64::from(count - 1)),
            Few::Many(pieces) => pieces.last().map(|piece| piece.last),
        }
    }

    /// Returns the highest LSN below `lsn`.
    pub fn last_below(&self, lsn: Lsn) -> Option<Lsn> {
        let before = |run: &Run| run.first < lsn;
        let last = match &self.0 {
            Few::One { first, .. } => (*first < lsn).then(|| self.runs().next()).flatten(),
            Few::Many(pieces) => {
                let at = pieces.partition_point(|piece| piece.first < lsn).checked_sub(1)?;
                pieces[at].runs().take_while(before).last()
            }
        };
        last.map(|run| run.last().min(lsn - 1))
    }

    /// Returns true if the set has this LSN.
    pub fn contains(&self, lsn: Lsn) -> bool {
        self.runs_from(lsn).next().is_some_and(|run| run.first <= lsn)
    }

    /// Removes the LSNs in a range. Returns the size of the removed records.
    pub fn remove(&mut self, range: RangeInclusive<Lsn>) -> Size {
        let (low, high) = range.into_inner();
        if low > high {
            return Size::default();
        }
        let before = self.size();
        match &mut self.0 {
            Few::One { first, count, bytes } => {
                let run = Run { first: *first, count: *count, bytes: *bytes };
                *self = LsnSet::of(&run.without(low, high).collect::<Vec<_>>());
            }
            Few::Many(pieces) => {
                let from = pieces.partition_point(|piece| piece.last < low);
                let to = pieces.partition_point(|piece| piece.first <= high);
                let met = from..to.max(from);
                let edges = pieces[met.clone()].iter().filter(|p| p.first < low || p.last > high);
                let kept: Vec<Run> =
                    edges.flat_map(RunChunk::runs).flat_map(|run| run.without(low, high)).collect();
                drop(pieces.splice(met, kept.chunks(RUNS_MAX).map(RunChunk::new)));
                if let [piece] = &pieces[..]
                    && let [run] = piece.runs().take(2).collect::<Vec<_>>()[..]
                {
                    *self = LsnSet::of(&[run]);
                }
            }
        }
        before - self.size()
    }

    /// Removes all LSNs below `lsn`.
    pub fn remove_below(&mut self, lsn: Lsn) -> Size {
        if lsn == 0 { Size::default() } else { self.remove(0..=lsn - 1) }
    }

    /// Removes all LSNs above `lsn`.
    pub fn remove_above(&mut self, lsn: Lsn) -> Size {
        if lsn >= LSN_MAX { Size::default() } else { self.remove(lsn + 1..=u64::MAX) }
    }

    /// Returns the LSNs in both sets, with the bytes of this set.
    pub fn intersection(&self, other: &LsnSet) -> LsnSet {
        let mut out = Builder::default();
        let mut others = other.runs().peekable();
        for run in self.runs() {
            while let Some(theirs) = others.peek() {
                out.push_in_order(run.between(theirs.first, theirs.last()));
                if theirs.last() >= run.last() {
                    break;
                }
                others.next();
            }
        }
        out.build()
    }

    /// Returns the allocated memory, without the size of the struct, bytes.
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Few::One { .. } => 0,
            Few::Many(pieces) => {
                let spare = pieces.capacity() - pieces.len();
                size_of::<Vec<RunChunk>>()
                    + spare * size_of::<RunChunk>()
                    + pieces.iter().map(RunChunk::memory_bytes).sum::<usize>()
            }
        }
    }
}

impl fmt::Debug for LsnSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.runs()).finish()
    }
}

/// Builds a set in ascending order.
#[derive(Debug, Default)]
pub struct Builder(Vec<Run>);

impl Builder {
    /// Adds a record.
    ///
    /// # Errors
    /// The errors of [`Builder::push_run`].
    pub fn push(&mut self, lsn: Lsn, len: u32) -> Result<()> {
        self.push_run(Run { first: lsn, count: 1, bytes: u64::from(len) })
    }

    /// Adds a run. Runs may touch.
    ///
    /// # Errors
    /// `Corruption` if the run is not above all earlier ones, is empty, exceeds the largest LSN, or
    /// has more bytes than its records can have.
    pub fn push_run(&mut self, run: Run) -> Result<()> {
        // The end fits the type, as the largest LSN is not the largest number.
        let end = run.first.checked_add(u64::from(run.count));
        if run.count == 0 || end.is_none() || run.bytes > u64::from(run.count) * RECORD_LEN_MAX as u64 {
            return Err(Error::corruption(format!(
                "a run of {} LSNs from {} with {} bytes is empty, passes the largest LSN, or has too many bytes",
                run.count, run.first, run.bytes
            )));
        }
        if let Some(last) = self.0.last().map(Run::last).filter(|last| *last >= run.first) {
            let why = format!("the LSNs of a log do not ascend: {} comes behind {last}", run.first);
            return Err(Error::corruption(why));
        }
        self.push_in_order(Some(run));
        Ok(())
    }

    fn push_in_order(&mut self, run: Option<Run>) {
        let Some(run) = run else { return };
        match self.0.last_mut() {
            Some(last) if last.last() + 1 == run.first && last.count.checked_add(run.count).is_some() => {
                last.count += run.count;
                last.bytes += run.bytes;
            }
            _ => self.0.push(run),
        }
    }

    /// Returns the set.
    pub fn build(self) -> LsnSet {
        LsnSet::of(&self.0)
    }
}

#[cfg(test)]
mod tests;
