//! Writes a vSST.
//!
//! Records go to the file as they come: in key order, or, in a value log file, to which values are
//! appended while they are logged, in order of arrival. The keys of a value log file are sorted at
//! the end. Dense partitions (compressed) and index frames are kept until the end, about 20 bytes a
//! key. They are written behind the records, so that a scan of the keys does not read values, nor
//! the reverse.

use super::dense::{DenseBuilder, DenseRow, PARTITION_LEN};
use super::index::{IndexBuilder, trailer};
use super::properties::VsstProperties;
use super::record::{self, ALIGNMENT_MAX, Record, SUM_LEN};
use crate::compress::Compressor;
use crate::footer::{FOOTER_LEN, FileKind, Footer};
use crate::frame::BlockHandle;
use crate::index::{self, Separators};
use crate::options::TableIdentity;
use crate::prefix::{named, shared_len};
use crate::sections::{self, Section};
use crate::sink::Sink;
use base::codec::put_u32;
use base::{Compression, Error, ErrorKind, MAX_SEQ, Result, SeqNo, ValueKind, checksum, key, limits};
use cache::Cache;
use io::AppendFile;
use std::path::Path;
use std::sync::Arc;

/// Format options of a new vSST.
#[derive(Clone, Copy, Debug, Default)]
pub struct VsstOptions {
    /// Codec of values and dense partitions.
    pub compression: Compression,
    /// Alignment of record lengths and offsets: a power of two up to 64 (other numbers are
    /// rounded). 0: chosen from the first record.
    pub alignment: u32,
}

/// Lengths for the reference to a new record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLens {
    /// Length of the value, in bytes.
    pub raw_len: u64,
    /// Length of the whole record, in bytes.
    pub stored_len: u64,
}

/// A vSST that is written and synced.
#[derive(Clone, Debug)]
pub struct FinishedVsst {
    /// Length of the file, in bytes.
    pub len: u64,
    /// Smallest encoded internal key, with kind `Value`.
    pub smallest: Vec<u8>,
    /// Largest encoded internal key, with kind `Value`.
    pub largest: Vec<u8>,
    /// Properties of the file.
    pub properties: VsstProperties,
}

/// A record of a value log file.
struct ValueLogRecord {
    user_key: Vec<u8>,
    seq: SeqNo,
    lens: RecordLens,
    offset: u64,
}

/// Writes a vSST from front to back.
pub struct VsstBuilder {
    sink: Sink,
    compression: Compression,
    compressor: Compressor,
    warm: Option<Arc<Cache>>,
    /// Buffer of the record being written.
    record: Vec<u8>,
    last_user: Vec<u8>,
    last_seq: SeqNo,
    dense: DenseBuilder,
    /// Sealed frames of dense partitions; their lengths and last keys follow.
    partitions: Vec<u8>,
    partition_lens: Vec<u64>,
    partition_ends: Separators,
    index: IndexBuilder,
    /// Records written so far, if this is a value log file.
    arrived: Option<Vec<ValueLogRecord>>,
    /// Properties so far; alignment 0 means not chosen yet.
    properties: VsstProperties,
}

impl VsstBuilder {
    /// Starts a vSST in an empty file. `path` is for error messages; `warm` is the cache into which
    /// to put the index when the file is finished.
    pub fn new(
        file: Box<dyn AppendFile>,
        path: &Path,
        identity: TableIdentity,
        options: &VsstOptions,
        warm: Option<Arc<Cache>>,
    ) -> Self {
        let alignment = match options.alignment {
            0 => 0,
            n => n.min(ALIGNMENT_MAX).next_power_of_two(),
        };
        VsstBuilder {
            sink: Sink::new(file, path, identity.uid, options.compression),
            compression: options.compression,
            compressor: Compressor::default(),
            warm,
            record: Vec::new(),
            last_user: Vec::new(),
            last_seq: 0,
            dense: DenseBuilder::default(),
            partitions: Vec::new(),
            partition_lens: Vec::new(),
            partition_ends: Separators::default(),
            index: IndexBuilder::default(),
            arrived: None,
            properties: VsstProperties {
                identity,
                alignment,
                min_seq: SeqNo::MAX,
                ..VsstProperties::default()
            },
        }
    }

    /// Makes it a value log file: for [`VsstBuilder::append`], not for `add` and `copy`. Only an
    /// earlier release wrote such files. Tests write them, since they are still read and collected.
    #[doc(hidden)]
    pub fn in_order_of_arrival(mut self) -> Self {
        assert!(self.is_empty(), "the order of a file is chosen before its first record");
        self.arrived = Some(Vec::new());
        self.dense.with_offsets = true;
        self.properties.segment = true;
        self
    }

    /// Records the creation time (properties only).
    pub fn set_created(&mut self, unix_seconds: u64) {
        self.properties.created_unix_seconds = unix_seconds;
    }

    /// Records whether the values are hot or cold (properties only).
    pub fn set_class(&mut self, class: u8) {
        self.properties.class = class;
    }

    /// Appends a value. Keys must ascend strictly: user keys ascending, then sequences descending.
    ///
    /// # Errors
    /// `InvalidArgument` for a key out of order, `TooLarge` for an entry over the limits, and the
    /// errors of the file. After an error the file cannot be finished.
    pub fn add(&mut self, user_key: &[u8], seq: SeqNo, value: &[u8]) -> Result<RecordLens> {
        self.check_limits(user_key, seq, value)?;
        let shared = self.shared_with_last(user_key, seq)?;
        let (lens, offset) = self.write_record(user_key, seq, value)?;
        self.note(user_key, shared, seq, lens, offset)?;
        Ok(lens)
    }

    /// Appends a value to a value log file. Every entry must have its own sequence. Also returns
    /// the offset of the record.
    ///
    /// # Errors
    /// As [`VsstBuilder::add`].
    #[doc(hidden)]
    pub fn append(&mut self, user_key: &[u8], seq: SeqNo, value: &[u8]) -> Result<(RecordLens, u64)> {
        self.check_limits(user_key, seq, value)?;
        let (lens, offset) = self.write_record(user_key, seq, value)?;
        let one = ValueLogRecord { user_key: user_key.to_vec(), seq, lens, offset };
        self.arrived.as_mut().expect("a file in order of arrival").push(one);
        Ok((lens, offset))
    }

    /// Returns the number of bytes written to the file so far.
    pub fn written_bytes(&self) -> u64 {
        self.sink.offset
    }

    fn check_limits(&self, user_key: &[u8], seq: SeqNo, value: &[u8]) -> Result<()> {
        let sound = user_key.len() <= limits::KEY_LEN_MAX && seq <= MAX_SEQ;
        if !sound || value.len() > limits::VALUE_LEN_MAX {
            let why = format!(
                "a value record has a key of at most {} bytes, not {}, a value of at most {} bytes, not \
                 {}, and a sequence of at most {MAX_SEQ}, not {seq}",
                limits::KEY_LEN_MAX,
                user_key.len(),
                limits::VALUE_LEN_MAX,
                value.len()
            );
            return Err(self.refuse(Error::new(ErrorKind::TooLarge, why)));
        }
        Ok(())
    }

    fn write_record(&mut self, user_key: &[u8], seq: SeqNo, value: &[u8]) -> Result<(RecordLens, u64)> {
        let raw_len = value.len() as u64;
        let compressed = self.compressor.compress(self.compression, value);
        let compressed = compressed.map_err(|e| self.sink.blame(e))?;
        let (codec, stored) = match compressed {
            Some(smaller) => (self.compression, smaller.as_slice()),
            None => (Compression::None, value),
        };
        let body_len = record::body_len(user_key.len(), stored.len());
        if self.properties.alignment == 0 {
            self.properties.alignment = record::alignment_for((body_len + SUM_LEN) as u64);
        }
        let stored_len = (body_len + SUM_LEN).next_multiple_of(self.properties.alignment as usize);
        // This copies the value once more than separate writes of head and value, but is faster up
        // to 16 KB: one write, one checksum pass.
        let out = &mut self.record;
        out.clear();
        record::put_head(out, codec, user_key, seq, stored.len());
        out.extend_from_slice(stored);
        assert_eq!(out.len(), body_len, "a record is as long as foreseen");
        out.resize(stored_len - SUM_LEN, 0);
        let offset = self.sink.offset;
        let sum = checksum::stored(out, self.properties.identity.uid, offset);
        put_u32(out, sum);
        self.sink.append(&self.record)?;
        self.sink.codecs |= 1 << codec as u8;
        Ok((RecordLens { raw_len, stored_len: stored_len as u64 }, offset))
    }

    /// Appends a record of another vSST verbatim. Its stored length stays the same, as references
    /// to it require.
    ///
    /// # Errors
    /// As [`VsstBuilder::add`]; also `InvalidArgument` if its length is no multiple of this file's
    /// alignment, which must not be coarser than that of the source file.
    pub fn copy(&mut self, record: &Record<'_>) -> Result<RecordLens> {
        let shared = self.shared_with_last(record.user_key, record.seq)?;
        let stored_len = record.stored.len() as u64;
        if self.properties.alignment == 0 {
            self.properties.alignment = record::alignment_for(stored_len).min(record.alignment);
        }
        let Some((body, sum)) = record.stored.split_last_chunk::<SUM_LEN>() else {
            let why = format!("the copied record has {stored_len} bytes, but its checksum has {SUM_LEN}");
            return Err(self.refuse(Error::invalid(why)));
        };
        if !stored_len.is_multiple_of(u64::from(self.properties.alignment)) {
            let why = format!(
                "a record of {stored_len} bytes does not fit the alignment of {} bytes: give the new file \
                 the finest \
                 alignment of the files it takes records from",
                self.properties.alignment
            );
            return Err(self.refuse(Error::invalid(why)));
        }
        let offset = self.sink.offset;
        let mask = record.mask ^ checksum::mask(self.properties.identity.uid, offset);
        let sum = u32::from_le_bytes(*sum) ^ mask;
        self.sink.append(body)?;
        self.sink.append(&sum.to_le_bytes())?;
        self.sink.codecs |= 1 << record.codec as u8;
        let lens = RecordLens { raw_len: record.raw_len, stored_len };
        self.note(record.user_key, shared, record.seq, lens, offset)?;
        Ok(lens)
    }

    #[cold]
    fn refuse(&self, e: Error) -> Error {
        self.sink.blame(e.context("adding to a value file (vSST)"))
    }

    /// Checks the order. Returns the length of the prefix shared with the last user key.
    #[inline]
    fn shared_with_last(&self, user_key: &[u8], seq: SeqNo) -> Result<usize> {
        let shared = shared_len(&self.last_user, user_key);
        let ascending = match (self.last_user.get(shared), user_key.get(shared)) {
            // The first key may be empty, like the buffer before it.
            (None, None) => self.is_empty() || seq < self.last_seq,
            (None, Some(_)) => true,
            (Some(_), None) => false,
            (Some(a), Some(b)) => a < b,
        };
        if ascending {
            return Ok(shared);
        }
        Err(self.refuse(Error::invalid(format!(
            "key {} is not after the last key {}: add keys in ascending order, newest version first",
            named(user_key, trailer(seq)),
            named(&self.last_user, trailer(self.last_seq))
        ))))
    }

    /// Adds a written record to dense keys, index and properties.
    fn note(
        &mut self,
        user_key: &[u8],
        shared: usize,
        seq: SeqNo,
        lens: RecordLens,
        offset: u64,
    ) -> Result<()> {
        let alignment = u64::from(self.properties.alignment);
        let offset_units = offset / alignment;
        if self.dense.len() >= PARTITION_LEN {
            self.cut_partition()?;
        }
        let row = DenseRow { seq, raw_len: lens.raw_len, units: lens.stored_len / alignment, offset_units };
        self.dense.push(user_key, shared, row);
        self.index.push((&self.last_user, self.last_seq), user_key, seq, offset_units);
        self.last_user.truncate(shared);
        self.last_user.extend_from_slice(&user_key[shared..]);
        self.last_seq = seq;
        let p = &mut self.properties;
        if p.entries == 0 {
            p.smallest = key::encode(user_key, seq, ValueKind::Value);
        }
        p.entries += 1;
        p.record_bytes += lens.stored_len;
        p.raw_bytes += lens.raw_len;
        p.min_seq = p.min_seq.min(seq);
        p.max_seq = p.max_seq.max(seq);
        Ok(())
    }

    fn cut_partition(&mut self) -> Result<()> {
        let payload = self.dense.finish();
        let len = self.sink.hold_data(&payload, &mut self.partitions)?;
        self.partition_lens.push(len);
        self.partition_ends.push_with(trailer(self.last_seq), |out| out.extend_from_slice(&self.last_user));
        Ok(())
    }

    /// Returns the approximate length that the file would have if it were finished now.
    pub fn len_estimate(&self) -> u64 {
        let dense = self.partitions.len() + self.dense.len();
        self.sink.offset + (dense + self.index.len_estimate() + 512) as u64
    }

    /// Returns the bytes of all records so far, padding included.
    pub fn record_bytes(&self) -> u64 {
        self.properties.record_bytes
    }

    /// Returns the uncompressed bytes of the values so far.
    pub fn raw_bytes(&self) -> u64 {
        self.properties.raw_bytes
    }

    /// Returns the number of records so far.
    pub fn entries(&self) -> u64 {
        self.properties.entries
    }

    /// Returns true if nothing was added.
    pub fn is_empty(&self) -> bool {
        self.properties.entries == 0 && self.arrived.as_ref().is_none_or(Vec::is_empty)
    }

    /// Sorts the keys of a value log file.
    fn sort_arrived(&mut self) -> Result<()> {
        let Some(mut arrived) = self.arrived.take() else { return Ok(()) };
        arrived.sort_unstable_by(|a, b| a.user_key.cmp(&b.user_key).then(b.seq.cmp(&a.seq)));
        for one in &arrived {
            let shared = self.shared_with_last(&one.user_key, one.seq)?;
            self.note(&one.user_key, shared, one.seq, one.lens, one.offset)?;
        }
        Ok(())
    }

    /// Writes the remaining data and syncs the file. `took_over` has the BlobIds of other files
    /// that resolve to this file from now on, ascending.
    ///
    /// # Errors
    /// `InvalidArgument` if nothing was added or the BlobIds are not in order, and the errors of
    /// the file.
    pub fn finish(mut self, took_over: Vec<u64>) -> Result<FinishedVsst> {
        if self.is_empty() {
            return Err(
                self.refuse(Error::invalid("the value file (vSST) has no records: add one before finishing"))
            );
        }
        let own = self.properties.identity.number;
        if !took_over.is_sorted_by(|a, b| a < b) || took_over.contains(&own) {
            return Err(self.refuse(Error::invalid(
                "the numbers of the replaced value files (BlobIds) do not ascend, or contain its own",
            )));
        }
        self.properties.took_over = took_over;
        let record_bytes = self.sink.offset;
        self.sort_arrived()?;
        assert_eq!(record_bytes, self.properties.record_bytes, "records lie one behind another");
        self.properties.largest = key::encode(&self.last_user, self.last_seq, ValueKind::Value);
        let dense_index = self.write_partitions()?;
        let warm = self.warm.take();
        let warm = warm.as_deref().map(|cache| (cache, own));
        let index = std::mem::take(&mut self.index);
        let (root, index_bytes) = index.finish((&self.last_user, self.last_seq), &mut self.sink, warm)?;
        self.properties.index_bytes = index_bytes;
        self.write_meta(dense_index, root)
    }

    /// Writes the dense partitions. Returns the payload of their index.
    fn write_partitions(&mut self) -> Result<Vec<u8>> {
        self.cut_partition()?;
        let lens = &self.partition_lens;
        let mut offset = self.sink.write_run(&mut self.partitions, lens.iter().copied())?;
        let mut offsets = Vec::with_capacity(lens.len());
        for len in lens {
            offsets.push(offset);
            offset += len;
        }
        self.properties.dense_bytes = lens.iter().sum();
        let mut payload = Vec::new();
        index::encode(&mut payload, &self.partition_ends, 0..lens.len(), &[&offsets, lens]);
        Ok(payload)
    }

    fn write_meta(mut self, mut dense_index: Vec<u8>, mut root: Vec<u8>) -> Result<FinishedVsst> {
        let sink = &mut self.sink;
        let section = |tag, handle: BlockHandle| Section { tag, handle };
        let dense = section(sections::DENSE_INDEX, sink.write_plain(&mut dense_index)?);
        let directory = section(sections::DIRECTORY, sink.write_plain(&mut root)?);
        let p = &mut self.properties;
        p.codecs = sink.codecs | 1;
        let properties = section(sections::PROPERTIES, sink.write_plain(&mut p.encode())?);
        let meta = sink.write_plain(&mut sections::encode(&[dense, directory, properties]))?;
        let len = sink.offset + FOOTER_LEN as u64;
        let footer = Footer { uid: p.identity.uid, meta, file_len: len };
        sink.append(&footer.encode_as(FileKind::Vsst))?;
        sink.sync()?;
        let (smallest, largest) = (p.smallest.clone(), p.largest.clone());
        Ok(FinishedVsst { len, smallest, largest, properties: self.properties })
    }
}

#[cfg(test)]
mod tests;
