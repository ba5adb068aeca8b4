//! Checks a whole table against itself.
//!
//! Every byte is read from the device, none from the cache: the frames must fill the file without gap or overlap, every
//! block must verify and decode, keys must ascend and lie between the separators of their block, every user key must
//! pass its filter, and what is counted on the way must be what the properties say. [`TableCheck`] does that in steps of about
//! half a megabyte, for whoever does not want to read a whole file at once.

use crate::block::InlineCursor;
use crate::cursor::BlockCursor;
use crate::file::{Caching, Role, Window};
use crate::filter;
use crate::footer::FileKind;
use crate::frame::BlockHandle;
use crate::options::ReadCounters;
use crate::properties::Properties;
use crate::reader::Ksst;
use crate::reference::Reference;
use crate::reference_block::ReferenceCursor;
use crate::stream::{Partition, Stream};
use crate::tombstone_block;
use base::Dependency;
use base::{Error, MAX_SEQ, Result, SeqNo, ValueKind, hash, key};
use cache::Block;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes read at once.
const WINDOW_LEN: u64 = 512 << 10;
/// Bytes of blocks that a step looks at before it returns.
pub(crate) const STEP_LEN: u64 = 512 << 10;

/// What a step of a check did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckStep {
    /// Bytes read and found sound.
    pub bytes: u64,
    /// What they are: blocks of a table, records of a vSST, chunks of a segment.
    pub parts: u64,
    /// The file was checked whole.
    pub done: bool,
}

/// What a walk over the table has seen.
#[derive(Default)]
struct Counts {
    handles: Vec<BlockHandle>,
    window: Window,
    counters: ReadCounters,
    properties: Properties,
    dependencies: BTreeMap<u64, Dependency>,
}

/// A table that is checked step by step.
pub struct TableCheck {
    table: Arc<Ksst>,
    counts: Counts,
    /// The stream under way, in the order of [`Ksst::streams`].
    stream: usize,
    walk: Walk,
}

/// A walk over one stream.
#[derive(Default)]
struct Walk {
    /// The partition and the block to come.
    p: usize,
    row: usize,
    /// Index and filter of the partition, once it is begun.
    partition: Option<(Partition, Option<Block>)>,
    /// The last internal key, and the separator before the present block.
    last: Vec<u8>,
    separator: Vec<u8>,
    entries: u64,
    seqs: Option<(SeqNo, SeqNo)>,
}

impl TableCheck {
    /// A check of all of the table.
    pub fn new(table: Arc<Ksst>) -> TableCheck {
        let mut counts = Counts::default();
        counts.properties.min_seq = SeqNo::MAX;
        TableCheck { table, counts, stream: 0, walk: Walk::default() }
    }

    /// The table.
    pub fn table(&self) -> &Arc<Ksst> {
        &self.table
    }

    /// Goes on for about half a megabyte.
    ///
    /// # Errors
    /// Those of [`Ksst::verify`]. Nothing is to be asked for after one.
    pub fn step(&mut self) -> Result<CheckStep> {
        let table = self.table.clone();
        let (mut bytes, before) = (0, self.counts.handles.len());
        while let Some(stream) = table.streams().nth(self.stream) {
            while self.walk.p < stream.partitions() {
                bytes += match stream.role {
                    Role::References => {
                        self.walk.advance::<ReferenceCursor>(&table, stream, &mut self.counts)
                    }
                    _ => self.walk.advance::<InlineCursor>(&table, stream, &mut self.counts),
                }?;
                if bytes >= STEP_LEN {
                    let parts = (self.counts.handles.len() - before) as u64;
                    return Ok(CheckStep { bytes, parts, done: false });
                }
            }
            self.walk.finish(&table, stream)?;
            (self.walk, self.stream) = (Walk::default(), self.stream + 1);
        }
        let mut counts = std::mem::take(&mut self.counts);
        table.verify_sections(&mut counts)?;
        let parts = (counts.handles.len() - before) as u64;
        table.file.check_filled(0, std::mem::take(&mut counts.handles))?;
        table.file.check_footer(FileKind::Ksst)?;
        table.compare(counts)?;
        Ok(CheckStep { bytes, parts, done: true })
    }
}

impl Ksst {
    /// Reads and checks every byte, the order, the filters, and the counts in the properties. Returns the bytes of the
    /// file.
    ///
    /// # Errors
    /// `Corruption`, with the offset, for the first thing that is wrong; and what the file reports.
    pub fn verify(self: &Arc<Self>) -> Result<u64> {
        let mut check = TableCheck::new(self.clone());
        while !check.step()?.done {}
        Ok(self.len)
    }

    fn verify_sections(&self, counts: &mut Counts) -> Result<()> {
        let p = &mut counts.properties;
        let mut tombstones = Vec::new();
        for section in &self.sections {
            let block = self.file.read(section.handle, Role::Index, &mut counts.counters)?;
            counts.handles.push(section.handle);
            if section.tag == crate::sections::RANGE_TOMBSTONES {
                let decoded = tombstone_block::decode(&block, &mut tombstones);
                decoded.map_err(|e| self.file.locate(e, section.handle.offset))?;
            }
        }
        self.file.read(self.meta, Role::Index, &mut counts.counters)?;
        counts.handles.push(self.meta);
        for t in &tombstones {
            p.range_tombstones += 1;
            p.min_seq = p.min_seq.min(t.seq);
            p.max_seq = p.max_seq.max(t.seq);
            widen(p, &key::encode(&t.start, t.seq, ValueKind::RangeDeletion));
            widen(p, &key::encode(&t.end, MAX_SEQ, ValueKind::Seek));
        }
        Ok(())
    }

    fn compare(&self, counts: Counts) -> Result<()> {
        let dependencies = self.dependencies(&mut ReadCounters::default())?;
        let (stated, mut counted) =
            (Properties { dependencies, ..self.properties.clone() }, counts.properties);
        counted.dependencies = counts.dependencies.into_values().collect();
        // What cannot be counted again.
        counted.identity = stated.identity.clone();
        counted.created_unix_seconds = stated.created_unix_seconds;
        counted.codecs = stated.codecs;
        if stated == counted {
            return Ok(());
        }
        let why =
            format!("the properties are not what the table holds: stated {stated:?}, counted {counted:?}");
        Err(self.file.locate(Error::corruption(why), self.meta.offset))
    }
}

/// Extends smallest and largest to a key.
fn widen(p: &mut Properties, ikey: &[u8]) {
    for (bound, order) in
        [(&mut p.smallest, std::cmp::Ordering::Less), (&mut p.largest, std::cmp::Ordering::Greater)]
    {
        if bound.is_empty() || key::compare(ikey, bound) == order {
            ikey.clone_into(bound);
        }
    }
}

fn bad(table: &Ksst, why: &str, offset: u64) -> Error {
    table.file.locate(Error::corruption(why), offset)
}

impl Walk {
    /// The next block, or the beginning or the end of a partition. Returns the bytes of what was read.
    fn advance<C: BlockCursor>(&mut self, table: &Ksst, stream: &Stream, counts: &mut Counts) -> Result<u64> {
        let Some((index, filter)) = self.partition.take() else { return self.begin(table, stream, counts) };
        if self.row < index.shape.rows() {
            let bytes = self.block::<C>((table, stream), &index, filter.as_ref(), counts)?;
            self.row += 1;
            self.partition = Some((index, filter));
            return Ok(bytes);
        }
        let mut user = Vec::new();
        let trailer = stream.separator(self.p, &mut user);
        user.extend_from_slice(&trailer.to_le_bytes());
        if user != self.separator {
            let offset = stream.index_handle(self.p).offset;
            return Err(bad(table, "the top index does not agree with a partition", offset));
        }
        (self.p, self.row) = (self.p + 1, 0);
        Ok(0)
    }

    /// Reads index and filter of a partition.
    fn begin(&mut self, table: &Ksst, stream: &Stream, counts: &mut Counts) -> Result<u64> {
        let file = &table.file;
        let handle = stream.index_handle(self.p);
        let index = stream.partition(file, self.p, Caching::Bypass, &mut counts.counters)?;
        counts.handles.push(handle);
        counts.properties.index_bytes += handle.len;
        let mut bytes = handle.len;
        let filter = match stream.filter_handle(self.p) {
            Some(handle) => {
                counts.handles.push(handle);
                counts.properties.filter_bytes += handle.len;
                bytes += handle.len;
                Some(file.fetch(handle, Role::Filter, Caching::Bypass, &mut counts.counters)?)
            }
            None => None,
        };
        self.partition = Some((index, filter));
        Ok(bytes)
    }

    /// All blocks of the stream were seen.
    fn finish(&self, table: &Ksst, stream: &Stream) -> Result<()> {
        let stated = (stream.entries, stream.min_seq, stream.max_seq);
        let (min_seq, max_seq) = self.seqs.unwrap_or_default();
        if stated == (self.entries, min_seq, max_seq) {
            return Ok(());
        }
        Err(bad(table, "the top index does not state what its stream holds", table.meta.offset))
    }

    fn block<C: BlockCursor>(
        &mut self,
        (table, stream): (&Ksst, &Stream),
        index: &Partition,
        filter: Option<&Block>,
        counts: &mut Counts,
    ) -> Result<u64> {
        let file = &table.file;
        let handle = index.handle(self.row);
        let span = || stream.span(self.p, handle, WINDOW_LEN, false);
        let mut window = std::mem::take(&mut counts.window);
        let block = window.block(file, handle, stream.role, &mut counts.counters, span);
        counts.window = window;
        let mut cursor = C::default();
        let here = |e| file.locate(e, handle.offset);
        cursor.load(block?, None).map_err(here)?;
        counts.handles.push(handle);
        match stream.role {
            Role::References => counts.properties.reference_block_bytes += handle.len,
            _ => counts.properties.inline_block_bytes += handle.len,
        }
        cursor.seek_to_first().map_err(here)?;
        if !cursor.valid()
            || !self.separator.is_empty() && key::compare(cursor.key(), &self.separator).is_le()
        {
            return Err(bad(table, "a block that begins before its place", handle.offset));
        }
        while cursor.valid() {
            self.entry(table, &cursor, filter, counts, handle.offset)?;
            cursor.next().map_err(here)?;
        }
        let trailer = index.shape.separator(&index.block, self.row, &mut self.separator);
        self.separator.extend_from_slice(&trailer.to_le_bytes());
        if key::compare(&self.last, &self.separator).is_gt() {
            return Err(bad(table, "a block that ends behind its separator", handle.offset));
        }
        Ok(handle.len)
    }

    fn entry<C: BlockCursor>(
        &mut self,
        table: &Ksst,
        cursor: &C,
        filter: Option<&Block>,
        counts: &mut Counts,
        offset: u64,
    ) -> Result<()> {
        let here = |e| table.file.locate(e, offset);
        let (ikey, value) = (cursor.key(), cursor.value());
        let entry = key::InternalKey::decode(ikey).map_err(here)?;
        if !self.last.is_empty() && key::compare(&self.last, ikey).is_ge() {
            return Err(bad(table, "keys that do not ascend", offset));
        }
        if entry.user_key.is_empty() {
            return Err(bad(table, "an empty key", offset));
        }
        if let Some(filter) = filter
            && (self.last.is_empty() || key::user_key(&self.last) != entry.user_key)
            && !filter::may_contain(filter, hash::key_hash(entry.user_key)).map_err(here)?
        {
            return Err(bad(table, "a key that its filter denies", offset));
        }
        let p = &mut counts.properties;
        if entry.kind == ValueKind::Reference {
            let r = Reference::decode(value).map_err(here)?;
            p.references += 1;
            p.referenced_raw_bytes = p.referenced_raw_bytes.saturating_add(r.raw_len);
            let d = counts.dependencies.entry(r.blob_id).or_default();
            d.blob_id = r.blob_id;
            d.count += 1;
            d.raw_bytes = d.raw_bytes.saturating_add(r.raw_len);
            d.stored_bytes = d.stored_bytes.saturating_add(r.stored_len);
        } else {
            p.raw_value_bytes += value.len() as u64;
        }
        p.entries += 1;
        p.tombstones += u64::from(entry.kind.is_tombstone());
        p.merge_operands += u64::from(entry.kind == ValueKind::Merge);
        p.raw_key_bytes += ikey.len() as u64;
        p.min_seq = p.min_seq.min(entry.seq);
        p.max_seq = p.max_seq.max(entry.seq);
        let expiry = cursor.expiry();
        if expiry != 0 {
            p.min_expiry = if p.min_expiry == 0 { expiry } else { p.min_expiry.min(expiry) };
            p.max_expiry = p.max_expiry.max(expiry);
        }
        widen(p, ikey);
        let (low, high) = self.seqs.unwrap_or((entry.seq, entry.seq));
        self.seqs = Some((low.min(entry.seq), high.max(entry.seq)));
        self.entries += 1;
        ikey.clone_into(&mut self.last);
        Ok(())
    }
}
