//! Reading a table as far as it can be read: for repair.
//!
//! [`identify`] tells what a file says it is, without a manifest: kind and identity stand in its last bytes. [`open`]
//! opens a kSST some of whose parts are damaged, without them. [`SalvageIter`] walks over its entries and steps over
//! blocks that cannot be read; of each it tells the range of keys whose entries are missing.
//!
//! What is missing follows from the index: row `i` covers the internal keys after separator `i - 1`, up to and including
//! separator `i`. So a damaged data block takes its own range, a damaged partition of the index that of its blocks, and a
//! damaged top index the whole stream. Ranges are of user keys, both ends inclusive; the first key of one may be that of an
//! entry which is not missing.
//!
//! Invariant: keys come in ascending order whatever the file says. A block that leads back counts as damaged.

use crate::block::InlineCursor;
use crate::cursor::BlockCursor;
use crate::file::{Caching, Role, Window};
use crate::footer::{self, FOOTER_LEN, FileKind, Footer};
use crate::frame::{self, BlockHandle};
use crate::options::ReadCounters;
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

/// Bytes of a table read at once.
const READ_LEN: u64 = 256 << 10;
/// A meta index is no longer: a few sections of at most 20 bytes.
const META_LEN_MAX: u64 = 512;

/// The kinds of files that end in a footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Keys and small values.
    Ksst,
    /// Separated values.
    Vsst,
    /// One large value.
    Segment,
}

/// What the first `len` bytes of a file say they are: kind and identity. `None` if they do not end in a sound footer.
///
/// # Errors
/// Those of reading.
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

/// A part of a kSST that was left out when it was opened.
#[derive(Clone, Debug)]
pub enum Missing {
    /// What the table says of itself.
    Properties(Error),
    /// Entries: all references, or all others.
    Entries(Error),
    /// Range tombstones.
    RangeTombstones(Error),
}

impl Missing {
    /// Why it is missing.
    pub fn error(&self) -> &Error {
        match self {
            Missing::Properties(e) | Missing::Entries(e) | Missing::RangeTombstones(e) => e,
        }
    }
}

/// Opens a kSST without the parts that are damaged. A damaged footer is done without, if `uid` is known: the list of the
/// table's parts is searched for where it must end.
///
/// # Errors
/// If nothing can be read of it.
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
                match block.and_then(|b| Stream::open(Role::References, b).map_err(here)) {
                    Ok(stream) => references = Some(stream),
                    Err(e) => missing.push(Missing::Entries(e)),
                }
            }
            sections::TOP_INLINE => match block.and_then(|b| Stream::open(Role::Inline, b).map_err(here)) {
                Ok(stream) => inline = Some(stream),
                Err(e) => missing.push(Missing::Entries(e)),
            },
            sections::RANGE_TOMBSTONES => {
                let decoded = block.and_then(|b| tombstone_block::decode(&b, &mut tombstones).map_err(here));
                missing.extend(decoded.err().map(Missing::RangeTombstones));
            }
            _ => {}
        }
    }
    if missing.is_empty() {
        // Sound parts that make no sense together: they are another file's.
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
    /// [`Tail::open`], and if the footer is damaged, with a meta index found by its checksum.
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

/// Entries that cannot be read.
#[derive(Clone, Debug)]
pub struct LostEntries {
    /// The first user key that an entry among them may have.
    pub from: Vec<u8>,
    /// The last.
    pub to: Vec<u8>,
    /// Why; it names file and offset.
    pub error: Error,
}

/// A cursor that moves forward over all point entries that can be read.
pub struct SalvageIter {
    table: Arc<Ksst>,
    references: Option<Walk<ReferenceCursor>>,
    inline: Option<Walk<InlineCursor>>,
    /// It stands on an entry of the references.
    on_references: bool,
    lost: Vec<LostEntries>,
}

impl SalvageIter {
    /// A cursor that stands on the first entry.
    pub fn new(table: Arc<Ksst>) -> SalvageIter {
        let references = table.references.is_some().then(|| Walk::new(Role::References, &table));
        let inline = table.inline.is_some().then(|| Walk::new(Role::Inline, &table));
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

    /// True while it stands on an entry.
    pub fn valid(&self) -> bool {
        match self.on_references {
            true => self.references.as_ref().is_some_and(|w| w.cursor.valid()),
            false => self.inline.as_ref().is_some_and(|w| w.cursor.valid()),
        }
    }

    /// Moves to the next entry that can be read.
    pub fn advance(&mut self) {
        match self.on_references {
            true => self.references.iter_mut().for_each(|w| w.advance(&self.table, &mut self.lost)),
            false => self.inline.iter_mut().for_each(|w| w.advance(&self.table, &mut self.lost)),
        }
        self.choose();
    }

    /// The encoded internal key; empty if not valid.
    pub fn key(&self) -> &[u8] {
        match self.on_references {
            true => self.references.as_ref().map_or(&[], |w| w.cursor.key()),
            false => self.inline.as_ref().map_or(&[], |w| w.cursor.key()),
        }
    }

    /// The value, or the encoded reference; empty if not valid.
    pub fn value(&self) -> &[u8] {
        match self.on_references {
            true => self.references.as_ref().map_or(&[], |w| w.cursor.value()),
            false => self.inline.as_ref().map_or(&[], |w| w.cursor.value()),
        }
    }

    /// What was stepped over since this was asked last.
    pub fn take_lost(&mut self) -> Vec<LostEntries> {
        std::mem::take(&mut self.lost)
    }
}

/// The way through one stream.
struct Walk<C> {
    role: Role,
    /// The partition to come, or the present one.
    at: usize,
    index: Option<Partition>,
    row: usize,
    cursor: C,
    /// Where the block of the cursor lies.
    offset: u64,
    window: Window,
    /// The separator before `row`; before the first, the smallest key of the table.
    before: Vec<u8>,
    /// The last entry that was shown.
    last: Vec<u8>,
}

impl<C: BlockCursor> Walk<C> {
    fn new(role: Role, table: &Ksst) -> Self {
        Walk {
            role,
            at: 0,
            index: None,
            row: 0,
            cursor: C::default(),
            offset: 0,
            window: Window::default(),
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

    /// Moves to the first entry of the next block that can be read.
    fn next_block(&mut self, table: &Ksst, lost: &mut Vec<LostEntries>) {
        let stream = if self.role == Role::References { &table.references } else { &table.inline };
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
                    true => Err(here(Error::corruption("a block that leads back to earlier keys"))),
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
