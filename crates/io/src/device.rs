//! A block device: what a file system in this process stands on.
//!
//! Addressed in bytes, transferred in blocks of [`BLOCK`] bytes. A write names whole blocks and its memory begins at a
//! page, as direct I/O demands (take it from an [`AlignedBuf`](crate::AlignedBuf)); a read may ask for any
//! range. Two make them:
//! [`crate::kernel::device`] (a raw device, or an image file) and [`crate::sim::SimEnv::device`].
//!
//! # What is promised
//!
//! * A plain write is visible to later reads at once. A crash may lose it, reorder it with others, or tear it between
//!   two sectors of 512 bytes, until [`BlockDevice::sync`] has returned.
//! * A durable write covers itself alone.
//! * After a failed sync or durable write nobody knows what of the earlier writes is on the media, and a second sync
//!   may succeed and mean nothing. It is never retried: the file system above stops acknowledging.
//! * A request of a [`queue`] is a plain read or write that happens at some moment before it is told as done.
//! * A discarded range reads as zeros, as its old bytes, or as a mixture, until it is written again.
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
    /// Where on the device: a multiple of [`BLOCK`].
    pub offset: u64,
    /// Whole blocks that begin at a page of memory.
    pub data: &'a [u8],
}

/// A block device.
pub trait BlockDevice: Send + Sync + fmt::Debug {
    /// Its size, bytes: as it was when it was opened, or is since it was [measured](Self::measure) again.
    fn len(&self) -> u64;
    /// Looks how long it is now, in whole blocks. If that is more than before, its size is that from now on. The size of one that has become
    /// shorter stays what it was, and what is asked for behind its end fails.
    ///
    /// The new length of an image is durable with the next [`BlockDevice::sync`].
    fn measure(&self) -> Result<u64>;
    /// True if it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// A queue for requests that nobody waits for. [`Completions::Polled`] is what it is asked for where it may keep a processor busy; it
    /// says which way it has got.
    fn queue(self: Arc<Self>, completions: Completions) -> Result<Box<dyn DeviceQueue>>;
    /// Fills `buf` from `offset`, neither of which need be aligned.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;
    /// Fills many buffers, with as many reads in flight as the engine allows.
    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        requests.iter_mut().try_for_each(|r| self.read_at(r.buf, r.offset))
    }
    /// Writes blocks without making them durable.
    fn write_at(&self, data: &[u8], offset: u64) -> Result<()>;
    /// Writes many runs of blocks, in no particular order. After an error any of them may have been written.
    fn write_batch(&self, writes: &[DeviceWrite<'_>]) -> Result<()> {
        writes.iter().try_for_each(|w| self.write_at(w.data, w.offset))
    }
    /// Writes blocks, and returns when these (and only these) are on stable media.
    fn write_durable(&self, data: &[u8], offset: u64) -> Result<()>;
    /// Makes all earlier writes durable.
    fn sync(&self) -> Result<()>;
    /// Tells the device that the blocks hold nothing of worth. `Unsupported` where it cannot be told.
    fn discard(&self, offset: u64, len: u64) -> Result<()>;
    /// Writes any range, so that it survives the process and not the power: through the page cache, where there is one.
    /// Reads see it. What is written to the same block in another way at the same time may be lost.
    fn write_scratch(&self, data: &[u8], offset: u64) -> std::result::Result<(), PartialWrite>;
    /// The path it was opened by.
    fn path(&self) -> &Path;
}

/// The bytes of the whole blocks that so many bytes are.
pub(crate) fn whole(len: u64) -> u64 {
    len / BLOCK as u64 * BLOCK as u64
}

/// Panics unless a write may go to a device of `len` bytes: a bug of the caller.
pub(crate) fn check_write(data: &[u8], offset: u64, len: u64) {
    let aligned = offset.is_multiple_of(BLOCK as u64)
        && data.len().is_multiple_of(BLOCK)
        && (data.is_empty() || (data.as_ptr() as usize).is_multiple_of(BLOCK));
    assert!(aligned, "a write of {} bytes at {offset} is not in whole, aligned blocks", data.len());
    check_range(data, offset, len);
}

/// Panics unless a device of `len` bytes has room for a write there: a bug of the caller.
pub(crate) fn check_range(data: &[u8], offset: u64, len: u64) {
    let fits = offset.checked_add(data.len() as u64).is_some_and(|end| end <= len);
    assert!(fits, "a write of {} bytes at {offset} past the end of a device of {len} bytes", data.len());
}

/// Panics unless `[offset, offset + len)` are blocks of a device of `device_len` bytes: a bug of the caller.
pub(crate) fn check_blocks(offset: u64, len: u64, device_len: u64) {
    let aligned = offset.is_multiple_of(BLOCK as u64) && len.is_multiple_of(BLOCK as u64);
    let fits = offset.checked_add(len).is_some_and(|end| end <= device_len);
    assert!(aligned && fits, "{len} bytes at {offset} are not blocks of a device of {device_len} bytes");
}
