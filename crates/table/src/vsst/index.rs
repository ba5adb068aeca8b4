//! From a key to the only record it can be: crit-bit blocks in frames, under a directory of separators.
//!
//! ```text
//! index frame: groups, rows (see `crate::index`; columns: start of the group, smallest offset of its records),
//!              start of the rows: u32
//! group: crit-bit block, offsets of its records less the smallest (both as in `critbit`)
//! directory: rows (columns: offset and length of a frame); the root begins with the number of levels below it: u8
//! ```
//!
//! A crit-bit search is blind and only sound among the keys it was built from, so the block is picked by comparing the
//! key with separators: in the frame, and above it in the directory, a tree whose nodes have about [`NODE_LEN`] bytes.
//! Its root, usually all of it, stays in memory with the open file; the other nodes and the index frames are cached with
//! priority, each under its own offset, so no cache entry is large however large the file is. Offsets count in units of
//! the file's alignment.

use crate::file::{Caching, Role, TableFile};
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

/// Index frames and nodes of the directory are cut at about this size.
const NODE_LEN: usize = 4096;
/// About what a row costs besides its separator.
const ROW_LEN: usize = 6;
/// More levels than any file has.
const LEVELS_MAX: u8 = 24;

/// The word by which keys of one user key descend: kinds do not matter in a vSST.
pub(crate) fn trailer(seq: SeqNo) -> u64 {
    key::pack_trailer(seq, ValueKind::Value)
}

/// Builds the index while records are written.
#[derive(Default)]
pub(crate) struct IndexBuilder {
    block: critbit::BlockBuilder,
    /// Offsets of the open block's records.
    offsets: Vec<u64>,
    /// The open frame: its groups, and their rows.
    groups: Vec<u8>,
    starts: Vec<u64>,
    firsts: Vec<u64>,
    separators: Separators,
    separator_bytes: usize,
    /// Closed frames, and the separators behind them.
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
        // In order of arrival, neighbours by key lie anywhere.
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

    /// About how many bytes the index will take.
    pub(crate) fn len_estimate(&self) -> usize {
        // An open block takes about two bytes a key.
        self.frame_bytes
            + self.groups.len()
            + self.separator_bytes
            + 2 * self.block.len()
            + (ROW_LEN + 16) * (self.frames.len() + self.starts.len())
    }

    /// Writes frames and directory but the root; `last` is the last key. Returns the payload of the root, and the bytes
    /// of the frames written. With `warm`, these go to that cache as well, under that file number.
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

/// Cuts rows into nodes of about [`NODE_LEN`] bytes and at least two rows (one, if there is but one).
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
    /// Where the record with that ordinal begins.
    pub(crate) fn offset(&self, ordinal: usize) -> Result<u64> {
        let distance = self.offsets.get(ordinal);
        let offset = distance.and_then(|d| self.first_offset.checked_add(d));
        offset.ok_or_else(|| Error::corruption("an index frame without the offset of a record"))
    }
}

/// An index frame.
pub(crate) struct IndexFrame<'a> {
    /// Everything but the last word, and where the rows begin in it.
    body: &'a [u8],
    start: usize,
    pub(crate) shape: IndexShape<2>,
}

impl<'a> IndexFrame<'a> {
    pub(crate) fn parse(payload: &'a [u8]) -> Result<Self> {
        let malformed = || Error::corruption("a malformed index frame");
        let (body, start) = payload.split_last_chunk::<4>().ok_or_else(malformed)?;
        let start = u32::from_le_bytes(*start) as usize;
        let shape = IndexShape::parse(body, start)?;
        if start > body.len() || shape.rows() == 0 {
            return Err(malformed());
        }
        Ok(IndexFrame { body, start, shape })
    }

    /// The row of the only group that can have a key.
    fn row(&self, user_key: &[u8], seq: SeqNo) -> usize {
        self.shape.search(self.body, user_key, trailer(seq)).min(self.shape.rows() - 1)
    }

    pub(crate) fn group(&self, row: usize) -> Result<Group<'a>> {
        let start = self.shape.column(self.body, 0, row) as usize;
        let first_offset = self.shape.column(self.body, 1, row);
        let bytes = self.body.get(start..self.start);
        let bytes = bytes.ok_or_else(|| Error::corruption("a group outside of its index frame"))?;
        let block = critbit::Block::parse(bytes)?;
        let offsets = Offsets::parse(bytes.get(block.encoded_len()..).unwrap_or_default())?;
        if offsets.len() != block.len() {
            return Err(Error::corruption("a crit-bit block with another number of offsets"));
        }
        Ok(Group { block, offsets, first_offset })
    }

    /// User key (in `out`) and trailer of the separator behind a group.
    pub(crate) fn separator(&self, row: usize, out: &mut Vec<u8>) -> u64 {
        self.shape.separator(self.body, row, out)
    }
}

/// The offset of the only record in an index frame that can belong to a key.
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
            return Err(Error::corruption("an empty node of a directory"));
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

    /// User key (in `out`) and trailer of the separator behind what a row leads to.
    pub(crate) fn separator(&self, row: usize, out: &mut Vec<u8>) -> u64 {
        self.shape.separator(&self.block, row, out)
    }

    /// The row for a key: the last, for one behind all.
    fn search(&self, user_key: &[u8], seq: SeqNo) -> BlockHandle {
        let row = self.shape.search(&self.block, user_key, trailer(seq));
        self.handle(row.min(self.rows() - 1))
    }
}

/// The directory of an open file.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) root: Node,
    /// Levels of nodes between the root and the index frames.
    pub(crate) levels: u8,
}

impl Directory {
    pub(crate) fn open(block: Block) -> Result<Directory> {
        let levels = Reader::new(&block).u8()?;
        if levels > LEVELS_MAX {
            return Err(Error::corruption(format!("a directory of {levels} levels")));
        }
        Ok(Directory { root: Node::parse(block, 1)?, levels })
    }

    /// The offset of the only record that can belong to a key.
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
        let frame = file.fetch(handle, Role::VsstIndex, Caching::Fill, source)?;
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
    let block = file.fetch(handle, Role::VsstIndex, caching, source)?;
    Ok(Node::parse(block, 0).map_err(|e| file.locate(e, handle.offset))?)
}
