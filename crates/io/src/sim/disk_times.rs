//! How long a simulated device takes, when many requests are in flight.
//!
//! A request waits for one of the device's *ways*, takes its latency there, and its bytes pass
//! through one channel that all share. So with few in flight a device is as fast as its latency,
//! with more it is faster as long as there are ways, and in the end it is as fast as its channel.
//! What it takes is drawn by the seed: the latency and up to one *spread*; in half of the cases one
//! more, in a quarter two more, and so on.
//!
//! The models of two disks have their numbers from *SpanDB* (H. Chen et al., FAST 2021 and its
//! extended version): its table 2 for the latency of writes and the bandwidth (P4800X: 10 us, 2,000
//! MB/s; P4610: 18 us, 2,080 MB/s), and its figure 3 for the ways of writes (4 KB writes are
//! fastest with 3 loggers of 3 requests on the one, 2 of 4 on the other). What it does not say is
//! that of the makers' data sheets: reads of 10 us at 2,400 MB/s, and of 77 us at 3,200 MB/s, of
//! which 48 at once make the 640,000 a second that it promises. These latencies are means; the
//! spreads are a tenth and a fifth of them. Neither loses time to a flush: both keep their cache at
//! a loss of power.

use crate::Rng;
use crate::device::Transfer;
use crate::sim::Costs;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const SECOND_NS: u64 = 1_000_000_000;

/// Reads or writes of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// What one takes that is alone, without its bytes, at the least.
    pub latency_ns: u64,
    /// By how much that differs; see the module.
    pub spread_ns: u64,
    /// How many the device works on at once.
    pub ways: usize,
    /// Bytes that pass in a second, of all together.
    pub bytes_per_second: u64,
}

/// A device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceModel {
    /// Its reads.
    pub read: Service,
    /// Its writes.
    pub write: Service,
    /// What a flush takes.
    pub flush_ns: u64,
    /// What a look at what is done takes the processor.
    pub poll_ns: u64,
}

impl DeviceModel {
    /// Intel Optane SSD P4800X: the speed disk of SpanDB.
    pub const OPTANE: DeviceModel = DeviceModel {
        read: Service { latency_ns: 8_500, spread_ns: 1_000, ways: 9, bytes_per_second: 2_400_000_000 },
        write: Service { latency_ns: 8_500, spread_ns: 1_000, ways: 9, bytes_per_second: 2_000_000_000 },
        flush_ns: 0,
        poll_ns: 200,
    };

    /// Intel SSD DC P4610: an NVMe disk of flash.
    pub const NVME: DeviceModel = DeviceModel {
        read: Service { latency_ns: 54_500, spread_ns: 15_000, ways: 48, bytes_per_second: 3_200_000_000 },
        write: Service { latency_ns: 12_600, spread_ns: 3_600, ways: 8, bytes_per_second: 2_080_000_000 },
        flush_ns: 0,
        poll_ns: 200,
    };

    /// A device whose calls cost as much as those of files do.
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

/// A device at work.
#[derive(Clone, Debug)]
pub(super) struct Work {
    model: DeviceModel,
    rng: Rng,
    /// When each way is free again, of those of reads and of writes.
    free_ns: [BinaryHeap<Reverse<u64>>; 2],
    /// When all bytes that were asked for have passed.
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

    /// A request comes; when it is done.
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
