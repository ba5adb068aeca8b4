//! Checkpoint of a store of logs: an independent copy in another directory ([`store::copy`]).
//!
//! A checkpoint is the state that a crash at one moment would leave, as another store:
//!
//! 1. A hold stops all movement of groups ([`crate::hold`]). Index files, cold files, checkpoint
//!    files and sealed groups do not change, nor does the manifest's list of them.
//! 2. The moment is the next sequence number, taken under the order lock. All operations reflected
//!    in the files of step 1 are older.
//! 3. Files and groups are hard-linked. A group with a second link is durably marked as shared
//!    first and is never reused. Its pages remain valid under the identity of the store that wrote
//!    them, which the copy's manifest records.
//! 4. The batches before the moment in the replayable groups are written to new groups of the copy.
//!
//! Replaying these groups over the files gives the state at the moment, as after a crash. Files may
//! reflect more operations of a log than their groups contain, but only operations that are
//! replayed. If LavaLog is the secondary engine, the moment is taken under the host engine's order
//! lock. So both parts of the copy contain an embedded batch, or neither does.
//!
//! Writers continue throughout. Appends after the moment are not copied. Trimmed records stay on
//! disk until the copy is complete, as nothing is collected.

use crate::core::Core;
use crate::hold::Hold;
use crate::manifest::{LavaLog, TENANT};
use base::sync::{Mutex, rank};
use base::{Error, ErrorKind, Result, SeqNo};
use io::Cancel;
use std::path::Path;
use std::sync::{Arc, Weak};
use store::commit::{Lane, LogFindings, LoggedBatch};
use store::copy::{Copy, LaneCopy};
use store::manifest::{Engine, LogGroupMeta, ManifestState};
use store::names;
use store::secondary_engine::{CopyHold, CopySource};

/// Space left at the end of a copied group for the pages that confirm its end.
const SLACK_BYTES: u64 = 64 << 10;

/// The files of the engine during a hold.
#[derive(Debug)]
pub(crate) struct HeldFiles {
    core: Arc<Core>,
    /// Sequence number of the moment: the copy has all operations below it.
    end: SeqNo,
    _hold: Hold,
}

/// The engine's part of a checkpoint, for the host engine. The reference is weak because the core
/// refers to the host.
#[derive(Debug)]
pub(crate) struct CoreCopies(Weak<Core>);

impl CoreCopies {
    pub fn of(core: &Arc<Core>) -> CoreCopies {
        CoreCopies(Arc::downgrade(core))
    }
}

impl CopySource for CoreCopies {
    fn hold(&self, cancel: Option<&Cancel>) -> Result<Box<dyn CopyHold>> {
        let core = self.0.upgrade();
        let core =
            core.unwrap_or_else(|| unreachable!("its background has it, as long as the store is open"));
        Ok(Box::new(HeldFiles::of(&core, cancel)?))
    }
}

/// Makes a checkpoint of a store that this engine opened.
pub(crate) fn checkpoint(
    core: &Arc<Core>,
    one_at_a_time: &Mutex<(), rank::Checkpoint>,
    dir: &Path,
    cancel: Option<&Cancel>,
) -> Result<()> {
    core.store.check_writable()?;
    refuse_other_engines(core)?;
    core.context().health.check_sound()?;
    let copy = Copy::begin(core.context(), one_at_a_time, dir, cancel)?;
    let mut held = HeldFiles::of(core, cancel)?;
    held.mark();
    let state = core.store.manifest.state().store.clone();
    for (_, _, file) in state.engines.files() {
        copy.link(&file.to_string(), core.store.options.access)?;
    }
    let groups = held.copy(&copy, &state)?;
    copy.finish(&state, groups)
}

/// Refuses a checkpoint without the data of another engine.
fn refuse_other_engines(core: &Core) -> Result<()> {
    let state = core.store.manifest.state();
    let other = state.store.engines.iter().find(|engine| engine.id != LavaLog::ID);
    let Some(other) = other else {
        return Ok(());
    };
    // Some manifests have no name for the key engine.
    let name = if other.name.is_empty() { "LavaKV" } else { other.name };
    let why = format!(
        "the store has data of engine {name}, which a checkpoint of the logs would lack; nothing was copied: open the store with both engines and take the checkpoint there"
    );
    Err(Error::new(ErrorKind::Unsupported, why).at_file(&core.context().dir))
}

impl HeldFiles {
    fn of(core: &Arc<Core>, cancel: Option<&Cancel>) -> Result<HeldFiles> {
        Ok(HeldFiles { core: core.clone(), end: 0, _hold: core.moves.hold_unless(cancel)? })
    }

    /// Links the sealed groups.
    fn link_groups(&self, copy: &Copy, state: &ManifestState) -> Result<Vec<LogGroupMeta>> {
        let lane = &self.core.store.lane;
        let unshared = state.log_groups.retained(Lane::LOG).filter(|group| !group.shared);
        let unshared: Vec<u64> = unshared.map(|group| group.ltn).collect();
        lane.stored().share(&unshared, |records| lane.stored().commit(records))?;
        let mut groups = Vec::new();
        for group in state.log_groups.retained(Lane::LOG) {
            let filled = group.retained_bytes.unwrap_or(group.len);
            let name = names::log(group.file);
            let (len, shared) = copy.link_group(&name, self.core.store.options.access, group.len, filled)?;
            groups.push(LogGroupMeta {
                len,
                shared,
                store: Some(group.store.unwrap_or(state.uid)),
                ..*group
            });
        }
        Ok(groups)
    }

    /// Rewrites the batches of the replayable groups.
    fn copy_end(&self, copy: &Copy, state: &ManifestState) -> Result<Vec<LogGroupMeta>> {
        let core = &self.core;
        // After the sync, all batches below the moment are in the group files.
        core.log.sync()?;
        let groups = core.store.lane.reader().to_retain();
        let filled: u64 = groups.iter().map(|group| group.filled).sum();
        let (least, most) = (crate::options::GROUP_BYTES_MIN, core.store.options.longest_group());
        let group_bytes = (filled + SLACK_BYTES).next_multiple_of(io::PAGE as u64).clamp(least, most);
        let place = (Lane::LOG, core.store.options.access);
        let mut end = LaneCopy::new(copy, core.store.manifest.shared(), place, group_bytes, state.next_ltn);
        for group in groups {
            let mut check = match core.store.lane.reader().scan_written(group.ltn) {
                // The log released the group meanwhile: the copy needs nothing of it.
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                check => check?,
            };
            let (mut found, mut outcome) = (LogFindings::default(), Ok(()));
            let mut take = |batch: &LoggedBatch<'_>| {
                if outcome.is_ok() {
                    outcome = self.copy_batch(&mut end, batch);
                }
            };
            while copy.check().is_ok() && check.step(&mut found, &mut take) {}
            copy.check()?;
            outcome?;
            if let Some((_, e)) = found.errors.into_iter().next() {
                return Err(e.context("damaged data cannot be copied"));
            }
        }
        end.finish()
    }

    fn copy_batch(&self, end: &mut LaneCopy<'_>, batch: &LoggedBatch<'_>) -> Result<()> {
        if batch.tenant != TENANT {
            let why = format!(
                "the log of the records has a batch of the engine with the number {}: open the store with that engine",
                batch.tenant.0
            );
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        let is_before = batch.first_seq < self.end;
        if is_before { end.append(batch) } else { Ok(()) }
    }
}

impl CopyHold for HeldFiles {
    fn mark(&mut self) {
        self.end = self.core.log.next_seq();
    }

    fn copy(&self, copy: &Copy, state: &ManifestState) -> Result<Vec<LogGroupMeta>> {
        let mut groups = self.link_groups(copy, state)?;
        groups.extend(self.copy_end(copy, state)?);
        Ok(groups)
    }
}
