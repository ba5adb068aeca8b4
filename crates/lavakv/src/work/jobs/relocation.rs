//! Correlated compaction: relocates the records of vSSTs into key order during a compaction.
//!
//! `plan::relocation` decides when.
//!
//! The compaction encounters references in key order, and the records of a vSST are in key order as
//! well. So one buffer per vSST, filled from the requested record on, contains the next ones. A
//! vSST in arrival order is read by the offsets of the next keys instead (`ahead`). Records are
//! verified and copied in their stored form, as in garbage collection. References in other tables
//! still lead to the old file, which remains valid, with more garbage.
//!
//! A record that is damaged even in a second read stays in its file, with its reference, and the
//! file is set aside (`damaged`). Correctness does not depend on the move.
//!
//! Each compaction of a walk claims the vSSTs that it relocates, so no collection works on one of
//! them at the same time. Between two compactions they are not claimed. A collection takes one then
//! only if it is requested, if space is short, or if the walk is suspended. The walk goes on with
//! the rest.

use crate::tree::output::{CreateVsst, VsstFiles};
use ahead::Ahead;
use base::{Error, HashMap, Result, SeqNo};
use lsm::policy::Compaction;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use table::{ReadCounters, Reference, Vsst};
use values::VsstSeries;
use version::{Dependency, Version, VsstClass, VsstMeta};

mod ahead;

/// Total bytes of the read buffers of a compaction, and the minimum and maximum of one buffer.
const BUFFERS_BYTES: u64 = 16 << 20;
const BUFFER_BYTES_MIN: u64 = 64 << 10;
const BUFFER_BYTES_MAX: u64 = 512 << 10;
/// Maximum number of vSSTs in arrival order with read-ahead; each also holds a window of its keys.
const AHEAD_MAX: usize = 16;

/// A vSST to relocate from.
struct Input {
    vsst: Arc<Vsst>,
    buffer: Vec<u8>,
    /// File offset of the buffer.
    at: u64,
    /// Read-ahead of a file in arrival order.
    ahead: Option<Ahead>,
}

/// The relocated records of a compaction. See the module.
pub(crate) struct Relocator {
    inputs: HashMap<u64, Input>,
    buffer_bytes: u64,
    series: VsstSeries<CreateVsst>,
    counters: ReadCounters,
    damaged: Vec<(u64, Error)>,
}

impl Relocator {
    /// Prepares a compaction of `version` that creates its vSSTs by `files`. `lists` has the
    /// references of its inputs. Returns `None` if no vSST is relocated.
    pub fn new(
        files: VsstFiles,
        version: &Version,
        compaction: &Compaction,
        lists: &[Vec<Dependency>],
    ) -> Result<Option<Relocator>> {
        let mut inputs = HashMap::default();
        let (mut class, mut aheads) = (VsstClass::Mixed, 0);
        for meta in compaction.relocate_vssts.iter().filter_map(|n| version.vssts.get(n)) {
            let vsst = match files.tree.files.tables.vsst(meta) {
                Err(e) if crate::files::damaged::is_of_reading(&e) => {
                    files.tree.set_aside(meta.number, &e);
                    continue;
                }
                opened => opened?,
            };
            // Relocated values have lasted until now, so they are cold, like survivors of a
            // collection.
            if meta.class != VsstClass::Mixed {
                class = VsstClass::Cold;
            }
            let ahead = if aheads < AHEAD_MAX { Ahead::of(&vsst, compaction.key_range().1) } else { None };
            aheads += usize::from(ahead.is_some());
            inputs.insert(meta.number, Input { vsst, buffer: Vec::new(), at: 0, ahead });
        }
        let Some(alignment) = inputs.values().map(|i| i.vsst.alignment()).min() else { return Ok(None) };
        let numbers: BTreeSet<u64> = inputs.keys().copied().collect();
        let of = |list: &Vec<Dependency>| lsm::policy::relocation::relocated_bytes(version, list, &numbers);
        let bytes: u64 = lists.iter().map(of).sum();
        // Files of about equal length, instead of a short one at the end.
        let wanted = files.family.options().expert.vsst_bytes;
        let vsst_bytes = bytes / ((bytes + wanted / 2) / wanted).max(1);
        let buffer_bytes = BUFFERS_BYTES / inputs.len() as u64;
        let create: CreateVsst = Box::new(move || files.create(alignment, class));
        Ok(Some(Relocator {
            inputs,
            buffer_bytes: buffer_bytes.clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX),
            series: VsstSeries::new(vsst_bytes + vsst_bytes / 64, create),
            counters: ReadCounters::default(),
            damaged: Vec::new(),
        }))
    }

    /// Copies a record of the vSST `file`. Returns its new reference, or `None` if it stays in its
    /// file.
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
        if !input.is_ahead(
            offset,
            reference.stored_len,
            (user_key, seq),
            self.buffer_bytes,
            &mut self.counters,
        ) {
            input.hold(offset, reference.stored_len, self.buffer_bytes, &mut self.counters)?;
        }
        let mut error = None;
        for again in [false, true] {
            if again {
                // A second read, as in the read path.
                input.fill(offset, reference.stored_len, &mut self.counters)?;
            }
            let bytes = input.record(offset, reference.stored_len, again);
            match input.vsst.open_record(bytes, offset) {
                Ok(record) if (record.user_key, record.seq) == (user_key, seq) => {
                    return self.series.copy(&record).map(Some);
                }
                Ok(_) => error = Some(
                    Error::corruption(
                        "the value record at this offset belongs to another key, so its value is not moved",
                    )
                    .at_offset(offset),
                ),
                Err(e) => error = Some(e),
            }
        }
        let path = input.vsst.file().path();
        self.damaged.extend(error.map(|e| (file, e.at_file(path))));
        Ok(None)
    }

    /// Ends the open vSST. Returns all written ones.
    pub fn finish(&mut self) -> Result<Vec<VsstMeta>> {
        self.series.finish()
    }

    /// Returns every vSST created so far, finished or not.
    pub fn created(&self) -> &[(u64, PathBuf)] {
        self.series.created()
    }

    /// Returns the bytes written since the last call.
    pub fn take_written_bytes(&mut self) -> u64 {
        self.series.take_written_bytes()
    }

    /// Returns the damaged records that were not copied: file and error.
    pub fn take_damaged(&mut self) -> Vec<(u64, Error)> {
        std::mem::take(&mut self.damaged)
    }

    /// Returns the bytes of vSSTs read so far.
    pub fn read_bytes(&self) -> u64 {
        self.counters.device_read_bytes
    }
}

impl Input {
    /// Returns whether the record is in the read-ahead buffer, reading more if needed.
    fn is_ahead(
        &mut self,
        offset: u64,
        len: u64,
        (user_key, seq): (&[u8], SeqNo),
        buffer_bytes: u64,
        counters: &mut ReadCounters,
    ) -> bool {
        let Some(ahead) = &mut self.ahead else { return false };
        if ahead.get(offset, len).is_some() {
            return true;
        }
        if ahead.fill(user_key, seq, len.max(buffer_bytes), counters).is_err() {
            self.ahead = None;
            return false;
        }
        ahead.get(offset, len).is_some()
    }

    /// Reads the record and its successors in the file, unless the buffer has it.
    fn hold(&mut self, offset: u64, len: u64, buffer_bytes: u64, counters: &mut ReadCounters) -> Result<()> {
        let held = self.at..self.at + self.buffer.len() as u64;
        if offset >= held.start && offset + len <= held.end {
            return Ok(());
        }
        // In arrival order, the successors have arbitrary keys.
        let follows = !self.vsst.properties().segment;
        self.fill(offset, if follows { len.max(buffer_bytes) } else { len }, counters)
    }

    /// Returns the record from the buffer of its last read.
    fn record(&self, offset: u64, len: u64, again: bool) -> &[u8] {
        let ahead = self.ahead.as_ref().filter(|_| !again).and_then(|ahead| ahead.get(offset, len));
        ahead.unwrap_or_else(|| {
            let from = (offset - self.at) as usize;
            &self.buffer[from..from + len as usize]
        })
    }

    /// Reads `len` bytes from `offset` on, fewer at the end of the records.
    fn fill(&mut self, offset: u64, len: u64, counters: &mut ReadCounters) -> Result<()> {
        let len = len.min(self.vsst.properties().record_bytes - offset);
        self.buffer.clear();
        self.buffer.resize(len as usize, 0);
        self.at = offset;
        counters.device_read_bytes += len;
        self.vsst.file().read_at(&mut self.buffer, offset)
    }
}
