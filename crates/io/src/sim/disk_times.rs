//! Timing of a simulated device with many requests in flight.
//!
//! A request waits for one of the device's *ways*, takes its latency there, and its bytes pass
//! through one channel that all requests share. So with few requests in flight the latency limits
//! the throughput, with more the number of ways, and finally the channel. The seed draws the
//! duration: the latency and up to one *spread*; in half of the cases one more, in a quarter two
//! more, and so on.
//!
//! The models of two disks take their numbers from *SpanDB* (H. Chen et al., FAST 2021 and its
//! extended version). Its table 2 has the latency of writes and the bandwidth (P4800X: 10 us, 2,000
//! MB/s; P4610: 18 us, 2,080 MB/s). Its figure 3 has the ways of writes (4 KB writes are fastest
//! with 3 loggers of 3 requests on the former, 2 of 4 on the latter). The other numbers are from
//! the makers' data sheets: reads of 10 us at 2,400 MB/s, and of 77 us at 3,200 MB/s, of which 48
//! at once make the promised 640,000 per second. These latencies are means; the spreads are a tenth
//! and a fifth of them. Neither loses time to a flush: both keep their cache at a power loss.

use crate::Rng;
use crate::device::Transfer;
use crate::sim::Costs;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const SECOND_NS: u64 = 1_000_000_000;

/// Timing of a device's reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// Least latency of a single request, without its bytes.
    pub latency_ns: u64,
    /// Variation of the latency; see the module.
    pub spread_ns: u64,
    /// Requests that the device processes at once.
    pub ways: usize,
    /// Bytes per second, of all requests together.
    pub bytes_per_second: u64,
}

/// A device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceModel {
    /// Its reads.
    pub read: Service,
    /// Its writes.
    pub write: Service,
    /// Duration of a flush.
    pub flush_ns: u64,
    /// Processor time of a check for completions.
    pub poll_ns: u64,
}

impl DeviceModel {
    /// Intel Optane SSD P4800X: the fast tier of SpanDB.
    pub const OPTANE: DeviceModel = DeviceModel {
        read: Service { latency_ns: 8_500, spread_ns: 1_000, ways: 9, bytes_per_second: 2_400_000_000 },
        write: Service { latency_ns: 8_500, spread_ns: 1_000, ways: 9, bytes_per_second: 2_000_000_000 },
        flush_ns: 0,
        poll_ns: 200,
    };

    /// Intel SSD DC P4610: an NVMe flash disk.
    pub const NVME: DeviceModel = DeviceModel {
        read: Service { latency_ns: 54_500, spread_ns: 15_000, ways: 48, bytes_per_second: 3_200_000_000 },
        write: Service { latency_ns: 12_600, spread_ns: 3_600, ways: 8, bytes_per_second: 2_080_000_000 },
        flush_ns: 0,
        poll_ns: 200,
    };

    /// Returns a device whose calls cost as much as those of files.
    pub(super) fn of_costs(costs: &Costs) -> DeviceModel {
        let bytes_per_second = 1024 * SECOND_NS / costs.kib_ns.max(1);
        let of = |latency_ns| Service { latency_ns, spread_ns: 0, ways: 32, bytes_per_second };
        DeviceModel {
            read: of(costs.read_ns),
            write: of(costs.write_ns),
            flush_ns: costs.sync_ns,
            poll_ns: 200,
        }
    }

    fn of(&self, transfer: Transfer) -> &Service {
        match transfer {
            Transfer::Read => &self.read,
            Transfer::Write => &self.write,
        }
    }
}

/// State of a simulated device.
#[derive(Clone, Debug)]
pub(super) struct Work {
    model: DeviceModel,
    rng: Rng,
    /// Times when each way is free again, for reads and for writes.
    free_ns: [BinaryHeap<Reverse<u64>>; 2],
    /// Time when all requested bytes have passed the channel.
    passed_ns: [u64; 2],
}

impl Work {
    pub(super) fn new(model: DeviceModel, seed: u64) -> Work {
        let ways = |service: &Service| std::iter::repeat_n(Reverse(0), service.ways.max(1)).collect();
        let free_ns = [ways(&model.read), ways(&model.write)];
        Work { model, rng: Rng::new(seed ^ 0x6f70_7461_6e65), free_ns, passed_ns: [0; 2] }
    }

    pub(super) fn model(&self) -> &DeviceModel {
        &self.model
    }

    /// Admits a request. Returns its completion time.
    pub(super) fn admit(&mut self, transfer: Transfer, len: u64, now_ns: u64) -> u64 {
        let service = *self.model.of(transfer);
        let side = transfer as usize;
        let more = u64::from(self.rng.next_u64().leading_zeros());
        let latency_ns =
            service.latency_ns + self.rng.below(service.spread_ns.max(1)) + more * service.spread_ns;
        let Reverse(free_ns) = self.free_ns[side].pop().unwrap_or(Reverse(0));
        let begins_ns = free_ns.max(now_ns);
        let bytes_ns = u128::from(len) * u128::from(SECOND_NS) / u128::from(service.bytes_per_second.max(1));
        self.passed_ns[side] = self.passed_ns[side].max(begins_ns) + bytes_ns as u64;
        let done_ns = (begins_ns + latency_ns).max(self.passed_ns[side]);
        self.free_ns[side].push(Reverse(done_ns));
        done_ns
    }
}
