//! Correlated compaction: when vSSTs are rebuilt in the order of keys, and how a compaction takes their records along.
//!
//! **When.** Nobody reads ahead in a store that is not scanned, so nothing is rebuilt there: the mechanism costs a store
//! that only writes and gets nothing at all. Scans tell what they lose (`tree::demand`): each request beyond the fewest that
//! would do. Once that is [`PAYS_PART`] of the bytes that a walk would rewrite, it begins: from there on scans are
//! expected to lose as much again. A walk does not begin, nor go on, while anybody writes (under random overwrites what
//! is put in order is soon out of order, and its room is needed), while collections are paused, or while anything more
//! urgent is to be done. What it takes, and why whole vSSTs, says `lsm::policy::rebuild`.
//!
//! **How.** The compaction meets references in the order of keys, and the records of a vSST lie in that order: so one
//! buffer for each vSST, filled from where the record begins, holds those that follow. Records are verified and
//! copied as they are stored, like those that garbage collection copies. References in other tables still lead to
//! the old file, which is a file like any other, with more garbage.
//!
//! A record that is damaged, even when it is read again alone, stays where it is, with its reference, and its file is
//! set aside (`damaged`). Nothing depends on its being moved.

use super::{Claims, Jobs};
use crate::tree::family::{Family, View};
use crate::tree::output::{CreateVsst, VsstFiles};
use base::{Error, HashMap, HashSet, Result, SeqNo};
use lsm::policy::{Compaction, Facts, InProgress, Rebuild, RebuildOptions, RebuildStep};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use table::{ReadCounters, Reference, Vsst};
use values::Separator;
use version::{Version, VsstClass, VsstMeta, VsstSource};

/// vSSTs that the values of a stretch of keys may be spread over: 8 requests for the two megabytes that a scan reads
/// together are of 256 KiB, and longer ones are not made.
const SPREAD_MAX: u64 = 8;
/// A walk takes this part of what all vSSTs hold: that is the room it needs, and the inverse of how many walks put all
/// of a store in order.
const STORE_PART: u64 = 5;
/// A walk takes this many vSSTs' worth at least.
const FILES_MIN: u64 = 4;
/// A walk begins when scans have lost this part of what it will rewrite.
const PAYS_PART: u64 = 2;
/// Bytes of all read buffers of a compaction, and the least and most of one.
const BUFFERS_BYTES: u64 = 16 << 20;
const BUFFER_BYTES_MIN: u64 = 64 << 10;
const BUFFER_BYTES_MAX: u64 = 512 << 10;

/// What can be started, and the walk as it is once that has been started.
type Picked = (Compaction, Rebuild);

/// The next step of a walk, if a family has one to go on with, or one to begin.
pub(crate) fn pick(jobs: &Jobs, claims: &mut Claims) -> Option<(Arc<Family>, Compaction, Rebuild)> {
    if !jobs.context.options.ablation.correlated || claims.rebuild_runs || jobs.drain.gc_is_paused() {
        return None;
    }
    // A walk needs room for all it rewrites.
    if jobs.space.room().is_some_and(|(room, margin)| room < 2 * margin) {
        return None;
    }
    jobs.tree.all_families().into_iter().find_map(|family| {
        let (compaction, walk) = pick_in(jobs, claims, &family)?;
        super::fits(jobs, &compaction).then_some((family, compaction, walk))
    })
}

fn pick_in(jobs: &Jobs, claims: &mut Claims, family: &Family) -> Option<Picked> {
    if !claims.rebuilds.contains_key(&family.id) && family.demand.bytes() == 0 || !jobs.is_quiet() {
        return None;
    }
    let view = family.view();
    if !claims.rebuilds.contains_key(&family.id) {
        let busy = claims.busy.entry(family.id).or_default();
        let walk = begin(family, &view, busy)?;
        claims.rebuilds.insert(family.id, walk);
    }
    let (policy, set_aside) = (family.policy()?, family.tables_set_aside());
    let busy = claims.busy.entry(family.id).or_default();
    let mut walk = claims.rebuilds.get(&family.id)?.clone();
    match policy.rebuild(&Facts { version: &view.version, set_aside: &set_aside, busy }, &mut walk) {
        RebuildStep::Start(compaction) => Some((*compaction, walk)),
        RebuildStep::Wait => None,
        RebuildStep::Done => {
            claims.rebuilds.remove(&family.id);
            None
        }
    }
}

/// A walk that scans have paid for.
fn begin(family: &Family, view: &View, busy: &InProgress) -> Option<Rebuild> {
    let vsst_bytes = family.options().vsst_bytes;
    let bytes_max = (view.ledger.referenced_bytes() / STORE_PART).max(FILES_MIN * vsst_bytes);
    let price = bytes_max / PAYS_PART;
    if view.version.vssts.is_empty() || family.demand.bytes() < price.max(1) {
        return None;
    }
    // Also if nothing is scattered: then scans lost it to something else, and it is not asked for each time anew.
    family.demand.spent(price);
    let options = RebuildOptions { spread_max: SPREAD_MAX, bytes_max, job_bytes: vsst_bytes };
    Rebuild::choose(&view.version, &options, busy)
}

/// The vSSTs of a walk under way: collecting them would be for nothing.
pub(crate) fn taken(jobs: &Jobs, claims: &Claims, family: &Family) -> HashSet<u64> {
    match claims.rebuilds.get(&family.id) {
        Some(walk) if jobs.is_quiet() => walk.vssts().iter().copied().collect(),
        _ => HashSet::default(),
    }
}

/// One vSST that is read from.
struct Input {
    vsst: Arc<Vsst>,
    buffer: Vec<u8>,
    /// Where in the file the buffer begins.
    at: u64,
}

/// The records that a compaction takes along. See the module.
pub(crate) struct Rebuilder {
    inputs: HashMap<u64, Input>,
    buffer_bytes: u64,
    separator: Separator<CreateVsst>,
    counters: ReadCounters,
    damaged: Vec<(u64, Error)>,
}

impl Rebuilder {
    /// For a compaction of `version` that makes its vSSTs by `files`; `None` if it rebuilds none.
    pub fn new(files: VsstFiles, version: &Version, compaction: &Compaction) -> Result<Option<Rebuilder>> {
        let mut inputs = HashMap::default();
        let mut class = VsstClass::Mixed;
        for meta in compaction.rebuild_vssts.iter().filter_map(|n| version.vssts.get(n)) {
            let vsst = match files.tree.files.tables.vsst(meta) {
                Err(e) if crate::files::damaged::is_of_reading(&e) => {
                    files.tree.set_aside(meta.number, &e);
                    continue;
                }
                opened => opened?,
            };
            // What lasted until now is cold, as what survives a collection.
            if meta.class != VsstClass::Mixed {
                class = VsstClass::Cold;
            }
            inputs.insert(meta.number, Input { vsst, buffer: Vec::new(), at: 0 });
        }
        let Some(alignment) = inputs.values().map(|i| i.vsst.alignment()).min() else { return Ok(None) };
        let numbers: BTreeSet<u64> = inputs.keys().copied().collect();
        let of = |f: &Arc<version::FileMeta>| lsm::policy::rebuild::rebuilt_bytes(version, f, &numbers);
        let bytes: u64 = compaction.input_files().map(|(_, f)| of(f)).sum();
        // Files of about one length, instead of a short one at the end.
        let wanted = files.family.options().vsst_bytes;
        let vsst_bytes = bytes / ((bytes + wanted / 2) / wanted).max(1);
        let buffer_bytes = BUFFERS_BYTES / inputs.len() as u64;
        let create: CreateVsst = Box::new(move || files.create(alignment, class));
        Ok(Some(Rebuilder {
            inputs,
            buffer_bytes: buffer_bytes.clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX),
            separator: Separator::new(vsst_bytes + vsst_bytes / 64, create),
            counters: ReadCounters::default(),
            damaged: Vec::new(),
        }))
    }

    /// The new reference to a record of the vSST `file`, copied; `None` if it stays where it is.
    pub fn take(
        &mut self,
        file: u64,
        user_key: &[u8],
        seq: SeqNo,
        reference: &Reference,
    ) -> Result<Option<Reference>> {
        let Some(input) = self.inputs.get_mut(&file) else { return Ok(None) };
        let offset = match input.vsst.locate(user_key, seq, &mut self.counters) {
            Err(e) if e.is_corruption() => {
                self.damaged.push((file, e));
                return Ok(None);
            }
            found => found?,
        };
        let Some(end) = offset.checked_add(reference.stored_len) else { return Ok(None) };
        if end > input.vsst.properties().record_bytes || reference.stored_len == 0 {
            return Ok(None);
        }
        let held = input.at..input.at + input.buffer.len() as u64;
        if offset < held.start || end > held.end {
            input.fill(offset, reference.stored_len.max(self.buffer_bytes), &mut self.counters)?;
        }
        let mut error = None;
        for again in [false, true] {
            if again {
                // A second look, as readers take one.
                input.fill(offset, reference.stored_len, &mut self.counters)?;
            }
            let from = (offset - input.at) as usize;
            let bytes = &input.buffer[from..from + reference.stored_len as usize];
            match input.vsst.open_record(bytes, offset) {
                Ok(record) if (record.user_key, record.seq) == (user_key, seq) => {
                    return self.separator.copy(&record).map(Some);
                }
                Ok(_) => error = Some(Error::corruption("the record of another key").at_offset(offset)),
                Err(e) => error = Some(e),
            }
        }
        let path = input.vsst.file().path();
        self.damaged.extend(error.map(|e| (file, e.at_file(path))));
        Ok(None)
    }

    /// Ends the open vSST; all that were written.
    pub fn finish(&mut self) -> Result<Vec<VsstMeta>> {
        self.separator.finish()
    }

    /// Every vSST made so far, finished or not.
    pub fn created(&self) -> &[(u64, PathBuf)] {
        self.separator.created()
    }

    /// Bytes written since the last call.
    pub fn take_written_bytes(&mut self) -> u64 {
        self.separator.take_written_bytes()
    }

    /// Records that were not copied because they are damaged: the file, and what is wrong.
    pub fn take_damaged(&mut self) -> Vec<(u64, Error)> {
        std::mem::take(&mut self.damaged)
    }

    /// Bytes of vSSTs read so far.
    pub fn read_bytes(&self) -> u64 {
        self.counters.device_read_bytes
    }
}

impl Input {
    /// Reads `len` bytes from `offset` on, less at the end of the records.
    fn fill(&mut self, offset: u64, len: u64, counters: &mut ReadCounters) -> Result<()> {
        let len = len.min(self.vsst.properties().record_bytes - offset);
        self.buffer.clear();
        self.buffer.resize(len as usize, 0);
        self.at = offset;
        counters.device_read_bytes += len;
        self.vsst.file().read_at(&mut self.buffer, offset)
    }
}
