//! The reactor: threads that run requests beside their callers. In simulation callers that wait run
//! them.
//!
//! A thread takes an [`Operation`] from the [`Tasks`], runs it until it would wait, and puts an
//! unfinished one back with the time of its next step. [`crate::queues`] chooses the next
//! operation, and keeps a thread free of long ones. Point reads are not among the operations: one
//! more thread, the driver of [`Reads`], has all of them in flight, and their blocking steps come
//! here. So do the steps of scans ([`Scans`]), whose device reads are in flight there, too.
//!
//! The threads start with the first requests of a store and end at its close. The close drops
//! unfinished work, which resolves its requests with `Closed`.

use crate::blocking::BlockingStep;
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
use store::run::AsyncRequests;
use table::BlockRequest;

/// Threads that run operations, and a driver of device reads, for one store.
pub struct Reactor {
    context: Arc<Context>,
    /// Number of threads that run operations.
    thread_count: usize,
    scans: Arc<Scans>,
    tasks: Arc<Tasks<Box<dyn Operation>>>,
    reads: Arc<Reads>,
    /// The threads, while they are started or joined.
    threads: Mutex<Vec<Box<dyn ThreadHandle>>, rank::Workers>,
    /// Simulation: the choice among operations, from the first one on.
    choice: Mutex<Option<Rng>, rank::SimulatedJobs>,
    /// Simulation: number of operations in a step.
    stepping: AtomicUsize,
    closed: AtomicBool,
}

impl Reactor {
    /// Returns a reactor whose operations run on `thread_count` threads, started by
    /// [`Reactor::start`].
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

    /// Starts the threads, if they are not running. In simulation there are none.
    ///
    /// # Errors
    /// `Closed`; those of the system that starts threads.
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

    /// Takes a point read with the wants of its first step; without wants it needs a step that may
    /// block.
    ///
    /// # Errors
    /// `Closed`.
    pub fn read(&self, read: impl ResumableRead + 'static, wants: Vec<BlockRequest>) -> Result<()> {
        let ticket = self.reads.ticket(Box::new(read));
        if wants.is_empty() {
            return self.push(BlockingStep::new(ticket, &self.reads));
        }
        if self.reads.submit(ticket, wants) { Ok(()) } else { Err(closed()) }
    }

    /// Takes a scan, which begins once few enough are under way.
    ///
    /// # Errors
    /// `Closed`.
    pub fn scan(&self, scan: impl ResumableRead + 'static) -> Result<()> {
        self.scans.begin(scan)
    }

    /// Takes a point read that needs a step which may block.
    fn block(&self, ticket: Ticket) {
        // After a close the read is dropped, which resolves it.
        drop(self.push(BlockingStep::new(ticket, &self.reads)));
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

    /// Takes an operation, which runs as soon as a thread is free.
    ///
    /// # Errors
    /// `Closed`.
    pub fn push(&self, operation: impl Operation + 'static) -> Result<()> {
        self.push_at(0, operation)
    }

    /// Takes an operation, which runs not before `at_ns` in clock nanoseconds.
    ///
    /// # Errors
    /// `Closed`.
    pub fn push_at(&self, at_ns: u64, operation: impl Operation + 'static) -> Result<()> {
        self.tasks.push(operation.class(), at_ns, Box::new(operation)).map_err(|_| closed())
    }

    fn now_ns(&self) -> u64 {
        self.context.now_ns()
    }

    /// Returns true once [`Reactor::stop`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Stops it: each step under way ends, all other work is abandoned. Waits for the threads.
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
    /// In simulation: returns true if an operation may take a step.
    fn has_operation(&self) -> bool {
        let busy = self.stepping.load(Ordering::Acquire) >= self.thread_count;
        !busy && self.tasks.is_ready(self.now_ns())
    }
}

impl AsyncRequests for Reactor {
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
        // As with threads: a waiting operation lets others run, at most as many as there are
        // threads.
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

#[cfg(all(test, not(loom)))]
mod tests;
