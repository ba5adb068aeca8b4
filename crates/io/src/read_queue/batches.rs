//! The batches of background work that are in flight: whose pace each is counted by.
//!
//! A queue may have batches of two disks in flight, one after the other. What is waited for is told the pace of the disk whose reads came, not that of the batch that was
//! submitted last.

use super::Completed;
use crate::ReadFile;
use std::ops::Range;
use std::sync::Arc;

/// A batch.
#[derive(Debug)]
struct Batch {
    tokens: Range<u64>,
    /// A file whose pace counts it.
    of: Arc<dyn ReadFile>,
    left: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Batches(Vec<Batch>);

impl Batches {
    /// Reads with these tokens were submitted.
    pub fn add(&mut self, tokens: Range<u64>, of: Arc<dyn ReadFile>) {
        let left = tokens.end.saturating_sub(tokens.start);
        if left > 0 {
            self.0.push(Batch { tokens, of, left });
        }
    }

    /// True if nothing is in flight that anybody counts.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These have ended: how many bytes came, of each batch of which any ended.
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
