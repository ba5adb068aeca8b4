//! The bytes of the newest records, in memory. A reader that follows the end of a log reads them
//! without the device.
//!
//! A ring of chunks. Records arrive in ascending order of their positions in the record lane
//! ([`GroupPosition`]). So two binary searches find a record: one for the chunk by its first
//! position, one for the record within it. Per record, only its position and end are stored. The
//! oldest chunk is dropped when the bytes exceed the limit. A dropped record is on the device or in
//! the log's tail buffer. A position always means the same bytes, as a reused group gets a new
//! number. So entries never become invalid, and trims and moves remove none.
//!
//! Cost: an append copies its bytes; a look-up is two binary searches. Memory:
//! [`RecentBytes::bytes_max`] plus one chunk, and 16 bytes per record.

use crate::logs::GroupPosition;
use base::sync::{RwLock, rank, read, write};
use std::collections::VecDeque;

/// Bytes of records in a chunk; a longer record gets its own chunk.
const CHUNK_BYTES: usize = 256 << 10;
/// Memory per record in addition to its bytes.
const ROW_BYTES: usize = size_of::<Row>();

/// Position of a record in its group, and the end of its bytes in the chunk.
#[derive(Clone, Copy, Debug)]
struct Row {
    at: u64,
    end: u32,
}

/// Consecutive records of one group.
#[derive(Debug)]
struct Chunk {
    first: GroupPosition,
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

/// The bytes of the newest records.
#[derive(Debug, Default)]
pub(crate) struct RecentBytes {
    chunks: VecDeque<Chunk>,
    memory_bytes: usize,
    /// Limit above which the oldest chunks are dropped. 0 keeps nothing.
    pub bytes_max: usize,
}

impl RecentBytes {
    /// Creates an empty ring.
    pub fn new(bytes_max: usize) -> RecentBytes {
        RecentBytes { bytes_max, ..RecentBytes::default() }
    }

    /// Keeps a record that was just appended, after all earlier ones.
    pub fn push(&mut self, place: GroupPosition, record: &[u8]) {
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

    /// Returns the bytes of the record at a position, if the ring still has them.
    pub fn find(&self, place: GroupPosition) -> Option<&[u8]> {
        let behind =
            self.chunks.partition_point(|chunk| (chunk.first.ltn, chunk.first.at) <= (place.ltn, place.at));
        let chunk = self.chunks.get(behind.checked_sub(1)?)?;
        (chunk.first.ltn == place.ltn).then(|| chunk.find(place.at)).flatten()
    }

    /// Returns the memory of the ring, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }
}

/// The newest records, shared by the writer and all readers.
#[derive(Debug)]
pub(crate) struct RecentRecords {
    /// Guards the bytes of the newest records.
    recent: RwLock<RecentBytes, rank::RecentRecords>,
}

impl RecentRecords {
    /// Creates an empty ring.
    pub fn new(bytes_max: usize) -> RecentRecords {
        RecentRecords { recent: RwLock::new(RecentBytes::new(bytes_max)) }
    }

    /// Keeps the records of a batch. Called before the index refers to them.
    pub fn push_all<'a>(&self, records: impl Iterator<Item = (GroupPosition, &'a [u8])>) {
        let mut recent = write(&self.recent);
        records.for_each(|(place, record)| recent.push(place, record));
    }

    /// Appends the bytes of the record at a position to `out`. Returns false if the ring no longer
    /// has them.
    pub fn copy(&self, place: GroupPosition, out: &mut Vec<u8>) -> bool {
        let recent = read(&self.recent);
        let bytes = recent.find(place);
        bytes.iter().for_each(|bytes| out.extend_from_slice(bytes));
        bytes.is_some()
    }

    /// Returns the memory of the ring, bytes.
    pub fn memory_bytes(&self) -> usize {
        read(&self.recent).memory_bytes()
    }
}

#[cfg(test)]
mod tests;
