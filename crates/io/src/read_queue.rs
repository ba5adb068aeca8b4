//! Reads that go on while their thread does something else: hundreds in flight, of any files, from one thread.
//!
//! [`ReadQueue::submit`] begins a read, [`ReadQueue::complete`] tells which are done. The queue owns the buffers, so whoever loses interest
//! lets go of nothing that is written to; dropping the queue waits for what is in flight. Files of the machine's own file system are read through a ring (io_uring) of the
//! queue; what no ring takes (the portable engine, other file systems) a few threads read, begun as they are needed
//! ([`hand_over`]). In simulation, where there are neither, a read is done when completions are asked for, one at a time, and which is
//! drawn by the seed.
//!
//! A read that fails, comes back short or interrupted in a ring is made again by plain reads: so all ways give the same bytes and the
//! same errors.
//!
//! **Background work** has a queue of another kind ([`ReadQueue::of_background`]). It submits whole batches ([`ReadQueue::submit_all`]), and what paces it is asked
//! for each: where others are to be served first the batch is read before the call returns, in pieces, as one that is waited for. So none of its reads holds a
//! place at the device while its thread does something else, which somebody may have to wait for who has to go on first.

mod batches;
mod hand_over;

use crate::batch::{are_of_one_pace, read_by_file};
use crate::kernel::{KernelReadFile, RingEvent, RingQueue};
use crate::{Beside, Env, FileRead, Priority, ReadFile, ReadPace, Rng, ThreadHandle};
use base::Result;
use batches::Batches;
use hand_over::HandOver;
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Threads that read what no ring takes, at most.
const THREADS_MAX: usize = 16;
/// The same for background work: each takes a batch at a time, which is many reads at once.
const THREADS_OF_BACKGROUND_MAX: usize = 2;

/// A read of a batch: the file, where in it, and how many bytes.
pub type Wanted<'a> = (&'a Arc<dyn ReadFile>, u64, usize);

/// A read that is to be done. Who does it makes a buffer of its own for it.
#[derive(Debug)]
pub(crate) struct Asked {
    pub file: Arc<dyn ReadFile>,
    pub offset: u64,
    pub len: usize,
    pub token: u64,
    /// The file as it was given, if it is one whose reads are timed: a ring reads what is below it.
    pub paced: Option<Arc<dyn ReadFile>>,
    /// Of background work: counts it as long as it is in flight.
    counted: Option<Counted>,
}

impl Asked {
    fn new((file, offset, len): Wanted<'_>, token: u64) -> Asked {
        Asked { file: file.clone(), offset, len, token, paced: None, counted: None }
    }

    /// A buffer for it.
    pub(crate) fn buf(&self) -> Arc<[u8]> {
        std::iter::repeat_n(0, self.len).collect()
    }

    /// Does it, while the caller waits.
    fn read(self) -> Completed {
        let mut buf = self.buf();
        let Asked { file, offset, token, .. } = self;
        let read = file.read_at(Arc::get_mut(&mut buf).unwrap_or_default(), offset);
        Completed { token, read: read.map(|()| buf) }
    }
}

/// A read of background work that goes on beside what its thread does. It ends when this is dropped, also where nothing came of it.
#[derive(Debug)]
struct Counted {
    /// The file whose pace counts it.
    of: Arc<dyn ReadFile>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(paced) = self.of.paced() {
            paced.pace.ends_beside(Beside::OtherWork, 1);
        }
    }
}

/// Does all of them by `read`, together; if that fails each alone, which tells of which the failure is.
fn read_together(all: Vec<Asked>, read: impl FnOnce(&mut [FileRead<'_>]) -> Result<()>) -> Vec<Completed> {
    let mut bufs: Vec<Arc<[u8]>> = all.iter().map(Asked::buf).collect();
    let reads = all.iter().zip(&mut bufs).map(|(Asked { file, offset, .. }, buf)| FileRead {
        file,
        offset: *offset,
        buf: Arc::get_mut(buf).unwrap_or_default(),
    });
    match read(&mut reads.collect::<Vec<_>>()) {
        Ok(()) => {
            let done = all.iter().zip(bufs);
            done.map(|(asked, buf)| Completed { token: asked.token, read: Ok(buf) }).collect()
        }
        Err(_) => all.into_iter().map(Asked::read).collect(),
    }
}

/// A read that is done.
#[derive(Debug)]
pub struct Completed {
    /// What it was submitted under.
    pub token: u64,
    /// All the bytes that were asked for, or the error of the file.
    pub read: Result<Arc<[u8]>>,
}

/// Reads of any files in flight, hundreds of one thread: it submits them, goes on, and asks now and then which are done. It owns the
/// buffers; dropping it waits for what is in flight.
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
    ring: Ring,
    /// What the ring has no room for.
    waiting: VecDeque<Asked>,
    threads: Vec<Box<dyn ThreadHandle>>,
    shared: Arc<Shared>,
    /// In simulation: what is in flight, and who chooses among it.
    simulated: Option<(Vec<Asked>, Rng)>,
    in_flight: usize,
    /// Of background work: whose paces are told how long is waited for what is in flight.
    paced: Batches,
    /// Counts it among those that were lent.
    _lent: Option<Arc<()>>,
}

/// Queues for those who could do without one: only so many at a time, since each has a ring or threads of its own.
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
    /// Lends `max` at a time.
    pub fn new(env: &Env, max: usize) -> ReadQueues {
        ReadQueues { env: env.clone(), max, lent: Arc::new(()) }
    }

    /// A queue with nothing in flight, if one can be had. Dropping it gives it back. (Of those that ask at the same moment for the last one
    /// all may be refused.)
    pub fn lend(&self) -> Option<ReadQueue> {
        let lent = self.lent.clone();
        let mut queue = (Arc::strong_count(&lent) <= self.max + 1).then(|| ReadQueue::new(&self.env))?;
        queue._lent = Some(lent);
        Some(queue)
    }
}

enum Ring {
    /// No file was read that could go through one.
    Unknown,
    None,
    Some(Box<RingQueue>),
}

/// What the queue, its threads and those who wake it have in common.
#[derive(Default)]
struct Shared {
    reads: HandOver<Vec<Asked>, Completed>,
    /// Of the ring, as soon as there is one.
    event: OnceLock<RingEvent>,
}

/// Wakes who waits for completions of a queue.
#[derive(Clone)]
pub struct ReadWaker(Arc<Shared>);

impl ReadWaker {
    /// [`ReadQueue::complete`] returns: the call that waits now, or else the next that would.
    pub fn wake(&self) {
        self.0.reads.wake();
        self.0.signal();
    }
}

impl Shared {
    fn signal(&self) {
        if let Some(event) = self.event.get() {
            event.signal();
        }
    }
}

impl ReadQueue {
    /// A queue with nothing in flight. It takes nothing of the system before it is used.
    pub fn new(env: &Env) -> ReadQueue {
        ReadQueue::of(env, Priority::Foreground)
    }

    /// The same for background work, which submits batches: see the module.
    pub fn of_background(env: &Env) -> ReadQueue {
        ReadQueue::of(env, Priority::Background)
    }

    fn of(env: &Env, priority: Priority) -> ReadQueue {
        ReadQueue {
            env: env.clone(),
            priority,
            ring: Ring::Unknown,
            waiting: VecDeque::new(),
            threads: Vec::new(),
            shared: Arc::default(),
            simulated: env.is_simulated().then(|| (Vec::new(), env.rng())),
            in_flight: 0,
            paced: Batches::default(),
            _lent: None,
        }
    }

    /// What wakes who waits for completions.
    pub fn waker(&self) -> ReadWaker {
        ReadWaker(self.shared.clone())
    }

    /// Reads that were submitted and not told as completed.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Begins to read `len` bytes from `offset` on. It goes to the device with the next call of [`ReadQueue::complete`] at the latest; `token` says then
    /// which it was.
    pub fn submit(&mut self, file: &Arc<dyn ReadFile>, offset: u64, len: usize, token: u64) {
        self.in_flight += 1;
        let asked = Asked::new((file, offset, len), token);
        if let Some((reads, _)) = &mut self.simulated {
            return reads.push(asked);
        }
        // What paces reads holds back those of the background. These are in the foreground, and only timed.
        let inner = file.paced().map_or(file, |paced| paced.inner).clone();
        match (&*inner as &dyn Any).downcast_ref::<KernelReadFile>() {
            Some(kernel) if self.has_ring(kernel) => {
                let paced = file.paced().is_some().then(|| file.clone());
                self.waiting.push_back(Asked { file: inner, paced, ..asked });
            }
            _ => self.hand_over(vec![asked]),
        }
    }

    /// Begins a batch of reads, of background work, whose tokens ascend from `first` on. Reads of one file should stand side by side. False: they were to be waited for, and are
    /// done, each well or not.
    pub fn submit_all(&mut self, reads: &[Wanted<'_>], first: u64) -> bool {
        self.in_flight += reads.len();
        let mut all: Vec<Asked> =
            reads.iter().zip(first..).map(|(read, token)| Asked::new(*read, token)).collect();
        if let Some((reads, _)) = &mut self.simulated {
            reads.append(&mut all);
            return true;
        }
        // One that is of several disks is waited for: each then has its own, and none is asked to make room for another's.
        let is_one = are_of_one_pace(reads.iter().map(|(file, ..)| *file));
        let of = reads.first().map(|(file, ..)| *file).filter(|file| file.paced().is_some()).cloned();
        let bytes = reads.iter().map(|(.., len)| *len as u64).sum();
        let goes_on = || {
            let begins = |pace: &dyn ReadPace| pace.begins_beside(Beside::OtherWork, reads.len(), bytes);
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
            // It is counted by that, so what paces reads of this one is passed over.
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
        if let Ring::Unknown = self.ring {
            self.ring = file.queue().map_or(Ring::None, |ring| Ring::Some(Box::new(ring)));
            if let Ring::Some(ring) = &self.ring
                && let Some(event) = ring.event()
            {
                let _ = self.shared.event.set(event);
            }
        }
        matches!(self.ring, Ring::Some(_))
    }

    /// Gives reads to a thread, which does them together.
    fn hand_over(&mut self, asked: Vec<Asked>) {
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
            // The system makes no threads: then the caller waits.
            let done = read_together(asked, read_by_file);
            done.into_iter().for_each(|done| self.shared.reads.give_back(done));
        } else {
            self.shared.reads.push(asked);
        }
    }

    /// What is done. With `wait`: if that is nothing, waits until something is; nothing if nothing is in flight, or if a
    /// [`ReadWaker`] woke it.
    pub fn complete(&mut self, wait: bool) -> Vec<Completed> {
        let mut done = Vec::new();
        if !wait || self.paced.is_empty() {
            self.look(wait, &mut done);
            self.paced.end(&done);
            return done;
        }
        // What is there already was not waited for, and says nothing of the disk.
        if self.look(false, &mut done) || !done.is_empty() {
            self.paced.end(&done);
            return done;
        }
        let begun_ns = self.env.clock.now_ns();
        self.look(true, &mut done);
        let waited_ns = self.env.clock.now_ns().saturating_sub(begun_ns);
        // Both disks of which something came were busy so long.
        for (of, bytes) in self.paced.end(&done) {
            of.paced().into_iter().for_each(|paced| paced.pace.waited_for(bytes, waited_ns));
        }
        done
    }

    /// Adds what is done to `done`, and with `wait` waits until something is. True if it was woken.
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
                Ring::Some(ring) => {
                    // What threads bring, and whoever wakes, signals the ring's event after it.
                    woken = self.shared.reads.take(false, done);
                    ring.complete(wait && !woken && done.is_empty(), done);
                    if done.is_empty() {
                        woken |= self.shared.reads.take(false, done);
                    }
                    if ring.is_broken() {
                        self.ring = Ring::None;
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
            let Ring::Some(ring) = &mut self.ring else {
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
