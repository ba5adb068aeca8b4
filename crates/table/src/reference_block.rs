//! Reference blocks: the entries of separated values, column by column.
//!
//! ```text
//! head     count: varint, restart interval: varint, flags: u8 (0x01: expiry column), key bytes: varint
//! keys     for each entry: shared: varint, suffix length: varint, suffix
//! restarts offset in `keys` of every interval-th entry, u32 each
//! columns  sequence; dictionary size: varint, dictionary of BlobIds; index into it; raw length;
//!          zigzag(stored length - raw length); [expiry]      (each packed, see `packed`)
//! ```
//!
//! Entries of one flush share one BlobId and often one length, so besides key and sequence a
//! reference costs a byte or two, or nothing. Columns are indexed by ordinal in constant time: only
//! keys are decoded in sequence.
//!
//! Invariants: internal keys ascend strictly; `shared` is the whole common prefix except at
//! restarts, where it is 0. As with inline blocks, readers trust none of these.

use crate::cursor::{
    BlockCursor, KEY_BYTES, Passed, Step, before, extend_match, partition_point, reported_trailer,
};
use crate::packed::{self, Bounds, Packed};
use crate::prefix::{unzigzag, varint_at, zigzag};
use crate::reference::{EncodedReference, Reference};
use base::codec::{Reader, put_u32, put_varint};
use base::{Dependency, Error, Result, SeqNo, ValueKind, key};
use cache::Block;
use std::cell::OnceCell;

const HAS_EXPIRY: u8 = 0x01;
/// Number of slots for finding a BlobId while a block is built: one for each value of its last
/// bits, in which consecutive file numbers differ.
const PLACES: usize = 256;

/// Column values of an entry.
#[derive(Clone, Copy, Debug)]
struct ColumnValues {
    seq: u64,
    /// Index of the BlobId in `names` of the builder; after the block is finished, in the
    /// dictionary.
    name: u64,
    raw: u64,
    extra: u64,
    expiry: u64,
}

/// Bounds of the columns; for BlobIds, bounds of the ids themselves.
#[derive(Clone, Copy, Debug, Default)]
struct RowBounds {
    seq: Bounds,
    blob_id: Bounds,
    raw: Bounds,
    extra: Bounds,
    expiry: Bounds,
}

impl RowBounds {
    /// Returns the bits of an entry in all columns together.
    fn width(&self) -> usize {
        [self.seq, self.blob_id, self.raw, self.extra, self.expiry].iter().map(Bounds::width).sum()
    }
}

/// Builds reference blocks, one after another.
#[derive(Debug)]
pub struct ReferenceBlockBuilder {
    keys: Vec<u8>,
    restarts: Vec<u32>,
    interval: usize,
    /// Column values of each entry.
    rows: Vec<ColumnValues>,
    bounds: RowBounds,
    /// Bits of an entry in all columns together.
    entry_bits: usize,
    /// BlobIds referenced in the block, in order of appearance. A BlobId that lost its slot in
    /// `places` appears again.
    names: Vec<Dependency>,
    /// Index in `names` of the latest BlobId with these last bits. Each use checks the entry, so
    /// slots from the previous block do no harm.
    places: Box<[u32; PLACES]>,
    dictionary: Vec<u64>,
    out: Vec<u8>,
}

impl ReferenceBlockBuilder {
    /// Returns an empty block with a restart every `interval` entries.
    pub fn new(interval: usize) -> Self {
        ReferenceBlockBuilder {
            keys: Vec::new(),
            restarts: Vec::new(),
            interval: interval.max(1),
            rows: Vec::new(),
            bounds: RowBounds::default(),
            entry_bits: 0,
            names: Vec::new(),
            places: Box::new([0; PLACES]),
            dictionary: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Appends an entry. `shared` is the length of the prefix that `user_key` shares with the
    /// previous one; expiry 0 means none.
    #[inline]
    pub fn add(&mut self, user_key: &[u8], shared: usize, seq: SeqNo, expiry: u64, reference: &Reference) {
        let mut shared = shared;
        if self.rows.len().is_multiple_of(self.interval) {
            self.restarts.push(self.keys.len() as u32);
            shared = 0;
        }
        let suffix = &user_key[shared..];
        put_varint(&mut self.keys, shared as u64);
        put_varint(&mut self.keys, suffix.len() as u64);
        self.keys.extend_from_slice(suffix);
        let extra = zigzag(reference.stored_len.wrapping_sub(reference.raw_len) as i64);
        let (raw, bounds) = (reference.raw_len, &mut self.bounds);
        // `|` instead of `||`, because each bound must see the value.
        let wider = bounds.seq.add(seq)
            | bounds.blob_id.add(reference.blob_id)
            | bounds.raw.add(raw)
            | bounds.extra.add(extra)
            | bounds.expiry.add(expiry);
        if wider {
            self.entry_bits = bounds.width();
        }
        let name = self.note_name(reference);
        self.rows.push(ColumnValues { seq, name, raw, extra, expiry });
    }

    /// Counts a reference in `names`, and returns its index there.
    #[inline]
    fn note_name(&mut self, reference: &Reference) -> u64 {
        let Reference { blob_id, raw_len, stored_len } = *reference;
        let place = &mut self.places[blob_id as usize % PLACES];
        if self.names.get(*place as usize).is_none_or(|name| name.blob_id != blob_id) {
            *place = self.names.len() as u32;
            self.names.push(Dependency { blob_id, ..Dependency::default() });
        }
        let name = &mut self.names[*place as usize];
        name.count += 1;
        name.raw_bytes = name.raw_bytes.saturating_add(raw_len);
        name.stored_bytes = name.stored_bytes.saturating_add(stored_len);
        u64::from(*place)
    }

    /// Returns the BlobIds referenced since the last [`ReferenceBlockBuilder::clear`], with partial
    /// counts: a BlobId may appear several times.
    pub fn names(&self) -> &[Dependency] {
        &self.names
    }

    /// Returns the approximate length that the block would have if it were finished now.
    #[inline]
    pub fn len_estimate(&self) -> usize {
        // BlobIds are estimated as if packed without the dictionary, which only makes them smaller.
        let columns = (self.entry_bits * self.rows.len()).div_ceil(8);
        self.keys.len() + 4 * self.restarts.len() + columns + 48
    }

    /// Returns the approximate number of bytes that an entry would add.
    pub fn entry_len(suffix_len: usize) -> usize {
        suffix_len + 8
    }

    /// Returns true if nothing was added since the last [`ReferenceBlockBuilder::clear`].
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Completes the block; the caller frames the buffer in place and then clears the builder.
    pub fn finish(&mut self) -> &mut Vec<u8> {
        debug_assert!(!self.is_empty());
        self.order_names();
        let (rows, bounds, out) = (&self.rows, &self.bounds, &mut self.out);
        let expires = bounds.expiry.high() != 0;
        put_varint(out, rows.len() as u64);
        put_varint(out, self.interval as u64);
        out.push(if expires { HAS_EXPIRY } else { 0 });
        put_varint(out, self.keys.len() as u64);
        out.extend_from_slice(&self.keys);
        self.restarts.iter().for_each(|&r| put_u32(out, r));
        packed::encode_within(out, bounds.seq, rows.iter().map(|row| row.seq));
        put_varint(out, self.dictionary.len() as u64);
        packed::encode_within(out, bounds.blob_id, self.dictionary.iter().copied());
        let names = Bounds::up_to(self.dictionary.len() as u64 - 1);
        packed::encode_within(out, names, rows.iter().map(|row| row.name));
        packed::encode_within(out, bounds.raw, rows.iter().map(|row| row.raw));
        packed::encode_within(out, bounds.extra, rows.iter().map(|row| row.extra));
        if expires {
            packed::encode_within(out, bounds.expiry, rows.iter().map(|row| row.expiry));
        }
        out
    }

    /// Builds the dictionary, and makes the entries point into it.
    fn order_names(&mut self) {
        let mut in_order: Vec<(u64, usize)> =
            self.names.iter().enumerate().map(|(at, name)| (name.blob_id, at)).collect();
        in_order.sort_unstable();
        let mut ranks = vec![0; in_order.len()];
        self.dictionary.clear();
        for (blob_id, at) in in_order {
            if self.dictionary.last() != Some(&blob_id) {
                self.dictionary.push(blob_id);
            }
            ranks[at] = self.dictionary.len() as u64 - 1;
        }
        self.rows.iter_mut().for_each(|row| row.name = ranks[row.name as usize]);
    }

    /// Starts the next block.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.restarts.clear();
        self.out.clear();
        self.names.clear();
        self.rows.clear();
        self.bounds = RowBounds::default();
        self.entry_bits = 0;
    }
}

#[cold]
fn bad(what: &str) -> Error {
    Error::corruption(format!(
        "a reference block of a key table (kSST) is damaged, the other blocks stay readable: {what}"
    ))
}

/// Offsets of the parts of a block.
#[derive(Clone, Copy, Debug, Default)]
struct Shape {
    count: usize,
    interval: usize,
    keys_start: usize,
    keys_end: usize,
    restart_count: usize,
    seqs: Packed,
    dictionary_len: usize,
    dictionary: Packed,
    blobs: Packed,
    raws: Packed,
    extras: Packed,
    expiries: Option<Packed>,
}

/// One entry of the key column.
#[derive(Clone, Copy)]
struct KeyColumnEntry {
    shared: usize,
    suffix: usize,
    end: usize,
}

impl KeyColumnEntry {
    fn suffix<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        block.get(self.suffix..self.end).unwrap_or_default()
    }
}

impl Shape {
    fn parse(block: &[u8]) -> Result<Shape> {
        let mut reader = Reader::new(block);
        // Every entry takes at least two bytes of the key column.
        let count = reader.length(block.len() / 2)?;
        let interval = reader.length(usize::MAX)?;
        let flags = reader.u8()?;
        if count == 0 || interval == 0 || flags & !HAS_EXPIRY != 0 {
            return Err(bad(&format!(
                "its header has {count} entries and {interval} entries per restart point, both at least 1, \
                 or the unknown flags {flags:#x}"
            )));
        }
        let keys_len = reader.length(block.len())?;
        let keys_start = block.len().saturating_sub(reader.rest().len());
        reader.take(keys_len)?;
        let restart_count = count.div_ceil(interval);
        reader.take(restart_count * 4)?;
        let seqs = Packed::parse(block, &mut reader, count)?;
        let dictionary_len = reader.length(count)?;
        let dictionary = Packed::parse(block, &mut reader, dictionary_len)?;
        let blobs = Packed::parse(block, &mut reader, count)?;
        let raws = Packed::parse(block, &mut reader, count)?;
        let extras = Packed::parse(block, &mut reader, count)?;
        let expiries =
            if flags & HAS_EXPIRY != 0 { Some(Packed::parse(block, &mut reader, count)?) } else { None };
        if !reader.is_empty() || dictionary_len == 0 {
            return Err(bad(&format!(
                "{} surplus bytes follow its columns, or its list of value files is empty \
                 ({dictionary_len} files)",
                reader.rest().len()
            )));
        }
        let keys_end = keys_start + keys_len;
        let columns = (seqs, dictionary, blobs, raws, extras);
        let (seqs, dictionary, blobs, raws, extras) = columns;
        #[rustfmt::skip]
        let shape = Shape {
            count, interval, keys_start, keys_end, restart_count,
            seqs, dictionary_len, dictionary, blobs, raws, extras, expiries,
        };
        Ok(shape)
    }

    fn restart(&self, block: &[u8], i: usize) -> Result<usize> {
        let at = self.keys_end + 4 * i;
        let bytes = block.get(at..).and_then(|rest| rest.first_chunk::<4>());
        let offset = bytes.map(|b| self.keys_start + u32::from_le_bytes(*b) as usize);
        offset
            .filter(|&o| o < self.keys_end)
            .ok_or_else(|| bad(&format!("restart point {i} leads outside its {} bytes", block.len())))
    }

    #[inline(always)]
    fn key_at(&self, block: &[u8], mut at: usize) -> Result<KeyColumnEntry> {
        let bytes = block.get(..self.keys_end).unwrap_or_default();
        let shared = varint_at(bytes, &mut at);
        let suffix_len = varint_at(bytes, &mut at);
        if let (Some(shared), Some(len)) = (shared, suffix_len)
            && let Some(end) = at.checked_add(len as usize)
            && end <= self.keys_end
        {
            return Ok(KeyColumnEntry { shared: shared as usize, suffix: at, end });
        }
        Err(bad("a key in it ends past its end, or the length of the key is cut off"))
    }

    #[inline(always)]
    fn trailer(&self, block: &[u8], ordinal: usize) -> Result<u64> {
        let seq = self.seqs.get(block, ordinal);
        if seq > key::MAX_SEQ {
            return Err(bad("an entry in it has a sequence over 56 bits"));
        }
        Ok(seq << 8 | ValueKind::Reference as u64)
    }

    #[inline(always)]
    fn blob_index(&self, block: &[u8], ordinal: usize) -> Result<usize> {
        match self.blobs.get(block, ordinal) {
            index if index < self.dictionary_len as u64 => Ok(index as usize),
            _ => Err(bad("an entry in it names a value file that its list of value files lacks")),
        }
    }

    /// Returns the reference of an entry whose BlobId is at `index` of the dictionary.
    #[inline(always)]
    fn reference(&self, block: &[u8], ordinal: usize, index: usize) -> Reference {
        let raw_len = self.raws.get(block, ordinal);
        let extra = unzigzag(self.extras.get(block, ordinal));
        Reference {
            blob_id: self.dictionary.get(block, index),
            raw_len,
            stored_len: raw_len.wrapping_add(extra as u64),
        }
    }

    fn expiry(&self, block: &[u8], ordinal: usize) -> u64 {
        self.expiries.map_or(0, |column| column.get(block, ordinal))
    }

    fn run(&self, block: &[u8], mut before: impl FnMut(&[u8], u64) -> bool) -> Result<usize> {
        let after = partition_point(self.restart_count, |i| {
            let entry = self.key_at(block, self.restart(block, i)?)?;
            Ok(before(entry.suffix(block), self.trailer(block, i * self.interval)?))
        })?;
        Ok(after.saturating_sub(1))
    }

    /// Returns the first entry at or after an internal key: its ordinal, its key, and whether it
    /// has the target's user key. As in inline blocks, no key is built.
    fn search(
        &self,
        block: &[u8],
        global_seq: Option<SeqNo>,
        user_key: &[u8],
        trailer: u64,
    ) -> Result<Option<(usize, KeyColumnEntry, bool)>> {
        let run =
            self.run(block, |key, t| before(key, reported_trailer(t, global_seq), user_key, trailer))?;
        let mut at = self.restart(block, run)?;
        let mut matched = 0;
        for ordinal in run * self.interval..self.count {
            let entry = self.key_at(block, at)?;
            match extend_match(user_key, &mut matched, entry.shared, entry.suffix(block)) {
                Step::Before => {}
                Step::After => return Ok(Some((ordinal, entry, false))),
                Step::Equal => {
                    if reported_trailer(self.trailer(block, ordinal)?, global_seq) <= trailer {
                        return Ok(Some((ordinal, entry, true)));
                    }
                }
            }
            at = entry.end;
        }
        Ok(None)
    }
}

/// An entry found by [`find`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Stored sequence and kind.
    pub trailer: u64,
    /// The reference.
    pub reference: Reference,
    /// Expiry time; 0: never.
    pub expiry: u64,
}

/// Finds the newest entry of `user_key` with a trailer of at most `trailer`, without building any
/// key.
///
/// # Errors
/// `Corruption` if the block is malformed where the search passes.
pub fn find(block: &[u8], user_key: &[u8], trailer: u64) -> Result<Option<Hit>> {
    let shape = Shape::parse(block)?;
    match shape.search(block, None, user_key, trailer)? {
        Some((ordinal, _, true)) => Ok(Some(Hit {
            trailer: shape.trailer(block, ordinal)?,
            reference: shape.reference(block, ordinal, shape.blob_index(block, ordinal)?),
            expiry: shape.expiry(block, ordinal),
        })),
        _ => Ok(None),
    }
}

/// A cursor over a reference block; its values are encoded references.
#[derive(Default)]
pub struct ReferenceCursor {
    block: Block,
    shape: Shape,
    global_seq: Option<SeqNo>,
    valid: bool,
    ordinal: usize,
    /// Index of the BlobId in the dictionary.
    blob_index: usize,
    next_key: usize,
    key: Vec<u8>,
    /// Encoded on demand: merge joins skip most references.
    value: OnceCell<EncodedReference>,
    /// Entries of the run before the current one, while moving backward: the start of the next key,
    /// and the entry's own user key.
    passed: Passed<usize>,
}

impl ReferenceCursor {
    /// Decodes the key at `next_key`, which belongs to `ordinal`, on top of its predecessor.
    #[inline(always)]
    fn step_key(&mut self, ordinal: usize) -> Result<()> {
        self.valid = false;
        let entry = self.shape.key_at(&self.block, self.next_key)?;
        if entry.shared > self.key.len() {
            return Err(bad("a key in it shares more bytes of the key before it than that key has"));
        }
        self.key.truncate(entry.shared);
        self.key.extend_from_slice(entry.suffix(&self.block));
        (self.ordinal, self.next_key) = (ordinal, entry.end);
        Ok(())
    }

    /// Completes the entry whose user key was decoded.
    #[inline(always)]
    fn settle(&mut self) -> Result<()> {
        let trailer = reported_trailer(self.shape.trailer(&self.block, self.ordinal)?, self.global_seq);
        self.key.extend_from_slice(&trailer.to_le_bytes());
        self.blob_index = self.shape.blob_index(&self.block, self.ordinal)?;
        self.value = OnceCell::new();
        self.valid = true;
        Ok(())
    }

    fn drop_trailer(&mut self) {
        self.key.truncate(self.key.len().saturating_sub(key::TRAILER_LEN));
    }

    /// Moves to an entry, and records the run before it for backward steps.
    fn step_to(&mut self, ordinal: usize) -> Result<()> {
        self.valid = false;
        self.passed.clear();
        let Some(run) = ordinal.checked_div(self.shape.interval).filter(|_| ordinal < self.shape.count)
        else {
            return Ok(());
        };
        self.next_key = self.shape.restart(&self.block, run)?;
        self.key.clear();
        for i in run * self.shape.interval..=ordinal {
            self.step_key(i)?;
            if i < ordinal {
                self.passed.push(self.next_key, &self.key);
            }
        }
        self.settle()
    }
}

impl BlockCursor for ReferenceCursor {
    fn load(&mut self, block: Block, global_seq: Option<SeqNo>) -> Result<()> {
        self.clear();
        self.shape = Shape::parse(&block)?;
        self.block = block;
        self.global_seq = global_seq;
        self.key.clear();
        self.key.reserve(KEY_BYTES);
        Ok(())
    }

    fn clear(&mut self) {
        self.valid = false;
        self.passed.clear();
        self.shape = Shape::default();
        self.block = Block::default();
    }

    fn valid(&self) -> bool {
        self.valid
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.step_to(0)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.step_to(self.shape.count.saturating_sub(1))
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.valid = false;
        self.passed.clear();
        let (user_key, trailer) = key::split(target);
        let found = self.shape.search(&self.block, self.global_seq, user_key, trailer)?;
        let Some((ordinal, entry, _)) = found else { return Ok(()) };
        self.key.clear();
        self.key.extend_from_slice(user_key.get(..entry.shared).unwrap_or_default());
        self.key.extend_from_slice(entry.suffix(&self.block));
        (self.ordinal, self.next_key) = (ordinal, entry.end);
        self.settle()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        debug_assert!(self.valid);
        let ordinal = self.ordinal + 1;
        if ordinal >= self.shape.count {
            self.valid = false;
            return Ok(());
        }
        self.passed.clear();
        self.drop_trailer();
        self.step_key(ordinal)?;
        self.settle()
    }

    fn prev(&mut self) -> Result<()> {
        debug_assert!(self.valid);
        let Some(ordinal) = self.ordinal.checked_sub(1) else {
            self.valid = false;
            return Ok(());
        };
        let Some(next_key) = self.passed.pop_into(&mut self.key) else { return self.step_to(ordinal) };
        self.valid = false;
        (self.ordinal, self.next_key) = (ordinal, next_key);
        self.settle()
    }

    fn key(&self) -> &[u8] {
        if self.valid { &self.key } else { &[] }
    }

    fn value(&self) -> &[u8] {
        if !self.valid {
            return &[];
        }
        self.value
            .get_or_init(|| self.shape.reference(&self.block, self.ordinal, self.blob_index).encode_inline())
    }

    fn expiry(&self) -> u64 {
        if self.valid { self.shape.expiry(&self.block, self.ordinal) } else { 0 }
    }
}

#[cfg(test)]
mod tests;
