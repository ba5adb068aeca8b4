//! Choice of the operation that a free thread of the reactor runs next.
//!
//! Each operation has a class ([`OperationClass`]): writes that continue, blocking steps of point
//! reads, and long ones (scans, flushes). A free thread serves the class with the greatest *claim*:
//!
//! ```text
//! claim = weight * queued operations * mean cost of one / (threads that serve the class + 1)
//! ```
//!
//! So threads follow the work, as in SpanDB (section 4.1), which shares its workers out by queue
//! length and cost. The weights favor the classes that delay other callers: a scan of ten
//! milliseconds does not go before writes of ten microseconds because it is longer. Two bounds hold
//! for all measurements:
//!
//! * **No starvation**: a class that was passed over [`PASSED_MAX`] times with operations queued is
//!   served next.
//! * **Long operations leave one thread free**, if there is more than one: any new operation finds
//!   a thread soon. A thread that ends a long operation takes the next one, so none is left behind.
//!
//! Within a class operations run first in, first out. The choice is a pure function of its inputs,
//! and so the same in simulation.

use std::collections::VecDeque;

/// Class of an operation, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperationClass {
    /// A write that continues or becomes durable: the writes behind it wait, too.
    Write,
    /// A step of a point read that may block.
    Read,
    /// Scans and flushes.
    Long,
}

impl OperationClass {
    const ALL: [OperationClass; 3] = [OperationClass::Write, OperationClass::Read, OperationClass::Long];

    fn weight(self) -> u64 {
        match self {
            OperationClass::Write => 64,
            OperationClass::Read => 16,
            OperationClass::Long => 1,
        }
    }
}

/// A class with queued operations is passed over at most this many times.
const PASSED_MAX: u32 = 8;
/// Assumed cost of an operation before the first measurement, nanoseconds.
const COST_NS_FIRST: u64 = 20_000;
/// Bound on a measured cost, nanoseconds: time asleep says nothing.
const COST_NS_MAX: u64 = 100_000_000;

#[derive(Debug)]
struct ClassQueue<T> {
    waiting: VecDeque<T>,
    /// Moving average of the cost of one operation, nanoseconds.
    cost_ns: u64,
    /// How often other classes were served while this one had operations queued.
    passed: u32,
    /// Threads that serve the class.
    serving: usize,
}

/// Queued operations by class; see the module.
#[derive(Debug)]
pub(crate) struct ClassQueues<T> {
    queues: [ClassQueue<T>; OperationClass::ALL.len()],
    /// Bound on threads that serve long operations.
    long_max: usize,
}

impl<T> ClassQueues<T> {
    /// Queues for this many threads.
    pub fn of_threads(threads: usize) -> ClassQueues<T> {
        let queue =
            |_| ClassQueue { waiting: VecDeque::new(), cost_ns: COST_NS_FIRST, passed: 0, serving: 0 };
        ClassQueues { queues: std::array::from_fn(queue), long_max: threads.saturating_sub(1).max(1) }
    }

    pub fn push(&mut self, class: OperationClass, task: T) {
        self.queues[class as usize].waiting.push_back(task);
    }

    pub fn len(&self) -> usize {
        self.queues.iter().map(|queue| queue.waiting.len()).sum()
    }

    /// Returns true if an operation may begin now.
    pub fn has_next(&self) -> bool {
        OperationClass::ALL.into_iter().any(|class| self.may_serve(class))
    }

    fn may_serve(&self, class: OperationClass) -> bool {
        let queue = &self.queues[class as usize];
        let bounded = class == OperationClass::Long && queue.serving >= self.long_max;
        !queue.waiting.is_empty() && !bounded
    }

    /// Takes the next operation for a free thread.
    pub fn serve(&mut self) -> Option<(OperationClass, T)> {
        let may = || OperationClass::ALL.into_iter().filter(|class| self.may_serve(*class));
        let claim = |class: OperationClass| {
            let ClassQueue { waiting, cost_ns, serving, .. } = &self.queues[class as usize];
            let work = class.weight().saturating_mul(waiting.len() as u64).saturating_mul(*cost_ns);
            work / (*serving as u64 + 1)
        };
        let starved = || may().filter(|class| self.queues[*class as usize].passed >= PASSED_MAX);
        let longest = starved().max_by_key(|class| self.queues[*class as usize].passed);
        // Of equal claims the most urgent class, which `max_by_key` would find last.
        let class = longest.or_else(|| may().rev().max_by_key(|class| claim(*class)))?;
        for other in OperationClass::ALL {
            let waits = other != class && self.may_serve(other);
            let queue = &mut self.queues[other as usize];
            queue.passed = if waits { queue.passed + 1 } else { 0 };
        }
        let queue = &mut self.queues[class as usize];
        let task = queue.waiting.pop_front()?;
        queue.serving += 1;
        Some((class, task))
    }

    /// Notes that a thread has served an operation of this class, in `ns` nanoseconds.
    pub fn served(&mut self, class: OperationClass, ns: u64) {
        let queue = &mut self.queues[class as usize];
        queue.serving = queue.serving.saturating_sub(1);
        queue.cost_ns = ((queue.cost_ns * 7 + ns.min(COST_NS_MAX)) / 8).max(1);
    }

    /// Removes the operation with this index over all classes. It counts as no turn of a class.
    pub fn remove(&mut self, mut nth: usize) -> Option<T> {
        for queue in &mut self.queues {
            match nth.checked_sub(queue.waiting.len()) {
                Some(left) => nth = left,
                None => return queue.waiting.remove(nth),
            }
        }
        None
    }

    /// Removes all queued operations.
    pub fn drain(&mut self) -> Vec<T> {
        self.queues.iter_mut().flat_map(|queue| queue.waiting.drain(..)).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
