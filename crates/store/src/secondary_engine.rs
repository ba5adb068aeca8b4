//! A secondary engine: an engine on a store that another engine, the *primary engine*, opens and
//! drives.
//!
//! Each engine can also open a store alone. Opened together, they share one lock, one manifest and
//! one set of background threads. Each has its own log lane: the primary engine the first lane, the
//! secondary engine the record lane ([`Lane::LOG`](crate::commit::Lane::LOG)). The primary engine
//! calls the secondary engine in this order:
//!
//! 1. [`SecondaryEngine::restore`]: the manifest is read, but no log. The secondary engine must not
//!    write.
//! 2. [`SecondaryEngine::replay`]: the batches of the record lane, in order, of all tenants. At the
//!    end of that lane all of it is durable.
//! 3. The primary engine replays its own lane, closes both old logs, and begins new ones.
//! 4. [`SecondaryEngine::begin`]: the secondary engine begins to serve. The primary engine's
//!    scheduler also runs the secondary engine's background work ([`crate::run::EngineWork`]).
//!
//! A batch of the secondary engine may hold an embedded batch of the primary engine
//! ([`EmbeddedPrimaryBatch`]). Both are one batch of the record lane, which recovery returns whole
//! or not at all. So [`SecondaryEngine::replay`] returns the embedded batch. The secondary engine
//! keeps its group among the replayed ones until the primary engine has flushed the embedded batch,
//! as that engine's floor shows. If that takes long the secondary engine requests a flush
//! ([`RequestFlush`]).
//!
//! ```text
//! batch that carries := 2 u8 | highest sequence of the host's batch varint | its length varint | its bytes | the secondary's own, or nothing
//! ```
//!
//! A copy of the store shows both engines at one moment ([`CopySource`]). Under the primary
//! engine's ordering lock, the secondary engine marks how far the record lane goes into the copy.
//! Batches with an embedded batch are appended under the same lock.
//!
//! If any step fails the store is not open, and only repeatable changes have been made.
//!
//! The primary engine closes both lanes when it is closed. Both engines share one health, because
//! both acknowledge through the same device and the same manifest: a permanent failure stops both.

use crate::commit::{Durability, Log, LogTerms, LoggedBatch, Ticket};
use crate::context::Context;
use crate::copy::Copy;
use crate::files::StoreFiles;
use crate::manifest::{Engines, LogGroupMeta, Manifest, ManifestState};
use crate::run::Work;
use crate::space::SpaceBudget;
use base::codec::{Reader, put_varint};
use base::histogram::Distribution;
use base::{Result, SeqNo};
use io::Cancel;
use std::sync::Arc;

/// Resources of a secondary engine once the store is open.
#[derive(Clone, Debug)]
pub struct SecondaryEngineStore {
    /// The store's files; also gives access to the manifest and the context.
    pub files: Arc<StoreFiles>,
    /// The space budget, shared with the primary engine, which computes the reserve.
    pub space: Arc<SpaceBudget>,
    /// The record lane.
    pub lane: Arc<Log>,
    /// The first lane, which holds the reserved space of both engines, for trims and jobs on a full
    /// volume.
    pub first: Arc<Log>,
}

/// A batch of the primary engine embedded in a batch of the secondary engine.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedPrimaryBatch<'a> {
    /// Its lowest and its highest sequence.
    pub seqs: (SeqNo, SeqNo),
    /// Its bytes, in order.
    pub pieces: &'a [&'a [u8]],
}

/// A decoded batch with an embedded batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodedEmbeddedBatch<'a> {
    /// The highest sequence of the embedded batch.
    pub last_seq: SeqNo,
    /// The bytes of the embedded batch.
    pub bytes: &'a [u8],
    /// The remaining bytes, which belong to the secondary engine.
    pub rest: &'a [u8],
}

/// First byte of a batch with an embedded batch. The secondary engine's other batches begin with
/// any other byte.
const CARRIES: u8 = 2;

impl<'a> EmbeddedPrimaryBatch<'a> {
    /// Returns the header that precedes the bytes of the embedded batch.
    pub fn head(&self) -> Vec<u8> {
        let mut head = vec![CARRIES];
        put_varint(&mut head, self.seqs.1);
        put_varint(&mut head, self.pieces.iter().map(|piece| piece.len() as u64).sum());
        head
    }

    /// Returns the embedded batch of a batch of the record lane, if it has one.
    ///
    /// # Errors
    /// `Corruption` if the embedded batch is truncated.
    pub fn read(batch: &'a [u8]) -> Result<Option<DecodedEmbeddedBatch<'a>>> {
        if batch.first() != Some(&CARRIES) {
            return Ok(None);
        }
        let mut r = Reader::new(batch.get(1..).unwrap_or_default());
        let (last_seq, bytes) = (r.varint()?, r.bytes()?);
        Ok(Some(DecodedEmbeddedBatch { last_seq, bytes, rest: r.rest() }))
    }
}

/// An alternative destination for a batch of the primary engine: embedded in a batch of the
/// secondary engine.
pub trait BatchSink {
    /// Appends the primary engine's batch with the secondary engine's part. Returns the position up
    /// to which the record lane must be durable for the batch to be durable. `None`: nothing was
    /// appended. The primary engine then undoes nothing, returns, and is called again.
    ///
    /// # Errors
    /// `Trimmed`, `AlreadyExists`, `NotFound`, `InvalidArgument`, `TooLarge`, `NoSpace`: nothing
    /// was appended. After an error of the log a restart may still find the batch.
    fn append(&mut self, batch: &EmbeddedPrimaryBatch<'_>, durability: Durability) -> Result<Option<Ticket>>;
}

/// A write of the primary engine whose batch goes to the given sink.
pub type PrimaryWrite<'a> = dyn FnMut(&mut dyn BatchSink) -> Result<()> + 'a;

/// Requests a background flush of the primary engine's memtables. Returns false if no flush can be
/// requested now.
pub type RequestFlush = Arc<dyn Fn() -> bool + Send + Sync>;

/// The secondary engine's part in copying a store ([`crate::copy`]).
pub trait CopySource: Send + Sync + std::fmt::Debug {
    /// Keeps the secondary engine's files as they are until the result is dropped; appends
    /// continue.
    ///
    /// # Errors
    /// The error that stopped the store; `Cancelled`.
    fn hold(&self, cancel: Option<&Cancel>) -> Result<Box<dyn CopyHold>>;
}

/// A secondary engine whose files stay as they are.
pub trait CopyHold {
    /// Ends the copied part of the secondary engine's lane: later appends are not in the copy.
    fn mark(&mut self);

    /// Copies the groups of the secondary engine's lane up to the mark, and returns them for the
    /// manifest of the copy. The primary engine links the secondary engine's files that the
    /// manifest lists. `state` is any state of the store since [`CopySource::hold`].
    ///
    /// # Errors
    /// `Corruption` if a group to copy is damaged; manifest and file system errors.
    fn copy(&self, copy: &Copy, state: &ManifestState) -> Result<Vec<LogGroupMeta>>;
}

/// The interfaces of a serving secondary engine.
#[derive(Clone)]
pub struct ServingEngine {
    /// The secondary engine's background work.
    pub work: Arc<dyn Work>,
    /// The secondary engine's part in copying the store.
    pub copies: Arc<dyn CopySource>,
    /// Latencies of the secondary engine's operations.
    pub times: GuestTimes,
}

/// Returns latencies by operation name, in nanoseconds, for the statistics of the whole store.
pub type GuestTimes = Arc<dyn Fn() -> Vec<(&'static str, Distribution)> + Send + Sync>;

/// A secondary engine: see the module.
pub trait SecondaryEngine {
    /// Adds the secondary engine to the engines that the manifest is read with.
    fn join(&self, engines: Engines) -> Engines;

    /// Returns the lengths and access modes of the secondary engine's lane.
    fn terms(&self) -> LogTerms;

    /// Reads the secondary engine's files.
    ///
    /// # Errors
    /// Any error makes the open of the store fail.
    fn restore(&mut self, context: &Arc<Context>, manifest: &Arc<Manifest>) -> Result<()>;

    /// Replays a batch of the secondary engine's lane. Returns the embedded batch for the primary
    /// engine.
    ///
    /// # Errors
    /// As [`SecondaryEngine::restore`].
    fn replay<'b>(&mut self, batch: &LoggedBatch<'b>) -> Result<Option<&'b [u8]>>;

    /// Begins to serve.
    ///
    /// # Errors
    /// As [`SecondaryEngine::restore`].
    fn begin(&mut self, ground: SecondaryEngineStore, relieve: RequestFlush) -> Result<ServingEngine>;
}
