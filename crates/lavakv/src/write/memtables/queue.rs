//! Whose turn it is where writes wait for memory: the first that came.
//!
//! Nobody holds the writer's lock while he waits, so others come meanwhile. A large write would never find room for all of it
//! at once if small ones took what there is, again and again: so what those that came before wait for is spoken for.
//! Guarded by the writer's lock.

use std::collections::BTreeMap;

/// A place in the queue: those with lower numbers came before.
pub(crate) type Ticket = u64;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    next: Ticket,
    /// What each waits for, bytes.
    waiting: BTreeMap<Ticket, u64>,
}

impl Queue {
    /// Takes a place at the end, for so many bytes.
    pub fn join(&mut self, bytes: u64) -> Ticket {
        self.next += 1;
        self.waiting.insert(self.next, bytes);
        self.next
    }

    /// Whoever had this place waits no more.
    pub fn leave(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
    }

    /// True if no write waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Bytes that are spoken for by those before this place; by all that wait, if it is none.
    pub fn before(&self, ticket: Option<Ticket>) -> u64 {
        let end = ticket.unwrap_or(Ticket::MAX);
        self.waiting.range(..end).fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_came_before_is_not_overtaken() {
        let mut queue = Queue::default();
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
