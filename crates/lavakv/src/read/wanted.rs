//! Batched device reads of point reads and of iterator seeks.
//!
//! The reads come in the order of files and offsets. Adjacent ones become one request, as for the
//! values of a scan ([`table::runs`]), and the requests of all files go to the device in one batch.
//! If the batch fails, each read is repeated alone, so that an unreadable extent affects no other
//! read and reports its exact error.

use crate::tree::Tree;
use base::Result;
use cache::Block;
use io::FileRead;
use lsm::ReadTogether;
use std::ops::Range;
use std::sync::Arc;
use table::runs::{Run, WantedExtent, join};
use table::source::{read_now, zeroed};
use table::{BlockRequest, FetchedBlocks, Source};

/// Most bytes of a batch, unless a single request is longer.
const BATCH_BYTES_MAX: u64 = 8 << 20;

/// Batched reads for the cursors of an iterator before a seek.
pub(crate) struct SeekReads(pub Arc<Tree>);

impl ReadTogether for SeekReads {
    fn read(&self, fetched: &mut FetchedBlocks, wants: &[BlockRequest]) {
        let stats = &self.0.context.stats;
        stats.iter_seek_batches.add(1);
        stats.iter_seek_reads.add(wants.len() as u64);
        read_wanted(fetched, wants);
    }
}

/// Performs the reads `wants` (ascending, each once) and hands them over.
pub(crate) fn read_wanted(fetched: &mut FetchedBlocks, wants: &[BlockRequest]) {
    let mut runs = &join(wants.iter().map(WantedExtent::from))[..];
    while !runs.is_empty() {
        let (batch, rest) = runs.split_at(batch_len(runs));
        runs = rest;
        if read_batch(fetched, wants, batch).is_err() {
            wants_of(wants, batch).iter().for_each(|want| read_alone(fetched, want));
        }
    }
}

/// Returns the number of runs in the next batch.
fn batch_len(runs: &[Run]) -> usize {
    let mut bytes = 0;
    let fits = |run: &&Run| {
        bytes += len_of(&run.bytes);
        bytes <= BATCH_BYTES_MAX
    };
    runs.iter().take_while(fits).count().max(1)
}

fn len_of(bytes: &Range<u64>) -> u64 {
    bytes.end - bytes.start
}

/// Returns the reads that these runs cover.
fn wants_of<'w>(wants: &'w [BlockRequest], runs: &[Run]) -> &'w [BlockRequest] {
    let ends = runs.first().zip(runs.last());
    ends.and_then(|(first, last)| wants.get(first.places.start..last.places.end)).unwrap_or_default()
}

fn read_batch(fetched: &mut FetchedBlocks, wants: &[BlockRequest], runs: &[Run]) -> Result<()> {
    let mut bufs: Vec<Block> = runs.iter().map(|run| zeroed(len_of(&run.bytes) as usize)).collect();
    let with_files = runs.iter().filter_map(|run| Some((run, &wants.get(run.places.start)?.file)));
    let mut reads: Vec<FileRead<'_>> = with_files
        .zip(&mut bufs)
        .map(|((run, file), buf)| {
            let buf = Block::get_mut(buf).unwrap_or_default();
            FileRead { file, offset: run.bytes.start, buf }
        })
        .collect();
    io::read_files(&mut reads)?;
    for (run, read) in runs.iter().zip(bufs) {
        let wants = wants.get(run.places.clone()).unwrap_or_default();
        if wants.iter().any(|want| want.role != table::BlockKind::Tail) {
            fetched.counters().count_request(len_of(&run.bytes));
        }
        for want in wants {
            if want.extent.len == len_of(&run.bytes) {
                fetched.put(want, Ok(read.clone()));
                continue;
            }
            let from = (want.extent.offset - run.bytes.start) as usize;
            let own = read.get(from..).and_then(|rest| rest.get(..want.extent.len as usize));
            fetched.put(want, Ok(own.unwrap_or_default().into()));
        }
    }
    Ok(())
}

fn read_alone(fetched: &mut FetchedBlocks, want: &BlockRequest) {
    let read = read_now(&want.file, want.extent);
    if read.is_ok() && want.role != table::BlockKind::Tail {
        fetched.counters().count_request(want.extent.len);
    }
    fetched.put(want, read);
}
