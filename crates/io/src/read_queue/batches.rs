//! Batches of background reads in flight, with the limiter that counts each.
//!
//! A queue may have batches of two disks in flight, one after the other. A waiting time is reported
//! to the limiter of the disk whose reads completed, not to that of the last submitted batch.

use super::Completed;
use crate::ReadFile;
use std::ops::Range;
use std::sync::Arc;

/// A batch.
#[derive(Debug)]
struct Batch {
    tokens: Range<u64>,
    /// A file whose limiter counts the batch.
    of: Arc<dyn ReadFile>,
    left: u64,
}

/// Batches of background reads in flight; see the module.
#[derive(Debug, Default)]
pub(super) struct Batches(Vec<Batch>);

impl Batches {
    /// Adds a batch of reads with these tokens.
    pub fn add(&mut self, tokens: Range<u64>, of: Arc<dyn ReadFile>) {
        let left = tokens.end.saturating_sub(tokens.start);
        if left > 0 {
            self.0.push(Batch { tokens, of, left });
        }
    }

    /// Returns true if no counted read is in flight.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes completed reads. Returns the completed bytes of each batch with any.
    pub fn end(&mut self, done: &[Completed]) -> Vec<(Arc<dyn ReadFile>, u64)> {
        let mut came = Vec::new();
        for batch in &mut self.0 {
            let own = || done.iter().filter(|done| batch.tokens.contains(&done.token));
            let bytes = own().filter_map(|done| done.read.as_ref().ok()).map(|buf| buf.len() as u64).sum();
            let ended = own().count() as u64;
            if ended > 0 {
                batch.left = batch.left.saturating_sub(ended);
                came.push((batch.of.clone(), bytes));
            }
        }
        self.0.retain(|batch| batch.left > 0);
        came
    }
}
