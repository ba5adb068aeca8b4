//! The log's background work: write out buffered pages, prepare groups, release old ones, persist the watermark.
//!
//! All of it is short, and writers wait for it sooner or later, so it is the most urgent class.

use crate::engine::Engine;
use crate::scheduler::{Job, JobClass, Progress};
use crate::space_limit::live_log_bytes_max;
use base::Result;
use base::sync::lock;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(crate) struct LogJob;

/// True if the log has work.
pub(crate) fn wanted(engine: &Engine) -> bool {
    let has_room = !engine.health.must_wait(engine.env.clock.now_ns());
    engine.wal().wants_write_out()
        || (has_room && (wants_spare(engine) || engine.log.may_release()))
        || engine.log.is_idle(engine)
}

fn wants_spare(engine: &Engine) -> bool {
    let fits = || engine.log.has_free() || engine.space.fits_job(engine, engine.options.log_group_bytes);
    engine.wal().groups_wanted() > 0 && engine.wal().is_half_full() && fits()
}

impl Job for LogJob {
    fn class(&self) -> JobClass {
        JobClass::Log
    }

    fn step(&mut self, engine: &Arc<Engine>) -> Result<Progress> {
        if engine.wal().wants_write_out() {
            engine.wal().write_out()?;
            engine.log.hint_release();
        } else if wants_spare(engine) {
            engine.log.prepare_ahead(engine)?;
            if engine.wal().live_bytes() > live_log_bytes_max(&engine.options, engine.space.limit_bytes()) {
                engine.log_over_bound.store(true, Ordering::Release);
            }
        } else if engine.log.may_release() {
            engine.log.release(engine)?;
        } else {
            engine.log.persist_watermark(engine)?;
        }
        lock(&engine.claims).log = false;
        Ok(Progress::Done)
    }

    fn abandon(&mut self, engine: &Arc<Engine>) {
        lock(&engine.claims).log = false;
    }
}
