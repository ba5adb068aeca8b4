//! The exclusive right to move groups. While a hold exists, no group is sealed, nothing is
//! collected, and no file of this engine is added or removed. Appends continue.
//!
//! Usually a job has the right ([`MovingRight`]). A checkpoint, which needs all files at one
//! moment, takes it as a [`Hold`] instead. Jobs do not take the right while a hold is wanted;
//! otherwise an endless series of jobs could starve a checkpoint.

use base::Result;
use base::sync::{Mutex, lock, rank};
use io::Cancel;
use std::sync::Arc;
use store::context::Context;

/// The right to move groups, which one job or one hold has at a time.
pub(crate) struct MoveLock {
    context: Arc<Context>,
    /// Guards the right to move groups.
    turn: Mutex<Turn, rank::RecordMoves>,
}

#[derive(Debug, Default)]
struct Turn {
    /// Whether a job or a hold has the right. Sealing and collection both move groups, so they
    /// exclude each other.
    is_moving: bool,
    /// Number of callers waiting for a hold. Jobs give way to them.
    waiting_holds: usize,
}

/// The right of a job to move groups, released on drop.
pub(crate) struct MovingRight(Arc<MoveLock>);

/// A hold on the files of this engine, released on drop.
#[derive(Debug)]
pub(crate) struct Hold(Arc<MoveLock>);

impl MoveLock {
    pub fn new(context: &Arc<Context>) -> MoveLock {
        MoveLock { context: context.clone(), turn: Mutex::new(Turn::default()) }
    }

    /// Claims the right for a job. Returns `None` if it is taken, or wanted for a hold.
    pub fn claim(self: &Arc<Self>) -> Option<MovingRight> {
        let mut turn = lock(&self.turn);
        let is_wanted = turn.waiting_holds > 0;
        let was_moving = is_wanted || std::mem::replace(&mut turn.is_moving, true);
        (!was_moving).then(|| MovingRight(self.clone()))
    }

    /// Returns true while a job or a hold has the right.
    pub fn is_moving(&self) -> bool {
        lock(&self.turn).is_moving
    }

    #[cfg(test)]
    pub fn waiting_holds(&self) -> usize {
        lock(&self.turn).waiting_holds
    }

    /// Waits until no job moves groups, and prevents jobs from moving groups until the hold is
    /// dropped.
    ///
    /// # Errors
    /// The error that stopped the store.
    pub fn hold(self: &Arc<Self>) -> Result<Hold> {
        self.hold_unless(None)
    }

    /// Takes a hold as [`MoveLock::hold`] does, unless the token is cancelled first.
    ///
    /// # Errors
    /// The errors of [`MoveLock::hold`]; `Cancelled`.
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

impl std::fmt::Debug for MoveLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.turn.fmt(f)
    }
}

impl Drop for MovingRight {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// Registration of a caller waiting for a hold.
struct Waits<'m>(&'m MoveLock);

impl<'m> Waits<'m> {
    fn new(moves: &'m MoveLock) -> Waits<'m> {
        lock(&moves.turn).waiting_holds += 1;
        Waits(moves)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        lock(&self.0.turn).waiting_holds -= 1;
        // Jobs may proceed if the caller gave up.
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
