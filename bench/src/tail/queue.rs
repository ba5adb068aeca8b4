//! Requests with fixed due times, and the queue from which threads take them.
//!
//! vLSM (section 5) has a thread that generates requests at a fixed rate into an unbounded queue
//! for the clients. Here the due time of request `n` is a function of `n` ([`Schedule`]), so the
//! queue is only the number of the next request. An idle client takes its turn: it waits until the
//! next request is due, takes it, and lets the next client wait. So the first free client gets each
//! request, and delayed requests count from their due time. On a small machine only the client
//! whose turn it is competes with the engine for a processor.

use crate::host::{now_ns, wait_until};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Schedule of the requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// A steady rate in requests per second.
    Steady(f64),
    /// Requests only in bursts.
    Bursts(Bursts),
}

/// A steady rate for some time, then a pause, repeatedly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bursts {
    /// Requests per second of a burst.
    pub per_s: f64,
    /// Duration of a burst.
    pub burst_ns: u64,
    /// Pause between two bursts.
    pub idle_ns: u64,
}

impl Bursts {
    /// Returns the number of requests of a burst.
    pub fn each(&self) -> u64 {
        ((self.per_s * self.burst_ns as f64 / 1e9).round() as u64).max(1)
    }

    /// Returns the burst of a request.
    pub fn burst_of(&self, number: u64) -> u64 {
        number / self.each()
    }

    /// Returns the time from the start of a burst to that of the next.
    pub fn period_ns(&self) -> u64 {
        self.burst_ns + self.idle_ns
    }
}

impl Schedule {
    /// Returns the due time of a request after the start.
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

    /// Returns the number of requests due before a time.
    pub fn due_before(self, ns: u64) -> u64 {
        let (mut from, mut to) = (0, 1);
        while self.due_ns(to - 1) < ns {
            (from, to) = (to, to * 2);
        }
        // All requests below `from` are due before the time, and `to - 1` is not.
        while from < to {
            let middle = from + (to - from) / 2;
            if self.due_ns(middle) < ns { from = middle + 1 } else { to = middle }
        }
        from
    }
}

/// Requests in order of their numbers.
#[derive(Debug)]
pub struct ArrivalQueue {
    /// Due times; a closed loop has none.
    schedule: Option<Schedule>,
    start_ns: u64,
    /// Number of requests.
    count: u64,
    /// End time, after which requests remain.
    end_ns: u64,
    /// Guards the number of the next request; its holder has the turn to wait for it.
    next: Mutex<u64>,
}

impl ArrivalQueue {
    /// Returns a queue of the requests due within `seconds_ns` from `start_ns` on; late ones may be
    /// taken for `patience_ns` more.
    pub fn open(schedule: Schedule, start_ns: u64, seconds_ns: u64, patience_ns: u64) -> ArrivalQueue {
        let count = schedule.due_before(seconds_ns);
        let end_ns = start_ns + seconds_ns + patience_ns;
        ArrivalQueue { schedule: Some(schedule), start_ns, count, end_ns, next: Mutex::new(0) }
    }

    /// Returns a queue of `count` requests without due times, until `end_ns`.
    pub fn closed(start_ns: u64, count: u64, end_ns: u64) -> ArrivalQueue {
        ArrivalQueue { schedule: None, start_ns, count, end_ns, next: Mutex::new(0) }
    }

    /// Waits for the next request; returns its number and due time, or no due time in a closed
    /// loop. Returns `None` after the last request, after the end time, or if `stop` was set.
    pub fn take(&self, stop: &AtomicBool) -> Option<(u64, Option<u64>)> {
        self.take_by(stop, now_ns, wait_until)
    }

    fn take_by(
        &self,
        stop: &AtomicBool,
        now_ns: impl Fn() -> u64,
        wait_until: impl Fn(u64),
    ) -> Option<(u64, Option<u64>)> {
        // A client that panicked has had its turn; the number is consistent.
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

    /// Returns number and due time of the remaining requests, after all clients have ended.
    pub fn left(&self) -> impl Iterator<Item = (u64, u64)> + use<'_> {
        let next = *self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let schedule = self.schedule.map(|schedule| (schedule, next..self.count));
        schedule.into_iter().flat_map(move |(schedule, numbers)| {
            numbers.map(move |number| (number, self.start_ns + schedule.due_ns(number)))
        })
    }

    /// Returns the schedule; a closed loop has none.
    pub fn schedule(&self) -> Option<Schedule> {
        self.schedule
    }

    /// Returns the number of requests.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the end time.
    pub fn end_ns(&self) -> u64 {
        self.end_ns
    }
}

#[cfg(test)]
mod tests;
