//! A guest with a lane of its own in LavaKV's store: how it is opened with it ([`store::guest`]).
//!
//! Batches of the guest's may carry LavaKV's ([`crate::write::carry`]). Those that are not in tables are kept while the guest's lane is read,
//! and replayed in the order of their sequences with those of LavaKV's own lane: no more of them than memtables had room for. Opened for
//! writing without the guest, the store is refused as long as one of them is in no table: it could not be replayed without making the end of
//! a lane final that is the guest's. Who only reads makes no end final, and reads the lane without the guest ([`look`]).
//!
//! Its lane is replayed before LavaKV's, and is durable then. Both lanes end and begin in the same call ([`crate::service`]), and both
//! end when LavaKV is closed. A store that has no room for the two logs is not opened with a guest.

use crate::batch;
use crate::files::Files;
use crate::files::log::Log;
use base::{Error, ErrorKind, Result, SeqNo};
use std::collections::VecDeque;
use store::guest::{Carried, Ground, Guest, Relieve};
use store::run::Scheduler;
use version::State;
use wal::{Lane, LogGroup, LoggedBatch, RecoveryMode, RecoveryReport};

/// Batches of LavaKV's that were carried, the oldest first, those that are not in tables.
#[derive(Debug, Default)]
pub(crate) struct CarriedBatches {
    batches: VecDeque<(SeqNo, Vec<u8>)>,
    last_seq: SeqNo,
}

impl CarriedBatches {
    /// The next one, if it comes before this sequence.
    pub fn next_below(&mut self, seq: SeqNo) -> Option<(SeqNo, Vec<u8>)> {
        self.batches.front().filter(|(first, _)| *first < seq)?;
        self.batches.pop_front()
    }

    /// All that are left.
    pub fn payloads(&self) -> impl Iterator<Item = &[u8]> {
        self.batches.iter().map(|(_, payload)| &payload[..])
    }

    /// The highest sequence of all that were found; 0: there are none.
    pub fn last_seq(&self) -> SeqNo {
        self.last_seq
    }

    /// Keeps a batch that tables lack any change of.
    fn found(&mut self, state: &State, bytes: &[u8], dropped: WithoutFamily) -> Result<()> {
        if is_in_no_table(state, bytes, dropped)? {
            let (first_seq, count, _) = batch::decode(bytes)?;
            self.batches.push_back((first_seq, bytes.to_vec()));
            self.last_seq = self.last_seq.max(first_seq + u64::from(count) - 1);
        }
        Ok(())
    }
}

/// Replays the lane of a guest, which the log was made with.
pub(crate) fn replay(
    log: &Log,
    files: &Files,
    guest: &mut dyn Guest,
) -> Result<(RecoveryReport, CarriedBatches)> {
    let Some(lane) = log.records() else { unreachable!("a store with a guest has its lane") };
    guest.restore(files.store().context(), files.manifest.shared())?;
    let mut carried = CarriedBatches::default();
    let state = files.manifest.state();
    let report = lane.recovery().replay(&mut |batch| {
        guest.replay(batch)?.map_or(Ok(()), |bytes| carried.found(&state, bytes, WithoutFamily::Kept))
    })?;
    Ok((report, carried))
}

/// What becomes of a change whose family was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WithoutFamily {
    /// It is nobody's.
    Gone,
    /// Its sequence is not to be given again, which only it may tell.
    Kept,
}

/// Whether tables lack any change of a batch.
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

/// Refuses a store that is opened for writing without the guest whose lane has changes that are in no table.
///
/// # Errors
/// `Unsupported`; those of reading the lane.
pub(crate) fn refuse_carried(files: &Files) -> Result<()> {
    if look_for(files, WithoutFamily::Gone)?.batches.is_empty() {
        return Ok(());
    }
    let why = "another engine's log holds changes that are in no table: open the store with that engine, and close it";
    Err(Error::new(ErrorKind::Unsupported, why).at_file(&files.store().context().dir))
}

/// What the lane of a guest carries, for who reads the store without the guest.
///
/// # Errors
/// Those of reading the lane.
pub(crate) fn look(files: &Files) -> Result<CarriedBatches> {
    look_for(files, WithoutFamily::Kept)
}

fn look_for(files: &Files, dropped: WithoutFamily) -> Result<CarriedBatches> {
    let (state, context) = (files.manifest.state(), files.store().context());
    let open = |meta: &store::manifest::LogGroupMeta| {
        let path = context.path(&store::names::log(meta.file));
        // As its engine reads it: where the power failed on a sector, the page cache would lose the pages beside it.
        let file = io::open_in_place_read_only(&*context.env.fs, &path, io::Access::Direct)?;
        let file = store::commit::recorded::up_to(file, meta.len);
        let (ltn, uid, sealed_end) = (meta.ltn, meta.uid, meta.sealed_end);
        Ok(LogGroup { ltn, uid, file, sealed_end, begin: meta.begin })
    };
    let groups = state.store.log_groups.chain(Lane::LOG).filter(|meta| !meta.discarded).map(open);
    let groups: Vec<LogGroup> = groups.collect::<Result<_>>()?;
    let mut out = CarriedBatches::default();
    if groups.is_empty() {
        return Ok(out);
    }
    let mut take = |logged: &LoggedBatch<'_>| {
        Carried::read(logged.bytes)?.map_or(Ok(()), |carried| out.found(&state, carried.bytes, dropped))
    };
    let of = (state.store.uid, Lane::LOG);
    wal::recover_lane(&context.env, &context.dir, of, &groups, RecoveryMode::ReadOnly, &mut take)?;
    Ok(out)
}

/// The logs have begun: the guest serves. Before there are workers.
pub(crate) fn begin(
    log: &Log,
    files: &Files,
    scheduler: &Scheduler,
    relieve: Relieve,
    guest: &mut dyn Guest,
) -> Result<()> {
    let Some(lane) = log.records() else { return Ok(()) };
    let ground = Ground {
        files: files.store().clone(),
        space: log.space().clone(),
        lane: lane.clone(),
        first: log.shared().clone(),
    };
    let served = guest.begin(ground, relieve)?;
    log.set_guest(&served);
    scheduler.join(served.work);
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests;
