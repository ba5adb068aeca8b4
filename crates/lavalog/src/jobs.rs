//! What there is to do in the background, and who does it first: the log, then index files, then collection.

use crate::collect::Collection;
use crate::core::{Core, Roof};
use crate::hold::MovingRight;
use crate::pick::Pick;
use crate::remake::Remake;
use crate::seal::Seal;
use base::{Error, ErrorKind, Result};
use std::sync::Arc;
use store::commit::{Log, Task};
use store::names::{self, FileKind};
use store::run::{Duty, Job, JobClass, Progress, Work};

/// A task of one of the logs.
struct LogJob {
    log: Arc<Log>,
    task: Task,
}

impl Job for LogJob {
    fn class(&self) -> JobClass {
        JobClass::Log
    }

    fn step(&mut self) -> Result<Progress> {
        self.log.upkeep().run(self.task)?;
        Ok(Progress::Done)
    }

    fn abandon(&mut self) {}
}

/// After so long the engine that opened the store is asked again, if it could not be asked.
const ASK_AGAIN_NS: u64 = 1_000_000;

/// With more closed groups than this a store of logs is not open before they are storage.
const WAITING_AT_OPEN_MAX: usize = 16;
/// The same where the ballast is short: each life that only frees leaves a group, which is garbage as soon as it is storage, and after a few
/// the ballast would be gone.
const WAITING_AT_OPEN_SHORT: usize = 1;

/// Asks the engine that opened the store to write down what it has in memory, so that a group can become storage.
struct Relief {
    core: Arc<Core>,
    ltn: u64,
    _right: MovingRight,
}

impl Job for Relief {
    fn class(&self) -> JobClass {
        JobClass::Flush
    }

    fn step(&mut self) -> Result<Progress> {
        let Roof::Host(relieve) = &self.core.roof else { return Ok(Progress::Done) };
        if !relieve() {
            // A writer is at it, perhaps for as long as a sync takes: to ask again at once would be to spin until he has done.
            return Ok(Progress::Wait(ASK_AGAIN_NS));
        }
        self.core.sealer.relieved(self.ltn);
        Ok(Progress::Done)
    }

    fn abandon(&mut self) {}
}

/// Finds work.
#[derive(Debug)]
pub(crate) struct Background(pub Arc<Core>);

impl Background {
    fn log_job(&self) -> Option<Box<dyn Job>> {
        let core = &self.0;
        let waits = core.context().health.must_wait(core.context().now_ns());
        core.store.lanes().find_map(|log| {
            // After a refusal whoever may free room comes first, once there is another try.
            if !waits && log.preparation().gives_way() {
                return None;
            }
            let job = LogJob { log: log.clone(), task: log.upkeep().task()? };
            Some(Box::new(job) as Box<dyn Job>)
        })
    }

    /// A job that moves groups, if none does.
    fn moving_job(&self, below: JobClass) -> Option<Box<dyn Job>> {
        let context = self.0.context();
        if context.health.must_wait(context.now_ns()) {
            return None;
        }
        self.find_moving(below, self.0.moves.claim()?)
    }

    /// With the right to move groups, which ends here if there is no such job.
    fn find_moving(&self, below: JobClass, right: MovingRight) -> Option<Box<dyn Job>> {
        let core = &self.0;
        let to_collect = || (JobClass::Gc < below).then(|| core.collector.to_collect()).flatten();
        // Where an index file has found no room, what nothing is alive of goes first, which takes none.
        if core.context().health.out_of_space()
            && let Some(pick @ Pick::Free(_)) = to_collect()
        {
            return Some(Box::new(Collection::new(&core.collector, pick, right)));
        }
        if core.sealer.has_to_seal() {
            return Some(Box::new(Seal::new(&core.sealer, right)));
        }
        if let Some(ltn) = core.sealer.to_relieve() {
            return Some(Box::new(Relief { core: core.clone(), ltn, _right: right }));
        }
        if core.remaker.has_to_remake() {
            return Some(Box::new(Remake::new(&core.remaker, right)));
        }
        Some(Box::new(Collection::new(&core.collector, to_collect()?, right)))
    }

    /// Keeps the groups that wait for an index file within their bound: processes that live for one command never get to the end of a job in
    /// the background, and each leaves a group that the next one has to replay. Where the ballast is short that would be all there is of it
    /// after a few of them, so what nothing is alive of goes as well. To be called before there are workers.
    ///
    /// # Errors
    /// Those of the log and of the file system, but for what passes by itself: then jobs do it.
    pub fn bound_waiting(&self) -> Result<()> {
        let freed = self.free_where_short().and_then(|()| self.seal_over_bound());
        match freed.and_then(|()| self.free_where_short()) {
            Err(e) if e.kind() == ErrorKind::NoSpace || e.is_passing() && self.leaves_no_doubt(&e) => Ok(()),
            done => done,
        }
    }

    fn seal_over_bound(&self) -> Result<()> {
        let core = &self.0;
        // Counted once, and then as they go: there may be thousands.
        let mut waiting = core.sealer.waiting_groups();
        loop {
            let is_short = core.store.lane.spares().ballast_is_short();
            let most = if is_short { WAITING_AT_OPEN_SHORT } else { WAITING_AT_OPEN_MAX };
            if waiting <= most {
                return Ok(());
            }
            let before = core.sealer.sealed_groups();
            match self.seal_at_once() {
                Err(e) if e.kind() == ErrorKind::NoSpace && core.room.job_found_no_room()? => continue,
                sealed => sealed?,
            }
            let sealed = core.sealer.sealed_groups() - before;
            if sealed == 0 {
                // What another engine needs of them stays.
                return Ok(());
            }
            waiting = waiting.saturating_sub(usize::try_from(sealed).unwrap_or(usize::MAX));
        }
    }

    /// Makes the oldest of them storage.
    fn seal_at_once(&self) -> Result<()> {
        let Some(right) = self.0.moves.claim() else { return Ok(()) };
        let mut seal = Seal::new(&self.0.sealer, right);
        loop {
            match seal.step() {
                Ok(Progress::Done) => return Ok(()),
                Ok(_) => {}
                Err(e) => {
                    seal.abandon();
                    return Err(e);
                }
            }
        }
    }

    fn free_where_short(&self) -> Result<()> {
        let core = &self.0;
        while core.store.lane.spares().ballast_is_short()
            && let Some(Pick::Free(dead)) = core.collector.to_collect()
        {
            core.collector.free_dead(&dead)?;
        }
        Ok(())
    }

    /// True if nothing is in doubt when a job met something at this file: it is nobody's before the job has come to its end, or is
    /// written once, so that what is listed of the engine's own was only to be read.
    fn leaves_no_doubt(&self, error: &Error) -> bool {
        // The call that needed one did nothing.
        if error.lacks_descriptor() {
            return true;
        }
        let name = error.file().and_then(|path| path.file_name()?.to_str());
        match name.and_then(names::parse) {
            Some(FileKind::Engine { .. }) => true,
            Some(kind) if kind.is_temporary() => true,
            // A group that is listed: it was to be opened, or a write to it has stopped its lane.
            Some(FileKind::Log(number)) => {
                let goes_on = |lane: &Arc<Log>| lane.begun().is_none_or(|wal| wal.check().is_ok());
                self.0.store.manifest.state().store.log_groups.in_file(number).is_none()
                    || self.0.store.lanes().all(goes_on)
            }
            Some(kind) if kind.is_manifest() => {
                !self.0.store.manifest.shared().live_manifest_files().contains(&kind.to_string())
            }
            _ => false,
        }
    }

    /// True if there is nothing left to do.
    pub fn is_settled(&self) -> bool {
        let core = &self.0;
        let idle =
            !core.moves.is_moving() && !core.sealer.has_to_seal() && core.collector.to_collect().is_none();
        idle && !core.remaker.has_to_remake() && self.0.store.lanes().all(|log| log.upkeep().task().is_none())
    }
}

impl Work for Background {
    fn next(self: Arc<Self>, duty: Duty, below: JobClass) -> Option<Box<dyn Job>> {
        if self.0.context().health.check_sound().is_err() {
            // Nobody syncs any more: those who wait for that without a thread have to be told.
            self.0.store.lanes().for_each(|log| log.refuse_if_poisoned());
            return None;
        }
        let log = (duty.includes(JobClass::Log) && JobClass::Log < below).then(|| self.log_job()).flatten();
        log.or_else(|| {
            let other = duty.includes(JobClass::Flush) && JobClass::Flush < below;
            other.then(|| self.moving_job(below)).flatten()
        })
    }

    fn failed(&self, error: Error, _inputs: &[u64]) {
        let context = self.0.context();
        match error.kind() {
            ErrorKind::NoSpace => {
                context.health.no_space_at(context.now_ns(), &error);
                if let Err(e) = self.0.room.job_found_no_room() {
                    context.health.poison(&e);
                }
            }
            ErrorKind::Busy => context.health.busy_at(context.now_ns(), &error),
            _ if error.is_passing() && self.leaves_no_doubt(&error) => {
                context.health.busy_at(context.now_ns(), &error);
            }
            ErrorKind::Closed => {}
            _ => context.health.poison(&error),
        }
        context.signals.notify_progress();
        self.0.writes.tails().wake_all();
    }

    fn can_free(&self) -> bool {
        self.0.writes.may_free()
    }

    fn last_write(&self) -> u64 {
        self.0.log.appends()
    }
}

#[cfg(test)]
mod tests;
