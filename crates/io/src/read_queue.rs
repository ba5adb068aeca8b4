//! Asynchronous reads: one thread keeps hundreds of reads of any files in flight.
//!
//! [`ReadQueue::submit`] begins a read, [`ReadQueue::complete`] returns the completed ones. The
//! queue owns the buffers, so an abandoned read never writes into freed memory; dropping the queue
//! waits for the reads in flight. Files of the kernel's file system are read through an io_uring of
//! the queue. Reads that no ring takes (portable engine, other file systems) go to a few threads,
//! which are started on demand ([`work_queue`]). In simulation there are neither: a read is done
//! when completions are requested, one at a time, in an order drawn from the seed.
//!
//! A read that fails, or comes back short or interrupted from a ring, is repeated by plain reads,
//! so all paths give the same bytes and the same errors.
//!
//! **Background work** uses another kind of queue ([`ReadQueue::of_background`]). It submits whole
//! batches ([`ReadQueue::submit_all`]), and asks the read limiter for each batch. If foreground
//! reads must go first, the batch is read before the call returns, in pieces, like a synchronous
//! one. So a background read never occupies the device, and delays a foreground read, while its
//! thread does other work. A read in flight takes no place of the limiter either. A place is
//! returned when a thread notices the end of the read, and that thread may by then run a flush or a
//! compaction that waits for this very place.

mod batches;
mod work_queue;

use crate::batch::{are_of_one_pace, read_by_file};
use crate::kernel::{KernelReadFile, RingEvent, RingQueue};
use crate::{
    Env, FileRead, Priority, ReadConcurrencyLimiter, ReadFile, Rng, ThreadHandle, UnlimitedReadKind,
};
use base::Result;
use batches::Batches;
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, OnceLock};
use work_queue::WorkQueue;

/// Most threads for reads that no ring takes.
const THREADS_MAX: usize = 16;
/// The same for background work: each thread takes a batch at a time, which is many concurrent
/// reads.
const THREADS_OF_BACKGROUND_MAX: usize = 2;

/// A read of a batch: the file, the offset, and the number of bytes.
pub type Wanted<'a> = (&'a Arc<dyn ReadFile>, u64, usize);

/// A requested read. Its executor allocates the buffer.
#[derive(Debug)]
pub(crate) struct QueuedRead {
    pub file: Arc<dyn ReadFile>,
    pub offset: u64,
    pub len: usize,
    pub token: u64,
    /// The file as submitted, if its reads are timed: a ring reads the file below it.
    pub paced: Option<Arc<dyn ReadFile>>,
    /// For background work: counts the read while it is in flight.
    counted: Option<Counted>,
}

impl QueuedRead {
    fn new((file, offset, len): Wanted<'_>, token: u64) -> QueuedRead {
        QueuedRead { file: file.clone(), offset, len, token, paced: None, counted: None }
    }

    /// Allocates its buffer.
    pub(crate) fn buf(&self) -> Arc<[u8]> {
        std::iter::repeat_n(0, self.len).collect()
    }

    /// Runs the read synchronously.
    fn read(self) -> Completed {
        let mut buf = self.buf();
        let QueuedRead { file, offset, token, .. } = self;
        let read = file.read_at(Arc::get_mut(&mut buf).unwrap_or_default(), offset);
        Completed { token, read: read.map(|()| buf) }
    }
}

/// A background read in flight beside other work of its thread. It ends when this is dropped, even
/// after a failure.
#[derive(Debug)]
struct Counted {
    /// The file whose limiter counts it.
    of: Arc<dyn ReadFile>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(paced) = self.of.paced() {
            paced.pace.end_unlimited(UnlimitedReadKind::OtherWork, 1);
        }
    }
}

/// Runs all reads together by `read`; after a failure runs each alone, which identifies the failed
/// ones.
fn read_together(
    all: Vec<QueuedRead>,
    read: impl FnOnce(&mut [FileRead<'_>]) -> Result<()>,
) -> Vec<Completed> {
    let mut bufs: Vec<Arc<[u8]>> = all.iter().map(QueuedRead::buf).collect();
    let reads = all.iter().zip(&mut bufs).map(|(QueuedRead { file, offset, .. }, buf)| FileRead {
        file,
        offset: *offset,
        buf: Arc::get_mut(buf).unwrap_or_default(),
    });
    match read(&mut reads.collect::<Vec<_>>()) {
        Ok(()) => {
            let done = all.iter().zip(bufs);
            done.map(|(asked, buf)| Completed { token: asked.token, read: Ok(buf) }).collect()
        }
        Err(_) => all.into_iter().map(QueuedRead::read).collect(),
    }
}

/// A completed read.
#[derive(Debug)]
pub struct Completed {
    /// The token of its submission.
    pub token: u64,
    /// All requested bytes, or the error of the file.
    pub read: Result<Arc<[u8]>>,
}

/// Queue of asynchronous reads of any files: one thread submits hundreds of reads, does other work,
/// and collects completions now and then. The queue owns the buffers; dropping it waits for the
/// reads in flight.
///
/// ```
/// use lavastore_io::{Access, Env, ReadQueue};
/// # let path = std::env::temp_dir().join(format!("read-queue-{}", std::process::id()));
/// # std::fs::write(&path, b"abcdef")?;
/// let env = Env::kernel();
/// let file = env.fs.open(&path, Access::Buffered)?;
/// let mut reads = ReadQueue::new(&env);
/// reads.submit(&file, 1, 2, 7);
/// reads.submit(&file, 3, 3, 8);
/// let mut done = Vec::new();
/// while reads.in_flight() > 0 {
///     done.extend(reads.complete(true));
/// }
/// done.sort_by_key(|read| read.token);
/// assert_eq!(&**done[0].read.as_ref().unwrap(), b"bc");
/// assert_eq!(&**done[1].read.as_ref().unwrap(), b"def");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ReadQueue {
    env: Env,
    priority: Priority,
    ring: OptionalRing,
    /// Reads that the ring has no room for.
    waiting: VecDeque<QueuedRead>,
    threads: Vec<Box<dyn ThreadHandle>>,
    shared: Arc<SharedReads>,
    /// In simulation: the reads in flight, and the generator that chooses among them.
    simulated: Option<(Vec<QueuedRead>, Rng)>,
    in_flight: usize,
    /// For background work: the batches whose limiters are told the waiting time.
    paced: Batches,
    /// Counts it among the lent queues.
    _lent: Option<Arc<()>>,
}

/// Optional queues: a limited number at a time, since each has a ring or threads of its own.
///
/// ```
/// use lavastore_io::{Env, ReadQueues};
/// let queues = ReadQueues::new(&Env::kernel(), 1);
/// let queue = queues.lend();
/// assert!(queue.is_some() && queues.lend().is_none());
/// drop(queue);
/// assert!(queues.lend().is_some());
/// ```
#[derive(Debug)]
pub struct ReadQueues {
    env: Env,
    max: usize,
    lent: Arc<()>,
}

impl ReadQueues {
    /// Allows `max` queues at a time.
    pub fn new(env: &Env, max: usize) -> ReadQueues {
        ReadQueues { env: env.clone(), max, lent: Arc::new(()) }
    }

    /// Lends an empty queue, if one is available. Dropping it returns it. (Concurrent requests for
    /// the last one may all be refused.)
    pub fn lend(&self) -> Option<ReadQueue> {
        let lent = self.lent.clone();
        let mut queue = (Arc::strong_count(&lent) <= self.max + 1).then(|| ReadQueue::new(&self.env))?;
        queue._lent = Some(lent);
        Some(queue)
    }
}

enum OptionalRing {
    /// No file that a ring can read was submitted yet.
    Unknown,
    None,
    Some(Box<RingQueue>),
}

/// State shared by the queue, its threads and its wakers.
#[derive(Default)]
struct SharedReads {
    reads: WorkQueue<Vec<QueuedRead>, Completed>,
    /// The event of the ring, once there is one.
    event: OnceLock<RingEvent>,
}

/// Wakes a thread that waits for completions of a queue.
#[derive(Clone)]
pub struct ReadWaker(Arc<SharedReads>);

impl ReadWaker {
    /// Makes [`ReadQueue::complete`] return: the call that waits now, or else the next that would
    /// wait.
    pub fn wake(&self) {
        self.0.reads.wake();
        self.0.signal();
    }
}

impl SharedReads {
    fn signal(&self) {
        if let Some(event) = self.event.get() {
            event.signal();
        }
    }
}

impl ReadQueue {
    /// Returns an empty queue. It uses no system resources before its first read.
    pub fn new(env: &Env) -> ReadQueue {
        ReadQueue::of(env, Priority::Foreground)
    }

    /// Returns a queue for background work, which submits batches: see the module.
    pub fn of_background(env: &Env) -> ReadQueue {
        ReadQueue::of(env, Priority::Background)
    }

    fn of(env: &Env, priority: Priority) -> ReadQueue {
        ReadQueue {
            env: env.clone(),
            priority,
            ring: OptionalRing::Unknown,
            waiting: VecDeque::new(),
            threads: Vec::new(),
            shared: Arc::default(),
            simulated: env.is_simulated().then(|| (Vec::new(), env.rng())),
            in_flight: 0,
            paced: Batches::default(),
            _lent: None,
        }
    }

    /// Returns a waker for the thread that waits for completions.
    pub fn waker(&self) -> ReadWaker {
        ReadWaker(self.shared.clone())
    }

    /// Returns the number of reads submitted and not yet returned as completed.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Begins to read `len` bytes from `offset` on. The read goes to the device at the latest with
    /// the next call of [`ReadQueue::complete`], which returns it with its `token`.
    pub fn submit(&mut self, file: &Arc<dyn ReadFile>, offset: u64, len: usize, token: u64) {
        self.in_flight += 1;
        let asked = QueuedRead::new((file, offset, len), token);
        if let Some((reads, _)) = &mut self.simulated {
            return reads.push(asked);
        }
        // The limiter delays only background reads. These are foreground reads, which it only
        // times.
        let inner = file.paced().map_or(file, |paced| paced.inner).clone();
        match (&*inner as &dyn Any).downcast_ref::<KernelReadFile>() {
            Some(kernel) if self.has_ring(kernel) => {
                let paced = file.paced().is_some().then(|| file.clone());
                self.waiting.push_back(QueuedRead { file: inner, paced, ..asked });
            }
            _ => self.hand_over(vec![asked]),
        }
    }

    /// Begins a batch of background reads, whose tokens ascend from `first` on. Reads of one file
    /// should be adjacent. Returns false if the limiter required a wait: the reads are then done,
    /// each with its own result.
    pub fn submit_all(&mut self, reads: &[Wanted<'_>], first: u64) -> bool {
        self.in_flight += reads.len();
        let mut all: Vec<QueuedRead> =
            reads.iter().zip(first..).map(|(read, token)| QueuedRead::new(*read, token)).collect();
        if let Some((reads, _)) = &mut self.simulated {
            reads.append(&mut all);
            return true;
        }
        // A batch over several disks is read synchronously: each disk has its own limiter, and none
        // must make room for another's reads.
        let is_one = are_of_one_pace(reads.iter().map(|(file, ..)| *file));
        let of = reads.first().map(|(file, ..)| *file).filter(|file| file.paced().is_some()).cloned();
        let bytes = reads.iter().map(|(.., len)| *len as u64).sum();
        let goes_on = || {
            let begins = |pace: &dyn ReadConcurrencyLimiter| {
                pace.begin_unlimited(UnlimitedReadKind::OtherWork, reads.len(), bytes)
            };
            of.as_ref().and_then(|of| of.paced()).is_none_or(|paced| begins(paced.pace))
        };
        if !is_one || !goes_on() {
            let done = read_together(all, crate::read_files);
            done.into_iter().for_each(|done| self.shared.reads.give_back(done));
            return false;
        }
        let mut others = Vec::new();
        for mut asked in all {
            asked.counted = of.as_ref().map(|of| Counted { of: of.clone() });
            // The limiter counts the read here, so the read goes directly to the file below.
            let inner = asked.file.paced().map(|paced| paced.inner.clone());
            asked.file = inner.unwrap_or(asked.file);
            match (&*asked.file as &dyn Any).downcast_ref::<KernelReadFile>() {
                Some(kernel) if self.has_ring(kernel) => self.waiting.push_back(asked),
                _ => others.push(asked),
            }
        }
        if let Some(of) = of {
            self.paced.add(first..first + reads.len() as u64, of);
        }
        if !others.is_empty() {
            self.hand_over(others);
        }
        true
    }

    fn has_ring(&mut self, file: &KernelReadFile) -> bool {
        if let OptionalRing::Unknown = self.ring {
            self.ring = file.queue().map_or(OptionalRing::None, |ring| OptionalRing::Some(Box::new(ring)));
            if let OptionalRing::Some(ring) = &self.ring
                && let Some(event) = ring.event()
            {
                let _ = self.shared.event.set(event);
            }
        }
        matches!(self.ring, OptionalRing::Some(_))
    }

    /// Gives reads to a thread, which runs them together.
    fn hand_over(&mut self, asked: Vec<QueuedRead>) {
        let threads_max = match self.priority {
            Priority::Foreground => THREADS_MAX,
            Priority::Background => THREADS_OF_BACKGROUND_MAX,
        };
        if self.shared.reads.is_short_of_threads() && self.threads.len() < threads_max {
            let shared = self.shared.clone();
            let body = Box::new(move || {
                while let Some(asked) = shared.reads.next() {
                    for done in read_together(asked, read_by_file) {
                        shared.reads.give_back(done);
                    }
                    shared.signal();
                }
            });
            let name = format!("lava-read-{}", self.threads.len());
            let spawner = self.env.spawner.as_ref();
            let started = spawner.map(|spawner| spawner.spawn(&name, self.priority, body));
            self.threads.extend(started.and_then(Result::ok));
        }
        if self.threads.is_empty() {
            // If the system starts no thread, the caller runs the reads.
            let done = read_together(asked, read_by_file);
            done.into_iter().for_each(|done| self.shared.reads.give_back(done));
        } else {
            self.shared.reads.push(asked);
        }
    }

    /// Returns the completed reads. With `wait`: if there are none, waits for one. Returns none if
    /// nothing is in flight, or if a [`ReadWaker`] woke the call.
    pub fn complete(&mut self, wait: bool) -> Vec<Completed> {
        let mut done = Vec::new();
        if !wait || self.paced.is_empty() {
            self.look(wait, &mut done);
            self.paced.end(&done);
            return done;
        }
        // Reads that had already completed were not waited for, and say nothing about the disk.
        if self.look(false, &mut done) || !done.is_empty() {
            self.paced.end(&done);
            return done;
        }
        let begun_ns = self.env.clock.now_ns();
        self.look(true, &mut done);
        let waited_ns = self.env.clock.now_ns().saturating_sub(begun_ns);
        // Every disk whose reads completed was busy for this time.
        for (of, bytes) in self.paced.end(&done) {
            of.paced().into_iter().for_each(|paced| paced.pace.waited_for(bytes, waited_ns));
        }
        done
    }

    /// Adds the completed reads to `done`, and with `wait` waits for one. Returns true if it was
    /// woken.
    fn look(&mut self, wait: bool, done: &mut Vec<Completed>) -> bool {
        let wait = wait && self.in_flight > 0;
        let (before, mut woken) = (done.len(), false);
        if let Some((reads, rng)) = &mut self.simulated {
            if !reads.is_empty() {
                let nth = rng.below(reads.len() as u64) as usize;
                done.push(reads.swap_remove(nth).read());
            }
        } else {
            self.fill_ring();
            match &mut self.ring {
                OptionalRing::Some(ring) => {
                    // A thread that returns a read, and a waker, signal the ring's event
                    // afterwards.
                    woken = self.shared.reads.take(false, done);
                    ring.complete(wait && !woken && done.is_empty(), done);
                    if done.is_empty() {
                        woken |= self.shared.reads.take(false, done);
                    }
                    if ring.is_broken() {
                        self.ring = OptionalRing::None;
                        self.fill_ring();
                    }
                }
                _ => woken = self.shared.reads.take(wait, done),
            }
        }
        self.in_flight -= done.len() - before;
        woken
    }

    fn fill_ring(&mut self) {
        while let Some(asked) = self.waiting.pop_front() {
            let OptionalRing::Some(ring) = &mut self.ring else {
                self.hand_over(vec![asked]);
                continue;
            };
            let has_room = ring.in_flight() < crate::kernel::RING_DEPTH;
            match ring.push(asked) {
                Ok(()) => {}
                Err(asked) if has_room => self.hand_over(vec![asked]),
                Err(asked) => return self.waiting.push_front(asked),
            }
        }
    }
}

impl Drop for ReadQueue {
    fn drop(&mut self) {
        self.shared.reads.close();
        self.threads.drain(..).for_each(|thread| _ = thread.join());
    }
}

impl fmt::Debug for ReadQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadQueue({} in flight)", self.in_flight)
    }
}

impl fmt::Debug for ReadWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadWaker")
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
