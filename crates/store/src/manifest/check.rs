//! Reading the manifest again, as an open would, while its store is open: for verification.

use super::{Manifest, ManifestReport, replay};
use base::{ErrorKind, Result};

/// How often a manifest is read that does not fit together: it may be rolled meanwhile.
const ATTEMPTS: u32 = 5;

impl Manifest {
    /// Reads what `CURRENT` leads to from its beginning to its end, with the engines that are here, and holds it against what is known to
    /// be durable.
    ///
    /// # Errors
    /// As [`Manifest::recover`] and [`Manifest::require_edit`]: what the next open would say.
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
