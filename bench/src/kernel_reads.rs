//! Kernel counters of reads during a run, to verify the engine's own count.
//!
//! There are three counters:
//!
//! * **Read system calls** (`syscr` of `/proc/self/io`, all threads of the process): `read`,
//!   `pread` and similar, whether the page cache or the device answers. Reads through io_uring and
//!   page faults of mappings are not counted. The benchmark's own reads (a few files of `/proc` per
//!   second) are.
//! * **Bytes read from devices** (`read_bytes` of `/proc/self/io`): counted in the submitting
//!   thread for each request to a device. It includes direct reads, also through io_uring, and page
//!   cache misses with the kernel's read-ahead, but no page cache hits.
//! * **Requests and bytes of the device** (`/sys/dev/block/*/stat`): completed reads of the whole
//!   machine and all partitions, after the kernel has split and merged requests. Available only
//!   with a device below the store.
//!
//! With direct I/O and single gets, the first counter equals the engine's reads, and the third one
//! the device requests. The quotient of bytes is the bytes per get. With io_uring (`multi_get`,
//! gets in flight) the first one is too low, and the third one counts. The counters include the end
//! of the run until the background work has ended.

use crate::costs::Counters;
use crate::report::human_bytes;
use serde::{Deserialize, Serialize};

/// Reads per get; see the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelReads {
    /// Read system calls of the process.
    pub calls: f64,
    /// Read system calls of the client threads.
    pub client_calls: f64,
    /// Bytes that the process read from devices.
    pub process_bytes: f64,
    /// Completed reads of the device, of all processes; `None` without counters.
    pub device_requests: Option<f64>,
    /// Bytes read by the device.
    pub device_bytes: Option<f64>,
}

impl KernelReads {
    /// Computes the reads between two moments for the given gets and system calls of the client
    /// threads.
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

    /// Formats the counters as text.
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
    fn kernel_read_growth_is_reported_per_get() {
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
