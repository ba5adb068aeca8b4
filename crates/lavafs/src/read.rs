//! Positional reads of files.
//!
//! The extents of a file are in memory. A read issues one device request per extent in its range.
//! With a page cache ([`crate::pages`]), short reads first look there. Missing pages are read in
//! whole blocks, with one request for adjacent blocks.

use crate::core::{OpenFileState, ReadView};
use crate::layout::{self, BLOCK};
use crate::pages::{LONG, PageCache, PageKey, Ticket};
use crate::volume::{Volume, count};
use base::{Error, Result};
use io::{AlignedBuf, ReadFile, ReadRequest};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct LavaReadFile {
    pub volume: Arc<Volume>,
    pub live: Arc<OpenFileState>,
    pub path: PathBuf,
}

/// Rejects a range beyond the readable part of the file.
fn check_range(live: &OpenFileState, view: &ReadView, path: &Path, (offset, len): (u64, u64)) -> Result<()> {
    if offset.checked_add(len).is_some_and(|end| end <= view.readable) {
        return Ok(());
    }
    let (size, readable) = (live.size(), view.readable);
    let why = format!(
        "a read of {len} bytes at this offset ends past the file's {size} bytes (blocks for {readable} bytes): \
         the file was cut off, or the bytes that name this place are damaged"
    );
    Err(Error::corruption(why).at_file(path).at_offset(offset))
}

/// Reads from an open file into buffers.
pub(crate) fn read(
    volume: &Volume,
    live: &OpenFileState,
    path: &Path,
    requests: &mut [ReadRequest<'_>],
) -> Result<()> {
    let view = live.view();
    let mut wanted = Vec::with_capacity(requests.len());
    for request in requests.iter_mut() {
        let (offset, len) = (request.offset, request.buf.len() as u64);
        check_range(live, &view, path, (offset, len))?;
        let pieces = layout::pieces(&view.extents, offset, len);
        for (now, offset) in layout::cut_mut(&pieces, request.buf) {
            match offset {
                Some(offset) => wanted.push(ReadRequest { offset, buf: now }),
                None => now.fill(0),
            }
        }
        count(&volume.counters.read_bytes, len);
    }
    read_device(volume, path, &mut wanted)
}

fn read_device(volume: &Volume, path: &Path, wanted: &mut [ReadRequest<'_>]) -> Result<()> {
    match wanted {
        [] => Ok(()),
        [one] => volume.device.read_at(one.buf, one.offset),
        many => volume.device.read_batch(many),
    }
    .map_err(|e| e.context(format!("while reading {}", path.display())))
}

/// Requested page that is not in the cache.
struct Missing<'b> {
    key: PageKey,
    ticket: Ticket,
    /// Device offset of the block, in bytes.
    offset: u64,
    /// Start of the requested bytes in the block, and their destination.
    skip: usize,
    into: &'b mut [u8],
}

/// Same as [`read`], through a page cache.
fn read_through(
    (volume, pages): (&Volume, &PageCache),
    live: &OpenFileState,
    path: &Path,
    requests: &mut [ReadRequest<'_>],
) -> Result<()> {
    // The view prevents the reuse of the blocks until the pages are in the cache.
    let view = live.view();
    let mut missing = Vec::new();
    for request in requests.iter_mut() {
        let (mut at, len) = (request.offset, request.buf.len() as u64);
        check_range(live, &view, path, (at, len))?;
        let pieces = layout::pieces(&view.extents, at, len);
        for (now, place) in layout::cut_mut(&pieces, request.buf) {
            let end = at + now.len() as u64;
            match place {
                Some(place) => look_up(pages, (live.ino, at), (place, now), &mut missing),
                None => now.fill(0),
            }
            at = end;
        }
        count(&volume.counters.read_bytes, len);
    }
    read_missing((volume, pages), path, missing)
}

/// Copies the cached pages of a piece and adds the others to `missing`. The piece begins at file
/// offset `at` and at device offset `place`.
fn look_up<'b>(
    pages: &PageCache,
    (ino, mut at): (u64, u64),
    (mut place, mut left): (u64, &'b mut [u8]),
    missing: &mut Vec<Missing<'b>>,
) {
    while !left.is_empty() {
        let skip = (at % BLOCK) as usize;
        let (into, rest) = left.split_at_mut(left.len().min(BLOCK as usize - skip));
        let (n, offset) = (into.len() as u64, place - skip as u64);
        let key = PageKey { ino, block: at / BLOCK };
        match pages.look_up(key) {
            Ok(page) => into.copy_from_slice(&page[skip..skip + into.len()]),
            Err(ticket) => missing.push(Missing { key, ticket, offset, skip, into }),
        }
        (at, place, left) = (at + n, place + n, rest);
    }
}

/// Reads missing pages from the device, adjacent ones together, and inserts them into the cache.
fn read_missing(
    (volume, pages): (&Volume, &PageCache),
    path: &Path,
    mut missing: Vec<Missing<'_>>,
) -> Result<()> {
    let mut all = AlignedBuf::zeroed(missing.len() * BLOCK as usize);
    let (mut wanted, mut rest) = (Vec::new(), all.as_mut_slice());
    for run in missing.chunk_by(|a, b| a.offset + BLOCK == b.offset) {
        let (buf, later) = rest.split_at_mut(run.len() * BLOCK as usize);
        wanted.push(ReadRequest { offset: run[0].offset, buf });
        rest = later;
    }
    read_device(volume, path, &mut wanted)?;
    for (page, m) in all.as_slice().chunks_exact(BLOCK as usize).zip(&mut missing) {
        m.into.copy_from_slice(&page[m.skip..m.skip + m.into.len()]);
        pages.put(m.key, page, m.ticket);
    }
    Ok(())
}

impl ReadFile for LavaReadFile {
    fn len(&self) -> Result<u64> {
        Ok(self.live.size())
    }

    fn readable_len(&self) -> Result<u64> {
        Ok(self.live.view().readable)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.read_batch(&mut [ReadRequest { offset, buf }])
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        match &self.volume.pages {
            Some(pages) if requests.iter().all(|request| request.buf.len() <= LONG) => {
                read_through((&self.volume, pages), &self.live, &self.path, requests)
            }
            _ => read(&self.volume, &self.live, &self.path, requests),
        }
    }

    fn path(&self) -> &Path {
        &self.path
    }
}
