//! Asynchronous requests to a device: their thread submits them, does other work, and collects
//! completions now and then.
//!
//! A request owns its buffer, and the queue owns the request until it is done, so an abandoned
//! request never uses freed memory. Dropping a queue waits for the requests in flight, which have
//! no order: if two of them touch the same block and one is a write, either result is possible. A
//! completed write is visible, and [`BlockDevice::sync`](super::BlockDevice::sync) makes it
//! durable: a sync covers the writes that were reported as done before it began.

use crate::AlignedBuf;
use base::Result;
use std::fmt;

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// From the device into the buffer.
    Read,
    /// From the buffer to the device.
    Write,
}

/// A request to a device.
#[derive(Debug)]
pub struct DeviceRequest {
    /// Identifies the request when it is done.
    pub token: u64,
    /// Read or write.
    pub transfer: Transfer,
    /// Offset on the device: a multiple of [`BLOCK`](super::BLOCK).
    pub offset: u64,
    /// Whole blocks.
    pub buf: AlignedBuf,
}

impl DeviceRequest {
    /// Returns a read of `len` bytes.
    pub fn read(token: u64, offset: u64, len: usize) -> DeviceRequest {
        DeviceRequest { token, transfer: Transfer::Read, offset, buf: AlignedBuf::zeroed(len) }
    }

    /// Returns a write of a whole buffer.
    pub fn write(token: u64, offset: u64, buf: AlignedBuf) -> DeviceRequest {
        DeviceRequest { token, transfer: Transfer::Write, offset, buf }
    }

    /// Completes the request.
    pub(crate) fn done(self, result: Result<()>) -> DeviceDone {
        DeviceDone { token: self.token, transfer: self.transfer, buf: self.buf, result }
    }

    /// Panics unless the request is valid for a device of `device_len` bytes: a bug of the caller.
    pub(crate) fn check(&self, device_len: u64) {
        super::check_write(self.buf.as_slice(), self.offset, device_len);
    }
}

/// A completed request.
#[derive(Debug)]
pub struct DeviceDone {
    /// Token of the request.
    pub token: u64,
    /// Direction of the request.
    pub transfer: Transfer,
    /// Its buffer, which holds the data of a read.
    pub buf: AlignedBuf,
    /// The error that the blocking call would have returned. After a failed write the blocks may
    /// hold anything.
    pub result: Result<()>,
}

/// How a queue learns of completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completions {
    /// The caller polls the device; there are no interrupts.
    Polled,
    /// The device interrupts, and the kernel records the completion.
    Interrupts,
    /// There is only the caller: a request is done during a call of the queue, one at a time.
    Caller,
    /// Simulated time passes.
    Simulated,
}

/// Queue of one thread's asynchronous requests to a device; see the module.
///
/// ```
/// use lavastore_io::{AlignedBuf, BLOCK, Completions, DeviceRequest, sim::SimEnv};
/// let machine = SimEnv::new(1);
/// let device = machine.device("/disk", 64 * BLOCK as u64)?;
/// let mut queue = device.clone().queue(Completions::Polled)?;
/// queue.submit(DeviceRequest::write(7, 0, AlignedBuf::zeroed(BLOCK)));
/// queue.submit(DeviceRequest::read(8, 4 * BLOCK as u64, 2 * BLOCK));
/// let mut done = Vec::new();
/// while queue.in_flight() > 0 {
///     queue.wait(&mut done);
/// }
/// assert!(done.iter().all(|request| request.result.is_ok()));
/// device.sync()?;
/// # base::Result::<()>::Ok(())
/// ```
pub trait DeviceQueue: Send + fmt::Debug {
    /// Begins a request without waiting. It goes to the device at the latest with the next check
    /// for completions.
    ///
    /// # Panics
    /// If the request does not consist of whole blocks of the device.
    fn submit(&mut self, request: DeviceRequest);

    /// Adds the completed requests to `done`, without waiting.
    fn poll(&mut self, done: &mut Vec<DeviceDone>);

    /// As [`DeviceQueue::poll`], but if none is complete and some are in flight, waits for one.
    fn wait(&mut self, done: &mut Vec<DeviceDone>);

    /// Returns the number of requests submitted and not yet reported as done.
    fn in_flight(&self) -> usize;

    /// Returns how the queue learns of completions, which may differ from the requested way.
    fn completions(&self) -> Completions;
}
