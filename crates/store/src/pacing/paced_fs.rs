//! The file system of a store's data files: splits and counts background I/O, and times foreground
//! reads.
//!
//! Data files are tables, value files, and the files of other engines. All other I/O passes
//! unchanged: other threads wait for log and manifest writes, which are short. Each of two disks
//! has its own limiter. On the fast tier durable log writes are timed like foreground reads,
//! because they compete with other work there.

use super::traffic;
use super::{IoLimiter, PIECE_BYTES, Traffic, WRITE_PIECE_BYTES};
use crate::descriptors::Descriptors;
use crate::names::{self, FileKind};
use base::Result;
use io::{
    Access, AlignedBuf, AppendFile, CreateOptions, DirEntry, FileLock, FileRead, FileSystem, FsSpace,
    InPlaceFile, Metadata, PacedFile, ReadBegun, ReadConcurrencyLimiter, ReadCosts, ReadFile, ReadRequest,
    ScratchFile, SyncKind, Tiers, UnlimitedReadKind,
};
use std::path::Path;
use std::sync::Arc;

/// The file system: see the module.
#[derive(Debug)]
pub struct PacedFs {
    /// The underlying file system.
    pub inner: Arc<dyn FileSystem>,
    /// The limiter.
    pub pace: Arc<IoLimiter>,
    /// Caches of open files, which close idle files for a descriptor.
    pub descriptors: Arc<Descriptors>,
}

fn kind_of(path: &Path) -> Option<FileKind> {
    path.file_name().and_then(|name| name.to_str()).and_then(names::parse)
}

impl PacedFs {
    /// Returns the limiter of a data file's disk. `None`: not a data file.
    fn pace_of(&self, path: &Path) -> Option<Arc<IoLimiter>> {
        let is_data = |kind: &FileKind| kind.data().is_some() || matches!(kind, FileKind::Engine { .. });
        let kind = kind_of(path).filter(is_data)?;
        let speed = self.pace.of_fast_tier().filter(|_| kind.is_on_fast_tier());
        Some(speed.unwrap_or(&self.pace).clone())
    }

    /// Wraps a log group so that its writes are timed, if it is on the fast tier beside other work.
    fn timed(&self, path: &Path, inner: Arc<dyn InPlaceFile>) -> Arc<dyn InPlaceFile> {
        match self.pace.of_fast_tier() {
            Some(pace) if matches!(kind_of(path), Some(FileKind::Log(_))) => {
                Arc::new(TimedLog { inner, pace: pace.clone() })
            }
            _ => inner,
        }
    }
}

impl FileSystem for PacedFs {
    fn create(&self, path: &Path, options: &CreateOptions) -> Result<Box<dyn AppendFile>> {
        let create = |options: &CreateOptions| self.descriptors.with_one(|| self.inner.create(path, options));
        let Some(pace) = self.pace_of(path) else { return create(options) };
        let mut options = *options;
        // On the disk of the log, pieces are short even if the log is idle now.
        let beside_log = self.pace.of_fast_tier().is_some_and(|speed| Arc::ptr_eq(speed, &pace));
        let piece_len = if beside_log { PIECE_BYTES } else { WRITE_PIECE_BYTES };
        if traffic::now().is_some() && !pace.is_off() {
            options.write_buffer_len = options.write_buffer_len.min(piece_len);
            // Writeback of the page cache is split too.
            options.sync_every = options.sync_every.min(piece_len as u64);
        }
        let inner = create(&options)?;
        Ok(Box::new(PacedAppend { inner, pace, piece_len, unbooked: None }))
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn ReadFile>> {
        let inner = self.descriptors.with_one(|| self.inner.open(path, access))?;
        Ok(match self.pace_of(path) {
            Some(pace) => Arc::new(PacedRead { inner, pace }),
            None => inner,
        })
    }

    fn create_in_place(&self, path: &Path, len: u64, access: Access) -> Result<Arc<dyn InPlaceFile>> {
        let create = || self.inner.create_in_place(path, len, access);
        Ok(self.timed(path, self.descriptors.with_one(create)?))
    }

    fn create_in_place_unzeroed(
        &self,
        path: &Path,
        len: u64,
        access: Access,
    ) -> Result<Arc<dyn InPlaceFile>> {
        let create = || self.inner.create_in_place_unzeroed(path, len, access);
        Ok(self.timed(path, self.descriptors.with_one(create)?))
    }

    fn open_in_place(&self, path: &Path, access: Access) -> Result<Arc<dyn InPlaceFile>> {
        let open = || self.inner.open_in_place(path, access);
        Ok(self.timed(path, self.descriptors.with_one(open)?))
    }

    fn create_scratch(&self, path: &Path, len: usize) -> Result<Arc<dyn ScratchFile>> {
        self.descriptors.with_one(|| self.inner.create_scratch(path, len))
    }

    fn read_all(&self, path: &Path, limit: usize) -> Result<Vec<u8>> {
        self.descriptors.with_one(|| self.inner.read_all(path, limit))
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
        self.descriptors.with_one(|| self.inner.punch_hole(path, offset, len))
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        self.descriptors.with_one(|| self.inner.list(dir))
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
        self.descriptors.with_one(|| self.inner.sync_dir(dir))
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

    fn open_files_limit(&self) -> Option<u64> {
        self.inner.open_files_limit()
    }

    fn scan_extent_tail(&self, path: &Path) -> Result<u64> {
        self.inner.scan_extent_tail(path)
    }

    fn disks(&self, dir: &Path) -> Option<Tiers> {
        self.inner.disks(dir)
    }
}

/// A data file being written.
struct PacedAppend {
    inner: Box<dyn AppendFile>,
    pace: Arc<IoLimiter>,
    piece_len: usize,
    /// Appended background bytes that are not yet accounted.
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
            let room = self.piece_len - (self.inner.len() % self.piece_len as u64) as usize;
            let (now, later) = data.split_at(room.min(data.len()));
            let (inner, pace, piece_len) = (&mut self.inner, &self.pace, self.piece_len as u64);
            // Filling up a piece writes it.
            match now.len() == room {
                // With foreground readers one piece is in flight while the next is built.
                true if pace.in_pieces() => pace.pass(traffic, 1, |_| {
                    pace.waited(piece_len, || inner.append(now).and_then(|()| inner.wait_for_writes(1)))
                })?,
                true => pace.waited(piece_len, || inner.append(now))?,
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

    fn wait_for_writes(&mut self, most: usize) -> Result<()> {
        self.inner.wait_for_writes(most)
    }

    fn sync(&mut self, kind: SyncKind) -> Result<()> {
        if traffic::now().is_none() {
            return self.inner.sync(kind);
        }
        let (rest, inner) = (self.inner.len() % self.piece_len as u64, &mut self.inner);
        self.pace.waited(rest, || inner.sync(kind))
    }
}

impl Drop for PacedAppend {
    fn drop(&mut self) {
        self.book();
    }
}

/// A data file being read.
#[derive(Debug)]
struct PacedRead {
    inner: Arc<dyn ReadFile>,
    pace: Arc<IoLimiter>,
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
            // Long reads take longer, so they are not timed.
            return match buf.len() <= PIECE_BYTES {
                true => self.pace.timed(buf.len(), || inner.read_at(buf, offset)),
                false => self.pace.counted(1, buf.len() as u64, || inner.read_at(buf, offset)),
            };
        };
        let len = buf.len() as u64;
        self.pace.book(traffic, len);
        if !self.pace.in_pieces() {
            return self.pace.read(1, len, || inner.read_at(buf, offset));
        }
        if buf.len() <= PIECE_BYTES {
            return self.pace.pass(traffic, 1, |_| self.pace.read(1, len, || inner.read_at(buf, offset)));
        }
        let mut pieces = Pieces::default();
        pieces.cut(offset, buf, |offset, buf| ReadRequest { offset, buf });
        self.pace.pass_all(traffic, &mut pieces.0, |some| inner.read_batch(some))
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        let (count, len) = (requests.len(), requests.iter().map(|r| r.buf.len() as u64).sum());
        let Some(traffic) = traffic::now() else {
            return self.pace.counted(count, len, || self.inner.read_batch(requests));
        };
        self.pace.book(traffic, len);
        if !self.pace.in_pieces() {
            return self.pace.read(count, len, || self.inner.read_batch(requests));
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

impl ReadConcurrencyLimiter for IoLimiter {
    fn read_files(
        &self,
        reads: &mut [FileRead<'_>],
        read: &dyn Fn(&mut [FileRead<'_>]) -> Result<()>,
    ) -> Result<()> {
        let (count, len) = (reads.len(), reads.iter().map(|r| r.buf.len() as u64).sum());
        let Some(traffic) = traffic::now() else { return self.counted(count, len, || read(reads)) };
        self.book(traffic, len);
        if !self.in_pieces() {
            return self.read(count, len, || read(reads));
        }
        let mut pieces = Pieces::default();
        for one in reads {
            let file = one.file;
            pieces.cut(one.offset, &mut *one.buf, |offset, buf| FileRead { file, offset, buf });
        }
        self.pass_all(traffic, &mut pieces.0, read)
    }

    /// Background reads run on their own only without piecewise I/O. A piece holds its slot until
    /// its end is noticed. Its thread might do something else before, and wait for that very slot.
    /// Background reads of two disks wait for each disk in turn, because each has its own limiter.
    fn begin_unlimited(&self, what: UnlimitedReadKind, reads: usize, bytes: u64) -> bool {
        match (what, traffic::now()) {
            (UnlimitedReadKind::OtherDisk, None) => {}
            (UnlimitedReadKind::OtherWork, Some(traffic)) if !self.in_pieces() => self.book(traffic, bytes),
            _ => return false,
        }
        if !self.is_off() {
            self.cost.begin_unlimited(self.clock.now_ns(), reads as u64);
        }
        true
    }

    fn end_unlimited(&self, what: UnlimitedReadKind, reads: usize) {
        if self.is_off() {
            return;
        }
        self.cost.end_unlimited(reads as u64);
        if what == UnlimitedReadKind::OtherWork {
            self.depth.works(self.clock.now_ns());
        }
    }

    fn waited_for(&self, bytes: u64, waited_ns: u64) {
        self.depth.works(self.clock.now_ns());
        self.load.worked(bytes, waited_ns);
    }

    fn read_begins(&self, len: usize) -> Option<ReadBegun> {
        let now_ns = (!self.is_off()).then(|| self.clock.now_ns())?;
        self.cost.begins(now_ns, 1, len as u64);
        Some(self.depth.read_begins(now_ns))
    }

    fn read_ends(&self, read: ReadBegun) {
        let now_ns = self.clock.now_ns();
        self.cost.ends(now_ns, 1);
        self.load.read(now_ns.saturating_sub(read.at_ns));
        self.depth.read_ends(read, now_ns);
    }

    fn costs(&self) -> ReadCosts {
        self.cost.get()
    }
}

/// A read with a length.
trait Piece {
    fn len(&self) -> u64;
}

impl Piece for ReadRequest<'_> {
    fn len(&self) -> u64 {
        self.buf.len() as u64
    }
}

impl Piece for FileRead<'_> {
    fn len(&self) -> u64 {
        self.buf.len() as u64
    }
}

/// A log group on the fast tier beside other work.
#[derive(Debug)]
struct TimedLog {
    inner: Arc<dyn InPlaceFile>,
    pace: Arc<IoLimiter>,
}

impl InPlaceFile for TimedLog {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn block_len(&self) -> usize {
        self.inner.block_len()
    }

    fn write_at(&self, data: &AlignedBuf, offset: u64) -> Result<()> {
        self.inner.write_at(data, offset)
    }

    fn write_durable(&self, data: &AlignedBuf, offset: u64) -> Result<()> {
        self.pace.logs(&*self.inner, data, offset)
    }

    fn sync_data(&self) -> Result<()> {
        self.inner.sync_data()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.inner.read_at(buf, offset)
    }

    fn path(&self) -> &Path {
        self.inner.path()
    }
}

/// Reads of at most one piece each.
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

impl IoLimiter {
    /// Runs a foreground read.
    fn timed<T>(&self, len: usize, read: impl FnOnce() -> T) -> T {
        let begun = self.read_begins(len);
        let out = read();
        begun.into_iter().for_each(|begun| self.read_ends(begun));
        out
    }

    /// Runs reads that are in flight together.
    fn counted<T>(&self, count: usize, bytes: u64, read: impl FnOnce() -> T) -> T {
        if self.is_off() || count == 0 {
            return read();
        }
        self.cost.begins(self.clock.now_ns(), count as u64, bytes);
        let out = read();
        self.cost.ends(self.clock.now_ns(), count as u64);
        out
    }

    /// Runs background reads that are in flight together, and accounts the wait for them.
    fn read<T>(&self, count: usize, bytes: u64, read: impl FnOnce() -> T) -> T {
        self.waited(bytes, || self.counted(count, bytes, read))
    }

    /// Runs all reads, as many at once as allowed.
    fn pass_all<R>(
        &self,
        traffic: Traffic,
        mut pieces: &mut [R],
        read: impl Fn(&mut [R]) -> Result<()>,
    ) -> Result<()>
    where
        R: Piece,
    {
        while !pieces.is_empty() {
            let rest = std::mem::take(&mut pieces);
            let done = self.pass(traffic, rest.len(), |n| {
                let (now, later) = rest.split_at_mut(n.min(rest.len()));
                pieces = later;
                self.read(now.len(), now.iter().map(Piece::len).sum(), || read(now))
            });
            done?;
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
