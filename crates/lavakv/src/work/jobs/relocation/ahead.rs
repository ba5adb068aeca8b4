//! Records of a vSST whose records are in order of arrival, read before they are asked for.
//!
//! They are asked for in the order of keys, and lie anywhere. The keys that follow in the vSST say where those lie that may be asked for next: of so
//! many as fit a buffer the places are sorted, neighbours joined across gaps that cost less than a request, and all runs
//! read together. Some of what is read may be garbage, which nobody asks for; there is no more of that in a file than collection leaves.
//!
//! It helps and no more: whatever fails here ends the reading ahead, and who asks for a record reads it alone, and is told then.

use base::{Result, SeqNo};
use io::{FileRead, ReadCosts};
use std::sync::Arc;
use table::{ReadCounters, Vsst, VsstKeys};

/// The most records of a buffer.
const RECORDS_MAX: usize = 4 << 10;
/// The longest gap that is read over where nobody knows what reads cost.
const GAP_UNKNOWN: u64 = 12 << 10;

/// See the module.
pub(super) struct Ahead {
    vsst: Arc<Vsst>,
    /// The keys, from the first on that was not read yet.
    keys: VsstKeys,
    /// No record of a key above this is asked for.
    last_key: Vec<u8>,
    /// By place: where the record begins, its bytes, and where it is in the buffer.
    records: Vec<(u64, usize, usize)>,
    buffer: Vec<u8>,
}

impl Ahead {
    /// Of a vSST, of which nothing is read yet, and nothing is asked for above `last_key`; `None` if it is no file in order of arrival, or its keys
    /// cannot be read.
    pub fn of(vsst: &Arc<Vsst>, last_key: &[u8]) -> Option<Ahead> {
        let keys = vsst.properties().segment.then(|| vsst.keys().ok()).flatten()?;
        let (vsst, last_key) = (vsst.clone(), last_key.to_vec());
        Some(Ahead { vsst, keys, last_key, records: Vec::new(), buffer: Vec::new() })
    }

    /// The record at `offset`, if it was read.
    pub fn get(&self, offset: u64, len: u64) -> Option<&[u8]> {
        let at = self.records.binary_search_by_key(&offset, |record| record.0).ok()?;
        let (_, stored_len, from) = self.records[at];
        (stored_len as u64 == len).then(|| &self.buffer[from..from + stored_len])
    }

    /// Reads the record of this key, which is behind all that were read, and those that follow it: about `bytes` of them.
    ///
    /// # Errors
    /// Those of the file: nothing is read ahead any more.
    pub fn fill(
        &mut self,
        user_key: &[u8],
        seq: SeqNo,
        bytes: u64,
        counters: &mut ReadCounters,
    ) -> Result<()> {
        self.records.clear();
        let mut taken = 0;
        while self.keys.valid() && taken < bytes && self.records.len() < RECORDS_MAX {
            let entry = self.keys.entry();
            if entry.user_key > &self.last_key[..] {
                break;
            }
            // Keys ascend, and of one key sequences descend.
            if (entry.user_key, std::cmp::Reverse(entry.seq)) >= (user_key, std::cmp::Reverse(seq)) {
                taken += entry.stored_len;
                self.records.push((entry.offset, entry.stored_len as usize, 0));
            }
            self.keys.next()?;
        }
        self.records.sort_unstable();
        self.read(2 * bytes, counters)
    }

    /// Reads what was chosen, with gaps as long as all is no more than `most`.
    fn read(&mut self, most: u64, counters: &mut ReadCounters) -> Result<()> {
        let file = self.vsst.file();
        let gap_max = ReadCosts::of(&**file).gap_bytes.unwrap_or(GAP_UNKNOWN);
        let mut left = most.saturating_sub(self.records.iter().map(|record| record.1 as u64).sum());
        // Where they begin, and their bytes.
        let (mut runs, mut len): (Vec<(u64, usize)>, usize) = (Vec::new(), 0);
        for (offset, stored_len, from) in &mut self.records {
            let gap = runs.last().and_then(|(begin, len)| offset.checked_sub(begin + *len as u64));
            let gap = gap.filter(|gap| *gap <= gap_max && *gap <= left);
            let more = *stored_len + gap.unwrap_or(0) as usize;
            match (gap, runs.last_mut()) {
                (Some(gap), Some(run)) => {
                    left -= gap;
                    run.1 += more;
                }
                _ => runs.push((*offset, more)),
            }
            len += more;
            *from = len - *stored_len;
        }
        self.buffer.clear();
        self.buffer.resize(len, 0);
        let mut rest = self.buffer.as_mut_slice();
        let mut reads = Vec::with_capacity(runs.len());
        for (offset, len) in runs {
            let (buf, others) = std::mem::take(&mut rest).split_at_mut(len);
            rest = others;
            reads.push(FileRead { file, offset, buf });
        }
        counters.device_read_bytes += len as u64;
        io::read_files(&mut reads)
    }
}
