//! The public handle of a store.

mod calls;
mod families;
mod limit;
mod long_calls;
mod reading;

use crate::admin::collect::{GcPause, GcPlan, GcProgress, GcReport};
use crate::admin::compact::{CompactProgress, CompactRequest};
use crate::admin::space_report::Space;
use crate::batch::frame::Frame;
use crate::batch::payload::{Body, Payload};
use crate::batch::{Change, DEFAULT_FAMILY, WriteBatch};
use crate::context::event::DamagedFile;
use crate::context::options::{Options, WriteOptions};
use crate::context::stats::Statistics;
use crate::engine::Engine;
use crate::large::segments::threshold;
use crate::plan::requests::GcRequest;
use crate::read::iterator::DbIterator;
use crate::read::multi_get;
use crate::read::options::{ReadAt, ReadOptions};
use crate::read::pending::{PendingGet, PendingMultiGet};
use crate::read::read_path::{self, GetOp, Value};
use crate::read::value_reader::{self, ValueReader};
use crate::read_only::ReadOnlyOpen;
use crate::requests::{RequestOptions, Requests};
use crate::tree::Tree;
use crate::tree::family::{ColumnFamily, Family, ReadState};
use crate::tree::snapshot::Snapshot;
use crate::work::jobs::Jobs;
use crate::write::admission::write_deadline::WriteTerms;
use crate::write::commit::WriteOp;
use crate::write::conditions::Conditions;
use crate::write::large_value::{self, ValueWriter};
use base::process::Owned;
use base::sync::lock;
use base::{Error, ErrorKind, Result, SeqNo, ValueKind};
use io::{Cancel, Env};
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context as Task, Poll, Waker};
use std::time::Duration;
use store::context::{Entered, closed};
use store::engines::{self, EngineSpace};
use store::format::StoreFormat;
use store::secondary_engine::BatchSink;

/// An open store. Cheap to clone, usable from any thread. [`Db::close`] closes it, and so does the
/// drop of the last clone.
///
/// ```no_run
/// use lavastore_lavakv::Db;
/// let db = Db::open("/var/lib/example")?;
/// db.put(b"key", b"value")?;
/// assert_eq!(db.get(b"key")?.as_deref(), Some(&b"value"[..]));
/// db.delete(b"key")?;
/// # Ok::<(), lavastore_lavakv::Error>(())
/// ```
#[derive(Clone)]
pub struct Db {
    handle: Arc<Handle>,
}

/// State shared by the clones of a [`Db`]. Its drop closes the store.
struct Handle {
    engine: Owned<Arc<Engine>>,
    default: ColumnFamily,
    /// Parameters of a read-only open; `None` for a writable store.
    reading: Option<ReadOnlyOpen>,
}

impl Db {
    /// Opens a store with default options. Creates it if it does not exist.
    ///
    /// # Errors
    /// `Locked` if another process, or this one, has it open. `Corruption`, with file and offset,
    /// if its log or manifest is damaged. (Damaged tables and value files do not prevent the open:
    /// see [`Db::damaged_files`].) `Unsupported` if a newer release wrote it. `InvalidArgument` if
    /// the path is not a store's directory.
    pub fn open(path: impl AsRef<Path>) -> Result<Db> {
        Self::open_with(path, Options::default())
    }

    /// Opens a store.
    pub fn open_with(path: impl AsRef<Path>, options: Options) -> Result<Db> {
        Self::open_in(Env::kernel(), path, options)
    }

    /// Opens a store in an environment: the kernel's, or a simulated one.
    pub fn open_in(env: Env, path: impl AsRef<Path>, options: Options) -> Result<Db> {
        let engine = crate::open::open(env, path.as_ref(), options)?;
        Self::from_engine(engine)
    }

    pub(crate) fn from_engine(engine: Arc<Engine>) -> Result<Db> {
        Self::new(engine, None)
    }

    fn new(engine: Arc<Engine>, reading: Option<ReadOnlyOpen>) -> Result<Db> {
        let Some(family) = engine.tree.families.get(DEFAULT_FAMILY) else {
            return Err(without_default(&engine));
        };
        let (engine, default) = (Owned::new(engine), ColumnFamily(Owned::new(family)));
        Ok(Db { handle: Arc::new(Handle { engine, default, reading }) })
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.handle.engine
    }

    /// Returns the engine. Fails after a close, and in a child process.
    fn here(&self) -> Result<&Arc<Engine>> {
        self.engine().tree.reads.check()?;
        Ok(self.engine())
    }

    /// Fails in a child of the process that opened the store.
    ///
    /// # Errors
    /// `Forked`.
    pub fn check_process(&self) -> Result<()> {
        self.engine().context.check_process()
    }

    /// Returns the unique id of the store. It never changes; a checkpoint of the store has another
    /// one.
    pub fn store_id(&self) -> [u8; 16] {
        self.engine().files.manifest.state().store.uid.0
    }

    /// Returns the family `default`.
    pub fn default_column_family(&self) -> &ColumnFamily {
        &self.handle.default
    }

    /// Sets a key in the default family.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_opt(&self.handle.default, key, value, &WriteOptions::default())
    }

    /// Sets a key in a family.
    pub fn put_cf(&self, family: &ColumnFamily, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_opt(family, key, value, &WriteOptions::default())
    }

    /// Sets a key in a family, with options. The value may have up to 1 GiB. For a value that is
    /// not in memory use [`Db::put_stream`].
    pub fn put_opt(
        &self,
        family: &ColumnFamily,
        key: &[u8],
        value: &[u8],
        options: &WriteOptions,
    ) -> Result<()> {
        self.change(family, ValueKind::Value, key, value, options)
    }

    /// Sets a key to a value that gets a file of its own.
    fn put_large(
        &self,
        family: &ColumnFamily,
        key: &[u8],
        value: &[u8],
        options: &WriteOptions,
    ) -> Result<()> {
        let (family, (_entered, terms)) = (self.own(family)?, self.writable(options)?);
        let begun = self.engine().context.times.put.begin_long();
        let put = large_value::put(&self.engine().writes, family, key, value, terms);
        self.engine().context.times.put.end(begun);
        put
    }

    /// Sets a key to a value that is written in pieces, in constant memory; see [`ValueWriter`].
    ///
    /// # Errors
    /// Those of a put.
    pub fn put_stream(
        &self,
        family: &ColumnFamily,
        key: &[u8],
        options: WriteOptions,
    ) -> Result<ValueWriter> {
        let (family, (_entered, terms)) = (self.own(family)?, self.writable(&options)?);
        ValueWriter::new(&self.engine().writes, family, key, terms)
    }

    /// Deletes a key from the default family. A missing key is no error.
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        self.delete_opt(&self.handle.default, key, &WriteOptions::default())
    }

    /// Deletes a key from a family.
    pub fn delete_cf(&self, family: &ColumnFamily, key: &[u8]) -> Result<()> {
        self.delete_opt(family, key, &WriteOptions::default())
    }

    /// Deletes a key from a family, with options.
    pub fn delete_opt(&self, family: &ColumnFamily, key: &[u8], options: &WriteOptions) -> Result<()> {
        self.change(family, ValueKind::Deletion, key, &[], options)
    }

    /// Deletes every key in `[start, end)` of the default family.
    pub fn delete_range(&self, start: &[u8], end: &[u8]) -> Result<()> {
        self.delete_range_cf(&self.handle.default, start, end)
    }

    /// Deletes every key in `[start, end)` of a family.
    pub fn delete_range_cf(&self, family: &ColumnFamily, start: &[u8], end: &[u8]) -> Result<()> {
        self.delete_range_opt(family, start, end, &WriteOptions::default())
    }

    /// Deletes every key in `[start, end)` of a family, with options.
    ///
    /// # Errors
    /// Those of a put; `InvalidArgument` if the start is after the end.
    pub fn delete_range_opt(
        &self,
        family: &ColumnFamily,
        start: &[u8],
        end: &[u8],
        options: &WriteOptions,
    ) -> Result<()> {
        self.change(family, ValueKind::RangeDeletion, start, end, options)
    }

    fn change(
        &self,
        family: &ColumnFamily,
        kind: ValueKind,
        key: &[u8],
        value: &[u8],
        options: &WriteOptions,
    ) -> Result<()> {
        if kind == ValueKind::Value && value.len() >= threshold(&self.engine().context.options) {
            return self.put_large(family, key, value, options);
        }
        let change = Change { kind, family: family.id(), key, value };
        change.validate()?;
        let (family, (_entered, terms)) = (self.own(family)?, self.writable(options)?);
        if kind == ValueKind::RangeDeletion && key == value {
            return self.run_write(Payload::batch(&WriteBatch::new()), terms, None);
        }
        self.run_write(Payload::one(family, change, &Frame::of(&change)), terms, None)
    }

    /// Writes a batch atomically.
    pub fn write(&self, batch: &WriteBatch) -> Result<()> {
        self.write_opt(batch, &WriteOptions::default())
    }

    /// Writes a batch atomically, with options.
    pub fn write_opt(&self, batch: &WriteBatch, options: &WriteOptions) -> Result<()> {
        let (_entered, terms) = self.writable(options)?;
        self.run_write(Payload::batch(batch), terms, None)
    }

    /// Writes a batch through a sink: see [`crate::multi_engine`].
    pub(crate) fn write_embedded_in_secondary(
        &self,
        (batch, conditions): (&WriteBatch, Option<&Conditions>),
        options: &WriteOptions,
        sink: &mut dyn BatchSink,
    ) -> Result<()> {
        let (engine, (_entered, WriteTerms { durability, patience })) =
            (self.engine(), self.writable(options)?);
        if !durability.is_logged() {
            let why = "a volatile write is not logged and cannot be part of a batch of logs: \
                       write it separately";
            return Err(Error::invalid(why));
        }
        if batch.is_empty() {
            return Err(Error::invalid("a batch of logs has an empty embedded batch: write it without one"));
        }
        let (len, limit) = (batch.figures().longest_value, threshold(&engine.context.options));
        if len >= limit {
            let why = format!(
                "a value with its own file cannot be written together with log records: it has {len} \
                 bytes, and {limit} bytes or more get a file; write it separately"
            );
            return Err(Error::new(ErrorKind::TooLarge, why));
        }
        let timing = &engine.context.times.write_batch;
        let begun = timing.begin_as(durability.waits_for_device());
        let op = WriteOp::into_sink(&engine.writes, Payload::batch(batch), durability, sink);
        let written = op.under(conditions).run(patience);
        timing.end(begun);
        written
    }

    fn run_write(
        &self,
        payload: Payload<'_>,
        terms: WriteTerms,
        conditions: Option<&Conditions>,
    ) -> Result<()> {
        let (engine, times) = (self.engine(), &self.engine().context.times);
        let timing = match &payload.body {
            Body::Batch(_) => &times.write_batch,
            Body::One(..) if payload.is_delete_only() => &times.delete,
            Body::One(..) => &times.put,
        };
        // A durable write waits for the device, so each one is timed.
        let begun = timing.begin_as(terms.durability.waits_for_device());
        let written = match &payload.body {
            Body::Batch(batch) if batch.figures().longest_value >= threshold(&engine.context.options) => {
                large_value::write_batch(&engine.writes, batch, conditions, terms)
            }
            _ => {
                let op = WriteOp::new(&engine.writes, payload, terms.durability);
                op.under(conditions).run(terms.patience)
            }
        };
        timing.end(begun);
        written
    }

    /// Returns the store's jobs, once it serves: see [`Engine::serve`]. For calls that wait for
    /// jobs and change nothing themselves.
    fn served(&self) -> Result<&Arc<Jobs>> {
        self.engine().serve().map(|_| &self.engine().jobs)
    }

    /// Enters a call that changes the store.
    fn changes(&self) -> Result<(Entered<'_>, &Arc<Jobs>)> {
        Ok((self.engine().serve()?, &self.engine().jobs))
    }

    /// Enters a write. Returns its durability and its deadline.
    fn writable(&self, options: &WriteOptions) -> Result<(Entered<'_>, WriteTerms)> {
        Ok((self.engine().serve()?, WriteTerms::of(&self.engine().context, options)))
    }

    /// Checks that a handle belongs to this store.
    fn own<'a>(&self, family: &'a ColumnFamily) -> Result<&'a Arc<Family>> {
        self.engine().tree.own(family)
    }

    /// Reads a key of the default family.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        self.get_opt(&self.handle.default, key, &ReadOptions::default())
    }

    /// Reads a key of a family.
    pub fn get_cf(&self, family: &ColumnFamily, key: &[u8]) -> Result<Option<Value>> {
        self.get_opt(family, key, &ReadOptions::default())
    }

    /// Reads a key of a family, with options.
    pub fn get_opt(&self, family: &ColumnFamily, key: &[u8], options: &ReadOptions) -> Result<Option<Value>> {
        self.get_at(family, key, options.at())
    }

    /// Reads a key like [`Db::get_opt`], with the options of a point read only.
    ///
    /// # Errors
    /// Those of [`Db::get_opt`].
    pub fn get_at(&self, family: &ColumnFamily, key: &[u8], at: ReadAt<'_>) -> Result<Option<Value>> {
        self.engine().context.times.get.time(|| self.read(family, key, at)?.run())
    }

    /// Reads the value of a key from tables only, ignoring memtables: the state that survives a
    /// loss of memory and log.
    ///
    /// # Errors
    /// Those of [`Db::get_opt`].
    pub fn get_flushed(&self, family: &ColumnFamily, key: &[u8]) -> Result<Option<Value>> {
        self.read(family, key, ReadOptions::default().at())?.below_memtables().run()
    }

    /// Reads many keys of a family as of one moment. The device reads of up to 256 keys are in
    /// flight at the same time, in rounds. A separated value with a cached index takes one round.
    /// The answers come in the order of the keys; a duplicate key is read once. They equal those of
    /// [`Db::get_at`], errors included, and an error concerns only its own key.
    ///
    /// All the values are in memory at once.
    ///
    /// # Errors
    /// For each key those of [`Db::get_opt`].
    pub fn multi_get_at<K: AsRef<[u8]>>(
        &self,
        family: &ColumnFamily,
        keys: &[K],
        at: ReadAt<'_>,
    ) -> Vec<Result<Option<Value>>> {
        self.engine().context.times.multi_get.time(|| match self.pinned(family, at) {
            Ok(pinned) => {
                let keys = keys.iter().map(AsRef::as_ref).collect();
                multi_get::run(&self.engine().tree, pinned, keys, at.fill_cache)
            }
            Err(e) => keys.iter().map(|_| Err(e.clone())).collect(),
        })
    }

    /// Begins a read whose device reads the caller performs. The read sees the state of this
    /// moment.
    ///
    /// # Errors
    /// Those of [`Db::get_opt`].
    pub fn begin_get(&self, family: &ColumnFamily, key: Vec<u8>, at: ReadAt<'_>) -> Result<PendingGet> {
        let pinned = self.pinned(family, at)?;
        Ok(PendingGet::new(&self.engine().tree, pinned, key, at.fill_cache))
    }

    /// Begins a read of many keys whose device reads the caller performs.
    ///
    /// # Errors
    /// Those of [`Db::get_opt`] that concern no single key.
    pub fn begin_multi_get(
        &self,
        family: &ColumnFamily,
        keys: Vec<Vec<u8>>,
        at: ReadAt<'_>,
    ) -> Result<PendingMultiGet> {
        let pinned = self.pinned(family, at)?;
        Ok(PendingMultiGet::new(&self.engine().tree, pinned, keys, at.fill_cache))
    }

    fn read<'a>(
        &'a self,
        family: &ColumnFamily,
        key: &'a [u8],
        at: ReadAt<'_>,
    ) -> Result<GetOp<&'a Tree, &'a [u8]>> {
        let pinned = self.pinned(family, at)?;
        Ok(GetOp::new(&self.engine().tree, pinned, key, at.fill_cache))
    }

    /// Pins a read state and a sequence for a read.
    fn pinned(&self, family: &ColumnFamily, at: ReadAt<'_>) -> Result<(Arc<ReadState>, SeqNo)> {
        let family = self.own(family)?;
        let snapshot = self.engine().tree.sequence_of(at.snapshot)?;
        let pinned = read_path::pin(&self.engine().tree, family, snapshot);
        family.check_there().map(|()| pinned)
    }

    /// Reads the value of a key in pieces, in constant memory if it is large; see [`ValueReader`].
    ///
    /// # Errors
    /// Those of [`Db::get_opt`].
    pub fn get_stream(
        &self,
        family: &ColumnFamily,
        key: &[u8],
        at: ReadAt<'_>,
    ) -> Result<Option<ValueReader>> {
        let content = self.engine().context.times.get.time(|| self.read(family, key, at)?.find())?;
        Ok(content.map(|content| ValueReader::new(&self.engine().tree, content)))
    }

    /// Reads part of a value: at most `len` bytes from `offset` on, fewer at the end of the value.
    /// Of a large value only this part is read.
    ///
    /// # Errors
    /// Those of [`Db::get_opt`].
    pub fn get_range(
        &self,
        family: &ColumnFamily,
        key: &[u8],
        offset: u64,
        len: usize,
        at: ReadAt<'_>,
    ) -> Result<Option<Vec<u8>>> {
        self.engine().context.times.get.time(|| {
            let content = self.read(family, key, at)?.find()?;
            content.map(|content| value_reader::range_of(&content, offset, len)).transpose()
        })
    }

    /// Retains the present state for reads until the snapshot is dropped.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot_named("")
    }

    /// Takes a snapshot with a name. [`Db::space`] shows the name with the bytes that the snapshot
    /// retains, which reveals forgotten snapshots.
    pub fn snapshot_named(&self, name: &str) -> Snapshot {
        let engine = self.engine();
        match self.check_process() {
            Ok(()) => Snapshot::take(&engine.tree.snapshots, name, engine.context.env.clock.now_ns()),
            Err(_) => Snapshot::of_child(&engine.tree.snapshots, name),
        }
    }

    /// Iterates over the default family.
    pub fn iter(&self, options: ReadOptions) -> Result<DbIterator> {
        self.iter_cf(&self.handle.default, options)
    }

    /// Iterates over a family.
    pub fn iter_cf(&self, family: &ColumnFamily, options: ReadOptions) -> Result<DbIterator> {
        let family = self.own(family)?;
        let iterator = DbIterator::new(&self.engine().tree, family, options)?;
        family.check_there().map(|()| iterator)
    }

    /// Makes the log durable, and with it all buffered writes acknowledged before the call.
    /// Volatile writes are in no log: [`Db::flush`] makes them durable. Equivalent to an empty
    /// durable batch.
    ///
    /// # Errors
    /// Those of a durable write: the first failure of the device, and `Poisoned` from then on;
    /// `ReadOnly`.
    pub fn sync(&self) -> Result<()> {
        self.write_opt(&WriteBatch::new(), &WriteOptions::durable())
    }

    /// Flushes all memtables to tables. All writes before the call are then durable.
    pub fn flush(&self) -> Result<()> {
        crate::admin::flush::flush(self.served()?)
    }

    /// Flushes like [`Db::flush`], until the token is cancelled: that ends the wait, not the flush.
    ///
    /// # Errors
    /// `Cancelled`; those of [`Db::flush`].
    pub fn flush_unless(&self, cancel: Option<&Cancel>) -> Result<()> {
        crate::admin::flush::flush_unless(self.served()?, cancel)
    }

    /// Compacts a range of a family (`None`: unbounded) down to its last level.
    pub fn compact_range(
        &self,
        family: &ColumnFamily,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<()> {
        self.compact_range_with(family, (start, end), CompactRequest::default(), &mut |_| {})
    }

    /// Compacts like [`Db::compact_range`], with options. `tell` receives the progress on the
    /// calling thread.
    pub fn compact_range_with(
        &self,
        family: &ColumnFamily,
        (start, end): (Option<&[u8]>, Option<&[u8]>),
        request: CompactRequest,
        tell: &mut dyn FnMut(&CompactProgress),
    ) -> Result<()> {
        let family = self.own(family)?;
        if start.zip(end).is_some_and(|(start, end)| start > end) {
            return Err(Error::invalid("compact_range: the start is after the end: swap the two keys"));
        }
        family.check_served()?;
        crate::admin::compact::compact_range(self.served()?, family, (start, end), request, tell)
    }

    /// Collects garbage in value files now, within the limits of the request, and waits for it.
    /// Garbage that compaction has not exposed yet stays: [`Db::compact_range`] exposes it.
    ///
    /// # Errors
    /// `InvalidArgument` for a request out of range; `ReadOnly`; `Busy` while collection is paused;
    /// `NoSpace`.
    pub fn collect_garbage(&self, request: GcRequest) -> Result<GcReport> {
        self.collect_garbage_with(request, &mut |_| {})
    }

    /// Collects like [`Db::collect_garbage`]. `tell` receives the progress on the calling thread:
    /// at least once, after each collection and now and then in between. It may call into the
    /// store.
    ///
    /// # Errors
    /// Those of [`Db::collect_garbage`].
    pub fn collect_garbage_with(
        &self,
        request: GcRequest,
        tell: &mut dyn FnMut(&GcProgress),
    ) -> Result<GcReport> {
        request.check()?;
        crate::admin::collect::collect(self.served()?, &request, tell)
    }

    /// Returns what [`Db::collect_garbage`] would do now. Works in a read-only store too, and
    /// changes nothing.
    pub fn gc_plan(&self, request: GcRequest) -> Result<GcPlan> {
        crate::admin::collect::plan(&self.here()?.jobs, &request)
    }

    /// Starts no collection of garbage until the guard is dropped; running ones continue. Writes
    /// are not slowed down for the growing garbage during the pause. After it they are, until the
    /// garbage is collected.
    pub fn pause_gc(&self) -> GcPause {
        self.here().map_or_else(|_| GcPause::of_child(), |engine| GcPause::begin(&engine.jobs))
    }

    /// Returns the damage of log and manifest of a store opened read-only in spite of it. Such a
    /// store shows an earlier state of each family, from before the damage. Empty: there is no
    /// damage, and the state is complete. The crate `repair` saves data behind the damage.
    pub fn damage(&self) -> Vec<Error> {
        self.here().map_or_else(|e| vec![e], |engine| engine.files.tables.quarantine.damage())
    }

    /// Returns the tables and value files that the open, background work or [`Db::verify`] found
    /// damaged and set aside. Keys in their ranges without a newer version elsewhere cannot be
    /// read. The rest of the store remains usable.
    pub fn damaged_files(&self) -> Vec<DamagedFile> {
        let found = self
            .here()
            .map(|engine| engine.tree.damaged_files(|number| engine.writes.large.segments.holds(number)));
        found.unwrap_or_default()
    }

    /// Returns the counters since the open of the store.
    pub fn stats(&self) -> Statistics {
        self.here().map(|engine| crate::admin::describe::statistics(&engine.jobs)).unwrap_or_default()
    }

    /// Returns the statistics of the block cache.
    pub fn cache_stats(&self) -> cache::CacheStats {
        self.here().map(|engine| engine.files.cache.stats()).unwrap_or_default()
    }

    /// Returns counters and gauges in the Prometheus exposition format: all of [`Db::space`],
    /// [`Db::stats`] and [`Db::cache_stats`]. docs/guide/ledger.md explains the important ones.
    ///
    /// # Errors
    /// Those of listing the directory.
    pub fn metrics(&self) -> Result<String> {
        crate::admin::metrics::metrics(&self.here()?.jobs)
    }

    /// Returns the disk space by owner.
    pub fn space(&self) -> Result<Space> {
        crate::admin::space_report::space(&self.here()?.jobs)
    }

    /// Returns the engines with data in the store, with the space of each.
    ///
    /// # Errors
    /// Those of listing the directory.
    pub fn engines(&self) -> Result<Vec<EngineSpace>> {
        engines::list(&self.here()?.files)
    }

    /// Removes a secondary engine and all its data from the store for good.
    ///
    /// # Errors
    /// Those of [`store::engines::remove`]; `ReadOnly`.
    pub fn remove_engine(&self, name: &str) -> Result<()> {
        let engine = self.engine();
        let _entered = engine.serve()?;
        // A checkpoint may be copying the engine's files.
        let _alone = lock(&engine.checkpointing);
        engines::remove(&engine.files, [engine.log.shared()].into_iter(), name)
    }

    /// Returns the format of the store. A release must support it to open the store.
    pub fn format(&self) -> StoreFormat {
        self.here().map_or(StoreFormat::V1, |engine| engine.files.format())
    }

    /// Raises the format of the store while it is in use. Durable on return; does nothing if the
    /// store already has the format.
    ///
    /// # Errors
    /// Those of [`store::files::StoreFiles::upgrade`]; `ReadOnly`.
    pub fn upgrade(&self, format: StoreFormat) -> Result<()> {
        let engine = self.engine();
        let _entered = engine.serve()?;
        // A checkpoint must not mix two formats.
        let _alone = lock(&engine.checkpointing);
        engine.files.upgrade(format)
    }

    /// Returns the files named by the manifest, for tests that compare them with the directory.
    #[doc(hidden)]
    pub fn live_files(&self) -> crate::admin::live_files::LiveFiles {
        crate::admin::live_files::LiveFiles::of(&self.engine().jobs)
    }

    /// Describes the shape of the tree: a line for each family and level.
    pub fn describe(&self) -> String {
        self.here().map_or_else(|e| e.to_string(), |engine| crate::admin::describe::describe(&engine.jobs))
    }

    /// Waits until no background work is left, at most `timeout`. Returns true if none is left.
    pub fn wait_idle(&self, timeout: Duration) -> bool {
        self.here().is_ok_and(|engine| crate::admin::idle::wait_idle(&engine.jobs, timeout))
    }

    /// Creates asynchronous requests: many at once without a thread for each; see [`Requests`]. In
    /// a read-only store reads work.
    ///
    /// # Errors
    /// `InvalidArgument` for an option out of range; those of the system that makes threads.
    pub fn requests(&self, options: &RequestOptions) -> Result<Requests> {
        let engine = Arc::downgrade(self.here()?);
        let serve = Arc::new(move || engine.upgrade().ok_or_else(closed)?.serve().map(drop));
        Requests::new(&self.engine().requests, serve, options)
    }

    /// Runs background work of a simulated environment until the future completes. Returns its
    /// output.
    #[doc(hidden)]
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let (mut future, mut task) = (std::pin::pin!(future), Task::from_waker(Waker::noop()));
        self.engine().context.wait_until(|| match future.as_mut().poll(&mut task) {
            Poll::Ready(out) => Some(out),
            Poll::Pending => None,
        })
    }

    /// Runs one step of background work in a simulated environment. False if there was none.
    #[doc(hidden)]
    pub fn run_background_step(&self) -> bool {
        self.engine().context.env.is_simulated() && self.engine().scheduler.run_one()
    }

    /// Returns the number of jobs between two steps in a simulated environment.
    #[doc(hidden)]
    pub fn jobs_under_way(&self) -> usize {
        self.engine().scheduler.under_way()
    }

    /// Closes the store regardless of remaining handles, and returns errors that a drop would hide.
    /// Calls on other threads end. A write is as durable as promised, or fails with `Closed`. A
    /// compaction, a collection, a verification or a checkpoint fails with `Closed` and leaves no
    /// files behind. On return the directory may be opened again. Later calls of clones, families,
    /// iterators and streams fail with `Closed`. Closing twice is harmless.
    ///
    /// An event listener must not call it.
    ///
    /// # Errors
    /// The first failure of background work or of the close. The store is closed in any case.
    pub fn close(self) -> Result<()> {
        if let Err(e) = self.check_process() {
            // The parent closes it.
            std::mem::forget(self);
            return Err(e);
        }
        self.engine().end()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The engine is leaked in a child process.
        if self.engine.context.check_process().is_err() {
            return;
        }
        // The listener has received any error, and recovery handles it like a crash.
        let _ = self.engine.close();
    }
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Db({})", self.engine().context.dir.display())
    }
}

/// Returns the error of a store without the family `default`. A store created by another engine has
/// no families until LavaKV opens it for writing; from then on this one always exists.
fn without_default(engine: &Engine) -> Error {
    let e = match engine.files.manifest.state().next_family {
        0 => Error::not_found(
            "there are no column families in this store: another engine made it; open it with that engine",
        ),
        _ => Error::corruption("the manifest has no column family `default`"),
    };
    e.at_file(&engine.context.dir)
}
