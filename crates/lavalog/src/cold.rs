//! Cold files: records that outlived the group they were written to.
//!
//! The collector copies what is alive of some groups or cold files into a new cold file, by log and LSN, so that scans of an
//! old log read in order, and short-lived records do not come to lie among long-lived ones again. The file is appended from
//! front to back, made durable, and only then named by the edit that drops what was copied from.
//!
//! ```text
//! records | blocks of rows | directory | footer
//! record: log varint | LSN varint | sequence varint | length varint | bytes | checksum u32, masked with (uid, offset)
//! ```
//!
//! A record says whose it is, so that the index can be made again by reading the records alone ([`ColdFile::verify`] holds one
//! against the other), and a row that leads to another record shows. Its head is as long as its four numbers are, which the row has as
//! well: one read of exactly its bytes gets the record and all that is needed to verify it.

use crate::disk::SUM_LEN;
use crate::disk::directory::{Block, Directory, LogRows};
use crate::disk::footer::FileKind;
use crate::disk::indexed::{FinishedFile, Indexed, Indexing};
use crate::disk::output::Output;
use crate::entry::{Entry, LogId, Lsn, Source};
use base::codec::{Reader, put_varint, varint_len};
use base::{Error, ErrorKind, Result, SeqNo, Uid};
use io::{AppendFile, ReadFile};
use std::path::Path;
use std::sync::Arc;

/// The longest head of a record.
pub(crate) const HEAD_LEN_MAX: usize = 4 * 10;

/// Which file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColdHead {
    /// The number of the file.
    pub number: u64,
    /// How often its records were copied: 1 if they come from groups. Records of several generations are not mixed, see
    /// [`crate::pick`].
    pub generation: u32,
}

impl ColdHead {
    /// What holds the records that the rows lead to.
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
            _ => Err(Error::corruption("the head of a cold file is none")),
        }
    }
}

/// Bytes that a record takes in a cold file, without its row in the index.
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

/// Writes a cold file. Holds the rows of its index, a few bytes for each record, until [`ColdFileWriter::finish`]. Dropped unfinished,
/// it leaves a file that no reader opens.
pub struct ColdFileWriter {
    output: Output,
    indexing: Indexing,
    head: ColdHead,
    buf: Vec<u8>,
}

impl ColdFileWriter {
    /// Begins one in an empty file.
    pub fn new(file: Box<dyn AppendFile>, path: &Path, uid: Uid, head: ColdHead) -> ColdFileWriter {
        let output = Output::new(file, path, uid);
        ColdFileWriter { output, indexing: Indexing::default(), head, buf: Vec::new() }
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.output.offset()
    }

    /// Appends a record. They come by log, and by LSN in a log, each LSN once. Returns its entry in the index, whose place is the one in
    /// this file.
    ///
    /// # Errors
    /// `InvalidArgument` if it does not lie behind the one before; `TooLarge` over [`crate::limits::RECORD_LEN_MAX`];
    /// those of writing.
    pub fn add(&mut self, log: LogId, lsn: Lsn, seq: SeqNo, bytes: &[u8]) -> Result<Entry> {
        let len = u32::try_from(bytes.len()).ok().filter(|_| bytes.len() <= crate::limits::RECORD_LEN_MAX);
        let Some(len) = len else {
            let why = format!("a record of {} bytes cannot be copied to a cold file", bytes.len());
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

    /// Writes the index and makes the file durable (the directory that it is in is the caller's to sync).
    ///
    /// # Errors
    /// Those of writing and syncing: the file is then of no use.
    pub fn finish(self) -> Result<FinishedFile> {
        let records_end = self.output.offset();
        self.indexing.finish(self.output, FileKind::Cold, &self.head.encode(), records_end)
    }
}

/// An open cold file.
#[derive(Clone, Debug)]
pub struct ColdFile {
    indexed: Indexed,
    head: ColdHead,
}

impl ColdFile {
    /// Opens the file with that number and uid, and reads its directory.
    ///
    /// # Errors
    /// `Corruption` or `Unsupported`, naming file and offset; those of reading.
    pub fn open(file: Arc<dyn ReadFile>, number: u64, uid: Uid) -> Result<(ColdFile, Directory)> {
        let (indexed, head, directory) = Indexed::open(file, FileKind::Cold, uid)?;
        let at = indexed.input.footer().directory_offset;
        let head = ColdHead::decode(&head).map_err(|e| indexed.input.blame(e, at))?;
        if head.number != number {
            let why = format!("this is cold file {}, expected was {number}: files were swapped", head.number);
            return Err(indexed.input.blame(Error::corruption(why), at));
        }
        Ok((ColdFile { indexed, head }, directory))
    }

    /// Which file it is.
    pub fn head(&self) -> &ColdHead {
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
    /// Those of [`ColdFile::block`].
    pub fn find(&self, log: &LogRows, lsn: Lsn) -> Result<Option<Entry>> {
        self.indexed.find(log, lsn)
    }

    /// Hands the entries of all records of a log to `take`, LSNs ascending, blocks read in large requests and held against the directory.
    ///
    /// # Errors
    /// Those of [`ColdFile::block`] and of `take`.
    pub fn each_of(&self, log: &LogRows, take: &mut dyn FnMut(&Entry) -> Result<()>) -> Result<()> {
        self.indexed.each_of(log, take)
    }

    /// Appends the bytes of a record to `out`. One read.
    ///
    /// # Errors
    /// `Corruption` naming file and offset, if it is damaged or not the record that the entry is of; those of reading. `out` is then
    /// as it was.
    pub fn read(&self, entry: &Entry, out: &mut Vec<u8>) -> Result<()> {
        self.read_run(std::slice::from_ref(entry), &mut |_, bytes| {
            out.extend_from_slice(bytes);
            Ok(())
        })
    }

    /// Reads records that lie in ascending places in one request, with all that lies between the first and the last of them, and hands
    /// each with its bytes to `take`. Records of a log whose LSNs follow each other lie one behind another.
    ///
    /// # Errors
    /// As [`ColdFile::read`]; those of `take`.
    pub fn read_run(
        &self,
        entries: &[Entry],
        take: &mut dyn FnMut(&Entry, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return Ok(()) };
        let end = last.at.checked_add(len_of(last)).filter(|&end| end <= self.indexed.blocks_begin());
        let len = end.and_then(|end| end.checked_sub(first.at));
        let Some(len) = len else {
            let why = "the index leads to a record that does not lie among those of the file";
            return Err(self.indexed.input.blame(Error::corruption(why), first.at));
        };
        let bytes = self.indexed.input.bytes(first.at, len, 0)?;
        for entry in entries {
            take(entry, self.open_record(&bytes, first.at, entry)?)?;
        }
        Ok(())
    }

    /// The bytes of a record in a piece of the file that was read from `from` on.
    fn open_record<'a>(&self, piece: &'a [u8], from: u64, entry: &Entry) -> Result<&'a [u8]> {
        let blame = |why: &str| self.indexed.input.blame(Error::corruption(why), entry.at);
        let begin = entry.at.checked_sub(from).and_then(|begin| usize::try_from(begin).ok());
        let len = usize::try_from(len_of(entry)).ok();
        let frame = begin.zip(len).and_then(|(begin, len)| piece.get(begin..)?.get(..len));
        let frame =
            frame.ok_or_else(|| blame("records of a run that do not lie in the order of their places"))?;
        let payload = self.indexed.input.verify(frame, entry.at)?;
        let mut head = Vec::with_capacity(HEAD_LEN_MAX);
        put_head(&mut head, entry);
        payload.strip_prefix(&head[..]).ok_or_else(|| blame("another record than the index leads to"))
    }

    /// Reads all of the file and checks it: each record under its checksum, one behind another without a gap, in the index as it says itself.
    /// `directory` is what opening it gave. Returns the bytes of the file.
    ///
    /// # Errors
    /// `Corruption` naming file and offset; those of reading.
    pub fn verify(&self, directory: &Directory) -> Result<u64> {
        let mut records = self.records();
        for log in &directory.logs {
            self.each_of(log, &mut |row| {
                let found = records.next()?.map(|(entry, _)| entry);
                if found == Some(*row) {
                    return Ok(());
                }
                let why = format!("the index has {row:?}, the records have {found:?}");
                Err(self.indexed.input.blame(Error::corruption(why), row.at))
            })?;
        }
        if let Some((entry, _)) = records.next()? {
            let why = format!("{entry:?} is in no row of the index");
            return Err(self.indexed.input.blame(Error::corruption(why), entry.at));
        }
        Ok(self.indexed.input.footer().file_len)
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        self.indexed.input.path()
    }

    /// Where the records end.
    pub(crate) fn records_end(&self) -> u64 {
        self.indexed.blocks_begin()
    }

    /// Bytes that the record of an entry takes.
    pub(crate) fn stored_len(entry: &Entry) -> u64 {
        len_of(entry)
    }

    /// All records, from front to back, by what they say themselves.
    pub fn records(&self) -> Records<'_> {
        Records { file: self, next: 0, piece: Vec::new(), from: 0 }
    }
}

/// Goes through the records of a cold file from front to back, in large requests.
pub struct Records<'a> {
    file: &'a ColdFile,
    /// Where the next record begins.
    next: u64,
    /// What was read, and from where.
    piece: Vec<u8>,
    from: u64,
}

/// Bytes that are read at once.
const READ_LEN: u64 = 256 << 10;

impl Records<'_> {
    /// The next record: its entry and its bytes.
    ///
    /// # Errors
    /// `Corruption` naming file and offset; those of reading. It makes no sense to go on after one.
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
            return Err(self.blame(Error::corruption("a record that ends behind the last")));
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

    /// Sees to it that `len` bytes from the next record on are there, or all up to the end of the records.
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
