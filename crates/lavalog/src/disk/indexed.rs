//! Rows and directory at the end of a file, common to index files and cold files.

use super::SUM_LEN;
use super::directory::{Block, Directory, LogRows};
use super::footer::FileKind;
use super::input::Input;
use super::output::Output;
use super::rows::{self, BLOCK_ROWS};
use crate::entry::{Entry, LogId, Lsn};
use crate::limits::{LSN_MAX, RECORD_LEN_MAX};
use crate::lsn_set::{Builder, Run};
use base::{Error, MAX_SEQ, Result, SeqNo, Uid};
use io::ReadFile;
use std::sync::Arc;

/// Target size of a read request for adjacent blocks, bytes.
const READ_LEN: u64 = 256 << 10;

/// The index of a file under construction. Keeps encoded blocks until they are written to the file.
#[derive(Debug, Default)]
pub(crate) struct Indexing {
    /// Completed logs. The offsets of their blocks are relative to the first block.
    logs: Vec<LogRows>,
    /// The log of the last record.
    open: Option<OpenLog>,
    /// Offset of the next block, relative to the first.
    next: u64,
    /// Encoded blocks not yet in the file, without checksums, and the end of each.
    encoded: Vec<u8>,
    ends: Vec<usize>,
}

/// The log whose records are being added.
#[derive(Debug)]
struct OpenLog {
    last: Entry,
    seqs: (SeqNo, SeqNo),
    lsns: Builder,
    blocks: Vec<Block>,
    /// Rows that are not in a block yet.
    rows: Vec<Entry>,
}

impl Indexing {
    /// Checks that a record comes after all earlier ones by log and LSN.
    ///
    /// # Errors
    /// `InvalidArgument` if it does not, or if one of its numbers exceeds its maximum.
    pub(crate) fn check(&self, entry: &Entry) -> Result<()> {
        let follows =
            self.open.as_ref().is_none_or(|open| (open.last.log, open.last.lsn) < (entry.log, entry.lsn));
        let is_record = entry.lsn <= LSN_MAX && entry.seq <= MAX_SEQ && entry.len as usize <= RECORD_LEN_MAX;
        if follows && is_record {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{entry} is not behind the record before it, or out of range (a fault of the engine: report it)"
        )))
    }

    /// Adds a record.
    ///
    /// # Errors
    /// The errors of [`Indexing::check`]; the index is then unchanged.
    pub(crate) fn add(&mut self, entry: &Entry) -> Result<()> {
        self.check(entry)?;
        match &self.open {
            Some(open) if open.last.log != entry.log => self.close_log(),
            Some(open) if open.rows.len() == BLOCK_ROWS => self.close_block(),
            _ => {}
        }
        let open = self.open.get_or_insert_with(|| OpenLog {
            last: *entry,
            seqs: (entry.seq, entry.seq),
            lsns: Builder::default(),
            blocks: Vec::new(),
            rows: Vec::new(),
        });
        open.lsns.push(entry.lsn, entry.len)?;
        open.seqs = (open.seqs.0.min(entry.seq), open.seqs.1.max(entry.seq));
        open.rows.push(*entry);
        open.last = *entry;
        Ok(())
    }

    fn close_block(&mut self) {
        let Some(open) = &mut self.open else { return };
        let Some(first) = open.rows.first().map(|row| row.lsn) else { return };
        let begin = self.encoded.len();
        rows::encode(&mut self.encoded, &open.rows);
        let len = self.encoded.len() - begin + SUM_LEN;
        open.blocks.push(Block { first, offset: self.next, len: len as u32 });
        open.rows.clear();
        self.next += len as u64;
        self.ends.push(self.encoded.len());
    }

    fn close_log(&mut self) {
        self.close_block();
        if let Some(OpenLog { last, seqs, lsns, blocks, .. }) = self.open.take() {
            self.logs.push(LogRows { log: last.log, seqs, lsns: lsns.build(), blocks });
        }
    }

    /// Writes the completed blocks to the file.
    pub(crate) fn write(&mut self, output: &mut Output) -> Result<()> {
        let mut begin = 0;
        for end in self.ends.drain(..) {
            output.frame(&[&self.encoded[begin..end]])?;
            begin = end;
        }
        self.encoded.clear();
        Ok(())
    }

    /// Writes the remaining blocks, the directory and the footer, and syncs the file. `begin` is
    /// the offset of the first block.
    pub(crate) fn finish(
        mut self,
        mut output: Output,
        kind: FileKind,
        head: &[u8],
        begin: u64,
    ) -> Result<FinishedFile> {
        self.close_log();
        self.write(&mut output)?;
        let mut directory = Directory { logs: self.logs };
        directory.logs.iter_mut().flat_map(|log| &mut log.blocks).for_each(|block| block.offset += begin);
        assert_eq!(begin + self.next, output.offset(), "blocks fill the file up to its directory");
        let bytes = directory.encode(head, begin);
        let len = output.finish(kind, &bytes, directory.size().records)?;
        Ok(FinishedFile { len, directory })
    }
}

/// A completed index or cold file.
#[derive(Debug)]
pub struct FinishedFile {
    /// Length of the file, bytes.
    pub len: u64,
    /// Directory of the file, as opening it returns it.
    pub directory: Directory,
}

/// The index of an open file.
#[derive(Clone, Debug)]
pub(crate) struct IndexedFile {
    pub(crate) input: Input,
    /// Offset of the first block; the blocks end at the directory.
    blocks_begin: u64,
}

impl IndexedFile {
    /// Opens a file. Returns its index, its head, and its directory.
    pub(crate) fn open(
        file: Arc<dyn ReadFile>,
        kind: FileKind,
        uid: Uid,
    ) -> Result<(IndexedFile, Vec<u8>, Directory)> {
        let input = Input::open(file, kind, uid)?;
        let at = input.footer().directory_offset;
        let bytes = input.directory()?;
        let decoded = Directory::decode(&bytes, at);
        let (head, directory) = decoded.map_err(|e| input.blame(e, at))?;
        let first = directory.logs.first().and_then(|log| log.blocks.first());
        let blocks_begin = first.map_or(at, |block| block.offset);
        let rows = directory.size().records;
        if rows != input.footer().rows {
            let why =
                format!("the directory of the file lists {rows} records, its footer {}", input.footer().rows);
            return Err(input.blame(Error::corruption(why), at));
        }
        Ok((IndexedFile { blocks_begin, input }, head.to_vec(), directory))
    }

    /// Returns the offset of the first block.
    pub(crate) fn blocks_begin(&self) -> u64 {
        self.blocks_begin
    }

    /// Reads the rows of a block of a log.
    pub(crate) fn block(&self, log: LogId, block: Block) -> Result<Vec<Entry>> {
        let payload = self.input.frame(block.offset, block.len.into(), self.blocks_begin)?;
        self.decode(&payload, log, block.offset)
    }

    fn decode(&self, payload: &[u8], log: LogId, offset: u64) -> Result<Vec<Entry>> {
        let rows = rows::decode(payload).map_err(|e| self.input.blame(e, offset))?;
        match rows.first() {
            Some(first) if first.log == log => Ok(rows),
            other => {
                let found = other.map_or_else(|| "no log".to_owned(), |row| format!("log {}", row.log));
                let why = format!(
                    "the index block at this offset is of {found}, expected was log {log}; records in other blocks stay readable"
                );
                Err(self.input.blame(Error::corruption(why), offset))
            }
        }
    }

    /// Returns the row of an LSN, with one read of its block.
    pub(crate) fn find(&self, rows: &LogRows, lsn: Lsn) -> Result<Option<Entry>> {
        let Some(block) = rows.block_of(lsn) else { return Ok(None) };
        let missing = || {
            let why = format!(
                "LSN {lsn} of log {} is in the directory of the file, but missing in the index block at this offset; records in other blocks stay readable",
                rows.log
            );
            self.input.blame(Error::corruption(why), block.offset)
        };
        rows::find(&self.block(rows.log, block)?, lsn).ok_or_else(missing).map(Some)
    }

    /// Calls `take` for all rows of a log, LSNs ascending. Reads blocks in large requests and
    /// checks the rows against the directory.
    pub(crate) fn each_of(&self, log: &LogRows, take: &mut dyn FnMut(&Entry) -> Result<()>) -> Result<()> {
        let mut check = Check { log, runs: log.lsns.runs(), left: None };
        let mut blocks = &log.blocks[..];
        while let Some(first) = blocks.first() {
            let end_max = first.offset.saturating_add(READ_LEN);
            let fits = |block: &Block| block.offset.saturating_add(block.len.into()) <= end_max;
            let (now, later) = blocks.split_at(blocks.partition_point(fits).max(1));
            let len = now.iter().map(|block| u64::from(block.len)).sum();
            let bytes = self.input.bytes(first.offset, len, self.blocks_begin)?;
            for block in now {
                let at = (block.offset - first.offset) as usize;
                let frame = bytes.get(at..at + block.len as usize).unwrap_or_default();
                let payload = self.input.verify(frame, block.offset)?;
                for row in self.decode(payload, log.log, block.offset)? {
                    check.see(&row).map_err(|e| self.input.blame(e, block.offset))?;
                    take(&row)?;
                }
            }
            blocks = later;
        }
        let offset = log.blocks.first().map_or(self.blocks_begin, |block| block.offset);
        check.end().map_err(|e| self.input.blame(e, offset))
    }
}

/// Checks the rows of a log against the directory, each before the caller gets it.
struct Check<'a, R> {
    log: &'a LogRows,
    runs: R,
    /// Rest of the run that contains the next row.
    left: Option<Run>,
}

impl<R: Iterator<Item = Run>> Check<'_, R> {
    fn see(&mut self, row: &Entry) -> Result<()> {
        let (low, high) = self.log.seqs;
        let (first, count, bytes) = match self.left.take().or_else(|| self.runs.next()) {
            Some(run) => (run.first, run.count, run.bytes.checked_sub(row.len.into())),
            None => return Err(self.differs()),
        };
        let (Some(bytes), true, true) = (bytes, row.lsn == first, (low..=high).contains(&row.seq)) else {
            return Err(self.differs());
        };
        match (count - 1, bytes) {
            (0, 0) => Ok(()),
            (0, _) => Err(self.differs()),
            (count, bytes) => {
                self.left = Some(Run { first: first + 1, count, bytes });
                Ok(())
            }
        }
    }

    fn end(mut self) -> Result<()> {
        if self.left.is_none() && self.runs.next().is_none() { Ok(()) } else { Err(self.differs()) }
    }

    fn differs(&self) -> Error {
        Error::corruption(format!(
            "the index entries of log {} do not match the directory of the file",
            self.log.log
        ))
    }
}

#[cfg(test)]
mod tests;
