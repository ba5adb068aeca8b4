//! The parts of a log in LSN order, for a fast look-up among thousands.
//!
//! Parts are ordered by the lowest LSN of their files ([`RecordsInFile::low`]), which never changes
//! and is a lower bound of the live LSNs. Each part has a *reach*: an upper bound of the LSNs of
//! this part and all parts before it. Reaches ascend as well, so two binary searches find the parts
//! that may overlap a range. Records of a log usually arrive in LSN order, so parts hardly overlap,
//! and few parts are examined in vain. With records out of order, the parts in between are examined
//! as well.
//!
//! A log may have a hundred thousand parts, and every access holds a lock of all logs. So the work
//! of an operation is bounded by its result. Sums are maintained incrementally. Removing parts at
//! the front moves no others. A trim of many parts removes some at a time ([`Parts::cut_below`]). A
//! truncation of many parts detaches them, moving the remaining parts if these are fewer. The
//! ledger then drops the detached parts some at a time ([`Detached::cut`]).
//!
//! Invariants: `size` and `heap_bytes` are the sums over all parts. Parts are ordered by `low`.
//! Reaches ascend, and none is below the last LSN of its part; a reach may exceed all LSNs after
//! the highest are removed. No part is empty.

use super::RecordsInFile;
use crate::entry::{Lsn, Source};
use crate::ledger::Ledger;
use crate::lsn_set::Size;
use base::SeqNo;
use std::collections::VecDeque;
use std::ops::{Range, RangeInclusive};

#[derive(Clone, Debug)]
struct Placed {
    part: RecordsInFile,
    reach: Lsn,
}

impl Placed {
    fn last(&self) -> Lsn {
        self.part.set().last().unwrap_or_default()
    }
}

/// Returns the size of the live records of some parts, and the memory that they allocate.
fn sums(placed: &VecDeque<Placed>) -> (Size, usize) {
    let size = placed.iter().map(|placed| placed.part.set().size()).sum();
    (size, placed.iter().map(|placed| placed.part.memory_bytes()).sum())
}

/// Truncated parts, out of reach of any look-up.
#[derive(Clone, Debug, Default)]
pub(super) struct Detached(VecDeque<Placed>);

impl Detached {
    /// Returns true if no part is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes at most `limit` parts from the ledger, and reduces `limit` by their number.
    pub fn cut(&mut self, limit: &mut usize, ledger: &mut Ledger) {
        let count = self.0.len().min(*limit);
        *limit -= count;
        for placed in self.0.drain(..count) {
            ledger.lose(placed.part.source(), placed.part.set().size());
        }
    }

    /// Returns the allocated memory, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.0.capacity() * size_of::<Placed>()
    }
}

/// The parts of a log in LSN order.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    placed: VecDeque<Placed>,
    /// Live records of all parts.
    size: Size,
    /// Memory that the parts allocate, without their own sizes, bytes.
    heap_bytes: usize,
    /// Upper bound of the sequence numbers of all parts ever added.
    newest: SeqNo,
}

impl Parts {
    /// Iterates over all parts, ordered by their lowest LSNs when written.
    pub fn iter(&self) -> impl Iterator<Item = &RecordsInFile> + '_ {
        self.placed.iter().map(|placed| &placed.part)
    }

    /// Returns the size of the live records.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Returns the positions of the parts that may overlap a range.
    fn near(&self, range: &RangeInclusive<Lsn>) -> Range<usize> {
        let start = self.placed.partition_point(|placed| placed.reach < *range.start());
        let end = self.placed.partition_point(|placed| placed.part.low() <= *range.end());
        start..end.max(start)
    }

    /// Iterates over the parts with LSNs at or above `from`.
    pub fn from(&self, from: Lsn) -> impl Iterator<Item = &RecordsInFile> + '_ {
        let near = self.near(&(from..=Lsn::MAX));
        let near = self.placed.range(near).map(|placed| &placed.part);
        near.filter(move |part| part.set().last() >= Some(from))
    }

    /// Returns the part with an LSN.
    pub fn of(&self, lsn: Lsn) -> Option<&RecordsInFile> {
        let near = self.placed.range(self.near(&(lsn..=lsn))).rev();
        near.map(|placed| &placed.part).find(|part| part.set().contains(lsn))
    }

    fn position(&self, source: Source, low: Lsn) -> Option<usize> {
        let from = self.placed.partition_point(|placed| placed.part.low() < low);
        let same = self.placed.range(from..).take_while(|placed| placed.part.low() == low);
        same.map(|placed| placed.part.source()).position(|other| other == source).map(|at| from + at)
    }

    /// Returns the part of a file whose lowest LSN of the log was `low`.
    pub fn of_file(&self, source: Source, low: Lsn) -> Option<&RecordsInFile> {
        Some(&self.placed.get(self.position(source, low)?)?.part)
    }

    /// Removes and returns the part of a file.
    pub fn take(&mut self, source: Source, low: Lsn) -> Option<RecordsInFile> {
        let at = self.position(source, low)?;
        let part = self.placed.remove(at)?.part;
        self.size -= part.set().size();
        self.heap_bytes -= part.memory_bytes();
        self.renew(at..at);
        Some(part)
    }

    /// Returns the lowest LSN.
    pub fn first(&self) -> Option<Lsn> {
        let mut least = None;
        for part in self.iter() {
            if least.is_some_and(|least| least <= part.low()) {
                break;
            }
            least = [least, part.set().first()].into_iter().flatten().min();
        }
        least
    }

    /// Returns the highest LSN.
    pub fn last(&self) -> Option<Lsn> {
        let mut most = None;
        for placed in self.placed.iter().rev() {
            if most >= Some(placed.reach) {
                break;
            }
            most = most.max(placed.part.set().last());
        }
        most
    }

    /// Returns the highest LSN below `lsn`.
    pub fn last_below(&self, lsn: Lsn) -> Option<Lsn> {
        let end = self.placed.partition_point(|placed| placed.part.low() < lsn);
        let mut most = None;
        for placed in self.placed.range(..end).rev() {
            if most >= Some(placed.reach) {
                break;
            }
            most = most.max(placed.part.set().last_below(lsn));
        }
        most
    }

    /// Adds a non-empty part without LSNs in common with existing ones.
    pub fn insert(&mut self, part: RecordsInFile) {
        self.size += part.set().size();
        self.heap_bytes += part.memory_bytes();
        self.newest = self.newest.max(part.last_seq());
        let at = self.placed.partition_point(|placed| placed.part.low() <= part.low());
        if self.placed.len() == self.placed.capacity() {
            self.placed.reserve_exact(1 + self.placed.len() / 8);
        }
        self.placed.insert(at, Placed { part, reach: 0 });
        self.renew(at..at + 1);
    }

    /// Removes a range from all parts whose sequence numbers are below `seq`, and updates the
    /// ledger. Returns true if any part lost records.
    pub fn cut(&mut self, range: &RangeInclusive<Lsn>, seq: SeqNo, ledger: &mut Ledger) -> bool {
        self.cut_at(self.near(range), range, seq, ledger)
    }

    /// Removes the LSNs below `lsn` from about `limit` parts. Starts at the parts whose
    /// [`RecordsInFile::low`] is at least `from`; earlier ones are done. Returns the position to
    /// continue from, if more parts remain.
    pub fn cut_below(&mut self, lsn: Lsn, from: Lsn, limit: usize, ledger: &mut Ledger) -> Option<Lsn> {
        let start = self.placed.partition_point(|placed| placed.part.low() < from);
        let end = self.placed.partition_point(|placed| placed.part.low() < lsn);
        let low = |at: usize| self.placed.get(at).map(|placed| placed.part.low());
        let mut stop = start.saturating_add(limit.max(1)).min(end);
        // The next call finds its position by `low`, so parts with equal `low` belong to one step.
        while stop < end && low(stop) == low(stop - 1) {
            stop += 1;
        }
        let next = low(stop).filter(|_| stop < end);
        if let Some(last) = lsn.checked_sub(1).filter(|_| start < stop) {
            self.cut_at(start..stop, &(0..=last), u64::MAX, ledger);
        }
        next
    }

    /// Detaches the parts entirely above an LSN, if they are more than `few` and all have sequence
    /// numbers below `seq`. They leave the index at once; the caller removes them from the ledger.
    pub fn split_above(&mut self, lsn: Lsn, seq: SeqNo, few: usize) -> Detached {
        let from = self.placed.partition_point(|placed| placed.part.low() <= lsn);
        let behind = self.placed.len() - from;
        let is_old = |placed: &Placed| placed.part.last_seq() < seq;
        // Only a replay needs the scan: otherwise truncated parts are older than the truncation.
        let all_old = || self.newest < seq || self.placed.range(from..).all(is_old);
        if behind <= few || !all_old() {
            return Detached::default();
        }
        // Reaches of the remaining parts stay valid, since they depend only on earlier parts. Move
        // and recount the smaller side.
        let tail = if from < behind {
            let mut tail = std::mem::take(&mut self.placed);
            self.placed = tail.drain(..from).collect();
            (self.size, self.heap_bytes) = sums(&self.placed);
            tail
        } else {
            let tail = self.placed.split_off(from);
            let (size, heap_bytes) = sums(&tail);
            self.size -= size;
            self.heap_bytes -= heap_bytes;
            tail
        };
        Detached(tail)
    }

    /// Removes a range from the parts at these positions.
    fn cut_at(
        &mut self,
        places: Range<usize>,
        range: &RangeInclusive<Lsn>,
        seq: SeqNo,
        ledger: &mut Ledger,
    ) -> bool {
        let (mut lost, mut stay) = (false, places.start);
        for at in places.clone() {
            let part = &mut self.placed[at].part;
            let met = part.set().first() <= Some(*range.end()) && part.set().last() >= Some(*range.start());
            if met && part.last_seq() < seq {
                self.heap_bytes -= part.memory_bytes();
                let removed = part.set_mut().remove(range.clone());
                self.heap_bytes += part.memory_bytes();
                self.size -= removed;
                lost |= removed.records > 0;
                ledger.lose(part.source(), removed);
            }
            if part.set().is_empty() {
                self.heap_bytes -= part.memory_bytes();
            } else {
                // Gather the empty parts behind the others, then drop them.
                self.placed.swap(stay, at);
                stay += 1;
            }
        }
        self.placed.drain(stay..places.end);
        if lost {
            self.renew(places.start..stay);
        }
        lost
    }

    /// Recomputes the reaches in a range, and after it as far as they change.
    fn renew(&mut self, range: Range<usize>) {
        let mut reach = range.start.checked_sub(1).map_or(0, |before| self.placed[before].reach);
        for (at, placed) in (range.start..).zip(self.placed.range_mut(range.start..)) {
            reach = reach.max(placed.last());
            if at >= range.end && placed.reach == reach {
                break;
            }
            placed.reach = reach;
        }
    }

    /// Returns the allocated memory, without the size of the struct, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.placed.capacity() * size_of::<Placed>() + self.heap_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::directory::{Block, LogRows};
    use crate::lsn_set::{Builder, Size};
    use std::collections::{BTreeMap, BTreeSet};

    fn part(number: u64, seq: SeqNo, lsns: &[Lsn]) -> RecordsInFile {
        let mut set = Builder::default();
        lsns.iter().for_each(|lsn| set.push(*lsn, 10).unwrap());
        let blocks = vec![Block { first: lsns[0], offset: 0, len: 9 }];
        RecordsInFile::of(
            Source::Cold(number),
            &LogRows { log: 1, seqs: (1, seq), lsns: set.build(), blocks },
        )
        .unwrap()
    }

    fn check(parts: &Parts, model: &BTreeMap<Lsn, u64>, rng: &mut io::Rng) {
        assert_eq!(parts.first(), model.keys().next().copied());
        assert_eq!(parts.last(), model.keys().next_back().copied());
        let placed = || parts.placed.iter();
        assert!(placed().is_sorted_by_key(|placed| placed.part.low()));
        assert!(placed().is_sorted_by_key(|placed| placed.reach));
        assert!(placed().all(|placed| placed.last() <= placed.reach && !placed.part.set().is_empty()));
        assert_eq!(parts.size().records, model.len() as u64);
        assert_eq!(parts.size(), parts.iter().map(|part| part.set().size()).sum());
        assert_eq!(parts.heap_bytes, parts.iter().map(RecordsInFile::memory_bytes).sum::<usize>());
        for _ in 0..8 {
            let lsn = rng.below(2_000);
            assert_eq!(parts.last_below(lsn), model.range(..lsn).next_back().map(|(lsn, _)| *lsn));
            let source = parts.of(lsn).map(RecordsInFile::source);
            assert_eq!(source, model.get(&lsn).map(|number| Source::Cold(*number)), "{lsn}");
            let mut from: Vec<Lsn> = parts
                .from(lsn)
                .flat_map(|part| part.set().runs_from(lsn))
                .flat_map(|run| run.first.max(lsn)..=run.last())
                .collect();
            from.sort_unstable();
            assert!(from.iter().eq(model.range(lsn..).map(|(lsn, _)| lsn)));
        }
    }

    #[test]
    fn agrees_with_a_map_of_lsns() {
        let mut rng = io::Rng::new(8);
        for round in 0..80 {
            let (mut parts, mut model, mut ledger) = (Parts::default(), BTreeMap::new(), Ledger::default());
            let (wild, mut lows) = (rng.one_in(2), BTreeMap::new());
            for number in 1..120 {
                let start = if wild { rng.below(1_900) } else { number * 12 };
                let lsns: Vec<Lsn> =
                    (start..start + 12).filter(|lsn| !model.contains_key(lsn) && !rng.one_in(5)).collect();
                if !lsns.is_empty() {
                    lows.insert(number, lsns[0]);
                    let part = part(number, number, &lsns);
                    ledger.add(part.source(), part.set().size());
                    parts.insert(part);
                    model.extend(lsns.iter().map(|lsn| (*lsn, number)));
                }
                if rng.one_in(6) {
                    let low = if rng.one_in(2) { 0 } else { rng.below(1_900) };
                    let high = if rng.one_in(4) { Lsn::MAX } else { low + rng.below(100) };
                    let seq = rng.range(1, number + 2);
                    let gone = |lsn: &Lsn, number: &u64| (low..=high).contains(lsn) && *number < seq;
                    parts.cut(&(low..=high), seq, &mut ledger);
                    model.retain(|lsn, number| !gone(lsn, number));
                }
                if rng.one_in(12) {
                    let (lsn, seq, few) =
                        (rng.below(2_000), rng.range(1, number + 3), rng.below(30) as usize);
                    let mut detached = parts.split_above(lsn, seq, few);
                    let gone = |number: &u64| lows[number] > lsn;
                    let all = model.values().filter(|number| gone(number)).collect::<BTreeSet<_>>();
                    let whole = all.len() > few && all.iter().all(|number| **number < seq);
                    assert_eq!(detached.is_empty(), !whole);
                    if whole {
                        model.retain(|_, number| !gone(number));
                    }
                    while !detached.is_empty() {
                        detached.cut(&mut 3, &mut ledger);
                    }
                    let live = model.len() as u64;
                    assert_eq!(ledger.live().records, live, "what was detached is out of the ledger");
                }
                if rng.one_in(12) {
                    let (below, mut from) = (rng.below(2_000), Some(0));
                    while let Some(next) = from {
                        from = parts.cut_below(below, next, 1 + rng.below(4) as usize, &mut ledger);
                    }
                    model.retain(|lsn, _| *lsn >= below);
                }
                if rng.one_in(9) {
                    let number = rng.range(1, number + 1);
                    let low = lows.get(&number).copied().unwrap_or(5);
                    let there = model.values().any(|other| *other == number);
                    assert_eq!(parts.of_file(Source::Cold(number), low).is_some(), there);
                    let taken = parts.take(Source::Cold(number), low);
                    let usage = ledger.usage(Source::Cold(number)).live;
                    assert_eq!(taken.map_or(Size::default(), |part| part.set().size()), usage);
                    ledger.forget(Source::Cold(number));
                    model.retain(|_, other| *other != number);
                }
                check(&parts, &model, &mut rng);
            }
            assert!(wild || parts.placed.len() < 2 || round > 100 || parts.near(&(1000..=1000)).len() <= 2);
        }
    }
}
