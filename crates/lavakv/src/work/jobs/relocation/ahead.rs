//! Read-ahead in a vSST whose records are in arrival order.
//!
//! Records are requested in key order but lie at arbitrary offsets. The following keys of the vSST
//! give the offsets of likely next requests. The offsets of one buffer are sorted, neighbors are
//! joined across gaps that cost less than a request, and all runs are read together. Part of the
//! result may be garbage, which is never requested; its share is bounded by collection.
//!
//! Read-ahead is optional: any failure ends it. A later request for the record then reads it alone,
//! and returns the error.

use base::{Result, SeqNo};
use io::{FileRead, ReadCosts};
use std::sync::Arc;
use table::{ReadCounters, Vsst, VsstKeys};

/// Maximum number of records in a buffer.
const RECORDS_MAX: usize = 4 << 10;
/// Maximum gap between joined reads when read costs are unknown.
const GAP_UNKNOWN: u64 = 12 << 10;

/// The read-ahead of one vSST. See the module.
pub(super) struct Ahead {
    vsst: Arc<Vsst>,
    /// Cursor over the keys, at the first unread one.
    keys: VsstKeys,
    /// Upper bound of requested keys.
    last_key: Vec<u8>,
    /// By offset: file offset, length, and position in the buffer.
    records: Vec<(u64, usize, usize)>,
    buffer: Vec<u8>,
}

impl Ahead {
    /// Starts read-ahead for requests up to `last_key`. Returns `None` if the vSST is not in
    /// arrival order, or its keys are unreadable.
    pub fn of(vsst: &Arc<Vsst>, last_key: &[u8]) -> Option<Ahead> {
        let keys = vsst.properties().segment.then(|| vsst.keys().ok()).flatten()?;
        let (vsst, last_key) = (vsst.clone(), last_key.to_vec());
        Some(Ahead { vsst, keys, last_key, records: Vec::new(), buffer: Vec::new() })
    }

    /// Returns the record at `offset`, if it is in the buffer.
    pub fn get(&self, offset: u64, len: u64) -> Option<&[u8]> {
        let at = self.records.binary_search_by_key(&offset, |record| record.0).ok()?;
        let (_, stored_len, from) = self.records[at];
        (stored_len as u64 == len).then(|| &self.buffer[from..from + stored_len])
    }

    /// Reads the record of this key, which follows all earlier ones, and its successors: about
    /// `bytes` of them.
    ///
    /// # Errors
    /// Those of the file: read-ahead ends.
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
            // Keys ascend, and the sequence numbers of one key descend.
            if (entry.user_key, std::cmp::Reverse(entry.seq)) >= (user_key, std::cmp::Reverse(seq)) {
                taken += entry.stored_len;
                self.records.push((entry.offset, entry.stored_len as usize, 0));
            }
            self.keys.next()?;
        }
        self.records.sort_unstable();
        self.read(2 * bytes, counters)
    }

    /// Reads the chosen records, joined across gaps while the total is at most `most`.
    fn read(&mut self, most: u64, counters: &mut ReadCounters) -> Result<()> {
        let file = self.vsst.file();
        let gap_max = ReadCosts::of(&**file).gap_bytes.unwrap_or(GAP_UNKNOWN);
        let mut left = most.saturating_sub(self.records.iter().map(|record| record.1 as u64).sum());
        // Offset and length of each run.
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
