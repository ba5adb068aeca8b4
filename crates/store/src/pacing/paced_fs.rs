//! The file system through which a store reaches its files of data: background work comes in pieces and is counted, reads in the
//! foreground are timed.
//!
//! Files of data are tables, files of values, and those of other engines. Everything else passes as it is: who writes the log or the
//! manifest has others waiting for him, and writes little.

use super::traffic;
use super::{PIECE_BYTES, Pace, Traffic, WRITE_PIECE_BYTES};
use crate::names::{self, FileKind};
use base::Result;
use io::{
    Access, AppendFile, CreateOptions, DirEntry, Disks, FileLock, FileRead, FileSystem, FsSpace, InPlaceFile,
    Metadata, PacedFile, PendingSync, ReadBegun, ReadFile, ReadPace, ReadRequest, ScratchFile, SyncKind,
};
use std::path::Path;
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub struct PacedFs {
    /// What does it.
    pub inner: Arc<dyn FileSystem>,
    /// What decides when.
    pub pace: Arc<Pace>,
}

/// True for tables, files of values, and what other engines keep.
fn is_data(path: &Path) -> bool {
    let kind = path.file_name().and_then(|name| name.to_str()).and_then(names::parse);
    kind.is_some_and(|kind| kind.data().is_some() || matches!(kind, FileKind::Engine { .. }))
}

impl FileSystem for PacedFs {
    fn create(&self, path: &Path, options: &CreateOptions) -> Result<Box<dyn AppendFile>> {
        if !is_data(path) {
            return self.inner.create(path, options);
        }
        let mut options = *options;
        if traffic::now().is_some() && !self.pace.is_off() {
            options.write_buffer_len = options.write_buffer_len.min(WRITE_PIECE_BYTES);
            // What the page cache writes back comes in pieces, too.
            options.sync_every = options.sync_every.min(WRITE_PIECE_BYTES as u64);
        }
        let inner = self.inner.create(path, &options)?;
        Ok(Box::new(PacedAppend { inner, pace: self.pace.clone(), unbooked: None }))
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn ReadFile>> {
        let inner = self.inner.open(path, access)?;
        if !is_data(path) {
            return Ok(inner);
        }
        Ok(Arc::new(PacedRead { inner, pace: self.pace.clone() }))
    }

    fn create_in_place(&self, path: &Path, len: u64, access: Access) -> Result<Arc<dyn InPlaceFile>> {
        self.inner.create_in_place(path, len, access)
    }

    fn create_in_place_unzeroed(
        &self,
        path: &Path,
        len: u64,
        access: Access,
    ) -> Result<Arc<dyn InPlaceFile>> {
        self.inner.create_in_place_unzeroed(path, len, access)
    }

    fn open_in_place(&self, path: &Path, access: Access) -> Result<Arc<dyn InPlaceFile>> {
        self.inner.open_in_place(path, access)
    }

    fn create_scratch(&self, path: &Path, len: usize) -> Result<Arc<dyn ScratchFile>> {
        self.inner.create_scratch(path, len)
    }

    fn read_all(&self, path: &Path, limit: usize) -> Result<Vec<u8>> {
        self.inner.read_all(path, limit)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.inner.remove(path)
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.link(from, to)
    }

    fn punch_hole(&self, path: &Path, offset: u64, len: u64) -> Result<()> {
        self.inner.punch_hole(path, offset, len)
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        self.inner.list(dir)
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        self.inner.metadata(path)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.inner.exists(path)
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        self.inner.create_dir_all(dir)
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        self.inner.remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.inner.sync_dir(dir)
    }

    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn FileLock>> {
        self.inner.lock(path, holder)
    }

    fn lock_to_read(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.inner.lock_to_read(path)
    }

    fn space(&self, dir: &Path) -> Result<FsSpace> {
        self.inner.space(dir)
    }

    fn scan_extent_tail(&self, path: &Path) -> Result<u64> {
        self.inner.scan_extent_tail(path)
    }

    fn disks(&self, dir: &Path) -> Option<Disks> {
        self.inner.disks(dir)
    }
}

/// A file of data that is written.
struct PacedAppend {
    inner: Box<dyn AppendFile>,
    pace: Arc<Pace>,
    /// What background work has appended and was not booked yet.
    unbooked: Option<(Traffic, u64)>,
}

impl PacedAppend {
    fn book(&mut self) {
        if let Some((traffic, bytes)) = self.unbooked.take() {
            self.pace.book(traffic, bytes);
        }
    }
}

impl AppendFile for PacedAppend {
    fn append(&mut self, mut data: &[u8]) -> Result<()> {
        let Some(traffic) = traffic::now() else { return self.inner.append(data) };
        while !data.is_empty() {
            let room = WRITE_PIECE_BYTES - (self.inner.len() % WRITE_PIECE_BYTES as u64) as usize;
            let (now, later) = data.split_at(room.min(data.len()));
            let inner = &mut self.inner;
            // What fills a piece has it written.
            match now.len() == room && self.pace.in_pieces() {
                true => self.pace.pass(traffic, 1, |_| inner.append(now))?,
                false => inner.append(now)?,
            }
            let before = self.unbooked.map_or(0, |(_, bytes)| bytes);
            self.unbooked = Some((traffic, before + now.len() as u64));
            if now.len() == room {
                self.book();
            }
            data = later;
        }
        Ok(())
    }

    fn reserve(&mut self, len: u64) -> Result<()> {
        self.inner.reserve(len)
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn flush(&mut self) -> Result<()> {
        self.inner.flush()
    }

    fn sync(&mut self, kind: SyncKind) -> Result<()> {
        self.inner.sync(kind)
    }

    fn begin_sync(&mut self) -> Result<Option<PendingSync>> {
        self.inner.begin_sync()
    }

    fn end_sync(&mut self, ran: Result<()>) -> Result<()> {
        self.inner.end_sync(ran)
    }
}

impl Drop for PacedAppend {
    fn drop(&mut self) {
        self.book();
    }
}

/// A file of data that is read.
#[derive(Debug)]
struct PacedRead {
    inner: Arc<dyn ReadFile>,
    pace: Arc<Pace>,
}

impl ReadFile for PacedRead {
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn readable_len(&self) -> Result<u64> {
        self.inner.readable_len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let inner = &self.inner;
        let Some(traffic) = traffic::now() else {
            // What is long takes longer, and says nothing.
            return match buf.len() <= PIECE_BYTES {
                true => self.pace.timed(|| inner.read_at(buf, offset)),
                false => inner.read_at(buf, offset),
            };
        };
        self.pace.book(traffic, buf.len() as u64);
        if !self.pace.in_pieces() {
            return inner.read_at(buf, offset);
        }
        if buf.len() <= PIECE_BYTES {
            return self.pace.pass(traffic, 1, |_| inner.read_at(buf, offset));
        }
        let mut pieces = Pieces::default();
        pieces.cut(offset, buf, |offset, buf| ReadRequest { offset, buf });
        self.pace.pass_all(traffic, &mut pieces.0, |some| inner.read_batch(some))
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        let Some(traffic) = traffic::now() else { return self.inner.read_batch(requests) };
        self.pace.book(traffic, requests.iter().map(|r| r.buf.len() as u64).sum());
        if !self.pace.in_pieces() {
            return self.inner.read_batch(requests);
        }
        let mut pieces = Pieces::default();
        for request in requests {
            pieces.cut(request.offset, &mut *request.buf, |offset, buf| ReadRequest { offset, buf });
        }
        self.pace.pass_all(traffic, &mut pieces.0, |some| self.inner.read_batch(some))
    }

    fn will_need(&self, offset: u64, len: u64) {
        self.inner.will_need(offset, len);
    }

    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn paced(&self) -> Option<PacedFile<'_>> {
        Some(PacedFile { inner: &self.inner, pace: &*self.pace })
    }
}

impl ReadPace for Pace {
    fn read_files(
        &self,
        reads: &mut [FileRead<'_>],
        read: &dyn Fn(&mut [FileRead<'_>]) -> Result<()>,
    ) -> Result<()> {
        let Some(traffic) = traffic::now() else { return read(reads) };
        self.book(traffic, reads.iter().map(|r| r.buf.len() as u64).sum());
        if !self.in_pieces() {
            return read(reads);
        }
        let mut pieces = Pieces::default();
        for one in reads {
            let file = one.file;
            pieces.cut(one.offset, &mut *one.buf, |offset, buf| FileRead { file, offset, buf });
        }
        self.pass_all(traffic, &mut pieces.0, read)
    }

    fn read_begins(&self) -> Option<ReadBegun> {
        (!self.is_off()).then(|| self.depth.read_begins(self.clock.now_ns()))
    }

    fn read_ends(&self, read: ReadBegun) {
        self.depth.read_ends(read, self.clock.now_ns());
    }
}

/// Reads, none longer than a piece.
struct Pieces<R>(Vec<R>);

impl<R> Default for Pieces<R> {
    fn default() -> Self {
        Pieces(Vec::new())
    }
}

impl<'a, R> Pieces<R> {
    fn cut(&mut self, offset: u64, buf: &'a mut [u8], read: impl Fn(u64, &'a mut [u8]) -> R) {
        let mut at = offset;
        for piece in buf.chunks_mut(PIECE_BYTES) {
            let next = at + piece.len() as u64;
            self.0.push(read(at, piece));
            at = next;
        }
    }
}

impl Pace {
    /// Does a read in the foreground.
    fn timed<T>(&self, read: impl FnOnce() -> T) -> T {
        let begun = self.read_begins();
        let out = read();
        begun.into_iter().for_each(|begun| self.read_ends(begun));
        out
    }

    /// Does all of them, as many at once as may be.
    fn pass_all<R>(
        &self,
        traffic: Traffic,
        mut pieces: &mut [R],
        read: impl Fn(&mut [R]) -> Result<()>,
    ) -> Result<()> {
        while !pieces.is_empty() {
            let rest = std::mem::take(&mut pieces);
            let done = self.pass(traffic, rest.len(), |n| {
                let (now, later) = rest.split_at_mut(n.min(rest.len()));
                pieces = later;
                read(now)
            });
            done?;
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
