//! Deadlines of writes: some writes may not wait, and are refused if they would.

use super::Driver;
use crate::check::{Check, ensure};
use lavastore::{Durability, SeqNo, WriteOptions};
use std::time::Duration;

impl Driver {
    /// Returns the options of the next write: one in eight may not wait, and one in eight only
    /// briefly. Not drawn at random, so that recorded seeds keep their draws.
    pub(super) fn terms(&self, durability: Durability) -> WriteOptions {
        let options = WriteOptions { durability: Some(durability), ..WriteOptions::default() };
        match self.nth_write() % 8 {
            3 => options.no_wait(),
            5 => options.wait_at_most(Duration::from_micros(200)),
            _ => options,
        }
    }

    fn nth_write(&self) -> u64 {
        self.history.writes.len() as u64 + self.busy
    }

    /// Checks a write that was refused as busy: it has no effect.
    pub(super) fn busy(&mut self, seq: SeqNo) -> Check {
        let after = self.db().snapshot().sequence();
        ensure!(after == seq, "a write was refused as busy, and {} sequences are used", after - seq);
        ensure!(
            [3, 5].contains(&(self.nth_write() % 8)),
            "a write that may wait as long as it takes was refused as busy"
        );
        self.busy += 1;
        Ok(())
    }
}
