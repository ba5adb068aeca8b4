//! Verifies a whole table.
//!
//! Every byte is read from the device, none from the cache. The frames must fill the file without
//! gap or overlap, and every block must verify and decode. Keys must ascend and lie between the
//! separators of their block, and every user key must pass its filter. The counts and sums must
//! equal the properties. [`TableCheck`] does this in steps of about half a megabyte.
//!
//! A check continues after damage: it lists each damaged block once. The counts and sums of a
//! damaged table are not compared.

use crate::block::InlineCursor;
use crate::cursor::BlockCursor;
use crate::file::{BlockKind, Caching, ReadWindow};
use crate::filter;
use crate::footer::FileKind;
use crate::frame::BlockHandle;
use crate::key_prefix::{KeyPrefix, prefix_hash};
use crate::options::ReadCounters;
use crate::prefix::shown;
use crate::properties::Properties;
use crate::reader::Ksst;
use crate::reference::Reference;
use crate::reference_block::ReferenceCursor;
use crate::stream::{Partition, Stream};
use crate::tombstone_block;
use base::{Dependency, TableNotes};
use base::{Error, MAX_SEQ, Result, SeqNo, ValueKind, hash, key};
use cache::Block;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Length of a read, in bytes.
const WINDOW_LEN: u64 = 512 << 10;
/// Bytes of blocks that a step checks before it returns.
pub(crate) const STEP_LEN: u64 = 512 << 10;
/// Number of bytes for which damage counts toward the length of a step.
pub(crate) const DAMAGE_LEN: u64 = 4 << 10;

/// Result of a step of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckStep {
    /// Number of bytes read and found sound.
    pub bytes: u64,
    /// Number of sound parts: blocks of a table, records of a vSST, chunks of a segment.
    pub parts: u64,
    /// True if the check has reached the end of the file.
    pub done: bool,
}

/// Damage that a check has found in a file.
#[derive(Debug, Default)]
pub(crate) struct FoundDamage {
    /// Damage that was not returned yet.
    pub damage: Vec<Error>,
    /// True if there was any damage, so that counts and sums do not cover the whole file.
    pub any: bool,
    /// True if the file was unreadable for a transient reason: the check ends.
    pub ended: bool,
    /// Offset of the last damage, so that a block is listed once.
    last: Option<u64>,
}

impl FoundDamage {
    /// Records the error of a part, or returns the content of a sound part.
    pub fn sound<T>(&mut self, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(e) => {
                (self.any, self.ended) = (true, self.ended || e.is_passing());
                let last = std::mem::replace(&mut self.last, e.offset());
                if last.is_none() || last != e.offset() {
                    self.damage.push(e);
                }
                None
            }
        }
    }
}

/// Counts and sums of a walk over the table.
#[derive(Default)]
struct Counts {
    handles: Vec<BlockHandle>,
    /// Number of sound blocks.
    parts: u64,
    window: ReadWindow,
    counters: ReadCounters,
    properties: Properties,
    dependencies: BTreeMap<u64, Dependency>,
}

/// A table verification that runs in steps.
pub struct TableCheck {
    table: Arc<Ksst>,
    counts: Counts,
    /// Index of the current stream, in the order of [`Ksst::streams`].
    stream: usize,
    walk: StreamCheck,
    met: FoundDamage,
}

/// A walk over one stream.
#[derive(Default)]
struct StreamCheck {
    /// Indexes of the next partition and block.
    p: usize,
    row: usize,
    /// Index and filter of the partition, once it is begun.
    partition: Option<(Partition, Option<Block>)>,
    /// No entry of the partition was checked yet: its filter has the key of the first one, even if
    /// the partition before ends with that key.
    is_fresh: bool,
    /// Last internal key; `separator` is the separator before the current block.
    last: Vec<u8>,
    separator: Vec<u8>,
    entries: u64,
    seqs: Option<(SeqNo, SeqNo)>,
}

impl TableCheck {
    /// Starts a verification of the whole table.
    pub fn new(table: Arc<Ksst>) -> TableCheck {
        let mut counts = Counts::default();
        counts.properties.min_seq = SeqNo::MAX;
        TableCheck { table, counts, stream: 0, walk: StreamCheck::default(), met: FoundDamage::default() }
    }

    /// Returns the table.
    pub fn table(&self) -> &Arc<Ksst> {
        &self.table
    }

    /// Continues for about half a megabyte, and adds the damage that it finds. Must not be called
    /// once it is done.
    pub fn step(&mut self, damage: &mut Vec<Error>) -> CheckStep {
        let before = self.counts.parts;
        let (bytes, at_end) = self.walk_on();
        let done = at_end || self.met.ended;
        if at_end {
            self.finish();
        }
        damage.append(&mut self.met.damage);
        CheckStep { bytes, parts: self.counts.parts - before, done }
    }

    /// Continues through the streams. Returns the number of sound bytes, and whether all streams
    /// are done.
    fn walk_on(&mut self) -> (u64, bool) {
        let table = self.table.clone();
        let (mut bytes, mut damaged) = (0, 0);
        while let Some(stream) = table.streams().nth(self.stream) {
            while self.walk.p < stream.partitions() {
                let advanced = match stream.role {
                    BlockKind::References => {
                        self.walk.advance::<ReferenceCursor>(&table, stream, &mut self.counts)
                    }
                    _ => self.walk.advance::<InlineCursor>(&table, stream, &mut self.counts),
                };
                match self.met.sound(advanced) {
                    Some(sound) => bytes += sound,
                    None => damaged += DAMAGE_LEN,
                }
                if bytes + damaged >= STEP_LEN || self.met.ended {
                    return (bytes, false);
                }
            }
            if !self.met.any {
                self.met.sound(self.walk.finish(&table, stream));
            }
            (self.walk, self.stream) = (StreamCheck::default(), self.stream + 1);
        }
        (bytes, true)
    }

    /// Checks the parts after the streams, and the sums.
    fn finish(&mut self) {
        let (table, met) = (self.table.clone(), &mut self.met);
        table.verify_sections(&mut self.counts, met);
        met.sound(table.file.check_footer(FileKind::Ksst));
        if met.any {
            return;
        }
        let handles = std::mem::take(&mut self.counts.handles);
        met.sound(table.file.check_filled(0, handles));
        met.sound(table.compare(&mut self.counts));
    }
}

impl Ksst {
    /// Reads and checks every byte, the order, the filters, and the counts in the properties.
    /// Returns the length of the file.
    ///
    /// # Errors
    /// `Corruption` with the offset of the first fault; the errors of the file.
    pub fn verify(self: &Arc<Self>) -> Result<u64> {
        let (mut check, mut damage) = (TableCheck::new(self.clone()), Vec::new());
        while damage.is_empty() && !check.step(&mut damage).done {}
        damage.into_iter().next().map_or(Ok(self.len), Err)
    }

    fn verify_sections(&self, counts: &mut Counts, met: &mut FoundDamage) {
        let mut tombstones = Vec::new();
        for section in &self.sections {
            let read = self.file.read(section.handle, BlockKind::Index, &mut counts.counters);
            let decoded = read.and_then(|block| match section.tag {
                crate::sections::RANGE_TOMBSTONES => tombstone_block::decode(&block, &mut tombstones)
                    .map_err(|e| self.file.locate(e, section.handle.offset)),
                crate::sections::NOTES => TableNotes::decode(&block)
                    .map(drop)
                    .map_err(|e| self.file.locate(e, section.handle.offset)),
                _ => Ok(()),
            });
            counts.handles.push(section.handle);
            counts.parts += u64::from(met.sound(decoded).is_some());
        }
        let meta = self.file.read(self.meta, BlockKind::Index, &mut counts.counters);
        counts.parts += u64::from(met.sound(meta).is_some());
        counts.handles.push(self.meta);
        let p = &mut counts.properties;
        for t in &tombstones {
            p.range_tombstones += 1;
            p.min_seq = p.min_seq.min(t.seq);
            p.max_seq = p.max_seq.max(t.seq);
            widen(p, &key::encode(&t.start, t.seq, ValueKind::RangeDeletion));
            widen(p, &key::encode(&t.end, MAX_SEQ, ValueKind::Seek));
        }
    }

    fn compare(&self, counts: &mut Counts) -> Result<()> {
        let dependencies = self.dependencies(&mut ReadCounters::default())?;
        let (stated, mut counted) =
            (Properties { dependencies, ..self.properties.clone() }, std::mem::take(&mut counts.properties));
        counted.dependencies = std::mem::take(&mut counts.dependencies).into_values().collect();
        // Properties that cannot be counted again.
        counted.identity = stated.identity.clone();
        counted.created_unix_seconds = stated.created_unix_seconds;
        counted.codecs = stated.codecs;
        counted.retained = stated.retained.clone();
        counted.prefix_code = stated.prefix_code;
        if stated == counted {
            return Ok(());
        }
        let why = format!(
            "the properties do not match the entries of the key table (kSST): {}; all entries found are \
             readable",
            difference(&stated, &counted)
        );
        Err(self.file.locate(Error::corruption(why), self.meta.offset))
    }
}

/// Returns the first property in which the two differ, with both values.
fn difference(stated: &Properties, counted: &Properties) -> String {
    let numbers = |p: &Properties| {
        [
            ("entries", p.entries),
            ("deletions", p.tombstones),
            ("range deletions", p.range_tombstones),
            ("references to values", p.references),
            ("merge operands", p.merge_operands),
            ("bytes of keys", p.raw_key_bytes),
            ("bytes of values in the table", p.raw_value_bytes),
            ("bytes of referenced values", p.referenced_raw_bytes),
            ("smallest sequence", p.min_seq),
            ("largest sequence", p.max_seq),
            ("earliest expiry", p.min_expiry),
            ("latest expiry", p.max_expiry),
            ("bytes of data blocks", p.inline_block_bytes),
            ("bytes of reference blocks", p.reference_block_bytes),
            ("bytes of the index", p.index_bytes),
            ("bytes of filters", p.filter_bytes),
        ]
    };
    let mut pairs = numbers(stated).into_iter().zip(numbers(counted));
    match pairs.find(|(stated, counted)| stated.1 != counted.1) {
        Some(((name, stated), (_, counted))) => format!("{name} stated {stated}, counted {counted}"),
        None if (&stated.smallest, &stated.largest) != (&counted.smallest, &counted.largest) => format!(
            "stated keys {} to {}, found {} to {}",
            shown(&stated.smallest),
            shown(&stated.largest),
            shown(&counted.smallest),
            shown(&counted.largest)
        ),
        None => "stated and counted references to single value files differ".to_owned(),
    }
}

/// Extends smallest and largest to a key.
fn widen(p: &mut Properties, ikey: &[u8]) {
    for (bound, order) in
        [(&mut p.smallest, std::cmp::Ordering::Less), (&mut p.largest, std::cmp::Ordering::Greater)]
    {
        if bound.is_empty() || key::compare(ikey, bound) == order {
            ikey.clone_into(bound);
        }
    }
}

fn bad(table: &Ksst, why: &str, offset: u64) -> Error {
    table.file.locate(Error::corruption(why), offset)
}

impl StreamCheck {
    /// Checks the next block, or the start or end of a partition. Returns the number of bytes read.
    /// After an error the walk stands past the damage.
    fn advance<C: BlockCursor>(&mut self, table: &Ksst, stream: &Stream, counts: &mut Counts) -> Result<u64> {
        let Some((index, filter)) = self.partition.take() else { return self.begin(table, stream, counts) };
        if self.row < index.shape.rows() {
            let block = self.block::<C>((table, stream), &index, filter.as_ref(), counts);
            match block {
                Ok(_) => counts.parts += 1,
                Err(_) => {
                    self.last.clear();
                    let row = self.row;
                    self.set_separator(|user| index.shape.separator(&index.block, row, user));
                }
            }
            self.row += 1;
            self.partition = Some((index, filter));
            return block;
        }
        let (p, before) = (self.p, std::mem::take(&mut self.separator));
        self.pass(stream);
        if before != self.separator {
            let offset = stream.index_handle(p).offset;
            let why = format!(
                "the top index and an index partition of the key table (kSST) end at different keys: {} \
                 and {}; reads may miss keys",
                shown(&self.separator),
                shown(&before)
            );
            return Err(bad(table, &why, offset));
        }
        Ok(0)
    }

    /// Moves to the next partition. The current one ends at its separator.
    fn pass(&mut self, stream: &Stream) {
        let p = self.p;
        self.set_separator(|user| stream.separator(p, user));
        (self.p, self.row) = (self.p + 1, 0);
    }

    fn set_separator(&mut self, separator: impl FnOnce(&mut Vec<u8>) -> u64) {
        let mut user = Vec::new();
        let trailer = separator(&mut user);
        user.extend_from_slice(&trailer.to_le_bytes());
        self.separator = user;
    }

    /// Reads index and filter of a partition. Without the index no block of it can be read.
    fn begin(&mut self, table: &Ksst, stream: &Stream, counts: &mut Counts) -> Result<u64> {
        let file = &table.file;
        let handle = stream.index_handle(self.p);
        let index = match stream.partition(file, self.p, Caching::Bypass, &mut counts.counters) {
            Ok(index) => index,
            Err(e) => {
                self.last.clear();
                self.pass(stream);
                return Err(e);
            }
        };
        counts.handles.push(handle);
        counts.parts += 1;
        counts.properties.index_bytes += handle.len;
        let mut bytes = handle.len;
        let filter = match stream.filter_handle(self.p) {
            Some(handle) => {
                counts.handles.push(handle);
                counts.properties.filter_bytes += handle.len;
                bytes += handle.len;
                match file.fetch(handle, BlockKind::Filter, Caching::Bypass, &mut counts.counters) {
                    Ok(filter) => Some(filter),
                    Err(e) => {
                        self.partition = Some((index, None));
                        return Err(e);
                    }
                }
            }
            None => None,
        };
        counts.parts += u64::from(filter.is_some());
        (self.partition, self.is_fresh) = (Some((index, filter)), true);
        Ok(bytes)
    }

    /// Compares the sums of the stream, after all its blocks.
    fn finish(&self, table: &Ksst, stream: &Stream) -> Result<()> {
        let stated = (stream.entries, stream.min_seq, stream.max_seq);
        let (min_seq, max_seq) = self.seqs.unwrap_or_default();
        if stated == (self.entries, min_seq, max_seq) {
            return Ok(());
        }
        let why = format!(
            "the top index of the key table (kSST) states {} entries with sequences {} to {}, but its \
             blocks have {} with {min_seq} to {max_seq}; all entries found are readable",
            stated.0, stated.1, stated.2, self.entries
        );
        Err(bad(table, &why, table.meta.offset))
    }

    fn block<C: BlockCursor>(
        &mut self,
        (table, stream): (&Ksst, &Stream),
        index: &Partition,
        filter: Option<&Block>,
        counts: &mut Counts,
    ) -> Result<u64> {
        let file = &table.file;
        let handle = index.handle(self.row);
        let span = || stream.span(self.p, handle, WINDOW_LEN, false);
        let mut window = std::mem::take(&mut counts.window);
        let block = window.block(file, handle, stream.role, &mut counts.counters, span);
        counts.window = window;
        let mut cursor = C::default();
        let here = |e| file.locate(e, handle.offset);
        cursor.load(block?, None).map_err(here)?;
        counts.handles.push(handle);
        match stream.role {
            BlockKind::References => counts.properties.reference_block_bytes += handle.len,
            _ => counts.properties.inline_block_bytes += handle.len,
        }
        cursor.seek_to_first().map_err(here)?;
        if !cursor.valid()
            || !self.separator.is_empty() && key::compare(cursor.key(), &self.separator).is_le()
        {
            let why = format!(
                "a data block is empty, or its first key is not after the last key {} of the block before \
                 it; reads may miss keys",
                shown(&self.separator)
            );
            return Err(bad(table, &why, handle.offset));
        }
        while cursor.valid() {
            self.entry(table, &cursor, filter, counts, handle.offset)?;
            cursor.next().map_err(here)?;
        }
        let trailer = index.shape.separator(&index.block, self.row, &mut self.separator);
        self.separator.extend_from_slice(&trailer.to_le_bytes());
        if key::compare(&self.last, &self.separator).is_gt() {
            let why = format!(
                "the last key {} of a data block is after the last key {} given by the index; reads may \
                 miss keys",
                shown(&self.last),
                shown(&self.separator)
            );
            return Err(bad(table, &why, handle.offset));
        }
        Ok(handle.len)
    }

    fn entry<C: BlockCursor>(
        &mut self,
        table: &Ksst,
        cursor: &C,
        filter: Option<&Block>,
        counts: &mut Counts,
        offset: u64,
    ) -> Result<()> {
        let here = |e| table.file.locate(e, offset);
        let (ikey, value) = (cursor.key(), cursor.value());
        let entry = key::InternalKey::decode(ikey).map_err(here)?;
        if !self.last.is_empty() && key::compare(&self.last, ikey).is_ge() {
            let (before, after) = (shown(&self.last), shown(ikey));
            let why = format!(
                "the keys of a data block are not in ascending order: {after} follows {before}; reads may \
                 miss keys"
            );
            return Err(bad(table, &why, offset));
        }
        let is_first = std::mem::take(&mut self.is_fresh) || self.last.is_empty();
        if let Some(filter) = filter
            && (is_first || key::user_key(&self.last) != entry.user_key)
        {
            check_filter(table, filter, entry.user_key, offset)?;
        }
        let p = &mut counts.properties;
        if entry.kind == ValueKind::Reference {
            let r = Reference::decode(value).map_err(here)?;
            p.references += 1;
            p.referenced_raw_bytes = p.referenced_raw_bytes.saturating_add(r.raw_len);
            let d = counts.dependencies.entry(r.blob_id).or_default();
            d.blob_id = r.blob_id;
            d.count += 1;
            d.raw_bytes = d.raw_bytes.saturating_add(r.raw_len);
            d.stored_bytes = d.stored_bytes.saturating_add(r.stored_len);
        } else {
            p.raw_value_bytes += value.len() as u64;
        }
        p.entries += 1;
        p.tombstones += u64::from(entry.kind.is_tombstone());
        p.merge_operands += u64::from(entry.kind == ValueKind::Merge);
        p.raw_key_bytes += ikey.len() as u64;
        p.min_seq = p.min_seq.min(entry.seq);
        p.max_seq = p.max_seq.max(entry.seq);
        let expiry = cursor.expiry();
        if expiry != 0 {
            p.min_expiry = if p.min_expiry == 0 { expiry } else { p.min_expiry.min(expiry) };
            p.max_expiry = p.max_expiry.max(expiry);
        }
        widen(p, ikey);
        let (low, high) = self.seqs.unwrap_or((entry.seq, entry.seq));
        self.seqs = Some((low.min(entry.seq), high.max(entry.seq)));
        self.entries += 1;
        ikey.clone_into(&mut self.last);
        Ok(())
    }
}

/// Fails if a filter denies a key of its partition, or the prefix of that key.
fn check_filter(table: &Ksst, filter: &Block, user_key: &[u8], offset: u64) -> Result<()> {
    let kind = KeyPrefix::from_code(table.properties.prefix_code);
    let prefix = kind.and_then(|kind| kind.of(user_key)).map(prefix_hash);
    let hashes = [("key", Some(hash::key_hash(user_key))), ("prefix of the key", prefix)];
    for (what, hash) in hashes.into_iter().filter_map(|(what, hash)| Some((what, hash?))) {
        if !filter::may_contain(filter, hash).map_err(|e| table.file.locate(e, offset))? {
            let key = user_key.escape_ascii();
            let why = format!(
                "the Bloom filter denies the {what} \"{key}\" of the key table (kSST), so reads miss it"
            );
            return Err(bad(table, &why, offset));
        }
    }
    Ok(())
}
