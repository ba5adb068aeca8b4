//! Removes files nobody needs, and rolls the manifest when it has grown long.

use crate::engine::Engine;
use crate::files::obsolete::{DataFile, remove_file};
use crate::run::scheduler::{Job, JobClass, Progress};
use base::Result;
use base::sync::lock;
use std::sync::Arc;
use version::Edit;

pub(crate) struct CleanupJob {
    /// Names or vSSTs can be dropped.
    prune: bool,
}

impl CleanupJob {
    /// The job, if there is something to clean up.
    pub fn pick(engine: &Engine) -> Option<CleanupJob> {
        engine.segments.sweep();
        let prune = has_unreferenced(engine);
        let wanted = prune || engine.obsolete.has_ready() || engine.manifest.should_roll();
        wanted.then_some(CleanupJob { prune })
    }
}

/// True if names or vSSTs could be dropped.
fn has_unreferenced(engine: &Engine) -> bool {
    engine.all_families().iter().any(|f| {
        let view = f.view();
        view.may_prune && !values::prune(&view.version, &engine.pins).0.is_empty()
    })
}

impl Job for CleanupJob {
    fn class(&self) -> JobClass {
        JobClass::Cleanup
    }

    fn step(&mut self, engine: &Arc<Engine>) -> Result<Progress> {
        if self.prune {
            prune(engine)?;
        }
        remove_ready(engine)?;
        engine.space.refresh(engine);
        if engine.manifest.should_roll() {
            engine.manifest.roll()?;
        }
        lock(&engine.claims).cleanup = false;
        Ok(Progress::Done)
    }

    fn abandon(&mut self, engine: &Arc<Engine>) {
        lock(&engine.claims).cleanup = false;
    }
}

/// Drops names and vSSTs that no table references and no running job has pinned.
fn prune(engine: &Engine) -> Result<()> {
    let (mut removed, mut dropped) = (Vec::new(), 0);
    engine.install(
        |state| {
            let mut records = Vec::new();
            for family in state.families.values() {
                let (drops, files) = values::prune(&family.version, &engine.pins);
                dropped += (drops.len() - files.len()) as u64;
                records.extend(drops);
                removed.extend(files.into_iter().map(DataFile::Vsst));
            }
            Ok(Edit(records))
        },
        |state| super::output::publish(engine, state),
    )?;
    engine.stats.vssts_pruned.add(removed.len() as u64);
    engine.stats.aliases_pruned.add(dropped);
    engine.obsolete.add(removed);
    Ok(())
}

/// Removes the files whose last reader is gone. One that cannot be removed holds none of the others up, and stays on the
/// list.
pub(crate) fn remove_ready(engine: &Engine) -> Result<()> {
    engine.segments.sweep();
    let mut outcome = Ok(());
    for file in engine.obsolete.take_ready() {
        engine.tables.forget(file.number());
        engine.kept.forget(file.number());
        if let Err(e) = remove_file(engine, &file.kind().to_string()) {
            engine.obsolete.add([file]);
            outcome = outcome.and(Err(e));
        }
    }
    outcome
}
