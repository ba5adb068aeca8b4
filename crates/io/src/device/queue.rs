//! Requests to a device that go on while their thread does something else: it submits them, goes on, and asks now and then which are done.
//!
//! A request owns its buffer, and the queue owns the request until it is done: whoever loses interest lets go of nothing that the device reads
//! or writes. Dropping a queue waits for what is in flight. Requests in flight are in no order: two of them that touch the same block, of which one
//! is a write, leave or read either. A write that is done is visible, and is made durable by [`BlockDevice::sync`](super::BlockDevice::sync), as any
//! other: a sync covers the writes that were told as done before it began.

use crate::AlignedBuf;
use base::Result;
use std::fmt;

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// From the device into the buffer.
    Read,
    /// From the buffer to the device.
    Write,
}

/// What is asked of a device.
#[derive(Debug)]
pub struct DeviceRequest {
    /// By which it is told apart when it is done.
    pub token: u64,
    /// Read or write.
    pub transfer: Transfer,
    /// Where on the device: a multiple of [`BLOCK`](super::BLOCK).
    pub offset: u64,
    /// Whole blocks.
    pub buf: AlignedBuf,
}

impl DeviceRequest {
    /// A read of `len` bytes.
    pub fn read(token: u64, offset: u64, len: usize) -> DeviceRequest {
        DeviceRequest { token, transfer: Transfer::Read, offset, buf: AlignedBuf::zeroed(len) }
    }

    /// A write of a whole buffer.
    pub fn write(token: u64, offset: u64, buf: AlignedBuf) -> DeviceRequest {
        DeviceRequest { token, transfer: Transfer::Write, offset, buf }
    }

    /// It is done.
    pub(crate) fn done(self, result: Result<()>) -> DeviceDone {
        DeviceDone { token: self.token, transfer: self.transfer, buf: self.buf, result }
    }

    /// Panics unless it may go to a device of so many bytes: a bug of the caller.
    pub(crate) fn check(&self, device_len: u64) {
        super::check_write(self.buf.as_slice(), self.offset, device_len);
    }
}

/// A request that is done.
#[derive(Debug)]
pub struct DeviceDone {
    /// That of the request.
    pub token: u64,
    /// What it was.
    pub transfer: Transfer,
    /// Its buffer: of a read, with what was read.
    pub buf: AlignedBuf,
    /// The error that the blocking call would have given. Of a write anything may have been written then.
    pub result: Result<()>,
}

/// How a queue learns what is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completions {
    /// Whoever asks looks at the device itself, and no interrupt comes.
    Polled,
    /// The device interrupts, and the kernel puts it down.
    Interrupts,
    /// There is nobody but the caller: a request is done while he asks, one at a time.
    Caller,
    /// Simulated time passes.
    Simulated,
}

/// Requests of one thread in flight at a device. See the module.
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
    /// Begins a request, without waiting for anything. It goes to the device with the next look at what is done, at the latest.
    ///
    /// # Panics
    /// If it is not of whole blocks of the device.
    fn submit(&mut self, request: DeviceRequest);

    /// Adds what is done to `done`, without waiting.
    fn poll(&mut self, done: &mut Vec<DeviceDone>);

    /// The same, but if that is nothing, and something is in flight, waits until something is done.
    fn wait(&mut self, done: &mut Vec<DeviceDone>);

    /// Requests that were submitted and not told as done.
    fn in_flight(&self) -> usize;

    /// How it learns what is done, which may be another way than was asked for.
    fn completions(&self) -> Completions;
}
