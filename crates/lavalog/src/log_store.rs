//! The public API: a store of logs, one log, a batch.

use crate::core::{Core, StoreOwner};
use crate::entry::{LogId, Lsn};
use crate::jobs::Background;
use crate::ops::Op;
use crate::options::Options;
use crate::scan::Scan;
use crate::space_report::{self, Space};
use crate::verify::{self, VerifyReport};
use base::histogram::Distribution;
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind, Result};
use io::{Cancel, Env};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use store::commit::{Completion, Durability};
use store::context::Entered;
use store::engines::{self, EngineSpace};
use store::files::unfinished::Mark;
use store::format::StoreFormat;
use store::pacing::PaceReport;
use store::run::{Checkpointer, Scheduler, Work};
use store::secondary_engine::PrimaryWrite;

/// A store of logs. Clones share the store. Dropping the last clone stops the background threads
/// without closing the store; the next open recovers it.
#[derive(Clone, Debug)]
pub struct LogStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    core: Arc<Core>,
    /// The background scheduler, if this engine opened the store.
    scheduler: Option<Arc<Scheduler>>,
    checkpoints: Arc<Checkpoints>,
    /// Whether [`LogStore::end`] was called.
    ending: Mutex<bool, rank::Closing>,
    /// The identity of the store.
    id: [u8; 16],
}

/// Makes checkpoints, for callers and for requests of other processes. It holds only the core, so a
/// pending request does not keep the store from closing.
#[derive(Debug)]
struct Checkpoints {
    core: Arc<Core>,
    /// Held while the name of a checkpoint becomes durable.
    one_at_a_time: Mutex<(), rank::Checkpoint>,
}

impl Checkpointer for Checkpoints {
    fn checkpoint(&self, dir: &Path) -> Result<()> {
        self.checkpoint_unless(dir, None)
    }
}

impl Checkpoints {
    fn checkpoint_unless(&self, dir: &Path, cancel: Option<&Cancel>) -> Result<()> {
        let _entered = self.core.context().enter()?;
        crate::copy::checkpoint(&self.core, &self.one_at_a_time, dir, cancel)
    }
}

impl Inner {
    fn stop(&self) {
        if let Some(scheduler) = &self.scheduler {
            scheduler.stop();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A forked child has none of the background threads.
        if self.core.context().check_process().is_ok() {
            self.stop();
        }
    }
}

/// Time for which [`LogStore::wait_idle`] tolerates a full volume: long enough for several retries.
const NO_ROOM_NS: u64 = 1_000_000_000;

/// Shows the contents of a store of logs in numbers, and counters since it was opened, for
/// monitoring; `LogStore::stats` reads them from memory. For bytes on disk and single logs use
/// `LogStore::space`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Number of logs in the store now.
    pub logs: u64,
    /// Records appended since the store was opened.
    pub appends: u64,
    /// Bytes of the records appended since the store was opened; with `log_written_bytes` the write
    /// amplification of the log.
    pub append_bytes: u64,
    /// Bytes of all live records now, without overhead.
    pub record_bytes: u64,
    /// Memory of the record index, bytes.
    pub index_bytes: u64,
    /// Memory of the newest records, which are read without the device, bytes.
    pub recent_bytes: u64,
    /// Log groups sealed since the store was opened: files of the log that are complete and can be
    /// collected.
    pub sealed_groups: u64,
    /// Files collected since the store was opened.
    pub collected_files: u64,
    /// Bytes of live records copied by garbage collection since the store was opened. Many of them
    /// mean that logs with old live records share files with trimmed ones.
    pub copied_bytes: u64,
    /// Lost or damaged index files rebuilt from their log groups since the store was opened.
    pub remade_files: u64,
    /// Device writes of the log since the store was opened; fewer than `appends` where writers
    /// share them.
    pub log_writes: u64,
    /// Bytes of the log written to the device since the store was opened.
    pub log_written_bytes: u64,
    /// Device usage and current limits of background work since the store was opened. On a shared
    /// store, of all engines.
    pub background_io: BackgroundIo,
    /// Current limit of open storage files. It is below [`Options::open_files_max`] if the process
    /// has few descriptors or other open stores.
    pub open_files_max: u64,
    /// Format number of the store; a release must support it to open the store.
    pub format: u32,
    /// Newest format number of this release, the target of [`LogStore::upgrade`].
    pub format_newest: u32,
    /// Latency distributions in nanoseconds since the store was opened: `record_append` (all
    /// written batches), `record_append_async`, `record_read`, `record_scan` (the next record),
    /// `record_log_append`, `record_log_sync` and `record_log_wait`. Operations that do not wait
    /// for the device are sampled.
    pub operations: Vec<(&'static str, Distribution)>,
}

/// Shows how much background work uses the device and what limits it, to tune
/// [`Options::io_budget`]. Counts are since the open; on a store with keys they include the work of
/// both engines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackgroundIo {
    /// Budget for reads and writes in bytes per second ([`Options::io_budget`]); 0: unlimited.
    pub budget_bytes_per_s: u64,
    /// Background requests allowed at the device at once, in thousandths. The store lowers it when
    /// reads become slow.
    pub depth_milli: u64,
    /// 90th percentile of reads on an otherwise idle device, nanoseconds; 0: unknown.
    pub usual_read_ns: u64,
    /// Bytes read and written for index files and checkpoints.
    pub index_bytes: u64,
    /// Bytes read and written by garbage collection.
    pub collection_bytes: u64,
    /// Bytes read and written by all other background work. On a store shared with LavaKV,
    /// including its compactions.
    pub other_bytes: u64,
    /// Number of waits for admission to the device.
    pub waits: u64,
    /// Total time of these waits, nanoseconds.
    pub wait_ns: u64,
}

impl BackgroundIo {
    fn of(pace: &PaceReport) -> BackgroundIo {
        let [index_bytes, compaction_bytes, collection_bytes, other_bytes] = pace.bytes;
        BackgroundIo {
            budget_bytes_per_s: pace.budget_bytes_per_s,
            depth_milli: pace.depth_milli,
            usual_read_ns: pace.usual_read_ns,
            index_bytes,
            collection_bytes,
            other_bytes: compaction_bytes + other_bytes,
            waits: pace.waits,
            wait_ns: pace.wait_ns,
        }
    }
}

impl LogStore {
    /// Opens the store of logs in a directory, or creates one.
    ///
    /// # Errors
    /// `InvalidArgument` for an option out of range; `Locked` if another process has the store
    /// open; `Corruption` if durable data is lost; `Unsupported` if a newer release wrote the
    /// store; `NoSpace`; I/O errors.
    pub fn open(env: &Env, dir: &Path, options: &Options) -> Result<LogStore> {
        Self::open_marked(env, dir, options, None)
    }

    /// Opens a store as [`LogStore::open`] does; a repair passes its `mark` to open the store that
    /// it builds.
    pub(crate) fn open_marked(
        env: &Env,
        dir: &Path,
        options: &Options,
        mark: Option<&Mark>,
    ) -> Result<LogStore> {
        let core = crate::open::open(env, dir, options, mark)?;
        let work: Arc<dyn Work> = Arc::new(Background(core.clone()));
        let scheduler = Scheduler::new(core.context(), options.background_threads, work);
        let store = Self::over(core, Some(scheduler.clone()));
        if options.checkpoint_requests {
            let checkpointer: Arc<dyn Checkpointer> = store.0.checkpoints.clone();
            scheduler.serve_requests(Arc::downgrade(&checkpointer));
        }
        scheduler.start()?;
        Ok(store)
    }

    /// Opens the store of logs in a directory for reading, even while another process writes it.
    /// The store shows everything acknowledged before the call. Nothing is locked or written. If
    /// the log or the manifest is damaged, the store shows everything before the damage, and
    /// [`LogStore::damage`] reports the damage.
    ///
    /// # Errors
    /// `NotFound` if the directory has no logs; `Busy` if the store changes faster than it can be
    /// read; `Corruption`; `Unsupported` if a newer release wrote the store; I/O errors.
    pub fn open_read_only(env: &Env, dir: &Path, options: &Options) -> Result<LogStore> {
        Ok(LogStore::on(crate::open::read_only::open(env, dir, options)?))
    }

    /// Returns the damage of log and manifest that a read-only open found.
    pub fn damage(&self) -> Vec<Error> {
        match self.here() {
            Ok(core) => core.reader().map_or_else(Vec::new, |reader| reader.damage.clone()),
            Err(e) => vec![e],
        }
    }

    /// Wraps the core of a secondary engine; the host engine's threads do the background work.
    pub(crate) fn on(core: Arc<Core>) -> LogStore {
        Self::over(core, None)
    }

    fn over(core: Arc<Core>, scheduler: Option<Arc<Scheduler>>) -> LogStore {
        let id = core.store.manifest.state().store.uid.0;
        let checkpoints = Arc::new(Checkpoints { core: core.clone(), one_at_a_time: Mutex::new(()) });
        LogStore(Arc::new(Inner { core, scheduler, checkpoints, ending: Mutex::new(false), id }))
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.0.core
    }

    /// Returns the core. Fails in a forked child and after the store is closed.
    fn here(&self) -> Result<&Arc<Core>> {
        self.core().context().check_open()?;
        Ok(self.core())
    }

    /// Registers a call that changes the store or reads it at length; closing waits for it.
    fn enter(&self) -> Result<(Entered<'_>, &Arc<Core>)> {
        Ok((self.core().context().enter()?, self.core()))
    }

    /// Fails in a forked child of the process that opened the store.
    ///
    /// # Errors
    /// `Forked`.
    pub fn check_process(&self) -> Result<()> {
        self.core().context().check_process()
    }

    /// Returns the identity of the store, which is the same at every open.
    pub fn store_id(&self) -> [u8; 16] {
        self.0.id
    }

    /// Returns the durability of writes that do not specify one.
    pub fn durability(&self) -> Durability {
        self.core().store.options.durability
    }

    /// Creates a log.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` or `TooLarge` for the name; `NoSpace`; errors of writing
    /// the log.
    pub fn create_log(&self, name: &str) -> Result<LogHandle> {
        let id = self.enter()?.1.writes.create(name, Durability::Durable)?;
        Ok(LogHandle { store: self.clone(), id })
    }

    /// Opens a log.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn open_log(&self, name: &str) -> Result<LogHandle> {
        let id = self.here()?.catalog.view().registry().named(name)?.id();
        Ok(LogHandle { store: self.clone(), id })
    }

    /// Opens a log, or creates it.
    ///
    /// # Errors
    /// Those of [`LogStore::create_log`].
    pub fn log(&self, name: &str) -> Result<LogHandle> {
        match self.open_log(name) {
            Err(e) if e.kind() == ErrorKind::NotFound => match self.create_log(name) {
                // Another thread created the log meanwhile.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => self.open_log(name),
                created => created,
            },
            opened => opened,
        }
    }

    /// Deletes a log with all its records, durably.
    ///
    /// # Errors
    /// `NotFound`; `NoSpace`; errors of writing the log.
    pub fn delete_log(&self, name: &str) -> Result<()> {
        let log = self.here()?.catalog.view().registry().named(name)?.id();
        self.enter()?.1.writes.write(&[Op::Delete { log }], Durability::Durable)
    }

    /// Lists the names of at most `limit` logs in name order, starting at `from`.
    pub fn list_logs(&self, from: &str, limit: usize) -> Vec<String> {
        let Ok(core) = self.here() else { return Vec::new() };
        let logs = core.catalog.view();
        logs.registry().list_from(from).take(limit).map(|log| log.name().to_string()).collect()
    }

    /// Writes a batch atomically. The batch may contain operations on any logs.
    ///
    /// # Errors
    /// `Trimmed`, `AlreadyExists`, `NotFound`, `InvalidArgument` for one of the operations,
    /// `TooLarge` and `NoSpace`: nothing was written. Errors of writing the log.
    pub fn write(&self, batch: &LogBatch<'_>, durability: Durability) -> Result<()> {
        self.enter()?.1.writes.write(&batch.ops, durability)
    }

    /// Writes a durable batch as [`LogStore::write`] does, without waiting for durability. Readers
    /// see the batch at once.
    ///
    /// # Errors
    /// The errors of [`LogStore::write`]. The completion reports a later device failure.
    pub fn write_async(&self, batch: &LogBatch<'_>) -> Result<Completion> {
        self.enter()?.1.writes.write_async(&batch.ops)
    }

    /// Writes a batch together with a batch of the host engine ([`crate::SecondaryLogs`]),
    /// atomically, in one device write. `host` runs that engine's write, which passes its own batch
    /// to the given sink once.
    ///
    /// # Errors
    /// The errors of [`LogStore::write`], and those of `host`.
    pub fn write_with_primary(&self, batch: &LogBatch<'_>, host: &mut PrimaryWrite<'_>) -> Result<()> {
        self.enter()?.1.writes.write_with_primary(&batch.ops, host)
    }

    /// Makes all earlier writes durable.
    ///
    /// # Errors
    /// Errors of writing the log.
    pub fn sync(&self) -> Result<()> {
        self.enter()?.1.log.sync()
    }

    /// Returns the statistics of the store.
    pub fn statistics(&self) -> Statistics {
        let Ok(core) = self.here() else { return Statistics::default() };
        let wal = core.store.lane.begun().map(|wal| wal.stats()).unwrap_or_default();
        let (logs, record_bytes, map_bytes) = {
            let logs = core.catalog.view();
            (logs.registry().len() as u64, logs.ledger().live().bytes, logs.map_bytes())
        };
        let mut index_bytes = map_bytes;
        core.catalog.each_log(|log| index_bytes += log.memory_bytes());
        Statistics {
            logs,
            appends: core.log.appends(),
            append_bytes: core.log.append_bytes(),
            record_bytes,
            index_bytes: index_bytes as u64,
            recent_bytes: core.records.recent_bytes() as u64,
            sealed_groups: core.sealer.sealed_groups(),
            collected_files: core.collector.collected_files(),
            copied_bytes: core.collector.copied_bytes(),
            remade_files: core.remaker.remade_files(),
            log_writes: wal.durable_writes + wal.writes,
            log_written_bytes: wal.written_bytes,
            background_io: BackgroundIo::of(&core.context().pace().report()),
            open_files_max: core.store.open_files_max(),
            format: core.store.files.format().number(),
            format_newest: StoreFormat::NEWEST.number(),
            operations: core.operations(),
        }
    }

    /// Reports the bytes on disk by owner.
    ///
    /// # Errors
    /// I/O errors while listing the directory.
    pub fn space(&self) -> Result<Space> {
        let core = self.here()?;
        space_report::take(&core.store, &core.catalog)
    }

    /// Lists the engines of the store, each with the space of its files other than the log.
    ///
    /// # Errors
    /// I/O errors while listing the directory.
    pub fn engines(&self) -> Result<Vec<EngineSpace>> {
        engines::list(&self.here()?.store.files)
    }

    /// Returns the format of the store, which an earlier release must support to open it.
    pub fn format(&self) -> StoreFormat {
        self.here().map_or(StoreFormat::V1, |core| core.store.files.format())
    }

    /// Raises the format of the store while reads and writes continue. Durable on return; does
    /// nothing if the store has the format already.
    ///
    /// # Errors
    /// Those of [`store::files::StoreFiles::upgrade`]; `ReadOnly`.
    pub fn upgrade(&self, format: StoreFormat) -> Result<()> {
        self.enter()?.1.store.files.upgrade(format)
    }

    /// Reads and checks all data while writes continue: see [`crate::verify`].
    pub fn verify(&self) -> VerifyReport {
        match self.verify_unless(None) {
            Ok(report) => report,
            Err(error) => {
                let damages = vec![verify::Damage { error, lost: Vec::new() }];
                VerifyReport { damages, ..VerifyReport::default() }
            }
        }
    }

    /// Verifies as [`LogStore::verify`] does, until the token is cancelled.
    ///
    /// # Errors
    /// `Cancelled`, `Forked`.
    pub fn verify_unless(&self, cancel: Option<&Cancel>) -> Result<VerifyReport> {
        verify::verify(self.enter()?.1, cancel)
    }

    /// Copies the store into a new or empty directory. The copy is an independent store with all
    /// writes acknowledged before the call, and is durable on return. Writes and background work
    /// continue meanwhile, except for garbage collection.
    ///
    /// # Errors
    /// `AlreadyExists` if the directory is not empty; `Locked` while another checkpoint is made
    /// there; `Unsupported` if the store is shared with another engine, which then makes the
    /// checkpoint of both; `Corruption` if the data to copy is damaged; `NoSpace`; I/O errors.
    pub fn checkpoint(&self, dir: &Path) -> Result<()> {
        self.checkpoint_unless(dir, None)
    }

    /// Makes a checkpoint as [`LogStore::checkpoint`] does, until the token is cancelled. A
    /// cancelled checkpoint leaves nothing behind.
    ///
    /// # Errors
    /// The errors of [`LogStore::checkpoint`]; `Cancelled`.
    pub fn checkpoint_unless(&self, dir: &Path, cancel: Option<&Cancel>) -> Result<()> {
        self.0.checkpoints.checkpoint_unless(dir, cancel)
    }

    /// Closes the active log group; a background thread then seals it.
    ///
    /// # Errors
    /// `NoSpace`; errors of writing the log.
    pub fn seal(&self) -> Result<()> {
        let (_entered, core) = self.enter()?;
        core.store.check_writable()?;
        core.sealer.seal_active().map_err(|e| match core.store.lane.wal().check() {
            // Writing the end of the group failed. This is no refusal, even for lack of space: the
            // log is poisoned.
            Err(failed) if failed.kind() == ErrorKind::Poisoned => {
                core.context().health.poison(&failed);
                failed
            }
            _ => e,
        })
    }

    /// Waits until no background work is left.
    ///
    /// # Errors
    /// The error that stopped the store; `NoSpace` if the remaining work has no space; a temporary
    /// condition that persists, such as a lack of file descriptors.
    pub fn wait_idle(&self) -> Result<()> {
        self.here()?.store.check_writable()?;
        let (background, context) = (Background(self.core().clone()), self.core().context());
        // Retry jobs that failed for lack of space: there may be space by now.
        context.health.retry();
        context.signals.notify_work();
        let end_ns = context.now_ns().saturating_add(NO_ROOM_NS);
        context.wait_until(|| {
            let sound = context.health.check_sound().and_then(|()| context.check_open());
            if sound.is_err() || background.is_settled() {
                return Some(sound);
            }
            if let Some(e) = context.health.held_up(context.now_ns()) {
                let why = "background work of the log engine is held up and resumes when this error is gone";
                return Some(Err(e.context(why)));
            }
            let refused = context.health.out_of_space() && context.now_ns() >= end_ns;
            let why = "no space for background work of the log engine: trim or delete logs, or free space";
            refused.then(|| Err(Error::new(ErrorKind::NoSpace, why).at_file(&context.dir)))
        })
    }

    /// Returns the directory of the store.
    pub fn dir(&self) -> &Path {
        &self.core().context().dir
    }

    /// Closes the store even if other handles are alive. All earlier writes become durable, running
    /// calls complete or end early, later calls fail with `Closed`, and the directory can be opened
    /// again. A second call waits for the first and does nothing. For a secondary engine
    /// ([`crate::SecondaryLogs`]) it only makes all writes durable; the host engine closes the
    /// store.
    ///
    /// # Errors
    /// Errors of writing the log.
    pub fn end(&self) -> Result<()> {
        self.check_process()?;
        let core = self.core();
        if let StoreOwner::Host(_) = core.roof {
            return core.context().check_open().and_then(|()| core.log.sync());
        }
        let mut ended = lock(&self.0.ending);
        if std::mem::replace(&mut *ended, true) {
            return Ok(());
        }
        core.context().shut();
        core.writes.tails().wake_all();
        self.0.stop();
        let StoreOwner::Own(store) = &core.roof else { return Ok(()) };
        let closed = store.close();
        core.store.lane.refuse_wanted(&store::context::closed());
        core.store.lane.stored().end();
        core.records.rows().end();
        store.files().unlock();
        closed
    }

    /// Runs one step of background work in a simulation without threads. Returns false if there is
    /// none.
    pub fn step(&self) -> bool {
        self.core().context().signals.step()
    }

    /// Closes the store: see [`LogStore::end`].
    ///
    /// # Errors
    /// The errors of [`LogStore::end`].
    pub fn close(self) -> Result<()> {
        self.end()
    }
}

/// Operations to write as one atomic batch.
#[derive(Clone, Debug, Default)]
pub struct LogBatch<'a> {
    ops: Vec<Op<'a>>,
}

impl<'a> LogBatch<'a> {
    /// Creates an empty batch.
    pub fn new() -> LogBatch<'a> {
        LogBatch::default()
    }

    /// Returns the number of operations.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Returns true if the batch has no operations.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Adds an append of a record.
    pub fn append(&mut self, log: &LogHandle, lsn: Lsn, bytes: &'a [u8]) -> &mut Self {
        self.ops.push(Op::Append { log: log.id, lsn, bytes });
        self
    }

    /// Adds the permanent removal of all records below an LSN.
    pub fn trim(&mut self, log: &LogHandle, below: Lsn) -> &mut Self {
        self.ops.push(Op::Trim { log: log.id, below });
        self
    }

    /// Adds the removal of all records above an LSN.
    pub fn truncate_after(&mut self, log: &LogHandle, lsn: Lsn) -> &mut Self {
        self.ops.push(Op::TruncateAfter { log: log.id, lsn });
        self
    }

    /// Adds a replacement of the log's metadata.
    pub fn set_metadata(&mut self, log: &LogHandle, bytes: &'a [u8]) -> &mut Self {
        self.ops.push(Op::SetMetadata { log: log.id, bytes });
        self
    }
}

/// A handle of one log.
#[derive(Clone, Debug)]
pub struct LogHandle {
    store: LogStore,
    id: LogId,
}

impl LogHandle {
    fn core(&self) -> &Arc<Core> {
        self.store.core()
    }

    /// Returns the core. Fails in a forked child and after the store is closed.
    fn here(&self) -> Result<&Arc<Core>> {
        self.store.here()
    }

    fn enter(&self) -> Result<(Entered<'_>, &Arc<Core>)> {
        self.store.enter()
    }

    /// Returns the store of this log.
    pub fn store(&self) -> &LogStore {
        &self.store
    }

    /// Returns the number of this log.
    pub fn id(&self) -> LogId {
        self.id
    }

    /// Appends a record. LSNs may have gaps and arrive in any order.
    ///
    /// # Errors
    /// `Trimmed` for an LSN below the trim; `AlreadyExists` if the LSN has a record with other
    /// bytes (repeating the same bytes succeeds); `TooLarge`; `NotFound` if the log was deleted;
    /// `NoSpace`: in all these cases nothing was written. Errors of writing the log.
    pub fn append(&self, lsn: Lsn, bytes: &[u8], durability: Durability) -> Result<()> {
        self.enter()?.1.writes.write(&[Op::Append { log: self.id, lsn, bytes }], durability)
    }

    /// Appends a durable record as [`LogHandle::append`] does, without waiting for durability.
    /// Readers see the record at once.
    ///
    /// # Errors
    /// The errors of [`LogHandle::append`]. The completion reports a later device failure.
    pub fn append_async(&self, lsn: Lsn, bytes: &[u8]) -> Result<Completion> {
        self.enter()?.1.writes.write_async(&[Op::Append { log: self.id, lsn, bytes }])
    }

    /// Removes all records below an LSN for good and refuses later appends there. The trim survives
    /// a process crash at once, and a power failure after the next durable write.
    ///
    /// # Errors
    /// `NotFound` if the log was deleted; `NoSpace`; errors of writing the log.
    pub fn trim(&self, below: Lsn) -> Result<()> {
        self.enter()?.1.writes.write(&[Op::Trim { log: self.id, below }], Durability::Buffered)
    }

    /// Removes all records above an LSN. Later appends can reuse these LSNs.
    ///
    /// # Errors
    /// The errors of [`LogHandle::trim`].
    pub fn truncate_after(&self, lsn: Lsn, durability: Durability) -> Result<()> {
        self.enter()?.1.writes.write(&[Op::TruncateAfter { log: self.id, lsn }], durability)
    }

    /// Replaces the log's metadata.
    ///
    /// # Errors
    /// The errors of [`LogHandle::trim`]; `TooLarge`.
    pub fn set_metadata(&self, bytes: &[u8], durability: Durability) -> Result<()> {
        self.enter()?.1.writes.write(&[Op::SetMetadata { log: self.id, bytes }], durability)
    }

    /// Returns the log's metadata, or `None` if it was never set.
    ///
    /// # Errors
    /// `NotFound` if the log was deleted.
    pub fn metadata(&self) -> Result<Option<Arc<[u8]>>> {
        Ok(self.here()?.catalog.view().log(self.id)?.metadata().cloned())
    }

    /// Reads a record. Returns `None` if the LSN has no record.
    ///
    /// # Errors
    /// `Trimmed` below the trim; `NotFound` if the log was deleted; `Corruption`, with file and
    /// offset; I/O errors.
    pub fn read(&self, lsn: Lsn) -> Result<Option<Vec<u8>>> {
        let mut out = Vec::new();
        Ok(self.read_into(lsn, &mut out)?.then_some(out))
    }

    /// Appends the bytes of a record to `out`. Returns false if the LSN has no record.
    ///
    /// # Errors
    /// The errors of [`LogHandle::read`]; `out` is then unchanged.
    pub fn read_into(&self, lsn: Lsn, out: &mut Vec<u8>) -> Result<bool> {
        self.here()?.records.read(self.id, lsn, out)
    }

    /// Iterates over the records from an LSN on.
    pub fn scan(&self, from: Lsn) -> Scan {
        self.scan_range(from..=Lsn::MAX)
    }

    /// Iterates over the records of a range of LSNs.
    pub fn scan_range(&self, lsns: RangeInclusive<Lsn>) -> Scan {
        Scan::new(self.core(), self.id, lsns)
    }

    /// Returns the name of the log.
    ///
    /// # Errors
    /// `NotFound` if the log was deleted.
    pub fn name(&self) -> Result<String> {
        Ok(self.here()?.catalog.view().log(self.id)?.name().to_string())
    }

    /// Returns the lowest LSN with a record.
    ///
    /// # Errors
    /// `NotFound` if the log was deleted.
    pub fn first_lsn(&self) -> Result<Option<Lsn>> {
        Ok(self.here()?.catalog.view().log(self.id)?.live().first())
    }

    /// Returns the highest LSN with a record, counting trimmed records.
    ///
    /// # Errors
    /// `NotFound` if the log was deleted.
    pub fn last_lsn(&self) -> Result<Option<Lsn>> {
        Ok(self.here()?.catalog.view().log(self.id)?.last())
    }

    /// Returns at most `limit` runs of missing LSNs from `from` to `to`, both included, each as its
    /// first and last LSN. Trimmed LSNs are not missing.
    ///
    /// # Errors
    /// `NotFound` if the log was deleted.
    pub fn gaps(&self, from: Lsn, to: Lsn, limit: usize) -> Result<Vec<(Lsn, Lsn)>> {
        Ok(self.here()?.catalog.view().log(self.id)?.live().gaps(from, to, limit))
    }
}

#[cfg(test)]
mod tests;
