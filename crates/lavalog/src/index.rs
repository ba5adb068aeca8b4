//! Where the records of a log are.
//!
//! Two levels, after LavaStore (PVLDB 17(12), 3.3.1): *recent* records, those of groups without an index file, are in memory one by
//! one, packed (`recent`); of all others there is, for each file, a [`Part`]: the runs of LSNs that it has, and where the blocks
//! are that say more. A block is read when it is needed. When a group is closed and its index file written, its recent records become
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
mod recent;

pub use part::Part;

use crate::disk::directory::Block;
use crate::entry::{Entry, LogId, Lsn, Source};
use crate::ledger::Ledger;
use crate::lsn_set::{Builder, LsnSet, Size};
use base::SeqNo;
use recent::{Item, Recent};
use std::ops::RangeInclusive;

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
    parts: Vec<Part>,
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
        let Some(at) = self.parts.iter().position(|part| part.set().contains(lsn)) else { return true };
        let newer = self.parts[at].last_seq() < seq;
        if newer {
            self.cut_part(at, only, ledger);
        }
        newer
    }

    /// Takes LSNs out of a part. True if it was the last of it, and the part is gone.
    fn cut_part(&mut self, at: usize, range: RangeInclusive<Lsn>, ledger: &mut Ledger) -> bool {
        let part = &mut self.parts[at];
        let removed = part.set_mut().remove(range);
        ledger.lose(part.source(), removed);
        let empty = part.set().is_empty();
        if empty {
            self.parts.remove(at);
        }
        empty
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
            let part = self.parts.iter().find(|part| part.set().contains(lsn))?;
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
            Box::new(spans) as Box<dyn Iterator<Item = Span>>
        });
        let parts = self.parts.iter().map(|part| {
            let found = |block| Found::Block(part.source(), block);
            let spans = part.pieces_from(from);
            let spans = spans.map(move |(first, last, block)| Span { first, last, found: found(block) });
            Box::new(spans) as Box<dyn Iterator<Item = Span>>
        });
        merged(recent.chain(parts).collect(), |span| span.first).take(limit).for_each(|span| out.push(span));
    }

    /// What LSNs there are from one on, as first and last, in order; what touches may come in several. The first may begin below.
    pub fn runs_from(&self, from: Lsn) -> impl Iterator<Item = (Lsn, Lsn)> + '_ {
        let recent = self
            .recent
            .iter()
            .map(move |recent| Box::new(recent.runs_from(from)) as Box<dyn Iterator<Item = (Lsn, Lsn)> + '_>);
        let parts = self.parts.iter().map(move |part| {
            let runs = part.set().runs_from(from).map(|run| (run.first, run.last()));
            Box::new(runs) as Box<dyn Iterator<Item = (Lsn, Lsn)> + '_>
        });
        merged(recent.chain(parts).collect(), |run| run.0)
    }

    /// The lowest LSN.
    pub fn first(&self) -> Option<Lsn> {
        let recent = self.recent.iter().filter_map(Recent::first);
        recent.chain(self.parts.iter().filter_map(|part| part.set().first())).min()
    }

    /// The highest LSN.
    pub fn last(&self) -> Option<Lsn> {
        let recent = self.recent.iter().filter_map(Recent::last);
        recent.chain(self.parts.iter().filter_map(|part| part.set().last())).max()
    }

    /// Takes out all below an LSN.
    pub fn remove_below(&mut self, lsn: Lsn, ledger: &mut Ledger) {
        let Some(last) = lsn.checked_sub(1) else { return };
        let range = 0..=last;
        for recent in self.recent.iter_mut().filter(|recent| recent.first().is_some_and(|first| first < lsn))
        {
            ledger.lose(Source::Group(recent.ltn), recent.remove(&range, u64::MAX));
        }
        self.cut_parts(&range, u64::MAX, ledger);
    }

    /// Takes out all above an LSN that came by an operation before `seq`. True if a part lost something: its file still has it.
    pub fn remove_above(&mut self, lsn: Lsn, seq: SeqNo, ledger: &mut Ledger) -> bool {
        if self.end == 0 || lsn >= self.end - 1 {
            return false;
        }
        let range = lsn + 1..=u64::MAX;
        for recent in &mut self.recent {
            ledger.lose(Source::Group(recent.ltn), recent.remove(&range, seq));
        }
        let lost = self.cut_parts(&range, seq, ledger);
        self.end = self.last().map_or(0, |last| last + 1);
        lost
    }

    /// Takes LSNs out of all parts that are older than a sequence. True if any had some.
    fn cut_parts(&mut self, range: &RangeInclusive<Lsn>, seq: SeqNo, ledger: &mut Ledger) -> bool {
        let (mut at, mut lost) = (0, false);
        while let Some(part) = self.parts.get(at) {
            let set = part.set();
            let older = part.last_seq() < seq;
            let met = set.first() <= Some(*range.end()) && set.last() >= Some(*range.start());
            lost |= older && met;
            let gone = older && met && self.cut_part(at, range.clone(), ledger);
            at += usize::from(!gone);
        }
        lost
    }

    /// Takes out everything.
    pub fn clear(&mut self, ledger: &mut Ledger) {
        self.remove_below(u64::MAX, ledger);
        *self = LogIndex::default();
    }

    /// The recent records in a group, in the order of their LSNs: what its index file is written from.
    pub fn recent_in(&self, log: LogId, ltn: u64) -> impl Iterator<Item = Entry> + '_ {
        let recent = self.recent.iter().filter(move |recent| recent.ltn == ltn);
        recent.flat_map(|recent| recent.items_from(0)).map(move |item| entry_of(log, item))
    }

    /// The index file of a group was written from [`LogIndex::recent_in`]; `part` is what it has of the log, if it has anything.
    /// From now on it stands for the recent records of the group, as far as they are still alive. False if they are not all.
    pub fn install(&mut self, ltn: u64, part: Option<Part>, ledger: &mut Ledger) -> bool {
        let at = self.recent.iter().position(|recent| recent.ltn == ltn);
        let Some(at) = at else { return part.is_none() };
        let recent = self.recent.remove(at);
        let (mut alive, mut was) = (Builder::default(), Size::default());
        for item in recent.items_from(0) {
            was += Size::one(item.len);
            // They ascend, and have lengths that records can have.
            let _ = alive.push(item.lsn, item.len);
        }
        let (is, whole) = self.replace(part, &alive.build());
        ledger.recount(Source::Group(ltn), was, is);
        whole
    }

    /// Files were collected: what lived of them is in another one, which has `part` of this log, if it has anything. It stands for
    /// the parts of the inputs, as far as they are still alive. False if not all of it is.
    pub fn relocate(&mut self, inputs: &[Source], part: Option<Part>, ledger: &mut Ledger) -> bool {
        let mut alive = Vec::new();
        self.parts.retain(|input| {
            let goes = inputs.contains(&input.source());
            if goes {
                ledger.lose(input.source(), input.set().size());
                alive.extend(input.set().runs());
            }
            !goes
        });
        alive.sort_unstable_by_key(|run| run.first);
        let mut set = Builder::default();
        // The runs of several parts have no LSN in common.
        alive.into_iter().for_each(|run| drop(set.push_run(run)));
        let came = part.as_ref().map(|part| (part.source(), part.set().size()));
        let (is, whole) = self.replace(part, &set.build());
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
            push_tight(&mut self.parts, part);
        }
        (is, is.records == was.records)
    }

    /// A part that was read from the directory of a file, at open, before anything is replayed. What of it is not alive any more is
    /// for the caller to take out before or after; here, it loses or wins against the parts that are there.
    pub fn load(&mut self, mut part: Part, ledger: &mut Ledger) {
        ledger.add(part.source(), part.set().size());
        let mut at = 0;
        while let Some(there) = self.parts.get(at) {
            let common = there.set().intersection(part.set());
            if !common.is_empty() && there.last_seq() < part.last_seq() {
                let gone = common.runs().any(|run| self.cut_part(at, run.first..=run.last(), ledger));
                at += usize::from(!gone);
                continue;
            }
            for run in common.runs() {
                ledger.lose(part.source(), part.set_mut().remove(run.first..=run.last()));
            }
            at += 1;
        }
        if let Some(last) = part.set().last() {
            self.end = self.end.max(last + 1);
            push_tight(&mut self.parts, part);
        }
    }

    /// The files that have something of the log, with what.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Bytes it has allocated, besides its own size.
    pub fn memory_bytes(&self) -> usize {
        let recent: usize = self.recent.iter().map(Recent::memory_bytes).sum();
        let parts: usize = self.parts.iter().map(Part::memory_bytes).sum();
        let own = self.recent.capacity() * size_of::<Recent>() + self.parts.capacity() * size_of::<Part>();
        own + recent + parts
    }
}

fn entry_of(log: LogId, item: Item) -> Entry {
    Entry { log, lsn: item.lsn, seq: item.seq, at: item.at, len: item.len }
}

/// Merges what ascends and has nothing in common.
fn merged<'a, T: Copy + 'a>(
    streams: Vec<Box<dyn Iterator<Item = T> + 'a>>,
    key: impl Fn(&T) -> Lsn + 'a,
) -> impl Iterator<Item = T> + 'a {
    let mut heads: Vec<_> = streams.into_iter().map(Iterator::peekable).collect();
    std::iter::from_fn(move || {
        let firsts = heads.iter_mut().enumerate().filter_map(|(i, head)| Some((key(head.peek()?), i)));
        let (_, least) = firsts.min()?;
        heads[least].next()
    })
}
