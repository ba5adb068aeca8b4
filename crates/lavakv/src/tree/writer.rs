//! What is guarded by the lock of writers.

use base::SeqNo;

/// State of the serialization point.
pub(crate) struct Writer {
    /// The sequence the next change gets.
    pub next_seq: SeqNo,
    pub next_memtable_id: u64,
    /// A volatile batch over several families sits in active memtables.
    pub volatile_over_families: bool,
    /// The highest sequence of a volatile change; 0: none since the open. (A clean close flushes what no table holds of it.)
    pub volatile_seq: SeqNo,
    pub scratch: Vec<u8>,
}
