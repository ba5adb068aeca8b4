//! The packed records of a log in one group without an index file, in LSN order.
//!
//! Records are in chunks of up to [`ITEMS_MAX`], each encoded as differences from the previous one.
//! Take a thousand logs written at the same time: the next record of one log has the next LSN and
//! the same length, and lies a thousand records and a megabyte further. It takes five bytes.
//! Appending adds some bytes; inserting out of order re-encodes one chunk; a look-up reads one
//! chunk.
//! ```text
//! item := (difference of sequences << 3 | flags) varint | [difference of LSNs varint] | difference of places varint | [length varint]
//! ```
//!
//! Flags: 1: the next LSN; 2: the same length; 4: the sequence number or the position decreases, so
//! both differences are signed (zigzag, modulo 2^64).
//!
//! Invariants: chunks ascend and are not empty; `tail` is the last record of the last chunk; `size`
//! is the total of all records.

use crate::entry::Lsn;
use crate::lsn_set::Size;
use base::SeqNo;
use base::codec::{get_varint, put_varint};
use std::ops::RangeInclusive;

/// Maximum number of records in a chunk. The sum of their lengths fits into 32 bits.
const ITEMS_MAX: usize = 128;
const _: () = assert!(ITEMS_MAX as u64 * (crate::limits::RECORD_LEN_MAX as u64) < u32::MAX as u64);
/// Maximum length of an item, bytes: four varints.
const ITEM_LEN_MAX: usize = 4 * 10;
/// Growth of the last chunk's capacity, bytes.
const STEP: usize = 96;

const NEXT: u64 = 1;
const SAME_LEN: u64 = 2;
const BACK: u64 = 4;

/// One record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Item {
    pub lsn: Lsn,
    pub seq: SeqNo,
    pub at: u64,
    pub len: u32,
}

impl Item {
    /// Predecessor for encoding the first item of a chunk.
    fn before(lsn: Lsn) -> Item {
        Item { lsn, ..Item::default() }
    }

    fn put(&self, out: &mut Vec<u8>, before: &Item) {
        let back = self.seq < before.seq || self.at < before.at;
        let code = |new: u64, old: u64| {
            let difference = new.wrapping_sub(old);
            if back { (difference << 1) ^ (((difference as i64) >> 63) as u64) } else { difference }
        };
        let (next, same_len) = (self.lsn == before.lsn.wrapping_add(1), self.len == before.len);
        let flag = |set: bool, flag: u64| if set { flag } else { 0 };
        let flags = flag(next, NEXT) | flag(same_len, SAME_LEN) | flag(back, BACK);
        put_varint(out, code(self.seq, before.seq) << 3 | flags);
        if !next {
            put_varint(out, self.lsn - before.lsn);
        }
        put_varint(out, code(self.at, before.at));
        if !same_len {
            put_varint(out, u64::from(self.len));
        }
    }

    fn get(rest: &mut &[u8], before: &Item) -> Option<Item> {
        let mut number = || {
            let (value, len) = get_varint(rest)?;
            *rest = rest.get(len..)?;
            Some(value)
        };
        let lead = number()?;
        let decode = |coded: u64, old: u64| {
            let difference = if lead & BACK != 0 { (coded >> 1) ^ (coded & 1).wrapping_neg() } else { coded };
            old.wrapping_add(difference)
        };
        let lsn = before.lsn.wrapping_add(if lead & NEXT != 0 { 1 } else { number()? });
        let at = decode(number()?, before.at);
        let len = if lead & SAME_LEN != 0 { before.len } else { number()? as u32 };
        Some(Item { lsn, seq: decode(lead >> 3, before.seq), at, len })
    }
}

#[derive(Clone, Debug)]
struct ItemChunk {
    first: Lsn,
    last: Lsn,
    count: u32,
    /// Total length of the records, not of the packed items. It fits: see [`ITEMS_MAX`].
    bytes: u32,
    packed: Vec<u8>,
}

impl ItemChunk {
    /// Encodes ascending items, at least one.
    fn new(items: &[Item]) -> ItemChunk {
        let (first, last) = (items[0].lsn, items[items.len() - 1].lsn);
        let mut packed = Vec::with_capacity(8 * items.len());
        let mut before = Item::before(first);
        for item in items {
            item.put(&mut packed, &before);
            before = *item;
        }
        packed.shrink_to_fit();
        let bytes = items.iter().fold(0u32, |sum, item| sum.saturating_add(item.len));
        ItemChunk { first, last, count: items.len() as u32, bytes, packed }
    }

    fn size(&self) -> Size {
        Size { records: u64::from(self.count), bytes: u64::from(self.bytes) }
    }

    fn items(&self) -> impl Iterator<Item = Item> + '_ {
        let (mut rest, mut before) = (&self.packed[..], Item::before(self.first));
        std::iter::from_fn(move || {
            before = Item::get(&mut rest, &before)?;
            Some(before)
        })
    }
}

/// The packed records of a log in one group.
#[derive(Clone, Debug)]
pub(super) struct RecordsInGroup {
    /// Segment number (LTN) of the group.
    pub ltn: u64,
    /// Number of records, and their bytes.
    pub size: Size,
    pieces: Vec<ItemChunk>,
    tail: Item,
}

impl RecordsInGroup {
    pub fn new(ltn: u64) -> RecordsInGroup {
        RecordsInGroup { ltn, size: Size::default(), pieces: Vec::new(), tail: Item::default() }
    }

    /// Adds a record whose LSN is free.
    pub fn insert(&mut self, item: Item) {
        self.size += Size::one(item.len);
        let at = self.pieces.partition_point(|piece| piece.last < item.lsn);
        if let Some(piece) = self.pieces.get(at) {
            let mut items: Vec<Item> = piece.items().collect();
            items.insert(items.partition_point(|there| there.lsn < item.lsn), item);
            let half = if items.len() > ITEMS_MAX { items.len() / 2 } else { items.len() };
            self.pieces.splice(at..=at, items.chunks(half).map(ItemChunk::new));
            return;
        }
        match self.pieces.last_mut() {
            Some(piece) if (piece.count as usize) < ITEMS_MAX => {
                if piece.packed.capacity() - piece.packed.len() < ITEM_LEN_MAX {
                    piece.packed.reserve_exact(STEP);
                }
                item.put(&mut piece.packed, &self.tail);
                piece.last = item.lsn;
                piece.count += 1;
                piece.bytes = piece.bytes.saturating_add(item.len);
            }
            last => {
                if let Some(piece) = last {
                    piece.packed.shrink_to_fit();
                }
                if self.pieces.len() == self.pieces.capacity() {
                    self.pieces.reserve_exact(1 + self.pieces.len() / 8);
                }
                self.pieces.push(ItemChunk::new(&[item]));
            }
        }
        self.tail = item;
    }

    /// Returns the record with this LSN.
    pub fn get(&self, lsn: Lsn) -> Option<Item> {
        self.items_from(lsn).next().filter(|item| item.lsn == lsn)
    }

    /// Iterates over the records from an LSN on.
    pub fn items_from(&self, from: Lsn) -> impl Iterator<Item = Item> + '_ {
        let at = self.pieces.partition_point(|piece| piece.last < from);
        self.pieces[at..].iter().flat_map(ItemChunk::items).skip_while(move |item| item.lsn < from)
    }

    /// Removes the records in a range with sequence numbers below `below`. Returns the size of the
    /// removed records.
    pub fn remove(&mut self, range: &RangeInclusive<Lsn>, below: SeqNo) -> Size {
        let from = self.pieces.partition_point(|piece| piece.last < *range.start());
        let to = self.pieces.partition_point(|piece| piece.first <= *range.end());
        let mut removed = Size::default();
        if from >= to {
            return removed;
        }
        let mut kept = Vec::new();
        for piece in self.pieces.drain(from..to).collect::<Vec<_>>() {
            let (gone, stay): (Vec<Item>, Vec<Item>) =
                piece.items().partition(|item| range.contains(&item.lsn) && item.seq < below);
            gone.iter().for_each(|item| removed += Size::one(item.len));
            match (gone.is_empty(), stay.is_empty()) {
                (true, _) => kept.push(piece),
                (_, true) => {}
                _ => kept.push(ItemChunk::new(&stay)),
            }
        }
        if from == self.pieces.len() {
            let last = kept.last().or(self.pieces.last());
            self.tail = last.and_then(|piece| piece.items().last()).unwrap_or_default();
        }
        self.pieces.splice(from..from, kept);
        self.size -= removed;
        removed
    }

    /// Removes the records below an LSN from at most `pieces` chunks, and reduces `pieces` by the
    /// number of changed chunks. Returns the size of the removed records. Only the last chunk is
    /// decoded, if the LSN splits it.
    pub fn remove_below(&mut self, lsn: Lsn, pieces: &mut usize) -> Size {
        let dead = self.pieces.partition_point(|piece| piece.last < lsn);
        let gone = dead.min(*pieces);
        let mut removed: Size = self.pieces.drain(..gone).map(|piece| piece.size()).sum();
        self.size -= removed;
        *pieces -= gone;
        if self.pieces.is_empty() {
            self.tail = Item::default();
        } else if let Some(last) = lsn.checked_sub(1).filter(|_| gone == dead && *pieces > 0)
            && self.first() <= Some(last)
        {
            *pieces -= 1;
            removed += self.remove(&(0..=last), u64::MAX);
        }
        removed
    }

    pub fn first(&self) -> Option<Lsn> {
        self.pieces.first().map(|piece| piece.first)
    }

    pub fn last(&self) -> Option<Lsn> {
        self.pieces.last().map(|piece| piece.last)
    }

    /// Returns the highest LSN below `lsn`.
    pub fn last_below(&self, lsn: Lsn) -> Option<Lsn> {
        let at = self.pieces.partition_point(|piece| piece.first < lsn).checked_sub(1)?;
        let piece = &self.pieces[at];
        if piece.last < lsn {
            return Some(piece.last);
        }
        piece.items().map(|item| item.lsn).take_while(|there| *there < lsn).last()
    }

    /// Iterates over runs of consecutive LSNs from `from` on, each as first and last. Adjacent runs
    /// may be separate, and the first may begin below `from`.
    pub fn runs_from(&self, from: Lsn) -> impl Iterator<Item = (Lsn, Lsn)> + '_ {
        let at = self.pieces.partition_point(|piece| piece.last < from);
        let runs = self.pieces[at..].iter().flat_map(|piece| {
            // Most chunks are dense and need no decoding.
            let dense = piece.last - piece.first + 1 == u64::from(piece.count);
            let single = (!dense).then(|| piece.items().map(|item| (item.lsn, item.lsn)));
            dense.then_some((piece.first, piece.last)).into_iter().chain(single.into_iter().flatten())
        });
        runs.skip_while(move |(_, last)| *last < from)
    }

    /// Returns the allocated memory, without the size of the struct, bytes.
    pub fn memory_bytes(&self) -> usize {
        let packed: usize = self.pieces.iter().map(|piece| piece.packed.capacity()).sum();
        self.pieces.capacity() * size_of::<ItemChunk>() + packed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn random(rng: &mut io::Rng, lsn: Lsn) -> Item {
        let wild = rng.one_in(10);
        let seq = if wild { rng.below(base::MAX_SEQ) } else { lsn * 10 };
        let at = if wild { rng.next_u64() } else { lsn * 1100 };
        Item { lsn, seq, at, len: if wild { rng.below(1 << 24) as u32 } else { 1000 } }
    }

    #[test]
    fn agrees_with_a_map() {
        let mut rng = io::Rng::new(5);
        for round in 0..60 {
            let (mut recent, mut model) = (RecordsInGroup::new(1), BTreeMap::<Lsn, Item>::new());
            let spread = rng.range(1, 400);
            let mut next = rng.next_u64() >> rng.range(14, 60);
            for _ in 0..1200 {
                next += if rng.one_in(20) { rng.range(1, 20) } else { 1 };
                let lsn = if rng.one_in(5) { next.saturating_sub(rng.below(spread)) } else { next };
                if rng.one_in(100) {
                    let low = next.saturating_sub(rng.below(2 * spread));
                    let range = if rng.one_in(2) { 0..=low } else { low..=low + rng.below(spread) };
                    let below = if rng.one_in(2) { u64::MAX } else { lsn * 10 - rng.below(50).min(lsn * 10) };
                    let gone = |item: &Item| range.contains(&item.lsn) && item.seq < below;
                    let wanted: Size = model.values().filter(|i| gone(i)).map(|i| Size::one(i.len)).sum();
                    model.retain(|_, item| !gone(item));
                    assert_eq!(recent.remove(&range, below), wanted);
                }
                if rng.one_in(150) {
                    let below = next.saturating_sub(rng.below(2 * spread));
                    let wanted: Size =
                        model.values().filter(|i| i.lsn < below).map(|i| Size::one(i.len)).sum();
                    model.retain(|lsn, _| *lsn >= below);
                    let mut removed = Size::default();
                    while recent.first().is_some_and(|first| first < below) {
                        let mut pieces = 1 + rng.below(3) as usize;
                        removed += recent.remove_below(below, &mut pieces);
                    }
                    assert_eq!(removed, wanted);
                }
                if let std::collections::btree_map::Entry::Vacant(free) = model.entry(lsn) {
                    recent.insert(*free.insert(random(&mut rng, lsn)));
                }
                assert_eq!(recent.get(lsn), model.get(&lsn).copied());
            }
            assert!(recent.items_from(0).eq(model.values().copied()), "round {round}");
            assert_eq!(recent.size, model.values().map(|item| Size::one(item.len)).sum());
            assert_eq!(recent.first(), model.keys().next().copied());
            assert_eq!(recent.last(), model.keys().next_back().copied());
            assert_eq!(recent.tail, *model.values().next_back().unwrap());
            let from = next - spread;
            assert!(recent.items_from(from).eq(model.range(from..).map(|(_, item)| *item)));
            let in_runs = recent.runs_from(from).flat_map(|(first, last)| first.max(from)..=last);
            assert!(in_runs.eq(model.range(from..).map(|(lsn, _)| *lsn)));
        }
    }

    #[test]
    fn a_record_of_one_log_among_a_thousand_takes_five_bytes() {
        let mut recent = RecordsInGroup::new(1);
        for i in 0..268 {
            recent.insert(Item { lsn: 50 + i, seq: 7 + 1000 * i, at: 5000 + 1_030_000 * i, len: 1000 });
        }
        let bytes = recent.memory_bytes() + size_of::<RecordsInGroup>();
        // Including the fixed size of the struct.
        assert!(bytes < 268 * 6 + size_of::<Size>(), "{bytes} bytes");
    }
}
