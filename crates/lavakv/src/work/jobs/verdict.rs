//! What the failure of a job means for the store.
//!
//! * There was no descriptor for a call, which therefore did nothing: the job is tried again a while later.
//! * It passes by itself (no memory, interrupted) and concerns a file of data, or one that nothing names yet (a new group of
//!   the log, a new manifest): the job is tried again as well. Its files are thrown away, so nothing is in doubt.
//! * It comes from reading a file that the manifest lists: the file is set aside (`files::damaged`). A failure that says that
//!   stored bytes are wrong and names no file sets all of the job's inputs aside.
//! * There was no room: jobs are tried again, and what was kept for them is given up. Where it was a file of data of the second disk, such
//!   files are made in the directory for a while (`tree::disk`, `tree::speed_values`), and nobody waits.
//! * Anything else poisons the store, as what was written is in doubt.

use super::Jobs;
use crate::context::event::Event;
use crate::files::damaged::{is_of_reading, is_on_speed_disk, kind_of, number_of};
use base::{Error, ErrorKind};
use std::path::Path;
use store::commit::Ballast;
use version::names::FileKind;

impl Jobs {
    /// What the error of a failed job means. `inputs`: the files it read.
    pub fn job_failed(&self, error: Error, inputs: &[u64]) {
        let is_thrown_away = || error.file().is_some_and(|path| self.is_thrown_away(path));
        if error.lacks_descriptor() || error.is_passing() && is_thrown_away() {
            self.context.health.busy_at(self.context.now_ns(), &error);
        } else if !self.sets_aside(&error, inputs) {
            self.judge(&error);
        }
        self.context.stats.background_errors.add(1);
        self.context.tell(&Event::BackgroundError { error });
        self.context.signals.notify_progress();
    }

    /// A failure that is not of a file that was read.
    fn judge(&self, error: &Error) {
        match error.kind() {
            ErrorKind::NoSpace => {
                let file = error.file();
                let kind = file.and_then(|path| kind_of(&self.context, path));
                if kind.is_some_and(FileKind::is_data_of_speed_disk) {
                    // There is another disk for what was to be there: the next try is made at once, and not there.
                    return self.tree.speed.refused(&self.context);
                }
                self.context.health.no_space_at(self.context.now_ns(), error);
                if file.is_some_and(|path| is_on_speed_disk(&self.context, path)) {
                    // What is kept for jobs is on the other disk, and would not help.
                    return;
                }
                self.space.volume_is_full();
                // The next try finds more, and what it frees goes to nothing but deletes before this is made good.
                self.log.spares().give_ballast(Ballast::Jobs);
            }
            ErrorKind::Closed => {}
            _ => self.context.health.poison(error),
        }
    }

    /// True if what a job writes to a file is nobody's before the job has come to its end.
    fn is_thrown_away(&self, path: &Path) -> bool {
        let manifest = &self.files.manifest;
        match kind_of(&self.context, path) {
            Some(FileKind::Log(number)) => manifest.state().store.log_groups.in_file(number).is_none(),
            Some(kind) if kind.is_temporary() => true,
            Some(kind) if kind.is_manifest() => !manifest.live_manifest_files().contains(&kind.to_string()),
            kind => kind.is_some_and(|kind| kind.data().is_some()),
        }
    }

    /// True if this was a table that is on the other disk now.
    fn is_left(&self, path: &Path) -> bool {
        let kind = kind_of(&self.context, path);
        let number = kind.and_then(FileKind::table);
        let table = number.and_then(|number| self.files.manifest.state().table(number).cloned());
        table.is_some_and(|table| Some(table.kind()) != kind)
    }

    /// Sets the files aside that a job's error concerns. False if there are none: then it is not damage.
    fn sets_aside(&self, error: &Error, inputs: &[u64]) -> bool {
        if !is_of_reading(error) {
            return false;
        }
        match error.file() {
            // A file that a table has left, by a job that still read it there. It is tried again, and reads the other one.
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
