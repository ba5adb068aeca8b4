//! A secondary engine with its own log lane in LavaKV's store ([`store::secondary_engine`]).
//!
//! Batches of the secondary engine may embed LavaKV's ([`crate::write::embedded_batch`]). The
//! embedded batches that are not in tables are collected while the secondary lane is read. They are
//! replayed in sequence order with those of LavaKV's own lane; they never exceed the memtables.
//!
//! An open for writing without the secondary engine is refused while an embedded batch is not in a
//! table. Its replay would have to finalize the end of a lane that belongs to the other engine. A
//! read-only open finalizes nothing, and reads the lane without the engine ([`look`]).
//!
//! The secondary lane is replayed before LavaKV's, and is durable by then. Both lanes begin and end
//! in the same call ([`crate::service`]), and both end when LavaKV is closed. A store without room
//! for two logs does not open with a secondary engine.

use crate::batch;
use crate::files::KvFiles;
use crate::files::log::Log;
use base::{Error, ErrorKind, Result, SeqNo};
use std::collections::VecDeque;
use store::run::Scheduler;
use store::secondary_engine::{EmbeddedPrimaryBatch, RequestFlush, SecondaryEngine, SecondaryEngineStore};
use version::State;
use wal::{Lane, LogGroup, LoggedBatch, RecoveryMode, RecoveryReport};

/// Embedded batches of LavaKV that are not in tables, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct EmbeddedKvBatches {
    batches: VecDeque<(SeqNo, Vec<u8>)>,
    last_seq: SeqNo,
}

impl EmbeddedKvBatches {
    /// Returns the next batch, if it precedes this sequence.
    pub fn next_below(&mut self, seq: SeqNo) -> Option<(SeqNo, Vec<u8>)> {
        self.batches.front().filter(|(first, _)| *first < seq)?;
        self.batches.pop_front()
    }

    /// Returns all remaining batches.
    pub fn payloads(&self) -> impl Iterator<Item = &[u8]> {
        self.batches.iter().map(|(_, payload)| &payload[..])
    }

    /// Returns the highest sequence of all batches found; 0: none.
    pub fn last_seq(&self) -> SeqNo {
        self.last_seq
    }

    /// Adds a batch if some change of it is not in a table.
    fn found(&mut self, state: &State, bytes: &[u8], dropped: WithoutFamily) -> Result<()> {
        if is_in_no_table(state, bytes, dropped)? {
            let (first_seq, count, _) = batch::decode(bytes)?;
            self.batches.push_back((first_seq, bytes.to_vec()));
            self.last_seq = self.last_seq.max(first_seq + u64::from(count) - 1);
        }
        Ok(())
    }
}

/// Replays the lane of the secondary engine with which the log was opened.
pub(crate) fn replay(
    log: &Log,
    files: &KvFiles,
    secondary: &mut dyn SecondaryEngine,
) -> Result<(RecoveryReport, EmbeddedKvBatches)> {
    let Some(lane) = log.records() else { unreachable!("a store with a guest has its lane") };
    secondary.restore(files.store().context(), files.manifest.shared())?;
    let mut embedded = EmbeddedKvBatches::default();
    let state = files.manifest.state();
    let report = lane.recovery().replay(&mut |batch| {
        secondary.replay(batch)?.map_or(Ok(()), |bytes| embedded.found(&state, bytes, WithoutFamily::Kept))
    })?;
    Ok((report, embedded))
}

/// Treatment of a change whose family was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WithoutFamily {
    /// The change is ignored.
    Gone,
    /// The change counts: its sequence must not be assigned again, and possibly no other record
    /// shows it.
    Kept,
}

/// True if some change of a batch is not in a table.
fn is_in_no_table(state: &State, batch: &[u8], dropped: WithoutFamily) -> Result<bool> {
    let (first_seq, _, entries) = batch::decode(batch)?;
    for (seq, change) in (first_seq..).zip(entries) {
        let lacking = match state.families.get(&change?.family) {
            Some(family) => seq >= family.version.log_floor,
            None => dropped == WithoutFamily::Kept,
        };
        if lacking {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Refuses to open a store for writing without the secondary engine if its lane has changes that
/// are in no table.
///
/// # Errors
/// `Unsupported`; those of reading the lane.
pub(crate) fn refuse_carried(files: &KvFiles) -> Result<()> {
    if look_for(files, WithoutFamily::Gone)?.batches.is_empty() {
        return Ok(());
    }
    let why = "another engine's log holds changes that are in no table and that this open would not read: \
               open the store with that engine, and close it";
    Err(Error::new(ErrorKind::Unsupported, why).at_file(&files.store().context().dir))
}

/// Reads the batches embedded in the secondary lane, without the secondary engine.
///
/// # Errors
/// Those of reading the lane.
pub(crate) fn look(files: &KvFiles) -> Result<EmbeddedKvBatches> {
    look_for(files, WithoutFamily::Kept)
}

fn look_for(files: &KvFiles, dropped: WithoutFamily) -> Result<EmbeddedKvBatches> {
    let (state, context) = (files.manifest.state(), files.store().context());
    let open = |meta: &store::manifest::LogGroupMeta| {
        let path = context.path(&store::names::log(meta.file));
        // With direct I/O, as its engine reads it: after a power failure on a sector, the page
        // cache would lose the neighboring pages.
        let file = io::open_in_place_read_only(&*context.env.fs, &path, io::Access::Direct)?;
        let file = store::commit::recorded::up_to(file, meta.len);
        let (ltn, uid, sealed_end) = (meta.ltn, meta.uid, meta.sealed_end);
        Ok(LogGroup { ltn, uid, file, sealed_end, begin: meta.begin })
    };
    let groups = state.store.log_groups.chain(Lane::LOG).filter(|meta| !meta.discarded).map(open);
    let groups: Vec<LogGroup> = groups.collect::<Result<_>>()?;
    let mut out = EmbeddedKvBatches::default();
    if groups.is_empty() {
        return Ok(out);
    }
    let mut take = |logged: &LoggedBatch<'_>| {
        EmbeddedPrimaryBatch::read(logged.bytes)?
            .map_or(Ok(()), |embedded| out.found(&state, embedded.bytes, dropped))
    };
    let of = (state.store.uid, Lane::LOG);
    wal::recover_lane(&context.env, &context.dir, of, &groups, RecoveryMode::ReadOnly, &mut take)?;
    Ok(out)
}

/// Starts the secondary engine after both logs have begun, before there are background threads.
pub(crate) fn begin(
    log: &Log,
    files: &KvFiles,
    scheduler: &Scheduler,
    relieve: RequestFlush,
    secondary: &mut dyn SecondaryEngine,
) -> Result<()> {
    let Some(lane) = log.records() else { return Ok(()) };
    let ground = SecondaryEngineStore {
        files: files.store().clone(),
        space: log.space().clone(),
        lane: lane.clone(),
        first: log.shared().clone(),
    };
    let served = secondary.begin(ground, relieve)?;
    log.set_guest(&served);
    scheduler.join(served.work);
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests;
