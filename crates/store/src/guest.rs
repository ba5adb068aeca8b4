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
//! A batch of the guest's may *carry* one of the host's ([`Carried`]): both are one batch of the lane of records, there whole or not at
//! all. So [`Guest::replay`] hands back what a batch carries, and the guest keeps a group in the chain that is replayed until the host has
//! what is carried in it in files of its own, which the host's floor tells. Where that takes long it asks for relief ([`Relieve`]).
//!
//! ```text
//! batch that carries := 2 u8 | highest sequence of the host's batch varint | its length varint | its bytes | the guest's own, or nothing
//! ```
//!
//! A copy of the store has both engines at one moment ([`Copies`]): under the host's lock of order, with which batches that carry one
//! are appended too, it is noted how far the lane of records comes into the copy.
//!
//! If any of it fails the store is not open, and nothing has changed but what may be repeated.
//!
//! The host ends both lanes when it is closed. Health is one: what stops one engine for good stops both, since
//! both acknowledge by the same device and the same manifest.

use crate::commit::{Durability, Log, LogTerms, LoggedBatch, Ticket};
use crate::context::Context;
use crate::copy::Copy;
use crate::files::Files;
use crate::manifest::{Engines, LogGroupMeta, Manifest, State};
use crate::run::Work;
use crate::space::SpaceBudget;
use base::codec::{Reader, put_varint};
use base::histogram::Distribution;
use base::{Result, SeqNo};
use io::Cancel;
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
    /// The first lane, which has the ballast of both: what trims and jobs are given where the volume is full.
    pub first: Arc<Log>,
}

/// A batch of the host's inside one of the guest's.
#[derive(Clone, Copy, Debug)]
pub struct Carried<'a> {
    /// Its lowest and its highest sequence.
    pub seqs: (SeqNo, SeqNo),
    /// Its bytes, in order.
    pub pieces: &'a [&'a [u8]],
}

/// What was read of a batch that carries one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarriedRead<'a> {
    /// The highest sequence of the host's batch.
    pub last_seq: SeqNo,
    /// The bytes of the host's batch.
    pub bytes: &'a [u8],
    /// The rest, which is the guest's.
    pub rest: &'a [u8],
}

/// The first byte of a batch that carries one. What a guest's other batches begin with is its affair, but not this.
const CARRIES: u8 = 2;

impl<'a> Carried<'a> {
    /// What comes before its bytes.
    pub fn head(&self) -> Vec<u8> {
        let mut head = vec![CARRIES];
        put_varint(&mut head, self.seqs.1);
        put_varint(&mut head, self.pieces.iter().map(|piece| piece.len() as u64).sum());
        head
    }

    /// What a batch of the lane of records carries.
    ///
    /// # Errors
    /// `Corruption` if it is not whole.
    pub fn read(batch: &'a [u8]) -> Result<Option<CarriedRead<'a>>> {
        if batch.first() != Some(&CARRIES) {
            return Ok(None);
        }
        let mut r = Reader::new(batch.get(1..).unwrap_or_default());
        let (last_seq, bytes) = (r.varint()?, r.bytes()?);
        Ok(Some(CarriedRead { last_seq, bytes, rest: r.rest() }))
    }
}

/// A destination for a batch of the host's beside the host's own lane: a batch of the guest's that carries it.
pub trait BatchSink {
    /// Appends the batch with the guest's part. Returns the position up to which the lane of records must be durable for
    /// the batch to be. `None`: nothing was appended; the host undoes nothing and returns, and is called again.
    ///
    /// # Errors
    /// `Trimmed`, `AlreadyExists`, `NotFound`, `InvalidArgument`, `TooLarge`, `NoSpace`: nothing was appended. Those of the
    /// log: the batch may be found there after a restart.
    fn append(&mut self, batch: &Carried<'_>, durability: Durability) -> Result<Option<Ticket>>;
}

/// A write of the host's whose batch goes to this sink.
pub type HostWrite<'a> = dyn FnMut(&mut dyn BatchSink) -> Result<()> + 'a;

/// Asks the host to bring what is in its memory into files, in the background. False: it could not be asked now.
pub type Relieve = Arc<dyn Fn() -> bool + Send + Sync>;

/// What a guest brings into a copy of the store ([`crate::copy`]).
pub trait Copies: Send + Sync + std::fmt::Debug {
    /// From here until what is returned is dropped the guest's files stay as they are; appends go on.
    ///
    /// # Errors
    /// What stopped the store; `Cancelled`.
    fn hold(&self, cancel: Option<&Cancel>) -> Result<Box<dyn Held>>;
}

/// A guest whose files stay as they are.
pub trait Held {
    /// What is appended to its lane from now on does not come into the copy.
    fn mark(&mut self);

    /// Brings the groups of its lane into the copy, as far as the mark; its files the host links, which the manifest lists. Returns
    /// the groups as the copy lists them. `state` is the store's at any moment since [`Copies::hold`].
    ///
    /// # Errors
    /// `Corruption` if something that is to be copied is damaged; those of the file system and of the manifest.
    fn copy(&self, copy: &Copy, state: &State) -> Result<Vec<LogGroupMeta>>;
}

/// A guest that serves.
#[derive(Clone)]
pub struct Served {
    /// What it has to do in the background.
    pub work: Arc<dyn Work>,
    /// What it brings into a copy.
    pub copies: Arc<dyn Copies>,
    /// How long its operations take.
    pub times: GuestTimes,
}

/// Says how long operations took, nanoseconds by name: for the host, which tells of the whole store.
pub type GuestTimes = Arc<dyn Fn() -> Vec<(&'static str, Distribution)> + Send + Sync>;

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

    /// Takes a batch of its lane. What it carries is the host's.
    ///
    /// # Errors
    /// As [`Guest::restore`].
    fn replay<'b>(&mut self, batch: &LoggedBatch<'b>) -> Result<Option<&'b [u8]>>;

    /// Begins to serve.
    ///
    /// # Errors
    /// As [`Guest::restore`].
    fn begin(&mut self, ground: Ground, relieve: Relieve) -> Result<Served>;
}
