//! Background work in order of priority: the log, then sealing and index files, then garbage
//! collection.

use crate::collect::Collection;
use crate::core::{Core, StoreOwner};
use crate::hold::MovingRight;
use crate::index_rebuild::RebuildJob;
use crate::pick::Pick;
use crate::seal::Seal;
use base::{Error, ErrorKind, Result};
use std::sync::Arc;
use store::commit::{Log, Task};
use store::names::{self, FileKind};
use store::run::{Job, JobClass, Progress, Work, WorkerRole};

/// A maintenance task of one log lane.
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

/// Delay before the host engine is asked again, if it was busy.
const ASK_AGAIN_NS: u64 = 1_000_000;

/// Maximum number of closed groups after open; more are sealed during open.
const WAITING_AT_OPEN_MAX: usize = 16;
/// The same limit if the reserved space is short. Each short-lived process that only trims or
/// deletes leaves a group that is garbage as soon as it is sealed. A few of them would use up the
/// reserved space.
const WAITING_AT_OPEN_SHORT: usize = 1;

/// Asks the host engine to flush its memtables, so that a group can be sealed.
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
        let StoreOwner::Host(relieve) = &self.core.roof else { return Ok(Progress::Done) };
        if !relieve() {
            // A writer holds the host engine's lock, perhaps for as long as a sync. Retrying at
            // once would busy-wait.
            return Ok(Progress::Wait(ASK_AGAIN_NS));
        }
        self.core.sealer.relieved(self.ltn);
        Ok(Progress::Done)
    }

    fn abandon(&mut self) {}
}

/// The source of background jobs for the scheduler.
#[derive(Debug)]
pub(crate) struct Background(pub Arc<Core>);

impl Background {
    fn log_job(&self) -> Option<Box<dyn Job>> {
        let core = &self.0;
        let waits = core.context().health.must_wait(core.context().now_ns());
        core.store.lanes().find_map(|log| {
            // After a `NoSpace` failure, jobs that may free space run first, once a retry is due.
            if !waits && log.preparation().gives_way() {
                return None;
            }
            let job = LogJob { log: log.clone(), task: log.upkeep().task()? };
            Some(Box::new(job) as Box<dyn Job>)
        })
    }

    /// Returns a job that moves groups, if none runs.
    fn moving_job(&self, below: JobClass) -> Option<Box<dyn Job>> {
        let context = self.0.context();
        if context.health.must_wait(context.now_ns()) {
            return None;
        }
        self.find_moving(below, self.0.moves.claim()?)
    }

    /// Finds a job that moves groups and hands it the right to move them. Without such a job the
    /// right is released.
    fn find_moving(&self, below: JobClass, right: MovingRight) -> Option<Box<dyn Job>> {
        let core = &self.0;
        let to_collect = || (JobClass::Gc < below).then(|| core.collector.to_collect()).flatten();
        // If an index file found no space, dead files are deleted first, which takes no space.
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
            return Some(Box::new(RebuildJob::new(&core.remaker, right)));
        }
        Some(Box::new(Collection::new(&core.collector, to_collect()?, right)))
    }

    /// Bounds the number of groups waiting for an index file. A process that runs one command never
    /// finishes a background job, so each leaves a group that the next one has to replay. With
    /// short reserved space a few such groups would exhaust it, so dead files are deleted, too.
    /// Must be called before the workers start.
    ///
    /// # Errors
    /// Errors of the log and I/O errors, except for temporary conditions, which the jobs retry.
    pub fn bound_waiting(&self) -> Result<()> {
        let freed = self.free_where_short().and_then(|()| self.seal_over_bound());
        match freed.and_then(|()| self.free_where_short()) {
            Err(e) if e.kind() == ErrorKind::NoSpace || e.is_passing() && self.leaves_no_doubt(&e) => Ok(()),
            done => done,
        }
    }

    fn seal_over_bound(&self) -> Result<()> {
        let core = &self.0;
        // Counted once and then decremented: there may be thousands.
        let mut waiting = core.sealer.waiting_groups();
        loop {
            let is_short = core.store.lane.spares().reserved_is_short();
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
                // The remaining groups have embedded batches that the host engine still needs.
                return Ok(());
            }
            waiting = waiting.saturating_sub(usize::try_from(sealed).unwrap_or(usize::MAX));
        }
    }

    /// Seals the oldest waiting groups on the calling thread.
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
        while core.store.lane.spares().reserved_is_short()
            && let Some(Pick::Free(dead)) = core.collector.to_collect()
        {
            core.collector.free_dead(&dead)?;
        }
        Ok(())
    }

    /// Returns true if a failure of a job at this file leaves no state in doubt. Either no edit
    /// names the file before the job ends, or the file is written only once, so the job was only
    /// reading it.
    fn leaves_no_doubt(&self, error: &Error) -> bool {
        // A call that lacked a descriptor did nothing.
        if error.lacks_descriptor() {
            return true;
        }
        let name = error.file().and_then(|path| path.file_name()?.to_str());
        match name.and_then(names::parse) {
            Some(FileKind::Engine { .. }) => true,
            Some(kind) if kind.is_temporary() => true,
            // A listed group: the job was opening it, or a failed write to it has stopped its lane.
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

    /// Returns true if no background work is left.
    pub fn is_settled(&self) -> bool {
        let core = &self.0;
        let idle =
            !core.moves.is_moving() && !core.sealer.has_to_seal() && core.collector.to_collect().is_none();
        idle && !core.remaker.has_to_remake() && self.0.store.lanes().all(|log| log.upkeep().task().is_none())
    }
}

impl Work for Background {
    fn next(self: Arc<Self>, duty: WorkerRole, below: JobClass) -> Option<Box<dyn Job>> {
        if self.0.context().health.check_sound().is_err() {
            // No sync will run any more: asynchronous waiters must be completed with the error.
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
