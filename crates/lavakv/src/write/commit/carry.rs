//! A batch that is logged inside one of a guest's, in the lane of records; and in which order the two lanes become durable.
//!
//! **A batch is appended to a lane only when all logged before it in the other lane is durable.** So whatever a crash leaves of one lane, it
//! has left of the other all that came before: what is replayed, merged by sequence, is a run of the writes from the first on without a
//! hole, no batch needs to name the one before it, and nothing is ever cut off across lanes. A durable write is acknowledged when its own
//! lane is durable up to it, since the other one is already. Volatile writes are in no log and take no part, nor do a guest's batches
//! that carry nothing. The price is paid by those who take turns: a write that follows one of the other lane waits for a sync of that.
//!
//! It waits outside of all locks, once. If others were logged there meanwhile it syncs them under the writer's lock: else it could be
//! overtaken for ever.

use super::{Unlogged, WritePath};
use crate::batch;
use crate::batch::payload::Payload;
use crate::write::fate::of_unknown_fate;
use crate::write::memtables::Writer;
use base::{ErrorKind, Result, SeqNo};
use store::commit::Durability;
use store::guest::{Carried, Carry};
use wal::{Lane, Position};

impl WritePath {
    /// The end of what was logged in the other lane than this, if it may not be durable.
    pub fn other_lane(&self, writer: &Writer, own: Lane) -> Option<(Lane, Position)> {
        let is_ahead = |lane, position| lane != own && !self.is_durable(lane, position);
        writer.last_logged.filter(|(lane, position)| is_ahead(*lane, *position))
    }

    fn is_durable(&self, lane: Lane, position: Position) -> bool {
        let log = self.log.of(lane).and_then(|log| log.begun());
        log.is_some_and(|log| log.is_durable(position))
    }

    /// Returns when a lane is durable up to a position.
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

    /// Has a batch carried by a guest's. `None`: not now, and nothing happened.
    pub fn carry(
        &self,
        payload: &Payload<'_>,
        (first_seq, last_seq): (SeqNo, SeqNo),
        durability: Durability,
        carry: &mut Carry<'_>,
    ) -> Result<Option<Position>, Unlogged> {
        let header = batch::header(first_seq, payload.count());
        let mut one = Vec::new();
        let body: &[u8] = match payload {
            Payload::Batch(batch) => batch.body(),
            Payload::One(_, change) => {
                change.encode_into(&mut one);
                &one
            }
        };
        let carried = Carried { seqs: (first_seq, last_seq), pieces: [&header, body] };
        carry(&carried, durability).map_err(|e| match e.kind() {
            ErrorKind::Io | ErrorKind::Poisoned | ErrorKind::Corruption => {
                self.context.health.poison(&e);
                Unlogged::Perhaps(of_unknown_fate(e))
            }
            _ => Unlogged::Certain(e),
        })
    }
}
