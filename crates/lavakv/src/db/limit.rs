//! The space limit of an open store.

use super::Db;
use crate::context::options::{Options, SpaceLimit};
use crate::context::sizes::leaves_room;
use base::Result;

impl Db {
    /// Changes the space limit of the open store; `None`: the end of the volume is the limit. See
    /// [`Options::space_limit`](field@crate::Options::space_limit). A store above a lower limit
    /// admits deletes only, until its jobs have brought it below. Memtables and log groups keep
    /// their sizes until the next open, which takes the limit of its own options.
    ///
    /// # Errors
    /// `InvalidArgument` for a limit out of range; `ReadOnly`; `NoSpace` if the store has no log
    /// and still has no room for one.
    pub fn set_space_limit(&self, limit: Option<SpaceLimit>) -> Result<()> {
        let engine = self.here()?;
        leaves_room(&Options { space_limit: limit, ..engine.context.options.clone() })?;
        // First: a store that was opened without room begins its log below the new limit.
        engine.space.set_own_limit(limit);
        let (_entered, jobs) = self.changes()?;
        jobs.tree.refresh_space();
        jobs.context.signals.notify_work();
        jobs.context.signals.notify_progress();
        Ok(())
    }
}
