//! Checks a whole vSST against itself.
//!
//! Every byte is read from the device, none from the cache. The dense keys lead: they must ascend, their records must
//! fill the front of the file and say the same, the index must lead from each key to its record, and what is counted on
//! the way must be what the properties say. The frames must fill the rest of the file without gap or overlap.

use super::index::{Directory, IndexFrame, Node, node, trailer};
use super::keys::{KeyEntry, VsstKeys};
use super::properties::VsstProperties;
use super::reader::Vsst;
use super::record;
use crate::cursor::before;
use crate::file::{Caching, Role};
use crate::footer::FileKind;
use crate::frame::BlockHandle;
use crate::options::ReadCounters;
use crate::sections;
use crate::verify::{CheckStep, STEP_LEN};
use base::{Error, Result, ValueKind, key};
use cache::Block;
use std::sync::Arc;

/// Bytes of records read at once, unless one is longer.
const WINDOW_LEN: u64 = 512 << 10;

/// The frames of the index, in order, each with the separator behind it.
struct Frames {
    frames: Vec<(BlockHandle, Vec<u8>, u64)>,
    /// Nodes of the directory below the root.
    nodes: Vec<BlockHandle>,
}

/// The walk through the index: it stands on the next key to come.
struct IndexWalk {
    frames: Frames,
    /// The frame, the group and the ordinal to come.
    frame: usize,
    row: usize,
    ordinal: usize,
    payload: Option<Block>,
    /// The separator before the present group.
    separator: (Vec<u8>, u64),
}

/// Records read in large runs.
#[derive(Default)]
struct Records {
    bytes: Vec<u8>,
    start: u64,
}

/// A vSST that is checked step by step.
pub struct VsstCheck {
    vsst: Arc<Vsst>,
    counted: VsstProperties,
    keys: VsstKeys,
    walk: IndexWalk,
    records: Records,
    arrived: Vec<(u64, u64)>,
    last: Option<(Vec<u8>, u64)>,
}

impl VsstCheck {
    /// A check of all of the file.
    ///
    /// # Errors
    /// Those of [`Vsst::verify`].
    pub fn new(vsst: Arc<Vsst>) -> Result<VsstCheck> {
        Ok(VsstCheck {
            counted: VsstProperties { min_seq: u64::MAX, ..VsstProperties::default() },
            keys: vsst.keys()?,
            walk: IndexWalk::new(&vsst)?,
            records: Records::default(),
            arrived: Vec::new(),
            last: None,
            vsst,
        })
    }

    /// The file.
    pub fn vsst(&self) -> &Arc<Vsst> {
        &self.vsst
    }

    /// Goes on for about half a megabyte, or one record if that is longer.
    ///
    /// # Errors
    /// Those of [`Vsst::verify`]. Nothing is to be asked for after one.
    pub fn step(&mut self) -> Result<CheckStep> {
        let (begin, first) = (self.counted.record_bytes, self.counted.entries);
        while self.keys.valid() {
            self.record()?;
            self.keys.next()?;
            let bytes = self.counted.record_bytes - begin;
            if bytes >= STEP_LEN {
                return Ok(CheckStep { bytes, parts: self.counted.entries - first, done: false });
            }
        }
        let (bytes, parts) = (self.counted.record_bytes - begin, self.counted.entries - first);
        self.finish()?;
        Ok(CheckStep { bytes, parts, done: true })
    }

    /// Checks the record of the present key, and the key.
    fn record(&mut self) -> Result<()> {
        let (vsst, entry) = (&*self.vsst, self.keys.entry());
        vsst.check_record(&mut self.records, &entry)?;
        let bad = |why: &str| vsst.file.locate(Error::corruption(why), entry.offset);
        if vsst.properties.segment {
            self.arrived.push((entry.offset, entry.stored_len));
        } else if entry.offset != self.counted.record_bytes {
            return Err(bad("records that leave a gap"));
        }
        if let Some((user, trailer_before)) = &self.last
            && !before(user, *trailer_before, entry.user_key, trailer(entry.seq))
        {
            return Err(bad("keys that do not ascend"));
        }
        self.walk.check(vsst, &entry)?;
        vsst.check_partition(&self.keys, &entry)?;
        self.counted.note(&entry);
        let (user, trailer_before) = self.last.get_or_insert_default();
        entry.user_key.clone_into(user);
        *trailer_before = trailer(entry.seq);
        Ok(())
    }

    /// All records were seen: what is left is what they must sum up to.
    fn finish(&mut self) -> Result<()> {
        let vsst = &*self.vsst;
        self.walk.finish(vsst, self.last.take())?;
        vsst.check_filled_in_any_order(std::mem::take(&mut self.arrived))?;
        let mut handles: Vec<BlockHandle> = self.keys.partitions().collect();
        self.counted.dense_bytes = handles.iter().map(|h| h.len).sum();
        let index = self.walk.frames.handles();
        self.counted.index_bytes = index.clone().map(|h| h.len).sum();
        handles.extend(index);
        vsst.check_frames(handles)?;
        vsst.compare(std::mem::take(&mut self.counted))
    }
}

impl Vsst {
    /// Reads and checks every byte: records, order, that the index agrees with the dense keys, counts and sums. Returns
    /// the bytes of the file.
    ///
    /// # Errors
    /// `Corruption`, with the offset, for the first thing that is wrong; and what the file reports.
    pub fn verify(self: &Arc<Self>) -> Result<u64> {
        let mut check = VsstCheck::new(self.clone())?;
        while !check.step()?.done {}
        Ok(self.len)
    }

    /// Reads the record of a dense key.
    fn check_record(&self, records: &mut Records, entry: &KeyEntry<'_>) -> Result<()> {
        let here = |e| self.file.locate(e, entry.offset);
        let bytes = records.get(self, entry.offset, entry.stored_len)?;
        record::verify(bytes, self.file.uid, entry.offset).map_err(here)?;
        let shape = record::parse(bytes).map_err(here)?;
        if self.properties.codecs >> shape.codec as u8 & 1 == 0 {
            return Err(here(Error::corruption("a record with a codec that the properties do not name")));
        }
        let same = shape.seq == entry.seq
            && shape.raw_len == entry.raw_len
            && bytes.get(shape.key) == Some(entry.user_key);
        if !same {
            return Err(here(Error::corruption("a record that is not the one its dense key says")));
        }
        if shape.codec != base::Compression::None {
            let value = bytes.get(shape.value).unwrap_or_default();
            crate::compress::decompress(shape.codec, value).map_err(here)?;
        }
        Ok(())
    }

    /// Records in order of arrival must fill their part of the file, each byte once.
    fn check_filled_in_any_order(&self, mut arrived: Vec<(u64, u64)>) -> Result<()> {
        arrived.sort_unstable();
        let mut end = 0;
        for (offset, len) in arrived {
            if offset != end {
                return Err(self
                    .file
                    .locate(Error::corruption("records that leave a gap or overlap"), offset));
            }
            end = offset.saturating_add(len);
        }
        Ok(())
    }

    /// The key must not lie behind the separator of its partition, nor before that of the one before.
    fn check_partition(&self, keys: &VsstKeys, entry: &KeyEntry<'_>) -> Result<()> {
        let p = keys.partition();
        let mut user = Vec::new();
        let end = keys.separator(p, &mut user);
        let mut sound = !before(&user, end, entry.user_key, trailer(entry.seq));
        if let Some(previous) = p.checked_sub(1) {
            let start = keys.separator(previous, &mut user);
            sound &= before(&user, start, entry.user_key, trailer(entry.seq));
        }
        if sound {
            return Ok(());
        }
        let e = Error::corruption("a dense key outside of its partition's separators");
        Err(self.file.locate(e, self.dense_index.offset))
    }

    fn check_frames(&self, mut handles: Vec<BlockHandle>) -> Result<()> {
        let counters = &mut ReadCounters::default();
        for section in &self.sections {
            let block = self.file.read(section.handle, Role::Dense, counters)?;
            if section.tag == sections::DIRECTORY {
                Directory::open(block).map_err(|e| self.file.locate(e, section.handle.offset))?;
            }
            handles.push(section.handle);
        }
        self.file.read(self.meta, Role::Dense, counters)?;
        handles.push(self.meta);
        self.file.check_filled(self.properties.record_bytes, handles)?;
        self.file.check_footer(FileKind::Vsst)
    }

    fn compare(&self, mut counted: VsstProperties) -> Result<()> {
        let stated = &self.properties;
        // What cannot be counted again.
        counted.identity = stated.identity.clone();
        counted.alignment = stated.alignment;
        counted.segment = stated.segment;
        counted.class = stated.class;
        counted.took_over = stated.took_over.clone();
        counted.codecs = stated.codecs;
        counted.created_unix_seconds = stated.created_unix_seconds;
        if *stated == counted {
            return Ok(());
        }
        let why =
            format!("the properties are not what the vSST holds: stated {stated:?}, counted {counted:?}");
        Err(self.file.locate(Error::corruption(why), self.meta.offset))
    }
}

impl VsstProperties {
    /// Counts a record.
    fn note(&mut self, entry: &KeyEntry<'_>) {
        let ikey = key::encode(entry.user_key, entry.seq, ValueKind::Value);
        if self.entries == 0 {
            self.smallest.clone_from(&ikey);
        }
        self.largest = ikey;
        self.entries += 1;
        self.record_bytes = self.record_bytes.saturating_add(entry.stored_len);
        self.raw_bytes = self.raw_bytes.saturating_add(entry.raw_len);
        self.min_seq = self.min_seq.min(entry.seq);
        self.max_seq = self.max_seq.max(entry.seq);
    }
}

impl Records {
    fn get(&mut self, vsst: &Vsst, offset: u64, len: u64) -> Result<&[u8]> {
        let end = offset.saturating_add(len);
        let window_end = self.start.saturating_add(self.bytes.len() as u64);
        if offset < self.start || end > window_end {
            let to = offset.saturating_add(WINDOW_LEN.max(len)).min(vsst.properties.record_bytes).max(end);
            self.start = offset;
            self.bytes.resize(usize::try_from(to - offset).unwrap_or_default(), 0);
            let read = vsst.file.file.read_at(&mut self.bytes, offset);
            if let Err(e) = read {
                self.bytes.clear();
                return Err(vsst.file.locate(e, offset));
            }
        }
        let from = usize::try_from(offset - self.start).unwrap_or_default();
        // The cursor refuses records that are longer than any; and no bytes are no record either.
        let bytes = self.bytes.get(from..).and_then(|rest| rest.get(..usize::try_from(len).ok()?));
        Ok(bytes.unwrap_or_default())
    }
}

impl Frames {
    /// All frames that the directory leads to.
    fn of(vsst: &Vsst) -> Result<Frames> {
        let mut frames = Frames { frames: Vec::new(), nodes: Vec::new() };
        frames.descend(vsst, &vsst.directory.root, vsst.directory.levels)?;
        Ok(frames)
    }

    fn descend(&mut self, vsst: &Vsst, at: &Node, levels: u8) -> Result<()> {
        for row in 0..at.rows() {
            let handle = at.handle(row);
            let mut user = Vec::new();
            let trailer = at.separator(row, &mut user);
            if levels == 0 {
                // A directory that leads in circles ends here.
                if self.frames.last().is_some_and(|(last, ..)| last.end() > handle.offset) {
                    let e = Error::corruption("a directory that leads back to an earlier frame");
                    return Err(vsst.file.locate(e, handle.offset));
                }
                self.frames.push((handle, user, trailer));
                continue;
            }
            self.nodes.push(handle);
            let below = node(&vsst.file, handle, Caching::Bypass, &mut ReadCounters::default())?;
            self.descend(vsst, &below, levels - 1)?;
            let mut last = Vec::new();
            if below.separator(below.rows() - 1, &mut last) != trailer || last != user {
                let e = Error::corruption("a node that does not end at its separator");
                return Err(vsst.file.locate(e, handle.offset));
            }
        }
        Ok(())
    }

    fn handles(&self) -> impl Iterator<Item = BlockHandle> + Clone + '_ {
        self.frames.iter().map(|f| f.0).chain(self.nodes.iter().copied())
    }
}

impl IndexWalk {
    fn new(vsst: &Vsst) -> Result<IndexWalk> {
        let frames = Frames::of(vsst)?;
        let separator = (Vec::new(), u64::MAX);
        Ok(IndexWalk { frames, frame: 0, row: 0, ordinal: 0, payload: None, separator })
    }

    /// The next key of the index must be this one, and lead to its record.
    fn check(&mut self, vsst: &Vsst, entry: &KeyEntry<'_>) -> Result<()> {
        let Some((handle, end_user, end_trailer)) = self.frames.frames.get(self.frame) else {
            let e = Error::corruption("an index that ends before the last key");
            return Err(vsst.file.locate(e, entry.offset));
        };
        let here = |e| vsst.file.locate(e, handle.offset);
        let bad = |why: &str| here(Error::corruption(why));
        let payload = match &self.payload {
            Some(payload) => payload.clone(),
            None => vsst.file.read(*handle, Role::VsstIndex, &mut ReadCounters::default())?,
        };
        let index = IndexFrame::parse(&payload).map_err(here)?;
        let group = index.group(self.row).map_err(here)?;
        let place = group.offset(self.ordinal).map_err(here)?;
        let agrees = group.block.find(entry.user_key, entry.seq) == self.ordinal
            && place.checked_mul(u64::from(vsst.alignment())) == Some(entry.offset);
        if !agrees {
            return Err(bad("an index that does not lead to a record from its key"));
        }
        if self.frame + self.row + self.ordinal > 0
            && !before(&self.separator.0, self.separator.1, entry.user_key, trailer(entry.seq))
        {
            return Err(bad("a key before the separator of its group"));
        }
        let mut user = Vec::new();
        let end = index.separator(self.row, &mut user);
        if before(&user, end, entry.user_key, trailer(entry.seq)) {
            return Err(bad("a key behind the separator of its group"));
        }
        self.ordinal += 1;
        let last_row = self.row + 1 == index.shape.rows();
        if last_row && (&user, end) != (end_user, *end_trailer) {
            return Err(bad("an index frame that does not end at its separator"));
        }
        self.payload = Some(payload.clone());
        if self.ordinal == group.block.len() {
            (self.ordinal, self.row) = (0, self.row + 1);
            self.separator = (user, end);
        }
        if self.row == index.shape.rows() {
            (self.row, self.frame, self.payload) = (0, self.frame + 1, None);
        }
        Ok(())
    }

    /// No key must be left in the index after the last.
    fn finish(&self, vsst: &Vsst, last: Option<(Vec<u8>, u64)>) -> Result<()> {
        if self.frame == self.frames.frames.len() && last.is_some() {
            return Ok(());
        }
        let e = Error::corruption("an index with more keys than there are records");
        Err(vsst.file.locate(e, vsst.meta.offset))
    }
}
