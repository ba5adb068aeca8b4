//! The consequences of a failed job for the store.
//!
//! * The process had no descriptor for a call, so the call had no effect: the job is retried later.
//! * The error is transient (no memory, interrupted), in a data file, a new log group or a new
//!   manifest that nothing names yet: the job is retried as well. Its files are deleted, so no
//!   state is in doubt.
//! * The error comes from reading a file that the manifest lists: the file is set aside
//!   (`files::damaged`). A corruption error without a file name sets all inputs of the job aside.
//! * Space ran out: jobs are retried, and the space reserved for them is released. If a data file
//!   of the fast tier did not fit, such files go to the capacity tier for a while (`tree::table_placement`,
//!   `tree::speed_values`), without any wait.
//! * Any other error poisons the store, because the outcome of a write is in doubt.

use super::Jobs;
use crate::context::event::Event;
use crate::files::damaged::{is_of_reading, is_on_speed_disk, kind_of, number_of};
use base::{Error, ErrorKind};
use std::path::Path;
use store::commit::ReservePurpose;
use version::names::FileKind;

impl Jobs {
    /// Handles the error of a failed job. `inputs`: its input files.
    pub fn job_failed(&self, error: Error, inputs: &[u64]) {
        let is_thrown_away = || error.file().is_some_and(|path| self.is_thrown_away(path));
        if error.lacks_descriptor() || error.is_passing() && is_thrown_away() {
            self.context.health.busy_at(self.context.now_ns(), &error);
        } else if !self.sets_aside(&error, inputs) {
            self.judge(&error);
        }
        self.context.stats.background_errors.add(1);
        self.context.notify(&Event::BackgroundError { error });
        self.context.signals.notify_progress();
    }

    /// Handles an error that does not come from reading a file.
    fn judge(&self, error: &Error) {
        match error.kind() {
            ErrorKind::NoSpace => {
                let file = error.file();
                let kind = file.and_then(|path| kind_of(&self.context, path));
                if kind.is_some_and(FileKind::is_data_on_fast_tier) {
                    // The capacity tier takes the file instead, so the retry follows at once.
                    return self.tree.speed.refused(&self.context);
                }
                self.context.health.no_space_at(self.context.now_ns(), error);
                if file.is_some_and(|path| is_on_speed_disk(&self.context, path)) {
                    // The reserved space is on the capacity tier, and would not help.
                    return;
                }
                self.space.volume_is_full();
                // The retry finds the released space. Until the reserve is refilled, freed space is
                // available only to deletes.
                self.log.spares().release_reserved(ReservePurpose::Jobs);
            }
            ErrorKind::Closed => {}
            _ => self.context.health.poison(error),
        }
    }

    /// Returns whether the file is not part of the store until its job ends.
    fn is_thrown_away(&self, path: &Path) -> bool {
        let manifest = &self.files.manifest;
        match kind_of(&self.context, path) {
            Some(FileKind::Log(number)) => manifest.state().store.log_groups.in_file(number).is_none(),
            Some(kind) if kind.is_temporary() => true,
            Some(kind) if kind.is_manifest() => !manifest.live_manifest_files().contains(&kind.to_string()),
            kind => kind.is_some_and(|kind| kind.data().is_some()),
        }
    }

    /// Returns whether the path is the former file of a table that moved to the other tier.
    fn is_left(&self, path: &Path) -> bool {
        let kind = kind_of(&self.context, path);
        let number = kind.and_then(FileKind::table);
        let table = number.and_then(|number| self.files.manifest.state().table(number).cloned());
        table.is_some_and(|table| Some(table.kind()) != kind)
    }

    /// Sets the files aside that a job's error refers to. Returns false if there are none: the
    /// error is then not damage.
    fn sets_aside(&self, error: &Error, inputs: &[u64]) -> bool {
        if !is_of_reading(error) {
            return false;
        }
        match error.file() {
            // A job still read the former file of a moved table. The retry reads the new one.
            Some(path) if self.is_left(path) => true,
            Some(path) => {
                let number = number_of(&self.context, path);
                number.is_some_and(|number| self.tree.set_aside_for_jobs(number, error))
            }
            None => {
                let all = inputs.iter().filter(|&&number| self.tree.set_aside(number, error)).count();
                error.is_corruption() && all > 0
            }
        }
    }
}
