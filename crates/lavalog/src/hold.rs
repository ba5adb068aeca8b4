//! Standing still: as long as somebody has a hold, no group becomes storage, nothing is collected, and no file of this engine
//! comes or goes. Appends go on.
//!
//! It is the right to move groups, which a job has otherwise ([`MovingRight`]): whoever wants to see all files at one
//! moment takes it in the place of a job, and gives it back. As long as somebody waits for it no job takes it: where one follows the other
//! without a pause a checkpoint would never begin.

use base::Result;
use base::sync::{Mutex, lock, rank};
use io::Cancel;
use std::sync::Arc;
use store::context::Context;

/// Who has the right to move groups: one job, or one hold, at a time.
pub(crate) struct Moves {
    context: Arc<Context>,
    /// Guards the right to move groups.
    turn: Mutex<Turn, rank::RecordMoves>,
}

#[derive(Debug, Default)]
struct Turn {
    /// A group gets its index file, or files are collected: one at a time, since both move groups.
    is_moving: bool,
    /// Callers that wait for a hold, in the foreground: no job takes the right before them.
    waiting_holds: usize,
}

/// The right to move groups, of a job. It ends when this is dropped.
pub(crate) struct MovingRight(Arc<Moves>);

/// See the module.
#[derive(Debug)]
pub(crate) struct Hold(Arc<Moves>);

impl Moves {
    /// Nobody has the right yet.
    pub fn new(context: &Arc<Context>) -> Moves {
        Moves { context: context.clone(), turn: Mutex::new(Turn::default()) }
    }

    /// Takes the right for a job. `None` if somebody has it, or waits for it.
    pub fn claim(self: &Arc<Self>) -> Option<MovingRight> {
        let mut turn = lock(&self.turn);
        let is_wanted = turn.waiting_holds > 0;
        let was_moving = is_wanted || std::mem::replace(&mut turn.is_moving, true);
        (!was_moving).then(|| MovingRight(self.clone()))
    }

    /// True while a job or a hold has the right.
    pub fn is_moving(&self) -> bool {
        lock(&self.turn).is_moving
    }

    /// Callers that wait for a hold.
    #[cfg(test)]
    pub fn waiting_holds(&self) -> usize {
        lock(&self.turn).waiting_holds
    }

    /// Waits until no job moves groups, and keeps them from it until the hold is dropped.
    ///
    /// # Errors
    /// What stopped the store.
    pub fn hold(self: &Arc<Self>) -> Result<Hold> {
        self.hold_unless(None)
    }

    /// As [`Moves::hold`], as long as the token is not cancelled.
    ///
    /// # Errors
    /// As there; `Cancelled`.
    pub fn hold_unless(self: &Arc<Self>, cancel: Option<&Cancel>) -> Result<Hold> {
        let _waits = Waits::new(self);
        self.context.wait_until(|| {
            if let Err(e) = self.context.health.check_sound().and_then(|()| self.context.check_call(cancel)) {
                return Some(Err(e));
            }
            let was_moving = std::mem::replace(&mut lock(&self.turn).is_moving, true);
            (!was_moving).then(|| Ok(Hold(self.clone())))
        })
    }

    fn give_back(&self) {
        lock(&self.turn).is_moving = false;
    }
}

impl std::fmt::Debug for Moves {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.turn.fmt(f)
    }
}

impl Drop for MovingRight {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// Somebody waits for a hold.
struct Waits<'m>(&'m Moves);

impl<'m> Waits<'m> {
    fn new(moves: &'m Moves) -> Waits<'m> {
        lock(&moves.turn).waiting_holds += 1;
        Waits(moves)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        lock(&self.0.turn).waiting_holds -= 1;
        // If nothing came of it, jobs go on.
        self.0.context.signals.notify_work();
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.give_back();
        let signals = &self.0.context.signals;
        signals.notify_work();
        signals.notify_progress();
    }
}
