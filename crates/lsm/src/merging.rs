//! The merging iterator: merges many sorted children into one sorted cursor.
//!
//! The child with the smallest key (largest, when moving backward) is kept apart from a binary heap
//! of the other children. While the same child stays first, a step costs one comparison; otherwise
//! it changes places with the root of the heap and sinks. Each child's key is copied into its own
//! buffer when the child moves. So comparisons make no virtual calls, and nothing is allocated once
//! the buffers have grown.
//!
//! Children are given newest first. Entries with equal internal keys come out in the order of the
//! children, and in reverse order when moving backward, so both directions visit the same sequence.
//!
//! A child that fails and knows its gap ([`Gap`]) is positioned at the start of the gap, like at an
//! entry. The iterator fails when it reaches that position, so entries of other children before the
//! gap are not lost. The caller may continue after the gap.
//!
//! For scans that read in batches ([`MergingIterator::reading_together`]), a seek reads the first
//! blocks of all cursors together. Before the cursors move, each one either has the index part and
//! then the block of the seek in memory, or reports which one is missing ([`Cursor::prepare`]). The
//! missing blocks of all cursors form one batch of reads, so a seek waits for at most two batches,
//! however many tables there are. Then the cursors move as usual. A failed read is repeated there,
//! and reports its error in order.
//!
//! If the caller performs the reads (`table::KsstIter::each_fetched`), a child that waits for a
//! block is positioned where that block begins, like a failed child. The other children continue up
//! to there. The iterator waits when it reaches that position; then all waiting children resume
//! together ([`InternalIterator::resume`]), each from where it stopped.
//!
//! A change of direction repositions every other child by a seek around the current key. It costs
//! as much as a seek of the whole iterator, once for each turn, not for each step.

use crate::cursor::Cursor;
use crate::gap::meeting_point;
use base::key::TRAILER_LEN;
use base::{Error, Gap, InternalIterator, Result};
use std::cmp::Ordering;
use table::{BlockRequest, Extent, FetchedBlocks, SeekTarget};

/// Direction of the last move, which decides the order of the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// Reads blocks for several cursors in one batch.
pub trait ReadTogether: Send {
    /// Reads `wants`, which ascend by file and offset, and stores the results in `fetched`.
    fn read(&self, fetched: &mut FetchedBlocks, wants: &[BlockRequest]);
}

/// Maximum number of read batches before a seek: for the index, the block, and the block alone if
/// its neighbors are unreadable.
const BATCHES_MAX: usize = 4;
/// Maximum bytes of a batch, unless a single read is longer. The remaining blocks are read when
/// their cursors move.
const BATCH_BYTES_MAX: u64 = 8 << 20;

/// Batched reads for several cursors.
struct Together {
    reads: Box<dyn ReadTogether>,
    fetched: FetchedBlocks,
}

impl Together {
    /// Reads the missing blocks. Returns false if no block is missing.
    fn bring(&mut self) -> bool {
        let mut wants = self.fetched.take_wanted();
        if wants.is_empty() {
            return false;
        }
        wants.sort_unstable_by_key(|want| want.extent);
        wants.dedup_by_key(|want| want.extent);
        let mut bytes = 0;
        let fits = |want: &&BlockRequest| {
            bytes += want.extent.len;
            bytes <= BATCH_BYTES_MAX
        };
        let count = wants.iter().take_while(fits).count().max(1);
        self.reads.read(&mut self.fetched, &wants[..count]);
        true
    }
}

struct Child {
    iter: Cursor,
    /// Current key of the child; meaningless while the child is not valid.
    key: Vec<u8>,
    /// Error and gap of a child that is positioned before a gap.
    failed: Option<Box<(Error, Gap)>>,
}

impl Child {
    /// Copies the key of a valid child. Returns true if the child is valid.
    #[inline]
    fn load(&mut self) -> bool {
        if self.failed.is_some() {
            return true;
        }
        if !self.iter.valid() {
            return false;
        }
        self.key.clear();
        self.key.extend_from_slice(self.iter.key());
        true
    }

    /// Moves the child forward. Returns true if it is valid then.
    #[inline]
    fn advance(&mut self) -> Result<bool> {
        match self.iter.next_key() {
            Ok(Some(key)) => {
                self.key.clear();
                self.key.extend_from_slice(key);
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(e) => self.settle(Err(e), Direction::Forward).map(|()| true),
        }
    }

    /// Handles the result of a move: positions a failed child that knows its gap at the gap.
    fn settle(&mut self, moved: Result<()>, direction: Direction) -> Result<()> {
        self.failed = None;
        let Err(e) = moved else { return Ok(()) };
        let Some(gap) = self.iter.gap() else { return Err(e) };
        meeting_point(&gap, direction == Direction::Forward, &mut self.key);
        self.failed = Some(Box::new((e, gap)));
        Ok(())
    }
}

/// Merges sorted children into one sorted cursor: see the module.
pub struct MergingIterator {
    children: Vec<Child>,
    /// Valid children other than the current one, as a binary heap in the order of `direction`.
    heap: Vec<usize>,
    /// Index of the child with the current entry.
    current: Option<usize>,
    direction: Direction,
    /// Batched reads for seeks; `None`: each cursor reads for itself.
    together: Option<Together>,
    /// Gap of the last failure.
    gap: Option<Gap>,
    /// Blocks requested from the caller and not delivered yet, each with the number of the
    /// requesting part.
    wanted: Vec<(Extent, usize)>,
}

impl MergingIterator {
    /// Merges `children`, newest first.
    pub fn new(children: Vec<Box<dyn InternalIterator>>) -> Self {
        Self::over(children.into_iter().map(Cursor::Any).collect())
    }

    /// Merges `cursors`, newest first.
    pub fn over(cursors: Vec<Cursor>) -> Self {
        let children: Vec<Child> = cursors
            .into_iter()
            .map(|iter| Child { iter, key: Vec::with_capacity(64), failed: None })
            .collect();
        let heap = Vec::with_capacity(children.len());
        let (current, direction) = (None, Direction::Forward);
        MergingIterator { children, heap, current, direction, together: None, gap: None, wanted: Vec::new() }
    }

    /// Returns the blocks that the cursors requested since the last call, if the caller performs
    /// the reads.
    pub fn take_wanted(&mut self) -> Vec<BlockRequest> {
        let (mut wants, mut part) = (Vec::new(), 0);
        let wanted = &mut self.wanted;
        let mut visit = |fetched: &mut FetchedBlocks| {
            let own = fetched.take_wanted();
            wanted.extend(own.iter().map(|want| (want.extent, part)));
            wants.extend(own);
            part += 1;
        };
        self.children.iter_mut().for_each(|child| child.iter.each_fetched(&mut visit));
        wants
    }

    /// Delivers a requested block to the parts that requested it, by calling `give`. The cursors
    /// must not have moved since the request.
    pub fn give(&mut self, extent: &Extent, give: &mut dyn FnMut(&mut FetchedBlocks)) {
        let takers: Vec<usize> =
            self.wanted.extract_if(.., |(e, _)| e == extent).map(|(_, part)| part).collect();
        let mut part = 0;
        let mut visit = |fetched: &mut FetchedBlocks| {
            if takers.contains(&part) {
                give(fetched);
            }
            part += 1;
        };
        self.children.iter_mut().for_each(|child| child.iter.each_fetched(&mut visit));
    }

    /// Returns the bytes of blocks that the caller read and the cursors hold.
    pub fn held_bytes(&self) -> u64 {
        self.children.iter().map(|child| child.iter.held_bytes()).sum()
    }

    /// Uses `reads` to read the blocks of a seek in batches, for all cursors together.
    pub fn reading_together(self, reads: Box<dyn ReadTogether>) -> Self {
        MergingIterator { together: Some(Together { reads, fetched: FetchedBlocks::default() }), ..self }
    }

    /// Loads the first blocks of a seek into memory for all children except `but`.
    fn prepare(&mut self, place: SeekTarget<'_>, but: Option<usize>) {
        let Some(together) = &mut self.together else { return };
        for _ in 0..BATCHES_MAX {
            let sought = self.children.iter_mut().enumerate().filter(|(i, _)| Some(*i) != but);
            sought.for_each(|(_, child)| child.iter.prepare(place, &mut together.fetched));
            if !together.bring() {
                break;
            }
        }
        together.fetched.clear();
    }

    /// Returns true if child `a` comes before child `b` in the current direction.
    #[inline]
    fn before(&self, a: usize, b: usize) -> bool {
        let order = compare(&self.children[a].key, &self.children[b].key).then_with(|| a.cmp(&b));
        match self.direction {
            Direction::Forward => order == Ordering::Less,
            Direction::Backward => order == Ordering::Greater,
        }
    }

    /// Sifts the entry at `at` down. The smaller of two children is chosen by arithmetic, because
    /// the branch would be mispredicted half of the time.
    fn sift_down(&mut self, mut at: usize) {
        let len = self.heap.len();
        let Some(&sinking) = self.heap.get(at) else { return };
        loop {
            let mut first = 2 * at + 1;
            if first + 1 < len {
                first += usize::from(self.before(self.heap[first + 1], self.heap[first]));
            } else if first >= len {
                break;
            }
            if !self.before(self.heap[first], sinking) {
                break;
            }
            self.heap[at] = self.heap[first];
            at = first;
        }
        self.heap[at] = sinking;
    }

    /// Makes the root of the heap the current child, or the iterator invalid if the heap is empty.
    fn pop(&mut self) {
        if self.heap.is_empty() {
            self.current = None;
            return;
        }
        self.current = Some(self.heap.swap_remove(0));
        self.sift_down(0);
    }

    /// Fails if the current child is positioned at a gap.
    #[inline]
    fn arrive(&mut self) -> Result<()> {
        match self.current.map(|current| &self.children[current].failed) {
            Some(Some(_)) => self.fail(),
            _ => Ok(()),
        }
    }

    #[cold]
    fn fail(&mut self) -> Result<()> {
        let failed =
            self.current.take().and_then(|current| self.children[current].failed.as_deref().cloned());
        let Some((error, gap)) = failed else { return Ok(()) };
        self.gap = Some(gap);
        Err(error)
    }

    /// Rebuilds the heap from the positions of the children.
    fn relocation(&mut self, direction: Direction) {
        self.direction = direction;
        self.heap.clear();
        for (i, child) in self.children.iter_mut().enumerate() {
            if child.load() {
                self.heap.push(i);
            }
        }
        for at in (0..self.heap.len() / 2).rev() {
            self.sift_down(at);
        }
        self.pop();
    }

    /// Positions every child, then rebuilds the heap.
    fn reposition(&mut self, place: SeekTarget<'_>) -> Result<()> {
        (self.current, self.gap) = (None, None);
        self.prepare(place, None);
        let direction = if place.is_forward() { Direction::Forward } else { Direction::Backward };
        for child in &mut self.children {
            let moved = seek(&mut *child.iter, place);
            child.settle(moved, direction)?;
        }
        self.relocation(direction);
        self.arrive()
    }

    /// Positions every child but `top` on its first entry after the current one (last before it,
    /// when turning backward), and rebuilds the heap for the other direction.
    fn turn(&mut self, top: usize, direction: Direction) -> Result<()> {
        self.current = None;
        let target = std::mem::take(&mut self.children[top].key);
        let place = match direction {
            Direction::Forward => SeekTarget::From(&target),
            Direction::Backward => SeekTarget::UpTo(&target),
        };
        self.prepare(place, Some(top));
        for (i, child) in self.children.iter_mut().enumerate().filter(|(i, _)| *i != top) {
            let moved = seek(&mut *child.iter, place);
            child.settle(moved, direction)?;
            if child.failed.is_some() {
                continue;
            }
            // An equal key of an older child comes after the current entry, that of a newer child
            // before it.
            if child.iter.valid() && child.iter.key() == target.as_slice() {
                let moved = match direction {
                    Direction::Forward if i < top => child.iter.next(),
                    Direction::Backward if i > top => child.iter.prev(),
                    _ => Ok(()),
                };
                child.settle(moved, direction)?;
            }
        }
        let child = &mut self.children[top];
        let moved = match direction {
            Direction::Forward => child.iter.next(),
            Direction::Backward => child.iter.prev(),
        };
        child.settle(moved, direction)?;
        self.relocation(direction);
        self.arrive()
    }

    #[inline]
    fn step(&mut self, direction: Direction) -> Result<()> {
        let top = self.current.expect("moved an iterator that is not valid");
        if self.direction != direction {
            return self.turn(top, direction);
        }
        let child = &mut self.children[top];
        let moved = match direction {
            Direction::Forward => child.advance(),
            Direction::Backward => {
                let moved = child.iter.prev();
                child.settle(moved, direction).map(|()| child.load())
            }
        };
        let valid = match moved {
            Ok(valid) => valid,
            Err(e) => {
                self.current = None;
                return Err(e);
            }
        };
        if !valid {
            self.pop();
        } else if let Some(&next) = self.heap.first()
            && self.before(next, top)
        {
            self.heap[0] = top;
            self.current = Some(next);
            self.sift_down(0);
        }
        self.arrive()
    }
}

impl InternalIterator for MergingIterator {
    fn valid(&self) -> bool {
        self.current.is_some()
    }
    fn seek_to_first(&mut self) -> Result<()> {
        self.reposition(SeekTarget::First)
    }
    fn seek_to_last(&mut self) -> Result<()> {
        self.reposition(SeekTarget::Last)
    }
    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.reposition(SeekTarget::From(target))
    }
    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        self.reposition(SeekTarget::UpTo(target))
    }
    fn resume(&mut self) -> Result<()> {
        (self.current, self.gap) = (None, None);
        let waits = |child: &&mut Child| child.failed.as_ref().is_some_and(|failed| failed.0.is_waiting());
        for child in self.children.iter_mut().filter(waits) {
            let moved = child.iter.resume();
            child.settle(moved, Direction::Forward)?;
        }
        self.relocation(Direction::Forward);
        self.arrive()
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        self.step(Direction::Forward)
    }
    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.step(Direction::Backward)
    }
    fn gap(&self) -> Option<Gap> {
        self.gap.clone()
    }
    #[inline]
    fn key(&self) -> &[u8] {
        &self.children[self.current.expect("key of an iterator that is not valid")].key
    }
    #[inline]
    fn value(&self) -> &[u8] {
        self.children[self.current.expect("value of an iterator that is not valid")].iter.value()
    }
}

fn seek(cursor: &mut dyn InternalIterator, place: SeekTarget<'_>) -> Result<()> {
    match place {
        SeekTarget::First => cursor.seek_to_first(),
        SeekTarget::Last => cursor.seek_to_last(),
        SeekTarget::From(target) => cursor.seek(target),
        SeekTarget::UpTo(target) => cursor.seek_for_prev(target),
    }
}

/// [`base::key::compare`], inlined: scans and compactions call it several times for every entry.
#[inline]
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    match (a.split_last_chunk::<TRAILER_LEN>(), b.split_last_chunk::<TRAILER_LEN>()) {
        (Some((a_user, a_trailer)), Some((b_user, b_trailer))) => a_user
            .cmp(b_user)
            .then_with(|| u64::from_le_bytes(*b_trailer).cmp(&u64::from_le_bytes(*a_trailer))),
        _ => base::key::compare(a, b),
    }
}

#[cfg(test)]
mod tests;
