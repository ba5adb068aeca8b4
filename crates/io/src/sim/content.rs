//! The bytes of a simulated file: a sparse array of shared pages.
//!
//! A crash campaign holds thousands of nearly equal images at once, so every level is
//! copy-on-write: a file is a list of shared chunks, a chunk holds [`CHUNK_PAGES`] shared pages.
//! Copying a file costs one pointer for 128 KB, changing a page of a shared file costs one chunk of
//! pointers and one page. Pages and chunks remember their hash; two images that share them never
//! hash them twice.
//!
//! All files share the pages of one repeated byte, so that a simulated store of many gigabytes fits
//! into memory.
//!
//! Invariants: there are exactly as many chunks as the length needs, pages past the end are holes,
//! and bytes past the end in the last page are zero. A hole reads as zeros and hashes like a page
//! of zeros.

use super::SECTOR;
use crate::PAGE;
use base::hash::key_hash;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};

/// Pages of a chunk.
const CHUNK_PAGES: usize = 32;
/// Bytes of a chunk.
const CHUNK_LEN: u64 = (CHUNK_PAGES * PAGE) as u64;
/// A sector mask that names every sector of a page: bit `i` stands for bytes `i * 512 .. (i + 1) *
/// 512`.
pub(super) const WHOLE_PAGE: u8 = 0xff;

static ZERO_PAGE: LazyLock<Arc<Page>> = LazyLock::new(|| Arc::new(Page::zeroed()));
/// The pages of one repeated byte, by that byte.
static UNIFORM_PAGES: LazyLock<Vec<Arc<Page>>> = LazyLock::new(|| {
    (0..=u8::MAX).map(|byte| Arc::new(Page { bytes: [byte; PAGE], hash: AtomicU64::new(0) })).collect()
});
static EMPTY_CHUNK: LazyLock<Arc<Chunk>> =
    LazyLock::new(|| Arc::new(Chunk { pages: [const { None }; CHUNK_PAGES], hash: AtomicU64::new(0) }));
static ZERO_CHUNK: LazyLock<Arc<Chunk>> = LazyLock::new(|| {
    let pages = std::array::from_fn(|_| Some(ZERO_PAGE.clone()));
    Arc::new(Chunk { pages, hash: AtomicU64::new(0) })
});

/// Combines hashes in order.
pub(super) fn mix(hash: u64, word: u64) -> u64 {
    let x = (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^ (x >> 32)
}

/// One page and its cached hash (0: not computed).
pub(super) struct Page {
    bytes: [u8; PAGE],
    hash: AtomicU64,
}

impl Page {
    fn zeroed() -> Self {
        Page { bytes: [0; PAGE], hash: AtomicU64::new(0) }
    }

    /// Returns a page with these bytes.
    fn shared(bytes: &[u8; PAGE]) -> Arc<Page> {
        let first = bytes[0];
        // Nearly every other page differs within its first bytes.
        let is_uniform = bytes[..64].iter().all(|byte| *byte == first) && *bytes == [first; PAGE];
        match is_uniform {
            true => UNIFORM_PAGES[usize::from(first)].clone(),
            false => Arc::new(Page { bytes: *bytes, hash: AtomicU64::new(0) }),
        }
    }

    /// Returns the bytes for writing, and drops the hash.
    fn bytes_mut(&mut self) -> &mut [u8; PAGE] {
        *self.hash.get_mut() = 0;
        &mut self.bytes
    }

    fn hash(&self) -> u64 {
        remembered(&self.hash, || key_hash(&self.bytes))
    }
}

impl Clone for Page {
    fn clone(&self) -> Self {
        Page { bytes: self.bytes, hash: AtomicU64::new(0) }
    }
}

fn remembered(cell: &AtomicU64, compute: impl FnOnce() -> u64) -> u64 {
    match cell.load(Relaxed) {
        0 => {
            let hash = compute().max(1);
            cell.store(hash, Relaxed);
            hash
        }
        known => known,
    }
}

struct Chunk {
    pages: [Option<Arc<Page>>; CHUNK_PAGES],
    hash: AtomicU64,
}

impl Chunk {
    fn hash(&self) -> u64 {
        remembered(&self.hash, || {
            self.pages.iter().fold(1, |h, page| mix(h, page.as_ref().unwrap_or(&ZERO_PAGE).hash()))
        })
    }
}

impl Clone for Chunk {
    fn clone(&self) -> Self {
        Chunk { pages: self.pages.clone(), hash: AtomicU64::new(0) }
    }
}

/// The bytes of a file.
#[derive(Clone, Default)]
pub(super) struct Content {
    chunks: Vec<Arc<Chunk>>,
    len: u64,
}

impl Content {
    /// Returns `len` bytes of allocated zeros.
    pub(super) fn zeroed(len: u64) -> Self {
        let mut content = Content::default();
        content.chunks = vec![ZERO_CHUNK.clone(); len.div_ceil(CHUNK_LEN) as usize];
        content.len = content.chunks.len() as u64 * CHUNK_LEN;
        content.set_len(len);
        content
    }

    /// Returns a file with these bytes.
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let mut content = Content::default();
        content.write(0, bytes);
        content
    }

    /// Returns the length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the number of pages that are not holes.
    pub(super) fn allocated_pages(&self) -> u64 {
        self.chunks.iter().map(|c| c.pages.iter().flatten().count() as u64).sum()
    }

    /// Returns page `n`; `None` for a hole.
    pub(super) fn page(&self, n: u64) -> Option<&Arc<Page>> {
        let chunk = self.chunks.get((n / CHUNK_PAGES as u64) as usize)?;
        chunk.pages[(n % CHUNK_PAGES as u64) as usize].as_ref()
    }

    /// Returns the slot of page `n` for writing, which must be inside the file.
    fn slot(&mut self, n: u64) -> &mut Option<Arc<Page>> {
        let chunk = Arc::make_mut(&mut self.chunks[(n / CHUNK_PAGES as u64) as usize]);
        *chunk.hash.get_mut() = 0;
        &mut chunk.pages[(n % CHUNK_PAGES as u64) as usize]
    }

    /// Copies bytes out; the range must be inside the file.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) {
        assert!(offset + buf.len() as u64 <= self.len, "read past the end of a simulated file");
        for (n, within, range) in pages_of(offset, buf.len()) {
            let out = &mut buf[range];
            match self.page(n) {
                Some(page) => out.copy_from_slice(&page.bytes[within..within + out.len()]),
                None => out.fill(0),
            }
        }
    }

    /// Returns all bytes.
    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        self.read(0, &mut bytes);
        bytes
    }

    /// Copies bytes in; the file grows if necessary.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        if end > self.len {
            self.set_len(end);
        }
        for (n, within, range) in pages_of(offset, data.len()) {
            let slot = self.slot(n);
            let piece = &data[range];
            if let Ok(bytes) = piece.try_into() {
                *slot = Some(Page::shared(bytes));
                continue;
            }
            let page = slot.get_or_insert_with(|| ZERO_PAGE.clone());
            Arc::make_mut(page).bytes_mut()[within..within + piece.len()].copy_from_slice(piece);
        }
    }

    /// Truncates the file, or extends it by a hole.
    pub(super) fn set_len(&mut self, len: u64) {
        let shorter = len < self.len;
        self.len = len;
        self.chunks.resize_with(len.div_ceil(CHUNK_LEN) as usize, || EMPTY_CHUNK.clone());
        if !shorter {
            return;
        }
        let first_gone = len.div_ceil(PAGE as u64);
        let end = self.chunks.len() as u64 * CHUNK_PAGES as u64;
        for n in first_gone..end {
            if self.page(n).is_some() {
                *self.slot(n) = None;
            }
        }
        let tail = (len % PAGE as u64) as usize;
        if tail != 0 && self.page(first_gone - 1).is_some_and(|p| p.bytes[tail..].iter().any(|&b| b != 0)) {
            let slot = self.slot(first_gone - 1);
            let page = slot.get_or_insert_with(|| ZERO_PAGE.clone());
            Arc::make_mut(page).bytes_mut()[tail..].fill(0);
        }
    }

    /// Takes the sectors in `mask` of page `n` from `from` (`None`: zeros, a hole if it is the
    /// whole page). Grows the file to the end of the page if it ends before; the caller then sets
    /// the right length.
    pub(super) fn set_sectors(&mut self, n: u64, mask: u8, from: Option<&Arc<Page>>) {
        if mask == 0 {
            return;
        }
        let end = (n + 1) * PAGE as u64;
        if end > self.len {
            self.set_len(end);
        }
        let slot = self.slot(n);
        if mask == WHOLE_PAGE {
            *slot = from.cloned();
            return;
        }
        let from: &Page = from.unwrap_or(&ZERO_PAGE);
        let page = Arc::make_mut(slot.get_or_insert_with(|| ZERO_PAGE.clone())).bytes_mut();
        for sector in (0..PAGE / SECTOR).filter(|s| mask >> s & 1 == 1) {
            let range = sector * SECTOR..(sector + 1) * SECTOR;
            page[range.clone()].copy_from_slice(&from.bytes[range]);
        }
    }

    /// Returns the bytes of one sector of page `n`; zeros where the file has none.
    pub(super) fn sector(&self, n: u64, nth: usize) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        if let Some(page) = self.page(n) {
            bytes.copy_from_slice(&page.bytes[nth * SECTOR..(nth + 1) * SECTOR]);
        }
        bytes
    }

    /// Sets the bytes of one sector of page `n`, up to the end of the file.
    pub(super) fn set_sector(&mut self, n: u64, nth: usize, bytes: &[u8; SECTOR]) {
        let offset = n * PAGE as u64 + (nth * SECTOR) as u64;
        let len = self.len.saturating_sub(offset).min(SECTOR as u64) as usize;
        if len > 0 {
            self.write(offset, &bytes[..len]);
        }
    }

    /// Returns true if a sector of page `n` differs from the one in `other`.
    pub(super) fn differs(&self, n: u64, nth: usize, other: Option<&Arc<Page>>) -> bool {
        let theirs = other.map_or(&[0; SECTOR][..], |page| &page.bytes[nth * SECTOR..(nth + 1) * SECTOR]);
        self.sector(n, nth) != theirs
    }

    /// Frees the pages wholly inside the range and returns their numbers.
    pub(super) fn punch(&mut self, offset: u64, len: u64) -> std::ops::Range<u64> {
        let first = offset.div_ceil(PAGE as u64);
        let end = (offset.saturating_add(len).min(self.len) / PAGE as u64).max(first);
        for n in first..end {
            if self.page(n).is_some() {
                *self.slot(n) = None;
            }
        }
        first..end
    }

    /// Returns a hash of the length and of every byte.
    pub(super) fn hash(&self) -> u64 {
        self.chunks.iter().fold(mix(2, self.len), |h, chunk| mix(h, chunk.hash()))
    }
}

/// Splits a range of a file at page boundaries: page number, offset within the page, range within
/// the buffer.
pub(super) fn pages_of(
    offset: u64,
    len: usize,
) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % PAGE as u64) as usize;
        let start = done;
        done = len.min(done + PAGE - within);
        Some((at / PAGE as u64, within, start..done))
    })
}

/// Returns the sectors of one page that a write of `len` bytes at `within` touches.
pub(super) fn sectors_of(within: usize, len: usize) -> u8 {
    debug_assert!(len > 0 && within + len <= PAGE);
    let (first, last) = (within / SECTOR, (within + len - 1) / SECTOR);
    let below_end = (1u16 << (last + 1)) - 1;
    let below_first = (1u16 << first) - 1;
    (below_end & !below_first) as u8
}
