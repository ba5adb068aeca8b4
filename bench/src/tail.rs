//! `tail`: latencies of updates and gets that are due at a share of the sustained rate.
//!
//! Follows vLSM (section 5). The load is an open loop, and latencies count from the due time. The
//! rate is a percentage of the sustained rate, not of a short-term rate. A run consists of:
//!
//! 1. **Load**: every key once, in random order; then the background comes to rest.
//! 2. **Fill**: updates of an eighth of the data at full speed, which is the size of all levels but
//!    the last.
//! 3. **Find** (unless `--rate` is given): the mix of the clients in a closed loop. As the levels
//!    are full, compaction limits the writers; the operations over the time of the phase are the
//!    sustained rate.
//! 4. **Rest**: the background becomes idle again. Compaction stops when no level exceeds its
//!    target, so all levels but the last are full, and level 0 is not; the report has the shape.
//! 5. **Measured phase**: the open loop, then settling, as in other runs. Several loads (`--load
//!    20,40,60`) have consecutive phases in one store.
//!
//! With [`Clients::Shared`] all clients take reads and writes from one queue. So a read waits
//! behind a delayed write, as in a server with a thread pool. With [`Clients::Separate`] reads have
//! their own threads and queue. Each request is a function of the seed and its number, so two runs
//! at one rate do the same work.
//!
//! [Bursts] multiply the rate for some seconds, followed by a pause. A closed loop (`--closed`) has
//! no rate, and shows writers that demand more than the device sustains.
//!
//! Several families share the memtable memory ([`crate::EngineSettings::of`]) and the keys.

pub mod bursts;
pub mod engine;
mod points;
mod probe;
pub mod queue;
mod report;

pub use crate::args::tail::{Clients, TailArgs, words};
pub use points::TailRuns;
pub use report::{Brief, Second, TailReport};

use crate::args::{BenchArgs, Workload};
use crate::costs::{Around, Counters, SETTLE_MAX};
use crate::drive::{drive, single};
use crate::engine::{Engine, EngineSettings, Opener, Phase};
use crate::host::{StopOnDrop, now_ns, wait_until};
use crate::record::{Kind, Recorder};
use crate::run::{LOAD_BATCH, join, unpaced};
use crate::space;
use crate::workload::{KeySpace, Role, Stream};
use crate::{Error, Result};
use bursts::{Look, Plan, Seen, Tally};
use io::Env;
use queue::{ArrivalQueue, Bursts, Schedule};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Default duration of the measured phase in seconds.
const SECONDS: f64 = 60.0;
/// Time for late requests after the end; later ones are dropped.
const PATIENCE_NS: u64 = 10_000_000_000;
/// Number of keys per update of the fill.
const FILL_ONE_IN: u64 = 8;

/// Threads with a common queue.
struct Group {
    queue: ArrivalQueue,
    stream: Stream,
    read_share: f64,
    threads: u64,
}

/// Records of a client, separately for writes and reads.
struct ClientRecord {
    writes: Recorder,
    reads: Recorder,
    /// Set with bursts.
    tally: Option<Tally>,
}

/// Records of all clients.
struct Done {
    writes: Vec<Recorder>,
    reads: Vec<Recorder>,
    tallies: Vec<Tally>,
    seconds: f64,
}

/// Completed and remaining requests.
struct Served {
    done: Done,
    left: u64,
    /// Schedule of the bursts, if any.
    plan: Option<Plan>,
}

/// A store under load.
#[derive(Clone)]
struct Loaded<'a> {
    args: &'a BenchArgs,
    space: &'a KeySpace,
    engine: &'a dyn Engine,
    /// All families, starting with the first.
    families: Vec<&'a dyn Engine>,
}

/// Measurements of the measured phase.
struct TailMeasurements {
    rate_per_s: f64,
    served: Served,
    around: Around,
    stall_budget: Option<Duration>,
    /// Probes of the device: writes, and synced writes.
    device: Option<Recorder>,
    device_syncs: Option<Recorder>,
    looks: Vec<Look>,
}

/// The sustained rate and its measurement.
#[derive(Clone, Debug, Default)]
struct Sustained {
    per_s: f64,
    /// Operations of each second; empty for a given rate.
    by_second: Vec<u64>,
}

/// Makes a run in `dir` and returns a report per load. The caller removes the directory.
///
/// # Errors
/// Invalid options; errors of the engine; wrong results.
pub fn run(args: &BenchArgs, opener: &dyn Opener, dir: &Path) -> Result<TailRuns> {
    args.check()?;
    if args.workload != Workload::Tail {
        return Err("this function measures only the workload tail".into());
    }
    let space = KeySpace::new(args);
    let settings = EngineSettings::of(args)?;
    let start_ns = now_ns();
    let engine = opener.open(dir, &settings)?;
    if args.limit_bytes().is_some() && !engine.keeps_space_limit() {
        return Err(format!("{} knows no space limit: omit --space-limit", opener.name()).into());
    }
    let store = Loaded::new(args, &space, &*engine)?;
    engine.phase(Phase::Load);
    if !args.reuse {
        store.load()?;
    }
    store.begin();
    store.fill()?;
    let sustained = match args.rate {
        Some(per_s) => Sustained { per_s, by_second: Vec::new() },
        None => store.find()?,
    };
    let rested = engine.settle(SETTLE_MAX)?;
    let load_seconds = (now_ns() - start_ns) as f64 / 1e9;
    let whole = |report: TailReport| TailReport {
        engine: opener.name(),
        load_seconds,
        rested,
        engine_settings: engine.settings().into_iter().collect(),
        ..report
    };
    let points = match args.tail.only_find {
        true => vec![whole(report::of(args, &sustained, None))],
        false => {
            let reports = store.points(dir, &sustained)?;
            reports.into_iter().map(whole).collect()
        }
    };
    drop(store);
    engine.close()?;
    Ok(TailRuns { points })
}

impl<'a> Loaded<'a> {
    fn new(args: &'a BenchArgs, space: &'a KeySpace, engine: &'a dyn Engine) -> Result<Self> {
        let families: Vec<_> = std::iter::once(engine).chain(engine.families()).collect();
        if families.len() as u64 != args.tail.families {
            return Err(format!(
                "this engine created {} of {} column families: lower --families",
                families.len(),
                args.tail.families
            )
            .into());
        }
        Ok(Loaded { args, space, engine, families })
    }

    /// Announces the start of clients to the engine.
    fn begin(&self) {
        self.engine.phase(if self.args.tail.read_share > 0.0 { Phase::Read } else { Phase::Write });
    }

    /// Runs the loads in order.
    fn points(&self, dir: &Path, sustained: &Sustained) -> Result<Vec<TailReport>> {
        if self.args.tail.closed.is_some() {
            return Ok(vec![report::of(self.args, sustained, Some(&self.measure(dir, 0.0)?))]);
        }
        let point = |load: f64| {
            let args = BenchArgs { tail: self.args.tail.at(load), ..self.args.clone() };
            let measured =
                Loaded { args: &args, ..self.clone() }.measure(dir, sustained.per_s * load / 100.0)?;
            Ok(report::of(&args, sustained, Some(&measured)))
        };
        self.args.tail.loads().iter().map(point).collect()
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
        let queue = ArrivalQueue::closed(now_ns(), count, u64::MAX);
        // A store without writes stays as it was loaded.
        let writes = self.args.tail.read_share < 1.0;
        if writes {
            self.serve(&[self.group(queue, Role::Warmup, 0.0)], now_ns(), false)?;
        }
        Ok(())
    }

    fn find(&self) -> Result<Sustained> {
        let start_ns = now_ns();
        let end_ns = start_ns + (self.args.tail.find_seconds * 1e9) as u64;
        let queue = ArrivalQueue::closed(start_ns, u64::MAX, end_ns);
        let group = self.group(queue, Role::Writer, self.args.tail.read_share);
        let done = self.serve(&[group], start_ns, false)?;
        let merged = done.all();
        let per_s = merged.ops as f64 / done.seconds;
        if per_s > 0.0 {
            Ok(Sustained { per_s, by_second: merged.by_second })
        } else {
            Err("the sustained rate is 0 operations per second: raise --find-seconds".into())
        }
    }

    /// Assigns all clients to one queue.
    fn group(&self, queue: ArrivalQueue, role: Role, read_share: f64) -> Group {
        let stream = Stream::new(self.space, role, Kind::Put, 0, 0, 1);
        Group { queue, stream, read_share, threads: self.args.threads() }
    }

    /// Returns the duration of the measured phase.
    fn seconds_ns(&self) -> u64 {
        (self.args.seconds.unwrap_or(SECONDS) * 1e9) as u64
    }

    /// Returns the clients of the measured phase.
    fn groups(&self, rate: f64, start_ns: u64) -> Vec<Group> {
        let TailArgs { read_share, clients, closed, .. } = self.args.tail;
        let seconds_ns = self.seconds_ns();
        if let Some(threads) = closed {
            let queue = ArrivalQueue::closed(start_ns, u64::MAX, start_ns + seconds_ns);
            return vec![Group { threads, ..self.group(queue, Role::Client, read_share) }];
        }
        let open =
            |rate| ArrivalQueue::open(schedule(&self.args.tail, rate), start_ns, seconds_ns, PATIENCE_NS);
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

    /// Runs clients until their queues end. A failing client stops the others.
    fn serve(&self, groups: &[Group], start_ns: u64, by_second: bool) -> Result<Done> {
        let stop = AtomicBool::new(false);
        let stop = &stop;
        let records = std::thread::scope(|scope| {
            let each = groups.iter().flat_map(|group| (0..group.threads).map(move |_| group));
            let clients = each.map(|group| {
                let new = || if by_second { Recorder::by_second(start_ns) } else { Recorder::new(start_ns) };
                let tally = if by_second { Tally::of(&group.queue, start_ns) } else { None };
                let record = ClientRecord { writes: new(), reads: new(), tally };
                scope.spawn(move || {
                    let outcome = self.client(group, record, stop);
                    outcome.inspect_err(|_| stop.store(true, Ordering::Relaxed))
                })
            });
            let clients: Vec<_> = clients.collect();
            clients.into_iter().map(|client| join(client.join())).collect::<Vec<Result<_>>>()
        });
        let seconds = (now_ns() - start_ns) as f64 / 1e9;
        let mut done = Done { writes: Vec::new(), reads: Vec::new(), tallies: Vec::new(), seconds };
        for record in records {
            let ClientRecord { writes, reads, tally } = record?;
            done.writes.push(writes);
            done.reads.push(reads);
            done.tallies.extend(tally);
        }
        Ok(done)
    }

    /// Runs a client: writes and reads.
    fn client(&self, group: &Group, mut record: ClientRecord, stop: &AtomicBool) -> Result<ClientRecord> {
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
                    let end_ns = now_ns();
                    record.of(stream.kind()).complete(begin_ns, end_ns, 1, bytes);
                    if let Some(tally) = &mut record.tally {
                        tally.done(number, begin_ns, end_ns);
                    }
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        self.engine.thread_end();
        outcome.map(|()| record)
    }

    /// Runs the measured phase with its observers.
    fn measure(&self, dir: &Path, rate_per_s: f64) -> Result<TailMeasurements> {
        self.begin();
        let before = Counters::now(self.engine, dir);
        let (look, write) = (AtomicBool::new(false), AtomicBool::new(false));
        let (write, start_ns) = (&write, now_ns());
        std::thread::scope(|scope| {
            let sampler = scope.spawn(|| space::sample(dir, self.engine, None, &look));
            let probes = [probe::WRITE, probe::SYNC]
                .map(|what| scope.spawn(move || probe::probe(&Env::kernel(), dir, what, start_ns, write)));
            let watcher = self
                .args
                .tail
                .burst
                .is_some()
                .then(|| scope.spawn(move || bursts::watch(self.engine, start_ns, write)));
            let (looking, writing) = (StopOnDrop(&look), StopOnDrop(write));
            let served = self.serve_measured(rate_per_s, start_ns);
            drop(writing);
            let [device, device_syncs] = probes.map(|probe| join(probe.join()));
            let looks = watcher.map(|watcher| join(watcher.join().map(Ok))).transpose()?;
            let around = Around::settled(self.engine, dir, served.is_ok() && !self.args.no_settle)?;
            drop(looking);
            let space = sampler.join().map_err(|_| {
                Error::from("the thread that samples the disk space panicked: the run has no result")
            })?;
            Ok(TailMeasurements {
                rate_per_s,
                served: served?,
                around: Around { before, space, ..around },
                stall_budget: self.engine.stall_budget(),
                device: device?,
                device_syncs: device_syncs?,
                looks: looks.unwrap_or_default(),
            })
        })
    }

    /// Runs the due requests as far as the clients get. A remaining request counts with its age at
    /// the end.
    fn serve_measured(&self, rate_per_s: f64, start_ns: u64) -> Result<Served> {
        let groups = self.groups(rate_per_s, start_ns);
        let queues = groups.iter().map(|group| &group.queue);
        let plan = Plan::of(queues, start_ns, self.seconds_ns());
        let mut done = self.serve(&groups, start_ns, true)?;
        let mut left = 0;
        for group in groups {
            let mut stream = group.stream.clone();
            let (writes, reads) = (Recorder::new(start_ns), Recorder::new(start_ns));
            let mut waiting = ClientRecord { writes, reads, tally: Tally::of(&group.queue, start_ns) };
            for (number, due_ns) in group.queue.left() {
                stream.prepare(number, group.read_share);
                waiting.of(stream.kind()).leave(due_ns, group.queue.end_ns());
                waiting.tally.iter_mut().for_each(|tally| tally.left(number, due_ns, group.queue.end_ns()));
                left += 1;
            }
            done.writes.push(waiting.writes);
            done.reads.push(waiting.reads);
            done.tallies.extend(waiting.tally);
        }
        if plan.is_some() {
            // Includes the pause after the last burst.
            wait_until(start_ns + self.seconds_ns());
        }
        Ok(Served { done, left, plan })
    }
}

impl ClientRecord {
    fn of(&mut self, kind: Kind) -> &mut Recorder {
        if kind == Kind::Put { &mut self.writes } else { &mut self.reads }
    }
}

impl Served {
    /// Returns the counts of each burst.
    fn seen(&self) -> Vec<Seen> {
        bursts::merged(&self.done.tallies)
    }
}

/// Returns the schedule for a rate.
fn schedule(tail: &TailArgs, rate: f64) -> Schedule {
    let ns = |seconds: f64| (seconds * 1e9) as u64;
    match tail.burst {
        None => Schedule::Steady(rate),
        Some(burst) => Schedule::Bursts(Bursts {
            per_s: rate * burst.times,
            burst_ns: ns(burst.span.seconds),
            idle_ns: ns(tail.idle_seconds()),
        }),
    }
}

/// Returns the number of reading threads with separate queues: their share, but at least one of
/// each kind.
fn readers(threads: u64, read_share: f64) -> u64 {
    ((threads as f64 * read_share).round() as u64).clamp(1, threads.saturating_sub(1).max(1))
}

#[cfg(test)]
mod tests;
