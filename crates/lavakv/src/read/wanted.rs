//! The reads that point reads want, and those of the seeks of iterators, done together.
//!
//! They come in the order of file and place. Neighbours are read by one request, as for the values of a scan
//! ([`table::runs`]), and the requests of all files go to the device in one batch. If it fails, each read is made
//! alone, so that what cannot be read takes nothing else with it and says exactly why.

use crate::tree::Tree;
use base::Result;
use cache::Block;
use io::FileRead;
use lsm::ReadTogether;
use std::ops::Range;
use std::sync::Arc;
use table::runs::{Run, Wanted, join};
use table::source::{read_now, zeroed};
use table::{Fetched, Source, Want};

/// Bytes that a batch reads at most, unless a single request is longer.
const BATCH_BYTES_MAX: u64 = 8 << 20;

/// Reads for the cursors of an iterator that is about to be moved somewhere else.
pub(crate) struct SeekReads(pub Arc<Tree>);

impl ReadTogether for SeekReads {
    fn read(&self, fetched: &mut Fetched, wants: &[Want]) {
        let stats = &self.0.context.stats;
        stats.iter_seek_batches.add(1);
        stats.iter_seek_reads.add(wants.len() as u64);
        read_wanted(fetched, wants);
    }
}

/// Reads what is wanted (ascending, each once) and hands it over.
pub(crate) fn read_wanted(fetched: &mut Fetched, wants: &[Want]) {
    let mut runs = &join(wants.iter().map(Wanted::from))[..];
    while !runs.is_empty() {
        let (batch, rest) = runs.split_at(batch_len(runs));
        runs = rest;
        if read_batch(fetched, wants, batch).is_err() {
            wants_of(wants, batch).iter().for_each(|want| read_alone(fetched, want));
        }
    }
}

/// How many of the runs make a batch.
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

/// What these runs are for.
fn wants_of<'w>(wants: &'w [Want], runs: &[Run]) -> &'w [Want] {
    let ends = runs.first().zip(runs.last());
    ends.and_then(|(first, last)| wants.get(first.places.start..last.places.end)).unwrap_or_default()
}

fn read_batch(fetched: &mut Fetched, wants: &[Want], runs: &[Run]) -> Result<()> {
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
        if wants.iter().any(|want| want.role != table::Role::Tail) {
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

fn read_alone(fetched: &mut Fetched, want: &Want) {
    let read = read_now(&want.file, want.extent);
    if read.is_ok() && want.role != table::Role::Tail {
        fetched.counters().count_request(want.extent.len);
    }
    fetched.put(want, read);
}
