//! Checks a whole table against itself.
//!
//! Every byte is read from the device, none from the cache: the frames must fill the file without gap or overlap, every
//! block must verify and decode, keys must ascend and lie between the separators of their block, every user key must
//! pass its filter, and what is counted on the way must be what the properties say.

use crate::block::InlineCursor;
use crate::cursor::BlockCursor;
use crate::file::{Caching, Role, Window};
use crate::filter;
use crate::footer::FileKind;
use crate::frame::BlockHandle;
use crate::options::ReadCounters;
use crate::properties::{Dependency, Properties};
use crate::reader::Ksst;
use crate::reference::Reference;
use crate::reference_block::ReferenceCursor;
use crate::stream::{Partition, Stream};
use crate::tombstone_block;
use base::{Error, MAX_SEQ, Result, SeqNo, ValueKind, hash, key};
use cache::Block;
use std::collections::BTreeMap;

/// Bytes read at once.
const WINDOW_LEN: u64 = 512 << 10;

/// What a walk over the table has seen.
#[derive(Default)]
struct Tally {
    handles: Vec<BlockHandle>,
    window: Window,
    counters: ReadCounters,
    properties: Properties,
    dependencies: BTreeMap<u64, Dependency>,
}

/// A walk over one stream.
struct Walk<'a> {
    table: &'a Ksst,
    stream: &'a Stream,
    /// The last internal key, and the separator before the present block.
    last: Vec<u8>,
    separator: Vec<u8>,
    entries: u64,
    seqs: Option<(SeqNo, SeqNo)>,
}

impl Ksst {
    /// Reads and checks every byte, the order, the filters, and the counts in the properties. Returns the bytes of the
    /// file.
    ///
    /// # Errors
    /// `Corruption`, with the offset, for the first thing that is wrong; and what the file reports.
    pub fn verify(&self) -> Result<u64> {
        let mut tally = Tally::default();
        tally.properties.min_seq = SeqNo::MAX;
        if let Some(stream) = &self.references {
            Walk::new(self, stream).run::<ReferenceCursor>(&mut tally)?;
        }
        if let Some(stream) = &self.inline {
            Walk::new(self, stream).run::<InlineCursor>(&mut tally)?;
        }
        self.verify_sections(&mut tally)?;
        self.file.check_filled(0, std::mem::take(&mut tally.handles))?;
        self.file.check_footer(FileKind::Ksst)?;
        self.compare(tally)?;
        Ok(self.len)
    }

    fn verify_sections(&self, tally: &mut Tally) -> Result<()> {
        let p = &mut tally.properties;
        let mut tombstones = Vec::new();
        for section in &self.sections {
            let block = self.file.read(section.handle, Role::Index, &mut tally.counters)?;
            tally.handles.push(section.handle);
            if section.tag == crate::sections::RANGE_TOMBSTONES {
                let decoded = tombstone_block::decode(&block, &mut tombstones);
                decoded.map_err(|e| self.file.locate(e, section.handle.offset))?;
            }
        }
        self.file.read(self.meta, Role::Index, &mut tally.counters)?;
        tally.handles.push(self.meta);
        for t in &tombstones {
            p.range_tombstones += 1;
            p.min_seq = p.min_seq.min(t.seq);
            p.max_seq = p.max_seq.max(t.seq);
            widen(p, &key::encode(&t.start, t.seq, ValueKind::RangeDeletion));
            widen(p, &key::encode(&t.end, MAX_SEQ, ValueKind::Seek));
        }
        Ok(())
    }

    fn compare(&self, tally: Tally) -> Result<()> {
        let (stated, mut counted) = (&self.properties, tally.properties);
        counted.dependencies = tally.dependencies.into_values().collect();
        // What cannot be counted again.
        counted.identity = stated.identity.clone();
        counted.created_unix_seconds = stated.created_unix_seconds;
        counted.codecs = stated.codecs;
        if *stated == counted {
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

impl<'a> Walk<'a> {
    fn new(table: &'a Ksst, stream: &'a Stream) -> Self {
        Walk { table, stream, last: Vec::new(), separator: Vec::new(), entries: 0, seqs: None }
    }

    fn bad(&self, why: &str, offset: u64) -> Error {
        self.table.file.locate(Error::corruption(why), offset)
    }

    fn run<C: BlockCursor>(mut self, tally: &mut Tally) -> Result<()> {
        let file = &self.table.file;
        for p in 0..self.stream.partitions() {
            let handle = self.stream.index_handle(p);
            let index = self.stream.partition(file, p, Caching::Bypass, &mut tally.counters)?;
            tally.handles.push(handle);
            tally.properties.index_bytes += handle.len;
            let filter = match self.stream.filter_handle(p) {
                Some(handle) => {
                    tally.handles.push(handle);
                    tally.properties.filter_bytes += handle.len;
                    Some(file.fetch(handle, Role::Filter, Caching::Bypass, &mut tally.counters)?)
                }
                None => None,
            };
            for row in 0..index.shape.rows() {
                self.block::<C>(p, &index, row, filter.as_ref(), tally)?;
            }
            let mut user = Vec::new();
            let trailer = self.stream.separator(p, &mut user);
            user.extend_from_slice(&trailer.to_le_bytes());
            if user != self.separator {
                return Err(self.bad("the top index does not agree with a partition", handle.offset));
            }
        }
        let stated = (self.stream.entries, self.stream.min_seq, self.stream.max_seq);
        let (min_seq, max_seq) = self.seqs.unwrap_or_default();
        if stated != (self.entries, min_seq, max_seq) {
            return Err(
                self.bad("the top index does not state what its stream holds", self.table.meta.offset)
            );
        }
        Ok(())
    }

    fn block<C: BlockCursor>(
        &mut self,
        p: usize,
        index: &Partition,
        row: usize,
        filter: Option<&Block>,
        tally: &mut Tally,
    ) -> Result<()> {
        let file = &self.table.file;
        let handle = index.handle(row);
        let span = || self.stream.span(p, handle, WINDOW_LEN, false);
        let mut window = std::mem::take(&mut tally.window);
        let block = window.block(file, handle, self.stream.role, &mut tally.counters, span);
        tally.window = window;
        let mut cursor = C::default();
        let here = |e| file.locate(e, handle.offset);
        cursor.load(block?, None).map_err(here)?;
        tally.handles.push(handle);
        match self.stream.role {
            Role::References => tally.properties.reference_block_bytes += handle.len,
            _ => tally.properties.inline_block_bytes += handle.len,
        }
        cursor.seek_to_first().map_err(here)?;
        if !cursor.valid()
            || !self.separator.is_empty() && key::compare(cursor.key(), &self.separator).is_le()
        {
            return Err(self.bad("a block that begins before its place", handle.offset));
        }
        while cursor.valid() {
            self.entry(&cursor, filter, tally, handle.offset)?;
            cursor.next().map_err(here)?;
        }
        let trailer = index.shape.separator(&index.block, row, &mut self.separator);
        self.separator.extend_from_slice(&trailer.to_le_bytes());
        if key::compare(&self.last, &self.separator).is_gt() {
            return Err(self.bad("a block that ends behind its separator", handle.offset));
        }
        Ok(())
    }

    fn entry<C: BlockCursor>(
        &mut self,
        cursor: &C,
        filter: Option<&Block>,
        tally: &mut Tally,
        offset: u64,
    ) -> Result<()> {
        let here = |e| self.table.file.locate(e, offset);
        let (ikey, value) = (cursor.key(), cursor.value());
        let entry = key::InternalKey::decode(ikey).map_err(here)?;
        if !self.last.is_empty() && key::compare(&self.last, ikey).is_ge() {
            return Err(self.bad("keys that do not ascend", offset));
        }
        if entry.user_key.is_empty() {
            return Err(self.bad("an empty key", offset));
        }
        if let Some(filter) = filter
            && (self.last.is_empty() || key::user_key(&self.last) != entry.user_key)
            && !filter::may_contain(filter, hash::key_hash(entry.user_key)).map_err(here)?
        {
            return Err(self.bad("a key that its filter denies", offset));
        }
        let p = &mut tally.properties;
        if entry.kind == ValueKind::Reference {
            let r = Reference::decode(value).map_err(here)?;
            p.references += 1;
            p.referenced_raw_bytes = p.referenced_raw_bytes.saturating_add(r.raw_len);
            let d = tally.dependencies.entry(r.blob_id).or_default();
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
