//! The log's background work: write out buffered pages, prepare groups, release old ones, persist the watermark.
//!
//! All of it is short, and writers wait for it sooner or later, so it is the most urgent class.

use crate::engine::Engine;
use crate::files::log_groups::shortest_bytes;
use crate::run::scheduler::{Job, JobClass, Progress};
use crate::space::space_limit::live_log_bytes_max;
use base::Result;
use base::sync::atomic::Ordering;
use base::sync::lock;
use std::sync::Arc;

pub(crate) struct LogJob;

/// What there is to do for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    WriteOut,
    Prepare,
    Lengthen,
    Release,
    Vouch,
}

/// The most urgent of it. After something found no room, nothing that takes any is tried for a while: a job for anything else
/// would be refused in its place, and put off everybody's next try again and again.
fn task(engine: &Engine) -> Option<Task> {
    let has_room = !engine.health.must_wait(engine.env.clock.now_ns());
    if engine.wal().wants_write_out() {
        // Until it is tried again whoever finds the ring full tries himself, and is told. Nothing else is done: what vouches
        // for these pages would meet the same, and stop the log.
        (has_room || !engine.log.write_out_was_refused()).then_some(Task::WriteOut)
    } else if has_room && wants_spare(engine) {
        Some(Task::Prepare)
    } else if has_room && engine.log.wants_longer_ring(engine) {
        Some(Task::Lengthen)
    } else if has_room && engine.log.may_release() {
        Some(Task::Release)
    } else if engine.log.is_idle(engine) {
        Some(Task::Vouch)
    } else {
        None
    }
}

/// True if the log has work.
pub(crate) fn wanted(engine: &Engine) -> bool {
    task(engine).is_some()
}

fn wants_spare(engine: &Engine) -> bool {
    let shortest = shortest_bytes(&engine.options);
    let fits = || engine.log.has_free(engine) || engine.space.fits_job(engine, shortest);
    let wanted = engine.wal().groups_wanted() > 0 && engine.wal().is_half_full();
    // What room there is, is for deletes and the jobs that make more of it.
    wanted && !engine.log.ballast_is_short() && fits()
}

impl Job for LogJob {
    fn class(&self) -> JobClass {
        JobClass::Log
    }

    fn step(&mut self, engine: &Arc<Engine>) -> Result<Progress> {
        match task(engine) {
            Some(Task::WriteOut) => {
                engine.log.write_out(engine)?;
                engine.log.hint_release();
            }
            Some(Task::Prepare) => {
                engine.log.prepare_ahead(engine)?;
                let live_max = live_log_bytes_max(&engine.options, engine.space.limit_bytes());
                if engine.wal().live_bytes() > live_max {
                    engine.log_over_bound.store(true, Ordering::Release);
                }
            }
            Some(Task::Lengthen) => engine.log.lengthen_ring(engine)?,
            Some(Task::Release) => engine.log.release(engine)?,
            Some(Task::Vouch) => engine.log.persist_watermark(engine)?,
            None => {}
        }
        lock(&engine.claims).log = false;
        Ok(Progress::Done)
    }

    fn abandon(&mut self, engine: &Arc<Engine>) {
        lock(&engine.claims).log = false;
    }
}
