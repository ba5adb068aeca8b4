//! Asynchronous requests of LavaKV: reads, writes and flushes that their caller does not wait for.
//!
//! * `request`: futures. `completion_queue`: completions for loops without futures.
//! * `admission`: the bound on requests in flight. `lane`: writes in order. `reading`: point reads.
//!   `scanning`: scans. `operations`: flushes and syncs.
//! * `path`: the parts of the engine that requests use. The crate [`requests`] has the reactor,
//!   which runs requests beside their callers.
//!
//! **Where a request runs.** It begins in the call that submits it. A point read that memory and
//! cache answer ends there. So does a write that waits for nothing, but for its durability. All
//! other work goes to the reactor. One of its threads has the device reads of all point reads and
//! scans in flight. Writes wait there for their throttle charge, for memory, levels, log or space.
//! A sync of the log resolves the durable writes that it covers. No thread waits for it: the log's
//! thread syncs where no other does ([`wal::Syncer::sync_wanted`]).
//!
//! **Ownership.** A request owns its bytes and all that it has pinned; its future owns the answer
//! alone. So a dropped future changes nothing. A request counts as in flight until it is over, and
//! is resolved after it has been counted out: its completion may submit the next.
//!
//! **Order.** Writes of one [`Requests`], its clones and its families are applied in the order of
//! their submission: a write that waits delays those behind it. It delays no reads; they see all
//! that is visible.

pub(crate) mod admission;
pub(crate) mod completion_queue;
pub(crate) mod lane;
pub(crate) mod operations;
pub(crate) mod path;
pub(crate) mod reading;
pub(crate) mod request;
pub(crate) mod scanning;

use crate::batch::payload::OwnedPayload;
use crate::batch::{Change, WriteBatch};
use crate::context::options::WriteOptions;
use crate::read::options::ReadOptions;
use crate::read::pending::{PendingGet, PendingMultiGet};
use crate::read::read_path::{Value, pin};
use crate::read::scan::PendingScan;
use crate::tree::family::{ColumnFamily, Family};
use crate::tree::snapshot::Snapshot;
use crate::write::admission::write_deadline::WriteTerms;
use crate::write::conditions::Conditions;
use crate::write::pending_write::PendingWrite;
use admission::{Permit, RequestAdmission};
use base::completion::pending;
use base::{Error, Result, ValueKind};
use completion_queue::RequestQueue;
use lane::Lane;
use operations::Flush;
use path::RequestPath;
use reading::{PointRead, Reading};
use request::{Entry, Request, WriteRequest};
use requests::{ReadStep, ResumableRead};
use scanning::Scanning;
use std::sync::Arc;
use store::context::closed;

/// Bounds the asynchronous requests of a program, and sets the durability of their writes;
/// `Db::requests` takes it. Values out of range are refused there with `InvalidArgument`.
#[derive(Clone, Debug)]
pub struct RequestOptions {
    /// Most requests in flight, including those of clones and families: 1 to 1,048,576. Further
    /// requests fail with `Busy`, without effect. It bounds their number, not their bytes in
    /// memory. Raise it for a device that serves more at once. Default: 1024.
    pub depth: usize,
    /// Options of writes. Default: the durability of the store, and no bound on the wait.
    pub write: WriteOptions,
    /// Whether blocks that reads fetch enter the block cache. Set `false` for reads that will not
    /// be repeated. Default: true.
    pub fill_cache: bool,
    /// Whether the first failed write stops all later ones until [`Requests::resume`]: they fail
    /// with `Busy`, unwritten. For programs whose writes depend on earlier ones. A call that fails
    /// before its write is attempted, such as at `depth`, stops nothing. Default: false, each later
    /// write has its own outcome.
    pub stop_at_first_failure: bool,
}

impl Default for RequestOptions {
    fn default() -> Self {
        RequestOptions {
            depth: 1024,
            write: WriteOptions::default(),
            fill_cache: true,
            stop_at_first_failure: false,
        }
    }
}

const DEPTH_MAX: usize = 1 << 20;

/// Starts the store's service, if it is not running: see `Engine::serve`. Fails in a closed store.
pub(crate) type Serve = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// Submits a bounded number of concurrent requests. Clones share the bound and the order of writes.
/// It does not keep the store open: requests after a close fail with `Closed`.
#[derive(Clone)]
pub struct Requests {
    path: Arc<RequestPath>,
    serve: Serve,
    admission: Arc<RequestAdmission>,
    lane: Arc<Lane>,
    write: WriteOptions,
    fill_cache: bool,
    /// The snapshot for reads; `None`: reads see the current state.
    snapshot: Option<Snapshot>,
}

impl Requests {
    /// # Errors
    /// `InvalidArgument` for a depth out of range; those of the system that makes threads.
    pub(crate) fn new(path: &Arc<RequestPath>, serve: Serve, options: &RequestOptions) -> Result<Requests> {
        let depth = options.depth;
        if depth == 0 || depth > DEPTH_MAX {
            let why =
                format!("depth = {depth} of requests is out of range: 1 to {DEPTH_MAX} requests in flight");
            return Err(Error::invalid(why));
        }
        path.reactor().start()?;
        Ok(Requests {
            path: path.clone(),
            serve,
            admission: RequestAdmission::new(path.context(), depth),
            lane: Lane::new(path, options.stop_at_first_failure),
            write: options.write,
            fill_cache: options.fill_cache,
            snapshot: None,
        })
    }

    /// Returns the same with reads at a snapshot, which lives at least as long. Reads fail if the
    /// snapshot belongs to another store.
    pub fn reading_at(&self, snapshot: &Snapshot) -> Requests {
        Requests { snapshot: Some(snapshot.clone()), ..self.clone() }
    }

    /// Returns the same with other options for writes.
    pub fn writing(&self, options: &WriteOptions) -> Requests {
        Requests { write: *options, ..self.clone() }
    }

    /// Attempts writes again after one failed: see [`RequestOptions::stop_at_first_failure`]. In a
    /// child of `fork` it does nothing.
    pub fn resume(&self) {
        if self.path.context().check_process().is_ok() {
            self.lane.resume();
        }
    }

    /// Returns the number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.admission.in_flight()
    }

    /// Sets a key.
    ///
    /// # Errors
    /// `Busy`: too many requests are in flight, or the write would have to wait and may not; those
    /// of a put that are known at once. The key was not written.
    pub fn put(&self, family: &ColumnFamily, key: Vec<u8>, value: Vec<u8>) -> Result<WriteRequest> {
        self.change(family, ValueKind::Value, key, value)
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// As [`Requests::put`].
    pub fn delete(&self, family: &ColumnFamily, key: Vec<u8>) -> Result<WriteRequest> {
        self.change(family, ValueKind::Deletion, key, Vec::new())
    }

    /// Adds a merge operand to a key: see [`WriteBatch::merge_cf`].
    ///
    /// # Errors
    /// As [`Requests::put`]. Its request: `InvalidArgument`, for a family without a merge operator or
    /// an operand that it refuses.
    pub fn merge(&self, family: &ColumnFamily, key: Vec<u8>, operand: Vec<u8>) -> Result<WriteRequest> {
        self.change(family, ValueKind::Merge, key, operand)
    }

    fn change(
        &self,
        family: &ColumnFamily,
        kind: ValueKind,
        key: Vec<u8>,
        value: Vec<u8>,
    ) -> Result<WriteRequest> {
        let (len_max, id) = (base::limits::LARGE_VALUE_LEN_MAX as usize, family.id());
        Change { kind, family: id, key: &key, value: &value }.validate_to(len_max)?;
        if key.is_empty() {
            self.path.writes().check_empty_key()?;
        }
        let family = self.own(family)?.clone();
        self.submit(OwnedPayload::one(family, kind, key, value), None)
    }

    /// Writes a batch atomically. An empty durable batch completes when all earlier writes are
    /// durable.
    ///
    /// # Errors
    /// As [`Requests::put`], of any of its changes.
    pub fn write(&self, batch: WriteBatch) -> Result<WriteRequest> {
        self.write_under(batch, None)
    }

    /// Writes a batch atomically, as [`crate::Db::write_if`] does.
    ///
    /// # Errors
    /// As [`Requests::write`]. Its request: `Conflict`.
    pub fn write_if(&self, batch: WriteBatch, conditions: Conditions) -> Result<WriteRequest> {
        if let Some(reads) = &conditions.reads {
            self.path.tree().sequence_of(Some(reads.snapshot()))?;
        }
        self.write_under(batch, Some(conditions))
    }

    fn write_under(&self, batch: WriteBatch, conditions: Option<Conditions>) -> Result<WriteRequest> {
        batch.check_changes()?;
        if batch.figures().has_empty_key {
            self.path.writes().check_empty_key()?;
        }
        self.submit(OwnedPayload::Batch(batch), conditions)
    }

    fn submit(&self, payload: OwnedPayload, conditions: Option<Conditions>) -> Result<WriteRequest> {
        let permit = self.admit()?;
        let _entered = self.path.context().enter()?;
        let writes = self.path.writes();
        if writes.log.get().is_none() {
            (self.serve)()?;
        }
        let terms = WriteTerms::of(&writes.context, &self.write);
        let is_durable = terms.durability.waits_for_device();
        let write = PendingWrite::new(writes, payload, terms, conditions);
        let told = self.lane.submit(write, permit)?;
        Ok(WriteRequest::new(told, is_durable))
    }

    /// Reads a key.
    ///
    /// # Errors
    /// `Busy`: too many are in flight; `NotFound` if the family was dropped; `InvalidArgument` if
    /// it or the snapshot is of another store; `Closed`.
    pub fn get(&self, family: &ColumnFamily, key: Vec<u8>) -> Result<Request<Option<Value>>> {
        let permit = self.admit()?;
        let (family, tree) = (self.own(family)?, self.path.tree());
        let pinned = pin(tree, family, tree.sequence_of(self.snapshot.as_ref())?);
        let read = PendingGet::new(tree, pinned, key, self.fill_cache);
        self.read(permit, family, read)
    }

    /// Reads several keys as of one moment. The answers come in the order of the keys.
    ///
    /// # Errors
    /// As [`Requests::get`].
    pub fn multi_get(
        &self,
        family: &ColumnFamily,
        keys: Vec<Vec<u8>>,
    ) -> Result<Request<Vec<Option<Value>>>> {
        let permit = self.admit()?;
        let (family, tree) = (self.own(family)?, self.path.tree());
        let pinned = pin(tree, family, tree.sequence_of(self.snapshot.as_ref())?);
        let read = PendingMultiGet::new(tree, pinned, keys, self.fill_cache);
        self.read(permit, family, read)
    }

    /// Takes the first step of a read. If reads are missing then, the request is in flight.
    fn read<P: PointRead + 'static>(
        &self,
        permit: Permit,
        family: &Arc<Family>,
        read: P,
    ) -> Result<Request<P::Answer>> {
        let context = self.path.context();
        let begun = P::timing(&context.times).begin();
        let mut reading = Reading::new(context, family, begun, read);
        match reading.step(false) {
            ReadStep::Done => {
                drop(permit);
                Ok(reading.known())
            }
            ReadStep::Wants(wants) => {
                let (completer, completion) = pending();
                self.path.reactor().read(reading.completed_by(permit.told(completer)), wants)?;
                Ok(Request::new(completion))
            }
        }
    }

    /// Reads the first `limit` entries within the bounds of `options`, as of a moment between
    /// submission and answer.
    ///
    /// # Errors
    /// As [`Requests::get`].
    pub fn scan(
        &self,
        family: &ColumnFamily,
        options: ReadOptions,
        limit: usize,
    ) -> Result<Request<Vec<Entry>>> {
        let permit = self.admit()?;
        let family = self.own(family)?;
        let snapshot = options.snapshot.clone().or_else(|| self.snapshot.clone());
        let options = ReadOptions { snapshot, fill_cache: self.fill_cache, ..options };
        let scan = PendingScan::new(self.path.tree(), family, options, limit)?;
        let (completer, completion) = pending();
        self.path.reactor().scan(Scanning::new(scan, family, permit.told(completer)))?;
        Ok(Request::new(completion))
    }

    /// Flushes all memtables to tables. All writes visible at the submission are then durable.
    ///
    /// # Errors
    /// `Busy`: too many requests are in flight; `ReadOnly`; `Closed`; `NoSpace`: no room to begin a
    /// log.
    pub fn flush(&self) -> Result<Request<()>> {
        let permit = self.admit()?;
        (self.serve)()?;
        let (completer, completion) = pending();
        self.path.reactor().push(Flush::new(self.path.jobs(), permit.told(completer)))?;
        Ok(Request::new(completion))
    }

    /// Returns a queue that yields the answers of requests by token.
    pub fn queue(&self) -> RequestQueue {
        RequestQueue::new(self.path.context())
    }

    fn admit(&self) -> Result<Permit> {
        self.path.context().check_process()?;
        if self.path.reactor().is_closed() {
            return Err(closed());
        }
        self.admission.admit()
    }

    /// Checks that a handle belongs to this store.
    fn own<'a>(&self, family: &'a ColumnFamily) -> Result<&'a Arc<Family>> {
        self.path.tree().own(family)
    }
}

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Requests({} in flight)", self.in_flight())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
