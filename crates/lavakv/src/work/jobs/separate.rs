//! Values during flushes and compactions. Large values go to vSSTs, and references get the newest
//! name of their file. After a change of `min_blob_size`, values move between tables and vSSTs.

use super::Jobs;
use super::hot_cold::HotColdVssts;
use super::relocation::Relocator;
use crate::files::damaged;
use crate::tree::family::Family;
use crate::tree::output::VsstFiles;
use base::{Error, HashMap, Result, SeqNo, ValueKind};
use cache::BlockSlice;
use lsm::{Rewrite, ValueHook};
use std::path::PathBuf;
use std::sync::Arc;
use table::{ReadCounters, Reference, SegmentReference};
use version::{BlobId, Version, VsstMeta};

/// The separated values of one job, across its steps.
pub(crate) struct Separation {
    separated: HotColdVssts,
    /// Minimum length of separated values.
    min_blob_size: usize,
    family: Arc<Family>,
    /// Resolves references of the inputs (compaction): an outline, which pins no files.
    version: Option<Arc<Version>>,
    /// Names that lead to one file for every key, with its number. Most names do, and a compaction
    /// encounters them often.
    plain_names: HashMap<BlobId, u64>,
    /// Copies records from vSSTs to relocate (compaction).
    relocator: Option<Relocator>,
    /// Separated values are rewritten (compaction).
    rewrites: bool,
    /// Segments referenced by the job's table.
    segments: Vec<VsstMeta>,
}

impl Separation {
    /// Creates the state of a flush of so many bytes, with vSSTs created by `files`.
    pub fn of_flush(files: VsstFiles, bytes: u64) -> Self {
        Self::new(files, Some(bytes), None)
    }

    /// Creates the state of a compaction, with vSSTs created by `files`. References of its inputs
    /// resolve in `version`.
    pub fn of_compaction(files: VsstFiles, version: Arc<Version>) -> Self {
        Self::new(files, None, Some(version))
    }

    fn new(files: VsstFiles, flush_bytes: Option<u64>, version: Option<Arc<Version>>) -> Self {
        let options = files.family.options();
        let min_blob_size = if options.min_blob_size == 0 { usize::MAX } else { options.min_blob_size };
        let family = files.family.clone();
        Separation {
            separated: HotColdVssts::new(files, flush_bytes),
            family,
            min_blob_size,
            version,
            plain_names: HashMap::default(),
            relocator: None,
            rewrites: false,
            segments: Vec::new(),
        }
    }

    /// Adds a relocator.
    pub fn with_relocator(self, relocator: Option<Relocator>) -> Self {
        Separation { relocator, ..self }
    }

    /// Enables rewriting: separated values, except those in segments, are written as new ones would
    /// be.
    pub fn rewriting(self, rewrites: bool) -> Self {
        Separation { rewrites, ..self }
    }

    /// Returns the hook of one step.
    pub fn hook<'a>(&'a mut self, jobs: &'a Jobs) -> SeparationStep<'a> {
        SeparationStep { separation: self, jobs }
    }

    /// Ends the open vSSTs. Returns all written ones, and the adopted segments.
    pub fn finish(&mut self) -> Result<Vec<VsstMeta>> {
        let mut all = self.separated.finish()?;
        if let Some(relocator) = &mut self.relocator {
            all.append(&mut relocator.finish()?);
        }
        all.append(&mut self.segments);
        Ok(all)
    }

    /// Returns every vSST created so far, finished or not.
    pub fn created(&self) -> Vec<(u64, PathBuf)> {
        let relocated = self.relocator.as_ref().map_or(&[][..], Relocator::created);
        [&self.separated.created(), relocated].concat()
    }

    /// Returns the bytes written since the last call.
    pub fn take_written_bytes(&mut self) -> u64 {
        let relocated = self.relocator.as_mut().map_or(0, Relocator::take_written_bytes);
        self.separated.take_written_bytes() + relocated
    }

    /// See [`Relocator::take_damaged`].
    pub fn take_damaged(&mut self) -> Vec<(u64, Error)> {
        self.relocator.as_mut().map_or(Vec::new(), Relocator::take_damaged)
    }

    /// Returns the bytes of vSSTs read so far for relocation.
    pub fn relocation_read_bytes(&self) -> u64 {
        self.relocator.as_ref().map_or(0, Relocator::read_bytes)
    }
}

/// The hook of one step. See [`Separation::hook`].
pub(crate) struct SeparationStep<'a> {
    separation: &'a mut Separation,
    jobs: &'a Jobs,
}

impl SeparationStep<'_> {
    fn separate(&mut self, user_key: &[u8], seq: SeqNo, value: &[u8], out: &mut Vec<u8>) -> Result<Rewrite> {
        self.separation.separated.add(user_key, seq, value)?.encode_into(out);
        Ok(Rewrite::As(ValueKind::Reference))
    }

    fn renew(&mut self, user_key: &[u8], seq: SeqNo, bytes: &[u8], out: &mut Vec<u8>) -> Result<Rewrite> {
        let Some(version) = &self.separation.version else { return Ok(Rewrite::Keep) };
        let reference = Reference::decode(bytes)?;
        let is_long = reference.raw_len >= self.separation.min_blob_size as u64;
        if is_long
            && !self.separation.rewrites
            && let Some(&blob_id) = self.separation.plain_names.get(&reference.blob_id)
        {
            return self.moved(user_key, seq, reference, blob_id, out);
        }
        let file = crate::read::fetch::resolve(version, user_key, seq, &reference)?;
        // The value of a segment stays there, whatever the options: it may be longer than a block
        // allows.
        if (!is_long || self.separation.rewrites) && !file.segment {
            return match self.value_of(user_key, seq, bytes) {
                // The reference is kept, although its value is unreadable: the compaction does not
                // need the value.
                Err(e) if damaged::is_of_reading(&e) && !e.is_passing() => {
                    self.jobs.tree.set_aside(file.number, &e);
                    Ok(renamed(reference, file.number, out))
                }
                Err(e) => Err(e),
                Ok(None) => Ok(Rewrite::Keep),
                Ok(Some(value)) if is_long => self.separate(user_key, seq, &value, out),
                Ok(Some(value)) => {
                    out.extend_from_slice(&value);
                    Ok(Rewrite::As(ValueKind::Value))
                }
            };
        }
        let blob_id = file.number;
        if version.aliases.get(&reference.blob_id).is_none_or(|targets| targets.len() == 1) {
            self.separation.plain_names.insert(reference.blob_id, blob_id);
        }
        self.moved(user_key, seq, reference, blob_id, out)
    }

    /// Returns the reference to a record of the vSST `file`, or to its copy if that file is being
    /// relocated.
    fn moved(
        &mut self,
        user_key: &[u8],
        seq: SeqNo,
        reference: Reference,
        file: BlobId,
        out: &mut Vec<u8>,
    ) -> Result<Rewrite> {
        if let Some(relocator) = &mut self.separation.relocator
            && let Some(copy) = relocator.take(file, user_key, seq, &reference)?
        {
            copy.encode_into(out);
            return Ok(Rewrite::As(ValueKind::Reference));
        }
        Ok(renamed(reference, file, out))
    }

    /// Returns the value of a reference. The inputs are still in the current version, so their
    /// names resolve in it. Names of a dropped family do not (`None`), and its output is not
    /// needed.
    fn value_of(&self, user_key: &[u8], seq: SeqNo, bytes: &[u8]) -> Result<Option<BlockSlice>> {
        let (read_state, mut counters) = (self.separation.family.read_state(), ReadCounters::default());
        let entry = (user_key, seq, ValueKind::Reference);
        match crate::read::fetch::value(
            &self.jobs.tree,
            &read_state.version,
            entry,
            bytes,
            false,
            &mut counters,
        ) {
            Err(_) if self.separation.family.is_dropped() => Ok(None),
            value => value.map(Some),
        }
    }

    /// Adopts a large value: its segment belongs to the version from now on.
    fn take_in(&mut self, user_key: &[u8], seq: SeqNo, bytes: &[u8], out: &mut Vec<u8>) -> Result<Rewrite> {
        let reference = SegmentReference::decode(bytes)?;
        self.separation.segments.push(self.jobs.large.segments.meta(user_key, seq, &reference));
        reference.in_table().encode_into(out);
        Ok(Rewrite::As(ValueKind::Reference))
    }
}

/// Encodes the reference under another name.
fn renamed(reference: Reference, blob_id: BlobId, out: &mut Vec<u8>) -> Rewrite {
    if blob_id == reference.blob_id {
        return Rewrite::Keep;
    }
    Reference { blob_id, ..reference }.encode_into(out);
    Rewrite::As(ValueKind::Reference)
}

impl ValueHook for SeparationStep<'_> {
    /// A value in a segment may be too long to be folded, and a damaged one is left to readers.
    fn base(&mut self, user_key: &[u8], seq: SeqNo, reference: &[u8]) -> Result<Option<BlockSlice>> {
        let Some(version) = &self.separation.version else { return Ok(None) };
        let decoded = Reference::decode(reference)?;
        if crate::read::fetch::resolve(version, user_key, seq, &decoded)?.segment {
            return Ok(None);
        }
        match self.value_of(user_key, seq, reference) {
            Err(e) if damaged::is_of_reading(&e) && !e.is_passing() => Ok(None),
            value => value,
        }
    }

    fn rewrite(
        &mut self,
        user_key: &[u8],
        seq: SeqNo,
        kind: ValueKind,
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Rewrite> {
        match kind {
            ValueKind::Value if value.len() >= self.separation.min_blob_size => {
                self.separate(user_key, seq, value, out)
            }
            ValueKind::Reference => self.renew(user_key, seq, value, out),
            ValueKind::PlacedReference => self.take_in(user_key, seq, value, out),
            _ => Ok(Rewrite::Keep),
        }
    }
}
