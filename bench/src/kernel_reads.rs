//! What the kernel counted while a run's clients read: beside the engine's own count of reads, which it cannot vouch for itself.
//!
//! Three counters, and what each of them counts:
//!
//! * **Read system calls** (`syscr` of `/proc/self/io`, all threads of the process): `read`, `pread` and their kin, whether the page cache answers or the device. A read
//!   that is submitted through io_uring is in no such call and is not counted; nor is a page that comes in because a mapping was touched. What the benchmark reads itself (a few files of `/proc` a second) is in it.
//! * **Bytes read from devices** (`read_bytes` of `/proc/self/io`): counted for each request as it goes to a device, in the thread that submits it. Direct reads are in it, through io_uring or
//!   not, and what the page cache did not have, with what the kernel reads ahead; what it had is not.
//! * **Requests and bytes of the device** (`/sys/dev/block/*/stat`): completed reads, after the kernel has split long ones and merged neighbours; of everybody on the
//!   machine, and of all partitions of it. Only where a device is below the store.
//!
//! So with direct I/O and single gets the first is the engine's number of reads, the third that of requests to the device, and the quotient of bytes tells how much a get
//! moves; with io_uring (`multi_get`, gets in flight) the first is less than that, and the third tells. Between the two moments of a run also its end is counted, until the
//! background has come to rest.

use crate::costs::Counters;
use crate::report::human_bytes;
use serde::{Deserialize, Serialize};

/// For each get. See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelReads {
    /// Read system calls of the process.
    pub calls: f64,
    /// Those of the threads that get.
    pub client_calls: f64,
    /// Bytes that the process had devices read.
    pub process_bytes: f64,
    /// Reads that the device completed, whoever wanted them; nothing if it has no counters.
    pub device_requests: Option<f64>,
    /// Bytes that it read.
    pub device_bytes: Option<f64>,
}

impl KernelReads {
    /// What was counted from one moment to another, in which there were so many gets, by threads that made so many calls.
    pub(crate) fn between(before: &Counters, after: &Counters, gets: u64, client_calls: u64) -> KernelReads {
        let per_get = |n: u64| n as f64 / gets.max(1) as f64;
        let grown = |now: u64, then: u64| per_get(now.saturating_sub(then));
        let device = after.device.zip(before.device);
        KernelReads {
            calls: grown(after.process.read_calls, before.process.read_calls),
            client_calls: per_get(client_calls),
            process_bytes: grown(after.process.read_bytes, before.process.read_bytes),
            device_requests: device.map(|(now, then)| grown(now.reads, then.reads)),
            device_bytes: device.map(|(now, then)| grown(now.read_bytes, then.read_bytes)),
        }
    }

    /// For a person.
    pub fn text(&self) -> String {
        let device = self.device_requests.zip(self.device_bytes).map_or_else(
            || "no device to ask".to_owned(),
            |(requests, bytes)| {
                format!("the device {requests:.3} requests with {}", human_bytes(bytes as u64))
            },
        );
        format!(
            "{:.3} calls ({:.3} by clients), {} by the process; {device}",
            self.calls,
            self.client_calls,
            human_bytes(self.process_bytes as u64)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{DeviceCounters, ProcessCounters};

    #[test]
    fn what_grew_is_told_for_each_get() {
        let at = |read_calls, read_bytes, device| Counters {
            process: ProcessCounters { read_calls, read_bytes, ..ProcessCounters::default() },
            device,
            ..Counters::default()
        };
        let device =
            |reads| Some(DeviceCounters { reads, read_bytes: reads * 8192, ..DeviceCounters::default() });
        let reads = KernelReads::between(&at(5, 4096, device(7)), &at(105, 413_696, device(207)), 100, 99);
        let expected = KernelReads {
            calls: 1.0,
            client_calls: 0.99,
            process_bytes: 4096.0,
            device_requests: Some(2.0),
            device_bytes: Some(16_384.0),
        };
        assert_eq!(reads, expected);
        let text = "1.000 calls (0.990 by clients), 4.00 KiB by the process; the device 2.000 requests with 16.00 KiB";
        assert_eq!(reads.text(), text);
        let without = KernelReads::between(&at(0, 0, None), &at(3, 0, device(1)), 0, 0);
        assert_eq!((without.calls, without.device_requests), (3.0, None), "no device at first, and no gets");
        assert!(without.text().ends_with("; no device to ask"));
    }
}
