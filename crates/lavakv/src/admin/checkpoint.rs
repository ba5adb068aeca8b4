//! Checkpoints: a consistent copy of the store in another directory, at the cost of a flush and
//! some hard links.
//!
//! All memtables are frozen at one sequence number S. During the checkpoint, memtables with later
//! writes are not flushed. Once everything up to S is in tables, the manifest's state has exactly
//! the writes up to S, of all families, and flushing continues. The tables and vSSTs of that state
//! are linked into the new directory, or copied if the file system cannot link. A manifest with
//! that state and without LavaKV's log is written there: [`store::copy`] describes how the copy
//! becomes a store. Before a file gets a second link, the manifest durably marks it as shared,
//! because holes must never be punched into it.
//!
//! A secondary engine with a lane of its own ([`store::secondary_engine`]) keeps its files
//! unchanged meanwhile, and adds its lane as of the freeze. So a batch of both engines is in the
//! copy completely or not at all. A lane cannot be copied without its engine, so the checkpoint
//! then fails.

use crate::admin::flush::{freeze_all_and, wait_flushed};
use crate::files::data_file::DataFile;
use crate::files::other_engines;
use crate::work::jobs::Jobs;
use base::sync::{Mutex, lock, rank};
use base::{Result, SeqNo};
use io::Cancel;
use std::path::Path;
use std::sync::Arc;
use store::commit::Lane;
use store::copy::Copy;
use store::manifest::EngineId;
use store::secondary_engine::CopyHold;
use version::{Edit, Record, State};

/// Makes a checkpoint. `one_at_a_time`: locked while the names of a checkpoint are made durable,
/// and while its state is captured.
pub(crate) fn checkpoint(
    jobs: &Arc<Jobs>,
    one_at_a_time: &Mutex<(), rank::Checkpoint>,
    dir: &Path,
    cancel: Option<&Cancel>,
) -> Result<()> {
    Copy::check_vacant(&jobs.context.env, dir)?;
    check_log_of_others(jobs, &jobs.files.manifest.state())?;
    let copy = Copy::begin(jobs.context.store(), one_at_a_time, dir, cancel)?;
    let mut secondary = jobs.log.secondary().map(|secondary| secondary.hold(cancel)).transpose()?;
    // The reference to the state pins its tables until they are linked.
    let state = state_at_one_sequence(jobs, one_at_a_time, secondary.as_deref_mut(), cancel)?;
    check_log_of_others(jobs, &state)?;
    let access = jobs.context.options.access;
    for family in state.families.values() {
        for file in DataFile::all_of(&family.version) {
            let here = file.kind();
            copy.link_as(&here.to_string(), &here.in_directory().to_string(), access)?;
        }
    }
    for (_, _, file) in state.store.engines.files() {
        copy.link(&file.to_string(), access)?;
    }
    let groups = secondary.map_or_else(|| Ok(Vec::new()), |secondary| secondary.copy(&copy, &state.store))?;
    // The copy has a single tier. `state` pins the files until the end.
    let moved = state.to_directory();
    let copied = if moved.0.is_empty() { state.clone() } else { state.apply(moved)? };
    copy.finish(&copied.store, groups)
}

/// Fails if another engine has data only in the log. A checkpoint contains none of LavaKV's log,
/// and the records lane only with its engine.
fn check_log_of_others(jobs: &Jobs, state: &State) -> Result<()> {
    let of_lane = state.store.log_groups.values().any(|group| group.lane != Lane::FIRST);
    let of_lane = of_lane && jobs.log.secondary().is_none();
    if !of_lane && !jobs.log.reader().in_use().iter().any(|group| other_engines::need(&state.store, group)) {
        return Ok(());
    }
    let others = state.store.engines.iter().filter(|engine| engine.id != EngineId::NATIVE);
    let names: Vec<String> = others.map(|engine| engine.name.to_owned()).collect();
    Err(other_engines::refusal(
        &jobs.context.dir,
        &names,
        "is only in the log, which the checkpoint does not copy",
    ))
}

/// Returns the manifest's state once it has exactly the writes up to one sequence number.
fn state_at_one_sequence(
    jobs: &Arc<Jobs>,
    one_at_a_time: &Mutex<(), rank::Checkpoint>,
    secondary: Option<&mut (dyn CopyHold + 'static)>,
    cancel: Option<&Cancel>,
) -> Result<State> {
    let _one_at_a_time = lock(one_at_a_time);
    // The ceiling is set under the writer lock: memtables frozen later contain only later writes.
    let upto = freeze_all_and(jobs, |upto| {
        jobs.tree.together.set_flush_ceiling(upto);
        // Embedded batches are appended under the same lock: those up to here are in both parts.
        if let Some(secondary) = secondary {
            secondary.mark();
        }
    })?;
    jobs.context.signals.notify_work();
    let state = wait_flushed(jobs, upto, cancel).and_then(|()| share_files(jobs));
    jobs.tree.together.set_flush_ceiling(SeqNo::MAX);
    jobs.context.signals.notify_work();
    state
}

/// Marks all tables and vSSTs as shared, durably. Returns that state.
fn share_files(jobs: &Jobs) -> Result<State> {
    jobs.tree.install_everywhere(|state| {
        let files = state.families.values().flat_map(|f| DataFile::all_of(&f.version));
        let records = files.filter(|f| !f.is_shared()).map(|f| Record::ShareFile { number: f.number() });
        Ok(Edit(records.collect()))
    })
}
