//! Who carries on what a caller could not finish: a few threads, or in simulation whoever waits.
//!
//! Which of several comes next, and that what takes long leaves a thread for the rest, is in [`crate::queues`].
//!
//! An [`Operation`] is taken from the [`Tasks`], goes on as far as it can, and is put back with the time at which to look again, if it is not
//! done. Point reads are not among them: one thread more, the driver of [`Reads`], has all of theirs in flight; what of them would block comes
//! here. So do the steps of [`Scans`], whose reads are in flight there, too.
//!
//! The threads begin with the first request of a store, and end when it is closed: then what is still to be done is dropped, and so
//! told that the store was closed.

use crate::blocking::Block;
use crate::guard::guarded;
use crate::operation::{Next, Operation};
use crate::reads::{Reads, Ticket};
use crate::resumable::ResumableRead;
use crate::scans::Scans;
use crate::tasks::Tasks;
use base::Result;
use base::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use base::sync::{Mutex, lock, rank};
use io::{Priority, Rng, ThreadHandle};
use std::sync::Arc;
use store::context::{Context, closed};
use store::run::Foreground;
use table::Want;

/// See the module.
pub struct Reactor {
    context: Arc<Context>,
    /// Threads for operations.
    thread_count: usize,
    scans: Arc<Scans>,
    tasks: Arc<Tasks<Box<dyn Operation>>>,
    reads: Arc<Reads>,
    /// The threads, while they are started or joined.
    threads: Mutex<Vec<Box<dyn ThreadHandle>>, rank::Workers>,
    /// Simulation: the choice among operations, from the first of them on.
    choice: Mutex<Option<Rng>, rank::SimulatedJobs>,
    /// Simulation: operations in one of their steps.
    stepping: AtomicUsize,
    closed: AtomicBool,
}

impl Reactor {
    /// A reactor with `thread_count` threads for operations, none of them started yet.
    pub fn new(context: &Arc<Context>, thread_count: usize) -> Arc<Reactor> {
        let tasks = Arc::new(Tasks::of_threads(thread_count));
        let reads = Reads::new(context);
        Arc::new(Reactor {
            context: context.clone(),
            thread_count,
            scans: Scans::new(&tasks, &reads),
            tasks,
            reads,
            threads: Mutex::default(),
            choice: Mutex::default(),
            stepping: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        })
    }

    /// Starts the threads, if there are none (in simulation there never are).
    ///
    /// # Errors
    /// `Closed`; those of the system that makes threads.
    pub fn start(self: &Arc<Self>) -> Result<()> {
        let Some(spawner) = self.context.env.spawner.clone() else { return Ok(()) };
        let mut threads = lock(&self.threads);
        if self.is_closed() {
            return Err(closed());
        }
        let count = self.thread_count;
        for n in threads.len()..=count {
            let reactor = self.clone();
            let (name, body): (_, Box<dyn FnOnce() + Send>) = if n < count {
                (format!("lava-async-{n}"), Box::new(move || reactor.run()))
            } else {
                (
                    "lava-async-reads".to_owned(),
                    Box::new(move || reactor.reads.run(|ticket| reactor.block(ticket))),
                )
            };
            threads.push(spawner.spawn(&name, Priority::Foreground, body)?);
        }
        Ok(())
    }

    /// A point read whose first step wanted these bytes; none: it needs a step that may block.
    ///
    /// # Errors
    /// `Closed`.
    pub fn read(&self, read: impl ResumableRead + 'static, wants: Vec<Want>) -> Result<()> {
        let ticket = self.reads.ticket(Box::new(read));
        if wants.is_empty() {
            return self.push(Block { ticket, reads: self.reads.clone() });
        }
        if self.reads.bring(ticket, wants) { Ok(()) } else { Err(closed()) }
    }

    /// A scan. It waits until few enough are under way.
    ///
    /// # Errors
    /// `Closed`.
    pub fn scan(&self, scan: impl ResumableRead + 'static) -> Result<()> {
        self.scans.begin(scan)
    }

    /// A point read needs a step that may block.
    fn block(&self, ticket: Ticket) {
        // If this is closed it is dropped, and so told.
        drop(self.push(Block { ticket, reads: self.reads.clone() }));
    }

    fn run(&self) {
        let mut before = None;
        while let Some((class, operation)) = self.tasks.wait(|| self.now_ns(), before) {
            let begun_ns = self.now_ns();
            self.advance(operation);
            before = Some((class, self.now_ns().saturating_sub(begun_ns)));
        }
    }

    fn advance(&self, operation: Box<dyn Operation>) {
        if let Some(Next::At(at_ns, operation)) = guarded(&self.context.health, || operation.step())
            && let Err(operation) = self.tasks.push(operation.class(), at_ns, operation)
        {
            operation.abandon();
        }
    }

    /// Something to be done as soon as somebody has time.
    ///
    /// # Errors
    /// `Closed`.
    pub fn push(&self, operation: impl Operation + 'static) -> Result<()> {
        self.push_at(0, operation)
    }

    /// The same, but not before this, in clock nanoseconds.
    ///
    /// # Errors
    /// `Closed`.
    pub fn push_at(&self, at_ns: u64, operation: impl Operation + 'static) -> Result<()> {
        self.tasks.push(operation.class(), at_ns, Box::new(operation)).map_err(|_| closed())
    }

    /// The clock, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.context.now_ns()
    }

    /// True once [`Reactor::stop`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Ends it: what is under way comes to the end of its step, the rest is told that the store was closed.
    pub fn stop(&self) {
        self.closed.store(true, Ordering::Release);
        self.scans.close();
        self.tasks.close().into_iter().for_each(|operation| operation.abandon());
        self.reads.close();
        self.context.signals.notify_progress();
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            thread.join();
        }
    }
}

impl Reactor {
    /// In simulation: true if an operation could take a step.
    fn has_operation(&self) -> bool {
        let busy = self.stepping.load(Ordering::Acquire) >= self.thread_count;
        !busy && self.tasks.is_ready(self.now_ns())
    }
}

impl Foreground for Reactor {
    fn is_ready(&self) -> bool {
        self.has_operation() || self.reads.is_ready()
    }

    fn step(&self) -> bool {
        let (has_operation, has_reads) = (self.has_operation(), self.reads.is_ready());
        if !has_operation && !has_reads {
            return false;
        }
        let number = lock(&self.choice).get_or_insert_with(|| self.context.env.rng()).next_u64();
        if has_reads && (!has_operation || number >> 63 == 1) {
            self.reads.turn().into_iter().for_each(|ticket| self.block(ticket));
            return true;
        }
        let Some(operation) = self.tasks.pick(self.now_ns(), number) else { return false };
        // Like threads: one that waits lets others go on, but not more than there are threads.
        self.stepping.fetch_add(1, Ordering::AcqRel);
        self.advance(operation);
        self.stepping.fetch_sub(1, Ordering::AcqRel);
        true
    }
}

impl std::fmt::Debug for Reactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reactor({} threads)", self.thread_count)
    }
}
