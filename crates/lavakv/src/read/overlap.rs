//! The reads of one call in flight: whoever has what it waits for goes on while others are still read.
//!
//! Where some keys of a call lack a block and others have come to their values, rounds would add up: all wait for the slowest of the first, and the
//! device has little to do in the second. Here the values of the second are on their way as soon as their block is there. It takes a queue of
//! its own, with a ring that is set up for it, which is more than a short call gains: see [`is_worth_it`].
//!
//! Runs are joined as for rounds ([`runs`](super::runs)), of what is wanted at the same moment. Invariant: as many bytes are in flight as a round reads
//! at most, or a single run.

use crate::read::runs::{Run, Wanted, join};
use crate::read::wanted::{BATCH_BYTES_MAX, hand_over, read_alone};
use base::HashMap;
use io::ReadQueue;
use std::collections::VecDeque;
use table::{Fetched, Role, Want};

/// Reads that a round has at least for it to be worth a queue.
const WANTS_MIN: usize = 24;

/// Whether keys whose next reads these are gain from going on one by one. Where all lack the same kind of thing nobody is ahead of others.
pub(crate) fn is_worth_it(wants: &[Want]) -> bool {
    let records = wants.iter().filter(|want| want.role == Role::Record).count();
    wants.len() >= WANTS_MIN && records > 0 && records < wants.len()
}

/// Reads in flight, and those that wait for room. Dropped, it waits for the former.
pub(crate) struct Overlap {
    queue: ReadQueue,
    in_line: VecDeque<Reading>,
    in_flight: HashMap<u64, Reading>,
    in_flight_bytes: u64,
    /// Of the next that goes to the device.
    token: u64,
}

/// A run, and what it is for.
struct Reading {
    run: Run,
    wants: Vec<Want>,
}

impl Overlap {
    /// Nothing is read yet.
    pub fn new(queue: ReadQueue) -> Overlap {
        let (in_line, in_flight) = (VecDeque::new(), HashMap::default());
        Overlap { queue, in_line, in_flight, in_flight_bytes: 0, token: 0 }
    }

    /// Begins to read what is wanted (ascending, each once).
    pub fn begin(&mut self, wants: &[Want]) {
        let readings = join(wants.iter().map(Wanted::from)).into_iter().map(|run| {
            let wants = wants.get(run.places.clone()).unwrap_or_default().to_vec();
            Reading { run, wants }
        });
        self.in_line.extend(readings);
        self.submit();
    }

    fn submit(&mut self) {
        while let Some(reading) = self.in_line.pop_front() {
            let len = reading.run.len();
            if self.in_flight_bytes > 0 && self.in_flight_bytes + len as u64 > BATCH_BYTES_MAX {
                return self.in_line.push_front(reading);
            }
            let Some(want) = reading.wants.first() else { continue };
            self.queue.submit(&want.file, reading.run.bytes.start, len, self.token);
            self.in_flight_bytes += len as u64;
            self.in_flight.insert(self.token, reading);
            self.token += 1;
        }
    }

    /// Waits until something is read, hands it over, and says what it was; nothing if nothing was begun.
    pub fn land(&mut self, fetched: &mut Fetched) -> Vec<Want> {
        let mut landed = Vec::new();
        while landed.is_empty() && !self.in_flight.is_empty() {
            for completed in self.queue.complete(true) {
                let Some(Reading { run, wants }) = self.in_flight.remove(&completed.token) else { continue };
                self.in_flight_bytes -= run.len() as u64;
                match completed.read {
                    Ok(read) => hand_over(fetched, &wants, &run.bytes, &read),
                    // What cannot be read takes nothing else with it, and says exactly why.
                    Err(_) => wants.iter().for_each(|want| read_alone(fetched, want)),
                }
                landed.extend(wants);
            }
            self.submit();
        }
        landed
    }
}

#[cfg(test)]
mod tests;
