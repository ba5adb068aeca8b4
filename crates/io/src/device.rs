//! Block devices, the foundation of a file system in this process.
//!
//! Addressed in bytes, transferred in blocks of [`BLOCK`] bytes. A write covers whole blocks, and
//! its memory begins at a page, as direct I/O requires (use an [`AlignedBuf`](crate::AlignedBuf)).
//! A read may cover any range. There are two implementations: [`crate::kernel::device`] (a raw
//! device, or an image file) and [`crate::sim::SimEnv::device`].
//!
//! # Guarantees
//!
//! * A plain write is visible to later reads at once. A crash may lose it, reorder it with others,
//!   or tear it between two sectors of 512 bytes, until [`BlockDevice::sync`] has returned.
//! * A durable write covers only itself.
//! * After a failed sync or durable write it is unknown which earlier writes are on the media, and
//!   a second sync may succeed without meaning. A sync is never retried: the file system above
//!   stops acknowledging.
//! * A request of a [`queue`] is a plain read or write that happens at some moment before its
//!   completion is reported.
//! * A discarded range reads as zeros, as its old bytes, or as a mixture, until it is written
//!   again.
//!
//! All errors name the device.

pub mod queue;

pub use queue::{Completions, DeviceDone, DeviceQueue, DeviceRequest, Transfer};

use crate::{PAGE, PartialWrite, ReadRequest};
use base::Result;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The unit of transfer, bytes.
pub const BLOCK: usize = PAGE;

/// One write of a batch.
#[derive(Clone, Copy, Debug)]
pub struct DeviceWrite<'a> {
    /// Offset on the device: a multiple of [`BLOCK`].
    pub offset: u64,
    /// Whole blocks that begin at a page of memory.
    pub data: &'a [u8],
}

/// A block device.
pub trait BlockDevice: Send + Sync + fmt::Debug {
    /// Returns its size, bytes: as of the open, or of the last [measurement](Self::measure).
    fn len(&self) -> u64;
    /// Measures its present length, in whole blocks. A greater length becomes its size. A device
    /// that has become shorter keeps its size, and requests behind its end fail.
    ///
    /// The new length of an image is durable with the next [`BlockDevice::sync`].
    fn measure(&self) -> Result<u64>;
    /// Returns true if it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns a queue for asynchronous requests. [`Completions::Polled`] is for callers that may
    /// keep a processor busy; the queue reports the mode it got.
    fn queue(self: Arc<Self>, completions: Completions) -> Result<Box<dyn DeviceQueue>>;
    /// Fills `buf` from `offset`; neither needs to be aligned.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;
    /// Fills many buffers, with as many reads in flight as the engine allows.
    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        requests.iter_mut().try_for_each(|r| self.read_at(r.buf, r.offset))
    }
    /// Writes blocks without making them durable.
    fn write_at(&self, data: &[u8], offset: u64) -> Result<()>;
    /// Writes many runs of blocks, in no particular order. After an error any of them may have been
    /// written.
    fn write_batch(&self, writes: &[DeviceWrite<'_>]) -> Result<()> {
        writes.iter().try_for_each(|w| self.write_at(w.data, w.offset))
    }
    /// Writes blocks, and returns when these (and only these) are on stable media.
    fn write_durable(&self, data: &[u8], offset: u64) -> Result<()>;
    /// Makes all earlier writes durable.
    fn sync(&self) -> Result<()>;
    /// Tells the device that the blocks are no longer used. `Unsupported` where this is impossible.
    fn discard(&self, offset: u64, len: u64) -> Result<()>;
    /// Writes any range so that it survives a process crash, but not a power loss: through the page
    /// cache, where there is one. Reads see it. A concurrent write of another kind to the same
    /// block may be lost.
    fn write_scratch(&self, data: &[u8], offset: u64) -> std::result::Result<(), PartialWrite>;
    /// Returns the path it was opened by.
    fn path(&self) -> &Path;
}

/// Rounds a length down to whole blocks.
pub(crate) fn whole(len: u64) -> u64 {
    len / BLOCK as u64 * BLOCK as u64
}

/// Panics unless a write is valid for a device of `len` bytes: a bug of the caller.
pub(crate) fn check_write(data: &[u8], offset: u64, len: u64) {
    let aligned = offset.is_multiple_of(BLOCK as u64)
        && data.len().is_multiple_of(BLOCK)
        && (data.is_empty() || (data.as_ptr() as usize).is_multiple_of(BLOCK));
    assert!(aligned, "a write of {} bytes at {offset} is not in whole, aligned blocks", data.len());
    check_range(data, offset, len);
}

/// Panics unless the write fits a device of `len` bytes: a bug of the caller.
pub(crate) fn check_range(data: &[u8], offset: u64, len: u64) {
    let fits = offset.checked_add(data.len() as u64).is_some_and(|end| end <= len);
    assert!(fits, "a write of {} bytes at {offset} past the end of a device of {len} bytes", data.len());
}

/// Panics unless `[offset, offset + len)` are blocks of a device of `device_len` bytes: a bug of
/// the caller.
pub(crate) fn check_blocks(offset: u64, len: u64, device_len: u64) {
    let aligned = offset.is_multiple_of(BLOCK as u64) && len.is_multiple_of(BLOCK as u64);
    let fits = offset.checked_add(len).is_some_and(|end| end <= device_len);
    assert!(aligned && fits, "{len} bytes at {offset} are not blocks of a device of {device_len} bytes");
}
