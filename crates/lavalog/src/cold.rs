//! Cold files: records that outlived the group they were written to.
//!
//! Garbage collection copies the live records of groups or cold files into a new cold file, by log
//! and LSN. So scans of an old log read sequentially, and short-lived records do not mix with
//! long-lived ones again. The file is written sequentially and synced. Then one manifest edit adds
//! the file and drops the files that it replaces.
//!
//! ```text
//! records | blocks of rows | directory | footer
//! record: log varint | LSN varint | sequence varint | length varint | bytes | checksum u32, masked with (uid, offset)
//! ```
//!
//! A record includes its log, LSN and sequence number. So the index can be rebuilt from the records
//! alone ([`ColdFile::verify`] compares both), and a row that points to a wrong record is detected.
//! The length of the record's head follows from its four numbers, which the row has as well. So one
//! read of the exact length gets the record and everything to verify it.

use crate::disk::SUM_LEN;
use crate::disk::directory::{Block, Directory, LogRows};
use crate::disk::footer::FileKind;
use crate::disk::indexed::{FinishedFile, IndexedFile, Indexing};
use crate::disk::output::Output;
use crate::entry::{Entry, LogId, Lsn, Source};
use base::codec::{Reader, put_varint, varint_len};
use base::{Error, ErrorKind, Result, SeqNo, Uid};
use io::{AppendFile, ReadFile};
use std::path::Path;
use std::sync::Arc;

/// Maximum length of the head of a record.
pub(crate) const HEAD_LEN_MAX: usize = 4 * 10;

/// Identity of a cold file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColdHead {
    /// Number of the file.
    pub number: u64,
    /// Number of times that its records were copied: 1 for records from groups. Generations are not
    /// mixed, see [`crate::pick`].
    pub generation: u32,
}

impl ColdHead {
    /// Returns the source that the file's rows refer to.
    pub fn source(&self) -> Source {
        Source::Cold(self.number)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.number);
        put_varint(&mut out, u64::from(self.generation));
        out
    }

    fn decode(bytes: &[u8]) -> Result<ColdHead> {
        let mut reader = Reader::new(bytes);
        let (number, generation) = (reader.varint()?, u32::try_from(reader.varint()?));
        match (generation, reader.is_empty()) {
            (Ok(generation), true) => Ok(ColdHead { number, generation }),
            _ => Err(Error::corruption(
                "the head of the cold log file (its number and generation) cannot be decoded",
            )),
        }
    }
}

/// Returns the size of a record in a cold file without its index row.
pub fn stored_len(log: LogId, lsn: Lsn, seq: SeqNo, len: u32) -> u64 {
    head_len(log, lsn, seq, len) + u64::from(len) + SUM_LEN as u64
}

fn head_len(log: LogId, lsn: Lsn, seq: SeqNo, len: u32) -> u64 {
    [log, lsn, seq, u64::from(len)].into_iter().map(|n| varint_len(n) as u64).sum()
}

fn put_head(out: &mut Vec<u8>, entry: &Entry) {
    for n in [entry.log, entry.lsn, entry.seq, u64::from(entry.len)] {
        put_varint(out, n);
    }
}

fn len_of(entry: &Entry) -> u64 {
    stored_len(entry.log, entry.lsn, entry.seq, entry.len)
}

/// Writes a cold file. Holds the rows of its index, a few bytes per record, until
/// [`ColdFileWriter::finish`]. If dropped unfinished, it leaves an invalid file.
pub struct ColdFileWriter {
    output: Output,
    indexing: Indexing,
    head: ColdHead,
    buf: Vec<u8>,
}

impl ColdFileWriter {
    /// Begins a cold file in an empty file.
    pub fn new(file: Box<dyn AppendFile>, path: &Path, uid: Uid, head: ColdHead) -> ColdFileWriter {
        let output = Output::new(file, path, uid);
        ColdFileWriter { output, indexing: Indexing::default(), head, buf: Vec::new() }
    }

    /// Returns the number of bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.output.offset()
    }

    /// Appends a record, in ascending order of log and LSN. Returns its index entry with the
    /// position in this file.
    ///
    /// # Errors
    /// `InvalidArgument` if the record is out of order; `TooLarge` over
    /// [`crate::limits::RECORD_LEN_MAX`]; I/O errors.
    pub fn add(&mut self, log: LogId, lsn: Lsn, seq: SeqNo, bytes: &[u8]) -> Result<Entry> {
        let len = u32::try_from(bytes.len()).ok().filter(|_| bytes.len() <= crate::limits::RECORD_LEN_MAX);
        let Some(len) = len else {
            let why = format!(
                "a record of {} bytes is over the limit of {} bytes for a cold file (a fault of the engine: report it)",
                bytes.len(),
                crate::limits::RECORD_LEN_MAX
            );
            return Err(self.output.blame(Error::new(ErrorKind::TooLarge, why)));
        };
        let entry = Entry { log, lsn, seq, at: self.output.offset(), len };
        self.indexing.check(&entry).map_err(|e| self.output.blame(e))?;
        self.buf.clear();
        put_head(&mut self.buf, &entry);
        self.output.frame(&[&self.buf, bytes])?;
        self.indexing.add(&entry)?;
        Ok(entry)
    }

    /// Writes the index and syncs the file; the caller syncs the parent directory.
    ///
    /// # Errors
    /// I/O errors; the file is then unusable.
    pub fn finish(self) -> Result<FinishedFile> {
        let records_end = self.output.offset();
        self.indexing.finish(self.output, FileKind::Cold, &self.head.encode(), records_end)
    }
}

/// An open cold file.
#[derive(Clone, Debug)]
pub struct ColdFile {
    indexed: IndexedFile,
    head: ColdHead,
}

impl ColdFile {
    /// Opens the file with the given number and uid, and reads its directory.
    ///
    /// # Errors
    /// `Corruption` or `Unsupported`, with file and offset; I/O errors.
    pub fn open(file: Arc<dyn ReadFile>, number: u64, uid: Uid) -> Result<(ColdFile, Directory)> {
        let (indexed, head, directory) = IndexedFile::open(file, FileKind::Cold, uid)?;
        let at = indexed.input.footer().directory_offset;
        let head = ColdHead::decode(&head).map_err(|e| indexed.input.blame(e, at))?;
        if head.number != number {
            let why = format!("this is cold file {}, expected was {number}: files were swapped", head.number);
            return Err(indexed.input.blame(Error::corruption(why), at));
        }
        Ok((ColdFile { indexed, head }, directory))
    }

    /// Returns the identity of the file.
    pub fn head(&self) -> &ColdHead {
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
    /// The errors of [`ColdFile::block`].
    pub fn find(&self, log: &LogRows, lsn: Lsn) -> Result<Option<Entry>> {
        self.indexed.find(log, lsn)
    }

    /// Calls `take` for the entries of all records of a log, LSNs ascending. Reads blocks in large
    /// requests and checks them against the directory.
    ///
    /// # Errors
    /// The errors of [`ColdFile::block`] and of `take`.
    pub fn each_of(&self, log: &LogRows, take: &mut dyn FnMut(&Entry) -> Result<()>) -> Result<()> {
        self.indexed.each_of(log, take)
    }

    /// Appends the bytes of a record to `out`. One read.
    ///
    /// # Errors
    /// `Corruption`, with file and offset, if the record is damaged or does not match the entry;
    /// I/O errors. `out` is then unchanged.
    pub fn read(&self, entry: &Entry, out: &mut Vec<u8>) -> Result<()> {
        self.read_run(std::slice::from_ref(entry), &mut |_, bytes| {
            out.extend_from_slice(bytes);
            Ok(())
        })
    }

    /// Reads records at ascending positions in one request and calls `take` for each. The request
    /// covers everything from the first to the last record. Records with consecutive LSNs of a log
    /// are adjacent.
    ///
    /// # Errors
    /// The errors of [`ColdFile::read`] and of `take`.
    pub fn read_run(
        &self,
        entries: &[Entry],
        take: &mut dyn FnMut(&Entry, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return Ok(()) };
        let end = last.at.checked_add(len_of(last)).filter(|&end| end <= self.indexed.blocks_begin());
        let len = end.and_then(|end| end.checked_sub(first.at));
        let Some(len) = len else {
            let why = "the index points outside the records of the file: the offset is where the record should begin; other records stay readable";
            return Err(self.indexed.input.blame(Error::corruption(why), first.at));
        };
        let bytes = self.indexed.input.bytes(first.at, len, 0)?;
        for entry in entries {
            take(entry, self.open_record(&bytes, first.at, entry)?)?;
        }
        Ok(())
    }

    /// Returns the bytes of a record from a piece of the file that starts at offset `from`.
    fn open_record<'a>(&self, piece: &'a [u8], from: u64, entry: &Entry) -> Result<&'a [u8]> {
        let blame = |why: &str| self.indexed.input.blame(Error::corruption(why), entry.at);
        let begin = entry.at.checked_sub(from).and_then(|begin| usize::try_from(begin).ok());
        let len = usize::try_from(len_of(entry)).ok();
        let frame = begin.zip(len).and_then(|(begin, len)| piece.get(begin..)?.get(..len));
        let frame = frame.ok_or_else(|| {
            blame("the index has the positions of neighboring records of the cold log file out of order")
        })?;
        let payload = self.indexed.input.verify(frame, entry.at)?;
        let mut head = Vec::with_capacity(HEAD_LEN_MAX);
        put_head(&mut head, entry);
        payload.strip_prefix(&head[..]).ok_or_else(|| {
            blame(&format!(
                "the bytes at this offset are not record {} of log {}, which the index has here; other records stay readable",
                entry.lsn, entry.log
            ))
        })
    }

    /// Reads and checks the whole file: checksums, adjacency without gaps, and agreement of records
    /// and index. `directory` is the result of opening the file. Returns the length of the file.
    ///
    /// # Errors
    /// `Corruption`, with file and offset; I/O errors.
    pub fn verify(&self, directory: &Directory) -> Result<u64> {
        let mut records = self.records();
        for log in &directory.logs {
            self.each_of(log, &mut |row| {
                let found = records.next()?.map(|(entry, _)| entry);
                if found == Some(*row) {
                    return Ok(());
                }
                let found = found.map_or_else(|| "no record".to_owned(), |entry| entry.to_string());
                let why = format!(
                    "the index of the cold log file has {row}, but the file has {found} at this offset"
                );
                Err(self.indexed.input.blame(Error::corruption(why), row.at))
            })?;
        }
        if let Some((entry, _)) = records.next()? {
            let why = format!("{entry} is missing in the index of the cold log file");
            return Err(self.indexed.input.blame(Error::corruption(why), entry.at));
        }
        Ok(self.indexed.input.footer().file_len)
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        self.indexed.input.path()
    }

    /// Returns the offset of the end of the records.
    pub(crate) fn records_end(&self) -> u64 {
        self.indexed.blocks_begin()
    }

    /// Returns the size of an entry's record in the file.
    pub(crate) fn stored_len(entry: &Entry) -> u64 {
        len_of(entry)
    }

    /// Iterates over all records from front to back, without using the index.
    pub fn records(&self) -> ColdRecords<'_> {
        ColdRecords { file: self, next: 0, piece: Vec::new(), from: 0 }
    }
}

/// Iterator over the records of a cold file, from front to back, in large requests.
pub struct ColdRecords<'a> {
    file: &'a ColdFile,
    /// Offset of the next record.
    next: u64,
    /// Buffered bytes, and their offset in the file.
    piece: Vec<u8>,
    from: u64,
}

/// Bytes per read request.
const READ_LEN: u64 = 256 << 10;

impl ColdRecords<'_> {
    /// Returns the next record: its entry and its bytes.
    ///
    /// # Errors
    /// `Corruption`, with file and offset; I/O errors. Do not continue after an error.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<(Entry, &[u8])>> {
        let end = self.file.indexed.blocks_begin();
        if self.next >= end {
            return Ok(None);
        }
        self.fill(HEAD_LEN_MAX as u64)?;
        let entry = decode_head(self.rest(), self.next).map_err(|e| self.blame(e))?;
        let len = len_of(&entry);
        if len > end - self.next {
            return Err(self.blame(Error::corruption(
                "the record at this offset ends after the end of the records in the cold log file; other records stay readable",
            )));
        }
        self.fill(len)?;
        self.next += len;
        let bytes = self.file.open_record(&self.piece, self.from, &entry)?;
        Ok(Some((entry, bytes)))
    }

    fn rest(&self) -> &[u8] {
        self.piece.get((self.next - self.from) as usize..).unwrap_or_default()
    }

    fn blame(&self, e: Error) -> Error {
        self.file.indexed.input.blame(e, self.next)
    }

    /// Ensures that `len` bytes from the next record on are buffered, or all up to the end of the
    /// records.
    fn fill(&mut self, len: u64) -> Result<()> {
        let left = self.file.indexed.blocks_begin() - self.next;
        if (self.rest().len() as u64) < len.min(left) {
            let len = len.max(READ_LEN).min(left);
            self.piece = self.file.indexed.input.bytes(self.next, len, 0)?;
            self.from = self.next;
        }
        Ok(())
    }
}

pub(crate) fn decode_head(bytes: &[u8], at: u64) -> Result<Entry> {
    let mut reader = Reader::new(bytes);
    let (log, lsn, seq) = (reader.varint()?, reader.varint()?, reader.varint()?);
    let len = reader.length(crate::limits::RECORD_LEN_MAX)? as u32;
    Ok(Entry { log, lsn, seq, at, len })
}

#[cfg(test)]
mod tests;
