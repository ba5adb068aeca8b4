//! The bytes of the newest records, in memory: whoever follows a log reads them without the device.
//!
//! A ring of chunks. Records come in the order of their places in the log lane, which ascend ([`GroupPlace`]), so a chunk is found by
//! the place that it begins with and a record in it by its own: nothing is kept for a record but its place and where it ends.
//! The oldest chunk goes when there are too many bytes. What is not here any more is on the device, or in the log's own buffer; a
//! place means the same bytes for ever, as groups get new numbers before they are used again. So nothing here is ever wrong,
//! and nothing is ever taken out because it was trimmed or moved.
//!
//! Cost: an append copies its bytes; a look-up is two binary searches. Memory: [`Recent::bytes_max`] and one chunk, 16 bytes a record.

use crate::logs::GroupPlace;
use base::sync::{RwLock, rank, read, write};
use std::collections::VecDeque;

/// Bytes of records in a chunk; one that is longer than that has a chunk of its own.
const CHUNK_BYTES: usize = 256 << 10;
/// What a record takes in memory beside its bytes.
const ROW_BYTES: usize = size_of::<Row>();

/// Where a record begins in its group, and where its bytes end in the chunk.
#[derive(Clone, Copy, Debug)]
struct Row {
    at: u64,
    end: u32,
}

/// Records of one group that follow each other.
#[derive(Debug)]
struct Chunk {
    first: GroupPlace,
    rows: Vec<Row>,
    bytes: Vec<u8>,
}

impl Chunk {
    fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.rows.len() * ROW_BYTES
    }

    fn find(&self, at: u64) -> Option<&[u8]> {
        let row = self.rows.binary_search_by_key(&at, |row| row.at).ok()?;
        let begin =
            row.checked_sub(1).and_then(|before| self.rows.get(before)).map_or(0, |before| before.end);
        self.bytes.get(begin as usize..self.rows.get(row)?.end as usize)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    chunks: VecDeque<Chunk>,
    memory_bytes: usize,
    /// Above this the oldest go. Nothing is kept if it is 0.
    pub bytes_max: usize,
}

impl Recent {
    /// Nothing yet.
    pub fn new(bytes_max: usize) -> Recent {
        Recent { bytes_max, ..Recent::default() }
    }

    /// Keeps a record that was just appended, behind all before it.
    pub fn push(&mut self, place: GroupPlace, record: &[u8]) {
        if record.is_empty() || record.len() > self.bytes_max {
            return;
        }
        let fits = |chunk: &Chunk| {
            chunk.first.ltn == place.ltn && chunk.bytes.len() + record.len() <= chunk.bytes.capacity()
        };
        if !self.chunks.back().is_some_and(fits) {
            let bytes = Vec::with_capacity(record.len().max(CHUNK_BYTES.min(self.bytes_max)));
            let chunk = Chunk { first: place, rows: Vec::new(), bytes };
            self.memory_bytes += chunk.memory_bytes();
            self.chunks.push_back(chunk);
        }
        let Some(chunk) = self.chunks.back_mut() else { return };
        debug_assert!(chunk.rows.last().is_none_or(|row| row.at < place.at), "records come in their order");
        chunk.bytes.extend_from_slice(record);
        chunk.rows.push(Row { at: place.at, end: chunk.bytes.len() as u32 });
        self.memory_bytes += ROW_BYTES;
        while self.memory_bytes > self.bytes_max && self.chunks.len() > 1 {
            self.memory_bytes -= self.chunks.pop_front().map_or(0, |chunk| chunk.memory_bytes());
        }
    }

    /// The bytes of the record at a place, if they are still here.
    pub fn find(&self, place: GroupPlace) -> Option<&[u8]> {
        let behind =
            self.chunks.partition_point(|chunk| (chunk.first.ltn, chunk.first.at) <= (place.ltn, place.at));
        let chunk = self.chunks.get(behind.checked_sub(1)?)?;
        (chunk.first.ltn == place.ltn).then(|| chunk.find(place.at)).flatten()
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }
}

/// The newest records, shared by the writer and all readers.
#[derive(Debug)]
pub(crate) struct RecentRecords {
    /// Guards the bytes of the newest records.
    recent: RwLock<Recent, rank::RecentRecords>,
}

impl RecentRecords {
    /// Nothing yet.
    pub fn new(bytes_max: usize) -> RecentRecords {
        RecentRecords { recent: RwLock::new(Recent::new(bytes_max)) }
    }

    /// Keeps the records of a batch, before any reader can find them by the index.
    pub fn push_all<'a>(&self, records: impl Iterator<Item = (GroupPlace, &'a [u8])>) {
        let mut recent = write(&self.recent);
        records.for_each(|(place, record)| recent.push(place, record));
    }

    /// Appends the bytes of the record at a place to `out`. False if they are not here any more.
    pub fn copy(&self, place: GroupPlace, out: &mut Vec<u8>) -> bool {
        let recent = read(&self.recent);
        let bytes = recent.find(place);
        bytes.iter().for_each(|bytes| out.extend_from_slice(bytes));
        bytes.is_some()
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        read(&self.recent).memory_bytes()
    }
}

#[cfg(test)]
mod tests;
