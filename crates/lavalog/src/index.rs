//! Where the records of a log are.
//!
//! Two levels, after LavaStore (PVLDB 17(12), 3.3.1): *recent* records, those of groups without an index file, are in memory one by
//! one, packed (`recent`); of all others there is, for each file, a [`Part`]: the runs of LSNs that it has, and where the blocks
//! are that say more (`parts`). A block is read when it is needed. When a group is closed and its index file written, its recent records become
//! a part ([`LogIndex::install`]); when a file was collected, its part is replaced by that of the copies ([`LogIndex::relocate`]).
//!
//! Each LSN that is alive is in one place only. What is removed, by a trim, a truncation or a newer record, is taken out of the
//! place where it is, and what was copied or indexed meanwhile counts only as far as it was still there when that is
//! installed: so nothing that died can come back by a copy.
//!
//! Order does not matter: of two records with one LSN that of the higher sequence stays, whichever comes last, and a truncation
//! takes only what has a lower sequence than its own. So to replay operations that are in the state already changes nothing.
//! The one thing that this needs of parts is what [`part`] says of their highest sequence.
//!
//! Invariants: the places have no LSN in common; no LSN is at or above `end`; of each file there is one part at most, and an empty
//! one goes.

pub mod part;
mod parts;
mod recent;

pub use part::Part;

use crate::disk::directory::Block;
use crate::entry::{Entry, LogId, Lsn, Source};
use crate::ledger::Ledger;
use crate::lsn_set::{Builder, LsnSet, Size};
use base::SeqNo;
use parts::{Detached, Parts};
use recent::{Item, Recent};

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Here.
    Record(Source, Entry),
    /// A block knows.
    Block(Source, Block),
}

/// Consecutive LSNs that are found in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The lowest.
    pub first: Lsn,
    /// The highest; with [`Found::Record`] the same.
    pub last: Lsn,
    /// Where they are.
    pub found: Found,
}

/// What happened to a record that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It is there now.
    New,
    /// It is the first that the log ever had in its group.
    NewInGroup,
    /// It was there already, or a newer one is.
    Not,
}

/// The index of one log. See the module.
#[derive(Clone, Debug, Default)]
pub struct LogIndex {
    /// One for each group that has something of the log and no index file, in order of their coming.
    recent: Vec<Recent>,
    parts: Parts,
    /// What was truncated, and is in the ledger still.
    detached: Vec<Detached>,
    /// Above all LSNs.
    end: Lsn,
}

/// Adds to a vector that is long-lived and grows seldom.
fn push_tight<T>(to: &mut Vec<T>, value: T) {
    if to.len() == to.capacity() {
        to.reserve_exact(1 + to.len() / 8);
    }
    to.push(value);
}

impl LogIndex {
    /// Adds a record that was appended in a group.
    pub fn insert(&mut self, ltn: u64, entry: &Entry, ledger: &mut Ledger) -> Inserted {
        if entry.lsn < self.end && !self.make_way(entry.lsn, entry.seq, ledger) {
            return Inserted::Not;
        }
        let at = self.recent.iter().rposition(|recent| recent.ltn == ltn);
        let new = at.is_none();
        let at = at.unwrap_or_else(|| {
            push_tight(&mut self.recent, Recent::new(ltn));
            self.recent.len() - 1
        });
        let Entry { lsn, seq, at: place, len, .. } = *entry;
        self.recent[at].insert(Item { lsn, seq, at: place, len });
        self.end = self.end.max(lsn + 1);
        ledger.add(Source::Group(ltn), Size::one(len));
        if new { Inserted::NewInGroup } else { Inserted::New }
    }

    /// Takes out what has an LSN, unless it is as new as `seq`. True if the LSN is free then.
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

    /// Where a record is, if it is there.
    pub fn get(&self, log: LogId, lsn: Lsn) -> Option<Found> {
        if lsn >= self.end {
            return None;
        }
        let recent = self.recent.iter().rev().find_map(|recent| {
            let item = recent.get(lsn)?;
            Some(Found::Record(Source::Group(recent.ltn), entry_of(log, item)))
        });
        recent.or_else(|| {
            let part = self.parts.of(lsn)?;
            Some(Found::Block(part.source(), part.block_of(lsn)))
        })
    }

    /// Appends to `out` where the records from an LSN on are, in order, `limit` spans at most.
    pub fn spans(&self, log: LogId, from: Lsn, limit: usize, out: &mut Vec<Span>) {
        let recent = self.recent.iter().map(|recent| {
            let spans = recent.items_from(from).map(move |item| Span {
                first: item.lsn,
                last: item.lsn,
                found: Found::Record(Source::Group(recent.ltn), entry_of(log, item)),
            });
            Box::new(spans) as Stream<'_, Span>
        });
        let parts = self.parts.from(from).map(|part| {
            let found = |block| Found::Block(part.source(), block);
            let spans = part.pieces_from(from);
            let spans = spans.map(move |(first, last, block)| Span { first, last, found: found(block) });
            (part.low(), Box::new(spans) as Stream<'_, Span>)
        });
        merged(recent.collect(), parts, |span| span.first).take(limit).for_each(|span| out.push(span));
    }

    /// What LSNs there are from one on, as first and last, in order; what touches may come in several. The first may begin below.
    pub fn runs_from(&self, from: Lsn) -> impl Iterator<Item = (Lsn, Lsn)> + '_ {
        let recent =
            self.recent.iter().map(move |recent| Box::new(recent.runs_from(from)) as Stream<'_, (Lsn, Lsn)>);
        let parts = self.parts.from(from).map(move |part| {
            let runs = part.set().runs_from(from).map(|run| (run.first, run.last()));
            (part.low(), Box::new(runs) as Stream<'_, (Lsn, Lsn)>)
        });
        merged(recent.collect(), parts, |run| run.0)
    }

    /// The lowest LSN.
    pub fn first(&self) -> Option<Lsn> {
        let recent = self.recent.iter().filter_map(Recent::first);
        recent.chain(self.parts.first()).min()
    }

    /// The highest LSN.
    pub fn last(&self) -> Option<Lsn> {
        let recent = self.recent.iter().filter_map(Recent::last);
        recent.chain(self.parts.last()).max()
    }

    /// The highest LSN below one.
    pub fn last_below(&self, lsn: Lsn) -> Option<Lsn> {
        let recent = self.recent.iter().filter_map(|recent| recent.last_below(lsn));
        recent.chain(self.parts.last_below(lsn)).max()
    }

    /// Takes out what is below an LSN, of `limit` parts and pieces of recent records or hardly more. `from` is 0, or what this returned: from
    /// where to go on, if that was not all.
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

    /// Takes out all above an LSN that came by an operation before `seq`. True if a part lost something: its file still has it. Of more
    /// than a `few` parts the ledger is not told yet: that is for [`LogIndex::cut_detached`].
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

    /// Tells the ledger of some parts that were truncated. True if there are more.
    pub fn cut_detached(&mut self, mut limit: usize, ledger: &mut Ledger) -> bool {
        while let Some(last) = self.detached.last_mut().filter(|_| limit > 0) {
            last.cut(&mut limit, ledger);
            if last.is_empty() {
                self.detached.pop();
            }
        }
        !self.detached.is_empty()
    }

    /// The recent records in a group, in the order of their LSNs: what its index file is written from.
    pub fn recent_in(&self, log: LogId, ltn: u64) -> impl Iterator<Item = Entry> + '_ {
        let recent = self.recent.iter().filter(move |recent| recent.ltn == ltn);
        recent.flat_map(|recent| recent.items_from(0)).map(move |item| entry_of(log, item))
    }

    /// The index file of a group was written from [`LogIndex::recent_in`]; `part` is what it has of the log, if it has anything.
    /// From now on it stands for the recent records of the group, as far as they are still alive. False if they are not all. What is
    /// below `floor` is not, though it may be here still.
    pub fn install(&mut self, ltn: u64, part: Option<Part>, floor: Lsn, ledger: &mut Ledger) -> bool {
        let at = self.recent.iter().position(|recent| recent.ltn == ltn);
        let Some(at) = at else { return part.is_none() };
        let recent = self.recent.remove(at);
        let (mut alive, was) = (Builder::default(), recent.size);
        for item in recent.items_from(floor) {
            // They ascend, and have lengths that records can have.
            let _ = alive.push(item.lsn, item.len);
        }
        let (is, whole) = self.replace(part, &alive.build());
        ledger.recount(Source::Group(ltn), was, is);
        whole
    }

    /// True if a record is in the rows of a file.
    pub fn is_in(&self, source: Source, lsn: Lsn) -> bool {
        self.parts.of(lsn).is_some_and(|part| part.source() == source)
    }

    /// The index file of a group is lost, and `rows`, LSNs ascending, are those of the group that were alive a moment ago: what still is
    /// becomes recent records again, as it was before the file was written. True if there is any. `None`, and nothing has changed, if some
    /// of them are missing.
    pub fn take_in(&mut self, ltn: u64, rows: &[Entry]) -> Option<bool> {
        let source = Source::Group(ltn);
        let part = rows.iter().find_map(|row| self.parts.of(row.lsn).filter(|part| part.source() == source));
        let Some(low) = part.map(Part::low) else { return Some(false) };
        let part = self.parts.take(source, low)?;
        let mut recent = Recent::new(ltn);
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

    /// Files were collected: what lived of them is in another one, which has `part` of this log, if it has anything. It stands for
    /// the parts of the inputs, as far as they are still alive. `inputs`: each with the lowest LSN that it had of the log. False if
    /// not all of the part is alive. `floor` as there.
    pub fn relocate(
        &mut self,
        inputs: &[(Source, Lsn)],
        part: Option<Part>,
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
        // The runs of several parts have no LSN in common.
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

    /// A part comes for LSNs that were somewhere else, as far as they are alive. Returns how much of it is, and whether that is all.
    fn replace(&mut self, part: Option<Part>, alive: &LsnSet) -> (Size, bool) {
        let Some(mut part) = part else { return (Size::default(), true) };
        let set = part.set().intersection(alive);
        let (was, is) = (part.set().size(), set.size());
        *part.set_mut() = set;
        if is.records > 0 {
            self.parts.insert(part);
        }
        (is, is.records == was.records)
    }

    /// A part that was read from the directory of a file, at open, before anything is replayed. What of it is not alive any more is
    /// for the caller to take out before or after; here, it loses or wins against the parts that are there.
    pub fn load(&mut self, mut part: Part, ledger: &mut Ledger) {
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

    /// How many records there are, and their bytes.
    pub fn size(&self) -> Size {
        let recent = self.recent.iter().map(|recent| recent.size);
        recent.chain([self.parts.size()]).sum()
    }

    /// How much of the log is in each file and group.
    pub fn sizes(&self) -> impl Iterator<Item = (Source, Size)> + '_ {
        let recent = self.recent.iter().map(|recent| (Source::Group(recent.ltn), recent.size));
        recent.chain(self.parts.iter().map(|part| (part.source(), part.set().size())))
    }

    /// The files that have something of the log, with what.
    pub fn parts(&self) -> impl Iterator<Item = &Part> + '_ {
        self.parts.iter()
    }

    /// What a file has whose lowest LSN of the log was `low`.
    pub fn part_of(&self, source: Source, low: Lsn) -> Option<&Part> {
        self.parts.of_file(source, low)
    }

    /// Bytes it has allocated, besides its own size.
    pub fn memory_bytes(&self) -> usize {
        let recent: usize = self.recent.iter().map(Recent::memory_bytes).sum();
        let detached: usize = self.detached.iter().map(Detached::memory_bytes).sum();
        self.recent.capacity() * size_of::<Recent>() + recent + self.parts.memory_bytes() + detached
    }
}

fn entry_of(log: LogId, item: Item) -> Entry {
    Entry { log, lsn: item.lsn, seq: item.seq, at: item.at, len: item.len }
}

type Stream<'a, T> = Box<dyn Iterator<Item = T> + 'a>;

/// Merges what ascends and has nothing in common. `later` are streams with an LSN below which they have nothing, by these: they are
/// not begun before it is their turn.
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
