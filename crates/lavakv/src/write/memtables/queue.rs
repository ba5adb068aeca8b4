//! The queue of writes that wait for memory: first come, first served.
//!
//! A write waits without the writer's lock, so later writes arrive meanwhile. Without the queue,
//! small writes would take the memory again and again, and a large write would never find enough at
//! once. So a write counts the bytes of all waiting writes before it as taken. Guarded by the
//! writer's lock.

use std::collections::BTreeMap;

/// A place in the queue. Earlier writes have lower numbers.
pub(crate) type Ticket = u64;

/// The queue of waiting writes: see the module.
#[derive(Debug, Default)]
pub(crate) struct WaitingWrites {
    next: Ticket,
    /// Bytes that each write waits for.
    waiting: BTreeMap<Ticket, u64>,
}

impl WaitingWrites {
    /// Adds a write of `bytes` at the end.
    pub fn join(&mut self, bytes: u64) -> Ticket {
        self.next += 1;
        self.waiting.insert(self.next, bytes);
        self.next
    }

    /// Removes a write that waits no longer.
    pub fn leave(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
    }

    /// True if no write waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the bytes of the writes before this place; of all waiting writes for `None`.
    pub fn before(&self, ticket: Option<Ticket>) -> u64 {
        let end = ticket.unwrap_or(Ticket::MAX);
        self.waiting.range(..end).fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn queue_counts_bytes_of_earlier_writes() {
        let mut queue = WaitingWrites::default();
        assert_eq!(queue.before(None), 0);
        let (first, second) = (queue.join(10), queue.join(20));
        assert_eq!((queue.before(Some(first)), queue.before(Some(second)), queue.before(None)), (0, 10, 30));
        queue.leave(first);
        assert_eq!((queue.before(Some(second)), queue.before(None)), (0, 20));
        queue.leave(first);
        queue.leave(second);
        assert_eq!(queue.before(None), 0);
    }
}
