//! The copy: live records are read in runs and go, verified but otherwise as they are, to the output.
//!
//! The lookup has left a bitmap. Records that are neighbours in their file make a run, also across a gap that costs less
//! to read than a request of its own (the adaptive read-ahead of Scavenger+: the size of a request follows from what is
//! live, and from what reads of the disk were measured to cost, not from a setting). The runs of a batch are read at once, each from its exact offset; then the records are
//! taken in key order, from whichever input has them.
//!
//! The checksum of each record is verified where it was read, and its key compared with the one that was looked up,
//! before it is copied: a damaged record stops the job, which then has replaced nothing.

use super::window::{Entry, Window};
use base::{Error, Result};
use io::{FileRead, ReadCosts};
use std::ops::Range;
use std::sync::Arc;
use table::{Record, Vsst};

/// The most bytes that one batch reads, gaps included, unless a single record is longer.
const BATCH_BYTES_MAX: u64 = 4 << 20;
/// The longest gap that is read over where nobody knows what reads cost: what is read in the time that a request of its own
/// would take, with dozens in flight. A fast local device needs 2 us for a request and moves 4 to 8 KiB in these, a
/// network device 20 us and 24 KiB, the kernel's page cache 1 us and 5 KiB.
const GAP_UNKNOWN: u64 = 12 << 10;
/// The most requests of a batch.
const BATCH_RUNS_MAX: usize = 1 << 10;

/// What copying has cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CopyStats {
    /// Requests.
    pub(crate) reads: u64,
    /// Bytes of these.
    pub(crate) read_bytes: u64,
}

/// Consecutive bytes of an input that are read together.
#[derive(Clone, Copy)]
struct Run {
    input: usize,
    offset: u64,
    len: u64,
}

/// Some live records, read together. Reused from batch to batch.
#[derive(Default)]
pub(crate) struct Batch {
    runs: Vec<Run>,
    /// The records in key order: the entry, its run, and where it begins in it.
    records: Vec<(usize, usize, usize)>,
    buffer: Vec<u8>,
    /// Where each run begins in the buffer.
    places: Vec<usize>,
}

/// How records are grouped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grouping {
    /// Bytes of records that a batch is to have.
    pub(crate) batch_bytes: u64,
    /// See [`crate::GcOptions::gap_bytes`].
    pub(crate) gap_bytes: Option<u64>,
    /// See [`crate::GcOptions::lazy_read`].
    pub(crate) lazy_read: bool,
}

impl Grouping {
    /// The longest gap that is read over in each of these.
    fn gaps(&self, inputs: &[Arc<Vsst>]) -> Vec<u64> {
        let measured = |input: &Arc<Vsst>| ReadCosts::of(&**input.file()).gap_bytes.unwrap_or(GAP_UNKNOWN);
        inputs.iter().map(|input| self.gap_bytes.unwrap_or_else(|| measured(input))).collect()
    }
}

impl Batch {
    /// Chooses the next live entries from `keys` on (all, if reading is not lazy); returns how many entries of the window
    /// this passes.
    pub(crate) fn plan(
        &mut self,
        window: &Window,
        keys: Range<usize>,
        inputs: &[Arc<Vsst>],
        grouping: Grouping,
    ) -> usize {
        self.runs.clear();
        self.records.clear();
        let (mut bytes, mut read_bytes) = (0u64, 0u64);
        // The run that is open in each input.
        let mut open: Vec<Option<usize>> = vec![None; inputs.len()];
        let gaps = grouping.gaps(inputs);
        for at in keys.clone() {
            let entry = &window.entries[at];
            if !entry.live && grouping.lazy_read {
                continue;
            }
            let len = u64::from(entry.stored_len);
            let input = entry.input as usize;
            let joined = open[input].and_then(|run| {
                let end = self.runs[run].offset + self.runs[run].len;
                let gap = entry.offset.checked_sub(end)?;
                (gap <= gaps[input]).then_some((run, gap))
            });
            let more = len + joined.map_or(0, |(_, gap)| gap);
            let full = bytes >= grouping.batch_bytes
                || read_bytes + more > BATCH_BYTES_MAX
                || self.runs.len() >= BATCH_RUNS_MAX;
            if full && !self.records.is_empty() {
                return at - keys.start;
            }
            let run = match joined {
                Some((run, _)) => run,
                None => {
                    self.runs.push(Run { input, offset: entry.offset, len: 0 });
                    self.runs.len() - 1
                }
            };
            open[input] = Some(run);
            let place = &mut self.runs[run];
            self.records.push((at, run, (entry.offset - place.offset) as usize));
            place.len = entry.offset - place.offset + len;
            bytes += len;
            read_bytes += more;
        }
        keys.len()
    }

    /// Reads the runs, with as many requests in flight as the file system allows.
    pub(crate) fn read(&mut self, inputs: &[Arc<Vsst>], stats: &mut CopyStats) -> Result<()> {
        let total: u64 = self.runs.iter().map(|run| run.len).sum();
        // It never shrinks: what is grown again is zeroed again.
        self.buffer.resize(self.buffer.len().max(total as usize), 0);
        self.places.clear();
        self.places.resize(self.runs.len(), 0);
        let mut by_file: Vec<usize> = (0..self.runs.len()).collect();
        by_file.sort_by_key(|&i| (self.runs[i].input, self.runs[i].offset));
        let mut rest = self.buffer.as_mut_slice();
        let mut reads = Vec::with_capacity(by_file.len());
        let mut at = 0;
        for i in by_file {
            let Run { input, offset, len } = self.runs[i];
            let (buf, tail) = std::mem::take(&mut rest).split_at_mut(len as usize);
            rest = tail;
            self.places[i] = at;
            at += len as usize;
            reads.push(FileRead { file: inputs[input].file(), offset, buf });
        }
        io::read_files(&mut reads)?;
        stats.reads += self.runs.len() as u64;
        stats.read_bytes += total;
        Ok(())
    }

    /// Entries of the window whose records are in the batch, in key order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.records.iter().enumerate().map(|(record, &(entry, ..))| (record, entry))
    }

    /// A record of the batch, verified.
    pub(crate) fn open<'b>(
        &'b self,
        record: usize,
        window: &Window,
        inputs: &[Arc<Vsst>],
    ) -> Result<Record<'b>> {
        let (at, run, offset) = self.records[record];
        let entry = &window.entries[at];
        let begin = self.places[run] + offset;
        let bytes = &self.buffer[begin..begin + entry.stored_len as usize];
        let input = &inputs[entry.input as usize];
        let record = input.open_record(bytes, entry.offset).map_err(|e| e.at_file(input.file().path()))?;
        if record.user_key != window.user_key(entry) || record.seq != entry.seq {
            return Err(stranger(input, window, entry));
        }
        Ok(record)
    }
}

#[cold]
fn stranger(input: &Vsst, window: &Window, entry: &Entry) -> Error {
    let key = window.user_key(entry).escape_ascii();
    Error::corruption(format!(
        "the record of another key where that of \"{key}\" should be: verify the store"
    ))
    .at_file(input.file().path())
    .at_offset(entry.offset)
}
