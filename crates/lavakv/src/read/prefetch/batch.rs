//! Reading separated values: one, or many in few requests.
//!
//! A batch finds the place of every record by the index of its vSST (in memory, normally), takes from the cache what is
//! there, and sorts the rest by file and offset. Neighbours are read by one request where the gap between them costs
//! less than another request would ([`runs`](crate::read::runs)); the requests of all files go to the device together. Each record is
//! verified as in a read of its own, so a batch differs from single reads in time only.
//!
//! What a batch meets with, a failed request or a damaged record, is not its to judge: it leaves the value out, and the
//! single read that follows gives it the second look, or the error, that all point reads get.

use super::{Entry, FetchValues};
use crate::read::fetch;
use crate::read::runs::{RUN_LEN_MAX, Run, join};
use crate::tree::Tree;
use crate::tree::demand::Demand;
use crate::tree::family::ReadState;
use base::{Result, SeqNo, ValueKind};
use cache::BlockSlice;
use io::FileRead;
use lsm::ReferenceResolver;
use std::sync::Arc;
use table::vsst::{Vsst, record::RECORD_LEN_MAX};
use table::{ReadCounters, Reference};

/// Reads the values behind the references of one read state.
pub(crate) struct Values {
    pub read_state: Arc<ReadState>,
    pub tree: Arc<Tree>,
    pub fill_cache: bool,
    /// Told how many requests were made.
    pub demand: Arc<Demand>,
}

/// Where the record of an entry lies.
struct Place {
    /// The number of the entry.
    nth: usize,
    vsst: Arc<Vsst>,
    reference: Reference,
    offset: u64,
}

impl Values {
    /// The value of an entry, if it is cached, or else where it is; `None` if it is not of a kind that is read in
    /// batches, or not found.
    fn locate(
        &self,
        nth: usize,
        entry: &Entry<'_>,
        counters: &mut ReadCounters,
    ) -> Option<(Place, Option<BlockSlice>)> {
        let Entry { user_key, seq, kind, value } = *entry;
        let reference = Reference::decode(value).ok().filter(|_| kind == ValueKind::Reference)?;
        let meta = fetch::resolve(&self.read_state.version, user_key, seq, &reference).ok()?;
        if meta.segment || reference.stored_len > RECORD_LEN_MAX as u64 {
            return None;
        }
        let vsst = self.tree.files.tables.vsst(meta).ok()?;
        let offset = vsst.locate(user_key, seq, counters).ok()?;
        offset.checked_add(reference.stored_len).filter(|&end| end <= vsst.properties().record_bytes)?;
        let cached = vsst.cached(offset, user_key, seq, &reference, counters);
        Some((Place { nth, vsst, reference, offset }, cached))
    }

    /// Reads runs, all together.
    fn read_runs(&self, places: &[Place], runs: &[Run]) -> Option<Vec<Vec<u8>>> {
        let stats = &self.tree.context.stats;
        let mut bufs: Vec<Vec<u8>> =
            runs.iter().map(|run| vec![0; (run.bytes.end - run.bytes.start) as usize]).collect();
        let with_files = runs.iter().filter_map(|run| Some((run, places.get(run.places.start)?.vsst.file())));
        let mut reads: Vec<FileRead<'_>> = with_files
            .zip(&mut bufs)
            .map(|((run, file), buf)| FileRead { file, offset: run.bytes.start, buf })
            .collect();
        io::read_files(&mut reads).ok()?;
        stats.iter_value_reads.add(runs.len() as u64);
        stats.iter_value_bytes.add(bufs.iter().map(|buf| buf.len() as u64).sum());
        Some(bufs)
    }

    /// Verifies the record of `entry` in what was read for its run.
    fn open(&self, place: &Place, entry: &Entry<'_>, run: &Run, read: &[u8]) -> Option<BlockSlice> {
        let from = (place.offset - run.bytes.start) as usize;
        let bytes = read.get(from..)?.get(..place.reference.stored_len as usize)?;
        let Entry { user_key, seq, .. } = *entry;
        let value = place.vsst.open_value(bytes, place.offset, user_key, seq, &place.reference).ok()?;
        if self.fill_cache {
            place.vsst.fill(place.offset, &value);
        }
        self.tree.context.stats.iter_values_read.add(1);
        Some(value)
    }
}

impl FetchValues for Values {
    fn read(&self, entry: &Entry<'_>) -> Result<BlockSlice> {
        let (version, mut counters) = (&self.read_state.version, ReadCounters::default());
        let Entry { user_key, seq, kind, value } = *entry;
        let value =
            fetch::value(&self.tree, version, (user_key, seq, kind), value, self.fill_cache, &mut counters);
        let stats = &self.tree.context.stats;
        stats.iter_values_read.add(counters.value_reads);
        stats.iter_value_reads.add(counters.value_reads);
        stats.iter_value_bytes.add(counters.device_read_bytes);
        value
    }

    fn read_many(&self, entries: &[Entry<'_>], found: &mut dyn FnMut(usize, BlockSlice)) {
        let mut counters = ReadCounters::default();
        let mut places = Vec::with_capacity(entries.len());
        for (nth, entry) in entries.iter().enumerate() {
            match self.locate(nth, entry, &mut counters) {
                Some((_, Some(value))) => found(nth, value),
                Some((place, None)) => places.push(place),
                None => {}
            }
        }
        places.sort_unstable_by_key(|place| (place.vsst.number(), place.offset));
        let extents = places.iter().map(|p| (p.vsst.number(), p.offset..p.offset + p.reference.stored_len));
        let runs = join(extents);
        let bytes: u64 = places.iter().map(|p| p.reference.stored_len).sum();
        self.demand.scanned(runs.len() as u64, bytes.div_ceil(RUN_LEN_MAX));
        let Some(bufs) = self.read_runs(&places, &runs) else { return };
        for (run, read) in runs.iter().zip(bufs) {
            for place in places.get(run.places.clone()).unwrap_or_default() {
                let Some(entry) = entries.get(place.nth) else { continue };
                if let Some(value) = self.open(place, entry, run, &read) {
                    found(place.nth, value);
                }
            }
        }
    }
}

impl ReferenceResolver for Values {
    fn resolve(
        &self,
        user_key: &[u8],
        seq: SeqNo,
        kind: ValueKind,
        reference: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        out.extend_from_slice(&self.read(&Entry { user_key, seq, kind, value: reference })?);
        Ok(())
    }
}
