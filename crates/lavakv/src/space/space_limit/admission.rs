//! Whether a write may begin, and what it waits for if not.

use crate::context::event::StallCause;
use crate::context::options::{SpaceLimit, SpacePolicy};
use crate::engine::Engine;
use crate::space::space_limit::delete_bytes;
use crate::tree::writer::Writer;
use crate::work::jobs;
use crate::write::write_path::{freeze_all, stall};
use base::sync::atomic::Ordering::Relaxed;
use base::sync::lock;
use base::{Error, ErrorKind, Result};
use std::sync::Arc;

/// A wait is looked at again after so long, whatever happens.
const SLICE_NS: u64 = 50_000_000;

/// What a write asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// Bytes it will occupy.
    pub bytes: u64,
    /// It only deletes.
    pub frees: bool,
}

impl Ask {
    /// A write of `weight` bytes. Where values are placed with the log, they are in a file before they are flushed.
    pub fn of_write(weight: usize, placed: bool, frees: bool) -> Ask {
        let bytes = weight as u64;
        Ask { bytes: (bytes + bytes / 8) * if placed && !frees { 2 } else { 1 }, frees }
    }
}

/// What a write that has no room is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Go on.
    Granted,
    /// Let go of the writer's lock, [`wait`], and ask again.
    Wait {
        /// There is work that may free something.
        working: bool,
    },
}

impl Engine {
    /// True if there is room for it.
    fn has_room(&self, ask: Ask) -> bool {
        if !ask.frees && self.log.ballast_is_short() {
            return false;
        }
        if !self.space.is_limited() {
            return true;
        }
        let needed = self.space_needed_bytes().saturating_add(ask.bytes);
        if ask.frees {
            let log = self.log_reserve_bytes().min(self.options.log_group_bytes);
            // Nothing of a delete is placed, and without room for tails nothing else is.
            let own = log + delete_bytes(&self.options) + self.tail_reserve_bytes();
            return needed.saturating_sub(own) <= self.space.ceiling_bytes.load(Relaxed);
        }
        // What is new is live: a ratio rises with it.
        let rises = matches!(self.options.space_limit, Some(SpaceLimit::Ratio(_)));
        let limit = self.space.limit_bytes.load(Relaxed);
        needed <= if rises { limit.saturating_add(ask.bytes) } else { limit }
    }
}

/// Looks whether a write may go on that has waited since `since_ns`. Under the writer's lock.
pub(crate) fn admit(engine: &Arc<Engine>, writer: &mut Writer, ask: Ask, since_ns: u64) -> Result<Admission> {
    // What is under way counts as well.
    crate::write::write_path::settle(engine);
    let granted = || {
        let room = engine.has_room(ask);
        if room {
            engine.space.wanted_bytes.store(0, Relaxed);
        }
        room
    };
    if granted() {
        return Ok(Admission::Granted);
    }
    engine.health.check()?;
    // The volume, and what the store has become, may have changed with no job that said so.
    engine.space.refresh(engine);
    engine.placement.tails.let_go_of_spare(engine);
    if engine.log.ballast_is_short() {
        match engine.log.fill_ballast(engine) {
            Err(e) if e.kind() == ErrorKind::NoSpace => {}
            filled => filled?,
        }
    }
    if granted() {
        return Ok(Admission::Granted);
    }
    // Others that wait ask again, and say so again.
    engine.space.wanted_bytes.fetch_max(ask.bytes, Relaxed);
    let mut working = may_free(engine);
    if !working && engine.memory.used() > engine.memory.backlog() {
        // What is in memtables may hide, or delete, what lies in tables.
        freeze_all(engine, writer);
        working = may_free(engine);
    }
    let waited_ns = engine.env.clock.now_ns().saturating_sub(since_ns);
    let patient = match engine.options.space_policy {
        SpacePolicy::NoSpace => working,
        SpacePolicy::Wait { at_most } => u128::from(waited_ns) < at_most.as_nanos(),
    };
    if patient {
        return Ok(Admission::Wait { working });
    }
    engine.space.wanted_bytes.store(0, Relaxed);
    Err(no_space(engine, ask))
}

/// True if there is work that may free something. Jobs that are tried again because the volume has no room for what they
/// write (others took it) are none: nobody knows when they will get on.
fn may_free(engine: &Arc<Engine>) -> bool {
    jobs::can_work(engine) && !engine.health.out_of_space()
}

fn no_space(engine: &Engine, ask: Ask) -> Error {
    let (limit, used) = (engine.space.limit_bytes.load(Relaxed), engine.used_bytes());
    if limit == u64::MAX {
        let why = "the volume is full: delete something, or make more room; writes resume when there is some";
        return Error::new(ErrorKind::NoSpace, why).at_file(&engine.dir);
    }
    let what = if engine.has_own_limit() { "space limit" } else { "room on the volume," };
    let why = format!(
        "the {what} of {limit} bytes is reached ({used} occupied, {} reserved, {} asked for): delete something, \
         or make more room; writes resume when there is some",
        engine.reserve_bytes(),
        ask.bytes
    );
    Error::new(ErrorKind::NoSpace, why).at_file(&engine.dir)
}

/// Waits until something may have changed for a write that has no room. Without the writer's lock: others may delete.
pub(crate) fn wait(engine: &Arc<Engine>, ask: Ask, working: bool) {
    let until_ns = engine.env.clock.now_ns().saturating_add(SLICE_NS);
    stall(engine, StallCause::Space, || {
        let changed = engine.has_room(ask) || may_free(engine) != working;
        let over = engine.health.is_poisoned() || engine.env.clock.now_ns() >= until_ns;
        (changed || over).then_some(())
    });
}

/// Waits until a file of a large value may take `bytes` more, outside the writer's lock.
pub(crate) fn admit_stream(engine: &Arc<Engine>, bytes: u64) -> Result<()> {
    let ask = Ask { bytes: bytes + bytes / 64 + io::PAGE as u64, frees: false };
    if engine.has_room(ask) {
        return Ok(());
    }
    let since_ns = engine.env.clock.now_ns();
    loop {
        let admission = admit(engine, &mut lock(&engine.writer), ask, since_ns)?;
        match admission {
            Admission::Granted => return Ok(()),
            Admission::Wait { working } => wait(engine, ask, working),
        }
    }
}
