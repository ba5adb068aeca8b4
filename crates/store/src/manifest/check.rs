//! Reading the manifest again, as an open would, while its store is open: for verification.

use super::{Manifest, ManifestReport};
use base::{Error, ErrorKind, Result};

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
            let engines = self.state().engines_here();
            let found = Manifest::recover(&self.env, &self.dir.path, true, &engines)?;
            found.require_edit(durable_edit)?;
            Ok(found.report().clone())
        };
        let may_pass = |e: &Error| matches!(e.kind(), ErrorKind::NotFound | ErrorKind::Corruption);
        let mut outcome = read();
        for _ in 1..ATTEMPTS {
            match &outcome {
                Err(e) if may_pass(e) => outcome = read(),
                _ => break,
            }
        }
        outcome
    }
}
