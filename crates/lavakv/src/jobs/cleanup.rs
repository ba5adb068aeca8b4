//! Removes files nobody needs, and rolls the manifest when it has grown long.

use crate::engine::Engine;
use crate::scheduler::{Job, JobClass, Progress};
use base::sync::lock;
use base::{ErrorKind, Result};
use std::sync::Arc;
use version::names;

pub(crate) struct CleanupJob;

/// True if there is something to clean up.
pub(crate) fn wanted(engine: &Engine) -> bool {
    engine.obsolete.has_ready() || engine.manifest.should_roll()
}

impl Job for CleanupJob {
    fn class(&self) -> JobClass {
        JobClass::Cleanup
    }

    fn step(&mut self, engine: &Arc<Engine>) -> Result<Progress> {
        remove_ready(engine)?;
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

/// Removes the tables whose last reader is gone.
pub(crate) fn remove_ready(engine: &Engine) -> Result<()> {
    for file in engine.obsolete.take_ready() {
        engine.tables.forget(file.number);
        remove_file(engine, &names::ksst(file.number))?;
    }
    Ok(())
}

/// Removes a file of the store; fine if it is gone already.
pub(crate) fn remove_file(engine: &Engine, name: &str) -> Result<()> {
    match engine.env.fs.remove(&engine.path(name)) {
        Ok(()) => {
            engine.stats.files_removed.add(1);
            Ok(())
        }
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}
