//! Requests that are due at times fixed before, and the one queue that threads take them from.
//!
//! vLSM (section 5) has a thread that makes requests at a fixed rate and puts them into a queue without bound, from which the
//! clients take one after the other. Here nobody makes them: when request `n` is due is a function of `n` ([`Schedule`]), so that
//! the queue is the number of the next one. A client that has nothing to do takes its turn: it waits until the next request is
//! due, takes it and lets the next client wait. So a request meets the client that is free first, those behind it are
//! late from the moment on at which they were due, and on a small machine no thread takes a processor from the engine but
//! the one whose turn it is.

use crate::host::{now_ns, wait_until};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// When requests are due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// So many a second, evenly.
    Steady(f64),
    /// None but in bursts.
    Bursts(Bursts),
}

/// So many a second for some time, evenly, then none, again and again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bursts {
    /// Requests of a burst in each second.
    pub per_s: f64,
    /// How long a burst is.
    pub burst_ns: u64,
    /// From the end of a burst to the next.
    pub idle_ns: u64,
}

impl Bursts {
    /// Requests of one.
    pub fn each(&self) -> u64 {
        ((self.per_s * self.burst_ns as f64 / 1e9).round() as u64).max(1)
    }

    /// In which the request of this number is.
    pub fn burst_of(&self, number: u64) -> u64 {
        number / self.each()
    }

    /// From the beginning of one to that of the next.
    pub fn period_ns(&self) -> u64 {
        self.burst_ns + self.idle_ns
    }
}

impl Schedule {
    /// When the request of this number is due, after the start.
    pub fn due_ns(self, number: u64) -> u64 {
        match self {
            Schedule::Steady(rate) => (number as f64 * 1e9 / rate) as u64,
            Schedule::Bursts(bursts) => {
                let each = bursts.each();
                let within = (number % each) as f64 * bursts.burst_ns as f64 / each as f64;
                bursts.burst_of(number) * bursts.period_ns() + within as u64
            }
        }
    }

    /// How many are due before then.
    pub fn due_before(self, ns: u64) -> u64 {
        let (mut from, mut to) = (0, 1);
        while self.due_ns(to - 1) < ns {
            (from, to) = (to, to * 2);
        }
        // All below `from` are due before then, and `to - 1` is not.
        while from < to {
            let middle = from + (to - from) / 2;
            if self.due_ns(middle) < ns { from = middle + 1 } else { to = middle }
        }
        from
    }
}

/// Requests in the order of their numbers.
#[derive(Debug)]
pub struct Queue {
    /// When they are due; closed loop: at once.
    schedule: Option<Schedule>,
    start_ns: u64,
    /// How many there are.
    count: u64,
    /// What nobody has taken by then stays.
    end_ns: u64,
    /// Guards the number of the next request, and whose turn it is to wait for it.
    next: Mutex<u64>,
}

impl Queue {
    /// What is due within `seconds_ns` from `start_ns` on; what is late may be taken for `patience_ns` more.
    pub fn open(schedule: Schedule, start_ns: u64, seconds_ns: u64, patience_ns: u64) -> Queue {
        let count = schedule.due_before(seconds_ns);
        let end_ns = start_ns + seconds_ns + patience_ns;
        Queue { schedule: Some(schedule), start_ns, count, end_ns, next: Mutex::new(0) }
    }

    /// So many requests, as fast as clients take them, until then at the latest.
    pub fn closed(start_ns: u64, count: u64, end_ns: u64) -> Queue {
        Queue { schedule: None, start_ns, count, end_ns, next: Mutex::new(0) }
    }

    /// The next request, as soon as it is due: its number, and when that is; in a closed loop it is whenever the client is
    /// ready. Nothing if there is none left, time is over, or `stop` was set.
    pub fn take(&self, stop: &AtomicBool) -> Option<(u64, Option<u64>)> {
        self.take_by(stop, now_ns, wait_until)
    }

    fn take_by(
        &self,
        stop: &AtomicBool,
        now_ns: impl Fn() -> u64,
        wait_until: impl Fn(u64),
    ) -> Option<(u64, Option<u64>)> {
        // A client that panicked had its turn; the number is whole.
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if *next >= self.count || now_ns() >= self.end_ns || stop.load(Ordering::Relaxed) {
            return None;
        }
        let number = *next;
        let due_ns = self.schedule.map(|schedule| self.start_ns + schedule.due_ns(number));
        due_ns.into_iter().for_each(wait_until);
        *next += 1;
        Some((number, due_ns))
    }

    /// What nobody took: number and when it was due. For when all clients are done.
    pub fn left(&self) -> impl Iterator<Item = (u64, u64)> + use<'_> {
        let next = *self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let schedule = self.schedule.map(|schedule| (schedule, next..self.count));
        schedule.into_iter().flat_map(move |(schedule, numbers)| {
            numbers.map(move |number| (number, self.start_ns + schedule.due_ns(number)))
        })
    }

    /// When its requests are due; a closed loop has none.
    pub fn schedule(&self) -> Option<Schedule> {
        self.schedule
    }

    /// How many requests are due.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// When clients stop taking.
    pub fn end_ns(&self) -> u64 {
        self.end_ns
    }
}

#[cfg(test)]
mod tests;
