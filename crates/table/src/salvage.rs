//! Reads the intact parts of a table: for repair.
//!
//! [`identify`] returns the kind and identity in the last bytes of a file, without a manifest.
//! [`open`] opens a kSST without its damaged parts. [`SalvageIter`] walks over its entries and
//! skips unreadable blocks; for each it reports the key range of the missing entries.
//!
//! The index determines the missing entries: row `i` covers the internal keys after separator `i -
//! 1`, up to and including separator `i`. So a damaged data block loses its own range, a damaged
//! index partition the ranges of its blocks, and a damaged top index the whole stream. Ranges are
//! of user keys, both ends inclusive; the entry of the first key may be intact.
//!
//! Invariant: keys come in ascending order whatever the file contains. A block that leads back
//! counts as damaged.

use crate::block::InlineCursor;
use crate::cursor::BlockCursor;
use crate::file::{BlockKind, Caching, ReadWindow};
use crate::footer::{self, FOOTER_LEN, FileKind, Footer};
use crate::frame::{self, BlockHandle};
use crate::options::ReadCounters;
use crate::prefix::shown;
use crate::properties::Properties;
use crate::reader::Ksst;
use crate::reference_block::ReferenceCursor;
use crate::sections::{self, Section};
use crate::segment;
use crate::stream::{Partition, Stream};
use crate::tail::Tail;
use crate::tombstone_block;
use base::range_del::FragmentedRangeTombstones;
use base::{Error, Result, Uid, key};
use cache::Cache;
use io::ReadFile;
use std::sync::Arc;

/// Length of a read, in bytes.
const READ_LEN: u64 = 256 << 10;
/// Maximum length of a meta index: a few sections of at most 20 bytes.
const META_LEN_MAX: u64 = 512;

/// Kinds of files that end in a footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Keys and small values.
    Ksst,
    /// Separated values.
    Vsst,
    /// One large value.
    Segment,
}

/// Returns the kind and identity that the first `len` bytes of a file claim, or `None` if they do
/// not end in a sound footer.
///
/// # Errors
/// The errors of reading; `Unsupported` if a newer release wrote the file.
pub fn identify(file: &dyn ReadFile, len: u64) -> Result<Option<(Kind, Uid)>> {
    let Some(at) = len.checked_sub(FOOTER_LEN as u64) else { return Ok(None) };
    let mut bytes = [0; FOOTER_LEN];
    file.read_at(&mut bytes, at)?;
    let mut uid = Uid::default();
    uid.0.copy_from_slice(&bytes[..16]);
    let sound = if bytes.ends_with(&footer::MAGIC) {
        Footer::decode_as(FileKind::Ksst, &bytes, uid, len).map(|_| Kind::Ksst)
    } else if bytes.ends_with(&footer::VSST_MAGIC) {
        Footer::decode_as(FileKind::Vsst, &bytes, uid, len).map(|_| Kind::Vsst)
    } else {
        segment::check_footer(&bytes, uid, len).map(|()| Kind::Segment)
    };
    match sound {
        Err(e) if !e.is_corruption() => Err(e.at_file(file.path())),
        sound => Ok(sound.ok().map(|kind| (kind, uid))),
    }
}

/// A damaged part that was left out when a kSST was opened.
#[derive(Clone, Debug)]
pub enum Missing {
    /// The properties.
    Properties(Error),
    /// Entries: all references, or all others.
    Entries(Error),
    /// Range tombstones.
    RangeTombstones(Error),
}

impl Missing {
    /// Returns the reason.
    pub fn error(&self) -> &Error {
        match self {
            Missing::Properties(e) | Missing::Entries(e) | Missing::RangeTombstones(e) => e,
        }
    }
}

/// Opens a kSST without its damaged parts. If the footer is damaged and `uid` is known, the meta
/// index is searched for at the place where it must end.
///
/// # Errors
/// The error of the open, if no part is readable.
pub fn open(
    file: Arc<dyn ReadFile>,
    number: u64,
    uid: Uid,
    cache: Arc<Cache>,
) -> Result<(Arc<Ksst>, Vec<Missing>)> {
    let damaged = match Ksst::open(file.clone(), number, uid, None, cache.clone()) {
        Ok(table) => return Ok((Arc::new(table), Vec::new())),
        Err(e) => e,
    };
    let Ok(tail) = Tail::open_damaged(FileKind::Ksst, file, number, uid, cache, META_LEN_MAX) else {
        return Err(damaged);
    };
    let parts = sections::decode(&tail.read(tail.meta, &mut ReadCounters::default())?)?;
    let mut missing = Vec::new();
    let (mut references, mut inline, mut properties) = (None, None, Properties::default());
    let mut tombstones = Vec::new();
    for Section { tag, handle } in parts.iter().copied() {
        let here = |e: Error| tail.file.locate(e, handle.offset);
        let block = tail.read(handle, &mut ReadCounters::default());
        match tag {
            sections::PROPERTIES => match block.and_then(|b| Properties::decode_head(&b).map_err(here)) {
                Ok(own) => properties = own,
                Err(e) => missing.push(Missing::Properties(e)),
            },
            sections::TOP_REFERENCES => {
                match block.and_then(|b| Stream::open(BlockKind::References, b).map_err(here)) {
                    Ok(stream) => references = Some(stream),
                    Err(e) => missing.push(Missing::Entries(e)),
                }
            }
            sections::TOP_INLINE => {
                match block.and_then(|b| Stream::open(BlockKind::Inline, b).map_err(here)) {
                    Ok(stream) => inline = Some(stream),
                    Err(e) => missing.push(Missing::Entries(e)),
                }
            }
            sections::RANGE_TOMBSTONES => {
                let decoded = block.and_then(|b| tombstone_block::decode(&b, &mut tombstones).map_err(here));
                missing.extend(decoded.err().map(Missing::RangeTombstones));
            }
            _ => {}
        }
    }
    if missing.is_empty() {
        // The parts are sound but contradict each other: they belong to another file.
        return Err(damaged);
    }
    let tombstones = Arc::new(FragmentedRangeTombstones::new(&tombstones));
    let Tail { file, len, meta, .. } = tail;
    let table = Ksst {
        file,
        len,
        properties,
        global_seq: None,
        references,
        inline,
        sections: parts,
        meta,
        tombstones,
    };
    Ok((Arc::new(table), missing))
}

impl Tail {
    /// As [`Tail::open`]; if the footer is damaged, finds the meta index by its checksum.
    pub(crate) fn open_damaged(
        kind: FileKind,
        file: Arc<dyn ReadFile>,
        number: u64,
        uid: Uid,
        cache: Arc<Cache>,
        meta_len_max: u64,
    ) -> Result<Tail> {
        let damaged =
            match Tail::open(kind, file.clone(), number, uid, cache.clone(), &mut ReadCounters::default()) {
                Ok(tail) => return Ok(tail),
                Err(e) => e,
            };
        let len = file.len()?;
        let Some(end) = len.checked_sub(FOOTER_LEN as u64) else { return Err(damaged) };
        let start = end.saturating_sub(meta_len_max);
        let mut bytes = vec![0; (end - start) as usize];
        file.read_at(&mut bytes, start)?;
        let is_frame = |&offset: &u64| {
            let frame = bytes.get((offset - start) as usize..).unwrap_or_default();
            frame::open(frame, uid, offset).is_ok()
        };
        let Some(offset) = (start..end).rev().find(is_frame) else { return Err(damaged) };
        let meta = BlockHandle { offset, len: end - offset };
        Ok(Tail::found(file, number, uid, cache, meta, end))
    }
}

/// Unreadable entries.
#[derive(Clone, Debug)]
pub struct LostEntries {
    /// First user key that may be among them.
    pub from: Vec<u8>,
    /// Last user key that may be among them.
    pub to: Vec<u8>,
    /// Reason; it names file and offset.
    pub error: Error,
}

/// A cursor that moves forward over all readable point entries.
pub struct SalvageIter {
    table: Arc<Ksst>,
    references: Option<StreamSalvage<ReferenceCursor>>,
    inline: Option<StreamSalvage<InlineCursor>>,
    /// True if the current entry is in the reference stream.
    on_references: bool,
    lost: Vec<LostEntries>,
}

impl SalvageIter {
    /// Returns a cursor on the first readable entry.
    pub fn new(table: Arc<Ksst>) -> SalvageIter {
        let references =
            table.references.is_some().then(|| StreamSalvage::new(BlockKind::References, &table));
        let inline = table.inline.is_some().then(|| StreamSalvage::new(BlockKind::Inline, &table));
        let mut iter = SalvageIter { table, references, inline, on_references: false, lost: Vec::new() };
        if let Some(walk) = &mut iter.references {
            walk.next_block(&iter.table, &mut iter.lost);
        }
        if let Some(walk) = &mut iter.inline {
            walk.next_block(&iter.table, &mut iter.lost);
        }
        iter.choose();
        iter
    }

    fn choose(&mut self) {
        let references = self.references.as_ref().filter(|w| w.cursor.valid());
        let inline = self.inline.as_ref().filter(|w| w.cursor.valid());
        self.on_references = match (references, inline) {
            (Some(a), Some(b)) => key::compare(a.cursor.key(), b.cursor.key()).is_lt(),
            (references, _) => references.is_some(),
        };
    }

    /// Returns true while the cursor is on an entry.
    pub fn valid(&self) -> bool {
        match self.on_references {
            true => self.references.as_ref().is_some_and(|w| w.cursor.valid()),
            false => self.inline.as_ref().is_some_and(|w| w.cursor.valid()),
        }
    }

    /// Moves to the next readable entry.
    pub fn advance(&mut self) {
        match self.on_references {
            true => self.references.iter_mut().for_each(|w| w.advance(&self.table, &mut self.lost)),
            false => self.inline.iter_mut().for_each(|w| w.advance(&self.table, &mut self.lost)),
        }
        self.choose();
    }

    /// Returns the encoded internal key; empty if not valid.
    pub fn key(&self) -> &[u8] {
        match self.on_references {
            true => self.references.as_ref().map_or(&[], |w| w.cursor.key()),
            false => self.inline.as_ref().map_or(&[], |w| w.cursor.key()),
        }
    }

    /// Returns the value, or the encoded reference; empty if not valid.
    pub fn value(&self) -> &[u8] {
        match self.on_references {
            true => self.references.as_ref().map_or(&[], |w| w.cursor.value()),
            false => self.inline.as_ref().map_or(&[], |w| w.cursor.value()),
        }
    }

    /// Returns the entries skipped since the last call.
    pub fn take_lost(&mut self) -> Vec<LostEntries> {
        std::mem::take(&mut self.lost)
    }
}

/// A walk over one stream.
struct StreamSalvage<C> {
    role: BlockKind,
    /// Index of the current partition, or of the next one.
    at: usize,
    index: Option<Partition>,
    row: usize,
    cursor: C,
    /// Offset of the cursor's block.
    offset: u64,
    window: ReadWindow,
    /// Separator before `row`; before the first, the smallest key of the table.
    before: Vec<u8>,
    /// Key of the last entry returned.
    last: Vec<u8>,
}

impl<C: BlockCursor> StreamSalvage<C> {
    fn new(role: BlockKind, table: &Ksst) -> Self {
        StreamSalvage {
            role,
            at: 0,
            index: None,
            row: 0,
            cursor: C::default(),
            offset: 0,
            window: ReadWindow::default(),
            before: key::user_key(&table.properties.smallest).to_vec(),
            last: Vec::new(),
        }
    }

    fn advance(&mut self, table: &Ksst, lost: &mut Vec<LostEntries>) {
        self.last.clear();
        self.last.extend_from_slice(self.cursor.key());
        if let Err(e) = self.cursor.next() {
            let from = key::user_key(&self.last).to_vec();
            lost.push(LostEntries {
                from,
                to: self.before.clone(),
                error: table.file.locate(e, self.offset),
            });
            self.cursor.clear();
        }
        if !self.cursor.valid() {
            self.next_block(table, lost);
        }
    }

    /// Moves to the first entry of the next readable block.
    fn next_block(&mut self, table: &Ksst, lost: &mut Vec<LostEntries>) {
        let stream = if self.role == BlockKind::References { &table.references } else { &table.inline };
        let Some(stream) = stream else { return };
        self.cursor.clear();
        let mut separator = Vec::new();
        while self.at < stream.partitions() {
            let Some(index) = &self.index else {
                match stream.partition(&table.file, self.at, Caching::Bypass, &mut ReadCounters::default()) {
                    Ok(index) => (self.index, self.row) = (Some(index), 0),
                    Err(error) => {
                        stream.separator(self.at, &mut separator);
                        let from = std::mem::replace(&mut self.before, std::mem::take(&mut separator));
                        lost.push(LostEntries { from, to: self.before.clone(), error });
                        self.at += 1;
                    }
                }
                continue;
            };
            if self.row >= index.shape.rows() {
                (self.index, self.at) = (None, self.at + 1);
                continue;
            }
            let handle = index.handle(self.row);
            index.shape.separator(&index.block, self.row, &mut separator);
            self.row += 1;
            self.offset = handle.offset;
            let span = || stream.span(self.at, handle, READ_LEN, false);
            let block = self.window.block(&table.file, handle, self.role, &mut ReadCounters::default(), span);
            let opened = block.and_then(|block| {
                let here = |e: Error| table.file.locate(e, handle.offset);
                self.cursor.load(block, None).and_then(|()| self.cursor.seek_to_first()).map_err(here)?;
                let leads_back = !self.last.is_empty() && key::compare(self.cursor.key(), &self.last).is_le();
                match self.cursor.valid() && leads_back {
                    true => Err(here(Error::corruption(format!(
                        "the first key of a data block is not after the last key of the block before it: \
                         {} follows {}",
                        shown(self.cursor.key()),
                        shown(&self.last)
                    )))),
                    false => Ok(()),
                }
            });
            let from = std::mem::replace(&mut self.before, std::mem::take(&mut separator));
            match opened {
                Ok(()) if self.cursor.valid() => return,
                Ok(()) => {}
                Err(error) => {
                    self.cursor.clear();
                    lost.push(LostEntries { from, to: self.before.clone(), error });
                }
            }
        }
    }
}
