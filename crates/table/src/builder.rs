//! Writes a kSST.
//!
//! Entries come in internal-key order and go to one of two streams: references to the reference
//! stream, everything else to the inline stream. Inline blocks are written as they fill. Reference
//! blocks are held back and written in runs of up to [`RUN_LEN`] bytes, so that the blocks of each
//! stream lie together. Garbage collection reads only references, and read-ahead follows one
//! stream. After the data come filters and index partitions, notes, range tombstones, the top
//! indexes, properties, meta index and footer (the byte map is in `docs/format/ksst.md`).

use crate::block::InlineBlockBuilder;
use crate::footer::{FOOTER_LEN, Footer};
use crate::frame::BlockHandle;
use crate::key_prefix::KeyPrefix;
use crate::options::{TableIdentity, TableOptions};
use crate::prefix::{named, shared_len};
use crate::properties::{Properties, Retained};
use crate::reference::Reference;
use crate::reference_block::ReferenceBlockBuilder;
use crate::sections::{self, Section};
use crate::sink::{Sink, frame_len};
use crate::stream_builder::{FinishedStream, StreamBuilder};
use crate::tombstone_block;
use base::codec::varint_len;
use base::range_del::RangeTombstone;
use base::{Dependency, TableNotes};
use base::{Error, ErrorKind, HashMap, MAX_SEQ, Result, SeqNo, ValueKind, key, limits};
use cache::{Block, Cache, CacheKey, Segment};
use io::AppendFile;
use std::path::Path;
use std::sync::Arc;

/// Bytes of reference blocks that are written together.
const RUN_LEN: usize = 2 << 20;
/// Number of keys above which a table with references stores its notes. For shorter tables reading
/// all entries is as fast.
const NOTED_KEYS_MIN: u64 = 1024;
/// Approximate length of a block of range tombstones, in bytes.
const TOMBSTONE_BLOCK_LEN: usize = 64 << 10;

/// A table that is written but not synced.
pub struct UnsyncedTable(Sink);

impl UnsyncedTable {
    /// Makes the table durable. The caller must sync the directory.
    ///
    /// # Errors
    /// The errors of the file.
    pub fn sync(mut self) -> Result<()> {
        self.0.sync()
    }
}

/// A finished table.
#[derive(Clone, Debug)]
pub struct FinishedTable {
    /// Length of the file, in bytes.
    pub len: u64,
    /// Smallest encoded internal key; for a range tombstone its start, with kind `RangeDeletion`.
    pub smallest: Vec<u8>,
    /// Largest encoded internal key; the end of a range tombstone appears as `encode(end, MAX_SEQ,
    /// Seek)`, before every entry of `end`.
    pub largest: Vec<u8>,
    /// Properties of the table.
    pub properties: Properties,
    /// Statistics of the entries, which the file holds if it is a long table with references.
    pub notes: TableNotes,
}

/// Writes a kSST from front to back.
pub struct KsstBuilder {
    sink: Sink,
    options: TableOptions,
    warm: Option<Arc<Cache>>,
    inline: StreamBuilder,
    inline_block: InlineBlockBuilder,
    references: StreamBuilder,
    reference_block: ReferenceBlockBuilder,
    /// Sealed frames of reference blocks that are not written yet. The ordinal of the first is in
    /// `run_first`.
    run: Vec<u8>,
    run_first: usize,
    /// Blocks of the run as readers cache them; only with `warm`.
    run_blocks: Vec<Block>,
    /// True if the last entry went to the reference stream.
    last_is_reference: bool,
    tombstones: Vec<RangeTombstone>,
    tombstone_bytes: usize,
    dependencies: Vec<Dependency>,
    dependency_of: HashMap<u64, usize>,
    smallest: Vec<u8>,
    properties: Properties,
    notes: TableNotes,
}

impl KsstBuilder {
    /// Starts a table in an empty file. `path` is for error messages. `warm` is the cache to fill
    /// with reference blocks as they are written, and with index and filter partitions when the
    /// table is finished.
    pub fn new(
        file: Box<dyn AppendFile>,
        path: &Path,
        identity: TableIdentity,
        options: &TableOptions,
        warm: Option<Arc<Cache>>,
    ) -> Self {
        let options = options.clamped();
        KsstBuilder {
            sink: Sink::new(file, path, identity.uid, options.compression),
            warm,
            inline: StreamBuilder::new(&options),
            inline_block: InlineBlockBuilder::new(options.restart_interval),
            references: StreamBuilder::new(&options),
            reference_block: ReferenceBlockBuilder::new(options.restart_interval),
            run: Vec::new(),
            run_first: 0,
            run_blocks: Vec::new(),
            last_is_reference: false,
            tombstones: Vec::new(),
            tombstone_bytes: 0,
            dependencies: Vec::new(),
            dependency_of: HashMap::default(),
            smallest: Vec::new(),
            notes: TableNotes::default(),
            properties: Properties {
                identity,
                min_seq: SeqNo::MAX,
                prefix_code: options.prefix.map_or(0, KeyPrefix::code),
                ..Properties::default()
            },
            options,
        }
    }

    /// Records the creation time (properties only).
    pub fn set_created(&mut self, unix_seconds: u64) {
        self.properties.created_unix_seconds = unix_seconds;
    }

    /// Records the versions that only snapshots read (properties only).
    pub fn set_retained(&mut self, retained: Vec<Retained>) {
        self.properties.retained = retained;
    }

    /// Appends an entry. Encoded internal keys must ascend strictly. An entry of kind `Reference`
    /// has an encoded [`Reference`] as its value.
    ///
    /// # Errors
    /// `InvalidArgument` for a key out of order or an invalid entry, `TooLarge` for an entry over
    /// the limits, and the errors of the file. After an error the table cannot be finished.
    pub fn add(&mut self, ikey: &[u8], value: &[u8]) -> Result<()> {
        self.add_expiring(ikey, value, 0)
    }

    /// As [`KsstBuilder::add`], for an entry that expires at `expiry`, in seconds since 1970 (0:
    /// never).
    pub fn add_expiring(&mut self, ikey: &[u8], value: &[u8], expiry: u64) -> Result<()> {
        let entry = key::InternalKey::decode(ikey).map_err(|e| self.refuse(e))?;
        let (user_key, trailer) = key::split(ikey);
        if user_key.len() > limits::KEY_LEN_MAX || value.len() > limits::VALUE_LEN_MAX {
            let why = format!(
                "a key of {} bytes (at most {}) or a value of {} bytes (at most {}) is too long for a key \
                 table (kSST)",
                user_key.len(),
                limits::KEY_LEN_MAX,
                value.len(),
                limits::VALUE_LEN_MAX
            );
            return Err(self.refuse(Error::new(ErrorKind::TooLarge, why)));
        }
        let shared = self.shared_with_last(user_key, trailer)?;
        let is_older = shared == user_key.len() && shared == self.last_user_key().len();
        let is_reference = entry.kind == ValueKind::Reference;
        let shared = if is_reference == self.last_is_reference {
            shared
        } else {
            let stream = if is_reference { &self.references } else { &self.inline };
            shared_len(stream.last().0, user_key)
        };
        match entry.kind {
            ValueKind::Reference => self.add_reference(user_key, shared, trailer, expiry, value)?,
            ValueKind::Value | ValueKind::Deletion | ValueKind::SingleDeletion | ValueKind::Merge => {
                self.add_inline(user_key, shared, trailer, expiry, value)?;
            }
            other => {
                let why = format!(
                    "an entry of kind {other} cannot be added: add values, deletions, merge operands or \
                     references"
                );
                return Err(self.refuse(Error::invalid(why)));
            }
        }
        if self.properties.entries == 0 {
            self.smallest.extend_from_slice(ikey);
        }
        self.notes.keys += u64::from(!is_older || self.properties.entries == 0);
        if !is_reference && !entry.kind.is_tombstone() {
            self.notes.values.add((ikey.len() + value.len()) as u64);
        }
        self.last_is_reference = is_reference;
        let p = &mut self.properties;
        p.entries += 1;
        p.tombstones += u64::from(entry.kind.is_tombstone());
        p.merge_operands += u64::from(entry.kind == ValueKind::Merge);
        p.raw_key_bytes += ikey.len() as u64;
        p.min_seq = p.min_seq.min(entry.seq);
        p.max_seq = p.max_seq.max(entry.seq);
        if expiry != 0 {
            p.min_expiry = if p.min_expiry == 0 { expiry } else { p.min_expiry.min(expiry) };
            p.max_expiry = p.max_expiry.max(expiry);
        }
        Ok(())
    }

    #[cold]
    fn refuse(&self, e: Error) -> Error {
        let e = if e.is_corruption() { e.with_kind(ErrorKind::InvalidArgument) } else { e };
        self.sink.blame(e.context("adding to a key table (kSST)"))
    }

    /// Returns the user key of the last entry.
    #[inline]
    fn last_user_key(&self) -> &[u8] {
        let stream = if self.last_is_reference { &self.references } else { &self.inline };
        stream.last().0
    }

    /// Checks the order. Returns the length of the prefix shared with the last user key of the
    /// table.
    #[inline]
    fn shared_with_last(&self, user_key: &[u8], trailer: u64) -> Result<usize> {
        let stream = if self.last_is_reference { &self.references } else { &self.inline };
        let (last_user, last_trailer) = stream.last();
        let shared = shared_len(last_user, user_key);
        let ascending = match (last_user.get(shared), user_key.get(shared)) {
            // The first key may be empty, like the buffer before it.
            (None, None) => self.properties.entries == 0 || trailer < last_trailer,
            (None, Some(_)) => true,
            (Some(_), None) => false,
            (Some(a), Some(b)) => a < b,
        };
        if ascending {
            return Ok(shared);
        }
        Err(self.refuse(Error::invalid(format!(
            "key {} is not after the last key {}: add keys in ascending order, newest version first",
            named(user_key, trailer),
            named(last_user, last_trailer)
        ))))
    }

    fn add_inline(
        &mut self,
        user: &[u8],
        shared: usize,
        trailer: u64,
        expiry: u64,
        value: &[u8],
    ) -> Result<()> {
        let entry_len = InlineBlockBuilder::entry_len(user.len() - shared, value.len());
        if !self.inline_block.is_empty()
            && self.inline_block.len_estimate() + entry_len > self.options.block_len
        {
            self.cut_inline(Some(user))?;
        }
        self.inline_block.add(user, shared, trailer, expiry, value);
        self.inline.note(user, shared, trailer);
        self.properties.raw_value_bytes += value.len() as u64;
        Ok(())
    }

    fn add_reference(
        &mut self,
        user: &[u8],
        shared: usize,
        trailer: u64,
        expiry: u64,
        value: &[u8],
    ) -> Result<()> {
        let reference = Reference::decode(value).map_err(|e| self.refuse(e))?;
        let entry_len = ReferenceBlockBuilder::entry_len(user.len() - shared);
        if !self.reference_block.is_empty()
            && self.reference_block.len_estimate() + entry_len > self.options.block_len
        {
            self.cut_references(Some(user))?;
        }
        self.reference_block.add(user, shared, trailer >> 8, expiry, &reference);
        self.references.note(user, shared, trailer);
        self.notes.records.add(reference.stored_len);
        self.notes.values.add(((user.len() + key::TRAILER_LEN) as u64).saturating_add(reference.raw_len));
        self.properties.references += 1;
        self.properties.referenced_raw_bytes =
            self.properties.referenced_raw_bytes.saturating_add(reference.raw_len);
        Ok(())
    }

    /// Adds the references of the open block to the dependencies of the table. BlobIds are looked
    /// up once for each block, not for each entry.
    fn depend_on_block(&mut self) {
        for part in self.reference_block.names() {
            let fresh = self.dependencies.len();
            let at = *self.dependency_of.entry(part.blob_id).or_insert(fresh);
            if at == fresh {
                self.dependencies.push(*part);
                continue;
            }
            let sum = &mut self.dependencies[at];
            sum.count += part.count;
            sum.raw_bytes = sum.raw_bytes.saturating_add(part.raw_bytes);
            sum.stored_bytes = sum.stored_bytes.saturating_add(part.stored_bytes);
        }
    }

    fn cut_inline(&mut self, next: Option<&[u8]>) -> Result<()> {
        let handle = self.sink.write_data(self.inline_block.finish())?;
        self.inline_block.clear();
        self.inline.end_block(next, handle);
        Ok(())
    }

    fn cut_references(&mut self, next: Option<&[u8]>) -> Result<()> {
        self.depend_on_block();
        let offset = self.run.len() as u64;
        let payload = self.reference_block.finish();
        if self.warm.is_some() {
            self.run_blocks.push(Block::from(payload.as_slice()));
        }
        let len = self.sink.hold_data(payload, &mut self.run)?;
        self.reference_block.clear();
        self.references.end_block(next, BlockHandle { offset, len });
        if self.run.len() >= RUN_LEN { self.write_run() } else { Ok(()) }
    }

    fn write_run(&mut self) -> Result<()> {
        let offset = self.sink.write_run(&mut self.run, self.references.frame_lens(self.run_first))?;
        self.references.shift_offsets(self.run_first, offset);
        if let Some(cache) = &self.warm {
            let file = self.properties.identity.number;
            let offsets = self.references.offsets(self.run_first);
            for (offset, block) in offsets.zip(self.run_blocks.drain(..)) {
                cache.insert(Segment::Index, CacheKey { file, offset }, &block);
            }
        }
        self.run_first = self.references.blocks();
        Ok(())
    }

    /// Adds a range tombstone, in any order. Ignores an empty range.
    ///
    /// # Errors
    /// `InvalidArgument` or `TooLarge` for an invalid tombstone.
    pub fn add_range_tombstone(&mut self, t: &RangeTombstone) -> Result<()> {
        if t.start >= t.end {
            return Ok(());
        }
        if t.start.len().max(t.end.len()) > limits::KEY_LEN_MAX {
            let why = format!(
                "the start or end key of a range deletion has {} bytes, over the limit of {} bytes",
                t.start.len().max(t.end.len()),
                limits::KEY_LEN_MAX
            );
            return Err(self.refuse(Error::new(ErrorKind::TooLarge, why)));
        }
        if t.seq > MAX_SEQ {
            return Err(self.refuse(Error::invalid(format!(
                "the sequence {} of a range deletion is over 56 bits ({MAX_SEQ})",
                t.seq
            ))));
        }
        let len_of = |bytes: &[u8]| bytes.len() + varint_len(bytes.len() as u64);
        self.tombstone_bytes += len_of(&t.start) + len_of(&t.end) + varint_len(t.seq);
        self.tombstones.push(t.clone());
        let p = &mut self.properties;
        p.range_tombstones += 1;
        p.min_seq = p.min_seq.min(t.seq);
        p.max_seq = p.max_seq.max(t.seq);
        Ok(())
    }

    /// Returns the approximate length that the file would have if it were finished now, without
    /// compression of the open blocks.
    pub fn len_estimate(&self) -> u64 {
        let open = self.inline_block.len_estimate() + self.reference_block.len_estimate() + self.run.len();
        let meta = self.tombstone_bytes + 16 * self.dependencies.len() + 512;
        let notes = if self.properties.references > 0 && self.notes.keys > NOTED_KEYS_MIN {
            self.references.sample_len() + self.inline.sample_len()
        } else {
            0
        };
        self.sink.offset
            + (open + meta + notes) as u64
            + self.inline.len_estimate()
            + self.references.len_estimate()
    }

    /// Returns the uncompressed bytes of keys and values so far, referenced values included: the
    /// compensated size.
    pub fn raw_bytes(&self) -> u64 {
        self.properties.raw_bytes()
    }

    /// Returns true if nothing was added.
    pub fn is_empty(&self) -> bool {
        self.properties.entries == 0 && self.tombstones.is_empty()
    }

    /// Writes the remaining data and syncs the file.
    ///
    /// # Errors
    /// `InvalidArgument` if nothing was added, and the errors of the file.
    pub fn finish(self) -> Result<FinishedTable> {
        let (table, mut sink) = self.write_rest()?;
        sink.sync()?;
        Ok(table)
    }

    /// Writes the remaining data. The file is durable after [`UnsyncedTable::sync`]. If many files
    /// are written before the first of these syncs, a file system makes them durable together.
    ///
    /// # Errors
    /// The errors of [`KsstBuilder::finish`].
    pub fn finish_unsynced(self) -> Result<(FinishedTable, UnsyncedTable)> {
        let (table, mut sink) = self.write_rest()?;
        sink.flush()?;
        Ok((table, UnsyncedTable(sink)))
    }

    fn write_rest(mut self) -> Result<(FinishedTable, Sink)> {
        if self.is_empty() {
            return Err(self.refuse(Error::invalid("the table has no entries: add one before finishing")));
        }
        let largest_point = match self.properties.entries {
            0 => Vec::new(),
            _ => {
                let (user, trailer) =
                    if self.last_is_reference { self.references.last() } else { self.inline.last() };
                [user, &trailer.to_le_bytes()].concat()
            }
        };
        if !self.inline_block.is_empty() {
            self.cut_inline(None)?;
        }
        if !self.reference_block.is_empty() {
            self.cut_references(None)?;
        }
        if !self.run.is_empty() {
            self.write_run()?;
        }
        let warm = self.warm.take();
        let warm = warm.as_deref().map(|cache| (cache, self.properties.identity.number));
        let references = self.references.finish(&mut self.sink, warm)?;
        let inline = self.inline.finish(&mut self.sink, warm)?;
        self.settle_bounds(largest_point);
        self.write_meta(references, inline)
    }

    /// Computes the smallest and the largest key, range tombstones included.
    fn settle_bounds(&mut self, largest_point: Vec<u8>) {
        self.tombstones.sort();
        let (mut smallest, mut largest) = (std::mem::take(&mut self.smallest), largest_point);
        for t in &self.tombstones {
            let start = key::encode(&t.start, t.seq, ValueKind::RangeDeletion);
            let end = key::encode(&t.end, MAX_SEQ, ValueKind::Seek);
            if smallest.is_empty() || key::compare(&start, &smallest).is_lt() {
                smallest = start;
            }
            if largest.is_empty() || key::compare(&end, &largest).is_gt() {
                largest = end;
            }
        }
        (self.properties.smallest, self.properties.largest) = (smallest, largest);
    }

    fn write_meta(
        mut self,
        mut references: FinishedStream,
        mut inline: FinishedStream,
    ) -> Result<(FinishedTable, Sink)> {
        let mut all = Vec::new();
        let mut add = |sink: &mut Sink, tag, payload: &mut Vec<u8>| -> Result<()> {
            let handle = sink.write_plain(payload)?;
            payload.clear();
            all.push(Section { tag, handle });
            Ok(())
        };
        let sink = &mut self.sink;
        self.notes.sample = self.references.take_sample().union(self.inline.take_sample());
        // The notes come first: an open reads the end of the file, and needs all sections but this
        // one.
        let holds_notes = !references.top.is_empty() && self.notes.keys > NOTED_KEYS_MIN;
        let mut block = if holds_notes { self.notes.encode() } else { Vec::new() };
        if holds_notes && block.len() <= limits::BLOCK_LEN_MAX {
            add(sink, sections::NOTES, &mut block)?;
        }
        block.clear();
        for t in &self.tombstones {
            tombstone_block::encode_into(&mut block, t);
            if block.len() >= TOMBSTONE_BLOCK_LEN {
                add(sink, sections::RANGE_TOMBSTONES, &mut block)?;
            }
        }
        if !block.is_empty() {
            add(sink, sections::RANGE_TOMBSTONES, &mut block)?;
        }
        if !references.top.is_empty() {
            add(sink, sections::TOP_REFERENCES, &mut references.top)?;
        }
        if !inline.top.is_empty() {
            add(sink, sections::TOP_INLINE, &mut inline.top)?;
        }
        let p = &mut self.properties;
        p.dependencies = std::mem::take(&mut self.dependencies);
        p.dependencies.sort_unstable_by_key(|d| d.blob_id);
        p.inline_block_bytes = inline.block_bytes;
        p.reference_block_bytes = references.block_bytes;
        p.index_bytes = references.index_bytes + inline.index_bytes;
        p.filter_bytes = references.filter_bytes + inline.filter_bytes;
        p.codecs = sink.codecs | 1;
        add(sink, sections::PROPERTIES, &mut p.encode())?;
        let meta = sink.write_plain(&mut sections::encode(&all))?;
        let file_len = sink.offset + FOOTER_LEN as u64;
        let footer = Footer { uid: p.identity.uid, meta, file_len };
        sink.append(&footer.encode())?;
        let (smallest, largest) = (p.smallest.clone(), p.largest.clone());
        debug_assert_eq!(meta.len, frame_len(sections::encode(&all).len()));
        let (properties, notes) = (self.properties, self.notes);
        Ok((FinishedTable { len: file_len, smallest, largest, properties, notes }, self.sink))
    }
}
