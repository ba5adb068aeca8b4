//! The copy: live records are read in runs and go, verified but otherwise unchanged, to the output.
//!
//! The lookup has left a bitmap. Neighboring records of a file form a run, also across a gap that
//! costs less to read than a separate request. This is the adaptive read-ahead of Scavenger+: the
//! size of a request follows from the live records, and from measured read costs of the disk, not
//! from a setting. The runs of a batch are read together, each from its exact offset; then the
//! records are taken in key order, from any input. [`super::pipeline`] decides which batches are
//! read at once.
//!
//! In a value log file, records of neighboring keys may be anywhere. The records that a batch takes
//! from such a file are sorted by offset, and then form runs as in any other file. They are still
//! copied in key order, from their places in the batch. Batches are longer with such a file: the
//! more records a batch takes from it, the closer they lie ([`super::pipeline`]).
//!
//! The checksum of each record is verified at the place where it was read, and its key compared
//! with the looked-up key, before it is copied. A damaged record stops the job before it has
//! replaced anything. The checksum covers file and offset, so bytes read for another record, or
//! another batch, are not taken for this one.

use super::window::{Entry, Window};
use base::{Error, Result};
use io::{FileRead, ReadCosts, Wanted};
use std::ops::Range;
use std::sync::Arc;
use table::{Record, Vsst};

/// Maximum gap that is read over if read costs are unknown: the bytes read in the time of a
/// separate request, with dozens in flight. A fast local device needs 2 us for a request and moves
/// 4 to 8 KiB in that time. A network device needs 20 us and moves 24 KiB, and the kernel's page
/// cache 1 us and 5 KiB.
pub(crate) const GAP_UNKNOWN: u64 = 12 << 10;
/// Maximum number of requests of a batch.
const BATCH_RUNS_MAX: usize = 1 << 10;
/// Maximum number of records of a batch from value log files: each may need its own request.
const BATCH_SCATTERED_MAX: usize = 8 << 10;

/// Cost of copying.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CopyStats {
    /// Number of requests.
    pub(crate) reads: u64,
    /// Number of these requests that ran in the background.
    pub(crate) reads_ahead: u64,
    /// Bytes of all requests.
    pub(crate) read_bytes: u64,
    /// Maximum bytes held at a time.
    pub(crate) held_bytes_max: u64,
}

/// Consecutive bytes of an input that are read together.
#[derive(Clone, Copy)]
struct Run {
    input: usize,
    offset: u64,
    len: u64,
}

/// Bytes of a run.
#[derive(Default)]
enum Bytes {
    /// Not read yet.
    #[default]
    None,
    /// In the buffer of the batch, from this offset on.
    Here(usize),
    /// In a separate buffer.
    Own(Arc<[u8]>),
}

/// Some live records of a window, read together.
#[derive(Default)]
pub(crate) struct Batch {
    /// The window of the records, once any are chosen.
    pub(crate) window: Arc<Window>,
    runs: Vec<Run>,
    /// The order in which the runs are read: by file and offset.
    order: Vec<usize>,
    /// Records in key order: the entry, its run, and its offset in the run.
    records: Vec<(usize, usize, usize)>,
    buffer: Vec<u8>,
    /// Bytes of each run.
    read: Vec<Bytes>,
    /// Records of value log files: input, offset, length, and index in `records`.
    scattered: Vec<(usize, u64, u64, usize)>,
    /// Number of copied records.
    pub(crate) copied: usize,
    /// Bytes of all runs.
    pub(crate) read_bytes: u64,
    /// Number of the first read in the queue; `lacks` counts the reads that have not ended.
    first: u64,
    lacks: usize,
    /// Error of the first failed read, by file and offset.
    failed: Option<(u64, Error)>,
}

/// Returns true if the input is a value log file.
pub(crate) fn is_scattered(input: &Vsst) -> bool {
    input.properties().segment
}

/// Parameters for grouping records.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Grouping {
    /// Bytes of records in a batch.
    pub(crate) batch_bytes: u64,
    /// Maximum bytes that a batch reads, gaps included, unless a single record is longer.
    pub(crate) read_bytes_max: u64,
    /// See [`crate::GcOptions::gap_bytes`].
    pub(crate) gap_bytes: Option<u64>,
    /// See [`crate::GcOptions::lazy_read`].
    pub(crate) lazy_read: bool,
}

impl Grouping {
    /// Returns the maximum gap that is read over in each input.
    fn gaps(&self, inputs: &[Arc<Vsst>]) -> Vec<u64> {
        let measured = |input: &Arc<Vsst>| ReadCosts::of(&**input.file()).gap_bytes.unwrap_or(GAP_UNKNOWN);
        inputs.iter().map(|input| self.gap_bytes.unwrap_or_else(|| measured(input))).collect()
    }
}

impl Batch {
    /// Chooses the next live entries of the window from `keys` on (all, if reading is not lazy).
    /// Returns the number of entries passed.
    pub(crate) fn plan(
        &mut self,
        window: &Arc<Window>,
        keys: Range<usize>,
        inputs: &[Arc<Vsst>],
        grouping: Grouping,
    ) -> usize {
        self.window = window.clone();
        self.runs.clear();
        self.records.clear();
        self.read.clear();
        self.scattered.clear();
        (self.lacks, self.failed, self.copied) = (0, None, 0);
        let gaps = grouping.gaps(inputs);
        let passed = self.choose(keys, inputs, grouping, &gaps);
        self.gather(grouping, &gaps);
        self.order.clear();
        self.order.extend(0..self.runs.len());
        let runs = &self.runs;
        self.order.sort_by_key(|&i| (runs[i].input, runs[i].offset));
        self.read.resize_with(self.runs.len(), Bytes::default);
        passed
    }

    fn choose(
        &mut self,
        keys: Range<usize>,
        inputs: &[Arc<Vsst>],
        grouping: Grouping,
        gaps: &[u64],
    ) -> usize {
        let mut bytes = 0u64;
        self.read_bytes = 0;
        // The open run of each input.
        let mut open: Vec<Option<usize>> = vec![None; inputs.len()];
        for at in keys.clone() {
            let entry = &self.window.entries[at];
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
                || self.read_bytes + more > grouping.read_bytes_max
                || self.runs.len() >= BATCH_RUNS_MAX
                || self.scattered.len() >= BATCH_SCATTERED_MAX;
            if full && !self.records.is_empty() {
                return at - keys.start;
            }
            if is_scattered(&inputs[input]) {
                self.scattered.push((input, entry.offset, len, self.records.len()));
                self.records.push((at, 0, 0));
                bytes += len;
                self.read_bytes += len;
                continue;
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
            self.read_bytes += more;
        }
        keys.len()
    }

    /// Forms runs of the records from value log files, by offset.
    fn gather(&mut self, grouping: Grouping, gaps: &[u64]) {
        self.scattered.sort_unstable();
        let mut last = None;
        for &(input, offset, len, record) in &self.scattered {
            let joined = last.filter(|_| self.runs.last().is_some_and(|run| run.input == input));
            let gap = joined.and_then(|end: u64| offset.checked_sub(end)).filter(|gap| {
                *gap <= gaps[input] && self.read_bytes.saturating_add(*gap) <= grouping.read_bytes_max
            });
            match gap {
                Some(gap) => self.read_bytes += gap,
                None => self.runs.push(Run { input, offset, len: 0 }),
            }
            let run = self.runs.len() - 1;
            let place = &mut self.runs[run];
            place.len = offset - place.offset + len;
            (self.records[record].1, self.records[record].2) = (run, (offset - place.offset) as usize);
            last = Some(offset + len);
        }
    }

    /// Returns true if all records were copied.
    pub(crate) fn is_copied(&self) -> bool {
        self.copied >= self.records.len()
    }

    /// Returns true if the batch has no records.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the number of reads.
    pub(crate) fn reads(&self) -> usize {
        self.runs.len()
    }

    /// Reads the runs, with as many requests in flight as the file system allows.
    pub(crate) fn read(&mut self, inputs: &[Arc<Vsst>]) -> Result<()> {
        // The buffer never shrinks, because regrowing it would zero it again.
        self.buffer.resize(self.buffer.len().max(self.read_bytes as usize), 0);
        let mut rest = self.buffer.as_mut_slice();
        let mut reads = Vec::with_capacity(self.runs.len());
        let mut at = 0;
        for &i in &self.order {
            let Run { input, offset, len } = self.runs[i];
            let (buf, tail) = std::mem::take(&mut rest).split_at_mut(len as usize);
            rest = tail;
            self.read[i] = Bytes::Here(at);
            at += len as usize;
            reads.push(FileRead { file: inputs[input].file(), offset, buf });
        }
        io::read_files(&mut reads)
    }

    /// Returns the reads of the batch, by file and offset. The batch then waits for them, numbered
    /// from `first` on.
    pub(crate) fn begin<'v>(&mut self, inputs: &'v [Arc<Vsst>], first: u64) -> Vec<Wanted<'v>> {
        (self.first, self.lacks) = (first, self.runs.len());
        let read = |&i: &usize| {
            let Run { input, offset, len } = self.runs[i];
            (inputs[input].file(), offset, len as usize)
        };
        self.order.iter().map(read).collect()
    }

    /// Takes a finished read. Returns false if it belongs to another batch.
    pub(crate) fn land(&mut self, number: u64, read: &Result<Arc<[u8]>>) -> bool {
        let at = number.checked_sub(self.first).and_then(|at| self.order.get(usize::try_from(at).ok()?));
        let Some(&run) = at.filter(|_| self.lacks > 0) else { return false };
        self.lacks -= 1;
        match read {
            Ok(bytes) => self.read[run] = Bytes::Own(bytes.clone()),
            // Keeps the error of the first read by place, in whatever order they finish.
            Err(e) if self.failed.as_ref().is_none_or(|(of, _)| number < *of) => {
                self.failed = Some((number, e.clone()));
            }
            Err(_) => {}
        }
        true
    }

    /// Returns true if no read is in flight.
    pub(crate) fn has_landed(&self) -> bool {
        self.lacks == 0
    }

    /// Returns the error of the reads, if one failed.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.failed.take().map_or(Ok(()), |(_, e)| Err(e))
    }

    /// Releases the read bytes, and returns the window.
    pub(crate) fn clear(&mut self) -> Arc<Window> {
        self.read.clear();
        self.records.clear();
        std::mem::take(&mut self.window)
    }

    /// Returns the entries of the window whose records are in the batch and not copied yet, in key
    /// order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (usize, &Entry)> + '_ {
        let records = self.records.iter().enumerate().skip(self.copied);
        records.map(|(record, &(entry, ..))| (record, &self.window.entries[entry]))
    }

    /// Returns a verified record of the batch.
    pub(crate) fn open(&self, record: usize, inputs: &[Arc<Vsst>]) -> Result<Record<'_>> {
        let (at, run, offset) = self.records[record];
        let entry = &self.window.entries[at];
        let input = &inputs[entry.input as usize];
        let bytes = match &self.read[run] {
            Bytes::Here(begin) => self.buffer.get(begin + offset..),
            Bytes::Own(bytes) => bytes.get(offset..),
            Bytes::None => None,
        };
        let bytes = bytes.and_then(|bytes| bytes.get(..entry.stored_len as usize));
        let bytes =
            bytes.unwrap_or_else(|| unreachable!("a batch that was read has the records that it is for"));
        let record = input.open_record(bytes, entry.offset).map_err(|e| e.at_file(input.file().path()))?;
        if record.user_key != self.window.user_key(entry) || record.seq != entry.seq {
            return Err(stranger(input, &self.window, entry));
        }
        Ok(record)
    }
}

#[cold]
fn stranger(input: &Vsst, window: &Window, entry: &Entry) -> Error {
    let key = window.user_key(entry).escape_ascii();
    Error::corruption(format!(
        "the value record found for key \"{key}\" has another key or sequence than {}: garbage collection \
         leaves the file unchanged",
        entry.seq
    ))
    .at_file(input.file().path())
    .at_offset(entry.offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run is part of one file, however close the offsets in two files are.
    #[test]
    fn records_of_two_files_take_two_reads() {
        let grouping = Grouping { read_bytes_max: u64::MAX, ..Grouping::default() };
        for (input, expected) in [(0, vec![(0, 0, 250)]), (1, vec![(0, 0, 100), (1, 150, 100)])] {
            let mut batch = Batch {
                scattered: vec![(0, 0, 100, 0), (input, 150, 100, 1)],
                records: vec![(0, 0, 0); 2],
                read_bytes: 200,
                ..Batch::default()
            };
            batch.gather(grouping, &[1000, 1000]);
            let runs: Vec<_> = batch.runs.iter().map(|run| (run.input, run.offset, run.len)).collect();
            assert_eq!(runs, expected);
        }
    }
}
