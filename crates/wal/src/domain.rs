//! The durability domain that a log belongs to.

use base::{Error, Result};
use std::fmt::Debug;

/// The logs of a store and its manifest, which fail together.
///
/// A batch that is durable in one log may follow from a batch in another, or from an edit of the manifest. So the first failure of any
/// of them ends the acknowledgements of all. Every log reports its failure here before it answers a waiter, and asks here before it
/// acknowledges a batch.
pub trait Domain: Debug + Send + Sync {
    /// Takes note of a failure of the log.
    fn fail(&self, error: &Error);

    /// Fails if anything in the domain failed.
    ///
    /// # Errors
    /// The first failure, as `Poisoned`.
    fn check(&self) -> Result<()>;
}
