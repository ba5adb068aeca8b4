//! Inline blocks: prefix-compressed entries that carry their values.
//!
//! ```text
//! values              one behind another
//! keys                for each entry: shared: varint, suffix length: varint, tag: u8,
//!                     sequence: zigzag varint against the first,
//!                     [expiry: zigzag varint against the base, if the tag has 0x10], value length: varint, suffix
//! restarts            for each entry that shares nothing with its predecessor: where it begins in `keys`, where its
//!                     value begins in `values`, u32 each
//! first sequence: u64
//! [expiry base: u64]  if bit 31 of the last field is set
//! length of values: u32
//! restart count: u32  (bit 31: some entry of the block expires)
//! ```
//!
//! The tag is the kind of the entry (0-3) plus 0x10 if it expires. Keys are user keys. The sequence
//! is coded separately, so a second version of a key costs no key bytes, and in a block of entries
//! of one age a sequence costs one byte. Every `restart_interval`-th entry is a restart: a search
//! bisects the restarts and then scans one run. Keys are stored apart from values, so that this
//! scan stays within a few cache lines, however long the values are.
//!
//! Invariants: internal keys ascend strictly; `shared` is the whole common prefix except at
//! restarts, where it is 0; the first entry is a restart. Readers trust none of these. Bytes that
//! contradict the layout are `Corruption`, and a wrong order leads at worst to a wrong answer,
//! never to reads outside the block.

use crate::cursor::{
    BlockCursor, KEY_BYTES, Passed, Step, before, extend_match, partition_point, reported_trailer,
};
use crate::prefix::{unzigzag, varint_at, zigzag};
use base::codec::{put_u32, put_u64, put_varint, varint_len};
use base::{Error, Result, SeqNo, ValueKind, key};
use cache::Block;
use std::ops::Range;

const EXPIRES: u8 = 0x10;
const EXPIRES_FLAG: u32 = 1 << 31;
/// Length of an entry of the restart array, in bytes.
const RESTART_LEN: usize = 8;

/// Builds inline blocks, one after another, in one buffer.
#[derive(Debug)]
pub struct InlineBlockBuilder {
    /// Values, and after `finish` the whole block.
    buf: Vec<u8>,
    keys: Vec<u8>,
    /// Offsets in `keys` and `buf`.
    restarts: Vec<(u32, u32)>,
    interval: usize,
    since_restart: usize,
    first_seq: SeqNo,
    expiry_base: u64,
}

impl InlineBlockBuilder {
    /// Returns an empty block with a restart every `interval` entries.
    pub fn new(interval: usize) -> Self {
        let interval = interval.max(1);
        InlineBlockBuilder {
            buf: Vec::new(),
            keys: Vec::new(),
            restarts: Vec::new(),
            interval,
            since_restart: 0,
            first_seq: 0,
            expiry_base: 0,
        }
    }

    /// Appends an entry. `shared` is the length of the prefix that `user_key` shares with the
    /// previous one; expiry 0 means none.
    #[inline]
    pub fn add(&mut self, user_key: &[u8], shared: usize, trailer: u64, expiry: u64, value: &[u8]) {
        let seq = trailer >> 8;
        let mut shared = shared;
        if self.since_restart == self.interval || self.restarts.is_empty() {
            if self.restarts.is_empty() {
                self.first_seq = seq;
            }
            self.restarts.push((self.keys.len() as u32, self.buf.len() as u32));
            self.since_restart = 0;
            shared = 0;
        }
        self.since_restart += 1;
        let suffix = &user_key[shared..];
        let tag = trailer as u8 | if expiry == 0 { 0 } else { EXPIRES };
        put_varint(&mut self.keys, shared as u64);
        put_varint(&mut self.keys, suffix.len() as u64);
        self.keys.push(tag);
        put_varint(&mut self.keys, zigzag(seq as i64 - self.first_seq as i64));
        if expiry != 0 {
            if self.expiry_base == 0 {
                self.expiry_base = expiry;
            }
            put_varint(&mut self.keys, zigzag(expiry.wrapping_sub(self.expiry_base) as i64));
        }
        put_varint(&mut self.keys, value.len() as u64);
        self.keys.extend_from_slice(suffix);
        self.buf.extend_from_slice(value);
    }

    /// Returns the length that the block would have if it were finished now.
    #[inline]
    pub fn len_estimate(&self) -> usize {
        self.buf.len() + self.keys.len() + RESTART_LEN * self.restarts.len() + 24
    }

    /// Returns the approximate number of bytes that an entry would add.
    #[inline]
    pub fn entry_len(suffix_len: usize, value_len: usize) -> usize {
        suffix_len + value_len + varint_len(value_len as u64) + 6
    }

    /// Returns true if nothing was added since the last [`InlineBlockBuilder::clear`].
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.restarts.is_empty()
    }

    /// Completes the block; the caller frames the buffer in place and then clears the builder.
    pub fn finish(&mut self) -> &mut Vec<u8> {
        debug_assert!(!self.is_empty());
        let mut count = self.restarts.len() as u32;
        let values_len = self.buf.len() as u32;
        self.buf.extend_from_slice(&self.keys);
        for &(key, value) in &self.restarts {
            put_u32(&mut self.buf, key);
            put_u32(&mut self.buf, value);
        }
        put_u64(&mut self.buf, self.first_seq);
        if self.expiry_base != 0 {
            put_u64(&mut self.buf, self.expiry_base);
            count |= EXPIRES_FLAG;
        }
        put_u32(&mut self.buf, values_len);
        put_u32(&mut self.buf, count);
        &mut self.buf
    }

    /// Starts the next block.
    pub fn clear(&mut self) {
        self.buf.clear();
        self.keys.clear();
        self.restarts.clear();
        self.since_restart = 0;
        self.expiry_base = 0;
    }
}

/// Offsets of the parts of a block. Values come first, so they end where keys start.
#[derive(Clone, Copy, Debug, Default)]
struct Shape {
    first_seq: SeqNo,
    expiry_base: u64,
    keys_start: usize,
    keys_end: usize,
    restart_count: usize,
}

/// Start of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    key: usize,
    value: usize,
}

#[cold]
fn bad(what: &str) -> Error {
    Error::corruption(format!(
        "a data block of a key table (kSST) is damaged, the other blocks stay readable: {what}"
    ))
}

impl Shape {
    fn parse(block: &[u8]) -> Result<Shape> {
        let short = || bad(&format!("it has {} bytes, fewer than its tail of 16 or 24 bytes", block.len()));
        let (body, tail) = block.split_last_chunk::<8>().ok_or_else(short)?;
        let tail = u64::from_le_bytes(*tail);
        let (values_len, count) = (tail as u32 as usize, (tail >> 32) as u32);
        let (body, expiry_base) = if count & EXPIRES_FLAG == 0 {
            (body, 0)
        } else {
            let (body, base) = body.split_last_chunk::<8>().ok_or_else(short)?;
            (body, u64::from_le_bytes(*base))
        };
        let (body, first_seq) = body.split_last_chunk::<8>().ok_or_else(short)?;
        let first_seq = u64::from_le_bytes(*first_seq);
        let restart_count = (count & !EXPIRES_FLAG) as usize;
        let keys_end = restart_count.checked_mul(RESTART_LEN).and_then(|n| body.len().checked_sub(n));
        let keys_end = keys_end.ok_or_else(|| {
            bad(&format!("its {restart_count} restart points do not fit its {} bytes", block.len()))
        })?;
        if restart_count == 0 || values_len >= keys_end {
            return Err(bad(&format!(
                "it has no entries: {restart_count} restart points, values to byte {values_len}, keys to \
                 {keys_end}"
            )));
        }
        Ok(Shape { first_seq, expiry_base, keys_start: values_len, keys_end, restart_count })
    }

    fn restart(&self, block: &[u8], i: usize) -> Result<Place> {
        let at = self.keys_end + RESTART_LEN * i;
        let bytes = block.get(at..).and_then(|rest| rest.first_chunk::<RESTART_LEN>());
        let place = bytes.map(|b| {
            let both = u64::from_le_bytes(*b);
            Place { key: self.keys_start + both as u32 as usize, value: (both >> 32) as usize }
        });
        place
            .filter(|p| p.key < self.keys_end && p.value <= self.keys_start)
            .ok_or_else(|| bad(&format!("restart point {i} leads outside its {} bytes", block.len())))
    }

    #[inline(always)]
    fn entry(&self, block: &[u8], place: Place) -> Result<Entry> {
        match self.entry_at(block, place) {
            Some(entry) => Ok(entry),
            None => Err(bad(
                "an entry in it ends past its end, or has an unknown kind or a sequence over 56 bits",
            )),
        }
    }

    #[inline(always)]
    fn entry_at(&self, block: &[u8], place: Place) -> Option<Entry> {
        let bytes = block.get(..self.keys_end)?;
        let mut at = place.key;
        let shared = varint_at(bytes, &mut at)? as usize;
        let suffix_len = varint_at(bytes, &mut at)? as usize;
        let tag = *bytes.get(at)?;
        at += 1;
        let seq = self.first_seq.wrapping_add(unzigzag(varint_at(bytes, &mut at)?) as u64);
        let mut expiry = 0;
        let mut kind = tag;
        if tag & EXPIRES != 0 {
            kind &= !EXPIRES;
            expiry = self.expiry_base.wrapping_add(unzigzag(varint_at(bytes, &mut at)?) as u64);
        }
        if kind > ValueKind::SingleDeletion as u8 || seq > key::MAX_SEQ {
            return None;
        }
        let value_end = place.value.checked_add(varint_at(bytes, &mut at)? as usize)?;
        let end = at.checked_add(suffix_len)?;
        if end > self.keys_end || value_end > self.keys_start {
            return None;
        }
        let end = Place { key: end, value: value_end };
        Some(Entry { shared, suffix: at, start: place, end, trailer: seq << 8 | u64::from(kind), expiry })
    }

    /// Returns the last run whose first entry satisfies `before`, or the first run.
    fn run(&self, block: &[u8], mut before: impl FnMut(&[u8], u64) -> bool) -> Result<usize> {
        let after = partition_point(self.restart_count, |i| {
            let entry = self.entry(block, self.restart(block, i)?)?;
            Ok(before(entry.suffix(block), entry.trailer))
        })?;
        Ok(after.saturating_sub(1))
    }

    /// Returns the first entry at or after an internal key, and whether it has the same user key.
    /// No key is built: the entry's key is `shared` bytes of the target, then its suffix.
    #[inline]
    fn search(
        &self,
        block: &[u8],
        global_seq: Option<SeqNo>,
        user_key: &[u8],
        trailer: u64,
    ) -> Result<Option<(Entry, bool)>> {
        let run =
            self.run(block, |key, t| before(key, reported_trailer(t, global_seq), user_key, trailer))?;
        let mut place = self.restart(block, run)?;
        let mut matched = 0;
        while place.key < self.keys_end {
            let entry = self.entry(block, place)?;
            match extend_match(user_key, &mut matched, entry.shared, entry.suffix(block)) {
                Step::After => return Ok(Some((entry, false))),
                Step::Equal if reported_trailer(entry.trailer, global_seq) <= trailer => {
                    return Ok(Some((entry, true)));
                }
                Step::Before | Step::Equal => {}
            }
            place = entry.end;
        }
        Ok(None)
    }
}

/// A decoded entry header; its offsets are inside the block.
#[derive(Clone, Copy, Debug)]
struct Entry {
    shared: usize,
    suffix: usize,
    start: Place,
    end: Place,
    trailer: u64,
    expiry: u64,
}

impl Entry {
    #[inline(always)]
    fn suffix<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        block.get(self.suffix..self.end.key).unwrap_or_default()
    }

    fn value(&self) -> Range<usize> {
        self.start.value..self.end.value
    }
}

/// An entry found by [`find`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Stored sequence and kind.
    pub trailer: u64,
    /// Range of the value in the block.
    pub value: Range<usize>,
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
    let found = shape.search(block, None, user_key, trailer)?;
    Ok(found.filter(|(_, same_key)| *same_key).map(|(entry, _)| Hit {
        trailer: entry.trailer,
        value: entry.value(),
        expiry: entry.expiry,
    }))
}

/// A cursor over an inline block.
#[derive(Default)]
pub struct InlineCursor {
    block: Block,
    shape: Shape,
    global_seq: Option<SeqNo>,
    valid: bool,
    /// Start and end of the current entry.
    start: Place,
    end: Place,
    expiry: u64,
    /// Internal key of the current entry, while valid.
    key: Vec<u8>,
    /// Start, end and expiry of the entries of the run before the current one, while moving
    /// backward.
    passed: Passed<(Place, Place, u64)>,
}

impl InlineCursor {
    /// Decodes the entry at `place`, whose predecessor's user key is at the start of `self.key`.
    #[inline(always)]
    fn step_to(&mut self, place: Place) -> Result<()> {
        self.valid = false;
        let entry = self.shape.entry(&self.block, place)?;
        if entry.shared > self.key.len().saturating_sub(key::TRAILER_LEN) {
            return Err(bad("an entry in it shares more bytes of the key before it than that key has"));
        }
        self.key.truncate(entry.shared);
        self.settle(&entry);
        Ok(())
    }

    /// Completes `self.key`, which holds the shared prefix, and makes `entry` the current entry.
    #[inline(always)]
    fn settle(&mut self, entry: &Entry) {
        self.key.extend_from_slice(entry.suffix(&self.block));
        let trailer = reported_trailer(entry.trailer, self.global_seq);
        self.key.extend_from_slice(&trailer.to_le_bytes());
        (self.start, self.end, self.expiry) = (entry.start, entry.end, entry.expiry);
        self.valid = true;
    }

    fn step_to_restart(&mut self, run: usize) -> Result<()> {
        self.valid = false;
        let place = self.shape.restart(&self.block, run)?;
        self.passed.clear();
        self.key.clear();
        self.step_to(place)
    }

    /// Moves to the last entry whose key starts before `limit`, and records the run for further
    /// backward steps.
    fn last_before(&mut self, limit: usize) -> Result<()> {
        let after = partition_point(self.shape.restart_count, |i| {
            Ok(self.shape.restart(&self.block, i)?.key < limit)
        })?;
        let Some(run) = after.checked_sub(1) else {
            self.valid = false;
            return Ok(());
        };
        self.step_to_restart(run)?;
        while self.end.key < limit {
            self.passed.push((self.start, self.end, self.expiry), &self.key);
            self.step_to(self.end)?;
        }
        Ok(())
    }
}

impl BlockCursor for InlineCursor {
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
        self.step_to_restart(0)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.last_before(self.shape.keys_end)
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.valid = false;
        self.passed.clear();
        let (user_key, trailer) = key::split(target);
        if let Some((entry, _)) = self.shape.search(&self.block, self.global_seq, user_key, trailer)? {
            self.key.clear();
            self.key.extend_from_slice(user_key.get(..entry.shared).unwrap_or_default());
            self.settle(&entry);
        }
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        debug_assert!(self.valid);
        self.passed.clear();
        if self.end.key >= self.shape.keys_end {
            self.valid = false;
            return Ok(());
        }
        self.step_to(self.end)
    }

    fn prev(&mut self) -> Result<()> {
        debug_assert!(self.valid);
        match self.passed.pop_into(&mut self.key) {
            Some(place) => (self.start, self.end, self.expiry) = place,
            None => self.last_before(self.start.key)?,
        }
        Ok(())
    }

    fn key(&self) -> &[u8] {
        if self.valid { &self.key } else { &[] }
    }

    fn value(&self) -> &[u8] {
        if self.valid { self.block.get(self.start.value..self.end.value).unwrap_or_default() } else { &[] }
    }

    fn expiry(&self) -> u64 {
        if self.valid { self.expiry } else { 0 }
    }
}

#[cfg(test)]
mod tests;
