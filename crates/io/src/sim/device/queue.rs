//! Asynchronous requests to a simulated device, in simulated time.
//!
//! The completion time of a request is known at its submission ([`super::model`]). The disk changes
//! when the request is reported as done, in the order of these times. So a crash before that leaves
//! nothing of it, or a part if that very operation was interrupted, as for any write. A check
//! without a completion takes a moment of the clock, so that a spinning caller makes progress.

use super::SimDevice;
use crate::device::{BlockDevice, Completions, DeviceDone, DeviceQueue, DeviceRequest, Transfer};
use crate::sim::fault::OpKind;
use crate::{Clock, ReadRequest};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub(super) struct SimQueue {
    device: Arc<SimDevice>,
    /// By completion time and order of submission.
    flying: BTreeMap<(u64, u64), DeviceRequest>,
    submitted: u64,
}

impl SimQueue {
    pub(super) fn new(device: Arc<SimDevice>) -> SimQueue {
        SimQueue { device, flying: BTreeMap::new(), submitted: 0 }
    }

    fn clock(&self) -> &dyn Clock {
        &*self.device.handle.shared.clock
    }

    fn poll_ns(&self) -> u64 {
        self.device.model().map_or(0, |model| model.poll_ns)
    }

    /// Runs the request. Its time has been charged.
    fn perform(&self, mut request: DeviceRequest) -> DeviceDone {
        let handle = &self.device.handle;
        let offset = request.offset;
        let result = match request.transfer {
            Transfer::Read => handle.read(&mut [ReadRequest { offset, buf: request.buf.as_mut_slice() }]),
            Transfer::Write => handle.write(OpKind::WriteAt, offset, request.buf.as_slice()),
        };
        request.done(result)
    }
}

impl DeviceQueue for SimQueue {
    fn submit(&mut self, request: DeviceRequest) {
        request.check(self.device.len());
        let done_ns = self.device.admit(request.transfer, request.buf.len() as u64).unwrap_or(0);
        self.submitted += 1;
        self.flying.insert((done_ns, self.submitted), request);
    }

    fn poll(&mut self, done: &mut Vec<DeviceDone>) {
        self.device.handle.shared.clock.advance(self.poll_ns());
        let now_ns = self.clock().now_ns();
        while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= now_ns) {
            let request = entry.remove();
            done.push(self.perform(request));
        }
    }

    fn wait(&mut self, done: &mut Vec<DeviceDone>) {
        if let Some((&(done_ns, _), _)) = self.flying.first_key_value() {
            let wait_ns = done_ns.saturating_sub(self.clock().now_ns() + self.poll_ns());
            if wait_ns > 0 {
                self.clock().sleep_ns(wait_ns);
            }
        }
        self.poll(done);
    }

    fn in_flight(&self) -> usize {
        self.flying.len()
    }

    fn completions(&self) -> Completions {
        Completions::Simulated
    }
}

impl Drop for SimQueue {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.in_flight() > 0 && !std::thread::panicking() {
            self.wait(&mut done);
        }
    }
}

impl fmt::Debug for SimQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimQueue({} in flight)", self.in_flight())
    }
}
