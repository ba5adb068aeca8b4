//! The latency of updates and point reads that are due at a part of the rate that the store sustains: `tail`.
//!
//! After vLSM (section 5): the load is an open loop, latencies count from the moment at which a request was due, and the rate
//! is a percentage of what the store sustains, not of what it takes for a while. One run is:
//!
//! 1. **Load**: every key once, in random order; then the background comes to rest.
//! 2. **Fill**: updates, as fast as the store takes them, of an eighth of the data, which is what all levels but the last
//!    hold together.
//! 3. **Find** (unless `--rate` says it): the mix of the clients in a closed loop. As the levels are full, writers are held
//!    back by what compaction achieves; the operations of the whole phase over its time are the rate that is sustained.
//! 4. **Rest**: the background comes to rest again. It stops compacting when no level is over its target, so all but the last
//!    are filled to it and level 0 is not; the report has the shape.
//! 5. **Measured phase**: the open loop, then settling, as in other runs.
//!
//! Clients are [`Clients::Shared`]: all take reads and writes from one queue, so that a read waits behind a write that the
//! store holds back, as it does in a server with a pool of threads; or [`Clients::Separate`]: reads have threads and a queue of
//! their own. Each request is a function of the seed and its number, so two runs at one rate do the same work.
//!
//! Several families share the memory: each has its part of the memtables ([`crate::EngineSettings::of`]) and of the keys.

mod probe;
pub mod queue;
mod report;

pub use crate::args::tail::{Clients, TailArgs};
pub use report::{Brief, Second, TailReport};

use crate::args::BenchArgs;
use crate::drive::{drive, single};
use crate::engine::{Engine, EngineSettings, Opener, Phase};
use crate::host::{StopOnDrop, now_ns};
use crate::record::{Kind, Recorder};
use crate::run::{Counters, LOAD_BATCH, SETTLE_MAX, join, unpaced};
use crate::space::{self, Samples};
use crate::workload::{Role, Space, Stream};
use crate::{Error, Result};
use io::Env;
use queue::{Queue, Schedule};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Length of the measured phase, if nobody says another.
const SECONDS: f64 = 60.0;
/// What is late at the end may be done for so long; what is later is left.
const PATIENCE_NS: u64 = 10_000_000_000;
/// Updates before the measured phase: one for so many keys.
const FILL_ONE_IN: u64 = 8;

/// The threads that take from one queue.
struct Group {
    queue: Queue,
    stream: Stream,
    read_share: f64,
    threads: u64,
}

/// What clients wrote down, writes and reads apart, and for how long they had to do.
struct Done {
    writes: Vec<Recorder>,
    reads: Vec<Recorder>,
    seconds: f64,
}

/// A store under load.
struct Loaded<'a> {
    args: &'a BenchArgs,
    space: &'a Space,
    engine: &'a dyn Engine,
    /// All of them, the first one first.
    families: Vec<&'a dyn Engine>,
}

/// Everything seen of the measured phase.
struct Measured {
    rate_per_s: f64,
    done: Done,
    left: u64,
    before: Counters,
    after: Counters,
    space: Samples,
    space_end_bytes: u64,
    space_settled_bytes: u64,
    device: Option<Recorder>,
    settle_seconds: f64,
    settled: bool,
}

/// The rate that a store sustains, and how it was found.
#[derive(Clone, Debug, Default)]
struct Sustained {
    per_s: f64,
    /// Operations of each second; none if somebody said the rate.
    by_second: Vec<u64>,
}

/// Makes one run in `dir` and returns its report. The directory is the caller's to remove.
///
/// # Errors
/// Options that make no sense, those of the engine, a wrong answer of it.
pub fn run(args: &BenchArgs, opener: &dyn Opener, dir: &Path) -> Result<TailReport> {
    args.check()?;
    let space = Space::new(args);
    let settings = EngineSettings::of(args)?;
    let start_ns = now_ns();
    let engine = opener.open(dir, &settings)?;
    if args.limit_bytes().is_some() && !engine.keeps_space_limit() {
        return Err(format!("{} knows no space limit", opener.name()).into());
    }
    let store = Loaded::new(args, &space, &*engine)?;
    engine.phase(Phase::Load);
    if !args.reuse {
        store.load()?;
    }
    engine.phase(if args.tail.read_share > 0.0 { Phase::Read } else { Phase::Write });
    store.fill()?;
    let sustained = match args.rate {
        Some(per_s) => Sustained { per_s, by_second: Vec::new() },
        None => store.find()?,
    };
    let rested = engine.settle(SETTLE_MAX)?;
    let load_seconds = (now_ns() - start_ns) as f64 / 1e9;
    let measured = match args.tail.only_find {
        true => None,
        false => Some(store.measure(dir, sustained.per_s * args.tail.load / 100.0)?),
    };
    let report = TailReport {
        engine: opener.name(),
        load_seconds,
        rested,
        engine_settings: engine.settings().into_iter().collect(),
        ..report::of(args, &sustained, measured.as_ref())
    };
    drop(store);
    engine.close()?;
    Ok(report)
}

impl<'a> Loaded<'a> {
    fn new(args: &'a BenchArgs, space: &'a Space, engine: &'a dyn Engine) -> Result<Self> {
        let families: Vec<_> = std::iter::once(engine).chain(engine.families()).collect();
        if families.len() as u64 != args.tail.families {
            return Err(
                format!("this engine has {} of {} families", families.len(), args.tail.families).into()
            );
        }
        Ok(Loaded { args, space, engine, families })
    }

    fn load(&self) -> Result<()> {
        let stop = AtomicBool::new(false);
        for (family, number) in self.families.iter().zip(0..) {
            let stream = Stream::of_family(self.space, number, self.args.tail.families);
            drive(*family, stream, unpaced(self.args, LOAD_BATCH, false), None, &stop)?;
        }
        self.families.iter().try_for_each(|family| family.flush())?;
        self.engine.settle(SETTLE_MAX)?;
        Ok(())
    }

    fn fill(&self) -> Result<()> {
        let count = self.args.keys().div_ceil(FILL_ONE_IN);
        let queue = Queue::closed(now_ns(), count, u64::MAX);
        // A store that is only read is as it was loaded.
        let writes = self.args.tail.read_share < 1.0;
        if writes {
            self.serve(&[self.group(queue, Role::Warmup, 0.0)], now_ns(), false)?;
        }
        Ok(())
    }

    fn find(&self) -> Result<Sustained> {
        let start_ns = now_ns();
        let end_ns = start_ns + (self.args.tail.find_seconds * 1e9) as u64;
        let queue = Queue::closed(start_ns, u64::MAX, end_ns);
        let group = self.group(queue, Role::Writer, self.args.tail.read_share);
        let done = self.serve(&[group], start_ns, false)?;
        let merged = done.all();
        let per_s = merged.ops as f64 / done.seconds;
        if per_s > 0.0 {
            Ok(Sustained { per_s, by_second: merged.by_second })
        } else {
            Err("no rate is sustained".into())
        }
    }

    /// All clients at one queue.
    fn group(&self, queue: Queue, role: Role, read_share: f64) -> Group {
        let stream = Stream::new(self.space, role, Kind::Put, 0, 0, 1);
        Group { queue, stream, read_share, threads: self.args.threads() }
    }

    /// The clients of the measured phase.
    fn groups(&self, rate: f64, start_ns: u64) -> Vec<Group> {
        let TailArgs { read_share, clients, .. } = self.args.tail;
        let seconds_ns = (self.args.seconds.unwrap_or(SECONDS) * 1e9) as u64;
        let open = |rate| Queue::open(schedule(&self.args.tail, rate), start_ns, seconds_ns, PATIENCE_NS);
        if clients == Clients::Shared || read_share == 0.0 || read_share == 1.0 {
            return vec![self.group(open(rate), Role::Client, read_share)];
        }
        let threads = self.args.threads();
        let readers = readers(threads, read_share);
        let of = |thread, rate, read_share, threads| {
            let stream = Stream::new(self.space, Role::Client, Kind::Put, 0, thread, 2);
            Group { queue: open(rate), stream, read_share, threads }
        };
        vec![of(0, rate * (1.0 - read_share), 0.0, threads - readers), of(1, rate * read_share, 1.0, readers)]
    }

    /// Runs clients until their queues are at their ends. One that fails stops the others.
    fn serve(&self, groups: &[Group], start_ns: u64, by_second: bool) -> Result<Done> {
        let stop = AtomicBool::new(false);
        let stop = &stop;
        let records = std::thread::scope(|scope| {
            let each = groups.iter().flat_map(|group| (0..group.threads).map(move |_| group));
            let client = |group| {
                let new = || if by_second { Recorder::by_second(start_ns) } else { Recorder::new(start_ns) };
                let records = (new(), new());
                scope.spawn(move || {
                    let outcome = self.client(group, records, stop);
                    outcome.inspect_err(|_| stop.store(true, Ordering::Relaxed))
                })
            };
            let clients: Vec<_> = each.map(client).collect();
            clients.into_iter().map(|client| join(client.join())).collect::<Vec<Result<_>>>()
        });
        let seconds = (now_ns() - start_ns) as f64 / 1e9;
        let records = records.into_iter().collect::<Result<Vec<_>>>()?;
        let (writes, reads) = records.into_iter().unzip();
        Ok(Done { writes, reads, seconds })
    }

    /// One client: writes and reads.
    fn client(
        &self,
        group: &Group,
        (mut writes, mut reads): (Recorder, Recorder),
        stop: &AtomicBool,
    ) -> Result<(Recorder, Recorder)> {
        self.engine.thread_begin();
        let mut stream = group.stream.clone();
        let mut value = Vec::new();
        let mut outcome = Ok(());
        while let Some((number, due_ns)) = group.queue.take(stop) {
            stream.prepare(number, group.read_share);
            let family = self.families[(stream.index % self.args.tail.families) as usize];
            let begin_ns = due_ns.unwrap_or_else(now_ns);
            match single(family, &stream, 1, &mut value) {
                Ok(bytes) => {
                    let record = if stream.kind() == Kind::Put { &mut writes } else { &mut reads };
                    record.complete(begin_ns, now_ns(), 1, bytes);
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        self.engine.thread_end();
        outcome.map(|()| (writes, reads))
    }

    /// The measured phase, with who looks on beside it.
    fn measure(&self, dir: &Path, rate_per_s: f64) -> Result<Measured> {
        let before = Counters::now(self.engine, dir);
        let (look, write) = (AtomicBool::new(false), AtomicBool::new(false));
        let start_ns = now_ns();
        std::thread::scope(|scope| {
            let sampler = scope.spawn(|| space::sample(dir, self.engine, None, &look));
            let probe = scope.spawn(|| probe::probe(&Env::kernel(), dir, start_ns, &write));
            let (looking, writing) = (StopOnDrop(&look), StopOnDrop(&write));
            let served = self.serve_open(rate_per_s, start_ns);
            drop(writing);
            let device = join(probe.join());
            let rest_ns = now_ns();
            let space_end_bytes = self.engine.allocated(dir).bytes;
            self.engine.phase(Phase::Settle);
            let settled = served.is_err() || self.args.no_settle || self.engine.settle(SETTLE_MAX)?;
            let settle_seconds = (now_ns() - rest_ns) as f64 / 1e9;
            let after = Counters::now(self.engine, dir);
            let space_settled_bytes = self.engine.allocated(dir).bytes;
            drop(looking);
            let space =
                sampler.join().map_err(|_| Error::from("the thread that looks at the space panicked"))?;
            let (done, left) = served?;
            Ok(Measured {
                rate_per_s,
                done,
                left,
                before,
                after,
                space,
                space_end_bytes,
                space_settled_bytes,
                device: device?,
                settle_seconds,
                settled,
            })
        })
    }

    /// The open loop: what was done, and how much was left. What was left is as late as it was at the end, at least.
    fn serve_open(&self, rate_per_s: f64, start_ns: u64) -> Result<(Done, u64)> {
        let groups = self.groups(rate_per_s, start_ns);
        let mut done = self.serve(&groups, start_ns, true)?;
        let (mut writes, mut reads) = (Recorder::new(start_ns), Recorder::new(start_ns));
        let mut left = 0;
        for group in groups {
            let mut stream = group.stream.clone();
            for (number, due_ns) in group.queue.left() {
                stream.prepare(number, group.read_share);
                let record = if stream.kind() == Kind::Put { &mut writes } else { &mut reads };
                record.leave(due_ns, group.queue.end_ns());
                left += 1;
            }
        }
        done.writes.push(writes);
        done.reads.push(reads);
        Ok((done, left))
    }
}

/// When requests of so many a second are due.
fn schedule(tail: &TailArgs, rate: f64) -> Schedule {
    if tail.burst { Schedule::Bursts(rate) } else { Schedule::Steady(rate) }
}

/// How many of the threads read where reads have their own: their part, and at least one of each kind.
fn readers(threads: u64, read_share: f64) -> u64 {
    ((threads as f64 * read_share).round() as u64).clamp(1, threads.saturating_sub(1).max(1))
}

#[cfg(test)]
mod tests;
