//! Index files: the record positions of one log group.
//!
//! When a group is sealed, an index file is written for it, by log and LSN, with the records live
//! at that time. The file has three uses (`docs/decisions/0052-one-index-file-for-each-group.md`).
//! It holds the entries that memory drops and reads back on demand (MetaFlush records, in
//! LavaStore, PVLDB 17(12)). It is the part of the checkpoint with the positions of these records.
//! It is the reverse index that garbage collection reads instead of the group.
//!
//! ```text
//! blocks of rows | directory | footer
//! ```
//!
//! The head in the directory identifies the group ([`IndexHead`]). The file can be rebuilt from the
//! group.

use crate::disk::directory::{Block, Directory, LogRows};
use crate::disk::footer::FileKind;
use crate::disk::indexed::{FinishedFile, IndexedFile, Indexing};
use crate::disk::output::Output;
use crate::entry::{Entry, LogId, Lsn, Source};
use base::codec::{Reader, put_varint};
use base::{Error, MAX_SEQ, Result, SeqNo, Uid};
use io::{AppendFile, ReadFile};
use std::path::Path;
use std::sync::Arc;

/// Identity of an index file and of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexHead {
    /// Number of the file.
    pub number: u64,
    /// Segment number (LTN) of the group.
    pub ltn: u64,
    /// Identity of the group, which is new each time its file is reused.
    pub group: Uid,
    /// Bytes of the group's pages.
    pub filled: u64,
    /// First and last sequence number of all operations in the group. With this file, a replay
    /// needs none of them for the index.
    pub seqs: (SeqNo, SeqNo),
}

impl IndexHead {
    /// Returns the source that the file's rows refer to.
    pub fn source(&self) -> Source {
        Source::Group(self.ltn)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.number);
        put_varint(&mut out, self.ltn);
        out.extend_from_slice(&self.group.0);
        for n in [self.filled, self.seqs.0, self.seqs.1] {
            put_varint(&mut out, n);
        }
        out
    }

    fn decode(bytes: &[u8]) -> Result<IndexHead> {
        let mut reader = Reader::new(bytes);
        let head = IndexHead {
            number: reader.varint()?,
            ltn: reader.varint()?,
            group: Uid(reader.array()?),
            filled: reader.varint()?,
            seqs: (reader.varint()?, reader.varint()?),
        };
        if !reader.is_empty() || head.seqs.0 > head.seqs.1 || head.seqs.1 > MAX_SEQ {
            return Err(Error::corruption(
                "the head of the log index file has a wrong length or sequence numbers out of range",
            ));
        }
        Ok(head)
    }
}

/// Writes an index file. If dropped unfinished, it leaves an invalid file.
pub struct IndexFileWriter {
    output: Output,
    indexing: Indexing,
    head: IndexHead,
}

impl IndexFileWriter {
    /// Begins an index file in an empty file.
    pub fn new(file: Box<dyn AppendFile>, path: &Path, uid: Uid, head: IndexHead) -> IndexFileWriter {
        let output = Output::new(file, path, uid);
        IndexFileWriter { output, indexing: Indexing::default(), head }
    }

    /// Adds a record, in ascending order of log and LSN.
    ///
    /// # Errors
    /// `InvalidArgument` if the record is out of order; I/O errors.
    pub fn add(&mut self, entry: &Entry) -> Result<()> {
        self.indexing.add(entry).map_err(|e| self.output.blame(e))?;
        self.indexing.write(&mut self.output)
    }

    /// Writes the remaining data and syncs the file; the caller syncs the parent directory.
    ///
    /// # Errors
    /// I/O errors; the file is then unusable.
    pub fn finish(self) -> Result<FinishedFile> {
        self.indexing.finish(self.output, FileKind::Index, &self.head.encode(), 0)
    }
}

/// An open index file.
#[derive(Clone, Debug)]
pub struct IndexFile {
    indexed: IndexedFile,
    head: IndexHead,
}

impl IndexFile {
    /// Opens the file with the given number and uid, and reads its directory.
    ///
    /// # Errors
    /// `Corruption` or `Unsupported`, with file and offset; I/O errors.
    pub fn open(file: Arc<dyn ReadFile>, number: u64, uid: Uid) -> Result<(IndexFile, Directory)> {
        let (indexed, head, directory) = IndexedFile::open(file, FileKind::Index, uid)?;
        let at = indexed.input.footer().directory_offset;
        let head = IndexHead::decode(&head).map_err(|e| indexed.input.blame(e, at))?;
        if head.number != number {
            let why =
                format!("this is index file {}, expected was {number}: files were swapped", head.number);
            return Err(indexed.input.blame(Error::corruption(why), at));
        }
        let begin = indexed.blocks_begin();
        if !directory.logs.is_empty() && begin != 0 {
            let why = format!("the log index file has {begin} unused bytes before its first block");
            return Err(indexed.input.blame(Error::corruption(why), at));
        }
        Ok((IndexFile { indexed, head }, directory))
    }

    /// Returns the identity of the file and of its group.
    pub fn head(&self) -> &IndexHead {
        &self.head
    }

    /// Returns the entries of a block of a log: at most 256, LSNs ascending. One read.
    ///
    /// # Errors
    /// `Corruption`, with file and offset; I/O errors.
    pub fn block(&self, log: LogId, block: Block) -> Result<Vec<Entry>> {
        self.indexed.block(log, block)
    }

    /// Returns the entry of an LSN, or `None` if the file has none. `log` comes from the directory
    /// of this file. One read.
    ///
    /// # Errors
    /// The errors of [`IndexFile::block`].
    pub fn find(&self, log: &LogRows, lsn: Lsn) -> Result<Option<Entry>> {
        self.indexed.find(log, lsn)
    }

    /// Calls `take` for all records of a log, LSNs ascending. Reads blocks in large requests and
    /// checks them against the directory.
    ///
    /// # Errors
    /// The errors of [`IndexFile::block`] and of `take`.
    pub fn each_of(&self, log: &LogRows, take: &mut dyn FnMut(&Entry) -> Result<()>) -> Result<()> {
        self.indexed.each_of(log, take)
    }

    /// Reads and checks the whole file. `directory` is the result of opening it. Returns the length
    /// of the file.
    ///
    /// # Errors
    /// `Corruption`, with file and offset; I/O errors.
    pub fn verify(&self, directory: &Directory) -> Result<u64> {
        directory.logs.iter().try_for_each(|log| self.each_of(log, &mut |_| Ok(())))?;
        Ok(self.indexed.input.footer().file_len)
    }
}

#[cfg(test)]
mod tests;
