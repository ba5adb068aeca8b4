//! The index of one log: the positions of its records.
//!
//! Two levels, after LavaStore (PVLDB 17(12), 3.3.1). *Recent* records, those in groups without an
//! index file, have one packed entry each in memory (`recent`). For every other file with records
//! of the log there is a [`RecordsInFile`] (`parts`): the runs of LSNs in the file and the
//! positions of the blocks with their rows. Blocks are read on demand. Sealing a group turns its
//! recent records into a part ([`LogIndex::install`]). Garbage collection replaces the parts of the
//! collected files by those of the outputs ([`LogIndex::relocate`]).
//!
//! Each live LSN is in exactly one place. A trim, a truncation or a newer record removes an LSN
//! from its place. When a part is installed, only the LSNs that are still in the replaced place
//! become live. So a copy never revives a dead record.
//!
//! The order of operations does not matter. Of two records with the same LSN the one with the
//! higher sequence number stays. A truncation removes only records with lower sequence numbers than
//! its own. So replaying operations that the state already reflects has no effect. For parts this
//! relies on their highest sequence number (see [`part`]).
//!
//! Invariants: no LSN is in two places; no LSN is at or above `end`; each file has at most one
//! part, and a part is never empty.

pub mod part;
mod parts;
mod recent;

pub use part::RecordsInFile;

use crate::disk::directory::Block;
use crate::entry::{Entry, LogId, Lsn, Source};
use crate::ledger::Ledger;
use crate::lsn_set::{Builder, LsnSet, Size};
use base::SeqNo;
use parts::{Detached, Parts};
use recent::{Item, RecordsInGroup};

/// Location of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordLocation {
    /// The entry of the record itself.
    Record(Source, Entry),
    /// The block with the entry.
    Block(Source, Block),
}

/// Consecutive LSNs with the same kind of location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Lowest LSN.
    pub first: Lsn,
    /// Highest LSN; equal to `first` for [`RecordLocation::Record`].
    pub last: Lsn,
    /// Their location.
    pub found: RecordLocation,
}

/// Result of inserting a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The record was added.
    New,
    /// The record was added as the first of the log in its group.
    NewInGroup,
    /// The record, or a newer one, exists already.
    Not,
}

/// The index of one log.
#[derive(Clone, Debug, Default)]
pub struct LogIndex {
    /// Recent records, one element per group with records of the log and without an index file,
    /// oldest first.
    recent: Vec<RecordsInGroup>,
    parts: Parts,
    /// Truncated parts that the ledger still counts.
    detached: Vec<Detached>,
    /// Exclusive upper bound of all LSNs.
    end: Lsn,
}

/// Pushes to a long-lived, slowly growing vector with little spare capacity.
fn push_tight<T>(to: &mut Vec<T>, value: T) {
    if to.len() == to.capacity() {
        to.reserve_exact(1 + to.len() / 8);
    }
    to.push(value);
}

impl LogIndex {
    /// Adds a record of a group.
    pub fn insert(&mut self, ltn: u64, entry: &Entry, ledger: &mut Ledger) -> Inserted {
        if entry.lsn < self.end && !self.make_way(entry.lsn, entry.seq, ledger) {
            return Inserted::Not;
        }
        let at = self.recent.iter().rposition(|recent| recent.ltn == ltn);
        let new = at.is_none();
        let at = at.unwrap_or_else(|| {
            push_tight(&mut self.recent, RecordsInGroup::new(ltn));
            self.recent.len() - 1
        });
        let Entry { lsn, seq, at: place, len, .. } = *entry;
        self.recent[at].insert(Item { lsn, seq, at: place, len });
        self.end = self.end.max(lsn + 1);
        ledger.add(Source::Group(ltn), Size::one(len));
        if new { Inserted::NewInGroup } else { Inserted::New }
    }

    /// Removes the record of an LSN if its sequence number is below `seq`. Returns true if the LSN
    /// is free afterwards.
    fn make_way(&mut self, lsn: Lsn, seq: SeqNo, ledger: &mut Ledger) -> bool {
        let only = lsn..=lsn;
        for recent in &mut self.recent {
            if let Some(item) = recent.get(lsn) {
                if item.seq < seq {
                    ledger.lose(Source::Group(recent.ltn), recent.remove(&only, seq));
                }
                return item.seq < seq;
            }
        }
        self.parts.of(lsn).is_none() || self.parts.cut(&only, seq, ledger)
    }

    /// Returns the location of a record, if it exists.
    pub fn get(&self, log: LogId, lsn: Lsn) -> Option<RecordLocation> {
        if lsn >= self.end {
            return None;
        }
        let recent = self.recent.iter().rev().find_map(|recent| {
            let item = recent.get(lsn)?;
            Some(RecordLocation::Record(Source::Group(recent.ltn), entry_of(log, item)))
        });
        recent.or_else(|| {
            let part = self.parts.of(lsn)?;
            Some(RecordLocation::Block(part.source(), part.block_of(lsn)))
        })
    }

    /// Appends the locations of the records from an LSN on to `out`, in order, at most `limit`
    /// spans.
    pub fn spans(&self, log: LogId, from: Lsn, limit: usize, out: &mut Vec<Span>) {
        let recent = self.recent.iter().map(|recent| {
            let spans = recent.items_from(from).map(move |item| Span {
                first: item.lsn,
                last: item.lsn,
                found: RecordLocation::Record(Source::Group(recent.ltn), entry_of(log, item)),
            });
            Box::new(spans) as Stream<'_, Span>
        });
        let parts = self.parts.from(from).map(|part| {
            let found = |block| RecordLocation::Block(part.source(), block);
            let spans = part.pieces_from(from);
            let spans = spans.map(move |(first, last, block)| Span { first, last, found: found(block) });
            (part.low(), Box::new(spans) as Stream<'_, Span>)
        });
        merged(recent.collect(), parts, |span| span.first).take(limit).for_each(|span| out.push(span));
    }

    /// Iterates over the runs of LSNs from `from` on, in order, each as first and last. Adjacent
    /// runs may be separate, and the first may begin below `from`.
    pub fn runs_from(&self, from: Lsn) -> impl Iterator<Item = (Lsn, Lsn)> + '_ {
        let recent =
            self.recent.iter().map(move |recent| Box::new(recent.runs_from(from)) as Stream<'_, (Lsn, Lsn)>);
        let parts = self.parts.from(from).map(move |part| {
            let runs = part.set().runs_from(from).map(|run| (run.first, run.last()));
            (part.low(), Box::new(runs) as Stream<'_, (Lsn, Lsn)>)
        });
        merged(recent.collect(), parts, |run| run.0)
    }

    /// Returns the lowest LSN.
    pub fn first(&self) -> Option<Lsn> {
        let recent = self.recent.iter().filter_map(RecordsInGroup::first);
        recent.chain(self.parts.first()).min()
    }

    /// Returns the highest LSN.
    pub fn last(&self) -> Option<Lsn> {
        let recent = self.recent.iter().filter_map(RecordsInGroup::last);
        recent.chain(self.parts.last()).max()
    }

    /// Returns the highest LSN below `lsn`.
    pub fn last_below(&self, lsn: Lsn) -> Option<Lsn> {
        let recent = self.recent.iter().filter_map(|recent| recent.last_below(lsn));
        recent.chain(self.parts.last_below(lsn)).max()
    }

    /// Removes the records below an LSN, from about `limit` parts and chunks of recent records.
    /// `from` is 0 or the result of the previous call. Returns the position to continue from, if
    /// more remain.
    pub fn remove_below(&mut self, lsn: Lsn, from: Lsn, limit: usize, ledger: &mut Ledger) -> Option<Lsn> {
        let mut pieces = limit;
        for recent in self.recent.iter_mut().filter(|recent| recent.first().is_some_and(|first| first < lsn))
        {
            if pieces == 0 {
                return Some(from);
            }
            ledger.lose(Source::Group(recent.ltn), recent.remove_below(lsn, &mut pieces));
            if recent.first().is_some_and(|first| first < lsn) {
                return Some(from);
            }
        }
        self.parts.cut_below(lsn, from, pieces, ledger)
    }

    /// Removes the records above an LSN with sequence numbers below `seq`. Returns true if a part
    /// lost records that its file still has. With more than `few` parts, the ledger is updated
    /// later by [`LogIndex::cut_detached`].
    pub fn remove_above(&mut self, lsn: Lsn, seq: SeqNo, few: usize, ledger: &mut Ledger) -> bool {
        if self.end == 0 || lsn >= self.end - 1 {
            return false;
        }
        let range = lsn + 1..=u64::MAX;
        for recent in &mut self.recent {
            ledger.lose(Source::Group(recent.ltn), recent.remove(&range, seq));
        }
        let detached = self.parts.split_above(lsn, seq, few);
        let lost = self.parts.cut(&range, seq, ledger) || !detached.is_empty();
        self.detached.extend(Some(detached).filter(|detached| !detached.is_empty()));
        self.end = self.last().map_or(0, |last| last + 1);
        lost
    }

    /// Removes up to `limit` truncated parts from the ledger. Returns true if more remain.
    pub fn cut_detached(&mut self, mut limit: usize, ledger: &mut Ledger) -> bool {
        while let Some(last) = self.detached.last_mut().filter(|_| limit > 0) {
            last.cut(&mut limit, ledger);
            if last.is_empty() {
                self.detached.pop();
            }
        }
        !self.detached.is_empty()
    }

    /// Iterates over the recent records in a group, in LSN order. The group's index file is written
    /// from them.
    pub fn recent_in(&self, log: LogId, ltn: u64) -> impl Iterator<Item = Entry> + '_ {
        let recent = self.recent.iter().filter(move |recent| recent.ltn == ltn);
        recent.flat_map(|recent| recent.items_from(0)).map(move |item| entry_of(log, item))
    }

    /// Replaces the recent records of a group by its index file, which was written from
    /// [`LogIndex::recent_in`]. `part` is the log's part of the file, if it has one. Only LSNs that
    /// are still live and at or above `floor` stay in the part. Returns false if some were dropped.
    pub fn install(
        &mut self,
        ltn: u64,
        part: Option<RecordsInFile>,
        floor: Lsn,
        ledger: &mut Ledger,
    ) -> bool {
        let at = self.recent.iter().position(|recent| recent.ltn == ltn);
        let Some(at) = at else { return part.is_none() };
        let recent = self.recent.remove(at);
        let (mut alive, was) = (Builder::default(), recent.size);
        for item in recent.items_from(floor) {
            // They ascend and have valid lengths.
            let _ = alive.push(item.lsn, item.len);
        }
        let (is, whole) = self.replace(part, &alive.build());
        ledger.recount(Source::Group(ltn), was, is);
        whole
    }

    /// Returns true if the record's row is in this file.
    pub fn is_in(&self, source: Source, lsn: Lsn) -> bool {
        self.parts.of(lsn).is_some_and(|part| part.source() == source)
    }

    /// Turns the part of a lost index file back into recent records. `rows` are the group's rows
    /// that were live before the call, LSNs ascending; dead ones are skipped. Returns true if the
    /// log has any. Returns `None`, and changes nothing, if some rows are missing.
    pub fn take_in(&mut self, ltn: u64, rows: &[Entry]) -> Option<bool> {
        let source = Source::Group(ltn);
        let part = rows.iter().find_map(|row| self.parts.of(row.lsn).filter(|part| part.source() == source));
        let Some(low) = part.map(RecordsInFile::low) else { return Some(false) };
        let part = self.parts.take(source, low)?;
        let mut recent = RecordsInGroup::new(ltn);
        for row in rows.iter().filter(|row| part.set().contains(row.lsn)) {
            recent.insert(Item { lsn: row.lsn, seq: row.seq, at: row.at, len: row.len });
        }
        if recent.size != part.set().size() {
            self.parts.insert(part);
            return None;
        }
        push_tight(&mut self.recent, recent);
        Some(true)
    }

    /// Replaces the parts of collected files by `part` of the file with the copies, if it has one.
    /// `inputs` are the collected files, each with the log's lowest LSN in it. Only LSNs that are
    /// still live and at or above `floor` stay in the part. Returns false if some were dropped.
    pub fn relocate(
        &mut self,
        inputs: &[(Source, Lsn)],
        part: Option<RecordsInFile>,
        floor: Lsn,
        ledger: &mut Ledger,
    ) -> bool {
        let mut alive = Vec::new();
        for (source, low) in inputs {
            if let Some(input) = self.parts.take(*source, *low) {
                ledger.lose(*source, input.set().size());
                alive.extend(input.set().runs());
            }
        }
        alive.sort_unstable_by_key(|run| run.first);
        let mut set = Builder::default();
        // The runs of different parts are disjoint.
        alive.into_iter().for_each(|run| drop(set.push_run(run)));
        let mut alive = set.build();
        alive.remove_below(floor);
        let came = part.as_ref().map(|part| (part.source(), part.set().size()));
        let (is, whole) = self.replace(part, &alive);
        if let Some((source, came)) = came {
            ledger.add(source, came);
            ledger.lose(source, came - is);
        }
        whole
    }

    /// Adds a part, restricted to the live LSNs. Returns its remaining size, and whether that is
    /// all of it.
    fn replace(&mut self, part: Option<RecordsInFile>, alive: &LsnSet) -> (Size, bool) {
        let Some(mut part) = part else { return (Size::default(), true) };
        let set = part.set().intersection(alive);
        let (was, is) = (part.set().size(), set.size());
        *part.set_mut() = set;
        if is.records > 0 {
            self.parts.insert(part);
        }
        (is, is.records == was.records)
    }

    /// Adds a part from a file's directory, at open, before replay. For LSNs in common with an
    /// existing part, the part with the higher last sequence number wins. The caller removes
    /// trimmed and truncated records.
    pub fn load(&mut self, mut part: RecordsInFile, ledger: &mut Ledger) {
        ledger.add(part.source(), part.set().size());
        let (Some(first), Some(last)) = (part.set().first(), part.set().last()) else { return };
        let met = self.parts.from(first).take_while(|there| there.low() <= last);
        let common = met.flat_map(|there| {
            let common = there.set().intersection(part.set());
            common.runs().map(|run| (run, there.last_seq() < part.last_seq())).collect::<Vec<_>>()
        });
        for (run, newer) in common.collect::<Vec<_>>() {
            let range = run.first..=run.last();
            if newer {
                self.parts.cut(&range, u64::MAX, ledger);
            } else {
                ledger.lose(part.source(), part.set_mut().remove(range));
            }
        }
        if let Some(last) = part.set().last() {
            self.end = self.end.max(last + 1);
            self.parts.insert(part);
        }
    }

    /// Returns the number of records and their bytes.
    pub fn size(&self) -> Size {
        let recent = self.recent.iter().map(|recent| recent.size);
        recent.chain([self.parts.size()]).sum()
    }

    /// Iterates over the sizes of the log in each file and group.
    pub fn sizes(&self) -> impl Iterator<Item = (Source, Size)> + '_ {
        let recent = self.recent.iter().map(|recent| (Source::Group(recent.ltn), recent.size));
        recent.chain(self.parts.iter().map(|part| (part.source(), part.set().size())))
    }

    /// Iterates over the parts.
    pub fn parts(&self) -> impl Iterator<Item = &RecordsInFile> + '_ {
        self.parts.iter()
    }

    /// Returns the part of a file whose lowest LSN of the log was `low`.
    pub fn part_of(&self, source: Source, low: Lsn) -> Option<&RecordsInFile> {
        self.parts.of_file(source, low)
    }

    /// Returns the allocated memory, without the size of the struct, bytes.
    pub fn memory_bytes(&self) -> usize {
        let recent: usize = self.recent.iter().map(RecordsInGroup::memory_bytes).sum();
        let detached: usize = self.detached.iter().map(Detached::memory_bytes).sum();
        self.recent.capacity() * size_of::<RecordsInGroup>() + recent + self.parts.memory_bytes() + detached
    }
}

fn entry_of(log: LogId, item: Item) -> Entry {
    Entry { log, lsn: item.lsn, seq: item.seq, at: item.at, len: item.len }
}

type Stream<'a, T> = Box<dyn Iterator<Item = T> + 'a>;

/// Merges disjoint ascending streams. `later` are streams with a lower bound of their keys, in the
/// order of these bounds. A stream of `later` is opened only when the merge reaches its bound.
fn merged<'a, T: Copy + 'a>(
    streams: Vec<Stream<'a, T>>,
    later: impl Iterator<Item = (Lsn, Stream<'a, T>)> + 'a,
    key: impl Fn(&T) -> Lsn + 'a,
) -> impl Iterator<Item = T> + 'a {
    let mut heads: Vec<_> = streams.into_iter().map(Iterator::peekable).collect();
    let mut later = later.peekable();
    std::iter::from_fn(move || {
        loop {
            heads.retain_mut(|head| head.peek().is_some());
            let firsts = heads.iter_mut().enumerate().filter_map(|(i, head)| Some((key(head.peek()?), i)));
            let least = firsts.min();
            match later.next_if(|(low, _)| least.is_none_or(|(first, _)| *low <= first)) {
                Some((_, stream)) => heads.push(stream.peekable()),
                None => return heads.get_mut(least?.1)?.next(),
            }
        }
    })
}
