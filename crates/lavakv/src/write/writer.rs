//! What is guarded by the lock of writers.

use super::queue::Queue;
use crate::tree::family::Family;
use base::SeqNo;
use std::collections::BTreeMap;
use std::sync::Arc;
use version::FamilyId;
use wal::{Lane, Position};

/// State of the serialization point.
pub(crate) struct Writer {
    /// The sequence the next change gets.
    pub next_seq: SeqNo,
    pub next_memtable_id: u64,
    /// The families with changes in their active memtables, by id: no other has any. So whoever freezes all asks these alone.
    pub changed: BTreeMap<FamilyId, Arc<Family>>,
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
}

impl Writer {
    pub fn new(next_seq: SeqNo, next_memtable_id: u64) -> Writer {
        Writer {
            next_seq,
            next_memtable_id,
            changed: BTreeMap::new(),
            volatile_over_families: false,
            volatile_seq: 0,
            last_logged: None,
            carried_seq: 0,
            queue: Queue::default(),
        }
    }

    /// Changes are about to be put into the active memtables of these families.
    pub fn changes(&mut self, families: &[Arc<Family>]) {
        for family in families {
            self.changed.entry(family.id).or_insert_with(|| family.clone());
        }
    }
}
