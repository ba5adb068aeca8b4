//! Files read at offsets.
//!
//! A batch goes to the ring whole. A buffer that direct access cannot fill is replaced by an
//! aligned one of the pool and copied afterwards. Plain reads finish the incomplete reads of the
//! ring (end of the file, interruption, refusal), so both engines give the same bytes and the same
//! errors.

use super::calls;
use super::handle::{Handle, covering_pages, is_aligned, must_be_plain};
use super::pool::BufPool;
use super::queue::RingQueue;
use super::uring::{Read, RingPool, TransferOutcome};
use crate::{Access, AlignedBuf, ReadFile, ReadRequest};
use base::Result;
use rustix::fd::AsFd;
use rustix::fs::{Advice, OFlags};
use std::fmt;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;

/// Requests handed to a ring together; bounds the aligned buffers that a batch holds at once.
const BATCH_MAX: usize = 512;

/// State shared by the files of one environment.
pub(super) struct Engine {
    pub(super) pool: BufPool,
    pub(super) rings: Option<RingPool>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.rings.is_some() { "io_uring" } else { "portable" })
    }
}

#[derive(Debug)]
pub(crate) struct KernelReadFile {
    handle: Handle,
    engine: Arc<Engine>,
}

/// An aligned buffer in place of the buffer of a request, and the position of the request in it.
pub(super) struct Bounce {
    pub(super) buf: AlignedBuf,
    pub(super) start: u64,
    skipped: usize,
}

impl KernelReadFile {
    pub(super) fn open(path: &Path, access: Access, engine: &Arc<Engine>) -> Result<Self> {
        must_be_plain(path)?;
        let handle = Handle::open("cannot open a file", path, OFlags::RDONLY, access)?;
        Ok(KernelReadFile { handle, engine: engine.clone() })
    }

    /// Returns a file of a handle that is open at least for reading.
    pub(super) fn of(handle: Handle, engine: Arc<Engine>) -> Self {
        KernelReadFile { handle, engine }
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(super) fn bounce(&self, buf: &[u8], offset: u64) -> Option<Bounce> {
        if !self.handle.is_direct() || is_aligned(buf, offset) {
            return None;
        }
        self.pages(offset, buf.len())
    }

    /// Returns a buffer for the pages of a direct read, for any target buffer.
    pub(super) fn pages(&self, offset: u64, len: usize) -> Option<Bounce> {
        let (start, span) = self.handle.is_direct().then(|| covering_pages(offset, len))?;
        Some(Bounce { buf: self.engine.pool.take(span), start, skipped: (offset - start) as usize })
    }

    /// Returns true if rings are available.
    pub(super) fn has_rings(&self) -> bool {
        self.engine.rings.is_some()
    }

    /// Returns a ring for asynchronous reads, if one is available.
    pub(crate) fn queue(&self) -> Option<RingQueue> {
        self.has_rings().then(|| RingQueue::new().ok()).flatten()
    }

    /// Finishes a read of a ring, which read the first `done` bytes, and fills `buf`.
    pub(super) fn finish(
        &self,
        buf: &mut [u8],
        offset: u64,
        bounce: Option<Bounce>,
        done: usize,
    ) -> Result<()> {
        let len = buf.len();
        let asked = offset..offset + len as u64;
        match bounce {
            None => self.handle.fill(buf, offset, done, asked),
            Some(Bounce { buf: mut aligned, start, skipped }) => {
                let filled = self.handle.fill(aligned.as_mut_slice(), start, done, asked);
                if filled.is_ok() {
                    buf.copy_from_slice(&aligned.as_slice()[skipped..skipped + len]);
                }
                self.engine.pool.put(aligned);
                filled
            }
        }
    }

    /// As `finish`, for whole pages: returns a copy of the requested bytes.
    pub(super) fn finish_pages(
        &self,
        (offset, len): (u64, usize),
        pages: Bounce,
        done: usize,
    ) -> Result<Arc<[u8]>> {
        let Bounce { buf: mut aligned, start, skipped } = pages;
        let filled = self.handle.fill(aligned.as_mut_slice(), start, done, offset..offset + len as u64);
        let read = filled.map(|()| Arc::from(&aligned.as_slice()[skipped..skipped + len]));
        self.engine.pool.put(aligned);
        read
    }

    /// Reads several files together.
    pub(crate) fn read_across(reads: &mut [OfFile<'_, '_>]) -> Result<()> {
        // Any engine will do: rings and buffers do not belong to files.
        let rings =
            reads.first().and_then(|(file, _)| file.engine.rings.as_ref()).filter(|_| reads.len() > 1);
        let Some(rings) = rings else {
            return reads.iter_mut().try_for_each(|(file, r)| file.read_at(r.buf, r.offset));
        };
        reads.iter().try_for_each(|(file, r)| file.handle.check_range(r.offset, r.buf.len()))?;
        reads.chunks_mut(BATCH_MAX).try_for_each(|chunk| read_through(rings, chunk))
    }
}

/// A request and its file.
type OfFile<'f, 'b> = (&'f KernelReadFile, ReadRequest<'b>);

fn read_through(rings: &RingPool, requests: &mut [OfFile<'_, '_>]) -> Result<()> {
    let mut bounces: Vec<Option<Bounce>> =
        requests.iter().map(|(file, r)| file.bounce(r.buf, r.offset)).collect();
    let mut reads: Vec<Read<'_>> = requests
        .iter_mut()
        .zip(&mut bounces)
        .map(|((file, request), bounce)| {
            let fd = file.handle.fd.as_fd();
            match bounce {
                Some(b) => Read { fd, offset: b.start, buf: b.buf.as_mut_slice() },
                None => Read { fd, offset: request.offset, buf: &mut *request.buf },
            }
        })
        .collect();
    let outcomes = rings.read_many(&mut reads);
    drop(reads);
    let mut result = Ok(());
    for (((file, request), bounce), outcome) in requests.iter_mut().zip(bounces).zip(outcomes) {
        let done = match outcome {
            TransferOutcome::Done(n) => n,
            TransferOutcome::NotRun | TransferOutcome::Failed(_) => 0,
        };
        result = result.and(file.finish(request.buf, request.offset, bounce, done));
    }
    result
}

impl ReadFile for KernelReadFile {
    fn len(&self) -> Result<u64> {
        self.handle.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.handle.read_exact_at(&self.engine.pool, buf, offset)
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        let own = requests.iter_mut().map(|r| (self, ReadRequest { offset: r.offset, buf: &mut *r.buf }));
        Self::read_across(&mut own.collect::<Vec<_>>())
    }

    fn will_need(&self, offset: u64, len: u64) {
        if let (false, Some(len)) = (self.handle.is_direct(), NonZeroU64::new(len)) {
            // A hint: without it the read itself waits for the device.
            calls::fadvise(&self.handle.fd, offset, Some(len), Advice::WillNeed);
        }
    }

    fn path(&self) -> &Path {
        &self.handle.path
    }
}
