//! How much of the device background work may use, so that reads in the foreground stay as quick as they are without it.
//!
//! * `traffic`: what a thread reads and writes for, which the scheduler says of each step of a job ([`during`]).
//! * `depth`: how many pieces of background work may be at the device at once. It follows how long reads in the foreground take
//!   (`foreground`).
//! * `budget`: how many bytes background work may read and write in a second, whatever for.
//! * `load`: what was done on a disk, and how long it was waited for.
//! * `read_cost`: what reads cost, of which follows which gaps are read over and how much is read ahead.
//! * `paced_fs`: the file system through which a store reaches its files of data, and where both are kept.
//!
//! What is asked of the device in one go delays whoever comes behind it, so background work is written in pieces of [`WRITE_PIECE_BYTES`], and
//! read in pieces of [`PIECE_BYTES`] as long as somebody reads. Who has to wait sleeps and looks again: there is nothing to be woken by, so no wake-up can be lost.
//! A store on two disks has a pace for each: what makes reads slow on one says nothing of the other; the budget is one. On the disk that carries the log who writes
//! that is in the foreground as well, and what background work writes there comes in pieces of [`PIECE_BYTES`].
//! A flush never waits: writers wait for it. Nobody waits who holds what others wait for, which debug builds check.

mod budget;
mod depth;
mod foreground;
mod load;
mod paced_fs;
mod read_cost;
mod traffic;

pub use budget::Budget;
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

/// What background work reads at once, bytes.
pub const PIECE_BYTES: usize = 64 << 10;
/// What it writes at once: one such piece is on its way while the next is made, so that nobody waits for each.
pub const WRITE_PIECE_BYTES: usize = 256 << 10;

/// What background work has used, and what it may use now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PaceReport {
    /// Bytes that it may read and write in a second; 0: there is no bound.
    pub budget_bytes_per_s: u64,
    /// Pieces that may be at the device at once, in thousandths.
    pub depth_milli: u64,
    /// What nine of ten reads in the foreground take at most that have the device for themselves, nanoseconds; 0: not known.
    pub usual_read_ns: u64,
    /// Bytes read and written, in the order of [`Traffic::ALL`].
    pub bytes: [u64; Traffic::ALL.len()],
    /// Times that a thread waited for a place at the device.
    pub waits: u64,
    /// Nanoseconds of these, together.
    pub wait_ns: u64,
    /// What reads cost.
    pub read_cost: ReadCostReport,
}

/// See the module.
#[derive(Debug)]
pub struct Pace {
    clock: Arc<dyn Clock>,
    /// What background work may read and write in a second.
    pub budget: Arc<Budget>,
    depth: Depth,
    load: Load,
    cost: ReadCost,
    /// That of the second disk.
    beside: Option<Arc<Pace>>,
    is_off: AtomicBool,
    bytes: [AtomicU64; Traffic::ALL.len()],
    waits: AtomicU64,
    wait_ns: AtomicU64,
}

impl Pace {
    /// Without a bound on bytes.
    pub fn new(clock: &Arc<dyn Clock>) -> Pace {
        Pace {
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

    /// The same for a store on two disks: what is on the second one has a pace of its own ([`Pace::of_speed_disk`]), with the same budget.
    pub fn of_two(clock: &Arc<dyn Clock>) -> Pace {
        let first = Pace::new(clock);
        let speed = Pace { budget: first.budget.clone(), ..Pace::new(clock) };
        Pace { beside: Some(Arc::new(speed)), ..first }
    }

    /// That of the second disk; `None`: there is none.
    pub fn of_speed_disk(&self) -> Option<&Arc<Pace>> {
        self.beside.as_ref()
    }

    /// What was done on the disk, without that of the second one.
    pub fn load(&self) -> DiskLoad {
        self.load.get()
    }

    /// From now on nothing comes in pieces and no read is timed. To be said before anything is read; the budget is kept all the same.
    pub fn switch_off(&self) {
        self.is_off.store(true, Relaxed);
        self.beside.iter().for_each(|speed| speed.switch_off());
    }

    /// What is known of what reads of the disk cost, without the second one.
    pub fn costs(&self) -> ReadCosts {
        self.cost.get()
    }

    /// From now on gaps of so many bytes between places are read over, whatever reads cost.
    pub fn give_gap(&self, bytes: u64) {
        self.cost.give_gap(bytes);
        self.beside.iter().for_each(|speed| speed.give_gap(bytes));
    }

    /// From now on nobody goes by what reads cost.
    pub fn ignore_costs(&self) {
        self.cost.switch_off();
        self.beside.iter().for_each(|speed| speed.ignore_costs());
    }

    /// A writer waits for background work: it is not to be held back for a moment.
    pub fn writers_wait(&self) {
        self.depth.writers_wait(self.clock.now_ns());
        self.beside.iter().for_each(|speed| speed.writers_wait());
    }

    /// True if a writer waited for background work a moment ago.
    pub fn is_hurried(&self) -> bool {
        self.depth.is_hurried(self.clock.now_ns())
    }

    /// What was used, and what may be: of both disks together, but for depth and reads, which are those of the first.
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

    /// True if background work is to come in pieces: somebody reads, and no writer waits for it.
    fn in_pieces(&self) -> bool {
        if self.is_off() {
            return false;
        }
        let now_ns = self.clock.now_ns();
        (self.depth.foreground.is_reading(now_ns) || self.depth.log.is_reading(now_ns))
            && !self.depth.is_hurried(now_ns)
    }

    /// Books bytes of background work.
    fn book(&self, traffic: Traffic, bytes: u64) {
        self.bytes[traffic as usize].fetch_add(bytes, Relaxed);
        let now_ns = self.clock.now_ns();
        self.depth.works(now_ns);
        self.budget.charge(now_ns, bytes);
    }

    /// Does what background work waits for, and books how long that took.
    fn waited<T>(&self, bytes: u64, work: impl FnOnce() -> T) -> T {
        let begun_ns = self.clock.now_ns();
        let out = work();
        self.load.worked(bytes, self.clock.now_ns().saturating_sub(begun_ns));
        out
    }

    /// Writes to the log on this disk, durably: background work there makes room for that, as it does for reads.
    fn logs(&self, file: &dyn InPlaceFile, data: &AlignedBuf, offset: u64) -> base::Result<()> {
        // What is long takes longer, and says nothing.
        let is_timed = data.len() <= PIECE_BYTES && !self.is_off();
        let begun = is_timed.then(|| self.depth.read_begins(self.clock.now_ns()));
        let written = file.write_durable(data, offset);
        let late_ns = begun.map_or(0, |begun| self.depth.log_ends(begun, self.clock.now_ns()));
        self.load.logged(data.len() as u64, late_ns);
        written
    }

    /// Does as many of `wanted` pieces as may be at the device at once, at least one, as soon as they may.
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
        // Its place is given back whatever becomes of it.
        let _place = Place { pace: self, traffic, pieces: granted };
        piece(granted as usize)
    }
}

/// Pieces that are at the device.
struct Place<'a> {
    pace: &'a Pace,
    traffic: Traffic,
    pieces: u32,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.pace.depth.end(self.traffic, self.pieces);
    }
}
