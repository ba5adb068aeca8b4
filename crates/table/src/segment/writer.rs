//! Writes a value segment, from front to back.

use super::footer::{FOOTER_LEN, SegmentFooter};
use super::header::{self, SegmentIdentity};
use super::{CHUNK_LEN, SUM_LEN};
use base::codec::put_u32;
use base::{Error, Result, Uid, checksum};
use io::{AppendFile, SyncKind};
use std::path::{Path, PathBuf};

/// A finished segment, with the data that references to it carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishedSegment {
    /// Length of the file, in bytes.
    pub len: u64,
    /// Length of the value, in bytes.
    pub raw_len: u64,
    /// Checksum of the value (see [`SegmentFooter::checksum`]).
    pub checksum: u32,
}

/// Streams one value into a segment. If it is dropped unfinished, the file has no footer, and no
/// reader opens it.
pub struct SegmentWriter {
    file: Box<dyn AppendFile>,
    path: PathBuf,
    uid: Uid,
    header_len: u32,
    raw_len: u64,
    /// Start of the next chunk.
    chunk: Vec<u8>,
    chunk_len: usize,
    /// Unmasked checksums of all chunks, 4 bytes each: 16 KB for a value of 1 GB.
    sums: Vec<u8>,
    failed: Option<Error>,
}

impl SegmentWriter {
    /// Starts the segment of a value of `user_key` in an empty file.
    ///
    /// # Errors
    /// The errors of writing.
    pub fn new(
        file: Box<dyn AppendFile>,
        path: &Path,
        identity: &SegmentIdentity,
        user_key: &[u8],
    ) -> Result<SegmentWriter> {
        Self::with_chunks(file, path, identity, user_key, CHUNK_LEN)
    }

    /// As [`SegmentWriter::new`], with chunks of another length (for tests of the format).
    #[doc(hidden)]
    pub fn with_chunks(
        file: Box<dyn AppendFile>,
        path: &Path,
        identity: &SegmentIdentity,
        user_key: &[u8],
        chunk_len: usize,
    ) -> Result<SegmentWriter> {
        assert!(file.is_empty(), "a segment begins at the beginning of its file");
        assert!((1..=super::CHUNK_LEN_MAX).contains(&chunk_len), "chunks of {chunk_len} bytes");
        let header = header::encode(identity, user_key);
        assert!(header.len() <= header::HEADER_LEN_MAX, "a key over its limit");
        let mut writer = SegmentWriter {
            file,
            path: path.to_owned(),
            uid: identity.uid,
            header_len: header.len() as u32,
            raw_len: 0,
            chunk: Vec::new(),
            chunk_len,
            sums: Vec::new(),
            failed: None,
        };
        writer.write(&header)?;
        Ok(writer)
    }

    /// Returns the bytes of the value so far.
    pub fn raw_len(&self) -> u64 {
        self.raw_len
    }

    /// Appends bytes of the value.
    ///
    /// # Errors
    /// The errors of writing; after one, every call returns it again.
    pub fn append(&mut self, mut data: &[u8]) -> Result<()> {
        self.raw_len += data.len() as u64;
        while !data.is_empty() {
            if self.chunk.is_empty() && data.len() >= self.chunk_len {
                let (now, later) = data.split_at(self.chunk_len);
                self.write_chunk(now)?;
                data = later;
                continue;
            }
            let (now, later) = data.split_at(data.len().min(self.chunk_len - self.chunk.len()));
            self.chunk.extend_from_slice(now);
            data = later;
            if self.chunk.len() == self.chunk_len {
                self.write_held_chunk()?;
            }
        }
        Ok(())
    }

    /// Writes the rest and the footer, and makes the file durable. The caller must sync the
    /// directory.
    ///
    /// # Errors
    /// The errors of writing and syncing: the file is then unusable.
    pub fn finish(mut self) -> Result<FinishedSegment> {
        if !self.chunk.is_empty() {
            self.write_held_chunk()?;
        }
        let footer = SegmentFooter {
            uid: self.uid,
            raw_len: self.raw_len,
            file_len: self.file.len() + FOOTER_LEN as u64,
            header_len: self.header_len,
            chunk_len: self.chunk_len as u32,
            chunks: (self.sums.len() / SUM_LEN) as u32,
            checksum: checksum::checksum(&self.sums),
        };
        self.write(&footer.encode())?;
        self.file.sync(SyncKind::Full).map_err(|e| e.at_file(&self.path))?;
        assert_eq!(self.file.len(), footer.file_len, "the footer is the end");
        Ok(FinishedSegment { len: footer.file_len, raw_len: footer.raw_len, checksum: footer.checksum })
    }

    fn write_held_chunk(&mut self) -> Result<()> {
        let mut chunk = std::mem::take(&mut self.chunk);
        let written = self.write_chunk(&chunk);
        chunk.clear();
        self.chunk = chunk;
        written
    }

    fn write_chunk(&mut self, chunk: &[u8]) -> Result<()> {
        let offset = self.file.len();
        let sum = checksum::checksum(chunk);
        put_u32(&mut self.sums, sum);
        self.write(chunk)?;
        self.write(&(sum ^ checksum::mask(self.uid, offset)).to_le_bytes())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some(e) = &self.failed {
            return Err(e.clone());
        }
        self.file.append(bytes).map_err(|e| {
            let e = e.at_file(&self.path);
            self.failed = Some(e.clone());
            e
        })
    }
}
