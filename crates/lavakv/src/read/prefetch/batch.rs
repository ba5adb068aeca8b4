//! Reads of separated values: one, or many in few requests.
//!
//! A batch locates every record by the index of its value file (normally in memory; missing indexes
//! are read together). It takes cached values from the cache, and sorts the rest by file and
//! offset. Adjacent records become one request if the gap between them costs less than another
//! request would ([`table::runs`]). The requests of all files go to the device together. Each
//! record is verified as in a single read, so a batch differs from single reads in time only.
//!
//! A batch does not judge failed requests or damaged records: it leaves the value out. The single
//! read that follows retries it, or reports the error as any point read does.

use super::ahead::ValuesAhead;
use super::{FetchValues, PrefetchedValue, Put, ReadAhead, ViewEntry};
use crate::read::fetch;
use crate::read::wanted::read_wanted;
use crate::tree::Tree;
use crate::tree::family::ReadState;
use crate::tree::scan_cost::ScanCost;
use base::{Result, SeqNo, ValueKind};
use cache::{Block, BlockSlice, CacheKey, Segment};
use io::{FileRead, ReadFile};
use lsm::ReferenceResolver;
use std::sync::Arc;
use table::runs::{GAP_UNKNOWN, RUN_LEN_MAX, Run, WantedExtent, join};
use table::source::{Stop, zeroed};
use table::vsst::{Vsst, record::RECORD_LEN_MAX};
use table::{FetchedBlocks, ReadCounters, Reference, Source};

/// Reads the values behind the references of one read state.
pub(crate) struct Values {
    pub read_state: Arc<ReadState>,
    pub tree: Arc<Tree>,
    pub fill_cache: bool,
    /// Receives the number of requests.
    pub demand: Arc<ScanCost>,
}

/// The location of an entry's record.
pub(super) struct Place {
    /// The index of the entry.
    nth: usize,
    vsst: Arc<Vsst>,
    reference: Reference,
    offset: u64,
}

/// The reads of a window: the locations of its records, by file and offset, and the requests that
/// cover them.
pub(super) struct ReadPlan {
    places: Vec<Place>,
    pub runs: Vec<Run>,
}

impl ReadPlan {
    /// Returns the open file of a run.
    pub fn file(&self, run: &Run) -> Option<&Arc<dyn ReadFile>> {
        Some(self.places.get(run.places.start)?.vsst.file())
    }
}

impl Values {
    /// Returns the location of an entry's value, and the value if it is cached. `None`: the kind of
    /// value is not read in batches, or it was not found.
    fn locate<S: Source>(
        &self,
        nth: usize,
        entry: &ViewEntry<'_>,
        source: &mut S,
    ) -> Result<Option<(Place, Option<BlockSlice>)>, S::Stop> {
        let ViewEntry { user_key, seq, kind, value } = *entry;
        if kind != ValueKind::Reference {
            return Ok(None);
        }
        let reference = Reference::decode(value)?;
        let meta = fetch::resolve(&self.read_state.version, user_key, seq, &reference)?;
        if meta.segment || reference.stored_len > RECORD_LEN_MAX as u64 {
            return Ok(None);
        }
        let vsst = self.tree.files.tables.vsst_from(meta, source)?;
        let offset = vsst.locate(user_key, seq, source)?;
        let end = offset.checked_add(reference.stored_len);
        if end.is_none_or(|end| end > vsst.properties().record_bytes) {
            return Ok(None);
        }
        let cached = vsst.cached(offset, user_key, seq, &reference, source.counters());
        Ok(Some((Place { nth, vsst, reference, offset }, cached)))
    }

    /// Passes the cached values to `put`, and locates the others. Missing footers and indexes are
    /// read together.
    pub(super) fn plan(&self, entries: &[ViewEntry<'_>], put: Put<'_>) -> ReadPlan {
        let mut places = Vec::with_capacity(entries.len());
        let mut fetched = FetchedBlocks::default();
        let mut left: Vec<usize> = (0..entries.len()).collect();
        loop {
            left.retain(|&nth| match self.locate(nth, &entries[nth], &mut fetched) {
                Ok(Some((_, Some(value)))) => {
                    put(nth, PrefetchedValue { value, keep_at: None });
                    false
                }
                Ok(Some((place, None))) => {
                    places.push(place);
                    false
                }
                Err(stop) => stop.is_wait(),
                Ok(None) => false,
            });
            let mut wants = fetched.take_wanted();
            if wants.is_empty() {
                break;
            }
            wants.sort_unstable_by_key(|want| want.extent);
            wants.dedup_by_key(|want| want.extent);
            read_wanted(&mut fetched, &wants);
        }
        places.sort_unstable_by_key(|place| (place.vsst.number(), place.offset));
        let runs = join(places.iter().map(|place| WantedExtent {
            number: place.vsst.number(),
            file: &**place.vsst.file(),
            extent: place.offset..place.offset + place.reference.stored_len,
        }));
        let bytes: u64 = places.iter().map(|p| p.reference.stored_len).sum();
        let request_bytes = self.tree.context.pace().costs().gap_bytes.unwrap_or(GAP_UNKNOWN);
        self.demand.scanned(runs.len() as u64, bytes.div_ceil(RUN_LEN_MAX), request_bytes);
        ReadPlan { places, runs }
    }

    /// Reads all runs in one batch.
    fn read_runs(&self, plan: &ReadPlan) -> Option<Vec<Block>> {
        let mut bufs: Vec<Block> = plan.runs.iter().map(|run| zeroed(run.len())).collect();
        let with_files = plan.runs.iter().filter_map(|run| Some((run, plan.file(run)?)));
        let mut reads: Vec<FileRead<'_>> = with_files
            .zip(&mut bufs)
            .map(|((run, file), buf)| {
                let buf = Block::get_mut(buf).unwrap_or_default();
                FileRead { file, offset: run.bytes.start, buf }
            })
            .collect();
        io::read_files(&mut reads).ok()?;
        Some(bufs)
    }

    /// Verifies the records in the bytes of a run, and passes their values to `put`.
    pub(super) fn open_run(
        &self,
        (plan, run): (&ReadPlan, &Run),
        read: &Block,
        entries: &[ViewEntry<'_>],
        put: Put<'_>,
    ) {
        let stats = &self.tree.context.stats;
        stats.iter_value_reads.add(1);
        stats.iter_value_bytes.add(read.len() as u64);
        for place in plan.places.get(run.places.clone()).unwrap_or_default() {
            let Some(entry) = entries.get(place.nth) else { continue };
            if let Some(value) = self.open(place, entry, run, read) {
                let keep_at = CacheKey { file: place.vsst.number(), offset: place.offset };
                put(place.nth, PrefetchedValue { value, keep_at: self.fill_cache.then_some(keep_at) });
            }
        }
    }

    /// Verifies the record of `entry` in the bytes of its run.
    fn open(&self, place: &Place, entry: &ViewEntry<'_>, run: &Run, read: &Block) -> Option<BlockSlice> {
        let Place { offset, reference, .. } = place;
        let ViewEntry { user_key, seq, .. } = *entry;
        let open_value = |bytes| place.vsst.open_value(bytes, *offset, user_key, seq, reference).ok();
        let value = if reference.stored_len == read.len() as u64 {
            open_value(read.clone())
        } else {
            let from = (offset - run.bytes.start) as usize;
            open_value(read.get(from..)?.get(..reference.stored_len as usize)?.into())
        };
        self.tree.context.stats.iter_values_read.add(u64::from(value.is_some()));
        value
    }
}

impl FetchValues for Values {
    fn read(&self, entry: &ViewEntry<'_>) -> Result<BlockSlice> {
        let (version, mut counters) = (&self.read_state.version, ReadCounters::default());
        let ViewEntry { user_key, seq, kind, value } = *entry;
        let value =
            fetch::value(&self.tree, version, (user_key, seq, kind), value, self.fill_cache, &mut counters);
        let stats = &self.tree.context.stats;
        stats.iter_values_read.add(counters.value_reads);
        stats.iter_value_reads.add(counters.value_reads);
        stats.iter_value_bytes.add(counters.device_read_bytes);
        value
    }

    fn read_many(&self, entries: &[ViewEntry<'_>], put: Put<'_>) {
        let plan = self.plan(entries, put);
        let Some(bufs) = self.read_runs(&plan) else { return };
        for (run, read) in plan.runs.iter().zip(&bufs) {
            self.open_run((&plan, run), read, entries, put);
        }
    }

    fn ahead(self: Arc<Self>) -> Option<Box<dyn ReadAhead>> {
        let reads = self.tree.context.read_queues.lend()?;
        Some(Box::new(ValuesAhead::new(self, reads)))
    }

    fn keep(&self, at: CacheKey, value: &BlockSlice) {
        self.tree.files.cache.insert(Segment::Data, at, value.block());
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
        out.extend_from_slice(&self.read(&ViewEntry { user_key, seq, kind, value: reference })?);
        Ok(())
    }
}
