//! On what terms the driver writes: some writes may not wait, and are refused where they would have to.

use super::Driver;
use crate::check::{Check, ensure};
use lavastore::{Durability, SeqNo, WriteOptions};
use std::time::Duration;

impl Driver {
    /// How the next write is written: one in eight may not wait, and one in eight not for long. Without a draw: what else a seed
    /// does stays as it is.
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

    /// A write that would have had to wait longer than it may: nothing of it was written, and it promises nothing.
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
