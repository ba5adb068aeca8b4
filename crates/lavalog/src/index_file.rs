//! Index files: where the records of one group of the log lane are.
//!
//! When a group is closed, one index file is written for it, by log and LSN, with the records that were alive then. It is
//! three things at once (`docs/decisions/0052-one-index-file-for-each-group.md`): the entries that memory gives up and reads back on demand
//! (MetaFlush records, in LavaStore, PVLDB 17(12)), the part of a checkpoint that says where these records are, and the reverse index
//! that the collector reads instead of the group.
//!
//! ```text
//! blocks of rows | directory | footer
//! ```
//!
//! The head in the directory says which group it is of ([`IndexHead`]). The file can be made again from the group.

use crate::disk::directory::{Block, Directory, LogRows};
use crate::disk::footer::FileKind;
use crate::disk::indexed::{FinishedFile, Indexed, Indexing};
use crate::disk::output::Output;
use crate::entry::{Entry, LogId, Lsn, Source};
use base::codec::{Reader, put_varint};
use base::{Error, MAX_SEQ, Result, SeqNo, Uid};
use io::{AppendFile, ReadFile};
use std::path::Path;
use std::sync::Arc;

/// Which file it is, and of which group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexHead {
    /// The number of the file.
    pub number: u64,
    /// The log tag number of the group.
    pub ltn: u64,
    /// The identity of the group, which is another each time its file is used.
    pub group: Uid,
    /// Bytes of the pages of the group.
    pub filled: u64,
    /// The first and the last sequence of the operations in the group, of records or not; replay that has read this file needs none
    /// of them for the index.
    pub seqs: (SeqNo, SeqNo),
}

impl IndexHead {
    /// What holds the records that the rows lead to.
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
            return Err(Error::corruption("the head of an index file is none"));
        }
        Ok(head)
    }
}

/// Writes an index file. Dropped unfinished, it leaves a file that no reader opens.
pub struct IndexFileWriter {
    output: Output,
    indexing: Indexing,
    head: IndexHead,
}

impl IndexFileWriter {
    /// Begins one in an empty file.
    pub fn new(file: Box<dyn AppendFile>, path: &Path, uid: Uid, head: IndexHead) -> IndexFileWriter {
        let output = Output::new(file, path, uid);
        IndexFileWriter { output, indexing: Indexing::default(), head }
    }

    /// Adds a record. They come by log, and by LSN in a log, each LSN once.
    ///
    /// # Errors
    /// `InvalidArgument` if it does not lie behind the one before; those of writing.
    pub fn add(&mut self, entry: &Entry) -> Result<()> {
        self.indexing.add(entry).map_err(|e| self.output.blame(e))?;
        self.indexing.write(&mut self.output)
    }

    /// Writes the rest and makes the file durable (the directory that it is in is the caller's to sync).
    ///
    /// # Errors
    /// Those of writing and syncing: the file is then of no use.
    pub fn finish(self) -> Result<FinishedFile> {
        self.indexing.finish(self.output, FileKind::Index, &self.head.encode(), 0)
    }
}

/// An open index file.
#[derive(Clone, Debug)]
pub struct IndexFile {
    indexed: Indexed,
    head: IndexHead,
}

impl IndexFile {
    /// Opens the file with that number and uid, and reads its directory.
    ///
    /// # Errors
    /// `Corruption` or `Unsupported`, naming file and offset; those of reading.
    pub fn open(file: Arc<dyn ReadFile>, number: u64, uid: Uid) -> Result<(IndexFile, Directory)> {
        let (indexed, head, directory) = Indexed::open(file, FileKind::Index, uid)?;
        let at = indexed.input.footer().directory_offset;
        let head = IndexHead::decode(&head).map_err(|e| indexed.input.blame(e, at))?;
        if head.number != number {
            let why =
                format!("this is index file {}, expected was {number}: files were swapped", head.number);
            return Err(indexed.input.blame(Error::corruption(why), at));
        }
        let begin = indexed.blocks_begin();
        if !directory.logs.is_empty() && begin != 0 {
            let why = format!("{begin} bytes before the first block of an index file");
            return Err(indexed.input.blame(Error::corruption(why), at));
        }
        Ok((IndexFile { indexed, head }, directory))
    }

    /// Which file it is, and of which group.
    pub fn head(&self) -> &IndexHead {
        &self.head
    }

    /// The records of a block of a log: at most 256, LSNs ascending. One read.
    ///
    /// # Errors
    /// `Corruption` naming file and offset; those of reading.
    pub fn block(&self, log: LogId, block: Block) -> Result<Vec<Entry>> {
        self.indexed.block(log, block)
    }

    /// The record of an LSN, `None` if `log`, which is of the directory of this file, has none. One read.
    ///
    /// # Errors
    /// Those of [`IndexFile::block`].
    pub fn find(&self, log: &LogRows, lsn: Lsn) -> Result<Option<Entry>> {
        self.indexed.find(log, lsn)
    }

    /// Hands all records of a log to `take`, LSNs ascending, blocks read in large requests and held against the directory.
    ///
    /// # Errors
    /// Those of [`IndexFile::block`] and of `take`.
    pub fn each_of(&self, log: &LogRows, take: &mut dyn FnMut(&Entry) -> Result<()>) -> Result<()> {
        self.indexed.each_of(log, take)
    }

    /// Reads all of the file and checks it. `directory` is what opening it gave. Returns the bytes of the file.
    ///
    /// # Errors
    /// `Corruption` naming file and offset; those of reading.
    pub fn verify(&self, directory: &Directory) -> Result<u64> {
        directory.logs.iter().try_for_each(|log| self.each_of(log, &mut |_| Ok(())))?;
        Ok(self.indexed.input.footer().file_len)
    }
}

#[cfg(test)]
mod tests;
