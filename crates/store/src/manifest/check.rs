//! Rereading the manifest of an open store as an open would, for verification.

use super::{Manifest, ManifestReport, replay};
use base::{ErrorKind, Result};

/// Attempts to read an inconsistent manifest, because it may be rolled meanwhile.
const ATTEMPTS: u32 = 5;

impl Manifest {
    /// Rereads the manifest that `CURRENT` names from beginning to end, with the engines of this
    /// opening, and compares it with the last durable edit.
    ///
    /// # Errors
    /// As [`Manifest::recover`] and [`Manifest::require_edit`]: the errors of the next open.
    pub fn read_again(&self) -> Result<ManifestReport> {
        let durable_edit = self.durable_edit();
        let read = || {
            let engines = self.state().engines.here();
            let found =
                replay::find_with_disk(self.files.env(), self.files.dir(), true, &engines, durable_edit)?;
            let found = Manifest::of_found(self.files.env(), self.files.dir(), found, true);
            found.require_edit(durable_edit)?;
            Ok(found.report().clone())
        };
        let may_pass = |outcome: &Result<ManifestReport>| match outcome {
            Ok(report) => !report.damaged.is_empty(),
            Err(e) => matches!(e.kind(), ErrorKind::NotFound | ErrorKind::Corruption),
        };
        let mut outcome = read();
        for attempt in 1..ATTEMPTS {
            if !may_pass(&outcome) {
                break;
            }
            outcome = match attempt + 1 == ATTEMPTS {
                true => self.commits.while_nobody_writes(read),
                false => read(),
            };
        }
        outcome
    }
}
