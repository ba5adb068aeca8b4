//! What a user has in hand: a store of logs, one log, a batch.

use crate::core::{Core, Roof};
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
use store::guest::HostWrite;
use store::pacing::PaceReport;
use store::run::{Checkpointer, Scheduler, Work};

/// A store of logs. A clone is another handle of it; the last one that goes ends the background, and leaves what is not closed to
/// recovery.
#[derive(Clone, Debug)]
pub struct LogStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    core: Arc<Core>,
    /// Of a store that this engine opened.
    scheduler: Option<Arc<Scheduler>>,
    checkpoints: Arc<Checkpoints>,
    /// Whether [`LogStore::end`] was called.
    ending: Mutex<bool, rank::Closing>,
    /// Which store it is.
    id: [u8; 16],
}

/// Makes checkpoints, also for requests of other processes, which must not keep the store from being closed.
#[derive(Debug)]
struct Checkpoints {
    core: Arc<Core>,
    /// Held while the name of a checkpoint is made durable.
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
        // Its threads are not those of a child.
        if self.core.context().check_process().is_ok() {
            self.stop();
        }
    }
}

/// How long a wait for the background puts up with a full volume: several tries.
const NO_ROOM_NS: u64 = 1_000_000_000;

/// What a store of logs did and has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Logs.
    pub logs: u64,
    /// Records appended since it was opened.
    pub appends: u64,
    /// Their bytes.
    pub append_bytes: u64,
    /// Bytes of all records that are alive.
    pub record_bytes: u64,
    /// Bytes of memory that it takes to find them.
    pub index_bytes: u64,
    /// Bytes of memory that the newest records take, to be read without the device.
    pub recent_bytes: u64,
    /// Groups that became storage since it was opened.
    pub sealed_groups: u64,
    /// Files that were collected since.
    pub collected_files: u64,
    /// Bytes of records that were copied for that.
    pub copied_bytes: u64,
    /// Index files that were lost or damaged and made again from their groups since.
    pub remade_files: u64,
    /// Writes of the log to the device, since.
    pub log_writes: u64,
    /// Bytes of these.
    pub log_written_bytes: u64,
    /// What background work has used of the device since the store was opened, and what it may use now; beside keys that of both.
    pub background_io: BackgroundIo,
    /// Files of storage that may stay open now: fewer than [`Options::open_files_max`] where the process has few descriptors,
    /// or other stores.
    pub open_files_max: u64,
    /// The number of the store's format: what a release must know to open it.
    pub format: u32,
    /// The number of the newest format that this release knows, to which [`LogStore::upgrade`] may raise it.
    pub format_newest: u32,
    /// Nanoseconds of each kind of operation, since: `record_append` (all batches that are written), `record_append_async`,
    /// `record_read`, `record_scan` (the next record), `record_log_append`, `record_log_sync` and `record_log_wait`. What does not wait for the device is
    /// sampled.
    pub operations: Vec<(&'static str, Distribution)>,
}

/// How much of the device background work uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackgroundIo {
    /// Bytes per second that it may read and write ([`Options::io_budget`]); 0: it is not bounded.
    pub budget_bytes_per_s: u64,
    /// Pieces of it that may be at the device at once now, in thousandths: fewer where reads became slow.
    pub depth_milli: u64,
    /// What nine of ten reads take at most that have the device for themselves, nanoseconds; 0: not known.
    pub usual_read_ns: u64,
    /// Bytes that it read and wrote to make index files and checkpoints.
    pub index_bytes: u64,
    /// Bytes that collections read and wrote.
    pub collection_bytes: u64,
    /// Bytes that everything else read and wrote; beside keys, all that is theirs but flushes and collections.
    pub other_bytes: u64,
    /// Times that it waited for a place at the device.
    pub waits: u64,
    /// Nanoseconds of these, together.
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
    /// Opens the store of logs in a directory, or makes one.
    ///
    /// # Errors
    /// `InvalidArgument` for an option out of range; `Locked` if somebody else has it; `Corruption` if what was durable is lost;
    /// `Unsupported` if a newer release wrote it; `NoSpace`; those of the file system.
    pub fn open(env: &Env, dir: &Path, options: &Options) -> Result<LogStore> {
        Self::open_marked(env, dir, options, None)
    }

    /// As [`LogStore::open`], also of the store that a repair makes, with its `mark`.
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

    /// Opens the store of logs in a directory for reading, also beside the process that writes it: what was acknowledged before the call is
    /// seen. Nothing is locked or written. Where the log or the manifest is damaged, what is before that is seen, and [`LogStore::damage`]
    /// says so.
    ///
    /// # Errors
    /// `NotFound` if there are no logs; `Busy` if they change faster than they can be read; `Corruption`; `Unsupported` if a newer release
    /// wrote it; those of the file system.
    pub fn open_read_only(env: &Env, dir: &Path, options: &Options) -> Result<LogStore> {
        Ok(LogStore::on(crate::open::read_only::open(env, dir, options)?))
    }

    /// What is wrong with log and manifest, of a store that was opened for reading.
    pub fn damage(&self) -> Vec<Error> {
        match self.here() {
            Ok(core) => core.reader().map_or_else(Vec::new, |reader| reader.damage.clone()),
            Err(e) => vec![e],
        }
    }

    /// On a store that another engine opened, and whose threads do the work.
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

    /// The core, in the process that opened the store, until the store is closed.
    fn here(&self) -> Result<&Arc<Core>> {
        self.core().context().check_open()?;
        Ok(self.core())
    }

    /// A call that changes the store, or reads it at length, begins.
    fn enter(&self) -> Result<(Entered<'_>, &Arc<Core>)> {
        Ok((self.core().context().enter()?, self.core()))
    }

    /// Fails in a child of the process that opened the store.
    ///
    /// # Errors
    /// `Forked`.
    pub fn check_process(&self) -> Result<()> {
        self.core().context().check_process()
    }

    /// Which store it is: it keeps this when it is closed and opened again.
    pub fn store_id(&self) -> [u8; 16] {
        self.0.id
    }

    /// The durability of writes that do not say theirs.
    pub fn durability(&self) -> Durability {
        self.core().store.options.durability
    }

    /// Creates a log.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` or `TooLarge` for the name; `NoSpace`; those of the log.
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
    /// As [`LogStore::create_log`].
    pub fn log(&self, name: &str) -> Result<LogHandle> {
        match self.open_log(name) {
            Err(e) if e.kind() == ErrorKind::NotFound => match self.create_log(name) {
                // Somebody else did.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => self.open_log(name),
                created => created,
            },
            opened => opened,
        }
    }

    /// Deletes a log with all its records, durably.
    ///
    /// # Errors
    /// `NotFound`; `NoSpace`; those of the log.
    pub fn delete_log(&self, name: &str) -> Result<()> {
        let log = self.here()?.catalog.view().registry().named(name)?.id();
        self.enter()?.1.writes.write(&[Op::Delete { log }], Durability::Durable)
    }

    /// The names of logs at or behind one, in their order, so many at most.
    pub fn list_logs(&self, from: &str, limit: usize) -> Vec<String> {
        let Ok(core) = self.here() else { return Vec::new() };
        let logs = core.catalog.view();
        logs.registry().list_from(from).take(limit).map(|log| log.name().to_string()).collect()
    }

    /// Writes a batch, over whatever logs, whole or not at all.
    ///
    /// # Errors
    /// `Trimmed`, `AlreadyExists`, `NotFound`, `InvalidArgument` for one of its operations; `TooLarge`; `NoSpace`: nothing happened.
    /// Those of the log.
    pub fn write(&self, batch: &LogBatch<'_>, durability: Durability) -> Result<()> {
        self.enter()?.1.writes.write(&batch.ops, durability)
    }

    /// As [`LogStore::write`] of a durable batch, without waiting for that: it is seen at once.
    ///
    /// # Errors
    /// As there; of a device that failed the completion tells.
    pub fn write_async(&self, batch: &LogBatch<'_>) -> Result<Completion> {
        self.enter()?.1.writes.write_async(&batch.ops)
    }

    /// Writes a batch together with one of the engine that opened the store ([`crate::Beside`]): both or neither, in one device
    /// write. `host` is that engine's write, which calls what it is given once with its own batch.
    ///
    /// # Errors
    /// As [`LogStore::write`], and those of `host`.
    pub fn write_carrying(&self, batch: &LogBatch<'_>, host: &mut HostWrite<'_>) -> Result<()> {
        self.enter()?.1.writes.write_carrying(&batch.ops, host)
    }

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// Those of the log.
    pub fn sync(&self) -> Result<()> {
        self.enter()?.1.log.sync()
    }

    /// What it did and has.
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

    /// Who owns the bytes on disk.
    ///
    /// # Errors
    /// Those of listing the directory.
    pub fn space(&self) -> Result<Space> {
        let core = self.here()?;
        space_report::take(&core.store, &core.catalog)
    }

    /// The engines that have something in the store, with what each has there beside the log.
    ///
    /// # Errors
    /// Those of listing the directory.
    pub fn engines(&self) -> Result<Vec<EngineSpace>> {
        engines::list(&self.here()?.store.files)
    }

    /// The format of the store: what earlier releases must know to open it.
    pub fn format(&self) -> StoreFormat {
        self.here().map_or(StoreFormat::V1, |core| core.store.files.format())
    }

    /// Raises the format of the store, beside readers and writers. Durable on return; does nothing if the store has the format already.
    ///
    /// # Errors
    /// Those of [`store::files::Files::upgrade`]; `ReadOnly`.
    pub fn upgrade(&self, format: StoreFormat) -> Result<()> {
        self.enter()?.1.store.files.upgrade(format)
    }

    /// Reads and checks everything, while writers go on: see [`crate::verify`].
    pub fn verify(&self) -> VerifyReport {
        match self.verify_unless(None) {
            Ok(report) => report,
            Err(error) => {
                let damages = vec![verify::Damage { error, lost: Vec::new() }];
                VerifyReport { damages, ..VerifyReport::default() }
            }
        }
    }

    /// As [`LogStore::verify`], until the token is cancelled.
    ///
    /// # Errors
    /// `Cancelled`, `Forked`.
    pub fn verify_unless(&self, cancel: Option<&Cancel>) -> Result<VerifyReport> {
        verify::verify(self.enter()?.1, cancel)
    }

    /// Makes a copy of the store at one moment in a directory that is new or empty: a store of its own, with everything that was written
    /// before the call, and durable when this returns. Writers go on meanwhile, and so does everything but collection.
    ///
    /// # Errors
    /// `AlreadyExists` if there is something in the directory; `Locked` while another checkpoint is made there; `Unsupported` if another
    /// engine has something in the store, or opened it: then that engine makes the checkpoint, of both; `Corruption` if something is
    /// damaged that is to be copied; `NoSpace`; those of the file system.
    pub fn checkpoint(&self, dir: &Path) -> Result<()> {
        self.checkpoint_unless(dir, None)
    }

    /// As [`LogStore::checkpoint`], until the token is cancelled: then nothing is left of the copy.
    ///
    /// # Errors
    /// As there; `Cancelled`.
    pub fn checkpoint_unless(&self, dir: &Path, cancel: Option<&Cancel>) -> Result<()> {
        self.0.checkpoints.checkpoint_unless(dir, cancel)
    }

    /// Closes the group that is written, so that it becomes storage as soon as somebody is free.
    ///
    /// # Errors
    /// `NoSpace`; those of the log.
    pub fn seal(&self) -> Result<()> {
        let (_entered, core) = self.enter()?;
        core.store.check_writable()?;
        core.sealer.seal_active().map_err(|e| match core.store.lane.wal().check() {
            // The end of the group could not be written: that is no refusal, whatever it was.
            Err(failed) if failed.kind() == ErrorKind::Poisoned => {
                core.context().health.poison(&failed);
                failed
            }
            _ => e,
        })
    }

    /// Waits until there is nothing left to do in the background.
    ///
    /// # Errors
    /// What stopped the store; `NoSpace` if there is no room for what is left to do; what should have passed by itself and has not, such
    /// as a lack of descriptors.
    pub fn settle(&self) -> Result<()> {
        self.here()?.store.check_writable()?;
        let (background, context) = (Background(self.core().clone()), self.core().context());
        // There may be room by now for what found none.
        context.health.retry();
        context.signals.notify_work();
        let end_ns = context.now_ns().saturating_add(NO_ROOM_NS);
        context.wait_until(|| {
            let sound = context.health.check_sound().and_then(|()| context.check_open());
            if sound.is_err() || background.is_settled() {
                return Some(sound);
            }
            if let Some(e) = context.health.held_up(context.now_ns()) {
                let why = "what the log engine has to do in the background is held up; it goes on when this has passed";
                return Some(Err(e.context(why)));
            }
            let refused = context.health.out_of_space() && context.now_ns() >= end_ns;
            let why = "there is no room for what the log engine has to do in the background: trim or delete, or make room";
            refused.then(|| Err(Error::new(ErrorKind::NoSpace, why).at_file(&context.dir)))
        })
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.core().context().dir
    }

    /// Ends the store, also beside living handles: all that was written is durable, calls that run end early or to their end, later ones fail
    /// with `Closed`, and the directory may be opened again. A second call waits for the first, and does nothing. Where another engine
    /// opened the store ([`crate::Beside`]) all is made durable, and the rest comes when that engine is closed.
    ///
    /// # Errors
    /// Those of the log.
    pub fn end(&self) -> Result<()> {
        self.check_process()?;
        let core = self.core();
        if let Roof::Host(_) = core.roof {
            return core.context().check_open().and_then(|()| core.log.sync());
        }
        let mut ended = lock(&self.0.ending);
        if std::mem::replace(&mut *ended, true) {
            return Ok(());
        }
        core.context().shut();
        core.writes.tails().wake_all();
        self.0.stop();
        let Roof::Own(store) = &core.roof else { return Ok(()) };
        let closed = store.close();
        core.store.lane.refuse_wanted(&store::context::closed());
        core.store.lane.stored().end();
        core.records.rows().end();
        store.files().unlock();
        closed
    }

    /// In a simulation, which has no threads: one step of what there is to do in the background. False if there is nothing.
    pub fn step(&self) -> bool {
        self.core().context().signals.step()
    }

    /// Ends it: see [`LogStore::end`].
    ///
    /// # Errors
    /// As there.
    pub fn close(self) -> Result<()> {
        self.end()
    }
}

/// Operations that are written together.
#[derive(Clone, Debug, Default)]
pub struct LogBatch<'a> {
    ops: Vec<Op<'a>>,
}

impl<'a> LogBatch<'a> {
    /// An empty batch.
    pub fn new() -> LogBatch<'a> {
        LogBatch::default()
    }

    /// How many operations it has.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// True if it has none.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Appends a record.
    pub fn append(&mut self, log: &LogHandle, lsn: Lsn, bytes: &'a [u8]) -> &mut Self {
        self.ops.push(Op::Append { log: log.id, lsn, bytes });
        self
    }

    /// Removes all records below an LSN, for good.
    pub fn trim(&mut self, log: &LogHandle, below: Lsn) -> &mut Self {
        self.ops.push(Op::Trim { log: log.id, below });
        self
    }

    /// Removes all records above an LSN.
    pub fn truncate_after(&mut self, log: &LogHandle, lsn: Lsn) -> &mut Self {
        self.ops.push(Op::TruncateAfter { log: log.id, lsn });
        self
    }

    /// Replaces the metadata.
    pub fn set_metadata(&mut self, log: &LogHandle, bytes: &'a [u8]) -> &mut Self {
        self.ops.push(Op::SetMetadata { log: log.id, bytes });
        self
    }
}

/// One log.
#[derive(Clone, Debug)]
pub struct LogHandle {
    store: LogStore,
    id: LogId,
}

impl LogHandle {
    fn core(&self) -> &Arc<Core> {
        self.store.core()
    }

    /// The core, in the process that opened the store.
    fn here(&self) -> Result<&Arc<Core>> {
        self.store.here()
    }

    fn enter(&self) -> Result<(Entered<'_>, &Arc<Core>)> {
        self.store.enter()
    }

    /// The store that it is in.
    pub fn store(&self) -> &LogStore {
        &self.store
    }

    /// Its number.
    pub fn id(&self) -> LogId {
        self.id
    }

    /// Appends a record. LSNs need not follow each other, nor come in order.
    ///
    /// # Errors
    /// `Trimmed` at or below the trim; `AlreadyExists` if there is a record of this LSN with other bytes (the same bytes once more are
    /// fine); `TooLarge`; `NotFound` if the log was deleted; `NoSpace`: nothing happened. Those of the log.
    pub fn append(&self, lsn: Lsn, bytes: &[u8], durability: Durability) -> Result<()> {
        self.enter()?.1.writes.write(&[Op::Append { log: self.id, lsn, bytes }], durability)
    }

    /// As [`LogHandle::append`] of a durable record, without waiting for that: it is seen at once.
    ///
    /// # Errors
    /// As there; of a device that failed the completion tells.
    pub fn append_async(&self, lsn: Lsn, bytes: &[u8]) -> Result<Completion> {
        self.enter()?.1.writes.write_async(&[Op::Append { log: self.id, lsn, bytes }])
    }

    /// Removes all records below an LSN, for good: also those that would come later. Survives the process; a later durable write
    /// makes it survive the power.
    ///
    /// # Errors
    /// `NotFound` if the log was deleted; `NoSpace`; those of the log.
    pub fn trim(&self, below: Lsn) -> Result<()> {
        self.enter()?.1.writes.write(&[Op::Trim { log: self.id, below }], Durability::Buffered)
    }

    /// Removes all records above an LSN; others may take their places.
    ///
    /// # Errors
    /// As [`LogHandle::trim`].
    pub fn truncate_after(&self, lsn: Lsn, durability: Durability) -> Result<()> {
        self.enter()?.1.writes.write(&[Op::TruncateAfter { log: self.id, lsn }], durability)
    }

    /// Replaces the metadata.
    ///
    /// # Errors
    /// As [`LogHandle::trim`]; `TooLarge`.
    pub fn set_metadata(&self, bytes: &[u8], durability: Durability) -> Result<()> {
        self.enter()?.1.writes.write(&[Op::SetMetadata { log: self.id, bytes }], durability)
    }

    /// The metadata; `None` if they were never set.
    ///
    /// # Errors
    /// `NotFound` if the log was deleted.
    pub fn metadata(&self) -> Result<Option<Arc<[u8]>>> {
        Ok(self.here()?.catalog.view().log(self.id)?.metadata().cloned())
    }

    /// A record; `None` if there is none of that LSN.
    ///
    /// # Errors
    /// `Trimmed` below the trim; `NotFound` if the log was deleted; `Corruption`, with file and offset; those of reading.
    pub fn read(&self, lsn: Lsn) -> Result<Option<Vec<u8>>> {
        let mut out = Vec::new();
        Ok(self.read_into(lsn, &mut out)?.then_some(out))
    }

    /// Appends a record to `out`; false if there is none.
    ///
    /// # Errors
    /// As [`LogHandle::read`]; `out` is then as it was.
    pub fn read_into(&self, lsn: Lsn, out: &mut Vec<u8>) -> Result<bool> {
        self.here()?.records.read(self.id, lsn, out)
    }

    /// The records from an LSN on.
    pub fn scan(&self, from: Lsn) -> Scan {
        self.scan_range(from..=Lsn::MAX)
    }

    /// The records of a range of LSNs.
    pub fn scan_range(&self, lsns: RangeInclusive<Lsn>) -> Scan {
        Scan::new(self.core(), self.id, lsns)
    }

    /// Its name.
    ///
    /// # Errors
    /// `NotFound` if the log was deleted.
    pub fn name(&self) -> Result<String> {
        Ok(self.here()?.catalog.view().log(self.id)?.name().to_string())
    }

    /// The lowest LSN that it has.
    ///
    /// # Errors
    /// `NotFound` if the log was deleted.
    pub fn first_lsn(&self) -> Result<Option<Lsn>> {
        Ok(self.here()?.catalog.view().log(self.id)?.live().first())
    }

    /// The highest LSN that it has, or had when that was trimmed.
    ///
    /// # Errors
    /// `NotFound` if the log was deleted.
    pub fn last_lsn(&self) -> Result<Option<Lsn>> {
        Ok(self.here()?.catalog.view().log(self.id)?.last())
    }

    /// The LSNs of a range, both ends of which count, of which there are no records and that are not trimmed: `limit` runs at
    /// most, each with its first and last.
    ///
    /// # Errors
    /// `NotFound` if the log was deleted.
    pub fn gaps(&self, from: Lsn, to: Lsn, limit: usize) -> Result<Vec<(Lsn, Lsn)>> {
        Ok(self.here()?.catalog.view().log(self.id)?.live().gaps(from, to, limit))
    }
}

#[cfg(test)]
mod tests;
