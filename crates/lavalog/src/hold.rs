//! Standing still: as long as somebody has a hold, no group becomes storage, nothing is collected, and no file of this engine
//! comes or goes. Appends go on.
//!
//! It is the right to move groups, which a job has otherwise ([`crate::core::UnderWay`]): whoever wants to see all files at one
//! moment takes it in the place of a job, and gives it back. As long as somebody waits for it no job takes it: where one follows the other
//! without a pause a checkpoint would never begin.

use crate::core::Core;
use base::Result;
use base::sync::lock;
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub(crate) struct Hold(Arc<Core>);

impl Core {
    /// Waits until no job moves groups, and keeps them from it until the hold is dropped.
    ///
    /// # Errors
    /// What stopped the store.
    pub fn hold(self: &Arc<Self>) -> Result<Hold> {
        let (context, _waits) = (self.context(), Waits::new(self));
        context.wait_until(|| {
            if let Err(e) = context.health.check_sound() {
                return Some(Err(e));
            }
            let was_moving = std::mem::replace(&mut lock(&self.under_way).is_moving, true);
            (!was_moving).then(|| Ok(Hold(self.clone())))
        })
    }
}

/// Somebody waits for a hold.
struct Waits<'c>(&'c Core);

impl<'c> Waits<'c> {
    fn new(core: &'c Core) -> Waits<'c> {
        lock(&core.under_way).waiting_holds += 1;
        Waits(core)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        lock(&self.0.under_way).waiting_holds -= 1;
        // If nothing came of it, jobs go on.
        self.0.context().signals.notify_work();
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        lock(&self.0.under_way).is_moving = false;
        let signals = &self.0.context().signals;
        signals.notify_work();
        signals.notify_progress();
    }
}
