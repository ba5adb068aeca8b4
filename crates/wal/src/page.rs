//! The format of log pages and of the fragments in them (byte map: `docs/format/wal.md`).
//!
//! A page has two forms. The *open* form is in memory and in the staging file while fragments are
//! added. Its checksum covers only the header. The filled length follows from the fragments, each
//! of which has its own checksum. So after a partial write to the staging file the page parses up
//! to its last complete fragment. The *closed* form is in the group file: one checksum over the
//! whole page, `used` filled in, the rest zero. A closed page is written once.
//!
//! Invariants:
//!
//! * Page checksums are masked with the identities of store and group and the number of the page;
//!   fragment checksums also with the position in the page. So remains in a reused staging slot, in
//!   a recycled file, or on blocks of another store never parse as something else. The identity of
//!   a group is random and new each time a file is given to the log. Tag and page numbers alone
//!   would not suffice: copies of a store have the same ones.
//! * `prev_used` is the used length of the previous page when it was closed. Without it, an old
//!   image of a page (the kernel writes staging back at any time) followed by a complete next page
//!   would lose the fragments between.
//! * Pages of a single engine have the format of version 2: pages of version 3 are written only for
//!   a second tenant, lane or logger. An older release reports them as unsupported, whatever else
//!   it makes of them.
//! * Decoding never panics and allocates nothing.

use crate::lane::Lane;
use crate::tenant::TenantId;
use base::checksum::{checksum, mask};
use base::codec::Reader;
use base::{Error, ErrorKind, SeqNo, Uid};
use io::{BLOCK_LEN_MIN, PAGE};
use std::fmt;

/// The first four bytes of every page.
pub const MAGIC: [u8; 4] = *b"LWAL";
/// The highest version of the page format that this release reads and writes. Pages of a single
/// engine are of version 2; pages of the first lane with several engines are of version 3, pages of
/// the other lanes of version 4.
pub const FORMAT_VERSION: u8 = 4;
/// Bytes of the page header.
pub const HEADER_LEN: usize = 112;
/// Bytes of the header of version 1, which has no identity of groups.
pub const HEADER_LEN_V1: usize = 88;
/// Bytes of the header of a fragment that begins a batch.
pub const FIRST_FRAGMENT_HEADER_LEN: usize = 24;
/// Bytes of the header of a fragment that continues a batch.
pub const NEXT_FRAGMENT_HEADER_LEN: usize = 8;
/// A page with less room than this is closed.
pub const ROOM_LEN_MIN: usize = FIRST_FRAGMENT_HEADER_LEN + 32;
/// Page numbers at and above this are invalid.
pub const LPN_LIMIT: u64 = 1 << 56;

/// Offset of the [`Stream`] in the header of versions 3 and 4; the following bytes of the header
/// are 0 and reserved. In version 2 all bytes from here on are 0.
const STREAM_AT: usize = 104;
const STREAM_LEN: usize = 3;
/// Bytes of the stream in version 3, which has no [`Shape`].
const STREAM_LEN_V3: usize = 2;
/// Bytes before the part of the header that the checksum covers: the magic and the checksum itself.
const UNCOVERED_LEN: usize = 8;

/// How a page is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Form {
    /// In staging, growing.
    Open = 1,
    /// In a group file, final.
    Closed = 2,
}

/// The store and group of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The store.
    pub store: Uid,
    /// The identity of the group, as the manifest has it; `None`: its pages are of version 1.
    pub group: Option<Uid>,
}

impl Owner {
    /// Returns the length of the header of its pages.
    pub fn header_len(&self) -> usize {
        if self.group.is_some() { HEADER_LEN } else { HEADER_LEN_V1 }
    }

    /// Returns the mask of its checksums, from both identities.
    fn mask(&self, place: u64) -> u32 {
        // As one number: this is computed for each fragment, and a byte-wise mask takes longer than
        // the rest of the work.
        let group = self.group.unwrap_or_default();
        mask(Uid((u128::from_ne_bytes(self.store.0) ^ u128::from_ne_bytes(group.0)).to_ne_bytes()), place)
    }
}

/// The lane of a page, and the logger among the writers of that lane. There is only one logger yet.
/// A page of another logger or of an unknown lane is from a later release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// A separate log within the store, with its own groups, pages and watermark.
    pub lane: Lane,
    /// The writer of the page among several writers of a lane.
    pub logger: u8,
    /// The format that determines its closed length.
    pub shape: Shape,
}

impl Stream {
    /// Returns the stream of a lane with one logger, whose group is written in blocks of
    /// `block_len` bytes.
    pub fn of(lane: Lane, block_len: usize) -> Stream {
        Stream { lane, logger: 0, shape: Shape::of(lane, block_len) }
    }

    fn is_known(self) -> bool {
        self.lane.is_known() && self.logger == 0 && self.shape.is_known(self.lane)
    }
}

/// Length of closed pages: 4 KB, or the used bytes rounded up to whole blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// The binary logarithm of the block length; 0: all pages have the same length.
    block_log2: u8,
}

impl Shape {
    /// Returns the shape of a lane's pages in a file that is written in blocks of `block_len`
    /// bytes.
    pub fn of(lane: Lane, block_len: usize) -> Shape {
        match lane {
            Lane::FIRST => Shape::default(),
            _ => Shape { block_log2: block_len.ilog2() as u8 },
        }
    }

    fn is_known(self, lane: Lane) -> bool {
        match lane {
            Lane::FIRST => self == Shape::default(),
            _ => self != Shape::default() && (BLOCK_LEN_MIN..=PAGE).contains(&self.block_len()),
        }
    }

    /// Returns the block length, of which page lengths are multiples.
    pub(crate) fn block_len(self) -> usize {
        match self.block_log2 {
            0 => PAGE,
            log2 => 1usize.checked_shl(u32::from(log2)).unwrap_or(usize::MAX),
        }
    }

    /// Returns the length of a closed page with `used` used bytes.
    pub(crate) fn page_len(self, used: usize) -> usize {
        used.checked_next_multiple_of(self.block_len()).unwrap_or(usize::MAX).clamp(1, PAGE)
    }

    /// Returns how many page numbers such a page takes.
    pub(crate) fn numbers(self, used: usize) -> u64 {
        (self.page_len(used) / self.unit()) as u64
    }

    /// Returns the bytes for which one page number stands: [`Lane::unit`].
    pub(crate) fn unit(self) -> usize {
        if self == Shape::default() { PAGE } else { BLOCK_LEN_MIN }
    }

    /// Returns how many page numbers a batch of `len` bytes needs, including those of the open page
    /// of `used` bytes (0: no page is open).
    pub(crate) fn numbers_for(self, used: usize, len: usize) -> u64 {
        let used = if used == 0 { HEADER_LEN } else { used };
        let start = used + FIRST_FRAGMENT_HEADER_LEN;
        let room = PAGE - start;
        if len <= room {
            return self.numbers(start + len);
        }
        let next = HEADER_LEN + NEXT_FRAGMENT_HEADER_LEN;
        let (full, last) = ((len - room) / (PAGE - next), (len - room) % (PAGE - next));
        let last = if last == 0 { 0 } else { self.numbers(next + last) };
        (1 + full as u64) * self.numbers(PAGE) + last
    }
}

/// The header of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHeader {
    /// Open or closed.
    pub form: Form,
    /// Used bytes, including the header; 0 in the open form.
    pub used: u16,
    /// Used bytes of the previous page (0: there is none).
    pub prev_used: u16,
    /// The store, and the identity of the group.
    pub owner: Owner,
    /// The group.
    pub ltn: u64,
    /// The page.
    pub lpn: u64,
    /// The first page of the group.
    pub first_lpn: u64,
    /// Every page with a lower number was durable when this one was built (the watermark, plus
    /// one).
    pub durable_end: u64,
    /// The group that this one continues; 0 with `prev_end` 0: none.
    pub prev_ltn: u64,
    /// The end of the previous group's pages.
    pub prev_end: u64,
    /// The number of an edit of the manifest that was durable when this page was opened.
    pub witness_edit: u64,
    /// Present in pages of versions 3 and 4, whose batches may be of several tenants. `None`:
    /// versions 1 and 2, whose batches are of the first tenant.
    pub stream: Option<Stream>,
}

/// A property of an intact page that this release does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// The format version.
    Version(u8),
    /// The lane, logger or shape.
    Stream(Stream),
    /// A page of a lane other than the first in the form of version 3, which no release ever wrote.
    Unreleased(Lane),
    /// The kind of a fragment.
    Kind(u8),
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unknown::Version(version) => {
                write!(
                    f,
                    "the log page has format {version}, and this release knows formats up to \
                     {FORMAT_VERSION}"
                )
            }
            Unknown::Unreleased(lane) => {
                write!(
                    f,
                    "the log page of log stream {} has format 3, which no release wrote for that stream",
                    lane.0
                )
            }
            Unknown::Stream(Stream { lane, logger, .. }) => {
                write!(
                    f,
                    "the log page is of log stream {} and logger {logger}, which this release does not know",
                    lane.0
                )
            }
            Unknown::Kind(kind) => {
                write!(f, "the log page has a part of kind {kind}, which this release does not know")
            }
        }
    }
}

impl Unknown {
    /// Returns the error for a page that this release cannot read; `cure`: the remedy.
    pub(crate) fn error(&self, cure: &str) -> Error {
        Error::new(ErrorKind::Unsupported, format!("{self}: {cure}"))
    }
}

/// Result of checking a page of up to 4 KB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A page of this store, intact.
    Valid(PageHeader),
    /// Anything else: never written, stale, torn, damaged.
    Invalid,
    /// Intact, but of a later release.
    Newer(Unknown),
}

impl PageHeader {
    /// Returns the lane of the page.
    pub fn lane(&self) -> Lane {
        self.stream.unwrap_or_default().lane
    }

    /// Returns the shape of the pages of its group.
    pub fn shape(&self) -> Shape {
        self.stream.unwrap_or_default().shape
    }

    /// Returns the offset in the file of its group; `None` if its numbers make no sense.
    pub fn offset(&self) -> Option<u64> {
        self.lpn.checked_sub(self.first_lpn)?.checked_mul(self.shape().unit() as u64)
    }

    /// Returns its closed length.
    pub fn page_len(&self) -> usize {
        self.shape().page_len(usize::from(self.used))
    }

    /// Returns how many page numbers it takes when it is closed.
    pub(crate) fn numbers(&self) -> u64 {
        self.shape().numbers(usize::from(self.used))
    }

    /// Returns the number of the next page, when this one is closed.
    pub fn end_lpn(&self) -> u64 {
        self.lpn.saturating_add(self.numbers())
    }

    fn version(&self) -> u8 {
        match (self.owner.group, self.stream) {
            (None, _) => 1,
            (Some(_), None) => 2,
            (Some(_), Some(Stream { lane: Lane::FIRST, .. })) => 3,
            (Some(_), Some(_)) => FORMAT_VERSION,
        }
    }

    /// Writes the header in the open form, with its checksum, over the first bytes of `page`.
    pub fn encode_open(&self, page: &mut [u8]) {
        let out = &mut page[..self.owner.header_len()];
        out.fill(0);
        out[..4].copy_from_slice(&MAGIC);
        out[8] = self.version();
        out[9] = Form::Open as u8;
        out[10..12].copy_from_slice(&self.used.to_le_bytes());
        out[12..14].copy_from_slice(&self.prev_used.to_le_bytes());
        out[16..32].copy_from_slice(&self.owner.store.0);
        let words = [
            self.ltn,
            self.lpn,
            self.first_lpn,
            self.durable_end,
            self.prev_ltn,
            self.prev_end,
            self.witness_edit,
        ];
        for (slot, word) in out[32..].chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        if let Some(group) = self.owner.group {
            out[HEADER_LEN_V1..][..16].copy_from_slice(&group.0);
            let Stream { lane, logger, shape } = self.stream.unwrap_or_default();
            out[STREAM_AT..][..STREAM_LEN].copy_from_slice(&[lane.0, logger, shape.block_log2]);
        }
        let sum = checksum(covered(out)) ^ self.owner.mask(self.lpn);
        out[4..8].copy_from_slice(&sum.to_le_bytes());
    }

    /// Parses the fields; `None` if they are invalid.
    fn decode(page: &[u8]) -> Option<PageHeader> {
        let mut r = Reader::new(page.get(8..)?);
        let version = r.u8().ok()?;
        let form = match r.u8().ok()? {
            1 => Form::Open,
            2 => Form::Closed,
            _ => return None,
        };
        let used = r.u16().ok()?;
        let prev_used = r.u16().ok()?;
        r.u16().ok()?;
        let store = Uid(r.array().ok()?);
        let mut word = || r.u64().ok();
        let (ltn, lpn, first_lpn, durable_end) = (word()?, word()?, word()?, word()?);
        let (prev_ltn, prev_end, witness_edit) = (word()?, word()?, word()?);
        // Identities keep their offset in all later versions, so that an intact page of a later
        // release is recognized.
        let group = if version > 1 { Some(Uid(r.array().ok()?)) } else { None };
        let stream = match version {
            0..=2 => None,
            _ => {
                let (lane, logger) = (Lane(r.u8().ok()?), r.u8().ok()?);
                let block_log2 = if version > 3 { r.u8().ok()? } else { 0 };
                Some(Stream { lane, logger, shape: Shape { block_log2 } })
            }
        };
        let owner = Owner { store, group };
        let sound = first_lpn <= lpn && lpn < LPN_LIMIT && durable_end <= lpn && prev_end <= first_lpn;
        let header = PageHeader {
            form,
            used,
            prev_used,
            owner,
            ltn,
            lpn,
            first_lpn,
            durable_end,
            prev_ltn,
            prev_end,
            witness_edit,
            stream,
        };
        (sound && version > 0).then_some(header)
    }
}

fn covered(bytes: &[u8]) -> &[u8] {
    bytes.get(UNCOVERED_LEN..).unwrap_or_default()
}

/// Converts an open page to its closed form, in place: fills in `used` and the watermark, zeroes
/// the unused rest, and computes the checksum over the page. `page` has its final length.
pub fn close(page: &mut [u8], used: u16, durable_end: u64, owner: Owner, lpn: u64) {
    assert!((owner.header_len()..=page.len()).contains(&usize::from(used)), "a page of {used} bytes");
    assert!(durable_end <= lpn, "page {lpn} cannot confirm itself");
    page[9] = Form::Closed as u8;
    page[10..12].copy_from_slice(&used.to_le_bytes());
    page[56..64].copy_from_slice(&durable_end.to_le_bytes());
    page[usize::from(used)..].fill(0);
    let sum = checksum(covered(page)) ^ owner.mask(lpn);
    page[4..8].copy_from_slice(&sum.to_le_bytes());
}

/// Checks a page of a group file, without its fragments, by the checksum over all of it. `page`
/// holds at least the whole page.
pub(crate) fn judge_closed(page: &[u8], owner: Owner, ltn: u64) -> Verdict {
    let mine = |header: &PageHeader| header.owner == owner && header.ltn == ltn;
    read(page, Form::Closed, PageHeader::page_len, mine)
}

/// Checks a page of a group file, of which `page` holds at least all bytes: the checksum over the
/// page, and fragments that fill exactly the used part.
pub fn read_closed(page: &[u8], owner: Owner, ltn: u64) -> Verdict {
    let verdict = judge_closed(page, owner, ltn);
    let Verdict::Valid(header) = verdict else { return verdict };
    let used = usize::from(header.used);
    let whole = (owner.header_len()..=header.page_len()).contains(&used);
    match extent(page.get(..used).unwrap_or_default(), &header) {
        Ok(end) if whole && end == used => verdict,
        Err(unknown) if whole => Verdict::Newer(unknown),
        _ => Verdict::Invalid,
    }
}

/// Returns the end of the intact fragments of a page.
///
/// # Errors
/// The unknown property of the next fragment, if it is intact and of a later release.
pub(crate) fn extent(page: &[u8], header: &PageHeader) -> Result<usize, Unknown> {
    let mut fragments = Fragments::new(page, header.owner, header.lpn);
    // Versions 1 and 2 have no second tenant.
    if fragments.by_ref().any(|fragment| header.stream.is_none() && fragment.tenant != TenantId::FIRST) {
        return Err(Unknown::Version(FORMAT_VERSION + 1));
    }
    fragments.unknown().map_or(Ok(fragments.end()), Err)
}

/// Returns the header of a page without a check; `None` if its fields are invalid.
pub(crate) fn peek(page: &[u8]) -> Option<PageHeader> {
    page.starts_with(&MAGIC).then(|| PageHeader::decode(page)).flatten()
}

/// Returns the tag of the group of an intact page of this store, with any identity; `None` for
/// anything else.
pub fn group_of(page: &[u8], store: Uid) -> Option<u64> {
    let PageHeader { owner, ltn, .. } = peek(page).filter(|header| header.owner.store == store)?;
    matches!(read_closed(page, owner, ltn), Verdict::Valid(_)).then_some(ltn)
}

/// Checks the header of a page of the staging file, of any group of the store.
pub fn read_open(page: &[u8], store: Uid) -> Verdict {
    read(page, Form::Open, |header| header.owner.header_len(), |header| header.owner.store == store)
}

/// Checks a page of this form if it is `mine`; `covers`: the end of the bytes that its checksum
/// covers.
fn read(
    page: &[u8],
    form: Form,
    covers: impl Fn(&PageHeader) -> usize,
    mine: impl Fn(&PageHeader) -> bool,
) -> Verdict {
    // Identity first: pages from a former use of the file are recognized by it without the cost of
    // a checksum.
    let Some(header) = peek(page).filter(|header| header.form == form && mine(header)) else {
        return Verdict::Invalid;
    };
    let stored = Reader::new(page.get(4..).unwrap_or_default()).u32();
    let (Ok(stored), Some(bytes)) = (stored, page.get(UNCOVERED_LEN..covers(&header))) else {
        return Verdict::Invalid;
    };
    if checksum(bytes) ^ header.owner.mask(header.lpn) != stored {
        return Verdict::Invalid;
    }
    let version = page.get(8).copied().unwrap_or_default();
    let reserved = page.get(STREAM_AT..HEADER_LEN).unwrap_or_default();
    let stream_len = match version {
        0..=2 => 0,
        3 => STREAM_LEN_V3,
        _ => STREAM_LEN,
    };
    let reserved = reserved.get(stream_len..).unwrap_or_default();
    let zero = reserved.iter().all(|&b| b == 0);
    let stream = header.stream.unwrap_or_default();
    match version {
        1 => Verdict::Valid(header),
        3 if zero && stream == (Stream { lane: Lane::LOG, ..Stream::default() }) => {
            Verdict::Newer(Unknown::Unreleased(stream.lane))
        }
        2..=FORMAT_VERSION if zero && stream.is_known() && header.version() == version => {
            Verdict::Valid(header)
        }
        3 | FORMAT_VERSION if zero => Verdict::Newer(Unknown::Stream(stream)),
        _ => Verdict::Newer(Unknown::Version(version.max(FORMAT_VERSION + 1))),
    }
}

/// Part of a batch in a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FragmentKind {
    /// All of it.
    Full = 1,
    /// Its beginning; the rest is in the next pages.
    First = 2,
    /// Neither beginning nor end.
    Middle = 3,
    /// Its end.
    Last = 4,
}

impl FragmentKind {
    /// Returns the length of the header of such a fragment.
    pub fn header_len(self) -> usize {
        let begins = matches!(self, FragmentKind::Full | FragmentKind::First);
        if begins { FIRST_FRAGMENT_HEADER_LEN } else { NEXT_FRAGMENT_HEADER_LEN }
    }
}

/// Role of the batch of a fragment: the upper half of the byte that has the [`FragmentKind`] in its
/// lower half. The numbers are reserved, and no release writes any but the first yet. A reader
/// reports the others as unsupported.
pub mod role {
    /// Changes that take effect when their last fragment is present.
    pub const BATCH: u8 = 0;
    /// Changes that take effect once their commit is present.
    pub const PREPARE: u8 = 1;
    /// Makes prepared changes take effect.
    pub const COMMIT: u8 = 2;
    /// Discards prepared changes for good.
    pub const ABORT: u8 = 3;
}

/// Description of a batch in its first fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// The owner; all fragments of the batch carry it.
    pub tenant: TenantId,
    /// Its lowest sequence.
    pub first_seq: SeqNo,
    /// Distance from the lowest to the highest sequence.
    pub seq_span: u32,
    /// Bytes of its payload, over all fragments.
    pub len: u32,
}

impl BatchHeader {
    /// Returns its highest sequence.
    pub fn last_seq(&self) -> SeqNo {
        self.first_seq.saturating_add(u64::from(self.seq_span))
    }
}

/// One fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// The part of the batch.
    pub kind: FragmentKind,
    /// The owner of the batch.
    pub tenant: TenantId,
    /// The batch: only on [`FragmentKind::Full`] and [`FragmentKind::First`].
    pub batch: Option<BatchHeader>,
    /// The payload of this part.
    pub payload: &'a [u8],
    /// Position in its page.
    pub pos: usize,
}

/// Returns the mask of a fragment: no two positions of the log share it.
fn fragment_mask(owner: Owner, lpn: u64, pos: usize) -> u32 {
    owner.mask(lpn.wrapping_mul(PAGE as u64).wrapping_add(pos as u64))
}

/// Fills in the header of a fragment whose payload is already behind the header in `bytes`.
pub fn encode_fragment(
    bytes: &mut [u8],
    kind: FragmentKind,
    batch: BatchHeader,
    owner: Owner,
    lpn: u64,
    pos: usize,
) {
    let payload_len = bytes.len() - kind.header_len();
    bytes[4..6].copy_from_slice(&(payload_len as u16).to_le_bytes());
    bytes[6] = kind as u8;
    bytes[7] = batch.tenant.0;
    if kind.header_len() == FIRST_FRAGMENT_HEADER_LEN {
        bytes[8..16].copy_from_slice(&batch.first_seq.to_le_bytes());
        bytes[16..20].copy_from_slice(&batch.seq_span.to_le_bytes());
        bytes[20..24].copy_from_slice(&batch.len.to_le_bytes());
    }
    let sum = checksum(&bytes[4..]) ^ fragment_mask(owner, lpn, pos);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
}

/// Iterator over the fragments of a page, up to the first that is not intact.
#[derive(Clone, Debug)]
pub struct Fragments<'a> {
    page: &'a [u8],
    pos: usize,
    owner: Owner,
    lpn: u64,
    unknown: Option<u8>,
}

impl<'a> Fragments<'a> {
    /// Returns the fragments of the page `lpn`.
    pub fn new(page: &'a [u8], owner: Owner, lpn: u64) -> Self {
        Fragments { page, pos: owner.header_len(), owner, lpn, unknown: None }
    }

    /// Returns the unknown property of the fragment after the last, if it is intact and of a later
    /// release.
    pub fn unknown(&self) -> Option<Unknown> {
        self.unknown.map(Unknown::Kind)
    }

    /// Returns the position of the next fragment.
    pub fn end(&self) -> usize {
        self.pos
    }

    fn parse(&mut self) -> Option<(Fragment<'a>, usize)> {
        let rest = self.page.get(self.pos..)?;
        let mut r = Reader::new(rest);
        let stored = r.u32().ok()?;
        let payload_len = usize::from(r.u16().ok()?);
        let (byte, tenant) = (r.u8().ok()?, TenantId(r.u8().ok()?));
        let kind = match byte & 0x0f {
            1 => FragmentKind::Full,
            2 => FragmentKind::First,
            3 => FragmentKind::Middle,
            4 => FragmentKind::Last,
            _ => return None,
        };
        let len = kind.header_len().checked_add(payload_len)?;
        let bytes = rest.get(4..len)?;
        if payload_len == 0 || checksum(bytes) ^ fragment_mask(self.owner, self.lpn, self.pos) != stored {
            return None;
        }
        if byte >> 4 != role::BATCH {
            self.unknown = Some(byte);
            return None;
        }
        let batch = match kind {
            FragmentKind::Full | FragmentKind::First => {
                let (first_seq, seq_span, len) = (r.u64().ok()?, r.u32().ok()?, r.u32().ok()?);
                Some(BatchHeader { tenant, first_seq, seq_span, len })
            }
            FragmentKind::Middle | FragmentKind::Last => None,
        };
        let payload = r.take(payload_len).ok()?;
        Some((Fragment { kind, tenant, batch, payload, pos: self.pos }, self.pos.checked_add(len)?))
    }
}

impl<'a> Iterator for Fragments<'a> {
    type Item = Fragment<'a>;

    fn next(&mut self) -> Option<Fragment<'a>> {
        let (fragment, end) = self.parse()?;
        self.pos = end;
        Some(fragment)
    }
}

/// Returns how many pages a batch of `len` bytes opens when the open page has `used` bytes (0: no
/// page is open).
pub(crate) fn pages_to_open(used: usize, len: usize) -> u64 {
    let first_room = |used: usize| PAGE - used - FIRST_FRAGMENT_HEADER_LEN;
    let next_room = PAGE - HEADER_LEN - NEXT_FRAGMENT_HEADER_LEN;
    let (opened, room) = if used == 0 { (1, first_room(HEADER_LEN)) } else { (0, first_room(used)) };
    (opened + len.saturating_sub(room).div_ceil(next_room)) as u64
}

/// Returns the length of the smallest group that takes a batch of `batch_len` bytes, in any lane:
/// its pages, and one reserved for the last watermark.
pub fn group_len_needed(batch_len: usize) -> u64 {
    (pages_to_open(0, batch_len) + 1) * PAGE as u64
}

#[cfg(test)]
mod tests;
