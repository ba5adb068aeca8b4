//! An engine that keeps records in a store that another one opens and drives, the *host*.
//!
//! Each engine can open a store alone. Opened together there is one lock, one manifest, one set of background threads, and a lane of the
//! log for each: the host has the first, the guest has the lane of records ([`Lane::LOG`](crate::commit::Lane::LOG)). The host
//! calls the guest in this order:
//!
//! 1. [`Guest::restore`]: the manifest is read and no log is. Nothing may be written.
//! 2. [`Guest::replay`]: the batches of the lane of records, in order, those of all tenants. When that lane has come to its end all of it
//!    is durable.
//! 3. The host replays its own lane, ends both old logs, and begins new ones.
//! 4. [`Guest::begin`]: from here on the guest serves. What it has to do in the background it is asked for with the host's own
//!    ([`crate::run::Works`]).
//!
//! If any of it fails the store is not open, and nothing has changed but what may be repeated.
//!
//! The host ends both lanes when it is closed. Health is one: what stops one engine for good stops both, since
//! both acknowledge by the same device and the same manifest.

use crate::commit::{Log, LogTerms, LoggedBatch};
use crate::context::Context;
use crate::files::Files;
use crate::manifest::{Engines, Manifest};
use crate::run::Work;
use crate::space::SpaceBudget;
use base::Result;
use std::sync::Arc;

/// What a guest stands on once the store is open.
#[derive(Clone, Debug)]
pub struct Ground {
    /// How files come and go; it leads to the manifest and the context.
    pub files: Arc<Files>,
    /// What files may occupy: the host's budget, and the host works out what is kept free.
    pub space: Arc<SpaceBudget>,
    /// The lane of records.
    pub lane: Arc<Log>,
}

/// See the module.
pub trait Guest {
    /// These engines and itself: with them the manifest is read.
    fn join(&self, engines: Engines) -> Engines;

    /// How long the groups of its lane may be.
    fn terms(&self) -> LogTerms;

    /// Reads what it keeps in files.
    ///
    /// # Errors
    /// Whatever keeps it from being opened: the store is not opened then.
    fn restore(&mut self, context: &Arc<Context>, manifest: &Arc<Manifest>) -> Result<()>;

    /// Takes a batch of its lane.
    ///
    /// # Errors
    /// As [`Guest::restore`].
    fn replay(&mut self, batch: &LoggedBatch<'_>) -> Result<()>;

    /// Begins to serve.
    ///
    /// # Errors
    /// As [`Guest::restore`].
    fn begin(&mut self, ground: Ground) -> Result<Arc<dyn Work>>;
}
