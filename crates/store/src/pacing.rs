//! Limits of background device use, so that foreground reads stay as fast as without it.
//!
//! * `traffic`: the purpose of a thread's I/O, set by the scheduler for each step of a job
//!   ([`during`]).
//! * `depth`: the number of background requests in flight at the device. It follows the latency of
//!   foreground reads (`foreground`).
//! * `budget`: the rate limit of background reads and writes, bytes per second.
//! * `load`: bytes and busy time of a disk.
//! * `read_cost`: the cost of reads, which determines bridged gaps and read-ahead.
//! * `paced_fs`: the file system of the data files, which applies both limits.
//!
//! A large request delays all requests behind it. So background work writes pieces of
//! [`WRITE_PIECE_BYTES`], and reads pieces of [`PIECE_BYTES`] while there are foreground reads. A
//! thread that must wait sleeps and checks again: there is no wake-up that could be lost.
//!
//! A store on two disks has a limiter for each disk, because slow reads on one say nothing about
//! the other. The rate limit is shared. On the disk with the log, log writes count as foreground
//! too, and background work writes pieces of [`PIECE_BYTES`] there.
//!
//! A flush never waits, because writers wait for it. Background work must not hold a lock while it
//! waits; debug builds check that.

mod budget;
mod depth;
mod foreground;
mod load;
mod paced_fs;
mod read_cost;
mod traffic;

pub use budget::RateLimiter;
pub use depth::DEPTH_MAX;
pub use load::DiskLoad;
pub use paced_fs::PacedFs;
pub use read_cost::ReadCostReport;
pub use traffic::{During, Traffic, during};

use base::sync::statistic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use depth::Depth;
use io::{AlignedBuf, Clock, InPlaceFile, ReadCosts};
use load::Load;
use read_cost::ReadCost;
use std::sync::Arc;

/// Maximum size of a background read, bytes.
pub const PIECE_BYTES: usize = 64 << 10;
/// Size of a background write, bytes. One piece is in flight while the next is built.
pub const WRITE_PIECE_BYTES: usize = 256 << 10;

/// Use and limits of background I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PaceReport {
    /// Rate limit of background I/O, bytes per second; 0: unlimited.
    pub budget_bytes_per_s: u64,
    /// Allowed requests in flight, in thousandths.
    pub depth_milli: u64,
    /// 90th percentile latency of foreground reads on an idle device, nanoseconds; 0: unknown.
    pub usual_read_ns: u64,
    /// Bytes read and written, in the order of [`Traffic::ALL`].
    pub bytes: [u64; Traffic::ALL.len()],
    /// Number of waits for the device.
    pub waits: u64,
    /// Total time of these waits, nanoseconds.
    pub wait_ns: u64,
    /// Cost of reads.
    pub read_cost: ReadCostReport,
}

/// The limiter of background I/O: see the module.
#[derive(Debug)]
pub struct IoLimiter {
    clock: Arc<dyn Clock>,
    /// Rate limit of background I/O.
    pub budget: Arc<RateLimiter>,
    depth: Depth,
    load: Load,
    cost: ReadCost,
    /// The limiter of the fast tier.
    beside: Option<Arc<IoLimiter>>,
    is_off: AtomicBool,
    bytes: [AtomicU64; Traffic::ALL.len()],
    waits: AtomicU64,
    wait_ns: AtomicU64,
}

impl IoLimiter {
    /// Creates a limiter without a rate limit.
    pub fn new(clock: &Arc<dyn Clock>) -> IoLimiter {
        IoLimiter {
            clock: clock.clone(),
            budget: Arc::default(),
            depth: Depth::new(),
            load: Load::default(),
            cost: ReadCost::new(),
            beside: None,
            is_off: AtomicBool::new(false),
            bytes: Default::default(),
            waits: AtomicU64::new(0),
            wait_ns: AtomicU64::new(0),
        }
    }

    /// Creates a limiter for a store with a fast tier, which has its own limiter
    /// ([`IoLimiter::of_fast_tier`]) but the same rate limit.
    pub fn of_two(clock: &Arc<dyn Clock>) -> IoLimiter {
        let first = IoLimiter::new(clock);
        let speed = IoLimiter { budget: first.budget.clone(), ..IoLimiter::new(clock) };
        IoLimiter { beside: Some(Arc::new(speed)), ..first }
    }

    /// Returns the limiter of the fast tier, if there is one.
    pub fn of_fast_tier(&self) -> Option<&Arc<IoLimiter>> {
        self.beside.as_ref()
    }

    /// Returns the load of the disk, without the fast tier.
    pub fn load(&self) -> DiskLoad {
        self.load.get()
    }

    /// Switches off piecewise I/O and the timing of reads. Call it before the first read. The rate
    /// limit stays in force.
    pub fn switch_off(&self) {
        self.is_off.store(true, Relaxed);
        self.beside.iter().for_each(|speed| speed.switch_off());
    }

    /// Returns the measured read cost of the disk, without the fast tier.
    pub fn costs(&self) -> ReadCosts {
        self.cost.get()
    }

    /// Sets the bridged gap to a fixed number of bytes, whatever reads cost.
    pub fn give_gap(&self, bytes: u64) {
        self.cost.give_gap(bytes);
        self.beside.iter().for_each(|speed| speed.give_gap(bytes));
    }

    /// Switches off the use of measured read costs.
    pub fn ignore_costs(&self) {
        self.cost.switch_off();
        self.beside.iter().for_each(|speed| speed.ignore_costs());
    }

    /// Reports that a writer waits for background work, which is not held back for a moment then.
    pub fn writers_wait(&self) {
        self.depth.writers_wait(self.clock.now_ns());
        self.beside.iter().for_each(|speed| speed.writers_wait());
    }

    /// Returns true if a writer waited for background work a moment ago.
    pub fn is_hurried(&self) -> bool {
        self.depth.is_hurried(self.clock.now_ns())
    }

    /// Returns use and limits: bytes and waits of both disks together, depth and reads of the first
    /// disk.
    pub fn report(&self) -> PaceReport {
        let own = self.report_alone();
        let Some(speed) = self.beside.as_ref().map(|speed| speed.report_alone()) else { return own };
        PaceReport {
            bytes: std::array::from_fn(|i| own.bytes[i] + speed.bytes[i]),
            waits: own.waits + speed.waits,
            wait_ns: own.wait_ns + speed.wait_ns,
            ..own
        }
    }

    fn report_alone(&self) -> PaceReport {
        PaceReport {
            budget_bytes_per_s: self.budget.get(),
            depth_milli: self.depth.get().into(),
            usual_read_ns: self.depth.foreground.usual_ns(),
            bytes: std::array::from_fn(|i| self.bytes[i].load(Relaxed)),
            waits: self.waits.load(Relaxed),
            wait_ns: self.wait_ns.load(Relaxed),
            read_cost: self.cost.report(),
        }
    }

    fn is_off(&self) -> bool {
        self.is_off.load(Relaxed)
    }

    /// Returns true if background I/O must be piecewise: there are foreground reads, and no writer
    /// waits.
    fn in_pieces(&self) -> bool {
        if self.is_off() {
            return false;
        }
        let now_ns = self.clock.now_ns();
        (self.depth.foreground.is_reading(now_ns) || self.depth.log.is_reading(now_ns))
            && !self.depth.is_hurried(now_ns)
    }

    /// Accounts bytes of background I/O.
    fn book(&self, traffic: Traffic, bytes: u64) {
        self.bytes[traffic as usize].fetch_add(bytes, Relaxed);
        let now_ns = self.clock.now_ns();
        self.depth.works(now_ns);
        self.budget.charge(now_ns, bytes);
    }

    /// Runs a blocking background request, and accounts its duration.
    fn waited<T>(&self, bytes: u64, work: impl FnOnce() -> T) -> T {
        let begun_ns = self.clock.now_ns();
        let out = work();
        self.load.worked(bytes, self.clock.now_ns().saturating_sub(begun_ns));
        out
    }

    /// Writes the log on this disk, durably. Background work makes room for log writes as for
    /// reads.
    fn logs(&self, file: &dyn InPlaceFile, data: &AlignedBuf, offset: u64) -> base::Result<()> {
        // Long writes take longer, so they are not timed.
        let is_timed = data.len() <= PIECE_BYTES && !self.is_off();
        let begun = is_timed.then(|| self.depth.read_begins(self.clock.now_ns()));
        let written = file.write_durable(data, offset);
        let late_ns = begun.map_or(0, |begun| self.depth.log_ends(begun, self.clock.now_ns()));
        self.load.logged(data.len() as u64, late_ns);
        written
    }

    /// Waits for a slot at the device, then runs up to `wanted` pieces, at least one.
    fn pass<T>(&self, traffic: Traffic, wanted: usize, piece: impl FnOnce(usize) -> T) -> T {
        debug_assert!(
            !traffic::holds_lock(),
            "background work may wait for the device here, and holds a lock"
        );
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX).max(1);
        let asked_ns = self.clock.now_ns();
        let mut now_ns = asked_ns;
        let granted = loop {
            match self.depth.begin(traffic, wanted) {
                Ok(granted) => break granted,
                Err(wait_ns) => {
                    self.clock.sleep_ns(wait_ns);
                    now_ns = self.clock.now_ns();
                }
            }
        };
        if now_ns > asked_ns {
            self.waits.fetch_add(1, Relaxed);
            self.wait_ns.fetch_add(now_ns - asked_ns, Relaxed);
        }
        // The slots are released even if the piece panics.
        let _place = Place { pace: self, traffic, pieces: granted };
        piece(granted as usize)
    }
}

/// Slots of pieces in flight.
struct Place<'a> {
    pace: &'a IoLimiter,
    traffic: Traffic,
    pieces: u32,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.pace.depth.end(self.traffic, self.pieces);
    }
}
