//! Which of the things that wait a thread of the reactor does next.
//!
//! What waits is of a class ([`Class`]): writes that are to go on, what holds up point reads, and what takes long (scans, flushes). A thread
//! that comes is given to the class with the greatest *claim*:
//!
//! ```text
//! claim = weight * things that wait * what one takes (a moving average) / (threads that are at it + 1)
//! ```
//!
//! So threads go to the classes as the work in them does (SpanDB, section 4.1, shares its workers out by length of queue and cost in the same
//! way), and a class that others wait for sooner weighs more: a scan of ten milliseconds is not in front of writes of ten microseconds because it
//! is longer. Two bounds hold whatever the numbers say:
//!
//! * **Nobody starves**: a class that was passed over [`PASSED_MAX`] times while it had something is served next.
//! * **What takes long never takes the last thread**, if there is more than one: whatever comes finds a thread soon. Who comes back from
//!   it takes the next, so what is left over is never left lying.
//!
//! Within a class the first comes first. A pure function of what it is told, so it is the same in simulation.

use std::collections::VecDeque;

/// What something is that the reactor does, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A write goes on, or is made durable: those behind it wait as well.
    Write,
    /// A point read goes on that had to open a file.
    Read,
    /// Scans and flushes.
    Long,
}

impl Class {
    const ALL: [Class; 3] = [Class::Write, Class::Read, Class::Long];

    fn weight(self) -> u64 {
        match self {
            Class::Write => 64,
            Class::Read => 16,
            Class::Long => 1,
        }
    }
}

/// A class that has something is passed over at most so often.
const PASSED_MAX: u32 = 8;
/// What one takes as long as nothing is known, nanoseconds.
const COST_NS_FIRST: u64 = 20_000;
/// The most that one counts for: what slept in it says nothing.
const COST_NS_MAX: u64 = 100_000_000;

#[derive(Debug)]
struct Queue<T> {
    waiting: VecDeque<T>,
    /// What one takes.
    cost_ns: u64,
    /// How often others were served since it had something.
    passed: u32,
    /// Threads that are at it.
    serving: usize,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Queues<T> {
    queues: [Queue<T>; Class::ALL.len()],
    /// The most threads at what takes long.
    long_max: usize,
}

impl<T> Queues<T> {
    /// For so many threads.
    pub fn of_threads(threads: usize) -> Queues<T> {
        let queue = |_| Queue { waiting: VecDeque::new(), cost_ns: COST_NS_FIRST, passed: 0, serving: 0 };
        Queues { queues: std::array::from_fn(queue), long_max: threads.saturating_sub(1).max(1) }
    }

    pub fn push(&mut self, class: Class, task: T) {
        self.queues[class as usize].waiting.push_back(task);
    }

    pub fn len(&self) -> usize {
        self.queues.iter().map(|queue| queue.waiting.len()).sum()
    }

    /// True if there is something that may begin now.
    pub fn has_next(&self) -> bool {
        Class::ALL.into_iter().any(|class| self.may_serve(class))
    }

    fn may_serve(&self, class: Class) -> bool {
        let queue = &self.queues[class as usize];
        let bounded = class == Class::Long && queue.serving >= self.long_max;
        !queue.waiting.is_empty() && !bounded
    }

    /// What a thread that has come does next.
    pub fn serve(&mut self) -> Option<(Class, T)> {
        let may = || Class::ALL.into_iter().filter(|class| self.may_serve(*class));
        let claim = |class: Class| {
            let Queue { waiting, cost_ns, serving, .. } = &self.queues[class as usize];
            let work = class.weight().saturating_mul(waiting.len() as u64).saturating_mul(*cost_ns);
            work / (*serving as u64 + 1)
        };
        let starved = || may().filter(|class| self.queues[*class as usize].passed >= PASSED_MAX);
        let longest = starved().max_by_key(|class| self.queues[*class as usize].passed);
        // Of equals the most urgent, which `max_by_key` would find last.
        let class = longest.or_else(|| may().rev().max_by_key(|class| claim(*class)))?;
        for other in Class::ALL {
            let waits = other != class && self.may_serve(other);
            let queue = &mut self.queues[other as usize];
            queue.passed = if waits { queue.passed + 1 } else { 0 };
        }
        let queue = &mut self.queues[class as usize];
        let task = queue.waiting.pop_front()?;
        queue.serving += 1;
        Some((class, task))
    }

    /// A thread is through with one, after so long.
    pub fn served(&mut self, class: Class, ns: u64) {
        let queue = &mut self.queues[class as usize];
        queue.serving = queue.serving.saturating_sub(1);
        queue.cost_ns = ((queue.cost_ns * 7 + ns.min(COST_NS_MAX)) / 8).max(1);
    }

    /// The one of this number, whatever its class; it is nobody's turn then.
    pub fn remove(&mut self, mut nth: usize) -> Option<T> {
        for queue in &mut self.queues {
            match nth.checked_sub(queue.waiting.len()) {
                Some(left) => nth = left,
                None => return queue.waiting.remove(nth),
            }
        }
        None
    }

    /// All that waits.
    pub fn drain(&mut self) -> Vec<T> {
        self.queues.iter_mut().flat_map(|queue| queue.waiting.drain(..)).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
