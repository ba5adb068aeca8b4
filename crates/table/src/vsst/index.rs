//! The index from a key to the only record that may have it: crit-bit blocks in frames, under a
//! directory of separators.
//!
//! ```text
//! index frame: groups, rows (see `crate::index`; columns: start of the group, smallest offset of its records),
//!              start of the rows: u32
//! group: crit-bit block, offsets of its records less the smallest (both as in `critbit`)
//! directory: rows (columns: offset and length of a frame); the root begins with the number of levels below it: u8
//! ```
//!
//! A crit-bit search is blind, and only sound among the keys of its block. So the block is chosen
//! by comparing the key with separators: in the frame, and above it in the directory, a tree with
//! nodes of about [`NODE_LEN`] bytes. Its root, usually the whole directory, stays in memory with
//! the open file. The other nodes and the index frames are cached with priority, each under its own
//! offset, so no cache entry is large, whatever the size of the file. Offsets are in units of the
//! file's alignment.

use crate::file::{BlockKind, Caching, TableFile};
use crate::frame::BlockHandle;
use crate::index::{self, IndexShape, Separators};
use crate::prefix::{push_separator, shared_len};
use crate::sink::Sink;
use crate::source::Source;
use base::codec::{Reader, put_u32};
use base::{Error, Result, SeqNo, ValueKind, key};
use cache::{Block, Cache};
use critbit::offsets::{self, Offsets};
use std::ops::Range;

/// Approximate size at which index frames and nodes of the directory are cut.
const NODE_LEN: usize = 4096;
/// Approximate bytes of a row besides its separator.
const ROW_LEN: usize = 6;
/// Maximum number of levels; no file has more.
const LEVELS_MAX: u8 = 24;

/// Returns the word by which keys of one user key descend. Kinds do not matter in a vSST.
pub(crate) fn trailer(seq: SeqNo) -> u64 {
    key::pack_trailer(seq, ValueKind::Value)
}

/// Builds the index while records are written.
#[derive(Default)]
pub(crate) struct IndexBuilder {
    block: critbit::BlockBuilder,
    /// Offsets of the records of the open block.
    offsets: Vec<u64>,
    /// Groups of the open frame; the fields below are their rows.
    groups: Vec<u8>,
    starts: Vec<u64>,
    firsts: Vec<u64>,
    separators: Separators,
    separator_bytes: usize,
    /// Closed frames; `tops` has the separators after them.
    frames: Vec<Vec<u8>>,
    tops: Separators,
    frame_bytes: usize,
}

impl IndexBuilder {
    /// Appends a key, whose record begins at `offset`; `last` is the key before it.
    pub(crate) fn push(&mut self, last: (&[u8], SeqNo), user_key: &[u8], seq: SeqNo, offset: u64) {
        if self.block.is_full() {
            self.end_block(last, Some(user_key));
        }
        self.block.push(user_key, seq);
        self.offsets.push(offset);
    }

    fn end_block(&mut self, (last, seq): (&[u8], SeqNo), next: Option<&[u8]>) {
        self.starts.push(self.groups.len() as u64);
        let first = self.offsets.iter().copied().min().expect("a block that ends has a record");
        self.firsts.push(first);
        self.block.finish_into(&mut self.groups);
        self.offsets.iter_mut().for_each(|offset| *offset -= first);
        // In a value log file, records of neighboring keys may be anywhere.
        if self.offsets.is_sorted() {
            offsets::encode_ascending(&self.offsets, &mut self.groups);
        } else {
            offsets::encode_any(&self.offsets, &mut self.groups);
        }
        self.offsets.clear();
        let inside_a_key = next == Some(last);
        self.separators.push_with(if inside_a_key { trailer(seq) } else { 0 }, |out| match next {
            Some(next) if !inside_a_key => push_separator(out, last, next),
            _ => out.extend_from_slice(last),
        });
        let rows = self.starts.len();
        self.separator_bytes += self.separators.get(rows - 1).0.len();
        if self.groups.len() + self.separator_bytes + rows * ROW_LEN >= NODE_LEN {
            self.close_frame();
        }
    }

    fn close_frame(&mut self) {
        let rows = self.starts.len();
        let (separator, trailer) = self.separators.get(rows - 1);
        self.tops.push_with(trailer, |out| out.extend_from_slice(separator));
        let mut frame = std::mem::take(&mut self.groups);
        let start = frame.len() as u32;
        index::encode(&mut frame, &self.separators, 0..rows, &[&self.starts, &self.firsts]);
        put_u32(&mut frame, start);
        self.frame_bytes += frame.len();
        self.frames.push(frame);
        self.starts.clear();
        self.firsts.clear();
        self.separators = Separators::default();
        self.separator_bytes = 0;
    }

    /// Returns the approximate bytes that the index will take.
    pub(crate) fn len_estimate(&self) -> usize {
        // An open block takes about two bytes a key.
        self.frame_bytes
            + self.groups.len()
            + self.separator_bytes
            + 2 * self.block.len()
            + (ROW_LEN + 16) * (self.frames.len() + self.starts.len())
    }

    /// Writes frames and directory without the root; `last` is the last key. Returns the payload of
    /// the root, and the bytes of the frames written. With `warm`, also inserts them into that
    /// cache under that file number.
    pub(crate) fn finish(
        mut self,
        last: (&[u8], SeqNo),
        sink: &mut Sink,
        warm: Option<(&Cache, u64)>,
    ) -> Result<(Vec<u8>, u64)> {
        if !self.block.is_empty() {
            self.end_block(last, None);
        }
        if !self.starts.is_empty() {
            self.close_frame();
        }
        let mut written = 0;
        let mut write = |payload: &mut Vec<u8>| {
            let handle = sink.write_warm(payload, warm)?;
            written += handle.len;
            Ok(handle)
        };
        let mut handles = self.frames.iter_mut().map(&mut write).collect::<Result<Vec<BlockHandle>>>()?;
        let mut rows = self.tops;
        for level in 0.. {
            let nodes = cut(&rows);
            let mut upper = Separators::default();
            let mut upper_handles = Vec::new();
            for node in nodes.iter().cloned() {
                let root = nodes.len() == 1;
                let mut payload = if root { vec![level] } else { Vec::new() };
                let offsets: Vec<u64> = handles[node.clone()].iter().map(|h| h.offset).collect();
                let lens: Vec<u64> = handles[node.clone()].iter().map(|h| h.len).collect();
                index::encode(&mut payload, &rows, node.clone(), &[&offsets, &lens]);
                if root {
                    return Ok((payload, written));
                }
                upper_handles.push(write(&mut payload)?);
                let (separator, trailer) = rows.get(node.end - 1);
                upper.push_with(trailer, |out| out.extend_from_slice(separator));
            }
            (rows, handles) = (upper, upper_handles);
        }
        unreachable!("each level has at most half the nodes of the one below")
    }
}

/// Cuts rows into nodes of about [`NODE_LEN`] bytes and at least two rows (one, if it is the only
/// one).
fn cut(rows: &Separators) -> Vec<Range<usize>> {
    let mut nodes = Vec::new();
    let mut start = 0;
    let mut bytes = 0;
    for i in 0..rows.len() {
        let separator = rows.get(i).0;
        bytes += separator.len();
        let count = i + 1 - start;
        let common = shared_len(rows.get(start).0, separator);
        let len = bytes - (count - 1) * common + count * ROW_LEN;
        if len >= NODE_LEN && count >= 2 && i + 2 < rows.len() {
            nodes.push(start..i + 1);
            (start, bytes) = (i + 1, 0);
        }
    }
    nodes.push(start..rows.len());
    nodes
}

/// A group of an index frame, ready to be searched.
pub(crate) struct Group<'a> {
    pub(crate) block: critbit::Block<'a>,
    offsets: Offsets<'a>,
    first_offset: u64,
}

impl Group<'_> {
    /// Returns the offset of the record with that ordinal.
    pub(crate) fn offset(&self, ordinal: usize) -> Result<u64> {
        let distance = self.offsets.get(ordinal);
        let offset = distance.and_then(|d| self.first_offset.checked_add(d));
        offset.ok_or_else(|| {
            Error::corruption(format!(
                "an index block of the value file (vSST) lacks the offset of a record: number {ordinal} of \
                 {} in a key group",
                self.offsets.len()
            ))
        })
    }
}

/// An index frame.
pub(crate) struct IndexFrame<'a> {
    /// Payload without the last word; `start` is the offset of the rows.
    body: &'a [u8],
    start: usize,
    pub(crate) shape: IndexShape<2>,
}

impl<'a> IndexFrame<'a> {
    pub(crate) fn parse(payload: &'a [u8]) -> Result<Self> {
        let malformed = || {
            Error::corruption(
                "an index block of the value file (vSST) has no entries, or they begin past its end, so \
                 reads of its keys fail",
            )
        };
        let (body, start) = payload.split_last_chunk::<4>().ok_or_else(malformed)?;
        let start = u32::from_le_bytes(*start) as usize;
        let shape = IndexShape::parse(body, start)?;
        if start > body.len() || shape.rows() == 0 {
            return Err(malformed());
        }
        Ok(IndexFrame { body, start, shape })
    }

    /// Returns the row of the only group that may have a key.
    fn row(&self, user_key: &[u8], seq: SeqNo) -> usize {
        self.shape.search(self.body, user_key, trailer(seq)).min(self.shape.rows() - 1)
    }

    pub(crate) fn group(&self, row: usize) -> Result<Group<'a>> {
        let start = self.shape.column(self.body, 0, row) as usize;
        let first_offset = self.shape.column(self.body, 1, row);
        let bytes = self.body.get(start..self.start);
        let bytes = bytes.ok_or_else(|| {
            Error::corruption(format!(
                "a key group begins at byte {start} of its index block, past the end of the groups at byte \
                 {}",
                self.start
            ))
        })?;
        let block = critbit::Block::parse(bytes)?;
        let offsets = Offsets::parse(bytes.get(block.encoded_len()..).unwrap_or_default())?;
        if offsets.len() != block.len() {
            let (keys, offsets) = (block.len(), offsets.len());
            let why = format!("a key group of an index block has {offsets} record offsets for {keys} keys");
            return Err(Error::corruption(why));
        }
        Ok(Group { block, offsets, first_offset })
    }

    /// Returns the separator after a group: the user key in `out`, and the trailer.
    pub(crate) fn separator(&self, row: usize, out: &mut Vec<u8>) -> u64 {
        self.shape.separator(self.body, row, out)
    }
}

/// Returns the offset of the only record in an index frame that may have a key.
fn find_in_frame(payload: &[u8], user_key: &[u8], seq: SeqNo) -> Result<u64> {
    let frame = IndexFrame::parse(payload)?;
    let group = frame.group(frame.row(user_key, seq))?;
    group.offset(group.block.find(user_key, seq))
}

/// A node of the directory.
#[derive(Debug)]
pub(crate) struct Node {
    block: Block,
    shape: IndexShape<2>,
}

impl Node {
    fn parse(block: Block, start: usize) -> Result<Node> {
        let shape = IndexShape::parse(&block, start)?;
        if shape.rows() == 0 {
            return Err(Error::corruption(
                "a node of the index tree (directory) of the value file (vSST) is empty",
            ));
        }
        Ok(Node { block, shape })
    }

    pub(crate) fn rows(&self) -> usize {
        self.shape.rows()
    }

    pub(crate) fn handle(&self, row: usize) -> BlockHandle {
        let (offset, len) = (self.shape.column(&self.block, 0, row), self.shape.column(&self.block, 1, row));
        BlockHandle { offset, len }
    }

    /// Returns the separator after the child of a row: the user key in `out`, and the trailer.
    pub(crate) fn separator(&self, row: usize, out: &mut Vec<u8>) -> u64 {
        self.shape.separator(&self.block, row, out)
    }

    /// Returns the child for a key: the last one, for a key after all others.
    fn search(&self, user_key: &[u8], seq: SeqNo) -> BlockHandle {
        let row = self.shape.search(&self.block, user_key, trailer(seq));
        self.handle(row.min(self.rows() - 1))
    }
}

/// The directory of an open file.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) root: Node,
    /// Number of levels of nodes between the root and the index frames.
    pub(crate) levels: u8,
}

impl Directory {
    pub(crate) fn open(block: Block) -> Result<Directory> {
        let levels = Reader::new(&block).u8()?;
        if levels > LEVELS_MAX {
            return Err(Error::corruption(format!(
                "the index tree (directory) of the value file (vSST) has {levels} levels, over the limit \
                 of {LEVELS_MAX}"
            )));
        }
        Ok(Directory { root: Node::parse(block, 1)?, levels })
    }

    /// Returns the offset of the only record that may have a key.
    pub(crate) fn find<S: Source>(
        &self,
        file: &TableFile,
        user_key: &[u8],
        seq: SeqNo,
        source: &mut S,
    ) -> Result<u64, S::Stop> {
        let mut handle = self.root.search(user_key, seq);
        for _ in 0..self.levels {
            handle = node(file, handle, Caching::Fill, source)?.search(user_key, seq);
        }
        let frame = file.fetch(handle, BlockKind::VsstIndex, Caching::Fill, source)?;
        Ok(find_in_frame(&frame, user_key, seq).map_err(|e| file.locate(e, handle.offset))?)
    }
}

/// Reads a node of the directory below the root.
pub(crate) fn node<S: Source>(
    file: &TableFile,
    handle: BlockHandle,
    caching: Caching,
    source: &mut S,
) -> Result<Node, S::Stop> {
    let block = file.fetch(handle, BlockKind::VsstIndex, caching, source)?;
    Ok(Node::parse(block, 0).map_err(|e| file.locate(e, handle.offset))?)
}
