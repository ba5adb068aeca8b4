//! What is guarded by the lock of writers.

use super::queue::Queue;
use base::SeqNo;
use wal::{Lane, Position};

/// State of the serialization point.
pub(crate) struct Writer {
    /// The sequence the next change gets.
    pub next_seq: SeqNo,
    pub next_memtable_id: u64,
    /// A volatile batch over several families sits in active memtables.
    pub volatile_over_families: bool,
    /// The highest sequence of a volatile change; 0: none since the open. (A clean close flushes what no table holds of it.)
    pub volatile_seq: SeqNo,
    /// The lane and the place of the last batch that was logged.
    pub last_logged: Option<(Lane, Position)>,
    /// The highest sequence that a batch of a guest's carries; 0: none since the open.
    pub carried_seq: SeqNo,
    /// Those that wait for memory.
    pub queue: Queue,
    pub scratch: Vec<u8>,
}

impl Writer {
    pub fn new(next_seq: SeqNo, next_memtable_id: u64) -> Writer {
        Writer {
            next_seq,
            next_memtable_id,
            volatile_over_families: false,
            volatile_seq: 0,
            last_logged: None,
            carried_seq: 0,
            queue: Queue::default(),
            scratch: Vec::new(),
        }
    }
}
