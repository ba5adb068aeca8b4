//! Into the log.

use super::WritePath;
use super::need::Need;
use super::writer::Writer;
use crate::batch;
use crate::batch::frame::Frame;
use crate::batch::payload::Payload;
use crate::context::options::Durability;
use crate::files::log::TENANT;
use base::{Error, ErrorKind, Result, SeqNo};
use store::commit::{Ballast, Need as GroupNeed};
use wal::Position;

/// Why a batch was not logged.
pub(crate) enum Unlogged {
    /// Nothing of it is in the log.
    Certain(Error),
    /// It may be found there after a restart.
    Perhaps(Error),
    /// Nothing of it is, and it may be tried again when this is met: the deletes that it consists of wait for what a flush of
    /// everything frees.
    NotYet(Need, LastResort),
    /// Nothing of it is, and it may be tried again when what it waits for is durable: the other lane, or values in files.
    Behind,
}

/// A wait for a group, after a flush of everything.
#[derive(Debug)]
pub(crate) struct LastResort {
    /// The error to give if there is none.
    refusal: Error,
    /// Bytes of the log when it began.
    live_bytes: u64,
}

/// The error of a write that may be found in the log after a restart, under a kind that does not say that nothing of it
/// was logged. A file system may have kinds like that of its own: one that stopped everything after a failure elsewhere says
/// `Poisoned`, and so does the log to all who wait for a sync that failed; a device may find out late that it is full.
pub(crate) fn of_unknown_fate(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Poisoned | ErrorKind::NoSpace => error.with_kind(ErrorKind::Io),
        _ => error,
    }
}

impl WritePath {
    /// Appends to the log, providing a group where it asks for one. `frame`: of the payload, if that is one change.
    pub fn append(
        &self,
        writer: &mut Writer,
        (payload, frame): (&Payload<'_>, &Frame),
        (first_seq, last_seq): (SeqNo, SeqNo),
        durability: Durability,
        resort: &mut Option<LastResort>,
    ) -> Result<Position, Unlogged> {
        let header = batch::header(first_seq, payload.count());
        let [head, key, between, value] = match payload {
            Payload::Batch(batch) => [batch.body(), &[], &[], &[]],
            Payload::One(_, change) => frame.around(change),
        };
        let pieces = [&header[..], head, key, between, value];
        loop {
            match self.log.append(TENANT, &pieces, (first_seq, last_seq), durability) {
                Ok(position) => return Ok(position),
                Err(e) if e.kind() == ErrorKind::Busy => {
                    let len = pieces.iter().map(|piece| piece.len()).sum();
                    self.provide_group(writer, len, payload.is_delete_only(), resort)?;
                }
                Err(e) if matches!(e.kind(), ErrorKind::NoSpace | ErrorKind::TooLarge) => {
                    return Err(Unlogged::Certain(e));
                }
                Err(e) => {
                    self.context.health.poison(&e);
                    return Err(Unlogged::Perhaps(of_unknown_fate(e)));
                }
            }
        }
    }

    /// Gives the log a group for a batch. Where there is no room for one, deletes wait for what a flush of everything frees.
    fn provide_group(
        &self,
        writer: &mut Writer,
        batch_len: usize,
        frees: bool,
        resort: &mut Option<LastResort>,
    ) -> Result<(), Unlogged> {
        if let Some(LastResort { refusal, live_bytes }) = resort.take() {
            // Everything was flushed, or something was found: or else the log must not have the room that a later flush needs.
            let found = self.log.files().has_fitting(wal::group_len_needed(batch_len))
                || self.log.wal().live_bytes() < live_bytes;
            return match found || self.space.memory.backlog() == 0 {
                true => self.log.provide(batch_len, GroupNeed::Last).map_err(Unlogged::Certain),
                false => Err(Unlogged::Certain(refusal)),
            };
        }
        let need = if frees { GroupNeed::Deletes } else { GroupNeed::Usual };
        match self.log.provide(batch_len, need) {
            Err(e) if frees && e.kind() == ErrorKind::NoSpace => {
                let live_bytes = self.log.wal().live_bytes();
                let need = Need::Group { least: wal::group_len_needed(batch_len), live_bytes };
                self.flush_for_room(writer);
                Err(Unlogged::NotYet(need, LastResort { refusal: e, live_bytes }))
            }
            provided => provided.map_err(Unlogged::Certain),
        }
    }

    /// There is no room for another group, not even for deletes: everything is flushed, so that groups of the log that are full
    /// come back. What deletes hide in memtables is not written, so this may find room where nothing else does.
    fn flush_for_room(&self, writer: &mut Writer) {
        self.freeze_all(writer);
        if self.log.files().give_ballast(Ballast::Jobs) {
            self.context.health.space_found();
        }
    }
}
