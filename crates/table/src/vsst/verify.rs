//! Verifies a whole vSST.
//!
//! Every byte is read from the device, none from the cache. The dense keys are the reference: they
//! must ascend, and their records must fill the front of the file and agree with them. The index
//! must lead from each key to its record, and the counts must equal the properties. The frames must
//! fill the rest of the file without gap or overlap.
//!
//! A check continues after damage. Where dense keys are unreadable, the records are walked over by
//! their own lengths. The index is checked again from the first frame with all keys known; other
//! frames are read for their checksums alone. The sums of a damaged file are not compared.

use super::index::{Directory, IndexFrame, Node, node, trailer};
use super::keys::{KeyEntry, VsstKeys};
use super::properties::VsstProperties;
use super::reader::Vsst;
use super::record;
use super::salvage::each_record;
use crate::cursor::before;
use crate::file::{BlockKind, Caching};
use crate::footer::FileKind;
use crate::frame::BlockHandle;
use crate::options::ReadCounters;
use crate::prefix::{named, shown};
use crate::sections;
use crate::verify::{CheckStep, DAMAGE_LEN, FoundDamage, STEP_LEN};
use base::{Error, Result, ValueKind, key};
use cache::Block;
use std::sync::Arc;

/// Length of a read of records, in bytes, unless a record is longer.
const WINDOW_LEN: u64 = 512 << 10;

/// Frames of the index, in order, each with the separator after it.
struct Frames {
    frames: Vec<(BlockHandle, Vec<u8>, u64)>,
    /// Nodes of the directory below the root.
    nodes: Vec<BlockHandle>,
}

/// A walk through the index, positioned at the next key.
struct IndexWalk {
    frames: Frames,
    /// Indexes of the next frame, group and ordinal.
    frame: usize,
    row: usize,
    ordinal: usize,
    payload: Option<Block>,
    /// Separator before the current group.
    separator: (Vec<u8>, u64),
    /// Agreement of the walk with the keys.
    state: Followed,
    /// True if the current frame was read.
    is_read: bool,
}

/// Agreement of a walk through the index with the keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Followed {
    /// The index is checked key by key.
    #[default]
    Exactly,
    /// The current frame does not lead to its keys; the check resumes with the next frame.
    FromNextFrame,
    /// Keys are missing before the next one, possibly of several frames.
    Torn,
    /// The directory is damaged, so the index is not checked.
    Never,
}

/// Records read in large runs.
#[derive(Default)]
struct Records {
    bytes: Vec<u8>,
    start: u64,
}

/// Records of a value log file.
#[derive(Default)]
struct ValueLogExtents {
    /// Offset and stored length of each.
    extents: Vec<(u64, u64)>,
}

/// A vSST verification that runs in steps.
pub struct VsstCheck {
    vsst: Arc<Vsst>,
    counted: VsstProperties,
    /// Cursor over the dense keys; `None` if the index of their partitions is unreadable.
    keys: Option<VsstKeys>,
    walk: IndexWalk,
    records: Records,
    arrived: ValueLogExtents,
    last: Option<(Vec<u8>, u64)>,
    met: FoundDamage,
}

/// Number of sound records, and their bytes.
#[derive(Default)]
struct Sound {
    parts: u64,
    bytes: u64,
}

impl VsstCheck {
    /// Starts a verification of the whole file.
    pub fn new(vsst: Arc<Vsst>) -> VsstCheck {
        let mut met = FoundDamage::default();
        VsstCheck {
            counted: VsstProperties { min_seq: u64::MAX, ..VsstProperties::default() },
            keys: met.sound(VsstKeys::before_first(vsst.clone())),
            walk: IndexWalk::new(&vsst, &mut met),
            records: Records::default(),
            arrived: ValueLogExtents::default(),
            last: None,
            met,
            vsst,
        }
    }

    /// Returns the file.
    pub fn vsst(&self) -> &Arc<Vsst> {
        &self.vsst
    }

    /// Continues for about half a megabyte, or one record if that is longer, and adds the damage
    /// that it finds. Must not be called once it is done.
    pub fn step(&mut self, damage: &mut Vec<Error>) -> CheckStep {
        let (mut sound, mut walked, mut at_end) = (Sound::default(), 0, false);
        while walked < STEP_LEN && !self.met.ended && !at_end {
            at_end = !self.come_to_next(&mut sound);
            if !at_end {
                walked += self.record(&mut sound);
            }
        }
        if at_end && !self.met.ended {
            self.finish();
        }
        damage.append(&mut self.met.damage);
        let Sound { parts, bytes } = sound;
        CheckStep { bytes, parts, done: at_end || self.met.ended }
    }

    /// Moves to the next readable key. Returns false if there is none.
    fn come_to_next(&mut self, sound: &mut Sound) -> bool {
        let (mut is_torn, mut next) = (self.keys.is_none(), None);
        if let Some(keys) = &mut self.keys {
            let mut moved = keys.next();
            while let Err(e) = moved {
                is_torn = true;
                self.met.sound::<()>(Err(e));
                if self.met.ended {
                    return false;
                }
                moved = keys.pass();
            }
            next = keys.valid().then(|| keys.entry().offset);
        }
        if is_torn {
            self.walk.tear();
            if !self.vsst.properties.segment {
                let end = next.unwrap_or(self.vsst.properties.record_bytes);
                self.without_keys(self.counted.record_bytes, end, sound);
                self.counted.record_bytes = end;
            }
        }
        next.is_some()
    }

    /// Checks records whose keys are unreadable.
    fn without_keys(&mut self, start: u64, end: u64, sound: &mut Sound) {
        let (file, met, mut at) = (&self.vsst.file, &mut self.met, start);
        let damaged = |at: u64| {
            file.locate(
                Error::corruption("a value record is damaged: no intact record begins at this offset"),
                at,
            )
        };
        each_record(&*file.file, file.uid, start..end, &mut |record| {
            if record.offset != at {
                met.sound::<()>(Err(damaged(at)));
            }
            at = record.offset + record.stored_len;
            sound.parts += 1;
            sound.bytes += record.stored_len;
        });
        if at < end {
            met.sound::<()>(Err(damaged(at)));
        }
    }

    /// Checks the record of the current key, and the key. Returns the number of bytes checked.
    fn record(&mut self, sound: &mut Sound) -> u64 {
        let Some(keys) = &self.keys else { return 0 };
        let (vsst, met, entry) = (&*self.vsst, &mut self.met, keys.entry());
        let mut is_sound = met.sound(self.records.check(vsst, &entry)).is_some();
        let bad = |why: &str| Err(vsst.file.locate(Error::corruption(why), entry.offset));
        if vsst.properties.segment {
            self.arrived.add(&entry);
        } else if entry.offset != self.counted.record_bytes {
            is_sound &= met
                .sound::<()>(bad(&format!(
                    "a value record does not begin at the end of the one before it: at byte {} instead of \
                     {}",
                    entry.offset, self.counted.record_bytes
                )))
                .is_some();
            self.counted.record_bytes = entry.offset;
        }
        if let Some((user, trailer_before)) = &self.last
            && !before(user, *trailer_before, entry.user_key, trailer(entry.seq))
        {
            is_sound &= met
                .sound::<()>(bad(&format!(
                    "the keys of the value file (vSST) are not in ascending order: {} follows {}",
                    named(entry.user_key, trailer(entry.seq)),
                    named(user, *trailer_before)
                )))
                .is_some();
        }
        self.walk.follow(vsst, &entry, met);
        met.sound(vsst.check_partition(keys, &entry));
        self.counted.note(&entry);
        let (user, trailer_before) = self.last.get_or_insert_default();
        entry.user_key.clone_into(user);
        *trailer_before = trailer(entry.seq);
        if is_sound {
            sound.parts += 1;
            sound.bytes += entry.stored_len;
            return entry.stored_len;
        }
        entry.stored_len.max(DAMAGE_LEN)
    }

    /// Checks the sums after all records.
    fn finish(&mut self) {
        let (vsst, met) = (&*self.vsst, &mut self.met);
        vsst.check_sections(met);
        let Some(keys) = self.keys.as_ref().filter(|_| !met.any) else {
            return self.walk.read_rest(vsst, met);
        };
        met.sound(self.walk.finish(vsst, self.last.take()));
        met.sound(self.arrived.check_filled(vsst));
        let mut handles: Vec<BlockHandle> = keys.partitions().collect();
        self.counted.dense_bytes = handles.iter().map(|h| h.len).sum();
        let index = self.walk.frames.handles();
        self.counted.index_bytes = index.clone().map(|h| h.len).sum();
        handles.extend(index);
        met.sound(vsst.check_frames(handles));
        met.sound(vsst.compare(std::mem::take(&mut self.counted)));
    }
}

impl Vsst {
    /// Reads and checks every byte: records, order, agreement of the index with the dense keys,
    /// counts and sums. Returns the length of the file.
    ///
    /// # Errors
    /// `Corruption` with the offset of the first fault; the errors of the file.
    pub fn verify(self: &Arc<Self>) -> Result<u64> {
        let (mut check, mut damage) = (VsstCheck::new(self.clone()), Vec::new());
        while damage.is_empty() && !check.step(&mut damage).done {}
        damage.into_iter().next().map_or(Ok(self.len), Err)
    }

    /// Checks that the key is not after the separator of its partition, and not before that of the
    /// previous one.
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
        let e = Error::corruption(format!(
            "key {} of the key list (dense keys) is outside the range that its index gives for the block",
            named(entry.user_key, trailer(entry.seq))
        ));
        Err(self.dense_index.locate(&self.file, e))
    }

    /// Checks the parts after the index.
    fn check_sections(&self, met: &mut FoundDamage) {
        let counters = &mut ReadCounters::default();
        for section in &self.sections {
            let read = self.file.read(section.handle, BlockKind::Dense, counters);
            met.sound(read.and_then(|block| match section.tag {
                sections::DIRECTORY => {
                    Directory::open(block).map(drop).map_err(|e| self.file.locate(e, section.handle.offset))
                }
                _ => Ok(()),
            }));
        }
        met.sound(self.file.read(self.meta, BlockKind::Dense, counters));
        met.sound(self.file.check_footer(FileKind::Vsst));
    }

    fn check_frames(&self, mut handles: Vec<BlockHandle>) -> Result<()> {
        handles.extend(self.sections.iter().map(|section| section.handle));
        handles.push(self.meta);
        self.file.check_filled(self.properties.record_bytes, handles)
    }

    fn compare(&self, mut counted: VsstProperties) -> Result<()> {
        let stated = &self.properties;
        // Properties that cannot be counted again.
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
        let why = format!(
            "the properties do not match the records of the value file (vSST): {}; all values found are \
             readable",
            difference(stated, &counted)
        );
        Err(self.file.locate(Error::corruption(why), self.meta.offset))
    }
}

/// Returns the first property in which the two differ, with both values.
fn difference(stated: &VsstProperties, counted: &VsstProperties) -> String {
    let numbers = |p: &VsstProperties| {
        [
            ("records", p.entries),
            ("bytes of records", p.record_bytes),
            ("bytes of values", p.raw_bytes),
            ("smallest sequence", p.min_seq),
            ("largest sequence", p.max_seq),
            ("bytes of the key list", p.dense_bytes),
            ("bytes of the index", p.index_bytes),
        ]
    };
    let mut pairs = numbers(stated).into_iter().zip(numbers(counted));
    match pairs.find(|(stated, counted)| stated.1 != counted.1) {
        Some(((name, stated), (_, counted))) => format!("{name} stated {stated}, counted {counted}"),
        None => format!(
            "stated keys {} to {}, found {} to {}",
            shown(&stated.smallest),
            shown(&stated.largest),
            shown(&counted.smallest),
            shown(&counted.largest)
        ),
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
    /// Reads and checks the record of a dense key.
    fn check(&mut self, vsst: &Vsst, entry: &KeyEntry<'_>) -> Result<()> {
        let here = |e| vsst.file.locate(e, entry.offset);
        let bytes = self.get(vsst, entry.offset, entry.stored_len)?;
        record::verify(bytes, vsst.file.uid, entry.offset).map_err(here)?;
        let shape = record::parse(bytes).map_err(here)?;
        if vsst.properties.codecs >> shape.codec as u8 & 1 == 0 {
            return Err(here(Error::corruption(format!(
                "a value record has a compression codec that the properties of the file do not list: {}",
                shape.codec.name()
            ))));
        }
        let same = shape.seq == entry.seq
            && shape.raw_len == entry.raw_len
            && bytes.get(shape.key) == Some(entry.user_key);
        if !same {
            return Err(here(Error::corruption(format!(
                "a value record has another key, sequence or length than its entry in the key list (dense \
                 keys): sequence {} and {} bytes, listed is key {} with {} bytes",
                shape.seq,
                shape.raw_len,
                named(entry.user_key, trailer(entry.seq)),
                entry.raw_len
            ))));
        }
        if shape.codec != base::Compression::None {
            let value = bytes.get(shape.value).unwrap_or_default();
            crate::compress::decompress(shape.codec, value).map_err(here)?;
        }
        Ok(())
    }

    fn get(&mut self, vsst: &Vsst, offset: u64, len: u64) -> Result<&[u8]> {
        let end = offset.saturating_add(len);
        let window_end = self.start.saturating_add(self.bytes.len() as u64);
        if offset < self.start || end > window_end {
            let to = offset.saturating_add(WINDOW_LEN.max(len)).min(vsst.properties.record_bytes).max(end);
            self.start = offset;
            self.bytes.resize(usize::try_from(to - offset).unwrap_or_default(), 0);
            let read = vsst.file.file.read_at(&mut self.bytes, offset);
            // An unreadable neighbor must not affect the wanted record.
            let read = read.or_else(|_| {
                self.bytes.truncate(usize::try_from(len).unwrap_or_default());
                vsst.file.file.read_at(&mut self.bytes, offset)
            });
            if let Err(e) = read {
                self.bytes.clear();
                return Err(vsst.file.locate(e, offset));
            }
        }
        let from = usize::try_from(offset - self.start).unwrap_or_default();
        // The cursor rejects records over the maximum length, and an empty range is no record
        // either.
        let bytes = self.bytes.get(from..).and_then(|rest| rest.get(..usize::try_from(len).ok()?));
        Ok(bytes.unwrap_or_default())
    }
}

impl ValueLogExtents {
    fn add(&mut self, entry: &KeyEntry<'_>) {
        self.extents.push((entry.offset, entry.stored_len));
    }

    /// Checks that the records of a value log file fill their part of the file, each byte once.
    fn check_filled(&mut self, vsst: &Vsst) -> Result<()> {
        self.extents.sort_unstable();
        let mut end = 0;
        for (offset, len) in &self.extents {
            if *offset != end {
                let why = format!(
                    "the value records leave a gap or overlap: one begins at byte {offset}, those before \
                     it end at byte {end}"
                );
                return Err(vsst.file.locate(Error::corruption(why), *offset));
            }
            end = offset.saturating_add(*len);
        }
        Ok(())
    }
}

impl Frames {
    /// Returns all frames of the directory, and whether it is intact.
    fn of(vsst: &Vsst, met: &mut FoundDamage) -> (Frames, bool) {
        let mut frames = Frames { frames: Vec::new(), nodes: Vec::new() };
        let is_whole = frames.descend(vsst, &vsst.directory.root, vsst.directory.levels, met);
        (frames, is_whole)
    }

    fn descend(&mut self, vsst: &Vsst, at: &Node, levels: u8, met: &mut FoundDamage) -> bool {
        let mut is_whole = true;
        for row in 0..at.rows() {
            let handle = at.handle(row);
            let mut user = Vec::new();
            let trailer = at.separator(row, &mut user);
            let bad = |why: &str| Err(vsst.file.locate(Error::corruption(why), handle.offset));
            if levels == 0 {
                // This ends a directory that leads in circles.
                let last = self.frames.last().map_or(0, |(last, ..)| last.end());
                if last > handle.offset {
                    met.sound::<()>(bad(&format!(
                        "the index tree (directory) points back to an earlier index block: from one that \
                         ends at byte {last} to byte {}",
                        handle.offset
                    )));
                    return false;
                }
                self.frames.push((handle, user, trailer));
                continue;
            }
            self.nodes.push(handle);
            let below = node(&vsst.file, handle, Caching::Bypass, &mut ReadCounters::default());
            let Some(below) = met.sound(below) else {
                is_whole = false;
                continue;
            };
            is_whole &= self.descend(vsst, &below, levels - 1, met);
            let mut last = Vec::new();
            if below.separator(below.rows() - 1, &mut last) != trailer || last != user {
                is_whole &= met
                    .sound::<()>(bad(&format!(
                        "a node of the index tree (directory) ends at another key than its parent gives \
                         for it, \"{}\" instead of \"{}\"; reads may miss keys",
                        last.escape_ascii(),
                        user.escape_ascii()
                    )))
                    .is_some();
            }
        }
        is_whole
    }

    fn handles(&self) -> impl Iterator<Item = BlockHandle> + Clone + '_ {
        self.frames.iter().map(|f| f.0).chain(self.nodes.iter().copied())
    }
}

impl IndexWalk {
    fn new(vsst: &Vsst, met: &mut FoundDamage) -> IndexWalk {
        let (frames, is_whole) = Frames::of(vsst, met);
        let state = if is_whole { Followed::Exactly } else { Followed::Never };
        let separator = (Vec::new(), u64::MAX);
        IndexWalk { frames, frame: 0, row: 0, ordinal: 0, payload: None, separator, state, is_read: false }
    }

    /// Records that keys were skipped.
    fn tear(&mut self) {
        if self.state != Followed::Never {
            self.state = Followed::Torn;
        }
    }

    /// Checks the index against the next key, if the walk agrees with the keys.
    fn follow(&mut self, vsst: &Vsst, entry: &KeyEntry<'_>, met: &mut FoundDamage) {
        match self.state {
            Followed::Exactly => {}
            Followed::Never => return,
            lost => {
                let passed = self.pass_frames(vsst, entry, met);
                let is_exact = lost == Followed::FromNextFrame && passed == 1;
                self.state = if is_exact { Followed::Exactly } else { Followed::FromNextFrame };
                if !is_exact {
                    return;
                }
            }
        }
        let checked = self.check(vsst, entry);
        if checked.is_err() {
            self.state = Followed::FromNextFrame;
        }
        met.sound(checked);
    }

    /// Moves to the frame that may have a key. Returns the number of frames passed.
    fn pass_frames(&mut self, vsst: &Vsst, entry: &KeyEntry<'_>, met: &mut FoundDamage) -> u64 {
        let mut passed = 0;
        while let Some((_, end_user, end_trailer)) = self.frames.frames.get(self.frame)
            && before(end_user, *end_trailer, entry.user_key, trailer(entry.seq))
        {
            self.separator = (end_user.clone(), *end_trailer);
            self.read_alone(vsst, met);
            passed += 1;
        }
        passed
    }

    /// Reads the current frame for its checksum, unless it was read, and moves to the next.
    fn read_alone(&mut self, vsst: &Vsst, met: &mut FoundDamage) {
        if let Some((handle, ..)) = self.frames.frames.get(self.frame).filter(|_| !self.is_read) {
            met.sound(vsst.file.read(*handle, BlockKind::VsstIndex, &mut ReadCounters::default()));
        }
        (self.row, self.ordinal, self.payload, self.is_read) = (0, 0, None, false);
        self.frame += 1;
    }

    /// Reads the frames to which no key has led.
    fn read_rest(&mut self, vsst: &Vsst, met: &mut FoundDamage) {
        while self.frame < self.frames.frames.len() && !met.ended {
            self.read_alone(vsst, met);
        }
    }

    /// Checks that the next key of the index is this one, and leads to its record.
    fn check(&mut self, vsst: &Vsst, entry: &KeyEntry<'_>) -> Result<()> {
        let Some((handle, end_user, end_trailer)) = self.frames.frames.get(self.frame) else {
            let e = Error::corruption(format!(
                "the index of the value file (vSST) ends before the last key: it lacks {}",
                named(entry.user_key, trailer(entry.seq))
            ));
            return Err(vsst.file.locate(e, entry.offset));
        };
        let here = |e| vsst.file.locate(e, handle.offset);
        let bad = |why: &str| here(Error::corruption(why));
        let payload = match &self.payload {
            Some(payload) => payload.clone(),
            None => {
                self.is_read = true;
                vsst.file.read(*handle, BlockKind::VsstIndex, &mut ReadCounters::default())?
            }
        };
        let index = IndexFrame::parse(&payload).map_err(here)?;
        let group = index.group(self.row).map_err(here)?;
        let place = group.offset(self.ordinal).map_err(here)?;
        let agrees = group.block.find(entry.user_key, entry.seq) == self.ordinal
            && place.checked_mul(u64::from(vsst.alignment())) == Some(entry.offset);
        if !agrees {
            return Err(bad(&format!(
                "the index of the value file (vSST) leads from key {} to another record than that at byte \
                 {}, or to none",
                named(entry.user_key, trailer(entry.seq)),
                entry.offset
            )));
        }
        if self.frame + self.row + self.ordinal > 0
            && !before(&self.separator.0, self.separator.1, entry.user_key, trailer(entry.seq))
        {
            return Err(bad(&format!(
                "key {} is before the range that the index gives for its key group; reads may miss it",
                named(entry.user_key, trailer(entry.seq))
            )));
        }
        let mut user = Vec::new();
        let end = index.separator(self.row, &mut user);
        if before(&user, end, entry.user_key, trailer(entry.seq)) {
            return Err(bad(&format!(
                "key {} is after the range that the index gives for its key group; reads may miss it",
                named(entry.user_key, trailer(entry.seq))
            )));
        }
        self.ordinal += 1;
        let last_row = self.row + 1 == index.shape.rows();
        if last_row && (&user, end) != (end_user, *end_trailer) {
            return Err(bad(&format!(
                "an index block ends at another key than the index tree (directory) gives for it, {} \
                 instead of {}; reads may miss keys",
                named(&user, end),
                named(end_user, *end_trailer)
            )));
        }
        self.payload = Some(payload.clone());
        if self.ordinal == group.block.len() {
            (self.ordinal, self.row) = (0, self.row + 1);
            self.separator = (user, end);
        }
        if self.row == index.shape.rows() {
            (self.row, self.frame, self.payload, self.is_read) = (0, self.frame + 1, None, false);
        }
        Ok(())
    }

    /// Checks that the index has no key after the last.
    fn finish(&self, vsst: &Vsst, last: Option<(Vec<u8>, u64)>) -> Result<()> {
        if self.frame == self.frames.frames.len() && last.is_some() {
            return Ok(());
        }
        let e = Error::corruption("the index has more keys than the value file (vSST) has records");
        Err(vsst.file.locate(e, vsst.meta.offset))
    }
}
