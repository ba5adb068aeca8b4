//! The durability domain that a log belongs to.

use base::{Error, Result};
use std::fmt::Debug;

/// The logs of a store and its manifest, which fail together.
///
/// A batch that is durable in one log may depend on a batch in another, or on an edit of the
/// manifest. So the first failure of any of them ends the acknowledgments of all. Every log reports
/// its failure here before it answers a waiter, and calls [`Domain::check`] before it acknowledges
/// a batch.
pub trait Domain: Debug + Send + Sync {
    /// Records a failure of the log.
    fn fail(&self, error: &Error);

    /// Fails if anything in the domain failed.
    ///
    /// # Errors
    /// The first failure, as `Poisoned`.
    fn check(&self) -> Result<()>;
}
