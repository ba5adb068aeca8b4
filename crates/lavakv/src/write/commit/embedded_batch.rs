//! Batches embedded in a batch of the log engine, and the order in which the two lanes of the log
//! become durable.
//!
//! **A batch is appended to a lane only when all earlier batches of the other lane are durable.**
//!
//! The surviving batches after a crash, merged by sequence, therefore are a prefix of all writes.
//! No batch names its predecessor, and recovery truncates nothing across lanes. A durable write is
//! acknowledged when its own lane is durable up to it, since the other lane is durable already.
//! Volatile writes, and batches of the log engine without an embedded batch, take no part.
//! Alternating between the lanes costs one sync per switch.
//!
//! A write waits for that sync once, without a lock. If the other lane has grown meanwhile, the
//! write syncs it under the writer's lock; otherwise later writes could delay it for ever.
//!
//! Both halves of an embedded batch are one batch of the record lane, so a crash leaves both or
//! neither. A flush syncs the record lane before its edit; otherwise the changes could be in a
//! table, and their record be lost with the power (`work::jobs::flush`).

use super::{AppendFailure, WritePath};
use crate::write::fate::of_unknown_fate;
use crate::write::memtables::Writer;
use base::{ErrorKind, Result};
use store::commit::Durability;
use store::secondary_engine::{BatchSink, EmbeddedPrimaryBatch};
use wal::{Lane, Position};

impl WritePath {
    /// Returns the end of the other lane, if it may not be durable.
    pub fn other_lane(&self, writer: &Writer, own: Lane) -> Option<(Lane, Position)> {
        let is_ahead = |lane, position| lane != own && !self.is_durable(lane, position);
        writer.last_logged.filter(|(lane, position)| is_ahead(*lane, *position))
    }

    fn is_durable(&self, lane: Lane, position: Position) -> bool {
        let log = self.log.of(lane).and_then(|log| log.begun());
        log.is_some_and(|wal| wal.syncer().is_durable(position))
    }

    /// Makes a lane durable up to a position.
    ///
    /// # Errors
    /// Those of the file system: the store is poisoned.
    pub fn sync_lane(&self, lane: Lane, position: Position) -> Result<()> {
        let synced = self.log.of(lane).map_or(Ok(()), |log| log.sync(position));
        let told = synced.inspect_err(|e| {
            self.context.health.poison(e);
        });
        told.map_err(of_unknown_fate)
    }

    /// Appends a batch to a sink. `None`: the sink cannot take it now, and nothing happened.
    pub fn append_to(
        &self,
        sink: &mut dyn BatchSink,
        batch: EmbeddedPrimaryBatch<'_>,
        durability: Durability,
    ) -> Result<Option<Position>, AppendFailure> {
        sink.append(&batch, durability).map_err(|e| match e.kind() {
            ErrorKind::Io | ErrorKind::Poisoned | ErrorKind::Corruption => {
                self.context.health.poison(&e);
                AppendFailure::Perhaps(of_unknown_fate(e))
            }
            _ => AppendFailure::Certain(e),
        })
    }
}
