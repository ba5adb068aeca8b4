//! The index of the dense partitions of an open file.

use super::dense::DenseCursor;
use super::index::trailer;
use super::keys::partition_handle;
use crate::file::{BlockKind, TableFile};
use crate::frame::BlockHandle;
use crate::index::IndexShape;
use crate::source::Source;
use base::{Error, Result, SeqNo};
use cache::Block;

/// Place of the list of dense partitions. The list is read on demand and not kept.
#[derive(Debug)]
pub(crate) struct DenseIndex {
    handle: BlockHandle,
    /// Unit of offsets and lengths, in bytes.
    alignment: u64,
}

/// A record according to its dense row; lengths and offset are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DenseRecord {
    pub(crate) offset: u64,
    pub(crate) raw_len: u64,
    pub(crate) stored_len: u64,
}

impl DenseIndex {
    pub(crate) fn new(handle: BlockHandle, alignment: u32) -> Self {
        DenseIndex { handle, alignment: u64::from(alignment) }
    }

    /// Adds the file and the place of the index to an error.
    pub(crate) fn locate(&self, file: &TableFile, e: Error) -> Error {
        file.locate(e, self.handle.offset)
    }

    /// Reads the index.
    pub(crate) fn read<S: Source>(
        &self,
        file: &TableFile,
        source: &mut S,
    ) -> Result<(Block, IndexShape<2>), S::Stop> {
        let block = file.read(self.handle, BlockKind::Dense, source)?;
        let shape = IndexShape::parse(&block, 0).map_err(|e| self.locate(file, e))?;
        Ok((block, shape))
    }

    /// Finds the record of a key in the dense partitions.
    pub(crate) fn find<S: Source>(
        &self,
        file: &TableFile,
        user_key: &[u8],
        seq: SeqNo,
        source: &mut S,
    ) -> Result<Option<DenseRecord>, S::Stop> {
        let (block, shape) = self.read(file, source)?;
        let partition = shape.search(&block, user_key, trailer(seq));
        if partition >= shape.rows() {
            return Ok(None);
        }
        let handle = partition_handle(&shape, &block, partition);
        let mut cursor = DenseCursor::default();
        let here = |e| file.locate(e, handle.offset);
        cursor.load(file.read(handle, BlockKind::Dense, source)?).map_err(here)?;
        while cursor.advance().map_err(here)? {
            if cursor.user_key == user_key && cursor.row.seq == seq {
                let row = cursor.row;
                return Ok(Some(DenseRecord {
                    offset: row.offset_units.saturating_mul(self.alignment),
                    raw_len: row.raw_len,
                    stored_len: row.units.saturating_mul(self.alignment),
                }));
            }
        }
        Ok(None)
    }
}
